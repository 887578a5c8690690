//! What an answer means.

use std::time::Duration;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{AbortStatus, Body, EchoStatus, Times};

use super::abort::Departure;
use super::{Command, Core, Entry, Extra, Load, Role, Sent, Verdict, Work};
use crate::Error;
use crate::link::{EventState, OpName};
use crate::refusal::{Refusal, was_caught};

/// What an answer was about.
pub(crate) enum Answer<C> {
    /// A command that is not in flight.
    Stray,
    /// All is settled.
    Settled,
    /// Something is left to be decided by whoever drains; it must [`release`](Core::release) or
    /// [`follow`](Core::follow), and say then that it is [`decided`](Core::decided).
    Held(Held<C>),
    /// All is settled, and an abort that the link asked for is refused.
    AbortRefused(Error),
    /// It cannot be the answer to its command; the device must be lost.
    Nonsense,
}

/// A command whose answer needs a decision.
pub(crate) struct Held<C> {
    pub(crate) load: C,
    /// Why it has ended, if the state machine knows.
    pub(crate) error: Option<Error>,
    op: HeldOp,
    /// Where it was; to be told that it is [`decided`](Core::decided).
    pub(crate) queue: usize,
}

impl<C> Held<C> {
    /// Takes the command out, to be decided without it.
    pub(crate) fn split(self) -> (C, Option<Error>, HeldOp) {
        (self.load, self.error, self.op)
    }
}

/// An operation that waits for a decision.
#[must_use = "the operation never ends unless it is released"]
pub(crate) struct HeldOp(Option<u32>);

impl Verdict {
    /// An abort came before it was begun.
    pub(crate) const NOT_BEGUN: Self = Self::Aborted { is_repeatable: true, has_begun: false };

    /// A launch was aborted. What has run cannot be repeated.
    pub(crate) const fn of_launch_aborted(may_have_run: bool) -> Self {
        Self::Aborted { is_repeatable: !may_have_run, has_begun: may_have_run }
    }

    /// What an echo says that stands for a barrier. An abort may have caught it while what is
    /// before it has yet to be sent again.
    pub(crate) fn of_echo(status: EchoStatus) -> Self {
        match status {
            EchoStatus::Success => Self::Done(None),
            EchoStatus::HostAborted => Self::NOT_BEGUN,
            status => {
                Self::Failed(Error::Refused { op: "barrier", status: Refusal::Echo(status) }, None)
            }
        }
    }

    /// What the answer to an abort says.
    pub(crate) fn of_abort(status: AbortStatus) -> Self {
        match status {
            AbortStatus::Success => Self::Done(None),
            status => {
                Self::Failed(Error::Refused { op: "abort", status: Refusal::Abort(status) }, None)
            }
        }
    }

    /// What an answer says that someone waits for, whatever it is; but not that an abort of others
    /// has caught the command.
    pub(crate) fn of_reply(answer: &Body) -> Self {
        if was_caught(answer) { Self::NOT_BEGUN } else { Self::Hold(None) }
    }
}

impl<C: Load> Core<C> {
    /// Takes the answer to the command with a tag.
    pub(crate) fn answer(&mut self, tag: Tag, message: &Body, now: Duration) -> Answer<C> {
        let Some(sent) = self.flights.complete(tag) else { return Answer::Stray };
        self.progress = now;
        let queue = sent.queue as usize;
        self.count_out(&sent);
        if sent.role == Role::Reset {
            self.reset_answered(sent.sequence, message, now);
        }
        let verdict = sent.load.verdict(message);
        let how = match (sent.role, &verdict) {
            (Role::Abort, Verdict::Nonsense) => Departure::Ended,
            (Role::Abort, Verdict::Failed(..)) => Departure::AbortRefused,
            (Role::Abort, _) => Departure::AbortDone,
            (Role::Normal, Verdict::Aborted { has_begun: false, .. }) => Departure::Ended,
            (Role::Normal, _) => Departure::Begun { after: sent.after },
            (Role::High | Role::Reset | Role::Lost, _) => Departure::Ended,
        };
        let answer = self.judge(sent, verdict, now);
        self.departed(queue, how, now);
        answer
    }

    /// The device refuses to know a command; there is no other answer to it. Spec: §21, 10.
    pub(crate) fn refused(&mut self, tag: Tag, now: Duration) -> Answer<C> {
        let Some(sent) = self.flights.complete(tag) else { return Answer::Stray };
        self.progress = now;
        let queue = sent.queue as usize;
        self.count_out(&sent);
        if sent.role == Role::Reset {
            self.let_launches_go();
        }
        let error = |op| Error::Refused { op, status: Refusal::Unsupported };
        let (how, error, answer) = if sent.role == Role::Abort {
            let error = error("abort");
            (Departure::AbortRefused, error.clone(), Answer::AbortRefused(error))
        } else {
            self.keep_barrier(sent.op, queue, sent.after);
            (Departure::Ended, error(self.sender_of(&sent)), Answer::Settled)
        };
        self.settle(sent, Err(error), None, now);
        self.departed(queue, how, now);
        answer
    }

