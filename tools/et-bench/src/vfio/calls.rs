//! System calls for each command that is submitted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use et::vfio::{VfioHal, VfioOptions};

use super::commands::Commands;
use super::peer::{CardProcess, program};
use super::{LIMIT, Take, skip};
use crate::figure::{Figure, Unit, repeat};

const BOARD: &str = "compute=null,dram=128MiB";
/// Commands that fit into the queues, so that nothing need be waited for in between.
const BATCH: u32 = 16;
const BATCHES: u32 = 50;
const RUNS: usize = 3;
/// Commands in the run under `strace`, and in the one that shows what everything else costs.
const TRACED: u32 = 20_000;
const FLOOR: (&str, f64) = ("one write to an eventfd", 1.0);

/// Reads and writes by the kernel's own account, and all calls if `strace` is there.
pub(super) fn figures(take: Take<'_>) -> anyhow::Result<()> {
    let card = CardProcess::start(BOARD)?;
    let commands = Commands::open(VfioHal::connect(&card.socket, &VfioOptions::new())?)?;
    let runs = repeat(RUNS, || counted(&commands))?;
    take(Figure::new(
        "vfio_submit_io_calls",
        Unit::Less("reads and writes per command"),
        &runs,
        FLOOR,
    ));
    drop(commands);
    let name = "vfio_submit_calls";
    let Some(nothing) = traced(&card.socket, 0)? else {
        skip(name, "strace is not here or may not trace");
        return Ok(());
    };
    let runs = repeat(RUNS, || {
        let all = traced(&card.socket, TRACED)?.context("strace has failed meanwhile")?;
        Ok((all - nothing) / f64::from(TRACED))
    })?;
    take(Figure::new(name, Unit::Less("system calls per command"), &runs, FLOOR));
    Ok(())
}

/// Reads and writes that this thread makes to submit one command.
fn counted(commands: &Commands<VfioHal>) -> anyhow::Result<f64> {
    // To read the count is a read, too.
    let before = io_calls()?;
    let of_reading = io_calls()? - before;
    let mut calls = 0;
    for _ in 0..BATCHES {
        let before = io_calls()?;
        for _ in 0..BATCH {
            commands.submit()?;
        }
        calls += io_calls()? - before - of_reading;
        for _ in 0..BATCH {
            commands.finish()?;
        }
    }
    Ok(calls as f64 / f64::from(BATCH * BATCHES))
}

/// Calls of this thread that read or write, so far.
fn io_calls() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").context("reading the kernel's count")?;
    let count = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    let counts = count("syscr:").zip(count("syscw:"));
    counts.map(|(reads, writes)| reads + writes).context("the kernel does not count calls")
}

/// All calls of a process that sends so many commands to the card; `None` if they cannot be
/// counted.
fn traced(socket: &Path, commands: u32) -> anyhow::Result<Option<f64>> {
    let report = tempfile::NamedTempFile::new()?;
    let socket = socket.to_str().context("the socket's name is no text")?;
    let program = program(None, &["submit", socket, &commands.to_string()])?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(report.path()).arg("--");
    strace.arg(program.get_program()).args(program.get_args()).stderr(Stdio::null());
    match strace.status() {
        Ok(status) if status.success() => {}
        _ => return Ok(None),
    }
    let text = fs::read_to_string(report.path())?;
    Ok(total(&text))
}

/// The number of calls in a summary: the fourth word of its last line.
fn total(summary: &str) -> Option<f64> {
    let line = summary.lines().rev().find(|line| line.ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// The process that is traced. It looks for answers without sleeping, so that waiting costs no
/// calls.
pub(super) fn submit(socket: &Path, commands: u32) -> anyhow::Result<()> {
    let card = Commands::open(VfioHal::connect(socket, &VfioOptions::new())?)?;
    let start = Instant::now();
    for _ in 0..commands {
        card.submit()?;
        while !card.try_finish()? {
            ensure!(start.elapsed() < LIMIT, "the card does not answer within {LIMIT:?}");
            std::hint::spin_loop();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_summary_is_found() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                       71.02    0.000100           0      2000           write\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                       100.00    0.000120           0      2345         6 total\n";
        assert_eq!(total(summary), Some(2345.0));
        assert_eq!(total("strace: not permitted\n"), None);
    }
}
