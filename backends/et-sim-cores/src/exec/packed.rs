//! Packed and mask instructions: which there are, and those on registers. Spec: ISA §3.4, §3.5
//!
//! They are kept as instructions and taken apart when executed: kernels spend their time in the
//! eight lanes, not in the decoder.

use crate::decode::op::Op;
use crate::decode::{funct3, funct7, rd, rs1, rs2};
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
    /// Left to microcode, which means a trap.
    Microcoded,
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
    /// A function of a lane and a constant.
    Constant(fn(u32, u32) -> u32, u32),
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
    LoadCoherent,
    StoreCoherent,
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

/// Decodes an instruction; none if it is not one of these.
pub(crate) fn decode(raw: u32) -> Option<Packed> {
    let f3 = funct3(raw);
    Some(match raw & 0x7F {
        0x07 if f3 == 5 => Packed::Memory(Access::LoadWhole),
        0x27 if f3 == 5 => Packed::Memory(Access::StoreWhole),
        0x0B if f3 == 3 && raw >> 20 == 0 => Packed::BroadcastInteger,
        0x0B => Packed::Memory(packed_memory::decode(raw)?),
        0x1F => Packed::Constant(|_, constant| constant, short_float(raw >> 12)),
        0x5F => Packed::Constant(|_, constant| constant, (raw.cast_signed() >> 12).cast_unsigned()),
        0x3F if raw >> 25 & 3 == 2 => match f3 {
            0 => Packed::Constant(u32::wrapping_add, imm10(raw)),
            1 => Packed::Constant(|a, b| a & b, imm10(raw)),
            2 => Packed::ConditionalMove,
            _ => return None,
        },
        0x5B if !matches!(f3, 5 | 6) => {
            let flip = |bit: u32| if raw >> 25 & bit != 0 { SIGN } else { 0 };
            // 0 fmadd, 1 fmsub, 2 fnmsub, 3 fnmadd: 2 and 3 flip the product, 1 and 3 the addend.
            Packed::Fused(flip(2), flip(1))
        }
        0x77 if f3 == 0 && funct7(raw) == 0 => Packed::MoveByMask,
        0x7B => return custom3(raw),
        _ => return None,
    })
}

/// The constant of `fbci.ps`: 20 upper bits, and lower ones that continue their pattern.
fn short_float(imm: u32) -> u32 {
    let last = imm & 15;
    imm << 12 | last << 8 | last << 4 | (last + u32::from(last >= 8))
}

/// The 10-bit signed immediate of opcode 0x3F.
fn imm10(raw: u32) -> u32 {
    let bits = raw >> 27 << 5 | rs2(raw);
    ((bits << 22).cast_signed() >> 22).cast_unsigned()
}

fn custom3(raw: u32) -> Option<Packed> {
    let (f3, f7, b) = (funct3(raw), funct7(raw), rs2(raw));
    let rounded = !matches!(f3, 5 | 6);
    // Destination, or operands, that are mask registers have only three bits.
    let to_mask = rd(raw) < 8;
    Some(match (f7, f3, b) {
        (0x00, ..) if rounded => Packed::Add,
        (0x04, ..) if rounded => Packed::Subtract,
        (0x08, ..) if rounded => Packed::Multiply,
        (0x0C, ..) | (0x2C, 0, 0 | 6 | 8) | (0x0F, 0..=3, _) => Packed::Microcoded,
        (0x10, 0, _) => Packed::Binary(|a, b| a & !SIGN | b & SIGN),
        (0x10, 1, _) => Packed::Binary(|a, b| a & !SIGN | !b & SIGN),
        (0x10, 2, _) => Packed::Binary(|a, b| a ^ b & SIGN),
        (0x14, 0, _) => Packed::MinMax(Pick::Smaller),
        (0x14, 1, _) => Packed::MinMax(Pick::Larger),
        (0x50, 0, _) => Packed::Compare(Compare::LessOrEqual),
        (0x50, 1, _) => Packed::Compare(Compare::Less),
        (0x50, 2, _) => Packed::Compare(Compare::Equal),
        (0x50, 4, _) if to_mask => Packed::CompareToMask(Compare::LessOrEqual),
        (0x50, 5, _) if to_mask => Packed::CompareToMask(Compare::Less),
        (0x50, 6, _) if to_mask => Packed::CompareToMask(Compare::Equal),
        (0x2C, _, 1) if rounded => Packed::Round,
        (0x2C, 0, 2) => Packed::Float(lanes::fraction),
        (0x2C, 0, 3) => Packed::Float(lanes::log2),
        (0x2C, 0, 4) => Packed::Float(lanes::exp2),
        (0x2C, 0, 7) => Packed::Float(lanes::reciprocal),
        (0x60, _, 0) if rounded => Packed::ToInteger(Signed::Yes),
        (0x60, _, 1) if rounded => Packed::ToInteger(Signed::No),
        (0x68, _, 0) if rounded => Packed::FromInteger(Signed::Yes),
        (0x68, _, 1) if rounded => Packed::FromInteger(Signed::No),
        (0x68, 0, 0x0A) => Packed::Float(lanes::from_half),
        (0x6C, 0, 9) => Packed::ToHalf,
        (0x70, 0, 0..8) => Packed::LaneToInteger(Signed::No),
        (0x70, 2, 0..8) => Packed::LaneToInteger(Signed::Yes),
        (0x70, 1, 0) => Packed::Binary(|a, _| float::class(a)),
        (0x73, ..) => Packed::Swizzle,
        (0x33 | 0x29 | 0x2A | 0x2B | 0x6B, ..) => return mask(raw),
        _ => return integer(f7, f3, b, to_mask),
    })
}

