//! Waiting costs no time of a processor.

#![cfg(all(feature = "sim", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::LONG;
use et::executor::CpuPool;
use et::graph::{CoreSet, GraphBuilder, Task};
use et::{Config, Error};

/// How long nothing happens.
const WHILE: Duration = Duration::from_secs(1);
/// What that may cost; a thread that does not sleep takes all that others leave to it.
const COST: Duration = Duration::from_millis(60);

/// The time of processors is that of the process, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The time that all threads of this process have run.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in parentheses, may contain anything; fields 14 and 15 count hundredths.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>());
    Duration::from_millis(10 * ticks.map(Result::unwrap).sum::<u64>())
}

fn cost_of(wait: impl FnOnce()) -> Duration {
    let before = processor_time();
    wait();
    processor_time() - before
}

#[test]
fn waiting_costs_no_processor() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let locator = "sim:shires=1,dram=1GiB".parse().unwrap();
    let config = Config::new().shutdown_timeout(Duration::from_millis(10));
    let device = et::open_with(locator, config).unwrap();
    let stream = device.default_stream();
    stream.barrier().unwrap().wait(LONG).unwrap();
    // The firmware says nothing any more.
    device.hal().as_sim().unwrap().board().inject("hang:0".parse().unwrap());
    let silent = stream.barrier().unwrap();
    let cost = cost_of(|| {
        let outcome = silent.wait(WHILE);
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    });
    assert!(cost < COST, "waiting for {WHILE:?} took {cost:?} of the processors");
}

#[test]
fn an_idle_pool_costs_no_processor() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = CpuPool::new(4).unwrap();
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    // Short tasks that may run anywhere start no workers.
    for worker in 0..4 {
        builder.add(Task::new(function).cores(CoreSet::of([worker]))).unwrap();
    }
    let run = pool.launch(&builder.build().unwrap()).unwrap();
    assert!(run.finish(LONG).unwrap().is_success());
    let (_sender, never) = channel::<()>();
    let cost = cost_of(|| assert!(never.recv_timeout(WHILE).is_err()));
    assert!(cost < COST, "doing nothing for {WHILE:?} took {cost:?} of the processors");
}
