//! The management endpoint.
//!
//! Nothing here writes into flash memory; what is set is set back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use et_hal::Hal;
use et_runtime::management::{
    Asset, ErrorSource, EventId, ManagementEventKind, ManagementTrace, StatsControl, StatsKind,
    TraceControl,
};
use et_runtime::trace::layout::Body;
use et_runtime::{Error, Launch};

use super::bench::{Bench, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::management":
    the_service_processor_answers,
    registers_and_service_processor_agree,
    it_answers_while_a_kernel_hangs [Need::Compute, Need::Abort],
    it_answers_many_threads_while_copies_are_in_flight,
    a_temperature_above_the_threshold_is_announced,
    a_refusal_is_typed_and_harmless,
    traces_of_the_service_processor_are_read_once,
    statistics_are_traced_while_they_are_on,
    impossible_images_are_refused_before_anything_is_written,
    handles_end_with_their_device [Need::FunctionReset],
    the_operations_endpoint_is_reset_alone [Need::Compute],
    the_chip_is_reset [Need::FunctionReset],
}

fn the_service_processor_answers<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    for asset in Asset::ALL {
        let text = management.asset(asset)?;
        check!(!text.contains('\0'), "{asset:?} is {text:?}");
    }
    check!(!management.serial_number()?.is_empty(), "no serial number");
    management.check_boot()?;
    let temperatures = management.temperatures()?;
    check!((-40..150).contains(&temperatures.minion_average_c), "{temperatures:?}");
    check!(management.power_mw()? > 0, "no power");
    check!(management.frequencies()?.minion_mhz > 0, "no clock");
    check!(management.asic_voltages()?.minion_mv > 0, "no voltage");
    check!(!management.statistics(StatsKind::Sp)?.is_empty(), "no statistics");
    for source in [ErrorSource::Dram, ErrorSource::Sram, ErrorSource::Pcie] {
        let first = management.error_counts(source)?;
        let second = management.error_counts(source)?;
        check!(second.corrected >= first.corrected, "{source:?}: {first:?}, then {second:?}");
    }
    let uptime = management.uptime()?;
    check!(management.uptime()? >= uptime, "time goes back");
    check_eq!(management.firmware_versions()?, management.firmware_versions()?, "the versions");
    check_eq!(management.counters().stray_responses, 0, "stray responses");
    Ok(())
}

fn registers_and_service_processor_agree<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (properties, management) = (bench.device.properties(), bench.device.management()?);
    check_eq!(properties.tdp_watts, Some(management.tdp_watts()?), "the power of the registers");
    let caches = management.cache_config()?;
    let of_shire = [caches.scratchpad_kib, caches.l2_kib, caches.l3_kib].map(u64::from);
    let sizes: Vec<_> = properties.caches.iter().filter(|cache| cache.level > 1).collect();
    // The registers speak of all 32 shires. Spec: §3.3
    for (cache, kib) in sizes.iter().zip(&of_shire[1..]) {
        check_eq!(cache.size_bytes, kib * 1024 * 32, "level {} of the registers", cache.level);
    }
    Ok(())
}

fn it_answers_while_a_kernel_hangs<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let kernel = bench.load("hang")?;
    let event = bench.stream().launch(&Launch::new(&kernel).shires(bench.one_shire()))?;
    for _ in 0..10 {
        check!(management.power_mw()? > 0, "no power");
        check!(!management.serial_number()?.is_empty(), "no serial number");
    }
    check!(!event.is_done(), "an endless kernel ended");
    bench.device.abort(&event, bench.patience)?;
    bench.works()
}

fn it_answers_many_threads_while_copies_are_in_flight<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let serial = management.serial_number()?;
    let data = pattern(1 << 20);
    let buffer = bench.device.alloc(data.len() as u64)?;
    let (asked, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let rounds = rig.times(8, 2);
    std::thread::scope(|scope| {
        let ask = || {
            while !over.load(Ordering::Relaxed) {
                check_eq!(management.serial_number()?, serial, "the serial number");
                check!(management.power_mw()? > 0, "no power");
                asked.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        };
        let threads = [scope.spawn(ask), scope.spawn(ask), scope.spawn(ask)];
        // Threads may start late; those that have ended have failed.
        let asks = || asked.load(Ordering::Relaxed) != 0 || threads.iter().any(|t| t.is_finished());
        let copied = (0..).take_while(|&round| round < rounds || !asks()).try_for_each(|_| {
            let events = (0..4).map(|_| bench.stream().copy_to_device(&data, &buffer));
            let events = events.collect::<Result<Vec<_>, _>>()?;
            events.iter().try_for_each(|event| bench.done(event))
        });
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            let panicked = |_| Failure::new("a thread panicked");
            thread.join().map_err(panicked)??;
        }
        copied
    })?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &data)?;
    check_eq!(management.counters().stray_responses, 0, "stray responses");
    Ok(())
}

fn a_temperature_above_the_threshold_is_announced<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let threshold = management.temperature_threshold_c()?;
    management.set_temperature_threshold_c(1)?;
    check_eq!(management.temperature_threshold_c()?, 1, "the threshold");
    let outcome = loop {
        match management.event(bench.patience)? {
            Some(event) => match event.kind {
                ManagementEventKind::Card(event) if event.id == EventId::ThermalLow => {
                    break Ok(());
                }
                _ => {}
            },
            None => break Err(Failure::new("no event")),
        }
    };
    management.set_temperature_threshold_c(threshold)?;
    outcome?;
    check_eq!(management.temperature_threshold_c()?, threshold, "the threshold of before");
    bench.works()
}

