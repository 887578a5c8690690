//! Copies between devices of which one fails, where the simulator cannot be made to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use et_devapi::msg::ops::{Body, Command, DmaStatus};
use et_hal_mock::{MockHal, MockMailbox, presets};
use et_runtime::{Config, Device, Error};

const LONG: Duration = Duration::from_secs(20);
/// Eight pieces.
const LEN: u64 = 2 << 20;

/// A device with room for one piece, of which the copy with this number fails.
fn device(fails: usize) -> Device<MockHal> {
    let config = Config::new().staging_bytes(1);
    let hal = MockHal::new(presets::booted_registers(), mailbox(fails));
    Device::open_with(hal, config).unwrap()
}

fn mailbox(fails: usize) -> MockMailbox {
    let mut copies = 0;
    presets::answering_mailbox(move |header, command| {
        let mut answers = presets::success(header, command);
        if matches!(command, Command::DmaReadList { .. } | Command::DmaWriteList { .. }) {
            copies += 1;
            for answer in &mut answers {
                if let Body::DmaRead { status, .. } | Body::DmaWrite { status, .. } =
                    &mut answer.body
                    && copies == fails
                {
                    *status = DmaStatus::ErrorAborted;
                }
            }
        }
        answers
    })
}

#[test]
fn a_piece_that_fails_fails_the_copy_and_names_the_side() {
    // The first piece, one in the middle, the last.
    for number in [1, 4, 8] {
        for end in ["source", "target"] {
            let (a, b) = match end {
                "source" => (device(number), device(0)),
                _ => (device(0), device(number)),
            };
            let (source, target) = (a.alloc(LEN).unwrap(), b.alloc(LEN).unwrap());
            let (from, to) = (a.default_stream(), b.default_stream());
            let error = from.copy_to_peer(&source, to, &target).unwrap().wait(LONG).unwrap_err();
            let status = match (&error, end) {
                (Error::Source { source }, "source") => (**source).clone(),
                (error, "target") => error.clone(),
                (error, _) => panic!("{end}, piece {number}: {error}"),
            };
            let failed = matches!(status, Error::Copy { status: DmaStatus::ErrorAborted, op } if match end {
                "source" => op == "copy from the device",
                _ => op == "copy to the device",
            });
            assert!(failed, "{end}, piece {number}: {status}");
            // Memory, order and lists of both are as before.
            from.copy_to_peer(&source, to, &target).unwrap().wait(LONG).unwrap();
            from.synchronize(LONG).unwrap();
            assert!(from.take_errors().is_empty(), "the event told it");
            assert!(to.take_errors().is_empty(), "the event told it");
        }
    }
}

/// Whoever does not ask hears of it in the list of the target.
#[test]
fn a_failure_that_no_one_asks_for_is_listed_once() {
    let (a, b) = (device(3), device(0));
    let (source, target) = (a.alloc(LEN).unwrap(), b.alloc(LEN).unwrap());
    let (from, to) = (a.default_stream(), b.default_stream());
    drop(from.copy_to_peer(&source, to, &target).unwrap());
    to.synchronize(LONG).unwrap();
    from.synchronize(LONG).unwrap();
    assert_eq!(to.take_errors().errors.len(), 1);
    assert!(from.take_errors().is_empty());
}
