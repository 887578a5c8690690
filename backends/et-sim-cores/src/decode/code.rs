//! Decoded instructions, shared by all harts.
//!
//! Each page of code that is executed has a table with one [`Op`] per halfword. Slots are decoded
//! when first executed and replaced in place when a hart stores to them. A launch starts a new
//! epoch: a page entered for the first time in an epoch is compared with the bytes it was decoded
//! from, and only what differs is decoded again. So a kernel that is launched twice is decoded
//! once, and code that DMA replaced is noticed.

use std::array;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::config::MemoryModel;
use crate::decode;
use crate::decode::op::{Op, kind};
use crate::histogram::Number;
use crate::memory::Dram;
use crate::memory::map::{self, DRAM_BASE, FIRMWARE_BYTES};
use crate::native::{Native, Store};

pub(crate) const PAGE_BYTES: u64 = 4096;
/// Halfwords, and so slots for instructions, of a page.
pub(crate) const PAGE_SLOTS: usize = 2048;
const PAGE_WORDS: usize = 512;
const SLOTS_PER_WORD: usize = 4;
const PAGES_PER_GROUP: usize = 512;
const GROUP_BYTES: u64 = PAGE_BYTES * PAGES_PER_GROUP as u64;
/// A slot that is being decoded: undecoded, but not zero.
const DECODING: u64 = 1 << 8;

/// The decoded instructions of one page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) ops: [AtomicU64; PAGE_SLOTS],
    /// Offset of the page from the start of DRAM.
    offset: u64,
    /// What the operations are decoded for.
    memory: MemoryModel,
    /// The epoch in which the page was last compared with memory.
    epoch: AtomicU64,
    /// The bytes that the slots were decoded from.
    source: Mutex<[u64; PAGE_WORDS]>,
    /// If instructions are counted: what the slots, which only have them counted, stand for.
    behind: Option<Box<Behind>>,
    pub(crate) native: Native,
}

/// The operations behind those that only have them counted, and what they count as.
#[derive(Debug)]
struct Behind {
    ops: [AtomicU64; PAGE_SLOTS],
    numbers: [AtomicU16; PAGE_SLOTS],
}

type Group = Box<[OnceLock<Box<Page>>; PAGES_PER_GROUP]>;

/// All decoded pages.
#[derive(Debug)]
pub(crate) struct CodeCache {
    memory: MemoryModel,
    counts: bool,
    /// Translations; none if all code is interpreted.
    native: Option<Store>,
    groups: Box<[OnceLock<Group>]>,
    pages: AtomicUsize,
    epoch: AtomicU64,
    /// First address of the pages executed since the launch. Stores below need no further look.
    low: AtomicU64,
    /// End of the pages executed since the launch.
    high: AtomicU64,
}

impl Page {
    fn new(offset: u64, memory: MemoryModel, counts: bool) -> Self {
        let behind = || {
            Box::new(Behind {
                ops: [const { AtomicU64::new(Op::UNDECODED.0) }; PAGE_SLOTS],
                numbers: [const { AtomicU16::new(0) }; PAGE_SLOTS],
            })
        };
        Self {
            behind: counts.then(behind),
            ops: [const { AtomicU64::new(Op::UNDECODED.0) }; PAGE_SLOTS],
            offset,
            memory,
            epoch: AtomicU64::new(0),
            source: Mutex::new([0; PAGE_WORDS]),
            native: Native::new(),
        }
    }

    /// The epoch in which the page was last compared with memory.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn source(&self) -> MutexGuard<'_, [u64; PAGE_WORDS]> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slots whose instruction may include a byte of word `index`. The first may be the second
    /// half of a 32-bit instruction that starts in the halfword before.
    fn slots(&self, index: usize) -> &[AtomicU64] {
        let first = index * SLOTS_PER_WORD;
        &self.ops[first.saturating_sub(1)..first + SLOTS_PER_WORD]
    }

    /// Makes the source of word `index` agree with memory; forgets what was decoded from other
    /// bytes.
    fn refresh(&self, source: &mut [u64; PAGE_WORDS], index: usize, dram: &Dram) {
        let word = dram.region().double(self.offset + 8 * index as u64);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        if source[index] != word {
            source[index] = word;
            self.native.forget();
            for slot in self.slots(index) {
                slot.store(Op::UNDECODED.0, Ordering::Relaxed);
            }
        }
    }

