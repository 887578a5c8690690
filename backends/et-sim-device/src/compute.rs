//! What executes kernels: the simulated cores, or nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Launch, LaunchPayload, MAX_LAUNCH_PAYLOAD};
use et_hal::DeviceAddr;
use et_sim_cores::{Dram, LaunchReport, Scratchpads};

use crate::board::Slot;
use crate::cores::Cores;
use crate::firmware::UserTrace;
use crate::{BoardConfig, BoardError, ComputeKind, ForwardedEnd, ForwardedLaunch, Parent};

/// A kernel to be started, with everything checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Address of the first instruction.
    pub(crate) entry: u64,
    /// What the kernel finds in `a0`.
    pub(crate) args: u64,
    /// Address of the kernel environment, what the kernel finds in `a1`.
    pub(crate) environment: u64,
    /// Shires to run on.
    pub(crate) shire_mask: u64,
    /// Where the stack of compute hart 0 begins; stacks grow down.
    pub(crate) stack_top: u64,
    /// Distance between the stacks of neighbouring harts, in bytes.
    pub(crate) stack_bytes_per_hart: u64,
    /// Bytes at the low end of each stack that trap, 0 for none.
    pub(crate) stack_guard_bytes: u64,
    /// Where failed harts leave their state, 0 for nowhere.
    pub(crate) exception_buffer: u64,
    /// What harts trace, and where to.
    pub(crate) trace: UserTrace,
    /// The optional parts as they came, for whom the launch is passed on to.
    pub(crate) parts: LaunchParts,
}

/// The optional parts of a launch, as they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchParts {
    pub(crate) flags: CommandFlags,
    pub(crate) bytes: [u8; MAX_LAUNCH_PAYLOAD],
    pub(crate) len: usize,
}

/// What a launch has ended with.
#[derive(Debug)]
pub(crate) enum Report {
    /// The cores have executed it.
    Own(LaunchReport),
    /// The parent has answered it.
    Forwarded(ForwardedEnd),
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// The report will come to the [`Reports`].
    Running,
    /// All harts have returned 0 already.
    Completed,
    /// The cores did not take the kernel.
    Refused,
}

/// What the firmware needs from the compute side.
pub(crate) trait Compute: Send + fmt::Debug {
    /// Returns `true` if harts leave their state in the exception buffer themselves, when they
    /// fail.
    fn dumps_failures(&self) -> bool {
        false
    }

    /// Starts a kernel; at most one runs at a time. `number` comes back with the report.
    fn start(&mut self, start: &Start, number: u64, reports: &Arc<Reports>) -> Started;
    /// Stops the running kernel; its report still comes, unless harts go on sleeping.
    fn abort(&mut self);
    /// Returns the shires of the harts left in the kernel if all of them sleep, otherwise 0.
    fn sleeping_shires(&self) -> u64;
    /// Stops whatever runs and resets the cores; a report that still comes must be ignored.
    fn reset(&mut self);
    /// Returns the cycle counter.
    fn cycles(&self) -> u64;
    /// Tells that device memory was changed behind the cores' back.
    fn memory_changed(&mut self);
    /// Returns the L2 scratchpads, if there are any.
    fn scratchpads(&self) -> Option<&Scratchpads>;
}

/// Builds what the configuration asks for.
pub(crate) fn build(
    config: &BoardConfig,
    dram: &Arc<Dram>,
) -> Result<Box<dyn Compute>, BoardError> {
    Ok(match config.compute {
        ComputeKind::Cores => Box::new(Cores::new(config, dram)?),
        ComputeKind::Null => Box::new(NullCompute::new(config.frequency_mhz)),
    })
}

/// No cores: every kernel is over as soon as it starts.
#[derive(Debug)]
pub(crate) struct NullCompute {
    powered_on: Instant,
    frequency_mhz: u64,
}

impl NullCompute {
    pub(crate) fn new(frequency_mhz: u32) -> Self {
        Self { powered_on: Instant::now(), frequency_mhz: frequency_mhz.into() }
    }
}

impl Compute for NullCompute {
    fn start(&mut self, _: &Start, _: u64, _: &Arc<Reports>) -> Started {
        Started::Completed
    }

    fn abort(&mut self) {}

    fn sleeping_shires(&self) -> u64 {
        0
    }

    fn reset(&mut self) {}

    fn cycles(&self) -> u64 {
        let up = self.powered_on.elapsed();
        let whole = up.as_secs().wrapping_mul(self.frequency_mhz * 1_000_000);
        whole.wrapping_add(u64::from(up.subsec_nanos()) * self.frequency_mhz / 1000)
    }

    fn memory_changed(&mut self) {}

    fn scratchpads(&self) -> Option<&Scratchpads> {
        None
    }
}

/// The cores of another card.
#[derive(Debug)]
pub(crate) struct Mediated {
    parent: Arc<dyn Parent>,
    clock: NullCompute,
}

impl Mediated {
    pub(crate) fn new(parent: Arc<dyn Parent>, frequency_mhz: u32) -> Self {
        Self { parent, clock: NullCompute::new(frequency_mhz) }
    }
}

impl Compute for Mediated {
    fn start(&mut self, start: &Start, number: u64, reports: &Arc<Reports>) -> Started {
        let optional = |address: u64| (address != 0).then_some(DeviceAddr::new(address));
        let launch = Launch {
            entry: DeviceAddr::new(start.entry),
            args: optional(start.args),
            exception_buffer: optional(start.exception_buffer),
            shire_mask: start.shire_mask,
            payload: &[],
        };
        let parts = &start.parts;
        let bytes = parts.bytes.get(..parts.len).unwrap_or_default();
        let Ok(payload) = LaunchPayload::received(parts.flags, bytes) else {
            return Started::Refused;
        };
        let flush_l3 = parts.flags.contains(CommandFlags::FLUSH_L3);
        self.parent.launch(ForwardedLaunch::new(launch, payload, flush_l3, number, reports));
        Started::Running
    }

    fn abort(&mut self) {
        self.parent.abort_launch();
    }

    fn sleeping_shires(&self) -> u64 {
        0
    }

    fn reset(&mut self) {
        // The cores belong to others, too: only the own kernel ends.
        self.parent.abort_launch();
    }

    fn cycles(&self) -> u64 {
        self.clock.cycles()
    }

    fn memory_changed(&mut self) {}

    fn scratchpads(&self) -> Option<&Scratchpads> {
        None
    }
}

/// Where reports of kernels appear, on their way from a core's thread to the firmware thread.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Looked at in every round of the firmware, so without the lock.
    ready: AtomicBool,
    /// A queue, because a report of a kernel that a reset has killed may still come.
    arrived: Mutex<VecDeque<(u64, Report)>>,
    slot: Arc<Slot>,
}

impl Reports {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { ready: AtomicBool::new(false), arrived: Mutex::default(), slot }
    }

    /// Delivers the report of launch number `launch` and wakes the firmware.
    pub(crate) fn deliver(&self, launch: u64, report: Report) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push_back((launch, report));
        // Release: pairs with the acquire in `take`. Under the lock: the flag says what the queue
        // is.
        self.ready.store(true, Ordering::Release);
        drop(arrived);
        self.slot.bell.raise();
    }

    /// Takes the first report that has come, if one has.
    pub(crate) fn take(&self) -> Option<(u64, Report)> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let report = arrived.pop_front();
        self.ready.store(!arrived.is_empty(), Ordering::Relaxed);
        report
    }
}
