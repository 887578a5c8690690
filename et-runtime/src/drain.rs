//! Taking responses from the completion queue: by whoever waits, or by the drain thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{Completion, DmaStatus, FwErrorType, LaunchStatus};
use et_hal::{Hal, Mailbox, Pop, ResetScope, Wake};

use crate::clock::Deadline;
use crate::command::{Diagnosis, InFlight, Keep, Launched, Pending, Then, Wire};
use crate::event::Driver;
use crate::handshake::Parker;
use crate::kernel::LaunchFailure;
use crate::operation::Operation;
use crate::shared::{Shared, locked};
use crate::sync;
use crate::{Error, Result};

/// Largest message of a completion queue that is looked at; the device's are much smaller.
const MESSAGE_BYTES: usize = 1024;
/// Messages taken in one go, so that a device that never stops talking cannot hold a thread for ever.
const BATCH: usize = 4096;
/// How long the drain thread naps while commands are in flight and nobody is interested.
const NAP: Duration = Duration::from_millis(1);
/// Naps without work after which the drain thread goes to sleep for good.
const IDLE_NAPS: u32 = 8;
/// Longest sleep on the notification; one that got lost costs this much.
const TICK: Duration = Duration::from_millis(20);
/// Looks at the queue between two looks at the clock while spinning.
const SPINS: u32 = 64;

/// What the drainer works with.
#[derive(Debug)]
pub(crate) struct Tools {
    message: Box<[u8; MESSAGE_BYTES]>,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self { message: Box::new([0; MESSAGE_BYTES]) }
    }
}

impl<H: Hal> Shared<H> {
    /// Takes what has arrived, unless somebody else is at it, and runs callbacks; returns the number of messages.
    ///
    /// The caller holds no lock that a callback may want.
    pub(crate) fn poll_now(&self) -> usize {
        let taken = self.try_drain();
        self.run_callbacks();
        taken
    }

    /// Takes what has arrived, unless somebody else is at it; returns the number of messages. Callbacks are left to the
    /// next who holds no lock.
    pub(crate) fn try_drain(&self) -> usize {
        self.leader.lead().map_or(0, |mut tools| self.drain(&mut tools))
    }

    fn drain(&self, tools: &mut Tools) -> usize {
        let mut taken = 0;
        while taken < BATCH {
            match self.mailbox.pop(&mut tools.message[..]) {
                Ok(Pop::Empty) => break,
                Ok(Pop::Message(len)) => {
                    taken += 1;
                    match Completion::parse(tools.message.get(..len).unwrap_or_default()) {
                        Ok(completion) => self.dispatch(&completion),
                        Err(error) => {
                            let why = format!("malformed response: {error}").into();
                            self.lose(&Error::Lost { why });
                            break;
                        }
                    }
                }
                Err(error) => {
                    if self.refusal().is_none() {
                        self.lose(&Error::hal("reading the completion queue")(error));
                    }
                    break;
                }
            }
        }
        if taken != 0 {
            self.flush_all();
            self.retry_stalled();
        }
        taken
    }

    fn dispatch(&self, completion: &Completion) {
        match *completion {
            Completion::FwError { error, payload } => self.firmware_error(error, payload),
            Completion::TraceBufferFull { .. } => {
                self.counts.trace_full.fetch_add(1, Ordering::Relaxed);
            }
            Completion::Unknown { msg_id, .. } => {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(msg_id, "unknown message ignored");
            }
            _ => match completion.tag().and_then(|tag| self.table.complete(tag)) {
                Some(command) => self.finish(command, completion),
                None => {
                    self.counts.stray.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(?completion, "response without a command ignored");
                }
            },
        }
    }

    /// Spec: §10.4.
    fn firmware_error(&self, error: FwErrorType, payload: u64) {
        let why: Arc<str> = match error {
            FwErrorType::UnsupportedCommand => {
                // The command gets no other answer (Spec: §21, 10).
                let tag = u16::try_from(payload).map(Tag::new);
                match tag.ok().and_then(|tag| self.table.complete(tag)) {
                    Some(command) => {
                        self.count_out(&command);
                        let error = Error::Refused {
                            op: command.operation.as_ref().map_or("command", |o| o.name),
                            status: "unsupported by the firmware".into(),
                        };
                        self.fail_part(&command, error);
                    }
                    None => {
                        self.counts.stray.fetch_add(1, Ordering::Relaxed);
                    }
                }
                return;
            }
            FwErrorType::CmSmodeException => {
                format!("supervisor exception on hart {payload}").into()
            }
            FwErrorType::CmSmodeHang => format!("shires {payload:#x} do not answer").into(),
            kind => {
                tracing::warn!(?kind, payload, "unknown firmware error");
                return;
            }
        };
        tracing::warn!(%why, "compute is down");
        self.set_compute_down(Some(Error::NeedsReset { scope: ResetScope::Compute, why }));
    }

    fn fail_part(&self, command: &InFlight<H>, error: Error) {
        if let Some(operation) = &command.operation {
            operation.fail(error);
            self.end_part(operation);
        }
    }

