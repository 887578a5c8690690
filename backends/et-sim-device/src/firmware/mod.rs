//! The firmware of both endpoints, on one thread.
//!
//! Each worker of the real firmware is a state machine in a file of its own; the event loop here
//! gives them turns, keeps looking for a short while when there is nothing to do, and then sleeps
//! until a doorbell, a finished kernel or an order from the board's owner.

mod abort;
mod boot;
mod cm_reset;
mod cq;
mod dma;
mod exception;
mod forward;
pub(crate) use exception::Dump;
mod hpsq;
mod kernel;
mod log;
mod mm;
mod registers;
mod sp;
mod sq;
#[cfg(test)]
mod tests;
mod trace;
mod user_trace;
pub(crate) use sp::Flash;
pub use sp::{FirmwareImage, ImageError};
pub(crate) use user_trace::UserTrace;

use std::hint;
use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::msg::Tag;
use et_hal::{Endpoint, Generation};

use self::boot::{Boot, Progress};
use self::mm::MasterMinion;
use self::sp::{Order, ServiceProcessor};
use crate::board::{Control, MemoryAfterReset, Slot, Stats};
use crate::compute::Compute;
use crate::{BoardError, Fault};

/// Longest sleep: nothing happens without an event, this only bounds the damage of a bug.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// Rounds of looking between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// The same, and between two looks at the doorbells of other processes, if there are such: a look
/// is a system call.
const LOOKS_PER_LINE: u32 = 4;
/// Steps between two looks at the doorbells of other processes.
const STEPS_PER_LOOK: u32 = 8;

/// The firmware and the loop that runs it.
#[derive(Debug)]
pub(crate) struct Firmware {
    slot: Arc<Slot>,
    boot: Boot,
    booted: bool,
    /// Not running before the boot is over.
    mm: Option<MasterMinion>,
    sp: Option<ServiceProcessor>,
    /// Here while `mm` is not there.
    compute: Option<Box<dyn Compute>>,
    /// How long to look for work before sleeping; adapts between an eighth and the whole of the
    /// configured time.
    spin: Duration,
}

impl Firmware {
    pub(crate) fn new(slot: Arc<Slot>, compute: Box<dyn Compute>) -> Self {
        let generation = slot.generation();
        slot.reset_parent(MemoryAfterReset::Cleared);
        Self {
            boot: Boot::new(&slot, generation),
            booted: false,
            mm: None,
            sp: None,
            compute: Some(compute),
            spin: slot.config.spin,
            slot,
        }
    }

    /// Runs until the board is powered off.
    pub(crate) fn run(mut self) {
        let slot = Arc::clone(&self.slot);
        let mut steps = 0_u32;
        loop {
            // A busy thread hears doorbells of other processes too, but need not ask each time.
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(STEPS_PER_LOOK) {
                slot.bell.look();
            }
            let seen = slot.bell.epoch();
            match slot.take_control() {
                Some(Control::Stop) => return self.power_off(),
                Some(Control::Reset(memory)) => self.reset(memory),
                Some(Control::Fault) => self.take_faults(),
                None => {}
            }
            let busy = self.step();
            slot.interrupts.flush();
            if !busy {
                self.idle(seen);
            }
        }
    }

    /// Does what can be done now; returns `true` if anything was.
    fn step(&mut self) -> bool {
        if !self.booted {
            return self.step_boot();
        }
        let mut busy = false;
        if let Some(mm) = &mut self.mm {
            busy |= mm.step();
        }
        let computes = self.mm.as_ref().is_some_and(MasterMinion::computes);
        let moved = self.mm.as_ref().map_or([0; 2], MasterMinion::moved);
        let failed = self.mm.as_mut().map_or_else(Vec::new, MasterMinion::take_failed);
        let mut order = None;
        if let Some(sp) = &mut self.sp {
            failed.into_iter().for_each(|failed| sp.command_failed(failed));
            busy |= sp.step(computes, moved);
            order = sp.take_order();
        }
        match order {
            Some(Order::ResetOperations(tag)) => self.reset_operations(tag),
            Some(Order::ResetChip) => self.reset_chip(),
            None => {}
        }
        busy
    }

    fn step_boot(&mut self) -> bool {
        let Self { slot, boot, mm, sp, compute, .. } = self;
        let mut start = |endpoint| match endpoint {
            Endpoint::Management => ServiceProcessor::new(slot).map(|new| *sp = Some(new)),
            _ => start_operations(slot, compute, mm),
        };
        match boot.step(slot, &mut start) {
            Ok(Progress::Booting) => false,
            Ok(Progress::Finished) => {
                self.booted = true;
                true
            }
            Err(error) => {
                // The registers stay as they are: for the host, a device that does not boot.
                tracing::error!(error = &error as &dyn std::error::Error, "firmware cannot start");
                self.booted = true;
                true
            }
        }
    }

