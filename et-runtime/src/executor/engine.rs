//! The scheduler: which runs there are, which of their tasks are ready, and what follows from the
//! end of one.
//!
//! A state machine without a thread of its own; whoever holds it may [`turn`](Engine::turn) it. It
//! knows nothing of workers: it offers what is ready to [`Place`]s and takes what they have done.
//! Tasks are released by counters that only the holder touches.

mod behind;
mod conditions;
mod exec;
mod flows;
mod joins;
mod ready;
mod records;
mod started;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::behind::Behind;
use self::behind::Flows;
use self::exec::Exec;
use self::ready::Queues;
use self::started::Started;
use super::Outcome;
use super::ids::RunId;
use super::outcome::Cut;
use super::place::{Done, Place};
use super::run::{RunShared, Runs};
use super::words::Words;
use crate::clock::Clock;
use crate::handshake::{Continuations, Patience};

/// Turns that share one look at the clock while tasks are short.
const TURNS: u32 = 32;

/// A run that is to start.
pub(super) struct Launch {
    run: Arc<RunShared>,
    /// What its tasks wait for in earlier runs of its flow.
    behind: Vec<Behind>,
    /// Its place among all launches.
    order: u64,
}

impl Launch {
    pub(super) fn new(run: &Arc<RunShared>, behind: Vec<Behind>) -> Self {
        Self { run: Arc::clone(run), behind, order: 0 }
    }
}

/// What is asked of whoever schedules.
pub(super) enum Request {
    Launch(Launch),
    Cancel(RunId),
    CancelTask(RunId, u32),
    CancelAll,
}

/// What there is beside the first place.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) places: Vec<Box<dyn Place>>,
    /// If there is device memory.
    pub(super) words: Option<Box<dyn Words>>,
}

/// Its first place has a type of its own, because most tasks of most graphs go there and because
/// that says more of itself.
pub(super) struct Engine<F> {
    pub(super) first: F,
    /// How long a scheduler looks before it sleeps.
    pub(super) patience: Patience,
    others: Vec<Box<dyn Place>>,
    /// Where there is device memory.
    words: Option<Box<dyn Words>>,
    ready: Queues,
    /// Ready tasks for which there was no room in the first place.
    full_at: usize,
    started: Started,
    table: Arc<Runs>,
    /// Runs behind others whose buffers they use.
    queue: VecDeque<Launch>,
    flows: Flows,
    /// How often something was launched.
    launches: u64,
    /// Tasks of those that are cancelled already.
    early: Vec<(RunId, u32)>,
    done: Done,
    /// Runs that are recorded.
    recorded: usize,
    /// Turns since these were last told the time.
    unmarked: u32,
    /// Runs that have not ended and have a deadline.
    deadlines: usize,
    callbacks: Vec<Continuations<Arc<Outcome>>>,
    /// What is launched is cancelled.
    is_closed: bool,
    clock: Arc<dyn Clock>,
}

impl<F: Place> Engine<F> {
    pub(super) fn new(
        first: F,
        Beside { places, words }: Beside,
        table: Arc<Runs>,
        clock: Arc<dyn Clock>,
        patience: Patience,
    ) -> Self {
        Self {
            first,
            patience,
            ready: Queues::new(1 + places.len()),
            others: places,
            words,
            full_at: 0,
            started: Started::default(),
            table,
            queue: VecDeque::new(),
            flows: Flows::default(),
            launches: 0,
            early: Vec::new(),
            done: Done::default(),
            recorded: 0,
            unmarked: 0,
            deadlines: 0,
            callbacks: Vec::new(),
            is_closed: false,
            clock,
        }
    }

    /// Returns `true` if tasks are ready that no worker of the first place has got.
    pub(super) fn has_backlog(&self) -> bool {
        self.ready.has_backlog()
    }

    pub(super) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    pub(super) fn take_callbacks(&mut self) -> Vec<Continuations<Arc<Outcome>>> {
        std::mem::take(&mut self.callbacks)
    }

