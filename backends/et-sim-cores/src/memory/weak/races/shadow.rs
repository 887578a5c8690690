//! Who has used the bytes of a line last.

use std::ops::Range;

use super::super::cache::LINE_BYTES;
use super::Use;

/// Reads of a line that are remembered: the latest. Those before may race with a later store
/// unnoticed.
const MOST_READS: usize = 8;

/// The way an access goes: where it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// In the L1.
    Plain,
    /// In the L2, or the scratchpad.
    Local,
    /// In memory.
    Global,
}

/// An access that later ones are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) hart: u16,
    pub(super) time: u32,
    pub(super) pc: u64,
    pub(super) usage: Use,
}

/// The last write of a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// Of all stores; from 1 on.
    pub(super) number: u32,
    pub(super) by: Past,
}

/// A read of bytes of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) mask: u64,
    pub(super) by: Past,
}

/// The accesses to a line that matter to later ones. Most lines are only read.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    writes: Option<Box<[Option<Write>; LINE_BYTES]>>,
    /// Since the last write of their bytes.
    pub(super) reads: Vec<Read>,
}

impl Shadow {
    /// The last write of a byte, if there was one.
    pub(super) fn write(&self, at: usize) -> Option<&Write> {
        self.writes.as_ref()?[at].as_ref()
    }

    /// Takes note of a read. What is after it is after those as well that are `before` it.
    pub(super) fn note_read(&mut self, new: Read, before: impl Fn(&Past) -> bool) {
        for read in &mut self.reads {
            // An atomic does not stand for a read that races with atomics.
            if before(&read.by) && (read.by.usage.is_atomic || !new.by.usage.is_atomic) {
                read.mask &= !new.mask;
            }
        }
        self.reads.retain(|read| read.mask != 0);
        if self.reads.len() == MOST_READS {
            self.reads.remove(0);
        }
        self.reads.push(new);
    }

    /// Takes note of a write of bytes.
    pub(super) fn note_write(&mut self, write: Write, bytes: Range<usize>) {
        for read in &mut self.reads {
            read.mask &= bytes.clone().fold(!0, |mask, at| mask & !(1 << at));
        }
        self.reads.retain(|read| read.mask != 0);
        let writes = self.writes.get_or_insert_with(|| Box::new([None; LINE_BYTES]));
        writes[bytes].fill(Some(write));
    }
}
