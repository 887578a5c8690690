//! Aborts.
//!
//! The device can abort a whole queue only (Spec: §10.1), but does so at once and whatever blocks
//! it. So the queue is held up, all it has is aborted, and what was not meant is sent again, in its
//! order; a kernel of another operation that had started cannot be, and ends with
//! [`AbortedWith`](Error::AbortedWith).

use std::collections::BTreeSet;
use std::time::Duration;

use et_devapi::msg::CommandFlags;

use super::{Command, Core, Extra, Load, Op, OpKey, Role, Sent, StreamKey};
use crate::{Error, Result};

/// How long answers of what an abort has ended may come after its own. What is in flight still was
/// taken by the device later.
const SETTLE: Duration = Duration::from_millis(10);

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

/// Whether an abort may end a kernel of another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// It may: the abort is asked for at once.
    Accept,
    /// It waits until no kernel of another runs before it in its queue.
    Avoid,
}

/// How a command has left its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Without having been begun.
    Ended,
    /// It was executed, or has begun; what was sent before the sequence number and comes before it
    /// in order cannot be sent again.
    Begun { after: u64 },
    /// An abort has done its work, or is not needed.
    AbortDone,
    /// An abort was refused: what the device has goes on, and so does the queue.
    AbortRefused,
}

impl<C> Sent<C> {
    /// Returns `true` if it is a part of an operation as its user has asked for it.
    fn is_meant_by_aborts(&self) -> bool {
        self.role == Role::Normal && !self.is_extra
    }
}

impl<C: Load> Core<C> {
    pub(super) fn is_paused(&self, queue: usize) -> bool {
        self.queues[queue].abort != Abort::None
    }

