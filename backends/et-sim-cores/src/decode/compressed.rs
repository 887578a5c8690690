//! Compressed instructions, expanded to the 32-bit ones they stand for. Spec: ISA §1.1

use crate::decode;
use crate::decode::op::{Op, kind};

/// Decodes a 16-bit instruction.
pub(crate) fn decode(half: u16) -> Op {
    match expand(half) {
        Some(raw) => decode::decode(raw),
        None => Op::new(kind::ILLEGAL, 0, 0, 0, 0),
    }
    .short()
}

/// Bits `[high:low]` of the instruction, moved to bit `to` of the result.
fn field(half: u16, high: u32, low: u32, to: u32) -> u32 {
    (u32::from(half) >> low & ((1 << (high - low + 1)) - 1)) << to
}

/// The 6-bit signed immediate of quadrant 1, as 32 bits.
fn imm6(half: u16) -> u32 {
    let bits = field(half, 12, 12, 5) | field(half, 6, 2, 0);
    ((bits << 26).cast_signed() >> 26).cast_unsigned()
}

fn i_type(imm: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    imm << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn s_type(imm: u32, rs2: u32, rs1: u32, funct3: u32) -> u32 {
    (imm >> 5 & 0x7F) << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (imm & 0x1F) << 7 | 0x23
}

fn r_type(funct7: u32, rs2: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn jump(half: u16) -> u32 {
    let bits = field(half, 12, 12, 11)
        | field(half, 11, 11, 4)
        | field(half, 10, 9, 8)
        | field(half, 8, 8, 10)
        | field(half, 7, 7, 6)
        | field(half, 6, 6, 7)
        | field(half, 5, 3, 1)
        | field(half, 2, 2, 5);
    let imm = ((bits << 20).cast_signed() >> 20).cast_unsigned();
    (imm >> 20 & 1) << 31 | (imm >> 1 & 0x3FF) << 21 | (imm >> 11 & 1) << 20 | imm & 0xF_F000 | 0x6F
}

fn branch(half: u16, funct3: u32) -> u32 {
    let bits = field(half, 12, 12, 8)
        | field(half, 11, 10, 3)
        | field(half, 6, 5, 6)
        | field(half, 4, 3, 1)
        | field(half, 2, 2, 5);
    let imm = ((bits << 23).cast_signed() >> 23).cast_unsigned();
    let rs1 = 8 + field(half, 9, 7, 0);
    (imm >> 12 & 1) << 31
        | (imm >> 5 & 0x3F) << 25
        | rs1 << 15
        | funct3 << 12
        | (imm >> 1 & 0xF) << 8
        | (imm >> 11 & 1) << 7
        | 0x63
}

const NOP: u32 = 0x13;
const EBREAK: u32 = 0x0010_0073;

/// Returns the 32-bit instruction with the same effect; none if the encoding is illegal.
///
/// Hints are kept as the no-ops that they are here.
pub(crate) fn expand(half: u16) -> Option<u32> {
    match half & 3 {
        0 => quadrant_0(half),
        1 => quadrant_1(half),
        _ => quadrant_2(half),
    }
}

fn quadrant_0(half: u16) -> Option<u32> {
    let (near, far) = (8 + field(half, 4, 2, 0), 8 + field(half, 9, 7, 0));
    let word = field(half, 12, 10, 3) | field(half, 6, 6, 2) | field(half, 5, 5, 6);
    let double = field(half, 12, 10, 3) | field(half, 6, 5, 6);
    Some(match half >> 13 {
        0 => {
            let imm = field(half, 12, 11, 4)
                | field(half, 10, 7, 6)
                | field(half, 6, 6, 2)
                | field(half, 5, 5, 3);
            if imm == 0 {
                return None;
            }
            i_type(imm, 2, 0, near, 0x13)
        }
        2 => i_type(word, far, 2, near, 0x03),
        3 => i_type(double, far, 3, near, 0x03),
        6 => s_type(word, near, far, 2),
        7 => s_type(double, near, far, 3),
        // Double-precision loads and stores, and the reserved code 4.
        _ => return None,
    })
}

fn quadrant_1(half: u16) -> Option<u32> {
    let rd = field(half, 11, 7, 0);
    let imm = imm6(half);
    Some(match half >> 13 {
        0 if rd == 0 => NOP,
        0 => i_type(imm, rd, 0, rd, 0x13),
        1 if rd == 0 => return None,
        1 => i_type(imm, rd, 0, rd, 0x1B),
        2 => i_type(imm, 0, 0, rd, 0x13),
        3 if imm == 0 => return None,
        3 if rd == 2 => {
            let bits = field(half, 12, 12, 9)
                | field(half, 6, 6, 4)
                | field(half, 5, 5, 6)
                | field(half, 4, 3, 7)
                | field(half, 2, 2, 5);
            i_type(((bits << 22).cast_signed() >> 22).cast_unsigned(), 2, 0, 2, 0x13)
        }
        3 => imm << 12 | rd << 7 | 0x37,
        4 => return arithmetic(half),
        5 => jump(half),
        6 => branch(half, 0),
        _ => branch(half, 1),
    })
}

/// Shifts, `c.andi` and register arithmetic on x8 to x15.
fn arithmetic(half: u16) -> Option<u32> {
    let rd = 8 + field(half, 9, 7, 0);
    let rs2 = 8 + field(half, 4, 2, 0);
    let shift = field(half, 12, 12, 5) | field(half, 6, 2, 0);
    Some(match (field(half, 11, 10, 0), field(half, 12, 12, 0), field(half, 6, 5, 0)) {
        (0, ..) => i_type(shift, rd, 5, rd, 0x13),
        (1, ..) => i_type(shift | 0x400, rd, 5, rd, 0x13),
        (2, ..) => i_type(imm6(half), rd, 7, rd, 0x13),
        (_, 0, 0) => r_type(0x20, rs2, rd, 0, rd, 0x33),
        (_, 0, 1) => r_type(0, rs2, rd, 4, rd, 0x33),
        (_, 0, 2) => r_type(0, rs2, rd, 6, rd, 0x33),
        (_, 0, 3) => r_type(0, rs2, rd, 7, rd, 0x33),
        (_, _, 0) => r_type(0x20, rs2, rd, 0, rd, 0x3B),
        (_, _, 1) => r_type(0, rs2, rd, 0, rd, 0x3B),
        _ => return None,
    })
}

fn quadrant_2(half: u16) -> Option<u32> {
    let (rd, rs2) = (field(half, 11, 7, 0), field(half, 6, 2, 0));
    Some(match half >> 13 {
        0 if rd == 0 => NOP,
        0 => i_type(field(half, 12, 12, 5) | rs2, rd, 1, rd, 0x13),
        2 | 3 if rd == 0 => return None,
        2 => {
            let offset = field(half, 12, 12, 5) | field(half, 6, 4, 2) | field(half, 3, 2, 6);
            i_type(offset, 2, 2, rd, 0x03)
        }
        3 => {
            let offset = field(half, 12, 12, 5) | field(half, 6, 5, 3) | field(half, 4, 2, 6);
            i_type(offset, 2, 3, rd, 0x03)
        }
        4 => match (half & 0x1000 != 0, rd, rs2) {
            (false, 0, 0) => return None,
            (false, rs1, 0) => i_type(0, rs1, 0, 0, 0x67),
            (false, rd, rs2) => r_type(0, rs2, 0, 0, rd, 0x33),
            (true, 0, 0) => EBREAK,
            (true, rs1, 0) => i_type(0, rs1, 0, 1, 0x67),
            (true, rd, rs2) => r_type(0, rs2, rd, 0, rd, 0x33),
        },
        6 => s_type(field(half, 12, 9, 2) | field(half, 8, 7, 6), rs2, 2, 2),
        7 => s_type(field(half, 12, 10, 3) | field(half, 9, 7, 6), rs2, 2, 3),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansions_match_the_assembler() {
        for (half, raw) in [
            (0x157D, 0xFFF5_0513), // addi a0, a0, -1
            (0x0001, NOP),
            (0x7139, 0xFC01_0113), // addi sp, sp, -64
            (0x0028, 0x0081_0513), // addi a0, sp, 8
            (0x4501, 0x0000_0513), // li a0, 0
            (0x6505, 0x0000_1537), // lui a0, 1
            (0x757D, 0xFFFF_F537), // lui a0, 0xfffff
            (0xE406, 0x0011_3423), // sd ra, 8(sp)
            (0x60A2, 0x0081_3083), // ld ra, 8(sp)
            (0x8082, 0x0000_8067), // ret
            (0x9502, 0x0005_00E7), // jalr a0
            (0x852E, 0x00B0_0533), // mv a0, a1
            (0x8D0D, 0x40B5_0533), // sub a0, a0, a1
            (0x9D2D, 0x00B5_053B), // addw a0, a0, a1
            (0xA001, 0x0000_006F), // j .
            (0xBFFD, 0xFFFF_F06F), // j .-2
            (0xD97D, 0xFE05_0BE3), // beqz a0, .-10
            (0x8505, 0x4015_5513), // srai a0, a0, 1
            (0x893D, 0x00F5_7513), // andi a0, a0, 15
            (0x9002, EBREAK),
        ] {
            let expanded = expand(half);
            assert_eq!(expanded, Some(raw), "{half:#06x}: {expanded:#x?} is not {raw:#x}");
        }
    }

    #[test]
    fn reserved_and_double_precision_encodings_are_illegal() {
        // zero, c.fld, reserved, c.fsd, c.addiw x0, c.lui 0, c.fldsp, c.lwsp x0, c.jr x0, c.fsdsp
        for half in [0x0000, 0x2000, 0x8000, 0xA000, 0x2001, 0x6501, 0x2002, 0x4002, 0x8002, 0xA002]
        {
            assert_eq!(expand(half), None, "{half:#06x}");
        }
    }

    #[test]
    fn length_is_one_halfword() {
        assert_eq!(decode(0x157D).halfwords(), 1);
        assert_eq!((decode(0).kind(), decode(0).halfwords()), (kind::ILLEGAL, 1));
    }
}
