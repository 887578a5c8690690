//! The values behind the handles of the C interface: a value is looked at while it is there, is
//! dropped once, and its place is used again by one other.
#![cfg(loom)]

#[path = "../../../bindings/et-capi/src/slots.rs"]
mod slots;

use et_loom::check;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use slots::{Key, LAST_GENERATION, Slots};

/// Counts in the digits of a number which values were dropped.
struct Value {
    number: u32,
    dropped: Arc<AtomicU32>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.dropped.fetch_add(self.number, Ordering::Relaxed);
    }
}

struct Table {
    slots: Slots<Value>,
    dropped: Arc<AtomicU32>,
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self { slots: Slots::new(), dropped: Arc::new(AtomicU32::new(0)) })
    }

    fn insert(&self, number: u32) -> Key {
        let key = self.slots.insert(Value { number, dropped: Arc::clone(&self.dropped) }).unwrap();
        assert!(key.generation <= LAST_GENERATION);
        key
    }

    fn get(&self, key: Key) -> Option<u32> {
        self.slots.get(key).map(|value| value.number)
    }
}

/// Two free a handle and one of them makes another, while a third looks at both.
#[test]
fn a_value_is_there_until_the_last_one_has_left() {
    check("handles", Some(3), || {
        let table = Table::new();
        let first = table.insert(1);
        let next = Key { index: first.index, generation: first.generation + 1 };
        let looks = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if let Some(number) = table.get(next) {
                    assert_eq!(number, 10, "another value");
                    assert_eq!(table.get(first), None, "it had been removed");
                }
                if let Some(number) = table.get(first) {
                    assert_eq!(number, 1, "another value");
                }
            })
        };
        let removes = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.slots.remove(first).is_some())
        };
        let was_here = table.slots.remove(first).is_some();
        let second = table.insert(10);
        assert!(removes.join().unwrap() != was_here, "it is removed once");
        looks.join().unwrap();
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(10));
        assert_eq!(table.dropped.load(Ordering::Relaxed), 1);
        table.slots.remove(second).unwrap();
        assert_eq!(table.dropped.load(Ordering::Relaxed), 11);
    });
}

/// One takes a free place while another takes two and gives the first of them back.
#[test]
fn a_free_place_is_given_to_one() {
    check("handles-free", None, || {
        let table = Table::new();
        let (first, second) = (table.insert(1), table.insert(2));
        table.slots.remove(second).unwrap();
        table.slots.remove(first).unwrap();
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let (gone, stays) = (table.insert(10), table.insert(20));
                table.slots.remove(gone).unwrap();
                assert_eq!(table.get(gone), None);
                stays
            })
        };
        let (one, two) = (table.insert(100), table.insert(200));
        let stays = other.join().unwrap();
        assert_eq!(
            (table.get(one), table.get(two), table.get(stays)),
            (Some(100), Some(200), Some(20))
        );
        assert_eq!(table.dropped.load(Ordering::Relaxed), 13);
    });
}
