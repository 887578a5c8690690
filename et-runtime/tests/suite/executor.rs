//! Graphs on host threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_runtime::Clock;
use et_runtime::executor::{CpuPool, PoolConfig, RunError, RunOptions, TaskFailure, TaskState};
use et_runtime::graph::{CoreSet, Graph, GraphBuilder, Resource, Task, TaskError, TaskId};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

/// Time that goes when told to.
#[derive(Debug, Default)]
struct ManualClock(Mutex<Duration>);

impl ManualClock {
    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// A pool of one worker whose time goes when told to.
fn clocked() -> (Arc<ManualClock>, CpuPool) {
    let clock = Arc::new(ManualClock::default());
    let config = PoolConfig::new(1).clock(Arc::<ManualClock>::clone(&clock)).spins(1);
    (clock, CpuPool::with_config(&config).unwrap())
}

/// A graph whose tasks write down that they ran.
struct Log {
    builder: GraphBuilder,
    order: Arc<Mutex<Vec<usize>>>,
    function: et_runtime::graph::FunctionId,
}

impl Log {
    fn new() -> Self {
        let mut builder = GraphBuilder::new();
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        let its = Arc::clone(&order);
        let function = builder.function(move |task| {
            its.lock().unwrap().push(task.task().index());
            Ok(())
        });
        Self { builder, order, function }
    }

    fn task(&mut self, after: &[TaskId]) -> TaskId {
        let task = after.iter().fold(Task::new(self.function), |task, before| task.after(*before));
        self.builder.add(task).unwrap()
    }

    fn failing(&mut self, after: &[TaskId]) -> TaskId {
        let function = self.builder.function(|_| Err(TaskError::from("no luck")));
        let task = after.iter().fold(Task::new(function), |task, before| task.after(*before));
        self.builder.add(task.name("unlucky")).unwrap()
    }

    fn build(self) -> (Graph, Arc<Mutex<Vec<usize>>>) {
        (self.builder.build().unwrap(), self.order)
    }
}

/// A task that runs until it is let go.
fn gate(builder: &mut GraphBuilder) -> (TaskId, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let its = Arc::clone(&gate);
    let function = builder.function(move |_| {
        its.hold();
        Ok(())
    });
    (builder.add(Task::new(function).name("gate")).unwrap(), gate)
}

#[derive(Default)]
struct Gate {
    entered: AtomicBool,
    open: AtomicBool,
}

impl Gate {
    /// Waits, as the task; not for ever, since a pool that goes waits for its tasks.
    fn hold(&self) {
        self.entered.store(true, Ordering::Release);
        let start = std::time::Instant::now();
        while !self.open.load(Ordering::Acquire) && start.elapsed() < 2 * LONG {
            std::thread::yield_now();
        }
    }

