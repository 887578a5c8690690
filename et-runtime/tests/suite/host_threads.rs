//! How host threads share work that takes time, or does not.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use et_runtime::executor::{CpuPool, PoolConfig};
use et_runtime::graph::{GraphBuilder, Task, TaskError};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn tasks_that_take_time_use_all_workers_while_a_thread_waits() {
    let pool = CpuPool::with_config(&PoolConfig::new(2).processors(2)).unwrap();
    let mut builder = GraphBuilder::new();
    let (inside, most) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let its = Arc::clone(&most);
    let function = builder.function(move |_| {
        its.fetch_max(inside.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
        inside.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    });
    for _ in 0..200 {
        builder.add(Task::new(function)).unwrap();
    }
    let graph = builder.build().unwrap();
    for _ in 0..3 {
        assert!(pool.launch(&graph).unwrap().finish(LONG).unwrap().is_success());
    }
    assert_eq!(most.load(Ordering::Acquire), 2, "tasks at the same time");
}

/// The time of a processor that this thread has had.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// A thread that has the scheduler and loses its processor to another program holds up all tasks.
#[test]
fn who_waits_leaves_scheduling_to_the_worker_of_a_chain() {
    let pool = CpuPool::new(1).unwrap();
    let worked = Arc::new(AtomicU64::new(0));
    let mut builder = GraphBuilder::new();
    let its = Arc::clone(&worked);
    let function = builder.function(move |_| {
        let start = own_time();
        while own_time() - start < Duration::from_micros(20) {}
        let nanos = (own_time() - start).as_nanos();
        its.fetch_add(nanos.try_into().unwrap(), Ordering::Relaxed);
        Ok(())
    });
    let mut last = builder.add(Task::new(function)).unwrap();
    for _ in 0..2000 {
        last = builder.add(Task::new(function).after(last)).unwrap();
    }
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    let start = own_time();
    run.wait(LONG).unwrap().check().unwrap();
    let waited = own_time() - start;
    let worked = Duration::from_nanos(worked.load(Ordering::Relaxed));
    assert!(waited < worked / 4, "{waited:?} of a processor, for {worked:?} of work");
}

/// Many short tasks have taught the pool that another worker is not worth while; then comes one
/// that does not end before another has started.
#[test]
fn a_pool_of_short_tasks_makes_room_when_one_is_stuck() {
    for waits in [true, false] {
        let pool = CpuPool::with_config(&PoolConfig::new(2).processors(1)).unwrap();
        let mut builder = GraphBuilder::new();
        let short = builder.function(|_| Ok(()));
        let mut last = builder.add(Task::new(short)).unwrap();
        for _ in 0..500 {
            last = builder.add(Task::new(short).after(last)).unwrap();
        }
        let here = AtomicU32::new(0);
        let meet = builder.function(move |_| {
            here.fetch_add(1, Ordering::AcqRel);
            let start = std::time::Instant::now();
            while here.load(Ordering::Acquire) < 2 {
                if start.elapsed() > LONG / 2 {
                    return Err(TaskError::from("the other never came"));
                }
                std::thread::yield_now();
            }
            Ok(())
        });
        // The one in the middle is behind the first, in its worker.
        for function in [meet, short, meet] {
            builder.add(Task::new(function).after(last)).unwrap();
        }
        let run = pool.launch(&builder.build().unwrap()).unwrap();
        if waits {
            run.wait(LONG).unwrap().check().unwrap();
        } else {
            let (sender, receiver) = std::sync::mpsc::channel();
            run.on_done(move |outcome| sender.send(outcome.is_success()).unwrap());
            assert_eq!(receiver.recv_timeout(LONG), Ok(true));
        }
    }
}
