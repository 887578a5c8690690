//! Interrupts, lost interrupts, requests and errors.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use et_devapi::pci::Vector;
use et_hal::{Endpoint, ErrorKind, Hal, LossReason, Mailbox, ResetScope, Wake};

use super::{LONG, format_queues, kernel, kind, layout, open, open_with, options, poke, reset};
use crate::sys::fake::Fake;
use crate::{VfioError, VfioHal, VfioMailbox};

const MSI: u32 = 1;
const ERR: u32 = 3;
const REQ: u32 = 4;

fn opened(fake: &Arc<Fake>) -> (VfioHal, VfioMailbox) {
    let hal = open(fake, "group").unwrap();
    format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    (hal, mailbox)
}

#[test]
fn an_interrupt_ends_a_wait() {
    let fake = kernel("group");
    let (hal, mailbox) = opened(&fake);
    for vector in [Vector::OpsSubmission, Vector::OpsCompletion] {
        let ticket = mailbox.ticket();
        fake.interrupt(MSI, vector as usize);
        assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
        assert_ne!(mailbox.ticket(), ticket);
        // A ticket of before is served at once.
        assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
        // The interrupt was used up.
        assert_eq!(mailbox.wait(mailbox.ticket(), Duration::ZERO).unwrap(), Wake::TimedOut);
    }
    assert_eq!(hal.counters().lost_interrupts, 0);
}

#[test]
fn endpoints_hear_only_their_own() {
    let fake = kernel("group");
    let (hal, operations) = opened(&fake);
    let mut layout = layout();
    layout.endpoint = Endpoint::Management;
    let management = hal.open_mailbox(&layout).unwrap();
    let (one, other) = (operations.ticket(), management.ticket());
    fake.interrupt(MSI, Vector::MgmtCompletion as usize);
    assert_eq!(operations.wait(one, Duration::ZERO).unwrap(), Wake::TimedOut);
    assert_eq!(management.wait(other, LONG).unwrap(), Wake::Notified);
}

#[test]
fn every_waiter_is_woken() {
    let fake = kernel("group");
    let (_hal, mailbox) = opened(&fake);
    let ready = Barrier::new(4);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let ticket = mailbox.ticket();
                ready.wait();
                assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
            });
        }
        ready.wait();
        mailbox.wake();
    });
    assert!(begin.elapsed() < LONG, "no waiter was left to its timeout");
}

/// Sleeps that a wait of `timeout` is made of.
fn sleeps(fake: &Fake, mailbox: &VfioMailbox, timeout: Duration) -> usize {
    let polls = || fake.with(|state| state.log.iter().filter(|call| *call == "poll").count());
    let before = polls();
    assert_eq!(mailbox.wait(mailbox.ticket(), timeout).unwrap(), Wake::TimedOut);
    polls() - before
}

#[test]
fn a_late_interrupt_is_not_lost_and_ends_the_frequent_looks() {
    let fake = kernel("group");
    let (hal, mailbox) = opened(&fake);
    let shorter_than_a_look = Duration::from_millis(50);
    assert!(sleeps(&fake, &mailbox, shorter_than_a_look) <= 2);
    // The firmware moves the head, and no interrupt comes: the messages are found nevertheless.
    poke(&fake, 2, 0xa00, &16_u64.to_le_bytes());
    assert_eq!(mailbox.wait(mailbox.ticket(), LONG).unwrap(), Wake::Notified);
    poke(&fake, 2, 0xa08, &16_u64.to_le_bytes());
    assert!(sleeps(&fake, &mailbox, shorter_than_a_look) > 2, "looks more often meanwhile");
    // A caller that wakes the wait is no interrupt.
    mailbox.wake();
    assert_eq!(mailbox.wait(mailbox.ticket(), LONG).unwrap(), Wake::Notified);
    assert!(sleeps(&fake, &mailbox, shorter_than_a_look) > 2);
    // Here it comes.
    fake.interrupt(MSI, Vector::OpsCompletion as usize);
    assert_eq!(mailbox.wait(mailbox.ticket(), LONG).unwrap(), Wake::Notified);
    assert!(sleeps(&fake, &mailbox, shorter_than_a_look) <= 2, "back to normal");
    assert_eq!(hal.counters().lost_interrupts, 0);
}

#[test]
fn a_lost_interrupt_delays_but_does_not_hang() {
    let fake = kernel("group");
    let patience = options().interrupt_patience(Duration::ZERO);
    let hal = open_with(&fake, "group", &patience).unwrap();
    format_queues(&hal);
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    let ticket = mailbox.ticket();
    poke(&fake, 2, 0xa00, &16_u64.to_le_bytes());
    assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
    assert_eq!(hal.counters().lost_interrupts, 1);
    assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
    assert_eq!(hal.counters().lost_interrupts, 1, "told once");
}

#[test]
fn waits_end_by_their_timeout() {
    let fake = kernel("group");
    let (_hal, mailbox) = opened(&fake);
    let begin = Instant::now();
    let waited = mailbox.wait(mailbox.ticket(), Duration::from_millis(30)).unwrap();
    assert_eq!(waited, Wake::TimedOut);
    assert!(begin.elapsed() >= Duration::from_millis(30));
    // A wait for room is not kept for ever by silence: it returns now and then.
    assert_eq!(mailbox.wait(mailbox.ticket(), Duration::MAX).unwrap(), Wake::Notified);
}

