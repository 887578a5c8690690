//! `et run`: one launch of a kernel, with arguments from the command line.

mod seeds;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use et::status::LaunchStatus;
use et::trace::{KernelTrace, KernelTraceConfig, Trace};
use et::{
    AnyHal, Device, DeviceBuffer, Kernel, KernelArgs, Launch, LaunchFailure, ProfileFormat,
    ProfileWriter, Stream,
};
use serde_json::json;

use crate::copy;
use crate::executed::{self, Executed};
use crate::expect;
use crate::interrupt::{self, Interrupt};
use crate::npy::{self, Array};
use crate::open;
use crate::output::{self, Exit, Format, KernelFailed};
use crate::trace;
use crate::value::{self, Argument};

/// Stacks of launches that may have to be dumped: not less than the default ones have.
const CORE_STACK_BYTES: u64 = 8192;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kernel, an ELF file.
    kernel: PathBuf,
    /// An argument, in order: a scalar (`f32:2.5`, `u64:16384`, …) or an array (`in:x.npy`, or
    /// `in:x.npy:f32` to have its type checked, `out:z.npy:f32[16384]`, `inout:y.npy`).
    #[arg(long = "arg", value_name = "ARG")]
    args: Vec<Argument>,
    /// Shires to run on: a mask (`0xf`) or a list (`0-3,8`); all of the device by default.
    #[arg(long, value_parser = value::shires)]
    shires: Option<u64>,
    /// The function to start at, instead of the file's entry.
    #[arg(long)]
    entry: Option<String>,
    /// Stack of each hart in bytes, instead of the default 4160.
    #[arg(long)]
    stack: Option<u64>,
    /// Seconds that the kernel may take; then it is aborted.
    #[arg(long, default_value_t = 60.0)]
    timeout: f64,
    /// If the kernel fails, writes its registers and memory to this file, for `et core` and gdb.
    /// Implies `--stack 8192`, since the default stacks cannot be read.
    #[arg(long, value_name = "FILE")]
    core: Option<PathBuf>,
    /// Prints what the kernel traces, as with `et_printf`, to standard error.
    #[arg(long)]
    log: bool,
    /// Bytes in which each hart traces; older entries are written over.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    log_bytes: u32,
    /// Writes when each operation was where, and with `--log` what the harts traced:
    /// `FILE.json` for Perfetto, `FILE.jsonl`, or `FILE.csv`.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// An array (`.npy`) that an output must be: one for each `out:` and `inout:`, in order. If it
    /// is not, that is an error (3), and says where.
    #[arg(long, value_name = "FILE")]
    expect: Vec<PathBuf>,
    /// How much floats may differ from what is expected, over the larger of both.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    tolerance: f64,
    /// Runs the kernel so many times on memory that is as late and as much out of order as it may
    /// be (`memory=weak`), each time with another seed, and compares the outputs with those
    /// expected, or else with those on flat memory. No file is written. Only on the simulator.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["core", "log", "profile", "instructions"]
    )]
    seeds: Option<u32>,
    /// Counts which instructions all harts execute, most frequent first; with `--profile` the file
    /// has them too. Only on the simulator, whose kernels are slower then.
    #[arg(long)]
    instructions: bool,
}

/// An array of an argument, and where it goes afterwards; `None` for a scalar.
type Input = Option<(Array, Option<PathBuf>)>;

/// An array on the device, and where it goes afterwards.
struct Buffer {
    device: DeviceBuffer,
    output: Option<(PathBuf, Array)>,
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let timeout = Duration::try_from_secs_f64(args.timeout).context("bad timeout")?;
    let elf = std::fs::read(&args.kernel)
        .with_context(|| format!("reading {}", args.kernel.display()))?;
    // All files are read before the device is touched.
    let inputs = args.args.iter().map(load).collect::<anyhow::Result<Vec<_>>>()?;
    let expected = expected(args, &inputs)?;
    if let Some(seeds) = args.seeds {
        return seeds::run(locator, args, seeds, &elf, &inputs, expected, format);
    }

