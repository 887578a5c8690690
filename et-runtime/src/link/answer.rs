//! What follows from answers that the state machine cannot judge alone.

use std::time::Duration;

use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL};
use et_devapi::msg::Tag;
use et_devapi::msg::ops::{Body, CmResetStatus, Completion, DmaStatus, FwErrorType};
use et_hal::{DeviceAccess, Hal};

use super::core::{Answer, Command, Core, Held};
use super::load::{Diagnosis, Pattern};
use super::{DeviceError, Launched, Link, Load, Nodes, Then, Wire};
use crate::kernel::{LaunchContext, LaunchFailure};
use crate::memory::HostBuffer;
use crate::sync::{Arc, Ordering, lock};
use crate::{Error, Refusal, Result};

/// An answered command that needs a decision, which may allocate or call back.
pub(super) struct Decision<H: Hal> {
    held: Held<Box<Load<H>>>,
    body: Body,
}

impl<H: Hal> Link<H> {
    /// Takes a message that answers no command.
    pub(super) fn take_event(&self, core: &mut Core<Box<Load<H>>>, message: &Body, now: Duration) {
        match *message {
            Body::FwError { error, payload } => self.firmware_error(core, error, payload, now),
            Body::TraceBufferFull { .. } => {
                self.counts.trace_full.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(device = %self.name, ?message, "unknown message ignored");
            }
        }
    }

    /// Takes an answer that leaves something to do.
    pub(super) fn take_unsettled(
        &self,
        answer: Answer<Box<Load<H>>>,
        completion: &Completion,
        decisions: &mut Vec<Decision<H>>,
        fatal: &mut Option<Error>,
    ) {
        match answer {
            Answer::Settled => {}
            Answer::Held(held) => decisions.push(Decision { held, body: completion.body }),
            // What was to be aborted goes on; whoever waits for its end has a deadline.
            Answer::AbortRefused(error) => self.report(DeviceError::Device(error)),
            Answer::Nonsense => {
                let why = "response of another kind than its command";
                fatal.get_or_insert(Error::lost(why));
            }
            Answer::Stray => {
                self.counts.stray.fetch_add(1, Ordering::Relaxed);
                let device = &*self.name;
                tracing::debug!(device, ?completion, "response without a command ignored");
            }
        }
    }

    /// Spec: §10.4.
    fn firmware_error(
        &self,
        core: &mut Core<Box<Load<H>>>,
        error: FwErrorType,
        payload: u64,
        now: Duration,
    ) {
        match error {
            FwErrorType::UnsupportedCommand => {
                let tag = u16::try_from(payload).map(Tag::new);
                match tag.map_or(Answer::Stray, |tag| core.refused(tag, now)) {
                    Answer::Stray => {
                        self.counts.stray.fetch_add(1, Ordering::Relaxed);
                    }
                    Answer::AbortRefused(error) => self.report(DeviceError::Device(error)),
                    Answer::Settled | Answer::Held(_) | Answer::Nonsense => {}
                }
            }
            FwErrorType::CmSmodeException | FwErrorType::CmSmodeHang => {
                let why = match error {
                    FwErrorType::CmSmodeHang => format!("shires {payload:#x} do not answer"),
                    _ => format!("supervisor exception on hart {payload}"),
                };
                let why = why.into();
                tracing::warn!(device = %self.name, %why, "compute is down");
                let error = core.compute_fails(&why, now);
                self.report(DeviceError::Device(error));
            }
            kind => tracing::warn!(device = %self.name, ?kind, payload, "unknown firmware error"),
        }
    }

    pub(super) fn decide(&self, decision: Decision<H>) {
        let queue = decision.held.queue;
        self.follow_up(decision);
        self.enter_quietly(|core, now| core.decided(queue, now));
    }

