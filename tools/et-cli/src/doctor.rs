//! `et doctor`: what keeps a card from being used, and the commands that help.

use std::path::PathBuf;

use anyhow::Context;
use et::host::{Bdf, Facts, Finding, Host, Needs, Preflight};
use serde_json::{Value, json};

use crate::output::{self, Exit, Format, Reported};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The card, as `0000:01:00.0`; all cards when left out.
    bdf: Option<Bdf>,
    /// Host memory a program will pin for the card, as `256MiB`.
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pin: u64,
    #[command(flatten)]
    root: Root,
}

/// Where the files of the host are.
#[derive(Debug, clap::Args)]
pub(crate) struct Root {
    /// A folder with the files of another host.
    #[arg(long = "root", value_name = "DIR", env = "ET_HOST_ROOT", hide = true)]
    folder: Option<PathBuf>,
}

impl Root {
    /// Returns the host, and for another host the process that its files describe.
    pub(crate) fn host(&self) -> anyhow::Result<Host> {
        let Some(folder) = &self.folder else { return Ok(Host::system()) };
        let facts = Facts::from_proc(&folder.join("proc/self"))?;
        Ok(Host::at(folder).with_facts(facts))
    }
}

/// `device` is the one that was named as for other commands.
pub(crate) fn run(args: &Args, device: Option<&str>, format: Format) -> anyhow::Result<()> {
    let host = args.root.host()?;
    let named = device.map(card).transpose()?;
    let needs = Needs::pinning(args.pin);
    let cards = match args.bdf.or(named) {
        Some(bdf) => vec![bdf],
        None => host.cards().context("looking for cards")?,
    };
    if cards.is_empty() {
        return without_card(&host.findings(&needs), format);
    }
    let reports: Vec<_> = cards.iter().map(|bdf| host.preflight_with(*bdf, &needs)).collect();
    let is_ok = reports.iter().all(Preflight::is_ok);
    match format {
        Format::Json => {
            let devices: Vec<_> = reports.iter().map(document).collect();
            output::json(&json!({ "ok": is_ok, "devices": devices }))?;
        }
        Format::Text => reports.iter().for_each(print),
    }
    if is_ok { Ok(()) } else { Err(Reported(Exit::Failure).into()) }
}

/// Returns the card of a locator.
fn card(device: &str) -> anyhow::Result<Bdf> {
    match device.parse()? {
        et::Locator::Vfio(address) => Ok(address.bdf),
        _ => anyhow::bail!(
            "{device} needs nothing of this machine; name a card, as vfio:0000:01:00.0"
        ),
    }
}

/// Says what a card will need of this host.
fn without_card(findings: &[Finding], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            output::json(&json!({ "ok": false, "devices": [], "host": list(findings) }))?;
        }
        Format::Text => {
            print_findings(findings);
            println!("There is no card; this is what one will need of this host.");
        }
    }
    Err(Reported(Exit::Failure).into())
}

fn list(findings: &[Finding]) -> Vec<Value> {
    let finding = |finding: &Finding| {
        json!({
            "check": finding.check.name(),
            "verdict": finding.verdict.name(),
            "evidence": finding.detail(),
            "remedy": finding.remedy,
        })
    };
    findings.iter().map(finding).collect()
}

fn document(report: &Preflight) -> Value {
    let mode = report.mode.as_ref();
    json!({
        "bdf": report.bdf.to_string(),
        "ok": report.is_ok(),
        "mode": mode.map(|mode| json!({
            "name": mode.name(), "node": mode.node(), "companion": mode.companion(),
        })),
        "findings": list(&report.findings),
    })
}

fn print(report: &Preflight) {
    println!("{}", report.bdf);
    print_findings(&report.findings);
    match (report.is_ok(), &report.mode) {
        (true, Some(mode)) => println!("The card can be used in mode {}.", mode.name()),
        (true, None) => println!("No problem found, but no node was found either."),
        (false, _) => println!("The card cannot be used; problems: {}.", report.problems().count()),
    }
}

fn print_findings(findings: &[Finding]) {
    for finding in findings {
        println!("  {:<18} {:<8} {}", finding.check, finding.verdict.name(), finding.detail());
    }
    let commands = findings.iter().flat_map(|f| f.remedy.iter().map(|c| (f.check, c)));
    for (index, (check, command)) in commands.enumerate() {
        if index == 0 {
            println!("\nWhat helps, as root; of several for one check the first may suffice:");
        }
        println!("{:>3}. {check:<18} {command}", index + 1);
    }
    println!();
}

/// Reads a number of bytes with an optional unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let parts = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let bytes = parts
        .and_then(|(digits, shift)| digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.ok_or_else(|| "a size is a number of bytes, KiB, MiB or GiB, as 256MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("7", 7), ("2KiB", 2048), ("3 MiB", 3 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "MiB", "1MB", "-1", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
