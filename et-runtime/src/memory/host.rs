//! Host memory that the device reads and writes directly.

use std::fmt;
use std::ops::Range;

use et_hal::{Bounce, BusAddr, DeviceAccess, Dma, DmaBuffer, Hal, Import};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::AllocError;
use crate::sync::{Arc, Mutex, lock};
use crate::{Error, Result};

type Buffer<H> = <<H as Hal>::Dma as Dma>::Buffer;

/// Whose memory a host buffer is.
enum Memory<H: Hal> {
    Own(Arc<Buffer<H>>),
    /// Of a caller, who gets it back.
    Lent(Box<Import<Buffer<H>>>),
}

/// A pinned host buffer. Copies from and to it need no staging.
///
/// It is memory [of its own](crate::Device::host_buffer), or of a caller who
/// [lent it](crate::Device::import).
pub struct HostBuffer<H: Hal> {
    memory: Memory<H>,
    /// First byte of the memory that belongs to it.
    start: usize,
    len_bytes: usize,
    access: DeviceAccess,
}

impl<H: Hal> fmt::Debug for HostBuffer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("bus_addr", &self.bus_addr())
            .field("len_bytes", &self.len_bytes)
            .finish()
    }
}

impl<H: Hal> HostBuffer<H> {
    /// Allocates memory whose bus address is a multiple of `align` bytes, a power of two.
    pub(crate) fn alloc(
        dma: &H::Dma,
        len_bytes: usize,
        align: usize,
        access: DeviceAccess,
    ) -> Result<Self> {
        if !align.is_power_of_two() {
            return Err(AllocError::BadAlignment { align: align as u64 }.into());
        }
        // What is missing to the alignment is found inside a larger buffer.
        let spare = align.saturating_sub(dma.limits().alignment_bytes);
        let whole = len_bytes.max(1).saturating_add(spare);
        let buffer = dma.alloc(whole, access).map_err(Error::hal("allocating host memory"))?;
        let mask = align as u64 - 1;
        // Less than the alignment, which is a `usize`.
        let start = buffer.bus_addr().as_u64().wrapping_neg() & mask;
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(Self { memory: Memory::Own(Arc::new(buffer)), start, len_bytes, access })
    }

    /// Takes memory that a caller lends.
    pub(crate) fn lent(import: Import<Buffer<H>>) -> Self {
        Self {
            start: 0,
            len_bytes: import.len_bytes(),
            access: import.access(),
            memory: Memory::Lent(Box::new(import)),
        }
    }

    fn buffer(&self) -> &Buffer<H> {
        match &self.memory {
            Memory::Own(buffer) => buffer,
            Memory::Lent(import) => import.buffer(),
        }
    }

    /// Returns why the contents of memory that was [lent](crate::Device::import) are copied to
    /// memory that the device reaches, and back at the end; `None` if the device reaches the
    /// memory itself.
    #[must_use]
    pub fn bounce(&self) -> Option<Bounce> {
        match &self.memory {
            Memory::Own(_) => None,
            Memory::Lent(import) => import.bounce(),
        }
    }

