//! Queues of operations.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_hal::Hal;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::clock::Deadline;
use crate::command::{InFlight, Pending, Then, Wire};
use crate::event::{Driver, Event, Transfer};
use crate::kernel::Launch;
use crate::memory::{DeviceSlice, HostBuffer};
use crate::operation::{Lane, Operation};
use crate::shared::{NotSent, Retry, Shared, locked};
use crate::{Error, Result};

/// Whether an operation waits for the earlier ones of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It does.
    InOrder,
    /// It may overtake them.
    Unordered,
}

/// One copy of a list.
#[derive(Debug)]
pub enum Copy<'a> {
    /// Host to device; both sides have the same length.
    ToDevice(&'a [u8], DeviceSlice),
    /// Device to device.
    OnDevice(DeviceSlice, DeviceSlice),
}

/// An in-order queue of operations on a device.
///
/// An operation starts when all earlier ones of its stream have completed; operations of different streams are
/// not ordered and may overlap. Streams share the device's submission queues, but keep their own order whatever
/// else is in them.
///
/// A stream may be used by several threads; operations are in the order of the calls. Dropping it waits for nothing.
pub struct Stream<H: Hal> {
    pub(crate) inner: Arc<Inner<H>>,
}

// Not derived, which would ask for `H: Clone`.
impl<H: Hal> Clone for Stream<H> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

pub(crate) struct Inner<H: Hal> {
    pub(crate) shared: Arc<Shared<H>>,
    pub(crate) lane: Arc<Lane>,
    /// Held while the commands of one operation are sent, so that they stay together.
    turn: Mutex<Deferred<H>>,
    me: Weak<Inner<H>>,
}

/// What waits on the host, behind a wait for an event of another queue.
struct Deferred<H: Hal> {
    items: VecDeque<Item<H>>,
    /// The next command must not overtake what is in the queue, although the stream itself is idle.
    needs_barrier: bool,
}

enum Item<H: Hal> {
    WaitFor(Event),
    Send(Box<Pending<H>>),
}

impl<H: Hal> fmt::Debug for Stream<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("lane", &self.inner.lane).finish_non_exhaustive()
    }
}

/// The right to send the commands of one operation.
pub(crate) struct Turn<'a, H: Hal> {
    inner: &'a Inner<H>,
    deferred: std::sync::MutexGuard<'a, Deferred<H>>,
    pub(crate) operation: Arc<Operation>,
    pub(crate) deadline: Deadline,
    /// Only the first command carries the barrier: later ones cannot start before it did.
    barrier: bool,
}

impl<H: Hal> Turn<'_, H> {
    /// Makes the next command wait for everything before it in its queue.
    pub(crate) fn require_barrier(&mut self) {
        self.barrier = true;
    }

    /// Sends one command of the operation, or queues it behind what the stream waits for.
    pub(crate) fn send(&mut self, flags: CommandFlags, wire: Wire, then: Then<H>) -> Result<()> {
        let flags = if std::mem::take(&mut self.barrier) {
            flags.with(CommandFlags::BARRIER)
        } else {
            flags
        };
        self.operation.add_part();
        let queue = self.inner.lane.queue;
        let payload = InFlight {
            operation: Some(Arc::clone(&self.operation)),
            queue,
            then,
            sent: Duration::ZERO,
        };
        if !self.deferred.items.is_empty() {
            let pending = Pending { flags, wire, payload };
            self.operation.deferred.fetch_add(1, Ordering::Relaxed);
            self.deferred.items.push_back(Item::Send(Box::new(pending)));
            return Ok(());
        }
        self.inner.shared.send(queue, flags, &wire, payload, self.deadline)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<H>> {
        &self.inner.shared
    }

    /// Ends the submission; a failure of it fails the operation.
    fn finish(self, outcome: Result<()>) -> Result<Event> {
        let shared = &self.inner.shared;
        let event = Event::new(Arc::clone(&self.operation), Arc::clone(shared) as Arc<dyn Driver>);
        let has_deferred = !self.deferred.items.is_empty();
        drop(self.deferred);
        if let Err(error) = &outcome {
            self.operation.fail(error.clone());
        }
        shared.end_part(&self.operation);
        if has_deferred {
            // Whoever wanted to go on while the turn was ours could not.
            shared.retry_stalled();
        }
        shared.run_callbacks();
        outcome.map(|()| event)
    }
}

