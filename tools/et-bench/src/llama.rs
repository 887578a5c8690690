//! What programs of others feel: calls through the C interface, and launches on all harts.

#![expect(unsafe_code, reason = "calls the C interface as C does")]

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::Launch;
use et_capi::{
    ET_ABI_VERSION, et_device_close, et_device_open, et_event_free, et_event_wait, et_init,
    et_kernel_load, et_launch_arg_u64, et_launch_create, et_launch_submit, et_status,
    et_stream_create,
};

use crate::figure::{Figure, Group, Take, Unit, measure, median, repeat};
use crate::floor;
use crate::host::{ADD, NULL_DEVICE};

const WAIT: Duration = Duration::from_secs(30);
const LAUNCHES: u32 = 20_000;
const RUNS: usize = 9;
const TURNS: usize = 15;
const SPIN_PACKED: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_packed.elf");
const SPIN_TENSOR: &[u8] = include_bytes!("../../../testing/kernels/elf/spin_tensor.elf");
/// The card of llama.cpp's programs: kernels rely on private caches.
const CARD: &str = "sim:memory=private";

const GROUPS: [Group; 7] = [
    ("capi_launch_ns", |take| one(take, overhead()?)),
    ("compat_launch_us", compatibility),
    ("launch_us_2048_harts", |take| one(take, launch("launch_us_2048_harts", 0)?)),
    // The same with work for each.
    ("launch_add_us_2048_harts", |take| one(take, launch("launch_add_us_2048_harts", 65_536)?)),
    ("packed_", |take| {
        take(packed_gflops()?);
        one(take, packed_ns()?)
    }),
    ("tensor_fp32_gflops", |take| one(take, tensor_gflops()?)),
    ("llama_", programs),
];

fn one(take: Take<'_>, figure: Figure) -> anyhow::Result<()> {
    take(figure);
    Ok(())
}

/// Hands the figures to `take`; with `only`, those of groups whose names may fit.
pub(crate) fn figures(only: Option<&str>, mut take: impl FnMut(Figure)) -> anyhow::Result<()> {
    measure(&GROUPS, only, &mut take)
}

