//! The `et` command: look at devices, run kernels.

#![expect(clippy::print_stdout, reason = "this program's output goes to standard output")]

mod bind;
mod cc;
mod copy;
mod core;
mod demo;
mod doctor;
mod elf;
mod graph;
mod info;
mod manage;
mod npy;
mod objdump;
mod output;
mod packaging;
mod report;
mod run;
mod top;
mod trace;
mod value;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::Format;

/// Host tools for ET-SoC-1 accelerators.
#[derive(Debug, Parser)]
#[command(name = "et", version, about)]
struct Cli {
    /// Prints JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// The device: `sim:`, `sim:key=value,…`, `vfio:0000:01:00.0` or `vfio-user:/path/to/socket`.
    #[arg(long, short, global = true, default_value = "sim:memory=private", env = "ET_DEVICE")]
    device: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Hands a card to the driver of VFIO; needs root.
    Bind(bind::BindArgs),
    /// Compiles a kernel with a stock RISC-V compiler; knows the vendor's instructions.
    Cc(cc::Args),
    /// Prints what a shell needs to complete the words of this command.
    Completions(packaging::CompletionArgs),
    /// Shows what is in the core file of a failed kernel, and how a debugger opens it.
    Core(core::Args),
    /// Computes (a + b + 1)(a + b + 2) as a graph of four tasks and checks every element.
    Demo(demo::Args),
    /// Says what keeps a card from being used, and which commands help.
    Doctor(doctor::Args),
    /// Runs a graph of kernels that a file describes.
    Graph(graph::Args),
    /// Lists devices.
    List,
    /// Shows what a device says about itself.
    Info,
    /// Writes the manual pages.
    #[command(hide = true)]
    Man(packaging::ManArgs),
    /// Lists the instructions of a kernel file.
    Objdump(objdump::Args),
    /// Makes a page out of a profile, in one file: timeline, kernels, critical path, failures.
    Report(report::Args),
    /// Resets a device, or a part of it.
    Reset(manage::ResetArgs),
    /// Runs a kernel.
    Run(run::Args),
    /// Shows what a card measures: temperatures, power, clocks, errors.
    Stat(manage::StatArgs),
    /// Watches a card: compute, memory, copies, heat, power, errors, processes.
    Top(top::Args),
    /// Shows what the firmware has traced, or what is in a trace buffer.
    Trace(trace::Args),
    /// Gives a card back to the driver it had; needs root.
    Unbind(bind::UnbindArgs),
    /// Installs a firmware image; it runs from the next reset of the chip on.
    Update(manage::UpdateArgs),
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // Compilers find an assembler by its name, and build systems a compiler.
    let name = arguments.next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default();
    if name == OsStr::new("as") {
        return et_as::run(arguments.collect());
    }
    if let Some(language) = et_cc::language(name) {
        return et_cc::driver(language, arguments.collect()).unwrap_or_else(|error| {
            output::error(&error, Format::Text);
            ExitCode::FAILURE
        });
    }
    let filter = tracing_subscriber::EnvFilter::try_from_env("ET_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let format = if cli.json { Format::Json } else { Format::Text };
    let outcome = match &cli.command {
        Command::Bind(args) => bind::bind(args, format),
        Command::Cc(args) => cc::run(args, format),
        Command::Completions(args) => packaging::completions(args, Cli::command()),
        Command::Man(args) => packaging::man(args, Cli::command()),
        Command::Core(args) => core::run(args, format),
        Command::Demo(args) => demo::run(&cli.device, args, format),
        Command::Doctor(args) => doctor::run(args, format),
        Command::Graph(args) => graph::run(&cli.device, args, format),
        Command::List => info::list(format),
        Command::Info => info::info(&cli.device, format),
        Command::Objdump(args) => objdump::run(args, format),
        Command::Report(args) => report::run(args, format),
        Command::Reset(args) => manage::reset(&cli.device, args, format),
        Command::Stat(args) => manage::stat(&cli.device, args, format),
        Command::Update(args) => manage::update(&cli.device, args, format),
        Command::Run(args) => run::run(&cli.device, args, format),
        Command::Top(args) => top::run(&cli.device, args, format),
        Command::Trace(args) => trace::run(&cli.device, args, format),
        Command::Unbind(args) => bind::unbind(args, format),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<output::Reported>() {
                output::error(&error, format);
            }
            ExitCode::FAILURE
        }
    }
}
