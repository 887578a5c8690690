//! Decoder: from the table of instructions to the operations that handlers execute.
//!
//! What the table does not have is illegal: it is as strict as the hardware. Spec: ISA §1.1, §1.5,
//! §3

pub(crate) mod code;
pub(crate) mod op;

use et_isa::{Id, Support, operand};

use crate::decode::op::{Op, SINK, kind};
use crate::exec::amo::{self, Atomic};
use crate::exec::packed;
use crate::memory::bus::Scope;

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

fn rs3(raw: u32) -> u32 {
    raw >> 27
}

/// Bits 31:20, sign-extended.
pub(crate) fn imm_i(raw: u32) -> i32 {
    operand::OFFSET.value(raw)
}

/// The offset of stores, sign-extended.
pub(crate) fn imm_s(raw: u32) -> i32 {
    operand::OFFSET_S.value(raw)
}

/// Maps x0 as a destination to the register that is never read.
fn sink(rd: u32) -> u32 {
    if rd == 0 { SINK } else { rd }
}

/// Operation on integer registers.
fn integer(kind: u8, raw: u32, imm: i32) -> Op {
    Op::new(kind, sink(rd(raw)), rs1(raw), rs2(raw), imm)
}

/// Decodes the instruction in the low bits of a word, 16 or 32 of them.
pub(crate) fn decode(raw: u32) -> Op {
    let op = match et_isa::decode(raw) {
        Some(found) => {
            let long = found.expand();
            match long.instruction().support() {
                Support::Hardware => operation(long.id(), long.word()),
                Support::Microcoded => detailed(kind::MICROCODED, long.id(), long.word()),
                _ => illegal(),
            }
        }
        None => illegal(),
    };
    if raw & 3 == 3 { op.long() } else { op.short() }
}

fn illegal() -> Op {
    Op::new(kind::ILLEGAL, 0, 0, 0, 0)
}

/// Operation with an integer destination that keeps which instruction it is, the rounding mode and
/// the third source; see [`Op::id`].
fn detailed(kind: u8, id: Id, raw: u32) -> Op {
    let details = (id as u32) | funct3(raw) << 12 | rs3(raw) << 16;
    integer(kind, raw, details.cast_signed())
}

/// The same with a floating-point destination.
fn float(id: Id, raw: u32) -> Op {
    detailed(kind::FLOAT, id, raw).with_rd(rd(raw))
}

/// Arithmetic with host floats if the rounding mode allows it, otherwise by the general path.
fn rounded(kind: u8, id: Id, raw: u32) -> Op {
    let mask = match funct3(raw) {
        0 => 0,
        DYNAMIC => FRM_MASK,
        _ => return float(id, raw),
    };
    Op::new(op::fused(kind), rd(raw), rs1(raw), rs2(raw), rs3(raw).cast_signed() << 8 | mask)
}

/// An atomic; the width is 4 or 8 bytes.
fn atomic(raw: u32, operation: Atomic, scope: Scope, size: u32) -> Op {
    integer(kind::ATOMIC, raw, amo::details(operation, scope, size))
}

/// A coherent store of 1 or 2 bytes.
fn small_store(raw: u32, scope: Scope, size: u32) -> Op {
    integer(kind::SMALL_STORE, raw, amo::details(Atomic::Swap, scope, size))
}

/// A CSR instruction: which one, and the register.
fn csr(id: Id, raw: u32) -> Op {
    let details = (id as u32).cast_signed() | operand::CSR.value(raw) << 16;
    integer(kind::CSR, raw, details)
}

