//! What is known of the device's clock.

use std::time::Duration;

use crate::timeline::Timeline;

/// Where the device's cycle counter is on the host's clock.
///
/// Each command bounds it: the device took it up after the host had sent it, and had finished it
/// before the host saw the answer. What all of them allow together is the error. Both clocks are
/// taken to run evenly; if they do not, so that no position fits all commands, the error is half
/// the distance by which they disagree, and [`is_consistent`](Self::is_consistent) is `false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockFit {
    frequency_mhz: u32,
    /// Nanoseconds of the host minus those of the device: at least and at most.
    bounds: Option<(i128, i128)>,
}

impl ClockFit {
    /// Creates one that knows nothing yet.
    #[must_use]
    pub const fn new(frequency_mhz: u32) -> Self {
        Self { frequency_mhz, bounds: None }
    }

    /// Takes the times of an operation into account.
    pub fn add(&mut self, timeline: &Timeline) {
        let Some(device) = timeline.device else { return };
        if self.frequency_mhz == 0 {
            return;
        }
        let host = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let end = device.start.wrapping_add(device.wait).wrapping_add(device.execute);
        let at_least = host(timeline.sent) - self.nanos(device.start);
        let at_most = host(timeline.completed) - self.nanos(end);
        let (low, high) = self.bounds.unwrap_or((i128::MIN, i128::MAX));
        self.bounds = Some((low.max(at_least), high.min(at_most)));
    }

    fn nanos(&self, cycles: u64) -> i128 {
        i128::from(cycles) * 1000 / i128::from(self.frequency_mhz.max(1))
    }

    /// Returns the host's time of a cycle, `None` before the first command. It may be before the
    /// host's clock began, and is 0 then.
    #[must_use]
    pub fn host_time(&self, cycle: u64) -> Option<Duration> {
        let (low, high) = self.bounds?;
        let nanos = self.nanos(cycle) + i128::midpoint(low, high);
        Some(Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)))
    }

    /// Returns how far [`host_time`](Self::host_time) may be off.
    #[must_use]
    pub fn error(&self) -> Option<Duration> {
        let (low, high) = self.bounds?;
        let half = high.abs_diff(low).div_ceil(2);
        Some(Duration::from_nanos(u64::try_from(half).unwrap_or(u64::MAX)))
    }

    /// Returns `true` if one position fits all commands.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.bounds.is_none_or(|(low, high)| low <= high)
    }
}

#[cfg(test)]
mod tests {
    use et_devapi::msg::ops::Times;

    use super::*;

    fn timeline(sent: u64, completed: u64, start: u64, execute: u64) -> Timeline {
        let time = Duration::from_nanos;
        let device = Some(Times { start, wait: 0, execute });
        Timeline { queued: time(sent), sent: time(sent), completed: time(completed), device }
    }

    #[test]
    fn each_command_narrows_the_position_of_the_clock() {
        // 1 GHz: a cycle is a nanosecond. The device is 1000 ahead of the host.
        let mut fit = ClockFit::new(1000);
        assert_eq!((fit.host_time(5), fit.error()), (None, None));
        fit.add(&timeline(100, 400, 1150, 50));
        // The start was at 100 or later, the end at 1200 at 400 or earlier.
        assert_eq!(fit.error(), Some(Duration::from_nanos(125)));
        fit.add(&timeline(500, 620, 1510, 100));
        assert_eq!(fit.error(), Some(Duration::from_nanos(10)));
        let at = fit.host_time(1600).unwrap();
        assert!(at.abs_diff(Duration::from_nanos(600)) <= Duration::from_nanos(10), "{at:?}");
        assert!(fit.is_consistent());
        // A clock that jumps fits no more.
        fit.add(&timeline(1000, 1100, 3000, 10));
        assert!(!fit.is_consistent());
    }
}
