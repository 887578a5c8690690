//! `et trace`: what firmware and service processor have traced, or what is in a file; and the lines
//! of `et run --log`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use et::management::{ManagementTrace, Statistic, StatsControl, StatsKind};
use et::trace::layout::{Body, Buffer, Entry};
use et::trace::{FirmwareTraceConfig, Losses, Source, Text, Trace};
use et::{AnyHal, Management};
use serde_json::{Value, json};

use crate::manage;
use crate::open;
use crate::output::{self, Format};

/// Options of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Decodes a trace buffer in a file, instead of those of the device.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Shows the log and the exceptions of the service processor, instead of what the operations
    /// firmware has traced. It works while that hangs.
    #[arg(long, conflicts_with = "file")]
    sp: bool,
    /// Shows the samples of statistics that both processors have traced.
    #[arg(long, conflicts_with = "file")]
    stats: bool,
    /// Has the firmware trace everything from now on, how far each command has come included. Of
    /// statistics, takes samples while it watches.
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
    if args.sp || args.stats {
        return managed(locator, args, format);
    }
    let device = open::open(locator).with_context(|| format!("opening {locator}"))?;
    if args.all {
        let mut config = FirmwareTraceConfig::new(device.properties().shire_mask);
        config.level = Some(DEBUG);
        device.configure_trace(&config)?;
    }
    let mut reader = device.firmware_trace();
    watch(args.watch, || print(&[reader.read(open::device_timeout())?], format))?;
    device.close();
    Ok(())
}

/// Looks once, and then each second.
fn watch(seconds: u64, mut look: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    look()?;
    for _ in 0..seconds {
        if output::has_ended() {
            break;
        }
        std::thread::park_timeout(Duration::from_secs(1));
        look()?;
    }
    Ok(())
}

/// The traces that the management endpoint gives.
fn managed(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    const BOTH: [StatsKind; 2] = [StatsKind::Sp, StatsKind::Mm];
    let management = manage::open(locator)?;
    let mut readers: Vec<ManagementTrace<AnyHal>> = Vec::new();
    if args.sp {
        readers.push(management.firmware_trace()?);
        if args.all {
            management.set_trace_level(Some(DEBUG))?;
        }
    }
    if args.stats {
        for kind in BOTH {
            readers.push(management.statistics_trace(kind)?);
        }
    }
    let sampling = if args.stats && args.all { &BOTH[..] } else { &[] };
    let switch = |management: &Management, control| {
        sampling.iter().try_for_each(|kind| management.control_statistics(*kind, control))
    };
    switch(&management, StatsControl::ENABLE)?;
    let outcome = watch(args.watch, || {
        let traces = readers.iter_mut().map(ManagementTrace::read);
        print(&traces.collect::<et::Result<Vec<_>>>()?, format)
    });
    let off = switch(&management, 0);
    outcome?;
    Ok(off?)
}

fn file(bytes: &[u8], format: Format) -> anyhow::Result<()> {
    let buffer = Buffer::parse(bytes)?;
    let mut entries = Vec::new();
    let mut losses = json!({"harts": 0, "entries": 0, "bytes": 0, "headers": 0});
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

/// Prints traces of a device, in the order of the times.
fn print(traces: &[Trace], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&document(traces)),
        Format::Text => {
            lines_of(traces).iter().for_each(|line| println!("{line}"));
            Ok(())
        }
    }
}

/// The entries of a trace as text, and what is missing.
pub(crate) fn lines(trace: &Trace) -> Vec<String> {
    lines_of(std::slice::from_ref(trace))
}

fn lines_of(traces: &[Trace]) -> Vec<String> {
    let mut lines: Vec<_> = sorted(traces)
        .iter()
        .map(|(source, entry, time)| line(Some(*source), entry, *time))
        .collect();
    let [harts, entries, bytes, headers] = losses(traces);
    if harts + entries + bytes + headers != 0 {
        lines.push(format!(
            "lost: older entries of {harts} harts; not decoded: {entries} entries, {bytes} bytes, \
             {headers} headers"
        ));
    }
    lines
}

/// The same for machines.
fn document(traces: &[Trace]) -> Value {
    let entries = sorted(traces);
    let entries = entries.iter().map(|(source, entry, time)| describe(Some(*source), entry, *time));
    let [harts, skipped, bytes, headers] = losses(traces);
    json!({
        "entries": entries.collect::<Vec<_>>(),
        "losses": {"harts": harts, "entries": skipped, "bytes": bytes, "headers": headers},
    })
}

fn losses(traces: &[Trace]) -> [u64; 4] {
    traces.iter().fold([0; 4], |sum, trace| {
        let Losses { harts, entries, bytes, headers, .. } = trace.losses();
        let more = [harts, entries, bytes, headers];
        std::array::from_fn(|i| sum[i] + more[i])
    })
}

fn sorted(traces: &[Trace]) -> Vec<(Source, Entry<'_>, Option<Duration>)> {
    let mut entries = Vec::new();
    for trace in traces {
        entries.extend(trace.entries().map(|(source, entry)| (source, entry, trace.time(&entry))));
    }
    entries.sort_by_key(|(_, entry, _)| entry.cycle);
    entries
}

/// What levels are called, from 0 on. Spec: §16.2
const LEVELS: [&str; 5] = ["critical", "error", "warning", "info", "debug"];

fn level(entry: &Entry<'_>) -> Option<&'static str> {
    entry.level.and_then(|level| LEVELS.get(usize::from(level)).copied())
}

/// `[    12.345 us] kernel hart 70: text`, or `… sp warning: text`: that one has no harts.
fn line(source: Option<Source>, entry: &Entry<'_>, time: Option<Duration>) -> String {
    let when = match time {
        Some(time) => format!("{:>14.3} us", time.as_secs_f64() * 1e6),
        None => format!("{:>14} cycles", entry.cycle),
    };
    if source == Some(Source::ServiceProcessor) {
        let level = level(entry).map(|level| format!(" {level}")).unwrap_or_default();
        return format!("[{when}] sp{level}: {}", Text(entry));
    }
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
    let statistics = Statistic::of_entry(entry);
    let kind = match entry.body {
        Body::String(_) => "text",
        Body::Exception(_) => "exception",
        Body::CmdStatus(_) => "command",
        Body::Memory(..) => "memory",
        Body::UserProfile(_) => "mark",
        Body::PowerStatus(_) => "power",
        Body::Custom(..) if !statistics.is_empty() => "statistics",
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
    if let Some(level) = level(entry) {
        value["level"] = level.into();
    }
    if let Body::PowerStatus(power) = entry.body {
        value["values"] = json!({
            "power": power.current_power.get(),
            "temperature_c": power.current_temp,
            "frequency_mhz": power.tgt_freq.get(),
            "voltage": power.tgt_voltage.get(),
            "throttle_state": power.throttle_state,
            "power_state": power.power_state,
        });
    } else if !statistics.is_empty() {
        value["values"] = manage::statistics(&statistics);
    }
    value
}
