//! Devices that misbehave: a clear error and no hang. What every device must do is in the
//! conformance kit.

mod common;

use std::time::Duration;

use common::LONG;
use et::Config;
use et::hal::ErrorKind;
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
