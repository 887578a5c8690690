//! Operations that a hart has issued and that have not taken effect yet.

use std::sync::atomic::{Ordering, fence};

use crate::exec::amo::{self, Atomic};
use crate::exec::packed::pick_raw;
use crate::float::Pick;
use crate::machine::chip::{Chip, Core};
use crate::memory::Region;
use crate::memory::bus::{self, Scope};

/// What an atomic or coherent store does to the word it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An atomic; `expected` is for compare-and-swap.
    Atomic { operation: Atomic, operand: u64, expected: u64 },
    /// A packed atomic that compares floats.
    Float { pick: Pick, operand: u32 },
    /// A store of this value, for which others may wait.
    Store(u64),
    /// A store of this value, which is data.
    Data(u64),
}

impl Change {
    /// Makes the change to memory and returns the old value, zero-extended, or 0 for a store; none
    /// if the word is not inside the region. The host may access the word at the same time.
    pub(crate) fn in_region(self, region: &Region, offset: u64, size: u64) -> Option<u64> {
        match self {
            Self::Atomic { operation, operand, expected } => {
                amo::in_region(region, offset, size, operation, operand, expected)
            }
            Self::Float { pick, operand } => {
                let word = region.word(offset)?;
                let new = |old| Some(pick_raw(old, operand, pick));
                let old = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, new);
                Some(old.unwrap_or_else(|old| old).into())
            }
            Self::Store(value) | Self::Data(value) => {
                // What the hart stored before is visible to who sees this.
                fence(Ordering::Release);
                bus::write(region, offset, size, value).map(|()| 0)
            }
        }
    }

    /// Returns what becomes of the value `old`; none if nothing is stored.
    #[expect(clippy::cast_possible_truncation, reason = "float lanes have 32 bits")]
    pub(in crate::memory) fn of_value(self, old: u64, size: u64) -> Option<u64> {
        match self {
            Self::Atomic { operation, operand, expected } => {
                amo::changed(old, size, operation, operand, expected)
            }
            Self::Float { pick, operand } => Some(pick_raw(old as u32, operand, pick).into()),
            Self::Store(value) | Self::Data(value) => Some(value),
        }
    }
}

/// The word that an atomic or coherent access names: naturally aligned, 1 to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Where the access acts.
    pub(crate) scope: Scope,
    /// What it acts on.
    pub(crate) bank: Bank,
    /// Offset of the word in the bank.
    pub(crate) offset: u64,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// The memory below the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bank {
    Dram,
    Scratchpads,
}

impl Bank {
    /// Returns the memory itself.
    pub(crate) fn region(self, chip: &Chip) -> &Region {
        match self {
            Self::Dram => chip.dram.region(),
            Self::Scratchpads => chip.scratchpads.region(),
        }
    }

    /// Tells which bank a region is.
    pub(crate) fn of(core: &Core<'_>, region: &Region) -> Self {
        if std::ptr::eq(region, core.chip.dram.region()) { Self::Dram } else { Self::Scratchpads }
    }
}

/// How far down a line is written, and what remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBack {
    /// The line is gone afterwards from the levels above the destination.
    Evict,
    /// The line stays, clean.
    Flush,
}

/// The way by which an access reaches a line. Accesses of one hart to one line by one way keep
/// their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Through the minion's L1.
    L1,
    /// To the shire's L2.
    L2,
    /// To memory.
    Memory,
}

impl From<Scope> for Path {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Local => Self::L2,
            Scope::Global => Self::Memory,
        }
    }
}

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A change, and its number among all stores if races are looked for.
    Change(Target, Change, u32),
    /// A line is written back to a level: 1 L2, 2 and 3 memory. Spec: ISA §3.7
    WriteBack(WriteBack, u64),
}

/// An operation that has not taken effect yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    /// Number of the line it is about.
    pub(super) line: u64,
    pub(super) effect: Effect,
}

impl Posted {
    pub(super) fn path(&self) -> Path {
        match self.effect {
            Effect::Change(target, ..) => target.scope.into(),
            Effect::WriteBack(..) => Path::L1,
        }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.line == other.line && self.path() == other.path()
    }
}

/// What one hart has issued, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<Posted>,
    /// When one was last drawn, or there was none.
    since: u64,
}

impl Queue {
    /// Operations that may be on their way; one more pushes another one out.
    pub(super) const CAPACITY: usize = 16;

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, posted: Posted, now: u64) {
        if self.is_empty() {
            self.since = now;
        }
        self.waiting.push(posted);
    }

    /// Returns `true` if none was drawn for longer than `patience` though something is waiting.
    /// What instructions demand meanwhile does not count: the others would wait forever.
    pub(super) fn is_overdue(&self, now: u64, patience: u64) -> bool {
        !self.is_empty() && now - self.since > patience
    }

    /// Takes the operation at `index`, or an older one that must take effect before it.
    pub(super) fn take(&mut self, index: usize, now: u64) -> Option<Posted> {
        let chosen = self.waiting.get(index)?;
        let first = self.waiting.iter().position(|posted| posted.is_before(chosen))?;
        self.since = now;
        Some(self.waiting.remove(first))
    }

    /// Takes the oldest operation for which `wanted` holds.
    pub(super) fn take_first(&mut self, wanted: impl Fn(&Posted) -> bool) -> Option<Posted> {
        let first = self.waiting.iter().position(wanted)?;
        Some(self.waiting.remove(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(scope: Scope, line: u64, value: u64) -> Posted {
        let target = Target { scope, bank: Bank::Dram, offset: 64 * line, size: 1 };
        Posted { line, effect: Effect::Change(target, Change::Store(value), 0) }
    }

    #[test]
    fn operations_on_one_line_keep_their_order_and_others_do_not() {
        let mut queue = Queue::default();
        let global = Scope::Global;
        let all = [store(global, 1, 0), store(global, 2, 1), store(global, 1, 2)];
        for posted in all {
            queue.push(posted, 0);
        }
        assert_eq!(queue.take(2, 0), Some(all[0]));
        assert_eq!(queue.take(1, 0), Some(all[2]));
        assert_eq!(queue.take(0, 0), Some(all[1]));
        assert!(queue.is_empty() && queue.take(0, 0).is_none());
    }

    #[test]
    fn operations_are_overdue_when_none_was_drawn_for_long() {
        let mut queue = Queue::default();
        assert!(!queue.is_overdue(100, 10), "there is none");
        queue.push(store(Scope::Global, 1, 0), 100);
        queue.push(store(Scope::Global, 2, 1), 108);
        queue.push(store(Scope::Global, 3, 2), 108);
        assert!(queue.take_first(|posted| posted.line == 3).is_some(), "demanded");
        assert!(!queue.is_overdue(110, 10) && queue.is_overdue(111, 10));
        assert!(queue.take(0, 111).is_some());
        assert!(!queue.is_overdue(121, 10) && queue.is_overdue(122, 10));
    }

    #[test]
    fn different_paths_to_one_line_are_not_ordered() {
        let mut queue = Queue::default();
        let (local, global) = (store(Scope::Local, 1, 0), store(Scope::Global, 1, 1));
        let evict = Posted { line: 1, effect: Effect::WriteBack(WriteBack::Evict, 2) };
        for posted in [local, global, evict] {
            queue.push(posted, 0);
        }
        assert_eq!(queue.take(1, 0), Some(global));
        assert_eq!(queue.take_first(|posted| posted.path() == Path::L1), Some(evict));
        assert_eq!(queue.len(), 1);
    }
}
