//! Who turns the scheduler, and when it sleeps.

use crate::sync::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::run::RunShared;
use super::{Outcome, Run, RunError, RunOptions};
use crate::clock::{Clock, Deadline};
use crate::graph::{Graph, TaskId, Work};
use crate::handshake::{Combiner, Continuations, Held, Parker};
use crate::sync;
use crate::sync::lock as locked;

/// What is asked of whoever schedules.
pub(super) enum Request {
    Launch(Arc<RunShared>),
    Cancel(u64),
    CancelTask(u64, u32),
}

/// What workers, waiters and the background thread share.
pub(super) struct Pool {
    engine: Combiner<Engine>,
    limit: u32,
    check: Option<Box<dyn Check>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Looks without progress before the scheduler sleeps.
    spins: u32,
    requests: Mutex<Vec<Request>>,
    has_requests: AtomicBool,
    /// The runs that have started, by slot, for the workers.
    runs: Mutex<Vec<Option<Arc<RunShared>>>>,
    /// Threads that would like to schedule at this moment.
    wanting: AtomicU32,
    /// Waiters that leave the scheduling to workers, and see to it that these go on.
    watchers: AtomicU32,
    next_number: AtomicU64,
    background: Parker,
    /// Somebody has left tasks that no worker has got. The next worker to pick one up calls the background thread, unless a
    /// waiter has come by then, as is usual after a launch.
    has_backlog: AtomicBool,
    is_closed: AtomicBool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("closed", &self.is_closed).finish_non_exhaustive()
    }
}

/// How long a run may make no progress until a waiter that has stepped aside schedules again.
const WATCH: Duration = Duration::from_micros(500);
/// How long a waiter whose time is over tries to find out what is being worked on.
const ASK: Duration = Duration::from_millis(20);
/// How long a closing executor waits for kernels to end by themselves.
const CLOSE: Duration = Duration::from_secs(5);
/// Looks between two looks at the clock.
const LOOKS_PER_TIME: u32 = 64;

