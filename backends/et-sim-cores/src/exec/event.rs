//! Why a hart stops executing, and the traps it can raise. Spec: ISA §1.3

use crate::decode::code;
use crate::machine::chip::{Core, Wait};

/// Instruction access fault.
pub(crate) const FETCH_FAULT: u64 = 1;
/// Illegal instruction.
pub(crate) const ILLEGAL: u64 = 2;
/// Breakpoint.
pub(crate) const BREAKPOINT: u64 = 3;
/// Load access fault.
pub(crate) const LOAD_FAULT: u64 = 5;
/// Store or atomic access fault.
pub(crate) const STORE_FAULT: u64 = 7;
/// User environment call.
pub(crate) const USER_CALL: u64 = 8;
/// An instruction that the hardware leaves to microcode.
pub(crate) const MICROCODED: u64 = 30;

/// Why a hart stopped executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The turn is over.
    OutOfFuel,
    /// The hart gives the rest of its turn away.
    Yield,
    /// A trap at the instruction under the program counter, which had no effect.
    Trap { cause: u64, tval: u64 },
    /// No credit of this counter is there; the instruction had no effect.
    WaitCredit(usize),
    /// A reduction waits for its partner; the instruction had no effect.
    WaitPartner(Wait),
    /// The hart waits for an interrupt that never comes.
    Stall,
    /// The instruction would change what other harts have read ahead of their turns; it had no
    /// effect.
    Disturbs,
    /// A bus error was raised by the instruction before the program counter.
    BusError,
}

impl Event {
    /// Returns `true` if the instruction that raised the event is complete.
    pub(crate) fn completes(self) -> bool {
        matches!(self, Self::Yield | Self::BusError | Self::OutOfFuel)
    }

    pub(crate) fn load_fault(address: u64) -> Self {
        Self::Trap { cause: LOAD_FAULT, tval: address }
    }

    pub(crate) fn store_fault(address: u64) -> Self {
        Self::Trap { cause: STORE_FAULT, tval: address }
    }

    /// A trap whose value is the instruction at `pc`; 0 for 16-bit instructions.
    #[cold]
    pub(crate) fn at_instruction(core: &Core<'_>, cause: u64, pc: u64) -> Self {
        let bits = code::fetch(&core.chip.dram, pc).unwrap_or(0);
        Self::Trap { cause, tval: if bits & 3 == 3 { bits.into() } else { 0 } }
    }

    pub(crate) fn illegal(core: &Core<'_>, pc: u64) -> Self {
        Self::at_instruction(core, ILLEGAL, pc)
    }
}
