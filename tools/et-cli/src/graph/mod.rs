//! `et graph`: runs the task graph that a file describes.

mod report;
mod spec;

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use et::executor::{
    DeviceExecutor, ExecutorConfig, Outcome, Place, Run, RunError, RunOptions, TraceDetail,
};
use et::graph::{Access, CoreSet, Graph, GraphBuilder, Task, TransientBuffer, Word};
use et::{Device, DeviceBuffer, DeviceSlice, KernelArgs};
use indicatif::ProgressBar;

use self::report::Report;
use self::spec::{Argument, Condition, Spec, Value};
use crate::executed::{self, Executed};
use crate::interrupt::{self, Interrupt};
use crate::output::{self, Exit, Format, KernelFailed};
use crate::{copy, npy, open, value};

/// How long tasks that run may still take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(1);

/// Options of `graph`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The graph, a JSON file; docs/src/graphs.md describes it.
    file: PathBuf,
    /// Where kernels run: auto, cores, resident or streams.
    #[arg(long, default_value_t = Place::Auto)]
    place: Place,
    /// Seconds that a run may take; then what runs is aborted.
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
    /// Where to write when each task ran and where, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// What the profile has beside the tasks: also where each one waited, or in addition how many
    /// wait and how many workers are idle meanwhile.
    #[arg(long, value_enum, default_value_t, requires = "profile")]
    detail: Detail,
    /// Folder for records of tasks in the last run, one folder each: arguments, what their buffers
    /// had before the task, and after it. Such a graph does not run at the place resident.
    #[arg(long, value_name = "FOLDER", conflicts_with = "dot")]
    record: Option<PathBuf>,
    /// Names of the tasks to record; all tasks by default.
    #[arg(long, value_name = "NAME", requires = "record")]
    record_task: Vec<String>,
    /// Writes the graph for Graphviz, to a file or standard output, and does not run it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    dot: Option<PathBuf>,
    /// Counts which instructions all harts execute in all runs, most frequent first; those of
    /// harts that schedule or wait for tasks are among them. Only on the simulator, whose kernels
    /// are slower then.
    #[arg(long, conflicts_with = "dot")]
    instructions: bool,
    /// Runs of the graph, each with the data that the one before left.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Detail {
    #[default]
    Tasks,
    Phases,
    Overhead,
}

impl From<Detail> for TraceDetail {
    fn from(detail: Detail) -> Self {
        match detail {
            Detail::Tasks => Self::Tasks,
            Detail::Phases => Self::Phases,
            Detail::Overhead => Self::Overhead,
        }
    }
}

/// A graph and the buffers that its tasks use, in the order of the file.
struct Built {
    graph: Graph,
    buffers: Vec<Memory>,
}

/// What a buffer of the file is.
enum Memory {
    /// It gets the data of the file, and is there after the run.
    Kept(DeviceBuffer),
    /// The graph has it for itself.
    Transient(TransientBuffer),
}

impl Memory {
    fn kept(&self) -> Option<&DeviceBuffer> {
        match self {
            Self::Kept(buffer) => Some(buffer),
            Self::Transient(_) => None,
        }
    }

    fn slice(&self, bytes: Range<u64>) -> et::Result<DeviceSlice> {
        match self {
            Self::Kept(buffer) => buffer.slice(bytes),
            Self::Transient(buffer) => buffer.slice(bytes),
        }
    }
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let mut options = RunOptions::new().traced();
    if let Some(seconds) = args.deadline {
        options = options.deadline(Duration::try_from_secs_f64(seconds).context("bad deadline")?);
    }
    let mut spec = Spec::read(&args.file)?;
    let recorded = recorded(args, &spec)?;
    let device = executed::open(locator, args.instructions)?;
    let built =
        build(&device, &spec, &recorded).with_context(|| format!("in {}", args.file.display()))?;
    if let Some(path) = &args.dot {
        device.close();
        return write_dot(&built.graph, path, format);
    }

    let stream = device.default_stream();
    let kept = || {
        let both = spec.buffers.iter().zip(&built.buffers);
        both.filter_map(|((_, array), memory)| Some((array, memory.kept()?)))
    };
    let total = kept().map(|(array, _)| array.bytes.len() as u64).sum();
    let bar = output::progress(format, "to device", total);
    for (array, buffer) in kept() {
        copy::to_device(stream, &array.bytes, buffer, &bar, open::device_timeout())?;
    }
    bar.finish_and_clear();

