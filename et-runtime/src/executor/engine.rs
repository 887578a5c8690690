//! The scheduler: which task goes where, and what follows from its end.
//!
//! A state machine without a thread of its own; whoever holds it may [`turn`](Engine::turn) it. Tasks are released by
//! counters that only the holder touches.

mod dispatch;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::driver::{Pool, Request};
use super::outcome::Cut;
use super::port::{Done, Ended, Port};
use super::progress::Progress;
use super::run::RunShared;
use super::trace::Recorder;
use super::workers::{Taken, WorkerSlot};
use super::{Outcome, TaskFailure, TaskSpan, TaskState};
use crate::graph::{TaskId, Work};
use crate::handshake::{Continuations, Patience};

/// Looks without a completion, while tasks wait for a worker and are not short, that make one more worker worth its wake-up.
const WIDEN_AT: u32 = 600;
/// Time stamps that share one look at the clock while tasks are short.
const STAMPS: u32 = 64;
/// How long a new thread may take to announce itself.
const START_LIMIT: Duration = Duration::from_secs(10);

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
    /// Places in the records of the tasks that the device has.
    on_device: HashMap<u32, u32>,
}

impl Exec {
    fn fail(&mut self, task: u32, failure: TaskFailure) {
        self.failures.push((TaskId::from_index(task), failure));
        let roots = &mut self.roots;
        self.progress.fail(&*self.run, task, |next| {
            roots.insert(next, task);
        });
    }
}

/// Ready tasks, by slot of their run and index.
#[derive(Default)]
struct Queues {
    /// For any host worker.
    host: VecDeque<(u32, u32)>,
    /// For some host workers only.
    pinned: Vec<(u32, u32)>,
    /// For the device.
    device: VecDeque<(u32, u32)>,
}

impl Queues {
    /// Drops the tasks of a slot, which were cancelled when they were ready.
    fn forget(&mut self, slot: u32) {
        self.host.retain(|(of, _)| *of != slot);
        self.pinned.retain(|(of, _)| *of != slot);
        self.device.retain(|(of, _)| *of != slot);
    }

    #[inline]
    fn push(&mut self, run: &RunShared, slot: u32, task: u32) {
        let view = run.graph.view();
        match view.work(task) {
            Work::Host(_) if view.core_set(task).is_some() => self.pinned.push((slot, task)),
            Work::Host(_) => self.host.push_back((slot, task)),
            _ => self.device.push_back((slot, task)),
        }
    }
}

/// How fast completions come, in looks of the scheduler.
///
/// A mean that forgets, of values that are cut off: that a thread has lost its processor for some milliseconds says nothing about
/// how long tasks take.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Looks since the last completion.
    gap: u32,
    /// Eight times the mean.
    mean: u32,
}

impl Pace {
    /// A gap counts as no more than this.
    const LONGEST: u32 = 200;
    /// Tasks are short below this, some microseconds.
    const SHORT: u32 = 60;

    /// Nothing known: tasks may be long.
    const fn new() -> Self {
        Self { gap: 0, mean: 8 * 100 }
    }

    fn is_short(self) -> bool {
        self.mean < 8 * Self::SHORT
    }

    fn look(&mut self) {
        self.gap += 1;
        if self.gap >= 16 * Self::LONGEST {
            // So long that it counts without a completion, too.
            self.completion();
        }
    }

    fn completion(&mut self) {
        self.mean += self.gap.min(Self::LONGEST);
        self.mean -= self.mean / 8;
        self.gap = 0;
    }
}

/// A worker that is not in use.
struct Starting {
    worker: u32,
    since: Duration,
}

