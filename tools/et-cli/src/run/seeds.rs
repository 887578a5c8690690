//! `et run --seeds`: a kernel on memory that is as late and as much out of order as it may be.

use std::time::Duration;

use anyhow::{Context, bail};
use et::Locator;
use et::sim::{BoardConfig, Check, MemoryKind};
use serde_json::{Value, json};

use super::{Args, Failed, Input, execute, fetch, load_kernel, name, place};
use crate::expect::{self, Difference};
use crate::interrupt::Interrupt;
use crate::npy::Array;
use crate::output::{self, Exit, Format, Reported};

/// Seeds named in a line.
const NAMED: usize = 10;

/// Why a run is wrong.
enum Wrong {
    /// The output of this name is not what it should be.
    Differs(String, Difference),
    Failed(String),
}

impl Wrong {
    fn document(&self, seed: u64) -> Value {
        match self {
            Self::Differs(output, difference) => {
                json!({ "seed": seed, "output": output, "difference": difference.document() })
            }
            Self::Failed(error) => json!({ "seed": seed, "error": error }),
        }
    }
}

/// Runs the kernel with seeds from 1 on.
pub(super) fn run(
    locator: &str,
    args: &Args,
    seeds: u32,
    elf: &[u8],
    inputs: &[Input],
    mut expected: Vec<Array>,
    format: Format,
) -> anyhow::Result<()> {
    let Locator::Sim(board) = locator.parse().with_context(|| format!("opening {locator}"))? else {
        bail!("{locator} has no memory model to choose: only the simulator \"sim:\" has");
    };
    let interrupt = Interrupt::catch()?;
    let once = |memory, seed| once(&board, memory, seed, args, elf, inputs, &interrupt);
    if expected.is_empty() {
        let outputs = once(MemoryKind::Flat, board.seed)?.map_err(|failed| failed.report())?;
        expected = outputs.into_iter().map(|(_, array)| array).collect();
    }
    let mut wrong = Vec::new();
    let bar = output::progress(format, "seeds", seeds.into());
    for seed in 1..=u64::from(seeds) {
        match once(MemoryKind::Weak, seed)? {
            Ok(outputs) => {
                for ((path, found), expected) in outputs.iter().zip(&expected) {
                    if let Some(difference) = expect::compare(found, expected, args.tolerance)? {
                        wrong.push((seed, Wrong::Differs(path.clone(), difference)));
                        break;
                    }
                }
            }
            Err(failed) if interrupt.is_set() => return Err(failed.report()),
            Err(failed) => wrong.push((seed, Wrong::Failed(format!("{:#}", failed.report())))),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let again = |seed| Locator::Sim(with(&board, MemoryKind::Weak, seed)).to_string();
    report(&name(args), seeds, &wrong, &again, format)
}

/// The same board with another memory. What looks for races has its own.
fn with(board: &BoardConfig, memory: MemoryKind, seed: u64) -> BoardConfig {
    let mut board = board.clone();
    (board.memory, board.seed) = (memory, seed);
    if memory == MemoryKind::Flat && board.check == Check::Races {
        board.check = Check::Memory;
    }
    board
}

/// Runs the kernel on a device of its own; returns the outputs with their names.
fn once(
    board: &BoardConfig,
    memory: MemoryKind,
    seed: u64,
    args: &Args,
    elf: &[u8],
    inputs: &[Input],
    interrupt: &Interrupt,
) -> anyhow::Result<Result<Vec<(String, Array)>, Failed>> {
    let timeout = Duration::try_from_secs_f64(args.timeout).context("bad timeout")?;
    let device = et::open_with(Locator::Sim(with(board, memory, seed)), et::Config::new())?;
    let kernel = load_kernel(&device, args, elf, inputs)?;
    // One bar for all seeds is enough.
    let quiet = Format::Json;
    let (mut launch, mut buffers) = place(&device, &kernel, args, inputs.to_vec(), quiet, timeout)?;
    if let Some(bytes) = args.stack {
        launch = launch.stack_bytes(bytes);
    }
    let stream = device.default_stream();
    if let Err(failed) = execute(&device, stream, &launch, timeout, interrupt) {
        return Ok(Err(failed));
    }
    fetch(stream, &mut buffers, quiet, timeout)?;
    device.close();
    let outputs = buffers.into_iter().filter_map(|buffer| buffer.output);
    Ok(Ok(outputs.map(|(path, array)| (path.display().to_string(), array)).collect()))
}

fn report(
    name: &str,
    seeds: u32,
    wrong: &[(u64, Wrong)],
    again: &dyn Fn(u64) -> String,
    format: Format,
) -> anyhow::Result<()> {
    let right = seeds as usize - wrong.len();
    match format {
        Format::Json => output::json(&json!({
            "kernel": name, "seeds": seeds, "right": right,
            "wrong": wrong.iter().map(|(seed, why)| why.document(*seed)).collect::<Vec<_>>(),
        }))?,
        Format::Text => println!("{name} is right with {right} of {seeds} seeds"),
    }
    let Some((seed, first)) = wrong.first() else { return Ok(()) };
    if format == Format::Text {
        let named: Vec<_> = wrong.iter().take(NAMED).map(|(seed, _)| seed.to_string()).collect();
        let more = if wrong.len() > NAMED { ", …" } else { "" };
        eprintln!("wrong with {}{more}", named.join(", "));
        match first {
            Wrong::Differs(output, difference) => {
                eprintln!("seed {seed}: {output}: {difference}");
            }
            Wrong::Failed(error) => eprintln!("seed {seed}: {error}"),
        }
        eprintln!("run it again with --device {}", again(*seed));
    }
    Err(Reported(Exit::Kernel).into())
}
