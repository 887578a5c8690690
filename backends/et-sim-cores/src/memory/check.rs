//! What device memory is in use for, and whether a kernel may make an access.
//!
//! Checked launches have [guards](super::guards) everywhere, so that no access takes a short cut;
//! others know nothing of this.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use et_isa::{Access, MemoryFault, Violation};

use crate::memory::map::DRAM_BASE;

/// Buffers that a hart has used last and finds again at once.
const RECENT: usize = 4;
/// Bytes that one word of marks is for.
const MARKS: u64 = 64;
/// Words of marks that are made at once.
const PAGE_WORDS: usize = 64;

/// The buffers of a part of DRAM, as its owner announces them.
///
/// Kernels that are launched on [watched](crate::Dram::watch) DRAM may use announced buffers and
/// the open range, and trap when they touch anything else in DRAM.
#[derive(Debug)]
pub struct Buffers {
    managed: Range<u64>,
    open: Range<u64>,
    /// Changes whenever something that was allowed is not any more.
    version: AtomicU64,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By first address.
    live: BTreeMap<u64, Arc<Buffer>>,
    /// Freed buffers whose memory has not been in use since: first address, and end.
    freed: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Buffer {
    range: Range<u64>,
    read_only: Vec<Range<u64>>,
    /// A bit per byte: something has written it. Pages without any are left out.
    written: Arc<[OnceLock<Marks>]>,
}

/// Marks of a page of a buffer.
type Marks = Box<[AtomicU64; PAGE_WORDS]>;

/// A buffer near an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearBuffer {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// It has been freed.
    pub is_freed: bool,
}

