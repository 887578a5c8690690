//! Who waits for what, and what is left to attend to.

use std::sync::Arc;
use std::time::Duration;

use super::super::Activity;
use super::{
    Attention, Core, Entry, Load, OnReached, OpKey, Parker, Queue, Reached, Sent, StreamKey, Work,
};
use crate::Error;
use crate::link::EventState;

impl<C: Load> Core<C> {
    /// Counts what is under way. Knows nothing of memory.
    pub(crate) fn activity(&self) -> Activity {
        let streams = self.streams.values().filter(|lane| lane.has_handle).count();
        let in_flight: u64 = self.queues.iter().map(|queue| u64::from(queue.in_flight)).sum();
        let launched = |sent: &Sent<C>| match sent.load.work() {
            Work::Launch(shires) => shires,
            _ => 0,
        };
        Activity {
            streams: streams as u64,
            accepted: self.next_op - 1,
            pending: self.ops.len() as u64,
            in_flight,
            launched_shires: self.flights.iter().map(launched).fold(0, |all, its| all | its),
            ..self.traffic.activity()
        }
    }

    /// Returns `true` if all operations of a stream have ended; without one, if the link is quiet.
    pub(crate) fn is_idle(&self, stream: Option<StreamKey>) -> bool {
        let Some(stream) = stream else { return self.is_quiet() };
        self.streams.get(stream.0).is_none_or(|lane| lane.ops == 0)
    }

    /// Has `parker` unparked as soon as that [is so](Self::is_idle) for once, unless it is.
    pub(crate) fn when_idle(&mut self, stream: Option<StreamKey>, parker: &Arc<Parker>) {
        if !self.is_idle(stream)
            && let Some(waiters) = self.waiters_of(stream)
        {
            waiters.push(Arc::clone(parker));
        }
    }

    /// Returns `true` if a parker still waits for that. Others may submit meanwhile, so that it is
    /// not idle any more when the thread looks.
    pub(crate) fn waits(&mut self, stream: Option<StreamKey>, parker: &Arc<Parker>) -> bool {
        let waiters = self.waiters_of(stream);
        waiters.is_some_and(|waiters| waiters.iter().any(|other| Arc::ptr_eq(other, parker)))
    }

    /// Forgets a parker.
    pub(crate) fn leave(&mut self, stream: Option<StreamKey>, parker: &Arc<Parker>) {
        if let Some(waiters) = self.waiters_of(stream) {
            waiters.retain(|other| !Arc::ptr_eq(other, parker));
        }
    }

    fn waiters_of(&mut self, stream: Option<StreamKey>) -> Option<&mut Vec<Arc<Parker>>> {
        match stream {
            Some(stream) => self.streams.get_mut(stream.0).map(|lane| &mut lane.waiters),
            None => Some(&mut self.waiters),
        }
    }

    /// Returns how far an operation is; `None` if it has ended.
    pub(crate) fn state(&mut self, key: OpKey) -> Option<EventState> {
        self.find(key).map(|op| match (op.is_executed, op.sent) {
            (true, _) => EventState::Executed,
            (false, Some(_)) => EventState::Ready,
            (false, None) => EventState::Queued,
        })
    }

