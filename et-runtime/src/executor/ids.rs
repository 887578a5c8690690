//! Numbers that must not be mixed up, and conversions of counts.

use std::fmt;

/// Number of a run; never used again by its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RunId(pub(super) u64);

/// A task of a run that has started, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TaskRef {
    pub(super) run: RunId,
    /// Where the scheduler keeps the run; another run's once this one has ended.
    pub(super) slot: u32,
    /// A unit of its graph: the task, or a part of one.
    pub(super) unit: u32,
}

/// A worker of a place, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WorkerId(pub(super) u32);

impl WorkerId {
    /// Its hart in a crew.
    pub(super) const fn rank(self) -> Rank {
        Rank(self.0 + 1)
    }

    pub(super) const fn at(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A hart of a crew. Number 0 coordinates, the others are workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Rank(pub(super) u32);

impl Rank {
    pub(super) const COORDINATOR: Self = Self(0);

    /// The worker with this rank; `None` for the coordinator.
    pub(super) const fn worker(self) -> Option<WorkerId> {
        match self.0.checked_sub(1) {
            Some(worker) => Some(WorkerId(worker)),
            None => None,
        }
    }
}

/// A count of tasks, workers or slots. A graph has less than 2³² tasks, and nothing here has more
/// entries than that.
pub(super) fn count(of: usize) -> u32 {
    debug_assert!(u32::try_from(of).is_ok(), "{of} of something");
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// A number of bytes or words of memory that exists.
pub(super) fn size(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

/// The lower half of a word.
pub(super) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// The upper half of a word.
pub(super) const fn high(word: u64) -> u32 {
    low(word >> 32)
}
