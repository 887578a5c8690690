//! More commands than there is room for.

use et_hal::Hal;

use super::bench::{Bench, pattern};
use crate::check::{check_eq, same};
use crate::{Failure, Rig};

crate::case::group! { Runtime, "runtime::flow":
    more_commands_than_any_queue_holds_all_complete,
    few_commands_in_flight_are_enough,
    copies_beyond_the_staging_pool_keep_their_data,
    streams_in_several_threads_share_the_room,
}

fn more_commands_than_any_queue_holds_all_complete<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().in_flight(4096))?;
    let streams: Vec<_> = (0..4).map(|_| bench.device.stream()).collect();
    let count = rig.times(20_000, 2000);
    let mut events = Vec::new();
    for stream in streams.iter().cycle().take(count) {
        events.push(stream.barrier()?);
    }
    for event in &events {
        bench.done(event)?;
    }
    check_eq!(events.len(), count, "the barriers");
    check_eq!(bench.device.counters().stray_responses, 0, "stray responses");
    Ok(())
}

fn few_commands_in_flight_are_enough<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    for in_flight in [1, 2, 3] {
        let bench = Bench::open_with(rig, rig.config().in_flight(in_flight))?;
        // Filled by many commands each, in two streams.
        let (a, b) = (bench.device.alloc(50_000)?, bench.device.alloc(50_000)?);
        let other = bench.device.stream();
        let mut events = Vec::new();
        for round in 0..u8::try_from(rig.times(50, 5))? {
            events.push(bench.stream().fill(&a, round)?);
            events.push(other.fill(&b, round ^ 0xff)?);
        }
        let last = u8::try_from(rig.times(50, 5))? - 1;
        for event in &events {
            bench.done(event)?;
        }
        same("the first buffer", &bench.download::<u8>(&a)?, &vec![last; 50_000])?;
        same("the second buffer", &bench.download::<u8>(&b)?, &vec![last ^ 0xff; 50_000])?;
    }
    Ok(())
}

/// None is waited for before all are sent, so each needs staging memory that others still have.
fn copies_beyond_the_staging_pool_keep_their_data<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().staging_bytes(1 << 20))?;
    let len = 100_000;
    let count = rig.times(100, 24);
    let mut copies = Vec::new();
    for number in 0..count {
        let buffer = bench.device.alloc(len as u64)?;
        let data = pattern(len + number).split_off(number);
        let event = bench.stream().copy_to_device(&data, &buffer)?;
        copies.push((buffer, data, event));
    }
    for (buffer, data, event) in &copies {
        bench.done(event)?;
        same("a copy", &bench.download(buffer)?, data)?;
    }
    Ok(())
}

fn streams_in_several_threads_share_the_room<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().in_flight(8).staging_bytes(256 << 10))?;
    let rounds = rig.times(60, 6);
    let work = |seed: usize| -> Result<(), Failure> {
        let stream = bench.device.stream();
        let buffer = bench.device.alloc(30_000)?;
        for round in 0..rounds {
            let data = pattern(30_000 + seed + round).split_off(seed + round);
            let mut events = vec![stream.copy_to_device(&data, &buffer)?];
            for _ in 0..10 {
                events.push(stream.barrier()?);
            }
            let mut back = vec![0; data.len()];
            stream.read(&buffer, &mut back, bench.patience)?;
            same("a thread's buffer", &back, &data)?;
            events.iter().try_for_each(|event| bench.done(event))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|seed| {
                let work = &work;
                scope.spawn(move || work(100 * seed))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| Failure::new("a thread panicked"))?)
    })
}
