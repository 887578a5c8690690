//! Batches, order, back-pressure, and messages that make no sense.

mod common;

use common::{Rig, abort, cm_reset, echo, echo_with_barrier, null_config, until};
use et_devapi::msg::ops::{
    AbortStatus, Body, CmResetStatus, Command, CompatibilityStatus, Completion, EchoStatus,
    FirmwareType, FirmwareVersionStatus, FwErrorType, Version,
};
use et_devapi::msg::{CommandFlags, Header, Tag};
use et_devapi::pci::Vector;
use et_hal::{BarOffset, Mmio, Width};
use zerocopy::IntoBytes;

fn message(id: u16, tag: u16, len: u16) -> Vec<u8> {
    let header = Header::new(len, Tag::new(tag), id, CommandFlags::EMPTY);
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(usize::from(len).max(8), 0);
    bytes
}

#[test]
fn versions_and_echo_are_answered() {
    let mut rig = Rig::new(null_config());
    let mut out = [0; 64];
    let len =
        Command::CheckCompatibility.encode(Tag::new(1), CommandFlags::EMPTY, &mut out).unwrap();
    rig.send(0, &out[..len]);
    assert_eq!(
        rig.next(),
        Completion::new(
            Tag::new(1),
            Body::Compatibility {
                status: CompatibilityStatus::Success,
                version: Version { major: 2, minor: 6, patch: 0 }
            }
        )
    );
    for (firmware, expected) in [
        (FirmwareType::MasterMinion, FirmwareVersionStatus::Success),
        (FirmwareType::MachineMinion, FirmwareVersionStatus::Success),
        (FirmwareType::WorkerMinion, FirmwareVersionStatus::Success),
        (FirmwareType::Unknown(9), FirmwareVersionStatus::BadFirmwareType),
    ] {
        let tag = Tag::new(2);
        let len = Command::FirmwareVersion { firmware }.encode(tag, CommandFlags::EMPTY, &mut out);
        rig.send(1, &out[..len.unwrap()]);
        let Body::FirmwareVersion { status, firmware: echoed, .. } = rig.next().body else {
            panic!("no version");
        };
        assert_eq!((status, echoed), (expected, firmware));
    }
}

#[test]
fn a_batch_shares_its_start_time_and_keeps_its_order() {
    let mut rig = Rig::new(null_config());
    for tag in 0..40 {
        rig.push(0, &echo(tag));
    }
    rig.kick();
    let mut starts = Vec::new();
    for expected in 0..40 {
        let Completion { tag, body: Body::Echo { start, status } } = rig.next() else {
            panic!("no echo")
        };
        assert_eq!((tag, status), (Tag::new(expected), EchoStatus::Success));
        starts.push(start);
    }
    assert!(starts.iter().all(|start| *start == starts[0]));
    rig.send(0, &echo(1));
    let Body::Echo { start, .. } = rig.next().body else { panic!("no echo") };
    assert!(start >= starts[0]);
}

#[test]
fn picking_up_raises_vector_two_and_answering_vector_three() {
    let mut rig = Rig::new(null_config());
    let count = |rig: &Rig, vector| rig.board.interrupts().raised(vector);
    rig.send(0, &echo(1));
    rig.next();
    until("both interrupts", || {
        count(&rig, Vector::OpsSubmission) == 1 && count(&rig, Vector::OpsCompletion) == 1
    });
    assert_eq!(count(&rig, Vector::MgmtSubmission), 0);
    assert_eq!(count(&rig, Vector::MgmtCompletion), 0);
}

#[test]
fn nothing_is_seen_without_a_doorbell() {
    let mut rig = Rig::new(null_config());
    rig.push(0, &echo(1));
    let before = rig.board.counters();
    // A command to the other endpoint makes the firmware go round, but not look.
    rig.board.ring(BarOffset::new(0), Width::W32, 1);
    until("the firmware to sleep", || rig.board.counters().sleeps > before.sleeps);
    assert_eq!(rig.board.counters().commands, 0);
    rig.kick();
    rig.next();
}

