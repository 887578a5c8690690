//! Floating-point instructions that the interpreter loop does not handle itself. Spec: ISA §1.4,
//! §1.5

use et_isa::Id;

use crate::config::FloatProfile;
use crate::decode::op::{Op, kind};
use crate::exec::event::{self, Event};
use crate::float;
use crate::float::soft::{self, Rounding, SIGN};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};

/// Rounding mode of the `frm` register; a trap if that is reserved.
pub(crate) fn dynamic(hart: &Hart, core: &Core<'_>, pc: u64) -> Result<Rounding, Event> {
    Rounding::new(hart.fcsr >> 5 & 7).ok_or_else(|| Event::illegal(core, pc))
}

/// Rounding mode for the field of an instruction.
pub(crate) fn rounding(
    hart: &Hart,
    core: &Core<'_>,
    field: u32,
    pc: u64,
) -> Result<Rounding, Event> {
    match field {
        7 => dynamic(hart, core, pc),
        field => Rounding::new(field).ok_or_else(|| Event::illegal(core, pc)),
    }
}

/// Arithmetic that the fast path gave up on: returns the result and raises the flags.
#[cold]
#[inline(never)]
pub(crate) fn arithmetic(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<u32, Event> {
    let rounding =
        if op.raw() & 0xE0 == 0 { Rounding::NearestEven } else { dynamic(hart, core, pc)? };
    let register = |index: usize| hart.f[index & 31].0[0];
    let (a, b) = (register(op.rs1()), register(op.rs2()));
    let c = register((op.raw() >> 8 & 31) as usize);
    let (bits, flags) = match op.kind() {
        kind::FADD => soft::add(a, b, rounding),
        kind::FSUB => soft::add(a, b ^ SIGN, rounding),
        kind::FMUL => soft::mul(a, b, rounding),
        kind::FMADD => soft::mul_add(a, b, c, rounding),
        kind::FMSUB => soft::mul_add(a, b, c ^ SIGN, rounding),
        kind::FNMSUB => soft::mul_add(a ^ SIGN, b, c, rounding),
        _ => soft::mul_add(a ^ SIGN, b, c ^ SIGN, rounding),
    };
    hart.fcsr |= flags;
    Ok(bits)
}

/// Everything that is neither frequent nor microcoded.
#[inline(never)]
pub(crate) fn other(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<(), Event> {
    let a = hart.f[op.rs1() & 31].0[0];
    let id = op.id().ok_or_else(|| Event::illegal(core, pc))?;
    if id == Id::FclassS {
        hart.x[op.rd()] = float::class(a).into();
        return Ok(());
    }
    let b = hart.f[op.rs2() & 31].0[0];
    let c = hart.f[op.rs3()].0[0];
    let rounding = rounding(hart, core, op.rounding(), pc)?;
    let integer = word(hart.x[op.rs1()]);
    let mut flags = 0;
    let (bits, raised) = match id {
        Id::FmaddS => soft::mul_add(a, b, c, rounding),
        Id::FmsubS => soft::mul_add(a, b, c ^ SIGN, rounding),
        Id::FnmsubS => soft::mul_add(a ^ SIGN, b, c, rounding),
        Id::FnmaddS => soft::mul_add(a ^ SIGN, b, c ^ SIGN, rounding),
        Id::FaddS => soft::add(a, b, rounding),
        Id::FsubS => soft::add(a, b ^ SIGN, rounding),
        Id::FmulS => soft::mul(a, b, rounding),
        Id::FcvtSW => (float::from_i33(integer.cast_signed().into(), rounding, &mut flags), 0),
        Id::FcvtSWu => (float::from_i33(integer.into(), rounding, &mut flags), 0),
        Id::FcvtWS | Id::FcvtWuS => {
            let integer = if id == Id::FcvtWS {
                float::to_i32(a, rounding, &mut flags)
            } else {
                float::to_u32(a, rounding, &mut flags).cast_signed()
            };
            hart.x[op.rd()] = i64::from(integer).cast_unsigned();
            hart.fcsr |= flags;
            return Ok(());
        }
        _ => return Err(Event::illegal(core, pc)),
    };
    hart.f[op.rd() & 31] = Vector::scalar(bits);
    hart.fcsr |= flags | raised;
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn word(value: u64) -> u32 {
    value as u32
}

/// Instructions that the hardware leaves to microcode: a trap, unless the profile asks for the
/// results of the standard and the instruction is a scalar floating-point one.
#[cold]
pub(crate) fn microcoded(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<(), Event> {
    let trap = || Event::at_instruction(core, event::MICROCODED, pc);
    let is_standard = core.chip.float != FloatProfile::Hardware;
    let id = op.id().filter(|_| is_standard).ok_or_else(trap)?;
    if !matches!(id, Id::FdivS | Id::FsqrtS | Id::FcvtLS | Id::FcvtLuS | Id::FcvtSL | Id::FcvtSLu) {
        return Err(trap());
    }
    let rounding = rounding(hart, core, op.rounding(), pc)?;
    let a = hart.f[op.rs1() & 31].0[0];
    let integer = hart.x[op.rs1()];
    let (bits, flags) = match id {
        Id::FdivS => soft::div(a, hart.f[op.rs2() & 31].0[0], rounding),
        Id::FsqrtS => soft::sqrt(a, rounding),
        Id::FcvtSL => soft::from_integer(integer.cast_signed().into(), rounding),
        Id::FcvtSLu => soft::from_integer(integer.into(), rounding),
        _ => {
            let (min, max) = if id == Id::FcvtLS {
                (i64::MIN.into(), i64::MAX.into())
            } else {
                (0, u64::MAX.into())
            };
            let (value, flags) = soft::to_integer(a, min, max, rounding);
            #[expect(clippy::cast_possible_truncation, reason = "saturated to 64 bits")]
            #[expect(
                clippy::cast_sign_loss,
                reason = "two's complement is what the register holds"
            )]
            let value = value as u64;
            hart.x[op.rd()] = value;
            hart.fcsr |= flags;
            return Ok(());
        }
    };
    // No float register is a sink: x0 there is f0.
    hart.f[op.rd() & 31] = Vector::scalar(bits);
    hart.fcsr |= flags;
    Ok(())
}