impl<H: Hal> Inner<H> {
    /// Begins an operation.
    pub(crate) fn begin(&self, name: &'static str, order: Order) -> Result<Turn<'_, H>> {
        let shared = &self.shared;
        if let Some(error) = shared.refusal() {
            return Err(error);
        }
        let now = shared.now();
        let deadline = Deadline::from(now, shared.config.command_timeout);
        let mut deferred = locked(&self.turn);
        let operation = shared.new_operation(name, &self.lane, now);
        // The barrier holds up the whole queue, so it is used only if something of this stream is not done.
        let barrier = deferred.needs_barrier
            || (order == Order::InOrder && !(self.lane.is_idle() && deferred.items.is_empty()));
        deferred.needs_barrier = false;
        Ok(Turn { inner: self, deferred, operation, deadline, barrier })
    }

    fn wait_for(&self, event: &Event) {
        let other = &event.operation().lane;
        if event.outcome().is_some() || Arc::ptr_eq(other, &self.lane) {
            return;
        }
        let mut deferred = locked(&self.turn);
        if other.queue == self.lane.queue && deferred.items.is_empty() {
            // What the event waits for is in the same queue, where a barrier is enough — unless the other stream still
            // holds it back.
            if event.operation().is_sent() {
                deferred.needs_barrier = true;
                return;
            }
        }
        deferred.items.push_back(Item::WaitFor(event.clone()));
        drop(deferred);
        self.arm(event);
    }

    /// Drops what has not been sent yet.
    pub(crate) fn drop_deferred(&self) {
        let items = std::mem::take(&mut locked(&self.turn).items);
        for item in items {
            if let Item::Send(pending) = item {
                self.shared.abandon(pending.payload, &Error::Aborted);
            }
        }
    }

    fn arm(&self, event: &Event) {
        let me = self.me.clone();
        event.on_done(move |_| {
            if let Some(me) = me.upgrade() {
                me.retry();
            }
        });
    }

    /// Sends what is not waiting any more; `false` if something could not be sent for want of room.
    fn advance(&self, deferred: &mut Deferred<H>) -> bool {
        while let Some(item) = deferred.items.pop_front() {
            match item {
                Item::WaitFor(event) => {
                    if event.outcome().is_none() {
                        deferred.items.push_front(Item::WaitFor(event.clone()));
                        return true;
                    }
                }
                Item::Send(pending) => {
                    let Pending { flags, wire, payload } = *pending;
                    let operation = payload.operation.clone();
                    if self.lane.aborting.load(Ordering::Acquire) {
                        self.shared.abandon(payload, &Error::Aborted);
                        continue;
                    }
                    match self.shared.offer(self.lane.queue, flags, &wire, payload) {
                        Ok(()) | Err(NotSent::Never(_) | NotSent::Broken(_)) => {
                            if let Some(operation) = operation {
                                operation.deferred.fetch_sub(1, Ordering::Release);
                            }
                        }
                        Err(NotSent::Full(payload)) => {
                            let pending = Pending { flags, wire, payload };
                            deferred.items.push_front(Item::Send(Box::new(pending)));
                            return false;
                        }
                    }
                }
            }
        }
        true
    }
}

impl<H: Hal> Retry for Inner<H> {
    fn retry(&self) {
        // Somebody who sends has the turn and may be waiting for us to drain: never wait for the turn here.
        let done = match self.turn.try_lock() {
            Ok(mut deferred) => {
                let done = self.advance(&mut deferred);
                if let (true, Some(Item::WaitFor(event))) = (done, deferred.items.front()) {
                    let event = event.clone();
                    drop(deferred);
                    self.arm(&event);
                }
                done
            }
            Err(_) => false,
        };
        if !done {
            let me: Weak<dyn Retry> = self.me.clone();
            locked(&self.shared.stalled).push(me);
        }
    }
}

impl<H: Hal> Stream<H> {
    pub(crate) fn new(shared: &Arc<Shared<H>>) -> Self {
        Self::on_lane(shared, shared.new_lane())
    }

    pub(crate) fn on_lane(shared: &Arc<Shared<H>>, lane: Arc<Lane>) -> Self {
        let inner = Arc::new_cyclic(|me| Inner {
            shared: Arc::clone(shared),
            lane,
            turn: Mutex::new(Deferred { items: VecDeque::new(), needs_barrier: false }),
            me: me.clone(),
        });
        Self { inner }
    }

    /// Returns the stream's number on its device.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.lane.id
    }

