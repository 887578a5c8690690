//! Host threads as a place for tasks.
//!
//! How many of them are in use at a time is the *width*. It starts with one and grows while tasks
//! wait that are not short, because to wake a thread takes some microseconds. Tasks that are short
//! stay with one worker, which does them as fast as they are handed out.

mod pace;
mod worker;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use pace::Pace;
use worker::WorkerSlot;

use super::TaskFailure;
use super::ids::{RunId, TaskRef, WorkerId, count};
use super::outcome::Cut;
use super::place::{Done, Ended, Ending, Offer, Place, Room, Unit};
use super::run::Runs;
use crate::clock::Clock;
use crate::graph::CoreSet;

/// Looks without a completion, while tasks wait and nothing is known of how long they take, that
/// make one more worker worth its wake-up.
const WIDEN_AT: u32 = 600;
/// Work that has to wait to be worth the wake-up of one more worker. It may be that short because a
/// worker that comes late loses it to who would have done it otherwise.
const WORTH: Duration = Duration::from_micros(6);

/// Whom the workers tell what they do.
pub(super) trait Desk: Send + Sync + 'static {
    /// A worker has come, or has completed a task, or has left.
    fn notify(&self);

    /// A worker has taken a task.
    fn picked_up(&self);
}

/// What a pool of threads is like.
#[derive(Clone, Debug)]
pub(super) struct Threads {
    pub(super) name: String,
    /// Most workers.
    pub(super) limit: u32,
    /// Looks before a worker sleeps.
    pub(super) spins: u32,
    /// Threads that can run at the same time.
    pub(super) processors: u32,
    /// How long a new thread may take to announce itself.
    pub(super) start_limit: Duration,
}

/// A thread that has not announced itself.
struct Starting {
    worker: WorkerId,
    since: Duration,
}

pub(super) struct HostThreads<D> {
    desk: Weak<D>,
    runs: Arc<Runs>,
    clock: Arc<dyn Clock>,
    threads: Threads,
    workers: Vec<WorkerSlot>,
    starting: Vec<Starting>,
    /// Workers with tasks.
    busy: Vec<WorkerId>,
    /// Workers without, the one used last at the end.
    idle: Vec<WorkerId>,
    /// Those from whom all tasks were taken back, and who have not come to see that.
    away: Vec<WorkerId>,
    /// Those that were given up and have not left yet.
    lost: Vec<WorkerId>,
    /// Those of them that tasks wait for, because no other worker may run these.
    missed: Vec<WorkerId>,
    /// The worker for which there was no thread in this turn, and why.
    no_thread: Option<(WorkerId, io::Error)>,
    #[cfg(test)]
    has_no_threads: bool,
    /// Got a task in this turn and may sleep.
    woken: Vec<WorkerId>,
    /// Workers that may be in use at a time.
    width: usize,
    /// There may be room that no completion has made.
    must_offer: bool,
    /// Nothing has come back for long: what no worker has begun goes to others, if there are any.
    must_spread: bool,
    pace: Pace,
    /// Tasks that found no room in this turn.
    waiting: usize,
    /// Looks that found nothing while tasks were waiting.
    idle_looks: u32,
    completions: u64,
    /// Taken back because of a deadline of another run, and to be given to another worker.
    displaced: Vec<TaskRef>,
    /// To be told at the next poll.
    news: Done,
}

impl<D: Desk> HostThreads<D> {
    pub(super) fn new(
        desk: Weak<D>,
        runs: Arc<Runs>,
        clock: Arc<dyn Clock>,
        threads: Threads,
    ) -> Self {
        Self {
            desk,
            runs,
            clock,
            threads,
            workers: Vec::new(),
            starting: Vec::new(),
            busy: Vec::new(),
            idle: Vec::new(),
            away: Vec::new(),
            lost: Vec::new(),
            missed: Vec::new(),
            no_thread: None,
            #[cfg(test)]
            has_no_threads: false,
            woken: Vec::new(),
            width: 1,
            must_offer: false,
            must_spread: false,
            pace: Pace::new(),
            waiting: 0,
            idle_looks: 0,
            completions: 0,
            displaced: Vec::new(),
            news: Done::default(),
        }
    }

