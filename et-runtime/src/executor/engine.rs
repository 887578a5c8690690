//! The scheduler: which runs there are, which of their tasks are ready, and what follows from the
//! end of one.
//!
//! A state machine without a thread of its own; whoever holds it may [`turn`](Engine::turn) it. It
//! knows nothing of workers: it offers what is ready to [`Place`]s and takes what they have done.
//! Tasks are released by counters that only the holder touches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::ids::{RunId, TaskRef, count};
use super::outcome::Cut;
use super::place::{Done, Ended, Ending, Offer, Place, Unit};
use super::progress::Progress;
use super::run::{RunShared, Runs};
use super::trace::Recorder;
use super::{Outcome, TaskFailure, TaskSpan, TaskState};
use crate::clock::Clock;
use crate::graph::TaskId;
use crate::handshake::{Continuations, Patience};
use crate::sync::{Ordering, lock};

/// Time stamps that share one look at the clock while tasks are short.
const STAMPS: u32 = 64;

/// What is asked of whoever schedules.
pub(super) enum Request {
    Launch(Arc<RunShared>),
    Cancel(RunId),
    CancelTask(RunId, u32),
    CancelAll,
}

/// A run that has started.
struct Exec {
    run: Arc<RunShared>,
    progress: Progress,
    cut: Option<Cut>,
    /// Some tasks, perhaps ready ones.
    was_cancelled: bool,
    failures: Vec<(TaskId, TaskFailure)>,
    roots: HashMap<u32, u32>,
    /// If the launch asked for it.
    recorder: Option<Recorder>,
}

impl Exec {
    fn fail(&mut self, task: u32, failure: TaskFailure) {
        self.failures.push((TaskId::from_index(task), failure));
        let roots = &mut self.roots;
        self.progress.fail(&*self.run, task, |next| {
            roots.insert(next, task);
        });
    }

    /// Takes what a worker has said of a task that failed.
    fn report(&self, task: u32) -> TaskFailure {
        let mut reports = lock(&self.run.reports);
        let report = reports.iter().position(|(other, _)| *other == task);
        let failure = report.map(|at| reports.swap_remove(at).1);
        failure.unwrap_or_else(|| TaskFailure::Panicked("unknown".into()))
    }
}

/// The ready tasks of a place.
#[derive(Default)]
struct Ready {
    /// For any worker, in the order in which they became ready.
    any: VecDeque<TaskRef>,
    /// For some workers only: that one finds no room says nothing of the next.
    choosy: Vec<TaskRef>,
}

impl Ready {
    fn len(&self) -> usize {
        self.any.len() + self.choosy.len()
    }

    /// Offers what is ready; returns how many tasks find no room, and the slots of runs with tasks
    /// that could not run.
    #[inline]
    fn offer_to<P: Place + ?Sized>(
        &mut self,
        place: &mut P,
        execs: &mut [Option<Exec>],
        progress: &mut bool,
    ) -> (usize, Vec<u32>) {
        let mut failed = Vec::new();
        while let Some(&task) = self.any.front() {
            if offer(place, execs, task, false, &mut failed) == Offered::Waits {
                break;
            }
            self.any.pop_front();
            *progress = true;
        }
        let mut next = 0;
        while let Some(&task) = self.choosy.get(next) {
            if offer(place, execs, task, true, &mut failed) == Offered::Waits {
                next += 1;
            } else {
                self.choosy.remove(next);
                *progress = true;
            }
        }
        (self.any.len(), failed)
    }
}

/// Offers one task.
#[inline]
fn offer<P: Place + ?Sized>(
    place: &mut P,
    execs: &mut [Option<Exec>],
    task: TaskRef,
    is_choosy: bool,
    failed: &mut Vec<u32>,
) -> Offered {
    let Some(exec) = &mut execs[task.slot as usize] else { return Offered::Gone };
    let index = task.index;
    if exec.run.number != task.run || exec.run.state(index) != TaskState::Ready {
        return Offered::Gone;
    }
    let cores = if is_choosy { exec.run.graph.view().core_set(index) } else { None };
    match place.offer(Unit { run: &exec.run, task, cores }) {
        Offer::Full => return Offered::Waits,
        Offer::Taken { worker, is_staged } => {
            exec.progress.hand_over(&*exec.run, index, is_staged);
            if let Some(recorder) = &mut exec.recorder {
                recorder.start(index, worker.0);
            }
        }
        Offer::Whole => exec.progress.take_whole(&*exec.run),
        Offer::Failed(failure) => {
            exec.fail(index, *failure);
            failed.push(task.slot);
        }
    }
    Offered::Gone
}

/// Ready tasks, by place.
struct Queues(Vec<Ready>);

