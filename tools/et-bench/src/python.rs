//! What the Python package costs over the same calls in Rust.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::Launch;
use serde::Deserialize;

use crate::copies;
use crate::figure::{Figure, repeat};
use crate::host::{ADD, NULL_DEVICE};

const WAIT: Duration = Duration::from_secs(30);
const LAUNCHES: u32 = 20_000;
const RUNS: usize = 9;

/// What `python.py` prints.
#[derive(Debug, Deserialize)]
struct Measured {
    launch_us: Vec<f64>,
    copy_bytes_per_s: Vec<f64>,
    import_ms: Vec<f64>,
    empty_ms: f64,
}

/// Hands the figures to `take`.
pub(crate) fn figures(take: &mut impl FnMut(Figure)) -> anyhow::Result<()> {
    // One after the other: both sides need two processors.
    let launch_us = median(&launches()?);
    let bytes_per_s = median(&copies::pageable_runs()?);
    let of = measure()?;
    let over: Vec<_> = of.launch_us.iter().map(|us| us - launch_us).collect();
    let floor = ("a launch and its wait in Rust", launch_us);
    take(Figure::new("python_launch_overhead_us", "us", &over, floor));
    let ratios: Vec<_> = of.copy_bytes_per_s.iter().map(|rate| rate / bytes_per_s).collect();
    let floor = ("the same copy in Rust", 1.0);
    take(Figure::new("python_numpy_copy_ratio", "of Rust", &ratios, floor));
    let floor = ("an interpreter that imports nothing", of.empty_ms);
    take(Figure::new("python_import_ms", "ms", &of.import_ms, floor));
    Ok(())
}

fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Microseconds of a launch with four arguments and its wait, made anew each time, as Python does.
fn launches() -> anyhow::Result<Vec<f64>> {
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    let stream = device.default_stream();
    let runs = repeat(RUNS, || {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            let launch = Launch::new(&kernel).u64(1).u64(2).u64(3).u64(4);
            stream.launch(&launch)?.wait(WAIT)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES))
    });
    device.close();
    runs
}

fn measure() -> anyhow::Result<Measured> {
    let mut kernel = tempfile::NamedTempFile::new()?;
    kernel.write_all(ADD)?;
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.args(["-c", include_str!("python.py")]).arg(kernel.path()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "python ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("what python printed")
}