    /// Returns `true` if the device reaches the memory itself, so that a copy from or to the device
    /// is the only one.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.bounce().is_none()
    }

    /// Takes memory that was [lent](crate::Device::import) away from the device, and returns its
    /// owner with all that is in the buffer.
    ///
    /// # Errors
    /// The buffer, if no owner of this type has lent it, or in a child of the process.
    pub fn into_owner<O: 'static>(self) -> Result<O, Self> {
        let Self { memory, start, len_bytes, access } = self;
        let memory = match memory {
            Memory::Lent(import) => match import.into_owner() {
                Ok(owner) => return Ok(owner),
                Err(import) => Memory::Lent(Box::new(import)),
            },
            own @ Memory::Own(_) => own,
        };
        Err(Self { memory, start, len_bytes, access })
    }

    /// Returns the length in bytes, as asked for.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns `true` if the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Returns what it was allocated for.
    #[must_use]
    pub fn access(&self) -> DeviceAccess {
        self.access
    }

    /// Checks that the device may use it so.
    pub(crate) fn check_access(&self, access: DeviceAccess, op: &'static str) -> Result<()> {
        if self.access == DeviceAccess::ReadWrite || self.access == access {
            return Ok(());
        }
        Err(Error::Access { op, access: self.access })
    }

    /// Returns the address by which the device knows byte 0.
    #[must_use]
    pub fn bus_addr(&self) -> BusAddr {
        BusAddr::new(self.buffer().bus_addr().as_u64() + self.start as u64)
    }

    /// Returns the place of byte 0 in its [memory](Self::memory): 0, unless it was allocated with
    /// an alignment that is larger than that of its backend.
    #[must_use]
    pub fn memory_offset(&self) -> usize {
        self.start
    }

    /// Returns the memory itself, which exists, at the same address, as long as the longest lived
    /// of buffer and handles: whatever becomes of copies and of the device. For those that show it
    /// to other code, by address. `None` if it was [lent](crate::Device::import): then it exists as
    /// long as its owner wants.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<<H::Dma as Dma>::Buffer>> {
        match &self.memory {
            Memory::Own(buffer) => Some(Arc::clone(buffer)),
            Memory::Lent(_) => None,
        }
    }

    /// Returns the memory to be written, unless it is shared.
    fn own(&mut self) -> Result<&mut Buffer<H>> {
        let (buffer, why) = match &mut self.memory {
            Memory::Own(buffer) => (Arc::get_mut(buffer), "its memory is shown to other code"),
            Memory::Lent(import) => (import.buffer_mut(), "its memory was lent for reading"),
        };
        buffer.ok_or(Error::Unsupported { op: "writing a buffer", why })
    }

    /// Copies `from` into the buffer at byte `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] or, while others hold its [memory](Self::memory),
    /// [`Error::Unsupported`]; with nothing copied.
    pub fn copy_in<T: IntoBytes + Immutable>(&mut self, offset: usize, from: &[T]) -> Result<()> {
        let bytes = from.as_bytes();
        self.check(offset, bytes.len())?;
        let at = self.start + offset;
        self.own()?.copy_in(at, bytes).map_err(|e| Error::range(&e))
    }

    /// Copies out of the buffer at byte `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], with `into` unchanged.
    pub fn copy_out<T: FromBytes + IntoBytes>(&self, offset: usize, into: &mut [T]) -> Result<()> {
        let bytes = into.as_mut_bytes();
        self.check(offset, bytes.len())?;
        self.buffer().copy_out(self.start + offset, bytes).map_err(|e| Error::range(&e))
    }

    /// Sets `len` bytes at `offset` to `byte`.
    ///
    /// # Errors
    /// As [`copy_in`](Self::copy_in), with nothing written.
    pub fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<()> {
        self.check(offset, len)?;
        let at = self.start + offset;
        self.own()?.fill(at, len, byte).map_err(|e| Error::range(&e))
    }

    /// Makes what the host wrote visible to the device.
    pub(crate) fn sync_for_device(&self, dma: &H::Dma, range: Range<usize>) -> Result<()> {
        let synced = dma.sync_for_device(self.buffer(), self.moved(range));
        synced.map_err(Error::hal("synchronising a host buffer"))
    }

    /// Makes what the device wrote visible to the host.
    pub(crate) fn sync_for_cpu(&self, dma: &H::Dma, range: Range<usize>) -> Result<()> {
        let synced = dma.sync_for_cpu(self.buffer(), self.moved(range));
        synced.map_err(Error::hal("synchronising a host buffer"))
    }

    fn moved(&self, range: Range<usize>) -> Range<usize> {
        self.start + range.start..self.start + range.end
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        et_hal::OutOfRange::check(offset, len, self.len_bytes)
            .map(|_| ())
            .map_err(|e| Error::range(&e))
    }
}

/// A host buffer lent to commands in flight; comes back when the last of them is done.
pub(crate) struct Lease<H: Hal> {
    buffer: Mutex<Option<HostBuffer<H>>>,
}

impl<H: Hal> Lease<H> {
    pub(crate) fn new(buffer: HostBuffer<H>) -> Arc<Self> {
        Arc::new(Self { buffer: Mutex::new(Some(buffer)) })
    }

    /// Takes the buffer back. To be called only when no command uses it any more.
    pub(crate) fn take(&self) -> Option<HostBuffer<H>> {
        lock(&self.buffer).take()
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&HostBuffer<H>) -> R) -> Option<R> {
        lock(&self.buffer).as_ref().map(look)
    }
}