    let device = executed::open(locator, args.instructions)?;
    if args.profile.is_some() {
        device.profiler().start_with_calls();
    }
    let kernel = load_kernel(&device, args, &elf, &inputs)?;
    let name = name(args);
    let stream = device.default_stream();
    let (mut launch, mut buffers) = place(&device, &kernel, args, inputs, format, timeout)?;
    if args.core.is_some() {
        launch = launch.dumpable();
    }
    if let Some(bytes) = args.stack.or(args.core.as_ref().map(|_| CORE_STACK_BYTES)) {
        launch = launch.stack_bytes(bytes);
    }
    let logs = args.log.then(|| logs(&device, args)).transpose()?;
    if let Some(logs) = &logs {
        launch = launch.trace(logs.option());
    }
    let interrupt = Interrupt::catch()?;
    let started = Instant::now();
    let outcome = execute(&device, stream, &launch, timeout, &interrupt);
    let executed = args.instructions.then(|| Executed::take(&device));
    let mut traces: Vec<_> = logs.iter().filter_map(|logs| print_logs(logs, &kernel)).collect();
    if let Some(failure) = outcome.as_ref().err().and_then(|failed| failed.error.launch_failure()) {
        traces.push(failure.firmware().clone());
    }
    let recorded = || match &args.profile {
        Some(path) => {
            let counts = executed.as_ref().map(|executed| (&*name, executed));
            profile(&device, &traces, counts, path)
                .with_context(|| format!("writing {}", path.display()))
        }
        None => Ok(()),
    };
    let times = match outcome {
        Ok(times) => times,
        Err(failed) => {
            recorded()?;
            // Standard output has the failure only, if machines read it.
            executed.iter().flat_map(Executed::lines).for_each(|line| eprintln!("{line}"));
            if let (Some(path), Some(failure)) = (&args.core, failed.error.launch_failure()) {
                dump(&device, failure, path);
            }
            return Err(failed.report());
        }
    };
    let elapsed = started.elapsed();

    fetch(stream, &mut buffers, format, timeout)?;
    let mut written = Vec::new();
    for (path, array) in buffers.iter().filter_map(|buffer| buffer.output.as_ref()) {
        npy::write(path, array)?;
        written.push(path.clone());
    }
    recorded()?;
    // Unknown if the device does not say how long a cycle is.
    let device_time = device
        .properties()
        .boot_frequency_mhz
        .map(|mhz| Duration::from_nanos(times.execute.saturating_mul(1000) / u64::from(mhz)));
    device.close();
    check(&buffers, &expected, args.tolerance)?;
    match format {
        Format::Json => output::json(&json!({
            "kernel": name, "status": "completed",
            "host_us": elapsed.as_secs_f64() * 1e6,
            "device_us": device_time.map(|time| time.as_secs_f64() * 1e6),
            "device_cycles": times.execute,
            "instructions": executed.as_ref().map(Executed::document),
            "outputs": written,
        })),
        Format::Text => {
            let on_device =
                device_time.map_or_else(|| format!("{} cycles", times.execute), output::time);
            println!("{name} completed in {} ({on_device} on the device)", output::time(elapsed));
            for path in written {
                println!("wrote {}", path.display());
            }
            executed.iter().flat_map(Executed::lines).for_each(|line| println!("{line}"));
            Ok(())
        }
    }
}