    fn finish(&self, command: InFlight<H>, completion: &Completion) {
        self.count_out(&command);
        let InFlight { operation, queue, then, sent } = command;
        let result = match (&then, completion) {
            (Then::Reply(reply), _) => {
                if let Some(callbacks) = reply.set(*completion) {
                    callbacks.run();
                }
                return;
            }
            (
                Then::Check(_) | Then::Diagnose(_) | Then::Refill { .. },
                Completion::DmaRead { times, status, .. }
                | Completion::DmaWrite { times, status, .. },
            ) => {
                if let Some(operation) = &operation {
                    operation.record(*times);
                }
                check_copy(*status)
            }
            (Then::Check(_), Completion::Echo { .. }) => Ok(()),
            (Then::Launch(_), Completion::Launch { times, status, error, .. }) => {
                if let Some(operation) = &operation {
                    operation.record(*times);
                }
                if *status == LaunchStatus::KernelCompleted {
                    Ok(())
                } else {
                    let Then::Launch(launched) = then else { unreachable!("matched above") };
                    let failure = LaunchFailure::new(&launched.kernel, *status, error.as_ref());
                    let operation =
                        operation.unwrap_or_else(|| unreachable!("launches belong to operations"));
                    let may_have_run =
                        times.execute != 0 || error.is_some_and(|e| e.shire_mask != 0);
                    if may_have_run {
                        self.diagnose(operation, queue, *launched, failure);
                    } else {
                        operation.fail(Error::Launch(Arc::new(failure)));
                        self.end_part(&operation);
                    }
                    return;
                }
            }
            _ => {
                // The device may still be at work on the command it did not answer.
                self.quarantine(InFlight { operation: None, queue, then, sent });
                let error = Error::Lost { why: "response of another kind than its command".into() };
                if let Some(operation) = &operation {
                    operation.fail(error.clone());
                    self.end_part(operation);
                }
                self.lose(&error);
                return;
            }
        };
        match then {
            Then::Check(Keep::Reader { chunk, place, .. }) => *locked(&place) = Some(chunk),
            Then::Diagnose(diagnosis) => {
                self.diagnosed(operation, queue, *diagnosis, result.is_ok());
                return;
            }
            Then::Refill { context, buffer } => {
                if result.is_err() {
                    context.retire();
                }
                locked(&self.exception_copies).push(buffer);
                return;
            }
            Then::Check(_) | Then::Launch(_) | Then::Reply(_) => {}
        }
        if let Some(operation) = operation {
            if let Err(error) = result {
                operation.fail(error);
            }
            self.end_part(&operation);
        }
    }

    /// Fetches the exception buffer of a failed launch; the operation completes when it is here.
    fn diagnose(
        &self,
        operation: Arc<Operation>,
        queue: usize,
        launched: Launched,
        failure: LaunchFailure,
    ) {
        let buffer = match self.exception_copy() {
            Ok(buffer) => buffer,
            Err(error) => {
                launched.context.retire();
                operation.fail(Error::Launch(Arc::new(failure.without_contexts(&error))));
                self.end_part(&operation);
                return;
            }
        };
        // The queue of the launch may be blocked by the next kernel; another is not.
        let target = self.quietest_queue(queue);
        let nodes = launched.context.read_nodes(&buffer);
        let diagnosis = Diagnosis { launched, buffer, failure };
        let payload = InFlight {
            operation: Some(operation),
            queue: target,
            then: Then::Diagnose(Box::new(diagnosis)),
            sent: Duration::ZERO,
        };
        let wire = Wire::DmaRead(nodes);
        self.post(target, Pending { flags: et_devapi::msg::CommandFlags::EMPTY, wire, payload });
    }

    fn diagnosed(
        &self,
        operation: Option<Arc<Operation>>,
        queue: usize,
        diagnosis: Diagnosis<H>,
        is_valid: bool,
    ) {
        let Diagnosis { launched, mut buffer, failure } = diagnosis;
        let failure = if is_valid {
            failure.with_contexts(&buffer)
        } else {
            failure.without_contexts(&Error::Refused {
                op: "fetching the exception buffer",
                status: "copy failed".into(),
            })
        };
        if let Some(operation) = operation {
            operation.fail(Error::Launch(Arc::new(failure)));
            self.end_part(&operation);
        }
        // Firmware never clears the buffer (Spec: §15), so the pattern has to be put back.
        let Launched { context, .. } = launched;
        if buffer.fill(0, buffer.len_bytes(), et_devapi::abi::EXCEPTION_FILL).is_err() {
            context.retire();
            return;
        }
        let wire = Wire::DmaWrite(context.write_nodes(&buffer));
        let then = Then::Refill { context, buffer };
        let payload = InFlight { operation: None, queue, then, sent: Duration::ZERO };
        self.post(queue, Pending { flags: et_devapi::msg::CommandFlags::EMPTY, wire, payload });
    }

    fn quietest_queue(&self, fallback: usize) -> usize {
        let load = |queue: usize| self.queues[queue].outstanding.load(Ordering::Relaxed);
        (0..self.queues.len()).min_by_key(|&queue| load(queue)).unwrap_or(fallback)
    }