    fn follow_up(&self, decision: Decision<H>) {
        let Decision { held, body } = decision;
        let (load, error, op) = held.split();
        let copied = match body {
            Body::DmaRead { status, .. } | Body::DmaWrite { status, .. } => status,
            // No answer to a copy.
            _ => DmaStatus::Complete,
        };
        let is_good = copied == DmaStatus::Complete;
        match load.then {
            Then::Reply(reply) => {
                let replaced = match body {
                    Body::CmReset { status: CmResetStatus::Success } => self.replace_contexts(),
                    _ => Ok(()),
                };
                if let Err(error) = &replaced
                    && Arc::strong_count(&reply) == 1
                {
                    // Whoever has asked for the reset has given it up.
                    self.report(DeviceError::Device(error.clone()));
                }
                let told = reply.set(replaced.map(|()| body), |parker| self.tell(parker));
                if let Some(told) = told {
                    told.run();
                }
                self.enter_quietly(|core, now| core.release(op, Ok(()), now));
            }
            Then::Launch(launched) => {
                let Body::Launch { status, error: ref block, times, .. } = body else {
                    unreachable!("only its own kind of answer is held for a launch")
                };
                let failure = launched.failure(&load.wire, status, block.as_ref());
                let instead = error.filter(|error| matches!(error, Error::AbortedWith { .. }));
                match self.diagnosis(launched, failure, instead, times.start) {
                    Ok(command) => self.enter_quietly(|core, now| {
                        let queue = core.quietest();
                        core.follow(op, queue, command, now);
                    }),
                    Err(failure) => {
                        self.enter_quietly(|core, _| core.context_gone());
                        self.conclude(*failure, op);
                    }
                }
            }
            Then::Diagnose(diagnosis) => {
                let Diagnosis { launched, buffer, failure, instead, since } = *diagnosis;
                let failure = if is_good {
                    self.read_report(failure, &buffer)
                } else {
                    failure.without_contexts(&Error::Refused {
                        op: "fetching the exception buffer",
                        status: Refusal::Copy(copied),
                    })
                };
                // Whoever hears of the end finds the memory free.
                let context = launched.into_context();
                match instead {
                    Some(error) => {
                        self.enter_quietly(|core, now| core.release(op, Err(error), now))
                    }
                    None => match self.testimony(failure, since) {
                        Ok(command) => self.enter_quietly(|core, now| {
                            let queue = core.quietest();
                            core.follow(op, queue, command, now);
                        }),
                        Err(failure) => self.conclude(failure, op),
                    },
                }
                if let Some(context) = context {
                    self.refill(context, buffer);
                }
            }
            Then::Testify(testimony) => {
                let failure = self.heard(*testimony, is_good);
                self.conclude(failure, op);
            }
            Then::Refill { context, pattern } => {
                if let Pattern::Own(buffer) = pattern {
                    lock(&self.reports).push(buffer);
                }
                self.enter_quietly(|core, now| {
                    if is_good {
                        core.context_back(context);
                    } else {
                        core.context_gone();
                    }
                    core.release(op, Ok(()), now);
                });
            }
            Then::Forward { answer, .. } => {
                *lock(&answer) = Some(body);
                self.enter_quietly(|core, now| core.release(op, Ok(()), now));
            }
            Then::Check(_) => self.enter_quietly(|core, now| core.release(op, Ok(()), now)),
        }
    }

    /// The command that fetches the exception buffer of a failed launch; its operation ends when it
    /// is here. The report without, if that cannot be.
    fn diagnosis(
        &self,
        launched: Launched,
        failure: LaunchFailure,
        instead: Option<Error>,
        since: u64,
    ) -> Result<Command<Box<Load<H>>>, Box<LaunchFailure>> {
        let spare = lock(&self.reports).pop();
        let made = spare
            .map_or_else(|| self.host_buffer(EXCEPTION_BUFFER_BYTES, DeviceAccess::ReadWrite), Ok);
        let (buffer, context) = match (made, &launched.context) {
            (Ok(buffer), Some(context)) => (buffer, context),
            (Err(error), _) => return Err(failure.without_contexts(&error).into()),
            (Ok(_), None) => return Err(failure.into()),
        };
        let wire = Wire::DmaRead(Nodes::One(context.read_node(&buffer)));
        let diagnosis = Diagnosis { launched, buffer, failure, instead, since };
        Ok(Command::new(Load::new(wire, Then::Diagnose(Box::new(diagnosis)))))
    }

    fn read_report(&self, failure: LaunchFailure, buffer: &HostBuffer<H>) -> LaunchFailure {
        let mut bytes = vec![0u8; buffer.len_bytes()];
        let read = buffer
            .sync_for_cpu(self.hal.dma(), 0..EXCEPTION_BUFFER_BYTES)
            .and_then(|()| buffer.copy_out(0, &mut bytes));
        match read {
            Ok(()) => failure.with_contexts(&bytes, &self.memory),
            Err(error) => failure.without_contexts(&error),
        }
    }

    /// Puts the pattern back into an exception buffer, since firmware never clears it. Spec: §15.
    fn refill(&self, context: LaunchContext, mut buffer: HostBuffer<H>) {
        let filled = buffer
            .fill(0, EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL)
            .and_then(|()| buffer.sync_for_device(self.hal.dma(), 0..EXCEPTION_BUFFER_BYTES));
        if filled.is_err() {
            self.enter_quietly(|core, _| core.context_gone());
            return;
        }
        let wire = Wire::DmaWrite(Nodes::One(context.write_node(&buffer)));
        let then = Then::Refill { context, pattern: Pattern::Own(buffer) };
        self.post(Load::new(wire, then));
    }
}
