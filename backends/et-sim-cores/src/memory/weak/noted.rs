//! What weak memory tells those who look for races.

use std::ops::Range;

use et_isa::Access;

use super::cache::Cache;
use super::lines::is_scratchpad;
use super::posted::{Change, Target};
use super::races::{Level, Races, Use, Way};
use super::{Weak, acts_at_l2, line_of, shire_of, shire_of_minion, within_line};
use crate::exec::amo::Atomic;
use crate::machine::chip::Core;

const PLAIN_LOAD: Use = Use { access: Access::Load, way: Way::Plain, is_atomic: false };
const PLAIN_STORE: Use = Use { access: Access::Store, ..PLAIN_LOAD };

/// Returns the highest level, from one down, that has a line.
fn with_line(l1: &[Option<Cache>], l2: &[Option<Cache>], level: Level, line: u64) -> Level {
    let has = |caches: &[Option<Cache>], number: u32| {
        caches[number as usize].as_ref().is_some_and(|cache| cache.find(line).is_some())
    };
    match level {
        Level::L1(minion) if !has(l1, minion) => {
            with_line(l1, l2, Level::L2(shire_of_minion(minion)), line)
        }
        Level::L2(shire) if is_scratchpad(line) || !has(l2, shire) => Level::Memory,
        level => level,
    }
}

/// Where an access past the L1 stops.
fn way(target: Target) -> Way {
    if acts_at_l2(target) { Way::Local } else { Way::Global }
}

fn level(hart: u32, target: Target) -> Level {
    if acts_at_l2(target) { Level::L2(shire_of(hart)) } else { Level::Memory }
}

fn usage(target: Target, change: Change) -> Use {
    let (access, is_atomic) = match change {
        Change::Data(_) => (Access::Store, false),
        Change::Store(_) => (Access::Store, true),
        Change::Atomic { .. } | Change::Float { .. } => (Access::Atomic, true),
    };
    Use { access, way: way(target), is_atomic }
}

/// Atomics that never change what is there are how kernels load past the L1.
fn is_load(change: Change) -> bool {
    use Atomic::{Add, MaxUnsigned, Or, Xor};
    matches!(change, Change::Atomic { operation: Add | MaxUnsigned | Or | Xor, operand: 0, .. })
}

/// Compared with something else than was expected, and so stored nothing.
fn has_failed(change: Change, old: u64, size: u64) -> bool {
    change.of_value(old, size).is_none()
}

impl Weak {
    /// Calls `note` with what looks for races, and with what finds the level that has the line.
    fn noting<T: Default>(
        &mut self,
        line: u64,
        note: impl FnOnce(&mut Races, &dyn Fn(Level) -> Level) -> T,
    ) -> T {
        let Self { races, l1, l2, .. } = self;
        let Some(races) = races else { return T::default() };
        note(races, &|level| with_line(l1, l2, level, line))
    }

    pub(super) fn below_l1(&self, minion: u32, line: u64) -> Level {
        match is_scratchpad(line) {
            true => Level::Memory,
            false => Level::L2(shire_of_minion(minion)),
        }
    }

    pub(super) fn note_load(&mut self, from: Level, to: Level, line: u64) {
        if let Some(races) = &mut self.races {
            races.loaded(from, to, line);
        }
    }

    pub(super) fn note_write_down(&mut self, from: Level, to: Level, line: u64, dirty: u64) {
        if let Some(races) = &mut self.races {
            races.written_down(from, to, line, dirty);
        }
    }

    pub(super) fn note_gone(&mut self, level: Level, line: u64) {
        if let Some(races) = &mut self.races {
            races.forgotten(level, line);
        }
    }

    /// Takes note of a load by the L1, of a line that is there.
    pub(super) fn note_plain_load(&mut self, hart: u32, line: u64, bytes: Range<usize>) {
        let seen_at = Level::L1(hart / 2);
        self.noting(line, |races, below| {
            races.reads(hart, line, bytes, PLAIN_LOAD, seen_at, below);
        });
    }

    /// Takes note of a store by the L1, of a line that is there.
    pub(super) fn note_plain_store(&mut self, hart: u32, line: u64, bytes: Range<usize>) {
        self.noting(line, |races, below| {
            let number = races.writes(hart, line, bytes.clone(), PLAIN_STORE, below);
            races.arrives(Level::L1(hart / 2), line, bytes, number, PLAIN_STORE);
        });
    }

    /// Takes note of a load of data past the L1.
    pub(super) fn note_data_load(&mut self, hart: u32, target: Target, access: Access) {
        let (line, bytes) = line_and_bytes(target);
        let usage = Use { access, way: way(target), is_atomic: false };
        self.noting(line, |races, below| {
            races.reads(hart, line, bytes, usage, level(hart, target), below);
        });
    }

    /// Makes a change at once, and takes note of it.
    pub(super) fn change_noted(
        &mut self,
        core: &Core<'_>,
        hart: u32,
        target: Target,
        change: Change,
    ) -> u64 {
        let (line, bytes) = line_and_bytes(target);
        let usage = usage(target, change);
        let old = self.peek(core, hart, target);
        let number = self.noting(line, |races, below| {
            if usage.is_atomic {
                races.acquires(hart, line, bytes.start, usage.way, old);
                races.reads(hart, line, bytes.clone(), usage, level(hart, target), below);
            }
            if is_load(change) || has_failed(change, old, target.size) {
                return 0;
            }
            let number = races.writes(hart, line, bytes.clone(), usage, below);
            if usage.is_atomic {
                races.releases(hart, line, bytes.start, usage.way);
            }
            number
        });
        let found = self.apply_change(core, hart, target, change, number);
        if usage.is_atomic && found != old {
            // The host was faster.
            self.noting(line, |races, _| {
                races.acquires(hart, line, bytes.start, usage.way, found);
            });
        }
        self.note_left(target, change, found, true);
        found
    }

    /// Takes note of a change that will be made; returns its number.
    pub(super) fn note_posted(&mut self, hart: u32, target: Target, change: Change) -> u32 {
        if is_load(change) {
            return 0;
        }
        let (line, bytes) = line_and_bytes(target);
        let usage = usage(target, change);
        self.noting(line, |races, below| races.posts(hart, line, bytes, usage, below))
    }

    /// Takes note that the change with a number takes effect.
    pub(super) fn note_effect(&mut self, hart: u32, target: Target, change: Change, number: u32) {
        if number == 0 {
            return;
        }
        let (line, bytes) = line_and_bytes(target);
        let usage = usage(target, change);
        if let Some(races) = &mut self.races {
            races.completes(hart, line, bytes.start, number, usage.way);
            races.arrives(level(hart, target), line, bytes, number, usage);
        }
    }

    /// Takes note of what a change leaves in memory, where it has found `old`.
    pub(super) fn note_left(&mut self, target: Target, change: Change, old: u64, is_seen: bool) {
        if let Some(races) = &mut self.races
            && way(target) == Way::Global
            && usage(target, change).is_atomic
        {
            let (line, bytes) = line_and_bytes(target);
            // A store finds nothing.
            let unseen = (!is_seen && !matches!(change, Change::Store(_))).then_some(old);
            let value = change.of_value(old, target.size).unwrap_or(old);
            races.leaves(line, bytes.start, unseen, value);
        }
    }
}

fn line_and_bytes(target: Target) -> (u64, Range<usize>) {
    let (at, size) = within_line(target);
    (line_of(target.bank, target.offset), at..at + size)
}
