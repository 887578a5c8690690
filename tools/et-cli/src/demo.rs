//! `et demo`: a graph of four tasks, every element checked.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::executor::{DeviceExecutor, ExecutorConfig, Place, RunOptions, TraceDetail};
use et::graph::{GraphBuilder, Task};
use serde_json::json;

use crate::output::{self, Format};
use crate::{graph, open};

const ELEMENTS: usize = 16_384;

const ADD: &[u8] = include_bytes!("../../../testing/kernels/elf/add.elf");
const ADD_SCALAR: &[u8] = include_bytes!("../../../testing/kernels/elf/add_scalar.elf");
const MUL: &[u8] = include_bytes!("../../../testing/kernels/elf/mul.elf");

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First number.
    #[arg(long, default_value_t = 2.0)]
    a: f32,
    /// Second number.
    #[arg(long, default_value_t = 3.0)]
    b: f32,
    /// Where to write the profile, for ui.perfetto.dev.
    #[arg(long)]
    profile: Option<PathBuf>,
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let started = Instant::now();
    let device = open::open(locator).with_context(|| format!("opening {locator}"))?;
    let opened = started.elapsed();
    let properties = device.properties();

    let n = ELEMENTS as u64;
    let buffer = || device.alloc(n * 4);
    let (a, b, s, p, q, f) = (buffer()?, buffer()?, buffer()?, buffer()?, buffer()?, buffer()?);

    // What tasks read and write gives the order: both sums wait for s, the product waits for both.
    let mut builder = GraphBuilder::new();
    let add = builder.kernel(&device.load_kernel("add", ADD)?);
    let add_scalar = builder.kernel(&device.load_kernel("add_scalar", ADD_SCALAR)?);
    let mul = builder.kernel(&device.load_kernel("mul", MUL)?);
    let task = |function, formula| Task::new(function).name(formula);
    builder.add(task(add, "s = a + b").input(&a).input(&b).output(&s).u64(n))?;
    builder.add(task(add_scalar, "p = s + 1").input(&s).output(&p).f32(1.0).u64(n))?;
    builder.add(task(add_scalar, "q = s + 2").input(&s).output(&q).f32(2.0).u64(n))?;
    builder.add(task(mul, "f = p * q").input(&p).input(&q).output(&f).u64(n))?;
    let graph = builder.build()?;

    let stream = device.default_stream();
    stream.copy_to_device(&vec![args.a; ELEMENTS], &a)?.wait(open::device_timeout())?;
    stream.copy_to_device(&vec![args.b; ELEMENTS], &b)?.wait(open::device_timeout())?;
    let executor = DeviceExecutor::new(&device, &ExecutorConfig::new().place(Place::Auto))?;
    if args.profile.is_some() {
        device.profiler().start();
    }
    let counter = || device.hal().as_sim().map(|sim| sim.board().counters().instructions);
    let before = counter();
    let launched = Instant::now();
    let run = executor.launch_with(&graph, RunOptions::new().traced())?;
    let outcome = run.wait(open::device_timeout())?;
    let elapsed = launched.elapsed();
    if let Some(error) = graph::failure(&outcome) {
        return Err(error);
    }
    let recorded = device.profiler().stop();
    let instructions = counter().zip(before).map(|(now, before)| now - before);
    let place = outcome.place();
    let mut result = vec![0.0f32; ELEMENTS];
    stream.read(&f, &mut result, open::device_timeout())?;

    let expected = (args.a + args.b + 1.0) * (args.a + args.b + 2.0);
    let correct = result.iter().filter(|value| value.to_bits() == expected.to_bits()).count();
    let first_wrong = result.iter().position(|value| value.to_bits() != expected.to_bits());

    let trace = outcome.trace().context("the launch asked for a trace")?;
    let steps: Vec<_> = graph
        .tasks()
        .map(|task| {
            let span = trace.spans().iter().find(|span| span.task == task);
            let time = span.map_or(Duration::ZERO, |span| span.end.saturating_sub(span.start));
            (graph.name(task).unwrap_or_default(), graph.function(task), time)
        })
        .collect();

    drop(executor);
    device.close();

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mips = instructions.map(|count| count as f64 / elapsed.as_secs_f64() / 1e6);
    match format {
        Format::Json => output::json(&json!({
            "formula": "f = (a + b + 1)(a + b + 2)",
            "a": args.a, "b": args.b, "expected": expected,
            "elements": ELEMENTS, "correct": correct,
            "harts": properties.harts,
            "place": place,
            "open_us": opened.as_secs_f64() * 1e6,
            "steps": steps.iter().map(|(formula, kernel, time)| json!({
                "formula": formula, "kernel": kernel, "us": time.as_secs_f64() * 1e6,
            })).collect::<Vec<_>>(),
            "elapsed_us": elapsed.as_secs_f64() * 1e6,
            "instructions": instructions,
            "million_instructions_per_s": mips,
            "profile": args.profile,
        }))?,
        Format::Text => {
            println!("{locator} opened in {}, {} harts", output::time(opened), properties.harts);
            println!("f = (a + b + 1)(a + b + 2) with a = {}, b = {}", args.a, args.b);
            println!("{} tasks in {}, place {place}", graph.len(), output::time(elapsed));
            for (formula, kernel, time) in &steps {
                println!("  {formula:<12} {kernel:<12} {:>10}", output::time(*time));
            }
            println!("{correct} of {ELEMENTS} elements correct ({expected})");
            if let Some((count, mips)) = instructions.zip(mips) {
                println!("{count} instructions, {mips:.0} million per second");
            }
        }
    }
    if let Some(path) = &args.profile {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let out = &mut BufWriter::new(file);
        outcome.write_chrome_json_with_memory(TraceDetail::Tasks, &recorded, out)?;
        if format == Format::Text {
            println!("profile for ui.perfetto.dev: {}", path.display());
        }
    }
    if let Some(index) = first_wrong {
        ensure!(false, "element {index} is {}, not {expected}", result[index]);
    }
    Ok(())
}