    /// Counts completed tasks.
    pub(super) fn completions(&self) -> u64 {
        self.completions
    }

    /// Returns `true` if workers use all processors, so that a thread that only looks would take
    /// one from them.
    pub(super) fn is_crowded(&self) -> bool {
        self.busy.len() >= self.threads.processors as usize && self.starting.is_empty()
    }

    /// Returns `true` if workers that hand themselves the next task do all that is to be done: no
    /// task waits that another worker could run, or one worker is enough.
    pub(super) fn runs_itself(&self) -> bool {
        let has_all = self.waiting == 0 || self.in_use() == self.threads.limit as usize;
        self.is_brisk() || has_all && self.starting.is_empty() && self.pace.task().is_some()
    }

    /// Counts workers that cannot be given a task of their own.
    fn in_use(&self) -> usize {
        self.busy.len() + self.away.len()
    }

    /// Nothing has come back for long: what is known of the time that tasks take is of no use, and
    /// more workers than processors may be, because tasks that say nothing for so long may not be
    /// using theirs. What has not begun is spread over them.
    pub(super) fn stalled(&mut self) {
        // If there is no other worker, this one has lost its processor, or goes on as before.
        let has_not_begun =
            |worker: &&WorkerId| self.workers[worker.at()].first_waiting().is_some();
        let not_begun = self.busy.iter().filter(has_not_begun).count();
        let waiting = self.waiting + not_begun;
        if waiting != 0 && self.in_use() < self.threads.limit as usize {
            self.pace = Pace::new();
            self.widen_to(self.busy.len() + waiting);
            self.must_spread |= not_begun != 0;
        }
    }

    /// Lets all workers be used that have tasks to run, because the scheduler is about to sleep.
    /// Returns `true` if that changed anything.
    ///
    /// If tasks are short, the worker has probably lost its processor, and more workers would not
    /// help.
    pub(super) fn widen(&mut self) -> bool {
        self.waiting != 0 && !self.pace.is_short() && self.widen_to(self.busy.len() + self.waiting)
    }

    fn widen_to(&mut self, width: usize) -> bool {
        let width = width.min(self.threads.limit as usize);
        let grows = width > self.width;
        self.width = self.width.max(width);
        self.must_offer |= grows;
        grows
    }

