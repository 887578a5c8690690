//! The source of every choice of the weak mode, and the hash of what came of them.

/// Distance between the states of a `SplitMix64` generator.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Scrambles a word; one to one (the finaliser of `SplitMix64`).
fn scramble(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// A `SplitMix64` generator.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator of launch `launch` under `seed`.
    pub(super) fn new(seed: u64, launch: u64) -> Self {
        Self { state: scramble(seed ^ GAMMA) ^ scramble(launch.wrapping_add(1)) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        scramble(self.state)
    }

    /// Returns a number below `end`, 0 if `end` is 0. Ends are far below 2^32, so the bias is
    /// without meaning.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 32).wrapping_mul(end as u64) >> 32) as usize
    }

    /// Returns true once in 2^`shift` times.
    pub(super) fn one_in(&mut self, shift: u32) -> bool {
        self.next() & ((1 << shift) - 1) == 0
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// What a [`Trace`] takes note of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Noted {
    /// A hart has a turn of so many instructions.
    Turn,
    /// A line of a minion's L1 was written back or dropped.
    L1,
    /// A line of a shire's L2 was written back or dropped.
    L2,
    /// A hart's atomic or coherent store took effect on a line.
    Change,
}

/// A hash over everything that decides what harts see of one another.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    hash: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { hash: GAMMA }
    }

    pub(super) fn note(&mut self, what: Noted, who: u32, value: u64) {
        let event = (what as u64) << 32 | u64::from(who);
        self.hash = scramble(self.hash ^ event).wrapping_add(value);
    }

    /// Returns the hash; never 0, which stands for no trace.
    pub(super) fn hash(&self) -> u64 {
        scramble(self.hash).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_and_launch_decide_what_is_drawn() {
        let draw = |seed, launch| {
            let mut random = Random::new(seed, launch);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert!(draw(0, 0).iter().all(|&number| number < 1000));
    }

    #[test]
    fn chances_are_what_they_say() {
        let mut random = Random::new(7, 0);
        assert!((0..100).all(|_| random.one_in(0)));
        let hits = (0..8000).filter(|_| random.one_in(3)).count();
        assert!((900..1100).contains(&hits), "{hits}");
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(3, 0).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..50));
    }
}
