//! The threads with a scheduler that does what the test says.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::executor::RunOptions;
use crate::executor::run::{Route, RunShared};
use crate::graph::{GraphBuilder, Task};

#[derive(Debug, Default)]
struct ManualClock(Mutex<Duration>);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

struct NoDesk;

impl Desk for NoDesk {
    fn notify(&self) {}
    fn picked_up(&self) {}
}

struct Rig {
    host: HostThreads<NoDesk>,
    run: Arc<RunShared>,
    _desk: Arc<NoDesk>,
}

impl Rig {
    /// With `workers` threads and a run of `tasks` tasks that do the same.
    fn new(workers: u32, tasks: u32, function: impl Fn(u32, bool) + Send + Sync + 'static) -> Self {
        let mut builder = GraphBuilder::new();
        let function = builder.function(move |task| {
            function(count(task.task().index()), task.is_cancelled());
            Ok(())
        });
        for _ in 0..tasks {
            builder.add(Task::new(function)).unwrap();
        }
        let graph = builder.build().unwrap();
        let options = RunOptions::new();
        let run =
            RunShared::new(RunId(7), (Route::HOST, None), graph, (options, None), Duration::ZERO);
        let runs = Arc::new(Runs::default());
        runs.set(0, Some(Arc::clone(&run)));
        let desk = Arc::new(NoDesk);
        let threads = Threads {
            name: "test".into(),
            limit: workers,
            spins: 10,
            processors: 2,
            start_limit: Duration::from_secs(1),
        };
        let clock = Arc::new(ManualClock::default());
        let host = HostThreads::new(Arc::downgrade(&desk), runs, clock, threads);
        Self { host, run, _desk: desk }
    }

    fn task(&self, index: u32) -> TaskRef {
        TaskRef { run: self.run.number, slot: 0, unit: index }
    }

    fn offer(&mut self, index: u32) -> Offer {
        let task = self.task(index);
        self.host.offer(Unit { run: &self.run, task, cores: None })
    }

    /// Offers until it is taken, and collects what ends meanwhile; returns who has it.
    fn hand(&mut self, index: u32, done: &mut Done) -> WorkerId {
        loop {
            if let Offer::Taken { worker, .. } = self.offer(index) {
                self.host.settle(0);
                return worker;
            }
            self.host.settle(1);
            self.host.poll(done);
            std::thread::yield_now();
        }
    }
}

#[test]
fn each_task_comes_back_once() {
    let ran = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&ran);
    let mut rig = Rig::new(2, 200, move |_, _| {
        its.fetch_add(1, Ordering::Relaxed);
    });
    let mut done = Done::default();
    for task in 0..200 {
        rig.hand(task, &mut done);
    }
    while rig.host.is_busy() {
        rig.host.poll(&mut done);
        std::thread::yield_now();
    }
    let mut complete: Vec<u32> = done.complete.iter().map(|task| task.unit).collect();
    complete.sort_unstable();
    assert_eq!(complete, (0..200).collect::<Vec<_>>());
    assert!(done.ended.is_empty());
    assert_eq!((ran.load(Ordering::Relaxed), rig.host.completions()), (200, 200));
    assert!(rig.host.dismiss().wait().is_empty());
}

