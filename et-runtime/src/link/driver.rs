//! Operations and messages on their way between callers, state machine and mailbox.

use std::cell::OnceCell;
use std::time::Duration;

use et_devapi::msg::ops::{Completion, MAX_COMMAND_BYTES, MAX_LAUNCH_PAYLOAD};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::{Hal, Mailbox, Pop, Push, QueueId, Ticket};

use super::core::{
    Answer, Command, Core, Ended, OnReached, Output, Pushed, Reached, Sink, StreamKey,
};
use super::errands::Errand;
use super::wait::{Source, Terms};
use super::{
    Continuations, DeviceError, EventState, Link, Load, OneShot, OpName, Operation, Outcome,
    Parker, StreamError, Then, Whereabouts, Wire,
};
use crate::clock::Deadline;
use crate::sync::{Arc, AtomicBool, Ordering, lock};
use crate::{Error, Result};

/// Largest message of a completion queue that is looked at; the device's are much smaller.
const MESSAGE_BYTES: usize = 1024;
/// Messages whose effects are worked out in one go.
const BATCH: usize = 64;
/// Batches taken in one go, so that a device that never stops talking cannot hold a thread for
/// ever.
const BATCHES: usize = 64;
/// Longest sleep on the notification; one that got lost costs this much.
const TICK: Duration = Duration::from_millis(20);
/// Between two looks at what is left of a device that is lost.
const NAP: Duration = Duration::from_millis(1);
/// Looks at the queue between two looks at the clock while spinning.
const SPINS: u32 = 64;

/// Room for every command but lists of several copies.
const SHORT_COMMAND_BYTES: usize = 8 + 32 + MAX_LAUNCH_PAYLOAD;

struct MailboxSink<'a, M>(&'a M);

impl<H: Hal> Sink<Box<Load<H>>> for MailboxSink<'_, H::Mailbox> {
    fn push(
        &mut self,
        queue: QueueId,
        tag: Tag,
        flags: CommandFlags,
        load: &mut Box<Load<H>>,
    ) -> Pushed {
        if load.wire.is_list() {
            self.push_by(queue, tag, flags, &load.wire, &mut [0; MAX_COMMAND_BYTES])
        } else {
            self.push_by(queue, tag, flags, &load.wire, &mut [0; SHORT_COMMAND_BYTES])
        }
    }
}

impl<M: Mailbox> MailboxSink<'_, M> {
    fn push_by(
        &self,
        queue: QueueId,
        tag: Tag,
        flags: CommandFlags,
        wire: &Wire,
        message: &mut [u8],
    ) -> Pushed {
        let len = match wire.encode(tag, flags, message) {
            Ok(len) => len,
            Err(error) => unreachable!("commands are checked before they are sent: {error}"),
        };
        match self.0.push(queue, &message[..len]) {
            Ok(Push::Accepted) => Pushed::Accepted,
            Ok(Push::Full) => Pushed::Full,
            Err(error) => Pushed::Broken(Error::hal("sending a command")(error)),
        }
    }
}

/// What the thread that drains works with.
pub(crate) struct Tools<H: Hal> {
    message: Box<[u8; MESSAGE_BYTES]>,
    batch: Vec<Completion>,
    output: Output<Box<Load<H>>>,
}

impl<H: Hal> Tools<H> {
    pub(super) fn new() -> Self {
        let batch = Vec::with_capacity(BATCH);
        Self { message: Box::new([0; MESSAGE_BYTES]), batch, output: Output::default() }
    }
}

/// Leaves a hint for those who do not have the lock.
fn note(hint: &AtomicBool, value: bool) {
    // Relaxed: who acts upon it looks again with the lock. Not written without need, as others read
    // it all the time.
    if hint.load(Ordering::Relaxed) != value {
        hint.store(value, Ordering::Relaxed);
    }
}

impl<H: Hal> Link<H> {
    /// Submits an operation of at most one command, without waiting for room.
    pub(crate) fn submit(
        &self,
        stream: StreamKey,
        name: &'static str,
        command: Option<Command<Box<Load<H>>>>,
    ) -> Result<Arc<Operation>> {
        self.enter(|core, now| self.accept(core, stream, name, command, now))
    }

    /// Submits operations of one command each, one after the other and without waiting for room:
    /// all of them or none. The device hears of them once.
    pub(crate) fn submit_all(
        &self,
        stream: StreamKey,
        name: &'static str,
        commands: Vec<Command<Box<Load<H>>>>,
    ) -> Result<Vec<Arc<Operation>>> {
        self.enter(|core, now| {
            let accept = |command| self.accept(core, stream, name, Some(command), now);
            // What refuses one refuses the first: nothing happens to the device in between.
            commands.into_iter().map(accept).collect()
        })
    }

