//! `cargo xtask requirements`: each row that is met is broken, and its test must notice.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::evidence::{is_named, test_results};
use super::table::{Row, State};
use super::{Verdict, rows};
use crate::copy::{self, seed, sync};
use crate::shell::{capture, cargo, execute, root, write_json};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Breaks only what these rows ask for.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Writes what was killed and what survived as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A way to break what some rows ask for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    ids: Vec<String>,
    /// A source file, and the one place in it that is replaced.
    file: String,
    find: String,
    replace: String,
    /// The test that must notice, its package, and the arguments of `cargo test` that select its
    /// program. A check of `cargo xtask ci`, as `ci:…`, has neither.
    test: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    target: String,
    /// Whether the test was seen to notice it.
    #[serde(default)]
    seen: bool,
}

#[derive(Debug, Serialize)]
struct Fate<'m> {
    ids: &'m [String],
    test: &'m str,
    killed: bool,
}

pub(super) fn read() -> anyhow::Result<Vec<Mutation>> {
    let text = copy::read(&root().join("testing/mutations.json"))?;
    serde_json::from_str(&text).context("reading mutations.json")
}

/// Checks that every mutation can be made, and breaks a row by a test that the row names.
pub(super) fn check(rows: &[Row], mutations: &[Mutation]) -> anyhow::Result<()> {
    for Mutation { ids, file, find, replace, test, .. } in mutations {
        let places = copy::read(&root().join(file))?.matches(find.as_str()).count();
        ensure!(places == 1, "{ids:?}: the text of the mutation is {places} times in {file}");
        ensure!(find != replace, "{ids:?}: the mutation changes nothing");
        for id in ids {
            let row = rows.iter().find(|row| row.id == *id);
            let row = row.with_context(|| format!("a mutation is for {id}, which is no row"))?;
            ensure!(row.tests.iter().any(|own| is_named(test, own)), "{id} does not name {test}");
        }
    }
    for row in rows.iter().filter(|row| needs_mutation(row)) {
        let has_one = mutations.iter().any(|mutation| mutation.ids.contains(&row.id));
        ensure!(has_one, "{} is met, and no mutation breaks it", row.id);
    }
    Ok(())
}

/// Machines take too long for it; models have mutants of their own.
fn needs_mutation(row: &Row) -> bool {
    let is_other = |test: &String| ["vm:", "loom:"].iter().any(|p| test.starts_with(p));
    row.state == State::Met && !row.tests.iter().all(is_other)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mutations = read()?;
    check(&rows()?, &mutations)?;
    let is_chosen = |mutation: &&Mutation| {
        options.only.is_empty() || mutation.ids.iter().any(|id| options.only.contains(id))
    };
    let chosen: Vec<_> = mutations.iter().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "there is no mutation for {}", options.only.join(", "));
    // One copy for all, and so one set of artifacts.
    let target = root().join("target-requirements");
    let copy = target.join("sources");
    let mut fates = Vec::new();
    for mutation in chosen {
        restore(&copy)?;
        let killed = is_killed(mutation, &copy, &target).unwrap_or_else(|error| {
            println!("{}: {error:#}", mutation.ids.join(" "));
            false
        });
        let fate = if killed { "killed by" } else { "SURVIVED" };
        let unseen = if mutation.seen { "" } else { " (not marked as seen)" };
        println!("{:<30} {fate} {}{unseen}", mutation.ids.join(" "), mutation.test);
        fates.push(Fate { ids: &mutation.ids, test: &mutation.test, killed });
        // A run takes long, and may be ended.
        write_json(options.json.as_deref(), &fates)?;
    }
    restore(&copy)?;
    let survivors = fates.iter().filter(|fate| !fate.killed).count();
    ensure!(survivors == 0, "{survivors} mutations survived");
    Ok(())
}

/// Makes the copy what the sources are: every file that git knows.
fn restore(copy: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    let listed = capture(git.current_dir(root()).arg("ls-files"))?;
    ensure!(listed.status.success(), "git does not list the sources");
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        sync(&root().join(name), &copy.join(name))?;
    }
    Ok(())
}

/// Makes the mutation in the copy and runs its test.
fn is_killed(mutation: &Mutation, copy: &Path, target: &Path) -> anyhow::Result<bool> {
    seed(&copy.join(&mutation.file), &mutation.find, &mutation.replace)?;
    if let Some(check) = mutation.test.strip_prefix("ci:") {
        return fails(check, copy, target);
    }
    let tests = |command: &mut Command| {
        command.args(["--locked", "--package", &mutation.package, "--target-dir"]).arg(target);
        command.args(mutation.target.split_whitespace()).current_dir(copy);
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    };
    let mut command = cargo(&["test", "--no-run"]);
    tests(&mut command);
    let built = capture(&mut command)?;
    // What does not compile proves nothing.
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new("timeout");
    command.arg("180").arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).arg("test");
    tests(&mut command);
    let output = capture(command.args(["--", "--exact", &mutation.test]))?;
    let (results, _) = test_results(&String::from_utf8_lossy(&output.stdout));
    let result = results.iter().find(|(name, _)| *name == mutation.test);
    // A test that never ends, or takes its program down, has not said what is wrong.
    let (_, verdict) = result.with_context(|| {
        format!(
            "{} did not end:\n{}{}",
            mutation.test,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    ensure!(!matches!(verdict, Verdict::Skipped(_)), "{} was skipped", mutation.test);
    Ok(*verdict == Verdict::Failed)
}

/// Makes a check of `cargo xtask ci` in the copy; returns `true` if it fails.
fn fails(check: &str, copy: &Path, target: &Path) -> anyhow::Result<bool> {
    // Some of them ask git which files there are.
    for args in [&["init", "--quiet"][..], &["add", "--all"]] {
        execute(Command::new("git").args(args).current_dir(copy))?;
    }
    let mut command = cargo(&["xtask", "ci", "--only", check]);
    let output = capture(command.current_dir(copy).env("CARGO_TARGET_DIR", target))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.starts_with(&format!("{check}: ")));
    let line = line.with_context(|| format!("{check} did not end:\n{said}{errors}"))?;
    ensure!(!line.contains(": skipped, because "), "{line}");
    Ok(line.contains(": FAILED: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutation_belongs_to_a_row_that_is_met() {
        let row = |id: &str, test: &str| Row {
            id: id.into(),
            state: State::Met,
            tests: vec![test.into()],
        };
        let rows = [row("ER-01", "link::x"), row("ER-02", "vm:cdev")];
        let mutation = |id: &str, find: &str, test: &str| Mutation {
            ids: vec![id.into()],
            file: "tools/xtask/Cargo.toml".into(),
            find: find.into(),
            replace: String::new(),
            package: "xtask".into(),
            target: String::new(),
            test: test.into(),
            seen: false,
        };
        let good = || mutation("ER-01", "name = \"xtask\"", "runtime::link::x");
        let outcome = |mutations: &[Mutation]| {
            check(&rows, mutations).map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        assert_eq!(outcome(&[good()]), "");
        assert_eq!(outcome(&[]), "ER-01 is met, and no mutation breaks it");
        let bad = mutation("ER-01", "workspace = true", "link::x");
        assert!(outcome(&[good(), bad]).contains("times in tools/xtask/Cargo.toml"));
        let bad = mutation("ER-03", "name = \"xtask\"", "link::x");
        assert_eq!(outcome(&[good(), bad]), "a mutation is for ER-03, which is no row");
        let bad = mutation("ER-01", "name = \"xtask\"", "link::y");
        assert_eq!(outcome(&[good(), bad]), "ER-01 does not name link::y");
    }
}