    /// Opens the cells of new workers.
    fn welcome(&mut self) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(&Starting { worker, since }) = self.starting.get(at) {
            if self.workers[worker.at()].open() {
                self.starting.swap_remove(at);
                self.idle.push(worker);
                progress = true;
            } else if self.clock.now().saturating_sub(since) > self.threads.start_limit {
                // It is told to leave when it comes after all; another one will be started.
                self.starting.swap_remove(at);
                self.workers[worker.at()].leave(true);
                self.lost.push(worker);
                progress = true;
                tracing::warn!(%worker, "worker has not announced itself");
            } else {
                at += 1;
            }
        }
        progress
    }

    /// Takes completions.
    #[inline]
    fn collect(&mut self, done: &mut Done) -> bool {
        let mut progress = false;
        let mut has_come = None;
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let it = &mut self.workers[worker.at()];
            let mut is_back = false;
            while let Some((task, is_success)) = it.poll() {
                is_back = true;
                done.end(task, is_success);
                self.pace.completion(self.busy.len(), real_time);
                self.completions += 1;
            }
            progress |= is_back;
            let next = it.holds().next();
            if let Some(next) = next {
                if is_back {
                    done.started.push(next);
                }
                at += 1;
            } else {
                self.busy.swap_remove(at);
                if it.outstanding() == 0 {
                    self.idle.push(worker);
                    has_come = Some(worker);
                } else {
                    self.away.push(worker);
                }
            }
        }
        let mut at = 0;
        while let Some(&worker) = self.away.get(at) {
            let it = &mut self.workers[worker.at()];
            let none = it.poll();
            debug_assert!(none.is_none(), "it has no task");
            if it.outstanding() == 0 {
                self.away.swap_remove(at);
                self.idle.push(worker);
                has_come = Some(worker);
                progress = true;
            } else {
                at += 1;
            }
        }
        // A worker that has come has a processor. One that has not begun may have to wait for its.
        if let Some(worker) = has_come
            && !self.busy.is_empty()
            && !self.pace.is_short()
        {
            self.take_over(worker, done);
        }
        if progress {
            self.idle_looks = 0;
            if self.width > 1 && self.pace.is_short() {
                self.width = 1;
            }
        }
        progress
    }

    /// Gives a worker that is idle a task that another one has and has not begun.
    fn take_over(&mut self, worker: WorkerId, done: &mut Done) -> bool {
        for at in 0..self.busy.len() {
            let from = self.busy[at];
            let Some(waiting) = self.workers[from.at()].first_waiting() else { continue };
            if !self.may_move(waiting.task, worker) {
                continue;
            }
            let Some(task) = self.workers[from.at()].take_back(waiting) else { continue };
            if self.workers[from.at()].holds().next().is_none() {
                self.busy.swap_remove(at);
                self.away.push(from);
            }
            self.idle.retain(|idle| *idle != worker);
            self.busy.push(worker);
            self.hand_to(worker, task);
            done.moved.push((task, worker));
            return true;
        }
        false
    }

    /// Returns `true` if this worker may run a task instead of the one that has it. Parts that
    /// start together stay with those that were free for them.
    fn may_move(&self, task: TaskRef, worker: WorkerId) -> bool {
        let Some(run) = self.runs.get(task.slot, task.run) else { return false };
        let view = run.graph.view();
        let of = view.unit(task.unit).task;
        !view.starts_together(of) && view.core_set(of).is_none_or(|cores| cores.contains(worker.0))
    }

    /// Gives a task that was taken back to any worker that may run it.
    fn hand_on(&mut self, task: TaskRef, done: &mut Done) -> bool {
        let Some(run) = self.runs.get(task.slot, task.run) else { return true };
        let view = run.graph.view();
        let worker = match view.core_set(view.unit(task.unit).task) {
            None => self.choose(),
            Some(cores) => self.choose_of(cores),
        };
        let Some(worker) = worker else { return false };
        self.hand_to(worker, task);
        done.moved.push((task, worker));
        true
    }

    /// What no worker has begun goes to idle ones, or to new ones. Returns `true` if anything does.
    fn spread(&mut self, done: &mut Done) -> bool {
        let mut progress = false;
        while let Some(&worker) = self.idle.last()
            && self.take_over(worker, done)
        {
            progress = true;
        }
        let has_more = |worker: &WorkerId| self.workers[worker.at()].first_waiting().is_some();
        self.must_spread = self.idle.is_empty() && self.busy.iter().any(has_more);
        if self.must_spread && self.starting.is_empty() && self.busy.len() < self.width {
            self.start_worker();
        }
        self.must_spread &= !self.starting.is_empty();
        progress
    }

    fn hand_to(&mut self, worker: WorkerId, task: TaskRef) -> bool {
        let is_handed = self.workers[worker.at()].dispatch(task);
        debug_assert!(is_handed, "a worker without room was chosen");
        if self.woken.last() != Some(&worker) {
            self.woken.push(worker);
        }
        is_handed
    }

    /// Finds a worker for a task: the idle one used last if one more may be in use, else one that
    /// has a single task.
    ///
    /// A task is staged behind another one only if tasks are short: another worker may come sooner.
    #[inline]
    fn choose(&mut self) -> Option<WorkerId> {
        if self.busy.len() < self.width {
            if let Some(worker) = self.idle.pop() {
                self.busy.push(worker);
                return Some(worker);
            }
            if self.busy.len() + self.starting.len() < self.width {
                self.start_worker();
            }
        }
        self.with_room(None)
    }

    /// Finds a worker at which a task may be staged: one whose own will be complete soon, as far as
    /// is known, or the only one that may run it.
    fn with_room(&self, cores: Option<&CoreSet>) -> Option<WorkerId> {
        let limit = self.threads.limit;
        let allowed = cores.map_or(limit as usize, |cores| {
            cores.iter().take_while(|core| *core < limit).take(2).count()
        });
        if allowed != 1 && !self.pace.is_short() {
            return None;
        }
        self.busy.iter().copied().find(|&worker| {
            let its = &self.workers[worker.at()];
            cores.is_none_or(|cores| cores.contains(worker.0)) && its.outstanding() == 1
        })
    }

    /// Makes as many workers idle as there are to be, as far as that is possible: starts them, and
    /// lets them be used. Returns `true` if they are.
    fn gather(&mut self, parts: usize, cores: Option<&CoreSet>) -> bool {
        let allowed = |worker: WorkerId| cores.is_none_or(|cores| cores.contains(worker.0));
        let limit = self.threads.limit as usize;
        // Workers are started in order; of a set all up to the last one that is needed.
        let wanted = cores.map_or(parts, |cores| {
            cores.iter().nth(parts - 1).map_or(limit, |last| last as usize + 1)
        });
        let idle = |host: &Self| host.idle.iter().filter(|worker| allowed(**worker)).count();
        if let Some(cores) = cores {
            while idle(self) < parts && self.replace_lost(cores) {}
        }
        // Of a set no other worker can take the place of one that is lost.
        let number = |host: &Self| match cores {
            Some(_) => host.workers.len(),
            None => host.workers.len() - host.lost.len(),
        };
        while number(self) < wanted.min(limit) {
            let before = (self.workers.len(), self.lost.len());
            self.start_worker();
            if (self.workers.len(), self.lost.len()) == before {
                break;
            }
        }
        if idle(self) < parts {
            return false;
        }
        // Not `must_offer`: they are offered now.
        self.width = self.width.max(self.busy.len() + parts);
        true
    }

    /// Tasks that may run on some workers only wait for these, whatever the width.
    fn choose_of(&mut self, cores: &CoreSet) -> Option<WorkerId> {
        // Workers are started in order, so all up to the first allowed one must exist.
        let wanted = cores.iter().next().unwrap_or(0) as usize;
        while self.workers.len() <= wanted && self.workers.len() < self.threads.limit as usize {
            let before = self.workers.len();
            self.start_worker();
            if self.workers.len() == before {
                break;
            }
        }
        match self.idle.iter().rposition(|&worker| cores.contains(worker.0)) {
            Some(place) => {
                let worker = self.idle.remove(place);
                self.busy.push(worker);
                Some(worker)
            }
            None => {
                self.replace_lost(cores);
                self.with_room(Some(cores))
            }
        }
    }

    /// Starts another thread for one of these workers that was given up, if it has left. Returns
    /// `true` if one is started.
    fn replace_lost(&mut self, cores: &CoreSet) -> bool {
        let is_wanted = |worker: &WorkerId| cores.contains(worker.0);
        let has_left =
            |worker: &WorkerId| is_wanted(worker) && self.workers[worker.at()].has_left();
        let Some(worker) = self.lost.iter().copied().find(has_left) else {
            for &worker in self.lost.iter().filter(|worker| is_wanted(worker)) {
                if !self.missed.contains(&worker) {
                    self.missed.push(worker);
                }
            }
            return false;
        };
        if !self.make_place() {
            return false;
        }
        self.lost.retain(|lost| *lost != worker);
        self.start(worker)
    }

    /// Returns `true` if there may be one more thread. One that was started in place of another
    /// and has nothing to do makes place for that.
    fn make_place(&mut self) -> bool {
        let limit = self.threads.limit;
        if self.workers.len() - self.lost.len() < limit as usize {
            return true;
        }
        let Some(at) = self.idle.iter().position(|worker| worker.0 >= limit) else { return false };
        let worker = self.idle.remove(at);
        self.workers[worker.at()].leave(false);
        self.lost.push(worker);
        true
    }

    /// Starts a thread, unless there are enough.
    fn start_worker(&mut self) {
        let in_use = self.workers.len() - self.lost.len();
        let worker = match self.free_lost() {
            Some(worker) => worker,
            None if in_use < self.threads.limit as usize => WorkerId(count(self.workers.len())),
            None => return,
        };
        self.start(worker);
    }

    /// Starts the thread of a worker that has none.
    fn start(&mut self, worker: WorkerId) -> bool {
        match self.spawn(worker) {
            Ok(slot) => {
                match self.workers.get_mut(worker.at()) {
                    Some(place) => *place = slot,
                    None => self.workers.push(slot),
                }
                self.starting.push(Starting { worker, since: self.clock.now() });
                true
            }
            Err(error) => {
                if worker.at() < self.workers.len() {
                    self.lost.push(worker);
                }
                tracing::warn!(%error, "no thread for a worker");
                self.no_thread = Some((worker, error));
                false
            }
        }
    }

    fn spawn(&self, worker: WorkerId) -> io::Result<WorkerSlot> {
        #[cfg(test)]
        if self.has_no_threads {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Threads { name, spins, .. } = &self.threads;
        WorkerSlot::start(&self.desk, &self.runs, name, worker, *spins)
    }

    /// Why a task that found no worker cannot have one: there is no thread, and no worker at work
    /// whose end would be the time for another try.
    #[inline]
    fn lack(&mut self) -> Option<Box<TaskFailure>> {
        let (worker, error) = self.no_thread.as_ref()?;
        let why = format!("no thread: {error}");
        let is_alone = self.in_use() == 0 && self.starting.is_empty();
        is_alone.then(|| Box::new(TaskFailure::WorkerLost { worker: worker.0, why }))
    }

    /// A worker that was given up and has left at last. Its thread is not waited for: it may be the
    /// one that schedules, because it tells that it has left.
    fn free_lost(&mut self) -> Option<WorkerId> {
        let at = self.lost.iter().position(|worker| self.workers[worker.at()].has_left())?;
        Some(self.lost.swap_remove(at))
    }

    /// Tells all workers to leave, and gives back those whose threads are to be waited for.
    pub(super) fn dismiss(&mut self) -> Departure {
        let lost = std::mem::take(&mut self.lost);
        let mut leaving = Vec::new();
        for (index, mut worker) in self.workers.drain(..).enumerate() {
            // A thread whose task never ends is not waited for; it ends with its task, or with the
            // process.
            if !lost.contains(&WorkerId(count(index))) {
                worker.leave(false);
                leaving.push(worker);
            }
        }
        self.starting.clear();
        for workers in [&mut self.missed, &mut self.busy, &mut self.idle, &mut self.away] {
            workers.clear();
        }
        Departure(leaving)
    }
}

