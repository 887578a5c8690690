//! Flows on host threads: what their handle promises.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_runtime::executor::{
    CpuPool, Flow, RunError, RunOptions, StallCause, TaskFailure, TaskState,
};
use et_runtime::graph::{Graph, GraphBuilder, HostData, Resource, Task, TaskError, TaskId};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

fn one(
    resource: &Resource,
    work: impl Fn() -> Result<(), TaskError> + Send + Sync + 'static,
) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(move |_| work());
    builder.add(Task::new(function).name("one").updates(resource)).unwrap();
    builder.build().unwrap()
}

/// A graph whose task waits until it may go on.
fn gate(resource: &Resource) -> (Graph, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&open);
    let graph = one(resource, move || {
        while !its.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    (graph, open)
}

fn counting(resource: &Resource) -> (Graph, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&count);
    // Not one step: the order of the tasks is what makes it right.
    let graph = one(resource, move || {
        its.store(its.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(())
    });
    (graph, count)
}

#[test]
fn a_flow_of_many_graphs_keeps_only_what_has_not_ended() {
    const GRAPHS: u64 = 40_000;
    let pool = CpuPool::new(2).unwrap();
    let flow = pool.flow();
    let (graph, count) = counting(&Resource::new(1));
    let kept = |flow: &Flow| -> usize {
        let text = format!("{flow:?}");
        text.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    for number in 1..=GRAPHS {
        let run = flow.launch(&graph).unwrap();
        if number % 100 == 0 {
            run.finish(LONG).unwrap();
        }
        assert!(kept(&flow) <= 1024 + 2 * 100, "after {number}");
    }
    flow.finish(LONG).unwrap();
    assert_eq!((count.load(Ordering::Relaxed), kept(&flow)), (GRAPHS, 0));
}

#[test]
fn a_buffer_is_let_go_of_when_the_flow_is_finished() {
    let pool = CpuPool::new(1).unwrap();
    let flow = pool.flow();
    let data = HostData::zeroed(64);
    let freed = Arc::new(());
    let mut builder = GraphBuilder::new();
    let its = Arc::clone(&freed);
    let function = builder.function(move |_| {
        let _used = &its;
        Ok(())
    });
    builder.add(Task::new(function).writes(&data)).unwrap();
    flow.launch(&builder.build().unwrap()).unwrap();
    flow.finish(LONG).unwrap();
    // Its worker and whoever scheduled may be about to.
    let start = std::time::Instant::now();
    while Arc::strong_count(&freed) != 1 {
        assert!(start.elapsed() < LONG, "the graph is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_failure_is_told_once_and_then_the_flow_goes_on() {
    let pool = CpuPool::new(2).unwrap();
    let flow = pool.flow();
    let place = Resource::new(1);
    let (good, count) = counting(&place);
    flow.launch(&one(&place, || Err(TaskError::from("no luck")))).unwrap();
    let behind = flow.launch(&good).unwrap();
    let error = flow.wait_for(&place, LONG).unwrap_err();
    let RunError::TaskFailed { failure: TaskFailure::Earlier { state, name, .. }, .. } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*state, &**name), (TaskState::Failed, " \"one\""));
    let error = flow.finish(LONG).unwrap_err();
    assert!(error.to_string().contains("failed; 0 tasks depended on it"), "{error}");
    let RunError::TaskFailed { failure: TaskFailure::Function(_), .. } = error else {
        panic!("{error}")
    };
    assert_eq!(behind.state(TaskId::from_index(0)), TaskState::Failed);
    flow.launch(&good).unwrap();
    flow.wait_for(&place, LONG).unwrap();
    flow.finish(LONG).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_wait_that_is_over_says_what_is_missing_and_loses_nothing() {
    let pool = CpuPool::new(2).unwrap();
    let flow = pool.flow();
    let place = Resource::new(1);
    let (closed, open) = gate(&place);
    let (next, count) = counting(&place);
    flow.launch(&closed).unwrap();
    let waits = flow.launch(&next).unwrap();
    let Err(RunError::Timeout { stall, after, .. }) = waits.wait(SHORT) else { panic!() };
    assert_eq!((stall.cause, stall.waiting, after), (StallCause::OtherRun, 1, SHORT));
    assert_eq!(stall.task, Some(TaskId::from_index(0)));
    let Err(RunError::Timeout { after, .. }) = flow.finish(SHORT) else { panic!() };
    assert_eq!(after, SHORT);
    let Err(RunError::Timeout { .. }) = flow.wait_for(&place, SHORT) else { panic!() };
    // One with a deadline of its own is cut while it waits, and what is behind it is not run.
    let late = flow.launch_with(&next, RunOptions::new().deadline(SHORT)).unwrap();
    let Err(RunError::Deadline { .. }) = late.finish(LONG) else { panic!() };
    open.store(true, Ordering::Release);
    let Err(RunError::Deadline { .. }) = flow.finish(LONG) else { panic!() };
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// Launches on a flow when it is dropped.
struct Last(Arc<Flow>, Graph);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.launch(&self.1).unwrap();
    }
}

#[test]
fn what_is_let_go_of_may_use_the_flow() {
    let pool = CpuPool::new(1).unwrap();
    let flow = Arc::new(pool.flow());
    let place = Resource::new(1);
    let (graph, count) = counting(&place);
    let last = Last(Arc::clone(&flow), graph.clone());
    let kept = one(&place, move || {
        let _last = &last;
        Ok(())
    });
    flow.launch(&kept).unwrap().finish(LONG).unwrap();
    drop(kept);
    // As many that it is forgotten by one of them, if not by its worker before.
    for _ in 0..2000 {
        flow.launch(&graph).unwrap();
    }
    flow.finish(LONG).unwrap();
    flow.finish(LONG).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2001);
}

/// Whose time is over while it waits has no worker that would say so.
#[test]
fn who_waits_for_a_run_that_waits_hears_of_its_deadline() {
    let pool = CpuPool::new(2).unwrap();
    let flow = pool.flow();
    let place = Resource::new(1);
    let (closed, open) = gate(&place);
    let (next, count) = counting(&place);
    flow.launch(&closed).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    for is_in_flow in [true, false] {
        let options = RunOptions::new().deadline(SHORT);
        let late = if is_in_flow {
            flow.launch_with(&next, options).unwrap()
        } else {
            pool.launch_with(&next, options).unwrap()
        };
        let its = Arc::clone(&told);
        late.on_done(move |outcome| its.lock().unwrap().push((is_in_flow, outcome.check())));
    }
    let start = std::time::Instant::now();
    while told.lock().unwrap().len() < 2 {
        assert!(start.elapsed() < LONG, "told: {:?}", told.lock().unwrap());
        std::thread::yield_now();
    }
    for (_, outcome) in &*told.lock().unwrap() {
        assert!(matches!(outcome, Err(RunError::Deadline { .. })), "{outcome:?}");
    }
    open.store(true, Ordering::Release);
    assert!(flow.finish(LONG).is_err());
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn callbacks_and_other_threads_may_use_the_flow() {
    let pool = CpuPool::new(2).unwrap();
    let flow = Arc::new(pool.flow());
    let place = Resource::new(1);
    let (graph, count) = counting(&place);
    // Each run launches the next one.
    fn again(flow: &Arc<Flow>, graph: &Graph, left: u64, ends: &Arc<Mutex<u64>>) {
        let (its, next, ends) = (Arc::clone(flow), graph.clone(), Arc::clone(ends));
        flow.launch(graph).unwrap().on_done(move |outcome| {
            assert!(outcome.is_success());
            *ends.lock().unwrap() += 1;
            if left != 0 {
                again(&its, &next, left - 1, &ends);
            }
        });
    }
    let ends = Arc::new(Mutex::new(0));
    again(&flow, &graph, 99, &ends);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..500 {
                    flow.launch(&graph).unwrap();
                }
            });
        }
    });
    while *ends.lock().unwrap() < 100 {
        flow.finish(LONG).unwrap();
        std::thread::yield_now();
    }
    flow.finish(LONG).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1600);
}

#[test]
fn a_flow_outlives_its_pool_and_says_so() {
    let pool = CpuPool::new(1).unwrap();
    let flow = pool.flow();
    let place = Resource::new(1);
    let (closed, open) = gate(&place);
    flow.launch(&closed).unwrap();
    let (next, count) = counting(&place);
    let waits = flow.launch(&next).unwrap();
    let closing = std::thread::spawn(move || drop(pool));
    // What waits is cancelled at once, what runs is waited for.
    let outcome = waits.wait(LONG).unwrap();
    assert_eq!(outcome.state(TaskId::from_index(0)), TaskState::Cancelled);
    open.store(true, Ordering::Release);
    closing.join().unwrap();
    let Err(RunError::Closed { .. }) = flow.launch(&next) else { panic!() };
    let Err(RunError::Closed { .. }) = flow.wait_for(&place, LONG) else { panic!() };
    let Err(RunError::Cancelled { .. }) = flow.finish(LONG) else { panic!() };
    assert_eq!(count.load(Ordering::Relaxed), 0);
}
