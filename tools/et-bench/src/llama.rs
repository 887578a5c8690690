//! What programs of others feel: calls through the C interface, and launches on all harts.

#![expect(unsafe_code, reason = "calls the C interface as C does")]

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use anyhow::ensure;
use et::Launch;
use et_capi::{
    ET_ABI_VERSION, et_device_close, et_device_open, et_event_free, et_event_wait, et_init,
    et_kernel_load, et_launch_arg_u64, et_launch_create, et_launch_submit, et_status,
    et_stream_create,
};

use crate::figure::{Figure, repeat};
use crate::floor;
use crate::host::{ADD, NULL_DEVICE};

const WAIT: Duration = Duration::from_secs(30);
const LAUNCHES: u32 = 20_000;
const RUNS: usize = 9;

/// Hands the figures to `take`.
pub(crate) fn figures(take: &mut impl FnMut(Figure)) -> anyhow::Result<()> {
    take(overhead()?);
    take(launch("launch_us_2048_harts", 0)?);
    // The same with work for each.
    take(launch("launch_add_us_2048_harts", 65_536)?);
    Ok(())
}

/// A call of the C interface that gives a result.
fn made<T>(call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> et_status) -> anyhow::Result<T> {
    let mut place = MaybeUninit::uninit();
    let status = call(Some(&mut place));
    ensure!(status == et_status::ET_OK, "a call of the C interface answered {status:?}");
    // SAFETY: calls that go well write their result.
    Ok(unsafe { place.assume_init() })
}

/// A launch and its wait on the null device in nanoseconds, in C and in Rust by turns.
fn overhead() -> anyhow::Result<Figure> {
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    let stream = device.default_stream();
    let launch = Launch::new(&kernel).u64(1).u64(2).u64(3).u64(4);
    let rust = || -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            stream.launch(&launch)?.wait(WAIT)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(LAUNCHES))
    };

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
    let c = || -> anyhow::Result<f64> {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            let event = made(|out| et_launch_submit(queue, description, out))?;
            // SAFETY: the times are not wanted.
            let status = unsafe { et_event_wait(event, 30_000_000_000, null_mut()) };
            ensure!(status == et_status::ET_OK, "a launch answered {status:?}");
            let _ = et_event_free(event);
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(LAUNCHES))
    };
    let (mut floors, mut runs) = (vec![rust()?], vec![c()?]);
    for _ in 1..RUNS {
        floors.push(rust()?);
        runs.push(c()?);
    }
    floors.sort_by(f64::total_cmp);
    device.close();
    let _ = et_device_close(other);
    let floor = ("the same in Rust", floors[RUNS / 2]);
    Ok(Figure::new("capi_launch_ns", "ns", &runs, floor))
}

/// Adds two vectors of so many floats on all compute harts.
fn launch(name: &'static str, floats: u64) -> anyhow::Result<Figure> {
    let device = et::open("sim:memory=private")?;
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
        "us",
        &runs,
        ("cache line to another core and back", floor::round_trip_us()),
    ))
}
