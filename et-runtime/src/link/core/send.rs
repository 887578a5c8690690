//! Which command goes next.

use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_hal::QueueId;

use super::abort::Departure;
use super::{Command, Core, Entry, Extra, Load, Pushed, Role, Sent, Sink};
use crate::link::EventState;

/// Why no more is sent to a queue now.
enum Stop {
    NoRoom,
    /// Launches are held until a reset of compute is answered.
    Reset,
    Lost,
}

impl<C: Load> Core<C> {
    /// Sends what can be sent.
    ///
    /// Of each queue first what the runtime itself has for it, then one command of each stream in
    /// turn.
    pub(crate) fn pump(&mut self, now: Duration, sink: &mut impl Sink<C>) {
        for queue in 0..self.queues.len() {
            if self.queues[queue].is_empty() {
                continue;
            }
            if self.health.refusal().is_some() {
                return;
            }
            if self.pump_high(queue, now, sink).is_ok() && !self.is_paused(queue) {
                // A queue without room is looked at again when something has happened.
                let _ = self.pump_queue(queue, now, sink);
            }
        }
    }

    fn pump_high(
        &mut self,
        queue: usize,
        now: Duration,
        sink: &mut impl Sink<C>,
    ) -> Result<(), Stop> {
        self.attend_to_abort(queue, now);
        if self.queues[queue].is_high_busy {
            return Ok(());
        }
        let Some(Extra { op, role, command }) = self.queues[queue].high.pop_front() else {
            return Ok(());
        };
        if role == Role::Abort && !self.has_meant(queue) {
            // As if it had been answered: an earlier one may have left something to be sent again.
            self.departed(queue, Departure::AbortDone, now);
            return Ok(());
        }
        let sent = self.sent(op, queue, role, command.flags, command.load);
        match self.push(sent, now, sink) {
            Ok(()) => Ok(()),
            Err((Stop::Lost, _)) => Err(Stop::Lost),
            Err((_, sent)) => {
                if let Some(Sent { op, role, flags, load, .. }) = sent {
                    let command = Command { load, flags, is_behind: false };
                    self.queues[queue].high.push_front(Extra { op, role, command });
                }
                // The normal queue may have room all the same.
                Ok(())
            }
        }
    }

    fn pump_queue(
        &mut self,
        queue: usize,
        now: Duration,
        sink: &mut impl Sink<C>,
    ) -> Result<(), Stop> {
        // They keep no order, and are not to wait behind kernels.
        while let Some(Extra { op, role, command }) = self.queues[queue].extra.pop_front() {
            let mut sent = self.sent(op, queue, role, command.flags, command.load);
            (sent.after, sent.is_extra) = (0, true);
            if let Err((stop, sent)) = self.push(sent, now, sink) {
                if let Some(Sent { op, role, flags, load, .. }) = sent {
                    let command = Command { load, flags, is_behind: false };
                    self.queues[queue].extra.push_front(Extra { op, role, command });
                }
                return Err(stop);
            }
        }
        self.send_again(queue, now, sink)?;
        while let Some((stream, priority)) = self.queues[queue].ready.pop_front() {
            if let Err(stop) = self.send_next(queue, stream, now, sink) {
                self.queues[queue].ready.push_front(stream, priority);
                return Err(stop);
            }
            self.queues[queue].ready.has_gone(priority);
        }
        Ok(())
    }

    /// Sends what an abort has ended.
    fn send_again(
        &mut self,
        queue: usize,
        now: Duration,
        sink: &mut impl Sink<C>,
    ) -> Result<(), Stop> {
        while let Some(next) = self.queues[queue].again.first() {
            if self.resets != 0 && next.load.is_launch() {
                return Err(Stop::Reset);
            }
            let sent = self.queues[queue].again.remove(0);
            if let Err((stop, sent)) = self.push(sent, now, sink) {
                self.queues[queue].again.splice(..0, sent);
                return Err(stop);
            }
        }
        Ok(())
    }

