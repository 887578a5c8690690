//! Floating-point instructions that the interpreter loop does not handle itself. Spec: ISA §1.4,
//! §1.5

use crate::config::FloatProfile;
use crate::decode::op::{Op, kind};
use crate::decode::{funct3, funct7, rs2};
use crate::exec::event::{self, Event};
use crate::float;
use crate::float::soft::{self, Rounding, SIGN};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};

/// Rounding mode of the `frm` register; a trap if that is reserved.
pub(crate) fn dynamic(hart: &Hart, core: &Core<'_>, pc: u64) -> Result<Rounding, Event> {
    Rounding::new(hart.fcsr >> 5 & 7).ok_or_else(|| Event::illegal(core, pc))
}

/// Rounding mode of an instruction.
pub(crate) fn rounding(hart: &Hart, core: &Core<'_>, raw: u32, pc: u64) -> Result<Rounding, Event> {
    match funct3(raw) {
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
    let raw = op.raw();
    let a = hart.f[op.rs1() & 31].0[0];
    let b = hart.f[op.rs2() & 31].0[0];
    let c = hart.f[(raw >> 27) as usize].0[0];
    let mut flags = 0;
    let bits = match raw & 0x7F {
        opcode @ (0x43 | 0x47 | 0x4B | 0x4F) => {
            let rounding = rounding(hart, core, raw, pc)?;
            let negate_product = if opcode >= 0x4B { SIGN } else { 0 };
            let negate_addend = if matches!(opcode, 0x47 | 0x4F) { SIGN } else { 0 };
            let (bits, raised) = soft::mul_add(a ^ negate_product, b, c ^ negate_addend, rounding);
            flags |= raised;
            bits
        }
        _ => match funct7(raw) {
            function @ (0x00 | 0x04 | 0x08) => {
                let rounding = rounding(hart, core, raw, pc)?;
                let (bits, raised) = match function {
                    0x00 => soft::add(a, b, rounding),
                    0x04 => soft::add(a, b ^ SIGN, rounding),
                    _ => soft::mul(a, b, rounding),
                };
                flags |= raised;
                bits
            }
            0x60 => {
                let rounding = rounding(hart, core, raw, pc)?;
                let integer = if rs2(raw) == 0 {
                    float::to_i32(a, rounding, &mut flags)
                } else {
                    float::to_u32(a, rounding, &mut flags).cast_signed()
                };
                hart.x[op.rd()] = i64::from(integer).cast_unsigned();
                hart.fcsr |= flags;
                return Ok(());
            }
            0x68 => {
                let rounding = rounding(hart, core, raw, pc)?;
                let integer = word(hart.x[op.rs1()]);
                let integer =
                    if rs2(raw) == 0 { integer.cast_signed().into() } else { integer.into() };
                float::from_i33(integer, rounding, &mut flags)
            }
            // Only the classification is left.
            _ => {
                hart.x[op.rd()] = float::class(a).into();
                return Ok(());
            }
        },
    };
    hart.f[op.rd() & 31] = Vector::scalar(bits);
    hart.fcsr |= flags;
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
    let raw = op.raw();
    if core.chip.float == FloatProfile::Hardware || raw & 0x7F != 0x53 {
        return Err(Event::at_instruction(core, event::MICROCODED, pc));
    }
    let rounding = rounding(hart, core, raw, pc)?;
    let a = hart.f[op.rs1() & 31].0[0];
    let fd = (raw >> 7 & 31) as usize;
    let ((bits, flags), target) = match funct7(raw) {
        0x0C => (soft::div(a, hart.f[op.rs2() & 31].0[0], rounding), Some(fd)),
        0x2C => (soft::sqrt(a, rounding), Some(fd)),
        0x68 => {
            let integer = hart.x[op.rs1()];
            let integer = if rs2(raw) == 2 { integer.cast_signed().into() } else { integer.into() };
            (soft::from_integer(integer, rounding), Some(fd))
        }
        _ => {
            let (min, max) = if rs2(raw) == 2 {
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
            ((0, flags), None)
        }
    };
    if let Some(fd) = target {
        hart.f[fd] = Vector::scalar(bits);
    }
    hart.fcsr |= flags;
    Ok(())
}
