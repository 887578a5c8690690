//! `cargo xtask ci`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::requirements::{self, Evidence, Summary, Verdict, test_results};
use crate::shell::{capture, cargo, execute, root, write_json};
use crate::tools::{self, Done};
use crate::{
    blocks, book, conformance, dist, fresh, interface, layers, llama, loom, python, readme, sdk,
    vm, wording,
};

/// The checks of many parts, as they are named where some are asked for.
const TESTS: &str = "tests";
const MACHINES: &str = "vm";

/// What became of the checks.
#[derive(Debug, Default, Serialize)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// What failed.
    failures: Vec<String>,
    /// Why each was skipped.
    reasons: Vec<String>,
    requirements: Summary,
    /// What the rows of the requirements may name.
    #[serde(skip)]
    evidence: Evidence,
    #[serde(skip)]
    asked: Asked,
}

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
struct Asked {
    /// The checks to make; all if it is empty.
    only: Vec<String>,
    /// When no other check begins.
    until: Option<Instant>,
}

/// Whether it is a check's turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Now,
    /// It was asked for, and the time is over.
    Late,
    NotAsked,
}

impl Asked {
    fn turn(&self, what: &str, now: Instant) -> Turn {
        if !self.only.is_empty() && self.only.iter().all(|only| only != what) {
            Turn::NotAsked
        } else if self.until.is_some_and(|until| now >= until) {
            Turn::Late
        } else {
            Turn::Now
        }
    }
}

impl Counts {
    fn new(asked: Asked) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Returns `true` if a check is asked for, and skips it if the time is over.
    fn wants(&mut self, what: &str) -> bool {
        let turn = self.asked.turn(what, Instant::now());
        if turn == Turn::Late {
            self.skip(what, "the time of this run is over");
        }
        turn == Turn::Now
    }

    fn skip(&mut self, what: &str, why: &str) {
        println!("{what}: skipped, because {why}");
        self.skipped += 1;
        self.reasons.push(format!("{what}: {why}"));
        self.step(what, Verdict::Skipped(why.into()));
    }

    fn fail(&mut self, what: &str, why: &str) {
        println!("{what}: FAILED: {why}");
        self.failed += 1;
        self.failures.push(format!("{what}: {why}"));
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.reasons.extend(other.reasons);
        self.evidence.extend(other.evidence);
    }

    fn step(&mut self, what: &str, verdict: Verdict) {
        self.evidence.note(&format!("ci:{what}"), verdict);
    }

    /// Runs one check; the others go on if it fails.
    fn check(&mut self, what: &str, check: impl FnOnce() -> anyhow::Result<()>) {
        self.try_check(what, || check().map(|()| Done::Checked));
    }

    /// Runs one check that may turn out to be impossible here.
    fn try_check(&mut self, what: &str, check: impl FnOnce() -> anyhow::Result<Done>) {
        if !self.wants(what) {
            return;
        }
        let started = Instant::now();
        match check() {
            Ok(Done::Checked) => {
                println!("{what}: passed in {:.0?}", started.elapsed());
                self.passed += 1;
                self.step(what, Verdict::Passed);
            }
            Ok(Done::Skipped(why)) => self.skip(what, &why),
            Err(error) => {
                self.fail(what, &format!("{error:#}"));
                self.step(what, Verdict::Failed);
            }
        }
    }
}