/// The kernel's name in messages.
fn name(args: &Args) -> String {
    args.kernel.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Loads the kernel, and compares the arguments with those that it states.
fn load_kernel(
    device: &Device,
    args: &Args,
    elf: &[u8],
    inputs: &[Input],
) -> anyhow::Result<Kernel> {
    let kernel = device.load_kernel_entry(&name(args), elf, args.entry.as_deref())?;
    if let Some(signature) = kernel.signature() {
        let types = inputs.iter().map(|input| input.as_ref().map(|(array, _)| array.ty));
        value::check(signature, &args.args.iter().zip(types).collect::<Vec<_>>())?;
    }
    Ok(kernel)
}

/// Puts the arguments on the device; returns the launch and its arrays.
fn place(
    device: &Device,
    kernel: &Kernel,
    args: &Args,
    inputs: Vec<Input>,
    format: Format,
    timeout: Duration,
) -> anyhow::Result<(Launch, Vec<Buffer>)> {
    let stream = device.default_stream();
    let total = inputs.iter().flatten().map(|(array, _)| array.bytes.len() as u64).sum();
    let bar = output::progress(format, "to device", total);
    let mut block = KernelArgs::new();
    let mut buffers = Vec::new();
    for (argument, input) in args.args.iter().zip(inputs) {
        match (argument, input) {
            (Argument::Scalar(ty, text), _) => block = value::scalar(block, *ty, text)?,
            (_, Some((array, output))) => {
                let buffer = device.alloc(array.bytes.len().max(1) as u64)?;
                copy::to_device(stream, &array.bytes, &buffer, &bar, timeout)?;
                block = block.addr(buffer.addr());
                buffers.push(Buffer { device: buffer, output: output.map(|path| (path, array)) });
            }
            (_, None) => unreachable!("arrays have been loaded"),
        }
    }
    bar.finish_and_clear();
    let mut launch = Launch::new(kernel).args(block);
    for buffer in &buffers {
        launch = launch.keep(&buffer.device);
    }
    if let Some(mask) = args.shires {
        launch = launch.shires(mask);
    }
    Ok((launch, buffers))
}

/// Fetches the outputs.
fn fetch(
    stream: &Stream,
    buffers: &mut [Buffer],
    format: Format,
    timeout: Duration,
) -> anyhow::Result<()> {
    let total = buffers.iter().filter(|b| b.output.is_some()).map(|b| b.device.len_bytes()).sum();
    let bar = output::progress(format, "from device", total);
    for buffer in buffers {
        let Some((_, array)) = &mut buffer.output else { continue };
        copy::from_device(stream, &buffer.device, &mut array.bytes, &bar, timeout)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Reads what the outputs must be, if that was said.
fn expected(args: &Args, inputs: &[Input]) -> anyhow::Result<Vec<Array>> {
    let outputs = inputs.iter().flatten().filter(|(_, path)| path.is_some()).count();
    ensure!(
        args.expect.is_empty() || args.expect.len() == outputs,
        "{} arrays are expected, of {outputs} outputs",
        args.expect.len()
    );
    args.expect.iter().map(|path| npy::read(path)).collect()
}

/// Compares the outputs with what they must be.
fn check(buffers: &[Buffer], expected: &[Array], tolerance: f64) -> anyhow::Result<()> {
    let outputs = buffers.iter().filter_map(|buffer| buffer.output.as_ref());
    for ((path, found), expected) in outputs.zip(expected) {
        if let Some(difference) = expect::compare(found, expected, tolerance)? {
            let text = format!("{}: {difference}", path.display());
            return Err(KernelFailed { exit: Exit::Kernel, text, failure: None }.into());
        }
    }
    Ok(())
}

/// Reads or makes the array of an argument; `None` for scalars.
fn load(argument: &Argument) -> anyhow::Result<Input> {
    Ok(match argument {
        Argument::Scalar(..) => None,
        Argument::In(path, ty) => {
            let array = npy::read(path)?;
            if let Some(ty) = ty.filter(|ty| *ty != array.ty) {
                bail!(
                    "{} is an array of {}, not of {}",
                    path.display(),
                    array.ty.name(),
                    ty.name()
                );
            }
            Some((array, None))
        }
        Argument::InOut(from, to) => Some((npy::read(from)?, Some(to.clone()))),
        Argument::Out(path, ty, shape) => {
            let bytes = shape.iter().product::<u64>() * ty.size() as u64;
            let bytes = vec![0; usize::try_from(bytes).context("array too large")?];
            let array = Array { ty: *ty, shape: shape.clone(), bytes };
            Some((array, Some(path.clone())))
        }
    })
}

/// A launch that failed.
struct Failed {
    error: et::Error,
    /// Why it did not end by itself.
    stopped: Option<Stopped>,
}

/// Why a kernel was aborted.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    After(Duration),
    ByUser,
}

impl Failed {
    fn report(&self) -> anyhow::Error {
        let stopped = |exit| match &self.error {
            // It had not begun, and there is no report.
            error @ et::Error::Aborted { .. } => {
                KernelFailed { exit, text: error.to_string(), failure: None }.into()
            }
            error => explained(error, exit),
        };
        match self.stopped {
            Some(Stopped::After(after)) => stopped(Exit::Timeout)
                .context(format!("kernel did not end within {after:?}, aborted")),
            Some(Stopped::ByUser) => {
                stopped(Exit::Interrupted).context("interrupted, kernel aborted")
            }
            None => report(&self.error),
        }
    }
}

impl From<et::Error> for Failed {
    fn from(error: et::Error) -> Self {
        Self { error, stopped: None }
    }
}

/// Launches and waits; a kernel that does not end, or that the user has enough of, is aborted, so
/// that the report says where it was.
fn execute(
    device: &Device,
    stream: &Stream,
    launch: &Launch,
    timeout: Duration,
    interrupt: &Interrupt,
) -> Result<et::Times, Failed> {
    let started = Instant::now();
    let event = stream.launch(launch)?;
    let timeline = loop {
        let left = timeout.saturating_sub(started.elapsed());
        let stopped = match event.wait(left.min(interrupt::STEP)) {
            Err(et::Error::Timeout { .. }) if interrupt.is_set() => Stopped::ByUser,
            Err(et::Error::Timeout { .. }) if left.is_zero() => Stopped::After(timeout),
            Err(et::Error::Timeout { .. }) => continue,
            outcome => break outcome?,
        };
        let grace = open::device_timeout();
        match device.abort(&event, grace) {
            Err(et::Error::HasEnded { .. }) => {}
            aborted => aborted?,
        }
        break event.wait(grace).map_err(|error| {
            let is_aborted = match &error {
                et::Error::Launch(failure) => failure.status == LaunchStatus::HostAborted,
                error => matches!(error, et::Error::Aborted { .. }),
            };
            Failed { error, stopped: is_aborted.then_some(stopped) }
        })?;
    };
    match timeline.device {
        Some(times) => Ok(times),
        None => unreachable!("launches have device times"),
    }
}

/// Makes what the kernel traces into.
fn logs(device: &Device, args: &Args) -> et::Result<KernelTrace<AnyHal>> {
    let mut config = KernelTraceConfig::new(args.shires.unwrap_or(device.properties().shire_mask));
    config.bytes_per_hart = args.log_bytes;
    // Printed whatever the log of `et` itself lets through.
    config.level = Some(trace::DEBUG);
    device.kernel_trace(config)
}

/// Prints what the kernel has traced, and returns it.
fn print_logs(logs: &KernelTrace<AnyHal>, kernel: &Kernel) -> Option<Trace> {
    let trace = logs.read(open::device_timeout());
    let trace = trace.inspect_err(|error| eprintln!("no trace: {error}")).ok()?;
    trace::lines(&trace).iter().for_each(|line| eprintln!("{line}"));
    Some(trace.of_kernel(kernel))
}

/// Writes what was recorded, in the format of the file's name.
fn profile(
    device: &Device,
    traces: &[Trace],
    executed: Option<(&str, &Executed)>,
    path: &Path,
) -> anyhow::Result<()> {
    let format = match path.extension().and_then(|name| name.to_str()) {
        Some("jsonl") => ProfileFormat::JsonLines,
        Some("csv") => ProfileFormat::Csv,
        _ => ProfileFormat::Chrome,
    };
    let mhz = device.properties().boot_frequency_mhz;
    let mut writer = ProfileWriter::new(BufWriter::new(File::create(path)?), format, mhz)?;
    writer.write(&device.profiler().stop())?;
    traces.iter().try_for_each(|trace| writer.write_trace(trace))?;
    if let Some((kernel, executed)) = executed {
        writer.write_executed(kernel, executed.counts())?;
    }
    Ok(writer.finish()?)
}

/// Writes a core file, and says so. That it cannot be written hides nothing of the failure.
fn dump(device: &Device, failure: &LaunchFailure, path: &Path) {
    let written = File::create(path).and_then(|file| device.core_dump(failure).write(file));
    match written {
        Ok(summary) => {
            let size = output::bytes(summary.bytes);
            let harts = output::plural(summary.harts as u64, "hart", "harts");
            eprintln!("core of {harts} written to {} ({size})", path.display());
            for region in &summary.regions {
                if let Some(error) = &region.error {
                    eprintln!("  without {}: {error}", region.name);
                }
            }
        }
        Err(error) => eprintln!("no core file {}: {error}", path.display()),
    }
}

/// All failed harts, with symbol and source line, the registers of the first, and what firmware
/// said.
pub(crate) fn report(error: &et::Error) -> anyhow::Error {
    explained(error, Exit::Kernel)
}

fn explained(error: &et::Error, exit: Exit) -> anyhow::Error {
    match error {
        et::Error::Launch(failure) => report_launch(failure, exit),
        error => anyhow!(error.clone()),
    }
}

/// As [`report`], of a launch.
pub(crate) fn report_launch(failure: &Arc<LaunchFailure>, exit: Exit) -> anyhow::Error {
    let mut text = format!("{failure:#}");
    let groups = failure.groups();
    let first = groups.first().map(|group| group.first).filter(|context| context.gpr.is_some());
    if let Some(first) = first {
        text += &format!("\nregisters of hart {}:\n{}", first.hart_id, first.registers());
    }
    KernelFailed { exit, text, failure: Some(Arc::clone(failure)) }.into()
}