    fn wait_entered(&self) {
        let start = std::time::Instant::now();
        while !self.entered.load(Ordering::Acquire) {
            assert!(start.elapsed() < LONG, "the task does not begin");
            std::thread::yield_now();
        }
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}

fn assert_order(graph: &Graph, order: &[usize]) {
    let mut place = vec![usize::MAX; graph.len()];
    for (at, task) in order.iter().enumerate() {
        assert_eq!(place[*task], usize::MAX, "task {task} ran twice");
        place[*task] = at;
    }
    for task in graph.tasks() {
        for next in graph.successors(task) {
            assert!(place[task.index()] < place[next.index()], "{task} before {next}");
        }
    }
}

#[test]
fn tasks_run_once_and_in_order_with_any_number_of_workers() {
    for workers in [1, 2, 3, 24] {
        let pool = CpuPool::new(workers).unwrap();
        let mut log = Log::new();
        let mut rows: Vec<Vec<TaskId>> = vec![vec![log.task(&[])]];
        for row in 0..30 {
            let before = rows.last().unwrap().clone();
            let width = 1 + row * 7 % 33;
            rows.push((0..width).map(|_| log.task(&before)).collect());
        }
        let (graph, order) = log.build();
        for _ in 0..20 {
            order.lock().unwrap().clear();
            let outcome = pool.launch(&graph).unwrap().finish(LONG).unwrap();
            assert!(outcome.is_success());
            assert_order(&graph, &order.lock().unwrap());
        }
    }
}

#[test]
fn an_empty_graph_is_done_at_once() {
    let pool = CpuPool::new(1).unwrap();
    let run = pool.launch(&GraphBuilder::new().build().unwrap()).unwrap();
    assert!(run.wait(LONG).unwrap().is_success());
    assert_eq!(run.progress(), (0, 0));
}

#[test]
fn a_failed_task_fails_its_dependents_only() {
    let pool = CpuPool::new(2).unwrap();
    let mut log = Log::new();
    let a = log.task(&[]);
    let bad = log.failing(&[a]);
    let b = log.task(&[bad]);
    let c = log.task(&[b, a]);
    let free = log.task(&[a]);
    let (graph, order) = log.build();
    let run = pool.launch(&graph).unwrap();
    let outcome = run.wait(LONG).unwrap();
    let states = [a, bad, b, c, free].map(|task| outcome.state(task));
    use TaskState::{Complete, DependencyFailed, Failed};
    assert_eq!(states, [Complete, Failed, DependencyFailed, DependencyFailed, Complete]);
    assert_eq!([b, c].map(|task| outcome.root_cause(task)), [Some(bad); 2]);
    assert_eq!(outcome.root_cause(free), None);
    assert_eq!(*order.lock().unwrap(), [a.index(), free.index()]);
    let error = run.finish(LONG).unwrap_err();
    assert_eq!(error.to_string(), "task 1 \"unlucky\" failed; 2 tasks depended on it");
    assert!(matches!(
        error,
        RunError::TaskFailed { task, failure: TaskFailure::Function(_), .. } if task == bad
    ));
    assert_eq!(run.progress(), (5, 5));
}

#[test]
fn a_panic_is_a_failure_and_the_worker_goes_on() {
    let pool = CpuPool::new(1).unwrap();
    let mut builder = GraphBuilder::new();
    let function = builder.function(|task| panic!("task {} has had enough", task.args()[0]));
    let task = builder.add(Task::new(function).u64(9)).unwrap();
    let graph = builder.build().unwrap();
    for _ in 0..3 {
        let outcome = pool.launch(&graph).unwrap().wait(LONG).unwrap();
        let [(failed, TaskFailure::Panicked(text))] = outcome.failures() else {
            panic!("{:?}", outcome.failures());
        };
        assert_eq!((*failed, text.as_str()), (task, "task 9 has had enough"));
    }
}

#[test]
fn cancelling_stops_what_has_not_started() {
    let pool = CpuPool::new(1).unwrap();
    let mut builder = GraphBuilder::new();
    let (first, gate) = gate(&mut builder);
    let function = builder.function(|_| Ok(()));
    let rest: Vec<_> =
        (0..50).map(|_| builder.add(Task::new(function).after(first)).unwrap()).collect();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    gate.wait_entered();
    run.cancel();
    assert!(!run.is_done());
    gate.open();
    let outcome = run.wait(LONG).unwrap();
    assert_eq!(outcome.state(first), TaskState::Complete);
    assert!(rest.iter().all(|task| outcome.state(*task) == TaskState::Cancelled));
    assert!(matches!(
        outcome.check(),
        Err(RunError::Cancelled { unfinished: 50, tasks: 51, device: None })
    ));
    // Cancelling what is over changes nothing.
    run.cancel();
    assert_eq!(run.wait(LONG).unwrap().count(TaskState::Cancelled), 50);
}

#[test]
fn cancelling_a_task_cancels_what_depends_on_it() {
    let pool = CpuPool::new(1).unwrap();
    let mut builder = GraphBuilder::new();
    let (first, gate) = gate(&mut builder);
    let function = builder.function(|_| Ok(()));
    let a = builder.add(Task::new(function).after(first)).unwrap();
    let b = builder.add(Task::new(function).after(a)).unwrap();
    let c = builder.add(Task::new(function).after(first)).unwrap();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    gate.wait_entered();
    run.cancel_task(a);
    // Not one of this graph, and one that runs already.
    run.cancel_task(TaskId::from_index(77));
    run.cancel_task(first);
    gate.open();
    let outcome = run.wait(LONG).unwrap();
    let states = [first, a, b, c].map(|task| outcome.state(task));
    use TaskState::{Cancelled, Complete, DependencyFailed};
    assert_eq!(states, [Complete, Cancelled, DependencyFailed, Complete]);
    assert_eq!(outcome.root_cause(b), Some(a));
}

#[test]
fn a_host_function_sees_that_its_run_is_cancelled() {
    let pool = CpuPool::new(1).unwrap();
    let mut builder = GraphBuilder::new();
    let entered = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&entered);
    let function = builder.function(move |task| {
        its.store(true, Ordering::Release);
        while !task.is_cancelled() {
            std::thread::yield_now();
        }
        Ok(())
    });
    let task = builder.add(Task::new(function)).unwrap();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    while !entered.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    run.cancel();
    assert_eq!(run.wait(LONG).unwrap().state(task), TaskState::Complete);
}

#[test]
fn a_wait_that_is_over_says_what_runs() {
    let pool = CpuPool::new(1).unwrap();
    let mut builder = GraphBuilder::new();
    let (_, gate) = gate(&mut builder);
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    gate.wait_entered();
    let error = run.wait(SHORT).unwrap_err();
    assert!(error.to_string().contains("worker 0 runs task 0 \"gate\""), "{error}");
    gate.open();
    run.finish(LONG).unwrap();
}

#[test]
fn a_task_that_never_ends_is_given_up_at_the_deadline_and_the_pool_goes_on() {
    let (clock, pool) = clocked();
    let mut builder = GraphBuilder::new();
    let (stuck, gate) = gate(&mut builder);
    let function = builder.function(|_| Ok(()));
    let behind = builder.add(Task::new(function).after(stuck)).unwrap();
    let options = RunOptions::new().deadline(Duration::from_secs(5));
    let run = pool.launch_with(&builder.build().unwrap(), options).unwrap();
    gate.wait_entered();
    clock.advance(Duration::from_secs(6));
    let outcome = run.wait(Duration::from_secs(3)).unwrap();
    let [(task, TaskFailure::Deadline { worker: Some(0), .. })] = outcome.failures() else {
        panic!("{:?}", outcome.failures());
    };
    assert_eq!(*task, stuck);
    assert!(outcome.state(behind).is_final() && outcome.state(behind) != TaskState::Complete);
    assert!(matches!(outcome.check(), Err(RunError::Deadline { unfinished: 2, .. })));
    // Another thread takes the place of the one that is stuck.
    let (graph, order) = {
        let mut log = Log::new();
        log.task(&[]);
        log.build()
    };
    // The stuck thread counts as one, so there is none left until it is free.
    gate.open();
    pool.launch(&graph).unwrap().finish(LONG).unwrap();
    assert_eq!(*order.lock().unwrap(), [0]);
}

#[test]
fn a_deadline_ends_the_tasks_of_its_run_only() {
    let (clock, pool) = clocked();
    let mut builder = GraphBuilder::new();
    let (waits, gate) = gate(&mut builder);
    let long = pool.launch(&builder.build().unwrap()).unwrap();
    gate.wait_entered();
    // With one worker, the first of them is behind the other run's.
    let mut builder = GraphBuilder::new();
    let never = builder.function(|_| Err(TaskError::from("it is too late")));
    let first = builder.add(Task::new(never)).unwrap();
    builder.add(Task::new(never)).unwrap();
    let options = RunOptions::new().deadline(Duration::from_secs(5));
    let late = pool.launch_with(&builder.build().unwrap(), options).unwrap();
    assert_eq!(late.state(first), TaskState::Staged);
    clock.advance(Duration::from_secs(6));
    let outcome = late.wait(LONG).unwrap();
    assert!(matches!(outcome.failures(), [(_, TaskFailure::Deadline { worker: Some(0), .. })]));
    assert!(matches!(outcome.check(), Err(RunError::Deadline { unfinished: 2, .. })));
    assert_eq!(long.state(waits), TaskState::Running);
    gate.open();
    long.wait(LONG).unwrap().check().unwrap();
}

#[test]
fn a_task_behind_one_that_is_late_goes_to_the_next_worker() {
    let (clock, pool) = clocked();
    let mut builder = GraphBuilder::new();
    let (_, gate) = gate(&mut builder);
    let options = RunOptions::new().deadline(Duration::from_secs(5));
    let late = pool.launch_with(&builder.build().unwrap(), options).unwrap();
    gate.wait_entered();
    let mut log = Log::new();
    let first = log.task(&[]);
    let (graph, order) = log.build();
    let run = pool.launch_with(&graph, RunOptions::new().traced()).unwrap();
    assert_eq!(run.state(first), TaskState::Staged);
    clock.advance(Duration::from_secs(6));
    assert!(matches!(late.finish(LONG), Err(RunError::Deadline { unfinished: 1, .. })));
    // Another thread takes the place of the one that is stuck.
    let outcome = run.wait(LONG).unwrap();
    gate.open();
    outcome.check().unwrap();
    assert_eq!((order.lock().unwrap().len(), outcome.trace().unwrap().spans().len()), (1, 1));
}

#[test]
fn what_has_run_is_executed_until_its_run_has_ended() {
    let pool = CpuPool::new(2).unwrap();
    let mut builder = GraphBuilder::new();
    let first = builder.host_task(|_| Ok(())).unwrap();
    let (task, gate) = gate(&mut builder);
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    gate.wait_entered();
    let mut waits = Vec::new();
    while run.progress().0 == 0 {
        waits.push(run.wait(SHORT));
    }
    let states = || [first, task].map(|task| run.state(task));
    let before = states();
    // Before anything is checked: a pool that goes waits for its tasks.
    gate.open();
    assert!(waits.iter().all(|wait| matches!(wait, Err(RunError::Timeout { .. }))), "{waits:?}");
    assert_eq!(before, [TaskState::Executed, TaskState::Running]);
    run.wait(LONG).unwrap().check().unwrap();
    assert_eq!(states(), [TaskState::Complete; 2]);
}

#[test]
fn nobody_has_to_wait() {
    let pool = CpuPool::new(2).unwrap();
    let mut log = Log::new();
    let mut last = log.task(&[]);
    for _ in 0..2000 {
        last = log.task(&[last]);
    }
    let (graph, order) = log.build();
    let (sender, receiver) = std::sync::mpsc::channel();
    pool.launch(&graph).unwrap().on_done(move |outcome| {
        sender.send(outcome.is_success()).unwrap();
    });
    assert_eq!(receiver.recv_timeout(LONG), Ok(true));
    assert_order(&graph, &order.lock().unwrap());
}

#[test]
fn runs_are_futures_and_callbacks_may_launch() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let pool = Arc::new(CpuPool::new(2).unwrap());
    let (graph, _) = {
        let mut log = Log::new();
        log.task(&[]);
        log.build()
    };
    let second = Arc::new(Mutex::new(None));
    let (its, again, same) = (Arc::clone(&second), Arc::clone(&pool), graph.clone());
    let run = pool.launch(&graph).unwrap();
    run.on_done(move |_| *its.lock().unwrap() = Some(again.launch(&same).unwrap()));
    let mut run = Box::pin(run.into_future());
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    while Future::poll(run.as_mut(), &mut context).is_pending() {
        std::thread::park();
    }
    let second = loop {
        if let Some(run) = second.lock().unwrap().take() {
            break run;
        }
        std::thread::yield_now();
    };
    second.finish(LONG).unwrap();
}

