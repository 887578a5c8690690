//! A cache that knows which bytes of its lines are newer than what lies below.

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;
/// No line has this number.
const EMPTY: u64 = u64::MAX;

/// A line's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct Line {
    pub(in crate::memory) bytes: [u8; LINE_BYTES],
    /// Bit *i* is set if byte *i* was written here and not yet below.
    pub(in crate::memory) dirty: u64,
}

impl Line {
    pub(super) fn clean(bytes: [u8; LINE_BYTES]) -> Self {
        Self { bytes, dirty: 0 }
    }

    /// Reads `size` bytes, at most 8, from byte `at` of the line.
    pub(super) fn load(&self, at: usize, size: usize) -> u64 {
        let mut value = [0; 8];
        value[..size].copy_from_slice(&self.bytes[at..at + size]);
        u64::from_le_bytes(value)
    }

    /// Writes the low `size` bytes, at most 8, of `value` at byte `at` of the line.
    pub(super) fn store(&mut self, at: usize, size: usize, value: u64) {
        self.bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        self.dirty |= ((1 << size) - 1) << at;
    }

    /// Takes over the dirty bytes of the same line one level up.
    pub(super) fn merge(&mut self, above: &Self) {
        for (at, byte) in self.bytes.iter_mut().enumerate() {
            if above.dirty >> at & 1 != 0 {
                *byte = above.bytes[at];
            }
        }
        self.dirty |= above.dirty;
    }
}

/// A set-associative cache. Lines have numbers; a *slot* is a place for a line.
#[derive(Debug)]
pub(super) struct Cache {
    sets: usize,
    ways: usize,
    /// For each slot the number of its line.
    numbers: Box<[u64]>,
    lines: Box<[Line]>,
    /// The slots in use, in no order, so that one can be drawn.
    used: Vec<u32>,
    /// For each slot in use its place in `used`.
    places: Box<[u32]>,
}

impl Cache {
    /// Creates an empty cache; `sets` is a power of two.
    pub(super) fn new(sets: usize, ways: usize) -> Self {
        let slots = sets * ways;
        Self {
            sets,
            ways,
            numbers: vec![EMPTY; slots].into(),
            lines: vec![Line::clean([0; LINE_BYTES]); slots].into(),
            used: Vec::new(),
            places: vec![0; slots].into(),
        }
    }

    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    /// Returns the slot of a set's way; both wrap.
    pub(super) fn slot(&self, set: usize, way: usize) -> usize {
        set % self.sets * self.ways + way % self.ways
    }

    #[expect(clippy::cast_possible_truncation, reason = "the set is in the low bits")]
    fn first_slot(&self, number: u64) -> usize {
        self.slot(number as usize, 0)
    }

    /// Finds the slot of a line.
    pub(super) fn find(&self, number: u64) -> Option<usize> {
        let first = self.first_slot(number);
        let ways = &self.numbers[first..first + self.ways];
        ways.iter().position(|&other| other == number).map(|way| first + way)
    }

    /// Finds a free slot for a line; if there is none, the first of those it may take.
    pub(super) fn free(&self, number: u64) -> Result<usize, usize> {
        let first = self.first_slot(number);
        let ways = &self.numbers[first..first + self.ways];
        ways.iter().position(|&other| other == EMPTY).map(|way| first + way).ok_or(first)
    }

    pub(super) fn line(&self, slot: usize) -> &Line {
        &self.lines[slot]
    }

    pub(super) fn line_mut(&mut self, slot: usize) -> &mut Line {
        &mut self.lines[slot]
    }

    /// Puts a line into a free slot.
    #[expect(clippy::cast_possible_truncation, reason = "caches have few slots")]
    pub(super) fn insert(&mut self, slot: usize, number: u64, line: Line) {
        debug_assert_eq!(self.numbers[slot], EMPTY, "the slot is free");
        self.numbers[slot] = number;
        self.lines[slot] = line;
        self.places[slot] = self.used.len() as u32;
        self.used.push(slot as u32);
    }

    /// Takes the line out of a slot; none if it is free.
    pub(super) fn take(&mut self, slot: usize) -> Option<(u64, Line)> {
        let number = std::mem::replace(&mut self.numbers[slot], EMPTY);
        if number == EMPTY {
            return None;
        }
        let place = self.places[slot];
        self.used.swap_remove(place as usize);
        if let Some(&moved) = self.used.get(place as usize) {
            self.places[moved as usize] = place;
        }
        Some((number, self.lines[slot]))
    }

    /// Returns the number of the line in a slot; none if it is free.
    pub(super) fn number(&self, slot: usize) -> Option<u64> {
        Some(self.numbers[slot]).filter(|&number| number != EMPTY)
    }

    /// Returns the slots in use.
    pub(super) fn used(&self) -> &[u32] {
        &self.used
    }

    /// Returns the line numbers of all slots in use.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.used.iter().map(|&slot| self.numbers[slot as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_mark_their_bytes_and_merging_moves_only_those() {
        let mut above = Line::clean([1; 64]);
        above.store(60, 4, 0x0403_0201);
        assert_eq!((above.load(60, 4), above.dirty), (0x0403_0201, 0xF << 60));
        let mut below = Line::clean([9; 64]);
        below.store(0, 1, 5);
        below.merge(&above);
        assert_eq!((below.load(0, 2), below.load(59, 2)), (0x0905, 0x0109));
        assert_eq!(below.dirty, 0xF << 60 | 1);
    }

    #[test]
    fn a_full_set_has_no_free_slot() {
        let mut cache = Cache::new(4, 2);
        for number in [1, 5] {
            let slot = cache.free(number).unwrap();
            cache.insert(slot, number, Line::clean([0; 64]));
        }
        assert_eq!(cache.free(9), Err(2));
        assert_eq!((cache.find(5), cache.find(9)), (Some(3), None));
        assert!(cache.free(2).is_ok());
    }

    #[test]
    fn lines_taken_in_any_order_leave_the_others() {
        let mut cache = Cache::new(2, 4);
        for number in 0..8 {
            let slot = cache.free(number).unwrap();
            cache.insert(slot, number, Line::clean([0; 64]));
        }
        for number in [3, 0, 7, 6] {
            let slot = cache.find(number).unwrap();
            assert_eq!(cache.take(slot).unwrap().0, number);
            assert!(cache.take(slot).is_none());
        }
        let mut left: Vec<u64> = cache.numbers().collect();
        left.sort_unstable();
        assert_eq!((left, cache.used().len()), (vec![1, 2, 4, 5], 4));
    }
}
