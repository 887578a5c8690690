//! What the Python package costs over the same calls in Rust.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::Launch;
use serde::Deserialize;

use crate::copies;
use crate::figure::{Figure, Unit, median, repeat};
use crate::host::{ADD, NULL_DEVICE};

const WAIT: Duration = Duration::from_secs(30);
const LAUNCHES: u32 = 20_000;
/// Rounds in which both sides take turns, as the machine is not as quick at all times.
const ROUNDS: usize = 9;
/// Runs of each side in a round, of which the middle one counts.
const RUNS: usize = 3;

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
    let (mut launch_us, mut over, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut import_ms, mut empty_ms) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let of = measure()?;
        let (launch, copy) = (median(&launches()?), median(&copies::pageable_runs()?));
        launch_us.push(launch);
        over.push(median(&of.launch_us) - launch);
        ratios.push(median(&of.copy_bytes_per_s) / copy);
        import_ms.push(median(&of.import_ms));
        empty_ms.push(of.empty_ms);
    }
    let floor = ("a launch and its wait in Rust", median(&launch_us));
    take(Figure::new("python_launch_overhead_us", Unit::Less("us"), &over, floor));
    let floor = ("the same copy in Rust", 1.0);
    take(Figure::new("python_numpy_copy_ratio", Unit::More("of Rust"), &ratios, floor));
    let floor = ("an interpreter that imports nothing", median(&empty_ms));
    take(Figure::new("python_import_ms", Unit::Less("ms"), &import_ms, floor));
    Ok(())
}

/// Microseconds of a launch with four arguments and its wait, made anew each time, as Python does.
fn launches() -> anyhow::Result<Vec<f64>> {
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    let (stream, array) = (device.default_stream(), device.alloc(64)?);
    let runs = repeat(RUNS, || {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            let launch = Launch::new(&kernel).buffer(&array).buffer(&array).buffer(&array).u64(16);
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
    command.args(["-c", include_str!("python.py")]).arg(kernel.path());
    command.args([RUNS.to_string(), LAUNCHES.to_string()]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "python ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("what python printed")
}
