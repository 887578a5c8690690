//! The boot sequences of both endpoints, one status at a time.

use std::time::{Duration, Instant};

use et_hal::{Endpoint, Generation};

use super::registers;
use super::trace;
use crate::board::Slot;
use crate::{BoardError, Fault};

/// Statuses of the management endpoint, in the order of firmware: not in the order of their
/// numbers.
/// Spec: §3.9
const MANAGEMENT: &[i16] = &[0, 1, 2, 3, 4, 5, 6, MM_FW_LAUNCHED, ATU_PROGRAMMED, 10, 9, 11, 12];
/// Statuses of the operations endpoint, in the order of firmware. Spec: §3.9
const OPERATIONS: &[i16] = &[0, 2, 3, DEV_INTF_READY, 4, 5, HOST_VQ_READY, 7, 8];

/// The operations firmware starts to run.
const MM_FW_LAUNCHED: i16 = 7;
/// The host reaches the BARs from now on.
const ATU_PROGRAMMED: i16 = 8;
/// The operations registers are complete, their CRC included.
const DEV_INTF_READY: i16 = 1;
/// The operations rings are ready.
const HOST_VQ_READY: i16 = 6;
/// The operations endpoint serves its queues.
const OPERATIONS_READY: i16 = 8;
/// What a failed endpoint publishes last.
const BOOT_ERROR: i16 = -1;

/// Where both endpoints are in their sequences.
#[derive(Debug)]
pub(crate) struct Boot {
    generation: Generation,
    management: Sequence,
    operations: Sequence,
    step: Duration,
    due: Instant,
}

#[derive(Debug)]
struct Sequence {
    endpoint: Endpoint,
    left: std::slice::Iter<'static, i16>,
    /// Status after which the endpoint does nothing more.
    last: Option<i16>,
    fails: bool,
    stopped: bool,
}

/// What a call of [`Boot::step`] has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    Booting,
    /// Both endpoints have got as far as they will.
    Finished,
}

impl Boot {
    pub(crate) fn new(slot: &Slot, generation: Generation) -> Self {
        let faults = slot.boot_faults();
        Self {
            generation,
            management: Sequence::new(Endpoint::Management, MANAGEMENT, &faults),
            operations: Sequence::new(Endpoint::Operations, OPERATIONS, &faults),
            step: slot.config.boot_step,
            due: Instant::now(),
        }
    }

    /// Makes the steps that are due. What serves an endpoint starts before the host sees that it is
    /// ready: from then on, the rings and the log are not the firmware's alone.
    pub(crate) fn step(
        &mut self,
        slot: &Slot,
        start: &mut dyn FnMut(Endpoint) -> Result<(), BoardError>,
    ) -> Result<Progress, BoardError> {
        while !self.step.is_zero() || !self.is_finished() {
            if self.is_finished() {
                break;
            }
            if self.waits_for_host(slot) {
                return Ok(Progress::Booting);
            }
            if !self.step.is_zero() {
                if Instant::now() < self.due {
                    return Ok(Progress::Booting);
                }
                self.due = Instant::now() + self.step;
            }
            self.one_step(slot, start)?;
        }
        Ok(Progress::Finished)
    }

    /// Returns `true` if nothing goes on before the host has enabled memory space and MSIs, or the
    /// parent is ready. Spec: §4
    fn waits_for_host(&self, slot: &Slot) -> bool {
        self.management.left.as_slice().first() == Some(&ATU_PROGRAMMED)
            && !(slot.host_is_ready() && slot.parent_is_ready())
    }

    /// Returns how long the firmware may sleep before the next step.
    pub(crate) fn next_step(&self, slot: &Slot) -> Duration {
        if self.waits_for_host(slot) {
            return super::LONGEST_SLEEP;
        }
        self.due.saturating_duration_since(Instant::now())
    }

    /// Returns `true` if the operations endpoint serves its queues.
    pub(crate) fn operations_ready(&self) -> bool {
        self.operations.is_ready()
    }

    fn is_finished(&self) -> bool {
        self.management.is_over() && (self.operations.is_over() || !self.operations_launched())
    }

    fn operations_launched(&self) -> bool {
        !self.management.left.as_slice().contains(&MM_FW_LAUNCHED)
    }

    fn one_step(
        &mut self,
        slot: &Slot,
        start: &mut dyn FnMut(Endpoint) -> Result<(), BoardError>,
    ) -> Result<(), BoardError> {
        if let Some(status) = self.management.next() {
            match status {
                0 => registers::write_management(slot)?,
                4 => trace::format_at_boot(&slot.dram),
                ATU_PROGRAMMED => slot.link_up(self.generation),
                _ if self.management.is_ready() => start(Endpoint::Management)?,
                _ => {}
            }
            registers::write_status(slot, Endpoint::Management, status)?;
        }
        if self.operations_launched()
            && let Some(status) = self.operations.next()
        {
            match status {
                DEV_INTF_READY => registers::write_operations(slot)?,
                HOST_VQ_READY => registers::format_operations_rings(slot)?,
                _ if self.operations.is_ready() => start(Endpoint::Operations)?,
                _ => {}
            }
            registers::write_status(slot, Endpoint::Operations, status)?;
        }
        Ok(())
    }
}

