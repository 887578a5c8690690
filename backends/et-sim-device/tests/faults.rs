//! Each hostile mode does what it says, and only that.

mod common;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use common::{Rig, abort, echo, kernel_abort, null_config, until};
use et_devapi::msg::ops::{AbortStatus, Body, Completion, EchoStatus, KernelAbortStatus};
use et_devapi::msg::{Tag, completion_bytes};
use et_devapi::pci::Vector;
use et_devapi::ring::RingError;
use et_hal::{Endpoint, Pop};
use et_sim_device::{Answered, Fault, Link};

fn rig(faults: Vec<Fault>) -> Rig {
    let mut config = null_config();
    config.faults = faults;
    config.seed = 42;
    Rig::new(config)
}

fn tags(rig: &mut Rig, count: usize) -> Vec<u16> {
    (0..count).map(|_| rig.next().tag.as_u16()).collect()
}

fn send_echoes(rig: &mut Rig, count: u16) {
    for tag in 1..=count {
        rig.push(0, &echo(tag));
    }
    rig.kick();
}

#[test]
fn noise_is_in_flags_and_padding_only() {
    let answers = |faults| {
        let mut rig = rig(faults);
        send_echoes(&mut rig, 20);
        (0..20).map(|_| rig.bytes()).collect::<Vec<_>>()
    };
    let noisy = answers(vec![Fault::Noise]);
    let quiet = answers(vec![]);
    assert!(noisy.iter().any(|bytes| bytes[6..8] != [0, 0]));
    assert!(noisy.iter().any(|bytes| bytes[20..24] != [0; 4]));
    for (noisy, quiet) in noisy.iter().zip(&quiet) {
        assert_eq!((&noisy[..6], &noisy[16..20]), (&quiet[..6], &quiet[16..20]));
        let status = EchoStatus::Success;
        assert!(
            matches!(Completion::parse(noisy), Ok(Completion { body: Body::Echo { status: s, .. }, .. }) if s == status)
        );
    }
    let again = answers(vec![Fault::Noise]);
    let noise = |all: &[Vec<u8>]| all.iter().map(|b| b[20..24].to_vec()).collect::<Vec<_>>();
    assert_eq!(noise(&noisy), noise(&again), "the seed decides");
}

#[test]
fn responses_can_be_dropped_and_doubled() {
    let mut rig = rig(vec![Fault::DropResponse { nth: 2 }, Fault::DuplicateResponse { nth: 4 }]);
    send_echoes(&mut rig, 5);
    assert_eq!(tags(&mut rig, 5), [1, 3, 4, 4, 5]);
    rig.assert_quiet();
}

