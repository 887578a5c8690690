//! Host memory that the simulated device can reach.

#![expect(
    unsafe_code,
    reason = "DMA buffers implement unsafe traits; huge pages are asked for by address"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits, ErrorType, OutOfRange};
use et_sim_device::{Board, DmaCoherence};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use vm_memory::{Bytes, MmapRegion, VolatileMemory};

use crate::SimError;
use crate::coherence::{DeviceCopy, Side};

/// First bus address that is given out; 0 and its neighbours never are, so that they fault.
const FIRST_BUS_ADDR: u64 = 0x1_0000_0000;
/// First bus address that is not given out.
const END_OF_BUS: u64 = 1 << 48;
/// Bus addresses and host addresses are multiples of this.
const PAGE_BYTES: usize = 4096;
/// Largest buffer.
const MAX_BUFFER_BYTES: usize = 64 << 30;
/// Buffers from this size on ask for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Allocates anonymous memory and maps it for the device.
///
/// Bus addresses are never used twice, and a hole follows each buffer: a transfer to a stale
/// address, or over an end, is a DMA error and does not hit another buffer.
#[derive(Debug)]
pub struct SimDma {
    board: Arc<Board>,
    next: AtomicU64,
}

impl SimDma {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        Self { board, next: AtomicU64::new(FIRST_BUS_ADDR) }
    }

    fn bus_addresses(&self, len: usize) -> Result<BusAddr, SimError> {
        let step = len.next_multiple_of(PAGE_BYTES) as u64 + PAGE_BYTES as u64;
        let take = |next: u64| next.checked_add(step).filter(|&end| end <= END_OF_BUS);
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map(BusAddr::new)
            .map_err(|_| SimError::NoBusAddresses { len })
    }

    /// Lets the device reach memory.
    fn show(
        &self,
        memory: MmapRegion,
        access: DeviceAccess,
        origin: Origin,
    ) -> Result<SimBuffer, SimError> {
        let len = memory.size();
        let memory = Arc::new(memory);
        let (seen_by_device, copy) = match self.board.config().coherence {
            DmaCoherence::NonCoherent => {
                let copy = Arc::new(new_memory(len)?);
                (Arc::clone(&copy), Some(DeviceCopy::new(copy)))
            }
            _ => (Arc::clone(&memory), None),
        };
        let bus = self.bus_addresses(len)?;
        self.board
            .host_memory()
            .map(bus, seen_by_device, access)
            .map_err(|_| SimError::NoBusAddresses { len })?;
        Ok(SimBuffer { board: Arc::clone(&self.board), memory, copy, bus, access, origin })
    }
}

fn new_memory(len: usize) -> Result<MmapRegion, SimError> {
    MmapRegion::new(len).map_err(|error| SimError::NoMemory { len, source: error.into() })
}

impl ErrorType for SimDma {
    type Error = SimError;
}

impl Dma for SimDma {
    type Buffer = SimBuffer;

    fn limits(&self) -> DmaLimits {
        DmaLimits {
            alignment_bytes: PAGE_BYTES,
            max_buffer_bytes: MAX_BUFFER_BYTES,
            total_bytes: None,
        }
    }

    fn alloc(&self, len_bytes: usize, access: DeviceAccess) -> Result<SimBuffer, SimError> {
        if !(1..=MAX_BUFFER_BYTES).contains(&len_bytes) {
            return Err(SimError::BufferSize { len: len_bytes, max: MAX_BUFFER_BYTES });
        }
        if self.board.resetting() {
            return Err(SimError::Stale);
        }
        let memory = new_memory(len_bytes)?;
        if len_bytes >= HUGE_PAGE_BYTES {
            let start = memory.as_ptr().cast();
            // SAFETY: the range is the whole of the mapping just made; the advice changes neither
            // its contents nor its permissions.
            let advised = unsafe { rustix::mm::madvise(start, len_bytes, Advice::LinuxHugepage) };
            // A kernel without huge pages refuses; small ones do as well.
            tracing::trace!(len_bytes, ?advised, "huge pages");
        }
        self.show(memory, access, Origin::Own)
    }

    fn sync_for_device(&self, buffer: &SimBuffer, range: Range<usize>) -> Result<(), SimError> {
        buffer.sync(&range, Side::Device)
    }

    fn sync_for_cpu(&self, buffer: &SimBuffer, range: Range<usize>) -> Result<(), SimError> {
        buffer.sync(&range, Side::Host)
    }

    fn import_granule(&self) -> Option<usize> {
        Some(PAGE_BYTES)
    }