/// Makes the checks that are named, or all. None begins after the time limit: who ends a run that
/// takes too long learns nothing from it, not even what has failed.
pub(crate) fn run(
    only: &[String],
    limit: Option<Duration>,
    json: Option<&Path>,
) -> anyhow::Result<()> {
    // One that no clock can show is none.
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut counts = Counts::new(Asked { only: only.to_vec(), until });
    counts.check("format", || run_cargo(&["fmt", "--all", "--check"]));
    counts.check("layers", layers::check);
    counts.check("wording", wording::check);
    counts.check("book", book::check);
    counts.try_check("mdbook", tools::book);
    counts.check("requirements", requirements::check);
    counts.check("mutants", loom::check_mutants);
    counts.check("interface", interface::check);
    counts.try_check("spelling", tools::spelling);
    counts.try_check("dependencies", tools::dependencies);
    counts.try_check("advisories", tools::advisories);
    counts.try_check("versions", tools::versions);
    counts.check("clippy", || {
        run_cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    });
    counts.check("docs", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        execute(command.env("RUSTDOCFLAGS", "-D warnings"))
    });
    // Three lines of checks beside one another: one test at a time often leaves a processor idle,
    // and much of what packages and machines do is waiting. Programs are built in the folder of the
    // demo, which has most of them; models and the older compiler have folders of their own.
    let tested = beside(
        &mut counts,
        ("demo, packages, models and machines", |counts| {
            counts.check("demo", || {
                run_cargo(&["run", "--release", "--locked", "--bin", "et", "--", "demo"])
            });
            beside(counts, ("packages", packages), |counts| {
                // What takes longest is last: a slow machine may not come to it.
                counts.check("campaign", || execute(&mut crate::campaign("campaign")));
                counts.check("soak", || execute(crate::campaign("soak").args(["--seconds", "20"])));
                models(counts);
                machines(counts);
                // Has a machine of its own, and there is one at a time.
                counts.try_check("llama", llama::check);
            });
        }),
        |counts| {
            tests(counts)?;
            counts.check("refusals", tools::refusals);
            bare_metal(counts)?;
            counts.try_check("kernels", kernels);
            // In the folder of the tests.
            features(counts);
            minimum_rust(counts);
            anyhow::Ok(())
        },
    );
    tested?;
    // What has run is judged, however long it took.
    counts.asked.until = None;
    conformance(&mut counts);
    for only in only {
        let is_known = counts.evidence.of(&format!("ci:{only}")).is_some();
        ensure!(is_known, "there is no check {only}");
    }
    if only.is_empty() {
        // They are judged by all that ran.
        match requirements::judge(&counts.evidence) {
            Ok(summary) => counts.requirements = summary,
            Err(error) => counts.fail("requirements", &format!("{error:#}")),
        }
    }
    println!("\n{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    for reason in &counts.reasons {
        println!("  skipped {reason}");
    }
    for failure in &counts.failures {
        println!("  FAILED {failure}");
    }
    write_json(json, &counts)?;
    if counts.failed != 0 {
        bail!("{} checks failed", counts.failed);
    }
    Ok(())
}

/// Does checks while another thread does others, whose counts are added.
fn beside<R>(
    counts: &mut Counts,
    (what, others): (&str, impl FnOnce(&mut Counts) + Send),
    here: impl FnOnce(&mut Counts) -> R,
) -> R {
    let asked = counts.asked.clone();
    let (result, others) = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut counts = Counts::new(asked);
            others(&mut counts);
            counts
        });
        (here(counts), others.join())
    });
    match others {
        Ok(others) => counts.add(others),
        Err(_) => counts.fail(what, "panicked"),
    }
    result
}

fn run_cargo(args: &[&str]) -> anyhow::Result<()> {
    execute(&mut cargo(args))
}

/// The results that the book shows are those of the tests and machines.
fn conformance(counts: &mut Counts) {
    let mut absent = Vec::new();
    let compared = conformance::check(&counts.evidence);
    counts.try_check("conformance", || {
        absent = compared?;
        let nothing = || Done::Skipped("neither tests nor machines have run".to_owned());
        Ok(if conformance::are_all(&absent) { nothing() } else { Done::Checked })
    });
    if counts.wants("conformance") && !absent.is_empty() && !conformance::are_all(&absent) {
        counts.skip(&format!("conformance on {}", absent.join(", ")), "nothing ran on them");
    }
}

/// What users install, and programs that use all of it.
fn packages(counts: &mut Counts) {
    counts.try_check("prefix", sdk::check);
    counts.try_check("systemd", sdk::check_units);
    counts.try_check("udev", sdk::check_rules);
    counts.try_check("dist", dist::check);
    counts.try_check("readme", readme::check);
    shown(counts);
    counts.try_check("fresh", fresh::check);
    counts.try_check("python", python::check);
    counts.try_check("python-install", python::check_install);
    counts.try_check("pythons", python::check_others);
    counts.try_check("pytorch", python::check_pytorch);
    counts.try_check("python-dbg", python::check_debug);
    counts.try_check("pyright", python::check_types);
    counts.try_check("hosts", python::check_hosts);
}