fn integer(f7: u32, f3: u32, b: u32, to_mask: bool) -> Option<Packed> {
    /// All ones if the condition holds.
    macro_rules! condition {
        ($condition:expr) => {{
            const HOLDS: fn(u32, u32) -> bool = $condition;
            Packed::Binary(|a, b| if HOLDS(a, b) { u32::MAX } else { 0 })
        }};
    }
    Some(match (f7, f3, b) {
        (0x03, 0, _) => Packed::Binary(u32::wrapping_add),
        (0x03, 1, _) => Packed::Binary(lanes::shift_left),
        (0x03, 5, _) => Packed::Binary(lanes::shift_right),
        (0x03, 4, _) => Packed::Binary(|a, b| a ^ b),
        (0x03, 6, _) => Packed::Binary(|a, b| a | b),
        (0x03, 7, _) => Packed::Binary(|a, b| a & b),
        (0x03, 2, 0) => Packed::Binary(|a, _| !a),
        (0x03, 3, 0) => Packed::Binary(|a, _| lanes::saturate(a, -128, 127)),
        (0x03, 3, 1) => Packed::Binary(|a, _| lanes::saturate(a, 0, 255)),
        (0x07, 0, _) => Packed::Binary(u32::wrapping_sub),
        (0x07, 5, _) => Packed::Binary(lanes::shift_right_signed),
        (0x0B, 0, _) => Packed::Binary(u32::wrapping_mul),
        (0x0B, 1, _) => Packed::Binary(lanes::multiply_high_signed),
        (0x0B, 2, _) => Packed::Binary(lanes::multiply_high),
        (0x13, 0, 0) => Packed::PackBytes,
        (0x13, 1, 0) => Packed::PackHalves,
        (0x17, 0, _) => Packed::Binary(lanes::min_signed),
        (0x17, 1, _) => Packed::Binary(lanes::max_signed),
        (0x17, 2, _) => Packed::Binary(u32::min),
        (0x17, 3, _) => Packed::Binary(u32::max),
        (0x1F, 0, _) if to_mask => Packed::BinaryToMask(|a, b| a.cast_signed() < b.cast_signed()),
        (0x27, 1, _) => Packed::Shift(lanes::shift_left),
        (0x27, 5, _) => Packed::Shift(lanes::shift_right),
        (0x27, 7, _) => Packed::Shift(lanes::shift_right_signed),
        (0x53, 0, _) => condition!(|a, b| a.cast_signed() <= b.cast_signed()),
        (0x53, 1, _) => condition!(|a, b| a.cast_signed() < b.cast_signed()),
        (0x53, 2, _) => condition!(|a, b| a == b),
        (0x53, 3, _) => condition!(|a, b| a < b),
        (0x53, 4, 0) if to_mask => Packed::BinaryToMask(|a, _| a != 0),
        _ => return None,
    })
}

fn mask(raw: u32) -> Option<Packed> {
    let (f3, a, b) = (funct3(raw), rs1(raw), rs2(raw));
    let three_masks = rd(raw) < 8 && a < 8 && b < 8;
    Some(match (funct7(raw), f3) {
        (0x33, 7) if three_masks => Packed::MaskBinary(|a, b| a & b),
        (0x33, 6) if three_masks => Packed::MaskBinary(|a, b| a | b),
        (0x33, 4) if three_masks => Packed::MaskBinary(|a, b| a ^ b),
        (0x33, 2) if three_masks && b == 0 => Packed::MaskBinary(|a, _| !a),
        (0x29, 0) if a < 8 && b == 0 => Packed::MaskCount(u8::count_ones),
        (0x2A, 0) if a < 8 && b == 0 => Packed::MaskCount(u8::count_zeros),
        (0x2B, _) if rd(raw) < 8 => Packed::MaskSet,
        (0x6B, 0) if a == 0 && b == 0 => Packed::MasksToInteger,
        (0x6B, 1) if rd(raw) == 0 && b == 0 => Packed::MasksFromInteger,
        _ => return None,
    })
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
    let operation = decode(raw).ok_or_else(|| Event::illegal(core, pc))?;
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
        | Packed::FromInteger(_) => slow_float::rounding(hart, core, raw, pc)?,
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
        Packed::Constant(function, constant) => &move |e, _| function(a[e], constant),
        Packed::ConditionalMove => &|e, _| if a[e] != 0 { b[e] } else { c[e] },
        Packed::Swizzle => {
            let selector = rs2(raw) << 3 | funct3(raw);
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
            let constant = rs2(raw) << 3 | funct3(raw);
            let value = hart.x[rs1(raw) as usize] | u64::from(constant);
            hart.set_mask(rd(raw), value);
        }
        Packed::MasksToInteger => hart.x[op.rd()] = hart.masks,
        Packed::MasksFromInteger => hart.masks = hart.x[rs1(raw) as usize],
        // Microcoded ones have a kind of their own and do not come here.
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
