//! Private caches: every shire sees memory as it was when it first looked, plus its own writes.
//!
//! The harts of a shire share one cache, which loads and stores of DRAM go through. What it holds
//! of a line stays as it is until the shire writes or evicts it, whatever others do meanwhile. What
//! it wrote gets to memory when it is evicted or flushed, and at the end of the kernel, in the
//! order of the shires; also if the cache is full, when the page that came first has to go. Global
//! atomics and stores, and stores of the tensor unit, go to memory at once.
//!
//! Pages of 4 KiB have a frame, found by a table, and a bit per line that is there: so a look at
//! the cache costs little more than one at memory.
//!
//! Spec: ISA §3.1, §3.2, §3.7; device interface §8, §9.4, §14

use std::sync::atomic::Ordering;

use crate::machine::chip::Core;
use crate::memory::Region;
use crate::memory::bus::{self, Scope};
use crate::memory::map::{self, DRAM_BASE, Place};
use crate::memory::weak::{Change, Line, WriteBack, write_down};

const PAGE_BYTES: usize = 4096;
const PAGE_SHIFT: u32 = 12;
const LINE_BYTES: usize = 64;
const LINE_SHIFT: u32 = 6;
const LINES: usize = PAGE_BYTES / LINE_BYTES;
/// Pages that a cache holds: 4 MiB.
const FRAMES: usize = 1024;

/// The bytes of a page, of which some lines are there.
#[derive(Clone)]
#[repr(align(64))]
struct Frame([u8; PAGE_BYTES]);

/// What the table has about a page: a bit for each line that is there, and the frame's number.
type Page = [u64; 2];

/// The cache of a shire.
pub(crate) struct Private {
    /// By page of DRAM. Frame 0 is that of no page.
    pages: Box<[Page]>,
    frames: Vec<Frame>,
    /// For each frame and line which of its bytes were written and not yet put into memory.
    dirty: Vec<[u64; LINES]>,
    /// For each frame its page; 0 for those that are free.
    page_of: Vec<usize>,
    /// The frame that is taken next: the one that was taken first, if all are in use.
    next: usize,
}

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Private").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}

