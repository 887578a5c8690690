//! Finds accesses of several harts to the same bytes that may go wrong on the card.
//!
//! Two questions are asked of each access and the last one to the same byte by another hart, if one
//! of the two writes. *Does anything order them?* Barriers, credits, messages and atomics do: that
//! is what [clocks](clocks) are for. And if so, *has the data arrived?* Each store has a number,
//! which [moves with its data](versions) through the caches: a load that finds another number than
//! that of the last store has got what was there before.
//!
//! Neither depends on what happens to be in memory, so that a race shows also where it did no harm
//! this time.

mod clocks;
mod shadow;
mod versions;

use std::collections::HashMap;
use std::ops::Range;

use et_isa::{Access, Race, RaceKind};

pub(crate) use self::clocks::Sync;
use self::clocks::{Clocks, Times};
pub(super) use self::shadow::Way;
use self::shadow::{Past, Read, Shadow, Write};
pub(super) use self::versions::Level;
use self::versions::Versions;
use super::lines::{is_scratchpad, line_address};
use super::{minion_of, shire_of};

/// An access of a hart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) access: Access,
    pub(super) way: Way,
    /// Others may wait for it: it orders, and does not race with its like.
    pub(super) is_atomic: bool,
}

/// What is known of a launch.
#[derive(Debug, Default)]
pub(crate) struct Races {
    clocks: Clocks,
    shadow: HashMap<u64, Box<Shadow>>,
    versions: Versions,
    /// Number of the last store.
    stores: u32,
    /// By line the stores that have not taken effect.
    pending: HashMap<u64, Vec<Pending>>,
    /// What atomics have left in memory, by line and place there.
    left: HashMap<(u64, usize), u64>,
    /// Where the hart is whose instruction is executed.
    hart: u32,
    pc: u64,
    found: Option<Found>,
}

/// A store that was posted.
#[derive(Debug)]
struct Pending {
    write: Write,
    mask: u64,
    /// What its hart knew, if it is one by which others get to know that.
    known: Option<Times>,
}

/// A finding, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) race: Race,
    pub(crate) address: u64,
}

impl Races {
    /// Starts a launch.
    pub(super) fn start(&mut self, harts: &[u32]) {
        self.clocks.start(harts);
        self.shadow.clear();
        self.versions.clear();
        self.pending.clear();
        self.left.clear();
        (self.stores, self.found) = (0, None);
    }

    /// Takes note of the instruction that is executed next.
    pub(crate) fn executes(&mut self, hart: u32, pc: u64) {
        (self.hart, self.pc) = (hart, pc);
    }

    /// Takes what the instruction that was just executed has shown.
    pub(crate) fn take_found(&mut self) -> Option<Found> {
        self.found.take()
    }

    /// The hart that executes gives something that others take.
    pub(crate) fn gives(&mut self, sync: Sync) {
        self.clocks.release(self.hart, sync);
    }

    /// The hart that executes takes what others have given.
    pub(crate) fn takes(&mut self, sync: Sync) {
        self.clocks.acquire(self.hart, sync);
    }

    /// The hart that executes joins others, and takes what those before it have given.
    pub(crate) fn joins(&mut self, sync: Sync) {
        self.takes(sync);
        self.gives(sync);
    }

    /// Takes note that a line was loaded from one level to another.
    pub(super) fn loaded(&mut self, from: Level, to: Level, line: u64) {
        self.versions.load(from, to, line);
    }

    /// Takes note that the dirty bytes of a line were written from one level to another.
    pub(super) fn written_down(&mut self, from: Level, to: Level, line: u64, dirty: u64) {
        self.versions.write_down(from, to, line, dirty);
    }

    /// Takes note that a line has left a cache.
    pub(super) fn forgotten(&mut self, level: Level, line: u64) {
        self.versions.forget(level, line);
    }

