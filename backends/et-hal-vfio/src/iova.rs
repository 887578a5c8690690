//! Which bus addresses are free.

use std::collections::BTreeMap;

/// Bus addresses below are never given out: a null pointer, or one with a small offset, faults in
/// the IOMMU.
const FIRST: u64 = 1 << 20;

/// The bus addresses of one device.
///
/// Each piece that is given out has an unmapped hole behind it. The search goes round, so that an
/// address is not given out again soon after it was freed: whoever still uses it meets a fault.
#[derive(Debug)]
pub(crate) struct IovaSpace {
    /// Start and end of what is free; no two touch.
    free: BTreeMap<u64, u64>,
    /// Where the search begins.
    next: u64,
    page: u64,
}

impl IovaSpace {
    /// Creates the space from the ranges the IOMMU takes (first and last address), below 2 to the
    /// power of `bits`. `page` is a power of two.
    pub(crate) fn new(ranges: &[(u64, u64)], page: u64, bits: u32) -> Self {
        let limit = 1_u64.checked_shl(bits).unwrap_or(u64::MAX) & !(page - 1);
        let mut space = Self { free: BTreeMap::new(), next: 0, page };
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable();
        for (first, last) in ranges {
            let mut start = first.max(FIRST).checked_next_multiple_of(page).unwrap_or(u64::MAX);
            let end = last.saturating_add(1).min(limit) & !(page - 1);
            // The kernel takes no mapping across the border of two ranges, even if they touch.
            let touches = |&stop: &u64| stop == start;
            if space.free.values().any(touches) {
                start = start.saturating_add(page);
            }
            // Ranges that overlap are a kernel's mistake; the first one counts.
            let taken = |space: &Self| {
                space.free.range(..end).next_back().is_some_and(|(_, &stop)| stop > start)
            };
            if start < end && !taken(&space) {
                space.insert(start, end);
            }
        }
        space
    }

    /// Bytes of address space that a piece occupies.
    fn span(&self, len: u64) -> Option<u64> {
        len.checked_next_multiple_of(self.page)?.checked_add(self.page)
    }

    /// Takes `len` bytes at a multiple of `align`, a power of two; `None` if there is no room.
    pub(crate) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let span = self.span(len)?;
        let align = align.max(self.page);
        let fit = |(&start, &end): (&u64, &u64), from: u64| {
            let at = start.max(from).checked_next_multiple_of(align)?;
            let stop = at.checked_add(span)?;
            (stop <= end).then_some((start, end, at, stop))
        };
        let next = self.next;
        // The piece of free space that contains `next` may have room behind it.
        let around = self.free.range(..=next).next_back();
        let found = around
            .into_iter()
            .chain(self.free.range(next.saturating_add(1)..))
            .find_map(|piece| fit(piece, next))
            .or_else(|| self.free.iter().find_map(|piece| fit(piece, 0)))?;
        let (start, end, at, stop) = found;
        self.free.remove(&start);
        for (from, to) in [(start, at), (stop, end)] {
            if from < to {
                self.free.insert(from, to);
            }
        }
        self.next = stop;
        Some(at)
    }

    /// Gives back what `take` returned for this length.
    pub(crate) fn give_back(&mut self, at: u64, len: u64) {
        if let Some(end) = self.span(len).and_then(|span| at.checked_add(span)) {
            self.insert(at, end);
        }
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &stop)) = self.free.range(..start).next_back()
            && stop == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.free.insert(start, end);
    }

    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    const PAGE: u64 = 4096;
    /// The last two touch.
    const RANGES: [(u64, u64); 3] =
        [(0, 0x3f_ffff), (0x50_0000, 0x9f_ffff), (0xa0_0000, 0xff_ffff)];

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take { len: u64, align: u64 },
        GiveBack { which: usize },
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..0x20_0000_u64, 12..21_u32)
                .prop_map(|(len, shift)| Step::Take { len, align: 1 << shift }),
            (0..64_usize).prop_map(|which| Step::GiveBack { which }),
        ]
    }

    proptest! {
        #[test]
        fn pieces_never_overlap_and_all_comes_back(
            steps in proptest::collection::vec(steps(), 1..200),
        ) {
            let mut space = IovaSpace::new(&RANGES, PAGE, 64);
            let all = space.free_bytes();
            let mut pieces: Vec<(u64, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { len, align } => {
                        let taken = space.take(len, align);
                        let Some(at) = taken else { continue };
                        let end = at + len.next_multiple_of(PAGE) + PAGE;
                        prop_assert!(at >= FIRST && at % align == 0);
                        prop_assert!(RANGES.iter().any(|&(first, last)| first <= at && end - 1 <= last));
                        for &(other, len) in &pieces {
                            let other_end = other + len.next_multiple_of(PAGE) + PAGE;
                            prop_assert!(end <= other || other_end <= at, "the hole behind is whole");
                        }
                        pieces.push((at, len));
                    }
                    Step::GiveBack { which } => {
                        if pieces.is_empty() { continue }
                        let (at, len) = pieces.swap_remove(which % pieces.len());
                        space.give_back(at, len);
                    }
                }
                let used: u64 =
                    pieces.iter().map(|(_, len)| len.next_multiple_of(PAGE) + PAGE).sum();
                prop_assert_eq!(space.free_bytes() + used, all);
            }
        }
    }

    #[test]
    fn what_was_freed_is_not_given_out_next() {
        let mut space = IovaSpace::new(&RANGES, PAGE, 64);
        let first = space.take(PAGE, PAGE).unwrap();
        space.give_back(first, PAGE);
        assert_ne!(space.take(PAGE, PAGE), Some(first));
    }

    #[test]
    fn freed_space_is_found_when_nothing_else_is_left() {
        let mut space = IovaSpace::new(&[(0, 0x20_0fff)], PAGE, 64);
        let at = space.take(0x10_0000, PAGE).unwrap();
        assert_eq!((at, space.take(PAGE, PAGE)), (0x10_0000, None));
        space.give_back(at, 0x10_0000);
        assert_eq!(space.take(0x10_0000, PAGE), Some(at));
    }

    #[test]
    fn ranges_at_the_edges_do_no_harm() {
        let mut space = IovaSpace::new(&[(0, u64::MAX), (5, 6)], PAGE, 64);
        assert_eq!(space.take(PAGE, PAGE), Some(FIRST));
        assert_eq!(space.take(u64::MAX, PAGE), None);
        let mut narrow = IovaSpace::new(&[(0, u64::MAX)], PAGE, 32);
        assert_eq!(narrow.take(1 << 32, PAGE), None);
        assert!(narrow.take(1 << 31, 1 << 21).is_some());
        assert_eq!(IovaSpace::new(&[(9, 3), (0, 4095)], PAGE, 64).free_bytes(), 0);
    }
}
