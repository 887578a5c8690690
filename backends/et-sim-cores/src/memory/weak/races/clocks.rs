//! What each hart knows to have happened: vector clocks.
//!
//! A hart's own time goes on when it releases something. An access at time *t* of hart *a* comes
//! before what hart *b* does if *b* knows of *a*'s time *t*.

use std::collections::HashMap;

use crate::memory::map::HART_SLOTS;

/// Words whose clocks are kept apart. All others share one: they order more than they should, so
/// races may be missed, and none is made up.
const MOST_WORDS: usize = 4096;

/// The times of all harts of the launch that one knows of.
pub(super) type Times = Box<[u32]>;

/// What harts release and acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sync {
    /// A word that is changed by global atomics, or those of a shire; by its line and place there.
    Word(Option<u32>, u64, u8),
    /// Any of the words that have no clock of their own.
    AnyWord,
    /// A fast local barrier of a shire.
    Barrier(u32, u8),
    /// A hart's credit counter.
    Credit(u32, bool),
    /// A message of a tensor unit, from one hart to another.
    Message(u32, u32),
    /// The host, which sees what is in memory, and may tell others.
    Host,
}

impl Sync {
    /// The barrier that a value written to the register names.
    pub(crate) fn barrier(shire: u32, value: u64) -> Self {
        Self::Barrier(shire, (value & 31) as u8)
    }

    pub(crate) fn credit(hart: u32, counter: usize) -> Self {
        Self::Credit(hart, counter & 1 != 0)
    }
}

/// The clocks of harts, and of what they synchronise by.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// Where the times of a hart are: of few harts they are few.
    places: Box<[u16]>,
    harts: Box<[Times]>,
    syncs: HashMap<Sync, Times>,
    words: usize,
}

fn join(into: &mut [u32], from: &[u32]) {
    for (into, &from) in into.iter_mut().zip(from) {
        *into = from.max(*into);
    }
}

impl Clocks {
    /// Starts a launch, in which no hart knows of another.
    pub(super) fn start(&mut self, harts: &[u32]) {
        *self = Self::default();
        self.places = vec![u16::MAX; HART_SLOTS as usize].into_boxed_slice();
        for (place, &hart) in (0..).zip(harts) {
            self.places[hart as usize] = place;
        }
        let times = |place| {
            let mut times = vec![0; harts.len()].into_boxed_slice();
            times[place] = 1;
            times
        };
        self.harts = (0..harts.len()).map(times).collect();
    }

    fn place(&self, hart: u32) -> usize {
        self.places[hart as usize].into()
    }

    /// Returns the time of a hart.
    pub(super) fn now(&self, hart: u32) -> u32 {
        let place = self.place(hart);
        self.harts[place][place]
    }

    /// Returns `true` if what `other` did at `time` comes before what `hart` does now.
    pub(super) fn is_before(&self, other: u16, time: u32, hart: u32) -> bool {
        self.harts[self.place(hart)][self.place(other.into())] >= time
    }

    /// Returns what a hart knows, for a release that takes effect later; its time goes on.
    pub(super) fn snapshot(&mut self, hart: u32) -> Times {
        let snapshot = self.harts[self.place(hart)].clone();
        self.advance(hart);
        snapshot
    }

    fn advance(&mut self, hart: u32) {
        let place = self.place(hart);
        self.harts[place][place] += 1;
    }

    /// What stands for `sync`: itself, unless there are too many.
    fn key(&mut self, sync: Sync) -> Sync {
        if !matches!(sync, Sync::Word(..)) || self.syncs.contains_key(&sync) {
            return sync;
        }
        if self.words == MOST_WORDS {
            return Sync::AnyWord;
        }
        self.words += 1;
        sync
    }

    fn add(&mut self, sync: Sync, times: &[u32]) {
        let key = self.key(sync);
        let of = self.syncs.entry(key).or_insert_with(|| vec![0; times.len()].into());
        join(of, times);
    }

    /// Makes what a hart knows known to those who acquire `sync`.
    pub(super) fn release(&mut self, hart: u32, sync: Sync) {
        let place = self.place(hart);
        let times = std::mem::take(&mut self.harts[place]);
        self.add(sync, &times);
        self.harts[place] = times;
        self.advance(hart);
    }

