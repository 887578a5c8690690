//! `et stat`, `et query`, `et update` and `et reset`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use et::management::{
    ErrorSource, FieldValue, ManagementEvent, ManagementEventKind, Module, Statistic, StatsKind,
    ThrottleState,
};
use et::{AnyHal, Config, Management};
use serde_json::{Value, json};

use crate::info::print_tree;
use crate::open;
use crate::output::{self, Format};

/// How long the service processor may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reset may take: as long as a boot.
const RESET: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
pub(crate) struct StatArgs {
    /// Repeats, and shows events as they come, until interrupted.
    #[arg(long)]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Looks, with `--watch`; for ever if not given.
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// Shows the statistics of both processors too.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// The image.
    image: PathBuf,
    /// Resets the chip afterwards, so that the image runs. Everything on the device is lost.
    #[arg(long)]
    reset: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResetArgs {
    /// The compute cores; device memory stays.
    #[arg(long)]
    compute: bool,
    /// The operations firmware, even if it hangs; device memory stays.
    #[arg(long)]
    operations: bool,
    /// The PCI function, through the bus.
    #[arg(long)]
    function: bool,
    /// The whole chip; everything is lost.
    #[arg(long)]
    soc: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct QueryArgs {
    /// The command, as `GET_MODULE_POWER` or `module-power`. Without one, all are listed.
    name: Option<String>,
    /// What is asked for, as the state of a residency.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    argument: u64,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    if (0.01..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err("must be from 0.01 to 86400".into())
}

pub(crate) fn open(locator: &str) -> anyhow::Result<Management> {
    let opened = et::open_management(locator.parse()?, Config::new());
    Ok(opened.with_context(|| format!("opening {locator}"))?.with_timeout(PATIENCE))
}

pub(crate) fn stat(locator: &str, args: &StatArgs, format: Format) -> anyhow::Result<()> {
    let management = open(locator)?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut left = if args.watch { args.count } else { Some(1) };
    loop {
        let next = Instant::now() + interval;
        let document = look(&management, args.all)?;
        match format {
            Format::Json if args.watch => println!("{document}"),
            Format::Json => output::json(&document)?,
            Format::Text if args.watch => println!("{}", line(&document)),
            Format::Text => print_tree(&document, 0),
        }
        if output::has_ended() {
            return Ok(());
        }
        if let Some(left) = &mut left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Ok(());
            }
        }
        loop {
            let pause = next.saturating_duration_since(Instant::now());
            // Events are for the process that has the card.
            if management.is_relayed() {
                if pause.is_zero() {
                    break;
                }
                std::thread::park_timeout(pause);
                continue;
            }
            match management.event(pause)? {
                Some(event) => print_event(&event, format),
                None if pause.is_zero() => break,
                None => {}
            }
        }
    }
}

pub(crate) fn query(locator: &str, args: &QueryArgs, format: Format) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        let names: Vec<_> = Management::<AnyHal>::queries().map(|command| command.name).collect();
        return match format {
            Format::Json => output::json(&json!({ "queries": names })),
            Format::Text => {
                names.iter().for_each(|name| println!("{name}"));
                Ok(())
            }
        };
    };
    let asked = open(locator)?.query(name, args.argument);
    let fields = asked.with_context(|| format!("asking for {name} (`et query` lists all)"))?;
    let fields = fields.into_iter().map(|field| {
        let value = match field.value {
            FieldValue::Number(number) => json!(i64::try_from(number).unwrap_or(i64::MAX)),
            other => json!(other.to_string()),
        };
        (field.name, value)
    });
    let document = Value::Object(fields.collect());
    match format {
        Format::Json => output::json(&document),
        Format::Text => {
            print_tree(&document, 0);
            Ok(())
        }
    }
}

/// Everything that moves, as one document.
fn look(management: &Management, all: bool) -> anyhow::Result<Value> {
    let temperatures = management.temperatures()?;
    let frequencies = management.frequencies()?;
    let asic = management.asic_voltages()?;
    let regulators = management.module_voltages()?;
    let throttled = management.throttle_residency(ThrottleState::Down)?;
    let errors = |source| {
        let counts = management.error_counts(source)?;
        Ok::<_, et::Error>(json!({
            "corrected": counts.corrected, "uncorrectable": counts.uncorrectable,
        }))
    };
    let minion = management.minion_errors()?;
    let rate = management.memory_rate()?;
    let caches = management.cache_config()?;
    let counters = management.counters();
    let mut document = json!({
        "uptime_minutes": management.uptime()?.as_secs() / 60,
        "temperature_c": {
            "minions": temperatures.minion_average_c,
            "minions_highest": temperatures.minion_highest_c,
            "io_shire": temperatures.io_shire_c,
            "power_controller": temperatures.power_controller_c,
            "highest": management.highest_temperature_c()?,
            "threshold": management.temperature_threshold_c()?,
        },
        "power": {
            "now_mw": management.power_mw()?,
            "tdp_watts": management.tdp_watts()?,
            "state": management.power_state()?.to_string(),
            "throttled_us": u64::try_from(throttled.total.as_micros())?,
        },
        "frequency_mhz": {
            "minions": frequencies.minion_mhz,
            "network": frequencies.noc_mhz,
            "memory_shires": frequencies.memory_shire_mhz,
            "memory": frequencies.ddr_mhz,
            "pcie_shire": frequencies.pcie_shire_mhz,
            "io_shire": frequencies.io_shire_mhz,
        },
        "voltage_mv": {
            "minions": asic.minion_mv,
            "l2_caches": asic.l2_cache_mv,
            "network": asic.noc_mv,
            "memory": asic.ddr_mv,
            "pcie_regulator": regulators.millivolts(Module::Pcie),
        },
        "errors": {
            "dram": errors(ErrorSource::Dram)?,
            "sram": errors(ErrorSource::Sram)?,
            "pcie": errors(ErrorSource::Pcie)?,
            "firmware": { "hangs": minion.hangs, "exceptions": minion.exceptions },
        },
        "memory": {
            "reads_per_s": rate.reads_per_s,
            "writes_per_s": rate.writes_per_s,
            "used_percent": management.memory_used_percent()?,
        },
        "shire_kib": {
            "scratchpad": caches.scratchpad_kib, "l2": caches.l2_kib, "l3": caches.l3_kib,
        },
        "events": {
            "seen": counters.events,
            "lost": counters.events_lost,
            "full_queues": counters.full_queues,
            "stray_responses": counters.stray_responses,
            "malformed_messages": counters.malformed_messages,
        },
    });
    if all {
        for (name, kind) in [("service_processor", StatsKind::Sp), ("master_minion", StatsKind::Mm)]
        {
            document[name] = statistics(&management.statistics(kind)?);
        }
    }
    Ok(document)
}

