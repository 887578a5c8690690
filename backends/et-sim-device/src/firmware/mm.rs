//! The master minion runtime: what its workers share, and how a command gets to its worker.

use std::sync::Arc;

use et_devapi::msg::ops::{API_VERSION, DmaStatus};
use et_devapi::msg::ops::{
    Command, CompatibilityStatus, Completion, EchoStatus, FirmwareType, FirmwareVersionStatus,
    FwErrorType, KernelAbortStatus, LaunchPayload, LaunchStatus, MsgId, Times, TraceConfigStatus,
    TraceControlStatus, Version,
};
use et_devapi::msg::{Header, Tag};
use et_devapi::pci::Vector;
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

/// The firmware version that every firmware type reports: the one of the studied sources.
const FIRMWARE_VERSION: Version = Version { major: 2, minor: 6, patch: 0 };

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

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Executed {
    /// It was answered, or started, or ignored: go on with the next.
    Done,
    /// Its launch waits for the kernel slot.
    NeedsSlot(CheckedLaunch),
    /// No DMA channel is free: try again.
    NeedsChannel,
}

impl Shared {
    pub(crate) fn respond(&mut self, completion: &Completion) {
        self.cq.respond(&self.slot, completion);
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

    /// Counts one command that has been taken up.
    pub(crate) fn count_command(&mut self) {
        Stats::add(&self.slot.stats.commands, 1);
        if let Some(left) = &mut self.until_hang {
            *left = left.saturating_sub(1);
        }
    }

    /// Executes a command of a submission queue.
    pub(crate) fn execute(&mut self, queue: usize, start: u64, message: &[u8]) -> Executed {
        let Ok((header, command)) = Command::parse(message) else {
            // The framing was checked; what is too short for its kind is not understood either.
            self.unsupported(header_tag(message));
            return Executed::Done;
        };
        let origin = Origin { queue, tag: header.tag(), start };
        let tag = origin.tag;
        match command {
            Command::KernelLaunch(LaunchPayload::Whole { cmd, payload }) => {
                return match self.check_launch(origin, header.flags(), cmd, payload) {
                    Ok(launch) if self.kernel.is_free() => {
                        self.start_launch(launch);
                        Executed::Done
                    }
                    Ok(launch) => Executed::NeedsSlot(launch),
                    Err(status) => {
                        self.reject_launch(origin, status);
                        Executed::Done
                    }
                };
            }
            Command::KernelLaunch(LaunchPayload::Short) => {
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
            Command::CheckCompatibility => self.respond(&Completion::Compatibility {
                tag,
                status: CompatibilityStatus::Success,
                version: API_VERSION,
            }),
            Command::FirmwareVersion { firmware_type } => {
                let firmware = FirmwareType::from(u32::from(firmware_type));
                let status = match firmware {
                    FirmwareType::Unknown(_) => FirmwareVersionStatus::BadFirmwareType,
                    _ => FirmwareVersionStatus::Success,
                };
                let version = FIRMWARE_VERSION;
                self.respond(&Completion::FirmwareVersion { tag, status, version, firmware });
            }
            Command::Echo => {
                self.respond(&Completion::Echo { tag, start, status: EchoStatus::Success });
            }
            Command::TraceRtConfig(cmd) => {
                let status = self.trace.configure(&self.slot, self.kernel.reachable(), cmd);
                self.respond(&Completion::TraceConfig { tag, status });
            }
            Command::TraceRtControl(cmd) => {
                let status = self.trace.control(&self.slot, self.kernel.reachable(), cmd);
                self.respond(&Completion::TraceControl { tag, status });
            }
            // Aborts and compute resets belong into the high-priority queues.
            _ => self.unsupported(tag),
        }
        Executed::Done
    }

    /// Answers a command that an abort has caught before it was started. Spec: §10.1
    pub(crate) fn refuse(&mut self, queue: usize, start: u64, header: &Header, message: &[u8]) {
        let tag = header.tag();
        let origin = Origin { queue, tag, start };
        let Some(id) = MsgId::from_u16(header.msg_id.get()) else {
            return self.unsupported(tag);
        };
        let status = DmaStatus::HostAborted;
        let answer = match id {
            MsgId::CheckCompatibilityCmd => Completion::Compatibility {
                tag,
                status: CompatibilityStatus::HostAborted,
                version: API_VERSION,
            },
            MsgId::FirmwareVersionCmd => Completion::FirmwareVersion {
                tag,
                status: FirmwareVersionStatus::HostAborted,
                version: FIRMWARE_VERSION,
                firmware: u32::from(message.get(8).copied().unwrap_or_default()).into(),
            },
            MsgId::EchoCmd => Completion::Echo { tag, start, status: EchoStatus::HostAborted },
            MsgId::KernelLaunchCmd => {
                return self.reject_launch(origin, LaunchStatus::HostAborted);
            }
            MsgId::KernelAbortCmd => {
                Completion::KernelAbort { tag, status: KernelAbortStatus::HostAborted }
            }
            MsgId::DmaReadListCmd => {
                Completion::DmaRead { tag, times: self.times_of_rejected(origin), status }
            }
            MsgId::DmaWriteListCmd => {
                Completion::DmaWrite { tag, times: self.times_of_rejected(origin), status }
            }
            MsgId::P2pDmaReadListCmd => {
                Completion::P2pRead { tag, times: self.times_of_rejected(origin), status }
            }
            MsgId::P2pDmaWriteListCmd => {
                Completion::P2pWrite { tag, times: self.times_of_rejected(origin), status }
            }
            MsgId::TraceRtConfigCmd => {
                Completion::TraceConfig { tag, status: TraceConfigStatus::HostAborted }
            }
            MsgId::TraceRtControlCmd => {
                Completion::TraceControl { tag, status: TraceControlStatus::HostAborted }
            }
            _ => return self.unsupported(tag),
        };
        self.respond(&answer);
    }

    /// Reports a command that is not executed: an event, and no response. Spec: §5.5, §10.4
    pub(crate) fn unsupported(&mut self, tag: Tag) {
        let error = FwErrorType::UnsupportedCommand;
        self.respond(&Completion::FwError { error, payload: tag.as_u16().into() });
    }
}

/// Returns the tag of a message that cannot be parsed.
fn header_tag(message: &[u8]) -> Tag {
    let bytes = message.get(2..4).and_then(|b| b.first_chunk()).copied().unwrap_or([0xff; 2]);
    Tag::new(u16::from_le_bytes(bytes))
}

impl MasterMinion {
    pub(crate) fn new(slot: &Arc<Slot>, compute: Box<dyn Compute>) -> Result<Self, BoardError> {
        let until_hang = slot.config.faults.iter().find_map(|fault| match fault {
            Fault::Hang { after } => Some(*after),
            _ => None,
        });
        let page = &slot.page;
        let config = &slot.config;
        Ok(Self {
            sq: [
                SubmissionWorker::new(0, registers::submission(0)?, page)?,
                SubmissionWorker::new(1, registers::submission(1)?, page)?,
            ],
            hp: [
                HighPriorityWorker::new(0, registers::high_priority(0)?, page)?,
                HighPriorityWorker::new(1, registers::high_priority(1)?, page)?,
            ],
            shared: Shared {
                slot: Arc::clone(slot),
                cq: CompletionQueue::new(
                    registers::OPS_COMPLETION_AT,
                    registers::completion()?,
                    Vector::OpsCompletion,
                    page,
                )?
                .with_faults(&config.faults, config.seed),
                compute,
                kernel: KernelWorker::new(slot),
                dma: DmaEngine::new(),
                trace: TraceService::new(),
                outstanding: [0; QUEUES],
                until_hang,
            },
            doorbells_seen: 0,
        })
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
