//! DMA memory that is ordinary memory.

#![expect(unsafe_code, reason = "the DMA traits are unsafe to implement")]

use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::Resource;
use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits, ErrorKind, ErrorType, OutOfRange};

use crate::MockError;

const PAGE_BYTES: usize = 4096;

/// A DMA buffer in ordinary memory. Its bus address is made up; no device uses it.
#[derive(Debug)]
pub struct VecBuffer {
    memory: Memory,
    bus: BusAddr,
    live: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Memory {
    Own(Box<[u8]>),
    /// Of a caller, who keeps it until the buffer is dropped.
    Caller(NonNull<u8>, usize),
}

// SAFETY: who lends memory gives it out of hand, so that it is used through the buffer alone.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            // SAFETY: who lent it promised that it is there, initialised, and not written.
            Self::Caller(start, len) => unsafe { slice::from_raw_parts(start.as_ptr(), *len) },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            // SAFETY: as above, and that nothing is written which was lent for reading.
            Self::Caller(start, len) => unsafe { slice::from_raw_parts_mut(start.as_ptr(), *len) },
        }
    }
}

impl Drop for VecBuffer {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the memory is never replaced, so pointer and length stay; every byte is a `u8`.
unsafe impl ReadBuffer for VecBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        (self.memory.bytes().as_ptr(), self.memory.bytes().len())
    }
}

// SAFETY: as above.
unsafe impl WriteBuffer for VecBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        let bytes = self.memory.bytes_mut();
        (bytes.as_mut_ptr(), bytes.len())
    }
}

// SAFETY: the memory lives as long as the buffer; no device exists, so nothing is reachable by the
// bus address.
unsafe impl DmaBuffer for VecBuffer {
    fn bus_addr(&self) -> BusAddr {
        self.bus
    }

    fn len_bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, from.len(), self.len_bytes())?;
        self.memory.bytes_mut()[range].copy_from_slice(from);
        Ok(())
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, into.len(), self.len_bytes())?;
        into.copy_from_slice(&self.memory.bytes()[range]);
        Ok(())
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        let range = OutOfRange::check(offset, len, self.len_bytes())?;
        self.memory.bytes_mut()[range].fill(byte);
        Ok(())
    }
}

/// Gives out [`VecBuffer`]s, a limited number if told so.
#[derive(Clone, Debug)]
pub struct VecDma {
    left: Arc<AtomicUsize>,
    live: Arc<AtomicUsize>,
    next_bus: Arc<AtomicU64>,
    max_buffer_bytes: usize,
    /// What becomes of memory that is to be imported; `None` if that is not supported.
    imports: Option<Result<(), ErrorKind>>,
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
            max_buffer_bytes: 1 << 30,
            imports: None,
        }
    }

    /// Lets memory be imported, or has each attempt fail so.
    #[must_use]
    pub fn importing(mut self, outcome: Result<(), ErrorKind>) -> Self {
        self.imports = Some(outcome);
        self
    }

    /// Sets how large a buffer may be in bytes, 1 GiB if not said. Memory is there from the moment
    /// something touches it.
    #[must_use]
    pub fn largest(mut self, max_buffer_bytes: usize) -> Self {
        self.max_buffer_bytes = max_buffer_bytes;
        self
    }

    fn book(&self, memory: Memory) -> VecBuffer {
        self.live.fetch_add(1, Ordering::Relaxed);
        let pages = memory.bytes().len().next_multiple_of(PAGE_BYTES) as u64;
        let bus = BusAddr::new(self.next_bus.fetch_add(pages, Ordering::Relaxed));
        VecBuffer { memory, bus, live: Arc::clone(&self.live) }
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
        let max_buffer_bytes = self.max_buffer_bytes;
        DmaLimits { alignment_bytes: PAGE_BYTES, max_buffer_bytes, total_bytes: None }
    }

    fn alloc(&self, len_bytes: usize, _: DeviceAccess) -> Result<VecBuffer, MockError> {
        if len_bytes == 0 || len_bytes > self.limits().max_buffer_bytes {
            return Err(ErrorKind::TooLarge);
        }
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .map_err(|_| ErrorKind::Exhausted(Resource::HostMemory))?;
        Ok(self.book(Memory::Own(vec![0; len_bytes].into())))
    }

    fn sync_for_device(&self, buffer: &VecBuffer, range: Range<usize>) -> Result<(), MockError> {
        check(buffer, &range)
    }

    fn sync_for_cpu(&self, buffer: &VecBuffer, range: Range<usize>) -> Result<(), MockError> {
        check(buffer, &range)
    }

    fn import_granule(&self) -> Option<usize> {
        self.imports.map(|_| PAGE_BYTES)
    }

    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        _: DeviceAccess,
    ) -> Result<Option<VecBuffer>, MockError> {
        let outcome = self.imports.transpose()?;
        Ok(outcome.map(|()| self.book(Memory::Caller(memory, len_bytes))))
    }
}

fn check(buffer: &VecBuffer, range: &Range<usize>) -> Result<(), MockError> {
    match range.start <= range.end && range.end <= buffer.len_bytes() {
        true => Ok(()),
        false => Err(ErrorKind::OutOfBounds),
    }
}
