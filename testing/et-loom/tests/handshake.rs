//! The handshake of schedulers and workers, on the cells that host threads use.
#![cfg(loom)]

use et_devapi::handshake::{Assignment, Next, Scheduler, Status, Worker, WorkerState};
use et_loom::check;
use et_runtime::handshake::{Combiner, HostCell, Patience};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

const WRAP: u32 = u32::MAX;
/// What a worker says of a task that was taken back.
const TAKEN_BACK: u64 = 99;

/// A cell, and the memory that tasks work on: relaxed, so that only the handshake orders it.
struct Shared {
    cell: HostCell,
    scheduler: Combiner<()>,
    input: [AtomicU64; 2],
    output: [AtomicU64; 2],
    runs: [AtomicU64; 2],
    /// What a task may wait for.
    told: AtomicU64,
}

impl Shared {
    /// A cell whose last task had number `after`.
    fn new(after: u32) -> Arc<Self> {
        let shared = Self {
            cell: HostCell::after(after),
            scheduler: Combiner::new(()),
            input: [AtomicU64::new(0), AtomicU64::new(0)],
            output: [AtomicU64::new(0), AtomicU64::new(0)],
            runs: [AtomicU64::new(0), AtomicU64::new(0)],
            told: AtomicU64::new(0),
        };
        Arc::new(shared)
    }

    fn execute(&self, task: Assignment) -> u64 {
        let index = usize::try_from(task.task).unwrap();
        assert_eq!(task.arg, 10 + task.task, "both words of a slot");
        let input = self.input[index].load(Ordering::Relaxed);
        assert_eq!(input, 20 + task.task, "what the scheduler wrote before");
        self.output[index].store(input + 10, Ordering::Relaxed);
        assert_eq!(self.runs[index].fetch_add(1, Ordering::Relaxed), 0, "each task once");
        40 + task.task
    }

    fn runs(&self) -> u64 {
        self.runs.iter().map(|runs| runs.load(Ordering::Relaxed)).sum()
    }

    /// A worker as the pool runs it.
    fn work(&self, after: u32) {
        let mut worker = Worker::after(after);
        worker.announce(&self.cell, 7).unwrap();
        while let Some(task) = self.cell.wait(&worker, &mut Patience::new(0), || ()) {
            let is_its = self.cell.claim(worker.next_to_complete());
            let outcome = if is_its { self.execute(task) } else { TAKEN_BACK };
            worker.complete(&self.cell, outcome).unwrap();
            self.scheduler.notify(|()| ());
        }
        worker.exit(&self.cell).unwrap();
        self.scheduler.notify(|()| ());
    }

    fn dispatch(&self, scheduler: &mut Scheduler, task: u64) {
        self.input[usize::try_from(task).unwrap()].store(20 + task, Ordering::Relaxed);
        scheduler.dispatch(&self.cell, Assignment { task, arg: 10 + task }).unwrap();
        if scheduler.must_wake(&self.cell).unwrap() {
            self.cell.wake();
        }
    }

    fn open(&self, after: u32) -> Scheduler {
        let mut scheduler = Scheduler::after(after);
        let identity = loop {
            match scheduler.open(&self.cell).unwrap() {
                Some(identity) => break identity,
                // For loom a promise that old values are not seen again, so only where it must be.
                None => thread::yield_now(),
            }
        };
        assert_eq!(identity, 7, "who the worker is");
        scheduler
    }

    /// Takes back the first task that the worker has not begun, and does it.
    fn take_back(&self, scheduler: &Scheduler, tasks: &[u64]) -> bool {
        let Some(number) = self.cell.first_waiting(scheduler) else { return false };
        let is_taken = self.cell.claim(number);
        if is_taken {
            let task = tasks[(number.wrapping_sub(scheduler.next_to_complete())) as usize];
            self.execute(Assignment { task, arg: 10 + task });
        }
        is_taken
    }

    /// Waits for the next completion as a scheduler that sleeps.
    fn take(&self, scheduler: &mut Scheduler, task: u64) {
        let outcome = self.take_outcome(scheduler);
        assert_eq!(outcome, 40 + task, "the outcome of this task");
        let output = self.output[usize::try_from(task).unwrap()].load(Ordering::Relaxed);
        assert_eq!(output, 30 + task, "what the task wrote");
    }

    fn take_outcome(&self, scheduler: &mut Scheduler) -> u64 {
        // A worker that found no one in charge may still hold it.
        let mut held = self.scheduler.hold_next();
        let mut finished = None;
        while finished.is_none() {
            self.scheduler.sleep(&mut held, None, |()| {
                finished = scheduler.poll(&self.cell).unwrap();
                finished.is_some()
            });
        }
        self.scheduler.leave(held, |()| ());
        finished.unwrap().outcome
    }

