//! What this process has of its host.

use anyhow::Context;

/// Returns how many threads this process has.
pub(crate) fn threads() -> anyhow::Result<u64> {
    status("Threads:")
}

/// Returns how much memory of this process is resident, in KiB.
pub(crate) fn resident_kib() -> anyhow::Result<u64> {
    status("VmRSS:")
}

/// Returns how many files this process has open.
pub(crate) fn files() -> anyhow::Result<u64> {
    // The folder itself is one of them.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

fn status(field: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.with_context(|| format!("no {field} in the status"))?.parse().context("a number")
}
