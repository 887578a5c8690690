//! Private caches: every shire sees memory as it was when it first looked, plus its own writes.
//!
//! The harts of a shire share one cache, which loads and stores of DRAM go through. What it holds
//! of a line stays as it is until the shire writes or evicts it, whatever others do meanwhile. What
//! it wrote gets to memory when it is evicted or flushed, and at the end of the kernel, in the
//! order of the shires; also if the cache is full, when the page that came first has to go. Global
//! atomics and stores, and stores of the tensor unit, go to memory at once.
//!
//! Pages of 4 KiB have a frame, found by a table, with a bit per word of 8 bytes that is there. A
//! word that is written as a whole need not be fetched before.
//!
//! The stacks of a launch are not cached. No other shire looks at them, so there is no difference
//! to see; but a launch of all harts has megabytes of them, and each line would be copied twice.
//!
//! Spec: ISA §3.1, §3.2, §3.7; device interface §8, §9.4, §14

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use et_isa::Access;

use crate::machine::chip::Core;
use crate::memory::bus::{self, Scope};
use crate::memory::map::{self, DRAM_BASE, Place};
use crate::memory::weak::{Change, Line, WriteBack, write_down};
use crate::near;

const PAGE_BYTES: usize = 4096;
const PAGE_SHIFT: u32 = 12;
const LINE_BYTES: usize = 64;
const LINE_SHIFT: u32 = 6;
const WORD_BYTES: usize = 8;
/// How many lines ahead of the one that is got the processor is told of.
const AHEAD: usize = 4;
/// Lines of a group.
const GROUP_LINES: usize = 8;
const GROUP_BYTES: usize = GROUP_LINES * LINE_BYTES;
const GROUPS: usize = PAGE_BYTES / GROUP_BYTES;
const LINES: usize = PAGE_BYTES / LINE_BYTES;
/// Pages that a cache holds: 4 MiB.
const FRAMES: usize = 1024;

/// For each group of 8 lines a bit for each word of 8 bytes, so a byte for each line.
type Words = [u64; GROUPS];

/// A page, of which some words are there.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Frame {
    bytes: [u8; PAGE_BYTES],
    /// Words that are there.
    valid: Words,
    /// Words that were written as a whole and not yet put into memory.
    written: Words,
    /// For each line bytes that were written otherwise and not yet put into memory; their words
    /// are there.
    parts: [u64; LINES],
    /// Lines that have such bytes.
    has_parts: u64,
}

/// The cache of a shire.
pub(crate) struct Private {
    /// The number of the frame of each page of DRAM; 0, a frame in which nothing is, if it has
    /// none.
    pages: Box<[u16]>,
    /// The same for pages that harts have read ahead of their turns, and for all others.
    watched: Box<[u16]>,
    unwatched: Box<[u16]>,
    /// The frames of the former.
    watches: Vec<u16>,
    frames: Vec<Frame>,
    /// Frames that were changed while harts had read them ahead: it is not tried again.
    disturbed: Box<[bool]>,
    /// For each frame its page; 0 for those that are free.
    page_of: Vec<usize>,
    /// The frame that is taken next: the one that was taken first, if all are in use.
    next: usize,
    /// Frames above this one are free.
    last: usize,
}

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Private").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}

/// Where the frames of pages are noted: of all, of those that were read ahead, and of the others.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Tables<'a> {
    pub(crate) pages: &'a [u16],
    pub(crate) watched: &'a [u16],
    pub(crate) unwatched: &'a [u16],
    pub(crate) frames: &'a mut [Frame],
}

/// Where the parts of a frame are, for code that does what the methods here do.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a frame is small")]
pub(crate) mod offsets {
    use std::mem::offset_of;

    use super::Frame;

    pub(crate) const BYTES: i32 = offset_of!(Frame, bytes) as i32;
    /// Of the first group, of which each has 8 bytes.
    pub(crate) const VALID: i32 = offset_of!(Frame, valid) as i32;
    pub(crate) const WRITTEN: i32 = offset_of!(Frame, written) as i32;
    pub(crate) const PARTS: i32 = offset_of!(Frame, parts) as i32;
    pub(crate) const HAS_PARTS: i32 = offset_of!(Frame, has_parts) as i32;
}

/// Number of the group of a byte of a page, and of its word in there.
const fn word_of(at: usize) -> (usize, usize) {
    (at / GROUP_BYTES, at / WORD_BYTES % u64::BITS as usize)
}

