//! The simulated cycle counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::config::{MachineConfig, Timing};

/// Counts cycles from the making of the machine on.
#[derive(Debug)]
pub(crate) struct Clock {
    timing: Timing,
    started: Instant,
    frequency_mhz: u32,
    /// Instructions of all turns that have ended.
    retired: AtomicU64,
}

impl Clock {
    pub(crate) fn new(config: &MachineConfig) -> Self {
        Self {
            timing: config.effective_timing(),
            started: Instant::now(),
            frequency_mhz: config.frequency_mhz,
            retired: AtomicU64::new(0),
        }
    }

    /// Returns the cycles so far.
    pub(crate) fn cycles(&self) -> u64 {
        match self.timing {
            Timing::HostClock => self.cycles_of(self.started.elapsed()),
            Timing::Deterministic => self.retired.load(Ordering::Relaxed),
        }
    }

    /// Adds the instructions of a turn that has ended.
    pub(crate) fn add_retired(&self, instructions: u64) {
        if self.timing == Timing::Deterministic {
            self.retired.fetch_add(instructions, Ordering::Relaxed);
        }
    }

    /// Cycles in a host time; in 2^32 seconds it wraps for no frequency in use.
    fn cycles_of(&self, time: Duration) -> u64 {
        let mhz = u64::from(self.frequency_mhz);
        let whole = time.as_secs().wrapping_mul(mhz * 1_000_000);
        whole.wrapping_add(u64::from(time.subsec_nanos()) * mhz / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_time_is_scaled_by_the_frequency() {
        let clock = Clock::new(&MachineConfig { frequency_mhz: 600, ..MachineConfig::default() });
        assert_eq!(clock.cycles_of(Duration::from_micros(3_000_001)), 1_800_000_600);
        let before = clock.cycles();
        assert!(clock.cycles() >= before);
    }

    #[test]
    fn deterministic_time_counts_instructions() {
        let timing = Timing::Deterministic;
        let clock = Clock::new(&MachineConfig { timing, ..MachineConfig::default() });
        clock.add_retired(7);
        assert_eq!(clock.cycles(), 7);
    }
}
