//! y = 2 x + y on a device.
//!
//! `cargo run --release --example saxpy`

#![expect(clippy::print_stdout, reason = "examples show what they do")]

use std::time::Duration;

use et::Launch;

const SAXPY: &[u8] = include_bytes!("../../testing/kernels/elf/saxpy.elf");
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = et::open(&std::env::args().nth(1).unwrap_or("sim:".to_owned()))?;
    let stream = device.default_stream();
    let kernel = device.load_kernel("saxpy", SAXPY)?;
    let (x, y) = (device.alloc_array::<f32>(1000)?, device.alloc_array::<f32>(1000)?);
    stream.write(&[3.0f32; 1000], &x)?.wait(LIMIT)?;
    stream.write(&[1.0f32; 1000], &y)?.wait(LIMIT)?;
    let launch = Launch::new(&kernel).buffer(&x).buffer(&y).f32(2.0).u64(1000);
    stream.launch(&launch)?.wait(LIMIT)?;
    assert_eq!(stream.to_vec(&y, LIMIT)?, [7.0; 1000]);
    println!("1000 elements are right");
    Ok(())
}