#[test]
fn a_worker_that_is_given_up_gives_its_tasks_back_once() {
    let is_over = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_over);
    let mut rig = Rig::new(1, 2, move |_, _| {
        while !its.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let mut done = Done::default();
    rig.hand(0, &mut done);
    // With one worker the second task is staged behind the first.
    assert!(matches!(rig.offer(1), Offer::Taken { is_staged: true, .. }));
    rig.host.abort(RunId(8), Cut::Deadline(Duration::ZERO));
    rig.host.abort(rig.run.number, Cut::Cancelled);
    assert!(!rig.host.poll(&mut done) && done.is_empty(), "neither late nor done");
    rig.host.abort(rig.run.number, Cut::Deadline(Duration::from_secs(3)));
    assert!(rig.host.poll(&mut done));
    let is_late = |ending: &Ending| match &ending.how {
        Ended::Failed(failure) => {
            matches!(**failure, TaskFailure::Deadline { worker: Some(0), .. })
        }
        _ => false,
    };
    assert!(done.ended.len() == 2 && done.ended.iter().all(is_late), "{:?}", done.ended);
    is_over.store(true, Ordering::Release);
    // The worker completes its task, and nothing is said of it any more; another one takes its
    // place.
    let mut done = Done::default();
    rig.hand(0, &mut done);
    while rig.host.is_busy() {
        rig.host.poll(&mut done);
        std::thread::yield_now();
    }
    assert_eq!((done.complete.len(), done.ended.len()), (1, 0));
    rig.host.dismiss().wait();
}

/// What is known after tasks that took so long.
fn pace_of(task: Duration) -> Pace {
    let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
    for _ in 0..2 {
        now += task;
        pace.completion(1, || now);
    }
    pace
}

const SHORT: Duration = Duration::from_nanos(200);
const LONG: Duration = Duration::from_micros(50);

/// Tasks that are over when their flag says so.
fn flagged<const TASKS: usize>() -> (Arc<[AtomicBool; TASKS]>, Rig) {
    let flags = Arc::new([const { AtomicBool::new(false) }; TASKS]);
    let its = Arc::clone(&flags);
    let rig = Rig::new(2, count(TASKS), move |task, _| {
        while !its[task as usize].load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    (flags, rig)
}

impl Rig {
    /// Lets a second worker be used, and has it take a task.
    fn widen_for(&mut self, index: u32, done: &mut Done) -> WorkerId {
        self.host.settle(1);
        self.host.stalled();
        self.hand(index, done)
    }

    /// Waits until as many tasks are complete.
    fn collect(&mut self, number: u64, done: &mut Done) {
        while self.host.completions() < number {
            self.host.poll(done);
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_task_waits_for_a_worker_that_is_free_rather_than_behind_a_task_of_unknown_length() {
    let (flags, mut rig) = flagged::<3>();
    let mut done = Done::default();
    rig.hand(0, &mut done);
    let second = rig.widen_for(1, &mut done);
    assert!(matches!(rig.offer(2), Offer::Full), "both workers have a task");
    flags[1].store(true, Ordering::Release);
    rig.collect(1, &mut done);
    let offer = rig.offer(2);
    assert!(matches!(offer, Offer::Taken { worker, is_staged: false } if worker == second));
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.host.settle(0);
    rig.collect(3, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn nothing_is_staged_behind_a_task_that_takes_longer_than_the_others() {
    const TASKS: usize = 42;
    let (flags, mut rig) = flagged::<TASKS>();
    let mut done = Done::default();
    let last = TASKS - 2;
    flags[1..last].iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.hand(0, &mut done);
    let second = rig.widen_for(1, &mut done);
    for index in 2..=count(last) {
        rig.collect(u64::from(index) - 1, &mut done);
        rig.host.widen_to(2);
        rig.hand(index, &mut done);
    }
    rig.host.pace = pace_of(SHORT);
    let offer = rig.offer(count(last + 1));
    assert!(matches!(offer, Offer::Taken { worker, is_staged: true } if worker == second));
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.host.dismiss().wait();
}

#[test]
fn short_tasks_are_staged_at_whoever_has_begun_since_the_last_completion() {
    let (flags, mut rig) = flagged::<6>();
    let mut done = Done::default();
    flags[0].store(true, Ordering::Release);
    rig.hand(0, &mut done);
    rig.collect(1, &mut done);
    let workers = [rig.hand(1, &mut done), rig.widen_for(2, &mut done)];
    rig.host.pace = pace_of(SHORT);
    let is_staged =
        |offer, at| matches!(offer, Offer::Taken { worker, is_staged: true } if worker == at);
    assert!(is_staged(rig.offer(3), workers[0]) && is_staged(rig.offer(4), workers[1]));
    assert!(matches!(rig.offer(5), Offer::Full), "one is staged at each");
    flags[1].store(true, Ordering::Release);
    rig.host.settle(1);
    rig.collect(2, &mut done);
    rig.host.pace = pace_of(SHORT);
    assert!(is_staged(rig.offer(5), workers[0]), "it has begun with the next");
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.host.settle(0);
    rig.collect(6, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn workers_need_no_other_thread_unless_tasks_wait_for_one_more_of_them() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    rig.hand(0, &mut done);
    assert!(!rig.host.runs_itself(), "nothing is known of how long tasks take");
    rig.host.pace = pace_of(LONG);
    assert!(rig.host.runs_itself());
    rig.host.waiting = 1;
    assert!(!rig.host.runs_itself(), "one waits that another worker can run");
    rig.host.pace = pace_of(SHORT);
    assert!(rig.host.runs_itself(), "it is not worth another worker");
    rig.host.pace = pace_of(LONG);
    rig.widen_for(1, &mut done);
    rig.host.pace = pace_of(LONG);
    rig.host.waiting = 1;
    assert!(rig.host.runs_itself(), "there is no other worker");
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}

#[test]
fn what_only_one_worker_may_run_is_staged_at_it() {
    let (flags, mut rig) = flagged::<2>();
    let mut done = Done::default();
    let cores = CoreSet::of([1, 7]);
    let (first, second) = (rig.task(0), rig.task(1));
    let run = Arc::clone(&rig.run);
    let offer = |rig: &mut Rig, task| rig.host.offer(Unit { run: &run, task, cores: Some(&cores) });
    while matches!(offer(&mut rig, first), Offer::Full) {
        rig.host.settle(1);
        rig.host.poll(&mut done);
        std::thread::yield_now();
    }
    assert!(matches!(
        offer(&mut rig, second),
        Offer::Taken { worker: WorkerId(1), is_staged: true }
    ));
    flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
    rig.host.settle(0);
    rig.collect(2, &mut done);
    rig.host.dismiss().wait();
}
