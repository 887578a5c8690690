//! Operations of two devices at once: what one is told about concerns the other only if it says so.

#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::time::Duration;

use crate::common::{LONG, load, open};
use et::{AnyHal, Device, Error, Event, Launch};

const SMALL: &str = "shires=1,dram=1GiB";
const MOMENT: Duration = Duration::from_millis(50);

fn endless(device: &Device<AnyHal>) -> Event {
    let hang = load(device, "hang");
    let event = device.default_stream().launch(&Launch::new(&hang)).unwrap();
    assert!(matches!(event.wait(MOMENT), Err(Error::Timeout { .. })));
    event
}

#[test]
fn errors_call_a_device_as_the_program_did() {
    let locator = format!("sim:{SMALL}");
    let device = et::open(&locator).unwrap();
    let event = endless(&device);
    let late = event.wait(MOMENT).unwrap_err();
    assert_eq!((late.operation(), late.device()), (Some("launch"), Some(&*locator)));
    device.abort(&event, LONG).unwrap();
    // A locator by itself has no text of the program's.
    let named = et::Config::new().name("left");
    let device = et::open_with(locator.parse().unwrap(), named).unwrap();
    let event = endless(&device);
    assert_eq!(event.wait(MOMENT).unwrap_err().device(), Some("left"));
    device.abort(&event, LONG).unwrap();
}

/// What a callback waits for has to be drained, perhaps by its own thread.
#[test]
fn a_callback_of_a_launch_that_failed_may_use_the_device() {
    let device = open(SMALL);
    let stream = device.stream();
    let buffer = device.alloc(64).unwrap();
    let trap = Launch::new(&load(&device, "trap_load")).u64(5);
    let (sender, receiver) = mpsc::channel();
    let event = device.default_stream().launch(&trap).unwrap();
    event.on_done(move |outcome| {
        let copied = stream.copy_to_device(&[1_u8; 64], &buffer);
        let copied = copied.and_then(|event| event.wait(LONG / 4)).map(drop);
        sender.send((outcome.is_err(), copied)).unwrap();
    });
    assert!(event.wait(LONG).is_err());
    let (has_failed, copied) = receiver.recv_timeout(LONG).unwrap();
    assert!(has_failed);
    copied.unwrap();
}

#[test]
fn what_has_nothing_to_do_ends_in_its_turn() {
    let device = open(SMALL);
    let kernel = endless(&device);
    let stream = device.default_stream();
    let buffer = device.alloc(64).unwrap();
    let empty = || buffer.slice(..0).unwrap();
    let late = stream.read(empty(), &mut [0_u8; 0], MOMENT).unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
    let waiting = [
        stream.copy_to_device(&[0_u8; 0], empty()).unwrap(),
        stream.fill(empty(), 1).unwrap(),
        stream.copy_list(&[]).unwrap(),
    ];
    assert!(waiting.iter().all(|event| !event.is_done()));
    device.abort(&kernel, LONG).unwrap();
    for event in waiting {
        event.wait(LONG).unwrap();
    }
    stream.read(empty(), &mut [0_u8; 0], LONG).unwrap();
    stream.synchronize(LONG).unwrap();
    assert!(stream.take_errors().is_empty());
}

#[test]
fn an_event_of_another_device_aborts_nothing() {
    let (one, other) = (open(SMALL), open(SMALL));
    // The same history on both, so the same numbers.
    let (mine, its) = (endless(&one), endless(&other));
    let outcome = one.abort(&its, LONG);
    assert!(matches!(outcome, Err(Error::ForeignEvent)), "{outcome:?}");
    for event in [&mine, &its] {
        assert!(matches!(event.wait(MOMENT), Err(Error::Timeout { .. })), "{event:?}");
    }
    one.abort(&mine, LONG).unwrap();
    other.abort(&its, LONG).unwrap();
}

#[test]
fn a_stream_waits_for_an_event_of_another_device() {
    let (one, other) = (open(SMALL), open(SMALL));
    let in_second_queue = one.stream();
    // The event is of the first.
    for stream in [&in_second_queue, one.default_stream()] {
        let its = endless(&other);
        stream.wait_for(&its);
        let behind = stream.barrier().unwrap();
        assert!(matches!(behind.wait(MOMENT), Err(Error::Timeout { .. })));
        other.abort(&its, LONG).unwrap();
        // No thread of this device has to look: the other one says so.
        behind.wait(LONG).unwrap();
    }
}

#[test]
fn a_device_that_goes_lets_those_go_on_that_wait_for_it() {
    let (one, other) = (open(SMALL), open(SMALL));
    let its = endless(&other);
    let stream = one.stream();
    stream.wait_for(&its);
    let behind = stream.barrier().unwrap();
    other.close();
    behind.wait(LONG).unwrap();
}
