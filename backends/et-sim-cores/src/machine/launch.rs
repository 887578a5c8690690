//! What is launched, and what is reported when all harts have left the kernel.

use std::time::Duration;

use crate::histogram::Histogram;

/// A kernel launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Address of the first instruction.
    pub entry: u64,
    /// What every hart finds in `a0`: the address of the arguments.
    pub args: u64,
    /// What every hart finds in `a1`: the address of the kernel environment.
    pub env: u64,
    /// Shires whose harts run the kernel, bit *s* for shire *s*.
    pub shire_mask: u64,
    /// The stacks.
    pub stack: Stack,
}

/// Stacks of a launch: compute hart *k* starts at `top - k * bytes_per_hart`, whatever shires take
/// part. Spec: §9.1, §14
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Where the stack of compute hart 0 begins; stacks grow down.
    pub top: u64,
    /// Distance between the stacks of neighbouring harts, in bytes.
    pub bytes_per_hart: u64,
    /// Bytes at the low end of each stack that trap when a hart touches them; 0 for none. Without
    /// effect if the stacks of all harts together have 4 GiB or more. The card has no such thing:
    /// a hart that uses too much stack there changes that of its neighbour.
    pub guard_bytes: u64,
}

/// What became of a launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchReport {
    /// The harts that failed, in the order of their numbers.
    pub failures: Vec<HartFailure>,
    /// Instructions retired by all harts together.
    pub instructions: u64,
    /// The same by instruction, if the machine
    /// [counts](crate::MachineConfig::counts_instructions).
    pub histogram: Option<Histogram>,
    /// Harts that took part.
    pub harts: u32,
    /// Simulated cycles from launch to end.
    pub cycles: u64,
    /// Host time from launch to end.
    pub wall: Duration,
    /// On weak memory a hash over all turns and over everything that became visible, in its order:
    /// equal traces mean equal executions. Otherwise 0.
    pub trace: u64,
}

/// A hart that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HartFailure {
    /// Global hart number, 0 to 2047 and 2080 to 2111.
    pub hart_id: u32,
    /// Why the hart left the kernel.
    pub exit: HartExit,
    /// The hart's user-mode state when it left.
    pub state: HartState,
}

/// Why a hart that failed left the kernel. Spec: §14
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HartExit {
    /// The kernel returned this negative value.
    NegativeReturn(i64),
    /// The kernel gave up; the value is its first argument. Also any other return type than
    /// success that a kernel names itself. The state continues behind the call.
    SelfAbort(i64),
    /// A trap.
    Exception {
        /// Cause as in `scause`.
        cause: u64,
        /// Value as in `stval`.
        tval: u64,
    },
    /// An access to an address that decodes but has no device behind it.
    BusError,
    /// Stopped by [`Machine::abort`](crate::Machine::abort) or
    /// [`Machine::reset`](crate::Machine::reset).
    Aborted,
}

/// User-mode state of a hart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HartState {
    /// Program counter: the faulting instruction of a trap, otherwise the next instruction.
    pub pc: u64,
    /// Integer registers; the first is always 0.
    pub x: [u64; 32],
    /// What supervisor mode would find in `sstatus`: floating point on and dirty.
    pub sstatus: u64,
    /// The `tensor_error` register.
    pub tensor_error: u16,
}
