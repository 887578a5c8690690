//! Who turns the scheduler, and when it sleeps.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::{self, Launch, Request};
use super::host::{Desk, HostThreads};
use super::ids::{RunId, count};
use super::outcome::Cut;
use super::run::{Board, Route, RunShared};
use super::{Outcome, RunError, RunOptions};
use crate::clock::{Clock, Deadline, SystemClock};
use crate::graph::{Graph, TaskId, Work};
use crate::handshake::{Combiner, Continuations, Held, Parker};
use crate::sync::{self, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};

/// How long closing takes at most, beside what host functions take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For what the device runs to end by itself.
    pub(super) grace: Duration,
    /// For it to end after an abort.
    pub(super) abort: Duration,
}

/// What workers, waiters and the background thread share.
pub(super) struct Pool {
    engine: Combiner<Engine>,
    limit: u32,
    limits: Limits,
    check: Option<Box<dyn Check>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Callbacks and wakers that panicked.
    panics: AtomicU64,
    /// Looks without progress before the scheduler sleeps.
    spins: u32,
    requests: Mutex<Vec<Request>>,
    has_requests: AtomicBool,
    /// Threads that would like to schedule at this moment.
    wanting: AtomicU32,
    /// Waiters that leave the scheduling to workers, and see to it that these go on.
    watchers: AtomicU32,
    next_number: AtomicU64,
    background: Parker,
    /// When the background thread will look by itself, in nanoseconds of the clock; `NEVER` if it
    /// will not.
    alarm: AtomicU64,
    /// Tasks were left that no worker has got. The next worker to pick one up calls the background
    /// thread, unless a waiter has come by then, as is usual after a launch; that one does it when
    /// it goes.
    has_backlog: AtomicBool,
    is_closed: AtomicBool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("closed", &self.is_closed).finish_non_exhaustive()
    }
}

type Engine = engine::Engine<HostThreads<Pool>>;

impl Desk for Pool {
    fn notify(&self) {
        self.notify();
    }

    fn picked_up(&self) {
        self.picked_up();
    }
}

/// How long a run may make no progress until a waiter that has stepped aside schedules again;
/// longer each time it does not help.
const WATCH: Duration = Duration::from_micros(500);
const LONGEST_WATCH: Duration = Duration::from_millis(8);
const NEVER: u64 = u64::MAX;
/// How long a waiter whose time is over tries to find out what is being worked on.
const ASK: Duration = Duration::from_millis(20);
/// Looks that find nothing between two looks at the clock.
const LOOKS_PER_TIME: u32 = 64;
/// Looks of all kinds.
const ALL_LOOKS_PER_TIME: u32 = 512;
/// What has to be looked at sooner than this is not slept for as if it rang.
const NAP: Duration = Duration::from_millis(10);