impl Buffers {
    /// Takes note of `managed`, in which there is no buffer yet, and of `open` outside of it, which
    /// kernels may use as they like.
    pub(crate) fn new(managed: Range<u64>, open: Range<u64>) -> Self {
        let (version, state) = (AtomicU64::new(0), RwLock::default());
        Self { managed, open, version, state }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a new buffer that kernels may use.
    pub fn allocated(&self, addr: u64, len: u64) {
        let end = addr.saturating_add(len);
        let buffer = Buffer { range: addr..end, read_only: Vec::new(), written: marks(len) };
        let mut state = self.write();
        let over: Vec<u64> = state.freed_over(&(addr..end)).collect();
        for start in over {
            state.freed.remove(&start);
        }
        state.live.insert(addr, Arc::new(buffer));
    }

    /// Takes note that kernels may not write a part of a buffer.
    pub fn read_only(&self, addr: u64, len: u64) {
        let mut state = self.write();
        let Some(buffer) = state.find(addr) else { return };
        let mut read_only = buffer.read_only.clone();
        read_only.push(addr..addr.saturating_add(len));
        let (range, written) = (buffer.range.clone(), Arc::clone(&buffer.written));
        state.live.insert(range.start, Arc::new(Buffer { range, read_only, written }));
        drop(state);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes note that the buffer at an address is no more.
    pub fn freed(&self, addr: u64) {
        let mut state = self.write();
        let Some(buffer) = state.live.remove(&addr) else { return };
        state.freed.insert(addr, buffer.range.end);
        drop(state);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the buffer with `addr`, freed or not, or else the live one that is the nearest.
    #[must_use]
    pub fn nearest(&self, addr: u64) -> Option<NearBuffer> {
        let state = self.read();
        let near = |range: &Range<u64>, is_freed| NearBuffer {
            addr: range.start,
            len: range.end - range.start,
            is_freed,
        };
        if let Some(buffer) = state.find(addr) {
            return Some(near(&buffer.range, false));
        }
        if let Some(start) = state.freed_over(&(addr..addr.saturating_add(1))).next() {
            return state.freed.get(&start).map(|&end| near(&(start..end), true));
        }
        let before = state.live.range(..=addr).next_back().map(|(_, buffer)| &buffer.range);
        let behind = state.live.range(addr..).next().map(|(_, buffer)| &buffer.range);
        let nearest = match (before, behind) {
            (Some(before), Some(behind)) if addr - before.end < behind.start - addr => before,
            (Some(before), None) => before,
            (_, behind) => behind?,
        };
        Some(near(nearest, false))
    }

    /// Takes note that something other than a kernel has written memory.
    pub(crate) fn written(&self, addr: u64, len: u64) {
        let state = self.read();
        let end = addr.saturating_add(len);
        let before = state.live.range(..addr).next_back();
        for (_, buffer) in before.into_iter().chain(state.live.range(addr..end)) {
            let (from, to) = (addr.max(buffer.range.start), end.min(buffer.range.end));
            if from < to {
                buffer.mark(from..to);
            }
        }
    }

    fn find(&self, addr: u64) -> Option<Arc<Buffer>> {
        self.read().find(addr).map(Arc::clone)
    }
}

impl State {
    fn find(&self, addr: u64) -> Option<&Arc<Buffer>> {
        let (_, buffer) = self.live.range(..=addr).next_back()?;
        buffer.range.contains(&addr).then_some(buffer)
    }

    /// First addresses of the freed buffers with a byte in a range.
    fn freed_over(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let start = range.start;
        // None overlaps another: a new buffer takes those away that it overlaps.
        self.freed
            .range(..range.end)
            .rev()
            .take_while(move |&(_, &end)| end > start)
            .map(|(&first, _)| first)
    }
}

fn marks(len: u64) -> Arc<[OnceLock<Marks>]> {
    (0..len.div_ceil(MARKS * PAGE_WORDS as u64)).map(|_| OnceLock::new()).collect()
}

impl Buffer {
    /// The words of marks for a range of addresses, each with the bits that stand for it.
    fn words(&self, range: Range<u64>) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (first, end) = (range.start - self.range.start, range.end - self.range.start);
        (first / MARKS..end.div_ceil(MARKS)).map(move |index| {
            let (low, high) = (first.max(index * MARKS), end.min((index + 1) * MARKS));
            let bits = u64::MAX >> (MARKS - (high - low)) << (low % MARKS);
            (usize::try_from(index).unwrap_or(usize::MAX), bits)
        })
    }

    fn mark(&self, range: Range<u64>) {
        for (word, bits) in self.words(range) {
            let Some(page) = self.written.get(word / PAGE_WORDS) else { continue };
            let page = page.get_or_init(|| Box::new([const { AtomicU64::new(0) }; PAGE_WORDS]));
            let word = &page[word % PAGE_WORDS];
            if word.load(Ordering::Relaxed) & bits != bits {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// The marks in a word.
    fn marks(&self, word: usize) -> u64 {
        let page = self.written.get(word / PAGE_WORDS).and_then(OnceLock::get);
        page.map_or(0, |page| page[word % PAGE_WORDS].load(Ordering::Relaxed))
    }

    fn is_written(&self, range: Range<u64>) -> bool {
        self.words(range).all(|(word, bits)| self.marks(word) & bits == bits)
    }

    fn is_touched(&self, range: Range<u64>) -> bool {
        self.words(range).any(|(word, bits)| self.marks(word) & bits != 0)
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }

    /// Judges an access inside of the buffer, and takes note of what it writes.
    fn judge(&self, range: Range<u64>, access: Access) -> Option<Violation> {
        let touches = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        if matches!(access, Access::Store | Access::Atomic) && self.read_only.iter().any(touches) {
            return Some(Violation::ReadOnly);
        }
        match access {
            Access::Store => {
                self.mark(range);
                None
            }
            // Parts of a line that nothing has written may well be parts that nothing uses.
            Access::Line => (!self.is_touched(range)).then_some(Violation::Unwritten),
            _ => (!self.is_written(range)).then_some(Violation::Unwritten),
        }
    }
}

/// The checks of a hart's turn.
pub(crate) struct Check<'a> {
    buffers: &'a Buffers,
    recent: RefCell<Recent>,
}

/// Buffers that were used last, and the version in which they were found.
#[derive(Default)]
struct Recent {
    version: u64,
    buffers: [Option<Arc<Buffer>>; RECENT],
    next: usize,
}

impl<'a> Check<'a> {
    pub(crate) fn new(buffers: &'a Buffers) -> Self {
        Self { buffers, recent: RefCell::default() }
    }

    /// Returns the cause to trap with if an access to so many bytes of DRAM from `offset` on is
    /// wrong.
    pub(crate) fn refuses(&self, offset: u64, bytes: u64, access: Access) -> Option<u64> {
        let addr = DRAM_BASE + offset;
        let violation = self.violation(addr..addr + bytes, access)?;
        let bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        Some(MemoryFault { violation, access, bytes }.cause())
    }

    fn violation(&self, mut range: Range<u64>, access: Access) -> Option<Violation> {
        let Buffers { managed, open, .. } = self.buffers;
        if open.contains(&range.start) && range.end <= open.end {
            return None;
        }
        if !managed.contains(&range.start) {
            return Some(Violation::Outside);
        }
        let Some(buffer) = self.buffer(range.start) else {
            let is_freed = self.buffers.read().freed_over(&range).next().is_some();
            return Some(if is_freed { Violation::Freed } else { Violation::Outside });
        };
        if access == Access::Line {
            // The unit knows lines only: the rest of the last one is no one else's.
            range.end = range.end.min(buffer.range.end);
        }
        if buffer.holds(&range) { buffer.judge(range, access) } else { Some(Violation::Outside) }
    }

    fn buffer(&self, addr: u64) -> Option<Arc<Buffer>> {
        let mut recent = self.recent.borrow_mut();
        // Acquire: what was freed before is not found by those who know of it.
        let version = self.buffers.version.load(Ordering::Acquire);
        if recent.version != version {
            *recent = Recent { version, ..Recent::default() };
        }
        let known = recent.buffers.iter().flatten().find(|buffer| buffer.range.contains(&addr));
        if let Some(buffer) = known {
            return Some(Arc::clone(buffer));
        }
        let found = self.buffers.find(addr)?;
        let next = recent.next;
        recent.buffers[next] = Some(Arc::clone(&found));
        recent.next = (next + 1) % RECENT;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = DRAM_BASE + 0x580_1000;

    fn buffers() -> Buffers {
        let buffers = Buffers::new(BASE..BASE + (1 << 20), BASE - 0x2000..BASE - 0x1000);
        buffers.allocated(BASE, 100);
        buffers.allocated(BASE + 0x1000, 0x1000);
        buffers
    }

    fn violation(buffers: &Buffers, at: u64, bytes: u64, access: Access) -> Option<Violation> {
        Check::new(buffers).violation(at..at + bytes, access)
    }

    #[test]
    fn accesses_are_allowed_inside_of_buffers_and_of_the_open_range() {
        let buffers = buffers();
        let store = |at, bytes| violation(&buffers, at, bytes, Access::Store);
        assert_eq!(store(BASE + 96, 4), None);
        assert_eq!(store(BASE + 97, 4), Some(Violation::Outside));
        assert_eq!(store(BASE + 100, 1), Some(Violation::Outside));
        assert_eq!(store(BASE + 0xFFC, 8), Some(Violation::Outside));
        assert_eq!(store(BASE + 0x1000, 8), None);
        assert_eq!(store(BASE - 0x2000, 8), None);
        assert_eq!(store(BASE - 0x1004, 8), Some(Violation::Outside));
        assert_eq!(store(BASE - 0x2001, 1), Some(Violation::Outside));
        assert_eq!(store(BASE + (1 << 20), 8), Some(Violation::Outside));
    }

    #[test]
    fn freed_buffers_are_known_until_their_memory_is_used_again() {
        let buffers = buffers();
        let check = Check::new(&buffers);
        let store = |at: u64| check.violation(at..at + 8, Access::Store);
        assert_eq!(store(BASE + 0x1008), None);
        buffers.freed(BASE + 0x1000);
        assert_eq!(store(BASE + 0x1008), Some(Violation::Freed));
        let near = |addr, len, is_freed| Some(NearBuffer { addr, len, is_freed });
        assert_eq!(buffers.nearest(BASE + 0x1008), near(BASE + 0x1000, 0x1000, true));
        buffers.allocated(BASE + 0x1800, 64);
        assert_eq!(store(BASE + 0x1008), Some(Violation::Outside));
        assert_eq!(store(BASE + 0x1800), None);
        assert_eq!(buffers.nearest(BASE + 0x17F0), near(BASE + 0x1800, 64, false));
        assert_eq!(buffers.nearest(BASE + 108), near(BASE, 100, false));
        assert_eq!(Buffers::new(BASE..BASE + 1, 0..0).nearest(BASE), None);
    }

    #[test]
    fn parts_that_are_read_only_cannot_be_written() {
        let buffers = buffers();
        let store = |at, access| violation(&buffers, at, 8, access);
        assert_eq!(store(BASE + 0x1100, Access::Store), None);
        buffers.read_only(BASE + 0x1000, 0x108);
        for access in [Access::Store, Access::Atomic] {
            assert_eq!(store(BASE + 0x1100, access), Some(Violation::ReadOnly));
        }
        assert_eq!(store(BASE + 0x1100, Access::Load), None, "what was written stays so");
        assert_eq!(store(BASE + 0x1108, Access::Store), None);
    }

    #[test]
    fn bytes_are_unwritten_until_a_kernel_or_the_host_writes_them() {
        let buffers = buffers();
        let load = |at, bytes| violation(&buffers, at, bytes, Access::Load);
        let unwritten = Some(Violation::Unwritten);
        assert_eq!(load(BASE, 1), unwritten);
        assert_eq!(violation(&buffers, BASE + 60, 8, Access::Store), None);
        assert_eq!((load(BASE + 60, 8), load(BASE + 59, 2)), (None, unwritten));
        assert_eq!(violation(&buffers, BASE + 64, 8, Access::Atomic), unwritten);
        buffers.written(BASE - 8, 0x1000 + 16);
        assert_eq!((load(BASE, 8), load(BASE + 96, 4)), (None, None));
        assert_eq!((load(BASE + 0x1000, 8), load(BASE + 0x1001, 8)), (None, unwritten));
    }

    #[test]
    fn lines_may_reach_over_the_end_and_need_one_byte_that_was_written() {
        let buffers = buffers();
        let line = |at| violation(&buffers, at, 64, Access::Line);
        assert_eq!(line(BASE + 64), Some(Violation::Unwritten));
        assert_eq!(violation(&buffers, BASE + 99, 1, Access::Store), None);
        assert_eq!(line(BASE + 64), None);
        assert_eq!(line(BASE + 128), Some(Violation::Outside));
    }
}