/// Seconds of a launch of the packed kernel on one host core, and the instructions of a hart in it.
fn packed(iterations: u64, has_data: bool) -> anyhow::Result<(Vec<f64>, u64)> {
    let device = et::open("sim:memory=private,shires=1,dram=1GiB,threads=1")?;
    let harts = u64::from(device.properties().harts);
    let kernel = device.load_kernel("spin_packed", SPIN_PACKED)?;
    let (out, data) = (device.alloc(8 * harts)?, device.alloc(4096)?);
    let stream = device.default_stream();
    // Floats and weights that are not zero, nor special.
    stream.fill(&data, 0x3F)?.wait(WAIT)?;
    let launch = Launch::new(&kernel).u64(iterations).buffer(&out);
    let launch = if has_data { launch.buffer(&data) } else { launch.u64(0) };
    let runs = repeat(RUNS, || {
        let start = Instant::now();
        stream.launch(&launch)?.wait(WAIT)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    drop((out, data, kernel));
    device.close();
    Ok((runs, harts))
}

/// Independent fused operations on eight lanes, which count twice.
fn packed_gflops() -> anyhow::Result<Figure> {
    const ITERATIONS: u64 = 20_000;
    let (runs, harts) = packed(ITERATIONS, false)?;
    let operations = (ITERATIONS * harts * 8 * 8 * 2) as f64;
    let runs: Vec<f64> = runs.iter().map(|seconds| operations / seconds / 1e9).collect();
    let floor = ("scalar operations by the host, millions", floor::native_fp_mips());
    Ok(Figure::new(
        "packed_gflops",
        Unit::More("thousand million operations per second"),
        &runs,
        floor,
    ))
}

/// A packed instruction of a product with 8-bit weights: of 17, a quarter each loads floats,
/// gathers bytes, converts them, and multiplies and adds.
fn packed_ns() -> anyhow::Result<Figure> {
    const ITERATIONS: u64 = 10_000;
    let (runs, harts) = packed(ITERATIONS, true)?;
    let instructions = (ITERATIONS * harts * 17) as f64;
    let runs: Vec<f64> = runs.iter().map(|seconds| seconds * 1e9 / instructions).collect();
    let floor = ("cache line to another core and back, us", floor::round_trip_us());
    Ok(Figure::new("packed_ns", Unit::Less("ns"), &runs, floor))
}

/// Products of 16 by 16 floats on the tensor unit, on one host core.
fn tensor_gflops() -> anyhow::Result<Figure> {
    const ITERATIONS: u64 = 2_000;
    const SIDE: usize = 16;
    let device = et::open("sim:memory=private,shires=1,dram=1GiB,threads=1")?;
    let minions = u64::from(device.properties().harts) / 2;
    let kernel = device.load_kernel("spin_tensor", SPIN_TENSOR)?;
    let stream = device.default_stream();
    // Products are inexact, as those of weights mostly are: exact ones take another way.
    let a: Vec<f32> = (0..256_u16).map(|at| 1.0 / f32::from(at % 7 + 3)).collect();
    let b: Vec<f32> = (0..256_u16).map(|at| 0.1 * f32::from(at % 5 + 1)).collect();
    let [on_a, on_b, on_c] = [device.alloc(1024)?, device.alloc(1024)?, device.alloc(1024)?];
    stream.copy_to_device(&a, &on_a)?.wait(WAIT)?;
    stream.copy_to_device(&b, &on_b)?.wait(WAIT)?;
    let launch = Launch::new(&kernel).buffer(&on_a).buffer(&on_b).buffer(&on_c).u64(ITERATIONS);
    let operations = (ITERATIONS * minions * 2 * 16 * 16 * 16) as f64;
    let runs = repeat(RUNS, || {
        let start = Instant::now();
        stream.launch(&launch)?.wait(WAIT)?;
        Ok(operations / start.elapsed().as_secs_f64() / 1e9)
    })?;
    let mut c = [0.0f32; SIDE * SIDE];
    stream.read(&on_c, &mut c, WAIT)?;
    for (at, &found) in c.iter().enumerate() {
        let (row, column) = (at / SIDE, at % SIDE);
        let sum: f32 = (0..SIDE).map(|k| a[row * SIDE + k] * b[k * SIDE + column]).sum();
        ensure!(
            (found - sum).abs() < 1e-5 * sum,
            "row {row}, column {column} is {found} instead of {sum}"
        );
    }
    drop((on_a, on_b, on_c, kernel));
    device.close();
    let floor = ("scalar operations by the host, millions", floor::native_fp_mips());
    Ok(Figure::new(
        "tensor_fp32_gflops",
        Unit::More("thousand million operations per second"),
        &runs,
        floor,
    ))
}

/// What llama.cpp's programs reach, if `cargo xtask bench llama` has built them from this state of
/// the project, and says where.
fn programs(take: Take<'_>) -> anyhow::Result<()> {
    let Some(shop) = std::env::var_os("ET_LLAMA_BUILT").map(PathBuf::from) else {
        for name in ["llama_tokens_per_s", "llama_ops_cases_per_s"] {
            println!(
                "{name}: skipped, because `cargo xtask bench llama` builds what this runs, once \
                 `cargo xtask llama` has fetched it"
            );
        }
        return Ok(());
    };
    let model = shop.join("model-q8_0.gguf");
    let mut completion = Command::new(shop.join("build-0.3.36/bin/llama-completion"));
    completion.args(["-ngl", "99", "-dev", "ET0", "-fa", "off", "-c", "256", "-n", "9"]);
    completion.args(["--temp", "0", "-p", "The capital of France is", "-no-cnv", "--no-warmup"]);
    completion.arg("-m").arg(model).env("ET_DEVICE", CARD);
    let mut speeds = Vec::new();
    for _ in 0..3 {
        let output = completion.output().context("running llama-completion")?;
        let said = String::from_utf8_lossy(&output.stderr);
        speeds.push(tokens_per_s(&said).context("llama-completion says no speed")?);
    }
    let floor = ("the original stack and its emulator", 0.01);
    take(Figure::new("llama_tokens_per_s", Unit::More("per second"), &speeds, floor));

    let mut operators = Command::new(shop.join("test-backend-ops"));
    operators.args(["test", "-b", "ET0", "-o", "ADD,RMS_NORM,SOFT_MAX,MEAN"]);
    operators.env("ET_DEVICE", CARD);
    let mut speeds = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        let output = operators.output().context("running test-backend-ops")?;
        let seconds = start.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stdout);
        let cases = cases(&said).context("test-backend-ops says no sum")?;
        speeds.push(f64::from(cases) / seconds);
    }
    let floor = ("the original stack and its emulator", 1.0);
    take(Figure::new("llama_ops_cases_per_s", Unit::More("per second"), &speeds, floor));
    Ok(())
}

/// Tokens per second, as llama.cpp measures them while it makes text.
fn tokens_per_s(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("eval time") && !line.contains("prompt"))?;
    let (before, _) = line.split_once(" tokens per second")?;
    before.rsplit([' ', ',']).find(|word| !word.is_empty())?.parse().ok()
}

/// How many cases passed, if all did.
fn cases(said: &str) -> Option<u32> {
    let sum = said.lines().find_map(|line| line.trim().strip_suffix(" tests passed"))?;
    let (passed, all) = sum.split_once('/')?;
    passed.parse().ok().filter(|_| passed == all)
}

/// A call of the C interface that gives a result.
fn made<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> et_status) -> anyhow::Result<T> {
    let mut place = MaybeUninit::uninit();
    let status = call(Some(&mut place));
    ensure!(status == et_status::ET_OK, "a call of the C interface answered {status:?}");
    // SAFETY: calls that go well write their result.
    Ok(unsafe { place.assume_init() })
}

