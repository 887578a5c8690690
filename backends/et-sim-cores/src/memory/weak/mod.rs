//! Weak memory: caches that are not coherent, and operations that take effect late.
//!
//! ```text
//! hart ─ plain ─────▶ L1 of its minion ──▶ L2 of its shire ──▶ memory ◀── host, DMA, fetch
//! hart ─ local ──────(queue)──────────────▶ L2 of its shire
//! hart ─ global ─────(queue)─────────────────────────────────▶ memory
//! ```
//!
//! Nothing here is faster or slower than flat memory would be; the point is that every order of
//! events that the instruction set allows may happen, chosen by a seed. Lines leave the caches at
//! moments that are drawn, and on top of that when a kernel evicts them. Atomics without result,
//! coherent stores and evictions wait in a queue of their hart until a moment that is drawn, or
//! until an instruction demands their completion.
//!
//! A line of the L2 scratchpad is in L2 storage itself: it is cached by the L1 only, and what is
//! written down from there is in the scratchpad.
//!
//! Spec: ISA §3.1, §3.2, §3.3, §3.7; device interface §8, §9.4 (caches at the end of a kernel), §14

mod cache;
mod calls;
mod lines;
mod noted;
mod posted;
mod races;
mod random;

use std::fmt;

use et_isa::Access;

use crate::machine::chip::Core;
use crate::memory::bus::{self, Scope};
use crate::memory::map::{HART_SLOTS, HARTS_PER_SHIRE, SHIRES};

pub(in crate::memory) use cache::Line;
use cache::{Cache, LINE_BYTES};
pub(in crate::memory) use lines::write_down;
use lines::{fetch, is_scratchpad, line_of, parts};
pub(crate) use posted::{Bank, Change, Target, WriteBack};
use posted::{Effect, Path, Posted, Queue};
use races::Level;
pub(crate) use races::{Found, Races, Sync};
use random::{Noted, Random, Trace};

/// Sets and ways of an L1: 4 KiB.
const L1_SHAPE: (usize, usize) = (16, 4);
/// Sets and ways of a shire's L2: 512 KiB.
const L2_SHAPE: (usize, usize) = (1024, 8);
/// Longest turn of a hart, in instructions.
const LONGEST_TURN: usize = 50;
/// Every launch draws how rare events are: from one per turn to one in 2^6 turns. So some seeds
/// have eager caches and others very lazy ones.
const RATES: usize = 7;
/// Where races are looked for, events are rarer than that: what is missing shows best if nothing
/// happens by itself.
const RATE_FOR_RACES: u32 = 10;
/// After that time without, there, one of the operations that a hart has posted takes effect:
/// others may do nothing but wait for it.
const PATIENCE_FOR_RACES: u64 = 64 * ROUND;
/// The time in which each hart that can run has a turn, on average.
const ROUND: u64 = 1 << 16;

/// The caches of all minions and shires, and what harts have posted.
pub(crate) struct Weak {
    seed: u64,
    random: Random,
    trace: Trace,
    /// The time since the start of the machine; a turn is a part of a [`ROUND`].
    now: u64,
    /// One event in 2^this turns: lines leaving caches, and posted operations taking effect.
    line_rate: u32,
    posted_rate: u32,
    /// By minion; there is none before the first launch that includes it.
    l1: Box<[Option<Cache>]>,
    /// By shire.
    l2: Box<[Option<Cache>]>,
    /// By hart.
    queues: Box<[Queue]>,
    /// Harts whose queue is not empty.
    posting: Vec<u32>,
    /// Minions and shires of the launch.
    minions: Vec<u32>,
    shires: Vec<u32>,
    /// What looks for races, if something does.
    races: Option<Box<Races>>,
}

fn shire_of(hart: u32) -> u32 {
    hart / HARTS_PER_SHIRE
}

fn minion_of(hart: u32) -> u32 {
    hart / 2
}

fn shire_of_minion(minion: u32) -> u32 {
    2 * minion / HARTS_PER_SHIRE
}

impl Weak {
    pub(crate) fn new(seed: u64, finds_races: bool) -> Self {
        Self {
            seed,
            random: Random::new(seed, 0),
            trace: Trace::new(),
            now: 0,
            line_rate: 0,
            posted_rate: 0,
            l1: (0..HART_SLOTS / 2).map(|_| None).collect(),
            l2: (0..SHIRES).map(|_| None).collect(),
            queues: (0..HART_SLOTS).map(|_| Queue::default()).collect(),
            posting: Vec::new(),
            minions: Vec::new(),
            shires: Vec::new(),
            races: finds_races.then(Box::default),
        }
    }

