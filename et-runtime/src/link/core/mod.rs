//! The state machine of a link: everything between an accepted operation and its end.
//!
//! It has no thread, no clock and does no input or output of its own: messages go to a [`Sink`] and
//! come as answers, the time is an argument, and whom to tell of what has happened is put into an
//! [`Output`]. The same inputs always have the same effects.
//!
//! An operation is *open* while its submitter adds commands, *waiting* behind the earlier ones of
//! its stream, and *active* while the device has commands of it. It ends exactly once, when it is
//! closed, has nothing left to send and nothing is active.
//!
//! | File | What |
//! |---|---|
//! | `mod.rs` | streams and operations: submit, begin, append, close, order, end |
//! | `send.rs` | which command goes next, in each queue |
//! | `ready.rs` | streams in the order of their turns, and their priorities |
//! | `answer.rs` | what an answer means for its operation; loss of the device |
//! | `look.rs` | who waits for what, and what is left to attend to |
//! | `abort.rs` | aborts, and what they take down besides |
//! | `reset.rs` | resets of compute, and cores that fail |
//! | `output.rs` | what there is to do when it has been left |
//! | `traffic.rs` | what the device has done so far |

mod abort;
mod answer;
mod look;
#[cfg(test)]
mod model;
mod output;
mod ready;
mod reset;
mod send;
mod slab;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::{Body, Times};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::QueueId;

use self::abort::Abort;
use self::slab::Slab;
use self::traffic::Traffic;
use super::Parker;
use super::flight::Flights;
use super::health::Health;
use super::operation::{OpKey, Operation};
use crate::timeline::Timeline;
use crate::{Error, Result};

pub(crate) use abort::Harm;
pub(crate) use answer::{Answer, Held, HeldOp};
pub(crate) use output::{Ended, OnReached, Output, Reached};
pub use ready::Priority;
use ready::Ready;
pub(crate) use traffic::Work;

/// What the state machine has to know of a command.
pub(crate) trait Load: Sized {
    /// Device memory that a launch needs and of which there is a limited number.
    type Context;

    /// Creates the command that aborts all of a queue. Spec: §10.1.
    fn abort() -> Self;

    /// Returns `true` if it cannot be sent without a context.
    fn wants_context(&self) -> bool;

    fn give_context(&mut self, context: Self::Context);

    fn take_context(&mut self) -> Option<Self::Context>;

    /// Returns `true` if its context is as it was given, although it did not complete.
    fn has_clean_context(&self) -> bool;

    /// Creates a command that does nothing but to be answered.
    fn ping() -> Self;

    /// Returns `true` if it holds the device up for as long as its kernel runs.
    fn is_launch(&self) -> bool;

    /// Returns `true` if it is a launch with a context, or one that will get it.
    fn has_context(&self) -> bool;

    /// Splits off what has to hear of the end of the command, from the memory that the device may
    /// still reach.
    fn take_listener(&mut self) -> Option<Self>;

    /// Returns what it has the device do.
    fn work(&self) -> Work;

    /// Returns what an answer says.
    fn verdict(&self, answer: &Body) -> Verdict;
}

/// What an answer says about its command.
#[derive(Debug)]
pub(crate) enum Verdict {
    Done(Option<Times>),
    Failed(Error, Option<Times>),
    /// The device gave it up because of an abort.
    Aborted {
        is_repeatable: bool,
        /// A copy that has begun may be repeated, and has changed memory.
        has_begun: bool,
    },
    /// Whoever drains has to decide.
    Hold(Option<Times>),
    /// It answers another kind of command.
    Nonsense,
}

/// Where messages go.
pub(crate) trait Sink<C> {
    fn push(&mut self, queue: QueueId, tag: Tag, flags: CommandFlags, load: &mut C) -> Pushed;
}

/// What became of a push.
#[derive(Debug)]
pub(crate) enum Pushed {
    Accepted,
    /// No room now.
    Full,
    /// The queue is broken.
    Broken(Error),
}

/// A command, with how it is sent.
#[derive(Debug)]
pub(crate) struct Command<C> {
    pub(crate) load: C,
    pub(crate) flags: CommandFlags,
    /// It starts when the earlier commands of its operation have ended.
    pub(crate) is_behind: bool,
}