    /// A hart reads bytes of a line, at a level.
    pub(super) fn reads(
        &mut self,
        hart: u32,
        line: u64,
        bytes: Range<usize>,
        usage: Use,
        seen_at: Level,
        below: &dyn Fn(Level) -> Level,
    ) {
        let Self { clocks, versions, .. } = self;
        let shadow = self.shadow.entry(line).or_default();
        let mut found = None;
        let mut fine = 0;
        let seen = versions.of(seen_at, line);
        for at in bytes.clone() {
            let kind = shadow.write(at).and_then(|write| {
                if is_concurrent(clocks, hart, &write.by) {
                    return (!are_atomic(hart, usage, &write.by)).then_some(RaceKind::Unordered);
                }
                if seen[at] == write.number {
                    return None;
                }
                let meet = below(meeting(hart, usage.way, &write.by, line));
                let arrived = versions.of(meet, line)[at] == write.number && meet != seen_at;
                Some(if arrived { RaceKind::OldCopy } else { RaceKind::NotWrittenBack })
            });
            match (kind, shadow.write(at)) {
                (Some(kind), Some(write)) => found = found.or(Some((kind, write.by, at))),
                _ => fine += 1,
            }
        }
        let late = pending_before(&self.pending, clocks, hart, line, &bytes, usage);
        found = found.or(late.map(|by| (RaceKind::NotWrittenBack, by, bytes.start)));
        // Of a line that is loaded as a whole, the rest may be of no use, and what is stored there
        // later no matter.
        if usage.access != Access::Line {
            let read = Read { mask: mask(&bytes), by: past(clocks, hart, self.pc, usage) };
            shadow.note_read(read, |by| clocks.is_before(by.hart, by.time, hart));
        }
        if let Some((kind, by, at)) = found
            && (usage.access != Access::Line || fine == 0)
        {
            self.find(kind, usage.access, line, at, bytes.len(), &by);
        }
    }

    /// A hart writes bytes of a line; returns the number of the store. What it replaces is at the
    /// level where the two meet, unless something is missing.
    pub(super) fn writes(
        &mut self,
        hart: u32,
        line: u64,
        bytes: Range<usize>,
        usage: Use,
        below: &dyn Fn(Level) -> Level,
    ) -> u32 {
        self.stores = self.stores.saturating_add(1);
        let number = self.stores;
        let Self { clocks, versions, .. } = self;
        let shadow = self.shadow.entry(line).or_default();
        let mut found = None;
        for at in bytes.clone() {
            let Some(old) = shadow.write(at) else { continue };
            let is_same = u32::from(old.by.hart) == hart && old.by.usage.way == usage.way;
            let kind = if is_concurrent(clocks, hart, &old.by) {
                (!are_atomic(hart, usage, &old.by)).then_some(RaceKind::Unordered)
            } else if is_same || usage.is_atomic {
                // An atomic has been looked at as one that reads.
                None
            } else {
                let meet = below(meeting(hart, usage.way, &old.by, line));
                let arrived = versions.of(meet, line)[at] == old.number;
                (!arrived).then_some(RaceKind::NotWrittenBack)
            };
            if let Some(kind) = kind {
                found = found.or(Some((kind, old.by, at)));
            }
        }
        if !usage.is_atomic && found.is_none() {
            let late = pending_before(&self.pending, clocks, hart, line, &bytes, usage);
            found = late.map(|by| (RaceKind::NotWrittenBack, by, bytes.start));
        }
        let written = mask(&bytes);
        for read in shadow.reads.iter().filter(|read| read.mask & written != 0) {
            if is_concurrent(clocks, hart, &read.by) && !are_atomic(hart, usage, &read.by) {
                let at = (read.mask & written).trailing_zeros() as usize;
                found = found.or(Some((RaceKind::Unordered, read.by, at)));
            }
        }
        let write = Write { number, by: past(clocks, hart, self.pc, usage) };
        shadow.note_write(write, bytes.clone());
        if let Some((kind, by, at)) = found {
            self.find(kind, usage.access, line, at, bytes.len(), &by);
        }
        number
    }

    /// A store has got to a level.
    pub(super) fn arrives(
        &mut self,
        level: Level,
        line: u64,
        bytes: Range<usize>,
        number: u32,
        usage: Use,
    ) {
        self.versions.set(level, line, bytes, number, usage.is_atomic);
    }

    /// An atomic finds a value, and so sees what others have done to a word. In memory that may be
    /// the host, if it is not what an atomic has left there; and the host may have seen all that
    /// was there before, but nothing that has not taken effect yet.
    pub(super) fn acquires(&mut self, hart: u32, line: u64, at: usize, way: Way, found: u64) {
        let word = word(hart, line, at, way);
        if way == Way::Global && self.left.get(&(line, at)) != Some(&found) {
            // Also for others that look at the word.
            let pending = self.pending.values().flatten().map(|one| one.write.by);
            self.clocks.forward(Sync::Host, word, pending.map(|by| (by.hart, by.time)));
        }
        self.clocks.acquire(hart, word);
    }

    /// An atomic changes a word, now.
    pub(super) fn releases(&mut self, hart: u32, line: u64, at: usize, way: Way) {
        if way == Way::Global {
            self.clocks.release(hart, Sync::Host);
        }
        self.clocks.release(hart, word(hart, line, at, way));
    }