    /// Returns what looks for races, if something does.
    pub(crate) fn races(&mut self) -> Option<&mut Races> {
        self.races.as_deref_mut()
    }

    /// Starts launch `number` of `harts`, in ascending order, with empty caches.
    pub(crate) fn start(&mut self, number: u64, harts: &[u32]) {
        debug_assert!(self.posting.is_empty(), "the launch before was finished");
        self.random = Random::new(self.seed, number);
        self.trace = Trace::new();
        // Lossless: the rates are few.
        self.line_rate = u32::try_from(self.random.below(RATES)).unwrap_or(0);
        self.posted_rate = u32::try_from(self.random.below(RATES)).unwrap_or(0);
        if let Some(races) = &mut self.races {
            races.start(harts);
            self.line_rate += RATE_FOR_RACES;
            self.posted_rate += RATE_FOR_RACES;
        }
        self.minions = harts.iter().map(|&hart| minion_of(hart)).collect();
        self.minions.dedup();
        self.shires = harts.iter().map(|&hart| shire_of(hart)).collect();
        self.shires.dedup();
        for &minion in &self.minions {
            self.l1[minion as usize].get_or_insert_with(|| Cache::new(L1_SHAPE.0, L1_SHAPE.1));
        }
        for &shire in &self.shires {
            self.l2[shire as usize].get_or_insert_with(|| Cache::new(L2_SHAPE.0, L2_SHAPE.1));
        }
    }