pub(super) struct Engine {
    pool: Weak<Pool>,
    name: String,
    spins: u32,
    /// How long the scheduler looks before it sleeps.
    pub(super) patience: Patience,
    limit: u32,
    /// Workers that may be in use at a time while the scheduler itself takes a processor.
    cap: usize,
    workers: Vec<WorkerSlot>,
    /// Of each worker, the places in the records of the tasks it has, by parity.
    spans: Vec<[u32; 2]>,
    starting: Vec<Starting>,
    /// Workers with tasks.
    busy: Vec<u32>,
    /// Workers without, the one used last at the end.
    idle: Vec<u32>,
    /// Those that were given up and have not left yet.
    lost: Vec<u32>,
    /// Workers that may be in use at a time.
    width: usize,
    /// Looks that found tasks waiting and nothing else, since the width was changed.
    waste: u32,
    pace: Pace,
    completions: u64,
    woken: Vec<u32>,
    ready: Queues,
    execs: Vec<Option<Exec>>,
    /// Runs behind others whose buffers they use.
    queue: VecDeque<Arc<RunShared>>,
    /// Tasks of those that are cancelled already, with the numbers of their runs.
    early: Vec<(u64, u32)>,
    port: Option<Box<dyn Port>>,
    done: Vec<Done>,
    /// Runs that are recorded.
    recorded: usize,
    callbacks: Vec<Continuations<Arc<Outcome>>>,
}

