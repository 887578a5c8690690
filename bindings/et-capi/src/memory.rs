//! Memory: on the device, and on the host where the device reaches it.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use et::{AnyHal, DeviceBuffer, DeviceSlice, HostBuffer, Remains, Transfer};

use crate::call::guard;
use crate::device::{self, et_device};
use crate::raw::{self, Growing, User};
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// Memory on a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_mem {
    /// A number to be looked up; 0 is no memory.
    pub id: u64,
}

handle!(et_mem, 2, DeviceBuffer);

/// Memory on the host that the device reads and writes directly.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_host_buffer {
    /// A number to be looked up; 0 is no buffer.
    pub id: u64,
}

handle!(et_host_buffer, 3, Mutex<Pinned>);

/// Where a host buffer is.
#[derive(Debug)]
pub(crate) enum Pinned {
    Here(HostBuffer<AnyHal>),
    Lent(Transfer<AnyHal>),
    /// The device was lost with it.
    Gone,
}

/// Usage of the memory of a device, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_memory_stats {
    /// `sizeof(et_memory_stats)`, set by the caller.
    pub size: usize,
    /// All of it.
    pub total_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
    /// What is allocated.
    pub used_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// The most that was ever allocated at one time.
    pub peak_used_bytes: u64,
    /// Number of allocated blocks.
    pub live_blocks: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_memory_stats {
    const FIRST: usize = size_of::<Self>();
}

/// A part of memory on the device.
pub(crate) fn slice(mem: et_mem, offset: u64, len: u64) -> Result<DeviceSlice, Failure> {
    let buffer = table::get(mem)?;
    let end = offset.checked_add(len).ok_or(et::Error::OutOfRange {
        offset,
        len,
        buffer: buffer.len_bytes(),
    })?;
    Ok(buffer.slice(offset..end)?)
}

/// A part of memory on the device, from an offset to the end.
pub(crate) fn rest(mem: et_mem, offset: u64) -> Result<DeviceSlice, Failure> {
    Ok(table::get(mem)?.slice(offset..)?)
}

/// Allocates memory on the device at a multiple of `align` bytes, a power of two; 0 is 64. Its
/// contents are undefined.
#[unsafe(no_mangle)]
pub extern "C" fn et_mem_alloc(
    device: et_device,
    bytes: u64,
    align: u64,
    mem: Option<&mut MaybeUninit<et_mem>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(mem, "mem")?;
        let align = if align == 0 { 64 } else { align };
        let buffer = device::with(device, |device| Ok(device.alloc_aligned(bytes, align)?))?;
        out.write(table::insert(buffer)?);
        Ok(())
    })
}

/// Frees memory, once the last operation that uses it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_mem_free(mem: et_mem) -> et_status {
    guard(|| table::remove(mem))
}

/// Returns the address of memory on its device.
#[unsafe(no_mangle)]
pub extern "C" fn et_mem_address(mem: et_mem, address: Option<&mut MaybeUninit<u64>>) -> et_status {
    guard(|| {
        let out = raw::wanted(address, "address")?;
        out.write(table::get(mem)?.addr().as_u64());
        Ok(())
    })
}

/// Returns the length of memory, as asked for.
#[unsafe(no_mangle)]
pub extern "C" fn et_mem_bytes(mem: et_mem, bytes: Option<&mut MaybeUninit<u64>>) -> et_status {
    guard(|| {
        let out = raw::wanted(bytes, "bytes")?;
        out.write(table::get(mem)?.len_bytes());
        Ok(())
    })
}

/// Returns how much memory of a device is used. The caller sets `stats->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_memory_stats_get(
    device: et_device,
    stats: *mut et_memory_stats,
) -> et_status {
    guard(|| {
        let found = device::with(device, |device| Ok(device.memory_stats()))?;
        let value = et_memory_stats {
            size: 0,
            total_bytes: found.total_bytes,
            free_bytes: found.free_bytes,
            used_bytes: found.used_bytes,
            largest_free_bytes: found.largest_free_bytes,
            peak_used_bytes: found.peak_used_bytes,
            live_blocks: found.live_blocks,
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, stats, "stats") }
    })
}

