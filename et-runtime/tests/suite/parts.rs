//! Tasks of several parts on host threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use et_runtime::executor::{CpuPool, RunError, TaskFailure, TaskState};
use et_runtime::graph::{CoreSet, FunctionId, GraphBuilder, Task, TaskError};

const LONG: Duration = Duration::from_secs(30);

/// The parts that have begun, and of how many.
type Begun = Arc<Mutex<Vec<(u32, u32)>>>;

/// A function whose parts each end once they have seen so many begin.
fn meeting(builder: &mut GraphBuilder, many: usize) -> (FunctionId, Begun) {
    let begun = Begun::default();
    let its = Arc::clone(&begun);
    let function = builder.function(move |task| {
        its.lock().unwrap().push((task.part(), task.parts()));
        let since = Instant::now();
        while its.lock().unwrap().len() < many {
            if since.elapsed() > LONG {
                return Err(TaskError::from("alone"));
            }
            std::thread::yield_now();
        }
        Ok(())
    });
    (function, begun)
}

#[test]
fn parts_of_host_functions_run_at_the_same_time() {
    let pool = CpuPool::new(4).unwrap();
    let mut builder = GraphBuilder::new();
    let (meet, begun) = meeting(&mut builder, 2);
    let bad = builder.function(|task| match task.part() {
        2 => Err(TaskError::from("no luck")),
        _ => Ok(()),
    });
    let both = builder.add(Task::new(meet).parts(2)).unwrap();
    let bad = builder.add(Task::new(bad).parts(4).after(both)).unwrap();
    let graph = builder.build().unwrap();
    let outcome = pool.launch(&graph).unwrap().wait(LONG).unwrap();
    assert_eq!(outcome.state(both), TaskState::Complete, "{:?}", outcome.failures());
    let mut begun = begun.lock().unwrap().clone();
    begun.sort_unstable();
    assert_eq!(begun, [(0, 2), (1, 2)]);
    let [(task, TaskFailure::Part { part: 2, parts: 4, failure })] = outcome.failures() else {
        panic!("{:?}", outcome.failures());
    };
    assert_eq!((*task, failure.to_string().as_str()), (bad, "no luck"));
}

/// Many short tasks teach the pool to hand tasks to one worker, one behind the other, which parts
/// that wait for one another would not survive.
#[test]
fn parts_that_start_together_may_wait_for_one_another() {
    let pool = CpuPool::new(4).unwrap();
    let mut builder = GraphBuilder::new();
    let short = builder.function(|_| Ok(()));
    let (meet, begun) = meeting(&mut builder, 4);
    let mut last = builder.add(Task::new(short)).unwrap();
    for _ in 0..2000 {
        last = builder.add(Task::new(short).after(last)).unwrap();
    }
    builder.add(Task::new(meet).parts_together(4).after(last)).unwrap();
    for _ in 0..100 {
        builder.add(Task::new(short).after(last)).unwrap();
    }
    let graph = builder.build().unwrap();
    for round in 0..5 {
        begun.lock().unwrap().clear();
        pool.launch(&graph).unwrap().finish(LONG).unwrap();
        assert_eq!(begun.lock().unwrap().len(), 4, "round {round}");
    }
}

#[test]
fn parts_for_which_there_are_no_workers_are_refused() {
    let pool = CpuPool::new(3).unwrap();
    for (cores, workers) in [(None, 3), (Some(CoreSet::of([0, 2, 7])), 2)] {
        let mut builder = GraphBuilder::new();
        let (meet, begun) = meeting(&mut builder, 4);
        let task = Task::new(meet).parts_together(4);
        let task = cores.into_iter().fold(task, Task::cores);
        let task = builder.add(task).unwrap();
        let graph = builder.build().unwrap();
        let refused = pool.launch(&graph).unwrap_err();
        let RunError::TooManyParts { task: it, parts: 4, workers: found } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((it, found), (task, workers));
        assert!(begun.lock().unwrap().is_empty());
    }
    let mut builder = GraphBuilder::new();
    let (meet, _) = meeting(&mut builder, 2);
    builder.add(Task::new(meet).parts_together(2).cores(CoreSet::of([0, 2]))).unwrap();
    pool.launch(&builder.build().unwrap()).unwrap().finish(LONG).unwrap();
}

#[test]
fn a_pool_that_goes_begins_no_other_parts() {
    let pool = CpuPool::new(1).unwrap();
    let begun: Arc<Mutex<u32>> = Arc::default();
    let its = Arc::clone(&begun);
    let mut builder = GraphBuilder::new();
    let stay = builder.function(move |task| {
        *its.lock().unwrap() += 1;
        let since = Instant::now();
        while !task.is_cancelled() && since.elapsed() < LONG {
            std::thread::yield_now();
        }
        Ok(())
    });
    let many = builder.add(Task::new(stay).parts(1000)).unwrap();
    let behind = builder.add(Task::new(stay).after(many)).unwrap();
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    while *begun.lock().unwrap() == 0 {
        std::thread::yield_now();
    }
    drop(pool);
    let outcome = run.wait(LONG).unwrap();
    assert_eq!([many, behind].map(|task| outcome.state(task)), [TaskState::Cancelled; 2]);
    // One ran, and one may have been staged behind it.
    assert!(*begun.lock().unwrap() <= 2);
}
