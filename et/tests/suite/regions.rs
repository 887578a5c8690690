//! Regions and counters of kernels, and the clocks they are placed by.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{LONG, load, open};
use et::trace::layout::Body;
use et::trace::{KernelTraceConfig, Region, Trace};
use et::{AnyHal, Device, Error, Launch, ProfileFormat, ProfileWriter};
use serde_json::Value;

const DEVICE: &str = "shires=2,dram=1GiB";
const ROUNDS: u64 = 3;

/// Runs the kernel on all harts; two of shire 1 trace.
fn traced(device: &Device<AnyHal>, steps: u64, event_mask: u32) -> Trace {
    let kernel = load(device, "regions");
    let mut config = KernelTraceConfig::new(0b10);
    (config.thread_mask, config.event_mask) = (0b11, event_mask);
    let traced = device.kernel_trace(config).unwrap();
    let launch = Launch::new(&kernel).u64(ROUNDS).u64(steps).trace(traced.option());
    device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    traced.read(LONG).unwrap().of_kernel(&kernel)
}

#[test]
fn regions_have_names_places_times_and_instructions() {
    const STEPS: u64 = 1000;
    let device = open(DEVICE);
    let trace = traced(&device, STEPS, u32::MAX);
    let mut by_hart: BTreeMap<u16, Vec<Region>> = BTreeMap::new();
    for region in trace.regions() {
        by_hart.entry(region.hart).or_default().push(region);
    }
    assert_eq!(by_hart.keys().copied().collect::<Vec<_>>(), [64, 65]);
    for regions in by_hart.values() {
        let names: Vec<_> = regions.iter().map(|region| (&*region.name, region.depth)).collect();
        assert_eq!(names, [("all", 0), ("step", 1), ("step", 1), ("step", 1), ("open", 0)]);
        let [all, steps @ .., open] = &regions[..] else { panic!("{regions:?}") };
        assert_eq!((all.function.as_deref(), all.line), (Some("entry_point"), 29));
        assert_eq!((steps[0].function.as_deref(), steps[0].line), (Some("step"), 20));
        let mut last = all.begin;
        for step in steps {
            assert!(last <= step.begin && step.begin <= step.end.unwrap(), "{regions:?}");
            last = step.end.unwrap();
            // A turn of the loop has one instruction at least, and four at most; the rest is marks.
            let count = step.instructions.unwrap();
            assert!((STEPS..4 * STEPS + 200).contains(&count), "{count}");
        }
        assert!(last <= all.end.unwrap() && all.end.unwrap() <= open.begin);
        assert!(all.instructions.unwrap() > 3 * STEPS);
        assert_eq!((open.end, open.instructions), (None, None));
    }
    // Longer ones have more, but for the grain in which the counter moves.
    let count = |steps| {
        let regions = traced(&device, steps, u32::MAX).regions();
        let steps: Vec<_> = regions.iter().filter(|region| &*region.name == "step").collect();
        steps[0].instructions.unwrap()
    };
    let (few, many) = (count(1000), count(11_000));
    assert!((10_000..41_000).contains(&(many - few)), "{few} {many}");
}

#[test]
fn counters_are_those_of_the_hart_and_only_there_if_they_are_wanted() {
    let device = open(DEVICE);
    let trace = traced(&device, 1000, u32::MAX);
    let counters: Vec<_> = trace
        .entries()
        .filter_map(|(_, entry)| match entry.body {
            Body::PmcCountersCompute(pmc) => Some((entry.hart_id, pmc.hpmcounter.map(u64::from))),
            _ => None,
        })
        .collect();
    assert_eq!(counters.len(), 6);
    for (hart, of_hart) in [(64, &counters[..3]), (65, &counters[3..])] {
        for pair in of_hart.windows(2) {
            let [(of, before), (_, after)] = pair else { panic!() };
            assert_eq!(*of, hart);
            let own = 1 + usize::from(hart & 1);
            assert!(after[0] >= before[0] && after[own] - before[own] > 1000, "{counters:?}");
        }
    }
    // Bit 1 counters, bit 2 marks.
    let kinds = |event_mask| {
        let trace = traced(&device, 5, event_mask);
        let counters =
            trace.entries().filter(|(_, e)| matches!(e.body, Body::PmcCountersCompute(_)));
        (trace.regions().len(), counters.count())
    };
    assert_eq!((kinds(0b001), kinds(0b010), kinds(0b100)), ((0, 0), (0, 6), (10, 0)));
}

