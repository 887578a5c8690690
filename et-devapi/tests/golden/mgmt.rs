//! The management interface: framing, payloads, commands.

#[path = "mgmt_messages.rs"]
mod messages;

use std::collections::{BTreeMap, BTreeSet};

use et_devapi::msg::mgmt::calls::COMMANDS;
use et_devapi::msg::mgmt::{
    BreakpointEvent, Event, EventClass, EventDetail, EventId, FrameError, Message, Response,
    ResponseExt, command_info, encode_command, parse_command,
};
use et_devapi::msg::{FramingError, HEADER_BYTES, Header, Tag, command_bytes, completion_bytes};
use et_hal::Endpoint;
use et_testkit::golden::{Example, File, Value, Vector, json, vectors};
use zerocopy::FromBytes;

use crate::layout::{Layout, check};

/// Header and extension of a response.
const RESPONSE_BYTES: usize = HEADER_BYTES + size_of::<ResponseExt>();
/// The header of responses, whose parts `cmn_header_t` and `dev_mgmt_rsp_hdr_extn_t` are checked.
const COMPOSED: &str = "dev_mgmt_rsp_header_t";
/// The one response without an extension; firmware never sends it.
const BARE: &str = "mdi_write_gpr_rsp_t";

/// Payload fields of a message, named as in the structure they come from.
fn payload_fields(vector: &Vector, start: usize) -> Vec<(String, usize, usize)> {
    let fields = vector.fields.iter().filter(|field| field.offset >= start);
    let last = |name: &str| name.rsplit('.').next().unwrap().to_owned();
    fields.map(|field| (last(&field.name), field.offset - start, field.size)).collect()
}

fn payload_values(vector: &Vector, start: usize, example: &Example) -> Vec<Value> {
    let fields = vector.fields.iter().filter(|field| field.offset >= start);
    fields.map(|field| example.values[&field.name].clone()).collect()
}

/// Checks the payload of an example both ways; returns the bytes of the fields.
fn check_payload(vector: &Vector, layout: &Layout, start: usize, example: &Example) -> Vec<u8> {
    let what = format!("{}: {}", vector.name, example.label);
    assert_eq!(layout.fields, payload_fields(vector, start), "{what}");
    assert_eq!((start + layout.size).next_multiple_of(8), vector.size, "{what}");
    let expected = payload_values(vector, start, example);
    assert_eq!((layout.decode)(&example.bytes[start..]), expected, "{what}");
    (layout.encode)(&expected)
}

fn check_command(vector: &Vector, layout: &Layout, example: &Example) {
    let what = format!("{}: {}", vector.name, example.label);
    let (header, payload) = parse_command(&example.bytes).unwrap();
    let id = example.int("header.msg_id");
    assert_eq!(header.tag().as_u16(), example.int::<u16>("header.tag_id"), "{what}");
    assert_eq!(header.msg_id.get(), id, "{what}");
    assert_eq!(payload, &example.bytes[HEADER_BYTES..], "{what}");
    let payload = check_payload(vector, layout, HEADER_BYTES, example);
    let mut out = [0xaa; 512];
    let len = encode_command(id, header.tag(), &payload, &mut out).unwrap();
    assert_eq!(out[..len], example.bytes, "{what}");
}

fn check_response(vector: &Vector, layout: &Layout, example: &Example) {
    let what = format!("{}: {}", vector.name, example.label);
    let Message::Response(response) = Message::parse(&example.bytes).unwrap() else {
        panic!("{what} is no response")
    };
    assert_eq!(response.tag.as_u16(), example.int::<u16>("header.tag_id"), "{what}");
    assert_eq!(response.id, example.int::<u16>("header.msg_id"), "{what}");
    assert_eq!(response.latency_us, example.number("ext.device_latency_usec"), "{what}");
    let status = example.int::<u32>("ext.status").cast_signed();
    assert_eq!(response.status, status, "{what}");
    let payload = check_payload(vector, layout, RESPONSE_BYTES, example);
    let mut out = [0xaa; 512];
    let len = Response { payload: &payload, ..response }.encode(&mut out).unwrap();
    assert_eq!(out[..len], example.bytes, "{what}");
}

#[test]
fn every_structure_has_its_layout() {
    let structures: Vec<_> = vectors(File::Mgmt)
        .into_iter()
        .filter(|vector| vector.direction.is_none() && vector.name != COMPOSED)
        .collect();
    assert_eq!(check(&structures, &messages::structures()), 39);
}

