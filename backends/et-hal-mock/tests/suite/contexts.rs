//! Launches and the device memory that each of them needs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_devapi::msg::ops::Command;
use et_hal_mock::{MockHal, presets};
use et_runtime::{
    Config, Device, DeviceBuffer, Drain, Error, Event, EventState, Kernel, Launch, Stream,
};

const LONG: Duration = Duration::from_secs(60);

/// A card that ends no launch until it is asked for a copy.
struct Card {
    device: Device<MockHal>,
    kernel: Kernel,
    buffer: DeviceBuffer,
}

impl Card {
    fn new() -> Self {
        let held = Arc::new(Mutex::new((Vec::new(), true)));
        let mailbox = presets::answering_mailbox(move |header, command| {
            let (held, holds) = &mut *held.lock().unwrap();
            let mut answers = presets::success(header, command);
            match command {
                Command::KernelLaunch(_) if *holds => held.append(&mut answers),
                Command::DmaReadList { .. } => {
                    *holds = false;
                    answers.append(held);
                }
                _ => {}
            }
            answers
        });
        let config = Config::new().drain(Drain::Caller).spin(Duration::ZERO);
        let hal = MockHal::new(presets::booted_registers(), mailbox);
        let device = Device::open_with(hal, config.command_timeout(LONG)).unwrap();
        let elf = include_bytes!("../../../../testing/kernels/elf/entries.elf");
        let (module, copy) = device.load_module("entries", elf).unwrap();
        copy.wait(LONG).unwrap();
        let kernel = module.function("second").unwrap();
        let buffer = device.alloc(64).unwrap();
        Self { device, kernel, buffer }
    }

    fn launch(&self, stream: &Stream<MockHal>) -> Result<Event, Error> {
        stream.launch(&Launch::new(&self.kernel))
    }

    /// Takes all memory in which a launch could find room for what it needs.
    fn fill(&self) -> Vec<DeviceBuffer> {
        let sizes = (12..34).rev().map(|bits| 1 << bits);
        sizes.flat_map(|len| std::iter::from_fn(move || self.device.alloc(len).ok())).collect()
    }

    fn read(&self) {
        self.device.default_stream().read(&self.buffer, &mut [0_u8; 64], LONG).unwrap();
    }
}

#[test]
fn a_launch_without_memory_is_refused_each_time() {
    let card = Card::new();
    let stream = card.device.stream();
    let all = card.fill();
    for _ in 0..2 {
        let error = card.launch(&stream).unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error:?}");
    }
    drop(all);
    let launch = card.launch(&stream).unwrap();
    card.read();
    launch.wait(LONG).unwrap();
}

#[test]
fn a_launch_that_finds_no_memory_waits_for_that_of_another() {
    let card = Card::new();
    let streams = [(); 2].map(|()| card.device.stream());
    let first = card.launch(&streams[0]).unwrap();
    let _all = card.fill();
    // What waits for an event does not hold its submitter up.
    streams[1].wait_for(&first);
    let second = card.launch(&streams[1]).unwrap();
    card.device.poll();
    assert_eq!((first.state(), second.state()), (EventState::Ready, EventState::Queued));
    card.read();
    first.wait(LONG).unwrap();
    second.wait(LONG).unwrap();
}
