//! Checks and measurements of this workspace, as `cargo xtask …`.

#![expect(clippy::print_stdout, reason = "this program's output goes to standard output")]
#![allow(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

mod bench;
mod ci;
mod generate;
mod layers;
mod loom;
mod shell;
mod vm;
mod wording;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything that must hold before a change lands.
    Ci {
        /// Writes the counts as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Measures the figures of the documentation, each beside a floor of the same run.
    Bench {
        /// `graph` for task graphs, `vfio` for a card in another process; without it, everything
        /// but `graph`.
        #[arg(value_enum)]
        what: Option<What>,
        /// Writes the figures as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Only figures whose name contains this.
        #[arg(long)]
        only: Option<String>,
    },
    /// The other process of a measurement.
    #[command(hide = true)]
    BenchPeer {
        /// The processor to run on.
        #[arg(long)]
        cpu: Option<usize>,
        #[command(subcommand)]
        role: bench::Role,
    },
    /// Runs the loom models, and shows that they catch seeded mutants.
    Loom {
        /// Writes executions and kills as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Writes what the book and the kernels say about cells and mutants.
    Generate,
    /// Drives devices through the real kernel's VFIO, in virtual machines.
    Vm(vm::Options),
}

/// A group of figures of its own.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Graph,
    Vfio,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Ci { json } => ci::run(json.as_deref()),
        Command::Bench { what: Some(What::Graph), json, .. } => bench::run_graph(json.as_deref()),
        Command::Bench { what: Some(What::Vfio), json, only } => {
            bench::run_vfio(json.as_deref(), only.as_deref())
        }
        Command::Bench { what: None, json, only } => bench::run(json.as_deref(), only.as_deref()),
        Command::BenchPeer { cpu, role } => bench::play(&role, cpu),
        Command::Loom { json } => loom::run(json.as_deref()),
        Command::Generate => generate::run(),
        Command::Vm(options) => vm::run(&options),
    }
}
