//! Random faults in one process for a long time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use et_hal_sim::{Board, Fault, SimHal};
use et_runtime::Device;
use serde::Serialize;

use crate::cell::{board_config, config, policy};
use crate::host;
use crate::program::{self, Step, Trouble};

/// Rounds before anything is compared: allocators and caches fill first.
const WARM_UP: u64 = 20;
/// How much larger than after the warm-up the process may be.
const GROWTH_KIB: u64 = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides which faults come when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes what was counted as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    rounds: u64,
    right: u64,
    recovered: u64,
    /// How often each remedy was applied.
    remedies: BTreeMap<String, u64>,
    after_warm_up: Usage,
    at_the_end: Usage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Usage {
    resident_kib: u64,
    threads: u64,
    files: u64,
    mappings: u64,
    device_bytes: u64,
}

impl Usage {
    fn now(board: &Board, device: &Device<SimHal>) -> anyhow::Result<Self> {
        Ok(Self {
            resident_kib: host::resident_kib()?,
            threads: host::threads()?,
            files: host::files()?,
            mappings: board.host_memory().mappings() as u64,
            device_bytes: device.memory_stats().used_bytes,
        })
    }
}

/// Faults that a reset ends: of each one form, with `#` for a random count.
const FAULTS: [&str; 15] = [
    "noise",
    "delay-responses:300",
    "unknown-tag:#:32767",
    "duplicate-response:#",
    "partial-message:#:12:500",
    "drop-response:#",
    "answer:dma-write:#:4",
    "answer:dma-read:#:3",
    "answer:kernel-launch:1:3",
    "garbage:#",
    "bad-index:#:5000",
    "hang:#",
    "compute-hang:1",
    "compute-exception:1:5",
    "link-loss:#",
];

fn fault(dice: &mut fastrand::Rng) -> anyhow::Result<Fault> {
    let form = dice.choice(FAULTS).context("no fault")?;
    Ok(form.replace('#', &dice.u32(1..=12).to_string()).parse()?)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut dice = fastrand::Rng::with_seed(options.seed);
    let mut report = Report::default();
    let board = Board::power_on(board_config()?)?;
    let mut device = Device::open_with(SimHal::with_board(Arc::clone(&board)), config())?;
    while started.elapsed() < Duration::from_secs(options.seconds) || report.rounds <= WARM_UP {
        report.rounds += 1;
        let fault = fault(&mut dice)?;
        let at = *dice.choice(&Step::ALL[1..]).context("no step")?;
        let mut inject = |step: Step| {
            if step == at {
                board.inject(fault);
            }
        };
        let place = || format!("round {}, {fault} at {}", report.rounds, at.name());
        match program::run(&mut device, &mut inject) {
            Ok(()) => report.right += 1,
            Err(Trouble::Wrong(what)) => bail!("{}: {what}", place()),
            Err(trouble) => {
                let done =
                    device.recover(&policy()).with_context(|| format!("{}: {trouble}", place()))?;
                for step in done.steps {
                    *report.remedies.entry(step.remedy.to_string()).or_default() += 1;
                }
                report.recovered += 1;
            }
        }
        // Whatever the last round left behind: this one must not fail.
        device.reset(policy().timeout).with_context(place)?;
        program::run(&mut device, &mut |_| {}).with_context(place)?;
        if report.rounds == WARM_UP {
            report.after_warm_up = Usage::now(&board, &device)?;
        }
    }
    report.at_the_end = Usage::now(&board, &device)?;
    device.close();
    println!("{}", serde_json::to_string_pretty(&report)?);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)?;
    }
    let (before, after) = (report.after_warm_up, report.at_the_end);
    let same = |usage: Usage| Usage { resident_kib: 0, ..usage };
    ensure!(same(before) == same(after), "something is left of each round");
    ensure!(
        after.resident_kib <= before.resident_kib + GROWTH_KIB,
        "the process has grown by {} KiB",
        after.resident_kib.saturating_sub(before.resident_kib)
    );
    Ok(())
}
