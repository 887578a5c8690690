//! `cargo xtask loom`: models, mutants and random schedules.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::copy::{self, seed as seeded, sync};
use crate::shell::{capture, cargo, root, write_json};

#[derive(Debug, Default, Serialize)]
struct Report {
    models: Vec<Model>,
    mutants: Vec<Mutant>,
}

#[derive(Debug, Serialize)]
struct Model {
    name: String,
    executions: u64,
}

#[derive(Debug, Serialize)]
struct Mutant {
    name: String,
    killed: bool,
    by: String,
}

/// A bug to be seeded: text of a source file and what to put in its place.
#[derive(Debug, Deserialize)]
struct Seed {
    name: String,
    file: String,
    find: String,
    replace: String,
    /// Test program of `et-loom` or `et-shuttle`.
    test: String,
    /// The model that must catch it.
    model: String,
}

/// What the models are built from.
const SOURCES: [&str; 11] = [
    "Cargo.lock",
    "Cargo.toml",
    "et-hal",
    "et-isa",
    "et-devapi",
    "et-runtime",
    "backends/et-hal-mock",
    "bindings/et-capi/src/slots.rs",
    "testing/et-loom",
    "testing/et-shuttle",
    "rustfmt.toml",
];

/// Returns the names of the models that held.
pub(crate) fn run(json: Option<&Path>) -> anyhow::Result<Vec<String>> {
    // All builds are of one copy. Artifacts of a second workspace would bear the same names, and
    // cargo would take those of the last mutant for fresh.
    let target = root().join("target-loom");
    let copy = target.join("sources");
    let mut report = Report::default();
    report.add("loom", &copy, &target)?;
    report.add("shuttle", &copy, &target.join("shuttle"))?;
    let Report { models, mutants } = &report;
    let survivors = mutants.iter().filter(|mutant| !mutant.killed).count();
    let names = models.iter().map(|model| model.name.clone()).collect();
    write_json(json, &report)?;
    ensure!(survivors == 0, "{survivors} mutants survived");
    Ok(names)
}

/// The bugs for the models of `et-loom` or `et-shuttle`.
fn seeds(tool: &str) -> anyhow::Result<Vec<Seed>> {
    let text = copy::read(&root().join(format!("testing/et-{tool}/mutants.json")))?;
    serde_json::from_str(&text).context("reading mutants.json")
}

/// Checks that every mutant can be made, which is known long before its turn comes.
pub(crate) fn check_mutants() -> anyhow::Result<()> {
    for tool in ["loom", "shuttle"] {
        for Seed { name, file, find, .. } in seeds(tool)? {
            let places = copy::read(&root().join(&file))?.matches(&find).count();
            ensure!(places == 1, "mutant \"{name}\": its text is {places} times in {file}");
        }
    }
    Ok(())
}

impl Report {
    /// Runs the models of `et-loom` or `et-shuttle`, and then its mutants.
    fn add(&mut self, tool: &str, copy: &Path, target: &Path) -> anyhow::Result<()> {
        // The last mutant may be in the copy still.
        restore(copy)?;
        let models = all_of(tool, copy, target)?;
        let seeds = seeds(tool)?;
        for Seed { name, model, .. } in &seeds {
            let has_run = models.iter().any(|its| its.name == *model);
            ensure!(has_run, "mutant \"{name}\" names model {model}, which did not run");
        }
        for seed in seeds {
            let killed = is_killed(&seed, tool, copy, target)?;
            let verdict = if killed { "killed by" } else { "SURVIVED" };
            println!("mutant {:<58} {verdict} {}", seed.name, seed.model);
            self.mutants.push(Mutant { name: seed.name, killed, by: seed.model });
        }
        self.models.extend(models);
        Ok(())
    }
}

