//! How long to look before sleeping.

use std::time::{Duration, Instant};

/// A sleep shorter than this was not worth it: to be woken takes about as long.
const SHORT: Duration = Duration::from_micros(200);
/// How far the number of looks may grow.
const GROWTH: u32 = 16;

/// How often to look for something before sleeping, learned from how long sleeps are.
///
/// Two threads that hand work to one another and both fall asleep just before the other is awake
/// would pay for two wake-ups each time, for ever. So a short sleep doubles the number of looks, up
/// to 16 times the base, and a long one halves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    base: u32,
    looks: u32,
}

impl Patience {
    /// Starts with `looks`, and never goes below; none at all if 0.
    #[must_use]
    pub const fn new(looks: u32) -> Self {
        Self { base: looks, looks }
    }

    /// Returns how often to look.
    #[must_use]
    pub const fn looks(&self) -> u32 {
        self.looks
    }

    /// Sleeps by `sleep`, and learns from it.
    pub fn asleep(&mut self, sleep: impl FnOnce()) {
        if self.base == 0 {
            return sleep();
        }
        let start = Instant::now();
        sleep();
        self.learn(start.elapsed());
    }

    fn learn(&mut self, slept: Duration) {
        let looks = if slept < SHORT { self.looks.saturating_mul(2) } else { self.looks / 2 };
        self.looks = looks.clamp(self.base, self.base.saturating_mul(GROWTH));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_make_it_patient_and_long_ones_do_not() {
        let mut patience = Patience::new(100);
        for _ in 0..9 {
            patience.learn(Duration::from_micros(70));
        }
        assert_eq!(patience.looks(), 1600);
        patience.learn(Duration::from_millis(1));
        assert_eq!(patience.looks(), 800);
        for _ in 0..9 {
            patience.learn(Duration::from_secs(1));
        }
        assert_eq!(patience.looks(), 100);
    }

    #[test]
    fn there_is_a_limit_to_patience() {
        let mut patience = Patience::new(1 << 30);
        for _ in 0..3 {
            patience.learn(Duration::from_micros(70));
        }
        assert_eq!(patience.looks(), u32::MAX);
    }
}
