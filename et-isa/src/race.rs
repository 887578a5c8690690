//! What a checker of the order of accesses finds.

use core::fmt;

use crate::Access;
use crate::fault::{access_of, number_of};

/// Cause code of the checker, one of those that RISC-V leaves to platforms. No hardware raises it.
const CODE: u64 = 49;
const KIND_SHIFT: u32 = 8;
const ACCESS_SHIFT: u32 = 10;
const OTHER_SHIFT: u32 = 12;
const BYTES_SHIFT: u32 = 16;
const HART_SHIFT: u32 = 24;
const DISTANCE_SHIFT: u32 = 36;
const DISTANCE_BITS: u32 = 27;

/// Two harts that use the same memory in a way that may go wrong on the hardware.
///
/// The simulator raises it as a trap with [`cause`](Self::cause) if it is asked to check for races;
/// the trap value is the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Race {
    /// What is missing.
    pub kind: RaceKind,
    /// What the instruction did.
    pub access: Access,
    /// Bytes of the access: 1, 2, 4, 8, or up to 64 of the tensor unit.
    pub bytes: u8,
    /// What the other hart did before.
    pub other: Access,
    /// The other hart, 0 to 4095; its own number if the hart did that itself, another way.
    pub other_hart: u16,
    /// Bytes from the instruction to that of the other hart: even, and less than 128 MiB.
    pub distance: i32,
}

/// What is missing between two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RaceKind {
    /// Nothing orders them: no barrier, credit, message, or atomic that both use.
    Unordered,
    /// They are ordered, and the data of the first has not got to where the second looks for it, or
    /// may replace that of the second later: an eviction or a fence is missing.
    NotWrittenBack,
    /// They are ordered, and the second found what its own cache has kept from before: an eviction
    /// is missing before it.
    OldCopy,
}

impl Race {
    /// Returns the value of `scause` that stands for it. A distance that is too far becomes 0.
    #[must_use]
    pub const fn cause(self) -> u64 {
        let kind = match self.kind {
            RaceKind::Unordered => 0,
            RaceKind::NotWrittenBack => 1,
            RaceKind::OldCopy => 2,
        };
        let halfwords = self.distance as i64 >> 1;
        let limit = 1 << (DISTANCE_BITS - 1);
        let halfwords = if -limit <= halfwords && halfwords < limit { halfwords } else { 0 };
        CODE | kind << KIND_SHIFT
            | number_of(self.access) << ACCESS_SHIFT
            | number_of(self.other) << OTHER_SHIFT
            | (self.bytes as u64) << BYTES_SHIFT
            | (self.other_hart as u64 & 0xFFF) << HART_SHIFT
            | (halfwords.cast_unsigned() & ((1 << DISTANCE_BITS) - 1)) << DISTANCE_SHIFT
    }

    /// Returns the finding that a value of `scause` stands for; `None` if it is another cause.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "fields of few bits")]
    pub const fn from_cause(cause: u64) -> Option<Self> {
        let kind = match cause >> KIND_SHIFT & 3 {
            0 => RaceKind::Unordered,
            1 => RaceKind::NotWrittenBack,
            2 => RaceKind::OldCopy,
            _ => return None,
        };
        let unused = 64 - DISTANCE_SHIFT - DISTANCE_BITS;
        let halfwords = (cause << unused).cast_signed() >> (DISTANCE_SHIFT + unused);
        let race = Self {
            kind,
            access: access_of(cause >> ACCESS_SHIFT & 3),
            bytes: cause.to_le_bytes()[2],
            other: access_of(cause >> OTHER_SHIFT & 3),
            other_hart: (cause >> HART_SHIFT & 0xFFF) as u16,
            distance: (halfwords << 1) as i32,
        };
        // Also the bits that no field has.
        if race.bytes != 0 && race.cause() == cause { Some(race) } else { None }
    }
}

impl fmt::Display for RaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unordered => "data race",
            Self::NotWrittenBack => "data not written back",
            Self::OldCopy => "old copy in the cache",
        })
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, access, bytes, other, other_hart, .. } = self;
        let s = if *bytes == 1 { "" } else { "s" };
        write!(f, "{kind}: {access} of {bytes} byte{s} after {other} by hart {other_hart}")
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;
    use crate::MemoryFault;

    #[test]
    fn every_race_has_a_cause_of_its_own() {
        use Access::{Atomic, Line, Load, Store};
        use RaceKind::{NotWrittenBack, OldCopy, Unordered};
        let mut seen = std::collections::HashSet::new();
        for kind in [Unordered, NotWrittenBack, OldCopy] {
            for (access, other) in [(Load, Store), (Store, Load), (Atomic, Line), (Line, Atomic)] {
                for (bytes, other_hart) in [(1, 0), (64, 2111)] {
                    for distance in [0, 2, -2, (1 << 27) - 2, -1 << 27] {
                        let race = Race { kind, access, bytes, other, other_hart, distance };
                        assert_eq!(Race::from_cause(race.cause()), Some(race));
                        assert_eq!(MemoryFault::from_cause(race.cause()), None);
                        assert_eq!(race.cause() >> 63, 0, "that would be an interrupt");
                        assert!(seen.insert(race.cause()));
                    }
                }
            }
        }
    }

    #[test]
    fn other_causes_are_no_races() {
        let distance = 1 << 27;
        let (kind, access) = (RaceKind::Unordered, Access::Store);
        let far = Race { kind, access, bytes: 1, other: access, other_hart: 1, distance };
        assert_eq!(Race::from_cause(far.cause()), Some(Race { distance: 0, ..far }));
        for other in [0, 5, 49, 48 | 1 << 16, 49 | 3 << 8 | 1 << 16, far.cause() | 1 << 63] {
            assert_eq!(Race::from_cause(other), None, "{other:#x}");
        }
    }

    #[test]
    fn races_say_what_was_done() {
        let (kind, access, other) = (RaceKind::OldCopy, Access::Load, Access::Store);
        let race = Race { kind, access, bytes: 4, other, other_hart: 5, distance: 0 };
        let text = "old copy in the cache: load of 4 bytes after store by hart 5";
        assert_eq!(race.to_string(), text);
    }
}
