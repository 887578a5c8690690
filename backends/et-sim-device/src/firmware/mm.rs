//! The master minion runtime: what its workers share, and how a command gets to its worker.

use std::sync::Arc;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{
    API_VERSION, Body, Command, CompatibilityStatus, Completion, DmaStatus, EchoStatus,
    FirmwareType, FirmwareVersionStatus, FwErrorType, LaunchStatus, MsgId, Times,
    TraceConfigStatus, TraceControlStatus,
};
use et_devapi::pci::Vector;
use et_devapi::trace::{BufferType, CmdProgress};
use et_hal::Endpoint;

use super::cq::CompletionQueue;
use super::dma::{DmaEngine, Transfer};
use super::hpsq::HighPriorityWorker;
use super::kernel::{CheckedLaunch, KernelWorker};
use super::registers;
use super::sq::SubmissionWorker;
use super::trace::TraceService;
use crate::board::{Slot, Stats};
use crate::compute::Compute;
use crate::{BoardError, Fault};

/// Number of submission queues, and of high-priority ones. Spec: §5.1
pub(crate) const QUEUES: usize = 2;

/// The operations endpoint.
#[derive(Debug)]
pub(crate) struct MasterMinion {
    sq: [SubmissionWorker; QUEUES],
    hp: [HighPriorityWorker; QUEUES],
    shared: Shared,
    doorbells_seen: u32,
}

/// What all workers of the master minion use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slot: Arc<Slot>,
    pub(crate) cq: CompletionQueue,
    pub(crate) compute: Box<dyn Compute>,
    pub(crate) kernel: KernelWorker,
    pub(crate) dma: DmaEngine,
    pub(crate) trace: TraceService,
    /// Commands of each submission queue that were started and not answered.
    pub(crate) outstanding: [u32; QUEUES],
    /// What the service processor is still to be told.
    failed: Vec<Failed>,
    /// Commands still to be executed before the firmware hangs, if it is to.
    until_hang: Option<u64>,
}

/// Where a command came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// Number of the submission queue.
    pub(crate) queue: usize,
    /// Tag of the command.
    pub(crate) tag: Tag,
    /// When its batch was picked up, in cycles.
    pub(crate) start: u64,
}

/// A command that has failed, as the service processor is told. Spec: §17.4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Kind of the command.
    pub(crate) source: u64,
    /// Status of the answer.
    pub(crate) status: u32,
}

impl Failed {
    /// What an answer says; `None` if the command has not failed, which one that the host has
    /// aborted has not either, or if the interface has no number for its kind.
    fn of(answer: &Body) -> Option<Self> {
        const ABORTED: u32 = u32::MAX;
        let (source, status, aborted): (_, u32, u32) = match *answer {
            Body::Launch { status, .. } => (9, status.into(), LaunchStatus::HostAborted.into()),
            Body::DmaRead { status, .. } | Body::P2pRead { status, .. } => {
                (10, status.into(), DmaStatus::HostAborted.into())
            }
            Body::DmaWrite { status, .. } | Body::P2pWrite { status, .. } => {
                (11, status.into(), DmaStatus::HostAborted.into())
            }
            Body::Echo { status, .. } => (12, status.into(), EchoStatus::HostAborted.into()),
            Body::FirmwareVersion { status, .. } => {
                (13, status.into(), FirmwareVersionStatus::HostAborted.into())
            }
            Body::Compatibility { status, .. } => {
                (14, status.into(), CompatibilityStatus::HostAborted.into())
            }
            Body::Abort { status } => (15, status.into(), ABORTED),
            Body::CmReset { status } => (16, status.into(), ABORTED),
            Body::TraceConfig { status } => {
                (17, status.into(), TraceConfigStatus::HostAborted.into())
            }
            Body::TraceControl { status } => {
                (18, status.into(), TraceControlStatus::HostAborted.into())
            }
            _ => return None,
        };
        // 0 is success in all of them.
        (status != 0 && status != aborted).then_some(Self { source, status })
    }
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Executed {
    /// It was answered, or started, or ignored: go on with the next.
    Done,
    /// Its launch waits for the kernel slot.
    NeedsSlot(Box<CheckedLaunch>),
    /// No DMA channel is free: try again.
    NeedsChannel,
}

impl Shared {
    /// Answers the command with a tag.
    pub(crate) fn respond(&mut self, tag: Tag, body: Body) {
        self.log_answer(tag, &body);
        self.failed.extend(Failed::of(&body));
        self.cq.respond(&self.slot, &Completion::new(tag, body));
    }