/// Runs the models of `et-loom` or `et-shuttle`.
fn all_of(tool: &str, copy: &Path, target: &Path) -> anyhow::Result<Vec<Model>> {
    let mut command = cargo(&["test"]);
    command.current_dir(copy);
    tests(&mut command, tool, target).args(["--tests", "--", "--nocapture"]);
    let output = capture(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "a model failed:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let models = models(&text);
    ensure!(!models.is_empty(), "no model ran");
    for model in &models {
        println!("model {:<22} {:>8} executions", model.name, model.executions);
    }
    Ok(models)
}

/// The call that builds and runs models.
fn tests<'c>(command: &'c mut Command, tool: &str, target: &Path) -> &'c mut Command {
    // Models spend their time in what explores them. To optimise what they explore takes longer for
    // each mutant than all models together.
    for package in ["et-runtime", "et-devapi"] {
        command.args(["--config", &format!("profile.release.package.{package}.opt-level = 0")]);
    }
    command
        .args(["--release", "--package", &format!("et-{tool}"), "--target-dir"])
        .arg(target)
        .env("RUSTFLAGS", format!("--cfg {tool}"))
        // Mutants differ in a line each, and each is built.
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
}

/// The lines that `et_loom::check` and `et_shuttle::check` print.
fn models(text: &str) -> Vec<Model> {
    text.lines()
        .filter_map(|line| {
            // The test harness may put its own text before it.
            let (_, rest) = line.split_once("model ")?;
            let (name, executions) = rest.split_once(" executions ")?;
            Some(Model { name: name.into(), executions: executions.trim().parse().ok()? })
        })
        .collect()
}

/// Seeds one bug into a copy of the sources and runs its model.
fn is_killed(seed: &Seed, tool: &str, copy: &Path, target: &Path) -> anyhow::Result<bool> {
    restore(copy)?;
    seeded(&copy.join(&seed.file), &seed.find, &seed.replace)
        .with_context(|| format!("mutant \"{}\"", seed.name))?;

    let mut command = cargo(&["test"]);
    command.current_dir(copy);
    tests(&mut command, tool, target).args(["--no-run", "--test", &seed.test]);
    let built = capture(&mut command)?;
    // A mutant that does not compile proves nothing.
    ensure!(
        built.status.success(),
        "mutant \"{}\" does not compile:\n{}",
        seed.name,
        String::from_utf8_lossy(&built.stderr)
    );
    let mut command = Command::new("timeout");
    command.arg("120").arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("test").current_dir(copy);
    // It must be the named model that fails, so no other runs.
    command.env("ET_LOOM_MODEL", &seed.model);
    tests(&mut command, tool, target).args(["--test", &seed.test, "--", "--nocapture"]);
    let output = capture(&mut command)?;
    // 124 is the time limit: a model that does not end has caught nothing.
    Ok(!output.status.success() && output.status.code() != Some(124))
}

/// Makes the copy what the sources are: a workspace of what the models need, and nothing else.
fn restore(copy: &Path) -> anyhow::Result<()> {
    for source in SOURCES {
        sync(&root().join(source), &copy.join(source))?;
    }
    let manifest = std::fs::read_to_string(copy.join("Cargo.toml"))?;
    let (before, rest) = manifest.split_once("members = [").context("no members in Cargo.toml")?;
    let (_, after) = rest.split_once(']').context("no end of members")?;
    let members = "members = [\"et-*\", \"backends/*\", \"testing/et-*\"]";
    std::fs::write(copy.join("Cargo.toml"), format!("{before}{members}{after}"))?;
    for package in ["et-isa", "et-devapi", "et-runtime", "backends/et-hal-mock"] {
        // Tests of the crates themselves are not built, so neither is what only they need.
        let path = copy.join(package).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&path)?;
        let (before, rest) =
            manifest.split_once("[dev-dependencies]").context("no dev-dependencies")?;
        let after = rest.split_once("\n[").map_or(String::new(), |(_, after)| format!("[{after}"));
        std::fs::write(&path, format!("{before}{after}"))?;
    }
    Ok(())
}
