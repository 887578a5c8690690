//! The management endpoint.

use std::time::{Duration, Instant};

use anyhow::Context;
use et::hal::ResetScope;
use et::sim::Fault;
use et::{Launch, RecoveryPolicy, Remedy};

use crate::figure::{Figure, Unit, median, repeat};
use crate::host::ADD;

const WAIT: Duration = Duration::from_secs(60);
const DEVICE: &str = "sim:compute=null,dram=2GiB";
const COPIES: usize = 32;
const BYTES: usize = 4 << 20;
const QUERIES: usize = 200;
const ROUNDS: usize = 5;
const RECOVERIES: usize = 11;

/// A question to the service processor while 32 copies of 4 MiB are in flight; its floor is the
/// same question to an idle device.
pub(crate) fn query_under_load() -> anyhow::Result<Figure> {
    let device = et::open(DEVICE)?;
    let management = device.management()?;
    let query = || -> anyhow::Result<f64> {
        let start = Instant::now();
        management.power_mw()?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    };
    let idle = || (0..QUERIES).map(|_| query()).collect::<anyhow::Result<Vec<_>>>();
    idle()?;
    let floor = median(&idle()?);

    let streams: Vec<_> = (0..4).map(|_| device.stream()).collect();
    let target = device.alloc((COPIES * BYTES) as u64)?;
    let mut hosts = Vec::new();
    for _ in 0..COPIES {
        hosts.push(device.host_buffer(BYTES)?);
    }
    let mut runs = Vec::new();
    for _ in 0..ROUNDS {
        let mut transfers = Vec::new();
        for (number, host) in hosts.drain(..).enumerate() {
            let at = (number * BYTES) as u64;
            let place = target.slice(at..at + BYTES as u64)?;
            transfers.push(streams[number % streams.len()].upload(host, place)?);
        }
        let mut times = Vec::new();
        while transfers.iter().any(|transfer| !transfer.event().is_done()) {
            times.push(query()?);
        }
        anyhow::ensure!(!times.is_empty(), "the copies were over before the first question");
        runs.push(median(&times));
        for transfer in transfers {
            hosts.push(transfer.wait(WAIT).map_err(|failed| failed.error)?);
        }
    }
    drop((hosts, target));
    device.close();
    Ok(Figure::new(
        "mgmt_query_loaded_us",
        Unit::Less("us"),
        &runs,
        ("the same on an idle device", floor),
    ))
}

/// A recovery of cores that do not acknowledge launches any more, with a launch in flight, by a
/// reset of the function; its floor is that reset alone, on a device that works.
pub(crate) fn recovery() -> anyhow::Result<Figure> {
    let mut device = et::open("sim:shires=2,dram=1GiB")?;
    let milliseconds = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let mut floor = repeat(RECOVERIES, || {
        let start = Instant::now();
        device.reset(WAIT)?;
        Ok(milliseconds(start))
    })?;
    floor.sort_by(f64::total_cmp);
    let runs = repeat(RECOVERIES, || {
        let sim = device.hal().as_sim().context("not the simulator")?;
        sim.board().inject(Fault::ComputeHang { nth: 1 });
        anyhow::ensure!(add(&device).is_err(), "the cores have not hung");
        let start = Instant::now();
        let recovery = device.recover(&RecoveryPolicy::new())?;
        let took = milliseconds(start);
        let last = recovery.steps.last().map(|step| step.remedy);
        anyhow::ensure!(last == Some(Remedy::Reset(ResetScope::Function)), "helped: {last:?}");
        add(&device)?;
        Ok(took)
    })?;
    device.close();
    let floor = ("a reset of the function that works", floor[RECOVERIES / 2]);
    Ok(Figure::new("recover_hang_ms", Unit::Less("ms"), &runs, floor))
}

/// A compute reset under a kernel that never ends, until another kernel has run: everything that
/// was made before is of use. Its floor is the same without the endless kernel.
pub(crate) fn compute_reset() -> anyhow::Result<Figure> {
    const HANG: &[u8] = include_bytes!("../../../testing/kernels/elf/hang.elf");
    let device = et::open("sim:shires=2,dram=1GiB")?;
    let (hang, add) = (device.load_kernel("hang", HANG)?, device.load_kernel("add", ADD)?);
    let array = device.alloc(64)?;
    let add = Launch::new(&add).buffer(&array).buffer(&array).buffer(&array).u64(16);
    let stream = device.default_stream();
    let recovered = || -> anyhow::Result<f64> {
        let start = Instant::now();
        device.reset_compute(WAIT)?;
        stream.launch(&add)?.wait(WAIT)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    recovered()?;
    let mut floor = repeat(RECOVERIES, recovered)?;
    floor.sort_by(f64::total_cmp);
    let runs = repeat(RECOVERIES, || {
        let endless = stream.launch(&Launch::new(&hang))?;
        let took = recovered()?;
        anyhow::ensure!(endless.wait(WAIT).is_err(), "a kernel that never ends has ended well");
        Ok(took)
    })?;
    drop(array);
    device.close();
    let floor = ("the same without a kernel that runs", floor[RECOVERIES / 2]);
    Ok(Figure::new("recover_compute_reset_ms", Unit::Less("ms"), &runs, floor))
}

/// Launches a kernel that is made anew, as nothing of before a reset can be used.
fn add(device: &et::Device<et::AnyHal>) -> anyhow::Result<()> {
    let kernel = device.load_kernel("add", ADD)?;
    let array = device.alloc(64)?;
    let launch = Launch::new(&kernel).buffer(&array).buffer(&array).buffer(&array).u64(16);
    device.default_stream().launch(&launch)?.wait(WAIT)?;
    Ok(())
}