/// Allocates zeroed host memory that a device reads and writes directly.
#[unsafe(no_mangle)]
pub extern "C" fn et_host_buffer_alloc(
    device: et_device,
    bytes: usize,
    buffer: Option<&mut MaybeUninit<et_host_buffer>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(buffer, "buffer")?;
        let buffer = device::with(device, |device| Ok(device.host_buffer(bytes)?))?;
        out.write(table::insert(Mutex::new(Pinned::Here(buffer)))?);
        Ok(())
    })
}

/// Copies into a host buffer. `ET_BUSY` while a copy of the device uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_buffer_write(
    buffer: et_host_buffer,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let from = unsafe { raw::bytes(from, bytes, "from") }?;
        with_pinned(buffer, |buffer| Ok(buffer.copy_in(offset, from)?))
    })
}

/// Copies out of a host buffer. `ET_BUSY` while a copy of the device uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_buffer_read(
    buffer: et_host_buffer,
    offset: usize,
    to: *mut c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let to = unsafe { raw::bytes_mut(to, bytes, "to") }?;
        with_pinned(buffer, |buffer| Ok(buffer.copy_out(offset, to)?))
    })
}

/// Calls `with` with a host buffer that no copy uses.
pub(crate) fn with_pinned<R>(
    buffer: et_host_buffer,
    with: impl FnOnce(&mut HostBuffer<AnyHal>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let pinned = table::get(buffer)?;
    let mut pinned = pinned.lock().unwrap_or_else(PoisonError::into_inner);
    with(pinned.take_back()?)
}

/// Lends a host buffer to a copy.
pub(crate) fn lend(
    buffer: et_host_buffer,
    start: impl FnOnce(HostBuffer<AnyHal>) -> et::Result<Transfer<AnyHal>>,
) -> Result<et::Event, Failure> {
    let pinned = table::get(buffer)?;
    let mut pinned = pinned.lock().unwrap_or_else(PoisonError::into_inner);
    pinned.take_back()?;
    let Pinned::Here(here) = std::mem::replace(&mut *pinned, Pinned::Gone) else {
        return Err(gone());
    };
    let transfer = start(here)?;
    let event = transfer.event().clone();
    *pinned = Pinned::Lent(transfer);
    Ok(event)
}

#[derive(Debug)]
enum Coming {
    OnItsWay(Transfer<AnyHal>),
    There,
    /// The device was lost with it.
    Gone,
}

/// A copy that is on its way to memory of the caller.
#[derive(Debug)]
pub(crate) struct Arrival {
    state: Mutex<Coming>,
    to: User,
    bytes: usize,
}

impl Arrival {
    /// # Safety
    /// - `to` points to `bytes` bytes, which no one else uses until this is finished or dropped.
    pub(crate) unsafe fn new(transfer: Transfer<AnyHal>, to: User, bytes: usize) -> Self {
        Self { state: Mutex::new(Coming::OnItsWay(transfer)), to, bytes }
    }

    /// Copies what has come to where the caller wants it, the first time.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, Coming::Gone) {
            Coming::OnItsWay(ended) => {
                let buffer = ended.wait(Duration::ZERO).map_err(|error| error.error)?;
                // SAFETY: promised to `new`; the lock lets one thread write.
                let to = unsafe { raw::bytes_mut(self.to.get(), self.bytes, "to") }?;
                buffer.copy_out(0, to)?;
            }
            Coming::There => {}
            Coming::Gone => return Err(gone()),
        }
        *state = Coming::There;
        Ok(())
    }
}

fn gone() -> Failure {
    Failure::new(et_status::ET_LOST, "host memory was lost with a copy that failed")
}

impl Pinned {
    /// Takes the buffer back from a copy that has ended, and returns it.
    pub(crate) fn take_back(&mut self) -> Result<&mut HostBuffer<AnyHal>, Failure> {
        if let Self::Lent(_) = self
            && let Self::Lent(transfer) = std::mem::replace(self, Self::Gone)
        {
            match transfer.wait(Duration::ZERO) {
                Ok(buffer) => *self = Self::Here(buffer),
                // Whoever has the event hears of the failure.
                Err(error) => match error.remains {
                    Remains::Buffer(buffer) => *self = Self::Here(buffer),
                    Remains::Transfer(transfer) => {
                        *self = Self::Lent(transfer);
                        let why = "a copy uses the host buffer";
                        return Err(Failure::new(et_status::ET_BUSY, why));
                    }
                    Remains::Nothing => {}
                },
            }
        }
        match self {
            Self::Here(buffer) => Ok(buffer),
            _ => Err(gone()),
        }
    }
}