    /// Chooses who has the next turn, of the `count` harts that can run.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        self.now += ROUND / count.max(1) as u64;
        self.random.below(count)
    }

    /// Lets pass what happens between two turns, and returns how many instructions the turn of
    /// `hart` that now begins has.
    pub(crate) fn begin_turn(&mut self, core: &Core<'_>, hart: u32) -> u32 {
        self.pass(core);
        let turn = u32::try_from(1 + self.random.below(LONGEST_TURN)).unwrap_or(1);
        self.trace.note(Noted::Turn, hart, turn.into());
        turn
    }

    /// Lets some time pass: a line may leave a cache, a posted operation may take effect.
    pub(crate) fn pass(&mut self, core: &Core<'_>) {
        if self.random.one_in(self.line_rate) {
            let minion = self.random.below(self.minions.len());
            self.evict_any_l1(core, self.minions[minion]);
        }
        if self.random.one_in(self.line_rate) {
            let shire = self.random.below(self.shires.len());
            self.evict_any_l2(core, self.shires[shire]);
        }
        if !self.posting.is_empty() {
            let happens = self.random.one_in(self.posted_rate);
            if happens || self.races.is_some() {
                let hart = self.posting[self.random.below(self.posting.len())];
                let queue = &self.queues[hart as usize];
                if happens || queue.is_overdue(self.now, PATIENCE_FOR_RACES) {
                    self.complete_any(core, hart);
                }
            }
        }
    }

    /// Draws whether an operation of a tensor unit takes effect.
    pub(crate) fn completes_operation(&mut self) -> bool {
        self.random.one_in(self.posted_rate)
    }

    /// Completes everything and empties all caches, in an order that is drawn: the end of a
    /// kernel, or an eternity in which no hart can run.
    pub(crate) fn settle(&mut self, core: &Core<'_>) {
        while !self.posting.is_empty() {
            let hart = self.random.below(self.posting.len());
            self.complete_any(core, self.posting[hart]);
        }
        let mut lines = Vec::new();
        for &minion in &self.minions {
            lines.extend(self.l1(minion).numbers().map(|line| (minion, line)));
        }
        self.random.shuffle(&mut lines);
        for (minion, line) in lines {
            self.write_back_l1(core, minion, line, WriteBack::Evict);
        }
        let mut lines = Vec::new();
        for &shire in &self.shires {
            lines.extend(self.l2(shire).numbers().map(|line| (shire, line)));
        }
        self.random.shuffle(&mut lines);
        for (shire, line) in lines {
            self.write_back_l2(core, shire, line, WriteBack::Evict);
        }
    }

    /// Returns the hash over all events since the start of the launch; never 0.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.hash()
    }

    /// Loads by the L1. The bytes must be inside of the bank.
    pub(crate) fn load(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        bank: Bank,
        offset: u64,
        size: u64,
    ) -> u64 {
        parts(bank, offset, size).fold(0, |value, part| {
            self.complete_before(core, hart, part.line, Path::L1);
            let slot = self.l1_slot(core, minion_of(hart), part.line);
            self.note_plain_load(hart, part.line, part.range());
            let line = self.l1(minion_of(hart)).line(slot);
            value | line.load(part.at, part.bytes) << part.shift
        })
    }

    /// Stores by the L1. The bytes must be inside of the bank.
    pub(crate) fn store(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        bank: Bank,
        offset: u64,
        size: u64,
        value: u64,
    ) {
        for part in parts(bank, offset, size) {
            self.complete_before(core, hart, part.line, Path::L1);
            let slot = self.l1_slot(core, minion_of(hart), part.line);
            self.note_plain_store(hart, part.line, part.range());
            let line = self.l1_mut(minion_of(hart)).line_mut(slot);
            line.store(part.at, part.bytes, value >> part.shift);
        }
    }

    /// Loads data where the scope says, past the L1.
    pub(crate) fn load_coherent(&mut self, core: &Core<'_>, hart: u32, target: Target) -> u64 {
        let line = line_of(target.bank, target.offset);
        self.complete_before(core, hart, line, target.scope.into());
        let value = self.peek(core, hart, target);
        self.note_data_load(hart, target, Access::Load);
        value
    }

    /// Loads a line for the tensor unit, by the L2.
    pub(crate) fn load_line(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        (bank, offset): (Bank, u64),
    ) -> [u8; LINE_BYTES] {
        self.complete_before(core, hart, line_of(bank, offset), Path::L2);
        let whole = Target { scope: Scope::Local, bank, offset, size: LINE_BYTES as u64 };
        let mut bytes = [0; LINE_BYTES];
        for (at, word) in (offset..).step_by(8).zip(bytes.as_chunks_mut::<8>().0) {
            let target = Target { offset: at, size: 8, ..whole };
            *word = self.peek(core, hart, target).to_le_bytes();
        }
        self.note_data_load(hart, whole, Access::Line);
        bytes
    }

    /// Returns what an access past the L1 finds.
    fn peek(&mut self, core: &Core<'_>, hart: u32, target: Target) -> u64 {
        if acts_at_l2(target) {
            let (at, size) = within_line(target);
            let slot = self.l2_slot(core, shire_of(hart), line_of(target.bank, target.offset));
            return self.l2(shire_of(hart)).line(slot).load(at, size);
        }
        bus::read(target.bank.region(core.chip), target.offset, target.size).unwrap_or(0)
    }

    /// Makes a change at once and returns what was there before.
    pub(crate) fn change(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        target: Target,
        change: Change,
    ) -> u64 {
        let line = line_of(target.bank, target.offset);
        self.complete_before(core, hart, line, target.scope.into());
        if self.races.is_none() {
            return self.apply_change(core, hart, target, change, 0);
        }
        self.change_noted(core, hart, target, change)
    }

    /// Makes a change later.
    pub(crate) fn post(&mut self, core: &Core<'_>, hart: u32, target: Target, change: Change) {
        let line = line_of(target.bank, target.offset);
        let number = self.note_posted(hart, target, change);
        self.enqueue(core, hart, Posted { line, effect: Effect::Change(target, change, number) });
    }

    /// Writes a line back to `level`, later. Spec: ISA §3.7
    pub(crate) fn post_write_back(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        (bank, offset): (Bank, u64),
        kind: WriteBack,
        level: u64,
    ) {
        let effect = Effect::WriteBack(kind, level);
        self.enqueue(core, hart, Posted { line: line_of(bank, offset), effect });
    }

    /// Loads a line into the L1, or the L2 if `level` is 1.
    pub(crate) fn prefetch(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        (bank, offset): (Bank, u64),
        level: u64,
    ) {
        let line = line_of(bank, offset);
        match level {
            0 => {
                self.l1_slot(core, minion_of(hart), line);
            }
            1 if bank == Bank::Dram => {
                self.l2_slot(core, shire_of(hart), line);
            }
            _ => {}
        }
    }

    /// Completes the atomics and coherent stores of a hart.
    pub(crate) fn fence(&mut self, core: &Core<'_>, hart: u32) {
        self.complete_all(core, hart, |posted| posted.path() != Path::L1);
    }

    /// Completes the evictions and flushes of a hart.
    pub(crate) fn wait_for_lines(&mut self, core: &Core<'_>, hart: u32) {
        self.complete_all(core, hart, |posted| posted.path() == Path::L1);
    }

    fn l1(&self, minion: u32) -> &Cache {
        match &self.l1[minion as usize] {
            Some(cache) => cache,
            None => unreachable!("minion {minion} runs without a launch"),
        }
    }

    fn l1_mut(&mut self, minion: u32) -> &mut Cache {
        match &mut self.l1[minion as usize] {
            Some(cache) => cache,
            None => unreachable!("minion {minion} runs without a launch"),
        }
    }

    fn l2(&self, shire: u32) -> &Cache {
        match &self.l2[shire as usize] {
            Some(cache) => cache,
            None => unreachable!("shire {shire} runs without a launch"),
        }
    }

    fn l2_mut(&mut self, shire: u32) -> &mut Cache {
        match &mut self.l2[shire as usize] {
            Some(cache) => cache,
            None => unreachable!("shire {shire} runs without a launch"),
        }
    }

    /// Finds a line in the L1, and loads it from below if it is not there.
    fn l1_slot(&mut self, core: &Core<'_>, minion: u32, line: u64) -> usize {
        if let Some(slot) = self.l1(minion).find(line) {
            return slot;
        }
        let content = if is_scratchpad(line) {
            fetch(core, line)
        } else {
            let shire = shire_of_minion(minion);
            let below = self.l2_slot(core, shire, line);
            Line::clean(self.l2(shire).line(below).bytes)
        };
        self.note_load(self.below_l1(minion, line), Level::L1(minion), line);
        let slot = match self.l1(minion).free(line) {
            Ok(slot) => slot,
            Err(first) => {
                let slot = first + self.random.below(L1_SHAPE.1);
                self.drop_l1(core, minion, slot);
                slot
            }
        };
        self.l1_mut(minion).insert(slot, line, content);
        slot
    }

    /// Finds a line of DRAM in the L2, and loads it from memory if it is not there.
    fn l2_slot(&mut self, core: &Core<'_>, shire: u32, line: u64) -> usize {
        if let Some(slot) = self.l2(shire).find(line) {
            return slot;
        }
        let slot = match self.l2(shire).free(line) {
            Ok(slot) => slot,
            Err(first) => {
                let slot = first + self.random.below(L2_SHAPE.1);
                self.drop_l2(core, shire, slot);
                slot
            }
        };
        self.note_load(Level::Memory, Level::L2(shire), line);
        self.l2_mut(shire).insert(slot, line, fetch(core, line));
        slot
    }

    /// Writes dirty bytes of an L1 one level down.
    fn push_down(&mut self, core: &Core<'_>, minion: u32, number: u64, line: &Line) {
        self.trace.note(Noted::L1, minion, number);
        if line.dirty == 0 {
            return;
        }
        if is_scratchpad(number) {
            write_down(core, number, line);
        } else {
            let shire = shire_of_minion(minion);
            let slot = self.l2_slot(core, shire, number);
            self.l2_mut(shire).line_mut(slot).merge(line);
        }
        self.note_write_down(Level::L1(minion), self.below_l1(minion, number), number, line.dirty);
    }

    fn drop_l1(&mut self, core: &Core<'_>, minion: u32, slot: usize) {
        if let Some((number, line)) = self.l1_mut(minion).take(slot) {
            self.push_down(core, minion, number, &line);
            self.note_gone(Level::L1(minion), number);
        }
    }

    fn drop_l2(&mut self, core: &Core<'_>, shire: u32, slot: usize) {
        if let Some((number, line)) = self.l2_mut(shire).take(slot) {
            self.trace.note(Noted::L2, shire, number);
            write_down(core, number, &line);
            self.note_write_down(Level::L2(shire), Level::Memory, number, line.dirty);
            self.note_gone(Level::L2(shire), number);
        }
    }

    fn evict_any_l1(&mut self, core: &Core<'_>, minion: u32) {
        let place = self.random.below(self.l1(minion).used().len());
        if let Some(&slot) = self.l1(minion).used().get(place) {
            self.drop_l1(core, minion, slot as usize);
        }
    }

    fn evict_any_l2(&mut self, core: &Core<'_>, shire: u32) {
        let place = self.random.below(self.l2(shire).used().len());
        if let Some(&slot) = self.l2(shire).used().get(place) {
            self.drop_l2(core, shire, slot as usize);
        }
    }

    /// Writes a line of the L1 to the level below, if it is there.
    fn write_back_l1(&mut self, core: &Core<'_>, minion: u32, line: u64, kind: WriteBack) {
        let Some(slot) = self.l1(minion).find(line) else { return };
        match kind {
            WriteBack::Evict => self.drop_l1(core, minion, slot),
            WriteBack::Flush => {
                let content = *self.l1(minion).line(slot);
                self.l1_mut(minion).line_mut(slot).dirty = 0;
                self.push_down(core, minion, line, &content);
            }
        }
    }

    /// Writes a line of the L2 to memory, if it is there.
    fn write_back_l2(&mut self, core: &Core<'_>, shire: u32, line: u64, kind: WriteBack) {
        let Some(slot) = self.l2(shire).find(line) else { return };
        match kind {
            WriteBack::Evict => self.drop_l2(core, shire, slot),
            WriteBack::Flush => {
                let content = *self.l2(shire).line(slot);
                self.l2_mut(shire).line_mut(slot).dirty = 0;
                self.trace.note(Noted::L2, shire, line);
                write_down(core, line, &content);
                self.note_write_down(Level::L2(shire), Level::Memory, line, content.dirty);
            }
        }
    }

    /// Writes a line back to a level: nothing for 0, the L2 for 1, memory for 2 and 3.
    fn write_back(&mut self, core: &Core<'_>, hart: u32, line: u64, kind: WriteBack, level: u64) {
        if level >= 1 {
            self.write_back_l1(core, minion_of(hart), line, kind);
        }
        if level >= 2 {
            self.write_back_l2(core, shire_of(hart), line, kind);
        }
    }

    fn enqueue(&mut self, core: &Core<'_>, hart: u32, posted: Posted) {
        if self.queues[hart as usize].len() == Queue::CAPACITY {
            self.complete_any(core, hart);
        }
        let queue = &mut self.queues[hart as usize];
        if queue.is_empty() {
            self.posting.push(hart);
        }
        queue.push(posted, self.now);
    }

    /// Completes an operation of `hart` that is drawn, or one that must come before it.
    fn complete_any(&mut self, core: &Core<'_>, hart: u32) {
        let index = self.random.below(self.queues[hart as usize].len());
        if let Some(posted) = self.queues[hart as usize].take(index, self.now) {
            self.note_taken(hart);
            self.apply(core, hart, posted);
        }
    }

    /// Completes the operations of `hart` for which `wanted` holds, in their order.
    fn complete_all(&mut self, core: &Core<'_>, hart: u32, wanted: impl Fn(&Posted) -> bool) {
        while let Some(posted) = self.queues[hart as usize].take_first(&wanted) {
            self.note_taken(hart);
            self.apply(core, hart, posted);
        }
    }

    /// Completes what `hart` has posted to a line by the way by which it now accesses it.
    fn complete_before(&mut self, core: &Core<'_>, hart: u32, line: u64, path: Path) {
        if !self.queues[hart as usize].is_empty() {
            self.complete_all(core, hart, |posted| posted.line == line && posted.path() == path);
        }
    }

    /// Takes note that a queue has got shorter.
    fn note_taken(&mut self, hart: u32) {
        if self.queues[hart as usize].is_empty() {
            self.posting.retain(|&other| other != hart);
        }
    }

    fn apply(&mut self, core: &Core<'_>, hart: u32, posted: Posted) {
        match posted.effect {
            Effect::Change(target, change, number) => {
                let old = self.apply_change(core, hart, target, change, number);
                self.note_left(target, change, old, false);
            }
            Effect::WriteBack(kind, level) => {
                self.write_back(core, hart, posted.line, kind, level);
            }
        }
    }

    /// Makes a change, which is the store of a number; returns what was there before.
    fn apply_change(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        target: Target,
        change: Change,
        number: u32,
    ) -> u64 {
        let line = line_of(target.bank, target.offset);
        self.trace.note(Noted::Change, hart, line);
        if acts_at_l2(target) {
            let shire = shire_of(hart);
            let slot = self.l2_slot(core, shire, line);
            self.note_effect(hart, target, change, number);
            let line = self.l2_mut(shire).line_mut(slot);
            let (at, size) = within_line(target);
            let old = line.load(at, size);
            if let Some(new) = change.of_value(old, target.size) {
                line.store(at, size, new);
            }
            return old;
        }
        self.note_effect(hart, target, change, number);
        let Target { bank, offset, size, .. } = target;
        let region = bank.region(core.chip);
        let old = change.in_region(region, offset, size);
        bus::note_coherent(core, region, offset, size);
        old.unwrap_or(0)
    }
}

impl fmt::Debug for Weak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weak").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Local accesses to scratchpads are to L2 storage, which is the bank itself.
fn acts_at_l2(target: Target) -> bool {
    target.scope == Scope::Local && target.bank == Bank::Dram
}

/// Returns the first byte and the size of a target in its line.
#[expect(clippy::cast_possible_truncation, reason = "offsets in a line and sizes of accesses")]
fn within_line(target: Target) -> (usize, usize) {
    ((target.offset % LINE_BYTES as u64) as usize, target.size as usize)
}
