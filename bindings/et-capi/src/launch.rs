//! Descriptions of launches.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use et::kernel::UserTrace;
use et::{KernelArgs, Launch};

use crate::call::guard;
use crate::kernel::et_kernel;
use crate::memory::{self, et_mem};
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// A kernel with arguments and options.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_launch {
    /// A number to be looked up; 0 is no launch.
    pub id: u64,
}

handle!(et_launch, 7, Mutex<Launch>);

/// Where a kernel traces to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_trace_options {
    /// `sizeof(et_trace_options)`.
    pub size: usize,
    /// Shires to trace.
    pub shire_mask: u64,
    /// Harts of each shire.
    pub thread_mask: u64,
    /// Bytes of the part of a hart at which it counts as full, 0 for all.
    pub threshold: u32,
    /// Kinds of entries.
    pub event_mask: u32,
    /// Levels.
    pub filter_mask: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_trace_options {
    const FIRST: usize = size_of::<Self>();
}

/// Largest alignment of arguments.
const MAX_ALIGN: usize = 4096;

/// Looks at a description.
pub(crate) fn with<R>(
    launch: et_launch,
    look: impl FnOnce(&Launch) -> Result<R, Failure>,
) -> Result<R, Failure> {
    look(&table::get(launch)?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Changes a description.
fn change(launch: et_launch, change: impl FnOnce(Launch) -> Launch) -> et_status {
    guard(|| {
        let launch = table::get(launch)?;
        let mut launch = launch.lock().unwrap_or_else(PoisonError::into_inner);
        *launch = change(launch.clone());
        Ok(())
    })
}

/// Describes a launch of a kernel on all shires, without arguments.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_create(
    kernel: et_kernel,
    launch: Option<&mut MaybeUninit<et_launch>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(launch, "launch")?;
        out.write(table::insert(Mutex::new(Launch::new(&*table::get(kernel)?)))?);
        Ok(())
    })
}

/// Frees a description. Launches of it go on.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_free(launch: et_launch) -> et_status {
    guard(|| table::remove(launch))
}

/// Replaces the arguments by bytes; `align` is the alignment of the struct, a power of two up to
/// 4096, and 0 is 8. Memory whose address is in them is kept by `et_launch_keep` or by the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_launch_args(
    launch: et_launch,
    args: *const c_void,
    bytes: usize,
    align: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let args = unsafe { arguments(args, bytes, align) }?;
        let launch = table::get(launch)?;
        let mut launch = launch.lock().unwrap_or_else(PoisonError::into_inner);
        *launch = launch.clone().args(args);
        Ok(())
    })
}

/// Makes arguments of bytes.
///
/// # Safety
/// - As [`raw::bytes`].
pub(crate) unsafe fn arguments(
    args: *const c_void,
    bytes: usize,
    align: usize,
) -> Result<KernelArgs, Failure> {
    let align = if align == 0 { 8 } else { align };
    if !align.is_power_of_two() || align > MAX_ALIGN {
        let why = format!("alignment {align} is not a power of two up to {MAX_ALIGN}");
        return Err(Failure::new(et_status::ET_INVALID, why));
    }
    if bytes > et::kernel::MAX_ARGS {
        let error = et::Error::ArgumentsTooLarge { len: bytes, max: et::kernel::MAX_ARGS };
        return Err(error.into());
    }
    // SAFETY: promised by the caller.
    let args = unsafe { raw::bytes(args, bytes, "args") }?;
    Ok(KernelArgs::new().bytes(args, align))
}

/// Appends the address of device memory at an offset, and keeps the memory until the launch has
/// ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_mem(launch: et_launch, mem: et_mem, offset: u64) -> et_status {
    let slice = memory::rest(mem, offset);
    match slice {
        Ok(slice) => change(launch, |launch| launch.buffer(slice)),
        Err(failure) => failure.report(),
    }
}

/// Keeps device memory until the launch has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_keep(launch: et_launch, mem: et_mem) -> et_status {
    match memory::rest(mem, 0) {
        Ok(slice) => change(launch, |launch| launch.keep(slice)),
        Err(failure) => failure.report(),
    }
}

/// Appends a number at its natural alignment, as C does.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_u32(launch: et_launch, value: u32) -> et_status {
    change(launch, |launch| launch.u32(value))
}

/// Appends a number.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_i32(launch: et_launch, value: i32) -> et_status {
    change(launch, |launch| launch.i32(value))
}

/// Appends a number.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_u64(launch: et_launch, value: u64) -> et_status {
    change(launch, |launch| launch.u64(value))
}

/// Appends a number.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_i64(launch: et_launch, value: i64) -> et_status {
    change(launch, |launch| launch.i64(value))
}

/// Appends a number.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_arg_f32(launch: et_launch, value: f32) -> et_status {
    change(launch, |launch| launch.f32(value))
}

/// Runs on these shires only.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_shires(launch: et_launch, mask: u64) -> et_status {
    change(launch, |launch| launch.shires(mask))
}

/// Evicts the third-level cache before the kernel starts.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_flush_l3(launch: et_launch) -> et_status {
    change(launch, Launch::flush_l3)
}

/// Gives every hart a stack of at least this many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_stack(launch: et_launch, bytes: u64) -> et_status {
    change(launch, |launch| launch.stack_bytes(bytes))
}

/// Has a core file written to `path`, in place of what may be there, if the launch fails: with the
/// registers, the kernel, its stacks if `et_launch_stack` has given it some, and all memory that
/// the launch keeps, which gdb opens. It is there when the event has failed, see
/// `et_failure_core_file`. What is not in it is in the stream's list of errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_launch_core_dump(launch: et_launch, path: *const c_char) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let path = unsafe { raw::text(path, "path") }?;
        let launch = table::get(launch)?;
        let mut launch = launch.lock().unwrap_or_else(PoisonError::into_inner);
        *launch = launch.clone().core_dump(path);
        Ok(())
    })
}

/// Lets the kernel trace into a part of device memory, whose address and length are multiples of
/// 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_launch_trace(
    launch: et_launch,
    buffer: et_mem,
    offset: u64,
    bytes: u64,
    options: *const et_trace_options,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let trace = UserTrace {
            buffer: memory::slice(buffer, offset, bytes)?,
            threshold: options.threshold,
            shire_mask: options.shire_mask,
            thread_mask: options.thread_mask,
            event_mask: options.event_mask,
            filter_mask: options.filter_mask,
        };
        let launch = table::get(launch)?;
        let mut launch = launch.lock().unwrap_or_else(PoisonError::into_inner);
        *launch = launch.clone().trace(trace);
        Ok(())
    })
}
