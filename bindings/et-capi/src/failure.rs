//! Details of launches that failed.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use et::LaunchFailure;
use et::kernel::{ExceptionKind, HartContext, Location};

use crate::call::guard;
use crate::device::no_such;
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// What is known of a launch that failed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_failure {
    /// A number to be looked up; 0 is no failure.
    pub id: u64,
}

handle!(et_failure, 8, Arc<LaunchFailure>);

/// Why a hart stopped.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_exception {
    /// It trapped: see `cause` and `value`.
    ET_EXCEPTION_TRAP = 1,
    /// The host aborted the kernel.
    ET_EXCEPTION_ABORTED = 2,
    /// The kernel gave up.
    ET_EXCEPTION_GAVE_UP = 3,
    /// The kernel returned a negative number: see `value`.
    ET_EXCEPTION_RETURNED = 4,
    /// An access went to an address without a device.
    ET_EXCEPTION_BUS = 5,
    /// It did not answer.
    ET_EXCEPTION_HANG = 6,
    /// The tensor unit reported an error.
    ET_EXCEPTION_TENSOR = 7,
    /// Something that this version does not know.
    ET_EXCEPTION_OTHER = 8,
}

/// State of a hart of a launch that failed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_hart {
    /// `sizeof(et_hart)`, set by the caller.
    pub size: usize,
    /// Number of the hart.
    pub hart: u32,
    /// An `et_exception`.
    pub exception: u32,
    /// Of a trap: the CSR `scause`.
    pub cause: u64,
    /// Of a trap: the CSR `stval`; else what the kernel returned, in two's complement.
    pub value: u64,
    /// Where it stopped in the kernel; 0 if unknown.
    pub pc: u64,
    /// Cycle counter at that time.
    pub cycles: u64,
    /// 1 if `registers` are known.
    pub has_registers: u64,
    /// x1 to x31.
    pub registers: [u64; 31],
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_hart {
    const FIRST: usize = size_of::<Self>();
}

pub(crate) fn hart(failure: &LaunchFailure, index: usize) -> Result<&HartContext, Failure> {
    failure.contexts.get(index).ok_or_else(|| no_such("hart", index))
}

/// What is in the core file of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_core_file {
    /// `sizeof(et_core_file)`, set by the caller.
    pub size: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// Harts whose registers are in it.
    pub harts: u64,
    /// Regions of memory.
    pub regions: u64,
    /// Regions of which not all is in it.
    pub incomplete: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_core_file {
    const FIRST: usize = size_of::<Self>();
}

/// Returns what is in the core file that the launch asked for; the caller sets `core->size`.
/// `ET_INVALID` if it asked for none, or if none could be written, which the stream's list of
/// errors says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_core_file(
    failure: et_failure,
    core: *mut et_core_file,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let none = || Failure::new(et_status::ET_INVALID, "there is no core file");
        let summary = failure.core_file().ok_or_else(none)?;
        let incomplete = summary.regions.iter().filter(|region| region.error.is_some()).count();
        let file = et_core_file {
            size: 0,
            bytes: summary.bytes,
            harts: summary.harts as u64,
            regions: summary.regions.len() as u64,
            incomplete: incomplete as u64,
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&file, core, "core") }
    })
}

/// Returns the number of harts that failed, and the mask of their shires; the latter may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_failure_harts(
    failure: et_failure,
    harts: Option<&mut MaybeUninit<usize>>,
    shire_mask: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        raw::wanted(harts, "harts")?.write(failure.contexts.len());
        raw::store(shire_mask, failure.shire_mask);
        Ok(())
    })
}

/// Returns the state of one of them, by its index from 0. The caller sets `hart->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_hart(
    failure: et_failure,
    index: usize,
    hart: *mut et_hart,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let context = self::hart(&failure, index)?;
        let (exception, cause, value) = match context.kind {
            ExceptionKind::Trap { cause, tval } => {
                (et_exception::ET_EXCEPTION_TRAP, cause.as_u64(), tval)
            }
            ExceptionKind::SystemAbort => (et_exception::ET_EXCEPTION_ABORTED, 0, 0),
            ExceptionKind::SelfAbort => (et_exception::ET_EXCEPTION_GAVE_UP, 0, 0),
            ExceptionKind::KernelError(value) => {
                (et_exception::ET_EXCEPTION_RETURNED, 0, value.cast_unsigned())
            }
            ExceptionKind::BusError(value) => {
                (et_exception::ET_EXCEPTION_BUS, 0, value.cast_unsigned())
            }
            ExceptionKind::Hang => (et_exception::ET_EXCEPTION_HANG, 0, 0),
            ExceptionKind::TensorError => (et_exception::ET_EXCEPTION_TENSOR, 0, 0),
            _ => (et_exception::ET_EXCEPTION_OTHER, 0, 0),
        };
        let state = et_hart {
            size: 0,
            hart: context.hart_id,
            exception: exception as u32,
            cause,
            value,
            pc: context.pc.unwrap_or(0),
            cycles: context.cycles,
            has_registers: context.gpr.is_some().into(),
            registers: context.gpr.as_deref().copied().unwrap_or([0; 31]),
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&state, hart, "hart") }
    })
}

/// # Safety
///
/// As for [`raw::put_text`].
pub(crate) unsafe fn put_function(
    location: Option<Location>,
    distance: Option<&mut MaybeUninit<u64>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> Result<(), Failure> {
    let (name, from_start) = location.and_then(|place| place.symbol).unwrap_or_default();
    raw::store(distance, from_start);
    // SAFETY: promised by the caller.
    unsafe { raw::put_text(&name, buffer, capacity, needed) }
}

/// # Safety
///
/// As for [`raw::put_text`].
pub(crate) unsafe fn put_source(
    location: Option<Location>,
    line: Option<&mut MaybeUninit<u32>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> Result<(), Failure> {
    let (file, number) = location.and_then(|place| place.source).unwrap_or_default();
    raw::store(line, number);
    // SAFETY: promised by the caller.
    unsafe { raw::put_text(&file, buffer, capacity, needed) }
}

/// Returns the function in which a hart stopped, and the bytes from its start; an empty text if
/// that is unknown. `distance` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_function(
    failure: et_failure,
    index: usize,
    distance: Option<&mut MaybeUninit<u64>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let location = failure.location(hart(&failure, index)?);
        // SAFETY: promised by the caller.
        unsafe { put_function(location, distance, buffer, capacity, needed) }
    })
}

/// Returns the source file and line in which a hart stopped; an empty text and 0 if that is
/// unknown. `line` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_source(
    failure: et_failure,
    index: usize,
    line: Option<&mut MaybeUninit<u32>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let location = failure.location(hart(&failure, index)?);
        // SAFETY: promised by the caller.
        unsafe { put_source(location, line, buffer, capacity, needed) }
    })
}

/// Returns the instruction at which a hart stopped and its neighbours, a line for each, with a mark
/// at the one; an empty text if they are unknown. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_code(
    failure: et_failure,
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let lines = failure.code(hart(&failure, index)?);
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&lines.join("\n"), buffer, capacity, needed) }
    })
}

/// Returns the whole report as a text of several lines. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_text(
    failure: et_failure,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let text = format!("{:#}", **table::get(failure)?);
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}

/// Frees the details of a failure.
#[unsafe(no_mangle)]
pub extern "C" fn et_failure_free(failure: et_failure) -> et_status {
    guard(|| table::remove(failure))
}
