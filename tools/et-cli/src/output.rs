//! Text for people, JSON for machines.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines: one document.
    Json,
}

/// Prints one JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A failure that the JSON document on standard output already has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed, as reported")
    }
}

impl std::error::Error for Reported {}

/// Prints a failure with its causes.
pub(crate) fn error(error: &anyhow::Error, format: Format) {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    match format {
        Format::Text => eprintln!("error: {}", causes.join("\n  because ")),
        Format::Json => {
            let document = serde_json::json!({ "error": causes[0], "causes": &causes[1..] });
            println!("{document:#}");
        }
    }
}

/// A failure and its causes, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Bytes in the largest fitting unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if count >= 1 << shift {
            #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
            let scaled = count as f64 / f64::from(1u32 << shift);
            return format!("{scaled:.2} {unit}").replace(".00 ", " ");
        }
    }
    format!("{count} bytes")
}

/// A time in the largest fitting unit.
pub(crate) fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        _ if micros < 1e3 => format!("{micros:.1} us"),
        _ if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// A progress bar over bytes on standard error; hidden when that is no terminal, or the work is
/// short.
pub(crate) fn progress(format: Format, what: &'static str, total: u64) -> ProgressBar {
    const SHORT: u64 = 64 << 20;
    if format == Format::Json || total < SHORT {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let template = "{msg:>12} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// A progress bar over tasks, as [`progress`].
pub(crate) fn task_progress(format: Format, total: usize) -> ProgressBar {
    if format == Format::Json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:>12} [{bar:40}] {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message("tasks");
    bar
}
