//! Which integer registers of a hart are in registers of the processor.

use std::mem::offset_of;

use super::emit::{R10, R11, R12, R13, R14, R15, RBP, RBX, Reg, Rm};
use super::thunks::{HART, distance};
use crate::decode::op::SINK;
use crate::machine::hart::Hart;

/// Registers of the processor that keep some of a hart.
const HOLDERS: [Reg; 8] = [RBX, RBP, R10, R11, R12, R13, R14, R15];

/// Floating-point registers of a hart.
pub(super) const FLOATS: usize = 32;
/// Vector registers of the processor that are not held: code computes in them.
const FIRST_VECTOR: Reg = 5;
const VECTORS: Reg = 16;

/// Where the integer registers of a hart are while the code of a page runs.
#[derive(Debug, Default)]
pub(super) struct Registers {
    held: [Option<Reg>; SINK as usize],
    /// Registers that the code writes.
    written: u32,
    /// Floating-point registers that are held. The hart has the same value at any time.
    floats: [Option<Reg>; FLOATS],
}

impl Registers {
    /// Holds those that are used most, by how often each is. `written` has a bit for each that is
    /// written.
    pub(super) fn choose(
        uses: &[u64; SINK as usize],
        written: u32,
        float_uses: &[u64; FLOATS],
    ) -> Self {
        let mut order: Vec<usize> = (1..SINK as usize).filter(|&x| uses[x] != 0).collect();
        order.sort_by_key(|&x| std::cmp::Reverse(uses[x]));
        let mut registers = Self { written, ..Self::default() };
        for (x, holder) in order.into_iter().zip(HOLDERS) {
            registers.held[x] = Some(holder);
        }
        let mut order: Vec<usize> = (0..FLOATS).filter(|&f| float_uses[f] != 0).collect();
        order.sort_by_key(|&f| std::cmp::Reverse(float_uses[f]));
        for (f, holder) in order.into_iter().zip(FIRST_VECTOR..VECTORS) {
            registers.floats[f] = Some(holder);
        }
        registers
    }

    /// The register of the processor that holds one of the hart.
    pub(super) fn holder(&self, x: usize) -> Option<Reg> {
        self.held.get(x).copied().flatten()
    }

    /// Where a register is.
    pub(super) fn place(&self, x: usize) -> Rm {
        self.holder(x).map_or_else(|| home(x), Rm::Reg)
    }

    /// The vector register that holds a floating-point register.
    pub(super) fn float_holder(&self, f: usize) -> Option<Reg> {
        self.floats[f % FLOATS]
    }

    /// Where a floating-point register can be read.
    pub(super) fn float(&self, f: usize) -> Rm {
        self.float_holder(f).map_or_else(|| float(f), Rm::Reg)
    }

    /// The floating-point registers that are held.
    pub(super) fn held_floats(&self) -> impl Iterator<Item = (Rm, Reg)> {
        let held = self.floats.iter().enumerate();
        held.filter_map(|(f, holder)| Some((float(f), (*holder)?)))
    }

    /// What is held, and whether it is written.
    pub(super) fn held(&self) -> impl Iterator<Item = (Rm, Reg, bool)> {
        let held = self.held.iter().enumerate();
        held.filter_map(|(x, holder)| Some((home(x), (*holder)?, self.written >> x & 1 != 0)))
    }
}

/// Where a register is in the hart.
fn home(x: usize) -> Rm {
    Rm::At(HART, distance(offset_of!(Hart, x) + 8 * x))
}

/// Where a floating-point register is in the hart, also if it is held.
pub(super) fn float(f: usize) -> Rm {
    Rm::At(HART, distance(offset_of!(Hart, f) + 32 * (f & 31)))
}
