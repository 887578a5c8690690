//! The IOMMU: what is pinned, and what it refuses.

use std::collections::BTreeMap;

use super::super::Errno;

/// Memory the device can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) len: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) address: u64,
}

/// One address space.
#[derive(Debug)]
pub(crate) struct Iommu {
    /// There is none: only groups without protection exist.
    pub(crate) absent: bool,
    pub(crate) container_has_group: bool,
    pub(crate) kind: Option<u32>,
    pub(crate) bound: bool,
    pub(crate) has_ioas: bool,
    pub(crate) attached: bool,
    pub(crate) ranges: Vec<(u64, u64)>,
    /// The kernel does not tell ranges and entries.
    pub(crate) tells_nothing: bool,
    pub(crate) entries: u32,
    pub(crate) lock_limit: Option<u64>,
    pub(crate) pins: BTreeMap<u64, Pin>,
    /// Pins that went away only because the descriptor was closed.
    pub(crate) left_at_close: usize,
    /// Bytes that the next unmaps say too few.
    pub(crate) short_unmaps: Vec<u64>,
    pub(crate) interrupt_remapping: bool,
}

impl Iommu {
    pub(crate) fn new() -> Self {
        Self {
            absent: false,
            container_has_group: false,
            kind: None,
            bound: false,
            has_ioas: false,
            attached: false,
            ranges: vec![(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)],
            tells_nothing: false,
            entries: 65_535,
            lock_limit: Some(64 << 20),
            pins: BTreeMap::new(),
            left_at_close: 0,
            short_unmaps: Vec::new(),
            interrupt_remapping: true,
        }
    }

    pub(crate) fn map(&mut self, iova: u64, pin: Pin) -> Result<(), Errno> {
        let end = iova.checked_add(pin.len).ok_or(Errno::INVAL)?;
        let aligned = [iova, pin.len, pin.address].iter().all(|at| at.is_multiple_of(4096));
        let in_range = self.ranges.iter().any(|&(first, last)| first <= iova && end - 1 <= last);
        if !aligned || pin.len == 0 || !in_range {
            return Err(Errno::INVAL);
        }
        if self.pins.iter().any(|(&at, other)| at < end && iova < at + other.len) {
            return Err(Errno::EXIST);
        }
        if self.pins.len() >= self.entries as usize {
            return Err(Errno::NOSPC);
        }
        let locked: u64 = self.pins.values().map(|pin| pin.len).sum();
        if self.lock_limit.is_some_and(|limit| locked + pin.len > limit) {
            return Err(Errno::NOMEM);
        }
        self.pins.insert(iova, pin);
        Ok(())
    }

    /// Unmaps what lies inside the range; nothing may stick out.
    pub(crate) fn unmap(&mut self, iova: u64, len: u64) -> Result<u64, Errno> {
        let inside: Vec<u64> = self.pins.range(iova..iova + len).map(|(&at, _)| at).collect();
        let end = iova + len;
        if inside.iter().any(|at| at + self.pins[at].len > end) {
            return Err(Errno::INVAL);
        }
        if let Some(short) = self.short_unmaps.pop() {
            return Ok(len - short);
        }
        Ok(inside.iter().filter_map(|at| self.pins.remove(at)).map(|pin| pin.len).sum())
    }

    /// The descriptor that owned the pins was closed.
    pub(crate) fn release(&mut self) {
        self.left_at_close += self.pins.len();
        self.pins.clear();
        self.container_has_group = false;
        self.kind = None;
        self.has_ioas = false;
    }
}
