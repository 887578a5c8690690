//! One doorbell and its completion, to another process and back.

use std::time::{Duration, Instant};

use et::sim::SimHal;
use et::vfio::{VfioHal, VfioOptions};

use super::commands::Commands;
use super::peer::{CardProcess, Echo};
use super::processor::{self, Pinned};
use super::{Take, median, skip};
use crate::figure::{Figure, Unit};

const RUNS: usize = 15;
const TRIPS: usize = 1000;
/// How long either side of a floor that does not sleep looks.
const SPIN: Duration = Duration::from_millis(1);

/// With sleeping on both sides, and as it is by default. Two sides that spin have a processor each;
/// those that sleep share one if the kernel finds that best, and once in any case: then the figure
/// is without what waking a processor takes.
pub(super) fn figures(take: Take<'_>) -> anyhow::Result<()> {
    let asleep = ["vfio_trip_asleep_us", "vfio_trip_asleep_socket_us"];
    let board = "compute=null,dram=1GiB,spin=0";
    let options = VfioOptions::new().spin(Duration::ZERO);
    measure(asleep, board, &options, Duration::ZERO, None, take)?;
    {
        let together = ["vfio_trip_together_us", "vfio_trip_together_socket_us"];
        let cpu = processor::first()?;
        let _pinned = Pinned::to(cpu)?;
        measure(together, board, &options, Duration::ZERO, Some(cpu), take)?;
    }
    let awake = ["vfio_trip_us", "vfio_trip_socket_us"];
    let Some([ours, theirs]) = processor::two()? else {
        skip(awake[0], "two processes that spin need two processors");
        return Ok(());
    };
    let _pinned = Pinned::to(ours)?;
    measure(awake, "compute=null,dram=1GiB", &VfioOptions::new(), SPIN, Some(theirs), take)
}

fn measure(
    [name, name_of_socket]: [&'static str; 2],
    board: &str,
    options: &VfioOptions,
    spin: Duration,
    theirs: Option<usize>,
    take: Take<'_>,
) -> anyhow::Result<()> {
    let card = CardProcess::start_on(theirs, board)?;
    let commands = Commands::open(VfioHal::connect(&card.socket, options)?)?;
    let inside = {
        // The card's thread stays where it is started.
        let _beside = theirs.map(Pinned::to).transpose()?;
        Commands::open(SimHal::open(board.parse()?)?)?
    };
    let eventfds = Echo::eventfds(spin, theirs)?;
    let sockets = Echo::sockets(spin, theirs)?;
    let [mut trips, mut by_eventfd, mut by_socket, mut in_process] = [const { Vec::new() }; 4];
    for _ in 0..RUNS {
        by_eventfd.push(typical_us(|| eventfds.trip())?);
        trips.push(typical_us(|| commands.trip())?);
        by_socket.push(typical_us(|| sockets.trip())?);
        in_process.push(typical_us(|| inside.trip())?);
    }
    let eventfd = ("eventfd to a process and another back", median(&by_eventfd));
    take(Figure::new(name, Unit::Less("us"), &trips, eventfd));
    let socket = ("8 bytes over a Unix socket and back", median(&by_socket));
    take(Figure::new(name_of_socket, Unit::Less("us"), &trips, socket));
    let sim = ("the simulator in this process", median(&in_process));
    take(Figure::new(format!("{name}_over_sim"), Unit::Less("us"), &trips, sim));
    Ok(())
}

/// Microseconds of the middle one of many trips, so that what a neighbour interrupts does not
/// count.
fn typical_us(mut trip: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    for _ in 0..TRIPS / 10 {
        trip()?;
    }
    let mut times = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let start = Instant::now();
        trip()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&times))
}
