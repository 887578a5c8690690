//! Atomics and coherent small stores of opcode 0x3B. Spec: ISA §3.1, §3.2

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::bus::{self, Scope};
use crate::chip::Core;
use crate::decode::{funct3, funct7};
use crate::event::Event;
use crate::hart::Hart;
use crate::map;
use crate::op::Op;

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

impl Atomic {
    /// Decodes the function field without its scope bit.
    fn new(function: u32) -> Self {
        match function {
            0x00 => Self::Add,
            0x04 => Self::Swap,
            0x10 => Self::Xor,
            0x20 => Self::Or,
            0x30 => Self::And,
            0x40 => Self::Min,
            0x50 => Self::Max,
            0x60 => Self::MinUnsigned,
            0x70 => Self::MaxUnsigned,
            _ => Self::CompareSwap,
        }
    }
}

/// Makes the function for one width. Sequentially consistent: kernels build locks from these.
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

/// Executes an atomic instruction.
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "word operations take the low half")]
pub(crate) fn execute(hart: &mut Hart, core: &Core<'_>, op: Op, _: u64) -> Result<(), Event> {
    let raw = op.raw();
    let function = funct7(raw);
    let size = if funct3(raw) == 2 { 4 } else { 8 };
    let (address, operand, expected) = (hart.x[op.rs1()], hart.x[op.rs2()], hart.x[31]);
    let scope = if function & 1 == 0 { Scope::Local } else { Scope::Global };
    let operation = Atomic::new(function & !1);
    let fault = || Event::store_fault(map::canonical(address));
    let (region, offset) = bus::coherent(core, hart.shire(), address, size, scope)
        .map_err(bus::Coherence::of_store)?;
    let old = if size == 4 {
        let word = region.word(offset).ok_or_else(fault)?;
        let old = atomic_word(word, operation, operand as u32, expected as u32);
        i64::from(old.cast_signed()).cast_unsigned()
    } else {
        let double = region.double(offset).ok_or_else(fault)?;
        atomic_double(double, operation, operand, expected)
    };
    bus::note_coherent(core, region, offset, size);
    hart.x[op.rd()] = old;
    Ok(())
}

/// Executes a coherent store of a byte or halfword.
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "the low bytes are stored")]
pub(crate) fn small_store(hart: &mut Hart, core: &Core<'_>, op: Op, _: u64) -> Result<(), Event> {
    let (address, value) = (hart.x[op.rs1()], hart.x[op.rs2()]);
    let size = if funct7(op.raw()) & !1 == 0x08 { 1 } else { 2 };
    let fault = || Event::store_fault(map::canonical(address));
    // Only atomics are confined by a local scope.
    let (region, offset) = bus::coherent(core, hart.shire(), address, size, Scope::Global)
        .map_err(bus::Coherence::of_store)?;
    // Release: what the hart stored before is visible to who sees this.
    if size == 1 {
        region.byte(offset).ok_or_else(fault)?.store(value as u8, Ordering::Release);
    } else {
        region.half(offset).ok_or_else(fault)?.store(value as u16, Ordering::Release);
    }
    bus::note_coherent(core, region, offset, size);
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
