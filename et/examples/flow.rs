//! A graph that is built while it runs: what is launched next depends on what was computed.
//!
//! `cargo run --release --example flow`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::path::Path;
use std::time::Duration;

use et::executor::{DeviceExecutor, ExecutorConfig};
use et::graph::{GraphBuilder, Task};

const ELEMENTS: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = et::open("sim:shires=2,dram=1GiB")?;
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf");
    let mul = device.load_kernel("mul", &std::fs::read(kernels.join("mul.elf"))?)?;
    let stream = device.default_stream();
    let bytes = 4 * ELEMENTS as u64;
    let halves = [device.alloc(bytes)?, device.alloc(bytes)?];
    for half in &halves {
        stream.copy_to_device(&[1.5f32; ELEMENTS], half)?.wait(PATIENCE)?;
    }

    // One task for each half, which is independent of the other.
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&mul);
    for half in &halves {
        let task = Task::new(function).input(half).input(half).output(half).u64(ELEMENTS as u64);
        builder.add(task.name("x = x * x"))?;
    }
    let square = builder.build()?;

    let executor = DeviceExecutor::new(&device, &ExecutorConfig::new())?;
    let flow = executor.flow();
    let (mut steps, mut value) = (0, 0.0f32);
    while value < 1e6 {
        // The second half may lag behind: its tasks wait for those before them, not for the host.
        flow.launch(&square)?;
        flow.wait_for(&halves[0], PATIENCE)?;
        stream.read(&halves[0], std::slice::from_mut(&mut value), PATIENCE)?;
        steps += 1;
        println!("after {steps} steps: {value}");
    }
    flow.finish(PATIENCE)?;
    let mut last = [0.0f32; ELEMENTS];
    stream.read(&halves[1], &mut last, PATIENCE)?;
    println!("the other half: {}", last[0]);
    Ok(())
}
