//! Reading trace buffers: what was written comes out, and what makes no sense does no harm.

#![expect(clippy::cast_possible_truncation, reason = "test data is small")]

mod buffers;

use et_devapi::trace::{Body, Buffer, BufferError, BufferType, Cursor, Entries, Header, Layout};
use proptest::prelude::*;

fn header(parts: u16, part_bytes: u32, used: u32) -> Vec<u8> {
    buffers::header(BufferType::Mm, parts, part_bytes, used)
}

fn entry(cycle: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
    buffers::entry(cycle, 70, kind, payload)
}

/// A writer as firmware is: it begins again when there is no room. Spec: §16.1
struct Writer {
    buffer: Vec<u8>,
    at: usize,
    cycle: u64,
}

impl Writer {
    fn new(part_bytes: usize) -> Self {
        let mut buffer = header(1, part_bytes as u32, 64);
        buffer.resize(part_bytes, 0);
        // Times look like nothing else in the entries, as those of a device that has run a while.
        Self { buffer, at: 64, cycle: 1 << 40 }
    }

    /// Writes the number of the entry, and bytes that make it as long as they are.
    fn write(&mut self, number: u32, len: usize) {
        self.cycle += 3;
        let mut payload = number.to_le_bytes().to_vec();
        payload.extend([0; 4]);
        payload.extend((len as u64).to_le_bytes());
        // Zeros, which over the time of an older entry never make that one of a younger.
        payload.resize(16 + len, 0);
        let entry = entry(self.cycle, 11, &payload);
        if self.at + entry.len() > self.buffer.len() {
            self.at = 64;
        }
        self.buffer[self.at..][..entry.len()].copy_from_slice(&entry);
        self.at += entry.len();
        let used = (self.at as u32).to_le_bytes();
        self.buffer[12..16].copy_from_slice(&used);
    }
}

fn numbers<'a>(entries: impl Iterator<Item = et_devapi::trace::Entry<'a>>) -> Vec<u32> {
    let number = |body| match body {
        Body::Memory(memory, _) => memory.src_addr.get() as u32,
        other => panic!("{other:?}"),
    };
    entries.map(|entry| number(entry.body)).collect()
}

#[test]
fn texts_values_and_what_is_unknown_come_out_in_their_order() {
    let mut bytes = entry(5, 0, b"hello\0\0\0");
    bytes.extend(entry(6, 3, &[0; 8]));
    bytes.extend(entry(7, 900, &[1; 40]));
    bytes.extend(entry(8, 7, &[1, 0, 0, 0, 9, 0, 0, 0]));
    // A value of the wrong size, and text that does not end.
    bytes.extend(entry(9, 7, &[1, 0, 0, 0]));
    bytes.extend(entry(10, 0, b"rest"));
    bytes.extend(&entry(11, 0, &[7; 100])[..60]);
    let mut entries = Entries::new(&bytes);
    let found: Vec<_> = entries.by_ref().collect();
    let cycles: Vec<_> = found.iter().map(|entry| entry.cycle).collect();
    assert_eq!(cycles, [5, 8, 10]);
    assert_eq!(found[0].body, Body::String(b"hello"));
    assert_eq!(found[0].hart_id, 70);
    assert!(matches!(found[1].body, Body::ValueU32(value) if value.value.get() == 9));
    assert_eq!(found[2].body, Body::String(b"rest"));
    assert_eq!((entries.skipped(), entries.skipped_bytes()), (3, 60));
}

#[test]
fn every_kind_of_entry_has_its_size_and_no_other() {
    let sizes = [
        (1, 32),
        (2, 64),
        (4, 32),
        (5, 40),
        (6, 32),
        (7, 24),
        (8, 24),
        (9, 24),
        (10, 24),
        (11, 32),
        (12, 296),
        (13, 24),
        (14, 32),
        (15, 24),
        (16, 48),
    ];
    for (kind, size) in sizes {
        for len in (0..300).step_by(4) {
            let bytes = entry(1, kind, &vec![0; len]);
            let is_open_ended = kind == 11 || kind == 15;
            let is_good = bytes.len() == size || is_open_ended && bytes.len() > size;
            assert_eq!(Entries::new(&bytes).count(), usize::from(is_good), "{kind} with {len}");
        }
    }
}