    #[inline]
    fn accept(
        &self,
        core: &mut Core<Box<Load<H>>>,
        stream: StreamKey,
        name: &'static str,
        command: Option<Command<Box<Load<H>>>>,
        now: Duration,
    ) -> Result<Arc<Operation>> {
        let kernel = command.as_ref().and_then(|command| self.kernel_of(&command.load));
        let operation = core.submit(stream, name, command, now)?;
        if let Some(kernel) = kernel {
            operation.set_kernel(kernel);
        }
        Ok(operation)
    }

    /// The number of the kernel that a command launches, if that is to be recorded.
    pub(super) fn kernel_of(&self, load: &Load<H>) -> Option<u32> {
        match &load.then {
            Then::Launch(launched) if self.profiler.is_on() => {
                Some(launched.kernel.number(&self.profiler))
            }
            _ => None,
        }
    }

    /// Changes the state machine, sends what can be sent, and tells whom it concerns.
    ///
    /// The caller holds no lock that a callback may want.
    pub(super) fn enter<R>(
        &self,
        change: impl FnOnce(&mut Core<Box<Load<H>>>, Duration) -> R,
    ) -> R {
        let mut output = Output::default();
        let (result, is_lost) = self.enter_with(&mut output, change);
        if !output.is_empty() || is_lost {
            self.deliver(&mut output);
            self.run_errands();
        }
        result
    }

    /// The same, for what may be a part of draining: callbacks of users are left to others, who do
    /// not have all other waiters wait for this thread.
    pub(super) fn enter_quietly<R>(
        &self,
        change: impl FnOnce(&mut Core<Box<Load<H>>>, Duration) -> R,
    ) -> R {
        let mut output = Output::default();
        let (result, _) = self.enter_with(&mut output, change);
        if !output.is_empty() {
            self.deliver(&mut output);
            if self.has_errands.load(Ordering::Acquire) {
                self.tell(&self.background);
            }
        }
        result
    }

    /// Returns `true` with the result if the device was found to be lost.
    fn enter_with<R>(
        &self,
        output: &mut Output<Box<Load<H>>>,
        change: impl FnOnce(&mut Core<Box<Load<H>>>, Duration) -> R,
    ) -> (R, bool) {
        let now = self.now();
        let mut core = lock(&self.core);
        let result = change(&mut core, now);
        core.pump(now, &mut MailboxSink(&*self.mailbox));
        let must_kick = std::mem::take(&mut core.output.kick);
        note(&self.has_backlog, core.has_backlog());
        note(&self.wants_context, core.wants_more_contexts());
        if !core.output.ended.is_empty() {
            // Who finds the end in the state machine finds this too.
            core.deliveries = core.deliveries.wrapping_add(1);
        }
        if !core.output.is_empty() {
            std::mem::swap(&mut core.output, output);
        }
        drop(core);
        if must_kick && let Err(error) = self.mailbox.kick() {
            self.lose(&Error::hal("ringing the doorbell")(error));
            return (result, true);
        }
        (result, false)
    }

    /// Lets go of memory, sets results and wakes threads. Callbacks become errands.
    fn deliver(&self, output: &mut Output<Box<Load<H>>>) {
        let mut whereabouts = Whereabouts::Here;
        let mut tell = |parker: &Parker| {
            if parker.call() == Whereabouts::Abroad {
                whereabouts = Whereabouts::Abroad;
            }
        };
        for (load, error) in output.finished.drain(..) {
            load.finish(error, &mut tell);
        }
        let has_results = !output.ended.is_empty();
        self.profiler.operations_done(&output.ended);
        for Ended { operation, timeline, error, told: reached } in output.ended.drain(..) {
            let has_failed = error.is_some();
            let outcome = match error {
                Some(error) => Err(self.during(operation.name, error)),
                None => Ok(timeline),
            };
            let state = EventState::of(&outcome);
            let Some(told) = operation.result.set(outcome, &mut tell) else { continue };
            if !reached.is_empty() {
                let operation = Arc::clone(&operation);
                self.add_errand(Errand::Reached(Reached { operation, state, told: reached }));
            }
            if !told.is_empty() {
                self.add_errand(Errand::Ended(operation.name(), told));
            }
            if has_failed && let Some(operation) = Arc::into_inner(operation) {
                self.list(operation);
            }
        }
        for reached in output.reached.drain(..) {
            self.add_errand(Errand::Reached(reached));
        }
        // SeqCst on both sides: either this thread sees the latecomer, or it sees the result.
        if has_results {
            self.delivered.fetch_add(1, Ordering::SeqCst);
        }
        if has_results && self.has_latecomers.load(Ordering::SeqCst) {
            self.has_latecomers.store(false, Ordering::SeqCst);
            output.wake.append(&mut lock(&self.latecomers));
        }
        for parker in output.wake.drain(..) {
            tell(&parker);
        }
        if std::mem::take(&mut output.rouse) {
            tell(&self.background);
        }
        if whereabouts == Whereabouts::Abroad {
            self.mailbox.wake();
        }
    }

