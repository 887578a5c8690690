//! Capability chains in the kernel's answers.

use std::mem::{offset_of, size_of};

use vfio_bindings::bindings::vfio::vfio_info_cap_header as Header;

use crate::sys::Record;

/// More capabilities than any answer has; a chain that is longer goes in a circle.
const MAX_LINKS: usize = 64;

/// Finds a capability; returns the offset of its header.
///
/// Offsets that lead outside the answer, or in a circle, end the search: the answer is then used
/// without the capability.
pub(crate) fn capability(record: &Record, first: u32, id: u32) -> Option<usize> {
    let mut at = usize::try_from(first).ok()?;
    for _ in 0..MAX_LINKS {
        if at == 0 || !record.contains(at, size_of::<Header>()) {
            return None;
        }
        if u32::from(record.u16(at + offset_of!(Header, id))) == id {
            return Some(at);
        }
        at = usize::try_from(record.u32(at + offset_of!(Header, next))).ok()?;
    }
    None
}

/// Reads an array of pairs behind a capability's counter, as far as it lies inside the answer.
pub(crate) fn pairs(record: &Record, count_at: usize, array_at: usize) -> Vec<(u64, u64)> {
    const PAIR_BYTES: usize = 16;
    let count = usize::try_from(record.u32(count_at)).unwrap_or(usize::MAX);
    (0..count)
        .map_while(|index| index.checked_mul(PAIR_BYTES)?.checked_add(array_at))
        .take_while(|&at| record.contains(at, PAIR_BYTES))
        .map(|at| (record.u64(at), record.u64(at + 8)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(links: &[(u32, u16, u32)]) -> Record {
        let mut record = Record::new(64);
        for &(at, id, next) in links {
            record.put_u32(at as usize, u32::from(id) | 1 << 16);
            record.put_u32(at as usize + 4, next);
        }
        record
    }

    #[test]
    fn chains_are_followed() {
        let record = chain(&[(32, 7, 48), (48, 1, 0)]);
        assert_eq!(capability(&record, 32, 1), Some(48));
        assert_eq!(capability(&record, 32, 2), None);
        assert_eq!(capability(&record, 0, 7), None);
    }

    #[test]
    fn circles_and_wild_offsets_end() {
        assert_eq!(capability(&chain(&[(32, 7, 48), (48, 8, 32)]), 32, 1), None);
        for next in [57, 64, 4096, u32::MAX] {
            assert_eq!(capability(&chain(&[(32, 7, next)]), 32, 1), None, "{next}");
        }
    }

    #[test]
    fn arrays_end_with_the_answer() {
        let mut record = Record::new(64);
        record.put_u32(8, u32::MAX);
        record.put_u64(16, 1);
        record.put_u64(56, 9);
        assert_eq!(pairs(&record, 8, 16), [(1, 0), (0, 0), (0, 9)]);
    }
}
