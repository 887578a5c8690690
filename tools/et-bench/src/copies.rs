//! Copies from the host to the device.

use std::time::{Duration, Instant};

use crate::figure::{Figure, Unit, repeat};
use crate::floor;

const WAIT: Duration = Duration::from_secs(30);
const DEVICE: &str = "sim:compute=null,dram=2GiB";
const LARGE: usize = 64 << 20;
const RUNS: usize = 11;

/// Median of `memcpy` over the same bytes; source and destination are touched before.
pub(crate) fn memcpy_floor(bytes: usize) -> f64 {
    let from = vec![1u8; bytes];
    let mut to = vec![2u8; bytes];
    let mut runs: Vec<f64> = (0..RUNS).map(|_| floor::memcpy(&from, &mut to)).collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// 64 MiB of DMA memory.
pub(crate) fn dma() -> anyhow::Result<Figure> {
    let device = et::open(DEVICE)?;
    let stream = device.default_stream();
    let target = device.alloc(LARGE as u64)?;
    let mut host = Some(device.host_buffer(LARGE)?);
    if let Some(host) = &mut host {
        host.fill(0, LARGE, 3)?;
    }
    let mut run = || -> anyhow::Result<f64> {
        let buffer = host.take().ok_or_else(|| anyhow::anyhow!("the buffer did not come back"))?;
        let start = Instant::now();
        let transfer = stream.upload(buffer, &target)?;
        host = Some(transfer.wait(WAIT).map_err(|failed| failed.error)?);
        Ok(LARGE as f64 / start.elapsed().as_secs_f64())
    };
    run()?;
    let floor = memcpy_floor(LARGE);
    let runs: Vec<f64> = repeat(RUNS, run)?.iter().map(|bandwidth| bandwidth / floor).collect();
    let floor = ("memcpy of the same bytes", 1.0);
    drop(target);
    device.close();
    Ok(Figure::new("copy_h2d_dma_ratio", Unit::More("of memcpy"), &runs, floor))
}

/// Bytes a second of 64 MiB of ordinary memory, in each run.
pub(crate) fn pageable_runs() -> anyhow::Result<Vec<f64>> {
    let device = et::open(DEVICE)?;
    let stream = device.default_stream();
    let target = device.alloc(LARGE as u64)?;
    let source = vec![3u8; LARGE];
    let run = || -> anyhow::Result<f64> {
        let start = Instant::now();
        stream.copy_to_device(&source, &target)?.wait(WAIT)?;
        Ok(LARGE as f64 / start.elapsed().as_secs_f64())
    };
    run()?;
    let runs = repeat(RUNS, run);
    drop(target);
    device.close();
    runs
}

/// 64 MiB of ordinary memory.
pub(crate) fn pageable() -> anyhow::Result<Figure> {
    let floor = memcpy_floor(LARGE);
    let runs: Vec<f64> = pageable_runs()?.iter().map(|bandwidth| bandwidth / floor).collect();
    let floor = ("memcpy of the same bytes", 1.0);
    Ok(Figure::new("copy_h2d_pageable_ratio", Unit::More("of memcpy"), &runs, floor))
}

/// 4 KiB copies, pipelined.
pub(crate) fn small() -> anyhow::Result<Figure> {
    const COPIES: u32 = 50_000;
    const SIZE: usize = 4096;
    let device = et::open(DEVICE)?;
    let stream = device.default_stream();
    let target = device.alloc((SIZE * 64) as u64)?;
    let source = vec![3u8; SIZE];
    let run = || -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut last = None;
        for index in 0..u64::from(COPIES) {
            let at = index % 64 * SIZE as u64;
            last = Some(stream.copy_to_device(&source, target.slice(at..at + SIZE as u64)?)?);
        }
        if let Some(last) = last {
            last.wait(WAIT)?;
        }
        stream.synchronize(WAIT)?;
        Ok(f64::from(COPIES) / start.elapsed().as_secs_f64())
    };
    run()?;
    let runs = repeat(RUNS, run)?;
    let mut to = vec![0u8; SIZE];
    let start = Instant::now();
    for _ in 0..COPIES {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&source));
    }
    let floor = f64::from(COPIES) / start.elapsed().as_secs_f64();
    drop(target);
    device.close();
    Ok(Figure::new(
        "copy_h2d_4k_per_s",
        Unit::More("per second"),
        &runs,
        ("memcpy of 4 KiB", floor),
    ))
}
