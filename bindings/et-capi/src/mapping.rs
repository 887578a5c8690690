//! Device memory that the host uses like its own.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, TryLockError};

use et::memory::Access;
use et::{AnyHal, MapPath, Mapping};

use crate::call::{guard, may_wait, timeout};
use crate::graph::{access, et_access};
use crate::memory::{self, et_mem};
use crate::raw;
use crate::status::{Failure, et_status};
use crate::stream::et_stream;
use crate::table::{self, handle};

/// Device memory that the host has mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_mapping {
    /// A number to be looked up; 0 is no mapping.
    pub id: u64,
}

handle!(et_mapping, 20, Mutex<Option<Mapping<AnyHal>>>);

/// How the host reaches what it has mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_map_path {
    /// The device's own memory, through its BAR.
    ET_MAP_WINDOW = 1,
    /// A copy in host memory.
    ET_MAP_COPY = 2,
}

/// Uses a mapping that no other thread uses and that has not ended.
fn with<R>(
    mapping: et_mapping,
    with: impl FnOnce(&mut Mapping<AnyHal>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let shared = table::get(mapping)?;
    let mut place = lock(&shared)?;
    with(place.as_mut().ok_or_else(ended)?)
}

/// A thread that flushes holds it for long; others hear so at once.
fn lock(
    shared: &Mutex<Option<Mapping<AnyHal>>>,
) -> Result<MutexGuard<'_, Option<Mapping<AnyHal>>>, Failure> {
    match shared.try_lock() {
        Ok(place) => Ok(place),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(et_status::ET_BUSY, "another thread uses the mapping"))
        }
    }
}

fn ended() -> Failure {
    Failure::new(et_status::ET_BAD_HANDLE, "the mapping has ended")
}

/// Maps device memory for the host: what `use`, an `et_access`, says is what the host does with it.
///
/// Waits for what the stream was given before, for at most `timeout_ns`. Of `ET_WRITES` nothing is
/// fetched; all of it should be written then, since nothing says what the rest has afterwards. A
/// part that is written has one mapping at a time, else `ET_BUSY`. Kernels and copies are not kept
/// from it.
#[unsafe(no_mangle)]
pub extern "C" fn et_stream_map(
    stream: et_stream,
    mem: et_mem,
    offset: u64,
    bytes: u64,
    r#use: u32,
    timeout_ns: u64,
    mapping: Option<&mut MaybeUninit<et_mapping>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(mapping, "mapping")?;
        let access = match access(r#use)? {
            et_access::ET_READS => Access::Read,
            et_access::ET_WRITES => Access::Write,
            et_access::ET_UPDATES => Access::Update,
        };
        let slice = memory::slice(mem, offset, bytes)?;
        let mapped = table::get(stream)?.map(slice, access, timeout(timeout_ns)?)?;
        out.write(table::insert(Mutex::new(Some(mapped)))?);
        Ok(())
    })
}

/// Returns how the host reaches mapped memory, an `et_map_path`.
#[unsafe(no_mangle)]
pub extern "C" fn et_mapping_path(
    mapping: et_mapping,
    path: Option<&mut MaybeUninit<et_map_path>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(path, "path")?;
        let found = with(mapping, |mapping| Ok(mapping.path()))?;
        out.write(match found {
            MapPath::Window => et_map_path::ET_MAP_WINDOW,
            // Whatever else there may be is not the memory itself.
            _ => et_map_path::ET_MAP_COPY,
        });
        Ok(())
    })
}

/// Reads mapped memory from byte `offset` on. `ET_UNSUPPORTED` if it was mapped for writing alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_mapping_read(
    mapping: et_mapping,
    offset: usize,
    to: *mut c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let to = unsafe { raw::bytes_mut(to, bytes, "to") }?;
        with(mapping, |mapping| Ok(mapping.read(offset, to)?))
    })
}

/// Writes mapped memory from byte `offset` on. The device sees it after `et_mapping_flush` or
/// `et_mapping_unmap`, and may see it before. `ET_UNSUPPORTED` if it was mapped for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_mapping_write(
    mapping: et_mapping,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let from = unsafe { raw::bytes(from, bytes, "from") }?;
        with(mapping, |mapping| Ok(mapping.write(offset, from)?))
    })
}

/// Makes what was written visible to the device, and waits for that. After `ET_TIMEOUT` it goes on,
/// and the next flush waits again.
#[unsafe(no_mangle)]
pub extern "C" fn et_mapping_flush(mapping: et_mapping, timeout_ns: u64) -> et_status {
    guard(|| {
        may_wait()?;
        let wait = timeout(timeout_ns)?;
        with(mapping, |mapping| Ok(mapping.flush(wait)?))
    })
}

/// Ends a mapping, with everything written visible to the device, and frees it. If that fails the
/// mapping is there still, to be ended once more or freed.
#[unsafe(no_mangle)]
pub extern "C" fn et_mapping_unmap(mapping: et_mapping, timeout_ns: u64) -> et_status {
    guard(|| {
        may_wait()?;
        let wait = timeout(timeout_ns)?;
        let shared = table::get(mapping)?;
        let mut place = lock(&shared)?;
        if let Err(failed) = place.take().ok_or_else(ended)?.unmap(wait) {
            *place = Some(*failed.mapping);
            return Err(failed.error.into());
        }
        // Another thread may have freed it meanwhile; it has ended well all the same.
        let (Ok(_) | Err(_)) = table::remove(mapping);
        Ok(())
    })
}

/// Frees a mapping. What was written is written back without waiting for the end of that; a failure
/// of it is in the stream's list of errors.
#[unsafe(no_mangle)]
pub extern "C" fn et_mapping_free(mapping: et_mapping) -> et_status {
    guard(|| {
        may_wait()?;
        table::remove(mapping)
    })
}
