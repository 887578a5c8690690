//! Decoder of 32-bit instructions. Spec: ISA §1.1, §1.5, §3
//!
//! What is not recognised here is illegal: the decoder is as strict as the hardware's.

pub(crate) mod code;
pub(crate) mod compressed;
pub(crate) mod op;

use crate::decode::op::{Op, SINK, kind};
use crate::exec::packed::{self, Packed};

/// Rounding-mode field that selects the `frm` register.
const DYNAMIC: u32 = 7;
/// Bits of `fcsr` that must be 0 for round-to-nearest when the mode is dynamic.
const FRM_MASK: i32 = 0xE0;

pub(crate) fn rd(raw: u32) -> u32 {
    raw >> 7 & 31
}

pub(crate) fn funct3(raw: u32) -> u32 {
    raw >> 12 & 7
}

pub(crate) fn rs1(raw: u32) -> u32 {
    raw >> 15 & 31
}

pub(crate) fn rs2(raw: u32) -> u32 {
    raw >> 20 & 31
}

pub(crate) fn funct7(raw: u32) -> u32 {
    raw >> 25
}

/// Bits 31:20, sign-extended.
pub(crate) fn imm_i(raw: u32) -> i32 {
    raw.cast_signed() >> 20
}

/// The offset of stores, sign-extended.
pub(crate) fn imm_s(raw: u32) -> i32 {
    raw.cast_signed() >> 25 << 5 | rd(raw).cast_signed()
}

fn imm_b(raw: u32) -> i32 {
    let sign = raw.cast_signed() >> 31 << 12;
    let low = (raw >> 7 & 1) << 11 | (raw >> 25 & 0x3F) << 5 | (raw >> 8 & 0xF) << 1;
    sign | low.cast_signed()
}

fn imm_j(raw: u32) -> i32 {
    let sign = raw.cast_signed() >> 31 << 20;
    let low = raw & 0xF_F000 | (raw >> 20 & 1) << 11 | (raw >> 21 & 0x3FF) << 1;
    sign | low.cast_signed()
}

/// Maps x0 as a destination to the register that is never read.
fn sink(rd: u32) -> u32 {
    if rd == 0 { SINK } else { rd }
}

/// Operation on integer registers.
fn integer(kind: u8, raw: u32, imm: i32) -> Op {
    Op::new(kind, sink(rd(raw)), rs1(raw), rs2(raw), imm)
}

/// Operation that reads its operands' details from the instruction itself.
fn whole(kind: u8, raw: u32) -> Op {
    integer(kind, raw, raw.cast_signed())
}

/// Decodes a 32-bit instruction. The length of the result is that of a 32-bit instruction.
pub(crate) fn decode(raw: u32) -> Op {
    known(raw).unwrap_or_else(|| whole(kind::ILLEGAL, raw)).long()
}

fn known(raw: u32) -> Option<Op> {
    let f3 = funct3(raw);
    Some(match raw & 0x7F {
        0x03 => {
            use kind::{LB, LBU, LD, LH, LHU, LW, LWU};
            let kind = *[LB, LH, LW, LD, LBU, LHU, LWU].get(f3 as usize)?;
            integer(kind, raw, imm_i(raw))
        }
        0x07 => match f3 {
            2 => Op::new(kind::FLW, rd(raw), rs1(raw), 0, imm_i(raw)),
            _ => return vector(raw),
        },
        0x0F => match f3 {
            0 if raw == 0x0100_000F => integer(kind::PAUSE, raw, 0),
            0 => integer(kind::FENCE, raw, 0),
            1 => whole(kind::MICROCODED, raw),
            _ => return None,
        },
        0x13 => return immediate(raw),
        0x17 => integer(kind::AUIPC, raw, (raw & 0xFFFF_F000).cast_signed()),
        0x1B => return immediate_word(raw),
        0x23 => {
            let kind = *[kind::SB, kind::SH, kind::SW, kind::SD].get(f3 as usize)?;
            integer(kind, raw, imm_s(raw))
        }
        0x27 => match f3 {
            2 => Op::new(kind::FSW, 0, rs1(raw), rs2(raw), imm_s(raw)),
            _ => return vector(raw),
        },
        0x33 => return register(raw),
        0x37 => integer(kind::LUI, raw, (raw & 0xFFFF_F000).cast_signed()),
        0x3B => return register_word(raw),
        0x43 => return fused(kind::FMADD, raw),
        0x47 => return fused(kind::FMSUB, raw),
        0x4B => return fused(kind::FNMSUB, raw),
        0x4F => return fused(kind::FNMADD, raw),
        0x53 => return float(raw),
        0x63 => {
            use kind::{BEQ, BGE, BGEU, BLT, BLTU, BNE, ILLEGAL};
            let kind = [BEQ, BNE, ILLEGAL, ILLEGAL, BLT, BGE, BLTU, BGEU][f3 as usize];
            if kind == ILLEGAL {
                return None;
            }
            Op::new(kind, 0, rs1(raw), rs2(raw), imm_b(raw) / 2)
        }
        0x67 if f3 == 0 => integer(kind::JALR, raw, imm_i(raw)),
        0x67 => return None,
        0x6F => integer(kind::JAL, raw, imm_j(raw) / 2),
        0x73 => return system(raw),
        _ => return vector(raw),
    })
}

