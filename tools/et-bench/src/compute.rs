//! The simulated cores, through the whole stack.

use std::time::{Duration, Instant};

use anyhow::Context;
use et::{AnyHal, Device, Launch};

use crate::figure::{Figure, repeat};
use crate::floor;

const WAIT: Duration = Duration::from_secs(120);
const RUNS: usize = 5;
const SPIN_INT: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_int.elf");
const SPIN_FP: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_fp.elf");

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
    Ok(Figure::new("cores_int_mips", "million instructions per second", &runs, floor))
}

/// Single-precision loop, one host core.
pub(crate) fn fp_mips() -> anyhow::Result<Figure> {
    let runs = mips(SPIN_FP, 1, 1, 200_000)?;
    let floor = ("the same operations by the host", floor::native_fp_mips());
    Ok(Figure::new("cores_fp_mips", "million instructions per second", &runs, floor))
}

/// Two host cores over one, all harts of the device busy.
pub(crate) fn scaling() -> anyhow::Result<Figure> {
    let alone = mips(SPIN_INT, 1, 32, 20_000)?;
    let both = mips(SPIN_INT, 2, 32, 20_000)?;
    let ratios: Vec<f64> = alone.iter().zip(&both).map(|(alone, both)| both / alone).collect();
    let floor = ("the host's own loop on two cores over one", floor::native_scaling());
    Ok(Figure::new("cores_scaling", "times one core", &ratios, floor))
}