impl<C> Command<C> {
    /// A command that may overtake the others of its operation.
    pub(crate) fn new(load: C) -> Self {
        Self { load, flags: CommandFlags::EMPTY, is_behind: false }
    }

    /// A command behind the earlier ones of its operation.
    pub(crate) fn behind(load: C) -> Self {
        Self { load, flags: CommandFlags::EMPTY, is_behind: true }
    }

    pub(crate) fn flags(mut self, flags: CommandFlags) -> Self {
        self.flags = flags;
        self
    }
}

/// Names a stream inside its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamKey(u32);

/// Sizes that do not change while a device is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) queues: usize,
    /// High-priority queues, which may be fewer.
    pub(crate) high_queues: usize,
    pub(crate) in_flight: u16,
    /// Most contexts.
    pub(crate) contexts: usize,
}

/// What the background thread has to attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    Nothing,
    /// Commands are in flight, and nothing depends on hearing of their end soon.
    Flights,
    /// Somewhere a callback, a future or a command on the host waits for an answer.
    Wanted,
}

struct Op<C> {
    operation: Arc<Operation>,
    stream: u32,
    pending: VecDeque<Command<C>>,
    /// Commands that were sent and have not ended: in flight, to be sent again, or held.
    active: u32,
    is_open: bool,
    /// No submitter looks after it while it is open: a failure closes it.
    is_unattended: bool,
    has_started: bool,
    /// Its first command waits in the device for what was before it.
    is_barred: bool,
    /// The sequence number of its last command behind a barrier, or 0.
    barrier: u64,
    /// The first.
    error: Option<Error>,
    sent: Option<Duration>,
    times: Option<Times>,
    /// Callbacks and futures.
    interest: u32,
    /// Whom to tell when it is sent, or executed; each has an interest.
    on_sent: Vec<OnReached>,
    on_executed: Vec<OnReached>,
    /// The device has answered all of it, and something is left to be decided.
    is_executed: bool,
    /// Places in streams that wait for it.
    dependents: Vec<(u32, u64)>,
    /// It is among the entries of its stream.
    is_entry: bool,
    /// Its abort was asked for.
    abort: Option<Harm>,
    /// Its abort waits until that harms no other.
    is_patient: bool,
    /// The thread that waits until all of it is sent.
    submitter: Option<Arc<Parker>>,
}

enum Entry {
    Op(u32),
    Wait(u64),
}

struct Lane<T> {
    number: u32,
    queue: usize,
    /// What is not sent yet, in order.
    entries: VecDeque<Entry>,
    /// Commands sent and not answered.
    outstanding: u32,
    /// Operations that have not ended.
    ops: u32,
    /// Waits for what is in the same queue and has not ended: the next command must not overtake
    /// it, although the stream itself is idle.
    barred_by: Vec<u64>,
    /// The same, for what is sent again after an abort; until the queue is empty.
    keeps_barrier: bool,
    has_handle: bool,
    /// It is in its queue's list of streams with something to send.
    is_listed: bool,
    priority: Priority,
    /// For the launch that is next.
    granted: Option<T>,
    waiters: Vec<Arc<Parker>>,
    /// When something of it was last sent or answered.
    progress: Duration,
}

impl<T> Lane<T> {
    /// Returns `true` if its next command needs a barrier, although the stream is idle.
    fn is_barred(&self) -> bool {
        self.keeps_barrier || !self.barred_by.is_empty()
    }
}

struct Queue<C> {
    /// Streams with something to send, in turn.
    ready: Ready,
    /// The runtime's own commands, and those that follow from an answer.
    extra: VecDeque<Extra<C>>,
    /// To be sent again after an abort, by the order of their first sending.
    again: Vec<Sent<C>>,
    in_flight: u32,
    /// Commands for the high-priority queue, which takes one at a time. Spec: §10.1.
    high: VecDeque<Extra<C>>,
    is_high_busy: bool,
    abort: Abort,
    /// The abort is asked for again if the device answers it too early.
    asks_again: bool,
    /// When the device has answered it.
    answered: Duration,
    /// In whose favour it was aborted, while something may yet be ended by that, and it goes on.
    recent: Option<u64>,
    /// Answered commands that wait for a decision.
    held: usize,
    /// Something in it [waits](Op::is_patient) to be aborted.
    has_patient: bool,
    /// Some streams [keep a barrier](Lane::keeps_barrier).
    keeps_barriers: bool,
    /// While it is aborted: what was sent before this one is overtaken by what was executed.
    overtaken: u64,
}

