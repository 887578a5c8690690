//! Packed and mask instructions: which there are, and those on registers. Spec: ISA §3.4, §3.5
//!
//! They are kept as instructions, with the number under which [`OPERATIONS`] has what they do, and
//! take their operands out of the instruction when executed.

use et_isa::{Id, operand};

use crate::decode::op::Op;
use crate::decode::{funct3, rd, rs1, rs2};
use crate::exec::amo::Atomic;
use crate::exec::event::Event;
use crate::exec::packed_memory;
use crate::exec::slow_float;
use crate::float::lanes;
use crate::float::soft::{self, Rounding, SIGN};
use crate::float::{self, Compare, Pick};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};
use crate::memory::bus::Scope;

/// Lanes of a register.
pub(crate) const LANES: usize = 8;

/// What a packed or mask instruction does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packed {
    /// Not one of these instructions.
    None,
    /// A fused operation with the signs of product and addend flipped as given.
    Fused(u32, u32),
    Add,
    Subtract,
    Multiply,
    MinMax(Pick),
    /// All ones or zero per lane.
    Compare(Compare),
    /// A bit of a mask register per lane.
    CompareToMask(Compare),
    Round,
    ToInteger(Signed),
    FromInteger(Signed),
    ToHalf,
    /// A function of one operand that may raise flags.
    Float(fn(u32, &mut u32) -> u32),
    /// A function of two lanes.
    Binary(fn(u32, u32) -> u32),
    /// A function of a lane and the second register field.
    Shift(fn(u32, u32) -> u32),
    /// A condition on two lanes, to a mask register.
    BinaryToMask(fn(u32, u32) -> bool),
    /// A function of a lane and a 10-bit constant.
    Constant(fn(u32, u32) -> u32),
    /// A short float to all lanes.
    BroadcastFloat,
    /// A 20-bit constant to all lanes.
    BroadcastConstant,
    ConditionalMove,
    /// Takes all lanes, not only the enabled ones.
    MoveByMask,
    Swizzle,
    PackBytes,
    PackHalves,
    BroadcastInteger,
    LaneToInteger(Signed),
    MaskBinary(fn(u64, u64) -> u64),
    MaskCount(fn(u8) -> u32),
    MaskSet,
    MasksToInteger,
    MasksFromInteger,
    /// An access to memory.
    Memory(Access),
}

/// How bits are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    Yes,
    No,
}

/// An access of lanes to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All eight lanes, whatever the mask.
    LoadWhole,
    StoreWhole,
    /// Consecutive words.
    Load,
    Store,
    /// One word to all lanes.
    LoadBroadcast,
    /// Aligned and coherent.
    LoadCoherent(Scope),
    StoreCoherent(Scope),
    /// From, or to, a base and an index per lane; the size in bytes, and the scope of those that
    /// are aligned and coherent.
    Gather(u64, Option<Scope>),
    Scatter(u64, Option<Scope>),
    /// Within a block of 32 bytes; the size in bytes.
    GatherBlock(u64),
    ScatterBlock(u64),
    Atomic(Atomic, Scope),
    /// Atomic minimum or maximum of floats.
    AtomicFloat(Pick, Scope),
}

/// What each instruction does, by its number.
static OPERATIONS: [Packed; Id::ALL.len()] = {
    let mut operations = [Packed::None; Id::ALL.len()];
    let mut number = 0;
    while number < operations.len() {
        operations[number] = of(Id::ALL[number]);
        number += 1;
    }
    operations
};

/// Returns `true` if an instruction is one of these.
pub(crate) fn exists(id: Id) -> bool {
    !matches!(of(id), Packed::None)
}

