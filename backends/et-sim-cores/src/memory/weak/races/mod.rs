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
use std::sync::Arc;

use et_isa::{Access, Race, RaceKind};

use self::clocks::Clocks;
pub(crate) use self::clocks::Sync;
pub(super) use self::shadow::Way;
use self::shadow::{Read, Shadow, Write};
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
    /// Where the hart is whose instruction is executed.
    hart: u32,
    pc: u64,
    found: Option<Found>,
    reported: Vec<u32>,
}

/// A store that was posted.
#[derive(Debug)]
struct Pending {
    write: Write,
    mask: u64,
    /// What its hart knew, if it is one by which others get to know that.
    known: Option<Arc<[u32]>>,
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
        self.reported.clear();
        (self.stores, self.found) = (0, None);
    }

    /// Takes note of the instruction that is executed next.
    pub(crate) fn executes(&mut self, hart: u32, pc: u64) {
        (self.hart, self.pc) = (hart, pc);
    }

    /// Takes what the instruction that was just executed has shown, if that is the hart's first.
    pub(crate) fn take_found(&mut self) -> Option<Found> {
        let found = self.found.take()?;
        if self.has_reported(self.hart) {
            return None;
        }
        self.reported.push(self.hart);
        Some(found)
    }

    /// Returns `true` if a finding of the hart was taken.
    pub(crate) fn has_reported(&self, hart: u32) -> bool {
        self.reported.contains(&hart)
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
            let write = shadow.writes[at];
            let seen = seen[at];
            let kind = match write.number {
                0 => None,
                _ if conflicts(clocks, hart, usage, &write) => Some(RaceKind::Unordered),
                number if seen != number && !is_concurrent(clocks, hart, &write) => {
                    let meet = below(meeting(hart, usage.way, &write, line));
                    let arrived = versions.of(meet, line)[at] == number && meet != seen_at;
                    Some(if arrived { RaceKind::OldCopy } else { RaceKind::NotWrittenBack })
                }
                _ => None,
            };
            match kind {
                Some(kind) if found.is_none() => found = Some((kind, write, at)),
                Some(_) => {}
                None => fine += 1,
            }
        }
        let late = pending_before(&self.pending, clocks, hart, line, &bytes, usage);
        found = found.or(late.map(|write| (RaceKind::NotWrittenBack, write, bytes.start)));
        // Of a line that is loaded as a whole, the rest may be of no use, and what is stored there
        // later no matter.
        if usage.access != Access::Line {
            let (time, mask) = (clocks.now(hart), mask(&bytes));
            let read = Read { hart: hart_number(hart), time, pc: self.pc, mask, usage };
            shadow.note_read(read, |read| clocks.is_before(read.hart, read.time, hart));
        }
        if let Some((kind, write, at)) = found
            && (usage.access != Access::Line || fine == 0)
        {
            self.find(kind, usage.access, line, at, bytes.len(), &write.origin());
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
            let old = shadow.writes[at];
            let is_same = u32::from(old.hart) == hart && old.usage.way == usage.way;
            let kind = match old.number {
                0 => None,
                _ if conflicts(clocks, hart, usage, &old) => Some(RaceKind::Unordered),
                // An atomic has been looked at as one that reads.
                _ if is_same || usage.is_atomic || is_concurrent(clocks, hart, &old) => None,
                number => {
                    let meet = below(meeting(hart, usage.way, &old, line));
                    (versions.of(meet, line)[at] != number).then_some(RaceKind::NotWrittenBack)
                }
            };
            if let Some(kind) = kind {
                found = found.or(Some((kind, old.origin(), at)));
            }
        }
        if !usage.is_atomic && found.is_none() {
            let late = pending_before(&self.pending, clocks, hart, line, &bytes, usage);
            found = late.map(|write| (RaceKind::NotWrittenBack, write.origin(), bytes.start));
        }
        let written = mask(&bytes);
        for read in shadow.reads.iter().filter(|read| read.mask & written != 0) {
            if u32::from(read.hart) != hart
                && !clocks.is_before(read.hart, read.time, hart)
                && !are_atomic(hart, usage, read.hart, read.usage)
            {
                let at = (read.mask & written).trailing_zeros() as usize;
                found = found.or(Some((RaceKind::Unordered, read.origin(), at)));
            }
        }
        let time = clocks.now(hart);
        let write = Write { number, hart: hart_number(hart), time, pc: self.pc, usage };
        shadow.note_write(write, bytes.clone());
        if let Some((kind, origin, at)) = found {
            self.find(kind, usage.access, line, at, bytes.len(), &origin);
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

    /// An atomic sees what others have done to a word.
    pub(super) fn acquires(&mut self, hart: u32, line: u64, at: usize, way: Way) {
        self.clocks.acquire(hart, word(hart, line, at, way));
    }

    /// An atomic changes a word, now.
    pub(super) fn releases(&mut self, hart: u32, line: u64, at: usize, way: Way) {
        self.clocks.release(hart, word(hart, line, at, way));
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
        let time = self.clocks.now(hart);
        let write = Write { number, hart: hart_number(hart), time, pc: self.pc, usage };
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
        }
    }

    fn find(
        &mut self,
        kind: RaceKind,
        access: Access,
        line: u64,
        at: usize,
        bytes: usize,
        origin: &shadow::Origin,
    ) {
        let distance = origin.pc.wrapping_sub(self.pc).cast_signed();
        let race = Race {
            kind,
            access,
            bytes: u8::try_from(bytes).unwrap_or(u8::MAX),
            other: origin.access,
            other_hart: origin.hart,
            distance: i32::try_from(distance).unwrap_or(0),
        };
        self.found = self.found.or(Some(Found { race, address: line_address(line) + at as u64 }));
    }
}

