//! Buffers in device memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use et_hal::{DeviceAddr, MemoryWatch, WatchedBuffer};

use super::access::Access;
use super::allocator::Block;
use super::maps::{Claim, Maps};
use super::usage::{BufferOptions, Limits, TagStats, Usage, UsageError, User};
use super::watched::Watched;
use super::{AllocError, Allocator, MemoryStats};
use crate::clock::Clock;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, lock};
use crate::{Error, Result};

/// The memory of one device, between two resets.
pub(crate) struct DeviceMemory {
    books: Mutex<Books>,
    maps: Arc<Maps>,
    /// The device was reset, and has another one now.
    is_stale: AtomicBool,
}

struct Books {
    allocator: Allocator,
    /// Bytes and number of live buffers.
    tags: BTreeMap<Arc<str>, (u64, u64)>,
    /// Present if the device checks what kernels access.
    watched: Option<Watched>,
    /// Present while the profiler records.
    log: Option<MemoryLog>,
}

/// How much device memory was in use from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySample {
    /// When, on the clock of the device object.
    pub at: Duration,
    /// Bytes in live blocks.
    pub used_bytes: u64,
}

/// What changed since it was last taken.
#[derive(Debug)]
struct MemoryLog {
    clock: Arc<dyn Clock>,
    samples: Vec<MemorySample>,
    dropped: u64,
}

/// Changes that are kept between two looks; later ones are counted only.
const LOG_LIMIT: usize = 1 << 16;

impl Books {
    fn alloc(&mut self, len_bytes: u64, align: u64) -> Result<Block, AllocError> {
        match &mut self.watched {
            None => self.allocator.alloc(len_bytes, align),
            Some(watched) => watched.alloc(&mut self.allocator, len_bytes, align),
        }
    }

    fn free(&mut self, addr: DeviceAddr, block_bytes: u64) -> Result<u64, AllocError> {
        match &mut self.watched {
            None => self.allocator.free(addr),
            Some(watched) => watched.free(&mut self.allocator, addr, block_bytes),
        }
    }

    fn by_tag(&self) -> Vec<TagStats> {
        let stats = |(tag, (used_bytes, buffers)): (&Arc<str>, &(u64, u64))| TagStats {
            tag: Arc::clone(tag),
            used_bytes: *used_bytes,
            buffers: *buffers,
        };
        let mut tags: Vec<_> = self.tags.iter().map(stats).collect();
        tags.sort_by_key(|stats| std::cmp::Reverse(stats.used_bytes));
        tags
    }

    fn note(&mut self) {
        let hidden = self.watched.as_ref().map_or(0, |watched| watched.hidden_bytes);
        let used_bytes = self.allocator.used_bytes() - hidden;
        let Some(log) = &mut self.log else { return };
        if log.samples.len() < LOG_LIMIT {
            log.samples.push(MemorySample { at: log.clock.now(), used_bytes });
        } else {
            log.dropped += 1;
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The allocator's tables say nothing to people.
        f.debug_struct("DeviceMemory").finish_non_exhaustive()
    }
}

impl DeviceMemory {
    pub(crate) fn new(
        base: DeviceAddr,
        len_bytes: u64,
        watch: Option<Box<dyn MemoryWatch>>,
    ) -> Result<Arc<Self>, AllocError> {
        let watched = watch.map(|watch| Watched::new(watch, len_bytes));
        let books = Books {
            allocator: Allocator::new(base, len_bytes)?,
            watched,
            log: None,
            tags: BTreeMap::new(),
        };
        let (books, is_stale) = (Mutex::new(books), AtomicBool::new(false));
        Ok(Arc::new(Self { books, maps: Arc::default(), is_stale }))
    }

