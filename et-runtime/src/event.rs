//! What a user holds while an operation runs.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use et_hal::Hal;

use crate::link::{Continuations, Driver, EventState, Operation, Outcome, WakerKey};
use crate::memory::{HostBuffer, Lease};
use crate::profile::Returned;
use crate::sync::Arc;
use crate::timeline::Timeline;
use crate::{Error, Result};

/// The completion of an operation.
///
/// Dropping an event does not cancel anything; the operation goes on and keeps what it uses.
#[derive(Clone)]
#[must_use = "an operation may fail, and only its event says so"]
pub struct Event {
    /// `None` only inside `drop`.
    operation: Option<Arc<Operation>>,
    driver: Arc<dyn Driver>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.operation().key.id)
            .field("operation", &self.operation().name)
            .field("stream", &self.operation().stream)
            .field("done", &self.operation().result.is_done())
            .finish()
    }
}

impl Event {
    pub(crate) fn new(operation: Arc<Operation>, driver: Arc<dyn Driver>) -> Self {
        Self { operation: Some(operation), driver }
    }

    pub(crate) fn operation(&self) -> &Operation {
        match &self.operation {
            Some(operation) => operation,
            None => unreachable!("taken out only by `drop`"),
        }
    }

    /// Returns the address of the link it belongs to.
    pub(crate) fn link_address(&self) -> usize {
        self.driver.address()
    }

    /// Returns the number of the operation; it is never used again on this device.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.operation().key.id
    }

    /// Returns `true` if the operation has completed or failed, without waiting.
    #[must_use]
    pub fn is_done(&self) -> bool {
        if !self.operation().result.is_done() {
            self.driver.poll();
        }
        self.operation().result.is_done()
    }

    /// Returns how far the operation is, without waiting. Costs nothing unless it is asked.
    #[must_use]
    pub fn state(&self) -> EventState {
        let open = (!self.is_done()).then(|| self.driver.state(self.operation())).flatten();
        match self.operation().result.get() {
            Some(outcome) => EventState::of(&outcome),
            // The state machine is done with it, and its result is just being set.
            None => open.unwrap_or(EventState::Executed),
        }
    }

    /// Waits for the operation, for at most `timeout`; zero polls.
    ///
    /// Any number of threads may wait. Running out of time cancels nothing.
    ///
    /// # Errors
    /// The operation's own failure, or [`Error::Timeout`].
    pub fn wait(&self, timeout: Duration) -> Result<Timeline> {
        let outcome = self.looked_at(self.driver.wait(self.operation(), timeout));
        outcome.unwrap_or_else(|| {
            Err(Error::timeout(self.operation().name, timeout)
                .on(Arc::clone(self.driver.device_name())))
        })
    }

    /// Returns the outcome if the operation has completed.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Timeline>> {
        self.looked_at(self.operation().result.get())
    }

    /// Notes that a failure was heard of.
    fn looked_at(&self, outcome: Option<Outcome>) -> Option<Outcome> {
        if let Some(Err(_)) = outcome {
            self.operation().look_at();
        }
        outcome
    }

    /// Has `callback` called when the operation is done, at once if it is already.
    ///
    /// It runs in whichever thread sees the completion and must not block. If it panics, that is
    /// logged, [counted](crate::Counters::callback_panics) and put into the
    /// [list](crate::Stream::take_errors) of the stream.
    pub fn on_done(&self, callback: impl FnOnce(&Result<Timeline>) + Send + 'static) {
        self.operation().look_at();
        if let Some(now) = self.operation().result.call(callback) {
            self.driver.run(self.operation().name(), now);
            return;
        }
        self.driver.want(self.operation());
    }

    /// Has `callback` called once the operation is in `state` or a later one, at once if it is
    /// already; it gets the state.
    ///
    /// [`Ready`](EventState::Ready) is the moment when the device has been sent the operation, or
    /// the first part of it; one that fails before tells so instead. What waits for
    /// [`Executed`](EventState::Executed) is told of the end if that comes at once. What is called
    /// late hears how far the operation is by then, so that states never go back. A failure is kept
    /// for [`Stream::take_errors`](crate::Stream::take_errors) all the same, as this does not say
    /// why. Callbacks run as those of [`on_done`](Self::on_done) do.
    pub fn on_state(&self, state: EventState, callback: impl FnOnce(EventState) + Send + 'static) {
        let operation = self.operation();
        match state {
            EventState::Queued => {
                let (is, callback) = (self.state(), Box::new(move |is: &_| callback(*is)));
                self.driver.run_reached(operation.name(), Continuations::of(is, vec![callback]));
            }
            EventState::Ready | EventState::Executed => {
                self.driver.on_reached(operation, state, Box::new(move |is| callback(*is)));
            }
            EventState::Complete | EventState::Failed => {
                let callback = move |outcome: &Outcome| callback(EventState::of(outcome));
                match operation.result.call(callback) {
                    Some(now) => self.driver.run(operation.name(), now),
                    None => self.driver.want(operation),
                }
            }
        }
    }

    /// As [`on_done`](Self::on_done), for the runtime itself: before the callbacks of users.
    pub(crate) fn on_done_first(&self, callback: impl FnOnce(&Result<Timeline>) + Send + 'static) {
        self.operation().result.call_first(callback);
        self.driver.want(self.operation());
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take().and_then(Arc::into_inner) {
            self.driver.forget(operation);
        }
    }
}

/// The future of an [`Event`]. Dropping it forgets its waker, and cancels nothing.
#[derive(Debug)]
pub struct EventFuture {
    event: Event,
    waker: Option<WakerKey>,
}