    /// Sends the next command of a listed stream.
    fn send_next(
        &mut self,
        queue: usize,
        stream: u32,
        now: Duration,
        sink: &mut impl Sink<C>,
    ) -> Result<(), Stop> {
        let Some(lane) = self.streams.get_mut(stream) else { return Ok(()) };
        let slot = match lane.entries.front() {
            Some(Entry::Op(slot)) => *slot,
            _ => u32::MAX,
        };
        let next = self.ops.get_mut(slot).and_then(|op| {
            let command = op.pending.pop_front()?;
            Some((command, op))
        });
        let Some((mut command, op)) = next else {
            // It has failed meanwhile.
            lane.is_listed = false;
            let granted = lane.granted.take();
            granted.into_iter().for_each(|context| self.context_back(context));
            self.advance(stream);
            self.forget_if_over(stream);
            return Ok(());
        };
        if self.resets != 0 && command.load.is_launch() {
            op.pending.push_front(command);
            // Still listed, as those that wait for a context.
            self.contexts.starved.push_back(stream, lane.priority);
            return Ok(());
        }
        let wants_context = command.load.wants_context();
        if !wants_context && let Some(unused) = lane.granted.take() {
            // The launch that it was meant for has failed. The others of that operation come first.
            op.pending.push_front(command);
            self.context_back(unused);
            return self.send_next(queue, stream, now, sink);
        }
        if wants_context {
            // Free ones are there only while no stream waits for one.
            let Some(context) = lane.granted.take().or_else(|| self.contexts.free.pop()) else {
                op.pending.push_front(command);
                // Still listed, at another place.
                self.contexts.starved.push_back(stream, lane.priority);
                return Ok(());
            };
            command.load.give_context(context);
        }
        let waits = if op.has_started {
            command.is_behind && op.active != 0
        } else {
            lane.is_barred() || lane.outstanding != 0
        };
        let mut flags = command.flags;
        if waits {
            flags = flags.with(CommandFlags::BARRIER);
        }
        let Command { load, flags: plain, is_behind } = command;
        op.active += 1;
        lane.outstanding += 1;
        self.unsent -= 1;
        let sent = self.sent(Some(slot), queue, Role::Normal, flags, load);
        let sequence = sent.sequence;
        if let Err((stop, sent)) = self.push(sent, now, sink) {
            let Some(Sent { mut load, .. }) = sent else { return Err(stop) };
            // What it brought itself it keeps.
            let context = if wants_context { load.take_context() } else { None };
            self.unsent += 1;
            if let Some(op) = self.ops.get_mut(slot) {
                op.active -= 1;
                op.pending.push_front(Command { load, flags: plain, is_behind });
            }
            if let Some(lane) = self.streams.get_mut(stream) {
                lane.outstanding -= 1;
                lane.granted = context;
            }
            return Err(stop);
        }
        if let Some(op) = self.ops.get_mut(slot) {
            op.is_barred |= !op.has_started && waits;
            if waits {
                op.barrier = sequence;
            }
            op.has_started = true;
            op.sent.get_or_insert(now);
            if !op.on_sent.is_empty() {
                self.reach(slot, EventState::Ready);
            }
        }
        if let Some(lane) = self.streams.get_mut(stream) {
            lane.barred_by.clear();
            lane.keeps_barrier = false;
            lane.progress = now;
            lane.is_listed = false;
        }
        self.advance(stream);
        Ok(())
    }

    fn sent(
        &mut self,
        op: Option<u32>,
        queue: usize,
        role: Role,
        flags: CommandFlags,
        load: C,
    ) -> Sent<C> {
        self.sequence += 1;
        let after = if flags.contains(CommandFlags::BARRIER) {
            self.sequence
        } else {
            op.and_then(|op| self.ops.get(op)).map_or(0, |op| op.barrier)
        };
        let queue = u32::try_from(queue).unwrap_or(u32::MAX);
        Sent { op, queue, role, sequence: self.sequence, after, is_extra: false, flags, load }
    }

    /// Returns `true` if there is a tag for a command of a normal queue.
    fn has_tag(&self) -> bool {
        let free = self.flights.free();
        let idle = || self.queues.iter().take(self.high_queues).filter(|queue| !queue.is_high_busy);
        free > self.high_queues || free > idle().count()
    }

    /// Gives a message to the sink and puts it in flight.
    fn push(
        &mut self,
        mut sent: Sent<C>,
        now: Duration,
        sink: &mut impl Sink<C>,
    ) -> Result<(), (Stop, Option<Sent<C>>)> {
        let is_normal = matches!(sent.role, Role::Normal | Role::Lost);
        let Some(tag) = self.flights.next_tag().filter(|_| !is_normal || self.has_tag()) else {
            return Err((Stop::NoRoom, Some(sent)));
        };
        let number = u8::try_from(sent.queue).unwrap_or(u8::MAX);
        let id = match sent.role {
            Role::Normal | Role::Lost => QueueId::Submission(number),
            Role::High | Role::Reset | Role::Abort => QueueId::HighPriority(number),
        };
        let pushed = sink.push(id, tag, sent.flags, &mut sent.load);
        if let Pushed::Full = pushed {
            return Err((Stop::NoRoom, Some(sent)));
        }
        let queue = &mut self.queues[sent.queue as usize];
        match sent.role {
            Role::Normal | Role::Lost => queue.in_flight += 1,
            Role::High | Role::Reset | Role::Abort => queue.is_high_busy = true,
        }
        self.orphans += usize::from(sent.op.is_none());
        if self.in_flight() == 0 {
            self.progress = now;
        }
        if self.flights.insert(sent).is_err() {
            unreachable!("there was a tag");
        }
        match pushed {
            // It may be in the queue or not; it counts as in flight and ends with the rest.
            Pushed::Broken(error) => {
                self.lose(&error, now);
                Err((Stop::Lost, None))
            }
            _ => {
                self.output.kick = true;
                self.rouse();
                Ok(())
            }
        }
    }

