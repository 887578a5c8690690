//! What kernels and firmware say, for the log.

#![expect(unsafe_code, reason = "exported names")]

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use et::AnyHal;
use et::trace::{FirmwareTrace, FirmwareTraceConfig, KernelTrace, KernelTraceConfig};

use crate::call::{guard, timeout};
use crate::device::{self, et_device};
use crate::launch::et_launch;
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// Memory that kernels write texts into, for the log.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_kernel_trace {
    /// A number to be looked up; 0 is none.
    pub id: u64,
}

handle!(et_kernel_trace, 21, KernelTrace<AnyHal>);

/// A reader of what firmware says.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_firmware_trace {
    /// A number to be looked up; 0 is none.
    pub id: u64,
}

handle!(et_firmware_trace, 22, Mutex<FirmwareTrace<AnyHal>>);

/// Who traces, and what; 0 everywhere is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_kernel_trace_options {
    /// `sizeof(et_kernel_trace_options)`.
    pub size: usize,
    /// Shires that trace, a bit for each; 0 for all.
    pub shire_mask: u64,
    /// Harts of each that trace, a bit for each; 0 for all.
    pub thread_mask: u64,
    /// Bytes of each hart's part, which begins again when it is full; 0 for 4096.
    pub bytes_per_hart: u32,
    /// An `et_log_level`: texts that matter less are not written. 0 for what `et_log_to` lets
    /// through for `et::kernel`.
    pub level: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_kernel_trace_options {
    const FIRST: usize = size_of::<Self>();
}

/// Makes memory that kernels trace into; `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_trace_create(
    device: et_device,
    options: *const et_kernel_trace_options,
    trace: Option<&mut MaybeUninit<et_kernel_trace>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(trace, "trace")?;
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let made = device::with(device, |device| {
            let or = |given: u64, other| if given == 0 { other } else { given };
            let mut config = KernelTraceConfig::new(device.properties().shire_mask);
            config.shire_mask = or(options.shire_mask, config.shire_mask);
            config.thread_mask = or(options.thread_mask, config.thread_mask);
            if options.bytes_per_hart != 0 {
                config.bytes_per_hart = options.bytes_per_hart;
            }
            config.level = level(options.level)?;
            Ok(device.kernel_trace(config)?)
        })?;
        out.write(table::insert(made)?);
        Ok(())
    })
}

/// Device and log have the same numbers, but that the device knows nothing below "debug".
fn level(given: u32) -> Result<Option<u8>, Failure> {
    match u8::try_from(given) {
        Ok(0) => Ok(None),
        Ok(level @ 1..=4) => Ok(Some(level)),
        Ok(5) => Ok(Some(4)),
        _ => Err(Failure::new(et_status::ET_INVALID, format!("{given} is no et_log_level"))),
    }
}

/// Has a launch trace there, as far as the log lets it through now. One launch at a time may, and
/// `et_kernel_trace_log` is called between two of them.
#[unsafe(no_mangle)]
pub extern "C" fn et_launch_kernel_trace(launch: et_launch, trace: et_kernel_trace) -> et_status {
    guard(|| {
        let option = table::get(trace)?.option();
        let launch = table::get(launch)?;
        let mut launch = launch.lock().unwrap_or_else(PoisonError::into_inner);
        *launch = launch.clone().trace(option);
        Ok(())
    })
}

/// Takes what the last launch has traced, and hands it to the log, each entry with hart and time,
/// and with the level at which the kernel wrote it. `entries`, their number, may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_kernel_trace_log(
    trace: et_kernel_trace,
    timeout_ns: u64,
    entries: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let limit = timeout(timeout_ns)?;
        raw::store(entries, table::get(trace)?.log(limit)?);
        Ok(())
    })
}

/// Frees the memory, when no launch uses it any more.
#[unsafe(no_mangle)]
pub extern "C" fn et_kernel_trace_free(trace: et_kernel_trace) -> et_status {
    guard(|| table::remove(trace))
}

/// Has firmware trace what `et_log_to` lets through for `et::firmware` now, and makes a reader of
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn et_firmware_trace_create(
    device: et_device,
    trace: Option<&mut MaybeUninit<et_firmware_trace>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(trace, "trace")?;
        let reader = device::with(device, |device| {
            device.configure_trace(&FirmwareTraceConfig::new(device.properties().shire_mask))?;
            Ok(device.firmware_trace())
        })?;
        out.write(table::insert(Mutex::new(reader))?);
        Ok(())
    })
}

/// Fetches what firmware has traced since the last call, 9 MiB, and hands it to the log. `entries`,
/// their number, may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_firmware_trace_log(
    trace: et_firmware_trace,
    timeout_ns: u64,
    entries: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let limit = timeout(timeout_ns)?;
        let reader = table::get(trace)?;
        let found = reader.lock().unwrap_or_else(PoisonError::into_inner).log(limit)?;
        raw::store(entries, found);
        Ok(())
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub extern "C" fn et_firmware_trace_free(trace: et_firmware_trace) -> et_status {
    guard(|| table::remove(trace))
}