    /// Takes messages and works out what they mean; returns how many they were.
    fn take(&self, tools: &mut Tools<H>) -> usize {
        let mut fatal = None;
        while tools.batch.len() < BATCH && fatal.is_none() {
            match self.mailbox.pop(&mut tools.message[..]) {
                Ok(Pop::Empty) => break,
                Ok(Pop::Message(len)) => {
                    match Completion::parse(tools.message.get(..len).unwrap_or_default()) {
                        Ok(completion) => tools.batch.push(completion),
                        Err(error) => {
                            let why = format!("malformed response: {error}");
                            fatal = Some(Error::lost(why));
                        }
                    }
                }
                Err(error) => {
                    fatal = Some(Error::hal("reading the completion queue")(error));
                }
            }
        }
        let taken = tools.batch.len();
        if taken != 0 || self.has_backlog.load(Ordering::Relaxed) {
            let Tools { batch, output, .. } = tools;
            let mut decisions = Vec::new();
            self.enter_with(output, |core, now| {
                for completion in batch.drain(..) {
                    let Completion { tag, ref body } = completion;
                    if !completion.is_answer() {
                        self.take_event(core, body, now);
                        continue;
                    }
                    let answer = core.answer(tag, body, now);
                    if !matches!(answer, Answer::Settled) {
                        self.take_unsettled(answer, &completion, &mut decisions, &mut fatal);
                    }
                }
            });
            self.deliver(output);
            for decision in decisions {
                self.decide(decision);
            }
        }
        if let Some(error) = fatal {
            self.lose(&error);
            return 0;
        }
        taken
    }

    /// Takes what has arrived, without waiting, and runs callbacks; returns the number of messages.
    pub(crate) fn poll(&self) -> usize {
        let taken = self.waiters.poll(self);
        self.run_errands();
        taken
    }

    /// Lists an error of a stream for a caller that may hold locks of its user.
    pub(crate) fn report_quietly(&self, stream: u32, error: StreamError) {
        self.report(DeviceError::Stream { stream, error });
        if self.has_errands.load(Ordering::Relaxed) {
            self.tell(&self.background);
        }
    }

    /// Takes what has arrived unless another thread is at it. Callbacks are left to others.
    pub(super) fn try_drain(&self) {
        self.waiters.poll(self);
    }

    /// Waits for a result; `None` if the deadline comes first.
    pub(crate) fn wait_for<R: Clone>(&self, result: &OneShot<R>, deadline: Deadline) -> Option<R> {
        self.wait_while(result, &|| self.left(deadline))
    }

    /// Waits for a result while there is time left.
    fn wait_while<R: Clone>(&self, result: &OneShot<R>, left: &dyn Fn() -> Duration) -> Option<R> {
        let mut is_done = || result.is_done();
        // Whoever polls need not be told.
        if !is_done() && !self.spin(&mut is_done, left) {
            let parker = Arc::new(Parker::new());
            if result.subscribe(&parker) {
                self.sleep_until(&parker, &mut is_done, left);
                result.unsubscribe(&parker);
            }
        }
        result.get()
    }

    pub(crate) fn left(&self, deadline: Deadline) -> Duration {
        deadline.left(&*self.config.clock)
    }

    /// Waits until `is_done`, which is looked at whenever `parker` has been given its token.
    pub(super) fn wait(
        &self,
        parker: &Arc<Parker>,
        is_done: &mut dyn FnMut() -> bool,
        left: &dyn Fn() -> Duration,
    ) -> bool {
        is_done() || self.spin(is_done, left) || self.sleep_until(parker, is_done, left)
    }

    /// Polls for a while, once at least; `true` if it is done.
    fn spin(&self, is_done: &mut dyn FnMut() -> bool, left: &dyn Fn() -> Duration) -> bool {
        let looks = if self.config.spin.is_zero() { 1 } else { SPINS };
        // The clock is looked at only if it takes longer.
        let mut until = None;
        loop {
            if self.waiters.poll_until(self, looks, is_done) {
                self.run_errands();
                return true;
            }
            self.run_errands();
            let until = *until.get_or_insert_with(|| self.deadline(self.config.spin));
            if self.left(until).is_zero() || left().is_zero() {
                return is_done();
            }
        }
    }

