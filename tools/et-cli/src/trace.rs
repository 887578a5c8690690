//! `et trace`: what firmware has traced, or what is in a file; and the lines of `et run --log`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use et::trace::layout::{Body, Buffer, Entry};
use et::trace::{FirmwareTraceConfig, Losses, Source, Text, Trace};
use serde_json::{Value, json};

use crate::output::{self, Format};

const WAIT: Duration = Duration::from_secs(10);

/// Options of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Decodes a trace buffer in a file, instead of those of the device.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Has the firmware trace everything from now on, how far each command has come included.
    #[arg(long)]
    all: bool,
    /// Goes on for so many seconds, and prints what is new each second.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    watch: u64,
}

/// The highest level of texts: what is printed does not go through the log of `et` itself.
pub(crate) const DEBUG: u8 = 4;

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    if let Some(path) = &args.file {
        let named = || format!("reading {}", path.display());
        let bytes = std::fs::read(path).with_context(named)?;
        return file(&bytes, format).with_context(named);
    }
    let device = et::open(locator).with_context(|| format!("opening {locator}"))?;
    if args.all {
        let mut config = FirmwareTraceConfig::new(device.properties().shire_mask);
        config.level = Some(DEBUG);
        device.configure_trace(&config)?;
    }
    let mut reader = device.firmware_trace();
    print(&reader.read(WAIT)?, format)?;
    for _ in 0..args.watch {
        if output::has_ended() {
            break;
        }
        std::thread::park_timeout(Duration::from_secs(1));
        print(&reader.read(WAIT)?, format)?;
    }
    device.close();
    Ok(())
}

fn file(bytes: &[u8], format: Format) -> anyhow::Result<()> {
    let buffer = Buffer::parse(bytes)?;
    let mut entries = Vec::new();
    let mut losses = json!({"harts": 0, "entries": 0, "bytes": 0});
    for part in buffer.parts() {
        let mut part = part.entries();
        for entry in part.by_ref() {
            match format {
                Format::Json => entries.push(describe(None, &entry, None)),
                Format::Text => println!("{}", line(None, &entry, None)),
            }
        }
        for (name, count) in [("entries", part.skipped()), ("bytes", part.skipped_bytes())] {
            losses[name] = (losses[name].as_u64().unwrap_or(0) + count).into();
        }
    }
    match format {
        Format::Json => output::json(&json!({ "entries": entries, "losses": losses })),
        Format::Text => {
            println!("not decoded: {} entries, {} bytes", losses["entries"], losses["bytes"]);
            Ok(())
        }
    }
}

/// Prints a trace of a device, in the order of the times.
fn print(trace: &Trace, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&document(trace)),
        Format::Text => {
            lines(trace).iter().for_each(|line| println!("{line}"));
            Ok(())
        }
    }
}

/// The entries of a trace as text, and what is missing.
pub(crate) fn lines(trace: &Trace) -> Vec<String> {
    let sorted = sorted(trace);
    let mut lines: Vec<_> = sorted
        .iter()
        .map(|(source, entry)| line(Some(*source), entry, trace.time(entry)))
        .collect();
    let losses = trace.losses();
    if losses != Losses::default() {
        let Losses { harts, entries, bytes, .. } = losses;
        lines.push(format!(
            "lost: older entries of {harts} harts; not decoded: {entries} entries, {bytes} bytes"
        ));
    }
    lines
}

/// The same for machines.
pub(crate) fn document(trace: &Trace) -> Value {
    let entries = sorted(trace);
    let entries =
        entries.iter().map(|(source, entry)| describe(Some(*source), entry, trace.time(entry)));
    let Losses { harts, entries: skipped, bytes, .. } = trace.losses();
    json!({
        "entries": entries.collect::<Vec<_>>(),
        "losses": {"harts": harts, "entries": skipped, "bytes": bytes},
    })
}

fn sorted(trace: &Trace) -> Vec<(Source, Entry<'_>)> {
    let mut entries: Vec<_> = trace.entries().collect();
    entries.sort_by_key(|(_, entry)| entry.cycle);
    entries
}

/// `[    12.345 us] kernel hart 70: text`
fn line(source: Option<Source>, entry: &Entry<'_>, time: Option<Duration>) -> String {
    let when = match time {
        Some(time) => format!("{:>14.3} us", time.as_secs_f64() * 1e6),
        None => format!("{:>14} cycles", entry.cycle),
    };
    let source = source.map(|source| format!("{source} ")).unwrap_or_default();
    format!("[{when}] {source}hart {}: {}", entry.hart_id, Text(entry))
}

fn describe(source: Option<Source>, entry: &Entry<'_>, time: Option<Duration>) -> Value {
    let mut value = json!({
        "source": source.map(|source| source.to_string()),
        "hart": entry.hart_id,
        "cycle": entry.cycle,
        "us": time.map(|time| time.as_secs_f64() * 1e6),
        "text": Text(entry).to_string(),
    });
    let kind = match entry.body {
        Body::String(_) => "text",
        Body::Exception(_) => "exception",
        Body::CmdStatus(_) => "command",
        Body::Memory(..) => "memory",
        Body::UserProfile(_) => "mark",
        Body::PmcCounter(_)
        | Body::PmcCountersCompute(_)
        | Body::PmcCountersSc(_)
        | Body::PmcCountersMs(_) => "counters",
        Body::ValueU64(_)
        | Body::ValueU32(_)
        | Body::ValueU16(_)
        | Body::ValueU8(_)
        | Body::ValueFloat(_) => "value",
        _ => "event",
    };
    value["kind"] = kind.into();
    value
}