/// What the book and the READMEs show.
fn shown(counts: &mut Counts) {
    let mut skipped = blocks::Skipped::new();
    counts.try_check("blocks", || {
        if !tools::is_there("c++") {
            return Ok(Done::Skipped("c++ is not installed".to_owned()));
        }
        skipped = blocks::check(&[])?;
        Ok(Done::Checked)
    });
    for (why, places) in skipped {
        counts.skip(&format!("blocks at {}", places.join(", ")), &why);
    }
}

fn models(counts: &mut Counts) {
    let mut models = Vec::new();
    counts.check("loom", || loom::run(None).map(|names| models = names));
    for model in models {
        counts.evidence.note(&format!("loom:{model}"), Verdict::Passed);
    }
}

/// Each feature of the public crates alone, and none.
fn features(counts: &mut Counts) {
    for args in [
        ["-p", "et-hal", "--no-default-features", ""],
        ["-p", "et-hal", "--all-features", ""],
        ["-p", "et-runtime", "--all-features", ""],
        ["-p", "et", "--no-default-features", ""],
        ["-p", "et", "--no-default-features", "--features=sim"],
        ["-p", "et", "--no-default-features", "--features=vfio"],
        ["-p", "et", "--no-default-features", "--features=mock"],
        ["-p", "et", "--all-features", ""],
    ] {
        let args: Vec<_> =
            ["check", "--locked"].into_iter().chain(args).filter(|arg| !arg.is_empty()).collect();
        counts.check(&args.join(" "), || run_cargo(&args));
    }
}

/// The test command of the README; every test counts.
fn tests(counts: &mut Counts) -> anyhow::Result<()> {
    if !counts.wants(TESTS) {
        return Ok(());
    }
    println!("$ cargo test --workspace");
    let started = Instant::now();
    let args = ["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"];
    let output = capture(&mut cargo(&args))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("cargo test --workspace: ended after {:.0?}", started.elapsed());
    let (tests, results) = test_results(&text);
    let before = counts.failed;
    for (name, verdict) in tests {
        match &verdict {
            Verdict::Skipped(why) => counts.skip(&name, why),
            Verdict::Failed => counts.failures.push(format!("{name}{}", last_words(&text, &name))),
            Verdict::Passed => {}
        }
        if verdict == Verdict::Failed {
            println!("test {name} ... FAILED");
        }
        counts.evidence.note(&name, verdict);
    }
    for result in &results {
        counts.passed += number(result, "passed")?;
        counts.failed += number(result, "failed")?;
    }
    let is_well = counts.failed == before && output.status.success();
    counts.step(TESTS, if is_well { Verdict::Passed } else { Verdict::Failed });
    if !output.status.success() {
        // What tests said is with their failures; compilers, and programs that crash, speak there.
        let is_news = |line: &&str| !line.trim_start().starts_with("Compiling ");
        let lines: Vec<_> = errors.lines().filter(is_news).collect();
        println!("{}", lines[lines.len().saturating_sub(200)..].join("\n"));
        // A build failure shows in no count.
        if counts.failed == before {
            counts.fail("cargo test --workspace", &format!("{}", output.status));
        }
    } else if results.is_empty() {
        bail!("cargo test printed no result");
    }
    Ok(())
}

/// What a test that failed has printed, as far as a reader of the end of a log needs it.
fn last_words(text: &str, name: &str) -> String {
    let Some((_, said)) = text.rsplit_once(&format!("---- {name} stdout ----")) else {
        return String::new();
    };
    let lines = said.lines().take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    lines.take(40).map(|line| format!("{line}\n    ")).collect()
}

fn number(result: &str, label: &str) -> anyhow::Result<u64> {
    let words: Vec<_> = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    let at = words.iter().position(|word| *word == label);
    let count = at.and_then(|at| words.get(at.checked_sub(1)?)).context("no count in a result")?;
    Ok(count.parse()?)
}

