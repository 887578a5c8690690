//! Launches: checks, the kernel slot, results, the exception buffer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::abi::{self, KernelEnvironment};
use et_devapi::msg::ops::{
    Body, FwErrorType, KernelAbortStatus, Launch, LaunchError, LaunchStatus, MAX_LAUNCH_PAYLOAD,
    StackConfig, Times, TraceConfig,
};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::trace::BufferType;
use et_hal::DeviceAddr;
use et_sim_cores::{HartExit, LaunchReport};
use zerocopy::{FromBytes, IntoBytes};

use super::exception;
use super::forward::{self, Named};
use super::mm::{Origin, Shared};
use super::trace;
use super::user_trace::UserTrace;
use crate::board::{Slot, Stats};
use crate::compute::{LaunchParts, Report, Reports, Start, Started};
use crate::{CreditAbort, ForwardedEnd, StackGuards};

/// Unit of a stack configuration. Spec: §9.1
const STACK_UNIT_BYTES: u32 = 4096;
/// Where kernels find their environment: in the scratchpad of the master shire, because the
/// firmware's part of DRAM is closed to them. Spec: §12.2
const ENVIRONMENT: u64 = abi::KERNEL_ENVIRONMENT.as_u64();
/// What is guarded of a default stack: it is this much larger than 4 KiB.
const STACK_GUARD_BYTES: u64 = 64;
/// Stacks of harts are multiples of this. Spec: §9.1
const STACK_ALIGN_BYTES: u64 = 64;

/// The one kernel slot. Spec: §9.3
#[derive(Debug)]
pub(crate) struct KernelWorker {
    running: Option<Running>,
    reports: Arc<Reports>,
    /// Launches given to the cores so far; names the present one.
    launches: u64,
    /// The cores did not acknowledge a message, or their firmware has trapped: nothing reaches them
    /// until a compute reset.
    is_down: bool,
    /// Number of the launch that hangs, if one is to.
    hang_at: Option<u64>,
    /// Number of the launch during which the firmware of a hart traps, if it is to.
    trap_at: Option<(u64, u32)>,
    /// Host-managed memory: first address, first address behind.
    host: std::ops::Range<u64>,
}

/// Whether messages reach the cores. Spec: §9.3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachable {
    Yes,
    No,
}

/// A launch that has passed all checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedLaunch {
    origin: Origin,
    entry: u64,
    args: u64,
    exception_buffer: u64,
    trace: Option<TraceConfig>,
    shire_mask: u64,
    stack: StackPlace,
    parts: LaunchParts,
}

/// Where stacks are.
#[derive(Clone, Copy, Debug)]
struct StackPlace {
    /// Start of the stack of compute hart 0; stacks grow down.
    top: u64,
    bytes_per_hart: u64,
    /// Bytes at the low end of each that trap.
    guard_bytes: u64,
}

impl CheckedLaunch {
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    fn user_trace(&self) -> UserTrace {
        UserTrace::new(self.shire_mask, self.trace)
    }

    /// Address of the trace buffer, 0 if there is none.
    fn trace_buffer(&self) -> u64 {
        self.trace.map_or(0, |trace| trace.buffer.get())
    }
}

#[derive(Debug)]
struct Running {
    launch: CheckedLaunch,
    dispatched: u64,
    aborted: bool,
    /// Until when the harts have to acknowledge the abort; none if they always do.
    patience: Option<Instant>,
    /// A compute reset has killed it without telling anybody.
    orphaned: bool,
}

impl KernelWorker {
    pub(crate) fn new(slot: &Arc<Slot>) -> Self {
        Self {
            running: None,
            reports: Arc::new(Reports::new(Arc::clone(slot))),
            launches: 0,
            is_down: false,
            hang_at: None,
            trap_at: None,
            host: slot.host_managed(),
        }
    }

    /// The cores stop to acknowledge at this launch, counted from the next.
    pub(crate) fn hang_at_launch(&mut self, nth: u64) {
        self.hang_at = Some(self.launches + nth);
    }

