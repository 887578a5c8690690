//! Kernels that the runtime brings along.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use et::kernel::{Builtin, Builtins};

use crate::call::{guard, may_wait};
use crate::device::{self, et_device, no_such};
use crate::kernel::et_kernel;
use crate::launch::et_launch;
use crate::memory::{self, et_mem};
use crate::raw;
use crate::status::et_status;
use crate::table;

fn found(index: usize) -> Result<Builtin, crate::status::Failure> {
    Builtins::list().nth(index).ok_or_else(|| no_such("builtin kernel", index))
}

/// Returns the number of kernels that the runtime brings along.
#[unsafe(no_mangle)]
pub extern "C" fn et_builtin_count(count: Option<&mut MaybeUninit<usize>>) -> et_status {
    guard(|| {
        raw::wanted(count, "count")?.write(Builtins::list().len());
        Ok(())
    })
}

/// Returns the name of one of them. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_builtin_name(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(found(index)?.name, buffer, capacity, needed) }
    })
}

/// Returns the arguments of one of them, in the language of C, such as `uint8_t *dst, uint64_t n`.
/// `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_builtin_arguments(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let text = found(index)?.arguments.join(", ");
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}

/// Gives a kernel by its name, put on the device if it is not there, to be launched with the
/// arguments that `et_builtin_arguments` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_builtin_kernel(
    device: et_device,
    name: *const c_char,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(kernel, "kernel")?;
        // SAFETY: promised by the caller.
        let name = unsafe { raw::text(name, "name") }?;
        let kernel = device::with(device, |device| Ok(device.builtins()?.kernel(name)?))?;
        out.write(table::insert(kernel)?);
        Ok(())
    })
}

/// Describes a copy within a device that its cores do, from any byte to any byte, for
/// `et_launch_submit`. The two places must not overlap.
#[unsafe(no_mangle)]
pub extern "C" fn et_builtin_copy(
    device: et_device,
    from: et_mem,
    from_offset: u64,
    to: et_mem,
    to_offset: u64,
    bytes: u64,
    launch: Option<&mut MaybeUninit<et_launch>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(launch, "launch")?;
        let from = memory::slice(from, from_offset, bytes)?;
        let to = memory::slice(to, to_offset, bytes)?;
        let launch = device::with(device, |device| Ok(device.builtins()?.copy(&from, &to)?))?;
        out.write(table::insert(Mutex::new(launch))?);
        Ok(())
    })
}

/// Describes a fill of device memory that the cores do, from any byte on, for `et_launch_submit`:
/// with a pattern of 1, 2, 4, 8 or 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_builtin_fill(
    device: et_device,
    to: et_mem,
    offset: u64,
    bytes: u64,
    pattern: *const c_void,
    pattern_bytes: usize,
    launch: Option<&mut MaybeUninit<et_launch>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(launch, "launch")?;
        let to = memory::slice(to, offset, bytes)?;
        // SAFETY: promised by the caller.
        let pattern = unsafe { raw::bytes(pattern, pattern_bytes, "pattern") }?;
        let launch = device::with(device, |device| Ok(device.builtins()?.fill(&to, pattern)?))?;
        out.write(table::insert(Mutex::new(launch))?);
        Ok(())
    })
}
