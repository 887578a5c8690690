//! One card, several clients.

#![expect(clippy::unwrap_used, reason = "tests: a panic is a failure")]

// The same work as on a card of one's own.
mod common {
    pub(crate) use crate::rig::{LONG, load};
}
#[path = "shared/failure.rs"]
mod failure;
#[path = "shared/rig.rs"]
mod rig;
#[path = "../../../et/tests/suite/vfio_user/work.rs"]
mod work;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use et::Error;
use et::status::LaunchStatus;
use et_broker::{BrokerError, BrokerOptions};
use rig::{LONG, PARTITION, Rig, hang};

/// Names the function for the process that is killed.
const VARIABLE: &str = "ET_BROKER_TEST_CLIENT";

#[test]
fn two_clients_compute_at_once_in_their_partitions() {
    let rig = Rig::new(2);
    std::thread::scope(|scope| {
        for slot in 0..2 {
            let rig = &rig;
            scope.spawn(move || {
                let device = rig.client(slot);
                let partition = rig.status(slot).partition;
                let properties = device.properties();
                assert_eq!(properties.global_memory_bytes, PARTITION);
                assert_eq!(properties.global_memory_base.as_u64(), partition.start);
                for _ in 0..3 {
                    work::everything(&device);
                }
            });
        }
    });
    let [a, b] = [0, 1].map(|slot| rig.status(slot));
    assert!(a.partition.end <= b.partition.start || b.partition.end <= a.partition.start);
    assert!(a.launches > 0 && b.launches > 0, "{a:?} {b:?}");
    assert!(a.copied_bytes > 0 && b.copied_bytes > 0, "{a:?} {b:?}");
}

/// The client of the next test; never run for itself.
#[test]
#[ignore = "is run, and killed, by another test"]
fn a_client_to_be_killed() {
    let locator = std::env::var(VARIABLE).unwrap();
    let device = et::open(&locator).unwrap();
    let buffer = device.alloc(PARTITION / 2).unwrap();
    device.default_stream().fill(&buffer, 0xa5).unwrap().wait(LONG).unwrap();
    let event = hang(&device);
    let outcome = event.wait(LONG);
    panic!("it was not killed: {outcome:?}");
}

#[test]
fn a_client_killed_in_a_kernel_leaves_zeros_and_the_others_alone() {
    let rig = Rig::new(2);
    let other = rig.client(1);
    work::saxpy(&other);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_client_to_be_killed", "--ignored", "--nocapture"])
        .env(VARIABLE, rig.locator(0))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = rig.wait(0, |status| status.is_running);
    assert_eq!(status.client.unwrap().pid, child.id());
    // It waits for the cores, as the other's kernel does not end.
    let waiting = rig::start(&other);
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).all(|line| !line.contains("was not killed")));
    waiting.wait(LONG).unwrap();
    work::saxpy(&other);
    // The next client on the slot gets its memory cleared, and no kernel of the one before.
    let next = rig.client(0);
    let buffer = next.alloc(PARTITION - (4 << 20)).unwrap();
    let mut bytes = vec![0xff_u8; 1 << 20];
    for start in (0..buffer.len_bytes()).step_by(bytes.len()) {
        let part = buffer.slice(start..start + bytes.len() as u64).unwrap();
        next.default_stream().read(&part, &mut bytes, LONG).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "something is left at {start:#x}");
    }
    drop(buffer);
    work::everything(&next);
    assert_eq!(rig.status(0).clients, 2);
}

#[test]
fn memory_is_kept_if_that_is_asked_for() {
    let options = BrokerOptions::new(1).memory_bytes(PARTITION).keeps_memory(true);
    let rig = Rig::with(rig::CARD, options);
    let read = |device: &et::Device| {
        let buffer = device.alloc(PARTITION / 2).unwrap();
        let mut byte = [0_u8; 8];
        let part = buffer.slice(PARTITION / 4..PARTITION / 4 + 8).unwrap();
        device.default_stream().read(&part, &mut byte, LONG).unwrap();
        (buffer, byte)
    };
    let first = rig.client(0);
    let (buffer, _) = read(&first);
    first.default_stream().fill(&buffer, 0x77).unwrap().wait(LONG).unwrap();
    drop(buffer);
    first.close();
    rig.wait(0, |status| status.client.is_none());
    assert_eq!(read(&rig.client(0)).1, [0x77; 8]);
}

#[test]
fn an_abort_and_a_reset_concern_the_own_work_only() {
    let rig = Rig::new(2);
    let (mut first, second) = (rig.client(0), rig.client(1));
    let event = hang(&first);
    rig.wait(0, |status| status.is_running);
    let waiting = rig::start(&second);
    rig.wait(1, |status| status.waiting != 0);
    first.abort(&event, LONG).unwrap();
    let outcome = event.outcome();
    let Some(Err(Error::Launch(failure))) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.status, LaunchStatus::HostAborted);
    assert!(!failure.contexts.is_empty(), "the card says where the harts were");
    waiting.wait(LONG).unwrap();

    let _lost = hang(&first);
    rig.wait(0, |status| status.is_running);
    let waiting = rig::start(&second);
    first.reset(LONG).unwrap();
    waiting.wait(LONG).unwrap();
    work::everything(&first);
    work::everything(&second);

    // Compute resets and resets of the operations firmware are the function's own, too.
    let _lost = hang(&first);
    rig.wait(0, |status| status.is_running);
    let waiting = rig::start(&second);
    first.reset_operations(LONG).unwrap();
    waiting.wait(LONG).unwrap();
    work::everything(&first);
    work::everything(&second);
    assert_eq!(rig.broker.status().failures, 0);
}

#[test]
fn a_kernel_that_runs_too_long_is_ended() {
    let options = BrokerOptions::new(2).memory_bytes(PARTITION);
    let rig = Rig::with(rig::CARD, options.kernel_limit(Duration::from_millis(200)));
    let (first, second) = (rig.client(0), rig.client(1));
    let event = hang(&first);
    rig.wait(0, |status| status.is_running);
    work::saxpy(&second);
    let outcome = event.wait(LONG);
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!((rig.status(0).overdue, rig.status(1).overdue), (1, 0));
    work::saxpy(&first);
}

#[test]
fn what_would_change_the_card_for_others_is_refused() {
    let rig = Rig::new(2);
    let device = rig.client(0);
    let management = device.management().unwrap();
    // Who asks is answered by the card.
    let serial = management.serial_number().unwrap();
    assert_eq!(serial, "SIM0000001");
    assert!(management.temperatures().is_ok());
    let before = format!("{:?}", management.frequencies().unwrap());
    let id = et_devapi::msg::mgmt::calls::SET_FREQUENCY.id;
    let answer = management.forward(id, &[0; 16], "set frequency").unwrap();
    assert_ne!(answer.status, 0);
    assert_eq!(format!("{:?}", management.frequencies().unwrap()), before);
    work::saxpy(&device);
}

#[test]
fn partitions_that_do_not_fit_are_refused() {
    let start = |options| {
        let device = et::open(&format!("sim:{}", rig::CARD)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        et_broker::Broker::start(device, folder.path(), &options).map(drop)
    };
    let too_large = start(BrokerOptions::new(2).memory_bytes(300 << 20));
    assert!(matches!(too_large, Err(BrokerError::Memory { clients: 2, .. })), "{too_large:?}");
    let none = start(BrokerOptions::new(0));
    assert!(matches!(none, Err(BrokerError::Clients { asked: 0, .. })), "{none:?}");
    start(BrokerOptions::new(3)).unwrap();
}
