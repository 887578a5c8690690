//! What follows from answers that the state machine cannot judge alone.

use std::time::Duration;

use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL};
use et_devapi::msg::Tag;
use et_devapi::msg::ops::{AbortStatus, Body, Completion, DmaStatus, FwErrorType};
use et_hal::{DeviceAccess, Hal};

use super::core::{Answer, Command, Core, Held, StreamKey};
use super::load::{Diagnosis, Pattern};
use super::{DeviceError, Keep, Launched, Link, Load, Nodes, Then, Wire};
use crate::kernel::{LaunchContext, LaunchFailure};
use crate::memory::{HostBuffer, Lease};
use crate::sync::{Arc, Ordering, lock};
use crate::{Error, Refusal, Result};

/// An answered command that needs a decision, which may allocate or call back.
pub(super) struct Decision<H: Hal> {
    held: Held<Box<Load<H>>>,
    body: Body,
}

impl<H: Hal> Link<H> {
    /// Hands a message to the state machine.
    pub(super) fn answer(
        &self,
        core: &mut Core<Box<Load<H>>>,
        completion: &Completion,
        now: Duration,
        decisions: &mut Vec<Decision<H>>,
        fatal: &mut Option<Error>,
    ) {
        match completion.body {
            Body::FwError { error, payload } => {
                self.firmware_error(core, error, payload, now);
                return;
            }
            Body::TraceBufferFull { .. } => {
                self.counts.trace_full.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Body::Abort { status } if status != AbortStatus::Success => {
                // What was to be aborted goes on; whoever waits for its end has a deadline.
                let error = Error::Refused { op: "abort", status: Refusal::Abort(status) };
                self.report(DeviceError::Device(error));
            }
            Body::Unknown { msg_id, .. } => {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(msg_id, "unknown message ignored");
                return;
            }
            _ => {}
        }
        match core.answer(completion.tag, &completion.body, now) {
            Answer::Settled => {}
            Answer::Held(held) => decisions.push(Decision { held, body: completion.body }),
            Answer::Nonsense => {
                let why = "response of another kind than its command";
                fatal.get_or_insert(Error::lost(why));
            }
            Answer::Stray => {
                self.counts.stray.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(?completion, "response without a command ignored");
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
                if !tag.is_ok_and(|tag| core.refused(tag, now)) {
                    self.counts.stray.fetch_add(1, Ordering::Relaxed);
                }
            }
            FwErrorType::CmSmodeException | FwErrorType::CmSmodeHang => {
                let why = match error {
                    FwErrorType::CmSmodeHang => format!("shires {payload:#x} do not answer"),
                    _ => format!("supervisor exception on hart {payload}"),
                };
                let why = why.into();
                tracing::warn!(%why, "compute is down");
                let error = core.compute_fails(&why, now);
                self.report(DeviceError::Device(error));
            }
            kind => tracing::warn!(?kind, payload, "unknown firmware error"),
        }
    }

    pub(super) fn decide(&self, decision: Decision<H>) {
        let queue = decision.held.queue;
        self.follow_up(decision);
        self.enter(|core, now| core.decided(queue, now));
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
                let told = reply.set(Ok(body), |parker| self.tell(parker));
                if let Some(told) = told {
                    told.run();
                }
                self.enter(|core, now| core.release(op, Ok(()), now));
            }
            Then::Launch(launched) => {
                let Body::Launch { status, error: ref block, times, .. } = body else {
                    unreachable!("only its own kind of answer is held for a launch")
                };
                let failure = launched.failure(&load.wire, status, block.as_ref());
                let instead = error.filter(|error| matches!(error, Error::AbortedWith { .. }));
                match self.diagnosis(launched, failure, instead, times.start) {
                    Ok(command) => self.enter(|core, now| {
                        let queue = core.quietest();
                        core.follow(op, queue, command, now);
                    }),
                    Err(failure) => {
                        self.enter(|core, _| core.context_gone());
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
                    Some(error) => self.enter(|core, now| core.release(op, Err(error), now)),
                    None => match self.testimony(failure, since) {
                        Ok(command) => self.enter(|core, now| {
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
                self.enter(|core, now| {
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
                self.enter(|core, now| core.release(op, Ok(()), now));
            }
            Then::Check(_) => self.enter(|core, now| core.release(op, Ok(()), now)),
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
            self.enter(|core, _| core.context_gone());
            return;
        }
        let wire = Wire::DmaWrite(Nodes::One(context.write_node(&buffer)));
        let then = Then::Refill { context, pattern: Pattern::Own(buffer) };
        self.post(Load::new(wire, then));
    }

    fn post(&self, load: Box<Load<H>>) {
        self.enter(|core, _| {
            let queue = core.quietest();
            core.post(queue, Command::new(load));
        });
    }

    /// Makes one more launch context, if launches may need one.
    ///
    /// A stream that has nothing else to wait for gets it together with the command that puts the
    /// pattern into it. Others must not hold one while they wait, so it is made ready for whoever
    /// is next.
    ///
    /// # Errors
    /// Why nothing can be launched; why none can be made, if there is none at all.
    pub(crate) fn fresh_context(&self, stream: StreamKey) -> Result<Option<Fresh<'_, H>>> {
        if !self.wants_context.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (wants_more, is_clear) = {
            let mut core = lock(&self.core);
            if let Some(error) = core.health().compute_refusal() {
                return Err(error.clone());
            }
            let wants_more = core.wants_more_contexts();
            if wants_more {
                core.context_made();
            }
            (wants_more, core.is_clear(stream))
        };
        if !wants_more {
            return Ok(None);
        }
        let Some((fresh, context)) = self.make_context()? else { return Ok(None) };
        if is_clear {
            let (wire, pattern) = self.pattern_into(&context)?;
            let keep = Keep::Lease { _host: pattern, _device: (&context.exception_slice()).into() };
            return Ok(Some((Load::copy(wire, keep), fresh.with(context))));
        }
        self.add_context(fresh, context)?;
        Ok(None)
    }

    /// Makes contexts in place of those that a compute reset has lost: commands that wait for one
    /// may have been accepted without.
    ///
    /// # Errors
    /// Why none can be made, if there is none at all.
    pub(super) fn replace_contexts(&self, lost: usize) -> Result<()> {
        for _ in 0..lost {
            lock(&self.core).context_made();
            if let Some((fresh, context)) = self.make_context()? {
                self.add_context(fresh, context)?;
            }
        }
        Ok(())
    }

    /// Makes more contexts, at most `count`, while launches that were accepted wait
    /// for one.
    ///
    /// # Errors
    /// Why none can be made, if there is none at all.
    pub(crate) fn more_contexts(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            // Relaxed: this thread has set them itself if they concern its own launches.
            let is_short = [&self.has_backlog, &self.wants_context];
            if !is_short.into_iter().all(|hint| hint.load(Ordering::Relaxed)) {
                break;
            }
            {
                let mut core = lock(&self.core);
                if !core.wants_more_contexts() {
                    break;
                }
                core.context_made();
            }
            let Some((fresh, context)) = self.make_context()? else { break };
            self.add_context(fresh, context)?;
        }
        Ok(())
    }

    /// Takes the memory of a context that is counted already; `None` if there is no memory for it,
    /// and others are there.
    fn make_context(&self) -> Result<Option<(FreshContext<'_, H>, LaunchContext)>> {
        let fresh = FreshContext { link: self, context: None };
        match LaunchContext::new(&self.memory) {
            Ok(context) => Ok(Some((fresh, context))),
            // With at least one the launch only has to wait.
            Err(_) if lock(&self.core).contexts() > 1 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the pattern put into a context, for the launch that has waited longest.
    fn add_context(&self, fresh: FreshContext<'_, H>, context: LaunchContext) -> Result<()> {
        let (wire, pattern) = self.pattern_into(&context)?;
        let pattern = Pattern::Shared { _buffer: pattern };
        self.post(Load::new(wire, Then::Refill { context, pattern }));
        std::mem::forget(fresh);
        Ok(())
    }

    fn pattern_into(&self, context: &LaunchContext) -> Result<(Wire, Arc<Lease<H>>)> {
        let pattern = self.pattern()?;
        let node = pattern.with(|buffer| context.write_node(buffer));
        let Some(node) = node else { unreachable!("the pattern is never given away") };
        Ok((Wire::DmaWrite(Nodes::One(node)), pattern))
    }

    fn pattern(&self) -> Result<Arc<Lease<H>>> {
        let mut place = lock(&self.pattern);
        if let Some(pattern) = &*place {
            return Ok(Arc::clone(pattern));
        }
        let mut buffer = self.host_buffer(EXCEPTION_BUFFER_BYTES, DeviceAccess::Read)?;
        buffer.fill(0, EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL)?;
        buffer.sync_for_device(self.hal.dma(), 0..EXCEPTION_BUFFER_BYTES)?;
        let pattern = Lease::new(buffer);
        *place = Some(Arc::clone(&pattern));
        Ok(pattern)
    }
}

/// Makes the error of a launch, and logs it: the operation may have no one who asks.
pub(super) fn failed(failure: LaunchFailure) -> Error {
    let (kernel, harts) = (failure.kernel(), failure.contexts.len());
    tracing::debug!(kernel, harts, status = %failure.status, why = %failure, "launch failed");
    Error::Launch(Arc::new(failure))
}

/// A command that puts the pattern into a context, and the context.
pub(crate) type Fresh<'a, H> = (Box<Load<H>>, FreshContext<'a, H>);

/// A launch context that the state machine counts and does not have yet.
pub(crate) struct FreshContext<'a, H: Hal> {
    link: &'a Link<H>,
    context: Option<LaunchContext>,
}

impl<H: Hal> FreshContext<'_, H> {
    fn with(mut self, context: LaunchContext) -> Self {
        self.context = Some(context);
        self
    }

    pub(crate) fn take(mut self) -> Option<LaunchContext> {
        let context = self.context.take();
        std::mem::forget(self);
        context
    }
}

impl<H: Hal> Drop for FreshContext<'_, H> {
    fn drop(&mut self) {
        lock(&self.link.core).context_gone();
    }
}

#[cfg(test)]
mod tests {
    use et_hal_mock::{MockHal, presets};

    use super::*;
    use crate::{Config, Device, Drain};

    #[test]
    fn as_many_contexts_are_made_anew_as_were_lost() {
        let mailbox = presets::answering_mailbox(presets::success);
        let hal = MockHal::new(presets::booted_registers(), mailbox);
        let device = Device::open_with(hal, Config::new().drain(Drain::Caller));
        let device = device.expect("it is healthy");
        let link = device.link();
        assert_eq!(lock(&link.core).contexts(), 0);
        link.replace_contexts(2).expect("there is memory");
        // They have their pattern when the device has answered.
        assert!(lock(&link.core).wants_more_contexts());
        link.poll();
        assert_eq!(lock(&link.core).contexts(), 2);
        assert!(!lock(&link.core).wants_more_contexts());
    }
}
