//! Memory of the caller that a device reaches.

#![expect(unsafe_code, reason = "pointers of C callers")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use et::HostBuffer;
use et::hal::{DeviceAccess, StableDeref};

use crate::call::{Release, guard, may_wait};
use crate::device::{self, et_device};
use crate::graph::{access, et_access};
use crate::memory::{Pinned, et_host_buffer, with_pinned};
use crate::raw::{self, User};
use crate::status::{Failure, et_status};
use crate::table;

/// To be called when something is the caller's again, in whichever thread sees it. It must not
/// wait, and must not throw. Calls of this library in it are `ET_IN_CALLBACK`.
pub type et_released = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Memory of a caller, who hears of its end.
#[derive(Debug)]
struct Lent {
    memory: User,
    len: usize,
    release: Release,
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the caller of `et_host_buffer_import` promised so many bytes, which are there
        // until `released` is called, and that no one changes them during calls that look at them.
        let bytes = unsafe { raw::bytes(self.memory.get(), self.len, "memory") };
        bytes.unwrap_or_default()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; memory that is lent for writing may be written.
        let bytes = unsafe { raw::bytes_mut(self.memory.get(), self.len, "memory") };
        bytes.unwrap_or_default()
    }
}

// SAFETY: the bytes are where the caller has them, wherever this value is.
unsafe impl StableDeref for Lent {}

/// Returns the bytes in which memory of the caller can be used where it is: it begins and ends on a
/// multiple. 0 if its contents are always copied.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_import_granule(
    device: et_device,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(bytes, "bytes")?;
        out.write(device::with(device, |device| Ok(device.import_granule()))?.unwrap_or(0));
        Ok(())
    })
}

/// Lends memory of the caller to a device, as a host buffer. `access`, an `et_access`, is what the
/// device does with it: it reads for uploads, and writes for downloads.
///
/// The memory is the library's until `released` is called, exactly once, unless this call fails:
/// when the buffer was freed and the last copy that uses it has ended. Meanwhile the caller may
/// look at it, and may change what no copy uses, but neither during this call nor during
/// `et_host_buffer_free`. `released` may be null for memory that is there as long as the process.
///
/// The device reaches the memory itself if it is made of whole granules and the system agrees. Else
/// its contents are copied now, and, if it is lent for writing, back by `et_host_buffer_free`, if
/// no copy uses the buffer then; `et_host_buffer_why_copied` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_buffer_import(
    device: et_device,
    memory: *mut c_void,
    bytes: usize,
    access: u32,
    released: et_released,
    user: *mut c_void,
    buffer: Option<&mut MaybeUninit<et_host_buffer>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(buffer, "buffer")?;
        let access = match self::access(access)? {
            et_access::ET_READS => DeviceAccess::Read,
            et_access::ET_WRITES => DeviceAccess::Write,
            et_access::ET_UPDATES => DeviceAccess::ReadWrite,
        };
        if memory.is_null() || bytes == 0 {
            return Err(Failure::new(et_status::ET_NULL_POINTER, "there is no memory"));
        }
        raw::check(memory, bytes, "memory")?;
        let buffer = device::with(device, |device| {
            let release = Release::new(released, user);
            let lent = Lent { memory: User::new(memory), len: bytes, release };
            let imported = match access {
                DeviceAccess::Read => device.import(lent),
                access => device.import_mut(lent, access),
            };
            Ok(imported.map_err(|mut refused| {
                refused.owner.release.forget();
                refused.error
            })?)
        })?;
        out.write(table::insert(Mutex::new(Pinned::Here(buffer)))?);
        Ok(())
    })
}

/// Returns why the contents of imported memory are copied; an empty text if the device reaches the
/// memory itself. `ET_BUSY` while a copy of the device uses it. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_buffer_why_copied(
    buffer: et_host_buffer,
    text: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let why = with_pinned(buffer, |buffer| Ok(buffer.bounce()))?;
        let why = why.map(|why| why.to_string()).unwrap_or_default();
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&why, text, capacity, needed) }
    })
}

/// Frees a host buffer, once the device is done with it. Imported memory that no copy uses is the
/// caller's again when the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn et_host_buffer_free(buffer: et_host_buffer) -> et_status {
    guard(|| {
        let shared = table::take(buffer)?;
        let mut pinned = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_imported = |buffer: &mut HostBuffer<_>| buffer.memory().is_none();
        if !pinned.take_back().is_ok_and(is_imported) {
            return Ok(());
        }
        let taken = std::mem::replace(&mut *pinned, Pinned::Gone);
        drop(pinned);
        if let Pinned::Here(buffer) = taken {
            // With all that is in it; what cannot be given back is released all the same.
            drop(buffer.into_owner::<Lent>());
        }
        Ok(())
    })
}
