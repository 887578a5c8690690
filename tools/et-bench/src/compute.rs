//! The simulated cores, through the whole stack.

use std::time::{Duration, Instant};

use anyhow::Context;
use et::{AnyHal, Device, DeviceBuffer, Launch};

use crate::figure::{Figure, Unit, repeat};
use crate::floor;

const WAIT: Duration = Duration::from_secs(120);
const RUNS: usize = 5;
const SPIN_INT: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_int.elf");
const SPIN_FP: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_fp.elf");
const MATMUL: &[u8] = include_bytes!("../../../testing/kernels/elf/matmul.elf");
const LOADS: &[u8] = include_bytes!("../../../testing/kernels/elf/loads.elf");

fn simulator(device: &Device<AnyHal>) -> anyhow::Result<&et::sim::SimHal> {
    device.hal().as_sim().context("the device is not simulated")
}

/// Million instructions per second of one launch on `shires`, with that many host threads.
fn mips(elf: &[u8], threads: usize, shires: u32, iterations: u64) -> anyhow::Result<Vec<f64>> {
    let device = et::open(&format!("sim:shires={shires},dram=1GiB,threads={threads}"))?;
    let kernel = device.load_kernel("spin", elf)?;
    let harts = u64::from(device.properties().harts);
    let out = device.alloc(8 * harts)?;
    let launch = Launch::new(&kernel).u64(iterations).buffer(&out);
    let stream = device.default_stream();
    let runs = repeat(RUNS, || {
        let before = simulator(&device)?.board().counters().instructions;
        let start = Instant::now();
        stream.launch(&launch)?.wait(WAIT)?;
        let elapsed = start.elapsed().as_secs_f64();
        let done = simulator(&device)?.board().counters().instructions - before;
        anyhow::ensure!(done >= iterations * harts * 8, "the kernel executed too little");
        Ok(done as f64 / elapsed / 1e6)
    })?;
    drop((out, kernel));
    device.close();
    Ok(runs)
}

/// Integer loop, one host core.
pub(crate) fn int_mips() -> anyhow::Result<Figure> {
    let runs = mips(SPIN_INT, 1, 1, 400_000)?;
    let floor = ("the same operations by the host", floor::native_int_mips());
    Ok(Figure::new("cores_int_mips", Unit::More("million instructions per second"), &runs, floor))
}

/// Single-precision loop, one host core.
pub(crate) fn fp_mips() -> anyhow::Result<Figure> {
    let runs = mips(SPIN_FP, 1, 1, 200_000)?;
    let floor = ("the same operations by the host", floor::native_fp_mips());
    Ok(Figure::new("cores_fp_mips", Unit::More("million instructions per second"), &runs, floor))
}

/// Two host cores over one, all harts of the device busy.
pub(crate) fn scaling() -> anyhow::Result<Figure> {
    let alone = mips(SPIN_INT, 1, 32, 20_000)?;
    let both = mips(SPIN_INT, 2, 32, 20_000)?;
    let ratios: Vec<f64> = alone.iter().zip(&both).map(|(alone, both)| both / alone).collect();
    let floor = ("the host's own loop on two cores over one", floor::native_scaling());
    Ok(Figure::new("cores_scaling", Unit::More("times one core"), &ratios, floor))
}

/// Private caches over flat memory, on one host core: how fast a kernel runs, by turns.
///
/// `launch` adds the arguments, of which one is a buffer of so many bytes.
fn private_ratio(
    name: &'static str,
    elf: &[u8],
    bytes: u64,
    launch: impl Fn(Launch, &DeviceBuffer) -> Launch,
) -> anyhow::Result<Figure> {
    let open = |memory| et::open(&format!("sim:memory={memory},shires=1,dram=1GiB,threads=1"));
    let devices = [open("private")?, open("flat")?];
    let mut launches = Vec::new();
    for device in &devices {
        let (kernel, buffer) = (device.load_kernel("loop", elf)?, device.alloc(bytes)?);
        launches.push((launch(Launch::new(&kernel), &buffer), buffer));
    }
    let ratios = repeat(RUNS, || {
        let mut took = [(0.0, 0); 2];
        for ((device, (launch, _)), took) in devices.iter().zip(&launches).zip(&mut took) {
            let before = simulator(device)?.board().counters().instructions;
            let start = Instant::now();
            device.default_stream().launch(launch)?.wait(WAIT)?;
            let done = simulator(device)?.board().counters().instructions - before;
            *took = (start.elapsed().as_secs_f64(), done);
        }
        let [(private, done), (flat, expected)] = took;
        anyhow::ensure!(done == expected, "{done} instructions, and {expected} on flat memory");
        Ok(flat / private)
    })?;
    drop(launches);
    devices.into_iter().for_each(Device::close);
    Ok(Figure::new(name, Unit::More("times flat memory"), &ratios, ("flat memory", 1.0)))
}

/// Integers in registers.
pub(crate) fn private_int() -> anyhow::Result<Figure> {
    let launch = |launch: Launch, out: &DeviceBuffer| launch.u64(400_000).buffer(out);
    private_ratio("cores_private_int_ratio", SPIN_INT, 8 << 11, launch)
}

/// Floats in registers.
pub(crate) fn private_fp() -> anyhow::Result<Figure> {
    let launch = |launch: Launch, out: &DeviceBuffer| launch.u64(200_000).buffer(out);
    private_ratio("cores_private_fp_ratio", SPIN_FP, 8 << 11, launch)
}

/// Words that each hart loads and stores, over and over.
pub(crate) fn private_loads() -> anyhow::Result<Figure> {
    const BYTES: u64 = 1 << 16;
    let launch =
        |launch: Launch, words: &DeviceBuffer| launch.buffer(words).u64(BYTES / 8).u64(2000);
    private_ratio("cores_private_loads_ratio", LOADS, BYTES, launch)
}

/// A product of matrices of 128 x 128 floats: loads of shared data, arithmetic, and few stores.
pub(crate) fn private_matmul() -> anyhow::Result<Figure> {
    const SIDE: u64 = 128;
    const BYTES: u64 = 4 * SIDE * SIDE;
    let launch = |launch: Launch, both: &DeviceBuffer| {
        let result = both.addr().as_u64() + BYTES;
        launch.buffer(both).buffer(both).u64(result).u64(SIDE).u64(SIDE).u64(SIDE)
    };
    private_ratio("cores_private_matmul_ratio", MATMUL, 2 * BYTES, launch)
}