    /// Sends an event.
    pub(crate) fn report(&mut self, body: Body) {
        self.cq.respond(&self.slot, &Completion::event(body));
    }

    /// Logs a failure, and, if that is wanted, how a command has ended.
    fn log_answer(&mut self, tag: Tag, body: &Body) {
        let (id, progress) = match body {
            Body::Launch { status, .. } => {
                let progress = match status {
                    LaunchStatus::KernelCompleted => CmdProgress::Succeeded,
                    LaunchStatus::HostAborted => CmdProgress::Aborted,
                    _ => CmdProgress::Failed,
                };
                (MsgId::KernelLaunchCmd, progress)
            }
            Body::DmaRead { status, .. } => (MsgId::DmaReadListCmd, progress_of(*status)),
            Body::DmaWrite { status, .. } => (MsgId::DmaWriteListCmd, progress_of(*status)),
            _ => return,
        };
        if progress == CmdProgress::Failed {
            let text = match body {
                Body::Launch { status, .. } => format!("launch {tag} failed: {status}"),
                Body::DmaRead { status, .. } => format!("read list {tag} failed: {status}"),
                Body::DmaWrite { status, .. } => format!("write list {tag} failed: {status}"),
                _ => return,
            };
            if self.trace.failure(&self.slot.dram, self.compute.cycles(), &text) {
                self.report_full(BufferType::Mm);
            }
        }
        self.log_progress(tag, id as u16, progress);
    }

    /// Notes how far a command has come, if that is wanted.
    fn log_progress(&mut self, tag: Tag, id: u16, progress: CmdProgress) {
        if self.trace.has_progress() {
            let (cycles, command) = (self.now(), (id, tag.as_u16()));
            if self.trace.command(&self.slot.dram, cycles, command, progress) {
                self.report_full(BufferType::Mm);
            }
        }
    }

    /// Sends the event of a full trace buffer. Spec: §10.4
    pub(crate) fn report_full(&mut self, kind: BufferType) {
        let data_size = self.trace.threshold(kind);
        self.report(Body::TraceBufferFull { data_size, buffer_type: kind as u8 });
    }

    pub(crate) fn now(&self) -> u64 {
        self.compute.cycles()
    }

    /// Times of a command that is answered without having been executed. Spec: §11
    pub(crate) fn times_of_rejected(&self, origin: Origin) -> Times {
        let wait = self.now().wrapping_sub(origin.start);
        Times { start: origin.start, wait, execute: 0 }
    }

    /// Returns `true` if the firmware has stopped for good, as the faults of the board say.
    pub(crate) fn hangs(&self) -> bool {
        self.until_hang == Some(0)
    }

    /// Counts a command before it is executed: who has its answer finds it counted.
    pub(crate) fn count_command(&self) {
        Stats::add(&self.slot.stats.commands, 1);
    }

    /// One command more has been executed, of those before the firmware is to hang.
    pub(crate) fn count_down(&mut self) {
        if let Some(left) = &mut self.until_hang {
            *left = left.saturating_sub(1);
        }
    }

