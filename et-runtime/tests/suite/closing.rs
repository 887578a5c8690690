//! Pools that go while they work, whoever lets them go.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_runtime::executor::{CpuPool, RunError, TaskState};
use et_runtime::graph::{Graph, GraphBuilder, Task, TaskId};

const LONG: Duration = Duration::from_secs(30);

/// A task that says that it runs, and ends when it is told to; and one behind it.
fn two_tasks() -> (Graph, Receiver<()>, Sender<()>) {
    let ((entered, enter), (open, gate)) = (mpsc::channel(), mpsc::channel());
    let gate = Mutex::new(gate);
    let mut builder = GraphBuilder::new();
    let first = builder.host_task(move |_| {
        entered.send(()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let function = builder.function(|_| Ok(()));
    builder.add(Task::new(function).after(first.unwrap())).unwrap();
    (builder.build().unwrap(), enter, open)
}

#[test]
fn a_pool_that_goes_cancels_what_has_not_started() {
    let (graph, enter, open) = two_tasks();
    let pool = CpuPool::new(1).unwrap();
    let run = pool.launch(&graph).unwrap();
    enter.recv_timeout(LONG).unwrap();
    let closer = std::thread::spawn(move || drop(pool));
    while run.state(TaskId::from_index(1)) != TaskState::Cancelled {
        std::thread::yield_now();
    }
    open.send(()).unwrap();
    closer.join().unwrap();
    assert!(matches!(run.outcome().unwrap().check(), Err(RunError::Cancelled { .. })));
}

/// Its thread cannot be waited for by itself.
#[test]
fn a_task_may_drop_its_pool() {
    for workers in [1, 2] {
        let pool = Arc::new(Mutex::new(Some(CpuPool::new(workers).unwrap())));
        let its = Arc::clone(&pool);
        let mut builder = GraphBuilder::new();
        let first = builder.host_task(move |_| {
            let pool = its.lock().unwrap().take();
            drop(pool);
            Ok(())
        });
        let function = builder.function(|_| Ok(()));
        builder.add(Task::new(function).after(first.unwrap())).unwrap();
        let graph = builder.build().unwrap();
        // The task has to wait for this lock, and then for nothing.
        let run = pool.lock().unwrap().as_ref().unwrap().launch(&graph).unwrap();
        let outcome = run.wait(LONG).unwrap();
        assert_eq!(run.state(TaskId::from_index(0)), TaskState::Complete);
        // Whether it was cancelled or had begun by then, the other one has ended.
        assert!(matches!(outcome.check(), Ok(()) | Err(RunError::Cancelled { .. })));
        assert!(pool.lock().unwrap().is_none());
    }
}

/// No one waits, so that a thread of the pool calls back.
#[test]
fn a_callback_may_drop_the_pool_that_calls_it() {
    let pool = Arc::new(Mutex::new(Some(CpuPool::new(1).unwrap())));
    let (graph, enter, open) = two_tasks();
    let run = pool.lock().unwrap().as_ref().unwrap().launch(&graph).unwrap();
    enter.recv_timeout(LONG).unwrap();
    let (called, call) = mpsc::channel();
    let its = Arc::clone(&pool);
    run.on_done(move |_| {
        let pool = its.lock().unwrap().take();
        drop(pool);
        called.send(std::thread::current().name().map(str::to_owned)).unwrap();
    });
    open.send(()).unwrap();
    let name = call.recv_timeout(LONG).unwrap().unwrap();
    assert!(name.starts_with("et-"), "{name} is a thread of the pool");
}