impl Pool {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        spins: u32,
        engine: Engine,
        check: Option<Box<dyn Check>>,
    ) -> Self {
        Self {
            limit: engine.limit(),
            engine: Combiner::new(engine),
            background: Parker::new(),
            has_backlog: AtomicBool::new(false),
            check,
            clock,
            spins,
            requests: Mutex::default(),
            has_requests: AtomicBool::new(false),
            runs: Mutex::default(),
            wanting: AtomicU32::new(0),
            watchers: AtomicU32::new(0),
            next_number: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn has_requests(&self) -> bool {
        // Acquire: pairs with the Release in `request`.
        self.has_requests.load(Ordering::Acquire)
    }

    pub(super) fn take_requests(&self) -> Vec<Request> {
        let mut requests = locked(&self.requests);
        self.has_requests.store(false, Ordering::Relaxed);
        std::mem::take(&mut requests)
    }

    /// The run in a slot, if it is still this one.
    pub(super) fn run(&self, slot: usize, number: u64) -> Option<Arc<RunShared>> {
        locked(&self.runs).get(slot)?.clone().filter(|run| run.number == number)
    }

    pub(super) fn set_run(&self, slot: usize, run: Option<Arc<RunShared>>) {
        let mut runs = locked(&self.runs);
        if runs.len() <= slot {
            runs.resize(slot + 1, None);
        }
        runs[slot] = run;
    }

    /// Checks that the graph can run here and launches it.
    pub(super) fn launch(
        self: &Arc<Self>,
        graph: &Graph,
        options: RunOptions,
    ) -> Result<Run, RunError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(RunError::Closed);
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let shared = RunShared::new(number, graph.clone(), options, self.clock.now());
        self.check(&shared)?;
        self.request(Request::Launch(Arc::clone(&shared)));
        Ok(Run { shared, pool: Arc::clone(self) })
    }

    /// Asks for something; it is done before this returns unless somebody else schedules, who will do it.
    pub(super) fn request(&self, request: Request) {
        {
            let mut requests = locked(&self.requests);
            requests.push(request);
            // Release: who sees the flag finds the request.
            self.has_requests.store(true, Ordering::Release);
        }
        self.notify();
    }

    /// Has what was published before seen by whoever schedules, or schedules.
    pub(super) fn notify(&self) {
        let mut after = After::default();
        self.engine.notify(|engine| self.last_turn(engine, &mut after));
        self.settle(after);
    }

    /// A turn of a thread that will not stay.
    fn last_turn(&self, engine: &mut Engine, after: &mut After) {
        engine.turn(self);
        after.callbacks.append(&mut engine.take_callbacks());
        after.needs_care = engine.needs_care(self);
        after.has_backlog = engine.has_backlog();
        after.has_device = engine.nap().is_some();
        after.due = engine.next_deadline(self);
    }

    /// What a thread does that has stopped scheduling.
    fn settle(&self, after: After) {
        for callback in after.callbacks {
            callback.run();
        }
        if after.has_backlog {
            self.has_backlog.store(true, Ordering::Relaxed);
        }
        if after.needs_care {
            self.background.unpark();
        }
    }

    /// Called by a worker that has got a task.
    pub(super) fn picked_up(&self) {
        if self.has_backlog.load(Ordering::Relaxed)
            && self.watchers.load(Ordering::Relaxed) == 0
            && !self.engine.is_held()
        {
            self.has_backlog.store(false, Ordering::Relaxed);
            self.background.unpark();
        }
    }

    /// Schedules until `is_over` or the deadline; returns the time left until the next deadline of a run. A thread that `may_step_aside` also stops when it is not worth a processor: tasks
    /// are so short that one worker is enough, and that is done sooner if it schedules for itself.
    fn drive<'a>(
        &'a self,
        mut engine: Held<'a, Engine>,
        is_over: impl Fn(&Engine) -> bool,
        deadline: Option<&Deadline>,
        may_step_aside: bool,
    ) -> Option<Duration> {
        let mut looks = 0;
        let mut patience = engine.patience;
        self.has_backlog.store(false, Ordering::Relaxed);
        loop {
            if engine.turn(self) {
                looks = 0;
                if engine.has_callbacks() {
                    let callbacks = engine.take_callbacks();
                    drop(engine);
                    for callback in callbacks {
                        callback.run();
                    }
                    match self.engine.hold() {
                        Some(again) => engine = again,
                        // Somebody else schedules now.
                        None => return None,
                    }
                }
            }
            if is_over(&engine) || may_step_aside && engine.is_brisk() {
                break;
            }
            looks += 1;
            let mut left = None;
            if looks % LOOKS_PER_TIME == 0 || looks >= patience.looks() {
                if let Some(due) = engine.next_deadline(self) {
                    if due.is_zero() {
                        engine.expire(self);
                        continue;
                    }
                    left = Some(due);
                }
                if let Some(deadline) = deadline {
                    let mine = deadline.left(&*self.clock);
                    if mine.is_zero() {
                        break;
                    }
                    left = Some(left.map_or(mine, |left| left.min(mine)));
                }
            }
            if looks < patience.looks() {
                std::hint::spin_loop();
                continue;
            }
            if engine.widen(self) {
                continue;
            }
            let nap = engine.nap();
            // A worker that has tasks and says nothing may have lost its processor, or have a long one: time tells.
            let watch = engine.has_backlog().then_some(WATCH);
            let timeout = [left, nap, watch].into_iter().flatten().min();
            let mut sleep = || {
                let look = |engine: &mut Engine| engine.turn(self) || is_over(engine);
                self.engine.sleep(&mut engine, timeout, look);
            };
            if nap.is_some() {
                sleep();
            } else {
                patience.asleep(sleep);
                engine.patience = patience;
            }
            // After a nap only one look: what does not ring has to be looked at, not spun for.
            looks = if nap.is_some() { patience.looks() } else { 0 };
        }
        let will_watch = may_step_aside && !is_over(&engine);
        let mut after = After::default();
        self.engine.leave(engine, |engine| self.last_turn(engine, &mut after));
        // The background thread, which waits for nothing, need not call itself: it takes the time with it.
        let is_background = deadline.is_none();
        let mut due = after.due;
        if is_background && after.has_device {
            // It may have left to a waiter that has given up meanwhile; then nobody would look.
            due = Some(due.map_or(WATCH, |due| due.min(WATCH)));
        }
        after.needs_care = !is_background && (after.needs_care || after.has_backlog && !will_watch);
        self.settle(after);
        due
    }

    /// Waits while workers schedule for themselves; tells whether they went on until the end or the deadline.
    fn watch(&self, run: &RunShared, deadline: &Deadline, parker: &sync::Arc<Parker>) -> bool {
        for _ in 0..self.spins {
            if run.result.is_done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let mut seen = run.finished.load(Ordering::Relaxed);
        loop {
            let left = deadline.left(&*self.clock);
            if left.is_zero() || !run.result.subscribe(parker) {
                return true;
            }
            parker.park_timeout(left.min(WATCH));
            run.result.unsubscribe(parker);
            let now = run.finished.load(Ordering::Relaxed);
            if run.result.is_done() {
                return true;
            }
            if std::mem::replace(&mut seen, now) == now {
                return false;
            }
        }
    }

    pub(super) fn wait(
        &self,
        run: &Arc<RunShared>,
        timeout: Duration,
    ) -> Result<Arc<Outcome>, RunError> {
        let deadline = Deadline::after(&*self.clock, timeout);
        let mut looks = 0;
        // Tasks with a deadline need somebody who looks at the clock.
        let may_step_aside = run.deadline.is_none();
        let mut is_stalled = false;
        let mut parker: Option<sync::Arc<Parker>> = None;
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let result = loop {
            if let Some(outcome) = run.result.get() {
                break Ok(outcome);
            }
            if let Some(mut engine) = self.engine.hold() {
                if std::mem::take(&mut is_stalled) {
                    engine.forget_pace();
                }
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                self.watchers.fetch_add(1, Ordering::Relaxed);
                self.drive(engine, |_| run.result.is_done(), Some(&deadline), may_step_aside);
                let parker = parker.get_or_insert_with(|| sync::Arc::new(Parker::new()));
                is_stalled = !run.result.is_done() && !self.watch(run, &deadline, parker);
                self.watchers.fetch_sub(1, Ordering::Relaxed);
                self.wanting.fetch_add(1, Ordering::Relaxed);
                if run.result.is_done() {
                    continue;
                }
            }
            if deadline.has_passed(&*self.clock) {
                break Err(self.timed_out(run, timeout));
            }
            looks += 1;
            if looks < self.spins {
                std::hint::spin_loop();
                continue;
            }
            // Somebody else schedules. When they stop, those who have something for the scheduler do, so this one only waits.
            let parker = parker.get_or_insert_with(|| sync::Arc::new(Parker::new()));
            if run.result.subscribe(parker) {
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                parker.park_timeout(deadline.left(&*self.clock));
                self.wanting.fetch_add(1, Ordering::Relaxed);
                run.result.unsubscribe(parker);
            }
        };
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn timed_out(&self, run: &RunShared, after: Duration) -> RunError {
        // The background thread leaves when somebody wants to schedule; another waiter does not. In real time: an injected
        // clock may stand still.
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let end = Instant::now() + ASK;
        let engine = loop {
            match self.engine.hold() {
                None if Instant::now() < end => sync::yield_now(),
                held => break held,
            }
        };
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        let busy = match engine {
            Some(engine) => {
                let busy = engine.describe();
                let mut after = After::default();
                self.engine.leave(engine, |engine| self.last_turn(engine, &mut after));
                self.settle(after);
                busy
            }
            None => "another thread schedules".into(),
        };
        let (finished, tasks) = (run.finished.load(Ordering::Relaxed), run.graph.len());
        RunError::Timeout { after, finished, tasks, busy }
    }

    /// The background thread: schedules where nobody waits and there is something that does not come by itself.
    pub(super) fn stand_by(&self) {
        let mut left = None;
        let mut seen = 0;
        while !self.is_closed.load(Ordering::Acquire) {
            match left {
                Some(left) => self.background.park_timeout(left),
                None => self.background.park(),
            }
            let somebody_cares = || {
                self.wanting.load(Ordering::Relaxed) != 0
                    || self.watchers.load(Ordering::Relaxed) != 0
                    || self.is_closed.load(Ordering::Relaxed)
            };
            let is_over = |engine: &Engine| !engine.needs_turns() || somebody_cares();
            // If somebody else has it, they call again when they leave, if there is need.
            left = None;
            let Some(mut engine) = self.engine.hold() else { continue };
            if engine.next_deadline(self).is_some_and(|due| due.is_zero()) {
                engine.expire(self);
            }
            if std::mem::replace(&mut seen, engine.completions()) == engine.completions() {
                engine.forget_pace();
            }
            let has_backlog = engine.has_backlog();
            left = self.drive(engine, is_over, None, true);
            if has_backlog && !somebody_cares() {
                left = Some(left.map_or(WATCH, |left| left.min(WATCH)));
            }
        }
    }

    /// Ends everything; running tasks are waited for, those behind them cancelled.
    pub(super) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut engine = self.engine.hold_next();
        engine.cancel_all(self);
        // Somebody may wait for what the device has, and nobody may be left to ask it.
        let mut deadline = Deadline::after(&*self.clock, CLOSE);
        let mut is_aborted = false;
        while engine.is_device_busy() {
            engine.turn(self);
            if deadline.has_passed(&*self.clock) {
                if is_aborted {
                    break;
                }
                is_aborted = true;
                engine.abort_all(CLOSE, self);
                deadline = Deadline::after(&*self.clock, CLOSE);
            }
            self.background.park_timeout(Duration::from_millis(1));
        }
        let mut workers = engine.close();
        drop(engine);
        for worker in &mut workers {
            worker.join();
        }
        let mut engine = self.engine.hold_next();
        engine.bury(&mut workers, self);
        let mut after = After::default();
        self.engine.leave(engine, |engine| self.last_turn(engine, &mut after));
        self.settle(after);
        self.background.unpark();
    }
}