fn immediate(raw: u32) -> Option<Op> {
    use kind::{ADDI, ANDI, ORI, SLLI, SLTI, SLTIU, SRAI, SRLI, XORI};
    let shift = (raw >> 20 & 63).cast_signed();
    Some(match (funct3(raw), raw >> 26) {
        (0, _) => integer(ADDI, raw, imm_i(raw)),
        (2, _) => integer(SLTI, raw, imm_i(raw)),
        (3, _) => integer(SLTIU, raw, imm_i(raw)),
        (4, _) => integer(XORI, raw, imm_i(raw)),
        (6, _) => integer(ORI, raw, imm_i(raw)),
        (7, _) => integer(ANDI, raw, imm_i(raw)),
        (1, 0) => integer(SLLI, raw, shift),
        (5, 0) => integer(SRLI, raw, shift),
        (5, 0x10) => integer(SRAI, raw, shift),
        _ => return None,
    })
}

fn immediate_word(raw: u32) -> Option<Op> {
    let shift = rs2(raw).cast_signed();
    Some(match (funct3(raw), funct7(raw)) {
        (0, _) => integer(kind::ADDIW, raw, imm_i(raw)),
        (1, 0) => integer(kind::SLLIW, raw, shift),
        (5, 0) => integer(kind::SRLIW, raw, shift),
        (5, 0x20) => integer(kind::SRAIW, raw, shift),
        _ => return None,
    })
}

fn register(raw: u32) -> Option<Op> {
    use kind::{ADD, AND, OR, SLL, SLT, SLTU, SRA, SRL, SUB, XOR};
    use kind::{DIV, DIVU, MUL, MULH, MULHSU, MULHU, REM, REMU};
    let f3 = funct3(raw) as usize;
    let kind = match (funct7(raw), f3) {
        (0, _) => [ADD, SLL, SLT, SLTU, XOR, SRL, OR, AND][f3],
        (1, _) => [MUL, MULH, MULHSU, MULHU, DIV, DIVU, REM, REMU][f3],
        (0x20, 0) => SUB,
        (0x20, 5) => SRA,
        _ => return None,
    };
    Some(integer(kind, raw, 0))
}

fn register_word(raw: u32) -> Option<Op> {
    let f7 = funct7(raw);
    let kind = match (f7, funct3(raw)) {
        (0, 0) => kind::ADDW,
        (0, 1) => kind::SLLW,
        (0, 5) => kind::SRLW,
        (0x20, 0) => kind::SUBW,
        (0x20, 5) => kind::SRAW,
        (1, 0) => kind::MULW,
        (1, 4) => kind::DIVW,
        (1, 5) => kind::DIVUW,
        (1, 6) => kind::REMW,
        (1, 7) => kind::REMUW,
        (_, 2 | 3)
            if matches!(
                f7 & !1,
                0x00 | 0x04 | 0x10 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 | 0x70 | 0x78
            ) =>
        {
            return Some(whole(kind::ATOMIC, raw));
        }
        (0x08 | 0x09 | 0x0C | 0x0D, 3) => return Some(whole(kind::SMALL_STORE, raw)),
        (0x40, 6) => kind::PACKB,
        _ => return None,
    };
    Some(integer(kind, raw, 0))
}

fn system(raw: u32) -> Option<Op> {
    match funct3(raw) {
        0 => match raw {
            0x0000_0073 => Some(whole(kind::ECALL, raw)),
            0x0010_0073 => Some(whole(kind::EBREAK, raw)),
            // sfence.vma
            _ if funct7(raw) == 0x09 && rd(raw) == 0 => Some(whole(kind::MICROCODED, raw)),
            _ => None,
        },
        4 => None,
        _ => Some(whole(kind::CSR, raw)),
    }
}

/// Arithmetic with host floats if the rounding mode allows it, otherwise by the general path.
fn rounded(kind: u8, raw: u32) -> Option<Op> {
    let mask = match funct3(raw) {
        0 => 0,
        DYNAMIC => FRM_MASK,
        5 | 6 => return None,
        _ => return Some(float_whole(raw)),
    };
    let third = (raw >> 27).cast_signed() << 8;
    Some(Op::new(kind, rd(raw), rs1(raw), rs2(raw), third | mask))
}