    fn judge(&mut self, sent: Sent<C>, verdict: Verdict, now: Duration) -> Answer<C> {
        match verdict {
            Verdict::Done(times) => self.settle(sent, Ok(()), times, now),
            Verdict::Failed(error, times) if sent.role == Role::Abort => {
                self.settle(sent, Err(error.clone()), times, now);
                return Answer::AbortRefused(error);
            }
            Verdict::Failed(error, times) => self.settle(sent, Err(error), times, now),
            Verdict::Hold(times) => {
                self.record(&sent, times);
                // A kernel has failed, or is for others to decide about.
                if let (work @ Work::Launch(_), Some(Times { execute: 1.., .. })) =
                    (sent.load.work(), times)
                {
                    self.traffic.done(work, times);
                }
                return self.hold(sent, None, now);
            }
            Verdict::Aborted { is_repeatable, .. } => match self.aborted(sent, is_repeatable) {
                Ok(()) => {}
                // What an aborted kernel left is looked at first.
                Err((sent, error)) if !is_repeatable || sent.is_extra => {
                    return self.hold(sent, Some(error), now);
                }
                Err((sent, error)) => self.settle(sent, Err(error), None, now),
            },
            Verdict::Nonsense => {
                let op = sent.op;
                // The device may still be at work on the command it did not answer.
                let why = "response of another kind than its command";
                let error = Error::lost(why);
                self.set_aside(sent.load, &error);
                if let Some(slot) = op {
                    self.fail(slot, error);
                    self.leave_lane(slot, now);
                    self.part_done(slot, now);
                }
                return Answer::Nonsense;
            }
        }
        Answer::Settled
    }

    fn hold(&mut self, sent: Sent<C>, error: Option<Error>, now: Duration) -> Answer<C> {
        if let Some(slot) = sent.op {
            self.leave_lane(slot, now);
            self.note_answered(slot);
        }
        let queue = sent.queue as usize;
        self.queues[queue].held += 1;
        self.held += 1;
        Answer::Held(Held { load: sent.load, error, op: HeldOp(sent.op), queue })
    }

    fn count_out(&mut self, sent: &Sent<C>) {
        let place = &mut self.queues[sent.queue as usize];
        match sent.role {
            Role::Normal => place.in_flight -= 1,
            Role::High | Role::Reset | Role::Abort => place.is_high_busy = false,
            Role::Lost => {
                self.lost -= 1;
                // It brings its context back.
                self.contexts.made += usize::from(sent.load.has_context());
                return;
            }
        }
        self.orphans -= usize::from(sent.op.is_none());
    }

    fn record(&mut self, sent: &Sent<C>, times: Option<Times>) {
        let Some(op) = sent.op.and_then(|op| self.ops.get_mut(op)) else { return };
        match (&mut op.times, times) {
            // Cycles of the parts add up; the start is that of the first.
            (Some(sum), Some(times)) => sum.execute = sum.execute.wrapping_add(times.execute),
            (none, times) => *none = times,
        }
    }

    fn settle(
        &mut self,
        mut sent: Sent<C>,
        outcome: Result<(), Error>,
        times: Option<Times>,
        now: Duration,
    ) {
        self.record(&sent, times);
        let error = outcome.err();
        if error.is_none() {
            self.traffic.done(sent.load.work(), times);
        }
        self.return_context(&mut sent.load, error.is_none());
        if let Some(slot) = sent.op {
            if let Some(error) = error.clone() {
                self.fail(slot, error);
            }
            self.leave_lane(slot, now);
        }
        self.output.finished.push((sent.load, error));
        match sent.op {
            Some(slot) => self.part_done(slot, now),
            None => self.tell_if_quiet(),
        }
    }

    /// Ends a command that waits to be sent again.
    pub(super) fn give_back(&mut self, sent: Sent<C>, error: Error) {
        self.keep_barrier(sent.op, sent.queue as usize, sent.after);
        if let Some(slot) = sent.op {
            self.fail(slot, error.clone());
            if let Some(op) = self.ops.get_mut(slot) {
                op.active -= 1;
                if let Some(lane) = self.streams.get_mut(op.stream) {
                    lane.outstanding -= 1;
                }
            }
        }
        let mut load = sent.load;
        self.return_context(&mut load, false);
        self.output.finished.push((load, Some(error)));
    }

    /// Gives a context to the next launch, unless it may lack its pattern.
    fn return_context(&mut self, load: &mut C, is_complete: bool) {
        let is_clean = is_complete || load.has_clean_context();
        match load.take_context() {
            Some(context) if is_clean => self.context_back(context),
            Some(_) => self.context_gone(),
            None => {}
        }
    }

