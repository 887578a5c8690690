//! The `et` command: look at devices, run kernels.

#[macro_use]
mod output;

mod bench;
mod bind;
mod cc;
mod copy;
mod core;
mod demo;
mod doctor;
mod elf;
mod executed;
mod expect;
mod graph;
mod info;
mod interrupt;
mod manage;
mod npy;
mod objdump;
mod open;
mod packaging;
mod recover;
mod report;
mod run;
mod set;
mod share;
mod top;
mod trace;
mod value;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::{Exit, Format};

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 another failure, 2 wrong usage, 3 a kernel failed, 4 a kernel did not end
in its time, 5 the device cannot be used, 130 interrupted. A first Ctrl-C aborts the kernel and
says where it was, a second one ends the program at once.";

/// Host tools for ET-SoC-1 accelerators.
#[derive(Debug, Parser)]
#[command(name = "et", version, about, after_help = EXIT_CODES)]
struct Cli {
    /// Prints JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// The device: `sim:`, `sim:key=value,…`, `vfio:0000:01:00.0` or `vfio-user:/path/to/socket`.
    #[arg(long, short, global = true, default_value = "sim:memory=private", env = "ET_DEVICE")]
    device: String,
    /// Tries again for so many seconds while another process has the device.
    #[arg(long, global = true, default_value = "0", value_name = "SECONDS",
        value_parser = open::seconds)]
    busy_timeout: Duration,
    /// Gives up what only the device takes time for, a copy, a trace, an abort, after so many
    /// seconds: 60, and 30 without any progress.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = open::seconds)]
    device_timeout: Option<Duration>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures copies and launches, for sizes, streams and threads of your own.
    Bench(bench::Args),
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
    /// Asks the service processor by the name of a command, and shows every field of its answer.
    Query(manage::QueryArgs),
    /// Makes a device work again, by the gentlest means that helps.
    Recover(recover::Args),
    /// Makes a page out of a profile, in one file: timeline, kernels, critical path, failures.
    Report(report::Args),
    /// Resets a device, or a part of it.
    Reset(manage::ResetArgs),
    /// Runs a kernel.
    Run(run::Args),
    /// Tells the service processor what to hold to: thresholds, power, clocks.
    Set(set::Args),
    /// Shares a card among several clients, each with a part of its memory.
    Share(share::Args),
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

impl Command {
    fn uses_device(&self) -> bool {
        !matches!(
            self,
            Self::Bind(_)
                | Self::Cc(_)
                | Self::Core(_)
                | Self::List
                | Self::Objdump(_)
                | Self::Unbind(_)
        )
    }
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
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let format = if cli.json { Format::Json } else { Format::Text };
    // From the environment it may be meant for others.
    let is_named = matches.value_source("device") == Some(ValueSource::CommandLine);
    let named = is_named.then_some(cli.device.as_str());
    if named.is_some() && !cli.command.uses_device() {
        let what = matches.subcommand_name().unwrap_or_default();
        let text = format!("`et {what}` uses no device, leave out --device");
        Cli::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    open::set_timeouts(cli.busy_timeout, cli.device_timeout);
    let outcome = match &cli.command {
        Command::Bench(args) => bench::run(&cli.device, args, format),
        Command::Bind(args) => bind::bind(args, format),
        Command::Cc(args) => cc::run(args, format),
        Command::Completions(args) => packaging::completions(args, Cli::command()),
        Command::Man(args) => packaging::man(args, Cli::command()),
        Command::Core(args) => core::run(args, format),
        Command::Demo(args) => demo::run(&cli.device, args, format),
        Command::Doctor(args) => doctor::run(args, named, format),
        Command::Graph(args) => graph::run(&cli.device, args, format),
        Command::List => info::list(format),
        Command::Info => info::info(&cli.device, format),
        Command::Objdump(args) => objdump::run(args, format),
        Command::Report(args) => report::run(args, format),
        Command::Query(args) => manage::query(&cli.device, args, format),
        Command::Recover(args) => recover::recover(&cli.device, args, format),
        Command::Reset(args) => manage::reset(&cli.device, args, format),
        Command::Set(args) => set::set(&cli.device, args, format),
        Command::Share(args) => share::run(&cli.device, args, format),
        Command::Stat(args) => manage::stat(&cli.device, args, format),
        Command::Update(args) => manage::update(&cli.device, args, format),
        Command::Run(args) => run::run(&cli.device, args, format),
        Command::Top(args) => top::run(&cli.device, args, format),
        Command::Trace(args) => trace::run(&cli.device, args, format),
        Command::Unbind(args) => bind::unbind(args, format),
    };
    let exit = outcome.map_or_else(|error| output::failed(&error, format), |()| Exit::Success);
    match output::finish() {
        Ok(()) => exit.into(),
        Err(error) => {
            eprintln!("error: writing to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