/// Publishes the operations endpoint anew, as the master minion does when it starts. Spec: §18
pub(crate) fn restart_operations(
    slot: &Slot,
    start: &mut dyn FnMut(Endpoint) -> Result<(), BoardError>,
) -> Result<(), BoardError> {
    registers::clear_operations(slot)?;
    registers::write_operations(slot)?;
    registers::format_operations_rings(slot)?;
    start(Endpoint::Operations)?;
    // The last status says that all of it is there.
    registers::write_status(slot, Endpoint::Operations, OPERATIONS_READY)
}

impl Sequence {
    fn new(endpoint: Endpoint, statuses: &'static [i16], faults: &[Fault]) -> Self {
        let mut sequence =
            Self { endpoint, left: statuses.iter(), last: None, fails: false, stopped: false };
        for fault in faults {
            match *fault {
                Fault::NeverBoots => sequence.last = Some(0),
                Fault::BootStops { endpoint: of, status } if of == endpoint => {
                    sequence.last = Some(status);
                }
                Fault::BootError { endpoint: of } if of == endpoint => sequence.fails = true,
                Fault::Stuck { .. } if endpoint == Endpoint::Operations => sequence.fails = true,
                _ => {}
            }
        }
        sequence
    }

    fn next(&mut self) -> Option<i16> {
        if self.stopped {
            return None;
        }
        let status = *self.left.next()?;
        // A failing endpoint gives up at its last step, when the host can see it.
        if self.fails && self.left.as_slice().is_empty() {
            self.stopped = true;
            tracing::debug!(endpoint = ?self.endpoint, "boot fails, as told");
            return Some(BOOT_ERROR);
        }
        self.stopped = self.last == Some(status);
        Some(status)
    }

    fn is_over(&self) -> bool {
        self.stopped || self.left.as_slice().is_empty()
    }

    fn is_ready(&self) -> bool {
        self.left.as_slice().is_empty() && !self.fails
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use et_devapi::discovery;
    use et_devapi::msg::ops::Command;
    use et_devapi::msg::{CommandFlags, Tag};
    use et_devapi::ring::{Consumer, Producer};
    use et_hal::{BarOffset, Mmio, Push};
    use et_sim_cores::Dram;

    use super::super::{MasterMinion, ServiceProcessor};
    use super::*;
    use crate::compute::NullCompute;
    use crate::{BoardConfig, ComputeKind};

    fn slot() -> Arc<Slot> {
        let config = BoardConfig {
            dram_bytes: 256 << 20,
            compute: ComputeKind::Null,
            ..BoardConfig::default()
        };
        let dram = Arc::new(Dram::new(config.dram_bytes).unwrap());
        Slot::new(config, dram, None).unwrap()
    }

    #[test]
    fn an_endpoint_is_served_before_the_host_sees_that_it_is_ready() {
        let slot = slot();
        let statuses = || {
            let mgmt = discovery::mgmt_status(&slot.page).unwrap();
            (i16::from(mgmt), i16::from(discovery::ops_status(&slot.page).unwrap()))
        };
        let mut seen = Vec::new();
        let mut start = |endpoint| {
            seen.push((endpoint, statuses()));
            Ok(())
        };
        let progress = Boot::new(&slot, Generation(0)).step(&slot, &mut start).unwrap();
        assert_eq!((progress, statuses()), (Progress::Finished, (12, OPERATIONS_READY)));
        restart_operations(&slot, &mut start).unwrap();
        assert_eq!(statuses(), (12, OPERATIONS_READY));
        let (sp, mm) = (Endpoint::Management, Endpoint::Operations);
        assert_eq!(seen, [(sp, (11, 4)), (mm, (12, 7)), (mm, (12, 0))]);
    }

    #[test]
    fn nothing_that_the_host_writes_into_empty_rings_keeps_an_endpoint_from_starting() {
        let slot = slot();
        let page = &slot.page;
        let (mut sp, mut mm) = (None, None);
        let mut start = |endpoint| {
            // All that is in the mailboxes besides the registers.
            page.write_bytes(BarOffset::new(0x100), &[0xff; 0xf00]).unwrap();
            page.write_bytes(BarOffset::new(0x1200), &[0xff; 0xe00]).unwrap();
            match endpoint {
                Endpoint::Management => sp = Some(ServiceProcessor::new(&slot)?),
                _ => mm = Some(MasterMinion::new(&slot, Box::new(NullCompute::new(600)))?),
            }
            Ok(())
        };
        Boot::new(&slot, Generation(0)).step(&slot, &mut start).unwrap();
        assert!(sp.is_some());
        // They serve a host that mends what it has done.
        registers::format_operations_rings(&slot).unwrap();
        let mut message = [0; 64];
        let len = Command::Echo.encode(Tag::new(1), CommandFlags::EMPTY, &mut message).unwrap();
        let mut to = Producer::attach(registers::submission(0).unwrap(), page).unwrap();
        assert_eq!(to.push(page, &message[..len]).unwrap(), Push::Accepted);
        slot.bell.ring(Endpoint::Operations);
        assert!(mm.unwrap().step());
        let mut from = Consumer::attach(registers::completion().unwrap(), page).unwrap();
        assert_ne!(from.used(page).unwrap(), 0);
    }
}