    /// The firmware of a hart traps during this launch, counted from the next.
    pub(crate) fn trap_at_launch(&mut self, nth: u64, hart: u32) {
        self.trap_at = Some((self.launches + nth, hart));
    }

    pub(crate) fn is_free(&self) -> bool {
        self.running.is_none()
    }

    /// Returns how long the firmware may sleep before it must look after an aborted kernel.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        const SLOW_HARTS: Duration = Duration::from_millis(1);
        let end = self.running.as_ref()?.patience?;
        let left = end.saturating_duration_since(Instant::now());
        Some(if left.is_zero() { SLOW_HARTS } else { left })
    }

    /// Returns whether messages reach the cores.
    pub(crate) fn reachable(&self) -> Reachable {
        if self.is_down { Reachable::No } else { Reachable::Yes }
    }

    /// Returns `true` if the running kernel comes from that queue.
    pub(crate) fn runs_from(&self, queue: usize) -> bool {
        self.running.as_ref().is_some_and(|running| running.launch.origin.queue == queue)
    }
}

impl Shared {
    /// Checks a launch in the firmware's order and copies its arguments. Spec: §9.1, §9.2
    pub(crate) fn check_launch(
        &mut self,
        origin: Origin,
        flags: CommandFlags,
        launch: &Launch<'_>,
    ) -> Result<CheckedLaunch, LaunchStatus> {
        let shire_mask = launch.shire_mask;
        if shire_mask == 0 {
            return Err(LaunchStatus::InvalidShireMask);
        }
        let entry = launch.entry.as_u64();
        let args = launch.args.map_or(0, DeviceAddr::as_u64);
        let exception_buffer = launch.exception_buffer.map_or(0, DeviceAddr::as_u64);
        let host = self.kernel.host.clone();
        let optional = |address: u64| address == 0 || host.contains(&address);
        if !host.contains(&entry) || !optional(args) || !optional(exception_buffer) {
            return Err(LaunchStatus::InvalidAddress);
        }
        if launch.payload.len() > MAX_LAUNCH_PAYLOAD {
            return Err(LaunchStatus::InvalidArgsPayloadSize);
        }
        let mut parts = LaunchParts::new(flags, launch.payload);
        let (trace, payload) =
            take_part::<TraceConfig>(flags, CommandFlags::KERNEL_TRACE, launch.payload)?;
        let (stack, payload) = take_part::<StackConfig>(flags, CommandFlags::USER_STACK, payload)?;
        if trace.is_some_and(|trace| !trace::is_valid(&trace)) {
            // Erratum 12 (§21): there is no code of its own.
            return Err(LaunchStatus::Error);
        }
        let stack = match stack {
            None => self.default_stack(),
            Some(stack) => custom_stack(&stack, shire_mask, &host)?,
        };
        if self.slot.parent.is_some() {
            let named = Named { args, embedded: payload.len(), exception_buffer, trace };
            forward::check(&host, &named)?;
            forward::place_stack(&mut parts, &host)?;
        } else if flags.contains(CommandFlags::ARGS_EMBEDDED) && args != 0 {
            // Erratum 30 (§21): now, not when the kernel slot is free.
            self.slot.dram.write(args, payload).map_err(|_| LaunchStatus::Error)?;
        }
        if shire_mask & !self.slot.config.shires != 0 {
            return Err(LaunchStatus::ShiresNotReady);
        }
        Ok(CheckedLaunch { origin, entry, args, exception_buffer, trace, shire_mask, stack, parts })
    }

    fn default_stack(&self) -> StackPlace {
        StackPlace {
            top: abi::DEFAULT_STACK_TOP.as_u64(),
            bytes_per_hart: abi::DEFAULT_STACK_BYTES,
            guard_bytes: match self.slot.config.stack_guards {
                StackGuards::Default => STACK_GUARD_BYTES,
                StackGuards::None => 0,
            },
        }
    }

    /// Answers a launch that is not started. Spec: §9.4
    pub(crate) fn reject_launch(&mut self, origin: Origin, status: LaunchStatus) {
        let times = self.times_of_rejected(origin);
        let error = Some(LaunchError { exception_buffer: 0, trace_buffer: 0, shire_mask: 0 });
        self.respond(origin.tag, Body::Launch { times, status, error });
    }