    fn leave_lane(&mut self, slot: u32, now: Duration) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        // What was behind the barrier with it is past it now.
        op.is_barred = false;
        let Some(lane) = self.streams.get_mut(op.stream) else { return };
        lane.outstanding -= 1;
        lane.progress = now;
        // The next one may be unblocked by that.
        if let Some(Entry::Op(slot)) = lane.entries.front()
            && let Some(op) = self.ops.get_mut(*slot)
            && op.is_open
        {
            self.output.wake.extend(op.submitter.take());
        }
    }

    /// An answer is to be decided about: if it was the last, the operation is executed.
    fn note_answered(&mut self, slot: u32) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        let is_last = !op.is_open && op.pending.is_empty() && op.active == 1;
        if is_last && !std::mem::replace(&mut op.is_executed, true) && !op.on_executed.is_empty() {
            self.reach(slot, EventState::Executed);
        }
    }

    fn part_done(&mut self, slot: u32, now: Duration) {
        if let Some(op) = self.ops.get_mut(slot) {
            op.active -= 1;
        }
        self.end_if_done(slot, now);
    }

    /// Ends a held command.
    pub(crate) fn release(&mut self, held: HeldOp, outcome: Result<(), Error>, now: Duration) {
        self.held -= 1;
        match held.0 {
            Some(slot) => {
                if let Err(error) = outcome {
                    self.fail(slot, error);
                }
                self.part_done(slot, now);
            }
            None => self.tell_if_quiet(),
        }
    }

    /// Returns what messages say of a held operation; `None` for a command of no operation.
    pub(crate) fn name_of(&self, held: &HeldOp) -> Option<OpName> {
        Some(self.ops.get(held.0?)?.operation.name())
    }

    /// Lets another command take the place of a held one.
    pub(crate) fn follow(
        &mut self,
        held: HeldOp,
        queue: usize,
        command: Command<C>,
        now: Duration,
    ) {
        self.held -= 1;
        let op = held.0;
        if let Some(error) = self.health.refusal().cloned() {
            self.output.finished.push((command.load, Some(error.clone())));
            if let Some(slot) = op {
                self.fail(slot, error);
                self.part_done(slot, now);
            }
            return;
        }
        if let Some(stream) = op.and_then(|op| self.ops.get(op)).map(|op| op.stream)
            && let Some(lane) = self.streams.get_mut(stream)
        {
            lane.outstanding += 1;
        }
        self.queues[queue].extra.push_back(Extra { op, role: Role::Normal, command });
    }

    /// What becomes of an answer has been decided: what follows from it is to be sent, if anything.
    pub(crate) fn decided(&mut self, queue: usize, now: Duration) {
        self.queues[queue].held -= 1;
        self.resume_if_empty(queue, now);
    }

    /// The device cannot be used any more: everything ends with `error`, and what it may still
    /// reach is kept from everyone. Returns `false` if it was lost already.
    pub(crate) fn lose(&mut self, error: &Error, now: Duration) -> bool {
        if !self.health.lose(error.clone()) {
            return false;
        }
        for sent in self.flights.take_all() {
            self.count_out(&sent);
            self.drop_part(sent.op, error);
            self.set_aside(sent.load, error);
        }
        for queue in 0..self.queues.len() {
            let place = &mut self.queues[queue];
            (place.abort, place.asks_again) = (super::Abort::None, false);
            place.ready.clear();
            let high = std::mem::take(&mut place.high);
            let extra = std::mem::take(&mut place.extra);
            let again = std::mem::take(&mut place.again);
            for Extra { op, command, .. } in high.into_iter().chain(extra) {
                self.drop_part(op, error);
                self.output.finished.push((command.load, Some(error.clone())));
            }
            for sent in again {
                self.drop_part(sent.op, error);
                self.output.finished.push((sent.load, Some(error.clone())));
            }
        }
        self.contexts.starved.clear();
        for slot in self.ops.keys() {
            self.fail(slot, error.clone());
        }
        for stream in self.streams.keys() {
            if let Some(lane) = self.streams.get_mut(stream) {
                lane.is_listed = false;
                lane.granted = None;
            }
        }
        for slot in self.ops.keys() {
            if let Some(op) = self.ops.get_mut(slot)
                && let Some(submitter) = op.submitter.take()
            {
                self.output.wake.push(submitter);
            }
            self.end_if_done(slot, now);
        }
        for stream in self.streams.keys() {
            self.forget_if_over(stream);
        }
        self.tell_if_quiet();
        self.rouse();
        true
    }

    /// Keeps the memory of a command that the device may still work on.
    fn set_aside(&mut self, mut load: C, error: &Error) {
        if let Some(listener) = load.take_listener() {
            self.output.finished.push((listener, Some(error.clone())));
        }
        self.quarantine.push(load);
    }

    pub(super) fn drop_part(&mut self, op: Option<u32>, error: &Error) {
        let Some(slot) = op else { return };
        self.fail(slot, error.clone());
        if let Some(op) = self.ops.get_mut(slot) {
            op.active -= 1;
            if let Some(lane) = self.streams.get_mut(op.stream) {
                lane.outstanding -= 1;
            }
        }
    }
}