impl Engine {
    pub(super) fn new(
        pool: Weak<Pool>,
        name: String,
        limit: u32,
        spins: u32,
        port: Option<Box<dyn Port>>,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            pool,
            name,
            spins,
            patience: Patience::new(spins),
            limit,
            cap: (processors - 1).max(1),
            workers: Vec::new(),
            spans: Vec::new(),
            starting: Vec::new(),
            busy: Vec::new(),
            idle: Vec::new(),
            lost: Vec::new(),
            width: 1,
            waste: 0,
            pace: Pace::new(),
            completions: 0,
            woken: Vec::new(),
            ready: Queues::default(),
            execs: Vec::new(),
            queue: VecDeque::new(),
            early: Vec::new(),
            port,
            done: Vec::new(),
            recorded: 0,
            callbacks: Vec::new(),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Tells whether somebody has to look who is not notified: more tasks are ready than workers have been given, or the device
    /// has to be asked.
    pub(super) fn needs_turns(&self) -> bool {
        self.has_backlog() || self.nap().is_some()
    }

    /// Counts the completions of host workers.
    pub(super) fn completions(&self) -> u64 {
        self.completions
    }

    /// Forgets how fast completions come, because they have not come for long.
    pub(super) fn forget_pace(&mut self) {
        self.pace = Pace::new();
    }

    /// Tells whether host tasks have been so short lately that one worker did them as fast as they were handed out.
    pub(super) fn is_brisk(&self) -> bool {
        self.pace.is_short()
            && self.width == 1
            && self.starting.is_empty()
            && !self.port.as_ref().is_some_and(|port| port.is_busy())
    }

    /// Tells whether tasks are ready that no worker has got.
    pub(super) fn has_backlog(&self) -> bool {
        !self.ready.host.is_empty()
    }

    /// Tells whether the background thread has to know of something at once.
    pub(super) fn needs_care(&self, pool: &Pool) -> bool {
        self.nap().is_some() || self.next_deadline(pool).is_some()
    }

    pub(super) fn has_callbacks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    pub(super) fn take_callbacks(&mut self) -> Vec<Continuations<Arc<Outcome>>> {
        std::mem::take(&mut self.callbacks)
    }

    /// How often to look, if something is under way that does not ring.
    pub(super) fn nap(&self) -> Option<Duration> {
        self.port.as_ref().filter(|port| port.is_busy()).and_then(|port| port.nap())
    }

    /// The time left until the next deadline.
    pub(super) fn next_deadline(&self, pool: &Pool) -> Option<Duration> {
        let of_runs = self
            .execs
            .iter()
            .flatten()
            .filter(|exec| exec.cut.is_none())
            .map(|exec| &exec.run)
            .chain(&self.queue)
            .filter_map(|run| run.deadline)
            .map(|deadline| deadline.left(&*pool.clock));
        of_runs.min()
    }

    /// Does all there is to do now; tells whether there was anything.
    pub(super) fn turn(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        if pool.has_requests() {
            for request in pool.take_requests() {
                self.handle(request, pool);
            }
            progress = true;
        }
        if !self.starting.is_empty() {
            progress |= self.welcome(pool);
        }
        progress |= self.collect(pool);
        if self.port.is_some() {
            progress |= self.collect_from_port(pool);
        }
        if !self.ready.host.is_empty() || !self.ready.pinned.is_empty() {
            progress |= self.hand_out(pool);
        }
        if !self.ready.device.is_empty() {
            progress |= self.offer(pool);
        }
        if self.recorded != 0 {
            // Reading the clock takes as long as a quarter of a short task.
            let patience = if self.pace.is_short() && progress { STAMPS } else { 1 };
            self.mark(pool, patience);
        }
        if !progress && !self.busy.is_empty() {
            self.pace.look();
            if !self.ready.host.is_empty() && !self.pace.is_short() {
                self.waste += 1;
                if self.waste >= WIDEN_AT && self.width < self.cap.min(self.limit as usize) {
                    self.waste = 0;
                    self.width += 1;
                    return true;
                }
            }
        }
        progress
    }

    /// Lets all workers be used that have tasks to run, because the scheduler is about to sleep; tells whether that changed
    /// anything.
    ///
    /// If tasks are short, the worker has probably lost its processor, and more workers would not help.
    pub(super) fn widen(&mut self, pool: &Pool) -> bool {
        if self.ready.host.is_empty() || self.width >= self.limit as usize || self.pace.is_short() {
            return false;
        }
        let wanted = self.busy.len() + self.ready.host.len();
        let width = wanted.min(self.limit as usize);
        if width <= self.width {
            return false;
        }
        self.width = width;
        self.hand_out(pool)
    }

    fn handle(&mut self, request: Request, pool: &Pool) {
        match request {
            Request::Launch(run) => self.launch(run, pool),
            Request::Cancel(number) => {
                if let Some(at) = self.queue.iter().position(|run| run.number == number) {
                    if let Some(run) = self.queue.remove(at) {
                        let slot = self.insert(run, pool);
                        self.cut(slot, Cut::Cancelled, pool);
                    }
                } else if let Some(slot) = self.slot_of(number) {
                    self.cut(slot, Cut::Cancelled, pool);
                }
            }
            Request::CancelTask(number, task) => {
                if let Some(slot) = self.slot_of(number) {
                    self.cancel_task(slot, task);
                    self.conclude_if_done(slot, pool);
                } else if self.queue.iter().any(|run| run.number == number) {
                    self.early.push((number, task));
                }
            }
        }
    }

    fn slot_of(&self, number: u64) -> Option<u32> {
        let is_it = |exec: &Option<Exec>| exec.as_ref().is_some_and(|e| e.run.number == number);
        self.execs.iter().position(is_it).and_then(|slot| u32::try_from(slot).ok())
    }

    /// Starts a run, or puts it behind those whose buffers it uses.
    fn launch(&mut self, run: Arc<RunShared>, pool: &Pool) {
        let active = self.execs.iter().flatten().map(|exec| &exec.run).chain(&self.queue);
        let mut others = active.map(|other| &other.graph);
        if others.any(|graph| graph.footprint().conflicts(run.graph.footprint())) {
            self.queue.push_back(run);
        } else {
            self.start(run, pool);
        }
    }

    fn insert(&mut self, run: Arc<RunShared>, pool: &Pool) -> u32 {
        let view = run.graph.view();
        let exec = Exec {
            progress: Progress::new((0..view.len()).map(|task| view.fan_in(task as u32))),
            cut: None,
            was_cancelled: false,
            failures: Vec::new(),
            roots: HashMap::new(),
            recorder: run.options.trace.then(|| Recorder::new(view.len(), run.launched)),
            on_device: HashMap::new(),
            run,
        };
        let slot = self.execs.iter().position(Option::is_none).unwrap_or_else(|| {
            self.execs.push(None);
            self.execs.len() - 1
        });
        pool.set_run(slot, Some(Arc::clone(&exec.run)));
        self.recorded += usize::from(exec.recorder.is_some());
        self.execs[slot] = Some(exec);
        slot as u32
    }

    fn start(&mut self, run: Arc<RunShared>, pool: &Pool) {
        let taken = match (&mut self.port, run.graph.view().has_host_work()) {
            (Some(port), false) => port.take(&run),
            _ => Ok(false),
        };
        let number = run.number;
        let slot = self.insert(run, pool);
        let Self { execs, ready, .. } = self;
        if let Some(exec) = &mut execs[slot as usize] {
            let Exec { run, progress, .. } = exec;
            let roots = run.graph.view().roots();
            match taken {
                Ok(true) => progress.take_whole(&**run),
                Ok(false) => progress.start(&**run, roots, |task| ready.push(run, slot, task)),
                Err(failure) => {
                    let roots = roots.to_vec();
                    for root in roots {
                        exec.fail(root, failure.clone());
                    }
                }
            }
        }
        for at in (0..self.early.len()).rev() {
            if self.early[at].0 == number {
                let (_, task) = self.early.swap_remove(at);
                self.cancel_task(slot, task);
            }
        }
        self.conclude_if_done(slot, pool);
    }

    /// Opens the cells of new workers.
    fn welcome(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(Starting { worker, since }) = self.starting.get(at) {
            let (worker, since) = (*worker, *since);
            if self.workers[worker as usize].open() {
                self.starting.swap_remove(at);
                self.idle.push(worker);
                progress = true;
            } else if pool.clock.now().saturating_sub(since) > START_LIMIT {
                // It is told to leave when it comes after all; another one will be started.
                self.starting.swap_remove(at);
                self.workers[worker as usize].leave(true);
                self.lost.push(worker);
                tracing::warn!(worker, "worker has not announced itself");
            } else {
                at += 1;
            }
        }
        progress
    }

    /// Takes completions of host workers.
    fn collect(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            while let Some(taken) = self.workers[worker as usize].poll() {
                progress = true;
                self.pace.completion();
                self.completions += 1;
                if self.width > 1 && self.pace.is_short() {
                    self.width = 1;
                }
                let span = self.spans[worker as usize][taken.parity];
                self.completed(&taken, span, pool);
            }
            let it = &self.workers[worker as usize];
            if it.outstanding() == 0 {
                self.busy.swap_remove(at);
                self.idle.push(worker);
            } else {
                if progress {
                    // The one behind it is running now.
                    let (slot, task) = it.first();
                    if let Some(exec) = &self.execs[slot as usize] {
                        exec.run.set_state(task, TaskState::Running);
                    }
                }
                at += 1;
            }
        }
        progress
    }