impl<C> Queue<C> {
    /// Returns `true` if it has nothing to send.
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && !self.has_extras()
    }

    /// Returns `true` if there is something to send besides the streams, or the streams must wait.
    fn has_extras(&self) -> bool {
        self.abort != Abort::None
            || !(self.extra.is_empty() && self.again.is_empty() && self.high.is_empty())
    }
}

struct Extra<C> {
    op: Option<u32>,
    role: Role,
    command: Command<C>,
}

struct Sent<C> {
    op: Option<u32>,
    queue: u32,
    role: Role,
    sequence: u64,
    /// It comes after all that its queue was sent before this one.
    after: u64,
    /// It follows from an answer, or is the runtime's own: no order of a stream is its, an abort is
    /// not meant for it, and what becomes of it is for whoever drains to decide.
    is_extra: bool,
    flags: CommandFlags,
    load: C,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Normal,
    High,
    /// Resets compute.
    Reset,
    /// An abort that this link asked for.
    Abort,
    /// A launch or abort that nothing waits for any more: it may never be answered.
    Lost,
}

struct Contexts<T> {
    free: Vec<T>,
    made: usize,
    limit: usize,
    /// Went with lost launches, and were not replaced.
    lost: usize,
    /// Streams whose next command wants one.
    starved: Ready,
}

/// See the [module](self).
pub(crate) struct Core<C: Load> {
    ops: Slab<Op<C>>,
    streams: Slab<Lane<C::Context>>,
    queues: Box<[Queue<C>]>,
    high_queues: usize,
    flights: Flights<Sent<C>>,
    contexts: Contexts<C::Context>,
    health: Health,
    /// What the device may still reach although it is lost.
    quarantine: Vec<C>,
    next_op: u64,
    next_stream: u32,
    next_wait: u64,
    sequence: u64,
    /// Resets of compute that are under way: what they end is never answered.
    resets: usize,
    /// Operations with callbacks or futures.
    interest: u32,
    /// Commands not sent, waits aside.
    unsent: usize,
    /// Commands held by whoever drains.
    held: usize,
    /// Commands in flight that belong to no operation, by now.
    orphans: usize,
    /// Commands of that role in flight. Their memory stays with the device.
    lost: usize,
    /// When the device last answered anything, or got something to do.
    progress: Duration,
    /// When it was asked whether it is still there.
    pinged: Option<Duration>,
    waiters: Vec<Arc<Parker>>,
    is_background_asleep: bool,
    traffic: Traffic,
    spare: Vec<VecDeque<Command<C>>>,
    pub(crate) output: Output<C>,
    /// How often results were taken out of that, modulo 2³².
    pub(crate) deliveries: u32,
}