impl Queues {
    #[inline]
    fn push(&mut self, run: &RunShared, slot: u32, index: u32) {
        let task = TaskRef { run: run.number, slot, index };
        let ready = &mut self.0[run.route.place(&run.graph, index)];
        if run.graph.view().core_set(index).is_some() {
            ready.choosy.push(task);
        } else {
            ready.any.push_back(task);
        }
    }

    /// Drops the tasks of a run, which were cancelled when they were ready.
    fn forget(&mut self, run: RunId) {
        for ready in &mut self.0 {
            ready.any.retain(|task| task.run != run);
            ready.choosy.retain(|task| task.run != run);
        }
    }
}

/// What became of a ready task.
#[derive(PartialEq)]
enum Offered {
    Gone,
    Waits,
}

/// Its first place has a type of its own, because most tasks of most graphs go there and because
/// that says more of itself.
pub(super) struct Engine<F> {
    pub(super) first: F,
    /// How long a scheduler looks before it sleeps.
    pub(super) patience: Patience,
    others: Vec<Box<dyn Place>>,
    ready: Queues,
    /// Ready tasks for which there was no room in the first place.
    full_at: usize,
    execs: Vec<Option<Exec>>,
    table: Arc<Runs>,
    /// Runs behind others whose buffers they use.
    queue: VecDeque<Arc<RunShared>>,
    /// Tasks of those that are cancelled already.
    early: Vec<(RunId, u32)>,
    done: Done,
    /// Runs that are recorded.
    recorded: usize,
    /// Runs that have not ended and have a deadline.
    deadlines: usize,
    callbacks: Vec<Continuations<Arc<Outcome>>>,
    clock: Arc<dyn Clock>,
}

impl<F: Place> Engine<F> {
    pub(super) fn new(
        first: F,
        others: Vec<Box<dyn Place>>,
        table: Arc<Runs>,
        clock: Arc<dyn Clock>,
        patience: Patience,
    ) -> Self {
        Self {
            first,
            patience,
            ready: Queues((0..=others.len()).map(|_| Ready::default()).collect()),
            others,
            full_at: 0,
            execs: Vec::new(),
            table,
            queue: VecDeque::new(),
            early: Vec::new(),
            done: Done::default(),
            recorded: 0,
            deadlines: 0,
            callbacks: Vec::new(),
            clock,
        }
    }

    /// Returns `true` if tasks are ready that no worker of the first place has got.
    pub(super) fn has_backlog(&self) -> bool {
        !self.ready.0[0].any.is_empty()
    }

    pub(super) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    pub(super) fn take_callbacks(&mut self) -> Vec<Continuations<Arc<Outcome>>> {
        std::mem::take(&mut self.callbacks)
    }

    /// Returns `true` if a run stands behind others.
    pub(super) fn is_queued(&self, run: RunId) -> bool {
        self.queue.iter().any(|queued| queued.number == run)
    }