    /// Gives a checked launch to the cores; the kernel slot is free.
    pub(crate) fn start_launch(&mut self, launch: CheckedLaunch) {
        self.kernel.launches += 1;
        if self.kernel.hang_at == Some(self.kernel.launches) && !self.kernel.is_down {
            self.kernel.is_down = true;
            let error = FwErrorType::CmSmodeHang;
            self.report(Body::FwError { error, payload: launch.shire_mask });
        }
        if self.kernel.is_down {
            return self.reject_launch(launch.origin, LaunchStatus::CmMulticastFailed);
        }
        let dispatched = self.now();
        if let Some((_, hart)) =
            self.kernel.trap_at.take_if(|(nth, _)| *nth == self.kernel.launches)
        {
            self.kernel.is_down = true;
            let error = FwErrorType::CmSmodeException;
            self.report(Body::FwError { error, payload: hart.into() });
            return self.wait_for(launch, dispatched);
        }
        let start = self.prepare(&launch);
        match self.compute.start(&start, self.kernel.launches, &self.kernel.reports) {
            Started::Completed => {
                // In no time: the clock need not be looked at again.
                let times = times(&launch, dispatched, dispatched);
                self.respond(
                    launch.origin.tag,
                    Body::Launch { times, status: LaunchStatus::KernelCompleted, error: None },
                );
            }
            Started::Running => self.wait_for(launch, dispatched),
            Started::Refused => self.reject_launch(launch.origin, LaunchStatus::CmMulticastFailed),
        }
    }

    /// The launch occupies the kernel slot until its harts have left the kernel.
    fn wait_for(&mut self, launch: CheckedLaunch, dispatched: u64) {
        self.outstanding[launch.origin.queue] += 1;
        let running =
            Running { launch, dispatched, aborted: false, patience: None, orphaned: false };
        self.kernel.running = Some(running);
    }

    /// Writes the kernel environment and makes the cores see what the host has written.
    fn prepare(&mut self, launch: &CheckedLaunch) -> Start {
        let environment = KernelEnvironment::new(launch.shire_mask, self.slot.config.frequency_mhz);
        if let Some(scratchpads) = self.compute.scratchpads() {
            let written = scratchpads.write(ENVIRONMENT, environment.as_bytes());
            debug_assert!(written.is_ok(), "every chip has a master shire");
        }
        if self.slot.bar0_written.load(std::sync::atomic::Ordering::Relaxed) {
            // Acquire: pairs with the release of the host thread that wrote.
            self.slot.bar0_written.swap(false, std::sync::atomic::Ordering::Acquire);
            self.compute.memory_changed();
        } else if self.slot.bar0_mapped.load(std::sync::atomic::Ordering::Relaxed) {
            // What another process writes is not announced.
            self.compute.memory_changed();
        }
        Start {
            entry: launch.entry,
            args: launch.args,
            environment: ENVIRONMENT,
            shire_mask: launch.shire_mask,
            stack_top: launch.stack.top,
            stack_bytes_per_hart: launch.stack.bytes_per_hart,
            stack_guard_bytes: launch.stack.guard_bytes,
            exception_buffer: launch.exception_buffer,
            trace: launch.user_trace(),
            parts: launch.parts,
        }
    }

    /// Answers the running kernel if it has ended, or cannot be ended.
    pub(crate) fn poll_kernel(&mut self) -> bool {
        let Some((launch, report)) = self.kernel.reports.take() else {
            return self.give_up_on_sleepers();
        };
        let report = match report {
            Report::Own(report) => report,
            Report::Forwarded(end) => return self.end_forwarded(launch, &end),
        };
        Stats::add(&self.slot.stats.instructions, report.instructions);
        let present = launch == self.kernel.launches;
        let running = self.kernel.running.take_if(|running| present && !running.orphaned);
        if let Some(running) = running {
            // Before the host knows that the kernel has ended.
            if let Some(histogram) = &report.histogram {
                self.slot.note_executed(running.launch.entry, histogram);
            }
            // Harts that a reset has killed write nothing: the buffer may be in other use by then.
            running.launch.user_trace().end(&self.slot.dram);
            let (status, error) = self.result(&running, &report);
            self.log_exceptions(&report);
            self.answer(&running, status, error);
        }
        true
    }