/// Statistics by their names.
pub(crate) fn statistics(list: &[Statistic]) -> Value {
    let list = list.iter().map(|s| {
        let value = json!({
            "average": s.average, "least": s.least, "greatest": s.greatest,
            "unit": s.unit.symbol(),
        });
        (s.name.to_owned(), value)
    });
    list.collect::<serde_json::Map<_, _>>().into()
}

/// One look as a line.
fn line(document: &Value) -> String {
    let errors = ["dram", "sram", "pcie"].map(|source| {
        let counts = &document["errors"][source];
        format!("{source} {}/{}", counts["corrected"], counts["uncorrectable"])
    });
    format!(
        "{} °C  {} mW  {} MHz  {}  {}",
        document["temperature_c"]["minions"],
        document["power"]["now_mw"],
        document["frequency_mhz"]["minions"],
        document["power"]["state"].as_str().unwrap_or_default(),
        errors.join("  "),
    )
}

fn print_event(event: &ManagementEvent, format: Format) {
    let (name, class, count) = match event.kind {
        ManagementEventKind::Card(event) => {
            (event.id.to_string(), event.class.to_string(), event.count)
        }
        other => (format!("{other:?}"), "info".into(), 1),
    };
    match format {
        Format::Json => println!("{}", json!({ "event": name, "class": class, "count": count })),
        Format::Text => println!("event: {name}, {class}, {count} ×"),
    }
}

pub(crate) fn update(locator: &str, args: &UpdateArgs, format: Format) -> anyhow::Result<()> {
    let path = args.image.display().to_string();
    let image = std::fs::read(&args.image).with_context(|| format!("reading {path}"))?;
    let name = args.image.file_name().unwrap_or_default().to_string_lossy();
    // Both ends of the update on one handle: the reset needs the whole device.
    let (before, after) = if args.reset {
        let mut device = open::open(locator).with_context(|| format!("opening {locator}"))?;
        let management = device.management()?.with_timeout(RESET);
        let before = management.firmware_versions()?.release;
        management.update_firmware(&image, &name).with_context(|| format!("installing {path}"))?;
        device.reset_chip(RESET)?;
        (before, Some(device.management()?.firmware_versions()?.release))
    } else {
        let management = open(locator)?.with_timeout(RESET);
        let before = management.firmware_versions()?.release;
        management.update_firmware(&image, &name).with_context(|| format!("installing {path}"))?;
        (before, None)
    };
    match (format, after) {
        (Format::Json, after) => output::json(&json!({
            "image": path, "bytes": image.len(), "before": before.to_string(),
            "after": after.map(|after| after.to_string()),
        }))?,
        (Format::Text, Some(after)) => println!("{path} runs: {before} is {after} now"),
        (Format::Text, None) => {
            println!("{path} is installed; {before} runs until `et reset --soc`");
        }
    }
    Ok(())
}

pub(crate) fn reset(locator: &str, args: &ResetArgs, format: Format) -> anyhow::Result<()> {
    let started = Instant::now();
    let what = match args {
        ResetArgs { compute: true, .. } => "compute",
        ResetArgs { operations: true, .. } => "operations",
        ResetArgs { function: true, .. } => "function",
        _ => "soc",
    };
    match open::open(locator) {
        Ok(mut device) => match what {
            "compute" => device.reset_compute(RESET)?,
            "operations" => device.reset_operations(RESET)?,
            "function" => device.reset(RESET)?,
            _ => device.reset_chip(RESET)?,
        },
        // The service processor is there even if the rest of the card is not.
        Err(error) if matches!(what, "operations" | "soc") => {
            let management = open(locator)?.with_timeout(RESET);
            eprintln!("the device does not open: {}", et::Report(&error));
            match what {
                "operations" => management.reset_operations().map(drop)?,
                _ => management.reset_chip()?,
            }
        }
        Err(error) => return Err(error).with_context(|| format!("opening {locator}")),
    }
    let took = started.elapsed();
    match format {
        Format::Json => output::json(&json!({ "reset": what, "seconds": took.as_secs_f64() }))?,
        Format::Text => println!("{what} reset, {}", output::time(took)),
    }
    Ok(())
}
