//! Checks that programs of others make. Who has not got one skips its check, and that counts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::shell::{capture, cargo, execute, root};

/// What became of a check that may not be possible.
pub(crate) enum Done {
    Checked,
    Skipped(String),
}

type Check = anyhow::Result<Done>;

/// A call of a program in the workspace, `None` if there is no such program.
fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| p.is_file());
    let mut command = Command::new(found?);
    command.current_dir(root());
    Some(command)
}

/// Returns `true` if there is a program of this name.
pub(crate) fn is_there(name: &str) -> bool {
    program(name).is_some()
}

fn run(name: &str, args: &[&str]) -> Check {
    let Some(mut command) = program(name) else {
        return Ok(Done::Skipped(format!("{name} is not installed")));
    };
    execute(command.args(args))?;
    Ok(Done::Checked)
}

/// Spelling, by `typos.toml`.
pub(crate) fn spelling() -> Check {
    run("typos", &["--format", "brief"])
}

/// The book, as mdBook makes it.
pub(crate) fn book() -> Check {
    run("mdbook", &["build", "docs", "--dest-dir", "target/book"])
}

/// Licences, duplicates and sources of dependencies, by `deny.toml`.
pub(crate) fn dependencies() -> Check {
    run("cargo-deny", &["--locked", "check", "--show-stats", "licenses", "bans", "sources"])
}

/// Known defects of dependencies; needs a database that is no package.
pub(crate) fn advisories() -> Check {
    let Some(mut fetch) = program("cargo-deny") else {
        return Ok(Done::Skipped("cargo-deny is not installed".into()));
    };
    if !capture(fetch.args(["--locked", "fetch", "db"]))?.status.success() && !has_advisories() {
        return Ok(Done::Skipped("the database of advisories cannot be had".into()));
    }
    run("cargo-deny", &["--locked", "check", "--disable-fetch", "advisories"])
}

/// Where Cargo keeps what it has got.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Returns `true` if an earlier fetch has left a database; a failed one leaves an empty folder.
fn has_advisories() -> bool {
    let databases = cargo_home().and_then(|home| home.join("advisory-dbs").read_dir().ok());
    databases.into_iter().flatten().flatten().any(|entry| entry.path().join("crates").is_dir())
}

/// The public interface keeps the promise that its version makes since the last release.
pub(crate) fn versions() -> Check {
    const NAME: &str = "cargo-semver-checks";
    let Some(mut command) = program(NAME) else {
        return Ok(Done::Skipped(format!("{NAME} is not installed")));
    };
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match=v[0-9]*"]).current_dir(root());
    let tag = capture(&mut git)?;
    if !tag.status.success() {
        return Ok(Done::Skipped("no release is tagged that it could be compared with".into()));
    }
    let tag = String::from_utf8(tag.stdout).context("the tag's name is not text")?;
    execute(command.args(["semver-checks", "--workspace", "--baseline-rev", tag.trim()]))?;
    Ok(Done::Checked)
}

/// Documented examples that must not compile fail for the reason they name.
///
/// Stable `rustdoc` takes any error for the right one, so it runs as a nightly one here.
pub(crate) fn refusals() -> anyhow::Result<()> {
    // One package alone would be built anew, with only the features that it needs.
    let mut command = cargo(&["test", "--locked", "--doc", "--workspace", "refused"]);
    command.env("RUSTDOC", root().canonicalize()?.join("tools/xtask/rustdoc.sh"));
    let output = capture(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    if !text.contains("compile fail ... ok") {
        bail!("no example was run: {text}");
    }
    Ok(())
}
