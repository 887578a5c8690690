//! `et set`: what the service processor is told to hold to.

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory};
use et::management::{ActivePowerManagement, ErrorSource, Pll, StepClock};
use et::{AnyHal, Management};
use serde_json::{Map, Value, json};

use crate::manage;
use crate::output::{self, Format};

/// Options of `set`. They are carried out in this order; the first that is refused ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = "What is set holds until the chip is reset, and for all who use the card.")]
#[command(group(ArgGroup::new("clocks").args(["minion_clock", "network_clock"]).multiple(true)))]
pub(crate) struct Args {
    /// The temperature above which the clock is reduced, in °C.
    #[arg(long, value_name = "CELSIUS", value_parser = clap::value_parser!(u8).range(1..))]
    threshold: Option<u8>,
    /// The thermal design power, in watts.
    #[arg(long, value_name = "WATTS", value_parser = clap::value_parser!(u8).range(1..))]
    tdp: Option<u8>,
    /// Has the firmware manage power, or not.
    #[arg(long, value_name = "SWITCH")]
    power_management: Option<Switch>,
    /// The clock of the minions, in MHz.
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u16).range(1..))]
    minion_clock: Option<u16>,
    /// The clock of the network on chip, in MHz.
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u16).range(1..))]
    network_clock: Option<u16>,
    /// Changes clocks through the step clock, and not at once.
    #[arg(long, requires = "clocks")]
    step_clock: bool,
    /// How many errors are announced at once, of a source and for each that is given. Current
    /// firmware ignores the number.
    #[arg(long, value_name = "SOURCE=COUNT", value_parser = threshold)]
    errors: Vec<(Source, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Source {
    Dram,
    Sram,
    Pcie,
}

/// Reads `SOURCE=COUNT`.
fn threshold(text: &str) -> Result<(Source, u8), String> {
    let (source, count) = text.split_once('=').ok_or("must be SOURCE=COUNT, as dram=10")?;
    let source = <Source as clap::ValueEnum>::from_str(source, false)
        .map_err(|_| format!("`{source}` is none of dram, sram and pcie"))?;
    let count = count.parse().map_err(|_| format!("`{count}` is no number up to 255"))?;
    Ok((source, count))
}

impl Args {
    /// Ends the program if there is nothing to set. A group of clap's would say so, too, and would
    /// make the line of the manual that cannot be broken too long.
    fn check(&self) {
        let Self { threshold, tdp, power_management, minion_clock, network_clock, .. } = self;
        let is_nothing = threshold.or(*tdp).is_none()
            && minion_clock.or(*network_clock).is_none()
            && power_management.is_none()
            && self.errors.is_empty();
        if is_nothing {
            let text = "nothing is to be set; `--threshold <CELSIUS>` and others would say what";
            crate::Cli::command().error(ErrorKind::MissingRequiredArgument, text).exit();
        }
    }
}

pub(crate) fn set(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    args.check();
    let management = manage::open(locator)?;
    let mut told = Told { management: &management, format, done: Map::new() };
    let outcome = told.all(args);
    if format == Format::Json && outcome.is_ok() {
        return output::json(&Value::Object(told.done));
    }
    outcome
}

/// What has been set, with what it was before and what the card says of it now.
struct Told<'a> {
    management: &'a Management<AnyHal>,
    format: Format,
    done: Map<String, Value>,
}

impl Told<'_> {
    fn all(&mut self, args: &Args) -> anyhow::Result<()> {
        let management = self.management;
        if let Some(celsius) = args.threshold {
            let ask = || Ok(management.temperature_threshold_c()?.into());
            self.one("threshold_c", celsius, ask, || {
                management.set_temperature_threshold_c(celsius)
            })?;
        }
        if let Some(watts) = args.tdp {
            let ask = || Ok(management.tdp_watts()?.into());
            self.one("tdp_watts", watts, ask, || management.set_tdp_watts(watts))?;
        }
        if let Some(switch) = args.power_management {
            let (to, text) = match switch {
                Switch::On => (ActivePowerManagement::On, "on"),
                Switch::Off => (ActivePowerManagement::Off, "off"),
            };
            self.unseen("power_management", text, || management.set_power_management(to))?;
        }
        let step = if args.step_clock { StepClock::On } else { StepClock::Off };
        if let Some(mhz) = args.minion_clock {
            let ask = || Ok(management.frequencies()?.minion_mhz);
            self.one("minion_mhz", mhz, ask, || {
                management.set_frequency_mhz(Pll::Minion, mhz, step)
            })?;
        }
        if let Some(mhz) = args.network_clock {
            let ask = || Ok(management.frequencies()?.noc_mhz);
            self.one("network_mhz", mhz, ask, || {
                management.set_frequency_mhz(Pll::Noc, mhz, step)
            })?;
        }
        for (source, count) in &args.errors {
            let (name, source) = match source {
                Source::Dram => ("dram_errors", ErrorSource::Dram),
                Source::Sram => ("sram_errors", ErrorSource::Sram),
                Source::Pcie => ("pcie_errors", ErrorSource::Pcie),
            };
            self.unseen(name, *count, || management.set_error_threshold(source, *count))?;
        }
        Ok(())
    }

    /// Sets a value, and asks for it before and after.
    fn one(
        &mut self,
        name: &str,
        wanted: impl Into<u32>,
        ask: impl Fn() -> et::Result<u32>,
        set: impl FnOnce() -> et::Result<()>,
    ) -> anyhow::Result<()> {
        let (wanted, label) = (wanted.into(), name.replace('_', " "));
        let before = ask().with_context(|| format!("asking for {label}"))?;
        set().with_context(|| format!("setting {label} to {wanted}"))?;
        let after = ask().with_context(|| format!("asking for {label}"))?;
        if self.format == Format::Text {
            let note = if after == wanted {
                String::new()
            } else {
                format!(", though {wanted} was asked for")
            };
            println!("{label}: {before} is {after} now{note}");
        }
        let value = json!({ "before": before, "wanted": wanted, "after": after });
        self.done.insert(name.to_owned(), value);
        Ok(())
    }

    /// Sets what no command asks for.
    fn unseen(
        &mut self,
        name: &str,
        wanted: impl Into<Value>,
        set: impl FnOnce() -> et::Result<()>,
    ) -> anyhow::Result<()> {
        let (wanted, label) = (wanted.into(), name.replace('_', " "));
        let shown = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
        set().with_context(|| format!("setting {label} to {shown}"))?;
        if self.format == Format::Text {
            println!("{label}: {shown}");
        }
        self.done.insert(name.to_owned(), json!({ "wanted": wanted }));
        Ok(())
    }
}