/// Workers that were told to leave.
pub(super) struct Departure(Vec<WorkerSlot>);

impl Departure {
    /// Waits until they have, and returns what they completed before.
    pub(super) fn wait(mut self) -> Done {
        let mut done = Done::default();
        for worker in &mut self.0 {
            worker.join();
            while let Some((task, is_success)) = worker.poll() {
                done.end(task, is_success);
            }
        }
        done
    }
}

/// Of the system, not the injected one: it is the processor's time that matters here.
fn real_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

impl<D: Desk> Place for HostThreads<D> {
    #[inline]
    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        let worker = match unit.cores {
            None => self.choose(),
            Some(cores) => self.choose_of(cores),
        };
        let Some(worker) = worker else { return self.lack().map_or(Offer::Full, Offer::Failed) };
        let is_staged = self.workers[worker.at()].outstanding() != 0;
        if self.hand_to(worker, unit.task) {
            Offer::Taken { worker, is_staged }
        } else {
            Offer::Full
        }
    }

    fn room_for(&mut self, first: Unit<'_>, parts: u32) -> Room {
        if self.gather(parts as usize, first.cores) {
            return Room::Now;
        }
        self.lack().map_or(Room::Later, Room::Never)
    }

    #[inline]
    fn settle(&mut self, waiting: usize) -> bool {
        self.waiting = waiting;
        for worker in self.woken.drain(..) {
            self.workers[worker.at()].wake();
        }
        if self.busy.is_empty() {
            self.pace.pause();
        }
        if waiting == 0 || self.pace.is_short() {
            return false;
        }
        // As many as there are processors, if what waits takes longer than a wake-up.
        let Some(task) = self.pace.task() else { return false };
        let most = (self.threads.processors as usize).min(self.busy.len() + waiting);
        task.saturating_mul(count(waiting)) >= WORTH && self.widen_to(most)
    }

    #[inline]
    fn poll(&mut self, done: &mut Done) -> bool {
        let mut progress = !self.news.is_empty() || self.must_offer;
        self.no_thread = None;
        if progress {
            self.must_offer = false;
            done.append(&mut self.news);
        }
        if !self.starting.is_empty() {
            progress |= self.welcome();
        }
        progress |= self.collect(done);
        if self.missed.iter().any(|worker| self.workers[worker.at()].has_left()) {
            self.missed.clear();
            progress = true;
        }
        if self.must_spread {
            progress |= self.spread(done);
        }
        while let Some(&task) = self.displaced.last()
            && self.hand_on(task, done)
        {
            self.displaced.pop();
            progress = true;
        }
        if !progress && self.waiting != 0 && self.pace.task().is_none() {
            self.idle_looks += 1;
            if self.idle_looks >= WIDEN_AT {
                self.idle_looks = 0;
                progress = self.busy.len() < self.threads.processors as usize
                    && self.widen_to(self.width + 1);
            }
        }
        progress
    }

    /// Takes back what has not begun of a run whose deadline has passed, and gives up on workers
    /// that run tasks of it: a host function cannot be stopped.
    fn abort(&mut self, run: RunId, why: Cut) {
        let Cut::Deadline(after) = why else { return };
        let mut done = Done::default();
        self.collect(&mut done);
        self.news.append(&mut done);
        let mut late = Vec::new();
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let its = &mut self.workers[worker.at()];
            if !its.holds().any(|task| task.run == run) {
                at += 1;
                continue;
            }
            // Those of other runs, too: they are begun in order.
            let mut taken = Vec::new();
            while let Some(waiting) = its.first_waiting() {
                taken.extend(its.take_back(waiting));
            }
            let is_late = |task: &TaskRef| task.run == run;
            let (mut ended, mut others): (Vec<_>, _) = taken.into_iter().partition(is_late);
            self.displaced.append(&mut others);
            let running = its.holds().next();
            match running {
                Some(running) if running.run != run => at += 1,
                Some(running) => {
                    ended.push(running);
                    its.leave(true);
                    self.lost.push(worker);
                    self.busy.swap_remove(at);
                    tracing::warn!(%worker, "worker given up: its task is late and does not end");
                }
                None => {
                    self.away.push(worker);
                    self.busy.swap_remove(at);
                }
            }
            late.extend(ended.into_iter().map(|task| (task, Some(worker.0))));
        }
        late.extend(self.displaced.extract_if(.., |task| task.run == run).map(|task| (task, None)));
        for (task, worker) in late {
            let failure = TaskFailure::Deadline { after, worker };
            self.news.ended.push(Ending::new(task, Ended::failed(failure)));
        }
    }

    fn next_look(&self) -> Option<Duration> {
        // A thread that never announces itself does not notify.
        let first = self.starting.first()?;
        let waited = self.clock.now().saturating_sub(first.since);
        Some(self.threads.start_limit.saturating_sub(waited))
    }

    fn describe(&self, parts: &mut Vec<String>) {
        for &worker in &self.busy {
            for (n, task) in self.workers[worker.at()].holds().enumerate() {
                let what = if n == 0 { "runs" } else { "has staged" };
                if let Some(run) = self.runs.get(task.slot, task.run) {
                    parts.push(format!("worker {worker} {what} {}", run.describe(task.unit)));
                }
            }
        }
        for (number, what) in [
            (self.starting.len(), "threads are starting"),
            (self.away.len(), "workers were passed over"),
            (self.lost.len(), "workers are lost"),
        ] {
            if number != 0 {
                parts.push(format!("{number} {what}"));
            }
        }
    }

    /// One worker does them as fast as they are handed out.
    fn is_brisk(&self) -> bool {
        self.width == 1 && self.starting.is_empty() && self.pace.is_short()
    }

    fn rest(&mut self) {
        self.width = 1;
        self.idle_looks = 0;
        self.pace.pause();
    }

    fn is_busy(&self) -> bool {
        !self.busy.is_empty() || !self.displaced.is_empty() || !self.news.is_empty()
    }
}

#[cfg(test)]
mod tests;