    fn leave(&self, scheduler: &mut Scheduler, abort: bool) {
        if abort { scheduler.abort(&self.cell) } else { scheduler.quit(&self.cell) }.unwrap();
        if scheduler.must_wake(&self.cell).unwrap() {
            self.cell.wake();
        }
    }
}

/// Starts a worker on a cell after `after`, opens the cell and goes on.
fn with_worker(after: u32, go_on: impl FnOnce(&Shared, &mut Scheduler, thread::JoinHandle<()>)) {
    let shared = Shared::new(after);
    let worker = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.work(after))
    };
    let mut scheduler = shared.open(after);
    go_on(&shared, &mut scheduler, worker);
}

#[test]
fn a_worker_comes_is_greeted_and_leaves() {
    check("start-up", None, || {
        with_worker(0, |shared, scheduler, worker| {
            shared.leave(scheduler, false);
            worker.join().unwrap();
            let gone = Status { state: WorkerState::Exited, completed: 0 };
            assert_eq!(scheduler.status(&shared.cell), Ok(gone));
        });
    });
}

#[test]
fn a_task_is_run_once_and_its_results_arrive() {
    check("dispatch", Some(3), || {
        with_worker(0, |shared, scheduler, worker| {
            shared.dispatch(scheduler, 0);
            shared.take(scheduler, 0);
            shared.leave(scheduler, false);
            worker.join().unwrap();
            assert_eq!(shared.runs(), 1);
        });
    });
}

#[test]
fn a_staged_task_follows_the_running_one() {
    check("staged", Some(2), || {
        with_worker(0, |shared, scheduler, worker| {
            shared.dispatch(scheduler, 0);
            shared.dispatch(scheduler, 1);
            shared.take(scheduler, 0);
            shared.take(scheduler, 1);
            shared.leave(scheduler, false);
            worker.join().unwrap();
            assert_eq!(shared.runs(), 2);
        });
    });
}

/// Numbers go on behind the largest one, and a slot is used again.
#[test]
fn numbers_wrap_around() {
    check("wrap-around", Some(2), || {
        with_worker(WRAP, |shared, scheduler, worker| {
            shared.dispatch(scheduler, 0);
            shared.take(scheduler, 0);
            shared.dispatch(scheduler, 1);
            shared.take(scheduler, 1);
            shared.leave(scheduler, false);
            worker.join().unwrap();
            assert_eq!(shared.runs(), 2);
        });
    });
}

/// With nothing, one task and two outstanding; the worker may be anywhere in any of them.
#[test]
fn quitting_completes_everything_in_every_state() {
    for outstanding in 0..=2 {
        check(&format!("quit-{outstanding}"), Some(2), move || {
            with_worker(WRAP, move |shared, scheduler, worker| {
                for task in 0..outstanding {
                    shared.dispatch(scheduler, task);
                }
                shared.leave(scheduler, false);
                worker.join().unwrap();
                assert_eq!(shared.runs(), outstanding);
                for task in 0..outstanding {
                    shared.take(scheduler, task);
                }
                assert_eq!(scheduler.outstanding(), 0);
            });
        });
    }
}

#[test]
fn aborting_leaves_each_task_whole_or_untouched() {
    for outstanding in 0..=2 {
        check(&format!("abort-{outstanding}"), Some(2), move || {
            with_worker(0, move |shared, scheduler, worker| {
                for task in 0..outstanding {
                    shared.dispatch(scheduler, task);
                }
                shared.leave(scheduler, true);
                worker.join().unwrap();
                let status = scheduler.status(&shared.cell).unwrap();
                assert_eq!(status.state, WorkerState::Exited);
                assert_eq!(shared.runs(), u64::from(status.completed));
                for task in 0..status.completed.into() {
                    shared.take(scheduler, task);
                }
                assert_eq!(scheduler.poll(&shared.cell), Ok(None));
            });
        });
    }
}