    /// The device is a part of this process and uses the memory where it is.
    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Option<SimBuffer>, SimError> {
        if len_bytes == 0 {
            return Err(SimError::BufferSize { len: 0, max: MAX_BUFFER_BYTES });
        }
        let is_whole = |n: usize| n.is_multiple_of(PAGE_BYTES);
        if !is_whole(memory.addr().get()) || !is_whole(len_bytes) {
            return Err(SimError::ImportAlignment { page: PAGE_BYTES });
        }
        if self.board.resetting() {
            return Err(SimError::Stale);
        }
        let protection = match access {
            DeviceAccess::Read => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        let (protection, flags) = (protection.bits(), MapFlags::PRIVATE.bits());
        let (protection, flags) = (protection.cast_signed(), flags.cast_signed());
        // SAFETY: the caller promises that the range is mapped so, until the buffer is dropped.
        let region =
            unsafe { MmapRegion::build_raw(memory.as_ptr(), len_bytes, protection, flags) };
        let region =
            region.map_err(|error| SimError::NoMemory { len: len_bytes, source: error.into() })?;
        self.show(region, access, Origin::Caller).map(Some)
    }
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Own,
    /// Of a caller, who uses it again when the buffer has been dropped.
    Caller,
}

/// Host memory that the simulated device can reach.
///
/// Dropping it takes it away from the device; a copy in progress keeps the memory alive and ends
/// undisturbed, later ones fault. If it was imported, the drop waits for that copy.
#[derive(Debug)]
pub struct SimBuffer {
    board: Arc<Board>,
    /// Shared with the mapping of the board, unless there is a copy; its address and length never
    /// change.
    memory: Arc<MmapRegion>,
    /// What the board has mapped instead, if the bus is not coherent.
    copy: Option<DeviceCopy>,
    bus: BusAddr,
    access: DeviceAccess,
    origin: Origin,
}

impl SimBuffer {
    fn sync(&self, range: &Range<usize>, to: Side) -> Result<(), SimError> {
        self.check(range)?;
        // Others may be reading memory that its owner lent for reading. The device has not written.
        let is_shared = self.origin == Origin::Caller && self.access == DeviceAccess::Read;
        if let Some(copy) = &self.copy
            && !(to == Side::Host && is_shared)
        {
            copy.sync(&self.memory, range, to);
        }
        Ok(())
    }

    fn check(&self, range: &Range<usize>) -> Result<(), SimError> {
        let len = range.end.saturating_sub(range.start);
        if range.start > range.end {
            let buffer = self.memory.size();
            return Err(SimError::BufferRange(OutOfRange { offset: range.start, len, buffer }));
        }
        OutOfRange::check(range.start, len, self.memory.size())
            .map(|_| ())
            .map_err(SimError::BufferRange)
    }

    fn slice(&self, offset: usize, len: usize) -> Result<vm_memory::VolatileSlice<'_>, OutOfRange> {
        let buffer = self.memory.size();
        OutOfRange::check(offset, len, buffer)?;
        self.memory.get_slice(offset, len).map_err(|_| OutOfRange { offset, len, buffer })
    }
}

impl Drop for SimBuffer {
    fn drop(&mut self) {
        let unmapped = self.board.host_memory().unmap(self.bus);
        debug_assert!(unmapped.is_ok(), "the mapping lives as long as the buffer");
        if self.origin == Origin::Caller {
            // A copy that has begun ends first.
            self.board.host_memory().quiesce();
        }
    }
}

// SAFETY: pointer and length are those of a mapping that is owned by `self.memory`, or promised by
// who had it imported; readable, initialised (anonymous memory is zero), and neither moves nor
// changes its length.
unsafe impl ReadBuffer for SimBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        (self.memory.as_ptr(), self.memory.size())
    }
}

// SAFETY: as above, and the mapping is writable, unless who had it imported promised not to write.
unsafe impl WriteBuffer for SimBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        (self.memory.as_ptr(), self.memory.size())
    }
}

// SAFETY: the memory is owned by `self.memory` and by the board's mapping, so it stays in place
// until both are gone, or it is the caller's, who keeps it until the drop has returned; `bus` was
// mapped in `show` to exactly this memory, or to a copy of the same
// length that nothing else uses, and is never used again;
// `read_buffer` and `write_buffer` return two fields that do not change.
unsafe impl DmaBuffer for SimBuffer {
    fn bus_addr(&self) -> BusAddr {
        self.bus
    }

    fn len_bytes(&self) -> usize {
        self.memory.size()
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        let slice = self.slice(offset, from.len())?;
        let buffer = self.memory.size();
        slice.write_slice(from, 0).map_err(|_| OutOfRange { offset, len: from.len(), buffer })
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        let slice = self.slice(offset, into.len())?;
        let (len, buffer) = (into.len(), self.memory.size());
        slice.read_slice(into, 0).map_err(|_| OutOfRange { offset, len, buffer })
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        let piece = [byte; PAGE_BYTES];
        OutOfRange::check(offset, len, self.memory.size())?;
        let mut done = 0;
        while done < len {
            let step = PAGE_BYTES.min(len - done);
            self.copy_in(offset + done, &piece[..step])?;
            done += step;
        }
        Ok(())
    }
}