#[test]
fn runs_that_share_what_they_write_follow_one_another_and_others_overlap() {
    readers_overlap_behind_a_writer(PoolConfig::new(2));
    // Who waits for the writer leaves scheduling to its worker then, and is gone when a second
    // reader needs another one.
    for _ in 0..30 {
        readers_overlap_behind_a_writer(PoolConfig::new(2).processors(1));
    }
}

fn readers_overlap_behind_a_writer(config: PoolConfig) {
    let pool = CpuPool::with_config(&config).unwrap();
    let shared = Resource::new(64);
    let build = |writes: bool| {
        let mut builder = GraphBuilder::new();
        let gate = Arc::new(Gate::default());
        let its = Arc::clone(&gate);
        let function = builder.function(move |_| {
            its.hold();
            Ok(())
        });
        let range = shared.range(0..32);
        let task = Task::new(function);
        builder.add(if writes { task.writes(range) } else { task.reads(range) }).unwrap();
        (builder.build().unwrap(), gate)
    };
    let (write, write_gate) = build(true);
    let (read, read_gate) = build(false);
    let (read_2, read_gate_2) = build(false);
    let first = pool.launch(&write).unwrap();
    let readers = [pool.launch(&read).unwrap(), pool.launch(&read_2).unwrap()];
    write_gate.wait_entered();
    assert!(
        !read_gate.entered.load(Ordering::Acquire),
        "a reader behind the writer has not started"
    );
    write_gate.open();
    first.finish(LONG).unwrap();
    // Both readers at the same time; neither needs a waiter.
    read_gate.wait_entered();
    read_gate_2.wait_entered();
    read_gate.open();
    read_gate_2.open();
    for run in readers {
        run.finish(LONG).unwrap();
    }
}

