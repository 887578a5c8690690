//! What a checker of memory finds.

use core::fmt;

/// Cause code of a checker, one of those that RISC-V leaves to platforms. No hardware raises it.
const CODE: u64 = 48;
const VIOLATION_SHIFT: u32 = 8;
const ACCESS_SHIFT: u32 = 12;
const BYTES_SHIFT: u32 = 16;

/// An access to device memory that works on the hardware, and is wrong all the same.
///
/// The simulator raises it as a trap with [`cause`](Self::cause) if it is asked to check memory;
/// the trap value is the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryFault {
    /// What is wrong.
    pub violation: Violation,
    /// What the instruction did.
    pub access: Access,
    /// Bytes of the access: 1, 2, 4, 8, or up to 64 of the tensor unit.
    pub bytes: u8,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A byte of it is in no buffer, nor in anything else that kernels may use.
    Outside,
    /// It is in a buffer that has been freed.
    Freed,
    /// It writes code or constants.
    ReadOnly,
    /// It reads a byte of a buffer that nothing has written.
    Unwritten,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes at once.
    Atomic,
    /// Reads a whole line of 64 bytes, as the tensor unit does.
    Line,
}

impl MemoryFault {
    /// Returns the value of `scause` that stands for it.
    #[must_use]
    pub const fn cause(self) -> u64 {
        let violation = match self.violation {
            Violation::Outside => 0,
            Violation::Freed => 1,
            Violation::ReadOnly => 2,
            Violation::Unwritten => 3,
        };
        let (access, bytes) = (number_of(self.access), self.bytes as u64);
        CODE | violation << VIOLATION_SHIFT | access << ACCESS_SHIFT | bytes << BYTES_SHIFT
    }

    /// Returns the fault that a value of `scause` stands for; `None` if it is another cause.
    #[must_use]
    pub const fn from_cause(cause: u64) -> Option<Self> {
        let violation = match cause >> VIOLATION_SHIFT & 15 {
            0 => Violation::Outside,
            1 => Violation::Freed,
            2 => Violation::ReadOnly,
            3 => Violation::Unwritten,
            _ => return None,
        };
        let access = access_of(cause >> ACCESS_SHIFT & 3);
        let bytes = cause.to_le_bytes()[2];
        let fault = Self { violation, access, bytes };
        // Also the bits that no field has.
        if bytes != 0 && fault.cause() == cause { Some(fault) } else { None }
    }
}

/// Returns the two bits that stand for an access.
pub(crate) const fn number_of(access: Access) -> u64 {
    match access {
        Access::Load => 0,
        Access::Store => 1,
        Access::Atomic => 2,
        Access::Line => 3,
    }
}

/// Returns the access that the two low bits of `number` stand for.
pub(crate) const fn access_of(number: u64) -> Access {
    match number & 3 {
        0 => Access::Load,
        1 => Access::Store,
        2 => Access::Atomic,
        _ => Access::Line,
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "out of bounds",
            Self::Freed => "use after free",
            Self::ReadOnly => "write to read-only memory",
            Self::Unwritten => "read of uninitialised memory",
        })
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Atomic => "atomic",
            Self::Line => "tensor load",
        })
    }
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violation, access, bytes } = self;
        write!(f, "{violation}: {access} of {bytes} byte{}", if *bytes == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn every_fault_has_a_cause_of_its_own() {
        use Access::{Atomic, Line, Load, Store};
        use Violation::{Freed, Outside, ReadOnly, Unwritten};
        let mut seen = std::vec::Vec::new();
        for violation in [Outside, Freed, ReadOnly, Unwritten] {
            for access in [Load, Store, Atomic, Line] {
                for bytes in [1, 8, 64] {
                    let fault = MemoryFault { violation, access, bytes };
                    assert_eq!(MemoryFault::from_cause(fault.cause()), Some(fault));
                    assert!(!seen.contains(&fault.cause()));
                    seen.push(fault.cause());
                }
            }
        }
        let cause = seen[0];
        for other in [0, 5, 7, 48, cause | 1 << 32, cause | 15 << 8, cause | 15 << 12, cause + 1] {
            assert_eq!(MemoryFault::from_cause(other), None, "{other:#x}");
        }
    }

    #[test]
    fn faults_say_what_was_done() {
        let fault = MemoryFault { violation: Violation::Outside, access: Access::Store, bytes: 4 };
        assert_eq!(fault.to_string(), "out of bounds: store of 4 bytes");
    }
}
