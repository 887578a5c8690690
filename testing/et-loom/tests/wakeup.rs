//! Wake-ups: nobody sleeps on work that is there.
#![cfg(loom)]

use std::collections::VecDeque;

use et_loom::check;
use et_runtime::handshake::{Cell, Gate, Leader, Parker};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[test]
fn the_drain_thread_does_not_sleep_on_a_command_in_flight() {
    check("gate-wake", None, || {
        let gate = Arc::new(Gate::new());
        let drain = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                while gate.work().in_flight() == 0 {
                    gate.sleep();
                }
                gate.leave();
            })
        };
        gate.enter();
        drain.join().unwrap();
        assert_eq!(gate.work().in_flight(), 0);
    });
}

#[test]
fn every_waiter_sees_the_result() {
    check("cell", Some(3), || {
        let cell = Arc::new(Cell::<u32>::new());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let cell = Arc::clone(&cell);
                thread::spawn(move || {
                    let parker = Arc::new(Parker::new());
                    if cell.subscribe(&parker) {
                        parker.park();
                    }
                    assert!(cell.is_done());
                    assert_eq!(cell.get(), Some(7));
                })
            })
            .collect();
        if let Some(callbacks) = cell.set(7) {
            callbacks.run();
        }
        assert!(cell.set(8).is_none());
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// A completion queue whose arrival wakes whoever drains it.
struct Mailbox {
    arrived: Mutex<VecDeque<usize>>,
    bell: Parker,
}

/// Waits as the runtime does: lead if possible, else follow.
fn wait(leader: &Leader<()>, mailbox: &Mailbox, cells: &[Cell<u32>; 2], own: usize) {
    let parker = Arc::new(Parker::new());
    if !cells[own].subscribe(&parker) {
        return;
    }
    while !cells[own].is_done() {
        let Some(lead) = leader.lead().or_else(|| leader.follow(&parker)) else {
            parker.park();
            continue;
        };
        let mut taken = 0;
        while let Some(cell) = mailbox.arrived.lock().unwrap().pop_front() {
            taken += 1;
            if let Some(callbacks) = cells[cell].set(1) {
                callbacks.run();
            }
        }
        if taken == 0 && !cells[own].is_done() {
            mailbox.bell.park();
        }
        drop(lead);
    }
    leader.resign(&parker);
}

#[test]
fn while_somebody_waits_somebody_drains() {
    check("leader", Some(2), || {
        let leader = Arc::new(Leader::new(()));
        let mailbox =
            Arc::new(Mailbox { arrived: Mutex::new(VecDeque::new()), bell: Parker::new() });
        let cells = Arc::new([Cell::<u32>::new(), Cell::<u32>::new()]);
        let waiters: Vec<_> = (0..2)
            .map(|own| {
                let (leader, mailbox, cells) =
                    (Arc::clone(&leader), Arc::clone(&mailbox), Arc::clone(&cells));
                thread::spawn(move || wait(&leader, &mailbox, &cells, own))
            })
            .collect();
        for cell in 0..2 {
            mailbox.arrived.lock().unwrap().push_back(cell);
            mailbox.bell.unpark();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}
