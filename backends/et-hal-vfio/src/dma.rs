//! Host memory that the device can reach.

#![expect(unsafe_code, reason = "DMA buffers implement unsafe traits and copy by address")]

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::{BusAddr, DeviceAccess, Dma, DmaBuffer, DmaLimits, ErrorType, OutOfRange};

use crate::VfioError;
use crate::barrier::{read_barrier, write_barrier};
use crate::import::Imported;
use crate::memory::Memory;
use crate::pool::{Place, Pool};
use crate::slab::GRANULE_BYTES;

/// Allocates memory and maps it for the device, for reading only where that is all it is to do.
///
/// Small buffers share a mapping, but never a page. Bus addresses are reused as late as possible,
/// and a hole follows each mapping: whoever uses a stale address, or runs over the end of a large
/// buffer, meets a fault of the IOMMU.
#[derive(Debug)]
pub struct VfioDma {
    pool: Arc<Pool>,
}

// SAFETY: the address in a `Memory` is that of a shared mapping which only its owner takes away.
// What is done through it is done by buffers, each with its own part.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl VfioDma {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool) }
    }

    /// Maps memory of the caller for the device, without copying.
    ///
    /// The result keeps it mapped until it is dropped. If that never happens, the mapping stays
    /// until the device is closed.
    ///
    /// # Errors
    /// `Misaligned` unless `address` and `len_bytes` are multiples of the page size: the rest of a
    /// page would be open to the device as well; `Unsupported` without an IOMMU; `TooLarge` for 0
    /// bytes; `Exhausted`; `Stale`; `Lost`.
    ///
    /// # Safety
    /// - The range is mapped memory of this process, readable, and writable unless `access` is
    ///   [`DeviceAccess::Read`];
    /// - it stays mapped, at the same place, until the result is dropped and the drop has returned;
    /// - no Rust reference to any byte of it is used while the device may write it.
    pub unsafe fn import(
        &self,
        address: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Imported, VfioError> {
        self.pool.shared().stamp()?;
        Imported::map(&self.pool, address, len_bytes, access)
    }
}

impl ErrorType for VfioDma {
    type Error = VfioError;
}

impl Dma for VfioDma {
    type Buffer = VfioBuffer;

    fn limits(&self) -> DmaLimits {
        DmaLimits {
            alignment_bytes: GRANULE_BYTES,
            max_buffer_bytes: self.pool.max_buffer_bytes(),
            total_bytes: None,
        }
    }

    fn alloc(&self, len_bytes: usize, access: DeviceAccess) -> Result<VfioBuffer, VfioError> {
        let max = self.pool.max_buffer_bytes();
        if !(1..=max).contains(&len_bytes) {
            return Err(VfioError::BufferSize { len: len_bytes, max });
        }
        self.pool.shared().stamp()?;
        let place = self.pool.take(len_bytes, access)?;
        let handle = self.pool.shared().handle();
        // A piece of a slab has been used before; the bytes up to the next buffer are ours too. A
        // new file is zero.
        let room = place.memory.len() - place.offset;
        let used = if place.is_part() { len_bytes.next_multiple_of(GRANULE_BYTES) } else { 0 };
        let home = Home::Pool(place);
        let mut buffer = VfioBuffer { pool: Arc::clone(&self.pool), home, len: len_bytes, handle };
        buffer.zero(used.min(room));
        Ok(buffer)
    }

    fn sync_for_device(&self, buffer: &VfioBuffer, range: Range<usize>) -> Result<(), VfioError> {
        buffer.check(&range)?;
        // The kernel offers only coherent devices; the processor's own order remains.
        write_barrier();
        Ok(())
    }

    fn sync_for_cpu(&self, buffer: &VfioBuffer, range: Range<usize>) -> Result<(), VfioError> {
        buffer.check(&range)?;
        read_barrier();
        Ok(())
    }

    fn import_granule(&self) -> Option<usize> {
        let page = usize::try_from(self.pool.page_bytes()).ok()?;
        (!self.pool.is_physical()).then_some(page)
    }

    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Option<VfioBuffer>, VfioError> {
        // SAFETY: the caller promises the same.
        let mapping = unsafe { self.import(memory, len_bytes, access) }?;
        let handle = self.pool.shared().handle();
        let home = Home::Caller(Start(memory), mapping);
        Ok(Some(VfioBuffer { pool: Arc::clone(&self.pool), home, len: len_bytes, handle }))
    }
}

