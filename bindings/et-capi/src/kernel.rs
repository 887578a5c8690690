//! Kernels.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use et::{AnyHal, Device, Kernel};

use crate::call::{guard, may_wait};
use crate::device::{self, et_device};
use crate::memory::{self, et_mem};
use crate::raw;
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// A kernel on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_kernel {
    /// A number to be looked up; 0 is no kernel.
    pub id: u64,
}

handle!(et_kernel, 6, Kernel);

/// Loads a kernel from an ELF file in memory. `name` is for messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_load(
    device: et_device,
    name: *const c_char,
    elf: *const c_void,
    bytes: usize,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let (name, elf) = unsafe { file(name, elf, bytes) }?;
        load(device, kernel, |device| device.load_kernel(name, elf))
    })
}

/// Loads a kernel as `et_kernel_load` does, into memory of the caller's from `offset`. Nothing may
/// write there while the kernel is of use. `ET_OUT_OF_BOUNDS` if it does not fit,
/// `ET_MISALIGNED` if the file demands another place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_load_to(
    device: et_device,
    name: *const c_char,
    elf: *const c_void,
    bytes: usize,
    mem: et_mem,
    offset: u64,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let (name, elf) = unsafe { file(name, elf, bytes) }?;
        let place = memory::rest(mem, offset)?;
        load(device, kernel, |device| device.load_kernel_to(name, elf, None, &place))
    })
}

/// The name and the bytes of a kernel's file.
///
/// # Safety
/// - As [`raw::text`] and [`raw::bytes`].
unsafe fn file<'a>(
    name: *const c_char,
    elf: *const c_void,
    bytes: usize,
) -> Result<(&'a str, &'a [u8]), Failure> {
    // SAFETY: promised by the caller.
    let name = unsafe { raw::text(name, "name") }?;
    // SAFETY: promised by the caller.
    let elf = unsafe { raw::bytes(elf, bytes, "elf") }?;
    Ok((name, elf))
}

fn load(
    device: et_device,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
    load: impl FnOnce(&Device<AnyHal>) -> Result<Kernel, et::LoadError>,
) -> Result<(), Failure> {
    may_wait()?;
    let out = raw::wanted(kernel, "kernel")?;
    let loaded = device::with(device, |device| Ok(load(device)?))?;
    out.write(table::insert(loaded)?);
    Ok(())
}

/// Loads a kernel from an ELF file, by whose path it is called in messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_kernel_load_file(
    device: et_device,
    path: *const c_char,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let path = unsafe { raw::text(path, "path") }?;
        let elf = raw::file(path)?;
        load(device, kernel, |device| device.load_kernel(path, &elf))
    })
}

/// Frees a kernel, once the last launch of it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_kernel_free(kernel: et_kernel) -> et_status {
    guard(|| table::remove(kernel))
}

/// Returns where a kernel is on its device, and how long it is. Either may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_kernel_place(
    kernel: et_kernel,
    address: Option<&mut MaybeUninit<u64>>,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    guard(|| {
        let kernel = table::get(kernel)?;
        raw::store(address, kernel.load_address().as_u64());
        raw::store(bytes, kernel.len_bytes());
        Ok(())
    })
}