impl Pool {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        spins: u32,
        (limit, limits): (u32, Limits),
        engine: Engine,
        check: Option<Box<dyn Check>>,
    ) -> Self {
        Self {
            limit,
            limits,
            engine: Combiner::new(engine),
            background: Parker::new(),
            alarm: AtomicU64::new(NEVER),
            has_backlog: AtomicBool::new(false),
            check,
            clock,
            panics: AtomicU64::new(0),
            spins,
            requests: Mutex::new(Vec::new()),
            has_requests: AtomicBool::new(false),
            wanting: AtomicU32::new(0),
            watchers: AtomicU32::new(0),
            next_number: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Does all there is to do now. Returns `true` if there was anything.
    #[inline]
    fn turn(&self, engine: &mut Engine) -> bool {
        // Acquire: pairs with the Release in `request`.
        let is_asked = self.has_requests.load(Ordering::Acquire);
        if is_asked {
            let mut requests = lock(&self.requests);
            self.has_requests.store(false, Ordering::Relaxed);
            let taken = std::mem::take(&mut *requests);
            drop(requests);
            engine.ask(taken);
        }
        engine.turn() | is_asked
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The name of the device, if there is one.
    fn device(&self) -> Option<Arc<str>> {
        self.check.as_ref().map(|check| check.device())
    }

    /// Checks that the graph can run here and launches it.
    pub(super) fn launch(
        &self,
        graph: &Graph,
        options: RunOptions,
    ) -> Result<Arc<RunShared>, RunError> {
        let run = self.prepare(graph, options, None)?;
        self.request(Request::Launch(Launch::new(&run, Vec::new())));
        Ok(run)
    }

    /// Checks that the graph can run here; what is returned is to be launched.
    pub(super) fn prepare(
        &self,
        graph: &Graph,
        options: RunOptions,
        flow: Option<Arc<Board>>,
    ) -> Result<Arc<RunShared>, RunError> {
        if self.is_closed() {
            return Err(RunError::Closed { device: self.device() });
        }
        let route = self.check(graph)?;
        let number = RunId(self.next_number.fetch_add(1, Ordering::Relaxed));
        let (place, options) = ((route, self.device()), (options, flow));
        Ok(RunShared::new(number, place, graph.clone(), options, self.clock.now()))
    }

    /// Asks for something; it is done before this returns unless another thread schedules, which
    /// will do it.
    pub(super) fn request(&self, request: Request) {
        self.enqueue(request);
        self.notify();
    }

    /// Puts something behind what is asked for already; [`notify`](Self::notify) has to follow.
    pub(super) fn enqueue(&self, request: Request) {
        let mut requests = lock(&self.requests);
        requests.push(request);
        // Release: who sees the flag finds the request.
        self.has_requests.store(true, Ordering::Release);
    }

    /// Has what was published before seen by whoever schedules, or schedules.
    pub(super) fn notify(&self) {
        let mut after = After::default();
        self.engine.notify(|engine| self.last_turn(engine, &mut after));
        self.settle(after);
    }

    /// A turn of a thread that will not stay.
    fn last_turn(&self, engine: &mut Engine, after: &mut After) {
        self.turn(engine);
        if engine.has_callbacks() {
            after.callbacks.append(&mut engine.take_callbacks());
        }
        after.look = [engine.next_look(), engine.next_deadline()].into_iter().flatten().min();
        after.has_backlog = engine.has_backlog();
        // By who holds the engine, so that the last one says how it is.
        self.has_backlog.store(after.has_backlog, Ordering::Relaxed);
    }

    /// Stops scheduling. What is left is to be [settled](Self::settle).
    fn leave<'a>(&'a self, engine: Held<'a, Engine>) -> After {
        let mut after = After::default();
        self.engine.leave(engine, |engine| self.last_turn(engine, &mut after));
        after
    }

    /// Calls what users have registered with a run; whatever panics there is counted.
    pub(super) fn call(&self, callbacks: Continuations<Arc<Outcome>>) {
        self.panics.fetch_add(callbacks.run().len() as u64, Ordering::Relaxed);
    }

    pub(super) fn callback_panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// What a thread does that has stopped scheduling.
    fn settle(&self, after: After) {
        // First, because callbacks may take long.
        if let Some(left) = after.look {
            let at = self.time_in(left);
            if at < self.alarm.fetch_min(at, Ordering::AcqRel) {
                self.background.unpark();
            }
        }
        for callback in after.callbacks {
            self.call(callback);
        }
    }

    fn time_in(&self, left: Duration) -> u64 {
        let at = self.clock.now().saturating_add(left).as_nanos();
        u64::try_from(at).unwrap_or(NEVER - 1)
    }

    /// Calls the background thread if tasks are left that no one cares for. Workers that have got a
    /// task do it, and waiters that go.
    fn picked_up(&self) {
        if self.has_backlog.load(Ordering::Relaxed)
            && self.watchers.load(Ordering::Relaxed) == 0
            && !self.engine.is_held()
        {
            self.has_backlog.store(false, Ordering::Relaxed);
            self.background.unpark();
        }
    }

    /// Schedules until `is_over` or the deadline. Stops before that when the thread is not worth a
    /// processor: workers schedule for themselves as fast, and are not held up by a thread that has
    /// the engine and has lost its processor; or they use all processors.
    ///
    /// Without a deadline it is the background thread's, which is told how soon to look again.
    fn drive<'a>(
        &'a self,
        mut engine: Held<'a, Engine>,
        is_over: impl Fn(&Engine) -> bool,
        deadline: Option<&Deadline>,
    ) -> Left {
        // All looks, and those since the last that found something.
        let (mut all, mut looks) = (0_u32, 0);
        let mut patience = engine.patience;
        self.has_backlog.store(false, Ordering::Relaxed);
        let mut end = Left::default();
        loop {
            if self.turn(&mut engine) {
                looks = 0;
            }
            // Perhaps of the last look before a sleep, or of a deadline.
            if engine.has_callbacks() {
                // They may take long: who has something schedules for itself meanwhile.
                let mut after = self.leave(engine);
                after.watch_backlog();
                self.settle(after);
                match self.engine.hold() {
                    Some(again) => engine = again,
                    // Another thread schedules now.
                    None => return end,
                }
                self.has_backlog.store(false, Ordering::Relaxed);
            }
            if is_over(&engine) || self.is_closed() {
                break;
            }
            end.is_crowded = engine.first.is_crowded();
            if end.is_crowded || engine.first.runs_itself() && !engine.is_busy() {
                end.steps_aside = true;
                break;
            }
            looks += 1;
            all = all.wrapping_add(1);
            let mut left = None;
            let is_time = looks % LOOKS_PER_TIME == 0 || all % ALL_LOOKS_PER_TIME == 0;
            if is_time || looks >= patience.looks() {
                if let Some(due) = engine.next_deadline() {
                    if due.is_zero() {
                        engine.expire();
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
            if engine.first.widen() {
                continue;
            }
            let look = engine.next_look();
            // A worker that has tasks and says nothing may have lost its processor, or have a long
            // one: time tells.
            let watch = engine.has_backlog().then_some(WATCH);
            let timeout = [left, look, watch].into_iter().flatten().min();
            let mut sleep = || {
                let look =
                    |engine: &mut Engine| self.turn(engine) || is_over(engine) || self.is_closed();
                self.engine.sleep(&mut engine, timeout, look);
            };
            // After a nap only one look: what does not ring has to be looked at, not spun for.
            if look.is_some_and(|look| look < NAP) {
                sleep();
                looks = patience.looks();
            } else {
                patience.asleep(sleep);
                engine.patience = patience;
                looks = 0;
            }
        }
        let mut after = self.leave(engine);
        if !end.steps_aside {
            after.watch_backlog();
        }
        if deadline.is_none() {
            // It need not call itself.
            end.look = after.look.take();
        }
        self.settle(after);
        end
    }

    /// Waits while workers schedule for themselves. Returns `true` unless they made no progress for
    /// so `long`.
    fn watch(
        &self,
        run: &RunShared,
        deadline: &Deadline,
        parker: &sync::Arc<Parker>,
        is_crowded: bool,
        long: Duration,
    ) -> bool {
        // Nothing is taken from workers by a few looks, unless they use all processors.
        for _ in 0..if is_crowded { 0 } else { self.spins } {
            if run.result.is_done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let mut seen = run.finished.load(Ordering::Relaxed);
        loop {
            let left = deadline.left(&*self.clock);
            if left.is_zero() || self.is_closed() || !run.result.subscribe(parker) {
                return true;
            }
            parker.park_timeout(left.min(long));
            run.result.unsubscribe(parker);
            if run.result.is_done() {
                return true;
            }
            let now = run.finished.load(Ordering::Relaxed);
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
        let mut is_stalled = false;
        let mut long = WATCH;
        let mut parker: Option<sync::Arc<Parker>> = None;
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let result = loop {
            if let Some(outcome) = run.result.get() {
                break Ok(outcome);
            }
            if !self.is_closed()
                && let Some(mut engine) = self.engine.hold()
            {
                if std::mem::take(&mut is_stalled) {
                    engine.first.stalled();
                }
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                self.watchers.fetch_add(1, Ordering::Relaxed);
                let end = self.drive(engine, |_| run.result.is_done(), Some(&deadline));
                if end.steps_aside {
                    let parker = parker.get_or_insert_with(|| sync::Arc::new(Parker::new()));
                    is_stalled = !self.watch(run, &deadline, parker, end.is_crowded, long);
                    long = if is_stalled { (long * 2).min(LONGEST_WATCH) } else { WATCH };
                }
                self.watchers.fetch_sub(1, Ordering::Relaxed);
                self.wanting.fetch_add(1, Ordering::Relaxed);
                looks = 0;
                if run.result.is_done() || !deadline.has_passed(&*self.clock) {
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
            // Another thread schedules. When it stops, those who have something for the scheduler
            // do, so this one only waits.
            let parker = parker.get_or_insert_with(|| sync::Arc::new(Parker::new()));
            if run.result.subscribe(parker) {
                self.wanting.fetch_sub(1, Ordering::Relaxed);
                parker.park_timeout(deadline.left(&*self.clock));
                self.wanting.fetch_add(1, Ordering::Relaxed);
                run.result.unsubscribe(parker);
            }
        };
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        // A worker that has picked something up meanwhile has counted on this thread. Between the
        // end of the watch and the look at what is left; pairs with the fence in `Combiner::leave`,
        // which is between what is left and the worker's look for who watches.
        fence(Ordering::SeqCst);
        self.picked_up();
        result
    }

    fn timed_out(&self, run: &RunShared, after: Duration) -> RunError {
        // The background thread leaves when another one wants to schedule; a waiter does not. In
        // real time: an injected clock may stand still.
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let end = Instant::now() + ASK;
        let engine = loop {
            match self.engine.hold() {
                None if Instant::now() < end => sync::yield_now(),
                held => break held,
            }
        };
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        let mut is_behind = false;
        let busy = match engine {
            Some(engine) => {
                let busy = engine.describe();
                let mut after = After::default();
                self.engine.leave(engine, |engine| {
                    self.last_turn(engine, &mut after);
                    is_behind = engine.is_queued(run.number);
                });
                self.settle(after);
                busy
            }
            None => "another thread schedules".into(),
        };
        let (finished, tasks) = (run.finished.load(Ordering::Relaxed), run.graph.len());
        let device = run.device.clone();
        RunError::Timeout {
            device,
            after,
            finished,
            tasks,
            stall: run.stall(is_behind),
            busy: busy.into(),
        }
    }

    /// The background thread: schedules where no thread waits and there is something that does not
    /// come by itself, and keeps the time.
    pub(super) fn stand_by(&self) {
        let mut left = None;
        let (mut seen, mut since) = (0, Instant::now());
        while !self.is_closed() {
            match left {
                Some(left) => self.background.park_timeout(left),
                None => self.background.park(),
            }
            // Before the look: who has something later sets it again.
            self.alarm.store(NEVER, Ordering::Release);
            let others_care = || {
                self.wanting.load(Ordering::Relaxed) != 0
                    || self.watchers.load(Ordering::Relaxed) != 0
            };
            let is_over = |engine: &Engine| {
                !engine.has_backlog() && engine.next_look().is_none() || others_care()
            };
            // If another thread has it, it sets the alarm when it leaves, if there is need.
            left = None;
            let Some(mut engine) = self.engine.hold() else { continue };
            if engine.next_deadline().is_some_and(|due| due.is_zero()) {
                engine.expire();
            }
            if std::mem::replace(&mut seen, engine.first.completions())
                != engine.first.completions()
            {
                since = Instant::now();
            } else if engine.has_backlog() && since.elapsed() >= WATCH {
                engine.first.stalled();
            }
            let has_backlog = engine.has_backlog();
            left = self.drive(engine, is_over, None).look;
            if has_backlog && !others_care() {
                left = Some(left.map_or(WATCH, |left| left.min(WATCH)));
            }
            if let Some(left) = left {
                self.alarm.fetch_min(self.time_in(left), Ordering::AcqRel);
            }
        }
    }

    /// Ends everything: what the device runs is stopped after a while, host functions that run are
    /// waited for, those behind them cancelled.
    pub(super) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Whoever schedules does it at once, and lets go.
        self.request(Request::CancelAll);
        let mut engine = self.engine.hold_next();
        engine.close();
        // In real time: an injected clock may stand still, and this must end.
        let clock = SystemClock::default();
        let mut deadline = Deadline::after(&clock, self.limits.grace);
        let mut is_aborted = false;
        loop {
            while self.turn(&mut engine) {}
            if !engine.is_busy() {
                break;
            }
            if deadline.has_passed(&clock) {
                if is_aborted {
                    let (device, has) = (self.device(), engine.describe());
                    tracing::warn!(
                        device = device.as_deref(),
                        has,
                        "closing without what the device has"
                    );
                    break;
                }
                is_aborted = true;
                engine.cut_all(Cut::Deadline(self.limits.grace));
                deadline = Deadline::after(&clock, self.limits.abort);
            }
            let left = deadline.left(&clock).min(engine.next_look().unwrap_or(Duration::MAX));
            self.engine.sleep(&mut engine, Some(left), |engine| self.turn(engine));
        }
        let workers = engine.first.dismiss();
        self.settle(self.leave(engine));
        let done = workers.wait();
        let mut engine = self.engine.hold_next();
        engine.bury(done);
        self.settle(self.leave(engine));
        self.background.unpark();
    }
}

/// What is left to do for a thread that has scheduled, when it holds no lock.
#[derive(Default)]
#[must_use = "callbacks that are not called are lost"]
struct After {
    callbacks: Vec<Continuations<Arc<Outcome>>>,
    has_backlog: bool,
    /// How soon something has to be looked at that does not ring.
    look: Option<Duration>,
}

impl After {
    /// Has the background thread look soon at tasks that no worker has got.
    fn watch_backlog(&mut self) {
        if self.has_backlog {
            self.look = Some(self.look.map_or(WATCH, |look| look.min(WATCH)));
        }
    }
}

/// How a thread has stopped scheduling.
#[derive(Default)]
struct Left {
    /// It leaves it to workers, which go on.
    steps_aside: bool,
    /// They use all processors.
    is_crowded: bool,
    /// For the background thread: how soon to look.
    look: Option<Duration>,
}

/// What a device can tell of a graph before it is launched.
pub(super) trait Check: Send + Sync {
    /// What errors call the device.
    fn device(&self) -> Arc<str>;

    /// Checks that the device can run it, and says where.
    fn check(&self, graph: &Graph) -> Result<Route, RunError>;
}

/// What a task runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Kernel,
}

/// Checks that there are enough workers for parts of such tasks that are to start together.
pub(super) fn start_together(graph: &Graph, workers: u32, kind: Kind) -> Result<(), RunError> {
    let view = graph.view();
    for (task, parts) in view.all_parts().filter(|(task, _)| view.starts_together(*task)) {
        let is_it = match view.work(task) {
            Work::Host(_) => kind == Kind::Host,
            _ => kind == Kind::Kernel,
        };
        let allowed = view.core_set(task).map_or(workers, |cores| {
            count(cores.iter().filter(|worker| *worker < workers).count())
        });
        if is_it && parts > allowed {
            let task = TaskId::from_index(task);
            return Err(RunError::TooManyParts { task, parts, workers: allowed });
        }
    }
    Ok(())
}

impl Pool {
    /// Checks what would otherwise fail while the graph runs, and says where its tasks go.
    fn check(&self, graph: &Graph) -> Result<Route, RunError> {
        let view = graph.view();
        let tasks = count(view.len());
        let mut route = Route::HOST;
        let condition = view.device_condition();
        if view.has_kernels() || view.has_copies() || condition.is_some() {
            let Some(check) = &self.check else {
                let needs = |task: &u32| !matches!(view.work(*task), Work::Host(_));
                let task = (0..tasks).find(needs).or(condition).unwrap_or(0);
                return Err(RunError::NeedsDevice { task: TaskId::from_index(task) });
            };
            route = check.check(graph)?;
        }
        start_together(graph, self.limit, Kind::Host)?;
        for (number, cores) in view.core_sets().iter().enumerate() {
            if cores.iter().any(|worker| worker < self.limit) {
                continue;
            }
            let number = u32::try_from(number).ok();
            let is_it = |task: &u32| {
                view.core_set_number(*task) == number && matches!(view.work(*task), Work::Host(_))
            };
            if let Some(task) = (0..tasks).find(is_it) {
                return Err(RunError::NoSuchWorker {
                    task: TaskId::from_index(task),
                    cores: cores.to_string(),
                    workers: self.limit,
                });
            }
        }
        Ok(route)
    }
}

#[cfg(test)]
mod tests;