impl Future for EventFuture {
    type Output = Result<Timeline>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Self { event, waker } = &mut *self;
        let (operation, driver) = (event.operation(), &event.driver);
        let is_first = waker.is_none();
        match operation.result.poll(context.waker(), waker) {
            Some(outcome) => {
                operation.look_at();
                Poll::Ready(outcome)
            }
            None => {
                if is_first {
                    driver.want(operation);
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for EventFuture {
    fn drop(&mut self) {
        if let Some(waker) = self.waker {
            self.event.operation().result.forget(waker);
            self.event.driver.unwant(self.event.operation());
        }
    }
}

impl IntoFuture for Event {
    type Output = Result<Timeline>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture { event: self, waker: None }
    }
}

/// A copy that uses a caller's [`HostBuffer`] directly and gives it back at the end.
///
/// The buffer belongs to the command until the device has answered, so it cannot be freed or
/// changed under it, not even by forgetting this value.
#[must_use = "the buffer comes back through this value"]
pub struct Transfer<H: Hal> {
    event: Event,
    lease: Arc<Lease<H>>,
    /// The device writes so many bytes of the buffer, which are made visible before it is given
    /// back.
    reads_back: Option<(Arc<H>, usize)>,
}

impl<H: Hal> fmt::Debug for Transfer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("event", &self.event).finish_non_exhaustive()
    }
}

/// A transfer that did not succeed.
pub struct TransferError<H: Hal> {
    /// Why.
    pub error: Error,
    /// What is left to the caller: the buffer if the device is done with it, else the transfer,
    /// still running.
    pub remains: Remains<H>,
}

impl<H: Hal> fmt::Debug for TransferError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferError")
            .field("error", &self.error)
            .field("remains", &self.remains)
            .finish()
    }
}

/// What a failed wait for a transfer leaves.
pub enum Remains<H: Hal> {
    /// The copy failed; here is the buffer.
    Buffer(HostBuffer<H>),
    /// The copy goes on; wait again.
    Transfer(Transfer<H>),
    /// The device went away while it might still reach the buffer, which is kept from it until it
    /// is closed.
    Nothing,
}

impl<H: Hal> fmt::Debug for Remains<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(buffer) => f.debug_tuple("Buffer").field(buffer).finish(),
            Self::Transfer(transfer) => f.debug_tuple("Transfer").field(transfer).finish(),
            Self::Nothing => f.write_str("Nothing"),
        }
    }
}

impl<H: Hal> std::error::Error for TransferError<H> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<H: Hal> fmt::Display for TransferError<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("transfer did not succeed")
    }
}

impl<H: Hal> Transfer<H> {
    pub(crate) fn new(
        event: Event,
        lease: Arc<Lease<H>>,
        reads_back: Option<(Arc<H>, usize)>,
    ) -> Self {
        Self { event, lease, reads_back }
    }

    /// Returns the event of the copy.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Waits for the copy and returns the buffer.
    ///
    /// # Errors
    /// As [`Event::wait`]; the error holds the buffer, or the transfer itself if time ran out.
    pub fn wait(self, timeout: Duration) -> Result<HostBuffer<H>, TransferError<H>> {
        match self.event.wait(timeout) {
            Err(error @ Error::Timeout { .. }) if !self.event.operation().result.is_done() => {
                Err(TransferError { error, remains: Remains::Transfer(self) })
            }
            outcome => self.conclude(outcome),
        }
    }

    /// The copy has ended: gives the buffer back.
    fn conclude(self, outcome: Result<Timeline>) -> Result<HostBuffer<H>, TransferError<H>> {
        match outcome {
            Ok(_) => match self.lease.take() {
                Some(buffer) => {
                    let synced = self
                        .reads_back
                        .map_or(Ok(()), |(hal, len)| buffer.sync_for_cpu(hal.dma(), 0..len));
                    match synced {
                        Ok(()) => Ok(buffer),
                        Err(error) => {
                            Err(TransferError { error, remains: Remains::Buffer(buffer) })
                        }
                    }
                }
                None => Err(TransferError {
                    error: Error::closed(self.event.operation().name),
                    remains: Remains::Nothing,
                }),
            },
            // Not the device's answer: it may still be at work on what it got.
            Err(
                error @ (Error::Lost { .. }
                | Error::Hal { .. }
                | Error::Stale { .. }
                | Error::Closed { .. }),
            ) => Err(TransferError { error, remains: Remains::Nothing }),
            Err(error) => {
                let remains = self.lease.take().map_or(Remains::Nothing, Remains::Buffer);
                Err(TransferError { error, remains })
            }
        }
    }
}

/// Waits for a transfer in an asynchronous task; see [`EventFuture`] for what drives it.
///
/// Dropped before its end, it leaves the copy to itself and the buffer is freed behind it.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct TransferFuture<H: Hal> {
    event: EventFuture,
    /// `None` when it has ended.
    transfer: Option<Transfer<H>>,
}

impl<H: Hal> Future for TransferFuture<H> {
    type Output = Result<HostBuffer<H>, TransferError<H>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.event).poll(context).map(|outcome| match self.transfer.take() {
            Some(transfer) => transfer.conclude(outcome),
            None => panic!("the transfer was polled after its end"),
        })
    }
}

impl<H: Hal> IntoFuture for Transfer<H> {
    type Output = Result<HostBuffer<H>, TransferError<H>>;
    type IntoFuture = TransferFuture<H>;

    fn into_future(self) -> TransferFuture<H> {
        TransferFuture { event: self.event.clone().into_future(), transfer: Some(self) }
    }
}

impl Returned for Event {
    fn operation(&self) -> Option<u64> {
        Some(self.id())
    }
}

impl<H: Hal> Returned for Transfer<H> {
    fn operation(&self) -> Option<u64> {
        Some(self.event().id())
    }
}
