//! A completion queue that is full: the device stands still until there is room, and nothing is
//! lost. Spec: §5.6

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use et_hal_sim::SimHal;
use et_runtime::{Config, Device, Drain, Event, Launch};

const LONG: Duration = Duration::from_secs(20);
/// More than the device has room for answers to.
const COMMANDS: usize = 120;
/// Answers that fit into the 1503 usable bytes of the completion queue (Spec: §5.1): one of a
/// launch, of 40 bytes, and those of barriers, of 24.
const ANSWERS: u64 = 1 + (1503 - 40) / 24;

fn device() -> Device<SimHal> {
    let hal = SimHal::open("shires=1,dram=256MiB,threads=1".parse().unwrap()).unwrap();
    let config = Config::new().drain(Drain::Caller).watchdog(LONG).failure_messages(false);
    Device::open_with(hal, config).unwrap()
}

/// Has the device answer all of many barriers at once while no one drains, and waits until there
/// is no room for the next answer.
fn fill(device: &Device<SimHal>) -> Vec<Event> {
    let board = device.hal().board();
    let stream = device.stream();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/spin_int.elf");
    let kernel = device.load_kernel("spin", &std::fs::read(file).unwrap()).unwrap();
    let out = device.alloc(8 * 64).unwrap();
    let launch =
        |iterations| stream.launch(&Launch::new(&kernel).u64(iterations).buffer(&out)).unwrap();
    // What a first launch needs is made by commands of their own.
    launch(1).wait(LONG).unwrap();
    for iterations in (0..500).map(|attempt| 5000 << (attempt / 50)) {
        let before = board.counters().responses;
        let mut events = vec![launch(iterations)];
        events.extend((0..COMMANDS).map(|_| stream.barrier().unwrap()));
        if events[0].outcome().is_some() {
            // It has ended while they were submitted, which drains.
            stream.synchronize(LONG).unwrap();
            continue;
        }
        let started = Instant::now();
        while board.counters().responses - before <= ANSWERS {
            assert!(started.elapsed() < LONG, "the device does not get to its limit");
            std::thread::yield_now();
        }
        assert_eq!(board.counters().responses - before, ANSWERS + 1, "it goes on without room");
        assert!(events.iter().all(|event| event.outcome().is_none()), "someone has drained");
        return events;
    }
    panic!("every kernel has ended before its barriers were submitted")
}

#[test]
fn answers_wait_for_room() {
    let device = device();
    for _ in 0..5 {
        for event in fill(&device) {
            event.wait(LONG).unwrap();
        }
    }
    assert_eq!(device.counters().stray_responses, 0);
}

#[test]
fn a_device_that_stands_still_can_be_reset() {
    let mut device = device();
    let lost = fill(&device);
    device.reset(LONG).unwrap();
    for event in lost {
        assert!(event.wait(LONG).is_err());
    }
    for event in fill(&device) {
        event.wait(LONG).unwrap();
    }
}

/// An abort waits like everything else, and then aborts.
#[test]
fn a_device_that_stands_still_can_be_aborted() {
    let device = device();
    let events = fill(&device);
    let last = events.last().unwrap();
    device.abort(last, LONG).unwrap();
    for event in &events {
        // The last may have been executed before the abort came.
        assert!(event.wait(LONG).is_ok() || event.id() == last.id());
    }
    device.default_stream().barrier().unwrap().wait(LONG).unwrap();
}
