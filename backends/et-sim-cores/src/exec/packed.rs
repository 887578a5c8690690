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
use crate::float::wide::{self, Lanes};
use crate::float::{self, Compare, Pick};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};
use crate::memory::bus::Scope;

/// Lanes of a register.
pub(crate) const LANES: usize = 8;

/// Executes an instruction at a place.
pub(crate) type Execute = fn(&mut Hart, &Core<'_>, u32, u64) -> Result<(), Event>;

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

/// What executes each instruction, by its number.
static OPERATIONS: [Execute; Id::ALL.len()] = {
    const ILLEGAL: Execute = |_, core, _, pc| Err(Event::illegal(core, pc));
    let mut operations = [ILLEGAL; Id::ALL.len()];
    let mut number = 0;
    while number < operations.len() {
        if let Some(execute) = of(Id::ALL[number]) {
            operations[number] = execute;
        }
        number += 1;
    }
    operations
};

/// Returns `true` if an instruction is one of these.
pub(crate) fn exists(id: Id) -> bool {
    of(id).is_some()
}

/// A function of the lanes of two operands. It cannot fail.
macro_rules! binary {
    ($function:expr) => {
        |hart, _, raw, _| {
            const FUNCTION: fn(u32, u32) -> u32 = $function;
            wide::run(|| {
                let (a, b) = (first(hart, raw), second(hart, raw));
                put(hart, raw, std::array::from_fn(|lane| FUNCTION(a[lane], b[lane])));
            });
            Ok(())
        }
    };
}

/// A function of the lanes and one value.
macro_rules! with {
    ($value:expr, $function:expr) => {
        |hart, _, raw, _| {
            const FUNCTION: fn(u32, u32) -> u32 = $function;
            const VALUE: fn(u32) -> u32 = $value;
            wide::run(|| with_value(hart, raw, VALUE(raw), FUNCTION));
            Ok(())
        }
    };
}

/// All ones where a condition on two lanes holds.
macro_rules! condition {
    ($condition:expr) => {
        binary!(|a, b| {
            const HOLDS: fn(u32, u32) -> bool = $condition;
            if HOLDS(a, b) { u32::MAX } else { 0 }
        })
    };
}

/// A condition on two lanes, to a mask register.
macro_rules! to_mask {
    ($condition:expr) => {
        |hart, _, raw, _| {
            const HOLDS: fn(u32, u32) -> bool = $condition;
            let (a, b) = (first(hart, raw), second(hart, raw));
            set_enabled(hart, raw, |lane, _| HOLDS(a[lane], b[lane]));
            Ok(())
        }
    };
}

/// A function of a lane that may raise flags.
macro_rules! float {
    ($function:expr) => {
        |hart, _, raw, _| {
            let a = first(hart, raw);
            by_lane(hart, raw, |lane, flags| $function(a[lane], flags));
            Ok(())
        }
    };
}

/// A function of two lanes that may raise flags; first it is tried for all of them.
macro_rules! float_pair {
    ($wide:expr, $function:expr) => {
        |hart, _, raw, _| {
            wide::run(|| {
                let (a, b) = (first(hart, raw), second(hart, raw));
                match $wide(&a, &b) {
                    Some(all) => put(hart, raw, all),
                    None => by_lane(hart, raw, |lane, flags| $function(a[lane], b[lane], flags)),
                }
            });
            Ok(())
        }
    };
}

/// An operation on mask registers.
macro_rules! mask_binary {
    ($function:expr) => {
        |hart, _, raw, _| {
            const FUNCTION: fn(u64, u64) -> u64 = $function;
            let value = FUNCTION(hart.mask(rs1(raw)), hart.mask(rs2(raw)));
            hart.set_mask(rd(raw), value);
            Ok(())
        }
    };
}

/// A number of lanes, to an integer register.
macro_rules! mask_count {
    ($count:expr) => {
        |hart, _, raw, _| {
            let [mask, ..] = hart.mask(rs1(raw)).to_le_bytes();
            hart.set_x(rd(raw) as usize, $count(mask).into());
            Ok(())
        }
    };
}

const fn of(id: Id) -> Option<Execute> {
    use float::Compare::{Equal, Less, LessOrEqual};
    Some(match id {
        Id::FmaddPs => fmadd,
        Id::FmsubPs => fmsub,
        Id::FnmsubPs => fnmsub,
        Id::FnmaddPs => fnmadd,
        Id::FaddPs => fadd,
        Id::FsubPs => fsub,
        Id::FmulPs => fmul,
        Id::FsgnjPs => binary!(|a, b| a & !SIGN | b & SIGN),
        Id::FsgnjnPs => binary!(|a, b| a & !SIGN | !b & SIGN),
        Id::FsgnjxPs => binary!(|a, b| a ^ b & SIGN),
        Id::FminPs => float_pair!(|a, b| wide::pick(a, b, false), |a, b, flags| float::min_max(
            a,
            b,
            Pick::Smaller,
            flags
        )),
        Id::FmaxPs => float_pair!(|a, b| wide::pick(a, b, true), |a, b, flags| float::min_max(
            a,
            b,
            Pick::Larger,
            flags
        )),
        Id::FlePs => |hart, _, raw, _| compare(hart, raw, LessOrEqual),
        Id::FltPs => |hart, _, raw, _| compare(hart, raw, Less),
        Id::FeqPs => |hart, _, raw, _| compare(hart, raw, Equal),
        Id::FlemPs => |hart, _, raw, _| compare_to_mask(hart, raw, LessOrEqual),
        Id::FltmPs => |hart, _, raw, _| compare_to_mask(hart, raw, Less),
        Id::FeqmPs => |hart, _, raw, _| compare_to_mask(hart, raw, Equal),
        Id::FroundPs => |hart, core, raw, pc| rounded(hart, core, raw, pc, lanes::round),
        Id::FcvtPwPs => |hart, core, raw, pc| {
            rounded(hart, core, raw, pc, |a, rounding, flags| {
                float::to_i32(a, rounding, flags).cast_unsigned()
            })
        },
        Id::FcvtPwuPs => |hart, core, raw, pc| rounded(hart, core, raw, pc, float::to_u32),
        Id::FcvtPsPw => |hart, core, raw, pc| {
            if wide::run(|| from_integers(hart, raw)) {
                return Ok(());
            }
            rounded(hart, core, raw, pc, |a, rounding, flags| {
                float::from_i33(a.cast_signed().into(), rounding, flags)
            })
        },
        Id::FcvtPsPwu => |hart, core, raw, pc| {
            rounded(hart, core, raw, pc, |a, rounding, flags| {
                float::from_i33(a.into(), rounding, flags)
            })
        },
        Id::FcvtF16Ps => |hart, core, raw, pc| {
            let rounding = slow_float::dynamic(hart, core, pc)?;
            let a = first(hart, raw);
            by_lane(hart, raw, |lane, flags| lanes::to_half(a[lane], rounding, flags));
            Ok(())
        },
        Id::FcvtPsF16 => |hart, _, raw, _| {
            wide::run(|| {
                let a = first(hart, raw);
                match wide::from_halves(&a) {
                    Some(all) => put(hart, raw, all),
                    None => by_lane(hart, raw, |lane, flags| lanes::from_half(a[lane], flags)),
                }
            });
            Ok(())
        },
        Id::FfrcPs => float!(lanes::fraction),
        Id::FlogPs => float!(lanes::log2),
        Id::FexpPs => float!(lanes::exp2),
        Id::FrcpPs => float!(lanes::reciprocal),
        Id::FmvzXPs => |hart, _, raw, _| {
            hart.set_x(rd(raw) as usize, chosen_lane(hart, raw).into());
            Ok(())
        },
        Id::FmvsXPs => |hart, _, raw, _| {
            let lane = i64::from(chosen_lane(hart, raw).cast_signed());
            hart.set_x(rd(raw) as usize, lane.cast_unsigned());
            Ok(())
        },
        Id::FclassPs => binary!(|a, _| float::class(a)),
        Id::FswizzPs => |hart, _, raw, _| {
            wide::run(|| swizzle(hart, raw));
            Ok(())
        },
        Id::FbciPs => |hart, _, raw, _| {
            let all = [short_float(raw >> 12); LANES];
            wide::run(|| put(hart, raw, all));
            Ok(())
        },
        Id::FbciPi => |hart, _, raw, _| {
            let all = [operand::IMM20.value(raw).cast_unsigned(); LANES];
            wide::run(|| put(hart, raw, all));
            Ok(())
        },
        Id::FbcxPs => |hart, _, raw, _| {
            let all = [low(hart.x[rs1(raw) as usize]); LANES];
            wide::run(|| put(hart, raw, all));
            Ok(())
        },
        Id::FaddiPi => with!(constant, u32::wrapping_add),
        Id::FandiPi => with!(constant, |a, b| a & b),
        Id::FcmovPs => |hart, _, raw, _| {
            let (a, b, c) = (first(hart, raw), second(hart, raw), third(hart, raw));
            let pick = |lane: usize| if a[lane] != 0 { b[lane] } else { c[lane] };
            put(hart, raw, std::array::from_fn(pick));
            Ok(())
        },
        // Takes all lanes, not only the enabled ones.
        Id::FcmovmPs => |hart, _, raw, _| {
            let result = wide::blend(hart.masks, &first(hart, raw), &second(hart, raw));
            hart.f[rd(raw) as usize] = Vector(result);
            Ok(())
        },
        Id::FaddPi => binary!(u32::wrapping_add),
        Id::FsllPi => binary!(lanes::shift_left),
        Id::FsrlPi => binary!(lanes::shift_right),
        Id::FxorPi => binary!(|a, b| a ^ b),
        Id::ForPi => binary!(|a, b| a | b),
        Id::FandPi => binary!(|a, b| a & b),
        Id::FnotPi => binary!(|a, _| !a),
        Id::Fsat8Pi => binary!(|a, _| lanes::saturate(a, -128, 127)),
        Id::Fsatu8Pi => binary!(|a, _| lanes::saturate(a, 0, 255)),
        Id::FsubPi => binary!(u32::wrapping_sub),
        Id::FsraPi => binary!(lanes::shift_right_signed),
        Id::FmulPi => binary!(u32::wrapping_mul),
        Id::FmulhPi => binary!(lanes::multiply_high_signed),
        Id::FmulhuPi => binary!(lanes::multiply_high),
        Id::FpackrepbPi => |hart, _, raw, _| {
            let a = first(hart, raw);
            let byte = |lane: usize, part: usize| a[(4 * lane + part) % LANES].to_le_bytes()[0];
            let pack = |lane| u32::from_le_bytes([0, 1, 2, 3].map(|part| byte(lane, part)));
            put(hart, raw, std::array::from_fn(pack));
            Ok(())
        },
        Id::FpackrephPi => |hart, _, raw, _| {
            let a = first(hart, raw);
            let half = |lane: usize, part: usize| a[(2 * lane + part) % LANES] & 0xFFFF;
            put(hart, raw, std::array::from_fn(|lane| half(lane, 0) | half(lane, 1) << 16));
            Ok(())
        },
        Id::FminPi => binary!(lanes::min_signed),
        Id::FmaxPi => binary!(lanes::max_signed),
        Id::FminuPi => binary!(|a, b| if a < b { a } else { b }),
        Id::FmaxuPi => binary!(|a, b| if a > b { a } else { b }),
        Id::FltmPi => to_mask!(|a, b| a.cast_signed() < b.cast_signed()),
        Id::FsetmPi => to_mask!(|a, _| a != 0),
        Id::FslliPi => with!(rs2, lanes::shift_left),
        Id::FsrliPi => with!(rs2, lanes::shift_right),
        Id::FsraiPi => with!(rs2, lanes::shift_right_signed),
        Id::FlePi => condition!(|a, b| a.cast_signed() <= b.cast_signed()),
        Id::FltPi => condition!(|a, b| a.cast_signed() < b.cast_signed()),
        Id::FeqPi => condition!(|a, b| a == b),
        Id::FltuPi => condition!(|a, b| a < b),
        Id::Maskand => mask_binary!(|a, b| a & b),
        Id::Maskor => mask_binary!(|a, b| a | b),
        Id::Maskxor => mask_binary!(|a, b| a ^ b),
        Id::Masknot => mask_binary!(|a, _| !a),
        Id::Maskpopc => mask_count!(u8::count_ones),
        Id::Maskpopcz => mask_count!(u8::count_zeros),
        _ => return packed_memory::of(id),
    })
}

/// Sets one mask register.
#[inline(always)]
pub(crate) fn set_one_mask(hart: &mut Hart, raw: u32) {
    let constant = operand::IMM8.value(raw).cast_unsigned();
    let value = hart.x[rs1(raw) as usize] | u64::from(constant);
    hart.set_mask(rd(raw), value);
}

/// The constant of `fbci.ps`: 20 upper bits, and lower ones that continue their pattern.
pub(crate) fn short_float(imm: u32) -> u32 {
    let last = imm & 15;
    imm << 12 | last << 8 | last << 4 | (last + u32::from(last >= 8))
}

#[expect(clippy::cast_possible_truncation, reason = "lanes have 32 bits, masks eight")]
pub(crate) fn low(value: u64) -> u32 {
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

/// The first source register.
#[inline(always)]
fn first(hart: &Hart, raw: u32) -> Lanes {
    hart.f[rs1(raw) as usize].0
}

#[inline(always)]
fn second(hart: &Hart, raw: u32) -> Lanes {
    hart.f[rs2(raw) as usize].0
}

#[inline(always)]
fn third(hart: &Hart, raw: u32) -> Lanes {
    hart.f[(raw >> 27) as usize].0
}

/// A lane of the first source register that the instruction names.
fn chosen_lane(hart: &Hart, raw: u32) -> u32 {
    first(hart, raw)[rs2(raw) as usize % LANES]
}

/// The 10-bit constant of an instruction.
fn constant(raw: u32) -> u32 {
    operand::IMM10.value(raw).cast_unsigned()
}

/// A function of the enabled lanes and one value. For code that is compiled for wide vectors, as
/// the next ones.
#[inline(always)]
fn with_value(hart: &mut Hart, raw: u32, value: u32, function: impl Fn(u32, u32) -> u32) {
    let a = first(hart, raw);
    put(hart, raw, a.map(|a| function(a, value)));
}

#[inline(always)]
fn swizzle(hart: &mut Hart, raw: u32) {
    let selector = operand::IMM8.value(raw).cast_unsigned();
    let from = |lane: usize| lane & 4 | (selector >> (2 * (lane & 3)) & 3) as usize;
    let a = first(hart, raw);
    put(hart, raw, std::array::from_fn(|lane| a[from(lane)]));
}

/// Floats from integers, if all are exact or rounded to nearest; returns `true` if that was all.
#[inline(always)]
fn from_integers(hart: &mut Hart, raw: u32) -> bool {
    let all = Some(()).filter(|()| is_nearest(hart, raw));
    let all = all.and_then(|()| wide::from_integers(&first(hart, raw)));
    all.map(|all| put(hart, raw, all)).is_some()
}

/// Writes the enabled lanes of the destination.
#[inline(always)]
fn put(hart: &mut Hart, raw: u32, result: Lanes) {
    let Vector(register) = &mut hart.f[rd(raw) as usize];
    *register = match hart.masks & 0xFF {
        0xFF => result,
        mask => wide::blend(mask, &result, register),
    };
}

/// Writes the enabled lanes, one after the other: only they raise flags.
#[inline(always)]
fn by_lane(hart: &mut Hart, raw: u32, function: impl Fn(usize, &mut u32) -> u32) {
    let mask = hart.masks;
    // Sticky: what is set already need not be found out again.
    let mut flags = hart.fcsr;
    for (lane, bits) in hart.f[rd(raw) as usize].0.iter_mut().enumerate() {
        if mask >> lane & 1 != 0 {
            *bits = function(lane, &mut flags);
        }
    }
    hart.fcsr = flags;
}

/// Sets the enabled bits of the destination mask to a condition.
#[inline(always)]
fn set_enabled(hart: &mut Hart, raw: u32, condition: impl Fn(usize, &mut u32) -> bool) {
    let mut value = hart.mask(rd(raw));
    let mut flags = hart.fcsr;
    for lane in (0..LANES).filter(|&lane| hart.enables(lane)) {
        value = value & !(1 << lane) | u64::from(condition(lane, &mut flags)) << lane;
    }
    hart.fcsr = flags;
    hart.set_mask(rd(raw), value);
}

fn compare(hart: &mut Hart, raw: u32, compare: Compare) -> Result<(), Event> {
    let (a, b) = (first(hart, raw), second(hart, raw));
    by_lane(
        hart,
        raw,
        |lane, flags| {
            if float::compare(a[lane], b[lane], compare, flags) { u32::MAX } else { 0 }
        },
    );
    Ok(())
}

fn compare_to_mask(hart: &mut Hart, raw: u32, compare: Compare) -> Result<(), Event> {
    let (a, b) = (first(hart, raw), second(hart, raw));
    set_enabled(hart, raw, |lane, flags| float::compare(a[lane], b[lane], compare, flags));
    Ok(())
}

/// Executes a function of one operand that rounds.
#[inline(always)]
fn rounded(
    hart: &mut Hart,
    core: &Core<'_>,
    raw: u32,
    pc: u64,
    function: impl Fn(u32, Rounding, &mut u32) -> u32,
) -> Result<(), Event> {
    // The mode is checked before anything else, whatever the mask says.
    let rounding = slow_float::rounding(hart, core, funct3(raw), pc)?;
    let a = first(hart, raw);
    by_lane(hart, raw, |lane, flags| function(a[lane], rounding, flags));
    Ok(())
}

/// Returns `true` if an instruction rounds to nearest.
#[inline(always)]
fn is_nearest(hart: &Hart, raw: u32) -> bool {
    match funct3(raw) {
        0 => true,
        7 => hart.fcsr & 0xE0 == 0,
        _ => false,
    }
}

/// Defines the function of an instruction that multiplies and adds, lane by lane: what is left to
/// it if not all lanes can be computed at once.
macro_rules! arithmetic {
    ($($name:ident($a:ident, $b:ident, $c:ident, $rounding:ident, $flags:ident) = $result:expr;)*) => {
        $(fn $name(hart: &mut Hart, core: &Core<'_>, raw: u32, pc: u64) -> Result<(), Event> {
            let $rounding = slow_float::rounding(hart, core, funct3(raw), pc)?;
            let (a, b, c) = (first(hart, raw), second(hart, raw), third(hart, raw));
            by_lane(hart, raw, |lane, $flags| {
                let ($a, $b, $c) = (a[lane], b[lane], c[lane]);
                $result
            });
            Ok(())
        })*
    };
}

arithmetic! {
    fmadd(a, b, c, rounding, flags) = lanes::mul_add(a, b, c, rounding, flags);
    fmsub(a, b, c, rounding, flags) = lanes::mul_add(a, b, c ^ SIGN, rounding, flags);
    fnmsub(a, b, c, rounding, flags) = lanes::mul_add(a ^ SIGN, b, c, rounding, flags);
    fnmadd(a, b, c, rounding, flags) = lanes::mul_add(a ^ SIGN, b, c ^ SIGN, rounding, flags);
    fadd(a, b, _c, rounding, flags) = lanes::add(a, b, rounding, flags);
    fsub(a, b, _c, rounding, flags) = lanes::add(a, b ^ SIGN, rounding, flags);
    fmul(a, b, _c, rounding, flags) = lanes::mul(a, b, rounding, flags);
}

/// Executes a packed or mask instruction at `pc`.
#[inline(always)]
pub(crate) fn execute(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<(), Event> {
    match OPERATIONS.get(op.packed_number()) {
        Some(execute) => execute(hart, core, op.raw(), pc),
        None => Err(Event::illegal(core, pc)),
    }
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
