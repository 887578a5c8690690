//! Who has used the bytes of a line last.

use std::ops::Range;

use et_isa::Access;

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

/// The last write of a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// 0 if there was none.
    pub(super) number: u32,
    pub(super) hart: u16,
    pub(super) time: u32,
    pub(super) pc: u64,
    pub(super) usage: Use,
}

/// A read of bytes of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) hart: u16,
    pub(super) time: u32,
    pub(super) pc: u64,
    pub(super) mask: u64,
    pub(super) usage: Use,
}

/// Where an access came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) access: Access,
    pub(super) hart: u16,
    pub(super) pc: u64,
}

impl Write {
    pub(super) fn origin(&self) -> Origin {
        Origin { access: self.usage.access, hart: self.hart, pc: self.pc }
    }
}

impl Read {
    pub(super) fn origin(&self) -> Origin {
        Origin { access: self.usage.access, hart: self.hart, pc: self.pc }
    }
}

/// The accesses to a line that matter to later ones.
#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) writes: [Write; LINE_BYTES],
    /// Since the last write of their bytes.
    pub(super) reads: Vec<Read>,
}

impl Default for Shadow {
    fn default() -> Self {
        let usage = Use { access: Access::Store, way: Way::Plain, is_atomic: false };
        let none = Write { number: 0, hart: 0, time: 0, pc: 0, usage };
        Self { writes: [none; LINE_BYTES], reads: Vec::new() }
    }
}

impl Shadow {
    /// Takes note of a read. What is after it is after those as well that are `before` it.
    pub(super) fn note_read(&mut self, new: Read, before: impl Fn(&Read) -> bool) {
        for read in &mut self.reads {
            // An atomic does not stand for a read that races with atomics.
            if before(read) && (read.usage.is_atomic || !new.usage.is_atomic) {
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
        self.writes[bytes].fill(write);
    }
}