fn a_refusal_is_typed_and_harmless<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let before = management.cache_config()?;
    let config = et_runtime::management::CacheConfig::new(u16::MAX, u16::MAX, u16::MAX);
    let outcome = management.set_cache_config(config);
    check_matches!(outcome, Err(Error::Refused { .. }), "a division of more than there is");
    check_eq!(management.cache_config()?, before, "the division");
    bench.works()
}

/// Returns the times of what is new, which never run backwards within a part.
fn times_of<H: Hal>(reader: &mut ManagementTrace<H>) -> Result<Vec<u64>, Failure> {
    let trace = reader.read()?;
    let losses = trace.losses();
    check_eq!((losses.entries, losses.bytes), (0, 0), "what makes no sense");
    // Exceptions have a part of their own.
    let is_exception = |body| matches!(body, Body::Exception(_));
    let of_log = trace.entries().filter(|(_, entry)| !is_exception(entry.body));
    let times: Vec<_> = of_log.map(|(_, entry)| entry.cycle).collect();
    check!(times.is_sorted(), "times run backwards: {times:?}");
    Ok(times)
}

/// What a card's firmware logs of a command is its own business; it says nothing twice.
/// Spec: §16.1, §17.2
fn traces_of_the_service_processor_are_read_once<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let mut reader = management.firmware_trace()?;
    management.control_trace(TraceControl::ENABLE)?;
    management.set_trace_level(Some(4))?;
    let mut last = times_of(&mut reader)?.last().copied();
    for _ in 0..rig.times(100, 20) {
        check!(management.power_mw()? > 0, "no power");
        let times = times_of(&mut reader)?;
        if let (Some(last), Some(first)) = (last, times.first()) {
            check!(last <= *first, "{first} comes after {last}");
        }
        last = times.last().copied().or(last);
    }
    // Off, and emptied: nothing comes, and what was there is not lost but thrown away.
    management.control_trace(TraceControl::RESET)?;
    check_eq!(times_of(&mut reader)?.len(), 0, "entries of an emptied trace");
    management.power_mw()?;
    let trace = reader.read()?;
    check_eq!(trace.entries().count(), 0, "entries of a trace that is off");
    check_eq!(trace.losses().harts, 0, "parts with losses");
    management.control_trace(TraceControl::ENABLE)?;
    bench.works()
}

/// Spec: §16.1, §17.2
fn statistics_are_traced_while_they_are_on<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    for kind in [StatsKind::Sp, StatsKind::Mm] {
        let mut reader = management.statistics_trace(kind)?;
        let on = StatsControl::ENABLE | StatsControl::RESET_BUFFER;
        management.control_statistics(kind, on)?;
        let start = Instant::now();
        while times_of(&mut reader)?.is_empty() {
            check!(start.elapsed() < bench.patience, "no sample of the {kind}");
            std::thread::yield_now();
        }
        management.control_statistics(kind, StatsControl::RESET_BUFFER)?;
        reader.read()?;
        check!(management.power_mw()? > 0, "no power");
        check_eq!(times_of(&mut reader)?.len(), 0, "samples that are off, of the {kind}");
    }
    bench.works()
}

fn impossible_images_are_refused_before_anything_is_written<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let versions = management.firmware_versions()?;
    for len in [0, 64 << 20] {
        let outcome = management.update_firmware(&vec![0; len], "conformance");
        check_matches!(outcome, Err(Error::LengthMismatch { .. }), "an image of {len} bytes");
    }
    check_eq!(management.firmware_versions()?, versions, "the versions");
    Ok(())
}

fn handles_end_with_their_device<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let old = bench.device.management()?;
    old.power_mw()?;
    bench.device.reset(bench.patience)?;
    check_matches!(old.power_mw(), Err(Error::Stale { .. }), "a question after a reset");
    let new = bench.device.management()?;
    new.power_mw()?;
    drop(bench);
    check_matches!(new.power_mw(), Err(Error::Closed { .. }), "a question to a closed device");
    let outcome = new.event(Duration::ZERO);
    check_matches!(outcome, Err(Error::Closed { .. }), "a wait for an event of a closed device");
    Ok(())
}

/// Spec: §18
fn the_operations_endpoint_is_reset_alone<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let management = bench.device.management()?;
    let stream = bench.device.stream();
    let kernel = bench.load("hang")?;
    let event = stream.launch(&Launch::new(&kernel))?;
    bench.device.reset_operations(bench.patience)?;
    check_matches!(event.wait(bench.patience), Err(Error::Stale { .. }), "an endless kernel");
    check_matches!(stream.barrier().map(drop), Err(Error::Stale { .. }), "a stream of before");
    check!(management.power_mw()? > 0, "the management endpoint is gone too");
    bench.works()?;
    // Once more, with nothing to be lost.
    bench.device.reset_operations(bench.patience)?;
    bench.works()
}

/// Spec: §18
fn the_chip_is_reset<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let serial = bench.device.management()?.serial_number()?;
    let old = bench.device.management()?;
    let buffer = bench.upload(&pattern(4096))?;
    bench.device.reset_chip(bench.patience)?;
    check_matches!(old.power_mw(), Err(Error::Stale { .. }), "a question after the reset");
    check_eq!(bench.device.management()?.serial_number()?, serial, "the serial number");
    drop(buffer);
    bench.works()
}