    /// Aborts one operation, sent or not; returns `false` if it has ended.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot abort what it has; what it does not have yet is.
    pub(crate) fn abort(&mut self, key: OpKey, harm: Harm, now: Duration) -> Result<bool> {
        if self.find(key).is_none() {
            return Ok(false);
        }
        self.abort_slot(key.slot, harm, now).map(|()| true)
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
                outcome = self.abort_slot(slot, Harm::Accept, now).and(outcome);
            }
        }
        outcome
    }

    fn abort_slot(&mut self, slot: u32, harm: Harm, now: Duration) -> Result<()> {
        let Some(op) = self.ops.get_mut(slot) else { return Ok(()) };
        let harm = if op.abort == Some(Harm::Accept) { Harm::Accept } else { harm };
        (op.abort, op.is_patient) = (Some(harm), false);
        let (id, stream) = (op.operation.key.id, op.stream);
        let aborted = Error::Aborted { op: op.operation.name };
        if op.is_open || !op.pending.is_empty() {
            self.fail(slot, aborted.clone());
        }
        for queue in 0..self.queues.len() {
            let again = std::mem::take(&mut self.queues[queue].again);
            let (own, others): (Vec<_>, Vec<_>) =
                again.into_iter().partition(|sent| sent.op == Some(slot) && !sent.is_extra);
            self.queues[queue].again = others;
            for sent in own {
                self.give_back(sent, aborted.clone());
            }
        }
        let mut outcome = Ok(());
        let queues: BTreeSet<u32> = self
            .flights
            .iter()
            .filter(|sent| sent.op == Some(slot) && sent.is_meant_by_aborts())
            .map(|sent| sent.queue)
            .collect();
        for queue in queues {
            if queue as usize >= self.high_queues {
                outcome = Err(Error::Unsupported {
                    op: "abort",
                    why: "the queue has no high-priority queue beside it",
                });
            } else if harm == Harm::Avoid && self.is_behind_a_kernel(slot, queue) {
                self.queues[queue as usize].has_patient = true;
                if let Some(op) = self.ops.get_mut(slot) {
                    op.is_patient = true;
                }
            } else {
                self.want_abort(queue as usize, id);
            }
        }
        (0..self.queues.len()).for_each(|queue| self.resume_if_empty(queue, now));
        self.advance(stream);
        self.end_if_done(slot, now);
        outcome
    }

    /// Has a queue aborted in favour of an operation that it has.
    fn want_abort(&mut self, queue: usize, id: u64) {
        match self.queues[queue].abort {
            Abort::None => self.queues[queue].abort = Abort::Wanted(id),
            // It is in the queue already, and goes with the rest.
            Abort::Wanted(_) => return,
            Abort::Asked(_) => {}
            // It had not taken it, or has yet to say that it is ended.
            Abort::Answered(_) => self.ask(queue, id),
        }
        // The device may be done with that before it takes the operation from the ring.
        self.queues[queue].asks_again = true;
        self.rouse();
    }

    /// Returns `true` if a kernel of another operation is in the queue before all of this one.
    fn is_behind_a_kernel(&self, slot: u32, queue: u32) -> bool {
        let in_queue = || {
            self.flights.iter().filter(move |sent| sent.queue == queue && sent.role == Role::Normal)
        };
        let is_own = |sent: &&Sent<C>| sent.op == Some(slot) && sent.is_meant_by_aborts();
        let own = in_queue().filter(is_own).map(|sent| sent.sequence).min();
        let is_innocent = |sent: &&Sent<C>| {
            let op = sent.op.and_then(|op| self.ops.get(op));
            sent.load.is_launch() && op.is_none_or(|op| op.abort.is_none())
        };
        in_queue().filter(is_innocent).any(|sent| own.is_some_and(|own| sent.sequence < own))
    }

    /// Returns `true` while an abort that avoids harm waits for a kernel of another.
    pub(crate) fn waits_for_a_kernel(&mut self, key: OpKey) -> bool {
        if self.find(key).is_none() {
            return false;
        }
        let queues = 0..u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        queues.into_iter().any(|queue| self.is_behind_a_kernel(key.slot, queue))
    }

    /// Goes on with what waits for commands of a queue.
    pub(super) fn departed(&mut self, queue: usize, how: Departure, now: Duration) {
        let place = &mut self.queues[queue];
        match (how, place.abort) {
            // What the device has not taken from the ring is not aborted, so it goes ahead of what
            // was aborted before it. To send that again would turn the order round.
            (Departure::Begun { after }, Abort::Asked(_) | Abort::Answered(_)) => {
                place.overtaken = place.overtaken.max(after);
            }
            (Departure::AbortDone, Abort::Asked(id)) => {
                place.abort = Abort::Answered(id);
                place.answered = now;
            }
            (Departure::AbortRefused, Abort::Asked(id)) => {
                place.abort = Abort::Answered(id);
                self.let_overtake(queue);
                self.resume(queue, now);
            }
            _ => {}
        }
        self.look_for_patient(queue);
        self.resume_if_empty(queue, now);
    }

    /// Asks for the aborts that have waited for a kernel, when one has ended.
    fn look_for_patient(&mut self, queue: usize) {
        if std::mem::take(&mut self.queues[queue].has_patient)
            && let Some(id) = self.next_meant(queue, |op| op.is_patient)
        {
            self.want_abort(queue, id);
        }
    }

    /// Returns one of those operations of a queue that may be aborted now. Those that would harm a
    /// kernel of another wait for it.
    fn next_meant(&mut self, queue: usize, is_one: impl Fn(&Op<C>) -> bool) -> Option<u64> {
        let number = u32::try_from(queue).unwrap_or(u32::MAX);
        let mut slots: Vec<u32> = self
            .flights
            .iter()
            .filter(|sent| sent.queue == number && sent.is_meant_by_aborts())
            .filter_map(|sent| sent.op)
            .filter(|slot| self.ops.get(*slot).is_some_and(&is_one))
            .collect();
        slots.dedup();
        let mut next = None;
        for slot in slots {
            let is_behind = self.is_behind_a_kernel(slot, number);
            let Some(op) = self.ops.get_mut(slot) else { continue };
            op.is_patient = is_behind && op.abort == Some(Harm::Avoid);
            if op.is_patient {
                self.queues[queue].has_patient = true;
            } else {
                next = next.or(Some(op.operation.key.id));
            }
        }
        next
    }

    /// Returns `true` if the device has something of a queue that is to be aborted now.
    pub(super) fn has_meant(&self, queue: usize) -> bool {
        self.flights.iter().any(|sent| {
            let op = sent.op.and_then(|op| self.ops.get(op));
            let is_here = sent.queue as usize == queue && sent.is_meant_by_aborts();
            is_here && op.is_some_and(|op| op.abort.is_some() && !op.is_patient)
        })
    }

    /// Puts the abort command that is wanted into the high-priority queue; asks again, or goes on,
    /// if what the device has does not end by it.
    pub(super) fn attend_to_abort(&mut self, queue: usize, now: Duration) {
        let place = &mut self.queues[queue];
        match place.abort {
            Abort::Wanted(id) => self.ask(queue, id),
            Abort::Answered(_) if now.saturating_sub(place.answered) >= SETTLE => {
                if !self.has_meant(queue) {
                    // The rest was taken later, and may take as long as it likes. As in
                    // `resume_if_empty`, what follows from an answer goes first.
                    if self.queues[queue].held == 0 {
                        self.let_overtake(queue);
                        self.resume(queue, now);
                    }
                } else if std::mem::take(&mut self.queues[queue].asks_again)
                    && let Some(id) = self.next_meant(queue, |op| op.abort.is_some())
                {
                    self.ask(queue, id);
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, queue: usize, id: u64) {
        self.queues[queue].abort = Abort::Asked(id);
        let command = Command::new(C::abort());
        self.queues[queue].high.push_back(Extra { op: None, role: Role::Abort, command });
    }

    /// What the device has of a queue goes ahead of what it has aborted before.
    fn let_overtake(&mut self, queue: usize) {
        let is_here = |sent: &&Sent<C>| sent.queue as usize == queue && sent.role == Role::Normal;
        let after = self.flights.iter().filter(is_here).map(|sent| sent.after).max();
        let place = &mut self.queues[queue];
        place.overtaken = place.overtaken.max(after.unwrap_or(0));
    }

    /// Lets a queue go on when the device has nothing of it any more.
    ///
    /// A kernel may be answered after the abort that ended it. What follows from an answer is sent
    /// before what is sent again, which may be kernels.
    pub(super) fn resume_if_empty(&mut self, queue: usize, now: Duration) {
        if self.queues[queue].in_flight == 0 && self.queues[queue].held == 0 {
            self.resume(queue, now);
            if self.queues[queue].recent.is_some() && !self.has_lost_abort(queue) {
                self.queues[queue].recent = None;
            }
            self.end_barriers(queue);
        }
    }

    /// Returns `true` if the device may still execute an abort that nothing waits for.
    fn has_lost_abort(&self, queue: usize) -> bool {
        self.flights.iter().any(|sent| {
            sent.queue as usize == queue && sent.role == Role::Lost && !sent.load.is_launch()
        })
    }

    /// An abort was not answered before a reset, and may be executed all the same.
    pub(super) fn lose_abort(&mut self, queue: usize, now: Duration) {
        if let Abort::Asked(id) = self.queues[queue].abort {
            self.queues[queue].recent = Some(id);
        }
        self.departed(queue, Departure::AbortDone, now);
    }

    /// What barriers were kept for has ended, if there is nothing in the queue.
    fn end_barriers(&mut self, queue: usize) {
        let place = &mut self.queues[queue];
        let is_empty = place.abort == Abort::None && place.again.is_empty();
        if !is_empty || !std::mem::take(&mut place.keeps_barriers) {
            return;
        }
        for stream in self.streams.keys() {
            if let Some(lane) = self.streams.get_mut(stream).filter(|lane| lane.queue == queue) {
                lane.keeps_barrier = false;
                self.advance(stream);
            }
        }
    }

    fn resume(&mut self, queue: usize, now: Duration) {
        let place = &mut self.queues[queue];
        let Abort::Answered(operation) = place.abort else { return };
        place.abort = Abort::None;
        place.recent = Some(operation);
        place.asks_again = false;
        place.again.sort_unstable_by_key(|sent| sent.sequence);
        let end = std::mem::take(&mut place.overtaken);
        let is_overtaken = |sent: &Sent<C>| sent.sequence < end && !sent.is_extra;
        let (overtaken, mut again): (Vec<_>, Vec<_>) =
            std::mem::take(&mut place.again).into_iter().partition(is_overtaken);
        again.iter_mut().for_each(|sent| self.number_again(sent));
        self.queues[queue].again = again;
        for sent in overtaken {
            let (slot, op) = (sent.op, self.sender_of(&sent));
            self.give_back(sent, Error::AbortedWith { op, operation });
            if let Some(slot) = slot {
                let stream = self.ops.get(slot).map(|op| op.stream);
                self.end_if_done(slot, now);
                // Whoever submits more of it hears that it has failed.
                stream.into_iter().for_each(|stream| self.advance(stream));
            }
        }
    }

    /// Puts a command behind what the device has and what was numbered before.
    fn number_again(&mut self, sent: &mut Sent<C>) {
        self.sequence += 1;
        sent.sequence = self.sequence;
        let Some(op) = sent.op.and_then(|op| self.ops.get_mut(op)) else { return };
        if sent.after != 0 {
            if sent.flags.contains(CommandFlags::BARRIER) {
                op.barrier = sent.sequence;
            }
            sent.after = op.barrier;
        }
    }

    /// Has the stream of a command that ends without having waited behind its barrier wait there
    /// with the next: what is before the barrier may be sent again.
    pub(super) fn keep_barrier(&mut self, op: Option<u32>, queue: usize, after: u64) {
        if let Some(op) = op.and_then(|op| self.ops.get(op))
            && let Some(lane) = self.streams.get_mut(op.stream)
        {
            // What follows from an answer may be in another queue, where it had no order to keep.
            lane.keeps_barrier |= after != 0 && lane.queue == queue;
            self.queues[lane.queue].keeps_barriers |= lane.keeps_barrier;
        }
    }

    /// The name of a command's operation. Commands of the runtime itself have none.
    pub(super) fn sender_of(&self, sent: &Sent<C>) -> &'static str {
        sent.op.and_then(|op| self.ops.get(op)).map_or("command", |op| op.operation.name)
    }

    /// Decides about a command that the device has aborted. `Err` with the command and the reason
    /// if it has ended, `Ok` if it will be sent again.
    pub(super) fn aborted(
        &mut self,
        sent: Sent<C>,
        is_repeatable: bool,
    ) -> Result<(), (Sent<C>, Error)> {
        let queue = sent.queue as usize;
        let place = &self.queues[queue];
        let (is_going_on, target) = match place.abort {
            Abort::None | Abort::Wanted(_) => (false, place.recent),
            Abort::Asked(id) | Abort::Answered(id) => (true, Some(id)),
        };
        let is_aborted =
            sent.op.and_then(|op| self.ops.get(op)).is_some_and(|op| op.abort.is_some());
        let is_caught = target.is_some() && sent.role != Role::Lost;
        let is_innocent = is_caught && (sent.is_extra || !is_aborted);
        // When the queue goes on, only what keeps no order may be sent again.
        if is_innocent && is_repeatable && (is_going_on || sent.is_extra) {
            self.queues[queue].again.push(sent);
            return Ok(());
        }
        self.keep_barrier(sent.op, queue, sent.after);
        let op = self.sender_of(&sent);
        Err(match target {
            Some(operation) if is_innocent => (sent, Error::AbortedWith { op, operation }),
            // It is meant, or another user has aborted the queue.
            _ => (sent, Error::Aborted { op }),
        })
    }
}
