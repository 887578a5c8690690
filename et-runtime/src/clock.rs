//! Time, injected.

use std::fmt;
use std::time::{Duration, Instant};

/// Where the runtime takes the time from. Tests pass their own.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The moment a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    start: Duration,
    after: Duration,
}

impl Deadline {
    /// A deadline `after` from `start`.
    pub(crate) fn from(start: Duration, after: Duration) -> Self {
        Self { start, after }
    }

    /// A deadline `after` from now; a duration too long for the clock means never.
    pub(crate) fn after(clock: &dyn Clock, after: Duration) -> Self {
        Self { start: clock.now(), after }
    }

    /// Time left; zero when the deadline has passed.
    pub(crate) fn left(&self, clock: &dyn Clock) -> Duration {
        self.start.saturating_add(self.after).saturating_sub(clock.now())
    }

    pub(crate) fn has_passed(&self, clock: &dyn Clock) -> bool {
        self.left(clock).is_zero()
    }

    /// What was asked for, for messages.
    pub(crate) fn limit(&self) -> Duration {
        self.after
    }
}