/// Defines the load and the store of a word that is in a line that is there.
macro_rules! word {
    ($load:ident, $store:ident: $unsigned:ident) => {
        /// Loads the aligned word at an effective address, if its line is there.
        #[inline(always)]
        pub(crate) fn $load(&self, effective: u64) -> Option<$unsigned> {
            const SIZE: usize = size_of::<$unsigned>();
            let (number, at) = self.find(effective)?;
            let (words, _) = self.frames[number].0.as_chunks::<SIZE>();
            at.is_multiple_of(SIZE).then(|| $unsigned::from_le_bytes(words[at / SIZE]))
        }

        /// Stores the aligned word at an effective address, if its line is there.
        #[inline(always)]
        pub(crate) fn $store(&mut self, effective: u64, value: $unsigned) -> Option<()> {
            const SIZE: usize = size_of::<$unsigned>();
            let (number, at) = self.find(effective)?;
            if !at.is_multiple_of(SIZE) {
                return None;
            }
            let (words, _) = self.frames[number].0.as_chunks_mut::<SIZE>();
            words[at / SIZE] = value.to_le_bytes();
            self.dirty[number][at / LINE_BYTES] |= ((1 << SIZE) - 1) << (at % LINE_BYTES);
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
            pages: vec![[0; 2]; pages].into(),
            frames: vec![Frame([0; PAGE_BYTES])],
            dirty: vec![[0; LINES]],
            page_of: vec![0],
            next: 1,
        })
    }

    /// Finds the frame of an effective address and the byte in it, if the line is there.
    #[inline(always)]
    fn find(&self, effective: u64) -> Option<(usize, usize)> {
        // Addresses below DRAM become large.
        let offset = effective.wrapping_sub(DRAM_BASE);
        let &[present, frame] = self.pages.get((offset >> PAGE_SHIFT) as usize)?;
        let at = offset as usize % PAGE_BYTES;
        (present >> (at / LINE_BYTES) & 1 != 0).then_some((frame as usize, at))
    }

    word!(load_byte, store_byte: u8);
    word!(load_half, store_half: u16);
    word!(load_word, store_word: u32);
    word!(load_double, store_double: u64);

    /// Returns 32 bytes at an effective address, if they are in lines of a page that are there.
    #[inline(always)]
    pub(crate) fn register(&self, effective: u64) -> Option<&[u8; 32]> {
        let (number, at) = self.find(effective)?;
        if at % LINE_BYTES > LINE_BYTES - 32 {
            self.find(effective.wrapping_add(31))?;
        }
        // None if they go on in the next page.
        self.frames[number].0.get(at..at + 32)?.try_into().ok()
    }

    /// Returns bytes at an effective address, at most a line's worth, if the lines that have them
    /// are there and in one page.
    #[inline(always)]
    pub(crate) fn near(&self, effective: u64, len: u64) -> Option<&[u8]> {
        let (number, at) = self.find(effective)?;
        self.find(effective.wrapping_add(len - 1))?;
        self.frames[number].0.get(at..at + len as usize)
    }

    /// Stores 32 bytes at an effective address, if they are in one line that is there.
    #[inline(always)]
    pub(crate) fn store_register(&mut self, effective: u64, value: &[u8; 32]) -> Option<()> {
        let (number, at) = self.find(effective)?;
        if at % LINE_BYTES > LINE_BYTES - 32 {
            return None;
        }
        self.frames[number].0.get_mut(at..at + 32)?.copy_from_slice(value);
        self.dirty[number][at / LINE_BYTES] |= 0xFFFF_FFFF << (at % LINE_BYTES);
        Some(())
    }

    /// Gets the line at an offset in DRAM from memory if it is not there; returns its frame. The
    /// line must be inside of memory.
    #[inline(never)]
    fn line(&mut self, core: &Core<'_>, offset: u64) -> usize {
        let page = (offset >> PAGE_SHIFT) as usize;
        let number = match self.pages[page][1] as usize {
            0 => self.take(core, page),
            number => number,
        };
        let line = offset as usize % PAGE_BYTES / LINE_BYTES;
        if self.pages[page][0] >> line & 1 == 0 {
            let (lines, _) = self.frames[number].0.as_chunks_mut::<LINE_BYTES>();
            read_line(core.chip.dram.region(), offset & !(LINE_BYTES as u64 - 1), &mut lines[line]);
            self.pages[page][0] |= 1 << line;
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
            if self.find(at).is_none()
                && map::place(at, 0) == Place::Dram(offset)
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
            self.frames.push(Frame([0; PAGE_BYTES]));
            self.dirty.push([0; LINES]);
            self.page_of.push(0);
        } else {
            self.release(core, number);
        }
        self.page_of[number] = page;
        self.pages[page] = [0, number as u64];
        number
    }

    /// Writes back what a frame holds, and frees it.
    fn release(&mut self, core: &Core<'_>, number: usize) {
        // Page 0 is closed to kernels.
        let page = std::mem::take(&mut self.page_of[number]);
        if page == 0 {
            return;
        }
        for line in 0..LINES {
            self.put(core, number, page, line);
        }
        self.pages[page] = [0; 2];
    }

    /// Writes the dirty bytes of a line of a frame to memory.
    fn put(&mut self, core: &Core<'_>, number: usize, page: usize, line: usize) {
        let dirty = std::mem::take(&mut self.dirty[number][line]);
        if dirty != 0 {
            let (lines, _) = self.frames[number].0.as_chunks::<LINE_BYTES>();
            let of_memory = (page << (PAGE_SHIFT - LINE_SHIFT) | line) as u64;
            write_down(core, of_memory, &Line { bytes: lines[line], dirty });
        }
    }

    /// Writes everything back and forgets it.
    pub(crate) fn release_all(&mut self, core: &Core<'_>) {
        for number in 1..self.frames.len() {
            self.release(core, number);
        }
        self.next = 1;
    }

    /// Writes the line at an offset in DRAM back, if it is there.
    pub(crate) fn write_back(&mut self, core: &Core<'_>, offset: u64, kind: WriteBack) {
        let Some((number, at)) = self.find(offset + DRAM_BASE) else { return };
        let (page, line) = (self.page_of[number], at / LINE_BYTES);
        self.put(core, number, page, line);
        if kind == WriteBack::Evict {
            self.pages[page][0] &= !(1 << line);
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
                let from = &self.frames[number].0[at..at + bytes.len()];
                value[bytes].copy_from_slice(from);
            }
        }
        u64::from_le_bytes(value)
    }

    /// Stores bytes, at most 8, to DRAM, whose memory must include them.
    pub(crate) fn store(&mut self, core: &Core<'_>, offset: u64, size: u64, value: u64) {
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
            self.frames[number].0[at..at + bytes.len()].copy_from_slice(bytes);
            let written = ((1_u64 << bytes.len()) - 1) << (at % LINE_BYTES);
            self.dirty[number][at / LINE_BYTES] |= written;
        }
    }

    /// Reads the line of the offset.
    pub(crate) fn load_line(&mut self, core: &Core<'_>, offset: u64) -> [u8; LINE_BYTES] {
        let number = self.line(core, offset);
        let (lines, _) = self.frames[number].0.as_chunks::<LINE_BYTES>();
        lines[offset as usize % PAGE_BYTES / LINE_BYTES]
    }

    /// Takes over what the shire has put into memory, if the line is there: the bytes are the same
    /// then and need not be written back.
    pub(crate) fn update(&mut self, offset: u64, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            if let Some((number, at)) = self.find(at + DRAM_BASE) {
                self.frames[number].0[at] = byte;
                self.dirty[number][at / LINE_BYTES] &= !(1 << (at % LINE_BYTES));
            }
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

fn read_line(region: &Region, from: u64, bytes: &mut [u8; LINE_BYTES]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, double) in words.iter_mut().zip(region.doubles::<8>(from).into_iter().flatten()) {
        *word = double.load(Ordering::Relaxed).to_le_bytes();
    }
}
