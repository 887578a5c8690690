//! `cargo xtask llama`: llama.cpp's own backend for this accelerator, unmodified, on a simulated
//! card.
//!
//! Its sources are in packages of the Python registry. They, what is built of them, and the model
//! are kept outside of the repository from one run to the next.

mod build;
mod judge;
mod listen;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::shell::{capture, write_json};
use crate::tools::Done;
use crate::vm::{self, Hindrance};
use build::Workshop;
use judge::{Cases, speed};
use listen::{Operators, said};

/// A card whose caches are private, as the real one's are: kernels rely on it.
const CARD: &str = "sim:memory=private";
/// The card when another process has it.
const BOARD: &str = "memory=private";

/// Operators of a run that is to be short: about 200 cases, with packed and tensor arithmetic, and
/// those that are wrong where memory is flat.
const QUICK: &str = "ADD,RMS_NORM,NORM,SOFT_MAX,CUMSUM,L2_NORM,SWIGLU,GELU,MEAN";
/// The operator that fails for some random numbers: its kernel says that it rounds ties to even,
/// and what it is compared with rounds them away from zero.
const TIES: &str = "ROUND";
/// Those that are also done on a card in another process.
const ELSEWHERE: &str = "NORM,RMS_NORM,MEAN";
const ARCHITECTURES: [&str; 7] = ["llama", "qwen2", "qwen3", "gemma", "gpt2", "phi3", "mamba"];
const PROMPT: &str = "The capital of France is";

/// Options of `llama`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Some operators, two architectures, few tokens.
    #[arg(long)]
    quick: bool,
    /// Writes the steps as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where sources, builds and the model are kept.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// A step of the ladder.
#[derive(Debug, Serialize)]
struct Step {
    name: &'static str,
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
    #[serde(skip)]
    remarks: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    steps: Vec<Step>,
    tokens_per_s: Option<f64>,
    tokens_equal: Option<bool>,
}

impl Report {
    /// Does a step; an error of it is a failed case.
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<Cases>) -> bool {
        let started = Instant::now();
        let cases = work().unwrap_or_else(|error| Cases::failure(format!("{error:#}")));
        let Cases { passed, failed, skipped, remarks } = cases;
        let seconds = started.elapsed().as_secs_f64();
        println!("{name}: {passed} passed, {failed} failed, {skipped} skipped, {seconds:.1} s");
        self.steps.push(Step { name, passed, failed, skipped, seconds, remarks });
        failed == 0
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut report = Report::default();
    let shop = Workshop::new(options.work.as_deref())?;
    if let Err(error) = shop.fetch() {
        let why = format!("the sources cannot be had: {error:#}");
        report.step("sources", || Ok(Cases::skipped(why)));
    } else {
        climb(&shop, options.quick, &mut report);
    }
    println!("\n{:<20}{:>8}{:>8}{:>8}{:>10}", "step", "passed", "failed", "skipped", "seconds");
    for Step { name, passed, failed, skipped, seconds, remarks } in &report.steps {
        println!("{name:<20}{passed:>8}{failed:>8}{skipped:>8}{seconds:>10.1}");
        for remark in remarks {
            println!("    {remark}");
        }
    }
    if let (Some(speed), Some(equal)) = (report.tokens_per_s, report.tokens_equal) {
        println!("{speed:.3} tokens per second; the same as on the CPU: {equal}");
    }
    write_json(options.json.as_deref(), &report)?;
    if report.steps.iter().any(|step| step.failed != 0) {
        bail!("llama.cpp does not work on the simulated card");
    }
    Ok(())
}

/// A short run where everything was built before: to fetch and build it takes longer than the rest
/// of the checks.
pub(crate) fn check() -> anyhow::Result<Done> {
    if !Workshop::new(None)?.is_ready() {
        let why = "llama.cpp was not built here; `cargo xtask llama` does that";
        return Ok(Done::Skipped(why.to_owned()));
    }
    run(&Options { quick: true, json: None, work: None })?;
    Ok(Done::Checked)
}

/// Builds anew what an earlier run has fetched and built, with this state of the project; returns
/// where it is. None if there was no such run.
pub(crate) fn rebuild() -> anyhow::Result<Option<PathBuf>> {
    let shop = Workshop::new(None)?;
    if !shop.is_ready() {
        return Ok(None);
    }
    shop.install()?;
    shop.build_backend()?;
    shop.build_programs()?;
    Ok(Some(shop.root().to_owned()))
}

/// The steps, until one fails on which the others stand.
fn climb(shop: &Workshop, quick: bool, report: &mut Report) {
    let before = shop.checksum();
    if !report.step("prefix", || shop.install().map(|()| Cases::passed(1)))
        || !report.step("ggml-et", || shop.build_backend().map(|()| Cases::passed(1)))
        || !report.step("test-backend-ops", || operators(shop, quick))
    {
        return;
    }
    report.step("vfio-user", || elsewhere(shop));
    report.step("guest", || in_guest(shop));
    if report.step("llama", || shop.build_programs().map(|()| Cases::passed(1))) {
        report.step("test-llama-archs", || architectures(shop, quick));
        let mut found = None;
        report.step("text", || {
            let text = text(shop, if quick { 8 } else { 16 })?;
            let cases = Cases::judged("the tokens are the CPU's", text.is_equal);
            found = Some(text);
            Ok(cases)
        });
        if let Some(text) = found {
            report.tokens_per_s = text.tokens_per_s;
            report.tokens_equal = Some(text.is_equal);
        }
    }
    report.step("unmodified", || {
        Ok(Cases::judged("the sources are as they were", before? == shop.checksum()?))
    });
}

