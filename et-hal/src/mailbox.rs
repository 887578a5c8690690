//! Messages to and from one endpoint of the device.

use core::time::Duration;

use crate::{BarOffset, ErrorType, Width};

/// A part of the device that takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// Copies, kernels, traces.
    Operations,
    /// The service processor: health, firmware, resets.
    Management,
}

/// A queue towards the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueId {
    /// Submission queue *n*.
    Submission(u8),
    /// High-priority submission queue *n*, paired with submission queue *n*.
    HighPriority(u8),
}

/// Rings of one kind, one after the other in the same BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingSet {
    /// Start of ring 0.
    pub at: BarOffset,
    /// Bytes of each ring, its control block included.
    pub size_bytes: u32,
    /// Number of rings; 0 if the endpoint has none of the kind.
    pub count: u16,
}

/// The register that makes the device look at its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doorbell {
    /// Where it is. It must never be read.
    pub at: BarOffset,
    /// The width of the one write.
    pub width: Width,
    /// What to write.
    pub value: u32,
}

/// Where an endpoint's queues are; the device's own registers say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MailboxLayout {
    /// Whose queues these are.
    pub endpoint: Endpoint,
    /// Submission queues.
    pub submission: RingSet,
    /// High-priority submission queues.
    pub high_priority: RingSet,
    /// The completion queue; exactly one is used.
    pub completion: RingSet,
    /// The doorbell of the endpoint.
    pub doorbell: Doorbell,
}

/// What became of a push. A full queue is an ordinary state, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Push {
    /// The message is in the queue; [`kick`](Mailbox::kick) makes the device look.
    Accepted,
    /// No room now; nothing was written.
    Full,
}

/// What a pop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Pop {
    /// One whole message, of this many bytes, at the start of the buffer.
    Message(usize),
    /// Nothing, or not yet a whole message.
    Empty,
}

/// A point in the stream of notifications, see [`Mailbox::ticket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Wake {
    /// Something may have happened; look.
    Notified,
    /// The timeout passed.
    TimedOut,
}

/// The queues of one endpoint.
///
/// A notification has no payload, coalesces and may be spurious, but cannot be lost: take a
/// [`ticket`](Mailbox::ticket), look at everything of interest, then [`wait`](Mailbox::wait) with
/// the ticket.
///
/// # For driver authors
///
/// Any number of threads may use a mailbox, but each queue has one user at a time: while one
/// thread pushes to a queue (or pops), another that does the same gets `Busy`.
/// Push a batch, then kick once.
///
/// # For HAL authors
///
/// A message MUST arrive whole or not at all. `wait` MUST return at once if a notification came
/// after the ticket was taken, and MUST return by its timeout. A lost interrupt MUST NOT become a
/// hang: degrade to polling within the timeout. A loss that the platform announces MUST reach a
/// caller that only kicks and pops, within a second: one that never waits would never learn of it.
pub trait Mailbox: ErrorType {
    /// Returns the size of the largest message a queue can ever take, in bytes.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such queue.
    fn max_message_bytes(&self, queue: QueueId) -> Result<usize, Self::Error>;

    /// Puts one whole message into a queue.
    ///
    /// # Errors
    /// `OutOfBounds` if there is no such queue; `TooLarge` if it can never fit; `Busy`; `Protocol`
    /// if the device corrupted the queue, which stays unusable until a reset; `Stale`; `Lost`.
    fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, Self::Error>;

    /// Rings the doorbell.
    ///
    /// # Errors
    /// `Stale`; `Lost`.
    ///
    /// # Ordering
    /// The device sees every message pushed before.
    fn kick(&self) -> Result<(), Self::Error>;

    /// Takes one whole message from the device.
    ///
    /// # Errors
    /// `TooLarge` if the message does not fit `into` (it stays in the queue); `Busy`; `Protocol`,
    /// after which the queue is unusable until a reset; `Stale`; `Lost`.
    fn pop(&self, into: &mut [u8]) -> Result<Pop, Self::Error>;

    /// Returns the present point in the stream of notifications.
    fn ticket(&self) -> Ticket;

    /// Waits for a notification after `seen`.
    ///
    /// # Errors
    /// `Stale`; `Lost`. Running out of time is [`Wake::TimedOut`], not an error.
    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, Self::Error>;

    /// Makes every present [`wait`](Mailbox::wait) return, as if notified.
    fn wake(&self);
}

const _: fn(&dyn Mailbox<Error = crate::ErrorKind>) = |_| ();

macro_rules! forward {
    ($(#[$attr:meta])* $target:ty) => {
        $(#[$attr])*
        impl<T: Mailbox + ?Sized> Mailbox for $target {
            fn max_message_bytes(&self, queue: QueueId) -> Result<usize, Self::Error> {
                T::max_message_bytes(self, queue)
            }
            fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, Self::Error> {
                T::push(self, queue, message)
            }
            fn kick(&self) -> Result<(), Self::Error> {
                T::kick(self)
            }
            fn pop(&self, into: &mut [u8]) -> Result<Pop, Self::Error> {
                T::pop(self, into)
            }
            fn ticket(&self) -> Ticket {
                T::ticket(self)
            }
            fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, Self::Error> {
                T::wait(self, seen, timeout)
            }
            fn wake(&self) {
                T::wake(self);
            }
        }
    };
}

forward!(&T);
forward!(&mut T);
forward!(
    #[cfg(feature = "alloc")]
    alloc::sync::Arc<T>
);