#[test]
fn buffers_are_checked_and_their_parts_are_cut_to_what_there_is() {
    let parse = |bytes: &[u8]| Buffer::parse(bytes).map(|buffer| buffer.part_count());
    assert_eq!(parse(&[0; 63]), Err(BufferError::Short { len: 63 }));
    assert_eq!(parse(&[0; 64]), Err(BufferError::Magic { found: 0 }));
    assert_eq!(parse(&header(1, 63, 64)), Err(BufferError::PartSize { bytes: 63 }));
    let mut newer = header(1, 64, 64);
    newer[4] = 1;
    assert_eq!(parse(&newer), Err(BufferError::Version { found: 1 }));

    // Three parts of 128 bytes: one entry, more than fits, and one that is cut off.
    let mut bytes = header(3, 128, 88);
    bytes.extend(entry(1, 0, b"one\0\0\0\0\0"));
    bytes.resize(128, 0);
    bytes.extend(5000u32.to_le_bytes());
    bytes.extend(entry(2, 0, b"two\0\0\0\0\0"));
    bytes.resize(256, 0);
    bytes.extend(28u32.to_le_bytes());
    bytes.extend(entry(3, 0, b"three\0\0\0"));
    let buffer = Buffer::parse(&bytes).unwrap();
    assert_eq!((buffer.kind(), buffer.part_count()), (Some(BufferType::Mm), 3));
    let texts = buffer.parts().flat_map(|part| part.entries()).map(|entry| entry.body);
    let expected = [b"one".as_slice(), b"two", b"three"].map(Body::String);
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}

#[test]
fn a_header_that_was_overwritten_costs_no_entries() {
    let layout = Layout { kind: BufferType::CmUmode, part_bytes: 128, part_count: 2 };
    let mut good = buffers::header(BufferType::CmUmode, 2, 128, 88);
    good.extend(entry(1, 0, b"one\0\0\0\0\0"));
    good.resize(128, 0);
    good.extend(28u32.to_le_bytes());
    good.extend(entry(2, 0, b"two\0\0\0\0\0"));
    good.resize(256, 0);
    let read = |bytes: &[u8]| {
        let buffer = Buffer::with_layout(bytes, layout);
        let texts = buffer.parts().flat_map(|part| part.entries()).map(|entry| entry.cycle);
        (buffer.header(), texts.collect::<Vec<_>>())
    };
    assert_eq!(read(&good), (Header::Good, vec![1, 2]));
    // The magic word, the version, bytes and number of parts; all but the size of part 0.
    for range in [0..4, 4..6, 16..20, 20..22, 0..12] {
        let mut bytes = good.clone();
        bytes[range.clone()].fill(0xef);
        assert_eq!(read(&bytes), (Header::Broken, vec![1, 2]), "{range:?}");
        bytes[range.clone()].fill(0);
        let expected = if range == (4..6) { Header::Good } else { Header::Broken };
        assert_eq!(read(&bytes), (expected, vec![1, 2]), "zeros in {range:?}");
    }
    // With the size of the part everything in it is looked at, and nonsense counted.
    let mut bytes = good.clone();
    bytes[..64].fill(0xef);
    assert_eq!(read(&bytes), (Header::Broken, vec![1, 2]));
    let part = Buffer::with_layout(&bytes, layout).parts().next().unwrap();
    let mut entries = part.entries();
    assert_eq!(entries.by_ref().count(), 1);
    assert_eq!((entries.skipped(), entries.skipped_bytes()), (2, 8));
    // Part 0 need not be set up where others are.
    bytes[..128].fill(0);
    assert_eq!(read(&bytes), (Header::Blank, vec![2]));
    assert_eq!(read(&[0; 256]), (Header::Blank, vec![]));
    assert_eq!(read(&[]), (Header::Blank, vec![]));
    assert_eq!(read(&[1; 20]), (Header::Broken, vec![]));
}

#[test]
fn a_reset_is_no_loss() {
    let mut writer = Writer::new(512);
    (0..5).for_each(|number| writer.write(number, 8));
    let mut cursor = Cursor::new();
    let mut look = |writer: &Writer| {
        let part = Buffer::parse(&writer.buffer).unwrap().parts().next().unwrap();
        let news = cursor.advance(&part);
        (numbers(news.older.chain(news.newer)), news.has_losses)
    };
    assert_eq!(look(&writer), (vec![0, 1, 2, 3, 4], false));
    writer.at = 64;
    writer.buffer[12..16].copy_from_slice(&64u32.to_le_bytes());
    assert_eq!(look(&writer), (vec![], false));
    writer.write(9, 8);
    assert_eq!(look(&writer), (vec![9], false));
}

