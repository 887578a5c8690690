//! The device of the random programs: rings of few places, one kernel at a time, answers whenever
//! it likes.

use std::collections::{BTreeMap, VecDeque};

use et_devapi::msg::ops::{
    AbortStatus, Body, CmResetStatus, DmaStatus, EchoStatus, LaunchError, LaunchStatus, Times,
};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::QueueId;

use super::command::{Kind, Model};
use crate::link::core::{Pushed, Sink};

pub(super) const QUEUES: usize = 2;
const RING: usize = 3;

/// A command the device has.
#[derive(Clone, Debug)]
pub(super) struct Job {
    tag: Tag,
    kind: Kind,
    op: u64,
    barrier: bool,
    running: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Start,
    End,
}

#[derive(Default)]
pub(super) struct Device {
    rings: [VecDeque<Job>; QUEUES],
    high: [VecDeque<Job>; QUEUES],
    /// Taken from the ring and not answered.
    jobs: [Vec<Job>; QUEUES],
    /// Answers of what an abort has ended, which come after its own.
    late: VecDeque<(Tag, Body)>,
    /// Resets of compute that are to come.
    pub(super) resets: usize,
    /// One was executed or refused, and is answered.
    pub(super) has_reset: bool,
    /// Aborts that were executed.
    aborts: usize,
    pub(super) answers: VecDeque<(Tag, Body)>,
    pub(super) answered: Vec<(Tag, Body)>,
    pub(super) gone: bool,
    /// Starts and ends of commands, by operation.
    pub(super) log: Vec<(u64, Moment)>,
    /// Commands that were executed to their end, by operation.
    pub(super) complete: BTreeMap<u64, u32>,
}

impl Sink<Model> for Device {
    fn push(&mut self, queue: QueueId, tag: Tag, flags: CommandFlags, load: &mut Model) -> Pushed {
        assert!(!self.gone, "sent to a device that is lost");
        assert!(self.resets == 0 || load.kind != Kind::Launch, "a reset would end it unanswered");
        let (ring, room) = match queue {
            QueueId::Submission(queue) => (&mut self.rings[usize::from(queue)], RING),
            QueueId::HighPriority(queue) => (&mut self.high[usize::from(queue)], 1),
        };
        if ring.len() >= room {
            return Pushed::Full;
        }
        assert!(load.kind != Kind::Launch || load.context.is_some(), "a launch without a context");
        ring.push_back(Job {
            tag,
            kind: load.kind,
            op: load.op,
            barrier: flags.contains(CommandFlags::BARRIER),
            running: false,
        });
        Pushed::Accepted
    }
}

const fn times(execute: u64) -> Times {
    Times { start: 1, wait: 1, execute }
}

/// Returns `true` for the answer to what is no launch, and was aborted.
pub(super) fn was_aborted(answer: &Body) -> bool {
    matches!(
        answer,
        Body::DmaWrite { status: DmaStatus::HostAborted, .. }
            | Body::Echo { status: EchoStatus::HostAborted, .. }
    )
}

impl Device {
    fn answer(&mut self, job: &Job, complete: bool, aborted: bool) {
        if job.running && job.op != 0 {
            self.log.push((job.op, Moment::End));
        }
        if complete && !aborted {
            *self.complete.entry(job.op).or_default() += 1;
        }
        let tag = job.tag;
        self.has_reset |= job.kind == Kind::Reset;
        let completion = match job.kind {
            Kind::Abort if aborted => Body::Abort { status: AbortStatus::Error },
            Kind::Abort => Body::Abort { status: AbortStatus::Success },
            Kind::Reset if aborted => Body::CmReset { status: CmResetStatus::CmResetFailed },
            Kind::Reset => Body::CmReset { status: CmResetStatus::Success },
            Kind::Ping | Kind::Own | Kind::Barrier => {
                let status = match (aborted, complete) {
                    (true, _) => EchoStatus::HostAborted,
                    (_, true) => EchoStatus::Success,
                    _ => EchoStatus::Unknown(9),
                };
                Body::Echo { start: 1, status }
            }
            Kind::Copy | Kind::Report => {
                let status = match (aborted, complete) {
                    (true, _) => DmaStatus::HostAborted,
                    (_, true) => DmaStatus::Complete,
                    _ => DmaStatus::InvalidAddress,
                };
                Body::DmaWrite { times: times(job.running.into()), status }
            }
            Kind::Launch => {
                let (status, error) = match (aborted, complete) {
                    (true, _) => (LaunchStatus::HostAborted, Some(LaunchError::default())),
                    (_, true) => (LaunchStatus::KernelCompleted, None),
                    _ => (LaunchStatus::Exception, Some(LaunchError::default())),
                };
                Body::Launch { times: times(job.running.into()), status, error }
            }
        };
        self.answers.push_back((tag, completion));
    }

