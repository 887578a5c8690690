//! A mailbox made of rings, a doorbell and a signal.

use core::marker::PhantomData;
use core::time::Duration;

use et_hal::{
    BarOffset, Endpoint, Error, ErrorKind, ErrorType, Mailbox, MailboxLayout, Mmio, Pop, Push,
    QueueId, RingSet, Ticket, Wake,
};

use crate::msg::completion_bytes;
use crate::ring::{Consumer, Producer, Ring, RingError};
use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// Most queues of one kind.
pub const MAX_QUEUES: usize = 8;

/// The notifications of one endpoint, as a backend gets them. The rules are those of [`Mailbox`].
pub trait Signal: ErrorType {
    /// Returns the present point in the stream of notifications.
    fn ticket(&self) -> Ticket;

    /// Waits for a notification after `seen`.
    ///
    /// # Errors
    /// `Stale`; `Lost`.
    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, Self::Error>;

    /// Makes every present wait return.
    fn wake(&self);

    /// Looks whether the device is still there, after a queue was found corrupt: the reason may be
    /// that it is not.
    ///
    /// # Errors
    /// `Stale`; `Lost`.
    fn verify(&self) -> Result<(), Self::Error>;

    /// Looks now and then whether the device is still there, so that a caller who never has to wait
    /// learns of a loss too. Called with each kick and each pop of nothing; a call that does not
    /// look must cost a few nanoseconds.
    ///
    /// # Errors
    /// `Stale`; `Lost`.
    fn glance(&self) -> Result<(), Self::Error>;
}

/// What is wrong with a mailbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MailboxError<E> {
    /// The window, the doorbell or the signal failed.
    #[error("mailbox access failed")]
    Access(#[source] E),
    /// A ring cannot be used.
    #[error("queue cannot be used")]
    Ring(#[source] RingError<E>),
    /// There is no such queue.
    #[error("no queue {0:?}")]
    NoQueue(QueueId),
    /// The layout has more queues of a kind than this implementation, or no completion queue.
    #[error("{count} queues of a kind, possible are {min} to {max}")]
    QueueCount {
        /// Number of queues.
        count: u16,
        /// Fewest possible.
        min: usize,
        /// Most possible.
        max: usize,
    },
    /// Another thread is using the queue.
    #[error("queue is in use by another thread")]
    InUse,
    /// The device corrupted the queue before.
    #[error("queue is corrupt until the next reset")]
    Poisoned,
}

impl<E: Error> MailboxError<E> {
    /// Returns the failure as a kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Access(error) | Self::Ring(RingError::Access(error)) => error.kind(),
            Self::Ring(RingError::Place { .. }) => ErrorKind::OutOfBounds,
            Self::Ring(RingError::TooLarge { .. } | RingError::BufferTooSmall { .. }) => {
                ErrorKind::TooLarge
            }
            Self::Ring(_) | Self::Poisoned => ErrorKind::Protocol,
            Self::NoQueue(_) | Self::QueueCount { .. } => ErrorKind::OutOfBounds,
            Self::InUse => ErrorKind::Busy,
        }
    }
}

impl<E: Error> Error for MailboxError<E> {
    fn kind(&self) -> ErrorKind {
        Self::kind(self)
    }
}

/// One end of one ring, usable by one thread at a time.
///
/// The indices are atomics only because the mailbox is shared; `busy` orders them.
#[derive(Debug)]
struct End {
    ring: Ring,
    busy: AtomicBool,
    poisoned: AtomicBool,
    own: AtomicU32,
    peer: AtomicU32,
    /// The own index as the peer sees it, of a reading end.
    published: AtomicU32,
}

impl End {
    fn new(ring: Ring, (own, peer): (u32, u32)) -> Self {
        Self {
            ring,
            busy: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            own: AtomicU32::new(own),
            peer: AtomicU32::new(peer),
            published: AtomicU32::new(own),
        }
    }

    /// Runs `work` on the end as its only user.
    fn with<T, E>(
        &self,
        work: impl FnOnce((u32, u32)) -> (Result<T, RingError<E>>, (u32, u32)),
    ) -> Result<T, MailboxError<E>> {
        // Acquire: sees the indices of the last user; pairs with the Release below.
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(MailboxError::InUse);
        }
        let outcome = if self.poisoned.load(Ordering::Relaxed) {
            Err(MailboxError::Poisoned)
        } else {
            let indices = (self.own.load(Ordering::Relaxed), self.peer.load(Ordering::Relaxed));
            let (outcome, (own, peer)) = work(indices);
            self.own.store(own, Ordering::Relaxed);
            self.peer.store(peer, Ordering::Relaxed);
            outcome.map_err(broken)
        };
        self.busy.store(false, Ordering::Release);
        outcome
    }

    /// After these the position in the ring means nothing any more.
    fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }
}

/// [`Mailbox`] over rings in a window. `E` is the error of the backend's bundle.
#[derive(Debug)]
pub struct RingMailbox<M, S, E> {
    window: M,
    signal: S,
    layout: MailboxLayout,
    submission: [Option<End>; MAX_QUEUES],
    high_priority: [Option<End>; MAX_QUEUES],
    completion: End,
    error: PhantomData<fn() -> E>,
}

