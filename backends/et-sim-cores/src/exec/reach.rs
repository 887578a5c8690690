//! What instructions reach besides registers of their hart: for harts that read ahead of their
//! turns, and for what others may do meanwhile.

use et_isa::Id;

use crate::decode::op::{Op, kind};
use crate::decode::{imm_i, imm_s, rs1, rs2};
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::map::{self, Place};

/// The mask of all lanes.
const ALL: u64 = 0xFF;
/// Bytes of a packed register.
const REGISTER_BYTES: u64 = 32;

/// Returns `true` if an operation loads an integer register.
pub(crate) fn is_load(op: Op) -> bool {
    matches!(
        op.kind(),
        kind::LB..=kind::LWU
            | kind::C_LW
            | kind::C_LD
            | kind::PRIVATE_LB..=kind::PRIVATE_LWU
            | kind::C_PRIVATE_LW
            | kind::C_PRIVATE_LD
    )
}

/// Returns `true` if an operation stores an integer register.
pub(crate) fn is_store(op: Op) -> bool {
    matches!(
        op.kind(),
        kind::SB..=kind::SD
            | kind::C_SW
            | kind::C_SD
            | kind::PRIVATE_SB..=kind::PRIVATE_SD
            | kind::C_PRIVATE_SW
            | kind::C_PRIVATE_SD
    )
}

/// What an instruction reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Registers of its hart.
    Registers,
    /// The same, and bytes that it loads.
    Load { from: u64, size: u64 },
    /// The same, for all lanes of a packed register.
    Packed { from: u64, size: u64 },
    /// The same, for each lane by itself.
    Gather { size: u64 },
    /// Bytes that it stores.
    Store { to: u64, size: u64 },
    /// It may be anything.
    Anything,
}

fn reach(hart: &Hart, op: Op) -> Reach {
    let raw = op.raw();
    let effective = hart.x[op.rs1()].wrapping_add(op.imm());
    let packed = |distance: i32| hart.x[rs1(raw) as usize].wrapping_add_signed(distance.into());
    match op.kind() {
        kind::LUI..=kind::BGEU
        | kind::ADDI..=kind::REMUW
        | kind::FENCE
        | kind::PAUSE
        | kind::PACKB
        | kind::FADD..=kind::PACKED_PRODUCT
        | kind::PACKED_FROM_INTEGERS..=kind::MOVA_M_X
        | kind::C_LUI..=kind::C_BNE
        | kind::C_ADDI..=kind::C_SUBW => Reach::Registers,
        kind::FLW | kind::PRIVATE_FLW => Reach::Load { from: effective, size: 4 },
        kind::FSW | kind::PRIVATE_FSW => Reach::Store { to: effective, size: 4 },
        kind::PACKED_LOAD | kind::PRIVATE_PACKED_LOAD => {
            Reach::Packed { from: packed(imm_i(raw)), size: REGISTER_BYTES }
        }
        kind::PACKED_BROADCAST | kind::PRIVATE_PACKED_BROADCAST => {
            Reach::Packed { from: packed(imm_i(raw)), size: 4 }
        }
        kind::PACKED_STORE | kind::PRIVATE_PACKED_STORE => {
            Reach::Store { to: packed(imm_s(raw)), size: REGISTER_BYTES }
        }
        kind::PACKED_GATHER | kind::PRIVATE_PACKED_GATHER => Reach::Gather { size: 1 },
        kind::PACKED_GATHER_HALVES | kind::PRIVATE_PACKED_GATHER_HALVES => {
            Reach::Gather { size: 2 }
        }
        kind::PACKED_GATHER_BLOCK | kind::PRIVATE_PACKED_GATHER_BLOCK => block(hart, raw),
        kind::PACKED => match Id::from_number(op.packed_number()) {
            Some(Id::FgwPs) => Reach::Gather { size: 4 },
            Some(Id::Fg32hPs | Id::Fg32wPs) => block(hart, raw),
            Some(id) if crate::exec::packed_memory::of(id).is_none() => Reach::Registers,
            _ => Reach::Anything,
        },
        _ if is_load(op) => Reach::Load { from: effective, size: size(op) },
        _ if is_store(op) => Reach::Store { to: effective, size: size(op) },
        _ => Reach::Anything,
    }
}

/// Bytes that an operation loads or stores of an integer register.
fn size(op: Op) -> u64 {
    match op.kind() {
        kind::LB | kind::LBU | kind::PRIVATE_LB | kind::PRIVATE_LBU => 1,
        kind::LH | kind::LHU | kind::PRIVATE_LH | kind::PRIVATE_LHU => 2,
        kind::SB | kind::PRIVATE_SB => 1,
        kind::SH | kind::PRIVATE_SH => 2,
        kind::LD | kind::C_LD | kind::PRIVATE_LD | kind::C_PRIVATE_LD => 8,
        kind::SD | kind::C_SD | kind::PRIVATE_SD | kind::C_PRIVATE_SD => 8,
        _ => 4,
    }
}

/// What a gather within a block of 32 bytes loads.
fn block(hart: &Hart, raw: u32) -> Reach {
    let from = hart.x[rs2(raw) as usize] & !(REGISTER_BYTES - 1);
    Reach::Packed { from, size: REGISTER_BYTES }
}

/// Returns `true` if an instruction can be executed ahead of its turn now: it reaches nothing but
/// registers, and memory that is in the shire's cache from now on and watched there.
pub(crate) fn can_be_ahead(hart: &mut Hart, core: &Core<'_>, op: Op) -> bool {
    let watch = |hart: &mut Hart, from: u64, size: u64| {
        // Stacks are not cached, so there is nothing to watch.
        !core.stacks.overlap(from, size)
            && hart.cache.as_mut().is_some_and(|cache| cache.watch(core, from, size))
    };
    let all = hart.masks & ALL == ALL && hart.gsc_progress == 0;
    match reach(hart, op) {
        Reach::Registers => true,
        Reach::Load { from, size } => watch(hart, from, size),
        Reach::Packed { from, size } => all && watch(hart, from, size),
        Reach::Gather { size } => {
            let raw = op.raw();
            let (base, indices) = (hart.x[rs2(raw) as usize], hart.f[rs1(raw) as usize].0);
            let from = |index: u32| base.wrapping_add_signed(index.cast_signed().into());
            all && indices.into_iter().all(|index| watch(hart, from(index), size))
        }
        Reach::Store { .. } | Reach::Anything => false,
    }
}

/// Returns `true` if an instruction could change what other harts have read ahead of their turns.
#[inline]
pub(crate) fn disturbs(hart: &mut Hart, core: &Core<'_>, op: Op) -> bool {
    hart.is_watched() && disturbs_watched(hart, core, op)
}

#[cold]
fn disturbs_watched(hart: &mut Hart, core: &Core<'_>, op: Op) -> bool {
    let (reach, shire) = (reach(hart, op), hart.shire());
    let Some(cache) = &mut hart.cache else { return false };
    match reach {
        Reach::Registers => false,
        Reach::Load { .. } | Reach::Packed { .. } | Reach::Gather { .. } => !cache.can_fetch(),
        Reach::Store { to, size } => match map::place(map::canonical(to), shire) {
            Place::Dram(_) if core.stacks.are_at(to) => false,
            Place::Dram(_) => cache.disturb(to, size) || !cache.can_fetch(),
            Place::Scratchpad(_) => false,
            _ => true,
        },
        Reach::Anything => true,
    }
}