/// Number of the group of a line of a page, and where its words are in there.
const fn words_of(line: usize) -> (usize, usize) {
    (line / GROUP_LINES, line % GROUP_LINES * GROUP_LINES)
}

/// A byte of ones for each bit.
fn spread(bits: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let one = (bits & 0xFF).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let top = (one | ((one & LOW) + LOW)) & !LOW;
    (top >> 7) * 0xFF
}

impl Frame {
    const EMPTY: Self = Self {
        bytes: [0; PAGE_BYTES],
        valid: [0; GROUPS],
        written: [0; GROUPS],
        parts: [0; LINES],
        has_parts: 0,
    };

    /// Returns `true` if the bytes of a page, at most 64 and all in it, are there.
    #[inline(always)]
    fn has(&self, at: usize, len: usize) -> bool {
        let words = (at % WORD_BYTES + len).div_ceil(WORD_BYTES);
        let needed = (1 << words) - 1;
        let (group, word) = word_of(at);
        let mut valid = self.valid[group % GROUPS] >> word;
        if word + words > u64::BITS as usize {
            valid |= self.valid[(group + 1) % GROUPS] << (u64::BITS as usize - word);
        }
        valid & needed == needed
    }

    /// Takes note that bytes of a line, whose words are there, were written.
    #[inline(always)]
    fn note(&mut self, at: usize, bytes: u64) {
        let line = at / LINE_BYTES % LINES;
        self.parts[line] |= bytes << (at % LINE_BYTES);
        self.has_parts |= 1 << line;
    }

    /// Returns which bytes of a line memory does not have, and forgets that.
    fn clean(&mut self, line: usize) -> u64 {
        let (group, first) = words_of(line);
        let written = &mut self.written[group];
        let whole = spread(*written >> first);
        *written &= !(0xFF << first);
        self.has_parts &= !(1 << line);
        whole | std::mem::take(&mut self.parts[line])
    }
}

/// Defines the load and the store of a word of up to 8 bytes that is there.
macro_rules! word {
    ($load:ident, $store:ident: $unsigned:ident) => {
        /// Loads the aligned word at an effective address, if it is there.
        #[inline(always)]
        pub(crate) fn $load(&self, effective: u64) -> Option<$unsigned> {
            const SIZE: usize = size_of::<$unsigned>();
            let (number, at) = self.find(effective)?;
            let frame = self.frames.get(number)?;
            let (group, word) = word_of(at);
            if frame.valid[group] >> word & 1 == 0 || !at.is_multiple_of(SIZE) {
                return None;
            }
            let (words, _) = frame.bytes.as_chunks::<SIZE>();
            Some($unsigned::from_le_bytes(words[at / SIZE]))
        }

        /// Stores the aligned word at an effective address, if it is there, or its page and it is
        /// one of 8 bytes.
        #[inline(always)]
        pub(crate) fn $store(&mut self, effective: u64, value: $unsigned) -> Option<()> {
            const SIZE: usize = size_of::<$unsigned>();
            let (number, at) = self.find(effective)?;
            let frame = self.frames.get_mut(number)?;
            let (group, word) = word_of(at);
            if SIZE == WORD_BYTES {
                if number == 0 || !at.is_multiple_of(SIZE) {
                    return None;
                }
                frame.valid[group] |= 1 << word;
                frame.written[group] |= 1 << word;
            } else {
                if frame.valid[group] >> word & 1 == 0 || !at.is_multiple_of(SIZE) {
                    return None;
                }
                frame.note(at, (1 << SIZE) - 1);
            }
            let (words, _) = frame.bytes.as_chunks_mut::<SIZE>();
            words[at / SIZE] = value.to_le_bytes();
            Some(())
        }
    };
}

#[expect(clippy::cast_possible_truncation, reason = "offsets in a page, and pages of memory")]
impl Private {
    /// Creates an empty cache for memory of so many bytes.
    pub(crate) fn new(dram_bytes: u64) -> Box<Self> {
        let pages = (dram_bytes >> PAGE_SHIFT) as usize;
        Box::new(Self {
            pages: vec![0; pages].into(),
            watched: vec![0; pages].into(),
            unwatched: vec![0; pages].into(),
            watches: Vec::new(),
            frames: vec![Frame::EMPTY],
            disturbed: vec![false; FRAMES + 1].into(),
            page_of: vec![0],
            next: 1,
            last: 0,
        })
    }

