//! What every handle of one open device shares, and how commands are sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use et_devapi::discovery::Layout;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Completion, MAX_COMMAND_BYTES};
use et_hal::{Hal, Mailbox, Push, QueueId};

use crate::clock::Deadline;
use crate::command::{InFlight, Pending, Then, Wire};
use crate::config::Config;
use crate::drain::Tools;
use crate::handshake::{Callbacks, Cell, Gate, Leader, Table};
use crate::kernel::Contexts;
use crate::memory::{DeviceMemory, HostBuffer, Lease, Staging};
use crate::operation::{Lane, Operation, Outcome};
use crate::profile::Profiler;
use crate::{Error, Result};

/// Commands between two looks at the completion queue while sending; it holds about 37 responses.
const DRAIN_EVERY: u32 = 8;

const OPEN: u32 = 0;
const REFUSING: u32 = 1;

/// A deferred stream that wants another try when something has moved.
pub(crate) trait Retry: Send + Sync {
    fn retry(&self);
}

/// Counts of what happened on a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Responses whose tag was not in flight; they are ignored.
    pub stray_responses: u64,
    /// Messages of a kind this runtime does not know; they are ignored.
    pub unknown_messages: u64,
    /// Events that a firmware trace buffer is full. Spec: §10.4.
    pub trace_buffer_events: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) stray: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) trace_full: AtomicU64,
}

/// One submission queue.
pub(crate) struct Queue<H: Hal> {
    /// The right to push, and what could not be pushed from a place that must not wait.
    backlog: Mutex<VecDeque<Pending<H>>>,
    /// The backlog's length, to look at without the lock.
    waiting: AtomicU32,
    pub(crate) outstanding: AtomicU32,
}

pub(crate) struct Shared<H: Hal> {
    // These two go first when all is dropped: the backend stops the device before its DMA memory goes.
    pub(crate) mailbox: H::Mailbox,
    pub(crate) hal: Arc<H>,
    pub(crate) layout: Layout,
    pub(crate) config: Config,
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) staging: Arc<Staging<H>>,
    pub(crate) table: Table<InFlight<H>>,
    pub(crate) gate: Gate,
    pub(crate) leader: Leader<Tools>,
    pub(crate) pollers: AtomicU32,
    pub(crate) queues: Box<[Queue<H>]>,
    /// The right to push to each high-priority queue.
    high: Box<[Mutex<()>]>,
    pub(crate) contexts: Arc<Contexts>,
    pub(crate) profiler: Profiler,
    pub(crate) counts: Counts,
    /// Holds the pattern that fresh exception buffers are filled with.
    pub(crate) pattern: Mutex<Option<Arc<Lease<H>>>>,
    /// Spare host buffers for exception buffers.
    pub(crate) exception_copies: Mutex<Vec<HostBuffer<H>>>,
    /// Callbacks of finished operations, until somebody runs them who holds no lock.
    callbacks: Mutex<Vec<Callbacks<Outcome>>>,
    has_callbacks: AtomicBool,
    pub(crate) stalled: Mutex<Vec<Weak<dyn Retry>>>,
    /// Memory of commands the device may still work on although nobody waits for them.
    quarantine: Mutex<Vec<InFlight<H>>>,
    /// Commands sent, modulo 2³².
    sent: AtomicU32,
    state: AtomicU32,
    refusal: Mutex<Option<Error>>,
    compute_down: AtomicBool,
    compute_error: Mutex<Option<Error>>,
    next_operation: AtomicU64,
    next_stream: AtomicU32,
}

/// Why a command was not sent.
pub(crate) enum NotSent<H: Hal> {
    /// No tag or no room now; here is the command.
    Full(InFlight<H>),
    /// It will never be possible; its operation has been told.
    Never(Error),
    /// The same, and the queue is broken: the caller must [`lose`](Shared::lose) the device, once it holds no
    /// lock of a queue.
    Broken(Error),
}

