//! Profiles: names, times, formats, and recordings that are longer than memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::common::{LONG, load, open};
use et::executor::{ExecutorConfig, Place, RunOptions, TraceDetail};
use et::graph::{GraphBuilder, TaskContext};
use et::trace::KernelTraceConfig;
use et::{Launch, Profile, ProfileFormat, ProfileWriter};
use serde_json::Value;

const DEVICE: &str = "shires=1,dram=1GiB";

fn written(profile: &Profile, format: ProfileFormat) -> String {
    let mut out = Vec::new();
    let mut writer = ProfileWriter::new(&mut out, format, Some(600)).unwrap();
    writer.write(profile).unwrap();
    writer.finish().unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn launches_have_the_names_of_their_kernels_in_every_format() {
    let device = open(DEVICE);
    // Without a trace to write to, the second does nothing.
    let (nop, other) = (load(&device, "task_nop"), load(&device, "trace"));
    let stream = device.default_stream();
    // Before the start nothing is recorded.
    stream.launch(&Launch::new(&nop)).unwrap().wait(LONG).unwrap();
    device.profiler().start();
    for kernel in [&nop, &other, &nop] {
        stream.launch(&Launch::new(kernel).u64(1).u64(0)).unwrap().wait(LONG).unwrap();
    }
    stream.fill(&device.alloc(64).unwrap(), 1).unwrap().wait(LONG).unwrap();
    let profile = device.profiler().stop();
    let titles: Vec<_> = profile.records.iter().map(et::Record::title).collect();
    assert_eq!(titles, ["task_nop", "trace", "task_nop", "fill"]);
    assert_eq!(profile.dropped, 0);

    let chrome: Value = serde_json::from_str(&written(&profile, ProfileFormat::Chrome)).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let named = |phase: &str| {
        let of = events.iter().filter(|event| event["ph"] == phase);
        of.map(|event| event["name"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(named("b"), titles);
    assert_eq!(named("e"), titles);
    assert_eq!(named("X"), titles, "on the device");
    // On the device each ran within the time in which the host waited for it, but for the error.
    let error = chrome["otherData"]["clock_error_us"].as_f64().unwrap();
    assert_eq!(chrome["otherData"]["clock_is_consistent"], true);
    let time = |phase: &str, id: &Value, of: fn(&Value) -> &Value| {
        events.iter().find(|e| e["ph"] == phase && of(e) == id).unwrap()["ts"].as_f64().unwrap()
    };
    for slice in events.iter().filter(|event| event["ph"] == "X") {
        let id = &slice["args"]["id"];
        let (begin, end) = (time("b", id, |e| &e["id"]), time("e", id, |e| &e["id"]));
        let (start, dur) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
        assert!(start >= begin - error && start + dur <= end + error, "{slice} {begin} {end}");
    }

    let lines = written(&profile, ProfileFormat::JsonLines);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations = lines.iter().filter(|line| line["kind"] == "operation");
    let kernels: Vec<_> = operations.map(|line| line["kernel"].as_str()).collect();
    assert_eq!(kernels, [Some("task_nop"), Some("trace"), Some("task_nop"), None]);
    assert_eq!(lines.last().unwrap()["end"]["dropped"], 0);
    let csv = written(&profile, ProfileFormat::Csv);
    let rows: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(rows, [11; 5], "{csv}");
    assert!(csv.contains(",launch,\"trace\","), "{csv}");
}

#[test]
fn a_drained_recording_has_every_operation_once() {
    const ROUNDS: usize = 20;
    const EACH: usize = 500;
    let device = open("compute=null,dram=1GiB");
    let kernel = load(&device, "task_nop");
    let (mut ids, mut submitted) = (BTreeSet::new(), BTreeSet::new());
    let mut count = 0;
    device.profiler().start();
    for _ in 0..ROUNDS {
        let streams = [device.stream(), device.stream()];
        std::thread::scope(|scope| {
            let work = |stream: &et::Stream<et::AnyHal>| {
                let launch = Launch::new(&kernel);
                let ids: Vec<_> = (0..EACH).map(|_| stream.launch(&launch).unwrap().id()).collect();
                stream.synchronize(LONG).unwrap();
                ids
            };
            let threads = streams.each_ref().map(|stream| scope.spawn(move || work(stream)));
            threads.into_iter().for_each(|thread| submitted.extend(thread.join().unwrap()));
        });
        let part = device.profiler().drain();
        assert_eq!(part.dropped, 0);
        count += part.records.len();
        let is_sorted = part.records.is_sorted_by_key(|record| record.timeline.completed);
        assert!(is_sorted);
        ids.extend(part.records.iter().map(|record| record.id));
    }
    assert!(device.profiler().stop().records.is_empty());
    assert_eq!(count, ROUNDS * EACH * 2);
    assert_eq!(ids, submitted);
}

#[test]
fn what_kernels_trace_is_on_the_track_of_its_hart() {
    let device = open(DEVICE);
    let traced = device.kernel_trace(KernelTraceConfig::new(1)).unwrap();
    let launch = Launch::new(&load(&device, "trace")).u64(1).u64(3).trace(traced.option());
    device.profiler().start();
    device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    let profile = device.profiler().stop();
    let trace = traced.read(LONG).unwrap();
    let mhz = device.properties().boot_frequency_mhz;
    let mut out = Vec::new();
    let mut writer = ProfileWriter::new(&mut out, ProfileFormat::Chrome, mhz).unwrap();
    writer.write(&profile).unwrap();
    writer.write_trace(&trace).unwrap();
    let clock = *writer.clock();
    writer.finish().unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let marks: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert_eq!(marks.len(), 128);
    for mark in marks {
        assert_eq!(mark["pid"], 3);
        let cycle = mark["args"]["cycle"].as_u64().unwrap();
        let at = clock.host_time(cycle).unwrap().as_secs_f64() * 1e6;
        assert!((mark["ts"].as_f64().unwrap() - at).abs() < 1e-3, "{mark} {at}");
    }
}

#[test]
fn the_memory_in_use_is_recorded_from_the_start_to_the_end() {
    let device = open(DEVICE);
    let first = device.alloc(4096).unwrap();
    device.profiler().start();
    let second = device.alloc(64).unwrap();
    drop(first);
    let before = device.profiler().drain();
    drop(second);
    let after = device.profiler().stop();
    drop(device.alloc(64).unwrap());
    assert_eq!(device.profiler().drain().memory, []);

    let base = before.memory[0].used_bytes;
    let used = |profile: &Profile| {
        let samples = profile.memory.iter();
        samples.map(|sample| sample.used_bytes.abs_diff(base)).collect::<Vec<_>>()
    };
    assert_eq!((used(&before), used(&after)), (vec![0, 64, 4032], vec![4096]));
    let times: Vec<_> = before.memory.iter().chain(&after.memory).map(|s| s.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    let chrome: Value = serde_json::from_str(&written(&before, ProfileFormat::Chrome)).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap().iter();
    assert_eq!(events.filter(|event| event["args"]["used_bytes"].is_u64()).count(), 3);
    assert!(written(&after, ProfileFormat::JsonLines).contains("\"kind\":\"memory\""));
}

#[test]
fn failures_say_why() {
    let device = open(DEVICE);
    let trap = load(&device, "trap_load");
    device.profiler().start();
    let launch = Launch::new(&trap).u64(0);
    device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap_err();
    let profile = device.profiler().stop();
    let record = &profile.records[0];
    assert!(record.failed);
    assert!(record.error.as_deref().unwrap().contains("load access fault"), "{record:?}");
    for format in [ProfileFormat::Chrome, ProfileFormat::JsonLines] {
        assert!(written(&profile, format).contains("load access fault"), "{format:?}");
    }
}

#[test]
fn each_of_many_operations_keeps_its_kernel_and_its_error() {
    const LAUNCHES: u64 = 2_200;
    const FAILS_AT: u64 = 500;
    let device = open(DEVICE);
    let (nop, trap) = (load(&device, "task_nop"), load(&device, "trap_load"));
    let stream = device.default_stream();
    for round in 0..2 {
        device.profiler().start();
        let fails = |index: u64| index % FAILS_AT == FAILS_AT - 1;
        for index in 0..LAUNCHES {
            let kernel = if fails(index) { &trap } else { &nop };
            // Its failure is in the profile.
            let _ = stream.launch(&Launch::new(kernel)).unwrap();
        }
        stream.synchronize(LONG).unwrap();
        let mut records = device.profiler().stop().records;
        assert_eq!(records.len() as u64, LAUNCHES, "round {round}");
        // A failure takes longer to be told, as its report is fetched first.
        records.sort_by_key(|record| record.id);
        for (record, index) in records.iter().zip(0..) {
            assert_eq!(record.failed, fails(index), "{record:?}");
            assert_eq!(record.title(), if fails(index) { "trap_load" } else { "task_nop" });
            let error = record.error.as_deref().unwrap_or_default();
            assert_eq!(error.contains("launch of trap_load failed"), fails(index), "{error}");
        }
    }
}

#[test]
fn calls_are_recorded_with_their_threads_and_operations_if_that_is_asked_for() {
    let device = open(DEVICE);
    let stream = device.default_stream();
    let nop = Launch::new(&load(&device, "task_nop"));
    let buffer = device.alloc(64).unwrap();
    device.profiler().start();
    stream.launch(&nop).unwrap().wait(LONG).unwrap();
    assert_eq!(device.profiler().stop().calls, []);

    device.profiler().start_with_calls();
    let launch = stream.launch(&nop).unwrap();
    launch.wait(LONG).unwrap();
    stream.copy_to_device(&[0u8; 3], &buffer).unwrap_err();
    let other = device.stream();
    let fill = std::thread::scope(|scope| {
        let work = || {
            let fill = other.fill(&buffer, 1).unwrap();
            other.synchronize(LONG).unwrap();
            fill.id()
        };
        std::thread::Builder::new().name("filler".into()).spawn_scoped(scope, work).unwrap().join()
    });
    let mut host = device.host_buffer(64).unwrap();
    host.copy_in(0, &[1u8; 64]).unwrap();
    let upload = stream.upload(host, &buffer).unwrap();
    let upload_id = upload.event().id();
    upload.wait(LONG).unwrap();
    let profile = device.profiler().stop();

    let here = profile.calls[0].thread;
    let about = |call: &et::Call| (call.name, call.stream, call.operation, call.failed);
    let of = |is_here: bool| {
        let calls = profile.calls.iter().filter(move |call| (call.thread == here) == is_here);
        calls.map(about).collect::<Vec<_>>()
    };
    let (main, second) = (Some(stream.id()), Some(other.id()));
    assert_eq!(
        of(true),
        [
            ("launch", main, Some(launch.id()), false),
            ("wait", main, Some(launch.id()), false),
            ("copy_to_device", main, None, true),
            ("upload", main, Some(upload_id), false),
            ("wait", main, Some(upload_id), false),
        ]
    );
    let fill = Some(fill.unwrap());
    assert_eq!(of(false), [("fill", second, fill, false), ("synchronize", second, None, false)]);
    let names = profile.calls.iter().filter(|call| call.thread != here);
    assert!(names.into_iter().all(|call| call.thread_name.as_deref() == Some("filler")));
    // Each operation began within its call, and had ended when the wait for it did.
    for record in &profile.records {
        let its = || profile.calls.iter().filter(|call| call.operation == Some(record.id));
        let made = its().next().unwrap();
        assert!(made.start <= record.timeline.queued && record.timeline.queued <= made.end);
        if let Some(wait) = its().find(|call| call.name == "wait") {
            assert!(wait.start >= made.end && wait.end >= record.timeline.completed);
        }
    }

    let chrome: Value = serde_json::from_str(&written(&profile, ProfileFormat::Chrome)).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|event| event["cat"] == "call");
    let slices: Vec<_> = slices.map(|event| event["name"].as_str().unwrap()).collect();
    let names: Vec<_> = profile.calls.iter().map(|call| call.name).collect();
    assert_eq!(slices, names);
    let threads = events.iter().filter(|event| event["name"] == "thread_name");
    let threads: Vec<_> = threads.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert!(threads.len() == 2 && threads.contains(&"filler"), "{threads:?}");
    let lines = written(&profile, ProfileFormat::JsonLines);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<_> = lines.filter(|line| line["kind"] == "call").collect();
    assert_eq!(calls.len(), names.len());
    assert_eq!((&calls[2]["name"], &calls[2]["failed"]), (&"copy_to_device".into(), &true.into()));
}

#[test]
fn a_run_of_a_graph_has_the_memory_in_use_from_its_launch_on() {
    let device = open(DEVICE);
    let executor = device.executor(&ExecutorConfig::new().place(Place::Streams)).unwrap();
    let used = || device.memory_stats().used_bytes;
    let scratch = Mutex::new(Some(device.alloc(1 << 16).unwrap()));
    let mut builder = GraphBuilder::new();
    builder
        .host_task(move |_: &TaskContext<'_>| {
            drop(scratch.lock().map(|mut scratch| scratch.take()));
            Ok(())
        })
        .unwrap();
    let graph = builder.build().unwrap();
    device.profiler().start();
    // What was there for a while before the launch is not shown.
    drop(device.alloc(1 << 20).unwrap());
    let before = used();
    let run = executor.launch_with(&graph, RunOptions::new().traced()).unwrap();
    let outcome = run.finish(LONG).unwrap();
    let recorded = device.profiler().stop();
    let mut out = Vec::new();
    outcome.write_chrome_json_with_memory(TraceDetail::Tasks, &recorded, &mut out).unwrap();
    let chrome: Value = serde_json::from_slice(&out).unwrap();
    let events = chrome["traceEvents"].as_array().unwrap();
    let samples = events.iter().filter(|event| event["name"] == "device memory");
    let samples: Vec<_> =
        samples.map(|event| (&event["ts"], &event["args"]["used_bytes"])).collect();
    let [(at, first), .., (freed, last)] = samples[..] else { panic!("{samples:?}") };
    assert_eq!((at.as_f64(), first.as_u64()), (Some(0.0), Some(before)));
    assert_eq!(last.as_u64(), Some(used()));
    assert!(used() < before && freed.as_f64() > Some(0.0), "{samples:?}");
}
