//! `et demo`: four launches with their dependencies, every element checked.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::{Event, Launch};
use serde_json::json;

use crate::output::{self, Format};

const ELEMENTS: usize = 16_384;
const WAIT: Duration = Duration::from_secs(60);

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
    let device = et::open(locator).with_context(|| format!("opening {locator}"))?;
    let opened = started.elapsed();
    let properties = device.properties();
    device.profiler().start();

    let add = device.load_kernel("add", ADD)?;
    let add_scalar = device.load_kernel("add_scalar", ADD_SCALAR)?;
    let mul = device.load_kernel("mul", MUL)?;

    let n = ELEMENTS as u64;
    let bytes = n * 4;
    let buffer = || device.alloc(bytes);
    let (a, b, s, p, q, f) = (buffer()?, buffer()?, buffer()?, buffer()?, buffer()?, buffer()?);

    // Two streams: both sums may run in any order, the product waits for both.
    let (main, side) = (device.stream(), device.stream());
    let inputs = [
        main.copy_to_device(&vec![args.a; ELEMENTS], &a)?,
        main.copy_to_device(&vec![args.b; ELEMENTS], &b)?,
    ];
    let before = device.hal().board().counters().instructions;
    let launched = Instant::now();
    let step1 = main.launch(&Launch::new(&add).buffer(&a).buffer(&b).buffer(&s).u64(n))?;
    side.wait_for(&step1);
    let step2 = main.launch(&Launch::new(&add_scalar).buffer(&s).buffer(&p).f32(1.0).u64(n))?;
    let step3 = side.launch(&Launch::new(&add_scalar).buffer(&s).buffer(&q).f32(2.0).u64(n))?;
    main.wait_for(&step3);
    let step4 = main.launch(&Launch::new(&mul).buffer(&p).buffer(&q).buffer(&f).u64(n))?;
    step4.wait(WAIT)?;
    for input in inputs {
        input.wait(WAIT)?;
    }
    let elapsed = launched.elapsed();
    let instructions = device.hal().board().counters().instructions - before;
    let mut result = vec![0.0f32; ELEMENTS];
    main.read(&f, &mut result, WAIT)?;

    let expected = (args.a + args.b + 1.0) * (args.a + args.b + 2.0);
    let correct = result.iter().filter(|value| value.to_bits() == expected.to_bits()).count();
    let first_wrong = result.iter().position(|value| value.to_bits() != expected.to_bits());

    let mhz = properties.boot_frequency_mhz;
    let device_time = |event: &Event| {
        let times = event.wait(WAIT)?.device.context("launches have device times")?;
        anyhow::Ok(Duration::from_nanos(times.execute * 1000 / u64::from(mhz.unwrap_or(1))))
    };
    let steps = [
        ("s = a + b", "add", device_time(&step1)?),
        ("p = s + 1", "add_scalar", device_time(&step2)?),
        ("q = s + 2", "add_scalar", device_time(&step3)?),
        ("f = p * q", "mul", device_time(&step4)?),
    ];

    let path =
        args.profile.clone().unwrap_or_else(|| std::env::temp_dir().join("et-demo.trace.json"));
    let profile = device.profiler().stop();
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    profile.write_chrome_json(&mut BufWriter::new(file), mhz)?;
    device.close();

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mips = instructions as f64 / elapsed.as_secs_f64() / 1e6;
    match format {
        Format::Json => output::json(&json!({
            "formula": "f = (a + b + 1)(a + b + 2)",
            "a": args.a, "b": args.b, "expected": expected,
            "elements": ELEMENTS, "correct": correct,
            "harts": properties.harts,
            "open_us": opened.as_secs_f64() * 1e6,
            "steps": steps.iter().map(|(formula, kernel, time)| json!({
                "formula": formula, "kernel": kernel, "device_us": time.as_secs_f64() * 1e6,
            })).collect::<Vec<_>>(),
            "instructions": instructions,
            "million_instructions_per_s": mips,
            "profile": path,
        }))?,
        Format::Text => {
            println!("{locator} opened in {}, {} harts", output::time(opened), properties.harts);
            println!("f = (a + b + 1)(a + b + 2) with a = {}, b = {}", args.a, args.b);
            for (formula, kernel, time) in &steps {
                println!("  {formula:<12} {kernel:<12} {:>10} on the device", output::time(*time));
            }
            println!("{correct} of {ELEMENTS} elements correct ({expected})");
            println!("{instructions} instructions, {mips:.0} million per second");
            println!("profile for ui.perfetto.dev: {}", path.display());
        }
    }
    if let Some(index) = first_wrong {
        ensure!(false, "element {index} is {}, not {expected}", result[index]);
    }
    Ok(())
}