/// Makes the operation of an instruction that the hardware executes.
fn operation(id: Id, raw: u32) -> Op {
    use Scope::{Global, Local};
    let register = |kind| integer(kind, raw, 0);
    let load = |kind| integer(kind, raw, imm_i(raw));
    let store = |kind| integer(kind, raw, imm_s(raw));
    let immediate = |kind| integer(kind, raw, operand::IMM12.value(raw));
    let upper = |kind| integer(kind, raw, operand::IMM20.value(raw) << 12);
    let shift = |kind| integer(kind, raw, operand::SHIFT6.value(raw));
    let shift_word = |kind| integer(kind, raw, operand::SHIFT5.value(raw));
    // Distances are counted in halfwords.
    let branch = |kind| Op::new(kind, 0, rs1(raw), rs2(raw), operand::TARGET_B.value(raw) / 2);
    let fp = |kind| Op::new(kind, rd(raw), rs1(raw), rs2(raw), 0);
    let rounded = |kind| rounded(kind, id, raw);
    let atomic = |operation, scope, size| atomic(raw, operation, scope, size);
    match id {
        Id::Lui => upper(kind::LUI),
        Id::Auipc => upper(kind::AUIPC),
        Id::Jal => integer(kind::JAL, raw, operand::TARGET_J.value(raw) / 2),
        Id::Jalr => load(kind::JALR),
        Id::Beq => branch(kind::BEQ),
        Id::Bne => branch(kind::BNE),
        Id::Blt => branch(kind::BLT),
        Id::Bge => branch(kind::BGE),
        Id::Bltu => branch(kind::BLTU),
        Id::Bgeu => branch(kind::BGEU),
        Id::Lb => load(kind::LB),
        Id::Lh => load(kind::LH),
        Id::Lw => load(kind::LW),
        Id::Ld => load(kind::LD),
        Id::Lbu => load(kind::LBU),
        Id::Lhu => load(kind::LHU),
        Id::Lwu => load(kind::LWU),
        Id::Sb => store(kind::SB),
        Id::Sh => store(kind::SH),
        Id::Sw => store(kind::SW),
        Id::Sd => store(kind::SD),
        Id::Addi => immediate(kind::ADDI),
        Id::Slti => immediate(kind::SLTI),
        Id::Sltiu => immediate(kind::SLTIU),
        Id::Xori => immediate(kind::XORI),
        Id::Ori => immediate(kind::ORI),
        Id::Andi => immediate(kind::ANDI),
        Id::Addiw => immediate(kind::ADDIW),
        Id::Slli => shift(kind::SLLI),
        Id::Srli => shift(kind::SRLI),
        Id::Srai => shift(kind::SRAI),
        Id::Slliw => shift_word(kind::SLLIW),
        Id::Srliw => shift_word(kind::SRLIW),
        Id::Sraiw => shift_word(kind::SRAIW),
        Id::Add => register(kind::ADD),
        Id::Sub => register(kind::SUB),
        Id::Sll => register(kind::SLL),
        Id::Slt => register(kind::SLT),
        Id::Sltu => register(kind::SLTU),
        Id::Xor => register(kind::XOR),
        Id::Srl => register(kind::SRL),
        Id::Sra => register(kind::SRA),
        Id::Or => register(kind::OR),
        Id::And => register(kind::AND),
        Id::Addw => register(kind::ADDW),
        Id::Subw => register(kind::SUBW),
        Id::Sllw => register(kind::SLLW),
        Id::Srlw => register(kind::SRLW),
        Id::Sraw => register(kind::SRAW),
        Id::Mul => register(kind::MUL),
        Id::Mulh => register(kind::MULH),
        Id::Mulhsu => register(kind::MULHSU),
        Id::Mulhu => register(kind::MULHU),
        Id::Div => register(kind::DIV),
        Id::Divu => register(kind::DIVU),
        Id::Rem => register(kind::REM),
        Id::Remu => register(kind::REMU),
        Id::Mulw => register(kind::MULW),
        Id::Divw => register(kind::DIVW),
        Id::Divuw => register(kind::DIVUW),
        Id::Remw => register(kind::REMW),
        Id::Remuw => register(kind::REMUW),
        Id::Packb => register(kind::PACKB),
        Id::Pause => register(kind::PAUSE),
        Id::Ecall => register(kind::ECALL),
        Id::Ebreak => register(kind::EBREAK),
        Id::Fence | Id::FenceTso => register(kind::FENCE),
        Id::Csrrw | Id::Csrrs | Id::Csrrc | Id::Csrrwi | Id::Csrrsi | Id::Csrrci => csr(id, raw),
        Id::Flw => load(kind::FLW).with_rd(rd(raw)),
        Id::Fsw => store(kind::FSW),
        Id::FaddS => rounded(kind::FADD),
        Id::FsubS => rounded(kind::FSUB),
        Id::FmulS => rounded(kind::FMUL),
        Id::FmaddS => rounded(kind::FMADD),
        Id::FmsubS => rounded(kind::FMSUB),
        Id::FnmsubS => rounded(kind::FNMSUB),
        Id::FnmaddS => rounded(kind::FNMADD),
        Id::FsgnjS => fp(kind::FSGNJ),
        Id::FsgnjnS => fp(kind::FSGNJN),
        Id::FsgnjxS => fp(kind::FSGNJX),
        Id::FminS => fp(kind::FMIN),
        Id::FmaxS => fp(kind::FMAX),
        Id::FmvWX => fp(kind::FMV_W_X),
        Id::FleS => register(kind::FLE),
        Id::FltS => register(kind::FLT),
        Id::FeqS => register(kind::FEQ),
        Id::FmvXW => register(kind::FMV_X_W),
        Id::FcvtWS | Id::FcvtWuS | Id::FclassS => detailed(kind::FLOAT, id, raw),
        Id::FcvtSW | Id::FcvtSWu => float(id, raw),
        Id::AmoaddlW => atomic(Atomic::Add, Local, 4),
        Id::AmoaddlD => atomic(Atomic::Add, Local, 8),
        Id::AmoaddgW => atomic(Atomic::Add, Global, 4),
        Id::AmoaddgD => atomic(Atomic::Add, Global, 8),
        Id::AmoswaplW => atomic(Atomic::Swap, Local, 4),
        Id::AmoswaplD => atomic(Atomic::Swap, Local, 8),
        Id::AmoswapgW => atomic(Atomic::Swap, Global, 4),
        Id::AmoswapgD => atomic(Atomic::Swap, Global, 8),
        Id::AmoxorlW => atomic(Atomic::Xor, Local, 4),
        Id::AmoxorlD => atomic(Atomic::Xor, Local, 8),
        Id::AmoxorgW => atomic(Atomic::Xor, Global, 4),
        Id::AmoxorgD => atomic(Atomic::Xor, Global, 8),
        Id::AmoorlW => atomic(Atomic::Or, Local, 4),
        Id::AmoorlD => atomic(Atomic::Or, Local, 8),
        Id::AmoorgW => atomic(Atomic::Or, Global, 4),
        Id::AmoorgD => atomic(Atomic::Or, Global, 8),
        Id::AmoandlW => atomic(Atomic::And, Local, 4),
        Id::AmoandlD => atomic(Atomic::And, Local, 8),
        Id::AmoandgW => atomic(Atomic::And, Global, 4),
        Id::AmoandgD => atomic(Atomic::And, Global, 8),
        Id::AmominlW => atomic(Atomic::Min, Local, 4),
        Id::AmominlD => atomic(Atomic::Min, Local, 8),
        Id::AmomingW => atomic(Atomic::Min, Global, 4),
        Id::AmomingD => atomic(Atomic::Min, Global, 8),
        Id::AmomaxlW => atomic(Atomic::Max, Local, 4),
        Id::AmomaxlD => atomic(Atomic::Max, Local, 8),
        Id::AmomaxgW => atomic(Atomic::Max, Global, 4),
        Id::AmomaxgD => atomic(Atomic::Max, Global, 8),
        Id::AmominulW => atomic(Atomic::MinUnsigned, Local, 4),
        Id::AmominulD => atomic(Atomic::MinUnsigned, Local, 8),
        Id::AmominugW => atomic(Atomic::MinUnsigned, Global, 4),
        Id::AmominugD => atomic(Atomic::MinUnsigned, Global, 8),
        Id::AmomaxulW => atomic(Atomic::MaxUnsigned, Local, 4),
        Id::AmomaxulD => atomic(Atomic::MaxUnsigned, Local, 8),
        Id::AmomaxugW => atomic(Atomic::MaxUnsigned, Global, 4),
        Id::AmomaxugD => atomic(Atomic::MaxUnsigned, Global, 8),
        Id::AmocmpswaplW => atomic(Atomic::CompareSwap, Local, 4),
        Id::AmocmpswaplD => atomic(Atomic::CompareSwap, Local, 8),
        Id::AmocmpswapgW => atomic(Atomic::CompareSwap, Global, 4),
        Id::AmocmpswapgD => atomic(Atomic::CompareSwap, Global, 8),
        Id::Sbl => small_store(raw, Local, 1),
        Id::Sbg => small_store(raw, Global, 1),
        Id::Shl => small_store(raw, Local, 2),
        Id::Shg => small_store(raw, Global, 2),
        // The rest are packed and mask instructions, which are kept as they are.
        Id::MovMX | Id::MovaXM | Id::MovaMX => Op::packed(id, sink(rd(raw)), raw),
        _ if packed::exists(id) => Op::packed(id, sink(rd(raw)), raw),
        _ => illegal(),
    }
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
        assert_eq!(decode(0x1820_8243).kind(), op::fused(kind::FMADD));
        assert_eq!(decode(0x1820_8243 | 1 << 25).kind(), op::fused(kind::FMADD));
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

    #[test]
    fn every_instruction_of_the_hardware_has_an_operation() {
        for instruction in &et_isa::INSTRUCTIONS {
            // Operands of 1 are legal for all instructions.
            let operands = instruction.operands();
            let one = |operand: &et_isa::Operand| operand.range().1.min(8).max(operand.range().0);
            let values: Vec<_> = operands.iter().map(one).collect();
            let values: Vec<_> = values
                .iter()
                .zip(operands)
                .map(
                    |(&value, operand)| {
                        if operand.encode(value).is_ok() { value } else { operand.range().0 }
                    },
                )
                .collect();
            let Ok(word) = instruction.encode(&values) else { continue };
            let kind = decode(word).kind();
            match instruction.support() {
                Support::Hardware => assert_ne!(kind, kind::ILLEGAL, "{}", instruction.mnemonic()),
                Support::Microcoded => assert_eq!(kind, kind::MICROCODED),
                _ => assert_eq!(kind, kind::ILLEGAL),
            }
        }
    }

    /// On weak memory they wait for what the tensor unit does to registers. Spec: ISA §3.9
    #[test]
    fn packed_instructions_are_known_to_use_registers() {
        use crate::config::MemoryModel;
        for &id in Id::ALL.iter().filter(|&&id| packed::exists(id)) {
            let op = Op::packed(id, 1, 0);
            assert!(op.uses_floats(), "{id:?}");
            for memory in [MemoryModel::Weak { seed: 0 }, MemoryModel::Private] {
                let loads = [kind::FLW, kind::FSW].map(|kind| Op::new(kind, 1, 1, 1, 0));
                assert!(loads.into_iter().all(|op| op.under(memory).uses_floats()));
            }
        }
        assert!(!Op::new(kind::ADDI, 1, 1, 0, 0).uses_floats());
    }

    #[test]
    fn length_is_that_of_the_instruction() {
        assert_eq!(decode(0x157D).halfwords(), 1);
        assert_eq!((decode(0).kind(), decode(0).halfwords()), (kind::ILLEGAL, 1));
        assert_eq!((decode(!0).kind(), decode(!0).halfwords()), (kind::ILLEGAL, 2));
    }
}
