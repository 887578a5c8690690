//! `cargo xtask vm`: the real kernel's VFIO in virtual machines, without the card and without KVM.

mod boot;
mod builds;
mod fetch;
mod hindrance;
mod image;
mod kernel;
mod layers;
mod lines;
mod monitor;
mod program;
mod qemu;
mod report;
mod selftest;
mod simulator;
mod stage;
mod tally;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};

use builds::Builds;
use fetch::Cache;
pub(crate) use hindrance::Hindrance;
use kernel::Kernel;
use layers::{CARD_BEST, LAYERS, Layer, OPERATOR, Stage};
use qemu::Release;
pub(crate) use report::Report;
use stage::Bench;
use tally::Tally;

use crate::shell::{root, write_json};

/// What the command line says.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Writes the counts as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only this layer.
    #[arg(long, value_name = "LAYER")]
    only: Option<String>,
    /// Where logs and images go.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// A simulator to run instead of the workspace's.
    #[arg(long, value_name = "PROGRAM")]
    simulator: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let (report, work) = measure(options)?;
    write_json(options.json.as_deref(), &report)?;
    let failed = report.failed();
    ensure!(failed == 0, "{failed} checks failed; the logs are in {}", work.display());
    Ok(())
}

/// Where logs go, if nothing else is said.
pub(crate) fn work_folder() -> PathBuf {
    root().join("target/vm")
}

/// Runs the layers and prints what they came to.
pub(crate) fn measure(options: &Options) -> anyhow::Result<(Report, PathBuf)> {
    let chosen: Vec<&Layer> = LAYERS
        .iter()
        .filter(|layer| options.only.as_ref().is_none_or(|only| layer.name == only))
        .collect();
    let names: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
    ensure!(!chosen.is_empty(), "no such layer; there are {}", names.join(", "));

    let work = options.work.clone().unwrap_or_else(work_folder);
    let mut bench = bench(&work, options.simulator.clone())?;
    let work = bench.work.clone();
    for layer in chosen {
        let started = Instant::now();
        println!("layer {}", layer.name);
        let tally = outcome(&mut bench, layer, &work);
        bench.report.add(layer.name, tally, started.elapsed());
    }
    bench.report.print();
    Ok((bench.report, work))
}

fn bench(work: &Path, simulator: Option<PathBuf>) -> anyhow::Result<Bench> {
    fs::create_dir_all(work).with_context(|| format!("creating {}", work.display()))?;
    Ok(Bench {
        cache: Cache::open()?,
        builds: Builds::default(),
        simulator,
        work: work.canonicalize()?,
        report: Report::default(),
    })
}

/// An operator of llama.cpp in a guest, whose program is `operators`; returns what it said, and
/// what was not as it should be.
pub(crate) fn operator(operators: &Path) -> Result<(String, Tally), Hindrance> {
    let mut bench = bench(&work_folder(), None)?;
    bench.builds.have(operators);
    let folder = bench.work.join("llama");
    fs::create_dir_all(&folder)?;
    let (qemu, kernel) = (Release::Backports, Kernel::Cloud);
    let tally = stage::run(&mut bench, qemu, kernel, &CARD_BEST, &[OPERATOR], &folder)?;
    let log = fs::read(folder.join(OPERATOR.name).with_extension("log"))?;
    Ok((String::from_utf8_lossy(&log).into_owned(), tally))
}

fn outcome(bench: &mut Bench, layer: &Layer, work: &Path) -> Tally {
    let folder = work.join(layer.name);
    let ran =
        fs::create_dir_all(&folder).map_err(Hindrance::from).and_then(|()| match layer.stage {
            Stage::Host { commands } => selftest::run(bench, commands, &folder),
            Stage::Guest { qemu, kernel, machine, boots } => {
                stage::run(bench, qemu, kernel, &machine, boots, &folder)
            }
        });
    ran.unwrap_or_else(|hindrance| {
        let mut tally = Tally::default();
        tally.hinder("the layer", &hindrance);
        tally
    })
}