    /// Notes that the device is reset.
    pub(crate) fn retire(&self) {
        // Relaxed: it only says which error is the right one.
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Returns why what is in this memory cannot be used with another.
    pub(crate) fn foreign(&self) -> Error {
        if self.is_stale.load(Ordering::Relaxed) {
            Error::all_stale()
        } else {
            Error::ForeignBuffer
        }
    }

    /// Keeps others from mapping a part, as long as the claim lives.
    ///
    /// # Errors
    /// [`Error::Mapped`](crate::Error::Mapped).
    pub(crate) fn map(&self, addr: DeviceAddr, len_bytes: u64, is_written: bool) -> Result<Claim> {
        self.maps.claim(addr, len_bytes, is_written)
    }

    pub(crate) fn alloc(self: &Arc<Self>, len_bytes: u64, align: u64) -> Result<DeviceBuffer> {
        self.alloc_with(len_bytes, &BufferOptions::new().align(align))
    }

    pub(crate) fn alloc_with(
        self: &Arc<Self>,
        len_bytes: u64,
        options: &BufferOptions,
    ) -> Result<DeviceBuffer> {
        let BufferOptions { align, usage, tag } = options;
        let mut books = self.lock();
        let block = match books.alloc(len_bytes, *align) {
            Err(AllocError::OutOfMemory { asked, align, free, largest, .. }) => {
                let holders = books.by_tag();
                return Err(AllocError::OutOfMemory { asked, align, free, largest, holders }.into());
            }
            made => made?,
        };
        books.note();
        if let Some(tag) = tag {
            let (bytes, buffers) = books.tags.entry(Arc::clone(tag)).or_default();
            (*bytes, *buffers) = (*bytes + len_bytes, *buffers + 1);
        }
        if let (Some(watched), Access::Read) = (&books.watched, usage.kernels) {
            watched.watch.read_only(block.addr, len_bytes);
        }
        drop(books);
        let allocation = Allocation {
            memory: Arc::clone(self),
            addr: block.addr,
            len_bytes,
            block_bytes: block.len_bytes,
            usage: *usage,
            tag: tag.clone(),
            limits: Limits::default(),
        };
        Ok(DeviceBuffer { allocation: Arc::new(allocation) })
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut books = self.lock();
        let Books { allocator, watched, .. } = &mut *books;
        match watched {
            None => allocator.stats(),
            Some(watched) => watched.stats(allocator),
        }
    }

    /// Returns the memory of each tag, most bytes first.
    pub(crate) fn by_tag(&self) -> Vec<TagStats> {
        self.lock().by_tag()
    }

    /// Tells whoever checks kernels that they may not write a part of a buffer.
    pub(crate) fn read_only(&self, addr: DeviceAddr, len_bytes: u64) {
        if let Some(watched) = &self.lock().watched {
            watched.watch.read_only(addr, len_bytes);
        }
    }

    /// Returns the buffer that is the nearest to where a kernel failed, if that is known.
    pub(crate) fn nearest(&self, addr: DeviceAddr) -> Option<WatchedBuffer> {
        self.lock().watched.as_ref()?.watch.nearest(addr)
    }

    /// Records from now on; what is in use now is the first sample.
    pub(crate) fn start_log(&self, clock: Arc<dyn Clock>) {
        let mut books = self.lock();
        books.log = Some(MemoryLog { clock, samples: Vec::new(), dropped: 0 });
        books.note();
    }

    /// Takes what was recorded, and how many changes were not kept.
    pub(crate) fn take_log(&self) -> (Vec<MemorySample>, u64) {
        let mut books = self.lock();
        let Some(log) = &mut books.log else { return (Vec::new(), 0) };
        (std::mem::take(&mut log.samples), std::mem::take(&mut log.dropped))
    }

    pub(crate) fn stop_log(&self) {
        self.lock().log = None;
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // The allocator changes nothing before all its checks are done, so a panic leaves it whole.
        lock(&self.books)
    }
}

/// One block; freed when its last user is gone.
#[derive(Debug)]
struct Allocation {
    memory: Arc<DeviceMemory>,
    addr: DeviceAddr,
    /// What was asked for.
    len_bytes: u64,
    /// What the allocator gave; never less.
    block_bytes: u64,
    usage: Usage,
    tag: Option<Arc<str>>,
    limits: Limits,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut books = self.memory.lock();
        let freed = books.free(self.addr, self.block_bytes);
        books.note();
        if let Some(tag) = &self.tag
            && let Some((bytes, buffers)) = books.tags.get_mut(tag)
        {
            (*bytes, *buffers) = (*bytes - self.len_bytes, *buffers - 1);
            if *buffers == 0 {
                books.tags.remove(tag);
            }
        }
        drop(books);
        debug_assert!(freed.is_ok(), "a live allocation is known to its allocator");
    }
}

/// A buffer in device memory.
///
/// Dropping it frees the memory, once the last command that uses it has completed.
#[derive(Debug)]
pub struct DeviceBuffer {
    allocation: Arc<Allocation>,
}

impl DeviceBuffer {
    /// Returns the device address of byte 0.
    #[must_use]
    pub fn addr(&self) -> DeviceAddr {
        self.allocation.addr
    }

    /// Returns the length in bytes, as asked for.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.allocation.len_bytes
    }

    /// Returns the tag that it was allocated with.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.allocation.tag.as_deref()
    }

    /// Returns what `user` may do with the buffer; `None` for nothing. Kernels may do less with
    /// parts of it that were [limited](DeviceSlice::limit).
    #[must_use]
    pub fn access(&self, user: User) -> Option<Access> {
        self.allocation.usage.of(user)
    }

    /// Returns a part of the buffer, by bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<DeviceSlice> {
        self.whole().slice(range)
    }

    /// Returns the whole buffer as a slice.
    #[must_use]
    pub fn whole(&self) -> DeviceSlice {
        DeviceSlice {
            allocation: Arc::clone(&self.allocation),
            offset: 0,
            len_bytes: self.allocation.len_bytes,
        }
    }
}

