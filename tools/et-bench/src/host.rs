//! Host software: submission, opening, idling, allocation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use et::{AnyHal, Device, Kernel, Launch};
use rustix::time::{ClockId, clock_gettime};

use crate::figure::{Figure, Unit, repeat};
use crate::floor;

const WAIT: Duration = Duration::from_secs(30);
/// The board whose firmware half answers at once: kernels end as soon as they are launched.
pub(crate) const NULL_DEVICE: &str = "sim:compute=null,dram=1GiB";

pub(crate) const ADD: &[u8] = include_bytes!("../../../testing/kernels/elf/add.elf");

fn null_device() -> anyhow::Result<(Device<AnyHal>, Kernel)> {
    let device = et::open(NULL_DEVICE)?;
    let kernel = device.load_kernel("add", ADD)?;
    Ok((device, kernel))
}

fn launch(kernel: &Kernel) -> Launch {
    Launch::new(kernel).u64(1).u64(2).u64(3).u64(4)
}

/// Launch and wait, one at a time.
pub(crate) fn submit_latency() -> anyhow::Result<Figure> {
    const LAUNCHES: usize = 5_000;
    let (device, kernel) = null_device()?;
    let (stream, launch) = (device.default_stream(), launch(&kernel));
    let mut times = Vec::with_capacity(LAUNCHES);
    for index in 0..LAUNCHES + LAUNCHES / 10 {
        let start = Instant::now();
        stream.launch(&launch)?.wait(WAIT)?;
        if index >= LAUNCHES / 10 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    device.close();
    let floor = ("cache line to another core and back", floor::round_trip_us());
    Ok(Figure::new("submit_latency_us", Unit::Less("us"), &times, floor))
}

/// Pipelined launches from one thread, each by itself.
pub(crate) fn submit_throughput() -> anyhow::Result<Figure> {
    throughput("submit_throughput_per_s", 1)
}

/// The same, some at once.
pub(crate) fn submit_batch_throughput() -> anyhow::Result<Figure> {
    throughput("submit_batch_throughput_per_s", 16)
}

fn throughput(name: &'static str, batch: usize) -> anyhow::Result<Figure> {
    const LAUNCHES: u32 = 200_000;
    let (device, kernel) = null_device()?;
    let (stream, batch) = (device.default_stream(), vec![launch(&kernel); batch]);
    let run = |launches: u32| -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut last = None;
        for _ in 0..launches / u32::try_from(batch.len())? {
            last = match &batch[..] {
                [launch] => Some(stream.launch(launch)?),
                launches => stream.launch_all(launches)?.pop(),
            };
        }
        if let Some(last) = last {
            last.wait(WAIT)?;
        }
        stream.synchronize(WAIT)?;
        Ok(f64::from(launches) / start.elapsed().as_secs_f64())
    };
    run(LAUNCHES / 10)?;
    let runs = repeat(9, || run(LAUNCHES))?;
    device.close();
    let floor = ("40-byte messages through a bounded queue of two threads", floor::queue_per_s());
    Ok(Figure::new(name, Unit::More("per second"), &runs, floor))
}

/// From `open` to the first checked result of a kernel on the whole device.
pub(crate) fn open_to_first_result() -> anyhow::Result<Figure> {
    let runs = repeat(11, || {
        let start = Instant::now();
        let device = et::open("sim:")?;
        let kernel = device.load_kernel("add", ADD)?;
        let (x, y, z) = (device.alloc(4096)?, device.alloc(4096)?, device.alloc(4096)?);
        let stream = device.default_stream();
        // Their failures would show in the result.
        let _ = stream.copy_to_device(&[1.0f32; 1024], &x)?;
        let _ = stream.copy_to_device(&[2.0f32; 1024], &y)?;
        stream
            .launch(&Launch::new(&kernel).buffer(&x).buffer(&y).buffer(&z).u64(1024))?
            .wait(WAIT)?;
        let mut result = [0.0f32; 1024];
        stream.read(&z, &mut result, WAIT)?;
        let elapsed = start.elapsed();
        anyhow::ensure!(result.iter().all(|&value| value == 3.0), "the kernel computed rubbish");
        device.close();
        Ok(elapsed.as_secs_f64() * 1e3)
    })?;
    let floor = ("three threads started and joined", floor::threads_ms());
    Ok(Figure::new("open_to_first_result_ms", Unit::Less("ms"), &runs, floor))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Share of one core that the process uses while `wall` passes.
fn cpu_percent(wall: Duration) -> f64 {
    let (start, before) = (Instant::now(), cpu_time());
    while start.elapsed() < wall {
        std::thread::park_timeout(wall.saturating_sub(start.elapsed()));
    }
    100.0 * (cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64()
}

/// An open device with nothing to do.
pub(crate) fn idle_cpu() -> anyhow::Result<Figure> {
    let window = Duration::from_millis(500);
    let alone = cpu_percent(window).max(0.001);
    let device = et::open("sim:")?;
    let kernel = device.load_kernel("add", ADD)?;
    black_box(&kernel);
    // What the last command left behind has died down by then.
    cpu_percent(window);
    let runs = repeat(5, || Ok(cpu_percent(window)))?;
    device.close();
    let floor = ("the process without a device", alone);
    Ok(Figure::new("idle_cpu_percent", Unit::Less("% of a core"), &runs, floor))
}

/// Host time of the process as it is now, once it has become quiet.
pub(crate) fn idle_now(name: &'static str) -> anyhow::Result<Figure> {
    let window = Duration::from_millis(500);
    cpu_percent(window);
    let runs = repeat(5, || Ok(cpu_percent(window)))?;
    Ok(Figure::new(name, Unit::Less("% of a core"), &runs, ("the goal", 1.0)))
}

/// Allocation and release of device memory among 10 000 live blocks.
pub(crate) fn alloc_pair() -> anyhow::Result<Figure> {
    const LIVE: usize = 10_000;
    const PAIRS: u32 = 200_000;
    let device = et::open("sim:compute=null")?;
    let sizes = |index: usize| [256u64, 4096, 1 << 16, 4096 * 3][index % 4];
    let mut live = (0..LIVE).map(|i| device.alloc(sizes(i))).collect::<Result<Vec<_>, _>>()?;
    // A random walk, so that the holes are everywhere.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or(0)
    };
    let runs = repeat(9, || {
        let start = Instant::now();
        for _ in 0..PAIRS {
            let (victim, size) = (next() % LIVE, sizes(next()));
            live[victim] = device.alloc(size)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS))
    })?;
    let bytes = |size| Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let mut boxes: Vec<Vec<u8>> = (0..LIVE).map(|i| bytes(sizes(i))).collect();
    let start = Instant::now();
    for _ in 0..PAIRS {
        let (victim, size) = (next() % LIVE, sizes(next()));
        boxes[victim] = bytes(black_box(size));
    }
    let floor = start.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS);
    drop(live);
    device.close();
    Ok(Figure::new(
        "alloc_pair_ns",
        Unit::Less("ns"),
        &runs,
        ("the same with the host's allocator", floor),
    ))
}
