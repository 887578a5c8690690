//! Text for people, JSON for machines.
//!
//! `println!` and `print!` of this program do not panic: what cannot be written ends the output,
//! and [`finish`] says so. A reader that has seen enough, as `head`, is no failure.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use et::LaunchFailure;
use et::executor::RunError;
use et::kernel::HartContext;
use et::trace::Text;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::tell(format_args!("{}\n", format_args!($($text)*))) };
}

/// Why standard output ended.
static ENDED: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output, until that fails.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    if has_ended() {
        return;
    }
    if let Err(error) = io::stdout().write_fmt(text) {
        let _ = ENDED.set(error);
    }
}

/// Writes to standard error. If that fails there is no one to tell.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Returns `true` if no one reads any more.
pub(crate) fn has_ended() -> bool {
    ENDED.get().is_some()
}

/// Writes what is left.
///
/// # Errors
/// Why not everything was written, unless its reader had enough.
pub(crate) fn finish() -> io::Result<()> {
    if !has_ended()
        && let Err(error) = io::stdout().flush()
    {
        let _ = ENDED.set(error);
    }
    match ENDED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), error.to_string()))
        }
        _ => Ok(()),
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For machines: one document.
    Json,
}

/// How the program ends. `clap` ends it with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Success,
    /// Something else.
    Failure,
    /// A kernel failed.
    Kernel,
    /// A kernel did not end in its time.
    Timeout,
    /// The device cannot be used.
    Device,
    /// The user had enough.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Kernel => 3,
            Exit::Timeout => 4,
            Exit::Device => 5,
            Exit::Interrupted => 130,
        })
    }
}

impl Exit {
    /// Returns how the program ends with this error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        match error.downcast_ref() {
            Some(RunError::Cancelled { .. }) => return Self::Interrupted,
            Some(RunError::Deadline { .. }) => return Self::Timeout,
            _ => {}
        }
        let of_cause = |cause: &(dyn std::error::Error + 'static)| {
            if let Some(failed) = cause.downcast_ref::<KernelFailed>() {
                return Some(failed.exit);
            }
            if let Some(Reported(exit)) = cause.downcast_ref() {
                return Some(*exit);
            }
            if cause.is::<et::OpenError>() {
                let is_usage = matches!(cause.downcast_ref(), Some(et::OpenError::Locator(_)));
                return Some(if is_usage { Self::Failure } else { Self::Device });
            }
            if cause.is::<et::RecoveryError>() {
                return Some(Self::Device);
            }
            match cause.downcast_ref::<et::Error>()? {
                et::Error::Lost { .. } | et::Error::NeedsReset { .. } => Some(Self::Device),
                _ => None,
            }
        };
        error.chain().find_map(of_cause).unwrap_or(Self::Failure)
    }

    /// Its name in documents.
    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Kernel => "kernel",
            Self::Timeout => "timeout",
            Self::Device => "device",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A kernel that failed, or was stopped.
#[derive(Debug)]
pub(crate) struct KernelFailed {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) failure: Option<Arc<LaunchFailure>>,
}

impl fmt::Display for KernelFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for KernelFailed {}

/// Prints one JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A failure that the JSON document on standard output already has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(pub(crate) Exit);

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed, as reported")
    }
}

impl std::error::Error for Reported {}

/// Prints a failure, unless that was done, and returns how the program ends with it.
pub(crate) fn failed(failure: &anyhow::Error, format: Format) -> Exit {
    if !failure.is::<Reported>() {
        error(failure, format);
    }
    Exit::of(failure)
}

/// Prints a failure with its causes.
pub(crate) fn error(error: &anyhow::Error, format: Format) {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    match format {
        Format::Text => eprintln!("error: {}", causes.join("\n  because ")),
        Format::Json => {
            let mut document = json!({});
            describe(error, &mut document);
            println!("{document:#}");
        }
    }
}

/// Adds a failure to a document: text, kind, and what is known of each hart.
pub(crate) fn describe(error: &anyhow::Error, document: &mut Value) {
    let mut causes = error.chain().map(ToString::to_string);
    document["error"] = causes.next().into();
    document["causes"] = causes.collect::<Vec<_>>().into();
    document["kind"] = Exit::of(error).name().into();
    let kernel = error.chain().find_map(|cause| cause.downcast_ref::<KernelFailed>());
    if let Some(failure) = kernel.and_then(|kernel| kernel.failure.as_deref()) {
        document["failure"] = launch_failure(failure);
    }
}

/// A failed launch for machines.
fn launch_failure(failure: &LaunchFailure) -> Value {
    let groups = failure.groups();
    let groups = groups.iter().map(|group| {
        let context = group.first;
        let location = failure.location(context).unwrap_or_default();
        let (function, offset) = location.symbol.unzip();
        let (file, line) = location.source.unzip();
        let code = failure.code(context);
        let (cause, value) = match context.kind {
            et::kernel::ExceptionKind::Trap { cause, tval } => (Some(cause.as_u64()), Some(tval)),
            _ => (None, None),
        };
        json!({
            "what": context.kind.to_string(), "cause": cause, "value": value,
            "hart": context.hart_id, "harts": group.harts, "count": group.harts.len(),
            "memory": memory_fault(context), "race": race(failure, context),
            "pc": context.pc, "function": function, "offset": offset, "file": file, "line": line,
            "code": code.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "registers": context.gpr.as_deref().map(|registers| registers.to_vec()),
        })
    });
    let firmware = failure.firmware().entries().map(|(source, entry)| {
        json!({
            "source": source.to_string(), "hart": entry.hart_id, "cycle": entry.cycle,
            "text": Text(&entry).to_string(),
        })
    });
    json!({
        "kernel": failure.kernel(),
        "status": failure.status.to_string(),
        "shire_mask": format!("{:#x}", failure.shire_mask),
        "failed_harts": failure.contexts.len(),
        "groups": groups.collect::<Vec<_>>(),
        "contexts_error": failure.contexts_error.as_deref(),
        "firmware": firmware.collect::<Vec<_>>(),
        "firmware_error": failure.firmware_error(),
    })
}

/// What a checker of memory has found, for machines; null if it was something else.
fn memory_fault(context: &HartContext) -> Value {
    let Some((fault, address)) = context.memory_fault() else { return Value::Null };
    json!({
        "violation": fault.violation.to_string(), "access": fault.access.to_string(),
        "address": address, "bytes": fault.bytes, "buffer": nearest(context, address),
    })
}

/// The buffer near an address that a checker has found something at.
fn nearest(context: &HartContext, address: u64) -> Option<Value> {
    let buffer = context.nearest?;
    Some(json!({
        "address": buffer.addr.as_u64(), "bytes": buffer.len_bytes, "freed": buffer.is_freed,
        "offset": address.wrapping_sub(buffer.addr.as_u64()).cast_signed(),
    }))
}

/// What is missing between two harts, for machines; null if it was something else.
fn race(failure: &LaunchFailure, context: &HartContext) -> Value {
    let Some((race, address)) = context.race() else { return Value::Null };
    let location = failure.other_location(context).unwrap_or_default();
    let (function, offset) = location.symbol.unzip();
    let (file, line) = location.source.unzip();
    json!({
        "kind": race.kind.to_string(), "access": race.access.to_string(),
        "address": address, "bytes": race.bytes, "buffer": nearest(context, address),
        "other": {
            "access": race.other.to_string(), "hart": race.other_hart, "pc": context.other_pc(),
            "function": function, "offset": offset, "file": file, "line": line,
        },
    })
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

/// A number with what it counts.
pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
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
