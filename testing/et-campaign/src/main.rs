//! Disturbs a program that uses all of the runtime: every fault of the simulated card at every
//! step, each in a process of its own; or random faults for a long time in one process.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this program's output goes to standard output")]

mod cell;
mod host;
mod program;
mod soak;
mod table;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use et_hal_sim::Fault;

use crate::program::Step;

#[derive(Debug, Parser)]
#[command(about, bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every fault at every step; fails if a program hangs, panics, leaks, or gets wrong results.
    Campaign {
        /// Only faults that contain this text.
        #[arg(long)]
        only: Option<String>,
        /// Writes the table as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Random faults in one process for a long time; fails if it grows or gets wrong results.
    Soak(soak::Options),
    /// One cell of the table, in this process.
    #[command(hide = true)]
    Cell { fault: Fault, step: Step },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Campaign { only, json } => table::run(only.as_deref(), json.as_deref()),
        Command::Soak(options) => soak::run(&options),
        Command::Cell { fault, step } => {
            // Of any thread, the simulated card's too.
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                hook(info);
                std::process::exit(101);
            }));
            println!("{}", serde_json::to_string(&cell::play(fault, step)?)?);
            Ok(())
        }
    }
}