    /// Takes note of what an atomic leaves in memory. One that was posted does not see what the
    /// host has written before; who comes next shall.
    pub(super) fn leaves(&mut self, line: u64, at: usize, unseen: Option<u64>, value: u64) {
        let place = (line, at);
        match unseen.is_none_or(|found| self.left.get(&place) == Some(&found)) {
            true => drop(self.left.insert(place, value)),
            false => drop(self.left.remove(&place)),
        }
    }

    /// A hart posts a store; returns its number.
    pub(super) fn posts(
        &mut self,
        hart: u32,
        line: u64,
        bytes: Range<usize>,
        usage: Use,
        below: &dyn Fn(Level) -> Level,
    ) -> u32 {
        let mask = mask(&bytes);
        let number = self.writes(hart, line, bytes, usage, below);
        let write = Write { number, by: past(&self.clocks, hart, self.pc, usage) };
        // Its time is what others will know of.
        let known = usage.is_atomic.then(|| self.clocks.snapshot(hart));
        self.pending.entry(line).or_default().push(Pending { write, mask, known });
        number
    }

    /// A store that was posted takes effect.
    pub(super) fn completes(&mut self, hart: u32, line: u64, at: usize, number: u32, way: Way) {
        let Some(pending) = self.pending.get_mut(&line) else { return };
        let Some(place) = pending.iter().position(|one| one.write.number == number) else { return };
        let known = pending.remove(place).known;
        if pending.is_empty() {
            self.pending.remove(&line);
        }
        if let Some(known) = known {
            self.clocks.release_snapshot(&known, word(hart, line, at, way));
            if way == Way::Global {
                self.clocks.release_snapshot(&known, Sync::Host);
            }
        }
    }

    fn find(
        &mut self,
        kind: RaceKind,
        access: Access,
        line: u64,
        at: usize,
        bytes: usize,
        other: &Past,
    ) {
        let distance = other.pc.wrapping_sub(self.pc).cast_signed();
        let race = Race {
            kind,
            access,
            bytes: u8::try_from(bytes).unwrap_or(u8::MAX),
            other: other.usage.access,
            other_hart: other.hart,
            distance: i32::try_from(distance).unwrap_or(0),
        };
        self.found = self.found.or(Some(Found { race, address: line_address(line) + at as u64 }));
    }
}

/// What a hart does now, as later accesses will see it.
fn past(clocks: &Clocks, hart: u32, pc: u64, usage: Use) -> Past {
    Past { hart: u16::try_from(hart).unwrap_or(u16::MAX), time: clocks.now(hart), pc, usage }
}

fn mask(bytes: &Range<usize>) -> u64 {
    bytes.clone().fold(0, |mask, at| mask | 1 << at)
}

fn word(hart: u32, line: u64, at: usize, way: Way) -> Sync {
    let shire = (way == Way::Local).then(|| shire_of(hart));
    Sync::Word(shire, line, u8::try_from(at & !3).unwrap_or(0))
}

/// Both are atomics at the same level.
fn are_atomic(hart: u32, usage: Use, other: &Past) -> bool {
    usage.is_atomic
        && other.usage.is_atomic
        && usage.way == other.usage.way
        && (usage.way == Way::Global || shire_of(hart) == shire_of(other.hart.into()))
}

/// Finds a store to bytes that is ordered before what a hart does now, and has not taken effect.
fn pending_before(
    pending: &HashMap<u64, Vec<Pending>>,
    clocks: &Clocks,
    hart: u32,
    line: u64,
    bytes: &Range<usize>,
    usage: Use,
) -> Option<Past> {
    let of_line = pending.get(&line)?.iter().filter(|one| one.mask & mask(bytes) != 0);
    let is_late = |by: &Past| match u32::from(by.hart) == hart {
        // Those of one hart by one way are in order.
        true => by.usage.way != usage.way,
        false => clocks.is_before(by.hart, by.time, hart),
    };
    of_line.map(|one| one.write.by).find(is_late)
}

/// Nothing orders an access before what a hart does now.
fn is_concurrent(clocks: &Clocks, hart: u32, other: &Past) -> bool {
    u32::from(other.hart) != hart && !clocks.is_before(other.hart, other.time, hart)
}

/// The highest level that is below both a write and what a hart does now.
fn meeting(hart: u32, way: Way, write: &Past, line: u64) -> Level {
    let other = u32::from(write.hart);
    let is_within = |deepest: Way| way <= deepest && write.usage.way <= deepest;
    if is_within(Way::Plain) && minion_of(hart) == minion_of(other) {
        Level::L1(minion_of(hart))
    } else if is_within(Way::Local) && shire_of(hart) == shire_of(other) && !is_scratchpad(line) {
        Level::L2(shire_of(hart))
    } else {
        Level::Memory
    }
}