#[test]
fn profiles_have_regions_and_counters_of_each_hart() {
    let device = open(DEVICE);
    device.profiler().start();
    let trace = traced(&device, 50, u32::MAX);
    let profile = device.profiler().stop();
    let written = |format| {
        let mut out = Vec::new();
        let mhz = device.properties().boot_frequency_mhz;
        let mut writer = ProfileWriter::new(&mut out, format, mhz).unwrap();
        writer.write(&profile).unwrap();
        writer.write_trace(&trace).unwrap();
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
    };
    let chrome: Value = serde_json::from_str(&written(ProfileFormat::Chrome)).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let of = |phase: &str, pid: u64| {
        events.iter().filter(move |e| e["ph"] == phase && e["pid"] == pid).collect::<Vec<_>>()
    };
    let slices = of("X", 3);
    assert_eq!(slices.len(), 8, "{slices:?}");
    let launch = of("X", 2).into_iter().find(|event| event["name"] == "regions").unwrap();
    let number = |event: &Value, name: &str| event[name].as_f64().unwrap();
    // Both are placed by the same clock, as exactly as the file says.
    let error = chrome["otherData"]["clock_error_us"].as_f64().unwrap();
    let answered = of("e", 1).iter().map(|event| number(event, "ts")).fold(0.0, f64::max) + error;
    for slice in slices {
        assert!(number(slice, "ts") >= number(launch, "ts"), "{slice} {launch}");
        assert!(number(slice, "ts") + number(slice, "dur") <= answered, "{slice} {answered}");
        assert!(slice["args"]["instructions"].as_u64().unwrap() > 0);
    }
    let counters = of("C", 3);
    assert_eq!(counters.len(), 6);
    assert!(counters.iter().any(|event| event["name"] == "counters of hart 65"));
    assert!(counters.iter().all(|event| event["args"]["L2 misses"] == 0));

    let lines = written(ProfileFormat::JsonLines);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((count("region"), count("counters"), count("entry")), (10, 6, 0));
}

#[test]
fn the_clock_of_the_device_is_found_within_the_error_that_is_stated() {
    let device = open(DEVICE);
    let mut fit = device.correlate_clocks(32).unwrap();
    let first = fit.error().unwrap();
    assert!(fit.is_consistent());
    let mhz = u64::from(device.properties().boot_frequency_mhz.unwrap());
    let kernel = load(&device, "regions");
    for _ in 0..8 {
        let launch = Launch::new(&kernel).u64(ROUNDS).u64(100);
        let timeline = device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
        let span = fit.span(&timeline).unwrap();
        assert!(span.taken + span.error >= timeline.sent, "{span:?} {timeline:?}");
        assert!(span.executed <= timeline.completed + span.error, "{span:?} {timeline:?}");
        assert!(span.taken <= span.started && span.started < span.executed, "{span:?}");
        let took = timeline.device.unwrap().execute * 1000 / mhz;
        let shown = (span.executed - span.started).as_nanos();
        assert!(shown.abs_diff(took.into()) <= 2, "{shown} {took}");
        let before = fit.error().unwrap();
        fit.add(&timeline);
        assert!(fit.error().unwrap() <= before && fit.is_consistent());
    }
    assert!(fit.error().unwrap() <= first);
    // Without anything that was measured there is no position, and no error of it.
    let none = device.correlate_clocks(0).unwrap();
    assert_eq!((none.error(), none.host_time(1)), (None, None));
    let mute = open("shires=1,dram=256MiB,fault=no-frequency");
    assert!(matches!(mute.correlate_clocks(1), Err(Error::Unsupported { .. })));
    drop(mute);
    assert_ne!(first, Duration::ZERO);
}
