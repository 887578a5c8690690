//! A task graph of host functions; no device.
//!
//! `cargo run --release --example graph_cpu`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use et::executor::{CpuPool, TaskState};
use et::graph::{GraphBuilder, Resource, Task, TaskError};

/// The numbers below this are added up, in parts.
const END: u64 = 1_000_000;
const PARTS: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sums: Arc<Vec<AtomicU64>> = Arc::new((0..PARTS).map(|_| AtomicU64::new(0)).collect());

    let mut builder = GraphBuilder::new();
    let its = Arc::clone(&sums);
    let part = builder.function(move |task| {
        let number = task.args()[0];
        let numbers = number * END / PARTS..(number + 1) * END / PARTS;
        its[usize::try_from(number).map_err(TaskError::new)?]
            .store(numbers.sum(), Ordering::Relaxed);
        Ok(())
    });
    let its = Arc::clone(&sums);
    let total = builder.function(move |_| {
        let total: u64 = its.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
        println!("the sum is {total}");
        if total == END * (END - 1) / 2 { Ok(()) } else { Err(TaskError::from("that is wrong")) }
    });

    // The sums are no memory that the graph knows, so a resource stands for them: unit n is the sum
    // of part n. The parts write different units and run at the same time; the total reads all
    // units and waits.
    let cells = Resource::new(PARTS);
    for number in 0..PARTS {
        builder.add(Task::new(part).u64(number).writes(cells.range(number..number + 1)))?;
    }
    let last = builder.add(Task::new(total).reads(&cells).name("total"))?;
    let graph = builder.build()?;

    let pool = CpuPool::new(2)?;
    // A graph may be launched any number of times.
    for _ in 0..3 {
        let run = pool.launch(&graph)?;
        let outcome = run.finish(Duration::from_secs(10))?;
        assert_eq!(outcome.state(last), TaskState::Complete);
        println!("{} tasks in {:?}", graph.len(), outcome.elapsed());
    }
    Ok(())
}
