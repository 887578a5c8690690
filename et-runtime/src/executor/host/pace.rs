//! How long tasks take, from how fast they come back.

use std::time::Duration;

/// An estimate of the time a task takes a worker.
///
/// The clock is read once for several completions. The estimate falls fast and rises slowly,
/// because a thread that has lost its processor for some milliseconds says nothing about how long
/// tasks take, and on a machine with much to do that is often so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// In nanoseconds; `None` if nothing is known, and tasks may be long.
    task: Option<u32>,
    /// When the completions counted now began.
    since: Option<Duration>,
    counted: u32,
    /// Completions from one reading of the clock to the next.
    every: u32,
}

impl Pace {
    /// Tasks are short below this: to wake another worker for one takes longer than to run several.
    const SHORT: u32 = 1500;
    /// A task counts as no longer than this.
    const LONGEST: u32 = 1_000_000;
    /// Completions from one reading to the next while tasks are short, and while they are not:
    /// enough for a mean of short and long ones, if there are both.
    const WHILE_SHORT: u32 = 32;
    const WHILE_LONG: u32 = 8;

    pub(super) const fn new() -> Self {
        Self { task: None, since: None, counted: 0, every: 1 }
    }

    /// Returns `true` if tasks are known to be short.
    pub(super) fn is_short(&self) -> bool {
        self.task.is_some_and(|task| task < Self::SHORT)
    }

    /// The time a task takes, if known.
    pub(super) fn task(&self) -> Option<Duration> {
        self.task.map(|task| Duration::from_nanos(task.into()))
    }

    /// Nothing runs: the time until the next completion is not that of a task.
    pub(super) fn pause(&mut self) {
        self.since = None;
        self.counted = 0;
    }

    /// A task has come back, while `busy` workers had some.
    #[inline]
    pub(super) fn completion(&mut self, busy: usize, now: impl FnOnce() -> Duration) {
        self.counted += 1;
        if self.counted < self.every && self.since.is_some() {
            return;
        }
        let now = now();
        if let Some(since) = self.since {
            self.learn(now.saturating_sub(since), busy);
        }
        self.since = Some(now);
        self.counted = 0;
    }

    fn learn(&mut self, elapsed: Duration, busy: usize) {
        let each = elapsed.as_nanos() * busy.max(1) as u128 / u128::from(self.counted.max(1));
        let each = u32::try_from(each).unwrap_or(u32::MAX).min(Self::LONGEST);
        let task = match self.task {
            None => each,
            Some(task) => each.clamp(task / 2, task + task / 4 + 16),
        };
        self.task = Some(task);
        self.every = if task < Self::SHORT { Self::WHILE_SHORT } else { Self::WHILE_LONG };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completions in equal distances; returns the readings of the clock.
    fn run(pace: &mut Pace, now: &mut Duration, busy: usize, each: Duration, count: u32) -> u32 {
        let mut readings = 0;
        for _ in 0..count {
            *now += each;
            pace.completion(busy, || {
                readings += 1;
                *now
            });
        }
        readings
    }

    #[test]
    fn long_tasks_are_known_by_the_second_one() {
        let (mut pace, mut now) = (Pace::new(), Duration::from_secs(7));
        assert!(!pace.is_short() && pace.task().is_none());
        run(&mut pace, &mut now, 1, Duration::from_micros(20), 2);
        assert_eq!(pace.task(), Some(Duration::from_micros(20)));
        // Two workers, each as fast as before.
        run(&mut pace, &mut now, 2, Duration::from_micros(10), 50);
        let task = pace.task().unwrap();
        assert!(task > Duration::from_micros(18) && task < Duration::from_micros(22), "{task:?}");
    }

    #[test]
    fn short_tasks_share_readings_and_one_interruption_means_nothing() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        run(&mut pace, &mut now, 1, Duration::from_nanos(150), 1000);
        assert!(pace.is_short());
        let readings = run(&mut pace, &mut now, 1, Duration::from_nanos(150), 1000);
        assert!(readings <= 1 + 1000 / Pace::WHILE_SHORT, "{readings}");
        now += Duration::from_millis(4);
        run(&mut pace, &mut now, 1, Duration::from_nanos(150), 100);
        assert!(pace.is_short());
        // They become long.
        run(&mut pace, &mut now, 1, Duration::from_micros(20), 400);
        assert!(!pace.is_short());
        // And short again, which takes less long than one of the others.
        run(&mut pace, &mut now, 1, Duration::from_nanos(150), 100);
        assert!(pace.is_short());
    }

    #[test]
    fn short_ones_do_not_hide_long_ones() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for _ in 0..200 {
            run(&mut pace, &mut now, 1, Duration::from_nanos(100), 3);
            run(&mut pace, &mut now, 1, Duration::from_micros(200), 1);
        }
        assert!(!pace.is_short(), "{pace:?}");
    }

    #[test]
    fn a_pause_is_no_task() {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        run(&mut pace, &mut now, 1, Duration::from_nanos(300), 200);
        pace.pause();
        now += Duration::from_secs(1);
        run(&mut pace, &mut now, 1, Duration::from_nanos(300), 1);
        assert!(pace.is_short());
    }
}