#[test]
fn fewer_vectors_are_shared() {
    for (have, claimed) in [(1, 4), (2, 4), (3, 4), (0, 4), (1, 1), (0, 0)] {
        let fake = kernel("group");
        fake.with(|state| {
            state.card.vectors.insert(MSI, have);
            state.card.claimed_vectors.insert(MSI, claimed);
        });
        let (hal, mailbox) = opened(&fake);
        let enabled = fake.with(|state| state.card.irqs.get(&MSI).map_or(0, Vec::len));
        assert_eq!(enabled, have as usize);
        assert_eq!(hal.facts().unwrap().vectors, have as usize);
        if have > 0 {
            // Vector 0 belongs to the other endpoint, but with few vectors anything wakes
            // everybody.
            let ticket = mailbox.ticket();
            fake.interrupt(MSI, 0);
            assert_eq!(mailbox.wait(ticket, LONG).unwrap(), Wake::Notified);
        }
        // And waits do not rely on it.
        poke(&fake, 2, 0xa00, &16_u64.to_le_bytes());
        assert_eq!(mailbox.wait(mailbox.ticket(), LONG).unwrap(), Wake::Notified);
        assert_eq!(hal.counters().lost_interrupts, 0, "none was expected");
    }
}

#[test]
fn the_wiring_can_be_tested_without_the_device() {
    for (have, expected) in [(4, 4), (2, 2), (0, 0)] {
        let fake = kernel("cdev");
        fake.with(|state| state.card.vectors.insert(MSI, have));
        let hal = open(&fake, "cdev").unwrap();
        let tests = hal.test_interrupts(LONG).unwrap();
        assert_eq!(tests.len(), expected);
        assert!(tests.iter().all(|test| test.arrived));
        assert!(tests.iter().zip(Vector::ALL).all(|(test, vector)| test.vector == vector));
    }
    // A wire that is cut is seen: the kernel accepts the trigger and nothing arrives.
    let fake = kernel("cdev");
    let hal = open(&fake, "cdev").unwrap();
    fake.with(|state| {
        let fds = state.card.irqs.get_mut(&MSI).unwrap();
        fds[2] = fds[0];
    });
    let tests = hal.test_interrupts(Duration::from_millis(20)).unwrap();
    let arrived: Vec<_> = tests.iter().map(|test| test.arrived).collect();
    assert_eq!(arrived, [true, true, false, true]);
}

#[test]
fn a_request_for_the_device_loses_it() {
    let fake = kernel("group");
    let (hal, mailbox) = opened(&fake);
    fake.interrupt(REQ, 0);
    let error = mailbox.wait(mailbox.ticket(), LONG).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::Removed));
    assert!(error.to_string().contains("drop all handles"), "{error}");
    let error = mailbox.kick().unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::Removed));
    // A device that is wanted back cannot be revived.
    let error = reset(&hal, ResetScope::Function).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::Removed));
    drop(mailbox);
    hal.close().unwrap();
    fake.assert_clean("after a removal request");
}

/// Work that never has to wait must not hide that the device is wanted back.
#[test]
fn alarms_are_noticed_without_a_wait() {
    let kick: fn(&VfioMailbox) -> Result<(), VfioError> = Mailbox::kick;
    let pop = |mailbox: &VfioMailbox| mailbox.pop(&mut [0; 64]).map(drop);
    for (alarm, use_it) in [(REQ, kick), (ERR, pop)] {
        let fake = kernel("group");
        let (_hal, mailbox) = opened(&fake);
        for look in 1..=3 {
            fake.with(|state| state.time += Duration::from_millis(100));
            for _ in 0..10 {
                use_it(&mailbox).unwrap();
            }
            let polls = fake.with(|state| state.log.iter().filter(|call| *call == "poll").count());
            assert_eq!(polls, look, "one look for a time");
        }
        fake.interrupt(alarm, 0);
        fake.with(|state| state.time += Duration::from_millis(100));
        let error = use_it(&mailbox).unwrap_err();
        assert!(matches!(kind(&error), ErrorKind::Lost(_)), "{error}");
    }
}

#[test]
fn an_error_of_the_bus_is_answered_by_a_reset() {
    let fake = kernel("group");
    let (hal, mailbox) = opened(&fake);
    fake.interrupt(ERR, 0);
    let error = mailbox.wait(mailbox.ticket(), LONG).unwrap_err();
    assert!(matches!(kind(&error), ErrorKind::Lost(_)));
    assert!(error.to_string().contains("uncorrectable"), "{error}");
    reset(&hal, ResetScope::Function).unwrap();
    let mailbox = hal.open_mailbox(&layout()).unwrap();
    // The reset itself woke everybody, which the first wait may still hear.
    let _ = mailbox.wait(mailbox.ticket(), Duration::ZERO).unwrap();
    let waited = mailbox.wait(mailbox.ticket(), Duration::from_millis(1)).unwrap();
    assert_eq!(waited, Wake::TimedOut, "the old error is forgotten");
}

#[test]
fn kernels_without_error_and_request_interrupts_are_fine() {
    let fake = kernel("group");
    fake.with(|state| {
        state.card.claimed_vectors.remove(&ERR);
        state.card.claimed_vectors.remove(&REQ);
    });
    let hal = open(&fake, "group").unwrap();
    assert_eq!(fake.with(|state| state.card.irqs.keys().copied().collect::<Vec<_>>()), [MSI]);
    hal.close().unwrap();
    fake.assert_clean("after close");
}
