//! `et bench`: how fast copies and launches are, for sizes, streams and threads of the user's own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use clap::ValueEnum;
use et::{Device, DeviceBuffer, HostBuffer, Kernel, Launch, Stream};
use serde_json::{Value, json};

use crate::doctor::size;
use crate::open;
use crate::output::{self, Format};
use crate::value;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What is measured, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "to-device,to-host")]
    what: Vec<What>,
    /// Bytes of each copy, as `4KiB`; several are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "4KiB,1MiB,64MiB", value_parser = size)]
    size: Vec<u64>,
    /// Where the host's side of a copy is.
    #[arg(long, value_enum, default_value_t = Memory::Pageable)]
    memory: Memory,
    /// Host threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Streams of each thread; it gives one operation to each, and then waits for all.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
    /// Launches that each stream is given at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Operations on each stream; so many batches of launches.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The kernel of `launch`, an ELF file; it gets no arguments.
    #[arg(long)]
    kernel: Option<PathBuf>,
    /// Shires to launch on: a mask (`0xf`) or a list (`0-3,8`); all of the device by default.
    #[arg(long, value_parser = value::shires)]
    shires: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Copies from the host to the device.
    ToDevice,
    /// Copies from the device to the host.
    ToHost,
    /// Launches of a kernel.
    Launch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    /// Ordinary memory.
    Pageable,
    /// Memory that the device reaches directly.
    Pinned,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToDevice => "to-device",
            Self::ToHost => "to-host",
            Self::Launch => "launch",
        })
    }
}

/// One measurement.
struct Run {
    what: What,
    /// Of each operation; 0 for launches.
    bytes: u64,
    elapsed: Duration,
    /// From each call to the end of its operation, sorted.
    times: Vec<Duration>,
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let elf = match &args.kernel {
        Some(path) => {
            Some(std::fs::read(path).with_context(|| format!("reading {}", path.display()))?)
        }
        None => None,
    };
    ensure!(
        elf.is_some() || !args.what.contains(&What::Launch),
        "launches need a kernel: --kernel FILE"
    );
    let device = open::open(locator).with_context(|| format!("opening {locator}"))?;
    let kernel = elf.map(|elf| device.load_kernel("bench", &elf)).transpose()?;
    let mut runs = Vec::new();
    for &what in &args.what {
        let sizes = if what == What::Launch { &[0][..] } else { &args.size };
        for &bytes in sizes {
            let run = measure(&device, kernel.as_ref(), args, what, bytes)?;
            if format == Format::Text {
                print(&run, runs.is_empty());
            }
            runs.push(run);
        }
    }
    drop(kernel);
    device.close();
    if format == Format::Json {
        let memory = args.memory.to_possible_value();
        output::json(&json!({
            "device": locator, "threads": args.threads, "streams_per_thread": args.streams,
            "batch": args.batch,
            "memory": memory.as_ref().map(|memory| memory.get_name()),
            "runs": runs.iter().map(document).collect::<Vec<_>>(),
        }))?;
    }
    Ok(())
}

/// All threads at once, from one start.
fn measure(
    device: &Device,
    kernel: Option<&Kernel>,
    args: &Args,
    what: What,
    bytes: u64,
) -> anyhow::Result<Run> {
    let lanes = (0..args.threads)
        .map(|_| (0..args.streams).map(|_| Lane::new(device, args, what, bytes)).collect())
        .collect::<anyhow::Result<Vec<Vec<Lane>>>>()?;
    let barrier = Barrier::new(lanes.len() + 1);
    let launches = kernel.map_or_else(Vec::new, |kernel| {
        let launch = Launch::new(kernel);
        let launch = args.shires.map_or(launch.clone(), |mask| launch.shires(mask));
        vec![launch; args.batch.into()]
    });
    let (elapsed, ended) = std::thread::scope(|scope| {
        let work = |mut lanes: Vec<Lane>| {
            let (barrier, launches) = (&barrier, &launches);
            scope.spawn(move || -> anyhow::Result<(Vec<Lane>, Vec<Duration>)> {
                let mut times = Vec::new();
                // As before the start: pages are touched, and memory is pinned.
                let warm = round(&mut lanes, launches, &mut Vec::new());
                barrier.wait();
                warm?;
                for _ in 0..args.count {
                    round(&mut lanes, launches, &mut times)?;
                }
                Ok((lanes, times))
            })
        };
        let threads: Vec<_> = lanes.into_iter().map(work).collect();
        barrier.wait();
        let started = Instant::now();
        let ended = threads.into_iter().map(|thread| {
            thread.join().map_err(|_| anyhow!("a thread of the measurement panicked"))?
        });
        let ended = ended.collect::<anyhow::Result<Vec<_>>>();
        (started.elapsed(), ended)
    });
    let mut times = Vec::new();
    for (lanes, its) in ended? {
        times.extend(its);
        lanes.iter().try_for_each(Lane::check)?;
    }
    times.sort_unstable();
    Ok(Run { what, bytes, elapsed, times })
}

/// One operation on each stream, or one batch, and the time from each call until the ends are
/// known.
fn round(lanes: &mut [Lane], launches: &[Launch], times: &mut Vec<Duration>) -> anyhow::Result<()> {
    let mut pending = Vec::with_capacity(lanes.len());
    for lane in lanes.iter_mut() {
        pending.push((Instant::now(), lane.start(launches)?));
    }
    for (lane, (started, pending)) in lanes.iter_mut().zip(pending) {
        lane.finish(pending, || times.push(started.elapsed()))?;
    }
    Ok(())
}