/// The `no_std` crates on a target without an operating system, if one is installed.
fn bare_metal(counts: &mut Counts) -> anyhow::Result<()> {
    let sysroot = capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    for target in ["riscv64gc-unknown-none-elf", "thumbv7m-none-eabi"] {
        if !counts.wants(&format!("build for {target}")) {
            continue;
        }
        let installed = Path::new(&sysroot).join("lib/rustlib").join(target).exists();
        if !installed {
            counts.skip(&format!("build for {target}"), "the target is not installed");
            continue;
        }
        counts.check(&format!("build for {target}"), || {
            let crates = ["-p", "et-hal", "-p", "et-isa", "-p", "et-devapi"];
            run_cargo(&[&["build", "--locked", "--target", target], &crates[..]].concat())
        });
    }
    Ok(())
}

/// The committed kernels are what their sources give.
fn kernels() -> anyhow::Result<Done> {
    let mut command = Command::new("./rebuild.sh");
    command.arg("--check").current_dir(root().join("testing/kernels"));
    let output = capture(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        let why = text.split_once("skipped, because ").map_or("it said so", |(_, why)| why.trim());
        return Ok(Done::Skipped(why.to_owned()));
    }
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Ok(Done::Checked)
}

/// The virtual machines; every check in them counts.
fn machines(counts: &mut Counts) {
    if !counts.wants(MACHINES) {
        return;
    }
    let before = counts.failed;
    match vm::measure(&vm::Options::default()) {
        Ok((report, _)) => {
            for row in report.layers {
                let verdict = match row.reasons.first() {
                    _ if row.failed != 0 => Verdict::Failed,
                    Some(why) if row.passed == 0 => Verdict::Skipped(why.clone()),
                    _ => Verdict::Passed,
                };
                counts.evidence.note(&format!("vm:{}", row.name), verdict);
                counts.passed += row.passed;
                counts.failed += row.failed;
                counts.skipped += row.skipped;
                for reason in &row.reasons {
                    let line = format!("vm {}: {reason}", row.name);
                    if reason.contains(": skipped, because ") {
                        counts.reasons.push(line);
                    } else if reason.contains("FAILED") {
                        counts.failures.push(line);
                    }
                }
            }
        }
        Err(error) => counts.fail(MACHINES, &format!("{error:#}")),
    }
    let is_well = counts.failed == before;
    counts.step(MACHINES, if is_well { Verdict::Passed } else { Verdict::Failed });
}

/// The oldest compiler the manifest promises, if it is installed.
fn minimum_rust(counts: &mut Counts) {
    let version = "1.88";
    if !counts.wants(&format!("build with Rust {version}")) {
        return;
    }
    let probe = Command::new("cargo").args([&format!("+{version}"), "--version"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        counts.skip(&format!("build with Rust {version}"), "that toolchain is not installed");
        return;
    }
    counts.check(&format!("build with Rust {version}"), || {
        let mut command = Command::new("cargo");
        command.args([&format!("+{version}"), "check", "--workspace", "--locked"]);
        command.args(["--target-dir", "target-msrv"]).current_dir(root());
        execute(&mut command)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_checked() {
        let mut counts = Counts::new(Asked { only: vec!["docs".to_owned()], until: None });
        counts.check("clippy", || unreachable!("it was not asked for"));
        counts.check("docs", || bail!("wrong"));
        assert_eq!((counts.passed, counts.failed, counts.skipped), (0, 1, 0));
        assert_eq!(counts.evidence.of("ci:docs"), Some(&Verdict::Failed));
        assert_eq!(counts.evidence.of("ci:clippy"), None);
    }

    #[test]
    fn no_check_has_its_turn_when_the_time_is_over() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let all = Asked { only: Vec::new(), until: Some(now + minute) };
        assert_eq!(all.turn("docs", now), Turn::Now);
        assert_eq!(all.turn("docs", now + minute), Turn::Late);
        let one = Asked { only: vec!["docs".to_owned()], ..all };
        assert_eq!(one.turn("docs", now), Turn::Now);
        assert_eq!(one.turn("docs", now + minute), Turn::Late);
        assert_eq!(one.turn("clippy", now + minute), Turn::NotAsked);
        assert_eq!(Asked::default().turn("docs", now + minute), Turn::Now);
    }
}
