//! Every fault at every step.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use et_hal_sim::Fault;
use serde::Serialize;

use crate::cell::{Outcome, Verdict};
use crate::program::Step;

/// A cell that takes longer is a hang: each wait in it has a limit, and they add up to less.
const LIMIT: Duration = Duration::from_secs(90);

/// Faults, and what may become of a program that meets them.
const FAULTS: &[(&str, Severity)] = &[
    ("noise", Severity::Harmless),
    ("spurious-interrupts:1", Severity::Harmless),
    ("lost-interrupts:1", Severity::Harmless),
    ("lost-interrupts:3", Severity::Harmless),
    ("delay-responses:2000", Severity::Harmless),
    ("unknown-tag:1:32767", Severity::Harmless),
    ("duplicate-response:1", Severity::Harmless),
    ("duplicate-response:2", Severity::Harmless),
    ("partial-message:1:12:3000", Severity::Harmless),
    ("drop-response:1", Severity::Curable),
    ("drop-response:2", Severity::Curable),
    ("garbage:1", Severity::Curable),
    ("garbage:2", Severity::Curable),
    ("bad-index:1:5000", Severity::Curable),
    ("bad-index:2:8", Severity::Curable),
    ("answer:echo:1:1", Severity::Curable),
    ("answer:kernel-launch:1:3", Severity::Curable),
    ("answer:kernel-launch:1:4", Severity::Curable),
    ("answer:dma-write:1:3", Severity::Curable),
    ("answer:dma-write:2:12", Severity::Curable),
    ("answer:dma-read:1:5", Severity::Curable),
    ("answer:dma-read:1:77", Severity::Curable),
    ("hang:0", Severity::Curable),
    ("hang:1", Severity::Curable),
    ("hang:5", Severity::Curable),
    ("compute-hang:1", Severity::Curable),
    ("compute-exception:1:5", Severity::Curable),
    ("link-loss:0", Severity::Curable),
    ("link-loss:7", Severity::Curable),
    ("link-loss:50", Severity::Curable),
    ("never-boots", Severity::Fatal),
    ("boot-stops:mgmt:7", Severity::Fatal),
    ("boot-stops:ops:4", Severity::Fatal),
    ("boot-error:mgmt", Severity::Fatal),
    ("boot-error:ops", Severity::Fatal),
    ("bad-crc:ops", Severity::Fatal),
    ("bad-crc:mgmt", Severity::Fatal),
    ("bad-size:ops:600", Severity::Fatal),
    ("no-frequency", Severity::Harmless),
    ("ecc:dram:3:1", Severity::Harmless),
    ("sp-silent:1", Severity::Curable),
    ("sp-garbage:2:64", Severity::Curable),
];

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// A program must not notice.
    Harmless,
    /// It may fail, and must work again after a recovery.
    Curable,
    /// It shows at every boot from then on.
    Fatal,
}

impl Severity {
    fn allows(self, outcome: Outcome, step: Step) -> bool {
        match outcome {
            Outcome::Right => true,
            Outcome::Recovered => self != Self::Harmless,
            // What a board is configured with it does again after each reset.
            Outcome::Error => self == Self::Fatal || self == Self::Curable && step == Step::Open,
            _ => false,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
struct Cell {
    fault: &'static str,
    step: Step,
    outcome: Outcome,
    detail: String,
    expected: bool,
}

/// Plays all cells whose fault contains `only`; fails if one ends as it must not.
pub(crate) fn run(only: Option<&str>, json: Option<&std::path::Path>) -> anyhow::Result<()> {
    let is_wanted = |fault: &str| only.is_none_or(|only| fault.contains(only));
    let mut todo: Vec<_> = FAULTS
        .iter()
        .filter(|(fault, _)| is_wanted(fault))
        .flat_map(|&(fault, severity)| Step::ALL.map(|step| (fault, severity, step)))
        .collect();
    todo.reverse();
    let (todo, cells) = (Mutex::new(todo), Mutex::new(Vec::new()));
    // Most of the time a cell waits for what does not come.
    let workers = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some((fault, severity, step)) = next else { return Ok(()) };
                let Verdict { outcome, detail } = play(fault, step)?;
                let expected = severity.allows(outcome, step);
                let mark = if expected { "" } else { "  <- must not be" };
                println!("{fault:26} {:15} {outcome:?}{mark}  {detail}", step.name());
                let cell = Cell { fault, step, outcome, detail, expected };
                cells.lock().unwrap_or_else(PoisonError::into_inner).push(cell);
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a worker of the campaign panicked"),
        })
    })?;
    let mut cells = cells.into_inner().unwrap_or_else(PoisonError::into_inner);
    let order = |fault: &str| FAULTS.iter().position(|(known, _)| *known == fault);
    cells.sort_by_key(|cell| (order(cell.fault), cell.step));
    let mut counts = BTreeMap::new();
    cells.iter().for_each(|cell| *counts.entry(cell.outcome).or_insert(0) += 1);
    println!("\n{} cells: {counts:?}", cells.len());
    let bad = cells.iter().filter(|cell| !cell.expected).count();
    let idle: Vec<_> = FAULTS.iter().filter(|fault| never_struck(fault, &cells)).collect();
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&Report { cells })?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if bad != 0 {
        bail!("{bad} cells ended as they must not");
    }
    if !idle.is_empty() {
        bail!("nothing came of {idle:?}: they were not injected");
    }
    Ok(())
}

/// Returns `true` if a fault that must show has not shown at any step of an open device.
fn never_struck(&(fault, severity): &(&str, Severity), cells: &[Cell]) -> bool {
    let is_of = |cell: &&Cell| cell.fault == fault && cell.step != Step::Open;
    let mut played = cells.iter().filter(is_of).peekable();
    severity != Severity::Harmless
        && played.peek().is_some()
        && played.all(|cell| cell.outcome == Outcome::Right)
}

/// Plays one cell in a process of its own.
fn play(fault: &str, step: Step) -> anyhow::Result<Verdict> {
    fault.parse::<Fault>()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["cell", fault, &step.name()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (said, hears) = mpsc::channel();
    let mut stdout = child.stdout.take().context("no output")?;
    let mut stderr = child.stderr.take().context("no error output")?;
    std::thread::spawn(move || {
        let (mut text, mut errors) = (String::new(), String::new());
        let read = stdout.read_to_string(&mut text).and(stderr.read_to_string(&mut errors));
        // No one listens any more if it came too late.
        let _ = said.send(read.map(|_| (text, errors)));
    });
    let Ok(output) = hears.recv_timeout(LIMIT) else {
        child.kill()?;
        child.wait()?;
        return Ok(Verdict::new(Outcome::Hang, format!("longer than {LIMIT:?}")));
    };
    let (text, errors) = output?;
    let status = child.wait()?;
    match serde_json::from_str(&text) {
        Ok(verdict) if status.success() => Ok(verdict),
        _ if status.code() == Some(101) => {
            Ok(Verdict::new(Outcome::Panic, errors.lines().next().unwrap_or_default()))
        }
        _ => bail!("{fault} at {}: {status}: {text}{errors}", step.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_counts_faults_and_steps_right() {
        let book = include_str!("../../../docs/src/errors.md");
        let count = format!("each of {} faults at each of {} steps", FAULTS.len(), Step::ALL.len());
        assert!(book.contains(&count), "docs/src/errors.md does not say: {count}");
    }
}
