//! One register write into a BAR that is mapped.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use et::hal::{BarOffset, Hal, Mmio, Width};
use et::sim::SimHal;
use et::vfio::{VfioHal, VfioOptions};
use et_devapi::pci::{DRAM_BAR, MAILBOX_BAR};

use super::commands::Commands;
use super::peer::CardProcess;
use super::{Take, median};
use crate::figure::{Figure, Unit};

const BOARD: &str = "compute=null,dram=1GiB";
const RUNS: usize = 15;
const WRITES: u64 = 1_000_000;
/// Device memory that no one uses while no runtime is there.
const MEMORY_AT: BarOffset = BarOffset::new(16 << 20);
/// Inside the ring of the management endpoint, which gets no messages.
const RING_BYTES: u64 = 0x400;

/// 64 bits into device memory and into a mailbox.
pub(super) fn figures(take: Take<'_>) -> anyhow::Result<()> {
    let card = CardProcess::start(BOARD)?;
    let outside = Commands::open(VfioHal::connect(&card.socket, &VfioOptions::new())?)?;
    let inside = Commands::open(SimHal::open(BOARD.parse()?)?)?;
    let ring = outside.layout.mgmt_mailbox.submission.at.as_u64() + RING_BYTES;
    let places = [
        ("vfio_write_bar0_ns", DRAM_BAR, MEMORY_AT),
        ("vfio_write_bar2_ns", MAILBOX_BAR, BarOffset::new(ring)),
    ];
    for (name, bar, at) in places {
        let (window, of_sim) = (outside.hal.window(bar)?, inside.hal.window(bar)?);
        let [mut mapped, mut simulated, mut stored] = [const { Vec::new() }; 3];
        for _ in 0..RUNS {
            stored.push(store_ns());
            mapped.push(write_ns(&window, at)?);
            simulated.push(write_ns(&of_sim, at)?);
        }
        let sim = ("the same through the simulator in this process", median(&simulated));
        take(Figure::new(name, Unit::Less("ns"), &mapped, sim));
        let store = ("a store of 64 bits to memory", median(&stored));
        take(Figure::new(format!("{name}_over_store"), Unit::Less("ns"), &mapped, store));
    }
    Ok(())
}

/// Nanoseconds of a write; the last one must have arrived.
fn write_ns<M: Mmio>(window: &M, at: BarOffset) -> anyhow::Result<f64> {
    let start = Instant::now();
    for value in 0..WRITES {
        black_box(window).write(at, Width::W64, black_box(value))?;
    }
    let elapsed = start.elapsed();
    ensure!(window.read(at, Width::W64)? == WRITES - 1, "the write did not arrive");
    Ok(elapsed.as_secs_f64() * 1e9 / WRITES as f64)
}

fn store_ns() -> f64 {
    let word = AtomicU64::new(0);
    let start = Instant::now();
    for value in 0..WRITES {
        // One plain store, and the compiler cannot leave it out.
        black_box(&word).store(black_box(value), Ordering::Relaxed);
    }
    start.elapsed().as_secs_f64() * 1e9 / WRITES as f64
}