const fn of(id: Id) -> Packed {
    /// All ones if the condition holds.
    macro_rules! condition {
        ($condition:expr) => {{
            const HOLDS: fn(u32, u32) -> bool = $condition;
            Packed::Binary(|a, b| if HOLDS(a, b) { u32::MAX } else { 0 })
        }};
    }
    match id {
        Id::FmaddPs => Packed::Fused(0, 0),
        Id::FmsubPs => Packed::Fused(0, SIGN),
        Id::FnmsubPs => Packed::Fused(SIGN, 0),
        Id::FnmaddPs => Packed::Fused(SIGN, SIGN),
        Id::FaddPs => Packed::Add,
        Id::FsubPs => Packed::Subtract,
        Id::FmulPs => Packed::Multiply,
        Id::FsgnjPs => Packed::Binary(|a, b| a & !SIGN | b & SIGN),
        Id::FsgnjnPs => Packed::Binary(|a, b| a & !SIGN | !b & SIGN),
        Id::FsgnjxPs => Packed::Binary(|a, b| a ^ b & SIGN),
        Id::FminPs => Packed::MinMax(Pick::Smaller),
        Id::FmaxPs => Packed::MinMax(Pick::Larger),
        Id::FlePs => Packed::Compare(Compare::LessOrEqual),
        Id::FltPs => Packed::Compare(Compare::Less),
        Id::FeqPs => Packed::Compare(Compare::Equal),
        Id::FlemPs => Packed::CompareToMask(Compare::LessOrEqual),
        Id::FltmPs => Packed::CompareToMask(Compare::Less),
        Id::FeqmPs => Packed::CompareToMask(Compare::Equal),
        Id::FroundPs => Packed::Round,
        Id::FfrcPs => Packed::Float(lanes::fraction),
        Id::FlogPs => Packed::Float(lanes::log2),
        Id::FexpPs => Packed::Float(lanes::exp2),
        Id::FrcpPs => Packed::Float(lanes::reciprocal),
        Id::FcvtPwPs => Packed::ToInteger(Signed::Yes),
        Id::FcvtPwuPs => Packed::ToInteger(Signed::No),
        Id::FcvtPsPw => Packed::FromInteger(Signed::Yes),
        Id::FcvtPsPwu => Packed::FromInteger(Signed::No),
        Id::FcvtPsF16 => Packed::Float(lanes::from_half),
        Id::FcvtF16Ps => Packed::ToHalf,
        Id::FmvzXPs => Packed::LaneToInteger(Signed::No),
        Id::FmvsXPs => Packed::LaneToInteger(Signed::Yes),
        Id::FclassPs => Packed::Binary(|a, _| float::class(a)),
        Id::FswizzPs => Packed::Swizzle,
        Id::FbciPs => Packed::BroadcastFloat,
        Id::FbciPi => Packed::BroadcastConstant,
        Id::FbcxPs => Packed::BroadcastInteger,
        Id::FaddiPi => Packed::Constant(u32::wrapping_add),
        Id::FandiPi => Packed::Constant(|a, b| a & b),
        Id::FcmovPs => Packed::ConditionalMove,
        Id::FcmovmPs => Packed::MoveByMask,
        Id::FaddPi => Packed::Binary(u32::wrapping_add),
        Id::FsllPi => Packed::Binary(lanes::shift_left),
        Id::FsrlPi => Packed::Binary(lanes::shift_right),
        Id::FxorPi => Packed::Binary(|a, b| a ^ b),
        Id::ForPi => Packed::Binary(|a, b| a | b),
        Id::FandPi => Packed::Binary(|a, b| a & b),
        Id::FnotPi => Packed::Binary(|a, _| !a),
        Id::Fsat8Pi => Packed::Binary(|a, _| lanes::saturate(a, -128, 127)),
        Id::Fsatu8Pi => Packed::Binary(|a, _| lanes::saturate(a, 0, 255)),
        Id::FsubPi => Packed::Binary(u32::wrapping_sub),
        Id::FsraPi => Packed::Binary(lanes::shift_right_signed),
        Id::FmulPi => Packed::Binary(u32::wrapping_mul),
        Id::FmulhPi => Packed::Binary(lanes::multiply_high_signed),
        Id::FmulhuPi => Packed::Binary(lanes::multiply_high),
        Id::FpackrepbPi => Packed::PackBytes,
        Id::FpackrephPi => Packed::PackHalves,
        Id::FminPi => Packed::Binary(lanes::min_signed),
        Id::FmaxPi => Packed::Binary(lanes::max_signed),
        Id::FminuPi => Packed::Binary(|a, b| if a < b { a } else { b }),
        Id::FmaxuPi => Packed::Binary(|a, b| if a > b { a } else { b }),
        Id::FltmPi => Packed::BinaryToMask(|a, b| a.cast_signed() < b.cast_signed()),
        Id::FsetmPi => Packed::BinaryToMask(|a, _| a != 0),
        Id::FslliPi => Packed::Shift(lanes::shift_left),
        Id::FsrliPi => Packed::Shift(lanes::shift_right),
        Id::FsraiPi => Packed::Shift(lanes::shift_right_signed),
        Id::FlePi => condition!(|a, b| a.cast_signed() <= b.cast_signed()),
        Id::FltPi => condition!(|a, b| a.cast_signed() < b.cast_signed()),
        Id::FeqPi => condition!(|a, b| a == b),
        Id::FltuPi => condition!(|a, b| a < b),
        Id::Maskand => Packed::MaskBinary(|a, b| a & b),
        Id::Maskor => Packed::MaskBinary(|a, b| a | b),
        Id::Maskxor => Packed::MaskBinary(|a, b| a ^ b),
        Id::Masknot => Packed::MaskBinary(|a, _| !a),
        Id::Maskpopc => Packed::MaskCount(u8::count_ones),
        Id::Maskpopcz => Packed::MaskCount(u8::count_zeros),
        Id::MovMX => Packed::MaskSet,
        Id::MovaXM => Packed::MasksToInteger,
        Id::MovaMX => Packed::MasksFromInteger,
        _ => match packed_memory::of(id) {
            Some(access) => Packed::Memory(access),
            None => Packed::None,
        },
    }
}

