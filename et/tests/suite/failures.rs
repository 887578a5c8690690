//! Devices that misbehave: a clear error and no hang. What every device must do is in the
//! conformance kit.

use std::time::Duration;

use crate::common::LONG;
use et::executor::{ExecutorConfig, Place, RunOptions};
use et::graph::{GraphBuilder, Task};
use et::hal::ErrorKind;
use et::{Config, Launch};
use et_runtime::OpenError;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn hostile_devices_give_errors_and_no_hangs() {
    let quick = || {
        Config::new()
            .boot_timeout(Duration::from_secs(1))
            .command_timeout(Duration::from_secs(2))
            .shutdown_timeout(SHORT)
    };
    let open = |fault: &str| {
        let locator = format!("sim:compute=null,dram=1GiB,fault={fault}");
        et::open_with(locator.parse().unwrap(), quick())
    };
    let device_error = |fault: &str| match open(fault) {
        Err(et::OpenError::Device(error)) => error,
        other => panic!("{fault}: {other:?}"),
    };
    assert_eq!(device_error("never-boots").kind(), ErrorKind::Timeout);
    assert_eq!(device_error("boot-error:mgmt").kind(), ErrorKind::Timeout);
    assert_eq!(device_error("boot-stops:ops:4").kind(), ErrorKind::Timeout);
    assert!(matches!(device_error("bad-crc:ops"), OpenError::Registers(_)));
    assert!(matches!(device_error("bad-crc:mgmt"), OpenError::Registers(_)));
    assert!(matches!(device_error("bad-size:ops:600"), OpenError::Registers(_)));

    // These devices misbehave later; what they do must end in success or in an error.
    for fault in [
        "noise",
        "spurious-interrupts:2",
        "lost-interrupts:1",
        "unknown-tag:6:4660",
        "bad-index:8:5000",
        "garbage:8",
        "drop-response:8",
    ] {
        let device = match open(fault) {
            Ok(device) => device,
            Err(error) => panic!("{fault}: {error:?}"),
        };
        let buffer = device.alloc(4096).unwrap();
        let stream = device.default_stream();
        let mut failed = false;
        for _ in 0..20 {
            let outcome = stream
                .copy_to_device(&[1u8; 4096], &buffer)
                .and_then(|event| event.wait(Duration::from_secs(2)));
            failed |= outcome.is_err();
        }
        let is_harmless =
            ["noise", "spurious-interrupts:2", "lost-interrupts:1", "unknown-tag:6:4660"]
                .contains(&fault);
        assert_eq!(failed, !is_harmless, "{fault}");
    }
}

/// The length of a cycle is unknown then, and no time is made up of it.
#[test]
fn a_device_without_a_frequency_has_no_times_of_its_own() {
    let device = crate::common::open("shires=1,dram=1GiB,fault=no-frequency");
    let properties = device.properties();
    assert_eq!((properties.boot_frequency_mhz, properties.timestamp_hz), (None, None));

    device.profiler().start();
    let nop = crate::common::load(&device, "task_nop");
    device.default_stream().launch(&Launch::new(&nop)).unwrap().wait(LONG).unwrap();
    let profile = device.profiler().stop();
    let mut json = Vec::new();
    for (mhz, is_shown) in [(None, false), (Some(0), false), (Some(600), true)] {
        json.clear();
        profile.write_chrome_json(&mut json, mhz).unwrap();
        let text = String::from_utf8_lossy(&json);
        assert_eq!(text.contains("\"cycles\""), is_shown, "{text}");
        assert!(!text.contains("null"), "{text}");
    }

    // A trace of what the device scheduled has no tasks, and a graph runs all the same.
    let executor = device.executor(&ExecutorConfig::new().place(Place::Resident)).unwrap();
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&nop);
    builder.add(Task::new(nop)).unwrap();
    let run = executor.launch_with(&builder.build().unwrap(), RunOptions::new().traced());
    let outcome = run.unwrap().finish(LONG).unwrap();
    assert!(outcome.trace().is_none_or(|trace| trace.spans().is_empty()), "{outcome:?}");
}

#[test]
fn a_lost_device_comes_back_by_a_reset() {
    let config = Config::new().command_timeout(Duration::from_secs(2)).shutdown_timeout(SHORT);
    let locator = "sim:shires=1,dram=1GiB,fault=bad-index:8:5000".parse().unwrap();
    let mut device = et::open_with(locator, config).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let outcome = (0..20).try_for_each(|_| {
        device.default_stream().copy_to_device(&[1u8; 4096], &buffer)?.wait(LONG).map(drop)
    });
    assert!(outcome.is_err());
    device.reset(LONG).unwrap();
    let buffer = device.alloc(4096).unwrap();
    // The fault is counted from power-on, so it does not come again.
    device.default_stream().copy_to_device(&[1u8; 4096], &buffer).unwrap().wait(LONG).unwrap();
}