    /// Executes a command of a submission queue.
    pub(crate) fn execute(&mut self, queue: usize, start: u64, message: &[u8]) -> Executed {
        let Ok((header, command)) = Command::parse(message) else {
            return Executed::Done; // impossible: the framing was checked
        };
        let origin = Origin { queue, tag: header.tag(), start };
        let tag = origin.tag;
        self.log_progress(tag, header.msg_id.get(), CmdProgress::Received);
        match command {
            Command::KernelLaunch(launch) => {
                return match self.check_launch(origin, header.flags(), &launch) {
                    Ok(launch) if self.kernel.is_free() => {
                        self.start_launch(launch);
                        Executed::Done
                    }
                    Ok(launch) => Executed::NeedsSlot(Box::new(launch)),
                    Err(status) => {
                        self.reject_launch(origin, status);
                        Executed::Done
                    }
                };
            }
            // Firmware computes a payload length below zero (Spec: §9.1).
            Command::Short { id: MsgId::KernelLaunchCmd } => {
                self.reject_launch(origin, LaunchStatus::InvalidArgsPayloadSize);
            }
            Command::DmaReadList { nodes } => {
                return self.dma(Transfer::read(origin, header.flags(), nodes));
            }
            Command::DmaWriteList { nodes } => return self.dma(Transfer::write(origin, nodes)),
            Command::P2pDmaReadList { nodes } => {
                return self.dma(Transfer::p2p_read(origin, nodes));
            }
            Command::P2pDmaWriteList { nodes } => {
                return self.dma(Transfer::p2p_write(origin, nodes));
            }
            Command::KernelAbort { launch } => self.abort_launch(tag, launch),
            Command::CheckCompatibility => self.respond(
                tag,
                Body::Compatibility { status: CompatibilityStatus::Success, version: API_VERSION },
            ),
            Command::FirmwareVersion { firmware } => {
                let status = match firmware {
                    FirmwareType::Unknown(_) => FirmwareVersionStatus::BadFirmwareType,
                    _ => FirmwareVersionStatus::Success,
                };
                // Every firmware type reports the version of the studied sources.
                let version = API_VERSION;
                self.respond(tag, Body::FirmwareVersion { status, version, firmware });
            }
            Command::Echo => {
                self.respond(tag, Body::Echo { start, status: EchoStatus::Success });
            }
            Command::TraceRtConfig(config) => {
                let status = self.trace.configure(&self.slot, self.kernel.reachable(), &config);
                self.respond(tag, Body::TraceConfig { status });
            }
            Command::TraceRtControl { runtimes, control } => {
                let cores = self.kernel.reachable();
                let status = self.trace.control(&self.slot, cores, runtimes, control);
                self.respond(tag, Body::TraceControl { status });
            }
            // Aborts and compute resets belong into the high-priority queues.
            _ => self.unsupported(tag),
        }
        Executed::Done
    }

    /// Answers a command that an abort has caught before it was started. Spec: §10.1
    pub(crate) fn refuse(&mut self, queue: usize, start: u64, message: &[u8]) {
        let Ok((header, command)) = Command::parse(message) else { return };
        let tag = header.tag();
        match command.rejected(self.times_of_rejected(Origin { queue, tag, start })) {
            Some(body) => self.respond(tag, body),
            None => self.unsupported(tag),
        }
    }

    /// Reports a command that is not executed: an event, and no response. Spec: §5.5, §10.4
    pub(crate) fn unsupported(&mut self, tag: Tag) {
        let error = FwErrorType::UnsupportedCommand;
        self.report(Body::FwError { error, payload: tag.as_u16().into() });
    }
}

fn progress_of(status: DmaStatus) -> CmdProgress {
    match status {
        DmaStatus::Complete => CmdProgress::Succeeded,
        DmaStatus::HostAborted => CmdProgress::Aborted,
        _ => CmdProgress::Failed,
    }
}

impl MasterMinion {
    pub(crate) fn new(slot: &Arc<Slot>, compute: Box<dyn Compute>) -> Result<Self, BoardError> {
        let mut this = Self {
            sq: [
                SubmissionWorker::new(0, registers::submission(0)?),
                SubmissionWorker::new(1, registers::submission(1)?),
            ],
            hp: [
                HighPriorityWorker::new(0, registers::high_priority(0)?),
                HighPriorityWorker::new(1, registers::high_priority(1)?),
            ],
            shared: Shared {
                slot: Arc::clone(slot),
                cq: CompletionQueue::new(
                    registers::OPS_COMPLETION_AT,
                    registers::completion()?,
                    Vector::OpsCompletion,
                ),
                compute,
                kernel: KernelWorker::new(slot),
                dma: DmaEngine::new(),
                trace: TraceService::new(),
                outstanding: [0; QUEUES],
                failed: Vec::new(),
                until_hang: None,
            },
            doorbells_seen: 0,
        };
        for fault in &slot.config.faults {
            this.add_fault(*fault);
        }
        Ok(this)
    }