impl From<&DeviceBuffer> for DeviceSlice {
    fn from(buffer: &DeviceBuffer) -> Self {
        buffer.whole()
    }
}

impl From<&DeviceSlice> for DeviceSlice {
    fn from(slice: &DeviceSlice) -> Self {
        slice.clone()
    }
}

/// A part of a buffer in device memory; keeps the buffer alive.
#[derive(Clone, Debug)]
pub struct DeviceSlice {
    allocation: Arc<Allocation>,
    offset: u64,
    len_bytes: u64,
}

impl DeviceSlice {
    /// Returns the device address of the first byte.
    #[must_use]
    pub fn addr(&self) -> DeviceAddr {
        // The offset is inside the block, which is inside the address space.
        DeviceAddr::new(self.allocation.addr.as_u64() + self.offset)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns a part of this slice, by bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.len_bytes),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len_bytes => Ok(Self {
                allocation: Arc::clone(&self.allocation),
                offset: self.offset + start,
                len_bytes: end - start,
            }),
            (start, end) => {
                let offset = start.unwrap_or(u64::MAX);
                let len = end.unwrap_or(u64::MAX).saturating_sub(offset);
                Err(Error::OutOfRange { offset, len, buffer: self.len_bytes })
            }
        }
    }

    /// Returns the smallest part of its buffer around the slice that begins at a multiple of
    /// `align` and ends at one, or with the buffer, and how many bytes it has before the slice.
    pub(crate) fn aligned_out(&self, align: u64) -> (Self, u64) {
        let allocation = Arc::clone(&self.allocation);
        let before = self.addr().as_u64() % align;
        // A buffer that begins between multiples has none before its first.
        let before = before.min(self.offset);
        let end = (self.addr().as_u64() + self.len_bytes).next_multiple_of(align);
        let end = (end - allocation.addr.as_u64()).min(allocation.len_bytes);
        let offset = self.offset - before;
        (Self { allocation, offset, len_bytes: end - offset }, before)
    }

    /// Lets kernels use this part of its buffer for `access` only, whatever slice names it; an
    /// earlier limit of a part inside it is replaced. Launches that say what they do with a buffer
    /// ([`Launch::input`](crate::Launch::input), or the kernel's [`Signature`]) are held to it, and
    /// tasks when they are added to a graph.
    ///
    /// [`Signature`]: crate::kernel::Signature
    pub fn limit(&self, access: Access) {
        let range = self.offset..self.offset + self.len_bytes;
        if range.is_empty() {
            return;
        }
        self.allocation.limits.add(range, access);
    }

    /// Returns `true` if any use is allowed.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.allocation.usage == Usage::ANY && self.allocation.limits.are_none()
    }

    /// Checks that the part may be used so.
    pub(crate) fn check_usage(
        &self,
        user: User,
        wanted: Access,
        op: &'static str,
    ) -> Result<(), UsageError> {
        if self.len_bytes == 0 {
            return Ok(());
        }
        let Allocation { usage, limits, tag, .. } = &*self.allocation;
        let mut allowed = usage.of(user);
        let mut is_allowed = allowed.is_some_and(|allowed| allowed.permits(wanted));
        let range = self.offset..self.offset + self.len_bytes;
        if is_allowed
            && user == User::Kernels
            && let Some(limit) = limits.against(&range, wanted)
        {
            (allowed, is_allowed) = (Some(limit), false);
        }
        if is_allowed {
            return Ok(());
        }
        let (address, len_bytes, tag) = (self.addr(), self.len_bytes, tag.clone());
        Err(UsageError { op, tag, address, len_bytes, user, wanted, allowed })
    }

    /// Tells buffers apart, for as long as something keeps them alive.
    pub(crate) fn allocation_id(&self) -> usize {
        Arc::as_ptr(&self.allocation).addr()
    }

    pub(crate) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.allocation.memory
    }

    pub(crate) fn belongs_to(&self, memory: &Arc<DeviceMemory>) -> bool {
        Arc::ptr_eq(&self.allocation.memory, memory)
    }

    /// Bytes from the start of the slice that belong to no one else: up to the end of the block if
    /// the slice reaches the end of the buffer, else its length.
    pub(crate) fn padded_len(&self) -> u64 {
        if self.offset + self.len_bytes == self.allocation.len_bytes {
            self.allocation.block_bytes - self.offset
        } else {
            self.len_bytes
        }
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.addr().as_u64(), other.addr().as_u64());
        a < b + other.len_bytes && b < a + self.len_bytes
    }
}