    /// Runs `submit` as one operation.
    pub(crate) fn operate(
        &self,
        name: &'static str,
        order: Order,
        submit: impl FnOnce(&mut Turn<'_, H>) -> Result<()>,
    ) -> Result<Event> {
        let mut turn = self.inner.begin(name, order)?;
        let outcome = submit(&mut turn);
        turn.finish(outcome)
    }

    /// Copies ordinary memory to the device. The data is taken before the call returns.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Misaligned`]; [`Error::ForeignBuffer`]; [`Error::Timeout`] if there is no room for
    /// longer than the command timeout; those of [`Error`] that say the device is gone.
    pub fn copy_to_device<T: IntoBytes + Immutable>(
        &self,
        from: &[T],
        to: impl Into<DeviceSlice>,
    ) -> Result<Event> {
        let (from, to) = (from.as_bytes(), to.into());
        self.operate("copy to device", Order::InOrder, |turn| turn.upload(from, &to))
    }

    /// Copies device memory to ordinary memory, and waits for it.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device), and the failure of the copy itself. [`Error::Timeout`] after `timeout`, with
    /// `into` partly written.
    pub fn read<T: FromBytes + IntoBytes>(
        &self,
        from: impl Into<DeviceSlice>,
        into: &mut [T],
        timeout: Duration,
    ) -> Result<()> {
        let (from, into) = (from.into(), into.as_mut_bytes());
        self.download(&from, into, timeout)
    }

    /// Copies a host buffer to the device, without staging.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); the buffer is lost with the error.
    pub fn copy_from_host_buffer(
        &self,
        from: HostBuffer<H>,
        to: impl Into<DeviceSlice>,
    ) -> Result<Transfer<H>> {
        self.direct("copy from host buffer", from, &to.into(), true)
    }

    /// Copies device memory to a host buffer, without staging.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); the buffer is lost with the error.
    pub fn copy_to_host_buffer(
        &self,
        from: impl Into<DeviceSlice>,
        to: HostBuffer<H>,
    ) -> Result<Transfer<H>> {
        self.direct("copy to host buffer", to, &from.into(), false)
    }

    /// Copies within the device's memory. The operations interface has no command for that, so the data goes through staging
    /// memory and never to the caller.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); [`Error::Overlap`].
    pub fn copy_on_device(
        &self,
        from: impl Into<DeviceSlice>,
        to: impl Into<DeviceSlice>,
    ) -> Result<Event> {
        let (from, to) = (from.into(), to.into());
        self.operate("copy on device", Order::InOrder, |turn| turn.bounce(&from, &to))
    }

    /// Does several copies as one operation; they are not ordered among themselves.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device). All copies are checked before the first is sent.
    pub fn copy_list(&self, copies: &[Copy<'_>]) -> Result<Event> {
        self.operate("copy list", Order::InOrder, |turn| {
            for copy in copies {
                match copy {
                    Copy::ToDevice(from, to) => turn.check_upload(from, to)?,
                    Copy::OnDevice(from, to) => turn.check_bounce(from, to)?,
                }
            }
            for copy in copies {
                match copy {
                    Copy::ToDevice(from, to) => turn.upload(from, to)?,
                    Copy::OnDevice(from, to) => turn.bounce(from, to)?,
                }
            }
            Ok(())
        })
    }

    /// Sets device memory to a byte.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device).
    pub fn fill(&self, to: impl Into<DeviceSlice>, byte: u8) -> Result<Event> {
        let to = to.into();
        self.operate("fill", Order::InOrder, |turn| turn.fill(&to, byte))
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// [`Error::ShireMask`]; [`Error::ArgumentsTooLarge`]; [`Error::LaunchOption`]; [`Error::ForeignBuffer`];
    /// [`Error::Memory`] if there is no device memory for arguments and exception buffer; [`Error::NeedsReset`] if compute is
    /// down; otherwise as [`copy_to_device`](Self::copy_to_device). Nothing is sent then. The kernel's own failure comes with
    /// the event, as [`Error::Launch`].
    pub fn launch(&self, launch: &Launch) -> Result<Event> {
        let order = if launch.is_unordered { Order::Unordered } else { Order::InOrder };
        self.operate("launch", order, |turn| turn.launch(launch))
    }

    /// Returns an event that completes when everything before it has.
    ///
    /// # Errors
    /// Those of [`Error`] that say the device is gone.
    pub fn barrier(&self) -> Result<Event> {
        self.operate("barrier", Order::InOrder, |turn| {
            turn.require_barrier();
            turn.send(CommandFlags::EMPTY, Wire::Echo, Then::Check(crate::command::Keep::Nothing))
        })
    }

    /// Makes later operations of this stream wait for an event of another.
    ///
    /// This is about order only: if what the event stands for fails, the stream goes on.
    pub fn wait_for(&self, event: &Event) {
        self.inner.wait_for(event);
    }

    /// Waits until all operations of the stream are done, failed ones included.
    ///
    /// # Errors
    /// [`Error::Timeout`]; those of [`Error`] that say the device is gone.
    pub fn synchronize(&self, timeout: Duration) -> Result<()> {
        let (shared, lane) = (&self.inner.shared, &self.inner.lane);
        let done = || lane.operations.load(Ordering::Acquire) == 0;
        if shared.wait_until(&done, None, shared.deadline(timeout)) {
            return Ok(());
        }
        Err(shared.refusal().unwrap_or(Error::Timeout { op: "synchronize", after: timeout }))
    }

    /// Tells whether all operations are done, without waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inner.shared.poll_now();
        self.inner.lane.operations.load(Ordering::Acquire) == 0
    }
}
