//! The management interface, as far as this crate knows it: the framing of every message.

use std::collections::BTreeMap;

use et_devapi::msg::{FramingError, Header, Tag, command_bytes, completion_bytes};
use et_hal::Endpoint;
use et_testkit::golden::{File, vectors};
use zerocopy::FromBytes;

#[test]
fn every_message_is_framed() {
    let mut examples = BTreeMap::<_, usize>::new();
    for vector in vectors(File::Mgmt) {
        for example in &vector.examples {
            let what = format!("{}: {}", vector.name, example.label);
            let count = examples.entry(vector.direction.clone()).or_default();
            *count += 1;
            let header = || Header::read_from_prefix(&example.bytes).unwrap().0;
            match vector.direction.as_deref() {
                // A structure inside messages; it has no header.
                None => {}
                Some("host_to_device") => {
                    assert_eq!(command_bytes(&header()), Ok(example.bytes.len()), "{what}");
                }
                Some("device_to_host") => {
                    let bytes = completion_bytes(Endpoint::Management, &header());
                    assert_eq!(bytes, Ok(example.bytes.len()), "{what}");
                }
                other => panic!("{what}: direction {other:?}"),
            }
        }
    }
    assert_eq!(examples.values().sum::<usize>(), 153);
    assert!(examples[&Some("host_to_device".into())] > 50, "{examples:?}");
    assert!(examples[&Some("device_to_host".into())] > 50, "{examples:?}");
}

#[test]
fn both_meanings_of_an_events_size_occur() {
    let vectors = vectors(File::Mgmt);
    let events = vectors.iter().find(|vector| vector.name == "event_message_t").unwrap();
    let found: Vec<_> = events
        .examples
        .iter()
        .map(|example| {
            let header = Header::read_from_prefix(&example.bytes).unwrap().0;
            (header.msg_id.get(), header.size.get(), example.bytes.len())
        })
        .collect();
    assert_eq!(found, [(258, 32, 32), (512, 24, 32)]);
}

#[test]
fn the_range_of_self_counting_events_has_sharp_ends() {
    let bytes = |id, size| {
        let header = Header::new(size, Tag::new(0), id, et_devapi::msg::CommandFlags::EMPTY);
        completion_bytes(Endpoint::Management, &header)
    };
    for id in 256..=511 {
        assert_eq!(bytes(id, 32), Ok(32), "{id}");
        assert_eq!(bytes(id, 8), Ok(8), "{id}");
        for size in 0..8 {
            assert_eq!(bytes(id, size), Err(FramingError { size, msg_id: id }));
        }
    }
    for id in [0, 64, 192, 255, 512, 513, u16::MAX] {
        assert_eq!(bytes(id, 24), Ok(32), "{id}");
        assert_eq!(bytes(id, 1), Ok(9), "{id}");
        assert_eq!(bytes(id, u16::MAX), Ok(65_543), "{id}");
        assert_eq!(bytes(id, 0), Err(FramingError { size: 0, msg_id: id }));
    }
}
