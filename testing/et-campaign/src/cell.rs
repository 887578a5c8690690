//! One fault at one step, in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use et_hal_sim::{Board, BoardConfig, Fault, SimHal};
use et_runtime::{Config, Device, RecoveryPolicy};
use serde::{Deserialize, Serialize};

use crate::host::threads;
use crate::program::{self, Step, Trouble};

/// What became of a disturbed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It did not notice.
    Right,
    /// It was told of the fault, and the device does not work again.
    Error,
    /// It was told, recovered the device and ran once more with the right results.
    Recovered,
    /// It did not end.
    Hang,
    Panic,
    /// Success was reported with wrong results.
    Wrong,
    /// Device memory, mappings of host memory or threads are left.
    Leak,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
}

impl Verdict {
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into() }
    }

    fn of(outcome: Outcome, trouble: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(outcome, et_runtime::Report(trouble).to_string())
    }
}

/// Limits that a machine under load keeps, and that a fault makes wait out.
pub(crate) fn config() -> Config {
    Config::new()
        .boot_timeout(Duration::from_secs(1))
        .command_timeout(Duration::from_millis(500))
        .shutdown_timeout(Duration::from_millis(500))
        .watchdog(Duration::from_secs(1))
}

pub(crate) fn policy() -> RecoveryPolicy {
    RecoveryPolicy::new().timeout(Duration::from_secs(2))
}

pub(crate) fn board_config() -> anyhow::Result<BoardConfig> {
    "shires=2,dram=256MiB".parse().context("the board")
}

/// Plays one cell of the table.
pub(crate) fn play(fault: Fault, step: Step) -> anyhow::Result<Verdict> {
    let clean = undisturbed()?;
    let before = threads()?;
    let mut config = board_config()?;
    if step == Step::Open {
        config.faults.push(fault);
    }
    let board = Board::power_on(config)?;
    let mut verdict = disturbed(&board, fault, step, clean);
    let mappings = board.host_memory().mappings();
    drop(board);
    let after = threads()?;
    if verdict.outcome <= Outcome::Recovered && (mappings, after) != (0, before) {
        let left = format!("{mappings} mappings and {after} threads, {before} before");
        verdict = Verdict::new(Outcome::Leak, left);
    }
    Ok(verdict)
}

/// Returns how much device memory the program leaves to the runtime's own ends.
fn undisturbed() -> anyhow::Result<u64> {
    let mut device = Device::open_with(SimHal::open(board_config()?)?, config())?;
    program::run(&mut device, &mut |_| {})?;
    Ok(device.memory_stats().used_bytes)
}

fn disturbed(board: &Arc<Board>, fault: Fault, step: Step, clean: u64) -> Verdict {
    let hal = SimHal::with_board(Arc::clone(board));
    let mut device = match Device::open_with(hal, config()) {
        Ok(device) => device,
        Err(error) => return Verdict::of(Outcome::Error, &error),
    };
    let mut inject = |at: Step| {
        if at == step {
            board.inject(fault);
        }
    };
    let verdict = match program::run(&mut device, &mut inject) {
        Ok(()) => Verdict::new(Outcome::Right, ""),
        Err(trouble @ Trouble::Wrong(_)) => Verdict::of(Outcome::Wrong, &trouble),
        Err(trouble) => recover(&mut device, &trouble),
    };
    let used = device.memory_stats().used_bytes;
    device.close();
    if matches!(verdict.outcome, Outcome::Right | Outcome::Recovered) && used != clean {
        let left = format!("{used} bytes of device memory, {clean} in a clean run");
        return Verdict::new(Outcome::Leak, left);
    }
    verdict
}

fn recover(device: &mut Device<SimHal>, trouble: &Trouble) -> Verdict {
    let recovery = match device.recover(&policy()) {
        Ok(recovery) => recovery,
        Err(error) => {
            let Verdict { detail, .. } = Verdict::of(Outcome::Error, &error);
            return Verdict::new(Outcome::Error, format!("{trouble}; {detail}"));
        }
    };
    let remedies: Vec<_> = recovery.steps.iter().map(|step| step.remedy.to_string()).collect();
    match program::run(device, &mut |_| {}) {
        Ok(()) => Verdict::new(Outcome::Recovered, format!("{trouble}; {}", remedies.join(", "))),
        Err(again @ Trouble::Wrong(_)) => Verdict::of(Outcome::Wrong, &again),
        Err(again) => {
            let detail = format!("{trouble}; {}; then {again}", remedies.join(", "));
            Verdict::new(Outcome::Error, detail)
        }
    }
}
