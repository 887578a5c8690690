//! Reading the buffers of the service processor: its log, its exceptions, and both statistics.

#![expect(clippy::cast_possible_truncation, reason = "test data is small")]

mod buffers;

use et_devapi::msg::mgmt::{Extremes, MmStats, SpStats, WideExtremes};
use et_devapi::trace::{
    Body, Buffer, BufferType, Cursor, CustomPayload, Entries, Entry, LEVEL_MARK, MmEvent, SpEvent,
};
use proptest::prelude::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const PART_BYTES: usize = 4096;

fn header(kind: BufferType, used: u32) -> Vec<u8> {
    buffers::header(kind, 2, PART_BYTES as u32, used)
}

/// The service processor has one hart.
fn entry(cycle: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
    buffers::entry(cycle, 0, kind, payload)
}

fn text(cycle: u64, text: &str, level: u8) -> Vec<u8> {
    let mut payload = text.as_bytes().to_vec();
    payload.resize((text.len() + 3).next_multiple_of(8) - 2, 0);
    payload.extend([LEVEL_MARK, level]);
    entry(cycle, 0, &payload)
}

/// An event, whose bytes are padded to 8 as those of texts are.
fn custom(cycle: u64, kind: u32, bytes: &[u8]) -> Vec<u8> {
    let mut payload = kind.to_le_bytes().to_vec();
    payload.extend((bytes.len() as u32).to_le_bytes());
    payload.extend_from_slice(bytes);
    payload.resize(payload.len().next_multiple_of(8), 0);
    entry(cycle, 15, &payload)
}

fn payload<'a>(entry: &Entry<'a>) -> CustomPayload<'a> {
    match entry.body {
        Body::Custom(event, bytes) => event.payload(bytes),
        other => panic!("{other:?}"),
    }
}

/// Both halves of the buffer: the log, and behind it the exceptions. Spec: §16.1
#[test]
fn the_log_and_the_exceptions_are_two_parts() {
    let log = [text(7, "boot", 3), text(9, "image refused", 1)].concat();
    let mut bytes = header(BufferType::Sp, 64 + log.len() as u32);
    bytes.extend_from_slice(&log);
    bytes.resize(PART_BYTES, 0);
    let mut state = [0u8; 280];
    state[..8].copy_from_slice(&0x3000_1234u64.to_le_bytes());
    state[24..32].copy_from_slice(&3u64.to_le_bytes());
    state[32 + 8 * 30..].copy_from_slice(&31u64.to_le_bytes());
    bytes.extend((4 + 296u32).to_le_bytes());
    bytes.extend(entry(8, 12, &state));
    bytes.resize(2 * PART_BYTES, 0);

    let buffer = Buffer::parse(&bytes).unwrap();
    assert_eq!((buffer.kind(), buffer.part_count()), (Some(BufferType::Sp), 2));
    let parts: Vec<_> = buffer.parts().collect();
    let found: Vec<_> = parts[0].entries().map(|e| (e.cycle, e.level, e.body)).collect();
    let expected =
        [(7, Some(3), Body::String(b"boot")), (9, Some(1), Body::String(b"image refused"))];
    assert_eq!(found, expected);
    let exception = parts[1].entries().next().unwrap();
    let Body::Exception(state) = exception.body else { panic!("{exception:?}") };
    assert_eq!((exception.cycle, state.epc.get(), state.cause.get()), (8, 0x3000_1234, 3));
    assert_eq!(state.gpr[30].get(), 31);
}

#[test]
fn a_power_sample_is_read_byte_for_byte() {
    let payload = [0x34, 0x12, 2, 3, 77, 0, 0, 0, 0x58, 0x02, 0x8a, 0x02, 0, 0, 0, 0];
    let bytes = entry(5, 14, &payload);
    let found = Entries::new(&bytes).next().unwrap();
    let Body::PowerStatus(power) = found.body else { panic!("{found:?}") };
    assert_eq!(
        (power.current_power.get(), power.throttle_state, power.power_state),
        (0x1234, 2, 3)
    );
    assert_eq!((power.current_temp, power.tgt_freq.get(), power.tgt_voltage.get()), (77, 600, 650));
}

