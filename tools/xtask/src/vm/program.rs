//! Programs of the host that must end.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

/// Runs a program and returns what it printed; after `limit` it is ended.
pub(crate) fn run_within(limit: Duration, command: &mut Command) -> anyhow::Result<String> {
    let mut limited = limited(limit, command);
    let output = limited.stdin(Stdio::null()).output().context("starting timeout")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let name = command.get_program().display().to_string();
    if output.status.code() == Some(124) {
        bail!("{name} did not end within {limit:.0?}");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let all: Vec<_> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = all[all.len().saturating_sub(3)..].join("; ");
    bail!("{name} ended with {}: {tail}", output.status)
}

/// The same call under `timeout`, which also ends what it started.
pub(crate) fn limited(limit: Duration, command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", &limit.as_secs().to_string()]);
    limited.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Whether a program is on the path.
pub(crate) fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
