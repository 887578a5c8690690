//! C = A B on all harts of a device, and the same on the host.
//!
//! `cargo run --release --example matmul`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::time::Duration;

use et::Launch;

const MATMUL: &[u8] = include_bytes!("../../testing/kernels/elf/matmul.elf");
const LIMIT: Duration = Duration::from_secs(60);
const M: usize = 48;
const N: usize = 64;
const K: usize = 32;

/// Small whole numbers, so that every order of sums is exact.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (i * seed % 13) as f32 - 6.0).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = et::open(&std::env::args().nth(1).unwrap_or("sim:".to_owned()))?;
    let stream = device.default_stream();
    let kernel = device.load_kernel("matmul", MATMUL)?;
    let (a, b) = (numbers(M * K, 7), numbers(K * N, 5));
    let alloc = |count| device.alloc_array::<f32>(count);
    let (da, db, dc) = (alloc(M * K)?, alloc(K * N)?, alloc(M * N)?);
    stream.write(&a, &da)?.wait(LIMIT)?;
    stream.write(&b, &db)?.wait(LIMIT)?;
    let launch = Launch::new(&kernel).buffer(&da).buffer(&db).buffer(&dc);
    stream.launch(&launch.u64(M as u64).u64(N as u64).u64(K as u64))?.wait(LIMIT)?;
    let c = stream.to_vec(&dc, LIMIT)?;
    let row_by_column = |i: usize| (0..K).map(|k| a[i / N * K + k] * b[k * N + i % N]).sum::<f32>();
    assert!((0..M * N).all(|i| c[i] == row_by_column(i)));
    println!("{} elements are right", M * N);
    Ok(())
}