fn submission(queue: usize) -> QueueId {
    QueueId::Submission(u8::try_from(queue).unwrap_or(u8::MAX))
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<H: Hal> Shared<H> {
    pub(crate) fn new(
        hal: Arc<H>,
        layout: Layout,
        mailbox: H::Mailbox,
        config: Config,
    ) -> Result<Self> {
        let memory = DeviceMemory::new(layout.host_managed.base, layout.host_managed.len)?;
        let queues = (0..layout.ops_mailbox.submission.count)
            .map(|_| Queue {
                backlog: Mutex::default(),
                waiting: AtomicU32::new(0),
                outstanding: AtomicU32::new(0),
            })
            .collect();
        let high = (0..layout.ops_mailbox.high_priority.count).map(|_| Mutex::new(())).collect();
        Ok(Self {
            mailbox,
            hal,
            layout,
            memory,
            staging: Staging::new(config.staging_bytes),
            table: Table::new(config.in_flight),
            gate: Gate::new(),
            leader: Leader::new(Tools::new()),
            pollers: AtomicU32::new(0),
            queues,
            high,
            contexts: Contexts::new(),
            profiler: Profiler::new(),
            counts: Counts::default(),
            pattern: Mutex::new(None),
            exception_copies: Mutex::new(Vec::new()),
            callbacks: Mutex::default(),
            has_callbacks: AtomicBool::new(false),
            stalled: Mutex::default(),
            quarantine: Mutex::default(),
            sent: AtomicU32::new(0),
            state: AtomicU32::new(OPEN),
            refusal: Mutex::default(),
            compute_down: AtomicBool::new(false),
            compute_error: Mutex::default(),
            next_operation: AtomicU64::new(1),
            next_stream: AtomicU32::new(0),
            config,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.config.clock.now()
    }

    pub(crate) fn deadline(&self, after: Duration) -> Deadline {
        Deadline::after(&*self.config.clock, after)
    }

    pub(crate) fn new_lane(&self) -> Arc<Lane> {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        Lane::new(id, id as usize % self.queues.len().max(1))
    }

    pub(crate) fn new_operation(
        &self,
        name: &'static str,
        lane: &Arc<Lane>,
        now: Duration,
    ) -> Arc<Operation> {
        let id = self.next_operation.fetch_add(1, Ordering::Relaxed);
        lane.operations.fetch_add(1, Ordering::Relaxed);
        Operation::new(id, name, Arc::clone(lane), now)
    }

    /// Returns why nothing can be sent, if so.
    pub(crate) fn refusal(&self) -> Option<Error> {
        // Acquire: pairs with the Release in `refuse`, the reason is there.
        if self.state.load(Ordering::Acquire) == OPEN {
            return None;
        }
        locked(&self.refusal).clone()
    }

    /// Refuses every later command with `error`; the first reason stays.
    pub(crate) fn refuse(&self, error: Error) {
        locked(&self.refusal).get_or_insert(error);
        self.state.store(REFUSING, Ordering::Release);
    }

    pub(crate) fn compute_refusal(&self) -> Option<Error> {
        if !self.compute_down.load(Ordering::Acquire) {
            return None;
        }
        locked(&self.compute_error).clone()
    }

    pub(crate) fn set_compute_down(&self, error: Option<Error>) {
        let down = error.is_some();
        *locked(&self.compute_error) = error;
        self.compute_down.store(down, Ordering::Release);
    }

    pub(crate) fn quarantine(&self, command: InFlight<H>) {
        locked(&self.quarantine).push(command);
    }

    /// Frees what was kept from a device that could still reach it. To be called after a reset.
    pub(crate) fn end_quarantine(&self) {
        locked(&self.quarantine).clear();
    }

    /// Sends a command, waiting for room until the deadline.
    pub(crate) fn send(
        &self,
        queue: usize,
        flags: CommandFlags,
        wire: &Wire,
        mut payload: InFlight<H>,
        deadline: Deadline,
    ) -> Result<()> {
        let mut idle = 0;
        loop {
            match self.offer(queue, flags, wire, payload) {
                Ok(()) => {
                    self.drain_sometimes();
                    return Ok(());
                }
                Err(NotSent::Never(error) | NotSent::Broken(error)) => return Err(error),
                Err(NotSent::Full(back)) => payload = back,
            }
            if deadline.has_passed(&*self.config.clock) {
                let op = "waiting for room in a queue";
                let error = Error::Timeout { op, after: deadline.limit() };
                self.abandon(payload, &error);
                return Err(error);
            }
            self.step(&mut idle, deadline);
        }
    }

    /// Takes responses every few commands. A full completion queue would stop the device (Spec: §5.6), and one that
    /// is emptied little by little stays in the cache.
    fn drain_sometimes(&self) {
        if self.sent.fetch_add(1, Ordering::Relaxed) % DRAIN_EVERY == DRAIN_EVERY - 1 {
            self.try_drain();
        }
    }

    /// Sends a command if there is room, in its turn.
    pub(crate) fn offer(
        &self,
        queue: usize,
        flags: CommandFlags,
        wire: &Wire,
        payload: InFlight<H>,
    ) -> Result<(), NotSent<H>> {
        let backlog = locked(&self.queues[queue].backlog);
        if !backlog.is_empty() {
            return Err(NotSent::Full(payload));
        }
        let pushed = self.push(submission(queue), flags, wire, payload);
        drop(backlog);
        self.lose_if_broken(pushed)
    }

    fn lose_if_broken(&self, pushed: Result<(), NotSent<H>>) -> Result<(), NotSent<H>> {
        match pushed {
            Err(NotSent::Broken(error)) => {
                self.lose(&error);
                Err(NotSent::Never(error))
            }
            pushed => pushed,
        }
    }

    /// Sends a command now or as soon as there is room; for places that must not wait.
    pub(crate) fn post(&self, queue: usize, pending: Pending<H>) {
        let place = &self.queues[queue];
        locked(&place.backlog).push_back(pending);
        place.waiting.fetch_add(1, Ordering::Relaxed);
        self.flush(queue);
    }

    /// Sends what waits in the backlogs.
    pub(crate) fn flush_all(&self) {
        for queue in 0..self.queues.len() {
            if self.queues[queue].waiting.load(Ordering::Relaxed) != 0 {
                self.flush(queue);
            }
        }
    }

    fn flush(&self, queue: usize) {
        let place = &self.queues[queue];
        let mut backlog = locked(&place.backlog);
        while let Some(Pending { flags, wire, payload }) = backlog.pop_front() {
            match self.push(submission(queue), flags, &wire, payload) {
                Ok(()) | Err(NotSent::Never(_)) => {
                    place.waiting.fetch_sub(1, Ordering::Relaxed);
                }
                Err(NotSent::Full(payload)) => {
                    backlog.push_front(Pending { flags, wire, payload });
                    return;
                }
                Err(NotSent::Broken(error)) => {
                    drop(backlog);
                    self.lose(&error);
                    return;
                }
            }
        }
    }

    /// Empties the backlogs of a device that will not answer.
    pub(crate) fn take_backlogs(&self) -> Vec<InFlight<H>> {
        let mut all = Vec::new();
        for place in &self.queues {
            all.extend(locked(&place.backlog).drain(..).map(|pending| pending.payload));
            place.waiting.store(0, Ordering::Relaxed);
        }
        all
    }

    /// Sends a command on a high-priority queue, which holds only one at a time. Spec: §10.1.
    pub(crate) fn send_high(
        &self,
        queue: usize,
        flags: CommandFlags,
        wire: &Wire,
        deadline: Deadline,
    ) -> Result<Completion> {
        let reply = Arc::new(Cell::new());
        let _turn = locked(&self.high[queue]);
        let mut payload = self.own(queue, &reply);
        let mut idle = 0;
        loop {
            let id = QueueId::HighPriority(u8::try_from(queue).unwrap_or(u8::MAX));
            match self.lose_if_broken(self.push(id, flags, wire, payload)) {
                Ok(()) => break,
                Err(NotSent::Never(error) | NotSent::Broken(error)) => return Err(error),
                Err(NotSent::Full(back)) => payload = back,
            }
            if deadline.has_passed(&*self.config.clock) {
                return Err(Error::Timeout {
                    op: "high-priority command",
                    after: deadline.limit(),
                });
            }
            self.step(&mut idle, deadline);
        }
        self.await_reply(&reply, "high-priority command", deadline)
    }

    /// Sends one of the runtime's own commands and waits for the response.
    pub(crate) fn call(
        &self,
        queue: usize,
        flags: CommandFlags,
        wire: &Wire,
        op: &'static str,
        deadline: Deadline,
    ) -> Result<Completion> {
        let reply = Arc::new(Cell::new());
        self.send(queue, flags, wire, self.own(queue, &reply), deadline)?;
        self.await_reply(&reply, op, deadline)
    }

    fn own(&self, queue: usize, reply: &Arc<Cell<Completion>>) -> InFlight<H> {
        InFlight {
            operation: None,
            queue,
            then: Then::Reply(Arc::clone(reply)),
            sent: Duration::ZERO,
        }
    }

    fn await_reply(
        &self,
        reply: &Cell<Completion>,
        op: &'static str,
        deadline: Deadline,
    ) -> Result<Completion> {
        let done = || reply.is_done() || self.refusal().is_some();
        self.wait_until(&done, None, deadline);
        match reply.get() {
            Some(completion) => Ok(completion),
            None => Err(self.refusal().unwrap_or(Error::Timeout { op, after: deadline.limit() })),
        }
    }

    /// Claims a tag, puts the command in flight, writes the message and rings.
    ///
    /// The caller holds the queue's lock.
    fn push(
        &self,
        queue: QueueId,
        flags: CommandFlags,
        wire: &Wire,
        mut payload: InFlight<H>,
    ) -> Result<(), NotSent<H>> {
        if let Some(error) = self.refusal() {
            self.abandon(payload, &error);
            return Err(NotSent::Never(error));
        }
        let Some(claim) = self.table.claim() else {
            return Err(NotSent::Full(payload));
        };
        let mut message = [0; MAX_COMMAND_BYTES];
        let len = match wire.encode(claim.tag(), flags, &mut message) {
            Ok(len) => len,
            Err(error) => unreachable!("commands are checked before they are sent: {error}"),
        };
        payload.sent = self.now();
        if let Some(operation) = &payload.operation {
            operation.sent(payload.sent, claim.tag());
        }
        self.count_in(&payload);
        // The response may overtake us, so everything is in place before the push.
        self.table.publish(&claim, payload);
        match self.mailbox.push(queue, &message[..len]) {
            Ok(Push::Accepted) => {
                // The command is in the queue and in flight; losing the device fails it with the rest.
                let kicked = self.mailbox.kick().map_err(Error::hal("ringing the doorbell"));
                kicked.map_err(NotSent::Broken)
            }
            Ok(Push::Full) => match self.table.retract(claim) {
                Some((claim, payload)) => {
                    self.table.release(claim);
                    self.count_out(&payload);
                    Err(NotSent::Full(payload))
                }
                // The device answered a message it was never sent; the answer has been dealt with.
                None => Ok(()),
            },
            Err(error) => {
                let error = Error::hal("sending a command")(error);
                if let Some((claim, payload)) = self.table.retract(claim) {
                    self.table.release(claim);
                    self.count_out(&payload);
                    self.abandon(payload, &error);
                }
                Err(NotSent::Broken(error))
            }
        }
    }

    fn count_in(&self, payload: &InFlight<H>) {
        self.gate.enter();
        self.queues[payload.queue].outstanding.fetch_add(1, Ordering::Relaxed);
        if let Some(operation) = &payload.operation {
            operation.lane.outstanding.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_out(&self, payload: &InFlight<H>) {
        self.queues[payload.queue].outstanding.fetch_sub(1, Ordering::Relaxed);
        if let Some(operation) = &payload.operation {
            // Release: whoever sees the stream idle sees what its commands did.
            operation.lane.outstanding.fetch_sub(1, Ordering::Release);
        }
        self.gate.leave();
    }

    /// Ends the part of an operation whose command was never sent.
    pub(crate) fn abandon(&self, payload: InFlight<H>, error: &Error) {
        if let Some(operation) = &payload.operation {
            operation.fail(error.clone());
            self.end_part(operation);
        }
    }

    /// The device cannot be used any more: everything in flight fails with `error`.
    pub(crate) fn lose(&self, error: &Error) {
        tracing::error!(%error, "device lost");
        self.fail_everything(error);
    }

    /// Refuses new commands and fails those in flight; their memory is kept from the device.
    pub(crate) fn fail_everything(&self, error: &Error) {
        self.refuse(error.clone());
        self.table.take_all(|_, payload| {
            self.count_out(&payload);
            if let Some(operation) = &payload.operation {
                operation.fail(error.clone());
                self.end_part(operation);
            }
            self.quarantine(payload);
        });
        for payload in self.take_backlogs() {
            self.abandon(payload, error);
        }
        self.retry_stalled();
        self.mailbox.wake();
    }

    /// Ends one part of an operation. Callbacks of a finished one wait for [`run_callbacks`](Self::run_callbacks).
    pub(crate) fn end_part(&self, operation: &Arc<Operation>) {
        let Some(callbacks) = operation.part_done(|| self.now()) else {
            return;
        };
        operation.lane.operations.fetch_sub(1, Ordering::Release);
        if operation.wanted.swap(false, Ordering::AcqRel) {
            self.gate.unwant();
        }
        self.profiler.operation_done(operation, || self.now());
        if !callbacks.is_empty() {
            locked(&self.callbacks).push(callbacks);
            self.has_callbacks.store(true, Ordering::Release);
        }
    }

    /// Runs the callbacks of finished operations. They may use the device, so the caller holds no lock of it.
    pub(crate) fn run_callbacks(&self) {
        if !self.has_callbacks.load(Ordering::Relaxed) {
            return;
        }
        self.has_callbacks.store(false, Ordering::Relaxed);
        let ready = std::mem::take(&mut *locked(&self.callbacks));
        for callbacks in ready {
            callbacks.run();
        }
    }

    pub(crate) fn retry_stalled(&self) {
        if locked(&self.stalled).is_empty() {
            return;
        }
        let stalled = std::mem::take(&mut *locked(&self.stalled));
        for stream in stalled.iter().filter_map(Weak::upgrade) {
            stream.retry();
        }
    }

    /// Returns the tag of a launch of `lane` that is in flight: the one sent first, since a queue is in order.
    pub(crate) fn running_launch(&self, lane: &Arc<Lane>) -> Option<et_devapi::msg::Tag> {
        let mut first: Option<(u64, et_devapi::msg::Tag)> = None;
        self.table.for_each(|tag, command| {
            let Some(operation) = &command.operation else {
                return;
            };
            let is_candidate =
                matches!(command.then, Then::Launch(_)) && Arc::ptr_eq(&operation.lane, lane);
            if is_candidate && first.is_none_or(|(id, _)| operation.id < id) {
                first = Some((operation.id, tag));
            }
        });
        first.map(|(_, tag)| tag)
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            stray_responses: self.counts.stray.load(Ordering::Relaxed),
            unknown_messages: self.counts.unknown.load(Ordering::Relaxed),
            trace_buffer_events: self.counts.trace_full.load(Ordering::Relaxed),
        }
    }
}