    /// Returns `true` if a run stands behind others.
    pub(super) fn is_queued(&self, run: RunId) -> bool {
        self.queue.iter().any(|queued| queued.run.number == run)
    }

    /// How soon to look at what does not notify.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let places = self.others.iter().filter_map(|place| place.next_look());
        places.chain(self.words.as_ref().and_then(|words| words.next_look())).min()
    }

    /// Returns `true` if a place other than the first has something, or words are on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.others.iter().any(|place| place.is_busy())
            || self.words.as_ref().is_some_and(|words| words.is_busy())
    }

    /// The time left until the next deadline of a run; one that was cancelled may have it ahead.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        if self.deadlines == 0 {
            return None;
        }
        let started = self.started.iter().filter(|exec| !exec.is_late());
        let queued = self.queue.iter().map(|queued| &queued.run);
        let deadlines = started.map(|exec| &exec.run).chain(queued).filter_map(|run| run.deadline);
        deadlines.map(|deadline| deadline.left(&*self.clock)).min()
    }

    /// Does what is asked.
    pub(super) fn ask(&mut self, requests: Vec<Request>) {
        for request in requests {
            self.handle(request);
        }
    }

    /// Does all there is to do now. Returns `true` if there was anything.
    #[inline]
    pub(super) fn turn(&mut self) -> bool {
        let mut progress = self.first.poll(&mut self.done);
        for place in &mut self.others {
            progress |= place.poll(&mut self.done);
        }
        if !self.done.is_empty() {
            self.take_done();
        }
        loop {
            if self.ready.opened() != 0 || self.words.as_ref().is_some_and(|words| words.is_busy())
            {
                progress |= self.look_at_conditions();
            }
            // A look that finds nothing is short, so that the next one comes soon: what found no
            // room finds none now.
            if progress || self.ready.of(0).len() != self.full_at {
                progress |= self.offer_to_first();
            }
            for at in 0..self.others.len() {
                progress |= self.offer_to(at + 1);
            }
            if !self.tell_later_runs() {
                break;
            }
            progress = true;
        }
        if self.recorded != 0 {
            self.unmarked += 1;
            // Reading the clock takes as long as a quarter of a short task, so records wait while
            // such come back.
            if !progress || self.unmarked >= TURNS || !self.first.is_brisk() {
                self.mark();
            }
        }
        progress
    }

    fn handle(&mut self, request: Request) {
        match request {
            Request::Launch(launch) => {
                self.deadlines += usize::from(launch.run.deadline.is_some());
                self.launches += 1;
                let launch = Launch { order: self.launches, ..launch };
                if self.is_closed {
                    let slot = self.insert(launch.run, launch.order);
                    self.cut(slot, Cut::Cancelled);
                } else {
                    self.launch(launch);
                }
            }
            Request::Cancel(number) => {
                if let Some(at) = self.queue.iter().position(|queued| queued.run.number == number) {
                    if let Some(Launch { run, order, .. }) = self.queue.remove(at) {
                        let slot = self.insert(run, order);
                        self.cut(slot, Cut::Cancelled);
                    }
                } else if let Some(slot) = self.started.slot_of(number) {
                    self.cut(slot, Cut::Cancelled);
                }
            }
            Request::CancelTask(number, task) => {
                if let Some(slot) = self.started.slot_of(number) {
                    self.cancel_task(slot, task);
                    self.conclude_if_done(slot);
                } else if self.is_queued(number) {
                    self.early.push((number, task));
                }
            }
            Request::CancelAll => self.cut_all(Cut::Cancelled),
        }
    }

    /// Starts a run, or puts it behind those whose buffers it uses.
    fn launch(&mut self, launch: Launch) {
        let run = &launch.run;
        let queued = self.queue.iter().filter(|queued| !run.follows_by_task(&queued.run));
        let queued = queued.map(|queued| (&queued.run, queued.order));
        let started = self.started.before(run).map(|exec| (&exec.run, exec.order));
        let is_behind = |(other, order): (&Arc<RunShared>, u64)| {
            // Later ones have started if they are of its flow, and wait for it.
            order < launch.order && other.graph.footprint().conflicts(run.graph.footprint())
        };
        if started.chain(queued).any(is_behind) {
            self.queue.push_back(launch);
        } else {
            self.start(launch);
        }
    }

    fn insert(&mut self, run: Arc<RunShared>, order: u64) -> u32 {
        let exec = Exec::new(run, order);
        let run = Arc::clone(&exec.run);
        self.recorded += usize::from(exec.recorder.is_some());
        let slot = self.started.insert(exec);
        self.table.set(slot, Some(run));
        slot
    }

    fn start(&mut self, Launch { run, behind, order }: Launch) {
        let number = run.number;
        let slot = self.insert(run, order);
        if !self.hold_back(slot, behind) {
            return;
        }
        let Self { started, ready, .. } = self;
        if let Some(exec) = started.get_mut(slot) {
            exec.start(|run, task| ready.push(run, slot, task));
        }
        for at in (0..self.early.len()).rev() {
            if self.early[at].0 == number {
                let (_, task) = self.early.swap_remove(at);
                self.cancel_task(slot, task);
            }
        }
        self.conclude_if_done(slot);
    }

    fn take_done(&mut self) {
        let Self { done, started, ready, .. } = self;
        let mut over = Vec::new();
        for task in done.complete.drain(..) {
            let Some(exec) = started.get_run(task.slot, task.run) else { continue };
            exec.complete(task.unit, |run, next| ready.push(run, task.slot, next));
            if exec.progress.is_over() {
                over.push(task.slot);
            }
        }
        for ending in done.ended.drain(..) {
            let slot = ending.task.slot;
            let Some(exec) = started.get_run(slot, ending.task.run) else { continue };
            exec.end(ending, |run, next| ready.push(run, slot, next));
            if exec.progress.is_over() {
                over.push(slot);
            }
        }
        for task in done.started.drain(..) {
            if let Some(exec) = started.get_run(task.slot, task.run) {
                exec.begin(task.unit);
            }
        }
        for (task, worker) in done.moved.drain(..) {
            if let Some(exec) = started.get_run(task.slot, task.run) {
                exec.move_to(task.unit, worker);
            }
        }
        self.conclude(&over);
    }

    /// Offers ready tasks to the first place.
    #[inline]
    fn offer_to_first(&mut self) -> bool {
        let mut progress = false;
        loop {
            let Self { first, started, ready, .. } = self;
            let (waiting, failed) = ready.of(0).offer_to(first, started.slots(), &mut progress);
            self.conclude(&failed);
            self.full_at = self.ready.of(0).len();
            if !self.first.settle(waiting) {
                return progress;
            }
        }
    }

    fn offer_to(&mut self, at: usize) -> bool {
        let mut progress = false;
        let Self { others, started, ready, .. } = self;
        let place = &mut *others[at - 1];
        let (waiting, failed) = ready.of(at).offer_to(place, started.slots(), &mut progress);
        place.settle(waiting);
        self.conclude(&failed);
        progress
    }

    /// Ends the runs in these slots that are over.
    #[inline]
    fn conclude(&mut self, slots: &[u32]) {
        for &slot in slots {
            self.conclude_if_done(slot);
        }
    }

    fn cancel_task(&mut self, slot: u32, task: u32) {
        if let Some(exec) = self.started.get_mut(slot) {
            exec.cancel_task(task);
        }
    }

    /// Ends a run before its time: what has not started is cancelled.
    fn cut(&mut self, slot: u32, cut: Cut) {
        let Some(exec) = self.started.get_mut(slot) else { return };
        if !exec.cut(cut) {
            return;
        }
        let number = exec.run.number;
        self.first.abort(number, cut);
        for place in &mut self.others {
            place.abort(number, cut);
        }
        self.conclude_if_done(slot);
    }

    /// Ends all runs before their time.
    pub(super) fn cut_all(&mut self, cut: Cut) {
        for Launch { run, order, .. } in std::mem::take(&mut self.queue) {
            self.insert(run, order);
        }
        for slot in 0..self.started.len() {
            self.cut(slot, cut);
        }
    }

    /// Ends runs whose deadline has passed.
    pub(super) fn expire(&mut self) {
        let clock = Arc::clone(&self.clock);
        let is_late = |run: &RunShared| run.deadline.is_some_and(|d| d.has_passed(&*clock));
        while let Some(at) = self.queue.iter().position(|queued| is_late(&queued.run)) {
            if let Some(Launch { run, order, .. }) = self.queue.remove(at) {
                self.insert(run, order);
            }
        }
        for slot in 0..self.started.len() {
            let Some(exec) = self.started.get(slot) else { continue };
            let is_known = exec.is_late();
            if let (false, true, Some(deadline)) = (is_known, is_late(&exec.run), exec.run.deadline)
            {
                self.cut(slot, Cut::Deadline(deadline.limit()));
            }
        }
    }

    /// Tells the records the time, once for all that was done since the last time, and after it, so
    /// that the clock does not stand between a completion and what follows from it.
    fn mark(&mut self) {
        self.unmarked = 0;
        let mut now = None;
        for recorder in self.started.iter_mut().filter_map(|exec| exec.recorder.as_mut()) {
            if recorder.is_unmarked() {
                recorder.mark(*now.get_or_insert_with(|| self.clock.now()));
            }
        }
    }

    /// Publishes the outcome of a run whose tasks are all final, and starts those that waited for
    /// it.
    fn conclude_if_done(&mut self, slot: u32) {
        if !self.started.get(slot).is_some_and(|exec| exec.progress.is_over()) {
            return;
        }
        if self.recorded != 0 {
            self.mark();
        }
        let Some(exec) = self.started.remove(slot) else { return };
        self.table.set(slot, None);
        self.recorded -= usize::from(exec.recorder.is_some());
        self.deadlines -= usize::from(exec.run.deadline.is_some());
        if exec.was_cancelled {
            self.ready.forget(exec.run.number);
        }
        self.early.retain(|(number, _)| *number != exec.run.number);
        let run = Arc::clone(&exec.run);
        let outcome = exec.into_outcome(self.clock.now());
        if let Some(callbacks) = run.result.set(Arc::new(outcome), |parker| parker.unpark())
            && !callbacks.is_empty()
        {
            self.callbacks.push(callbacks);
        }
        drop(run);
        if self.started.is_empty() {
            self.first.rest();
        }
        // In their order; behind those before them, if they are in the way.
        for next in std::mem::take(&mut self.queue) {
            self.launch(next);
        }
    }

    /// What is being worked on, for messages.
    pub(super) fn describe(&self) -> String {
        let mut parts = Vec::new();
        self.first.describe(&mut parts);
        for place in &self.others {
            place.describe(&mut parts);
        }
        parts.truncate(8);
        if parts.is_empty() {
            parts.push("nothing is running".into());
        }
        let (for_worker, for_device) = self.ready.waiting();
        for (number, what) in [
            (self.ready.opened(), "tasks wait until their conditions can be read"),
            (for_worker, "tasks wait for a worker"),
            (for_device, "tasks wait for the device"),
            (self.queue.len(), "graphs wait for others whose buffers they use"),
        ] {
            if number != 0 {
                parts.push(format!("{number} {what}"));
            }
        }
        parts.join(", ")
    }

    /// Takes what the first place has done at its end.
    pub(super) fn bury(&mut self, mut done: Done) {
        self.done.append(&mut done);
        self.take_done();
    }

    /// Nothing will be offered to the places any more: what has not started is cancelled, and what
    /// is launched later, by those who came just before the end.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.cut_all(Cut::Cancelled);
        for place in &mut self.others {
            place.close();
        }
    }
}

#[cfg(test)]
mod flows_tests;
#[cfg(test)]
mod parts_tests;
#[cfg(test)]
mod places_tests;
#[cfg(test)]
mod tests;