/// The constant of `fbci.ps`: 20 upper bits, and lower ones that continue their pattern.
fn short_float(imm: u32) -> u32 {
    let last = imm & 15;
    imm << 12 | last << 8 | last << 4 | (last + u32::from(last >= 8))
}

#[expect(clippy::cast_possible_truncation, reason = "lanes have 32 bits, masks eight")]
fn low(value: u64) -> u32 {
    value as u32
}

impl Hart {
    /// Returns `true` if m0 enables a lane.
    pub(crate) fn enables(&self, lane: usize) -> bool {
        self.masks >> lane & 1 != 0
    }

    fn mask(&self, register: u32) -> u64 {
        self.masks >> (8 * register) & 0xFF
    }

    fn set_mask(&mut self, register: u32, value: u64) {
        let at = 8 * register;
        self.masks = self.masks & !(0xFF << at) | (value & 0xFF) << at;
    }
}

/// Executes a packed or mask instruction at `pc`.
#[inline(never)]
pub(crate) fn execute(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<(), Event> {
    let raw = op.raw();
    let operation = OPERATIONS.get(op.packed_number()).copied().unwrap_or(Packed::None);
    let (a, b) = (hart.f[rs1(raw) as usize].0, hart.f[rs2(raw) as usize].0);
    let c = hart.f[(raw >> 27) as usize].0;
    // The mode is checked before anything else, whatever the mask says.
    let rounding = match operation {
        Packed::Fused(..)
        | Packed::Add
        | Packed::Subtract
        | Packed::Multiply
        | Packed::Round
        | Packed::ToInteger(_)
        | Packed::FromInteger(_) => slow_float::rounding(hart, core, funct3(raw), pc)?,
        Packed::ToHalf => slow_float::dynamic(hart, core, pc)?,
        _ => Rounding::NearestEven,
    };
    // By lane: the new content of the destination, and the flags raised.
    let with_flags: &dyn Fn(usize, &mut u32) -> u32 = match operation {
        Packed::Memory(access) => return packed_memory::execute(hart, core, raw, access),
        Packed::Fused(product, addend) => {
            &move |e, flags| lanes::mul_add(a[e] ^ product, b[e], c[e] ^ addend, rounding, flags)
        }
        Packed::Add => &|e, flags| lanes::add(a[e], b[e], rounding, flags),
        Packed::Subtract => &|e, flags| lanes::add(a[e], b[e] ^ SIGN, rounding, flags),
        Packed::Multiply => &|e, flags| lanes::mul(a[e], b[e], rounding, flags),
        Packed::MinMax(pick) => &move |e, flags| float::min_max(a[e], b[e], pick, flags),
        Packed::Compare(compare) => &move |e, flags| {
            if float::compare(a[e], b[e], compare, flags) { u32::MAX } else { 0 }
        },
        Packed::Round => &|e, flags| lanes::round(a[e], rounding, flags),
        Packed::ToInteger(Signed::Yes) => {
            &|e, flags| float::to_i32(a[e], rounding, flags).cast_unsigned()
        }
        Packed::ToInteger(Signed::No) => &|e, flags| float::to_u32(a[e], rounding, flags),
        Packed::FromInteger(Signed::Yes) => {
            &|e, flags| float::from_i33(a[e].cast_signed().into(), rounding, flags)
        }
        Packed::FromInteger(Signed::No) => {
            &|e, flags| float::from_i33(a[e].into(), rounding, flags)
        }
        Packed::ToHalf => &|e, flags| lanes::to_half(a[e], rounding, flags),
        Packed::Float(function) => &move |e, flags| function(a[e], flags),
        Packed::Binary(function) => &move |e, _| function(a[e], b[e]),
        Packed::Shift(function) => &move |e, _| function(a[e], rs2(raw)),
        Packed::Constant(function) => {
            let constant = operand::IMM10.value(raw).cast_unsigned();
            &move |e, _| function(a[e], constant)
        }
        Packed::BroadcastFloat => {
            let constant = short_float(raw >> 12);
            &move |_, _| constant
        }
        Packed::BroadcastConstant => {
            let constant = operand::IMM20.value(raw).cast_unsigned();
            &move |_, _| constant
        }
        Packed::ConditionalMove => &|e, _| if a[e] != 0 { b[e] } else { c[e] },
        Packed::Swizzle => {
            let selector = operand::IMM8.value(raw).cast_unsigned();
            &move |e, _| a[e & 4 | (selector >> (2 * (e & 3)) & 3) as usize]
        }
        Packed::PackBytes => &|e, _| {
            u32::from_le_bytes([0, 1, 2, 3].map(|part| a[(4 * e + part) % LANES].to_le_bytes()[0]))
        },
        Packed::PackHalves => &|e, _| {
            let half = |part| a[(2 * e + part) % LANES] & 0xFFFF;
            half(0) | half(1) << 16
        },
        Packed::BroadcastInteger => {
            let value = low(hart.x[rs1(raw) as usize]);
            &move |_, _| value
        }
        _ => return without_lanes(hart, core, op, pc, operation),
    };
    let fd = rd(raw) as usize;
    let mut flags = 0;
    let mut result = hart.f[fd].0;
    for (lane, bits) in result.iter_mut().enumerate() {
        if hart.enables(lane) {
            *bits = with_flags(lane, &mut flags);
        }
    }
    hart.f[fd] = Vector(result);
    hart.fcsr |= flags;
    Ok(())
}

/// Executes an instruction whose result is not one value per enabled lane.
fn without_lanes(
    hart: &mut Hart,
    core: &Core<'_>,
    op: Op,
    pc: u64,
    operation: Packed,
) -> Result<(), Event> {
    let raw = op.raw();
    let (a, b) = (hart.f[rs1(raw) as usize].0, hart.f[rs2(raw) as usize].0);
    match operation {
        Packed::CompareToMask(compare) => {
            let mut flags = 0;
            to_mask(hart, rd(raw), |e| float::compare(a[e], b[e], compare, &mut flags));
            hart.fcsr |= flags;
        }
        Packed::BinaryToMask(condition) => to_mask(hart, rd(raw), |e| condition(a[e], b[e])),
        Packed::MoveByMask => {
            let result = std::array::from_fn(|e| if hart.enables(e) { a[e] } else { b[e] });
            hart.f[rd(raw) as usize] = Vector(result);
        }
        Packed::LaneToInteger(signed) => {
            let lane = a[rs2(raw) as usize % LANES];
            hart.x[op.rd()] = match signed {
                Signed::Yes => i64::from(lane.cast_signed()).cast_unsigned(),
                Signed::No => lane.into(),
            };
        }
        Packed::MaskBinary(function) => {
            let value = function(hart.mask(rs1(raw)), hart.mask(rs2(raw)));
            hart.set_mask(rd(raw), value);
        }
        Packed::MaskCount(count) => {
            let [mask, ..] = hart.mask(rs1(raw)).to_le_bytes();
            hart.x[op.rd()] = count(mask).into();
        }
        Packed::MaskSet => {
            let constant = operand::IMM8.value(raw).cast_unsigned();
            let value = hart.x[rs1(raw) as usize] | u64::from(constant);
            hart.set_mask(rd(raw), value);
        }
        Packed::MasksToInteger => hart.x[op.rd()] = hart.masks,
        Packed::MasksFromInteger => hart.masks = hart.x[rs1(raw) as usize],
        _ => return Err(Event::illegal(core, pc)),
    }
    Ok(())
}

/// Sets the bits of a mask register to a condition, where m0 enables the lane.
fn to_mask(hart: &mut Hart, register: u32, mut condition: impl FnMut(usize) -> bool) {
    let mut value = hart.mask(register);
    for lane in (0..LANES).filter(|&lane| hart.enables(lane)) {
        value = value & !(1 << lane) | u64::from(condition(lane)) << lane;
    }
    hart.set_mask(register, value);
}

/// Smaller or larger of two floats as raw bits: no operand is flushed and no flag raised.
pub(crate) fn pick_raw(a: u32, b: u32, pick: Pick) -> u32 {
    if soft::is_signalling(a) || soft::is_signalling(b) {
        return soft::QUIET_NAN;
    }
    match (soft::is_nan(a), soft::is_nan(b)) {
        (true, true) => soft::QUIET_NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            let a_is_less = float::key(a) < float::key(b);
            if a_is_less == (pick == Pick::Smaller) { a } else { b }
        }
    }
}