#[test]
fn statistics_are_those_of_the_commands() {
    let mut sp = SpStats::new_zeroed();
    sp.system_power = Extremes { avg: 9.into(), min: 8.into(), max: 25.into() };
    sp.noc_freq.max = 500.into();
    let mut mm = MmStats::new_zeroed();
    mm.cm_utilization = WideExtremes { avg: 50.into(), min: 0.into(), max: 100.into() };
    let op_stats = SpEvent::OpStats as u32;
    let resources = MmEvent::ComputeResources as u32;
    let bytes = [
        custom(1, op_stats, sp.as_bytes()),
        custom(2, resources, mm.as_bytes()),
        // Lengths of another layout, kinds of another writer, and kinds that are not defined.
        custom(3, op_stats, &sp.as_bytes()[..82]),
        custom(4, op_stats, &[1; 86]),
        custom(5, resources, sp.as_bytes()),
        custom(6, 3, sp.as_bytes()),
        custom(7, op_stats | 1 << 16, sp.as_bytes()),
    ]
    .concat();
    let mut entries = Entries::new(&bytes);
    let found: Vec<_> = entries.by_ref().collect();
    assert_eq!(payload(&found[0]), CustomPayload::OpStats(&sp));
    assert_eq!(payload(&found[1]), CustomPayload::ComputeResources(&mm));
    let lens: Vec<_> = found[2..]
        .iter()
        .map(|entry| match payload(entry) {
            CustomPayload::Unknown(bytes) => bytes.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lens, [82, 86, 84, 84, 84]);
    assert_eq!((entries.skipped(), entries.skipped_bytes()), (0, 0));
    // By its own count, the event has more bytes than the entry.
    let mut cut = custom(1, op_stats, sp.as_bytes());
    cut[20] = 200;
    let mut entries = Entries::new(&cut);
    assert_eq!((entries.by_ref().count(), entries.skipped()), (0, 1));
}

fn any_entry() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    let kinds = prop_oneof![Just(0u32), Just(4), Just(1001), any::<u32>()];
    prop_oneof![
        ("[ -~]{0,40}", 0u8..9).prop_map(|(said, level)| text(1, &said, level)),
        (kinds, bytes.clone()).prop_map(|(kind, bytes)| custom(2, kind, &bytes)),
        Just(custom(3, 4, SpStats::new_zeroed().as_bytes())),
        Just(custom(4, 1001, MmStats::new_zeroed().as_bytes())),
        (0u16..20, bytes).prop_map(|(kind, bytes)| entry(5, kind, &bytes)),
    ]
}

proptest! {
    /// Entries of all kinds, some bytes of which are changed: nothing is read from outside of its
    /// entry, and every byte is an entry's, or counted.
    #[test]
    fn damaged_buffers_are_read_as_far_as_they_are_valid(
        entries in prop::collection::vec(any_entry(), 0..20),
        changes in prop::collection::vec((0usize..2 * PART_BYTES, any::<u8>()), 0..6),
    ) {
        let mut log = entries.concat();
        log.truncate(PART_BYTES - 64);
        let mut bytes = header(BufferType::SpStats, 64 + log.len() as u32);
        bytes.extend_from_slice(&log);
        bytes.resize(2 * PART_BYTES, 0);
        for (at, value) in changes {
            bytes[at] = value;
        }
        let Ok(buffer) = Buffer::parse(&bytes) else { return Ok(()) };
        let mut cursors = vec![Cursor::new(); 2];
        for (part, cursor) in buffer.parts().zip(&mut cursors) {
            let mut entries = part.entries();
            let all = entries.bytes().len();
            let mut read = 0;
            loop {
                let before = entries.bytes();
                let skipped = entries.skipped();
                let Some(entry) = entries.next() else { break };
                let len = before.len() - entries.bytes().len();
                read += len;
                prop_assert!(len as u64 >= 16 * (1 + entries.skipped() - skipped));
                if let Body::Custom(event, bytes) = entry.body {
                    match event.payload(bytes) {
                        CustomPayload::OpStats(stats) => {
                            prop_assert_eq!(event.custom_type.get(), 4);
                            prop_assert_eq!(SpStats::ref_from_bytes(bytes).unwrap(), stats);
                        }
                        CustomPayload::ComputeResources(stats) => {
                            prop_assert_eq!(event.custom_type.get(), 1001);
                            prop_assert_eq!(MmStats::ref_from_bytes(bytes).unwrap(), stats);
                        }
                        CustomPayload::Unknown(rest) => prop_assert_eq!(rest.len(), bytes.len()),
                        other => panic!("{other:?}"),
                    }
                }
            }
            let trailing = entries.skipped_bytes() as usize;
            prop_assert!(read + trailing <= all && entries.bytes().is_empty());
            let news = cursor.advance(&part);
            prop_assert_eq!(news.newer.count(), part.entries().count());
            let again = cursor.advance(&part);
            prop_assert_eq!(again.newer.count() + again.older.count(), 0);
        }
    }
}
