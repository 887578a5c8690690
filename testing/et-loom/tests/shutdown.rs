//! Shutdown: the drain thread ends, and no completion is lost on the way.
#![cfg(loom)]

use et_loom::check;
use et_runtime::handshake::{Cell, Gate, Table};
use loom::sync::Arc;
use loom::thread;

#[test]
fn closing_ends_the_drain_thread() {
    check("gate-close", None, || {
        let gate = Arc::new(Gate::new());
        let drain = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                while !gate.work().is_closed() {
                    gate.sleep();
                }
            })
        };
        gate.close();
        drain.join().unwrap();
    });
}

#[test]
fn a_response_that_races_with_closing_is_counted_once() {
    check("shutdown", Some(3), || {
        let table = Arc::new(Table::<Arc<Cell<u32>>>::new(2));
        let cell = Arc::new(Cell::new());
        let claim = table.claim().unwrap();
        let tag = claim.tag();
        table.publish(&claim, Arc::clone(&cell));
        // The response arrives while the device is being closed.
        let drain = {
            let table = Arc::clone(&table);
            thread::spawn(move || match table.complete(tag) {
                Some(cell) => cell.set(1).is_some(),
                None => false,
            })
        };
        let mut closed = false;
        table.take_all(|_, cell| closed = cell.set(2).is_some());
        let answered = drain.join().unwrap();
        // Exactly one of them, and the waiter sees which.
        assert!(answered != closed);
        assert_eq!(cell.get(), Some(if answered { 1 } else { 2 }));
        assert!(table.complete(tag).is_none());
    });
}
