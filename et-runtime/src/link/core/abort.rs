//! Aborts.
//!
//! The device can abort a whole queue only (Spec: §10.1), but does so at once and whatever blocks it. So
//! the queue is held up, all it has is aborted, and what was not meant is sent again, in its order; a
//! kernel of another operation that had started cannot be, and ends with
//! [`AbortedWith`](Error::AbortedWith).

use std::time::Duration;

use super::{Command, Core, Extra, Load, OpKey, Role, Sent, StreamKey};
use crate::{Error, Result};

/// How far the abort of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abort {
    None,
    /// It is to be asked for; in favour of this operation.
    Wanted(u64),
    /// The device has been asked, or will be as soon as its queue has room.
    Asked(u64),
    /// It has answered; what it had is still coming in.
    Answered(u64),
}

impl<C: Load> Core<C> {
    pub(super) fn is_paused(&self, queue: usize) -> bool {
        self.queues[queue].abort != Abort::None
    }

    /// Aborts one operation, sent or not; returns `false` if it has ended.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot abort what it has; what it does not have yet is.
    pub(crate) fn abort(&mut self, key: OpKey, now: Duration) -> Result<bool> {
        if self.find(key).is_none() {
            return Ok(false);
        }
        self.abort_slot(key.slot, now).map(|()| true)
    }

    /// Aborts all of a stream, and what it waits for is waited for no more.
    ///
    /// # Errors
    /// As [`abort`](Self::abort).
    pub(crate) fn abort_stream(&mut self, stream: StreamKey, now: Duration) -> Result<()> {
        if let Some(lane) = self.streams.get_mut(stream.0) {
            lane.entries.retain(|entry| matches!(entry, super::Entry::Op(_)));
        }
        self.abort_where(now, |its| its == stream.0)
    }

    /// Aborts everything.
    ///
    /// # Errors
    /// As [`abort`](Self::abort).
    pub(crate) fn abort_all(&mut self, now: Duration) -> Result<()> {
        self.abort_where(now, |_| true)
    }

    fn abort_where(&mut self, now: Duration, is_meant: impl Fn(u32) -> bool) -> Result<()> {
        let mut outcome = Ok(());
        for slot in self.ops.keys() {
            if self.ops.get(slot).is_some_and(|op| is_meant(op.stream)) {
                outcome = self.abort_slot(slot, now).and(outcome);
            }
        }
        outcome
    }

    fn abort_slot(&mut self, slot: u32, now: Duration) -> Result<()> {
        let Some(op) = self.ops.get_mut(slot) else { return Ok(()) };
        op.is_aborted = true;
        let (id, stream) = (op.operation.key.id, op.stream);
        if op.is_open || !op.pending.is_empty() {
            self.fail(slot, Error::Aborted);
        }
        for queue in 0..self.queues.len() {
            let again = std::mem::take(&mut self.queues[queue].again);
            let (own, others): (Vec<_>, Vec<_>) =
                again.into_iter().partition(|sent| sent.op == Some(slot));
            self.queues[queue].again = others;
            for sent in own {
                self.give_back(sent, Error::Aborted);
            }
        }
        let mut outcome = Ok(());
        let queues: Vec<u32> = self
            .flights
            .iter()
            .filter(|sent| sent.op == Some(slot) && sent.role == Role::Normal)
            .map(|sent| sent.queue)
            .collect();
        for queue in queues {
            if queue as usize >= self.high_queues {
                outcome = Err(Error::Unsupported {
                    op: "abort",
                    why: "the queue has no high-priority queue beside it",
                });
            } else if self.queues[queue as usize].abort == Abort::None {
                self.queues[queue as usize].abort = Abort::Wanted(id);
                self.rouse();
            }
        }
        self.advance(stream);
        self.end_if_done(slot, now);
        outcome
    }

    /// Puts the abort command that is wanted into the high-priority queue.
    pub(super) fn ask_for_abort(&mut self, queue: usize) {
        if let Abort::Wanted(id) = self.queues[queue].abort {
            self.queues[queue].abort = Abort::Asked(id);
            let command = Command::new(C::abort());
            self.queues[queue].high.push_back(Extra { op: None, role: Role::Abort, command });
        }
    }

    /// The device has answered an abort.
    pub(super) fn abort_answered(&mut self, queue: usize) {
        if let Abort::Asked(id) = self.queues[queue].abort {
            self.queues[queue].abort = Abort::Answered(id);
        }
        self.resume_if_empty(queue);
    }

    /// Lets a queue go on when the device has nothing of it any more.
    ///
    /// A kernel may be answered after the abort that ended it.
    pub(super) fn resume_if_empty(&mut self, queue: usize) {
        let place = &mut self.queues[queue];
        if matches!(place.abort, Abort::Answered(_)) && place.in_flight == 0 {
            place.abort = Abort::None;
            place.again.sort_unstable_by_key(|sent| sent.sequence);
        }
    }

    /// Decides about a command that the device has aborted. `Err` with the command and the reason if it
    /// has ended, `Ok` if it will be sent again.
    pub(super) fn aborted(
        &mut self,
        sent: Sent<C>,
        is_repeatable: bool,
    ) -> Result<(), (Sent<C>, Error)> {
        let queue = sent.queue as usize;
        let target = match self.queues[queue].abort {
            Abort::None | Abort::Wanted(_) => None,
            Abort::Asked(id) | Abort::Answered(id) => Some(id),
        };
        let is_meant = sent.op.and_then(|op| self.ops.get(op)).is_some_and(|op| op.is_aborted);
        match target {
            // Somebody else has aborted the queue.
            None => Err((sent, Error::Aborted)),
            Some(_) if is_meant => Err((sent, Error::Aborted)),
            Some(_) if is_repeatable => {
                self.queues[queue].again.push(sent);
                Ok(())
            }
            Some(operation) => Err((sent, Error::AbortedWith { operation })),
        }
    }
}