    /// Starts to do something wrong, if it is this endpoint's to do; counts start now.
    pub(crate) fn add_fault(&mut self, fault: Fault) {
        let shared = &mut self.shared;
        match fault {
            Fault::Hang { after } => shared.until_hang = Some(after),
            Fault::ComputeHang { nth } => shared.kernel.hang_at_launch(nth),
            Fault::ComputeException { nth, hart } => shared.kernel.trap_at_launch(nth, hart),
            fault => shared.cq.add_fault(fault, shared.slot.config.seed),
        }
    }

    /// Does what can be done now; returns `true` if anything was.
    pub(crate) fn step(&mut self) -> bool {
        let shared = &mut self.shared;
        if shared.hangs() || shared.cq.retry(&shared.slot) {
            // Spec §5.6: a full completion queue stops everything.
            shared.cq.announce(&shared.slot);
            return false;
        }
        let rung = shared.slot.bell.rung(Endpoint::Operations);
        let mut busy = rung != self.doorbells_seen;
        if busy {
            self.doorbells_seen = rung;
            self.hp.iter_mut().for_each(HighPriorityWorker::look);
            self.sq.iter_mut().for_each(SubmissionWorker::look);
        }
        busy |= shared.poll_kernel();
        for (hp, sq) in self.hp.iter_mut().zip(&mut self.sq) {
            busy |= hp.step(sq, shared);
            busy |= sq.step(shared);
            shared.cq.announce(&shared.slot);
        }
        busy |= shared.step_dma();
        shared.cq.announce(&shared.slot);
        busy
    }

    /// Returns `true` while a kernel runs.
    pub(crate) fn computes(&self) -> bool {
        !self.shared.kernel.is_free()
    }

    /// Returns how many bytes the DMA engine has copied, towards the host and towards the device.
    pub(crate) fn moved(&self) -> [u64; 2] {
        self.shared.dma.moved()
    }

    /// Takes the commands that have failed.
    pub(crate) fn take_failed(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.shared.failed)
    }

    /// Returns `true` if it has stopped for good.
    pub(crate) fn is_hung(&self) -> bool {
        self.shared.hangs()
    }

    /// Returns how long the firmware may sleep without an event.
    pub(crate) fn next_attempt(&self) -> Option<std::time::Duration> {
        let shared = &self.shared;
        let attempts = [shared.cq.next_attempt(), shared.kernel.next_look()];
        attempts.into_iter().flatten().min().filter(|_| !shared.hangs())
    }

    /// Ends the firmware, and gives the cores back.
    pub(crate) fn into_compute(self) -> Box<dyn Compute> {
        self.shared.compute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_commands_are_told_and_aborted_ones_are_not() {
        let launch =
            |status| Failed::of(&Body::Launch { times: Times::default(), status, error: None });
        let read = |status| Failed::of(&Body::DmaRead { times: Times::default(), status });
        assert_eq!(launch(LaunchStatus::KernelCompleted), None);
        assert_eq!(launch(LaunchStatus::HostAborted), None);
        assert_eq!(launch(LaunchStatus::Exception), Some(Failed { source: 9, status: 2 }));
        assert_eq!(read(DmaStatus::Complete), None);
        assert_eq!(read(DmaStatus::HostAborted), None);
        assert_eq!(read(DmaStatus::InvalidAddress), Some(Failed { source: 10, status: 6 }));
        let refused = Body::TraceControl { status: TraceControlStatus::BadRtType };
        assert_eq!(Failed::of(&refused), Some(Failed { source: 18, status: 2 }));
    }
}