proptest! {
    /// Entries of random lengths, looked at after random numbers of them: each comes out once and
    /// in order, and none is missing unless that is said.
    #[test]
    fn no_entry_is_lost_unnoticed(
        part_bytes in (4usize..40).prop_map(|lines| 64 * lines),
        steps in prop::collection::vec((1usize..12, 0usize..60), 1..40),
    ) {
        let mut writer = Writer::new(part_bytes);
        let mut cursor = Cursor::new();
        let (mut next, mut seen) = (0u32, None::<u32>);
        // Of a part that was empty at the last look nothing is promised.
        let steps = [(1, 0)].into_iter().chain(steps);
        for (count, len) in steps {
            for index in 0..count {
                writer.write(next, (len * (index + 1)) % 61);
                next += 1;
            }
            let part = Buffer::parse(&writer.buffer).unwrap().parts().next().unwrap();
            let news = cursor.advance(&part);
            let has_losses = news.has_losses;
            let found = numbers(news.older.chain(news.newer));
            prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
            prop_assert!(found.first().is_none_or(|first| seen.is_none_or(|seen| seen < *first)));
            let expected = seen.map_or(0, |seen| seen + 1);
            let is_all = found == (expected..next).collect::<Vec<_>>();
            prop_assert!(is_all || has_losses, "{found:?} of {expected}..{next}");
            prop_assert_eq!(found.last().copied(), Some(next - 1));
            seen = Some(next - 1);
        }
    }

    /// With room for two looks, nothing is lost; nothing is said to be where that is certain.
    #[test]
    fn looks_in_time_have_no_losses(
        lens in prop::collection::vec(0usize..40, 1..200),
        is_uniform: bool,
    ) {
        let mut writer = Writer::new(1024);
        let mut cursor = Cursor::new();
        let mut found = Vec::new();
        for (number, len) in (0..).zip(&lens) {
            writer.write(number, if is_uniform { 8 } else { *len });
            if number % 4 == 3 || number as usize + 1 == lens.len() {
                let part = Buffer::parse(&writer.buffer).unwrap().parts().next().unwrap();
                let news = cursor.advance(&part);
                prop_assert!(!(is_uniform && news.has_losses));
                found.extend(numbers(news.older.chain(news.newer)));
            }
        }
        prop_assert_eq!(found, (0..lens.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn nonsense_does_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..2000), is_framed: bool) {
        if is_framed && bytes.len() >= 64 {
            let used = bytes[12];
            let frame = header(u16::from(bytes[20]), 64 + u32::from(bytes[16]), used.into());
            bytes[..64].copy_from_slice(&frame);
        }
        let mut cursors = vec![Cursor::new(); 300];
        for _ in 0..3 {
            let Ok(buffer) = Buffer::parse(&bytes) else { break };
            for part in buffer.parts() {
                let mut entries = part.entries();
                let count = entries.by_ref().count() as u64 + entries.skipped();
                prop_assert!(count * 16 + entries.skipped_bytes() <= bytes.len() as u64);
                let news = cursors[part.index].advance(&part);
                let _ = news.older.chain(news.newer).count();
            }
            let by = 8.min(bytes.len());
            bytes.rotate_left(by);
            if is_framed && bytes.len() >= 64 {
                let frame = header(7, 200, 150);
                bytes[..64].copy_from_slice(&frame);
            }
        }
        let mut entries = Entries::new(&bytes);
        let _ = entries.by_ref().count();
    }
}

/// As `et_trace_string` of the kernel library puts it there.
#[test]
fn the_level_of_a_text_is_behind_it() {
    let level = |payload: &[u8]| {
        let bytes = entry(1, 0, payload);
        let found = Entries::new(&bytes).next().unwrap();
        assert!(matches!(found.body, Body::String(b"text")), "{found:?}");
        found.level
    };
    for expected in 0..=4 {
        assert_eq!(level(&[b't', b'e', b'x', b't', 0, 0, 0xe7, expected]), Some(expected));
    }
    assert_eq!(level(b"text\0\xe7\x02"), Some(2), "nothing in between");
    for without in
        [&b"text\0\0\xe7\x05"[..], b"text\0\0\x03\xe7", b"text\0\0\0\0", b"text\0\x03", b"text"]
    {
        assert_eq!(level(without), None, "{without:?}");
    }
    // A value is no text, whatever its last bytes are.
    let value = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xe7, 2, 0, 0, 0xe7, 2];
    let bytes = entry(1, 6, &value);
    assert_eq!(Entries::new(&bytes).next().unwrap().level, None);
}