/// Operation with a floating-point destination that reads its details from the instruction.
fn float_whole(raw: u32) -> Op {
    Op::new(kind::FLOAT, rd(raw), rs1(raw), rs2(raw), raw.cast_signed())
}

fn fused(kind: u8, raw: u32) -> Option<Op> {
    // Quirk: format 1, which would be double precision, is taken for single precision.
    if raw >> 25 & 3 > 1 { None } else { rounded(kind, raw) }
}

fn float(raw: u32) -> Option<Op> {
    let fp = |kind| Op::new(kind, rd(raw), rs1(raw), rs2(raw), raw.cast_signed());
    // A result that goes to an integer register.
    let to_integer = |kind| whole(kind, raw);
    let f3 = funct3(raw);
    let reserved_rounding = matches!(f3, 5 | 6);
    Some(match (funct7(raw), f3, rs2(raw)) {
        (0x00, ..) => return rounded(kind::FADD, raw),
        (0x04, ..) => return rounded(kind::FSUB, raw),
        (0x08, ..) => return rounded(kind::FMUL, raw),
        (0x0C, ..) | (0x2C, _, 0) => whole(kind::MICROCODED, raw),
        (0x10, 0, _) => fp(kind::FSGNJ),
        (0x10, 1, _) => fp(kind::FSGNJN),
        (0x10, 2, _) => fp(kind::FSGNJX),
        (0x14, 0, _) => fp(kind::FMIN),
        (0x14, 1, _) => fp(kind::FMAX),
        (0x50, 0, _) => to_integer(kind::FLE),
        (0x50, 1, _) => to_integer(kind::FLT),
        (0x50, 2, _) => to_integer(kind::FEQ),
        (0x60, _, 0 | 1) if !reserved_rounding => to_integer(kind::FLOAT),
        (0x68, _, 0 | 1) if !reserved_rounding => float_whole(raw),
        (0x60 | 0x68, _, 2 | 3) => whole(kind::MICROCODED, raw),
        (0x70, 0, 0) => to_integer(kind::FMV_X_W),
        (0x70, 1, 0) => to_integer(kind::FLOAT),
        (0x78, 0, 0) => fp(kind::FMV_W_X),
        _ => return None,
    })
}

/// Packed and mask instructions.
fn vector(raw: u32) -> Option<Op> {
    Some(match packed::decode(raw)? {
        Packed::Microcoded => whole(kind::MICROCODED, raw),
        _ => whole(kind::PACKED, raw),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x0_as_destination_becomes_the_sink() {
        let op = decode(0x0000_0013);
        assert_eq!((op.kind(), op.rd(), op.halfwords()), (kind::ADDI, SINK as usize, 2));
    }

    #[test]
    fn immediates_are_sign_extended() {
        assert_eq!(decode(0xFFF0_0093).imm(), u64::MAX);
        // lui x1, 0x80000
        assert_eq!(decode(0x8000_00B7).imm(), 0xFFFF_FFFF_8000_0000);
        // sd x11, -8(x10)
        assert_eq!(decode(0xFEB5_3C23).imm(), (-8_i64).cast_unsigned());
    }

    #[test]
    fn jumps_are_measured_in_halfwords() {
        // j . and j .-4
        assert_eq!(decode(0x0000_006F).imm(), 0);
        assert_eq!(decode(0xFFDF_F06F).imm(), (-2_i64).cast_unsigned());
        // beq x0, x0, .-4096
        assert_eq!(decode(0x8000_0063).imm(), (-2048_i64).cast_unsigned());
    }

    #[test]
    fn only_the_two_lower_formats_are_single_precision_fused() {
        assert_eq!(decode(0x1820_8243).kind(), kind::FMADD);
        assert_eq!(decode(0x1820_8243 | 1 << 25).kind(), kind::FMADD);
        let upper = decode(0x1820_8243 & !(3 << 25) | 2 << 25);
        assert_eq!(upper.kind(), kind::ILLEGAL);
        assert_eq!(decode(0x1820_8243 | 3 << 25).kind(), kind::ILLEGAL);
    }

    #[test]
    fn rounding_to_nearest_is_told_from_the_rest_at_decoding() {
        // fadd.s with rm = dynamic, nearest, toward zero, reserved
        assert_eq!(decode(0x0020_F253).imm(), 0xE0);
        assert_eq!(decode(0x0020_8253).imm(), 0);
        assert_eq!(decode(0x0020_9253).kind(), kind::FLOAT);
        assert_eq!(decode(0x0020_D253).kind(), kind::ILLEGAL);
    }
}