    /// Returns `true` while only room keeps a closed operation from being sent.
    pub(crate) fn lacks_room(&mut self, key: OpKey) -> bool {
        // Launches are held then, which is no matter of room.
        if self.resets != 0 {
            return false;
        }
        let Some(op) = self.find(key) else { return false };
        if op.pending.is_empty() {
            return false;
        }
        let stream = op.stream;
        let Some(lane) = self.streams.get(stream) else { return false };
        for entry in &lane.entries {
            match entry {
                Entry::Wait(_) => return false,
                Entry::Op(slot) if *slot == key.slot => return true,
                Entry::Op(slot) => {
                    if self.ops.get(*slot).is_none_or(|op| op.is_open) {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Returns `true` if commands of an open operation would be executed at once: they wait neither
    /// on the host nor behind a barrier, for a kernel perhaps that takes as long as it likes.
    pub(crate) fn is_unblocked(&mut self, key: OpKey) -> bool {
        let Some(op) = self.find(key) else { return true };
        let (stream, has_started, is_barred) = (op.stream, op.has_started, op.is_barred);
        let Some(lane) = self.streams.get(stream) else { return true };
        let is_first = matches!(lane.entries.front(), Some(Entry::Op(slot)) if *slot == key.slot);
        let has_nothing_before = !lane.is_barred() && lane.outstanding == 0;
        is_first && if has_started { !is_barred } else { has_nothing_before }
    }

    /// Has `parker` unparked when the operation is sent, may have become unblocked, or has ended.
    pub(crate) fn tell_submitter(&mut self, key: OpKey, parker: &Arc<Parker>) {
        if let Some(op) = self.find(key) {
            op.submitter = Some(Arc::clone(parker));
        }
    }

    /// Returns why an operation has failed although it is still open.
    pub(crate) fn failure(&mut self, key: OpKey) -> Option<Error> {
        match self.find(key) {
            Some(op) => op.error.clone(),
            None => Some(Error::all_closed()),
        }
    }

    /// Returns when an operation's stream last made progress.
    pub(crate) fn progress(&mut self, key: OpKey) -> Duration {
        let stream = self.find(key).map(|op| op.stream);
        let lane = stream.and_then(|stream| self.streams.get(stream));
        lane.map_or(Duration::ZERO, |lane| lane.progress)
    }

    /// Something of an operation goes on, although the device does not see it yet.
    pub(crate) fn note_progress(&mut self, key: OpKey, now: Duration) {
        let stream = self.find(key).map(|op| op.stream);
        if let Some(lane) = stream.and_then(|stream| self.streams.get_mut(stream)) {
            lane.progress = now;
        }
    }

    /// Registers a callback or future, which waits for nothing by itself.
    pub(crate) fn want(&mut self, key: OpKey) {
        let Some(op) = self.find(key) else { return };
        op.interest += 1;
        if op.interest == 1 {
            self.interest += 1;
        }
        self.rouse();
    }

    /// Takes one back.
    pub(crate) fn unwant(&mut self, key: OpKey) {
        let Some(op) = self.find(key) else { return };
        op.interest = op.interest.saturating_sub(1);
        if op.interest == 0 {
            self.interest -= 1;
        }
    }

    /// Registers a callback for the moment when the device has been sent something of an operation,
    /// or when that is [executed](EventState::Executed), or for its end if that comes first. Handed
    /// back if it has ended.
    pub(crate) fn on_reached(
        &mut self,
        key: OpKey,
        state: EventState,
        callback: OnReached,
    ) -> Result<(), OnReached> {
        let Some(op) = self.find(key) else { return Err(callback) };
        let (list, is_reached) = match state {
            EventState::Executed => (&mut op.on_executed, op.is_executed),
            _ => (&mut op.on_sent, op.sent.is_some()),
        };
        list.push(callback);
        self.want(key);
        if is_reached {
            self.reach(key.slot, state);
        }
        Ok(())
    }

    /// An operation is sent or executed: it tells whom it was to tell.
    pub(super) fn reach(&mut self, slot: u32, state: EventState) {
        let Some(op) = self.ops.get_mut(slot) else { return };
        let list = match state {
            EventState::Executed => &mut op.on_executed,
            _ => &mut op.on_sent,
        };
        let (operation, told) = (Arc::clone(&op.operation), std::mem::take(list));
        for _ in &told {
            self.unwant(operation.key);
        }
        self.output.reached.push(Reached { operation, state, told });
    }

    /// Returns what the background thread has to attend to.
    pub(crate) fn attention(&self) -> Attention {
        if self.health.refusal().is_some() {
            Attention::Nothing
        } else if self.interest != 0 || self.held != 0 || self.has_backlog() {
            Attention::Wanted
        } else if self.in_flight() != 0 {
            Attention::Flights
        } else {
            Attention::Nothing
        }
    }

    /// Returns `true` if something waits on the host.
    pub(crate) fn has_backlog(&self) -> bool {
        self.unsent != 0 || self.has_extras()
    }

    /// Returns `true` if a stream has nothing that is not sent.
    pub(crate) fn is_clear(&self, stream: StreamKey) -> bool {
        self.streams.get(stream.0).is_some_and(|lane| lane.entries.is_empty())
    }

    pub(super) fn has_extras(&self) -> bool {
        self.queues.iter().any(Queue::has_extras)
    }

    /// The background thread goes to sleep; `false` if there is something to attend to.
    pub(crate) fn sleep(&mut self) -> bool {
        self.is_background_asleep = self.attention() == Attention::Nothing;
        self.is_background_asleep
    }

    pub(super) fn rouse(&mut self) {
        if std::mem::take(&mut self.is_background_asleep) {
            self.output.rouse = true;
        }
    }

    /// Returns the commands of an operation that the device has.
    pub(crate) fn in_flight_of(&self, key: OpKey) -> impl Iterator<Item = &C> {
        let is_there = self.ops.get(key.slot).is_some_and(|op| op.operation.key.id == key.id);
        let is_its = move |sent: &&Sent<C>| is_there && sent.op == Some(key.slot);
        self.flights.iter().filter(is_its).map(|sent| &sent.load)
    }

    /// Returns the number of commands in flight that will be answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.lost
    }
}
