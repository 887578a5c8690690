//! One mapping that serves many small buffers.

use std::sync::Arc;

use et_hal::DeviceAccess;

use crate::memory::{HUGE_PAGE_BYTES, Memory};

/// Bytes of a slab.
pub(crate) const SLAB_BYTES: usize = HUGE_PAGE_BYTES;
/// Buffers are multiples of this, so that no two share a page.
pub(crate) const GRANULE_BYTES: usize = 4096;
const GRANULES: usize = SLAB_BYTES / GRANULE_BYTES;

/// A part of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    first: usize,
    count: usize,
}

impl Piece {
    /// Offset in the slab in bytes.
    pub(crate) fn offset(self) -> usize {
        self.first * GRANULE_BYTES
    }
}

/// Memory that is mapped for the device once, and given out in granules.
///
/// The search goes round, so that a granule is not given out again soon after it was freed.
#[derive(Debug)]
pub(crate) struct Slab {
    pub(crate) memory: Arc<Memory>,
    /// Bus address of byte 0.
    pub(crate) bus: u64,
    pub(crate) access: DeviceAccess,
    used: Box<[bool; GRANULES]>,
    next: usize,
    in_use: usize,
}

impl Slab {
    pub(crate) fn new(memory: Arc<Memory>, bus: u64, access: DeviceAccess) -> Self {
        Self { memory, bus, access, used: Box::new([false; GRANULES]), next: 0, in_use: 0 }
    }

    /// Takes `len` bytes, at most a slab; `None` if they are not free in one piece.
    pub(crate) fn take(&mut self, len: usize) -> Option<Piece> {
        let count = len.div_ceil(GRANULE_BYTES).max(1);
        if count > GRANULES {
            return None;
        }
        let first = self.find(self.next, count).or_else(|| self.find(0, count))?;
        self.used[first..first + count].fill(true);
        self.next = first + count;
        self.in_use += count;
        Some(Piece { first, count })
    }

    /// Finds the first run that begins at or after `from`.
    fn find(&self, from: usize, count: usize) -> Option<usize> {
        let mut first = from;
        while first + count <= GRANULES {
            match self.used[first..first + count].iter().rposition(|&used| used) {
                None => return Some(first),
                Some(last) => first += last + 1,
            }
        }
        None
    }

    pub(crate) fn give_back(&mut self, piece: Piece) {
        self.used[piece.first..piece.first + piece.count].fill(false);
        self.in_use -= piece.count;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_use == 0
    }
}