    /// Makes some progress while waiting for room.
    pub(crate) fn step(&self, idle: &mut u32, deadline: Deadline) {
        if self.try_drain() != 0 {
            *idle = 0;
            return;
        }
        *idle += 1;
        if *idle < 2000 {
            std::hint::spin_loop();
            return;
        }
        self.flush_all();
        let left = deadline.left(&*self.config.clock).min(NAP);
        self.rest(left, None);
    }

    /// Waits until `done`, or the deadline; `true` if done. `operation`, if given, wakes the caller by itself.
    pub(crate) fn wait_until(
        &self,
        done: &dyn Fn() -> bool,
        operation: Option<&Operation>,
        deadline: Deadline,
    ) -> bool {
        if done() {
            return true;
        }
        self.pollers.fetch_add(1, Ordering::AcqRel);
        let done = self.spin(done, deadline) || self.block(done, operation, deadline);
        self.run_callbacks();
        if self.pollers.fetch_sub(1, Ordering::AcqRel) == 1 && self.gate.work().is_awaited() {
            // Nobody polls any more, but somebody wants completions: the drain thread takes over.
            self.gate.nudge();
        }
        done
    }

    fn spin(&self, done: &dyn Fn() -> bool, deadline: Deadline) -> bool {
        let clock = &*self.config.clock;
        let until = self.deadline(self.config.spin);
        loop {
            for _ in 0..SPINS {
                if self.try_drain() == 0 {
                    std::hint::spin_loop();
                }
                if done() {
                    return true;
                }
            }
            if until.has_passed(clock) || deadline.has_passed(clock) {
                return done();
            }
        }
    }

    fn block(
        &self,
        done: &dyn Fn() -> bool,
        operation: Option<&Operation>,
        deadline: Deadline,
    ) -> bool {
        let parker = sync::Arc::new(Parker::new());
        if operation.is_some_and(|operation| !operation.cell.subscribe(&parker)) {
            return true;
        }
        let done = loop {
            if done() {
                break true;
            }
            let left = deadline.left(&*self.config.clock);
            if left.is_zero() {
                break false;
            }
            // Without a subscription, somebody else's drain does not wake us.
            let left = if operation.is_some() { left } else { left.min(NAP) };
            self.rest_with(&parker, left, Some(done));
            self.run_callbacks();
        };
        if let Some(operation) = operation {
            operation.cell.unsubscribe(&parker);
        }
        self.leader.resign(&parker);
        done
    }

    /// Sleeps until something arrives, as leader or follower.
    fn rest(&self, left: Duration, done: Option<&dyn Fn() -> bool>) {
        let parker = sync::Arc::new(Parker::new());
        self.rest_with(&parker, left, done);
        self.leader.resign(&parker);
    }

    fn rest_with(
        &self,
        parker: &sync::Arc<Parker>,
        left: Duration,
        done: Option<&dyn Fn() -> bool>,
    ) {
        let Some(mut tools) = self.leader.lead().or_else(|| self.leader.follow(parker)) else {
            parker.park_timeout(left);
            return;
        };
        // First the ticket, then the look: what comes after the look ends the wait.
        let ticket = self.mailbox.ticket();
        let taken = self.drain(&mut tools);
        if taken == 0 && !done.is_some_and(|done| done()) {
            match self.mailbox.wait(ticket, left.min(TICK)) {
                Ok(Wake::Notified | Wake::TimedOut) => {
                    self.drain(&mut tools);
                }
                Err(error) => {
                    if self.refusal().is_none() {
                        self.lose(&Error::hal("waiting for the device")(error));
                    }
                }
            }
        }
    }

    /// The drain thread.
    pub(crate) fn run_drain_thread(&self) {
        let mut idle_naps = 0;
        loop {
            self.run_callbacks();
            let work = self.gate.work();
            if work.is_closed() {
                return;
            }
            if work.in_flight() == 0 && !work.is_awaited() {
                idle_naps += 1;
                if idle_naps > IDLE_NAPS {
                    self.gate.sleep();
                    idle_naps = 0;
                } else {
                    self.gate.nap(NAP);
                }
                continue;
            }
            idle_naps = 0;
            // A waiter that polls is faster; two would only disturb each other.
            let is_needed = work.is_awaited() && self.pollers.load(Ordering::Acquire) == 0;
            if is_needed && work.in_flight() != 0 {
                self.rest(TICK, None);
            } else {
                self.try_drain();
                self.gate.nap(NAP);
            }
        }
    }
}

fn check_copy(status: DmaStatus) -> Result<()> {
    match status {
        DmaStatus::Complete => Ok(()),
        DmaStatus::HostAborted => Err(Error::Aborted),
        status => Err(Error::Copy { status }),
    }
}

impl<H: Hal> Driver for Shared<H> {
    fn wait(&self, operation: &Operation, timeout: Duration) -> bool {
        let done = || operation.cell.is_done();
        if timeout.is_zero() {
            self.poll_now();
            return done();
        }
        self.wait_until(&done, Some(operation), self.deadline(timeout))
    }

    fn poll(&self) {
        self.poll_now();
    }

    fn want(&self) {
        self.gate.want();
    }

    fn unwant(&self) {
        self.gate.unwant();
    }
}
