//! Kernel files from which several kernels come.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use et::Module;

use crate::call::{guard, may_wait};
use crate::device::{self, et_device};
use crate::event::et_event;
use crate::kernel::et_kernel;
use crate::raw::{self, Out};
use crate::status::{Failure, et_status};
use crate::stream::give;
use crate::table::{self, handle};

/// A kernel file on a device, of which one or more functions are to be launched.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_module {
    /// A number to be looked up; 0 is no module.
    pub id: u64,
}

handle!(et_module, 19, Module);

fn load(
    device: et_device,
    name: &str,
    elf: &[u8],
    module: &mut MaybeUninit<et_module>,
    event: Out<'_, et_event>,
) -> Result<(), Failure> {
    let (loaded, copy) = device::with(device, |device| Ok(device.load_module(name, elf)?))?;
    module.write(table::insert(loaded)?);
    give(event, copy)
}

/// Loads a kernel file that is in memory. It is copied once, and the call does not wait for that;
/// launches need not, either, since they do so themselves. `name` is for messages; `event`, of the
/// copy, may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_module_load(
    device: et_device,
    name: *const c_char,
    elf: *const c_void,
    bytes: usize,
    module: Option<&mut MaybeUninit<et_module>>,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(module, "module")?;
        // SAFETY: promised by the caller.
        let name = unsafe { raw::text(name, "name") }?;
        // SAFETY: promised by the caller.
        load(device, name, unsafe { raw::bytes(elf, bytes, "elf") }?, out, event)
    })
}

/// Loads a kernel file by its path, as `et_module_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_module_load_file(
    device: et_device,
    path: *const c_char,
    module: Option<&mut MaybeUninit<et_module>>,
    event: Option<&mut MaybeUninit<et_event>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(module, "module")?;
        // SAFETY: promised by the caller.
        let path = unsafe { raw::text(path, "path") }?;
        load(device, path, &raw::file(path)?, out, event)
    })
}

/// Gives the kernel that starts at a function, or at the entry that the file names if `function` is
/// null. It needs the module no longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_module_kernel(
    module: et_module,
    function: *const c_char,
    kernel: Option<&mut MaybeUninit<et_kernel>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(kernel, "kernel")?;
        let module = table::get(module)?;
        let kernel = match function.is_null() {
            true => module.kernel()?,
            // SAFETY: promised by the caller.
            false => module.function(unsafe { raw::text(function, "function") }?)?,
        };
        out.write(table::insert(kernel)?);
        Ok(())
    })
}

/// Frees a module. The file stays as long as a kernel of it.
#[unsafe(no_mangle)]
pub extern "C" fn et_module_free(module: et_module) -> et_status {
    guard(|| table::remove(module))
}
