//! A counter that threads can sleep on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Waited {
    /// The event was raised after the point the waiter had seen.
    Raised,
    /// The timeout passed.
    TimedOut,
}

/// Counts occurrences; a waiter names the count it has seen and sleeps until it changes.
///
/// Raising costs no system call while no thread sleeps. Occurrences coalesce, and none is lost: an
/// occurrence after [`epoch`](Self::epoch) ends a later [`wait`](Self::wait) at once.
#[derive(Debug, Default)]
pub struct Event {
    /// Occurrences so far, modulo 2³².
    epoch: AtomicU32,
    /// Threads that sleep or are about to.
    sleepers: AtomicU32,
}

impl Event {
    /// Creates an event that has not occurred yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    /// Returns the present count, modulo 2³².
    ///
    /// # Ordering
    /// Acquire: what was done before the occurrences counted here is visible afterwards.
    #[must_use]
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Adds an occurrence and wakes every sleeper.
    ///
    /// # Ordering
    /// Release: what was done before is visible to a thread that sees the new count.
    #[inline]
    pub fn raise(&self) {
        // SeqCst on both sides: either this thread sees the sleeper, or the sleeper sees the count.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake_all();
        }
    }

    /// Sleeps until the count differs from `seen`, at most for `timeout`.
    pub fn wait(&self, seen: u32, timeout: Duration) -> Waited {
        if self.epoch() != seen {
            return Waited::Raised;
        }
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.wait(seen, Duration::from_secs(1 << 30));
        };
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if self.epoch.load(Ordering::SeqCst) != seen {
                break Waited::Raised;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Waited::TimedOut;
            }
            self.sleep_once(seen, left);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        result
    }

    #[cold]
    fn wake_all(&self) {
        // It can only fail for an address that is not mapped.
        let woken = futex::wake(&self.epoch, futex::Flags::PRIVATE, u32::MAX >> 1);
        debug_assert!(woken.is_ok());
    }

    /// Sleeps once; returns early for any reason, the caller looks again.
    fn sleep_once(&self, seen: u32, left: Duration) {
        let limit = futex::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        // "Not equal", "interrupted" and "timed out" all mean: look again.
        let (Ok(()) | Err(_)) = futex::wait(&self.epoch, futex::Flags::PRIVATE, seen, Some(&limit));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_wait_for_the_past_returns_at_once() {
        let event = Event::new();
        let seen = event.epoch();
        event.raise();
        assert_eq!(event.wait(seen, Duration::from_secs(3600)), Waited::Raised);
    }

    #[test]
    fn a_wait_ends_by_its_timeout() {
        let event = Event::new();
        assert_eq!(event.wait(event.epoch(), Duration::from_millis(2)), Waited::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let event = Arc::new(Event::new());
        let seen = event.epoch();
        let sleeper = {
            let event = Arc::clone(&event);
            thread::spawn(move || event.wait(seen, Duration::from_secs(3600)))
        };
        event.raise();
        assert_eq!(sleeper.join().unwrap(), Waited::Raised);
    }

    #[test]
    fn an_endless_timeout_does_not_overflow() {
        let event = Event::new();
        let seen = event.epoch();
        event.raise();
        assert_eq!(event.wait(seen, Duration::MAX), Waited::Raised);
    }
}
