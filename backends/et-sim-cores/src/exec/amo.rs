//! Atomics and coherent small stores of opcode 0x3B. Spec: ISA §3.1, §3.2

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use et_isa::Access;

use crate::decode::op::{Op, SINK};
use crate::exec::event::Event;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::Region;
use crate::memory::bus::{self, Scope};
use crate::memory::weak::{Bank, Change, Target};

/// An atomic operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Add,
    Swap,
    Xor,
    Or,
    And,
    Min,
    Max,
    MinUnsigned,
    MaxUnsigned,
    CompareSwap,
}

/// Every operation, by number.
const OPERATIONS: [Atomic; 10] = [
    Atomic::Add,
    Atomic::Swap,
    Atomic::Xor,
    Atomic::Or,
    Atomic::And,
    Atomic::Min,
    Atomic::Max,
    Atomic::MinUnsigned,
    Atomic::MaxUnsigned,
    Atomic::CompareSwap,
];

/// What the immediate of an atomic or a small store says: operation, scope and size in bytes.
pub(crate) fn details(operation: Atomic, scope: Scope, size: u32) -> i32 {
    let global = u32::from(scope == Scope::Global);
    (operation as u32 | global << 4 | size << 8).cast_signed()
}

/// The scope in such an immediate.
#[inline(always)]
fn scope(op: Op) -> Scope {
    if op.raw() >> 4 & 1 == 0 { Scope::Local } else { Scope::Global }
}

/// The size in such an immediate.
#[inline(always)]
fn size(op: Op) -> u64 {
    (op.raw() >> 8).into()
}

/// Defines the function for one width. Sequentially consistent: kernels build locks from these.
macro_rules! atomic {
    ($name:ident, $atomic:ident, $unsigned:ident) => {
        /// Changes `word` and returns its old value; `expected` is for compare-and-swap.
        pub(crate) fn $name(
            word: &$atomic,
            operation: Atomic,
            operand: $unsigned,
            expected: $unsigned,
        ) -> $unsigned {
            const ORDER: Ordering = Ordering::SeqCst;
            // Signed order is unsigned order with the sign bit flipped.
            const FLIP: $unsigned = 1 << ($unsigned::BITS - 1);
            let pick = |larger: bool| {
                let new = |old: $unsigned| {
                    let old_is_larger = old ^ FLIP > operand ^ FLIP;
                    Some(if old_is_larger == larger { old } else { operand })
                };
                word.fetch_update(ORDER, Ordering::Relaxed, new).unwrap_or_else(|old| old)
            };
            match operation {
                Atomic::Add => word.fetch_add(operand, ORDER),
                Atomic::Swap => word.swap(operand, ORDER),
                Atomic::Xor => word.fetch_xor(operand, ORDER),
                Atomic::Or => word.fetch_or(operand, ORDER),
                Atomic::And => word.fetch_and(operand, ORDER),
                Atomic::Min => pick(false),
                Atomic::Max => pick(true),
                Atomic::MinUnsigned => word.fetch_min(operand, ORDER),
                Atomic::MaxUnsigned => word.fetch_max(operand, ORDER),
                Atomic::CompareSwap => {
                    word.compare_exchange(expected, operand, ORDER, ORDER).unwrap_or_else(|old| old)
                }
            }
        }
    };
}

atomic!(atomic_word, AtomicU32, u32);
atomic!(atomic_double, AtomicU64, u64);

/// Changes the word or double word at `offset` and returns its old value, zero-extended; none if it
/// is misaligned or not inside the region.
#[expect(clippy::cast_possible_truncation, reason = "word operations take the low half")]
pub(crate) fn in_region(
    region: &Region,
    offset: u64,
    size: u64,
    operation: Atomic,
    operand: u64,
    expected: u64,
) -> Option<u64> {
    if size == 4 {
        let word = region.word(offset)?;
        Some(atomic_word(word, operation, operand as u32, expected as u32).into())
    } else {
        Some(atomic_double(region.double(offset)?, operation, operand, expected))
    }
}