    /// Makes known what was known when a snapshot was taken.
    pub(super) fn release_snapshot(&mut self, snapshot: &[u32], sync: Sync) {
        self.add(sync, snapshot);
    }

    /// Makes what was released to one known to those who acquire the other, but for what harts did
    /// at the times that are `unseen`, and later.
    pub(super) fn forward(
        &mut self,
        from: Sync,
        to: Sync,
        unseen: impl Iterator<Item = (u16, u32)>,
    ) {
        let Some(mut times) = self.syncs.get(&from).cloned() else { return };
        for (hart, time) in unseen {
            let known = &mut times[self.place(hart.into())];
            *known = time.saturating_sub(1).min(*known);
        }
        self.add(to, &times);
    }

    /// Lets a hart know of what was released to `sync`.
    pub(super) fn acquire(&mut self, hart: u32, sync: Sync) {
        let place = self.place(hart);
        let of = match sync {
            Sync::Word(..) => self.syncs.get(&sync).or_else(|| self.syncs.get(&Sync::AnyWord)),
            _ => self.syncs.get(&sync),
        };
        if let Some(of) = of {
            join(&mut self.harts[place], of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks() -> Clocks {
        let mut clocks = Clocks::default();
        clocks.start(&[0, 1, 70]);
        clocks
    }

    #[test]
    fn what_is_released_is_known_to_who_acquires() {
        let mut clocks = clocks();
        let (barrier, credit) = (Sync::Barrier(0, 3), Sync::Credit(70, false));
        let time = clocks.now(0);
        assert!(clocks.is_before(0, time, 0) && !clocks.is_before(0, time, 1));
        clocks.release(0, barrier);
        clocks.acquire(1, Sync::Barrier(0, 4));
        assert!(!clocks.is_before(0, time, 1), "another barrier");
        clocks.acquire(1, barrier);
        assert!(clocks.is_before(0, time, 1));
        assert!(!clocks.is_before(0, clocks.now(0), 1), "what it does after the release");
        clocks.release(1, credit);
        clocks.acquire(70, credit);
        assert!(clocks.is_before(0, time, 70), "and what others knew");
    }

    #[test]
    fn snapshots_are_of_when_they_were_taken() {
        let mut clocks = clocks();
        let word = Sync::Word(None, 9, 8);
        let (first, snapshot) = (clocks.now(0), clocks.snapshot(0));
        let second = clocks.now(0);
        clocks.acquire(1, word);
        assert!(!clocks.is_before(0, first, 1), "it has no effect yet");
        clocks.release_snapshot(&snapshot, word);
        clocks.acquire(1, word);
        assert!(clocks.is_before(0, first, 1) && !clocks.is_before(0, second, 1));
    }

    #[test]
    fn what_is_unseen_is_not_forwarded() {
        let mut clocks = clocks();
        let (first, _) = (clocks.now(70), clocks.snapshot(70));
        let (second, _) = (clocks.now(70), clocks.snapshot(70));
        clocks.release(70, Sync::Host);
        let word = Sync::Word(None, 9, 8);
        clocks.forward(Sync::Host, word, [(70, second)].into_iter());
        clocks.acquire(1, word);
        assert!(clocks.is_before(70, first, 1) && !clocks.is_before(70, second, 1));
        clocks.forward(Sync::Host, word, std::iter::empty());
        clocks.acquire(1, word);
        assert!(clocks.is_before(70, second, 1));
    }

    #[test]
    fn many_words_order_too_much_and_never_too_little() {
        let mut clocks = clocks();
        for line in 0..2 * MOST_WORDS as u64 {
            clocks.release(0, Sync::Word(None, line, 0));
        }
        assert_eq!(clocks.syncs.len(), MOST_WORDS + 1);
        let time = clocks.now(70);
        clocks.release(70, Sync::Word(None, 1 << 40, 0));
        clocks.acquire(1, Sync::Word(None, 5, 0));
        assert!(!clocks.is_before(70, time, 1), "a word of its own");
        clocks.acquire(1, Sync::Word(None, 1 << 41, 0));
        assert!(clocks.is_before(70, time, 1));
    }
}