/// A launch and its wait on the null device in nanoseconds, in C and in Rust by turns: they take
/// turns so often that what the machine does otherwise meets both.
fn overhead() -> anyhow::Result<Figure> {
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    let stream = device.default_stream();
    let launch = Launch::new(&kernel).u64(1).u64(2).u64(3).u64(4);
    let rust = || Ok(stream.launch(&launch)?.wait(WAIT).map(drop)?);

    ensure!(et_init(ET_ABI_VERSION) == et_status::ET_OK, "the C interface has another version");
    let locator = std::ffi::CString::new(NULL_DEVICE)?;
    // SAFETY: a text that ends with 0, and no options.
    let other = made(|out| unsafe { et_device_open(locator.as_ptr(), null(), out) })?;
    let elf = ADD.as_ptr().cast();
    // SAFETY: as many bytes as said, and a text.
    let its = made(|out| unsafe { et_kernel_load(other, c"add".as_ptr(), elf, ADD.len(), out) })?;
    let queue = made(|out| et_stream_create(other, out))?;
    let description = made(|out| et_launch_create(its, out))?;
    for value in 1..=4 {
        ensure!(et_launch_arg_u64(description, value) == et_status::ET_OK, "an argument");
    }
    let c = || {
        let event = made(|out| et_launch_submit(queue, description, out))?;
        // SAFETY: the times are not wanted.
        let status = unsafe { et_event_wait(event, 30_000_000_000, null_mut()) };
        ensure!(status == et_status::ET_OK, "a launch answered {status:?}");
        let _ = et_event_free(event);
        Ok(())
    };
    let (mut floors, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (mut floor, mut run) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            floor.push(turn(rust)?);
            run.push(turn(c)?);
        }
        floors.push(median(&floor));
        runs.push(median(&run));
    }
    device.close();
    let _ = et_device_close(other);
    let floor = ("the same in Rust", median(&floors));
    Ok(Figure::new("capi_launch_ns", Unit::Less("ns"), &runs, floor))
}

/// Nanoseconds of a launch.
fn turn(launch: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    // The other device still looks for work when this one begins.
    for _ in 0..LAUNCHES / 20 {
        launch()?;
    }
    let start = Instant::now();
    for _ in 0..LAUNCHES / 10 {
        launch()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(LAUNCHES / 10))
}

/// A launch and its wait through the original runtime's interface, in microseconds, and in Rust by
/// turns, both on the null device.
fn compatibility(take: Take<'_>) -> anyhow::Result<()> {
    let Some(launcher) = std::env::var_os("ET_COMPAT_LAUNCHER").map(PathBuf::from) else {
        println!(
            "compat_launch_us: skipped, because `cargo xtask bench llama` builds what this runs, \
             if there is a compiler for C++"
        );
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let elf = folder.path().join("add.elf");
    std::fs::write(&elf, ADD)?;
    let theirs = || -> anyhow::Result<f64> {
        let mut command = Command::new(&launcher);
        command.arg(&elf).arg(LAUNCHES.to_string()).env("ET_DEVICE", NULL_DEVICE);
        let output = command.output().with_context(|| format!("{}", launcher.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {errors}", launcher.display());
        let nanoseconds: f64 = said.trim().parse().with_context(|| format!("{said:?}"))?;
        Ok(nanoseconds / 1e3)
    };
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    let stream = device.default_stream();
    let launch = Launch::new(&kernel).u64(1).u64(2).u64(3).u64(4);
    let ours = || -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            stream.launch(&launch)?.wait(WAIT)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES))
    };
    let (mut floors, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        floors.push(ours()?);
        runs.push(theirs()?);
    }
    floors.sort_by(f64::total_cmp);
    device.close();
    let floor = ("the same in Rust", floors[RUNS / 2]);
    one(take, Figure::new("compat_launch_us", Unit::Less("us"), &runs, floor))
}

/// Adds two vectors of so many floats on all compute harts.
fn launch(name: &'static str, floats: u64) -> anyhow::Result<Figure> {
    let device = et::open(CARD)?;
    let kernel = device.load_kernel("add", ADD)?;
    let memory = device.alloc(4 * floats.max(16))?;
    let stream = device.default_stream();
    stream.fill(&memory, 0)?.wait(WAIT)?;
    let launch = Launch::new(&kernel).buffer(&memory).buffer(&memory).buffer(&memory).u64(floats);
    let runs = repeat(50, || {
        let start = Instant::now();
        stream.launch(&launch)?.wait(WAIT)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    })?;
    device.close();
    Ok(Figure::new(
        name,
        Unit::Less("us"),
        &runs,
        ("cache line to another core and back", floor::round_trip_us()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_sums_are_found_in_what_programs_say() {
        let said = "prompt eval time = 10 ms / 5 tokens (2 ms per token, 500.00 tokens per second)\n\
            x:   eval time = 90 ms / 15 runs ( 6 ms per token,   166.67 tokens per second)\n";
        assert_eq!(tokens_per_s(said), Some(166.67));
        assert_eq!(tokens_per_s(""), None);
        assert_eq!(cases("a\n  3/3 tests passed\n"), Some(3));
        assert_eq!(cases("a\n  2/3 tests passed\n"), None);
    }
}
