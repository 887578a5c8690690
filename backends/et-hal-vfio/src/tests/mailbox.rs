//! Messages through the ring mailbox of the device API.

use std::time::Duration;

use et_devapi::ring::{Producer, Ring};
use et_hal::{
    BarOffset, Endpoint, ErrorKind, Hal, LossReason, Mailbox, Pop, Push, QueueId, ResetScope, Wake,
};

use super::{format_queues, kernel, kind, layout, open, open_with, options, peek, reset};
use crate::sys::Linux;
use crate::{VfioError, VfioWindow};

const QUEUE: QueueId = QueueId::Submission(0);
/// An echo command's header and payload; what it says does not matter here.
const COMMAND: [u8; 16] = [16, 0, 1, 0, 2, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Puts a message of 16 bytes into the completion queue, as the firmware does.
fn complete(window: &VfioWindow) {
    let set = layout().completion;
    let ring = Ring::new::<VfioError>(set.at, set.size_bytes).unwrap();
    let mut producer = Producer::attach(ring, window).unwrap();
    // The length of a completion counts what follows the header.
    let mut message = COMMAND;
    message[0] = 8;
    assert_eq!(producer.push(window, &message).unwrap(), Push::Accepted);
}

#[test]
fn submitting_makes_no_call() {
    for mode in super::MODES {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        let window = format_queues(&hal);
        let mailbox = hal.open_mailbox(&layout()).unwrap();
        let calls = fake.calls();
        let mut pushed = 0;
        while mailbox.push(QUEUE, &COMMAND).unwrap() == Push::Accepted {
            mailbox.kick().unwrap();
            pushed += 1;
        }
        // 1056 bytes of ring, one of them always empty.
        assert_eq!(pushed, 65);
        assert_eq!(fake.calls(), calls, "{mode}: push and kick are memory accesses");
        complete(&window);
        let mut message = [0; 64];
        assert!(matches!(mailbox.pop(&mut message).unwrap(), Pop::Message(16)));
        assert!(matches!(mailbox.pop(&mut message).unwrap(), Pop::Empty));
        assert_eq!(fake.calls(), calls, "{mode}: and so is pop");
        assert_eq!(peek(&fake, 2, 0x2004), 1_u32.to_le_bytes(), "the doorbell was rung");
        assert_eq!(peek::<16>(&fake, 2, 0x120), COMMAND);
    }
}

#[test]
fn everything_works_without_mappings_too() {
    let fake = kernel("group");
    fake.with(|state| state.card.trapped.push(2));
    let hal = open(&fake, "group").unwrap();
    let window = format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    assert_eq!(mailbox.push(QUEUE, &COMMAND).unwrap(), Push::Accepted);
    mailbox.kick().unwrap();
    complete(&window);
    let ticket = mailbox.ticket();
    assert_eq!(mailbox.wait(ticket, Duration::from_secs(5)).unwrap(), Wake::Notified);
    assert!(matches!(mailbox.pop(&mut [0; 64]).unwrap(), Pop::Message(16)));
}

#[test]
fn a_mailbox_dies_with_its_generation() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    reset(&hal, ResetScope::Function).unwrap();
    assert_eq!(kind(&mailbox.push(QUEUE, &COMMAND).unwrap_err()), ErrorKind::Stale);
    assert_eq!(kind(&mailbox.kick().unwrap_err()), ErrorKind::Stale);
    let waited = mailbox.wait(mailbox.ticket(), Duration::from_secs(5));
    assert_eq!(kind(&waited.unwrap_err()), ErrorKind::Stale);
    hal.open_mailbox(&layout()).unwrap();
}

#[test]
fn a_link_that_goes_down_is_no_corrupt_queue() {
    // The device is dead, but a bridge above it still answers for its configuration space.
    for config_too in [false, true] {
        let fake = kernel("group");
        let hal = open(&fake, "group").unwrap();
        format_queues(&hal);
        let mailbox = hal.open_mailbox(&layout()).unwrap();
        fake.with(|state| state.card.die(&Linux, config_too));
        let error = mailbox.pop(&mut [0; 64]).unwrap_err();
        assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown), "{error}");
        let error = mailbox.wait(mailbox.ticket(), Duration::from_secs(5)).unwrap_err();
        assert_eq!(kind(&error), ErrorKind::Lost(LossReason::LinkDown));
    }
}

#[test]
fn one_bad_index_is_a_corrupt_queue() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    super::poke(&fake, 2, 0xa00, &[0xff; 8]);
    let error = mailbox.pop(&mut [0; 64]).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Protocol);
}

#[test]
fn waits_look_before_they_sleep() {
    let fake = kernel("group");
    let patient = options().spin(Duration::from_secs(30));
    let hal = open_with(&fake, "group", &patient).unwrap();
    let window = format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    complete(&window);
    let calls = fake.calls();
    assert_eq!(mailbox.wait(mailbox.ticket(), Duration::from_secs(30)).unwrap(), Wake::Notified);
    assert_eq!(fake.calls(), calls, "found without sleeping");
    assert_eq!(hal.counters().lost_interrupts, 0);
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    format_queues(&hal);
    let mut wrong = layout();
    wrong.completion.at = BarOffset::new(0x10_0000);
    assert_eq!(kind(&hal.open_mailbox(&wrong).unwrap_err()), ErrorKind::OutOfBounds);
    let mut wrong = layout();
    wrong.completion.size_bytes = 0x500;
    assert_eq!(kind(&hal.open_mailbox(&wrong).unwrap_err()), ErrorKind::Protocol);
    let mut management = layout();
    management.endpoint = Endpoint::Management;
    hal.open_mailbox(&management).unwrap();
}
