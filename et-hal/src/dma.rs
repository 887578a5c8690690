//! Host memory that the device can reach.

#![expect(unsafe_code, reason = "declares the unsafe trait that DMA buffers implement")]

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

use embedded_dma::{ReadBuffer, WriteBuffer};

use crate::{BusAddr, ErrorType};

/// What the device will do with a buffer; an IOMMU enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceAccess {
    /// The device reads it (host to device).
    Read,
    /// The device writes it (device to host).
    Write,
    /// Both.
    ReadWrite,
}

/// What a transport demands of DMA memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmaLimits {
    /// Bus addresses of buffers are multiples of this many bytes, a power of two.
    pub alignment_bytes: usize,
    /// Largest buffer in bytes.
    pub max_buffer_bytes: usize,
    /// Bytes that may be allocated at one time, over all buffers; `None` if not known.
    pub total_bytes: Option<u64>,
}

/// A range that does not lie inside its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// First byte asked for.
    pub offset: usize,
    /// Bytes asked for.
    pub len: usize,
    /// Length of the buffer in bytes.
    pub buffer: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, len, buffer } = self;
        write!(f, "{len} bytes at offset {offset} are outside a buffer of {buffer} bytes")
    }
}

impl core::error::Error for OutOfRange {}

impl OutOfRange {
    /// Checks a range against a buffer length.
    ///
    /// # Errors
    /// The value itself, unless `offset + len <= buffer`.
    pub fn check(offset: usize, len: usize, buffer: usize) -> Result<Range<usize>, Self> {
        match offset.checked_add(len) {
            Some(end) if end <= buffer => Ok(offset..end),
            _ => Err(Self { offset, len, buffer }),
        }
    }
}

/// Pinned host memory and its address on the bus.
///
/// Contents are copied in and out; no method hands out a slice, because the device may write at any
/// time and a Rust reference promises that it does not change. Copies are plain: the caller must
/// not race with the device, which the protocol above decides.
///
/// # Safety
///
/// An implementation promises that
/// - the memory stays mapped and pinned, at the same place, until the buffer is dropped;
/// - [`bus_addr`](DmaBuffer::bus_addr) names this memory, for `len_bytes` contiguous bytes, and
///   nothing else is reachable through that range;
/// - [`ReadBuffer`] and [`WriteBuffer`] return the same pointer and length at every call.
pub unsafe trait DmaBuffer:
    ReadBuffer<Word = u8> + WriteBuffer<Word = u8> + Send + Sync + 'static
{
    /// Returns the address the device uses for byte 0.
    fn bus_addr(&self) -> BusAddr;

    /// Returns the length in bytes.
    fn len_bytes(&self) -> usize;

    /// Copies `from` into the buffer at `offset`.
    ///
    /// # Errors
    /// [`OutOfRange`], with nothing copied.
    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange>;

    /// Copies out of the buffer at `offset`.
    ///
    /// # Errors
    /// [`OutOfRange`], with `into` unchanged.
    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange>;

    /// Sets `len` bytes at `offset` to `byte`.
    ///
    /// # Errors
    /// [`OutOfRange`], with nothing written.
    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange>;
}

/// Gives out memory that the device can reach.
pub trait Dma: ErrorType {
    /// The memory given out.
    type Buffer: DmaBuffer;

    /// Returns what the transport demands.
    fn limits(&self) -> DmaLimits;

    /// Allocates and maps `len_bytes` bytes, zeroed.
    ///
    /// # Errors
    /// `TooLarge` above [`DmaLimits::max_buffer_bytes`] or for 0 bytes; `Exhausted`; `Permission`;
    /// `Stale`; `Lost`.
    fn alloc(&self, len_bytes: usize, access: DeviceAccess) -> Result<Self::Buffer, Self::Error>;

    /// Makes what the host wrote to `range` visible to the device. Free on a coherent bus.
    ///
    /// # Errors
    /// `OutOfBounds`.
    fn sync_for_device(
        &self,
        buffer: &Self::Buffer,
        range: Range<usize>,
    ) -> Result<(), Self::Error>;

    /// Makes what the device wrote to `range` visible to the host. Free on a coherent bus.
    ///
    /// # Errors
    /// `OutOfBounds`.
    fn sync_for_cpu(&self, buffer: &Self::Buffer, range: Range<usize>) -> Result<(), Self::Error>;

    /// Returns the granule of [`import_buffer`](Self::import_buffer) in bytes, a power of two:
    /// what is imported begins and ends on a multiple of it. `None`, as here, if this transport
    /// cannot import memory.
    fn import_granule(&self) -> Option<usize> {
        None
    }

    /// Maps memory of the caller for the device, without copying; `None`, as here, if this
    /// transport cannot.
    ///
    /// Nothing moves, and the contents stay. The device reaches the memory, and no byte more, until
    /// the drop of the buffer has returned. `Import`, with the feature `alloc`, makes this safe.
    ///
    /// # Errors
    /// `Misaligned` unless `memory` and `len_bytes` are multiples of the granule; `TooLarge` for
    /// 0 bytes; `Exhausted`, above all at a limit of locked memory; `Permission`; `Stale`; `Lost`.
    /// The device does not reach the memory then.
    ///
    /// # Safety
    /// - The range is initialised memory of this process, readable, and writable unless `access` is
    ///   [`DeviceAccess::Read`];
    /// - it stays mapped, at the same place, until the drop of the buffer has returned;
    /// - no Rust reference to any byte of it is used meanwhile, except for reading if `access` is
    ///   [`DeviceAccess::Read`]; then nothing is written through the buffer.
    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Option<Self::Buffer>, Self::Error> {
        let _ = (memory, len_bytes, access);
        Ok(None)
    }
}

macro_rules! forward {
    ($(#[$attr:meta])* $target:ty) => {
        $(#[$attr])*
        impl<T: Dma + ?Sized> Dma for $target {
            type Buffer = T::Buffer;

            fn limits(&self) -> DmaLimits {
                T::limits(self)
            }
            fn alloc(
                &self,
                len_bytes: usize,
                access: DeviceAccess,
            ) -> Result<Self::Buffer, Self::Error> {
                T::alloc(self, len_bytes, access)
            }
            fn sync_for_device(
                &self,
                buffer: &Self::Buffer,
                range: Range<usize>,
            ) -> Result<(), Self::Error> {
                T::sync_for_device(self, buffer, range)
            }
            fn sync_for_cpu(
                &self,
                buffer: &Self::Buffer,
                range: Range<usize>,
            ) -> Result<(), Self::Error> {
                T::sync_for_cpu(self, buffer, range)
            }
            fn import_granule(&self) -> Option<usize> {
                T::import_granule(self)
            }
            unsafe fn import_buffer(
                &self,
                memory: NonNull<u8>,
                len_bytes: usize,
                access: DeviceAccess,
            ) -> Result<Option<Self::Buffer>, Self::Error> {
                // SAFETY: the caller promises the same.
                unsafe { T::import_buffer(self, memory, len_bytes, access) }
            }
        }
    };
}

forward!(&T);
forward!(&mut T);
forward!(
    #[cfg(feature = "alloc")]
    alloc::sync::Arc<T>
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_overflow() {
        assert_eq!(OutOfRange::check(2, 3, 5), Ok(2..5));
        assert_eq!(OutOfRange::check(5, 0, 5), Ok(5..5));
        assert!(OutOfRange::check(3, 3, 5).is_err());
        assert!(OutOfRange::check(usize::MAX, 1, 5).is_err());
    }
}