impl<M, S, E> RingMailbox<M, S, E>
where
    M: Mmio,
    S: Signal<Error = M::Error>,
{
    /// Attaches to the queues of `layout`, at the indices they have.
    ///
    /// # Errors
    /// [`MailboxError::QueueCount`], [`MailboxError::Ring`].
    pub fn attach(
        window: M,
        signal: S,
        layout: MailboxLayout,
    ) -> Result<Self, MailboxError<M::Error>> {
        let submission = producers(&window, &layout.submission)?;
        let high_priority = producers(&window, &layout.high_priority)?;
        if layout.completion.count == 0 {
            return Err(MailboxError::QueueCount { count: 0, min: 1, max: MAX_QUEUES });
        }
        let ring = Ring::new(layout.completion.at, layout.completion.size_bytes)
            .map_err(MailboxError::Ring)?;
        let consumer = Consumer::attach(ring, &window).map_err(MailboxError::Ring)?;
        let completion = End::new(ring, consumer.indices());
        let error = PhantomData;
        Ok(Self { window, signal, layout, submission, high_priority, completion, error })
    }

    fn end(&self, queue: QueueId) -> Result<&End, MailboxError<M::Error>> {
        let (ends, index) = match queue {
            QueueId::Submission(index) => (&self.submission, index),
            QueueId::HighPriority(index) => (&self.high_priority, index),
        };
        let end = ends.get(usize::from(index)).and_then(Option::as_ref);
        end.ok_or(MailboxError::NoQueue(queue))
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> Endpoint {
        self.layout.endpoint
    }
}

fn producers<M: Mmio>(
    window: &M,
    set: &RingSet,
) -> Result<[Option<End>; MAX_QUEUES], MailboxError<M::Error>> {
    if usize::from(set.count) > MAX_QUEUES {
        return Err(MailboxError::QueueCount { count: set.count, min: 0, max: MAX_QUEUES });
    }
    let mut ends = [const { None }; MAX_QUEUES];
    let places = (0..u64::from(set.count)).zip(&mut ends);
    for (index, end) in places {
        let at = set.at.as_u64().saturating_add(index.saturating_mul(u64::from(set.size_bytes)));
        let ring = Ring::new(BarOffset::new(at), set.size_bytes).map_err(MailboxError::Ring)?;
        let producer = Producer::attach(ring, window).map_err(MailboxError::Ring)?;
        *end = Some(End::new(ring, producer.indices()));
    }
    Ok(ends)
}

/// Out of line: a result without an error would be moved as if it had one, and reading in other
/// pieces what was just written waits until the store of the ring's index has reached the cache.
#[cold]
#[inline(never)]
fn broken<E>(error: RingError<E>) -> MailboxError<E> {
    MailboxError::Ring(error)
}

fn is_fatal<E>(error: &RingError<E>) -> bool {
    matches!(
        error,
        RingError::CorruptIndex { .. } | RingError::Framing(_) | RingError::Oversized { .. }
    )
}

impl<M, S, E> RingMailbox<M, S, E>
where
    M: Mmio,
    S: Signal<Error = M::Error>,
    E: From<MailboxError<M::Error>>,
{
    /// Passes a failure on; a queue that is found corrupt may be that of a device that is gone,
    /// which is then the error.
    #[cold]
    #[inline(never)]
    fn judged(&self, error: MailboxError<M::Error>) -> E {
        if let MailboxError::Ring(error) = &error
            && is_fatal(error)
            && let Err(gone) = self.signal.verify()
        {
            return MailboxError::Access(gone).into();
        }
        error.into()
    }
}

impl<M, S, E> ErrorType for RingMailbox<M, S, E>
where
    M: Mmio,
    E: From<MailboxError<M::Error>> + Error,
{
    type Error = E;
}

impl<M, S, E> Mailbox for RingMailbox<M, S, E>
where
    M: Mmio,
    S: Signal<Error = M::Error>,
    E: From<MailboxError<M::Error>> + Error,
{
    fn max_message_bytes(&self, queue: QueueId) -> Result<usize, E> {
        let end = self.end(queue)?;
        Ok(usize::try_from(end.ring.max_message()).unwrap_or(usize::MAX))
    }

    fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, E> {
        let end = self.end(queue)?;
        let outcome = end.with(|(head, tail)| {
            let mut producer = Producer::resume(end.ring, head, tail);
            let outcome = producer.push(&self.window, message);
            if outcome.as_ref().is_err_and(is_fatal) {
                end.poison();
            }
            (outcome, producer.indices())
        });
        outcome.map_err(|error| self.judged(error))
    }

    fn kick(&self) -> Result<(), E> {
        self.signal.glance().map_err(MailboxError::Access)?;
        let bell = self.layout.doorbell;
        let written = self.window.write(bell.at, bell.width, u64::from(bell.value));
        Ok(written.map_err(MailboxError::Access)?)
    }

    fn pop(&self, into: &mut [u8]) -> Result<Pop, E> {
        let end = &self.completion;
        let endpoint = self.layout.endpoint;
        let outcome = end.with(|(tail, head)| {
            let published = end.published.load(Ordering::Relaxed);
            let mut consumer = Consumer::resume(end.ring, tail, head, published);
            let frame = |header: &_| completion_bytes(endpoint, header);
            let outcome = consumer.pop_message(&self.window, frame, into);
            if outcome.as_ref().is_err_and(is_fatal) {
                end.poison();
            }
            end.published.store(consumer.published(), Ordering::Relaxed);
            (outcome, consumer.indices())
        });
        let popped = outcome.map_err(|error| self.judged(error))?;
        if popped == Pop::Empty {
            self.signal.glance().map_err(MailboxError::Access)?;
        }
        Ok(popped)
    }

    fn ticket(&self) -> Ticket {
        self.signal.ticket()
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, E> {
        Ok(self.signal.wait(seen, timeout).map_err(MailboxError::Access)?)
    }

    fn wake(&self) {
        self.signal.wake();
    }
}