/// A stream and its memory.
struct Lane {
    stream: Stream,
    what: What,
    device: Option<DeviceBuffer>,
    pageable: Vec<u8>,
    pinned: Option<HostBuffer>,
}

/// What has been started.
enum Pending {
    Event(et::Event),
    Batch(Vec<et::Event>),
    Transfer(et::Transfer),
    /// It blocked.
    Done,
}

/// What every byte is, where it comes from.
const BYTE: u8 = 0xa5;

impl Lane {
    fn new(device: &Device, args: &Args, what: What, bytes: u64) -> anyhow::Result<Self> {
        let stream = device.stream();
        if what == What::Launch {
            return Ok(Self { stream, what, device: None, pageable: Vec::new(), pinned: None });
        }
        let buffer = device.alloc(bytes)?;
        let len = usize::try_from(bytes)?;
        let host = if what == What::ToDevice { BYTE } else { 0 };
        stream.fill(&buffer, BYTE ^ host)?.wait(open::device_timeout())?;
        let (mut pageable, mut pinned) = (Vec::new(), None);
        match args.memory {
            Memory::Pageable => pageable = vec![host; len],
            Memory::Pinned => {
                let mut memory = device.host_buffer(len)?;
                memory.fill(0, len, host)?;
                pinned = Some(memory);
            }
        }
        Ok(Self { stream, what, device: Some(buffer), pageable, pinned })
    }

    fn start(&mut self, launches: &[Launch]) -> anyhow::Result<Pending> {
        let Some(buffer) = &self.device else {
            return Ok(match launches {
                [launch] => Pending::Event(self.stream.launch(launch)?),
                launches => Pending::Batch(self.stream.launch_all(launches)?),
            });
        };
        Ok(match (self.what, self.pinned.take()) {
            (What::ToDevice, Some(host)) => Pending::Transfer(self.stream.upload(host, buffer)?),
            (_, Some(host)) => Pending::Transfer(self.stream.download(buffer, host)?),
            (What::ToDevice, None) => {
                Pending::Event(self.stream.copy_to_device(&self.pageable, buffer)?)
            }
            (_, None) => {
                self.stream.read(buffer, &mut self.pageable, open::device_timeout())?;
                Pending::Done
            }
        })
    }

    /// Waits, and tells of each operation that has ended.
    fn finish(&mut self, pending: Pending, mut ended: impl FnMut()) -> anyhow::Result<()> {
        match pending {
            Pending::Event(event) => drop(event.wait(open::device_timeout())?),
            Pending::Batch(events) => {
                for event in events {
                    event.wait(open::device_timeout())?;
                    ended();
                }
                return Ok(());
            }
            Pending::Transfer(transfer) => {
                self.pinned =
                    Some(transfer.wait(open::device_timeout()).map_err(|failed| failed.error)?);
            }
            Pending::Done => {}
        }
        ended();
        Ok(())
    }

    /// Copies that did not arrive are not fast.
    fn check(&self) -> anyhow::Result<()> {
        let Some(buffer) = &self.device else { return Ok(()) };
        let mut arrived = vec![0; usize::try_from(buffer.len_bytes())?];
        match (self.what, &self.pinned) {
            (What::ToDevice, _) => {
                self.stream.read(buffer, &mut arrived, open::device_timeout())?
            }
            (_, Some(host)) => host.copy_out(0, &mut arrived)?,
            (_, None) => arrived.copy_from_slice(&self.pageable),
        }
        let wrong = arrived.iter().position(|byte| *byte != BYTE);
        ensure!(wrong.is_none(), "byte {} did not arrive", wrong.unwrap_or(0));
        Ok(())
    }
}

impl Run {
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64()
    }

    fn operations(&self) -> u64 {
        self.times.len() as u64
    }

    /// The time that `percent` of the operations do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(at).copied().unwrap_or_default()
    }
}

fn print(run: &Run, is_first: bool) {
    if is_first {
        println!(
            "{:<10} {:>12} {:>8} {:>14} {:>12} {:>12} {:>12}",
            "what", "size", "count", "bandwidth", "per second", "median", "99 %"
        );
    }
    let (size, bandwidth) = match run.bytes {
        0 => ("-".to_owned(), "-".to_owned()),
        bytes => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "bandwidths are positive and far below 2⁶⁴"
            )]
            let bandwidth = run.per_s(bytes * run.operations()) as u64;
            (output::bytes(bytes), format!("{}/s", output::bytes(bandwidth)))
        }
    };
    println!(
        "{:<10} {size:>12} {:>8} {bandwidth:>14} {:>12.0} {:>12} {:>12}",
        run.what.to_string(),
        run.operations(),
        run.per_s(run.operations()),
        output::time(run.percentile(50)),
        output::time(run.percentile(99)),
    );
}

fn document(run: &Run) -> Value {
    let micros = |percent| run.percentile(percent).as_secs_f64() * 1e6;
    json!({
        "what": run.what.to_string(),
        "size_bytes": (run.bytes != 0).then_some(run.bytes),
        "operations": run.operations(),
        "seconds": run.elapsed.as_secs_f64(),
        "bytes_per_s": (run.bytes != 0).then(|| run.per_s(run.bytes * run.operations())),
        "operations_per_s": run.per_s(run.operations()),
        "latency_us": {"least": micros(0), "median": micros(50), "p99": micros(99), "most": micros(100)},
    })
}
