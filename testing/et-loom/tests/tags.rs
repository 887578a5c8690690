//! Tags: a response finds its command once, and a tag is not reused while its command is in flight.
#![cfg(loom)]

use et_devapi::msg::Tag;
use et_loom::check;
use et_runtime::handshake::Table;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

#[test]
fn a_response_is_delivered_once_with_its_payload() {
    check("tags-once", None, || {
        let table = Arc::new(Table::<u32>::new(1));
        let wire = Arc::new(AtomicU32::new(0));
        let drains: Vec<_> = (0..2)
            .map(|_| {
                let (table, wire) = (Arc::clone(&table), Arc::clone(&wire));
                thread::spawn(move || {
                    // Relaxed on purpose: the message itself promises nothing about the payload.
                    let tag = wire.load(Ordering::Relaxed);
                    if tag == 0 {
                        return 0;
                    }
                    let payload = table.complete(Tag::new(u16::try_from(tag).unwrap()));
                    payload.inspect(|payload| assert_eq!(*payload, 42)).map_or(0, |_| 1)
                })
            })
            .collect();
        let claim = table.claim().unwrap();
        let tag = claim.tag();
        table.publish(&claim, 42);
        wire.store(u32::from(tag.as_u16()), Ordering::Relaxed);
        let delivered: u32 = drains.into_iter().map(|drain| drain.join().unwrap()).sum();
        let left = u32::from(table.complete(tag).is_some());
        assert_eq!(delivered + left, 1);
    });
}

#[test]
fn a_tag_in_flight_is_not_given_out_again() {
    check("tags-reuse", Some(3), || {
        let table = Arc::new(Table::<u32>::new(2));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let claim = table.claim().unwrap();
                let tag = claim.tag();
                table.publish(&claim, 1);
                (tag, table.complete(tag))
            })
        };
        let first = table.claim().unwrap();
        let tag = first.tag();
        table.publish(&first, 2);
        assert_eq!(table.complete(tag), Some(2));
        // The old tag is dead, whoever has its slot now.
        assert_eq!(table.complete(tag), None);
        let second = table.claim();
        let (other_tag, payload) = other.join().unwrap();
        assert_eq!(payload, Some(1));
        assert_ne!(other_tag, tag);
        if let Some(second) = second {
            assert_ne!(second.tag(), tag);
            assert_ne!(second.tag(), other_tag);
            table.release(second);
        }
        // Both slots are back, and only those.
        let claims = (table.claim().unwrap(), table.claim().unwrap());
        assert_ne!(claims.0.tag(), claims.1.tag());
        assert!(table.claim().is_none());
    });
}
