//! What a user holds while an operation runs.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use et_devapi::msg::ops::Times;
use et_hal::Hal;

use crate::memory::{HostBuffer, Lease};
use crate::operation::{Operation, Outcome};
use crate::{Error, Result};

/// When an operation was queued, sent and completed. Host times are those of the device's clock object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The call was made.
    pub queued: Duration,
    /// The first command was put into the submission queue.
    pub sent: Duration,
    /// The last response was taken from the completion queue.
    pub completed: Duration,
    /// Times of the device in cycles, if it reports any for this kind of command; execution times of
    /// several commands are added up. Spec: §11.
    pub device: Option<Times>,
}

/// Makes progress on behalf of a waiter; the device behind an event, without its type.
pub(crate) trait Driver: Send + Sync {
    /// Waits until the operation is done or the time is up; `true` if it is done.
    fn wait(&self, operation: &Operation, timeout: Duration) -> bool;
    /// Takes what has arrived, without waiting.
    fn poll(&self);
    /// Somebody is interested who will not wait.
    fn want(&self);
    fn unwant(&self);
}

/// The completion of an operation.
///
/// Dropping an event does not cancel anything; the operation goes on and keeps what it uses.
#[derive(Clone)]
#[must_use = "an operation may fail, and only its event says so"]
pub struct Event {
    operation: Arc<Operation>,
    driver: Arc<dyn Driver>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.operation.id)
            .field("operation", &self.operation.name)
            .field("stream", &self.operation.lane.id)
            .field("done", &self.operation.cell.is_done())
            .finish()
    }
}

impl Event {
    pub(crate) fn new(operation: Arc<Operation>, driver: Arc<dyn Driver>) -> Self {
        Self { operation, driver }
    }

    pub(crate) fn operation(&self) -> &Arc<Operation> {
        &self.operation
    }

    /// Returns the number of the operation; it is never used again on this device.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.operation.id
    }

    /// Tells whether the operation has completed or failed, without waiting.
    #[must_use]
    pub fn is_done(&self) -> bool {
        if !self.operation.cell.is_done() {
            self.driver.poll();
        }
        self.operation.cell.is_done()
    }

    /// Waits for the operation, for at most `timeout`; zero polls.
    ///
    /// Any number of threads may wait. Running out of time cancels nothing.
    ///
    /// # Errors
    /// The operation's own failure, or [`Error::Timeout`].
    pub fn wait(&self, timeout: Duration) -> Result<Timeline> {
        if self.driver.wait(&self.operation, timeout)
            && let Some(outcome) = self.operation.cell.get()
        {
            return outcome;
        }
        Err(Error::Timeout { op: self.operation.name, after: timeout })
    }

    /// Returns the outcome if the operation has completed.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Timeline>> {
        self.operation.cell.get()
    }

    /// Has `callback` called when the operation is done, at once if it is already.
    ///
    /// It runs in whichever thread sees the completion and must not block.
    pub fn on_done(&self, callback: impl FnOnce(&Result<Timeline>) + Send + 'static) {
        self.operation.cell.call(callback);
        self.register_interest();
    }

    fn register_interest(&self) {
        if self.operation.wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.driver.want();
        if self.operation.cell.is_done() && self.operation.wanted.swap(false, Ordering::AcqRel) {
            self.driver.unwant();
        }
    }
}

/// The future of an [`Event`].
#[derive(Debug)]
pub struct EventFuture(Event);

impl Future for EventFuture {
    type Output = Result<Timeline>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match self.0.operation.cell.poll(context.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                self.0.register_interest();
                Poll::Pending
            }
        }
    }
}

impl IntoFuture for Event {
    type Output = Result<Timeline>;
    type IntoFuture = EventFuture;

    fn into_future(self) -> EventFuture {
        EventFuture(self)
    }
}

/// A copy that uses a caller's [`HostBuffer`] directly and gives it back at the end.
///
/// The buffer belongs to the command until the device has answered, so it cannot be freed or changed
/// under it, not even by forgetting this value.
#[must_use = "the buffer comes back through this value"]
pub struct Transfer<H: Hal> {
    event: Event,
    lease: Arc<Lease<H>>,
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
    /// What is left to the caller: the buffer if the device is done with it, else the transfer, still running.
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
    /// The device went away while it might still reach the buffer, which is kept from it until it is closed.
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
    pub(crate) fn new(event: Event, lease: Arc<Lease<H>>) -> Self {
        Self { event, lease }
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
            Ok(_) => match self.lease.take() {
                Some(buffer) => Ok(buffer),
                None => Err(TransferError { error: Error::Closed, remains: Remains::Nothing }),
            },
            Err(error @ Error::Timeout { .. }) if !self.event.operation.cell.is_done() => {
                Err(TransferError { error, remains: Remains::Transfer(self) })
            }
            // Not the device's answer: it may still be at work on what it got.
            Err(
                error @ (Error::Lost { .. } | Error::Hal { .. } | Error::Stale | Error::Closed),
            ) => Err(TransferError { error, remains: Remains::Nothing }),
            Err(error) => {
                let remains = self.lease.take().map_or(Remains::Nothing, Remains::Buffer);
                Err(TransferError { error, remains })
            }
        }
    }
}