    fn sleep_until(
        &self,
        parker: &Arc<Parker>,
        is_done: &mut dyn FnMut() -> bool,
        left: &dyn Fn() -> Duration,
    ) -> bool {
        self.waiters.wait(self, parker, is_done, Terms { left, tick: TICK })
    }
}

impl<H: Hal> Source for Link<H> {
    type Tools = Tools<H>;

    fn drain(&self, tools: &mut Tools<H>) -> usize {
        let mut taken = 0;
        for _ in 0..BATCHES {
            let batch = self.take(tools);
            taken += batch;
            if batch < BATCH {
                break;
            }
        }
        taken
    }

    fn ticket(&self) -> Ticket {
        self.mailbox.ticket()
    }

    fn sleep(&self, seen: Ticket, timeout: Duration) {
        if let Err(error) = self.mailbox.wait(seen, timeout).map(drop) {
            self.lose(&Error::hal("waiting for the device")(error));
            // No one can sleep there any more, and what is left ends soon, without the device.
            Parker::new().park_timeout(timeout.min(NAP));
        }
    }

    fn has_errands(&self) -> bool {
        self.has_errands.load(Ordering::Acquire)
    }

    fn run_errands(&self) {
        Self::run_errands(self);
    }
}

/// Waits for a result, as an event does.
pub(crate) trait Driver: Send + Sync {
    /// Waits until the operation is done or the time is up.
    fn wait(&self, operation: &Operation, timeout: Duration) -> Option<Outcome>;
    /// Takes what has arrived, without waiting.
    fn poll(&self);
    /// Returns how far an operation is; `None` if it has ended, or just does.
    fn state(&self, operation: &Operation) -> Option<EventState>;
    /// Has a callback called once the operation is sent or executed, or has ended without it.
    fn on_reached(&self, operation: &Operation, state: EventState, callback: OnReached);
    /// A callback or future is interested, which waits for nothing by itself.
    fn want(&self, operation: &Operation);
    fn unwant(&self, operation: &Operation);
    /// Runs callbacks that were registered too late.
    fn run(&self, of: OpName, told: Continuations<Outcome>);
    /// The same, of those who wait for a state.
    fn run_reached(&self, of: OpName, told: Continuations<EventState>);
    /// The last handle of an operation has gone, and the operation has ended.
    fn forget(&self, operation: Operation);
    /// Names the link, to tell it from others.
    fn address(&self) -> usize;
    /// What errors call the device.
    fn device_name(&self) -> &Arc<str>;
}

impl<H: Hal> Driver for Link<H> {
    fn wait(&self, operation: &Operation, timeout: Duration) -> Option<Outcome> {
        let about = (Some(operation.stream), Some(operation.key.id));
        self.profiler.call("wait", about, || {
            // Not looked at by a wait that is over soon.
            let deadline = OnceCell::new();
            let left = || self.left(*deadline.get_or_init(|| self.deadline(timeout)));
            self.wait_while(&operation.result, &left)
        })
    }

    fn poll(&self) {
        self.poll();
    }

    fn state(&self, operation: &Operation) -> Option<EventState> {
        lock(&self.core).state(operation.key)
    }

    fn on_reached(&self, operation: &Operation, state: EventState, callback: OnReached) {
        let registered = self.enter(|core, _| core.on_reached(operation.key, state, callback));
        let Err(callback) = registered else { return };
        // Its result is there, or is just being set.
        let ended = operation.result.call(move |outcome| callback(&EventState::of(outcome)));
        if let Some(now) = ended {
            self.run_listed(operation.name(), now);
        }
    }

    fn want(&self, operation: &Operation) {
        self.enter(|core, _| core.want(operation.key));
    }

    fn unwant(&self, operation: &Operation) {
        // As in `forget`: a future may go under locks of its user.
        self.enter_quietly(|core, _| core.unwant(operation.key));
    }

    fn run(&self, of: OpName, told: Continuations<Outcome>) {
        self.run_listed(of, told);
    }

    fn run_reached(&self, of: OpName, told: Continuations<EventState>) {
        self.run_listed(of, told);
    }

    fn forget(&self, operation: Operation) {
        self.list(operation);
        // Its thread may hold locks of its user, which a callback may want.
        if self.has_errands.load(Ordering::Relaxed) {
            self.tell(&self.background);
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn device_name(&self) -> &Arc<str> {
        &self.name
    }
}
