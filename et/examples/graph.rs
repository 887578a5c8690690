//! A task graph: kernels on the device, and a host function that looks at the result.
//!
//! `cargo run --release --example graph`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::path::Path;
use std::time::Duration;

use et::executor::{DeviceExecutor, ExecutorConfig, RunOptions};
use et::graph::{GraphBuilder, HostData, Task, TaskError};

const ELEMENTS: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = et::open("sim:shires=2,dram=1GiB")?;
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf");
    let load = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
        Ok(device.load_kernel(name, &std::fs::read(kernels.join(format!("{name}.elf")))?)?)
    };
    let bytes = 4 * ELEMENTS;
    let (x, y, z) = (device.alloc(bytes)?, device.alloc(bytes)?, device.alloc(bytes)?);

    // Host data can be the source or the target of copies, and be read and written by host
    // functions.
    let input = HostData::new(1.5f32.to_le_bytes().repeat(1024));
    let result = HostData::zeroed(4096);

    let mut builder = GraphBuilder::new();
    let add_scalar = builder.kernel(&load("add_scalar")?);
    let mul = builder.kernel(&load("mul")?);
    let its = result.clone();
    let check = builder.function(move |_| {
        let is_right = its.with(|bytes| {
            let (floats, _) = bytes.as_chunks::<4>();
            floats.iter().all(|&float| f32::from_le_bytes(float) == 6.25)
        });
        if is_right { Ok(()) } else { Err(TaskError::from("not all elements are 6.25")) }
    });

    // No edges: what tasks say of their use of x, y, z and the host data gives the order.
    builder.copy_in(&input, &x)?;
    let y_of_x = |number: f32| Task::new(add_scalar).input(&x).output(&y).f32(number).u64(ELEMENTS);
    builder.add(y_of_x(1.0).name("y = x + 1"))?;
    builder.add(Task::new(mul).input(&y).input(&y).output(&z).u64(ELEMENTS).name("z = y * y"))?;
    builder.copy_out(&z, &result)?;
    builder.add(Task::new(check).reads(&result).name("check"))?;
    let graph = builder.build()?;
    println!("{graph}");

    let executor = DeviceExecutor::new(&device, &ExecutorConfig::new())?;
    let options = RunOptions::new().deadline(Duration::from_secs(10)).traced();
    let outcome = executor.launch_with(&graph, options)?.finish(Duration::from_secs(20))?;
    println!("complete in {:?}, place {}", outcome.elapsed(), outcome.place());
    if let Some(trace) = outcome.trace() {
        for span in trace.spans() {
            println!("{} ran from {:?} to {:?}", span.task, span.start, span.end);
        }
    }
    Ok(())
}
