//! Threads that schedule, beside a place that does what a test says.

use std::sync::atomic::AtomicUsize;
use std::sync::{Weak, mpsc};
use std::thread::ThreadId;

use super::*;
use crate::executor::Run;
use crate::executor::engine::Beside;
use crate::executor::host::Threads;
use crate::executor::ids::RunId;
use crate::executor::place::{Done, Offer, Place, Unit};
use crate::executor::run::Runs;
use crate::graph::{GraphBuilder, Task};
use crate::handshake::Patience;

/// For what comes in no time unless the test fails.
const LONG: Duration = Duration::from_secs(10);

/// A millisecond passes with each look.
#[derive(Debug, Default)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Has something to do, and says at each look whether there was progress.
struct Busy<F>(F);

impl<F: Fn() -> bool + Send> Place for Busy<F> {
    fn offer(&mut self, _: Unit<'_>) -> Offer {
        Offer::Full
    }

    fn poll(&mut self, _: &mut Done) -> bool {
        self.0()
    }

    fn abort(&mut self, _: RunId, _: Cut) {}

    fn next_look(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn describe(&self, _: &mut Vec<String>) {}

    fn is_busy(&self) -> bool {
        true
    }
}

/// A pool of two workers without a background thread.
fn pool(clock: Arc<dyn Clock>, looks: impl Fn() -> bool + Send + 'static) -> Arc<Pool> {
    Arc::new_cyclic(|pool| {
        let table = Arc::new(Runs::default());
        let threads = Threads {
            name: "test".into(),
            limit: 2,
            spins: 100,
            processors: 8,
            start_limit: Duration::MAX,
        };
        let its = Arc::clone(&clock);
        let host = HostThreads::new(Weak::clone(pool), Arc::clone(&table), its, threads);
        let beside = Beside { places: vec![Box::new(Busy(looks))], words: None };
        let its = Arc::clone(&clock);
        let engine = Engine::new(host, beside, table, its, Patience::new(100));
        let limits = Limits { grace: Duration::ZERO, abort: Duration::ZERO };
        Pool::new(clock, 100, (2, limits), engine, None)
    })
}

/// A graph of one task.
fn graph(function: impl Fn() + Send + Sync + 'static) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(move |_| {
        function();
        Ok(())
    });
    builder.add(Task::new(function)).unwrap();
    builder.build().unwrap()
}

/// A pool in which each look finds something, up to the last of so many, and a run of one task
/// that takes as long.
fn restless(looks: usize, options: RunOptions) -> (Arc<Pool>, Arc<RunShared>, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(looks));
    let its = Arc::clone(&left);
    let less = |left: usize| left.checked_sub(1);
    let looks = move || its.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
    let pool = pool(Arc::new(TickingClock::default()), looks);
    let its = Arc::clone(&left);
    let task = move || {
        while its.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    };
    let run = pool.launch(&graph(task), options).unwrap();
    (pool, run, left)
}

const LOOKS: usize = 1_000_000;

#[test]
fn a_wait_ends_in_time_while_there_is_progress() {
    let (pool, run, left) = restless(LOOKS, RunOptions::new());
    let late = pool.wait(&run, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(late, RunError::Timeout { .. }), "{late}");
    assert_ne!(left.swap(0, Ordering::AcqRel), 0, "there was progress up to the end");
    pool.close();
}

#[test]
fn a_deadline_ends_its_run_while_there_is_progress() {
    let options = RunOptions::new().deadline(Duration::from_millis(20));
    let (pool, run, left) = restless(LOOKS, options);
    let outcome = pool.wait(&run, Duration::MAX).unwrap();
    assert!(matches!(outcome.check(), Err(RunError::Deadline { .. })), "{outcome:?}");
    assert_ne!(left.swap(0, Ordering::AcqRel), 0, "there was progress up to the end");
    pool.close();
}

#[test]
fn a_callback_that_takes_long_holds_up_no_other_run() {
    let (start, other_runs) = mpsc::channel();
    let (let_go, gate) = mpsc::channel::<()>();
    let (has_ended, is_over) = mpsc::channel();
    let both = Mutex::new(other_runs);
    let scheduler: ThreadId = std::thread::current().id();
    let (first, its_gate) = mpsc::channel::<()>();
    // The first task ends once the other runs and this thread schedules.
    let pool = pool(Arc::new(SystemClock::default()), move || {
        if std::thread::current().id() == scheduler && lock(&both).try_recv().is_ok() {
            first.send(()).unwrap();
        }
        false
    });
    let its_gate = Mutex::new(its_gate);
    let launch = |graph: Graph| {
        let run = pool.launch(&graph, RunOptions::new()).unwrap();
        Run::new(run, Arc::clone(&pool))
    };
    let run = launch(graph(move || lock(&its_gate).recv_timeout(LONG).unwrap()));
    let (start, gate) = (Mutex::new(start), Mutex::new(gate));
    let other = launch(graph(move || {
        lock(&start).send(()).unwrap();
        lock(&gate).recv_timeout(LONG).unwrap();
    }));
    other.on_done(move |_| has_ended.send(()).unwrap());
    let (tell, told) = mpsc::channel();
    run.on_done(move |_| {
        let_go.send(()).unwrap();
        tell.send(is_over.recv_timeout(LONG)).unwrap();
    });
    run.wait(LONG).unwrap();
    assert_eq!(told.recv_timeout(2 * LONG), Ok(Ok(())), "the other run ends meanwhile");
    pool.close();
}