    let config = ExecutorConfig::new().place(args.place);
    let executor = DeviceExecutor::new(&device, &config)?;
    let interrupt = Interrupt::catch()?;
    let mut times = Vec::new();
    let launch = || {
        if args.profile.is_some() {
            // The last run is the one that is shown.
            device.profiler().start();
        }
        finish(&executor.launch_with(&built.graph, options)?, &interrupt, format)
    };
    let mut outcome = launch()?;
    times.push(outcome.elapsed());
    while outcome.is_success() && times.len() < args.repeat as usize {
        outcome = launch()?;
        times.push(outcome.elapsed());
    }
    let recorded = device.profiler().stop();
    // What was on the harts all the time is counted when it ends.
    drop(executor);
    let executed = args.instructions.then(|| Executed::take(&device));
    if let Some(path) = &args.profile {
        let mut file =
            File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let mut profile = Vec::new();
        outcome.write_chrome_json_with_memory(args.detail.into(), &recorded, &mut profile)?;
        if let Some(executed) = &executed {
            profile = executed.added_to(&profile, "all tasks")?;
        }
        file.write_all(&profile)?;
    }
    if let Some(folder) = &args.record {
        save_records(&outcome, folder, format)?;
    }
    let mut written = Vec::new();
    if outcome.is_success() {
        let kept = |buffer: usize| built.buffers[buffer].kept();
        let outputs = spec.outputs.iter().filter_map(|(buffer, _)| kept(*buffer));
        let bar =
            output::progress(format, "from device", outputs.map(DeviceBuffer::len_bytes).sum());
        for (buffer, path) in &spec.outputs {
            let array = &mut spec.buffers[*buffer].1;
            let Some(from) = kept(*buffer) else { continue };
            copy::from_device(stream, from, &mut array.bytes, &bar, open::device_timeout())?;
            npy::write(path, array)?;
            written.push(path.clone());
        }
        bar.finish_and_clear();
    }
    device.close();
    let report = Report { file: &args.file, outcome: &outcome, times, outputs: written, executed };
    report.print(args.profile.as_deref(), format)
}

/// Which tasks are to be recorded, in the order of the file.
fn recorded(args: &Args, spec: &Spec) -> anyhow::Result<Vec<bool>> {
    let named = |name: &String| spec.tasks.iter().any(|task| task.name.as_ref() == Some(name));
    if let Some(unknown) = args.record_task.iter().find(|name| !named(name)) {
        anyhow::bail!("--record-task: no task \"{unknown}\"");
    }
    let is_recorded = |task: &spec::Task| {
        let is_named = task.name.as_ref().is_some_and(|name| args.record_task.contains(name));
        args.record.is_some() && (args.record_task.is_empty() || is_named)
    };
    Ok(spec.tasks.iter().map(is_recorded).collect())
}

/// Writes the records of a run, each to a folder that has the number of the task, and its name as
/// far as file names can have it.
fn save_records(outcome: &Outcome, folder: &Path, format: Format) -> anyhow::Result<()> {
    for record in outcome.records() {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name = record.name.as_deref().unwrap_or(&record.function);
        let name = name.replace(|letter| !is_plain(letter), "_");
        let path = folder.join(format!("{}-{name}", record.task));
        record.save(&path).with_context(|| format!("writing {}", path.display()))?;
    }
    if format == Format::Text {
        let (count, path) = (outcome.records().len(), folder.display());
        eprintln!("{count} tasks recorded in {path}");
    }
    Ok(())
}

/// Loads the kernels, makes the buffers and adds the tasks.
fn build(device: &Device, spec: &Spec, recorded: &[bool]) -> anyhow::Result<Built> {
    let mut builder = GraphBuilder::new();
    let kernels = spec.kernels.iter().map(|(name, elf)| {
        let kernel = device.load_kernel(name, elf);
        Ok(builder.kernel(&kernel.with_context(|| format!("kernels, \"{name}\""))?))
    });
    let kernels = kernels.collect::<anyhow::Result<Vec<_>>>()?;
    let buffers = spec.buffers.iter().zip(&spec.is_transient).map(|((name, array), transient)| {
        let len = array.bytes.len() as u64;
        let made = match transient {
            false => device.alloc(len).map(Memory::Kept).map_err(anyhow::Error::from),
            true => Ok(Memory::Transient(builder.transient(device, len, 64)?)),
        };
        made.with_context(|| format!("buffers, \"{name}\""))
    });
    let buffers = buffers.collect::<anyhow::Result<Vec<_>>>()?;

    let mut ids = Vec::new();
    for (task, is_recorded) in spec.tasks.iter().zip(recorded) {
        let described = describe(task, &buffers).and_then(|(args, declared)| {
            let mut described = Task::new(kernels[task.kernel]).args(args);
            for (access, slice) in declared {
                described = match access {
                    Access::Read => described.reads(slice),
                    Access::Write => described.writes(slice),
                    Access::Update => described.updates(slice),
                };
            }
            if let Some(name) = &task.name {
                described = described.name(name.clone());
            }
            if let Some(cores) = &task.cores {
                described = described.cores(CoreSet::clone(cores));
            }
            if let Some(mask) = task.shires {
                described = described.shires(mask);
            }
            if let Some(parts) = task.parts {
                described = described.parts(parts);
            }
            if let Some(condition) = &task.condition {
                described = only_if(described, condition, &buffers)?;
            }
            if *is_recorded {
                described = described.recorded();
            }
            Ok(builder.add(described)?)
        });
        ids.push(described.with_context(|| task.at.clone())?);
    }
    for (task, id) in spec.tasks.iter().zip(&ids) {
        for &before in &task.after {
            builder.edge(ids[before], *id).with_context(|| format!("{}, after", task.at))?;
        }
        for &before in &task.retain {
            let kept = builder.edge_and_retain(ids[before], *id);
            kept.with_context(|| format!("{}, retain", task.at))?;
        }
    }
    Ok(Built { graph: builder.build()?, buffers })
}

