//! Trace buffers, written byte for byte.

use et_devapi::trace::{BufferType, MAGIC, TraceHeader, VERSION};
use zerocopy::IntoBytes;

/// The header of a buffer of so many parts, of whose first so much is used.
pub(crate) fn header(kind: BufferType, parts: u16, part_bytes: u32, used: u32) -> Vec<u8> {
    let (major, minor, patch) = VERSION;
    let header = TraceHeader {
        magic_header: MAGIC.into(),
        version_major: major.into(),
        version_minor: minor.into(),
        version_patch: patch.into(),
        r#type: (kind as u16).into(),
        data_size: used.into(),
        sub_buffer_size: part_bytes.into(),
        sub_buffer_count: parts.into(),
        pad: [0; 42],
    };
    header.as_bytes().to_vec()
}

/// An entry of a hart.
pub(crate) fn entry(cycle: u64, hart: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a payload of a buffer");
    let mut bytes = cycle.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(hart.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