    /// Returns where the frames of pages are noted, and the frames.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn tables(&mut self) -> Tables<'_> {
        let Self { pages, watched, unwatched, frames, .. } = self;
        Tables { pages, watched, unwatched, frames }
    }

    /// Returns `true` if harts have read something ahead of their turns.
    #[inline]
    pub(crate) fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Gets bytes at an effective address for a hart that reads them ahead of its turn, at most 32;
    /// returns `false` if that is not possible: they are no memory, or their page is not there. In
    /// which order pages come can be seen, since in that order they go.
    pub(crate) fn watch(&mut self, core: &Core<'_>, effective: u64, size: u64) -> bool {
        for at in [effective, effective.wrapping_add(size - 1)] {
            let offset = at.wrapping_sub(DRAM_BASE);
            let is_memory = map::place(at, 0) == Place::Dram(offset)
                && (offset | (LINE_BYTES as u64 - 1)) < core.chip.dram.size();
            if !is_memory || core.is_closed(offset, 1, Access::Load) {
                return false;
            }
            let page = (offset >> PAGE_SHIFT) as usize;
            let number = usize::from(self.pages[page]);
            if number == 0 || self.disturbed[number] {
                return false;
            }
            self.line(core, offset);
            if std::mem::take(&mut self.unwatched[page]) != 0 {
                self.watched[page] = number as u16;
                self.watches.push(number as u16);
            }
        }
        true
    }

    /// Forgets what was read ahead.
    pub(crate) fn unwatch(&mut self) {
        for number in self.watches.drain(..) {
            let page = self.page_of[usize::from(number)];
            self.watched[page] = 0;
            self.unwatched[page] = self.pages[page];
        }
    }

    /// Returns `true` if a store at an effective address could change what was read ahead, which is
    /// not read ahead again then.
    pub(crate) fn disturb(&mut self, effective: u64, size: u64) -> bool {
        let page = |at: u64| (at.wrapping_sub(DRAM_BASE) >> PAGE_SHIFT) as usize;
        let ends = [effective, effective.wrapping_add(size - 1)].map(page);
        let mut is_watched = false;
        for page in ends {
            match self.watched.get(page) {
                Some(0) => {}
                Some(_) => {
                    is_watched = true;
                    self.disturbed[usize::from(self.pages[page])] = true;
                }
                None => is_watched = true,
            }
        }
        is_watched
    }

    /// Returns `true` if none of the pages that have to go next was read ahead, so that a load of
    /// a packed register changes nothing of those.
    pub(crate) fn can_fetch(&self) -> bool {
        /// Each lane could be in two pages.
        const MOST: usize = 2 * 8;
        let next = (self.next..=FRAMES).chain(1..).take(MOST);
        let pages = next.map(|number| self.page_of.get(number).copied().unwrap_or(0));
        pages.into_iter().all(|page| self.watched[page] == 0)
    }

    /// Finds the frame of an effective address, 0 if it has none, and the byte in it.
    #[inline(always)]
    fn find(&self, effective: u64) -> Option<(usize, usize)> {
        // Addresses below DRAM become large.
        let offset = effective.wrapping_sub(DRAM_BASE);
        let number = *self.pages.get((offset >> PAGE_SHIFT) as usize)?;
        Some((number.into(), offset as usize % PAGE_BYTES))
    }

    word!(load_byte, store_byte: u8);
    word!(load_half, store_half: u16);
    word!(load_word, store_word: u32);
    word!(load_double, store_double: u64);

    /// Returns 32 bytes at an effective address, if they are there and in one page.
    #[inline(always)]
    pub(crate) fn register(&self, effective: u64) -> Option<&[u8; 32]> {
        self.near(effective, 32)?.try_into().ok()
    }

    /// Returns 32 bytes at an effective address, if they are there, whole words, and of one group
    /// of lines. This is the simplest look, for most accesses of packed registers.
    #[inline(always)]
    pub(crate) fn aligned_register(&self, effective: u64) -> Option<&[u8; 32]> {
        let (number, at) = self.find(effective)?;
        let frame = self.frames.get(number)?;
        let (group, word) = word_of(at);
        let is_in_group = at % GROUP_BYTES <= GROUP_BYTES - 32;
        if !at.is_multiple_of(WORD_BYTES) || !is_in_group || frame.valid[group] >> word & 0xF != 0xF
        {
            return None;
        }
        frame.bytes.get(at..at + 32)?.try_into().ok()
    }

    /// Returns bytes at an effective address, at most a line's worth, if they are there and in one
    /// page.
    #[inline(always)]
    pub(crate) fn near(&self, effective: u64, len: u64) -> Option<&[u8]> {
        let (number, at) = self.find(effective)?;
        let frame = self.frames.get(number)?;
        let bytes = frame.bytes.get(at..at + len as usize)?;
        if frame.has(at, len as usize) { Some(bytes) } else { None }
    }

    /// Stores 32 bytes at an effective address, if they are in one line; unless they are whole
    /// words of a page that is there, they have to be there.
    #[inline(always)]
    pub(crate) fn store_register(&mut self, effective: u64, value: &[u8; 32]) -> Option<()> {
        let (number, at) = self.find(effective)?;
        let frame = self.frames.get_mut(number)?;
        if at % LINE_BYTES > LINE_BYTES - 32 {
            return None;
        }
        if at.is_multiple_of(WORD_BYTES) {
            let (group, word) = word_of(at);
            if number == 0 {
                return None;
            }
            frame.valid[group] |= 0xF << word;
            frame.written[group] |= 0xF << word;
        } else if frame.has(at, 32) {
            frame.note(at, 0xFFFF_FFFF);
        } else {
            return None;
        }
        frame.bytes.get_mut(at..at + 32)?.copy_from_slice(value);
        Some(())
    }

    /// Returns the frame of the page with an offset in DRAM.
    fn frame(&mut self, core: &Core<'_>, offset: u64) -> usize {
        let page = (offset >> PAGE_SHIFT) as usize;
        match self.pages[page].into() {
            0 => self.take(core, page),
            number => number,
        }
    }

    /// Gets what is not there of the line at an offset in DRAM from memory; returns its frame. The
    /// line must be inside of memory.
    #[inline(never)]
    fn line(&mut self, core: &Core<'_>, offset: u64) -> usize {
        let number = self.frame(core, offset);
        let frame = &mut self.frames[number];
        let line = offset as usize % PAGE_BYTES / LINE_BYTES;
        let (group, first) = words_of(line);
        let valid = &mut frame.valid[group];
        if *valid >> first & 0xFF != 0xFF {
            let (words, _) = frame.bytes.as_chunks_mut::<WORD_BYTES>();
            let words = &mut words[line * GROUP_LINES..][..GROUP_LINES];
            let from = core.chip.dram.region().doubles::<8>(offset & !(LINE_BYTES as u64 - 1));
            let there = *valid >> first & 0xFF;
            let of_memory = |double: &AtomicU64| double.load(Ordering::Relaxed).to_le_bytes();
            match from {
                // Nothing of most lines is there.
                Some(doubles) if there == 0 => {
                    for (bytes, double) in words.iter_mut().zip(doubles) {
                        *bytes = of_memory(double);
                    }
                }
                doubles => {
                    let missing = words.iter_mut().zip(doubles.into_iter().flatten()).enumerate();
                    for (_, (bytes, double)) in missing.filter(|(word, _)| there >> word & 1 == 0) {
                        *bytes = of_memory(double);
                    }
                }
            }
            *valid |= 0xFF << first;
            // Most are read one after the other. Harts take turns, and there are so many that the
            // processor does not see that by itself.
            core.chip.dram.region().bring_near(offset + (AHEAD * LINE_BYTES) as u64);
            if let Some(later) = frame.bytes.get((line + AHEAD) * LINE_BYTES) {
                near::bring_line(later);
            }
        }
        number
    }

    /// Gets what is missing of up to 32 bytes at an effective address of open memory; for fast ways
    /// that have not found them. What is not memory is left to the slow ways.
    #[inline(never)]
    pub(crate) fn fetch(&mut self, core: &Core<'_>, effective: u64, size: u64) {
        for at in [effective, effective.wrapping_add(size - 1)] {
            // The line of an alias would not be found either.
            let offset = at.wrapping_sub(DRAM_BASE);
            if map::place(at, 0) == Place::Dram(offset)
                && (offset | (LINE_BYTES as u64 - 1)) < core.chip.dram.size()
            {
                self.line(core, offset);
            }
        }
    }

    /// Takes a frame for a page.
    fn take(&mut self, core: &Core<'_>, page: usize) -> usize {
        let number = self.next;
        self.next = if number == FRAMES { 1 } else { number + 1 };
        if number == self.frames.len() {
            self.frames.push(Frame::EMPTY);
            self.page_of.push(0);
        } else {
            self.release(core, number);
        }
        self.last = self.last.max(number);
        self.page_of[number] = page;
        self.disturbed[number] = false;
        self.pages[page] = number as u16;
        self.unwatched[page] = number as u16;
        number
    }

    /// Writes back what a frame holds, and frees it.
    fn release(&mut self, core: &Core<'_>, number: usize) {
        // Page 0 is closed to kernels.
        let page = std::mem::take(&mut self.page_of[number]);
        if page == 0 {
            return;
        }
        for group in 0..GROUPS {
            let frame = &self.frames[number];
            let first = group * GROUP_LINES;
            if frame.written[group] != 0 || frame.has_parts >> first & 0xFF != 0 {
                for line in first..first + GROUP_LINES {
                    self.put(core, number, page, line);
                }
            }
            self.frames[number].valid[group] = 0;
        }
        debug_assert_eq!(self.watched[page], 0, "what was read ahead changes");
        self.pages[page] = 0;
        self.unwatched[page] = 0;
    }

    /// Writes the dirty bytes of a line of a frame to memory.
    fn put(&mut self, core: &Core<'_>, number: usize, page: usize, line: usize) {
        let frame = &mut self.frames[number];
        let dirty = frame.clean(line);
        if dirty != 0 {
            let (lines, _) = frame.bytes.as_chunks::<LINE_BYTES>();
            let of_memory = (page << (PAGE_SHIFT - LINE_SHIFT) | line) as u64;
            write_down(core, of_memory, &Line { bytes: lines[line], dirty });
        }
    }

    /// Writes everything back and forgets it.
    pub(crate) fn release_all(&mut self, core: &Core<'_>) {
        for number in 1..=self.last {
            self.release(core, number);
        }
        (self.next, self.last) = (1, 0);
    }

    /// Writes lines from an offset in DRAM on back, as far as something of them is there.
    pub(crate) fn write_back(&mut self, core: &Core<'_>, offset: u64, bytes: u64, kind: WriteBack) {
        let (mut at, end) = (offset & !(LINE_BYTES as u64 - 1), offset + bytes);
        while at < end {
            let page = (at >> PAGE_SHIFT) as usize;
            let next = end.min((page as u64 + 1) << PAGE_SHIFT);
            let number = usize::from(self.pages[page]);
            if number != 0 {
                let lines = |at: u64| (at as usize).div_ceil(LINE_BYTES);
                let first = lines(at % PAGE_BYTES as u64);
                self.write_lines(core, number, first..first + lines(next - at), kind);
            }
            at = next;
        }
    }

    fn write_lines(
        &mut self,
        core: &Core<'_>,
        number: usize,
        lines: Range<usize>,
        kind: WriteBack,
    ) {
        let page = self.page_of[number];
        for line in lines {
            let (group, first) = words_of(line);
            let frame = &mut self.frames[number];
            if frame.written[group] >> first & 0xFF != 0 || frame.has_parts >> line & 1 != 0 {
                self.put(core, number, page, line);
            }
            if kind == WriteBack::Evict {
                self.frames[number].valid[group] &= !(0xFF << first);
            }
        }
    }

    /// Loads bytes, at most 8, from DRAM, whose memory must include them.
    pub(crate) fn load(&mut self, core: &Core<'_>, offset: u64, size: u64) -> u64 {
        let mut value = [0; 8];
        // At most two lines.
        let first = (size as usize).min(LINE_BYTES - offset as usize % LINE_BYTES);
        for (offset, bytes) in [(offset, 0..first), (offset + first as u64, first..size as usize)] {
            if !bytes.is_empty() {
                let number = self.line(core, offset);
                let at = offset as usize % PAGE_BYTES;
                let from = &self.frames[number].bytes[at..at + bytes.len()];
                value[bytes].copy_from_slice(from);
            }
        }
        u64::from_le_bytes(value)
    }

    /// Stores bytes, at most 8, to DRAM, whose memory must include them.
    pub(crate) fn store(&mut self, core: &Core<'_>, offset: u64, size: u64, value: u64) {
        if size == 8 && offset.is_multiple_of(8) {
            self.frame(core, offset);
            // Its page is there now.
            let stored = self.store_double(offset + DRAM_BASE, value);
            debug_assert!(stored.is_some(), "a word of a page that is there");
            return;
        }
        let bytes = value.to_le_bytes();
        let (bytes, first) = (&bytes[..size as usize], offset as usize % LINE_BYTES);
        // At most two lines.
        let (low, high) = bytes.split_at(bytes.len().min(LINE_BYTES - first));
        for (offset, bytes) in [(offset, low), (offset + low.len() as u64, high)] {
            if bytes.is_empty() {
                continue;
            }
            let number = self.line(core, offset);
            let at = offset as usize % PAGE_BYTES;
            let frame = &mut self.frames[number];
            frame.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            frame.note(at, (1 << bytes.len()) - 1);
        }
    }

    /// Reads the line of the offset.
    pub(crate) fn load_line(&mut self, core: &Core<'_>, offset: u64) -> [u8; LINE_BYTES] {
        let number = self.line(core, offset);
        let (lines, _) = self.frames[number].bytes.as_chunks::<LINE_BYTES>();
        lines[offset as usize % PAGE_BYTES / LINE_BYTES]
    }

    /// Takes over what the shire has put into memory, bytes of one line, as far as they are there:
    /// they are the same then and need not be written back.
    pub(crate) fn update(&mut self, offset: u64, bytes: &[u8]) {
        let Some((number, at)) = self.find(offset + DRAM_BASE) else { return };
        let frame = &mut self.frames[number];
        let (line, in_line) = (at / LINE_BYTES, at % LINE_BYTES);
        let (group, first) = words_of(line);
        let put = u64::MAX >> (LINE_BYTES - bytes.len()) << in_line;
        let there = put & spread(frame.valid[group] >> first);
        if there == 0 {
            return;
        }
        // What is not there comes from memory before it is used.
        frame.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        let dirty = frame.clean(line) & !there;
        if dirty != 0 {
            frame.note(line * LINE_BYTES, dirty);
        }
    }

    /// Makes a change at a scope to an aligned word of DRAM; returns what was there before.
    pub(crate) fn change(
        &mut self,
        core: &Core<'_>,
        scope: Scope,
        (offset, size): (u64, u64),
        change: Change,
    ) -> u64 {
        match scope {
            Scope::Local => {
                let old = self.load(core, offset, size);
                if let Some(new) = change.of_value(old, size) {
                    self.store(core, offset, size, new);
                }
                old
            }
            Scope::Global => {
                let region = core.chip.dram.region();
                let old = change.in_region(region, offset, size).unwrap_or(0);
                bus::note_coherent(core, region, offset, size);
                if let Some(new) = change.of_value(old, size) {
                    self.update(offset, &new.to_le_bytes()[..size as usize]);
                }
                old
            }
        }
    }

    /// Does what an environment call that evicts or flushes caches past the L2 does, but for all
    /// lines of the shire. Spec: device interface §14
    pub(crate) fn environment_call(&mut self, core: &Core<'_>, x: &[u64]) {
        let to_memory = match x[10] {
            // By set and way, with the level in the first argument; the L1 with it in the second;
            // L1 and L2; a bank of the L2.
            1 | 2 => x[11] >> 58 & 3 >= 2,
            6 => x[12] & 3 >= 2,
            7 | 11 => true,
            _ => false,
        };
        if to_memory {
            self.release_all(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_becomes_a_byte() {
        for bits in 0..=0xFF_u8 {
            let bytes = spread(bits.into()).to_le_bytes();
            for (bit, byte) in bytes.into_iter().enumerate() {
                assert_eq!(byte, if bits >> bit & 1 != 0 { 0xFF } else { 0 }, "{bits:#x}");
            }
        }
    }

    #[test]
    fn bytes_are_there_if_all_their_words_are() {
        let mut frame = Frame::EMPTY;
        frame.valid[0] = 1 << 62 | 1 << 63;
        frame.valid[1] = 1;
        for (at, len, is) in [
            (496, 16, true),
            (496, 24, true),
            (503, 17, true),
            (503, 18, false),
            (495, 2, false),
            (500, 1, true),
            (519, 1, true),
            (520, 1, false),
        ] {
            assert_eq!(frame.has(at, len), is, "{at} {len}");
        }
        frame.valid[GROUPS - 1] = u64::MAX;
        assert!(frame.has(PAGE_BYTES - 64, 64), "nothing is asked of the next page");
    }
}