/// What is left to do for a thread that has scheduled, when it holds no lock.
#[derive(Default)]
struct After {
    callbacks: Vec<Continuations<Arc<Outcome>>>,
    needs_care: bool,
    has_backlog: bool,
    /// Something is under way that does not ring.
    has_device: bool,
    /// The time left until the next deadline of a run.
    due: Option<Duration>,
}

/// What a device can tell of a graph before it is launched.
pub(super) trait Check: Send + Sync {
    /// Checks that the device can run it.
    fn check(&self, graph: &Graph) -> Result<(), RunError>;
}

impl Pool {
    /// Checks what would otherwise fail while the graph runs.
    fn check(&self, run: &RunShared) -> Result<(), RunError> {
        let view = run.graph.view();
        if view.has_kernels() || view.has_copies() {
            let Some(check) = &self.check else {
                let needs = |task: &u32| !matches!(view.work(*task), Work::Host(_));
                let task = (0..view.len() as u32).find(needs).unwrap_or(0);
                return Err(RunError::NeedsDevice { task: TaskId::from_index(task) });
            };
            check.check(&run.graph)?;
        }
        for (number, cores) in view.core_sets().iter().enumerate() {
            if cores.iter().any(|worker| worker < self.limit) {
                continue;
            }
            let number = u32::try_from(number).ok();
            let is_it = |task: &u32| {
                view.core_set_number(*task) == number && matches!(view.work(*task), Work::Host(_))
            };
            if let Some(task) = (0..view.len() as u32).find(is_it) {
                let task = TaskId::from_index(task);
                return Err(RunError::NoSuchWorker {
                    task,
                    cores: cores.to_string(),
                    workers: self.limit,
                });
            }
        }
        Ok(())
    }
}
