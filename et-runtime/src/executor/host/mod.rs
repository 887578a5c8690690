//! Host threads as a place for tasks.
//!
//! How many of them are in use at a time is the *width*. It starts with one and grows while tasks
//! wait that are not short, because to wake a thread takes some microseconds. Tasks that are short
//! stay with one worker, which does them as fast as they are handed out.

mod pace;
mod worker;

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
/// Work that has to wait to be worth the wake-up of one more worker.
const WORTH: Duration = Duration::from_micros(20);

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
    /// Those that were given up and have not left yet.
    lost: Vec<WorkerId>,
    /// Got a task in this turn and may sleep.
    woken: Vec<WorkerId>,
    /// Workers that may be in use at a time.
    width: usize,
    /// There may be room that no completion has made.
    must_offer: bool,
    pace: Pace,
    /// Tasks that found no room in this turn.
    waiting: usize,
    /// Looks that found nothing while tasks were waiting.
    idle_looks: u32,
    completions: u64,
    given_up: Done,
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
            lost: Vec::new(),
            woken: Vec::new(),
            width: 1,
            must_offer: false,
            pace: Pace::new(),
            waiting: 0,
            idle_looks: 0,
            completions: 0,
            given_up: Done::default(),
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
        let has_all = self.waiting == 0 || self.busy.len() == self.threads.limit as usize;
        self.is_brisk() || has_all && self.starting.is_empty() && self.pace.task().is_some()
    }

    /// Nothing has come back for long: what is known of the time that tasks take is of no use, and
    /// more workers than processors may be, because tasks that say nothing for so long may not be
    /// using theirs.
    pub(super) fn stalled(&mut self) {
        // If there is no other worker, this one has lost its processor, or goes on as before.
        if self.waiting != 0 && self.busy.len() < self.threads.limit as usize {
            self.pace = Pace::new();
            self.widen_to(self.busy.len() + self.waiting);
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
            if is_back {
                it.began_at = self.completions;
            }
            progress |= is_back;
            if it.outstanding() == 0 {
                self.busy.swap_remove(at);
                self.idle.push(worker);
            } else {
                if is_back {
                    done.started.push(it.first());
                }
                at += 1;
            }
        }
        if progress {
            self.idle_looks = 0;
            if self.width > 1 && self.pace.is_short() {
                self.width = 1;
            }
        }
        progress
    }

    /// Finds a worker for a task: the idle one used last if one more may be in use, else one that
    /// has a single task.
    ///
    /// A task is staged behind another one only if tasks are short: it cannot be taken back, and
    /// who knows how long the one before it takes.
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
        // One is not short that lasts while another worker completes its own.
        let is_soon_free = |its: &WorkerSlot| {
            allowed == 1 || self.pace.is_short() && its.began_at == self.completions
        };
        self.busy.iter().copied().find(|&worker| {
            let its = &self.workers[worker.at()];
            cores.is_none_or(|cores| cores.contains(worker.0))
                && its.outstanding() == 1
                && is_soon_free(its)
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
        while self.workers.len() - self.lost.len() < wanted.min(limit) {
            let before = (self.workers.len(), self.lost.len());
            self.start_worker();
            if (self.workers.len(), self.lost.len()) == before {
                break;
            }
        }
        if self.idle.iter().filter(|worker| allowed(**worker)).count() < parts {
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
            None => self.with_room(Some(cores)),
        }
    }

    /// Starts a thread, unless there are enough.
    fn start_worker(&mut self) {
        let in_use = self.workers.len() - self.lost.len();
        let worker = match self.free_lost() {
            Some(worker) => worker,
            None if in_use < self.threads.limit as usize => WorkerId(count(self.workers.len())),
            None => return,
        };
        let Threads { name, spins, .. } = &self.threads;
        match WorkerSlot::start(&self.desk, &self.runs, name, worker, *spins) {
            Ok(slot) => {
                match self.workers.get_mut(worker.at()) {
                    Some(place) => *place = slot,
                    None => self.workers.push(slot),
                }
                self.starting.push(Starting { worker, since: self.clock.now() });
            }
            Err(error) => {
                // Another try may have more luck.
                self.must_offer = true;
                tracing::warn!(%error, "no thread for a worker");
            }
        }
    }

    /// A worker that was given up and has left at last.
    fn free_lost(&mut self) -> Option<WorkerId> {
        let at = self.lost.iter().position(|worker| self.workers[worker.at()].has_left())?;
        let worker = self.lost.swap_remove(at);
        self.workers[worker.at()].join();
        Some(worker)
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
            } else if worker.has_left() {
                worker.join();
            }
        }
        (self.busy, self.idle, self.starting) = (Vec::new(), Vec::new(), Vec::new());
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
        let Some(worker) = worker else { return Offer::Full };
        let host = &mut self.workers[worker.at()];
        let is_staged = host.outstanding() != 0;
        if !is_staged {
            host.began_at = self.completions;
        }
        if !host.dispatch(unit.task) {
            debug_assert!(false, "a worker without room was chosen");
            return Offer::Full;
        }
        if self.woken.last() != Some(&worker) {
            self.woken.push(worker);
        }
        Offer::Taken { worker, is_staged }
    }

    fn room_for(&mut self, first: Unit<'_>, parts: u32) -> Room {
        if self.gather(parts as usize, first.cores) { Room::Now } else { Room::Later }
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
        let mut progress = !self.given_up.is_empty() || self.must_offer;
        if progress {
            self.must_offer = false;
            done.append(&mut self.given_up);
        }
        if !self.starting.is_empty() {
            progress |= self.welcome();
        }
        progress |= self.collect(done);
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

    /// Gives up on workers that have tasks of a run whose deadline has passed. A host function
    /// cannot be stopped.
    fn abort(&mut self, run: RunId, why: Cut) {
        let Cut::Deadline(after) = why else { return };
        let mut done = Done::default();
        self.collect(&mut done);
        self.given_up.append(&mut done);
        let mut at = 0;
        while let Some(&worker) = self.busy.get(at) {
            let held: Vec<TaskRef> = self.workers[worker.at()].holds().collect();
            if !held.iter().any(|task| task.run == run) {
                at += 1;
                continue;
            }
            self.busy.swap_remove(at);
            self.workers[worker.at()].leave(true);
            self.lost.push(worker);
            tracing::warn!(%worker, "worker given up: its task is not complete at the deadline");
            for task in held {
                let failure = if task.run == run {
                    TaskFailure::Deadline { after, worker: Some(worker.0) }
                } else {
                    let why = "a task of another run before it did not end".to_owned();
                    TaskFailure::WorkerLost { worker: worker.0, why }
                };
                self.given_up.ended.push(Ending::new(task, Ended::failed(failure)));
            }
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
        for (number, what) in
            [(self.starting.len(), "threads are starting"), (self.lost.len(), "workers are lost")]
        {
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
        !self.busy.is_empty() || !self.given_up.is_empty()
    }
}

#[cfg(test)]
mod tests;