#[test]
fn every_message_is_read_and_written() {
    let layouts = messages::messages();
    let mut left: BTreeSet<_> = layouts.iter().map(|layout| layout.vector).collect();
    let mut examples = 0;
    for vector in vectors(File::Mgmt).iter().filter(|vector| vector.direction.is_some()) {
        examples += vector.examples.len();
        if vector.name == "event_message_t" {
            continue; // below
        }
        let name = vector.name.split(' ').next().unwrap();
        let layout = layouts.iter().find(|layout| layout.vector.starts_with(name));
        let layout = layout.unwrap_or_else(|| panic!("{name} has no Rust type"));
        left.remove(layout.vector);
        for example in &vector.examples {
            match (vector.direction.as_deref(), name) {
                (Some("host_to_device"), _) => check_command(vector, layout, example),
                (_, BARE) => {
                    let short = FrameError::TooShort { len: 16, needed: RESPONSE_BYTES };
                    assert_eq!(Message::parse(&example.bytes), Err(short));
                    check_payload(vector, layout, HEADER_BYTES, example);
                }
                (_, "device_mgmt_mdi_bp_event_t") => {
                    let message = Message::parse(&example.bytes);
                    assert_eq!(message, Ok(Message::Breakpoint(BreakpointEvent::Halted)));
                    check_payload(vector, layout, HEADER_BYTES, example);
                }
                _ => check_response(vector, layout, example),
            }
        }
    }
    assert_eq!(left, BTreeSet::new(), "types without a vector");
    assert_eq!(examples, 113);
}

#[test]
fn every_command_has_its_messages() {
    let json = json(File::Mgmt);
    let vendor = json["commands"].as_array().unwrap();
    assert_eq!(vendor.len(), COMMANDS.len());
    for (vendor, info) in vendor.iter().zip(COMMANDS) {
        assert_eq!(vendor["id"].as_u64(), Some(info.id.into()));
        let name = vendor["name"].as_str().unwrap();
        assert_eq!(name.strip_prefix("DM_CMD_").unwrap_or(name), info.name);
        // Without a structure of its own a command is a header and 8 bytes. Spec: §17.1
        let bytes = vendor["command_size"].as_u64().unwrap_or(16);
        assert_eq!(bytes, info.command_bytes as u64, "{name}");
        let bytes = vendor["response_size"].as_u64();
        assert_eq!(bytes, info.response_bytes.map(|bytes| bytes as u64), "{name}");
        assert_eq!(command_info(info.id), Some(info));
    }
    assert_eq!(command_info(74), None);
}

#[test]
fn events_are_read_and_written() {
    let vectors = vectors(File::Mgmt);
    let vector = vectors.iter().find(|vector| vector.name == "event_message_t").unwrap();
    let found: Vec<_> = vector
        .examples
        .iter()
        .map(|example| {
            let Ok(Message::Event(event)) = Message::parse(&example.bytes) else { panic!() };
            assert_eq!(event.encode()[..], example.bytes, "{}", example.label);
            event
        })
        .collect();
    let dram = Event {
        id: EventId::DramCorrected,
        class: EventClass::Warning,
        count: 3,
        syndromes: [0x2_0000_0080, 0],
    };
    assert_eq!(dram.detail(), EventDetail::Dram { mem_shire: 2 });
    let full = Event {
        id: EventId::TraceBufferFull,
        class: EventClass::Warning,
        count: 1,
        syndromes: [2, 4096],
    };
    assert_eq!(full.detail(), EventDetail::TraceBuffer { buffer: 2, threshold: 4096 });
    assert_eq!(found, [dram, full]);
}

#[test]
fn syndromes_are_decoded() {
    let event = |id, first, second| {
        Event { id, class: EventClass::Fatal, count: 1, syndromes: [first, second] }.detail()
    };
    let throttled = event(EventId::ThrottleTime, 0xff_0000_1234, 0);
    assert_eq!(throttled, EventDetail::Throttled { time_us: 0x1234 });
    let hang = event(EventId::MinionHangs, 9, (-3_i64).cast_unsigned());
    assert_eq!(hang, EventDetail::Minion { source: 9, code: -3 });
    assert_eq!(event(EventId::PmicError, 1, 2), EventDetail::Raw([1, 2]));
    assert_eq!(event(EventId::Unknown(300), 1, 2), EventDetail::Raw([1, 2]));
}

#[test]
fn what_is_cut_off_or_does_not_fit_is_refused() {
    let mut out = [0; 64];
    let max = out.len();
    let tag = Tag::new(1);
    let refused = encode_command(70, tag, &[1; 256], &mut out);
    assert_eq!(refused, Err(FrameError::TooLarge { len: 264, max }));
    // Erratum 6: the firmware would not notice.
    let refused = encode_command(70, tag, &[1; 600], &mut [0; 1024]);
    assert_eq!(refused, Err(FrameError::TooLarge { len: 608, max: 512 }));
    for vector in vectors(File::Mgmt).iter().filter(|vector| vector.direction.is_some()) {
        for len in 0..HEADER_BYTES {
            let bytes = &vector.examples[0].bytes[..len];
            let short = FrameError::TooShort { len, needed: HEADER_BYTES };
            assert_eq!(Message::parse(bytes), Err(short));
            assert_eq!(parse_command(bytes), Err(short));
        }
    }
    let len = encode_command(0, tag, &[0; 8], &mut out).unwrap();
    let cut = FrameError::TooShort { len: 15, needed: 16 };
    assert_eq!((len, parse_command(&out[..15])), (16, Err(cut)));
    // A response that is shorter than its payload's type.
    let Ok(Message::Response(response)) = Message::parse(&[0; 30]) else { panic!() };
    assert_eq!(response.read::<[u8; 6]>(), Some([0; 6]));
    assert_eq!(response.read::<[u8; 7]>(), None);
}

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