    /// Takes all of a ring, as firmware does, or what has high priority.
    pub(super) fn take(&mut self, queue: usize) {
        if self.gone {
            return;
        }
        if let Some(high) = self.high[queue].pop_front() {
            match high.kind {
                Kind::Abort => self.abort(queue),
                Kind::Reset => self.reset_compute(),
                _ => {}
            }
            self.answer(&high, true, false);
            return;
        }
        let ring = std::mem::take(&mut self.rings[queue]);
        self.jobs[queue].extend(ring);
        self.start();
    }

    /// Refuses the abort or the reset that is asked for; `false` if no abort is.
    pub(super) fn refuse(&mut self, queue: usize) -> bool {
        let may_fail = |job: &mut Job| matches!(job.kind, Kind::Abort | Kind::Reset);
        let refused = self.high[queue].pop_front_if(may_fail).filter(|_| !self.gone);
        refused.is_some_and(|job| {
            self.answer(&job, false, true);
            job.kind == Kind::Abort
        })
    }

    /// Ends what was taken from a ring: all at once, or what runs first, so that something behind
    /// it may begin and is ended then. Some is answered later.
    pub(super) fn abort(&mut self, queue: usize) {
        if self.gone {
            return;
        }
        self.aborts += 1;
        if self.aborts.is_multiple_of(2) {
            let (running, waiting) =
                std::mem::take(&mut self.jobs[queue]).into_iter().partition(|job| job.running);
            self.jobs[queue] = waiting;
            self.end(running);
            self.start();
        }
        let rest = std::mem::take(&mut self.jobs[queue]);
        self.end(rest);
        self.start();
    }

    fn end(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            let is_echo = matches!(job.kind, Kind::Barrier | Kind::Ping);
            // An echo that has begun has ended.
            let is_complete = job.running && is_echo;
            self.answer(&job, is_complete, !is_complete);
            if job.running && self.aborts.is_multiple_of(3) {
                self.late.extend(self.answers.pop_back());
            }
        }
    }

    /// Sends the answers that are late.
    pub(super) fn catch_up(&mut self) {
        if !self.gone {
            self.answers.append(&mut self.late);
        }
    }

    /// Starts what can start: in order in each queue, one kernel at a time.
    fn start(&mut self) {
        for queue in 0..QUEUES {
            for at in 0..self.jobs[queue].len() {
                let job = &self.jobs[queue][at];
                if job.running {
                    continue;
                }
                let is_kernel_on =
                    self.jobs.iter().flatten().any(|job| job.kind == Kind::Launch && job.running);
                if (job.barrier && at != 0) || (job.kind == Kind::Launch && is_kernel_on) {
                    break;
                }
                let op = job.op;
                self.jobs[queue][at].running = true;
                if op != 0 {
                    self.log.push((op, Moment::Start));
                }
            }
        }
    }

    /// Forgets what runs, and goes on with what waits.
    fn reset_compute(&mut self) {
        for jobs in &mut self.jobs {
            jobs.retain(|job| job.kind != Kind::Launch || !job.running);
        }
        self.late.retain(|(_, answer)| !matches!(answer, Body::Launch { .. }));
        self.start();
    }

    fn take_running(&mut self, which: usize, may: impl Fn(Kind) -> bool) -> Option<Job> {
        let running: Vec<(usize, usize)> = (0..QUEUES)
            .flat_map(|queue| (0..self.jobs[queue].len()).map(move |at| (queue, at)))
            .filter(|&(queue, at)| self.jobs[queue][at].running && may(self.jobs[queue][at].kind))
            .collect();
        if self.gone || running.is_empty() {
            return None;
        }
        let (queue, at) = running[which % running.len()];
        Some(self.jobs[queue].remove(at))
    }

    pub(super) fn finish(&mut self, which: usize, fail: bool) {
        if let Some(job) = self.take_running(which, |_| true) {
            self.answer(&job, !fail, false);
            self.start();
        }
    }

    /// Ends something of an operation as if it knew no such command: it has not begun it either.
    pub(super) fn forget(&mut self, which: usize) -> Option<Tag> {
        let is_known = |kind| matches!(kind, Kind::Copy | Kind::Launch | Kind::Barrier);
        let job = self.take_running(which, is_known)?;
        let begun = (job.op, Moment::Start);
        if let Some(at) = self.log.iter().rposition(|entry| *entry == begun) {
            self.log.remove(at);
        }
        self.start();
        Some(job.tag)
    }
}