#[test]
fn many_launches_of_one_graph_follow_one_another() {
    let pool = CpuPool::new(2).unwrap();
    let shared = Resource::new(1);
    let count = Arc::new(AtomicU64::new(0));
    let mut builder = GraphBuilder::new();
    let its = Arc::clone(&count);
    let function = builder.function(move |_| {
        let before = its.load(Ordering::Relaxed);
        its.store(before + 1, Ordering::Relaxed);
        Ok(())
    });
    builder.add(Task::new(function).updates(shared.range(0..1))).unwrap();
    let graph = builder.build().unwrap();
    let runs: Vec<_> = (0..50).map(|_| pool.launch(&graph).unwrap()).collect();
    for run in runs {
        run.finish(LONG).unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 50);
}

#[test]
fn a_task_of_a_queued_run_is_cancelled() {
    let pool = CpuPool::new(2).unwrap();
    let shared = Resource::new(1);
    let mut builder = GraphBuilder::new();
    let gate = Arc::new(Gate::default());
    let its = Arc::clone(&gate);
    let function = builder.function(move |_| {
        while !its.open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let task = builder.add(Task::new(function).updates(shared.range(0..1))).unwrap();
    let graph = builder.build().unwrap();
    let first = pool.launch(&graph).unwrap();
    let second = pool.launch(&graph).unwrap();
    second.cancel_task(task);
    gate.open();
    first.finish(LONG).unwrap();
    assert_eq!(second.wait(LONG).unwrap().state(task), TaskState::Cancelled);
}

#[test]
fn cancelled_tasks_say_nothing_of_the_next_run() {
    let pool = CpuPool::new(2).unwrap();
    let shared = Resource::new(8);
    let build = |cores: bool| {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        for at in 0..8 {
            let task = Task::new(function).updates(shared.range(at..at + 1));
            builder.add(if cores { task.cores(CoreSet::of([1])) } else { task }).unwrap();
        }
        builder.build().unwrap()
    };
    let (pinned, free) = (build(true), build(false));
    for _ in 0..200 {
        let first = pool.launch(&pinned).unwrap();
        let second = pool.launch(&free).unwrap();
        first.cancel();
        second.finish(LONG).unwrap();
        first.wait(LONG).unwrap();
    }
}

#[test]
fn tasks_stay_on_their_cores() {
    let pool = CpuPool::new(4).unwrap();
    let mut builder = GraphBuilder::new();
    let threads: Arc<Mutex<Vec<(usize, String)>>> = Arc::default();
    let its = Arc::clone(&threads);
    let function = builder.function(move |task| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        its.lock().unwrap().push((task.task().index(), name));
        Ok(())
    });
    for task in 0..200 {
        let cores = if task % 2 == 0 { CoreSet::of([3]) } else { CoreSet::of([1, 2]) };
        builder.add(Task::new(function).cores(cores)).unwrap();
    }
    pool.launch(&builder.build().unwrap()).unwrap().finish(LONG).unwrap();
    let threads = threads.lock().unwrap();
    assert_eq!(threads.len(), 200);
    for (task, name) in &*threads {
        let allowed: &[&str] =
            if task % 2 == 0 { &["et-worker-3"] } else { &["et-worker-1", "et-worker-2"] };
        assert!(allowed.contains(&name.as_str()), "task {task} on {name}");
    }
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let task = builder.add(Task::new(function).cores(CoreSet::of([4, 9]))).unwrap();
    let error = pool.launch(&builder.build().unwrap()).unwrap_err();
    assert!(matches!(error, RunError::NoSuchWorker { task: t, workers: 4, .. } if t == task));
}

#[test]
fn many_threads_may_launch_and_wait() {
    let pool = Arc::new(CpuPool::new(3).unwrap());
    let count = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let (pool, count) = (Arc::clone(&pool), Arc::clone(&count));
            scope.spawn(move || {
                let mut builder = GraphBuilder::new();
                let function = builder.function(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                let mut last = builder.add(Task::new(function)).unwrap();
                for _ in 0..20 {
                    last = builder.add(Task::new(function).after(last)).unwrap();
                }
                let graph = builder.build().unwrap();
                for _ in 0..50 {
                    pool.launch(&graph).unwrap().finish(LONG).unwrap();
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 6 * 50 * 21);
}

#[test]
fn wide_graphs_need_no_settings() {
    const WIDTH: u32 = 100_000;
    let pool = CpuPool::new(2).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let mut builder = GraphBuilder::new();
    let its = Arc::clone(&count);
    let function = builder.function(move |_| {
        its.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let source = builder.add(Task::new(function)).unwrap();
    let middle: Vec<_> =
        (0..WIDTH).map(|_| builder.add(Task::new(function).after(source)).unwrap()).collect();
    let sink = builder.add(Task::new(function)).unwrap();
    for task in middle {
        builder.edge(task, sink).unwrap();
    }
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    run.finish(LONG).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), WIDTH + 2);
    assert_eq!(run.progress(), (WIDTH as usize + 2, WIDTH as usize + 2));
}

#[test]
fn what_a_pool_keeps_of_a_run_goes_when_it_sleeps() {
    let pool = CpuPool::with_config(&PoolConfig::new(1).spins(1)).unwrap();
    let mut builder = GraphBuilder::new();
    let token = Arc::new(());
    let weak = Arc::downgrade(&token);
    let hold = move |_: &et_runtime::graph::TaskContext<'_>| {
        let _ = &token;
        Ok(())
    };
    builder.host_task(hold).unwrap();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    run.finish(LONG).unwrap();
    drop(run);
    while weak.upgrade().is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn recordings_name_each_task_once_and_open_in_perfetto() {
    let pool = CpuPool::new(2).unwrap();
    let mut log = Log::new();
    let a = log.task(&[]);
    let b = log.task(&[a]);
    log.task(&[a, b]);
    let (graph, _) = log.build();
    let run = pool.launch_with(&graph, RunOptions::new().traced()).unwrap();
    let outcome = run.finish(LONG).unwrap();
    let trace = outcome.trace().unwrap();
    assert_eq!(trace.spans().iter().map(|span| span.task.index()).collect::<Vec<_>>(), [0, 1, 2]);
    for pair in trace.spans().windows(2) {
        assert!(pair[0].start <= pair[0].end && pair[0].end <= pair[1].end);
    }
    let mut json = Vec::new();
    trace.write_chrome_json(&graph, &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((count("X"), count("s"), count("f")), (3, 3, 3));
    let starts = events.iter().filter(|event| event["ph"] == "s");
    let ends = |event: &serde_json::Value| {
        [&event["args"]["from"], &event["args"]["to"]].map(|task| task.as_u64().unwrap())
    };
    assert_eq!(starts.map(ends).collect::<Vec<_>>(), [[0, 1], [0, 2], [1, 2]]);
}

#[test]
fn a_recording_of_a_failed_run_says_what_did_not_run_and_why() {
    let pool = CpuPool::new(2).unwrap();
    let mut builder = GraphBuilder::new();
    let bad = builder
        .host_task(|_: &et_runtime::graph::TaskContext<'_>| Err("no more paper".into()))
        .unwrap();
    let after = builder.host_task(|_: &et_runtime::graph::TaskContext<'_>| Ok(())).unwrap();
    builder.edge(bad, after).unwrap();
    let run = pool.launch_with(&builder.build().unwrap(), RunOptions::new().traced()).unwrap();
    let mut json = Vec::new();
    run.wait(LONG).unwrap().write_chrome_json(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let incomplete = json["otherData"]["incomplete"].as_array().unwrap();
    let [bad, after] = &incomplete[..] else { panic!("{json}") };
    assert_eq!((&bad["state"], &after["state"]), (&"failed".into(), &"not run".into()));
    assert_eq!((&bad["error"], &after["root_cause"]), (&"no more paper".into(), &0.into()));
    assert_eq!(json["otherData"]["tasks"], 2);
}

#[test]
fn a_pool_that_goes_cancels_at_once_also_while_a_thread_waits() {
    let pool = CpuPool::new(2).unwrap();
    let mut builder = GraphBuilder::new();
    let entered = Arc::new(Gate::default());
    let its = Arc::clone(&entered);
    let function = builder.function(move |task| {
        its.entered.store(true, Ordering::Release);
        while !task.is_cancelled() {
            std::thread::yield_now();
        }
        Ok(())
    });
    builder.add(Task::new(function)).unwrap();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    let its = run.clone();
    let waiter = std::thread::spawn(move || its.wait(LONG).map(|outcome| outcome.is_success()));
    entered.wait_entered();
    drop(pool);
    // It ended because it was told to, or dropping would have taken as long as the wait.
    assert!(run.is_done());
    assert!(!waiter.join().unwrap().unwrap());
}

/// A waker that panics.
struct Bomb;

impl std::task::Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker of a user");
    }
}

#[test]
fn callbacks_and_wakers_that_panic_harm_nothing_else() {
    let pool = CpuPool::new(1).unwrap();
    for round in 0..3 {
        let mut builder = GraphBuilder::new();
        let (_, gate) = gate(&mut builder);
        let run = pool.launch(&builder.build().unwrap()).unwrap();
        let called = Arc::new(AtomicU32::new(0));
        for _ in 0..2 {
            run.on_done(|_| panic!("a callback of a user"));
            let called = Arc::clone(&called);
            run.on_done(move |_| {
                called.fetch_add(1, Ordering::Relaxed);
            });
        }
        let waker = std::task::Waker::from(Arc::new(Bomb));
        let mut future = run.clone().into_future();
        let mut context = std::task::Context::from_waker(&waker);
        let polled = std::pin::Pin::new(&mut future).poll(&mut context);
        assert!(polled.is_pending());
        gate.open();
        // Worker, background thread or this one sees the end and calls them.
        assert!(run.wait(LONG).unwrap().is_success());
        while called.load(Ordering::Relaxed) != 2 || pool.callback_panics() != 3 * (round + 1) {
            std::thread::yield_now();
        }
    }
}
