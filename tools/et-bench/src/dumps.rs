//! What is written when something went wrong.

use std::io::Cursor;
use std::time::{Duration, Instant};

use anyhow::Context;
use et::Launch;
use et::trace::layout::Entries;

use crate::copies::memcpy_floor;
use crate::figure::{Figure, Unit, repeat};

const WAIT: Duration = Duration::from_secs(30);
const RUNS: usize = 11;
const KERNEL: &[u8] = include_bytes!("../../../testing/kernels/elf/trap_load.elf");

/// A core file with 64 MiB of device memory, into memory.
pub(crate) fn core() -> anyhow::Result<Figure> {
    const LARGE: usize = 64 << 20;
    let device = et::open("sim:shires=1,dram=1GiB")?;
    let stream = device.default_stream();
    let buffer = device.alloc(LARGE as u64)?;
    stream.fill(&buffer, 3)?.wait(WAIT)?;
    let kernel = device.load_kernel("trap_load", KERNEL)?;
    let outcome = stream.launch(&Launch::new(&kernel))?.wait(WAIT);
    let error = outcome.err().context("the kernel traps")?;
    let failure = error.launch_failure().context("it is its own failure")?;
    // Touched before, as the target of the copy that it is compared with.
    let mut file = vec![1; LARGE + (1 << 20)];
    let mut run = || -> anyhow::Result<f64> {
        let start = Instant::now();
        device.core_dump(failure).region("buffer", &buffer).write(Cursor::new(&mut file[..]))?;
        Ok(LARGE as f64 / start.elapsed().as_secs_f64())
    };
    run()?;
    let floor = memcpy_floor(LARGE);
    let runs: Vec<f64> = repeat(RUNS, run)?.iter().map(|bandwidth| bandwidth / floor).collect();
    Ok(Figure::new(
        "core_dump_ratio",
        Unit::More("of memcpy"),
        &runs,
        ("memcpy of the same bytes", 1.0),
    ))
}

/// Entries decoded from a full buffer of the master minion, one after the other.
pub(crate) fn trace() -> anyhow::Result<Figure> {
    const ENTRIES: u32 = 1_000_000;
    const ENTRY_BYTES: usize = 32;
    let mut bytes = Vec::with_capacity(ENTRIES as usize * ENTRY_BYTES);
    for cycle in 0..u64::from(ENTRIES) {
        // A 64-bit value: cycle, payload, hart, kind, tag, value. Spec: §16.2
        bytes.extend(cycle.to_le_bytes());
        bytes.extend([16, 0, 0, 0, 70, 0, 6, 0]);
        bytes.extend([0; 16]);
    }
    let run = || -> anyhow::Result<f64> {
        let start = Instant::now();
        let entries = Entries::new(std::hint::black_box(&bytes));
        let sum: u64 = entries.map(|entry| std::hint::black_box(entry).cycle).sum();
        anyhow::ensure!(sum == u64::from(ENTRIES) * (u64::from(ENTRIES) - 1) / 2, "lost entries");
        Ok(f64::from(ENTRIES) / start.elapsed().as_secs_f64())
    };
    run()?;
    let runs = repeat(RUNS, run)?;
    let start = Instant::now();
    let words = std::hint::black_box(&bytes[..]).chunks_exact(ENTRY_BYTES);
    std::hint::black_box(words.map(|entry| u64::from(std::hint::black_box(entry[0]))).sum::<u64>());
    let floor = f64::from(ENTRIES) / start.elapsed().as_secs_f64();
    Ok(Figure::new(
        "trace_entries_per_s",
        Unit::More("per second"),
        &runs,
        ("one load from each", floor),
    ))
}

/// A stream of launches that do nothing, recorded and not recorded, in turns; the cost in percent.
pub(crate) fn profile() -> anyhow::Result<Figure> {
    const LAUNCHES: u32 = 100_000;
    let device = et::open("sim:compute=null,dram=1GiB")?;
    let kernel = device.load_kernel("trap_load", KERNEL)?;
    let (stream, launch) = (device.default_stream(), Launch::new(&kernel));
    let time = || -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            drop(stream.launch(&launch)?);
        }
        stream.synchronize(WAIT)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let pair = || -> anyhow::Result<f64> {
        let without = time()?;
        device.profiler().start();
        let with = time()?;
        let profile = device.profiler().stop();
        let all = profile.records.len() as u64 + profile.dropped;
        anyhow::ensure!(all == u64::from(LAUNCHES), "{all} operations were recorded");
        Ok((with / without - 1.0) * 100.0)
    };
    pair()?;
    let runs = repeat(RUNS, pair)?;
    Ok(Figure::new("profile_cost_percent", Unit::Less("%"), &runs, ("the goal", 3.0)))
}