/// Where memory of a caller begins.
#[derive(Debug)]
struct Start(NonNull<u8>);

// SAFETY: who lends memory gives it out of hand, so that it is used through the buffer alone.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

/// Where a buffer is.
#[derive(Debug)]
enum Home {
    Pool(Place),
    Caller(Start, Imported),
}

/// Host memory that the device can reach.
///
/// Dropping it takes it away from the device, except that a part of a shared mapping stays
/// reachable until it is used again. It is not mapped in a child of this process: there its copies
/// say that every range is outside, and what [`ReadBuffer`] and [`WriteBuffer`] return must not be
/// used.
#[derive(Debug)]
pub struct VfioBuffer {
    pool: Arc<Pool>,
    /// Never changes, nor does the length.
    home: Home,
    len: usize,
    /// Counts the buffer among the handles that keep the device open.
    #[expect(dead_code, reason = "counted by being there")]
    handle: Arc<()>,
}

impl VfioBuffer {
    fn base(&self) -> NonNull<u8> {
        match &self.home {
            // SAFETY: the pool gave this part of the memory out, so the offset lies inside its
            // mapping.
            Home::Pool(place) => unsafe { place.memory.base().add(place.offset) },
            Home::Caller(start, _) => start.0,
        }
    }

    /// Clears its first bytes, all of which belong to it.
    fn zero(&mut self, bytes: usize) {
        // SAFETY: whole granules belong to this buffer, inside the mapping; no other code knows of
        // it yet.
        unsafe { ptr::write_bytes(self.base().as_ptr(), 0, bytes) };
    }

    /// Returns the bytes that this process can reach: none in a child, where nothing is mapped.
    fn reach(&self) -> usize {
        if self.pool.shared().is_here() { self.len } else { 0 }
    }

    fn check(&self, range: &Range<usize>) -> Result<(), VfioError> {
        self.pool.shared().check_home()?;
        let len = range.end.saturating_sub(range.start);
        let outside = OutOfRange { offset: range.start, len, buffer: self.len };
        if range.start > range.end {
            return Err(VfioError::BufferRange(outside));
        }
        OutOfRange::check(range.start, len, self.len).map(|_| ()).map_err(VfioError::BufferRange)
    }
}

impl Drop for VfioBuffer {
    fn drop(&mut self) {
        if !self.pool.shared().is_here() {
            return;
        }
        // An import takes itself away.
        if let Home::Pool(place) = &self.home {
            self.pool.give_back(place);
        }
    }
}

// SAFETY: pointer and length are those of a part of a mapping that `place.memory` owns, readable
// and initialised (memory files are zero), or what the caller of `import_buffer` promised to be so;
// neither changes.
unsafe impl ReadBuffer for VfioBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        (self.base().as_ptr(), self.len)
    }
}

// SAFETY: as above, and the memory is writable, unless who had it imported does not write.
unsafe impl WriteBuffer for VfioBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        (self.base().as_ptr(), self.len)
    }
}

// SAFETY: `place.memory`, or the caller, keeps the memory mapped, and the pool keeps it mapped for
// the device, until the buffer is dropped; the granules at `place.bus`, or the pages of the import,
// belong to this buffer alone; `read_buffer` and `write_buffer` return two fixed fields.
unsafe impl DmaBuffer for VfioBuffer {
    fn bus_addr(&self) -> BusAddr {
        match &self.home {
            Home::Pool(place) => BusAddr::new(place.bus),
            Home::Caller(_, mapping) => mapping.bus_addr(),
        }
    }

    fn len_bytes(&self) -> usize {
        self.len
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        OutOfRange::check(offset, from.len(), self.reach())?;
        // SAFETY: the range was checked.
        let to = unsafe { self.base().add(offset) };
        // SAFETY: as above; a caller's slice cannot overlap a buffer that gives out no references.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        Ok(())
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        OutOfRange::check(offset, into.len(), self.reach())?;
        // SAFETY: the range was checked.
        let from = unsafe { self.base().add(offset) };
        // SAFETY: as above; a caller's slice cannot overlap a buffer that gives out no references.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        OutOfRange::check(offset, len, self.reach())?;
        // SAFETY: the range was checked.
        let to = unsafe { self.base().add(offset) };
        // SAFETY: as above.
        unsafe { ptr::write_bytes(to.as_ptr(), byte, len) };
        Ok(())
    }
}
