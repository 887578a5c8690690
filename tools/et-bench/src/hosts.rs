//! The examples for many hosts: what a second device gives, and what bringing the data there costs.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::figure::{Figure, Unit};

/// Runs of each example, which measures one device and two in turn.
const RUNS: usize = 5;
const WORKERS: &str = "2";
/// So that a run takes seconds.
const ROWS: &str = "8192";

/// What the examples print.
#[derive(Debug, Deserialize)]
struct Measured {
    speedup: f64,
    kernel_s: f64,
    copies_s: f64,
    between_s: f64,
    moved_bytes: f64,
}

/// Hands the figures to `take`.
pub(crate) fn figures(take: &mut impl FnMut(Figure)) -> anyhow::Result<()> {
    let python = std::env::var_os("PYTHON").context("PYTHON names no interpreter")?;
    let mut ray = Command::new(&python);
    ray.arg("ray_shards.py").args(["--workers", WORKERS]);
    ray.env("RAY_USAGE_STATS_ENABLED", "0");
    let mpiexec = Path::new(&python).with_file_name("mpiexec");
    let mut mpi = Command::new(if mpiexec.exists() { mpiexec } else { "mpiexec".into() });
    mpi.args(["-n", WORKERS]).arg(&python).args(["-m", "mpi4py", "mpi_shards.py"]);
    for (names, mut command) in [
        (["ray_speedup_2w", "ray_between_s", "ray_moved_bytes_per_s"], ray),
        (["mpi_speedup_2w", "mpi_between_s", "mpi_moved_bytes_per_s"], mpi),
    ] {
        command.args(["--json", "--rows", ROWS]);
        let runs = (0..RUNS).map(|_| measure(&mut command)).collect::<anyhow::Result<Vec<_>>>()?;
        let all = |of: fn(&Measured) -> f64| runs.iter().map(of).collect::<Vec<_>>();
        let [speedup, between, moved] = names;
        take(Figure::new(speedup, Unit::More("x"), &all(|run| run.speedup), ("one device", 1.0)));
        let mut work = all(|run| (run.kernel_s + run.copies_s) / 2.0);
        work.sort_by(f64::total_cmp);
        let floor = ("kernels and copies of each device", work[RUNS / 2]);
        take(Figure::new(between, Unit::Less("s"), &all(|run| run.between_s), floor));
        let mut own = all(|run| run.moved_bytes / (run.copies_s / 2.0));
        own.sort_by(f64::total_cmp);
        let floor = ("copies between host and devices", own[RUNS / 2]);
        let rates = all(|run| run.moved_bytes / run.between_s.max(1e-6));
        take(Figure::new(moved, Unit::More("B/s"), &rates, floor));
    }
    Ok(())
}

fn measure(command: &mut Command) -> anyhow::Result<Measured> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/et-python/examples");
    command.current_dir(examples).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().find(|line| line.starts_with('{')).context("no figures")?;
    serde_json::from_str(line).context("what the example printed")
}