#[test]
fn a_full_completion_queue_stalls_and_drops_nothing() {
    let mut rig = Rig::new(null_config());
    let mut sent = 0;
    while sent < 65 {
        rig.push(0, &echo(sent));
        sent += 1;
    }
    rig.kick();
    // 62 responses of 24 bytes fit.
    until("the stall", || rig.board.counters().responses >= 63);
    while sent < 130 {
        rig.push(0, &echo(sent));
        sent += 1;
    }
    rig.kick();
    // Stalled, so not even an abort gets through.
    let board = std::sync::Arc::clone(&rig.board);
    assert_eq!(rig.hp[0].push(board.page(), &abort(0x500)).unwrap(), et_hal::Push::Accepted);
    rig.kick();
    let before = rig.board.counters();
    until("some attempts", || rig.board.counters().sleeps > before.sleeps + 3);
    assert_eq!(rig.board.counters().responses, before.responses);

    let mut seen = Vec::new();
    loop {
        match rig.next() {
            Completion { tag, body: Body::Echo { .. } } => seen.push(tag.as_u16()),
            Completion { body: Body::Abort { status, .. }, .. } => {
                assert_eq!(status, AbortStatus::Success);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, (0..130).collect::<Vec<u16>>());
    rig.assert_quiet();
}

#[test]
fn random_traffic_survives_small_reads() {
    let mut rig = Rig::new(null_config());
    let (mut sent, mut received) = (0_u16, 0_u16);
    while received < 5000 {
        let burst = (sent % 23) + 1;
        for _ in 0..burst {
            if sent < 5000 && rig.try_push(0, &echo(sent)) {
                sent += 1;
            }
        }
        rig.kick();
        for _ in 0..burst {
            if let Some(bytes) = rig.try_bytes() {
                let tag = Completion::parse(&bytes).unwrap().tag;
                assert_eq!(tag, Tag::new(received));
                received += 1;
            }
        }
    }
}

#[test]
fn unknown_commands_are_reported_and_not_answered() {
    let mut rig = Rig::new(null_config());
    for (id, tag) in [(512, 1), (541, 2), (0, 3), (1023, 4), (514, 5)] {
        rig.send(0, &message(id, tag, 16));
        let payload = u64::from(tag);
        let error = FwErrorType::UnsupportedCommand;
        let bytes = rig.bytes();
        assert_eq!(bytes[2..4], [0xff, 0xff]);
        assert_eq!(
            Completion::parse(&bytes),
            Ok(Completion::event(Body::FwError { error, payload })),
            "{id}"
        );
    }
    rig.assert_quiet();
}

#[test]
fn each_queue_takes_its_own_commands_only() {
    let mut rig = Rig::new(null_config());
    let error = FwErrorType::UnsupportedCommand;
    rig.send(0, &abort(0x11));
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 0x11 }));
    rig.send(1, &cm_reset(0x12));
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 0x12 }));
    rig.send_high(0, &echo(0x13));
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 0x13 }));

    rig.send_high(1, &abort(0x14));
    let status = AbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(0x14), Body::Abort { status }));
    rig.send_high(0, &cm_reset(0x15));
    let status = CmResetStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(0x15), Body::CmReset { status }));
    rig.assert_quiet();
}

#[test]
fn impossible_sizes_skip_eight_bytes() {
    let mut rig = Rig::new(null_config());
    // Size 0: the header is skipped, and what follows is parsed.
    let mut batch = message(517, 1, 0);
    batch.extend(echo(2));
    rig.send(0, &batch);
    assert_eq!(rig.next().tag, Tag::new(2));
    // Size 7.
    let mut batch = message(517, 3, 7);
    batch.extend(echo(4));
    rig.send(0, &batch);
    assert_eq!(rig.next().tag, Tag::new(4));
    // Beyond what is there, by more than the eight bytes the test lets through.
    let mut batch = message(517, 5, 64)[..16].to_vec();
    batch.extend(echo(6));
    rig.send(0, &batch);
    assert_eq!(rig.next().tag, Tag::new(6));
    // Beyond what is there by eight bytes: erratum 18.
    rig.send(0, &message(517, 7, 24)[..16]);
    assert_eq!(rig.next().tag, Tag::new(7));
    // Less than a header at the end of a batch.
    let mut batch = echo(8);
    batch.extend([0xff; 5]);
    rig.send(0, &batch);
    assert_eq!(rig.next().tag, Tag::new(8));
    rig.assert_quiet();
}

#[test]
fn messages_of_odd_length_are_parsed_where_they_are() {
    let mut rig = Rig::new(null_config());
    for tag in 0..200 {
        rig.send(0, &message(517, tag, 16 + tag % 9));
        assert_eq!(rig.next().tag, Tag::new(tag));
    }
}

#[test]
fn corrupt_indices_of_the_host_do_no_harm() {
    let mut rig = Rig::new(null_config());
    let submission = rig.layout.ops_mailbox.submission.at;
    let completion = rig.layout.ops_mailbox.completion.at;
    let head = rig.page().load_acquire_u64(submission).unwrap();
    for nonsense in [1056, u64::MAX] {
        let before = rig.board.counters();
        rig.page().store_release_u64(submission, nonsense).unwrap();
        rig.kick();
        until("a look", || rig.board.counters().sleeps > before.sleeps);
    }
    rig.page().store_release_u64(submission, head).unwrap();
    rig.assert_quiet();

    let tail = BarOffset::new(completion.as_u64() + 8);
    let before = rig.page().load_acquire_u64(tail).unwrap();
    rig.page().store_release_u64(tail, u64::MAX).unwrap();
    for tag in 0..50 {
        rig.push(0, &echo(tag));
    }
    rig.kick();
    rig.page().store_release_u64(tail, before).unwrap();
    for tag in 0..50 {
        assert_eq!(rig.next().tag, Tag::new(tag));
    }
}

#[test]
fn barriers_without_outstanding_work_wait_for_nothing() {
    let mut rig = Rig::new(null_config());
    for tag in 0..30 {
        rig.push(1, &echo_with_barrier(tag));
    }
    rig.kick();
    for tag in 0..30 {
        assert_eq!(rig.next().tag, Tag::new(tag));
    }
}

#[test]
fn an_unknown_management_command_is_consumed_without_a_word() {
    let rig = Rig::new(null_config());
    let mailbox = rig.layout.mgmt_mailbox;
    let set = mailbox.submission;
    let ring = et_devapi::ring::Ring::new::<()>(set.at, set.size_bytes).unwrap();
    let mut sq = et_devapi::ring::Producer::attach(ring, rig.page()).unwrap();
    for tag in 0..3 {
        let pushed = sq.push(rig.page(), &message(200, tag, 16)).unwrap();
        assert_eq!(pushed, et_hal::Push::Accepted);
    }
    rig.board.ring(BarOffset::new(0), Width::W32, 1);
    let raised = |vector| rig.board.interrupts().raised(vector);
    until("consumption", || raised(Vector::MgmtSubmission) == 3);
    assert_eq!(raised(Vector::MgmtCompletion), 0);
    assert_eq!(sq.free(rig.page()).unwrap(), ring.max_message());
}