fn operators(shop: &Workshop, quick: bool) -> anyhow::Result<Cases> {
    let mut args = vec!["test", "-b", "ET0"];
    if quick {
        args.extend(["-o", QUICK]);
    }
    let mut operators = Operators::default();
    let started = Instant::now();
    let hear = |line: &str| {
        if let Some(ended) = operators.hear(line, started.elapsed()) {
            println!("  {ended}");
        }
    };
    let mut cases = Cases::of_operators(&said(&shop.operators(), CARD, &args, hear)?);
    operators.last().iter().for_each(|ended| println!("  {ended}"));
    if cases.has_failed(TIES) {
        // With other numbers a kernel that is wrong is so again.
        let again = said(&shop.operators(), CARD, &["test", "-b", "ET0", "-o", TIES], |_| ())?;
        if Cases::of_operators(&again).failed == 0 {
            cases.excuse(
                TIES,
                "there was a tie among its random numbers: the kernel rounds these to \
                even, the CPU away from zero",
            );
        }
    }
    Ok(cases)
}

/// The same for a card that another process simulates.
fn elsewhere(shop: &Workshop) -> anyhow::Result<Cases> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("card");
    let mut server = Command::new(shop.simulator()?);
    let mut server = server
        .arg("--socket")
        .arg(&socket)
        .args(["--board", BOARD])
        .spawn()
        .context("starting the simulator")?;
    let end = Instant::now() + Duration::from_secs(60);
    while !socket.exists() && server.try_wait()?.is_none() && Instant::now() < end {
        std::thread::yield_now();
    }
    let device = format!("vfio-user:{}", socket.display());
    let args = ["test", "-b", "ET0", "-o", ELSEWHERE];
    let said = said(&shop.operators(), &device, &args, |_| ());
    server.kill().context("ending the simulator")?;
    server.wait().context("ending the simulator")?;
    Ok(Cases::of_operators(&said?))
}

/// One on the real kernel's VFIO, in a virtual machine whose card is simulated.
fn in_guest(shop: &Workshop) -> anyhow::Result<Cases> {
    let (said, tally) = match vm::operator(&shop.operators()) {
        Ok(ran) => ran,
        Err(Hindrance::Absent(why)) => return Ok(Cases::skipped(why)),
        Err(Hindrance::Broken(why)) => bail!(why),
    };
    let mut cases = Cases::of_operators(&said);
    // The guest and the simulator have to be well, too.
    if cases.failed == 0 && tally.failed != 0 {
        cases.add(Cases::failure(tally.reasons.join("; ")));
    }
    if cases.failed != 0 {
        cases.remarks.push(format!("the guest said: {}", said.trim_end()));
    }
    Ok(cases)
}

/// Random models of each architecture, on the device and on the CPU.
fn architectures(shop: &Workshop, quick: bool) -> anyhow::Result<Cases> {
    let mut all = Cases::default();
    let count = if quick { 2 } else { ARCHITECTURES.len() };
    for name in &ARCHITECTURES[..count] {
        let pattern = format!("^{name}$");
        let (program, args) = (shop.program("test-llama-archs"), ["-b", "ET0", "-a", &pattern]);
        let mut cases = Cases::of_architectures(name, &said(&program, CARD, &args, |_| ())?);
        if cases.skipped != 0 {
            // The version before refuses nothing, but of a mixture of experts it leaves a result in
            // memory of the host, which a kernel then writes.
            let older = said(&shop.older_architectures(), CARD, &["-a", name], |_| ())?;
            let older = Cases::of_architectures(name, &older);
            cases = if older.failed == 0 { older } else { cases };
        }
        all.add(cases);
    }
    Ok(all)
}

struct Text {
    is_equal: bool,
    tokens_per_s: Option<f64>,
}

/// What a real model goes on with, on the device and on the CPU.
fn text(shop: &Workshop, tokens: usize) -> anyhow::Result<Text> {
    let model = shop.model()?;
    let tokens = tokens.to_string();
    let ask = |device: &str, layers: &str| {
        let mut args = vec!["-m", model.to_str().context("a path that is no text")?];
        args.extend(["-ngl", layers, "-dev", device, "-fa", "off", "-c", "256", "-n", &tokens]);
        args.extend(["--temp", "0", "-p", PROMPT, "-no-cnv", "--no-warmup"]);
        let program = shop.program("llama-completion");
        let mut command = Command::new(&program);
        let output = capture(command.args(args).env("ET_DEVICE", CARD))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            let last: Vec<_> = errors.lines().rev().take(5).collect();
            bail!("{} ended with {}: {last:?}", program.display(), output.status);
        }
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), errors))
    };
    let (theirs, _) = ask("none", "0")?;
    let (ours, times) = ask("ET0", "99")?;
    println!("on the CPU:    {theirs:?}\non the device: {ours:?}");
    let is_equal = !ours.trim().is_empty() && ours == theirs;
    Ok(Text { is_equal, tokens_per_s: speed(&times) })
}