    /// Answers a launch as the parent has. Spec: §9.4
    ///
    /// Cycles are counted by the board's own clock, so that they agree with its echoes.
    fn end_forwarded(&mut self, launch: u64, end: &ForwardedEnd) -> bool {
        let present = launch == self.kernel.launches;
        let running = self.kernel.running.take_if(|running| present && !running.orphaned);
        if let Some(running) = running {
            let start = running.launch.origin.start;
            let wait = self.now().wrapping_sub(start).saturating_sub(end.execute);
            let times = Times { start, wait, execute: end.execute };
            let Origin { queue, tag, .. } = running.launch.origin;
            self.outstanding[queue] = self.outstanding[queue].saturating_sub(1);
            let (status, error) = (end.status, end.error);
            self.respond(tag, Body::Launch { times, status, error });
        }
        true
    }

    /// Gives the cores up if harts have not acknowledged an abort in time. Spec: §9.3, §9.4
    ///
    /// Harts that run are only slow: no time of the device passes for them.
    fn give_up_on_sleepers(&mut self) -> bool {
        let overdue = |running: &Running| running.patience.is_some_and(|end| end <= Instant::now());
        if !self.kernel.running.as_ref().is_some_and(overdue) {
            return false;
        }
        let silent = self.compute.sleeping_shires();
        if silent == 0 {
            return false;
        }
        let Some(lost) = self.kernel.running.take() else { return false };
        self.kernel.is_down = true;
        tracing::debug!(silent, "harts do not acknowledge an abort");
        let error = FwErrorType::CmSmodeHang;
        self.report(Body::FwError { error, payload: silent });
        self.answer_lost(&lost);
        true
    }

    /// Answers a launch whose harts cannot be reached.
    fn answer_lost(&mut self, lost: &Running) {
        let error = LaunchError {
            exception_buffer: lost.launch.exception_buffer,
            trace_buffer: lost.launch.trace_buffer(),
            shire_mask: 0,
        };
        self.answer(lost, LaunchStatus::CmMulticastFailed, Some(error));
    }

    fn answer(&mut self, running: &Running, status: LaunchStatus, error: Option<LaunchError>) {
        let times = times(&running.launch, running.dispatched, self.now());
        let Origin { queue, tag, .. } = running.launch.origin;
        self.outstanding[queue] = self.outstanding[queue].saturating_sub(1);
        self.respond(tag, Body::Launch { times, status, error });
    }

    /// Has the harts that trapped write that into their traces. Spec: §16.1
    fn log_exceptions(&mut self, report: &LaunchReport) {
        let cycles = self.now();
        let mut is_due = false;
        for failure in &report.failures {
            if let HartExit::Exception { cause, tval } = failure.exit {
                let dram = &self.slot.dram;
                is_due |= self.trace.exception(dram, cycles, failure, (cause, tval));
            }
        }
        if is_due {
            self.report_full(BufferType::Cm);
        }
    }

    /// Judges a report and dumps what failed. Spec: §9.4, §14, §15
    fn result(
        &self,
        running: &Running,
        report: &LaunchReport,
    ) -> (LaunchStatus, Option<LaunchError>) {
        let launch = &running.launch;
        if report.failures.is_empty() && !running.aborted {
            return (LaunchStatus::KernelCompleted, None);
        }
        let cycles = self.now();
        let mut trapped = false;
        let mut shire_mask = 0;
        for failure in &report.failures {
            let dump = exception::Dump::of(failure);
            trapped |= dump.is_exception();
            if dump.marks_shire() {
                shire_mask |= 1_u64 << abi::shire_of_hart(failure.hart_id).min(63);
            }
            if launch.exception_buffer != 0 && !self.compute.dumps_failures() {
                dump.write(&self.slot.dram, launch.exception_buffer, failure, cycles);
            }
        }
        let status = if running.aborted {
            LaunchStatus::HostAborted
        } else if trapped {
            LaunchStatus::Exception
        } else {
            LaunchStatus::Error
        };
        let error = LaunchError {
            exception_buffer: launch.exception_buffer,
            trace_buffer: launch.trace_buffer(),
            shire_mask,
        };
        (status, Some(error))
    }