impl<C: Load> Core<C> {
    pub(crate) fn new(shape: Shape) -> Self {
        let queue = |_| Queue {
            ready: Ready::default(),
            extra: VecDeque::new(),
            again: Vec::new(),
            in_flight: 0,
            high: VecDeque::new(),
            is_high_busy: false,
            abort: Abort::None,
            asks_again: false,
            answered: Duration::ZERO,
            recent: None,
            held: 0,
            has_patient: false,
            keeps_barriers: false,
            overtaken: 0,
        };
        Self {
            ops: Slab::new(),
            streams: Slab::new(),
            queues: (0..shape.queues.max(1)).map(queue).collect(),
            high_queues: shape.high_queues,
            // One beside for each high-priority queue: what ends a command that does not end, or
            // asks whether the device is still there, must not wait for that.
            flights: Flights::new(
                shape.in_flight.saturating_add(u16::try_from(shape.high_queues).unwrap_or(0)),
            ),
            contexts: Contexts {
                free: Vec::new(),
                made: 0,
                limit: shape.contexts,
                lost: 0,
                starved: Ready::default(),
            },
            health: Health::default(),
            quarantine: Vec::new(),
            next_op: 1,
            next_stream: 0,
            next_wait: 0,
            sequence: 0,
            resets: 0,
            interest: 0,
            unsent: 0,
            held: 0,
            orphans: 0,
            lost: 0,
            progress: Duration::ZERO,
            pinged: None,
            waiters: Vec::new(),
            is_background_asleep: false,
            traffic: Traffic::default(),
            spare: Vec::new(),
            output: Output::default(),
            deliveries: 0,
        }
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// Creates a stream; returns its name and its number, which is never used again.
    pub(crate) fn open_stream(&mut self, priority: Priority) -> (StreamKey, u32) {
        let number = self.next_stream;
        self.next_stream = self.next_stream.wrapping_add(1);
        let key = self.streams.insert(Lane {
            number,
            queue: number as usize % self.queues.len(),
            entries: VecDeque::new(),
            outstanding: 0,
            ops: 0,
            barred_by: Vec::new(),
            keeps_barrier: false,
            has_handle: true,
            is_listed: false,
            priority,
            granted: None,
            waiters: Vec::new(),
            progress: Duration::ZERO,
        });
        (StreamKey(key), number)
    }

    /// The last handle is gone. What was accepted goes on.
    pub(crate) fn drop_stream(&mut self, stream: StreamKey) {
        if let Some(lane) = self.streams.get_mut(stream.0) {
            lane.has_handle = false;
        }
        self.forget_if_over(stream.0);
    }

    fn forget_if_over(&mut self, stream: u32) {
        let is_over = self.streams.get(stream).is_some_and(|lane| {
            !lane.has_handle
                && lane.ops == 0
                && lane.outstanding == 0
                && !lane.is_listed
                // Waits behind which nothing comes any more.
                && lane.entries.iter().all(|entry| matches!(entry, Entry::Wait(_)))
        });
        if is_over {
            self.streams.remove(stream);
        }
    }

    /// Accepts an operation at the end of a stream. It stays open until [`close`](Self::close).
    pub(crate) fn begin(
        &mut self,
        stream: StreamKey,
        name: &'static str,
        now: Duration,
    ) -> Result<Arc<Operation>> {
        if let Some(error) = self.health.refusal() {
            return Err(error.clone().during(name));
        }
        let Some(lane) = self.streams.get_mut(stream.0) else {
            unreachable!("a stream has a lane while it has a handle");
        };
        let key = OpKey { slot: self.ops.next_key(), id: self.next_op };
        self.next_op += 1;
        let operation = Arc::new(Operation::new(key, name, lane.number, now));
        if lane.entries.is_empty() {
            lane.progress = now;
        }
        lane.entries.push_back(Entry::Op(key.slot));
        lane.ops += 1;
        self.ops.insert(Op {
            operation: Arc::clone(&operation),
            stream: stream.0,
            pending: self.spare.pop().unwrap_or_default(),
            active: 0,
            is_open: true,
            is_unattended: false,
            has_started: false,
            is_barred: false,
            barrier: 0,
            error: None,
            sent: None,
            times: None,
            interest: 0,
            on_sent: Vec::new(),
            on_executed: Vec::new(),
            is_executed: false,
            dependents: Vec::new(),
            is_entry: true,
            abort: None,
            is_patient: false,
            submitter: None,
        });
        Ok(operation)
    }

    /// Accepts an operation of one command, or of none, at the end of a stream. It is closed.
    ///
    /// # Errors
    /// Why the device cannot execute the command.
    pub(crate) fn submit(
        &mut self,
        stream: StreamKey,
        name: &'static str,
        command: Option<Command<C>>,
        now: Duration,
    ) -> Result<Arc<Operation>> {
        if let Some(command) = &command {
            self.check_health(command)?;
        }
        let operation = self.begin(stream, name, now)?;
        let slot = operation.key.slot;
        if let Some(op) = self.ops.get_mut(slot) {
            op.is_open = false;
            self.unsent += usize::from(command.is_some());
            op.pending.extend(command);
        }
        self.keep_order(slot);
        self.advance(stream.0);
        self.end_if_done(slot, now);
        Ok(operation)
    }

    /// Checks that the device can do what a command asks for, as far as is known.
    fn check_health(&self, command: &Command<C>) -> Result<()> {
        let is_launch = command.load.is_launch();
        let refusal = if is_launch { self.health.compute_refusal() } else { self.health.refusal() };
        refusal.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Adds a command to an open operation.
    ///
    /// # Errors
    /// Why the operation has failed already; why the device cannot execute the command.
    pub(crate) fn append(&mut self, key: OpKey, mut command: Command<C>) -> Result<()> {
        let failure = self.failure(key).or_else(|| self.check_health(&command).err());
        if let Some(error) = failure {
            self.drop_context(&mut command.load);
            self.output.finished.push((command.load, Some(error.clone())));
            return Err(error);
        }
        let Some(op) = self.find(key) else { return Err(Error::all_closed()) };
        op.pending.push_back(command);
        let stream = op.stream;
        self.unsent += 1;
        self.advance(stream);
        Ok(())
    }

    /// Ends the submission of an operation; a failure of it fails the operation.
    pub(crate) fn close(&mut self, key: OpKey, outcome: Result<()>, now: Duration) {
        let Some(op) = self.find(key) else { return };
        op.is_open = false;
        let stream = op.stream;
        if let Err(error) = outcome {
            self.fail(key.slot, error);
        }
        self.keep_order(key.slot);
        self.advance(stream);
        self.end_if_done(key.slot, now);
    }

    /// Gives an operation without commands one that does nothing, unless it is alone in its stream:
    /// who waits for its end waits for what is before it, too.
    fn keep_order(&mut self, slot: u32) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        if op.has_started || !op.pending.is_empty() || op.error.is_some() {
            return;
        }
        let Some(lane) = self.streams.get(op.stream) else { return };
        if lane.ops != 1 || lane.entries.len() != 1 || lane.is_barred() {
            op.pending.push_back(Command::new(C::ping()));
            self.unsent += 1;
        }
    }

    /// Leaves an operation open without a submitter: until it is closed, or fails.
    pub(crate) fn leave_open(&mut self, key: OpKey, now: Duration) {
        let Some(op) = self.find(key) else { return };
        op.is_unattended = true;
        if let Some(error) = op.error.clone() {
            self.close(key, Err(error), now);
        }
    }

    /// A context of a launch that was never sent may lack its pattern, so it is not used again.
    fn drop_context(&mut self, load: &mut C) {
        if load.take_context().is_some() {
            self.contexts.made -= 1;
        }
    }

    fn find(&mut self, key: OpKey) -> Option<&mut Op<C>> {
        self.ops.get_mut(key.slot).filter(|op| op.operation.key.id == key.id)
    }

    /// Makes later operations of `stream` wait for one of this link.
    pub(crate) fn depend(&mut self, stream: StreamKey, on: OpKey) {
        let Some(op) = self.find(on) else { return };
        let other = op.stream;
        let is_sent = !op.is_open && op.pending.is_empty();
        if other == stream.0 {
            return;
        }
        let (Some(mine), Some(its)) = (self.streams.get(stream.0), self.streams.get(other)) else {
            return;
        };
        // What it waits for is in the same queue, where a barrier is enough.
        let wait = if mine.queue == its.queue && mine.entries.is_empty() && is_sent {
            self.next_wait += 1;
            if let Some(lane) = self.streams.get_mut(stream.0) {
                lane.barred_by.push(self.next_wait);
            }
            self.next_wait
        } else {
            self.add_wait(stream)
        };
        if let Some(op) = self.find(on) {
            op.dependents.push((stream.0, wait));
        }
    }

    /// Makes later operations of `stream` wait until [`fired`](Self::fired).
    pub(crate) fn add_wait(&mut self, stream: StreamKey) -> u64 {
        self.next_wait += 1;
        let wait = self.next_wait;
        if let Some(lane) = self.streams.get_mut(stream.0) {
            lane.entries.push_back(Entry::Wait(wait));
        }
        wait
    }

    /// What a stream waits for has happened.
    pub(crate) fn fired(&mut self, stream: StreamKey, wait: u64, now: Duration) {
        self.pass(stream.0, wait, now);
    }

    fn pass(&mut self, stream: u32, wait: u64, now: Duration) {
        let Some(lane) = self.streams.get_mut(stream) else { return };
        let is_it = |entry: &Entry| matches!(entry, Entry::Wait(other) if *other == wait);
        if let Some(at) = lane.entries.iter().position(is_it) {
            lane.entries.remove(at);
        }
        lane.barred_by.retain(|other| *other != wait);
        lane.progress = now;
        self.advance(stream);
        self.forget_if_over(stream);
    }

    /// Lists a stream if its next command can be sent; lets go of operations that are sent.
    fn advance(&mut self, stream: u32) {
        let Some(lane) = self.streams.get_mut(stream) else { return };
        if lane.is_listed {
            return;
        }
        while let Some(Entry::Op(slot)) = lane.entries.front() {
            let Some(op) = self.ops.get_mut(*slot) else { break };
            if !op.pending.is_empty() {
                lane.is_listed = true;
                self.queues[lane.queue].ready.push_back(stream, lane.priority);
                return;
            }
            // Sent, or the first and open: whoever waits for either goes on.
            if let Some(submitter) = op.submitter.take() {
                self.output.wake.push(submitter);
            }
            if op.is_open {
                return;
            }
            op.is_entry = false;
            lane.entries.pop_front();
        }
    }

    /// Fails an operation: what is not sent of it will not be. The first error stays.
    fn fail(&mut self, slot: u32, error: Error) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        self.unsent -= op.pending.len();
        for mut command in op.pending.drain(..) {
            if command.load.take_context().is_some() {
                // It may lack its pattern.
                self.contexts.made -= 1;
            }
            self.output.finished.push((command.load, Some(error.clone())));
        }
        op.error.get_or_insert(error);
        op.is_open &= !op.is_unattended;
        // If the stream is listed for it, it will be found with nothing to send.
        let stream = op.stream;
        if self.contexts.starved.remove(stream)
            && let Some(lane) = self.streams.get(stream)
        {
            self.queues[lane.queue].ready.push_back(stream, lane.priority);
        }
    }

