//! The conformance kit as a program: one device, by its locator.

use std::process::ExitCode;

use clap::Parser;
use et_conformance::runner::{self, Options, Suite};
use et_conformance::{Lack, Rig};

/// Checks that a device and its backend do what the runtime relies on.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// The device, as `et list` names it.
    #[arg(long, short, value_name = "LOCATOR", env = "ET_DEVICE")]
    device: et::Locator,
    /// How many times slower than a simulator in the same process the device is.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    scale: u32,
    /// Seconds a case may take on a device of scale 1.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// What the device lacks: abort, compute, access-control.
    #[arg(long, value_name = "WHAT")]
    lacks: Vec<Lack>,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let locator = cli.device;
    let rig = Rig::of_devices(move |config| et::open_with(locator.clone(), config))
        .scale(cli.scale)
        .limit(std::time::Duration::from_secs(cli.limit));
    let rig = cli.lacks.into_iter().fold(rig, Rig::lacks);
    runner::main(vec![Suite::new("", rig)], &cli.options)
}