    /// Looks for an event for a while, then sleeps until there is one.
    fn idle(&mut self, seen: u32) {
        let bell = &self.slot.bell;
        let limit = self.next_attempt();
        let patience = self.spin.min(limit);
        let started = Instant::now();
        let looks = if bell.has_lines() { LOOKS_PER_LINE } else { LOOKS_PER_CLOCK };
        while !patience.is_zero() {
            for _ in 0..looks {
                if bell.epoch() != seen {
                    // Looking was worth while.
                    self.spin = (self.spin * 2).min(self.slot.config.spin);
                    return;
                }
                hint::spin_loop();
            }
            if started.elapsed() >= patience {
                break;
            }
            // The other endpoint is in no hurry; sleep hears both.
            bell.look_at(Endpoint::Operations);
        }
        if limit <= patience {
            bell.look();
            return;
        }
        self.spin = (self.spin / 2).max(self.slot.config.spin / 8);
        Stats::add(&self.slot.stats.sleeps, 1);
        bell.wait(seen, limit - patience);
    }

    /// Returns how long nothing needs to be done without an event.
    fn next_attempt(&self) -> Duration {
        if !self.booted {
            return self.boot.next_step(&self.slot);
        }
        let mm = self.mm.as_ref().and_then(MasterMinion::next_attempt);
        let sp = self.sp.as_ref().and_then(ServiceProcessor::next_look);
        mm.into_iter().chain(sp).min().unwrap_or(LONGEST_SLEEP)
    }

    fn stop_compute(&mut self) -> Option<Box<dyn Compute>> {
        let mut compute = match self.mm.take() {
            Some(mm) => Some(mm.into_compute()),
            None => self.compute.take(),
        };
        if let Some(compute) = &mut compute {
            compute.reset();
        }
        compute
    }

    /// Everything in flight is lost; the device boots again.
    fn reset(&mut self, memory: MemoryAfterReset) {
        let generation = self.slot.generation();
        self.restart(generation, memory);
        self.slot.reset_finished(generation);
        tracing::debug!(generation = generation.0, "function reset");
    }

    fn restart(&mut self, generation: Generation, memory: MemoryAfterReset) {
        self.compute = self.stop_compute();
        self.slot.reset_parent(memory);
        self.sp = None;
        if let Err(error) = registers::clear(&self.slot) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "registers cannot be cleared"
            );
        }
        if memory == MemoryAfterReset::Cleared {
            self.slot.clear_memory();
        }
        self.slot.flash().boot();
        self.boot = Boot::new(&self.slot, generation);
        self.booted = false;
    }

    /// The master minion starts anew; the memory stays. Spec: §18
    fn reset_operations(&mut self, tag: Tag) {
        let hung = self.mm.as_ref().is_some_and(MasterMinion::is_hung);
        self.compute = self.stop_compute();
        self.slot.reset_parent(MemoryAfterReset::Kept);
        let mut is_back = self.boot.operations_ready() && !self.slot.is_stuck();
        if is_back {
            let Self { slot, mm, compute, .. } = self;
            let mut start = |_| start_operations(slot, compute, mm);
            let started = boot::restart_operations(slot, &mut start);
            if let Err(error) = &started {
                let error = error as &dyn std::error::Error;
                tracing::error!(error, "operations firmware cannot start again");
            }
            is_back = started.is_ok();
        }
        if let Some(sp) = &mut self.sp {
            sp.operations_reset(tag, hung, is_back);
        }
        tracing::debug!(is_back, "operations reset");
    }

    /// Everything starts anew, by itself: nothing is answered, and the memory is lost. Spec: §18
    fn reset_chip(&mut self) {
        let generation = self.slot.generation();
        self.slot.chip_reset(generation);
        self.restart(generation, MemoryAfterReset::Cleared);
        tracing::debug!("chip reset");
    }

    /// Starts to do wrong what the owner of the board asks for.
    fn take_faults(&mut self) {
        self.slot.take_faults(|fault| {
            tracing::debug!(%fault, "injected");
            match fault {
                Fault::LinkLoss { after } => self.slot.lose_link(after),
                Fault::SpuriousInterrupts { .. } | Fault::LostInterrupts { .. } => {
                    self.slot.interrupts.add_fault(fault);
                }
                fault => {
                    if let Some(mm) = &mut self.mm {
                        mm.add_fault(fault);
                    }
                    if let Some(sp) = &mut self.sp {
                        sp.add_fault(fault);
                    }
                }
            }
        });
    }

    fn power_off(mut self) {
        drop(self.stop_compute());
    }
}

fn start_operations(
    slot: &Arc<Slot>,
    compute: &mut Option<Box<dyn Compute>>,
    mm: &mut Option<MasterMinion>,
) -> Result<(), BoardError> {
    if let Some(compute) = compute.take() {
        *mm = Some(MasterMinion::new(slot, compute)?);
    }
    Ok(())
}