/// Returns what an atomic makes of `old`; none if it stores nothing.
#[expect(clippy::cast_possible_truncation, reason = "word operations take the low half")]
pub(crate) fn changed(
    old: u64,
    size: u64,
    operation: Atomic,
    operand: u64,
    expected: u64,
) -> Option<u64> {
    let stores = if size == 4 {
        operation != Atomic::CompareSwap || old as u32 == expected as u32
    } else {
        operation != Atomic::CompareSwap || old == expected
    };
    let new = if size == 4 {
        let word = AtomicU32::new(old as u32);
        atomic_word(&word, operation, operand as u32, expected as u32);
        word.into_inner().into()
    } else {
        let double = AtomicU64::new(old);
        atomic_double(&double, operation, operand, expected);
        double.into_inner()
    };
    stores.then_some(new)
}

/// An atomic instruction with the values of its registers.
struct Instruction {
    operation: Atomic,
    scope: Scope,
    size: u64,
    address: u64,
    operand: u64,
    expected: u64,
}

impl Instruction {
    #[inline(always)]
    fn new(hart: &Hart, op: Op) -> Self {
        let number = (op.raw() & 15) as usize;
        Self {
            operation: OPERATIONS.get(number).copied().unwrap_or(Atomic::CompareSwap),
            scope: scope(op),
            size: size(op),
            address: hart.x[op.rs1()],
            operand: hart.x[op.rs2()],
            expected: hart.x[31],
        }
    }
}

/// Executes an atomic instruction; on weak memory later, if its result is not used.
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "the result of a word operation is a word")]
pub(crate) fn execute(hart: &mut Hart, core: &Core<'_>, op: Op, _: u64) -> Result<(), Event> {
    let Instruction { operation, scope, size, address, operand, expected } =
        Instruction::new(hart, op);
    let (region, offset) = bus::coherent(core, hart.shire(), address, size, scope, Access::Atomic)
        .map_err(bus::Coherence::of_store)?;
    let target = Target { scope, bank: Bank::of(core, region), offset, size };
    let change = Change::Atomic { operation, operand, expected };
    if op.rd() == SINK as usize {
        bus::post(core, hart, target, change);
        return Ok(());
    }
    let old = bus::change(core, hart, target, change);
    let word = i64::from((old as u32).cast_signed()).cast_unsigned();
    hart.x[op.rd()] = if size == 4 { word } else { old };
    Ok(())
}

/// Executes a coherent store of a byte or halfword; on weak memory later.
#[inline(never)]
pub(crate) fn small_store(hart: &mut Hart, core: &Core<'_>, op: Op, _: u64) -> Result<(), Event> {
    let size = size(op);
    // Only atomics are kept away from scratchpads by a local scope.
    let (shire, address) = (hart.shire(), hart.x[op.rs1()]);
    let (region, offset) = bus::coherent(core, shire, address, size, Scope::Global, Access::Store)
        .map_err(bus::Coherence::of_store)?;
    let target = Target { scope: scope(op), bank: Bank::of(core, region), offset, size };
    bus::post(core, hart, target, Change::Store(hart.x[op.rs2()]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_and_unsigned_extremes_differ() {
        for (operation, new) in [
            (Atomic::Min, 0x8000_0000),
            (Atomic::Max, 1),
            (Atomic::MinUnsigned, 1),
            (Atomic::MaxUnsigned, 0x8000_0000),
        ] {
            let word = AtomicU32::new(1);
            assert_eq!(atomic_word(&word, operation, 0x8000_0000, 0), 1);
            assert_eq!(word.into_inner(), new, "{operation:?}");
        }
    }

    #[test]
    fn compare_and_swap_needs_the_expected_value() {
        let word = AtomicU64::new(5);
        assert_eq!(atomic_double(&word, Atomic::CompareSwap, 9, 4), 5);
        assert_eq!(atomic_double(&word, Atomic::CompareSwap, 9, 5), 5);
        assert_eq!(word.into_inner(), 9);
    }
}