fn hart_number(hart: u32) -> u16 {
    u16::try_from(hart).unwrap_or(u16::MAX)
}

fn mask(bytes: &Range<usize>) -> u64 {
    bytes.clone().fold(0, |mask, at| mask | 1 << at)
}

fn word(hart: u32, line: u64, at: usize, way: Way) -> Sync {
    let shire = (way == Way::Local).then(|| shire_of(hart));
    Sync::Word(shire, line, u8::try_from(at & !3).unwrap_or(0))
}

/// Both are atomics at the same level.
fn are_atomic(hart: u32, usage: Use, other: u16, others: Use) -> bool {
    usage.is_atomic
        && others.is_atomic
        && usage.way == others.way
        && (usage.way == Way::Global || shire_of(hart) == shire_of(other.into()))
}

/// Finds a store to bytes that is ordered before what a hart does now, and has not taken effect.
fn pending_before(
    pending: &HashMap<u64, Vec<Pending>>,
    clocks: &Clocks,
    hart: u32,
    line: u64,
    bytes: &Range<usize>,
    usage: Use,
) -> Option<Write> {
    let mut of_line = pending.get(&line)?.iter().filter(|one| one.mask & mask(bytes) != 0);
    let is_late = |write: &Write| match u32::from(write.hart) == hart {
        // Those of one hart by one way are in order.
        true => write.usage.way != usage.way,
        false => clocks.is_before(write.hart, write.time, hart),
    };
    of_line.find(|one| is_late(&one.write)).map(|one| one.write)
}

/// Nothing orders a write before what a hart does now.
fn is_concurrent(clocks: &Clocks, hart: u32, write: &Write) -> bool {
    u32::from(write.hart) != hart && !clocks.is_before(write.hart, write.time, hart)
}

/// Nothing orders a write before what a hart does now, and something should.
fn conflicts(clocks: &Clocks, hart: u32, usage: Use, write: &Write) -> bool {
    is_concurrent(clocks, hart, write) && !are_atomic(hart, usage, write.hart, write.usage)
}

/// The highest level that is below both a write and what a hart does now.
fn meeting(hart: u32, way: Way, write: &Write, line: u64) -> Level {
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
