//! What the device has done for the link so far.

use et_devapi::msg::ops::Times;

use super::super::Activity;

/// What a command has the device do, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel on the shires of a mask.
    Launch(u64),
    /// Bytes that go to the device.
    ToDevice(u64),
    /// Bytes that come from it.
    ToHost(u64),
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Traffic {
    launches: u64,
    to_device_bytes: u64,
    to_host_bytes: u64,
    /// Cycles that the shires of the mask were busy for, besides. Most programs launch on the same
    /// ones again and again.
    recent: (u64, u64),
    busy_cycles: [u64; 32],
}

impl Traffic {
    /// A command has been executed.
    #[inline]
    pub(super) fn done(&mut self, work: Work, times: Option<Times>) {
        match work {
            Work::Launch(shires) => self.ran(shires, times.map_or(0, |times| times.execute)),
            Work::ToDevice(bytes) => self.to_device_bytes += bytes,
            Work::ToHost(bytes) => self.to_host_bytes += bytes,
            Work::Other => {}
        }
    }

    fn ran(&mut self, shires: u64, cycles: u64) {
        self.launches += 1;
        if self.recent.0 != shires {
            self.busy_cycles = self.busy_cycles();
            self.recent = (shires, 0);
        }
        self.recent.1 = self.recent.1.wrapping_add(cycles);
    }

    fn busy_cycles(&self) -> [u64; 32] {
        let (shires, cycles) = self.recent;
        let mut busy = self.busy_cycles;
        for (_, busy) in busy.iter_mut().enumerate().filter(|(n, _)| shires >> n & 1 == 1) {
            *busy = busy.wrapping_add(cycles);
        }
        busy
    }

    pub(super) fn activity(&self) -> Activity {
        Activity {
            launches: self.launches,
            to_device_bytes: self.to_device_bytes,
            to_host_bytes: self.to_host_bytes,
            busy_cycles: self.busy_cycles(),
            ..Activity::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(traffic: &mut Traffic, shires: u64, execute: u64) {
        traffic.done(Work::Launch(shires), Some(Times { start: 1, wait: 2, execute }));
    }

    #[test]
    fn each_shire_is_busy_for_as_long_as_its_kernels_ran() {
        let mut traffic = Traffic::default();
        ran(&mut traffic, 0b11, 10);
        ran(&mut traffic, 0b11, 5);
        ran(&mut traffic, 0b110, 100);
        ran(&mut traffic, 1 << 31 | 1, 1);
        // The shire of the master is no place for kernels, whatever a mask may say.
        ran(&mut traffic, 1 << 32, 7);
        let Activity { launches, busy_cycles, .. } = traffic.activity();
        assert_eq!((launches, &busy_cycles[..4]), (5, &[16, 115, 100, 0][..]));
        assert_eq!((busy_cycles[31], busy_cycles.iter().sum::<u64>()), (1, 232));
        // To look changes nothing.
        assert_eq!(traffic.activity().busy_cycles, busy_cycles);
    }
}