    /// How soon to look at what does not notify.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.others.iter().filter_map(|place| place.next_look()).min()
    }

    /// Returns `true` if a place other than the first has something.
    pub(super) fn is_busy(&self) -> bool {
        self.others.iter().any(|place| place.is_busy())
    }

    /// The time left until the next deadline of a run.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        if self.deadlines == 0 {
            return None;
        }
        let started = self.execs.iter().flatten().filter(|exec| exec.cut.is_none());
        let deadlines =
            started.map(|exec| &exec.run).chain(&self.queue).filter_map(|run| run.deadline);
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
        // A look that finds nothing is short, so that the next one comes soon: what found no room
        // finds none now.
        if progress || self.ready.0[0].len() != self.full_at {
            progress |= self.offer_to_first();
        }
        for at in 0..self.others.len() {
            progress |= self.offer_to(at + 1);
        }
        if self.recorded != 0 {
            self.mark(progress);
        }
        progress
    }

    fn handle(&mut self, request: Request) {
        match request {
            Request::Launch(run) => {
                self.deadlines += usize::from(run.deadline.is_some());
                self.launch(run);
            }
            Request::Cancel(number) => {
                if let Some(at) = self.queue.iter().position(|run| run.number == number) {
                    if let Some(run) = self.queue.remove(at) {
                        let slot = self.insert(run);
                        self.cut(slot, Cut::Cancelled);
                    }
                } else if let Some(slot) = self.slot_of(number) {
                    self.cut(slot, Cut::Cancelled);
                }
            }
            Request::CancelTask(number, task) => {
                if let Some(slot) = self.slot_of(number) {
                    self.cancel_task(slot, task);
                    self.conclude_if_done(slot);
                } else if self.queue.iter().any(|run| run.number == number) {
                    self.early.push((number, task));
                }
            }
            Request::CancelAll => self.cut_all(Cut::Cancelled),
        }
    }

    fn slot_of(&self, number: RunId) -> Option<u32> {
        let is_it = |exec: &Option<Exec>| exec.as_ref().is_some_and(|e| e.run.number == number);
        self.execs.iter().position(is_it).map(count)
    }

    /// Starts a run, or puts it behind those whose buffers it uses.
    fn launch(&mut self, run: Arc<RunShared>) {
        let active = self.execs.iter().flatten().map(|exec| &exec.run).chain(&self.queue);
        let mut others = active.map(|other| &other.graph);
        if others.any(|graph| graph.footprint().conflicts(run.graph.footprint())) {
            self.queue.push_back(run);
        } else {
            self.start(run);
        }
    }

    fn insert(&mut self, run: Arc<RunShared>) -> u32 {
        let view = run.graph.view();
        let exec = Exec {
            progress: Progress::new((0..count(view.len())).map(|task| view.fan_in(task))),
            cut: None,
            was_cancelled: false,
            failures: Vec::new(),
            roots: HashMap::new(),
            recorder: run.options.trace.then(|| Recorder::new(view.len(), run.launched)),
            run,
        };
        let slot = self.execs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.execs.push(None);
            self.execs.len() - 1
        });
        self.table.set(slot, Some(Arc::clone(&exec.run)));
        self.recorded += usize::from(exec.recorder.is_some());
        self.execs[slot] = Some(exec);
        count(slot)
    }

    fn start(&mut self, run: Arc<RunShared>) {
        let number = run.number;
        let slot = self.insert(run);
        let Self { execs, ready, .. } = self;
        if let Some(Exec { run, progress, .. }) = &mut execs[slot as usize] {
            let roots = run.graph.view().roots();
            progress.start(&**run, roots, |task| ready.push(run, slot, task));
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
        let Self { done, execs, ready, .. } = self;
        let mut over = Vec::new();
        for task in done.complete.drain(..) {
            let exec = execs[task.slot as usize].as_mut();
            let Some(exec) = exec.filter(|exec| exec.run.number == task.run) else { continue };
            if let Some(recorder) = &mut exec.recorder {
                recorder.end(task.index);
            }
            let Exec { run, progress, .. } = exec;
            progress.take_back();
            progress.succeed(&**run, task.index, |next| ready.push(run, task.slot, next));
            if progress.is_over() {
                over.push(task.slot);
            }
        }
        for Ending { task, how, span } in done.ended.drain(..) {
            let exec = &mut execs[task.slot as usize];
            let Some(exec) = exec.as_mut().filter(|exec| exec.run.number == task.run) else {
                continue;
            };
            let index = task.index;
            if exec.progress.is_whole() {
                if exec.run.state(index).is_final() {
                    // It depends on one that failed.
                    continue;
                }
            } else {
                exec.progress.take_back();
                if let Some(recorder) = &mut exec.recorder {
                    recorder.end(index);
                }
            }
            if let (Some(recorder), Some(span)) = (&mut exec.recorder, span) {
                let (task, worker) = (TaskId::from_index(index), span.worker.0);
                recorder.span(TaskSpan { task, worker, start: span.start, end: span.end });
            }
            match how {
                Ended::Complete => {
                    let Exec { run, progress, .. } = exec;
                    progress.succeed(&**run, index, |next| ready.push(run, task.slot, next));
                }
                Ended::Failed(failure) => exec.fail(index, *failure),
                Ended::Reported => {
                    let failure = exec.report(index);
                    exec.fail(index, failure);
                }
                Ended::NotRun => exec.progress.skip(&*exec.run, index),
            }
            if exec.progress.is_over() {
                over.push(task.slot);
            }
        }
        for task in done.started.drain(..) {
            let exec = execs[task.slot as usize].as_ref();
            if let Some(exec) = exec.filter(|exec| exec.run.number == task.run)
                && exec.run.state(task.index) < TaskState::Running
            {
                exec.run.set_state(task.index, TaskState::Running);
            }
        }
        self.conclude(&over);
    }

    /// Offers ready tasks to the first place.
    #[inline]
    fn offer_to_first(&mut self) -> bool {
        let mut progress = false;
        loop {
            let Self { first, execs, ready, .. } = self;
            let (waiting, failed) = ready.0[0].offer_to(first, execs, &mut progress);
            self.conclude(&failed);
            self.full_at = self.ready.0[0].len();
            if !self.first.settle(waiting) {
                return progress;
            }
        }
    }

    fn offer_to(&mut self, at: usize) -> bool {
        let mut progress = false;
        let Self { others, execs, ready, .. } = self;
        let place = &mut *others[at - 1];
        let (waiting, failed) = ready.0[at].offer_to(place, execs, &mut progress);
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
        let Some(Exec { run, progress, roots, was_cancelled, .. }) = &mut self.execs[slot as usize]
        else {
            return;
        };
        *was_cancelled = true;
        progress.cancel_task(&**run, task, |next| {
            roots.insert(next, task);
        });
    }

    /// Ends a run before its time: what has not started is cancelled.
    fn cut(&mut self, slot: u32, cut: Cut) {
        let Some(exec) = &mut self.execs[slot as usize] else { return };
        if exec.cut.is_some() && !matches!(cut, Cut::Deadline(_)) {
            return;
        }
        exec.cut = Some(cut);
        exec.was_cancelled = true;
        exec.run.is_cancelled.store(true, Ordering::Relaxed);
        exec.progress.cut(&*exec.run);
        let number = exec.run.number;
        self.first.abort(number, cut);
        for place in &mut self.others {
            place.abort(number, cut);
        }
        self.conclude_if_done(slot);
    }

    /// Ends all runs before their time.
    pub(super) fn cut_all(&mut self, cut: Cut) {
        for run in std::mem::take(&mut self.queue) {
            self.insert(run);
        }
        for slot in 0..count(self.execs.len()) {
            self.cut(slot, cut);
        }
    }

    /// Ends runs whose deadline has passed.
    pub(super) fn expire(&mut self) {
        let clock = Arc::clone(&self.clock);
        let is_late = |run: &RunShared| run.deadline.is_some_and(|d| d.has_passed(&*clock));
        while let Some(at) = self.queue.iter().position(|run| is_late(run)) {
            if let Some(run) = self.queue.remove(at) {
                self.insert(run);
            }
        }
        for slot in 0..count(self.execs.len()) {
            let Some(exec) = &self.execs[slot as usize] else { continue };
            let is_cut = matches!(exec.cut, Some(Cut::Deadline(_)));
            if let (false, true, Some(deadline)) = (is_cut, is_late(&exec.run), exec.run.deadline) {
                self.cut(slot, Cut::Deadline(deadline.limit()));
            }
        }
    }

    /// Tells the records the time, once for all that was done since the last time, and after it, so
    /// that the clock does not stand between a completion and what follows from it. Reading it
    /// takes as long as a quarter of a short task, so records wait while such come back.
    fn mark(&mut self, progress: bool) {
        let patience = if progress && self.first.is_brisk() { STAMPS } else { 1 };
        let mut now = None;
        for recorder in self.execs.iter_mut().flatten().filter_map(|exec| exec.recorder.as_mut()) {
            if recorder.unmarked() >= patience {
                recorder.mark(*now.get_or_insert_with(|| self.clock.now()));
            }
        }
    }

    /// Publishes the outcome of a run whose tasks are all final, and starts those that waited for
    /// it.
    fn conclude_if_done(&mut self, slot: u32) {
        let place = &mut self.execs[slot as usize];
        if !place.as_ref().is_some_and(|exec| exec.progress.is_over()) {
            return;
        }
        if self.recorded != 0 {
            self.mark(false);
        }
        let Some(exec) = self.execs[slot as usize].take() else { return };
        self.table.set(slot as usize, None);
        self.recorded -= usize::from(exec.recorder.is_some());
        self.deadlines -= usize::from(exec.run.deadline.is_some());
        if exec.was_cancelled {
            self.ready.forget(exec.run.number);
        }
        let Exec { run, cut, failures, roots, recorder, .. } = exec;
        self.early.retain(|(number, _)| *number != run.number);
        let outcome = Outcome {
            graph: run.graph.clone(),
            states: (0..count(run.states.len())).map(|task| run.state(task)).collect(),
            failures,
            roots,
            cut,
            elapsed: self.clock.now().saturating_sub(run.launched),
            place: run.route.name(&run.graph),
            trace: recorder.map(Recorder::finish),
        };
        if let Some(callbacks) = run.result.set(Arc::new(outcome), |parker| parker.unpark())
            && !callbacks.is_empty()
        {
            self.callbacks.push(callbacks);
        }
        drop(run);
        if self.execs.iter().all(Option::is_none) {
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
        let waiting = |ready: &Ready| ready.any.len() + ready.choosy.len();
        for (number, what) in [
            (waiting(&self.ready.0[0]), "tasks wait for a worker"),
            (self.ready.0.iter().skip(1).map(waiting).sum(), "tasks wait for the device"),
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

    /// Nothing will be offered to the places any more.
    pub(super) fn close(&mut self) {
        for place in &mut self.others {
            place.close();
        }
    }
}

#[cfg(test)]
mod tests;
