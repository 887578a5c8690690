//! Running programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use serde::Serialize;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A `cargo` call in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// A `cargo build` of programs of the workspace.
///
/// They are chosen from all of it, not from their packages: what a package needs alone has other
/// features, so that all of it, the simulator too, would be built again for each of them.
pub(crate) fn build_programs(names: &[&str]) -> Command {
    let mut command = cargo(&["build", "--locked", "--workspace"]);
    for name in names {
        command.args(["--bin", name]);
    }
    command
}

/// Runs a program, showing its output.
pub(crate) fn execute(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {command:?}");
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Runs a program and returns what it printed.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("starting {command:?}"))
}

/// Writes a value to a file as JSON.
pub(crate) fn write_json(path: Option<&Path>, value: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