    /// Decodes one slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn decode(&self, slot: usize, dram: &Dram) -> Op {
        self.decode_from(&mut self.source(), slot, dram)
    }

    /// Calls a function that may decode slots. No code of the page changes unnoticed before it
    /// returns: whoever changes some waits for it to take notice.
    pub(crate) fn with_decoded(&self, dram: &Dram, function: impl FnOnce(&mut Decoder<'_>)) {
        let mut source = self.source();
        function(&mut Decoder { page: self, source: &mut source, dram });
    }

    fn decode_from(&self, source: &mut [u64; PAGE_WORDS], slot: usize, dram: &Dram) -> Op {
        // Announces the decoding before memory is read. A hart that stores to the instruction
        // looks at the slot after its store: either it sees this mark and waits for the lock, or
        // the bytes read below are the new ones. Pairs with the fence in `note_store`.
        self.ops[slot].store(DECODING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let (first, last) = (slot / SLOTS_PER_WORD, (slot + 1) / SLOTS_PER_WORD);
        self.refresh(source, first, dram);
        if last < PAGE_WORDS {
            self.refresh(source, last, dram);
        }
        let half =
            |slot: usize| low_half(source[slot / SLOTS_PER_WORD] >> (16 * (slot % SLOTS_PER_WORD)));
        let raw = if !is_long(half(slot)) {
            Some(half(slot).into())
        } else if slot + 1 < PAGE_SLOTS {
            Some(u32::from(half(slot)) | u32::from(half(slot + 1)) << 16)
        } else {
            None
        };
        let op = raw.map_or(Op::new(kind::STRADDLE, 0, 0, 0, 0).long(), decode::decode);
        let mut op = op.under(self.memory);
        if let Some(behind) = &self.behind {
            behind.ops[slot].store(op.0, Ordering::Relaxed);
            let number = Number::bits(raw.and_then(Number::of));
            behind.numbers[slot].store(number, Ordering::Relaxed);
            // Pairs with the fence in `counted`.
            fence(Ordering::Release);
            op = Op::COUNTED;
        }
        self.ops[slot].store(op.0, Ordering::Relaxed);
        op
    }

    /// Returns the operation behind a slot that only has it counted, and what it counts as.
    pub(crate) fn counted(&self, slot: usize) -> (Op, Option<Number>) {
        // The caller has seen the slot: what was written before it was is seen, too.
        fence(Ordering::Acquire);
        self.behind.as_ref().map_or((Op::UNDECODED, None), |behind| {
            let number = behind.numbers[slot].load(Ordering::Relaxed);
            (Op(behind.ops[slot].load(Ordering::Relaxed)), Number::from_bits(number))
        })
    }
}

/// Decodes slots of a page while nothing can change it.
pub(crate) struct Decoder<'a> {
    page: &'a Page,
    source: &'a mut [u64; PAGE_WORDS],
    dram: &'a Dram,
}

impl Decoder<'_> {
    /// Returns `true` if a slot is decoded.
    pub(crate) fn is_decoded(&self, slot: usize) -> bool {
        Op(self.page.ops[slot].load(Ordering::Relaxed)).kind() != kind::UNDECODED
    }

    /// Returns the operation of a slot, decoded if it is not yet.
    pub(crate) fn decode(&mut self, slot: usize) -> Op {
        let op = Op(self.page.ops[slot].load(Ordering::Relaxed));
        if op.kind() == kind::UNDECODED {
            self.page.decode_from(self.source, slot, self.dram)
        } else {
            op
        }
    }
}

