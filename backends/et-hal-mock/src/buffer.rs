//! DMA memory that is ordinary memory.

#![expect(unsafe_code, reason = "the DMA traits are unsafe to implement")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::Resource;
use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits, ErrorKind, ErrorType, OutOfRange};

use crate::MockError;

/// A DMA buffer in ordinary memory. Its bus address is made up; no device uses it.
#[derive(Debug)]
pub struct VecBuffer {
    bytes: Box<[u8]>,
    bus: BusAddr,
    live: Arc<AtomicUsize>,
}

impl Drop for VecBuffer {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the box is owned and never replaced, so pointer and length stay; every byte is a `u8`.
unsafe impl ReadBuffer for VecBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        (self.bytes.as_ptr(), self.bytes.len())
    }
}

// SAFETY: as above.
unsafe impl WriteBuffer for VecBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        (self.bytes.as_mut_ptr(), self.bytes.len())
    }
}

// SAFETY: the memory lives as long as the buffer; no device exists, so nothing is reachable by the
// bus address.
unsafe impl DmaBuffer for VecBuffer {
    fn bus_addr(&self) -> BusAddr {
        self.bus
    }

    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, from.len(), self.bytes.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, into.len(), self.bytes.len())?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, len, self.bytes.len())?;
        self.bytes[range].fill(byte);
        Ok(())
    }
}

/// Gives out [`VecBuffer`]s, a limited number if told so.
#[derive(Clone, Debug)]
pub struct VecDma {
    left: Arc<AtomicUsize>,
    live: Arc<AtomicUsize>,
    next_bus: Arc<AtomicU64>,
}

impl Default for VecDma {
    fn default() -> Self {
        Self::limited(usize::MAX)
    }
}

impl VecDma {
    /// An allocator that fails with `Exhausted(HostMemory)` after `allocations`.
    #[must_use]
    pub fn limited(allocations: usize) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(allocations)),
            live: Arc::default(),
            next_bus: Arc::new(AtomicU64::new(0x1000_0000)),
        }
    }

    /// Returns the number of buffers that exist; a test for leaks compares it.
    #[must_use]
    pub fn live_buffers(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

impl ErrorType for VecDma {
    type Error = MockError;
}

impl Dma for VecDma {
    type Buffer = VecBuffer;

    fn limits(&self) -> DmaLimits {
        DmaLimits { alignment_bytes: 4096, max_buffer_bytes: 1 << 30, total_bytes: None }
    }

    fn alloc(&self, len_bytes: usize, _: DeviceAccess) -> Result<VecBuffer, MockError> {
        if len_bytes == 0 || len_bytes > self.limits().max_buffer_bytes {
            return Err(ErrorKind::TooLarge);
        }
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .map_err(|_| ErrorKind::Exhausted(Resource::HostMemory))?;
        self.live.fetch_add(1, Ordering::Relaxed);
        let pages = len_bytes.next_multiple_of(4096) as u64;
        Ok(VecBuffer {
            bytes: vec![0; len_bytes].into(),
            bus: BusAddr::new(self.next_bus.fetch_add(pages, Ordering::Relaxed)),
            live: Arc::clone(&self.live),
        })
    }

    fn sync_for_device(&self, buffer: &VecBuffer, range: Range<usize>) -> Result<(), MockError> {
        check(buffer, &range)
    }

    fn sync_for_cpu(&self, buffer: &VecBuffer, range: Range<usize>) -> Result<(), MockError> {
        check(buffer, &range)
    }
}

fn check(buffer: &VecBuffer, range: &Range<usize>) -> Result<(), MockError> {
    match range.start <= range.end && range.end <= buffer.bytes.len() {
        true => Ok(()),
        false => Err(ErrorKind::OutOfBounds),
    }
}