    /// Fails an operation from outside, as its submitter does that has waited too long.
    pub(crate) fn give_up(&mut self, key: OpKey, error: Error, now: Duration) {
        let Some(op) = self.find(key) else { return };
        let stream = op.stream;
        self.fail(key.slot, error);
        self.advance(stream);
        self.end_if_done(key.slot, now);
    }

    fn end_if_done(&mut self, slot: u32, now: Duration) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        if op.is_open || !op.pending.is_empty() || op.active != 0 {
            return;
        }
        if op.interest != 0 {
            self.interest -= 1;
        }
        if self.spare.len() < 64 {
            self.spare.push(std::mem::take(&mut op.pending));
        }
        self.output.wake.extend(op.submitter.take());
        let (stream, dependents, is_entry) =
            (op.stream, std::mem::take(&mut op.dependents), op.is_entry);
        let queued = op.operation.queued;
        let timeline =
            Timeline { queued, sent: op.sent.unwrap_or(queued), completed: now, device: op.times };
        let (operation, error) = (Arc::clone(&op.operation), op.error.take());
        // It was never sent, or is executed by that.
        let mut told = std::mem::take(&mut op.on_sent);
        told.append(&mut op.on_executed);
        self.output.ended.push(Ended { operation, timeline, error, told });
        self.ops.remove(slot);
        if let Some(lane) = self.streams.get_mut(stream) {
            if is_entry {
                lane.entries.retain(|entry| !matches!(entry, Entry::Op(other) if *other == slot));
            }
            lane.ops -= 1;
            if lane.ops == 0 {
                self.output.wake.append(&mut lane.waiters);
            }
        }
        self.advance(stream);
        for (dependent, wait) in dependents {
            self.pass(dependent, wait, now);
        }
        self.forget_if_over(stream);
        self.tell_if_quiet();
    }

    fn tell_if_quiet(&mut self) {
        if self.is_quiet() {
            self.output.wake.append(&mut self.waiters);
        }
    }

    /// Returns `true` if no operation and none of the runtime's own commands is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ops.is_empty() && self.orphans == 0 && self.held == 0
    }
}