    /// Queues one of the runtime's own commands, which belongs to no stream.
    pub(crate) fn post(&mut self, queue: usize, command: Command<C>) {
        if let Some(error) = self.health.refusal().cloned() {
            self.output.finished.push((command.load, Some(error)));
            return;
        }
        self.queues[queue].extra.push_back(Extra { op: None, role: Role::Normal, command });
        self.rouse();
    }

    /// Returns the high-priority queue in which a command for none of them is answered first.
    pub(crate) fn free_high(&self) -> usize {
        let is_free =
            |&queue: &usize| !self.queues[queue].is_high_busy && self.queues[queue].high.is_empty();
        (0..self.high_queues).find(is_free).unwrap_or(0)
    }

    /// Queues a high-priority command; `false` if the device has no such queue.
    pub(crate) fn post_high(&mut self, queue: usize, command: Command<C>) -> bool {
        self.post_for(queue, Role::High, command)
    }

    pub(super) fn post_for(&mut self, queue: usize, role: Role, command: Command<C>) -> bool {
        if queue >= self.high_queues || self.health.refusal().is_some() {
            return false;
        }
        self.queues[queue].high.push_back(Extra { op: None, role, command });
        self.rouse();
        true
    }

    /// Returns the queue in which a command without an order is answered first: one without
    /// kernels and barriers if there is one, or one that is being aborted, which loses its own; of
    /// those the one with the fewest commands.
    pub(crate) fn quietest(&self) -> usize {
        let load = |queue: &usize| {
            let rank = match (self.is_paused(*queue), self.may_block(*queue)) {
                (true, _) => 1,
                (false, is_blocked) => 2 * u8::from(is_blocked),
            };
            (rank, self.queues[*queue].in_flight)
        };
        (0..self.queues.len()).min_by_key(load).unwrap_or(0)
    }

    /// Returns `true` if a queue has a kernel or a barrier, behind which a command may wait as long
    /// as it likes.
    fn may_block(&self, queue: usize) -> bool {
        self.flights.iter().any(|sent| {
            sent.queue as usize == queue
                && sent.role == Role::Normal
                && (sent.load.is_launch() || sent.flags.contains(CommandFlags::BARRIER))
        })
    }

    /// Returns `true` if another context would let launches go on.
    pub(crate) fn wants_more_contexts(&self) -> bool {
        self.contexts.free.is_empty() && self.contexts.made < self.contexts.limit
    }

    /// Returns the number of contexts there are, in use or not.
    pub(crate) fn contexts(&self) -> usize {
        self.contexts.made
    }

    /// A context is being made.
    pub(crate) fn context_made(&mut self) {
        self.contexts.made += 1;
    }

    /// A context will not come back.
    pub(crate) fn context_gone(&mut self) {
        self.contexts.made -= 1;
    }

    /// A context is ready; the stream that has waited longest goes on with it.
    pub(crate) fn context_back(&mut self, context: C::Context) {
        while self.resets == 0
            && let Some((stream, priority)) = self.contexts.starved.pop_front()
        {
            self.contexts.starved.has_gone(priority);
            if let Some(lane) = self.streams.get_mut(stream) {
                lane.granted = Some(context);
                self.queues[lane.queue].ready.push_front(stream, priority);
                return;
            }
        }
        self.contexts.free.push(context);
    }

    /// Finds out whether the firmware is still there, if it has not answered anything for `limit`.
    /// Returns `true` if it is not.
    pub(crate) fn watch(&mut self, limit: Duration, now: Duration) -> bool {
        if self.in_flight() == 0 || now.saturating_sub(self.progress) < limit {
            self.pinged = None;
            return false;
        }
        if let Some(pinged) = self.pinged {
            return now.saturating_sub(pinged) >= limit;
        }
        self.pinged = Some(now);
        // The high-priority queue answers always, although only that it does not know the command.
        let is_blocked =
            |queue: usize| !self.has_tag() || self.is_paused(queue) || self.may_block(queue);
        let command = Command::new(C::ping());
        match (0..self.queues.len()).find(|&queue| !is_blocked(queue)) {
            Some(queue) => self.post(queue, command),
            None => {
                self.post_high(self.free_high(), command);
            }
        }
        false
    }
}