    /// Aborts one launch by its tag. Spec: §10.2
    pub(crate) fn abort_launch(&mut self, tag: Tag, launch: Tag) {
        let running = self.kernel.running.as_ref();
        let found = running.is_some_and(|running| running.launch.origin.tag == launch);
        let status = if found {
            self.abort_kernel();
            KernelAbortStatus::Success
        } else {
            KernelAbortStatus::InvalidTagId
        };
        self.respond(tag, Body::KernelAbort { status });
    }

    /// Stops the running kernel. Its answer follows when the cores have stopped, or at once if they
    /// cannot be reached or no longer know the kernel. Spec: §9.4, §10.1
    pub(crate) fn abort_kernel(&mut self) {
        let unreachable = self.kernel.is_down;
        if let Some(lost) = self.kernel.running.take_if(|r| r.orphaned || unreachable) {
            self.answer_lost(&lost);
        } else if let Some(running) = &mut self.kernel.running {
            running.aborted = true;
            let config = &self.slot.config;
            if config.credit_abort == CreditAbort::Waits && running.patience.is_none() {
                running.patience = Instant::now().checked_add(config.ack_timeout);
            }
            self.compute.abort();
        }
    }

    /// Resets the cores. A running kernel dies silently and keeps the slot. Spec: §10.3
    pub(crate) fn reset_compute(&mut self) {
        self.compute.reset();
        self.kernel.is_down = false;
        if let Some(running) = &mut self.kernel.running {
            running.orphaned = true;
        }
    }
}

impl LaunchParts {
    fn new(flags: CommandFlags, payload: &[u8]) -> Self {
        let mut bytes = [0; MAX_LAUNCH_PAYLOAD];
        let len = payload.len().min(bytes.len());
        bytes[..len].copy_from_slice(&payload[..len]);
        Self { flags, bytes, len }
    }
}

fn times(launch: &CheckedLaunch, dispatched: u64, ended: u64) -> Times {
    let start = launch.origin.start;
    let (wait, execute) = (dispatched.wrapping_sub(start), ended.wrapping_sub(dispatched));
    Times { start, wait, execute }
}

/// Takes an optional part off the front of a payload.
fn take_part<T: FromBytes>(
    flags: CommandFlags,
    flag: CommandFlags,
    payload: &[u8],
) -> Result<(Option<T>, &[u8]), LaunchStatus> {
    if !flags.contains(flag) {
        return Ok((None, payload));
    }
    match T::read_from_prefix(payload) {
        Ok((part, rest)) => Ok((Some(part), rest)),
        Err(_) => Err(LaunchStatus::InvalidArgsPayloadSize),
    }
}

/// Checks a stack configuration, with the firmware's 32-bit arithmetic. Erratum 14 (§21), spec §9.1
fn custom_stack(
    config: &StackConfig,
    shire_mask: u64,
    host: &std::ops::Range<u64>,
) -> Result<StackPlace, LaunchStatus> {
    let invalid = LaunchStatus::InvalidStackConfig;
    let harts = u64::from(abi::harts_in_mask(shire_mask));
    let units = config.stack_size.get();
    if harts == 0 || u64::from(units) < harts {
        return Err(invalid);
    }
    let total = u64::from(units.wrapping_mul(STACK_UNIT_BYTES));
    let offset = u64::from(config.stack_base_offset.get().wrapping_mul(STACK_UNIT_BYTES));
    let bytes_per_hart = total / harts;
    let start = host.start + offset;
    let end = start + total;
    if bytes_per_hart % STACK_ALIGN_BYTES != 0 || !host.contains(&start) || !host.contains(&end) {
        return Err(invalid);
    }
    Ok(StackPlace { top: end, bytes_per_hart, guard_bytes: 0 })
}
