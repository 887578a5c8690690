//! What a wait that has run out says about the run.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use et_runtime::executor::{CpuPool, Run, RunError, Stall, StallCause};
use et_runtime::graph::{Graph, GraphBuilder, Resource, Task};

const LONG: Duration = Duration::from_secs(30);

/// Tasks that begin together with the test and end together with it.
struct Gate {
    begun: Arc<Barrier>,
    end: Arc<Barrier>,
}

impl Gate {
    fn new(tasks: usize) -> Self {
        let [begun, end] = [tasks + 1; 2].map(|all| Arc::new(Barrier::new(all)));
        Self { begun, end }
    }

    fn function(&self, builder: &mut GraphBuilder) -> et_runtime::graph::FunctionId {
        let (begun, end) = (Arc::clone(&self.begun), Arc::clone(&self.end));
        builder.function(move |_| {
            begun.wait();
            end.wait();
            Ok(())
        })
    }
}

fn nops(count: usize) -> Graph {
    let mut builder = GraphBuilder::new();
    let nop = builder.function(|_| Ok(()));
    for _ in 0..count {
        builder.add(Task::new(nop)).unwrap();
    }
    builder.build().unwrap()
}

fn stall(run: &Run) -> Stall {
    match run.wait(Duration::ZERO) {
        Err(RunError::Timeout { stall, .. }) => stall,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stall_is_named_by_what_holds_the_run_up() {
    let pool = CpuPool::new(1).unwrap();
    let gate = Gate::new(1);
    let shared = Resource::new(64);
    let mut builder = GraphBuilder::new();
    let function = gate.function(&mut builder);
    let held = builder.add(Task::new(function).name("held").writes(shared.range(0..64))).unwrap();
    let nop = builder.function(|_| Ok(()));
    builder.add(Task::new(nop).after(held)).unwrap();
    let first = pool.launch(&builder.build().unwrap()).unwrap();
    gate.begun.wait();
    // One task fits behind the one that runs, the next ones find no room.
    let second = pool.launch(&nops(1)).unwrap();
    let of_second = stall(&second);
    let third = pool.launch(&nops(3)).unwrap();
    let mut builder = GraphBuilder::new();
    let nop = builder.function(|_| Ok(()));
    builder.add(Task::new(nop).reads(shared.range(0..64))).unwrap();
    let behind = pool.launch(&builder.build().unwrap()).unwrap();
    let [of_first, of_third, of_behind] = [&first, &third, &behind].map(stall);
    let error = first.wait(Duration::ZERO).unwrap_err().to_string();
    // Before anything fails: the pool does not go while a task waits here.
    gate.end.wait();
    for run in [first, second, third, behind] {
        run.wait(LONG).unwrap().check().unwrap();
    }

    let (cause, task) = (of_first.cause, of_first.task);
    assert_eq!((cause, of_first.running, of_first.waiting), (StallCause::Running, 1, 1));
    assert_eq!(task, Some(held));
    assert!(error.contains("tasks run and do not end (1 running, 1 waiting)"), "{error}");
    assert_eq!((of_second.cause, of_second.staged), (StallCause::NotBegun, 1));
    assert_eq!((of_third.cause, of_third.ready), (StallCause::NoWorker, 3));
    assert_eq!((of_behind.cause, of_behind.waiting), (StallCause::OtherRun, 1));
}