/// The scheduler takes back what it can of two tasks while the worker begins with them.
#[test]
fn a_task_is_run_by_the_worker_or_taken_back() {
    check("take-back", Some(2), || {
        with_worker(WRAP, |shared, scheduler, worker| {
            shared.dispatch(scheduler, 0);
            shared.dispatch(scheduler, 1);
            let taken: Vec<_> = (0..2).map(|_| shared.take_back(scheduler, &[0, 1])).collect();
            let left = shared.cell.first_waiting(scheduler);
            shared.leave(scheduler, false);
            let outcomes = [shared.take_outcome(scheduler), shared.take_outcome(scheduler)];
            worker.join().unwrap();
            let given_up = outcomes.iter().filter(|outcome| **outcome == TAKEN_BACK).count();
            assert_eq!(given_up, taken.iter().filter(|is_taken| **is_taken).count());
            assert!(given_up != 2 || left.is_none());
            assert_eq!(shared.runs(), 2);
            assert_eq!((scheduler.outstanding(), shared.cell.first_waiting(scheduler)), (0, None));
        });
    });
}

/// The first task ends after the worker was told to leave, so the second must not begin.
#[test]
fn aborting_stops_before_what_is_staged() {
    check("abort-staged", Some(3), || {
        let shared = Shared::new(0);
        let mut worker = Worker::new();
        worker.announce(&shared.cell, 7).unwrap();
        let mut scheduler = shared.open(0);
        shared.dispatch(&mut scheduler, 0);
        shared.dispatch(&mut scheduler, 1);
        let handle = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // It may have been told before it looked.
                if let Some(task) = shared.cell.wait(&worker, &mut Patience::new(0), || ()) {
                    while shared.told.load(Ordering::Acquire) == 0 {
                        thread::yield_now();
                    }
                    worker.complete(&shared.cell, shared.execute(task)).unwrap();
                    assert_eq!(shared.cell.wait(&worker, &mut Patience::new(0), || ()), None);
                }
                worker.exit(&shared.cell).unwrap();
            })
        };
        shared.leave(&mut scheduler, true);
        shared.told.store(1, Ordering::Release);
        handle.join().unwrap();
        let status = scheduler.status(&shared.cell).unwrap();
        assert_eq!(status.state, WorkerState::Exited);
        assert_eq!(shared.runs[1].load(Ordering::Relaxed), 0, "it was staged");
        assert_eq!(shared.runs(), u64::from(status.completed));
    });
}

/// A worker that only sleeps, a scheduler that only wakes.
#[test]
fn no_one_sleeps_on_a_task() {
    check("park", Some(4), || {
        let shared = Shared::new(0);
        let mut worker = Worker::new();
        worker.announce(&shared.cell, 7).unwrap();
        let mut scheduler = shared.open(0);
        let handle = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let task = shared.cell.wait(&worker, &mut Patience::new(0), || ()).expect("a task");
                worker.complete(&shared.cell, shared.execute(task)).unwrap();
                shared.scheduler.notify(|()| ());
                assert_eq!(worker.next(&shared.cell), Ok(Next::Nothing), "each task once");
            })
        };
        shared.dispatch(&mut scheduler, 0);
        shared.take(&mut scheduler, 0);
        handle.join().unwrap();
    });
}

/// What two threads publish, and what was seen of it.
struct Board {
    published: AtomicU64,
    combiner: Combiner<u64>,
}

impl Board {
    fn new() -> Arc<Self> {
        Arc::new(Self { published: AtomicU64::new(0), combiner: Combiner::new(0) })
    }

    /// Looks; returns `true` if there was anything new.
    fn look(&self, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.published.load(Ordering::Acquire));
        before != *seen
    }

    fn publish(&self) {
        self.published.fetch_add(1, Ordering::Release);
        self.combiner.notify(|seen| {
            self.look(seen);
        });
    }
}

/// Two who publish, one who sleeps: both are seen.
#[test]
fn no_one_sleeps_on_a_completion() {
    check("asleep", Some(3), || {
        let board = Board::new();
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let board = Arc::clone(&board);
                thread::spawn(move || board.publish())
            })
            .collect();
        let mut seen = board.combiner.hold_next();
        while *seen != 2 {
            board.combiner.sleep(&mut seen, None, |seen| board.look(seen));
        }
        drop(seen);
        for publisher in publishers {
            publisher.join().unwrap();
        }
    });
}

/// Two who publish, one who stops scheduling, none who stays: everything is seen in the end.
#[test]
fn what_no_one_waits_for_is_seen_by_those_who_publish_it() {
    check("nobody", Some(3), || {
        let board = Board::new();
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let board = Arc::clone(&board);
                thread::spawn(move || board.publish())
            })
            .collect();
        if let Some(seen) = board.combiner.hold() {
            board.combiner.leave(seen, |seen| {
                board.look(seen);
            });
        }
        for publisher in publishers {
            publisher.join().unwrap();
        }
        assert_eq!(*board.combiner.hold().expect("free"), 2);
    });
}
