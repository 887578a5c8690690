//! Which store the bytes in each cache, and in memory, are from.

use std::collections::HashMap;

use super::super::cache::LINE_BYTES;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    /// The L1 of a minion.
    L1(u32),
    /// The L2 of a shire.
    L2(u32),
    /// DRAM, or a scratchpad.
    Memory,
}

/// For each byte the number of the store that it is from; 0 for what was there at the start.
pub(super) type Numbers = [u32; LINE_BYTES];

/// Those of a line that nothing has written since the start.
const AT_START: &Numbers = &[0; LINE_BYTES];

/// The numbers of the lines that have any. They move with the data.
#[derive(Debug, Default)]
pub(super) struct Versions(HashMap<(Level, u64), Box<Numbers>>);

impl Versions {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the numbers of a line at a level that has it.
    pub(super) fn of(&self, level: Level, line: u64) -> &Numbers {
        self.0.get(&(level, line)).map_or(AT_START, |numbers| numbers)
    }

    /// Takes note that bytes are from a store. An atomic that has others in it already stays as new
    /// as the newest of them.
    pub(super) fn set(
        &mut self,
        level: Level,
        line: u64,
        bytes: std::ops::Range<usize>,
        number: u32,
        is_atomic: bool,
    ) {
        let numbers = self.0.entry((level, line)).or_insert_with(|| Box::new([0; LINE_BYTES]));
        for old in &mut numbers[bytes] {
            *old = if is_atomic { number.max(*old) } else { number };
        }
    }

    /// Takes note that a line was loaded from one level to another.
    pub(super) fn load(&mut self, from: Level, to: Level, line: u64) {
        match self.0.get(&(from, line)) {
            Some(numbers) => drop(self.0.insert((to, line), numbers.clone())),
            None => drop(self.0.remove(&(to, line))),
        }
    }

    /// Takes note that the dirty bytes of a line were written from one level to another.
    pub(super) fn write_down(&mut self, from: Level, to: Level, line: u64, dirty: u64) {
        let Some(numbers) = self.0.get(&(from, line)).filter(|_| dirty != 0).cloned() else {
            return;
        };
        let below = self.0.entry((to, line)).or_insert_with(|| Box::new([0; LINE_BYTES]));
        for at in (0..LINE_BYTES).filter(|at| dirty >> at & 1 != 0) {
            below[at] = numbers[at];
        }
    }

    /// Takes note that a line has left a cache.
    pub(super) fn forget(&mut self, level: Level, line: u64) {
        self.0.remove(&(level, line));
    }
}