fn only_if(task: Task, condition: &Condition, buffers: &[Memory]) -> anyhow::Result<Task> {
    let Condition { buffer, offset, comparison, value } = condition;
    let bytes = if matches!(value, Value::U32(_) | Value::I32(_)) { 4 } else { 8 };
    let word = buffers[*buffer].slice(*offset..*offset + bytes)?;
    Ok(match *value {
        Value::U32(value) => task.only_if(&Word::on_device(word, 0)?, *comparison, value),
        Value::U64(value) => task.only_if(&Word::on_device(word, 0)?, *comparison, value),
        Value::I32(value) => task.only_if(&Word::on_device(word, 0)?, *comparison, value),
        Value::I64(value) => task.only_if(&Word::on_device(word, 0)?, *comparison, value),
    })
}

/// The arguments of a task, and what they declare.
fn describe(
    task: &spec::Task,
    buffers: &[Memory],
) -> anyhow::Result<(KernelArgs, Vec<(Access, et::DeviceSlice)>)> {
    let mut args = KernelArgs::new();
    let mut declared = Vec::new();
    for argument in &task.args {
        match argument {
            Argument::Scalar(ty, text) => args = value::scalar(args, *ty, text)?,
            Argument::Buffer(access, buffer, bytes) => {
                let slice = buffers[*buffer].slice(bytes.clone())?;
                args = args.addr(slice.addr());
                declared.push((*access, slice));
            }
        }
    }
    Ok((args, declared))
}

/// Waits, with a progress bar if it takes long.
fn finish(run: &Run, interrupt: &Interrupt, format: Format) -> anyhow::Result<Arc<Outcome>> {
    let mut bar: Option<ProgressBar> = None;
    let outcome = loop {
        if interrupt.is_set() {
            run.cancel();
            // What runs already is waited for; what does not end is aborted with its executor.
            let text = "interrupted; what ran was aborted".to_owned();
            let stopped = KernelFailed { exit: Exit::Interrupted, text, failure: None };
            break run.wait(GRACE).map_err(|_| stopped)?;
        }
        match run.wait(interrupt::STEP) {
            Ok(outcome) => break outcome,
            Err(RunError::Timeout { finished, tasks, .. }) => {
                let bar = bar.get_or_insert_with(|| output::task_progress(format, tasks));
                bar.set_position(finished as u64);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(outcome)
}

/// Writes the graph without running it. On standard output, `--json` means a description in JSON
/// instead.
fn write_dot(graph: &Graph, path: &Path, format: Format) -> anyhow::Result<()> {
    if path != Path::new("-") {
        std::fs::write(path, graph.to_dot())
            .with_context(|| format!("writing {}", path.display()))?;
    }
    match (format, path == Path::new("-")) {
        (Format::Text, true) => print!("{}", graph.to_dot()),
        (Format::Json, true) => print!("{}", graph.to_json()),
        (Format::Text, false) => println!("wrote {}", path.display()),
        (Format::Json, false) => output::json(&serde_json::json!({
            "dot": path, "tasks": graph.len(), "edges": graph.edges(),
        }))?,
    }
    Ok(())
}

/// Turns an outcome that is no success into an error with its causes.
pub(crate) fn failure(outcome: &Outcome) -> Option<anyhow::Error> {
    let error = outcome.check().err()?;
    let Some((task, first)) = outcome.failures().first() else { return Some(error.into()) };
    let mut cause = report::explain(first);
    // Otherwise the error names the task itself.
    if !matches!(error, RunError::TaskFailed { .. }) {
        let name = outcome.graph().name(*task);
        cause = cause.context(name.map_or(task.to_string(), |name| format!("{task} \"{name}\"")));
    }
    Some(cause.context(error))
}