    fn completed(&mut self, taken: &Taken, span: u32, pool: &Pool) {
        let Taken { slot, task, is_success, .. } = *taken;
        let Self { execs, ready, .. } = self;
        let Some(exec) = &mut execs[slot as usize] else { return };
        exec.progress.take_back();
        if let Some(recorder) = &mut exec.recorder {
            recorder.end(span);
        }
        if is_success {
            let Exec { run, progress, .. } = exec;
            progress.succeed(&**run, task, |next| ready.push(run, slot, next));
        } else {
            let mut reports = crate::sync::lock(&exec.run.reports);
            let report = reports.iter().position(|(other, _)| *other == task);
            let failure = report.map(|at| reports.swap_remove(at).1);
            drop(reports);
            exec.fail(task, failure.unwrap_or_else(|| TaskFailure::Panicked("unknown".into())));
        }
        if exec.progress.is_over() {
            self.conclude_if_done(slot, pool);
        }
    }

    fn collect_from_port(&mut self, pool: &Pool) -> bool {
        let Some(port) = &mut self.port else { return false };
        let mut done = std::mem::take(&mut self.done);
        let progress = port.poll(&mut done);
        self.take_done(&mut done, pool);
        self.done = done;
        progress
    }

    fn take_done(&mut self, done: &mut Vec<Done>, pool: &Pool) {
        for Done { run, task, ended, span } in done.drain(..) {
            let Some(slot) = self.slot_of(run) else { continue };
            let Self { execs, ready, .. } = self;
            let Some(exec) = &mut execs[slot as usize] else { continue };
            if !exec.progress.is_whole() {
                exec.progress.take_back();
                if let (Some(recorder), Some(span)) =
                    (&mut exec.recorder, exec.on_device.remove(&task))
                {
                    recorder.end(span);
                }
            } else if exec.run.state(task).is_final() {
                // It depends on one that failed.
                continue;
            }
            if let (Some(recorder), Some((worker, start, end))) = (&mut exec.recorder, span) {
                recorder.span(TaskSpan { task: TaskId::from_index(task), worker, start, end });
            }
            let Exec { run, progress, .. } = exec;
            match ended {
                Ended::Complete => {
                    progress.succeed(&**run, task, |next| ready.push(run, slot, next));
                }
                Ended::Failed(failure) => exec.fail(task, failure),
                Ended::NotRun => progress.skip(&**run, task),
            }
            self.conclude_if_done(slot, pool);
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
    fn cut(&mut self, slot: u32, cut: Cut, pool: &Pool) {
        let Some(exec) = &mut self.execs[slot as usize] else { return };
        if exec.cut.is_some() && !matches!(cut, Cut::Deadline(_)) {
            return;
        }
        exec.cut = Some(cut);
        exec.was_cancelled = true;
        exec.run.is_cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
        exec.progress.cut(&*exec.run);
        let number = exec.run.number;
        let late = match cut {
            Cut::Deadline(after) => Some(after),
            Cut::Cancelled => None,
        };
        if let Some(after) = late {
            self.lose_workers_of(slot, after, pool);
        }
        let mut done = std::mem::take(&mut self.done);
        if let Some(port) = &mut self.port {
            port.give_up(number, late, &mut done);
        }
        self.take_done(&mut done, pool);
        self.done = done;
        self.conclude_if_done(slot, pool);
    }

    /// Gives up on workers that have tasks of a run whose deadline has passed. A host function cannot be stopped.
    fn lose_workers_of(&mut self, slot: u32, after: Duration, pool: &Pool) {
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let held: Vec<(u32, u32)> = self.workers[worker as usize].holds().collect();
            if !held.iter().any(|(of, _)| *of == slot) {
                at += 1;
                continue;
            }
            self.busy.swap_remove(at);
            self.workers[worker as usize].leave(true);
            self.lost.push(worker);
            tracing::warn!(worker, "worker given up: its task is not complete at the deadline");
            for (of, task) in held {
                let failure = if of == slot {
                    TaskFailure::Deadline { after, worker }
                } else {
                    let why = "a task of another run before it did not end".to_owned();
                    TaskFailure::WorkerLost { worker, why }
                };
                if let Some(exec) = &mut self.execs[of as usize] {
                    exec.progress.take_back();
                    exec.fail(task, failure);
                }
                if of != slot {
                    self.conclude_if_done(of, pool);
                }
            }
        }
    }

    /// Ends runs whose deadline has passed.
    pub(super) fn expire(&mut self, pool: &Pool) {
        let is_late = |run: &RunShared| run.deadline.is_some_and(|d| d.has_passed(&*pool.clock));
        while let Some(at) = self.queue.iter().position(|run| is_late(run)) {
            if let Some(run) = self.queue.remove(at) {
                self.insert(run, pool);
            }
        }
        for slot in 0..self.execs.len() as u32 {
            let Some(exec) = &self.execs[slot as usize] else { continue };
            let is_cut = matches!(exec.cut, Some(Cut::Deadline(_)));
            if let (false, true, Some(deadline)) = (is_cut, is_late(&exec.run), exec.run.deadline) {
                self.cut(slot, Cut::Deadline(deadline.limit()), pool);
            }
        }
    }

    /// Tells the records the time, once for all that was done since the last time, and after it, so that the clock does not stand
    /// between a completion and what follows from it. Records with fewer than `patience` events wait.
    fn mark(&mut self, pool: &Pool, patience: u32) {
        let mut now = None;
        for recorder in self.execs.iter_mut().flatten().filter_map(|exec| exec.recorder.as_mut()) {
            if recorder.unmarked() >= patience {
                recorder.mark(*now.get_or_insert_with(|| pool.clock.now()));
            }
        }
    }

    /// Publishes the outcome of a run whose tasks are all final, and starts those that waited for it.
    fn conclude_if_done(&mut self, slot: u32, pool: &Pool) {
        let place = &mut self.execs[slot as usize];
        if !place.as_ref().is_some_and(|exec| exec.progress.is_over()) {
            return;
        }
        if self.recorded != 0 {
            self.mark(pool, 1);
        }
        let Some(exec) = self.execs[slot as usize].take() else { return };
        pool.set_run(slot as usize, None);
        self.recorded -= usize::from(exec.recorder.is_some());
        if exec.was_cancelled {
            // The slot will be another run's.
            self.ready.forget(slot);
        }
        let Exec { run, cut, failures, roots, recorder, .. } = exec;
        self.early.retain(|(number, _)| *number != run.number);
        let states = (0..run.states.len() as u32).map(|task| run.state(task)).collect();
        let place = match &self.port {
            Some(port) if run.graph.view().has_kernels() => port.name(&run.graph),
            _ => "cpu",
        };
        let outcome = Outcome {
            graph: run.graph.clone(),
            states,
            failures,
            roots,
            cut,
            elapsed: pool.clock.now().saturating_sub(run.launched),
            place,
            trace: recorder.map(Recorder::finish),
        };
        if let Some(callbacks) = run.result.set(Arc::new(outcome), |p| {
            let _ = p.unpark();
        }) && !callbacks.is_empty()
        {
            self.callbacks.push(callbacks);
        }
        drop(run);
        if self.execs.iter().all(Option::is_none) {
            self.width = 1;
            self.waste = 0;
        }
        // In their order; behind those before them, if they are in the way.
        for next in std::mem::take(&mut self.queue) {
            self.launch(next, pool);
        }
    }

    /// What is being worked on, for messages.
    pub(super) fn describe(&self) -> String {
        let mut parts = Vec::new();
        for &worker in &self.busy {
            for (n, (slot, task)) in self.workers[worker as usize].holds().enumerate() {
                let Some(exec) = &self.execs[slot as usize] else { continue };
                let what = if n == 0 { "runs" } else { "has staged" };
                let task = TaskId::from_index(task);
                let name = exec.run.graph.name(task).map(|name| format!(" \"{name}\""));
                parts.push(format!("worker {worker} {what} {task}{}", name.unwrap_or_default()));
            }
        }
        if let Some(port) = &self.port
            && port.is_busy()
        {
            parts.push(port.describe());
        }
        parts.truncate(8);
        if parts.is_empty() {
            parts.push("nothing is running".into());
        }
        for (count, what) in [
            (self.ready.host.len() + self.ready.pinned.len(), "tasks wait for a worker"),
            (self.ready.device.len(), "tasks wait for the device"),
            (self.queue.len(), "graphs wait for others whose buffers they use"),
            (self.starting.len(), "threads are starting"),
            (self.lost.len(), "workers are lost"),
        ] {
            if count != 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.join(", ")
    }

    /// Takes what workers completed before they left.
    pub(super) fn bury(&mut self, workers: &mut [WorkerSlot], pool: &Pool) {
        for worker in workers {
            while let Some(taken) = worker.poll() {
                self.completed(&taken, u32::MAX, pool);
            }
        }
    }

    /// Cancels everything; what the device has goes on.
    pub(super) fn cancel_all(&mut self, pool: &Pool) {
        let queued: Vec<u64> = self.queue.iter().map(|run| run.number).collect();
        for number in queued {
            self.handle(Request::Cancel(number), pool);
        }
        for slot in 0..self.execs.len() as u32 {
            self.cut(slot, Cut::Cancelled, pool);
        }
    }

    /// Tells whether the device has something.
    pub(super) fn is_device_busy(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.is_busy())
    }

    /// Gives up on what the device has.
    pub(super) fn abort_all(&mut self, after: Duration, pool: &Pool) {
        for slot in 0..self.execs.len() as u32 {
            self.cut(slot, Cut::Deadline(after), pool);
        }
    }

    /// Tells all workers to leave, and gives back what waits for their threads.
    pub(super) fn close(&mut self) -> Vec<WorkerSlot> {
        if let Some(port) = &mut self.port {
            port.close();
        }
        let lost = std::mem::take(&mut self.lost);
        let mut workers: Vec<(usize, WorkerSlot)> = self.workers.drain(..).enumerate().collect();
        // A thread whose task never ends is not waited for; it ends with its task, or with the process. What it completed is of a run
        // that has ended without it.
        workers.retain_mut(|(index, worker)| {
            let is_lost = lost.contains(&(*index as u32));
            if is_lost && worker.has_left() {
                worker.join();
            }
            !is_lost
        });
        let mut workers: Vec<WorkerSlot> = workers.into_iter().map(|(_, worker)| worker).collect();
        for worker in &mut workers {
            worker.leave(false);
        }
        (self.busy, self.idle, self.starting) = (Vec::new(), Vec::new(), Vec::new());
        workers
    }
}