#[test]
fn an_answer_can_have_any_status() {
    let nth = NonZeroU32::new(2).unwrap();
    let mut rig = rig(vec![
        Fault::Answer { to: Answered::Echo, nth, status: 1 },
        Fault::Answer { to: Answered::KernelAbort, nth: NonZeroU32::MIN, status: 3 },
        Fault::Answer { to: Answered::Abort, nth: NonZeroU32::MIN, status: 77 },
    ]);
    send_echoes(&mut rig, 3);
    rig.send(0, &kernel_abort(4, 9));
    let bodies: Vec<_> = (0..4).map(|_| rig.next().body).collect();
    let echoes: Vec<_> = bodies[..3]
        .iter()
        .map(|body| match body {
            Body::Echo { status, .. } => *status,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(echoes, [EchoStatus::Success, EchoStatus::HostAborted, EchoStatus::Success]);
    assert_eq!(bodies[3], Body::KernelAbort { status: KernelAbortStatus::TimeoutHang });
    rig.send_high(0, &abort(5));
    assert_eq!(rig.next().body, Body::Abort { status: AbortStatus::Unknown(77) });
    rig.assert_quiet();
}

#[test]
fn a_stranger_can_be_answered() {
    let mut rig = rig(vec![Fault::UnknownTag { nth: 2, tag: 0x4321 }]);
    send_echoes(&mut rig, 3);
    assert_eq!(tags(&mut rig, 4), [1, 0x4321, 2, 3]);
    rig.assert_quiet();
}

#[test]
fn responses_can_be_late_but_stay_in_order() {
    let by = Duration::from_millis(30);
    let mut rig = rig(vec![Fault::DelayResponses { by }]);
    let started = Instant::now();
    send_echoes(&mut rig, 3);
    assert_eq!(tags(&mut rig, 3), [1, 2, 3]);
    assert!(started.elapsed() >= by);
    // Late is not stalled: an abort meanwhile is executed, and late as well.
    send_echoes(&mut rig, 1);
    rig.send_high(0, &abort(9));
    assert_eq!(tags(&mut rig, 2), [1, 9]);
}

#[test]
fn a_message_can_come_in_two_pieces() {
    let delay = Duration::from_millis(200);
    let mut rig = rig(vec![Fault::PartialMessage { nth: 1, bytes: 12, delay }]);
    send_echoes(&mut rig, 2);
    let board = std::sync::Arc::clone(&rig.board);
    let mut seen_half = false;
    until("both messages", || {
        seen_half |= rig.cq.used(board.page()).unwrap() == 12;
        rig.cq.used(board.page()).unwrap() >= 48
    });
    assert!(seen_half);
    assert_eq!(tags(&mut rig, 2), [1, 2]);
}

#[test]
fn the_index_can_be_corrupted_for_good() {
    let mut rig = rig(vec![Fault::BadIndex { nth: 2, head: 5000 }]);
    send_echoes(&mut rig, 4);
    let completion = rig.layout.ops_mailbox.completion.at;
    until("the corruption", || et_hal::Mmio::load_acquire_u64(rig.page(), completion) == Ok(5000));
    let mut buffer = [0; 64];
    let board = std::sync::Arc::clone(&rig.board);
    let frame = |header: &_| completion_bytes(Endpoint::Operations, header);
    let popped = rig.cq.used(board.page());
    assert_eq!(popped, Err(RingError::CorruptIndex { index: 5000, length: 1504 }));
    let popped = rig.cq.pop_message(board.page(), frame, &mut buffer);
    assert!(!matches!(popped, Ok(Pop::Message(_))));
}

#[test]
fn garbage_takes_the_place_of_a_response() {
    let mut rig = rig(vec![Fault::Garbage { nth: 1 }]);
    send_echoes(&mut rig, 1);
    let board = std::sync::Arc::clone(&rig.board);
    until("the garbage", || rig.cq.used(board.page()).unwrap() == 24);
    let mut bytes = [0; 24];
    rig.cq.peek(board.page(), 0, &mut bytes).unwrap();
    let expected =
        Completion::new(Tag::new(1), Body::Echo { start: 0, status: EchoStatus::Success });
    let mut clean = [0; 24];
    expected.encode(&mut clean).unwrap();
    assert_ne!(bytes[..8], clean[..8]);
}

#[test]
fn a_hanging_firmware_answers_nothing_more() {
    let mut rig = rig(vec![Fault::Hang { after: 2 }]);
    send_echoes(&mut rig, 4);
    assert_eq!(tags(&mut rig, 2), [1, 2]);
    let before = rig.board.counters();
    rig.send_high(0, &abort(9));
    until("the firmware to sleep", || rig.board.counters().sleeps > before.sleeps);
    assert_eq!(rig.board.counters().commands, 2);
    assert_eq!(rig.try_bytes(), None);
    // A reset helps, until the fault strikes again.
    let board = std::sync::Arc::clone(&rig.board);
    board.begin_reset(et_sim_device::MemoryAfterReset::Kept).unwrap();
    until("the reset", || !board.resetting());
    let mut rig = Rig::attach(board);
    send_echoes(&mut rig, 1);
    assert_eq!(tags(&mut rig, 1), [1]);
}

#[test]
fn interrupts_can_be_lost_and_come_for_nothing() {
    let one = NonZeroU32::MIN;
    let mut lossy = rig(vec![Fault::LostInterrupts { every: one }]);
    send_echoes(&mut lossy, 10);
    tags(&mut lossy, 10);
    assert_eq!(lossy.board.interrupts().raised(Vector::OpsCompletion), 0);

    let mut noisy = rig(vec![Fault::SpuriousInterrupts { every: one }]);
    send_echoes(&mut noisy, 1);
    tags(&mut noisy, 1);
    let raised = |vector| noisy.board.interrupts().raised(vector);
    until("interrupts of the other endpoint", || raised(Vector::MgmtCompletion) != 0);
}

#[test]
fn the_link_is_lost_after_so_many_accesses() {
    let rig = rig(vec![Fault::LinkLoss { after: 3 }]);
    let generation = rig.board.generation();
    let seen: Vec<_> = (0..6).map(|_| rig.board.link(generation)).collect();
    assert_eq!(seen, [Link::Up, Link::Up, Link::Up, Link::Down, Link::Down, Link::Down]);
}

#[test]
fn faults_can_be_injected_and_count_from_then_on() {
    let mut rig = rig(vec![]);
    send_echoes(&mut rig, 3);
    assert_eq!(tags(&mut rig, 3), [1, 2, 3]);
    rig.board.inject(Fault::DropResponse { nth: 2 });
    send_echoes(&mut rig, 3);
    assert_eq!(tags(&mut rig, 2), [1, 3]);
    rig.board.inject(Fault::DuplicateResponse { nth: 1 });
    send_echoes(&mut rig, 2);
    assert_eq!(tags(&mut rig, 3), [1, 1, 2]);
    rig.assert_quiet();
    let before = rig.board.counters();
    rig.board.inject(Fault::Hang { after: 1 });
    send_echoes(&mut rig, 2);
    assert_eq!(tags(&mut rig, 1), [1]);
    until("the firmware to sleep", || rig.board.counters().sleeps > before.sleeps);
    assert_eq!((rig.try_bytes(), rig.board.counters().commands - before.commands), (None, 1));
}

#[test]
fn an_injected_loss_of_the_link_counts_accesses() {
    let rig = rig(vec![]);
    let board = &rig.board;
    board.inject(Fault::LinkLoss { after: 2 });
    let of = board.generation();
    assert_eq!([board.link(of), board.link(of), board.link(of)], [Link::Up, Link::Up, Link::Down]);
}
