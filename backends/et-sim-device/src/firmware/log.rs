//! What the firmware itself traces: one part of a buffer, and the entries that go there.

use et_devapi::trace::{CmdProgress, CmdStatus, EntryHeader, EntryType, ExecutionStack};
use et_sim_cores::{CoresError, Dram, HartState};
use zerocopy::IntoBytes;

/// Longest text of the master minions, and of compute harts. Spec: §16.2
pub(super) const MASTER_TEXT_BYTES: usize = 512;
pub(super) const COMPUTE_TEXT_BYTES: usize = 128;

/// Where a part is, and where its entries begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) base: u64,
    pub(super) bytes: u32,
    pub(super) first: u32,
}

/// How far a part has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Offset of the next entry; 0 before the first.
    at: u32,
    /// The event of a full part was sent.
    is_notified: bool,
}

impl Position {
    /// Offset behind the last entry.
    pub(super) fn used(self, place: Place) -> u32 {
        self.at.max(place.first)
    }

    /// Writes an entry; returns `true` if the event of a full part is to be sent. Spec: §16.1
    pub(super) fn append(
        &mut self,
        dram: &Dram,
        place: Place,
        threshold: u32,
        entry: &[u8],
    ) -> bool {
        let len = u32::try_from(entry.len()).unwrap_or(u32::MAX);
        let mut at = self.used(place);
        let threshold = if threshold == 0 { place.bytes } else { threshold.min(place.bytes) };
        let is_full = at.saturating_add(len) > threshold;
        if at.saturating_add(len) > place.bytes {
            at = place.first;
        }
        let written: Result<(), CoresError> = dram.write(place.base + u64::from(at), entry);
        debug_assert!(written.is_ok(), "the firmware's buffers are part of every DRAM");
        self.at = at + len;
        let is_due = is_full && !self.is_notified;
        self.is_notified |= is_full;
        is_due
    }
}

fn header(cycle: u64, hart_id: u32, kind: EntryType, payload: usize) -> EntryHeader {
    EntryHeader {
        cycle: cycle.into(),
        payload_size: u32::try_from(payload).unwrap_or(u32::MAX).into(),
        hart_id: u16::try_from(hart_id).unwrap_or(u16::MAX).into(),
        r#type: (kind as u16).into(),
    }
}

/// Header of an entry of one layout.
fn header_of<T>(cycle: u64, hart_id: u32, kind: EntryType) -> EntryHeader {
    header(cycle, hart_id, kind, size_of::<T>() - size_of::<EntryHeader>())
}

/// A text, with its end and padding to 8 bytes. Spec: §16.2
pub(super) fn text(cycle: u64, hart_id: u32, text: &str, max: usize) -> Vec<u8> {
    let text = &text.as_bytes()[..text.len().min(max - 1)];
    let payload = (text.len() + 1).next_multiple_of(8);
    let mut entry = header(cycle, hart_id, EntryType::String, payload).as_bytes().to_vec();
    entry.extend_from_slice(text);
    entry.resize(size_of::<EntryHeader>() + payload, 0);
    entry
}

/// How far a command has come.
pub(super) fn progress(
    cycle: u64,
    hart_id: u32,
    (mesg_id, trans_id): (u16, u16),
    progress: CmdProgress,
) -> CmdStatus {
    CmdStatus {
        header: header_of::<CmdStatus>(cycle, hart_id, EntryType::CmdStatus),
        mesg_id: mesg_id.into(),
        cmd_status: progress as u8,
        queue_slot_id: 0,
        trans_id: trans_id.into(),
        reserved: [0; 2],
    }
}

/// The state of a hart that trapped.
pub(super) fn exception(
    cycle: u64,
    hart_id: u32,
    (cause, tval): (u64, u64),
    state: &HartState,
) -> ExecutionStack {
    let mut gpr = [0.into(); 31];
    for (to, from) in gpr.iter_mut().zip(&state.x[1..]) {
        *to = (*from).into();
    }
    ExecutionStack {
        header: header_of::<ExecutionStack>(cycle, hart_id, EntryType::Exception),
        epc: state.pc.into(),
        tval: tval.into(),
        status: state.sstatus.into(),
        cause: cause.into(),
        gpr,
    }
}

#[cfg(test)]
mod tests {
    use et_devapi::trace::{Body, Entries};

    use super::*;

    const PLACE: Place = Place { base: 0x80_0600_0000, bytes: 256, first: 64 };

    #[test]
    fn a_full_part_begins_again_and_says_so_once() {
        let dram = Dram::new(128 << 20).unwrap();
        let mut position = Position::default();
        assert_eq!(position.used(PLACE), 64);
        let full: Vec<bool> = (0..12)
            .map(|cycle| position.append(&dram, PLACE, 160, &text(cycle, 2048, "12345678", 512)))
            .collect();
        // Entries of 32 bytes: the third ends at the threshold, the fourth behind it.
        assert_eq!(full.iter().position(|full| *full), Some(3));
        assert_eq!(full.iter().filter(|full| **full).count(), 1);
        // Six fit; the last is the twelfth.
        assert_eq!(position.used(PLACE), 256);
        let mut bytes = [0; 192];
        dram.read(PLACE.base + 64, &mut bytes).unwrap();
        let cycles: Vec<_> = Entries::new(&bytes).map(|entry| entry.cycle).collect();
        assert_eq!(cycles, [6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn long_texts_are_cut_and_end() {
        let entry = text(1, 2, &"x".repeat(1000), COMPUTE_TEXT_BYTES);
        assert_eq!(entry.len(), 16 + 128);
        let found = Entries::new(&entry).next().unwrap();
        assert_eq!(found.body, Body::String("x".repeat(127).as_bytes()));
    }
}
