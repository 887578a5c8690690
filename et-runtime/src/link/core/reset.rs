//! Resets of the compute cores, and cores that fail.

use std::time::Duration;

use et_devapi::msg::ops::{Body, CmResetStatus};
use et_hal::ResetScope;

use super::abort::Departure;
use super::{Command, Core, Load, Queue, Role};
use crate::Error;
use crate::sync::Arc;

impl<C: Load> Core<C> {
    /// Queues a command that resets compute; `false` if the device has no queue for it.
    ///
    /// A launch that is sent before it is executed would never be answered (Spec: §10.3), so none
    /// is sent until it is answered, whoever still waits for that.
    pub(crate) fn post_reset(&mut self, command: Command<C>) -> bool {
        // One after another: the answer to the last says that none is to come.
        let queue = self.queue_of_resets().unwrap_or_else(|| self.free_high());
        let is_posted = self.post_for(queue, Role::Reset, command);
        self.resets += usize::from(is_posted);
        is_posted
    }

    fn queue_of_resets(&self) -> Option<usize> {
        let is_to_be_sent =
            |queue: &Queue<C>| queue.high.iter().any(|extra| extra.role == Role::Reset);
        let sent = self.flights.iter().find(|sent| sent.role == Role::Reset);
        sent.map(|sent| sent.queue as usize).or_else(|| self.queues.iter().position(is_to_be_sent))
    }

    /// Takes the answer to a reset that was sent as number `sequence`. One of another kind ends
    /// everything.
    pub(super) fn reset_answered(&mut self, sequence: u64, answer: &Body, now: Duration) {
        let Body::CmReset { status } = answer else { return };
        if *status == CmResetStatus::Success {
            self.compute_up(sequence, now);
        }
        self.let_launches_go();
    }

    /// A reset of compute has ended.
    pub(super) fn let_launches_go(&mut self) {
        self.resets -= 1;
        while self.resets == 0
            && let Some((stream, priority)) = self.contexts.starved.pop_front()
        {
            if let Some(lane) = self.streams.get(stream) {
                self.queues[lane.queue].ready.push_back(stream, priority);
            }
        }
    }

    /// The compute side does not answer any more, or its firmware has trapped: launches in flight
    /// will never end, so their operations do, and their memory stays with the device until it is
    /// reset. Spec: §10.4
    pub(crate) fn compute_fails(&mut self, why: &Arc<str>, now: Duration) -> Error {
        let has_launches =
            self.flights.iter().any(|sent| sent.role == Role::Normal && sent.load.is_launch());
        let scope = if has_launches { ResetScope::Function } else { ResetScope::Compute };
        let error = self.health.compute_down(scope, why);
        self.lose_launches(u64::MAX, &error, now);
        error
    }

    /// Compute was reset by the command sent as number `mark`. Launches before it are lost:
    /// firmware does not answer a kernel that was running (Spec: §10.3), and one that was waiting
    /// is answered some time or other. An abort that was not answered has nothing to end any more.
    fn compute_up(&mut self, mark: u64, now: Duration) {
        self.health.compute_up();
        self.lose_launches(mark, &Error::Aborted { op: "launch" }, now);
        let mut aborted = Vec::new();
        for sent in self.flights.iter_mut() {
            if sent.role == Role::Abort && sent.sequence <= mark {
                sent.role = Role::Lost;
                aborted.push(sent.queue as usize);
            }
        }
        for queue in aborted {
            self.lost += 1;
            self.orphans -= 1;
            self.queues[queue].is_high_busy = false;
            self.lose_abort(queue, now);
        }
    }

    /// Counts a context in place of one that went with a lost launch; `false` if none is to be
    /// replaced.
    pub(crate) fn replace_context(&mut self) -> bool {
        let contexts = &mut self.contexts;
        contexts.lost = contexts.lost.min(contexts.limit.saturating_sub(contexts.made));
        let is_one_lost = contexts.lost != 0;
        contexts.lost -= usize::from(is_one_lost);
        contexts.made += usize::from(is_one_lost);
        is_one_lost
    }

    /// A context could not be replaced.
    pub(crate) fn context_lost(&mut self) {
        self.contexts.lost += 1;
    }

    /// Ends the operations of launches up to a sequence number, as if they had been answered.
    fn lose_launches(&mut self, mark: u64, error: &Error, now: Duration) {
        let mut lost = Vec::new();
        for sent in self.flights.iter_mut() {
            if sent.role == Role::Normal && sent.load.is_launch() && sent.sequence <= mark {
                sent.role = Role::Lost;
                let contexts = usize::from(sent.load.has_context());
                lost.push((sent.queue as usize, sent.op.take(), sent.after, contexts));
            }
        }
        for (queue, op, after, contexts) in lost {
            self.lost += 1;
            self.keep_barrier(op, queue, after);
            // Another takes the place of its context, once launches can be executed.
            self.contexts.made -= contexts;
            self.contexts.lost += contexts;
            self.queues[queue].in_flight -= 1;
            self.drop_part(op, error);
            if let Some(slot) = op {
                self.end_if_done(slot, now);
                self.rouse();
            }
            // It may have begun.
            self.departed(queue, Departure::Begun { after }, now);
        }
        self.tell_if_quiet();
    }

    /// Takes what was kept from a device that could still reach it. To be called after a reset.
    pub(crate) fn end_quarantine(&mut self) -> Vec<C> {
        std::mem::take(&mut self.quarantine)
    }
}