fn is_long(half: u16) -> bool {
    half & 3 == 3
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low_half(word: u64) -> u16 {
    word as u16
}

/// Reads the halfword at the canonical address `at`; none outside of memory.
fn halfword(dram: &Dram, at: u64) -> Option<u16> {
    let offset = map::physical(at)?.checked_sub(DRAM_BASE)?;
    Some(dram.region().half(offset)?.load(Ordering::Relaxed))
}

/// Reads the instruction at the canonical address `pc`, 16 or 32 bits; none outside of memory.
pub(crate) fn fetch(dram: &Dram, pc: u64) -> Option<u32> {
    let low = halfword(dram, pc)?;
    if !is_long(low) {
        return Some(low.into());
    }
    Some(u32::from(low) | u32::from(halfword(dram, pc.wrapping_add(2))?) << 16)
}

/// Decodes an instruction that lies on two pages; it is not kept. None if the second page is
/// outside of memory.
#[cold]
#[inline(never)]
pub(crate) fn decode_straddling(dram: &Dram, pc: u64, memory: MemoryModel) -> Option<Op> {
    let raw = fetch(dram, pc)?;
    Some(decode::decode(raw).under(memory))
}

impl CodeCache {
    /// Pages above which a launch starts with an empty cache: 80 MiB of tables.
    const MANY_PAGES: usize = 4096;

    pub(crate) fn new(dram: &Dram, memory: MemoryModel, counts: bool) -> Self {
        let groups = dram.size().div_ceil(GROUP_BYTES);
        Self {
            memory,
            counts,
            native: None,
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
            pages: AtomicUsize::new(0),
            epoch: AtomicU64::new(1),
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
        }
    }

    /// The same with code translated, if the processor and the memory model allow that, of which so
    /// many instructions were interpreted.
    pub(crate) fn translating(mut self, after: u32) -> Self {
        let is_simple = !self.counts && !matches!(self.memory, MemoryModel::Weak { .. });
        self.native = is_simple.then(|| Store::new(self.memory, after)).flatten();
        self
    }

    /// The translations, if hot code is translated.
    #[inline]
    pub(crate) fn native(&self) -> Option<&Store> {
        self.native.as_ref()
    }

    /// Where the bounds are kept of the pages executed since the launch.
    pub(crate) fn bounds(&self) -> [&AtomicU64; 2] {
        [&self.low, &self.high]
    }

    /// The epoch: pages that were compared with memory in an earlier one are to be so again.
    pub(crate) fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// What the operations are decoded for.
    pub(crate) fn memory(&self) -> MemoryModel {
        self.memory
    }

    /// Returns `true` if the cache has grown so much that a new one should replace it.
    pub(crate) fn is_large(&self) -> bool {
        self.pages.load(Ordering::Relaxed) > Self::MANY_PAGES
    }

    /// Makes every page be compared with memory before it is entered again.
    pub(crate) fn start_epoch(&self) {
        // Release: a hart that sees the new epoch also sees the memory of the caller.
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Starts an epoch while no hart runs: stores need only watch pages executed from now on.
    pub(crate) fn start_launch(&self) {
        self.low.store(u64::MAX, Ordering::Relaxed);
        self.high.store(0, Ordering::Relaxed);
        self.start_epoch();
    }

    /// Finds the page with `physical`; none if code cannot be executed there.
    pub(crate) fn page(&self, dram: &Dram, physical: u64) -> Option<&Page> {
        let offset = physical.checked_sub(DRAM_BASE)?;
        if offset < FIRMWARE_BYTES || offset >= dram.size() {
            return None;
        }
        let (group, index) = Self::split(offset);
        let group =
            self.groups.get(group)?.get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())));
        let page = group[index].get_or_init(|| {
            self.pages.fetch_add(1, Ordering::Relaxed);
            Box::new(Page::new(offset & !(PAGE_BYTES - 1), self.memory, self.counts))
        });
        let epoch = self.epoch.load(Ordering::Acquire);
        // Acquire: pairs with the release in `revalidate`, so that the slots are the checked ones.
        if page.epoch.load(Ordering::Acquire) != epoch {
            self.revalidate(page, epoch, dram);
        }
        Some(page)
    }

    /// Returns `true` if a page holds `physical` and was compared with memory in this epoch.
    #[inline(always)]
    pub(crate) fn is_current(&self, page: &Page, physical: u64) -> bool {
        physical.wrapping_sub(DRAM_BASE + page.offset) < PAGE_BYTES
            // Acquire, both: as in `page`.
            && page.epoch.load(Ordering::Acquire) == self.epoch.load(Ordering::Acquire)
    }

    /// Splits an offset in DRAM into the number of a group and that of a page in it.
    fn split(offset: u64) -> (usize, usize) {
        let index = (offset / PAGE_BYTES) as usize;
        (index / PAGES_PER_GROUP, index % PAGES_PER_GROUP)
    }

    #[cold]
    fn revalidate(&self, page: &Page, epoch: u64, dram: &Dram) {
        let mut source = page.source();
        // First of all, so that a hart that stores to the page from now on takes notice.
        let start = DRAM_BASE + page.offset;
        self.low.fetch_min(start, Ordering::SeqCst);
        self.high.fetch_max(start + PAGE_BYTES, Ordering::SeqCst);
        for index in 0..PAGE_WORDS {
            page.refresh(&mut source, index, dram);
        }
        page.epoch.store(epoch, Ordering::Release);
    }

    /// Returns `true` if a store to `address` may have changed code.
    #[inline(always)]
    pub(crate) fn may_hold(&self, address: u64) -> bool {
        address < self.high.load(Ordering::Relaxed) && address >= self.low.load(Ordering::Relaxed)
    }

    /// Forgets what was decoded from the words that hold `bytes` bytes from `offset` in DRAM, after
    /// they were stored.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_store(&self, dram: &Dram, offset: u64, bytes: u64) {
        // Pairs with the fence in `Page::decode`.
        fence(Ordering::SeqCst);
        for word in offset / 8..=(offset + bytes - 1) / 8 {
            let (group, page) = Self::split(word * 8);
            let group = self.groups.get(group).and_then(OnceLock::get);
            let Some(page) = group.and_then(|group| group[page].get()) else { continue };
            #[expect(clippy::cast_possible_truncation, reason = "below the words of a page")]
            let index = (word % PAGE_WORDS as u64) as usize;
            // Data next to code is the common case: nothing was decoded there.
            if page.slots(index).iter().any(|slot| slot.load(Ordering::Relaxed) != 0) {
                page.refresh(&mut page.source(), index, dram);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = DRAM_BASE + 0x400_0000;
    const NOP: [u8; 4] = [0x13, 0, 0, 0];
    const LI: [u8; 4] = [0x13, 0x05, 0x10, 0];

    fn cache() -> (Dram, CodeCache) {
        let dram = Dram::new(128 << 20).unwrap();
        let cache = CodeCache::new(&dram, MemoryModel::Flat, false);
        (dram, cache)
    }

    fn slot(page: &Page, slot: usize) -> Op {
        Op(page.ops[slot].load(Ordering::Relaxed))
    }

    #[test]
    fn unchanged_code_stays_decoded_over_epochs() {
        let (dram, cache) = cache();
        dram.write(AT, &NOP).unwrap();
        let op = cache.page(&dram, AT).unwrap().decode(0, &dram);
        cache.start_launch();
        assert_eq!(slot(cache.page(&dram, AT).unwrap(), 0), op);
        assert_eq!(op.kind(), kind::ADDI);
    }

    #[test]
    fn only_changed_words_are_forgotten() {
        let (dram, cache) = cache();
        for index in 0..8 {
            dram.write(AT + 4 * index, &NOP).unwrap();
        }
        let page = cache.page(&dram, AT).unwrap();
        for index in 0..8 {
            page.decode(2 * index, &dram);
        }
        dram.write(AT + 16, &LI).unwrap();
        cache.start_launch();
        let page = cache.page(&dram, AT).unwrap();
        let forgotten: Vec<_> =
            (0..8).filter(|index| slot(page, 2 * index) == Op::UNDECODED).collect();
        assert_eq!(forgotten, [4, 5]);
    }

    #[test]
    fn stores_next_to_code_keep_it_and_stores_into_it_do_not() {
        let (dram, cache) = cache();
        dram.write(AT, &NOP).unwrap();
        let page = cache.page(&dram, AT).unwrap();
        page.decode(0, &dram);
        assert!(cache.may_hold(AT + 8) && !cache.may_hold(AT + PAGE_BYTES));
        dram.write(AT + 8, &LI).unwrap();
        cache.note_store(&dram, AT - DRAM_BASE + 8, 4);
        assert_ne!(slot(page, 0), Op::UNDECODED);
        dram.write(AT, &LI).unwrap();
        cache.note_store(&dram, AT - DRAM_BASE, 4);
        assert_eq!(slot(page, 0), Op::UNDECODED);
    }

    #[test]
    fn a_store_to_the_second_half_of_an_instruction_is_noticed() {
        let (dram, cache) = cache();
        dram.write(AT + 6, &NOP).unwrap();
        let page = cache.page(&dram, AT).unwrap();
        page.decode(3, &dram);
        dram.write(AT + 8, &[0xFF]).unwrap();
        cache.note_store(&dram, AT - DRAM_BASE + 8, 1);
        assert_eq!(slot(page, 3), Op::UNDECODED);
    }

    #[test]
    fn code_is_found_in_open_dram_only() {
        let (dram, cache) = cache();
        assert!(cache.page(&dram, DRAM_BASE).is_none());
        assert!(cache.page(&dram, DRAM_BASE + FIRMWARE_BYTES).is_some());
        assert!(cache.page(&dram, DRAM_BASE + dram.size()).is_none());
        assert!(cache.page(&dram, 0x8000_0000).is_none());
    }
}
