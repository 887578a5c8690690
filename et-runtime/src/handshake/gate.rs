//! When the drain thread may sleep.

use std::time::Duration;

use super::Parker;
use crate::sync::{AtomicU64, Ordering};

const ONE_INTEREST: u64 = 1 << 32;
const COUNT_MASK: u64 = ONE_INTEREST - 1;
const CLOSED: u64 = 1 << 62;
const ASLEEP: u64 = 1 << 63;

/// The gate's word at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work(u64);

impl Work {
    /// Returns the number of commands in flight.
    #[must_use]
    pub fn in_flight(self) -> u64 {
        self.0 & COUNT_MASK
    }

    /// Tells whether somebody wants completions without waiting for them (a callback, a future).
    #[must_use]
    pub fn is_awaited(self) -> bool {
        self.0 & (CLOSED - ONE_INTEREST) != 0
    }

    /// Tells whether the device is being closed.
    #[must_use]
    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }
}

/// Counts commands in flight and puts the drain thread to sleep when there are none.
///
/// Count, interest, closing and sleep are bits of one word, so every step is one atomic operation on it
/// and no wake-up can fall between two.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    parker: Parker,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Makes an open gate with nothing in flight.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), parker: Parker::new() }
    }

    /// Returns the present state.
    #[must_use]
    pub fn work(&self) -> Work {
        Work(self.word.load(Ordering::Acquire))
    }

    /// Counts a command in; wakes the drain thread if it sleeps.
    pub fn enter(&self) {
        self.change(1);
    }

    /// Counts a command out.
    pub fn leave(&self) {
        // Release: what the completion did is visible to whoever sees the count fall.
        self.word.fetch_sub(1, Ordering::Release);
    }

    /// Registers interest in completions that nobody waits for, and makes the drain thread look.
    pub fn want(&self) {
        self.change(ONE_INTEREST);
        self.parker.unpark();
    }

    /// Takes one interest back.
    pub fn unwant(&self) {
        self.word.fetch_sub(ONE_INTEREST, Ordering::Release);
    }

    /// Closes the gate: [`sleep`](Gate::sleep) returns at once from now on.
    pub fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
        self.parker.unpark();
    }

    /// Makes the drain thread look, if it naps or sleeps.
    pub fn nudge(&self) {
        self.parker.unpark();
    }

    /// Sleeps until there is something in flight, somebody is interested, or the gate is closed.
    ///
    /// For the drain thread only.
    pub fn sleep(&self) {
        // Only a word of zero may fall asleep: whoever changes it afterwards sees the bit and wakes us.
        if self.word.compare_exchange(0, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        while self.word.load(Ordering::Acquire) == ASLEEP {
            self.parker.park();
        }
        self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
    }

    /// Pauses for `duration`, or until somebody nudges. For the drain thread only.
    pub fn nap(&self, duration: Duration) {
        self.parker.park_timeout(duration);
    }

    fn change(&self, by: u64) {
        // AcqRel: the sleeper sees what was done before, and we see that it sleeps.
        let before = self.word.fetch_add(by, Ordering::AcqRel);
        if before & ASLEEP != 0 {
            self.parker.unpark();
        }
    }
}
