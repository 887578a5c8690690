//! (a + b + 1) (a + b + 2) as a graph of four kernels.
//!
//! `cargo run --release --example formula`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::time::Duration;

use et::executor::ExecutorConfig;
use et::graph::{GraphBuilder, Task};

const ADD: &[u8] = include_bytes!("../../testing/kernels/elf/add.elf");
const ADD_SCALAR: &[u8] = include_bytes!("../../testing/kernels/elf/add_scalar.elf");
const MUL: &[u8] = include_bytes!("../../testing/kernels/elf/mul.elf");
const COUNT: usize = 16_384;
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = et::open(&std::env::args().nth(1).unwrap_or("sim:".to_owned()))?;
    let n = COUNT as u64;
    let array = || device.alloc_array::<f32>(COUNT);
    let (a, b, s, p, q, f) = (array()?, array()?, array()?, array()?, array()?, array()?);

    // What tasks read and write gives the order: both sums wait for s, the product waits for both.
    let mut builder = GraphBuilder::new();
    let add = builder.kernel(&device.load_kernel("add", ADD)?);
    let add_scalar = builder.kernel(&device.load_kernel("add_scalar", ADD_SCALAR)?);
    let mul = builder.kernel(&device.load_kernel("mul", MUL)?);
    builder.add(Task::new(add).input(&a).input(&b).output(&s).u64(n).name("s = a + b"))?;
    let plus = |to, number| Task::new(add_scalar).input(&s).output(to).f32(number).u64(n);
    builder.add(plus(&p, 1.0).name("p = s + 1"))?;
    builder.add(plus(&q, 2.0).name("q = s + 2"))?;
    builder.add(Task::new(mul).input(&p).input(&q).output(&f).u64(n).name("f = p * q"))?;
    let graph = builder.build()?;

    let stream = device.default_stream();
    stream.write(&[2.0f32; COUNT], &a)?.wait(LIMIT)?;
    stream.write(&[3.0f32; COUNT], &b)?.wait(LIMIT)?;
    device.executor(&ExecutorConfig::new())?.launch(&graph)?.finish(LIMIT)?;
    assert_eq!(stream.to_vec(&f, LIMIT)?, [42.0; COUNT]);
    println!("{COUNT} elements are right");
    Ok(())
}
