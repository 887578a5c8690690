//! Checks and measurements of this workspace, as `cargo xtask …`.

#![expect(clippy::print_stdout, reason = "this program's output goes to standard output")]
#![allow(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

mod blocks;
mod book;
mod ci;
mod conformance;
mod copy;
mod dist;
mod fresh;
mod generate;
mod interface;
mod layers;
mod llama;
mod loom;
mod python;
mod readme;
mod requirements;
mod sdk;
mod shell;
mod tools;
mod vm;
mod wording;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use shell::{build_programs, cargo, execute};
use tools::Done;

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
        /// Makes only these checks, named as they are in the output: docs, clippy, python, tests,
        /// vm.
        #[arg(long, value_name = "CHECK")]
        only: Vec<String>,
        /// No check begins later; the others are skipped.
        #[arg(long, value_name = "MINUTES")]
        limit: Option<u64>,
        /// Writes the counts as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Checks links, chapters and shell lines of the book and the READMEs.
    Book,
    /// Builds and runs what the book and the READMEs show.
    Blocks {
        /// Pages whose names contain one of these; all without any.
        pages: Vec<String>,
    },
    /// Measures the figures of the documentation; `--help` says which.
    #[command(disable_help_flag = true)]
    Bench {
        /// What the program `et-bench` takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Disturbs a program with every fault at every step; `--help` says how.
    #[command(disable_help_flag = true)]
    Campaign {
        /// What `et-campaign campaign` takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Disturbs a program with random faults for a long time; `--help` says how.
    #[command(disable_help_flag = true)]
    Soak {
        /// What `et-campaign soak` takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs the loom models, and shows that they catch seeded mutants.
    Loom {
        /// Writes executions and kills as JSON.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Breaks what each requirement that is met asks for, and shows that its test notices.
    Requirements(requirements::Options),
    /// Compares the public interface of the published crates with their changelogs.
    Interface(interface::Options),
    /// Notes which cases of the conformance kit pass on which boards; after `cargo xtask vm`.
    Conformance,
    /// Writes what the book and the kernels say about cells and mutants.
    Generate,
    /// Installs libraries, headers, packages and the compiler wrapper for programs and kernels.
    Sdk(sdk::Options),
    /// Runs llama.cpp's own backend, unmodified, on a simulated card.
    Llama(llama::Options),
    /// Builds the Python package `et`, with the device SDK.
    Wheel {
        /// Where the wheel is written.
        #[arg(long, value_name = "DIR", default_value = "target/wheels")]
        out: PathBuf,
        /// Installs it into an environment of its own instead, and runs its tests and examples.
        #[arg(long)]
        check: bool,
    },
    /// Builds what others install: Debian package, wheel, crates, and a list of what is in them.
    Dist {
        /// Where the files are written.
        #[arg(long, value_name = "DIR", default_value = "target/dist")]
        out: PathBuf,
        /// Tries the packages instead: twice the same, and installed, used and removed.
        #[arg(long)]
        check: bool,
    },
    /// Builds in a fresh system without network, as the book says.
    Fresh,
    /// Drives devices through the real kernel's VFIO, in virtual machines.
    Vm(vm::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Ci { only, limit, json } => {
            let limit = limit.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
            ci::run(&only, limit, json.as_deref())
        }
        Command::Blocks { pages } => {
            for (why, places) in blocks::check(&pages)? {
                println!("{}: skipped, because {why}", places.join(", "));
            }
            Ok(())
        }
        Command::Book => book::check(),
        Command::Conformance => conformance::run(),
        // A program of its own: the checks do not need the simulator to be compiled first.
        Command::Bench { args } => {
            let call = ["run", "--quiet", "--release", "--package", "et-bench", "--"];
            let mut command = cargo(&call);
            let python = match args.first().and_then(|what| what.to_str()) {
                Some("python") => Some(python::interpreter(&python::FOR_BENCH)?),
                Some("hosts") => Some(python::interpreter(&python::FOR_HOSTS)?),
                _ => None,
            };
            match python.transpose() {
                Ok(Some(python)) => drop(command.env("PYTHON", python)),
                Ok(None) => {}
                Err(why) => anyhow::bail!("not measured, because {why}"),
            }
            if args.first().is_some_and(|what| what == "report") {
                execute(build_programs(&["et"]).args(["--release", "--quiet"]))?;
            }
            if args.first().is_some_and(|what| what == "llama") {
                if let Some(launcher) = sdk::launcher()? {
                    command.env("ET_COMPAT_LAUNCHER", launcher);
                }
                if let Some(built) = llama::rebuild()? {
                    command.env("ET_LLAMA_BUILT", built);
                }
            }
            execute(command.args(args))
        }
        Command::Campaign { args } => execute(campaign("campaign").args(args)),
        Command::Soak { args } => execute(campaign("soak").args(args)),
        Command::Loom { json } => loom::run(json.as_deref()).map(drop),
        Command::Requirements(options) => requirements::run(&options),
        Command::Generate => generate::run(),
        Command::Interface(options) => interface::run(&options),
        Command::Sdk(options) => sdk::run(&options),
        Command::Llama(options) => llama::run(&options),
        Command::Wheel { out, check } => {
            let steps = match check {
                true => vec![python::check()?, python::check_types()?, python::check_hosts()?],
                false => vec![python::wheel(&out)?],
            };
            for step in steps {
                if let Done::Skipped(why) = step {
                    println!("wheel: skipped, because {why}");
                }
            }
            Ok(())
        }
        Command::Dist { check: true, .. } => {
            if let Done::Skipped(why) = dist::check()? {
                println!("dist: skipped, because {why}");
            }
            Ok(())
        }
        Command::Fresh => {
            if let Done::Skipped(why) = fresh::check()? {
                println!("fresh: skipped, because {why}");
            }
            Ok(())
        }
        Command::Dist { out, .. } => dist::run(&out),
        Command::Vm(options) => vm::run(&options),
    }
}

/// A program of its own, as `bench` is.
fn campaign(what: &str) -> std::process::Command {
    cargo(&["run", "--quiet", "--release", "--bin", "et-campaign", "--", what])
}
