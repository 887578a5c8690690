//! All instructions, one a line: identifier, mnemonic, pattern, operands in the order of the
//! assembler, and whether the device executes it.

use crate::operand::{
    BASE, BASE2, C_BASE, C_IMM, C_IMM_4SPN, C_IMM_16SP, C_OFFSET_D, C_OFFSET_LDSP, C_OFFSET_LWSP,
    C_OFFSET_SDSP, C_OFFSET_SWSP, C_OFFSET_W, C_RD, C_RD_HIGH, C_RD_LOW, C_RD_NONZERO,
    C_RS1_NONZERO, C_RS2, C_RS2_LOW, C_RS2_NONZERO, C_SHIFT, C_TARGET_B, C_TARGET_J, C_UPPER, CSR,
    FD, FINDICES, FS1, FS2, FS3, IMM4, IMM8, IMM10, IMM12, IMM20, INDICES, LANE, MD, MS1, MS2,
    OFFSET, OFFSET_S, Operand, PREDECESSORS, RD, RM, RS1, RS2, SHIFT5, SHIFT6, SP, SP_BASE,
    SUCCESSORS, TARGET_B, TARGET_J, UIMM5,
};
use crate::{Expansion, Instruction, Source, Support};

/// Bits that an instruction is known by.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    mask: u32,
    value: u32,
}

impl Pattern {
    /// Fixes more bits.
    const fn bits(self, mask: u32, value: u32) -> Self {
        Self { mask: self.mask | mask, value: self.value | value }
    }

    /// The second source field is a code.
    const fn second(self, code: u32) -> Self {
        self.bits(0x01F0_0000, code << 20)
    }

    /// The field of an operand is 0.
    const fn zero(self, operand: Operand) -> Self {
        self.bits(operand.mask(), 0)
    }

    /// The offset is 0.
    const fn no_offset(self) -> Self {
        self.bits(0xFFF0_0000, 0)
    }

    /// The destination is a mask, whose number has three bits.
    const fn to_mask(self) -> Self {
        self.bits(0x0000_0C00, 0)
    }

    /// The first source is a mask.
    const fn first_mask(self) -> Self {
        self.bits(0x000C_0000, 0)
    }

    /// The second source has three bits.
    const fn second_mask(self) -> Self {
        self.bits(0x0180_0000, 0)
    }

    /// Destination and both sources are masks.
    const fn masks(self) -> Self {
        self.to_mask().first_mask().second_mask()
    }
}

/// All bits.
const fn exact(word: u32) -> Pattern {
    Pattern { mask: u32::MAX, value: word }
}

/// Opcode.
const fn u(opcode: u32) -> Pattern {
    Pattern { mask: 0x7F, value: opcode }
}

/// Opcode and bits 14:12.
const fn i(opcode: u32, funct3: u32) -> Pattern {
    u(opcode).bits(0x7000, funct3 << 12)
}

/// Opcode and bits 31:25. Bits 14:12 are an operand, such as the rounding mode.
const fn rm(opcode: u32, funct7: u32) -> Pattern {
    u(opcode).bits(0xFE00_0000, funct7 << 25)
}

/// Opcode, bits 14:12 and bits 31:25.
const fn r(opcode: u32, funct3: u32, funct7: u32) -> Pattern {
    i(opcode, funct3).bits(0xFE00_0000, funct7 << 25)
}

/// Opcode, bits 14:12 and bits 31:26.
const fn shift(opcode: u32, funct3: u32, funct6: u32) -> Pattern {
    i(opcode, funct3).bits(0xFC00_0000, funct6 << 26)
}

/// Opcode and bits 26:25.
const fn format(opcode: u32, fmt: u32) -> Pattern {
    u(opcode).bits(0x0600_0000, fmt << 25)
}

/// A scalar fused operation. Quirk: format 1, which would be double precision, is taken for single
/// precision.
const fn fused(opcode: u32) -> Pattern {
    u(opcode).bits(0x0400_0000, 0)
}

/// Opcode, bits 14:12, and format 2.
const fn constant(opcode: u32, funct3: u32) -> Pattern {
    i(opcode, funct3).bits(0x0600_0000, 2 << 25)
}

/// Quadrant and bits 15:13 of a 16-bit instruction.
const fn c(quadrant: u32, funct3: u32) -> Pattern {
    Pattern { mask: 0xE003, value: funct3 << 13 | quadrant }
}

/// Numbers the instructions and lists them.
macro_rules! instructions {
    ($(
        $id:ident = $mnemonic:literal, $pattern:expr, [$($operand:ident),*]
        $(, $support:ident)? $(, => $to:ident [$($source:expr),*])?;
    )*) => {
        /// An instruction.
        #[expect(missing_docs, reason = "the names are the mnemonics")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Id { $($id),* }

        impl Id {
            /// Every instruction, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$id),*];
        }

        /// Every instruction; the position is the number of its [`Id`].
        ///
        /// Of two that match the same word the first one is meant.
        pub static INSTRUCTIONS: [Instruction; Id::ALL.len()] = {
            use Source::{Always, Of};
            [$({
                const PATTERN: Pattern = $pattern;
                Instruction {
                    id: Id::$id,
                    mnemonic: $mnemonic,
                    mask: PATTERN.mask,
                    value: PATTERN.value,
                    operands: &[$($operand),*],
                    support: first(&[$(Support::$support,)? Support::Hardware]),
                    expansion: expansion(&[$(Expansion { to: Id::$to, sources: &[$($source),*] })?]),
                }
            }),*]
        };
    };
}

const fn first(supports: &[Support]) -> Support {
    supports[0]
}

const fn expansion(expansions: &[Expansion]) -> Option<Expansion> {
    if expansions.is_empty() { None } else { Some(expansions[0]) }
}

instructions! {
    // RV64I. Spec: ISA §1.1
    Lui = "lui", u(0x37), [RD, IMM20];
    Auipc = "auipc", u(0x17), [RD, IMM20];
    Jal = "jal", u(0x6F), [RD, TARGET_J];
    Jalr = "jalr", i(0x67, 0), [RD, OFFSET, BASE];
    Beq = "beq", i(0x63, 0), [RS1, RS2, TARGET_B];
    Bne = "bne", i(0x63, 1), [RS1, RS2, TARGET_B];
    Blt = "blt", i(0x63, 4), [RS1, RS2, TARGET_B];
    Bge = "bge", i(0x63, 5), [RS1, RS2, TARGET_B];
    Bltu = "bltu", i(0x63, 6), [RS1, RS2, TARGET_B];
    Bgeu = "bgeu", i(0x63, 7), [RS1, RS2, TARGET_B];
    Lb = "lb", i(0x03, 0), [RD, OFFSET, BASE];
    Lh = "lh", i(0x03, 1), [RD, OFFSET, BASE];
    Lw = "lw", i(0x03, 2), [RD, OFFSET, BASE];
    Ld = "ld", i(0x03, 3), [RD, OFFSET, BASE];
    Lbu = "lbu", i(0x03, 4), [RD, OFFSET, BASE];
    Lhu = "lhu", i(0x03, 5), [RD, OFFSET, BASE];
    Lwu = "lwu", i(0x03, 6), [RD, OFFSET, BASE];
    Sb = "sb", i(0x23, 0), [RS2, OFFSET_S, BASE];
    Sh = "sh", i(0x23, 1), [RS2, OFFSET_S, BASE];
    Sw = "sw", i(0x23, 2), [RS2, OFFSET_S, BASE];
    Sd = "sd", i(0x23, 3), [RS2, OFFSET_S, BASE];
    Addi = "addi", i(0x13, 0), [RD, RS1, IMM12];
    Slti = "slti", i(0x13, 2), [RD, RS1, IMM12];
    Sltiu = "sltiu", i(0x13, 3), [RD, RS1, IMM12];
    Xori = "xori", i(0x13, 4), [RD, RS1, IMM12];
    Ori = "ori", i(0x13, 6), [RD, RS1, IMM12];
    Andi = "andi", i(0x13, 7), [RD, RS1, IMM12];
    Slli = "slli", shift(0x13, 1, 0x00), [RD, RS1, SHIFT6];
    Srli = "srli", shift(0x13, 5, 0x00), [RD, RS1, SHIFT6];
    Srai = "srai", shift(0x13, 5, 0x10), [RD, RS1, SHIFT6];
    Addiw = "addiw", i(0x1B, 0), [RD, RS1, IMM12];
    Slliw = "slliw", r(0x1B, 1, 0x00), [RD, RS1, SHIFT5];
    Srliw = "srliw", r(0x1B, 5, 0x00), [RD, RS1, SHIFT5];
    Sraiw = "sraiw", r(0x1B, 5, 0x20), [RD, RS1, SHIFT5];
    Add = "add", r(0x33, 0, 0x00), [RD, RS1, RS2];
    Sub = "sub", r(0x33, 0, 0x20), [RD, RS1, RS2];
    Sll = "sll", r(0x33, 1, 0x00), [RD, RS1, RS2];
    Slt = "slt", r(0x33, 2, 0x00), [RD, RS1, RS2];
    Sltu = "sltu", r(0x33, 3, 0x00), [RD, RS1, RS2];
    Xor = "xor", r(0x33, 4, 0x00), [RD, RS1, RS2];
    Srl = "srl", r(0x33, 5, 0x00), [RD, RS1, RS2];
    Sra = "sra", r(0x33, 5, 0x20), [RD, RS1, RS2];
    Or = "or", r(0x33, 6, 0x00), [RD, RS1, RS2];
    And = "and", r(0x33, 7, 0x00), [RD, RS1, RS2];
    Addw = "addw", r(0x3B, 0, 0x00), [RD, RS1, RS2];
    Subw = "subw", r(0x3B, 0, 0x20), [RD, RS1, RS2];
    Sllw = "sllw", r(0x3B, 1, 0x00), [RD, RS1, RS2];
    Srlw = "srlw", r(0x3B, 5, 0x00), [RD, RS1, RS2];
    Sraw = "sraw", r(0x3B, 5, 0x20), [RD, RS1, RS2];
    FenceTso = "fence.tso", exact(0x8330_000F), [];
    Pause = "pause", exact(0x0100_000F), [];
    Fence = "fence", i(0x0F, 0), [PREDECESSORS, SUCCESSORS];
    FenceI = "fence.i", i(0x0F, 1), [], Microcoded;
    Ecall = "ecall", exact(0x0000_0073), [];
    Ebreak = "ebreak", exact(0x0010_0073), [];
    Sret = "sret", exact(0x1020_0073), [], Privileged;
    Wfi = "wfi", exact(0x1050_0073), [], Privileged;
    Mret = "mret", exact(0x3020_0073), [], Privileged;
    SfenceVma = "sfence.vma", r(0x73, 0, 0x09).zero(RD), [RS1, RS2], Microcoded;
    // Zicsr
    Csrrw = "csrrw", i(0x73, 1), [RD, CSR, RS1];
    Csrrs = "csrrs", i(0x73, 2), [RD, CSR, RS1];
    Csrrc = "csrrc", i(0x73, 3), [RD, CSR, RS1];
    Csrrwi = "csrrwi", i(0x73, 5), [RD, CSR, UIMM5];
    Csrrsi = "csrrsi", i(0x73, 6), [RD, CSR, UIMM5];
    Csrrci = "csrrci", i(0x73, 7), [RD, CSR, UIMM5];
    // M
    Mul = "mul", r(0x33, 0, 0x01), [RD, RS1, RS2];
    Mulh = "mulh", r(0x33, 1, 0x01), [RD, RS1, RS2];
    Mulhsu = "mulhsu", r(0x33, 2, 0x01), [RD, RS1, RS2];
    Mulhu = "mulhu", r(0x33, 3, 0x01), [RD, RS1, RS2];
    Div = "div", r(0x33, 4, 0x01), [RD, RS1, RS2];
    Divu = "divu", r(0x33, 5, 0x01), [RD, RS1, RS2];
    Rem = "rem", r(0x33, 6, 0x01), [RD, RS1, RS2];
    Remu = "remu", r(0x33, 7, 0x01), [RD, RS1, RS2];
    Mulw = "mulw", r(0x3B, 0, 0x01), [RD, RS1, RS2];
    Divw = "divw", r(0x3B, 4, 0x01), [RD, RS1, RS2];
    Divuw = "divuw", r(0x3B, 5, 0x01), [RD, RS1, RS2];
    Remw = "remw", r(0x3B, 6, 0x01), [RD, RS1, RS2];
    Remuw = "remuw", r(0x3B, 7, 0x01), [RD, RS1, RS2];
    // F. Spec: ISA §1.4, §1.5
    Flw = "flw", i(0x07, 2), [FD, OFFSET, BASE];
    Fsw = "fsw", i(0x27, 2), [FS2, OFFSET_S, BASE];
    FmaddS = "fmadd.s", fused(0x43), [FD, FS1, FS2, FS3, RM];
    FmsubS = "fmsub.s", fused(0x47), [FD, FS1, FS2, FS3, RM];
    FnmsubS = "fnmsub.s", fused(0x4B), [FD, FS1, FS2, FS3, RM];
    FnmaddS = "fnmadd.s", fused(0x4F), [FD, FS1, FS2, FS3, RM];
    FaddS = "fadd.s", rm(0x53, 0x00), [FD, FS1, FS2, RM];
    FsubS = "fsub.s", rm(0x53, 0x04), [FD, FS1, FS2, RM];
    FmulS = "fmul.s", rm(0x53, 0x08), [FD, FS1, FS2, RM];
    FdivS = "fdiv.s", rm(0x53, 0x0C), [FD, FS1, FS2, RM], Microcoded;
    FsqrtS = "fsqrt.s", rm(0x53, 0x2C).second(0), [FD, FS1, RM], Microcoded;
    FsgnjS = "fsgnj.s", r(0x53, 0, 0x10), [FD, FS1, FS2];
    FsgnjnS = "fsgnjn.s", r(0x53, 1, 0x10), [FD, FS1, FS2];
    FsgnjxS = "fsgnjx.s", r(0x53, 2, 0x10), [FD, FS1, FS2];
    FminS = "fmin.s", r(0x53, 0, 0x14), [FD, FS1, FS2];
    FmaxS = "fmax.s", r(0x53, 1, 0x14), [FD, FS1, FS2];
    FleS = "fle.s", r(0x53, 0, 0x50), [RD, FS1, FS2];
    FltS = "flt.s", r(0x53, 1, 0x50), [RD, FS1, FS2];
    FeqS = "feq.s", r(0x53, 2, 0x50), [RD, FS1, FS2];
    FcvtWS = "fcvt.w.s", rm(0x53, 0x60).second(0), [RD, FS1, RM];
    FcvtWuS = "fcvt.wu.s", rm(0x53, 0x60).second(1), [RD, FS1, RM];
    FcvtLS = "fcvt.l.s", rm(0x53, 0x60).second(2), [RD, FS1, RM], Microcoded;
    FcvtLuS = "fcvt.lu.s", rm(0x53, 0x60).second(3), [RD, FS1, RM], Microcoded;
    FcvtSW = "fcvt.s.w", rm(0x53, 0x68).second(0), [FD, RS1, RM];
    FcvtSWu = "fcvt.s.wu", rm(0x53, 0x68).second(1), [FD, RS1, RM];
    FcvtSL = "fcvt.s.l", rm(0x53, 0x68).second(2), [FD, RS1, RM], Microcoded;
    FcvtSLu = "fcvt.s.lu", rm(0x53, 0x68).second(3), [FD, RS1, RM], Microcoded;
    FmvXW = "fmv.x.w", r(0x53, 0, 0x70).second(0), [RD, FS1];
    FclassS = "fclass.s", r(0x53, 1, 0x70).second(0), [RD, FS1];
    FmvWX = "fmv.w.x", r(0x53, 0, 0x78).second(0), [FD, RS1];
    // Scalar atomics. Spec: ISA §3.1
    AmoaddlW = "amoaddl.w", r(0x3B, 2, 0x00), [RD, RS2, BASE];
    AmoaddlD = "amoaddl.d", r(0x3B, 3, 0x00), [RD, RS2, BASE];
    AmoaddgW = "amoaddg.w", r(0x3B, 2, 0x01), [RD, RS2, BASE];
    AmoaddgD = "amoaddg.d", r(0x3B, 3, 0x01), [RD, RS2, BASE];
    AmoswaplW = "amoswapl.w", r(0x3B, 2, 0x04), [RD, RS2, BASE];
    AmoswaplD = "amoswapl.d", r(0x3B, 3, 0x04), [RD, RS2, BASE];
    AmoswapgW = "amoswapg.w", r(0x3B, 2, 0x05), [RD, RS2, BASE];
    AmoswapgD = "amoswapg.d", r(0x3B, 3, 0x05), [RD, RS2, BASE];
    AmoxorlW = "amoxorl.w", r(0x3B, 2, 0x10), [RD, RS2, BASE];
    AmoxorlD = "amoxorl.d", r(0x3B, 3, 0x10), [RD, RS2, BASE];
    AmoxorgW = "amoxorg.w", r(0x3B, 2, 0x11), [RD, RS2, BASE];
    AmoxorgD = "amoxorg.d", r(0x3B, 3, 0x11), [RD, RS2, BASE];
    AmoorlW = "amoorl.w", r(0x3B, 2, 0x20), [RD, RS2, BASE];
    AmoorlD = "amoorl.d", r(0x3B, 3, 0x20), [RD, RS2, BASE];
    AmoorgW = "amoorg.w", r(0x3B, 2, 0x21), [RD, RS2, BASE];
    AmoorgD = "amoorg.d", r(0x3B, 3, 0x21), [RD, RS2, BASE];
    AmoandlW = "amoandl.w", r(0x3B, 2, 0x30), [RD, RS2, BASE];
    AmoandlD = "amoandl.d", r(0x3B, 3, 0x30), [RD, RS2, BASE];
    AmoandgW = "amoandg.w", r(0x3B, 2, 0x31), [RD, RS2, BASE];
    AmoandgD = "amoandg.d", r(0x3B, 3, 0x31), [RD, RS2, BASE];
    AmominlW = "amominl.w", r(0x3B, 2, 0x40), [RD, RS2, BASE];
    AmominlD = "amominl.d", r(0x3B, 3, 0x40), [RD, RS2, BASE];
    AmomingW = "amoming.w", r(0x3B, 2, 0x41), [RD, RS2, BASE];
    AmomingD = "amoming.d", r(0x3B, 3, 0x41), [RD, RS2, BASE];
    AmomaxlW = "amomaxl.w", r(0x3B, 2, 0x50), [RD, RS2, BASE];
    AmomaxlD = "amomaxl.d", r(0x3B, 3, 0x50), [RD, RS2, BASE];
    AmomaxgW = "amomaxg.w", r(0x3B, 2, 0x51), [RD, RS2, BASE];
    AmomaxgD = "amomaxg.d", r(0x3B, 3, 0x51), [RD, RS2, BASE];
    AmominulW = "amominul.w", r(0x3B, 2, 0x60), [RD, RS2, BASE];
    AmominulD = "amominul.d", r(0x3B, 3, 0x60), [RD, RS2, BASE];
    AmominugW = "amominug.w", r(0x3B, 2, 0x61), [RD, RS2, BASE];
    AmominugD = "amominug.d", r(0x3B, 3, 0x61), [RD, RS2, BASE];
    AmomaxulW = "amomaxul.w", r(0x3B, 2, 0x70), [RD, RS2, BASE];
    AmomaxulD = "amomaxul.d", r(0x3B, 3, 0x70), [RD, RS2, BASE];
    AmomaxugW = "amomaxug.w", r(0x3B, 2, 0x71), [RD, RS2, BASE];
    AmomaxugD = "amomaxug.d", r(0x3B, 3, 0x71), [RD, RS2, BASE];
    AmocmpswaplW = "amocmpswapl.w", r(0x3B, 2, 0x78), [RD, RS2, BASE];
    AmocmpswaplD = "amocmpswapl.d", r(0x3B, 3, 0x78), [RD, RS2, BASE];
    AmocmpswapgW = "amocmpswapg.w", r(0x3B, 2, 0x79), [RD, RS2, BASE];
    AmocmpswapgD = "amocmpswapg.d", r(0x3B, 3, 0x79), [RD, RS2, BASE];
    // Coherent stores and byte packing. Spec: ISA §3.2
    Sbl = "sbl", r(0x3B, 3, 0x08), [RS2, BASE];
    Sbg = "sbg", r(0x3B, 3, 0x09), [RS2, BASE];
    Shl = "shl", r(0x3B, 3, 0x0C), [RS2, BASE];
    Shg = "shg", r(0x3B, 3, 0x0D), [RS2, BASE];
    Packb = "packb", r(0x3B, 6, 0x40), [RD, RS1, RS2];
    Bitmixb = "bitmixb", r(0x3B, 7, 0x40), [RD, RS1, RS2], Graphics;
    // Masks. Spec: ISA §3.4
    Maskand = "maskand", r(0x7B, 7, 0x33).masks(), [MD, MS1, MS2];
    Maskor = "maskor", r(0x7B, 6, 0x33).masks(), [MD, MS1, MS2];
    Maskxor = "maskxor", r(0x7B, 4, 0x33).masks(), [MD, MS1, MS2];
    Masknot = "masknot", r(0x7B, 2, 0x33).masks().second(0), [MD, MS1];
    Maskpopc = "maskpopc", r(0x7B, 0, 0x29).second(0).first_mask(), [RD, MS1];
    Maskpopcz = "maskpopcz", r(0x7B, 0, 0x2A).second(0).first_mask(), [RD, MS1];
    MovMX = "mov.m.x", rm(0x7B, 0x2B).to_mask(), [MD, RS1, IMM8];
    MovaXM = "mova.x.m", r(0x7B, 0, 0x6B).zero(RS1).zero(RS2), [RD];
    MovaMX = "mova.m.x", r(0x7B, 1, 0x6B).zero(RD).zero(RS2), [RS1];
    MaskpopcRast = "maskpopc.rast", r(0x7B, 0, 0x2F), [RD, MS1, MS2, IMM4], Graphics;
    // Packed single. Spec: ISA §3.5
    FmaddPs = "fmadd.ps", format(0x5B, 0), [FD, FS1, FS2, FS3, RM];
    FmsubPs = "fmsub.ps", format(0x5B, 1), [FD, FS1, FS2, FS3, RM];
    FnmsubPs = "fnmsub.ps", format(0x5B, 2), [FD, FS1, FS2, FS3, RM];
    FnmaddPs = "fnmadd.ps", format(0x5B, 3), [FD, FS1, FS2, FS3, RM];
    FaddPs = "fadd.ps", rm(0x7B, 0x00), [FD, FS1, FS2, RM];
    FsubPs = "fsub.ps", rm(0x7B, 0x04), [FD, FS1, FS2, RM];
    FmulPs = "fmul.ps", rm(0x7B, 0x08), [FD, FS1, FS2, RM];
    FdivPs = "fdiv.ps", rm(0x7B, 0x0C), [FD, FS1, FS2, RM], Microcoded;
    FsgnjPs = "fsgnj.ps", r(0x7B, 0, 0x10), [FD, FS1, FS2];
    FsgnjnPs = "fsgnjn.ps", r(0x7B, 1, 0x10), [FD, FS1, FS2];
    FsgnjxPs = "fsgnjx.ps", r(0x7B, 2, 0x10), [FD, FS1, FS2];
    FminPs = "fmin.ps", r(0x7B, 0, 0x14), [FD, FS1, FS2];
    FmaxPs = "fmax.ps", r(0x7B, 1, 0x14), [FD, FS1, FS2];
    FlePs = "fle.ps", r(0x7B, 0, 0x50), [FD, FS1, FS2];
    FltPs = "flt.ps", r(0x7B, 1, 0x50), [FD, FS1, FS2];
    FeqPs = "feq.ps", r(0x7B, 2, 0x50), [FD, FS1, FS2];
    FlemPs = "flem.ps", r(0x7B, 4, 0x50).to_mask(), [MD, FS1, FS2];
    FltmPs = "fltm.ps", r(0x7B, 5, 0x50).to_mask(), [MD, FS1, FS2];
    FeqmPs = "feqm.ps", r(0x7B, 6, 0x50).to_mask(), [MD, FS1, FS2];
    FsqrtPs = "fsqrt.ps", r(0x7B, 0, 0x2C).second(0), [FD, FS1], Microcoded;
    FroundPs = "fround.ps", rm(0x7B, 0x2C).second(1), [FD, FS1, RM];
    FfrcPs = "ffrc.ps", r(0x7B, 0, 0x2C).second(2), [FD, FS1];
    FlogPs = "flog.ps", r(0x7B, 0, 0x2C).second(3), [FD, FS1];
    FexpPs = "fexp.ps", r(0x7B, 0, 0x2C).second(4), [FD, FS1];
    FrcpPs = "frcp.ps", r(0x7B, 0, 0x2C).second(7), [FD, FS1];
    FsinPs = "fsin.ps", r(0x7B, 0, 0x2C).second(6), [FD, FS1], Microcoded;
    FrsqPs = "frsq.ps", r(0x7B, 0, 0x2C).second(8), [FD, FS1], Microcoded;
    FcvtPwPs = "fcvt.pw.ps", rm(0x7B, 0x60).second(0), [FD, FS1, RM];
    FcvtPwuPs = "fcvt.pwu.ps", rm(0x7B, 0x60).second(1), [FD, FS1, RM];
    FcvtPsPw = "fcvt.ps.pw", rm(0x7B, 0x68).second(0), [FD, FS1, RM];
    FcvtPsPwu = "fcvt.ps.pwu", rm(0x7B, 0x68).second(1), [FD, FS1, RM];
    FcvtPsF16 = "fcvt.ps.f16", r(0x7B, 0, 0x68).second(0x0A), [FD, FS1];
    FcvtF16Ps = "fcvt.f16.ps", r(0x7B, 0, 0x6C).second(9), [FD, FS1];
    FmvzXPs = "fmvz.x.ps", r(0x7B, 0, 0x70).second_mask(), [RD, FS1, LANE];
    FmvsXPs = "fmvs.x.ps", r(0x7B, 2, 0x70).second_mask(), [RD, FS1, LANE];
    FclassPs = "fclass.ps", r(0x7B, 1, 0x70).second(0), [FD, FS1];
    FswizzPs = "fswizz.ps", rm(0x7B, 0x73), [FD, FS1, IMM8];
    FbciPs = "fbci.ps", u(0x1F), [FD, IMM20];
    FbcxPs = "fbcx.ps", i(0x0B, 3).no_offset(), [FD, RS1];
    FcmovPs = "fcmov.ps", constant(0x3F, 2), [FD, FS1, FS2, FS3];
    FcmovmPs = "fcmovm.ps", r(0x77, 0, 0x00), [FD, FS1, FS2];
    // Packed integer. Spec: ISA §3.5
    FaddPi = "fadd.pi", r(0x7B, 0, 0x03), [FD, FS1, FS2];
    FsllPi = "fsll.pi", r(0x7B, 1, 0x03), [FD, FS1, FS2];
    FsrlPi = "fsrl.pi", r(0x7B, 5, 0x03), [FD, FS1, FS2];
    FxorPi = "fxor.pi", r(0x7B, 4, 0x03), [FD, FS1, FS2];
    ForPi = "for.pi", r(0x7B, 6, 0x03), [FD, FS1, FS2];
    FandPi = "fand.pi", r(0x7B, 7, 0x03), [FD, FS1, FS2];
    FsubPi = "fsub.pi", r(0x7B, 0, 0x07), [FD, FS1, FS2];
    FsraPi = "fsra.pi", r(0x7B, 5, 0x07), [FD, FS1, FS2];
    FmulPi = "fmul.pi", r(0x7B, 0, 0x0B), [FD, FS1, FS2];
    FmulhPi = "fmulh.pi", r(0x7B, 1, 0x0B), [FD, FS1, FS2];
    FmulhuPi = "fmulhu.pi", r(0x7B, 2, 0x0B), [FD, FS1, FS2];
    FminPi = "fmin.pi", r(0x7B, 0, 0x17), [FD, FS1, FS2];
    FmaxPi = "fmax.pi", r(0x7B, 1, 0x17), [FD, FS1, FS2];
    FminuPi = "fminu.pi", r(0x7B, 2, 0x17), [FD, FS1, FS2];
    FmaxuPi = "fmaxu.pi", r(0x7B, 3, 0x17), [FD, FS1, FS2];
    FlePi = "fle.pi", r(0x7B, 0, 0x53), [FD, FS1, FS2];
    FltPi = "flt.pi", r(0x7B, 1, 0x53), [FD, FS1, FS2];
    FeqPi = "feq.pi", r(0x7B, 2, 0x53), [FD, FS1, FS2];
    FltuPi = "fltu.pi", r(0x7B, 3, 0x53), [FD, FS1, FS2];
    FnotPi = "fnot.pi", r(0x7B, 2, 0x03).second(0), [FD, FS1];
    Fsat8Pi = "fsat8.pi", r(0x7B, 3, 0x03).second(0), [FD, FS1];
    Fsatu8Pi = "fsatu8.pi", r(0x7B, 3, 0x03).second(1), [FD, FS1];
    FpackrepbPi = "fpackrepb.pi", r(0x7B, 0, 0x13).second(0), [FD, FS1];
    FpackrephPi = "fpackreph.pi", r(0x7B, 1, 0x13).second(0), [FD, FS1];
    FdivPi = "fdiv.pi", r(0x7B, 0, 0x0F), [FD, FS1, FS2], Microcoded;
    FdivuPi = "fdivu.pi", r(0x7B, 1, 0x0F), [FD, FS1, FS2], Microcoded;
    FremPi = "frem.pi", r(0x7B, 2, 0x0F), [FD, FS1, FS2], Microcoded;
    FremuPi = "fremu.pi", r(0x7B, 3, 0x0F), [FD, FS1, FS2], Microcoded;
    FltmPi = "fltm.pi", r(0x7B, 0, 0x1F).to_mask(), [MD, FS1, FS2];
    FsetmPi = "fsetm.pi", r(0x7B, 4, 0x53).to_mask().second(0), [MD, FS1];
    FslliPi = "fslli.pi", r(0x7B, 1, 0x27), [FD, FS1, SHIFT5];
    FsrliPi = "fsrli.pi", r(0x7B, 5, 0x27), [FD, FS1, SHIFT5];
    FsraiPi = "fsrai.pi", r(0x7B, 7, 0x27), [FD, FS1, SHIFT5];
    FbciPi = "fbci.pi", u(0x5F), [FD, IMM20];
    FaddiPi = "faddi.pi", constant(0x3F, 0), [FD, FS1, IMM10];
    FandiPi = "fandi.pi", constant(0x3F, 1), [FD, FS1, IMM10];
    // Packed memory. Spec: ISA §3.6
    Flq2 = "flq2", i(0x07, 5), [FD, OFFSET, BASE];
    Fsq2 = "fsq2", i(0x27, 5), [FS2, OFFSET_S, BASE];
    FbcPs = "fbc.ps", i(0x0B, 0), [FD, OFFSET, BASE];
    FlwPs = "flw.ps", i(0x0B, 2), [FD, OFFSET, BASE];
    FswPs = "fsw.ps", i(0x0B, 6), [FS2, OFFSET_S, BASE];
    FlwlPs = "flwl.ps", r(0x0B, 7, 0x08).second(0), [FD, BASE];
    FlwgPs = "flwg.ps", r(0x0B, 7, 0x09).second(0), [FD, BASE];
    FswlPs = "fswl.ps", r(0x0B, 7, 0x28).second(0), [FD, BASE];
    FswgPs = "fswg.ps", r(0x0B, 7, 0x29).second(0), [FD, BASE];
    Fg32bPs = "fg32b.ps", r(0x0B, 1, 0x04), [FD, INDICES, BASE2];
    Fg32hPs = "fg32h.ps", r(0x0B, 1, 0x08), [FD, INDICES, BASE2];
    Fg32wPs = "fg32w.ps", r(0x0B, 1, 0x10), [FD, INDICES, BASE2];
    Fsc32bPs = "fsc32b.ps", r(0x0B, 1, 0x44), [FD, INDICES, BASE2];
    Fsc32hPs = "fsc32h.ps", r(0x0B, 1, 0x48), [FD, INDICES, BASE2];
    Fsc32wPs = "fsc32w.ps", r(0x0B, 1, 0x50), [FD, INDICES, BASE2];
    FgbPs = "fgb.ps", r(0x0B, 1, 0x24), [FD, FINDICES, BASE2];
    FghPs = "fgh.ps", r(0x0B, 1, 0x28), [FD, FINDICES, BASE2];
    FgwPs = "fgw.ps", r(0x0B, 1, 0x30), [FD, FINDICES, BASE2];
    FscbPs = "fscb.ps", r(0x0B, 1, 0x64), [FD, FINDICES, BASE2];
    FschPs = "fsch.ps", r(0x0B, 1, 0x68), [FD, FINDICES, BASE2];
    FscwPs = "fscw.ps", r(0x0B, 1, 0x70), [FD, FINDICES, BASE2];
    FgblPs = "fgbl.ps", r(0x0B, 7, 0x40), [FD, FINDICES, BASE2];
    FgbgPs = "fgbg.ps", r(0x0B, 7, 0x41), [FD, FINDICES, BASE2];
    FghlPs = "fghl.ps", r(0x0B, 7, 0x44), [FD, FINDICES, BASE2];
    FghgPs = "fghg.ps", r(0x0B, 7, 0x45), [FD, FINDICES, BASE2];
    FgwlPs = "fgwl.ps", r(0x0B, 7, 0x48), [FD, FINDICES, BASE2];
    FgwgPs = "fgwg.ps", r(0x0B, 7, 0x49), [FD, FINDICES, BASE2];
    FscblPs = "fscbl.ps", r(0x0B, 7, 0x60), [FD, FINDICES, BASE2];
    FscbgPs = "fscbg.ps", r(0x0B, 7, 0x61), [FD, FINDICES, BASE2];
    FschlPs = "fschl.ps", r(0x0B, 7, 0x64), [FD, FINDICES, BASE2];
    FschgPs = "fschg.ps", r(0x0B, 7, 0x65), [FD, FINDICES, BASE2];
    FscwlPs = "fscwl.ps", r(0x0B, 7, 0x68), [FD, FINDICES, BASE2];
    FscwgPs = "fscwg.ps", r(0x0B, 7, 0x69), [FD, FINDICES, BASE2];
    // Packed atomics. Spec: ISA §3.6
    FamoaddlPi = "famoaddl.pi", r(0x0B, 4, 0x03), [FD, FINDICES, BASE2];
    FamoaddgPi = "famoaddg.pi", r(0x0B, 4, 0x43), [FD, FINDICES, BASE2];
    FamoswaplPi = "famoswapl.pi", r(0x0B, 4, 0x07), [FD, FINDICES, BASE2];
    FamoswapgPi = "famoswapg.pi", r(0x0B, 4, 0x47), [FD, FINDICES, BASE2];
    FamoandlPi = "famoandl.pi", r(0x0B, 4, 0x0B), [FD, FINDICES, BASE2];
    FamoandgPi = "famoandg.pi", r(0x0B, 4, 0x4B), [FD, FINDICES, BASE2];
    FamoorlPi = "famoorl.pi", r(0x0B, 4, 0x0F), [FD, FINDICES, BASE2];
    FamoorgPi = "famoorg.pi", r(0x0B, 4, 0x4F), [FD, FINDICES, BASE2];
    FamoxorlPi = "famoxorl.pi", r(0x0B, 4, 0x13), [FD, FINDICES, BASE2];
    FamoxorgPi = "famoxorg.pi", r(0x0B, 4, 0x53), [FD, FINDICES, BASE2];
    FamominlPi = "famominl.pi", r(0x0B, 4, 0x17), [FD, FINDICES, BASE2];
    FamomingPi = "famoming.pi", r(0x0B, 4, 0x57), [FD, FINDICES, BASE2];
    FamomaxlPi = "famomaxl.pi", r(0x0B, 4, 0x1B), [FD, FINDICES, BASE2];
    FamomaxgPi = "famomaxg.pi", r(0x0B, 4, 0x5B), [FD, FINDICES, BASE2];
    FamominulPi = "famominul.pi", r(0x0B, 4, 0x1F), [FD, FINDICES, BASE2];
    FamominugPi = "famominug.pi", r(0x0B, 4, 0x5F), [FD, FINDICES, BASE2];
    FamomaxulPi = "famomaxul.pi", r(0x0B, 4, 0x23), [FD, FINDICES, BASE2];
    FamomaxugPi = "famomaxug.pi", r(0x0B, 4, 0x63), [FD, FINDICES, BASE2];
    FamominlPs = "famominl.ps", r(0x0B, 4, 0x18), [FD, FINDICES, BASE2];
    FamomingPs = "famoming.ps", r(0x0B, 4, 0x58), [FD, FINDICES, BASE2];
    FamomaxlPs = "famomaxl.ps", r(0x0B, 4, 0x14), [FD, FINDICES, BASE2];
    FamomaxgPs = "famomaxg.ps", r(0x0B, 4, 0x54), [FD, FINDICES, BASE2];
    // Graphics, switched off. Spec: ISA §3.10
    FrcpFixRast = "frcp.fix.rast", r(0x7B, 0, 0x18), [FD, FS1, FS2], Graphics;
    CubefacePs = "cubeface.ps", r(0x7B, 0, 0x44), [FD, FS1, FS2], Graphics;
    CubefaceidxPs = "cubefaceidx.ps", r(0x7B, 1, 0x44), [FD, FS1, FS2], Graphics;
    CubesgnscPs = "cubesgnsc.ps", r(0x7B, 2, 0x44), [FD, FS1, FS2], Graphics;
    CubesgntcPs = "cubesgntc.ps", r(0x7B, 3, 0x44), [FD, FS1, FS2], Graphics;
    FcvtRastPs = "fcvt.rast.ps", r(0x7B, 0, 0x60).second(2), [FD, FS1], Graphics;
    FcvtPsRast = "fcvt.ps.rast", r(0x7B, 0, 0x68).second(0x02), [FD, FS1], Graphics;
    FcvtPsF10 = "fcvt.ps.f10", r(0x7B, 0, 0x68).second(0x08), [FD, FS1], Graphics;
    FcvtPsF11 = "fcvt.ps.f11", r(0x7B, 0, 0x68).second(0x09), [FD, FS1], Graphics;
    FcvtPsUn24 = "fcvt.ps.un24", r(0x7B, 0, 0x68).second(0x10), [FD, FS1], Graphics;
    FcvtPsUn16 = "fcvt.ps.un16", r(0x7B, 0, 0x68).second(0x11), [FD, FS1], Graphics;
    FcvtPsUn10 = "fcvt.ps.un10", r(0x7B, 0, 0x68).second(0x12), [FD, FS1], Graphics;
    FcvtPsUn8 = "fcvt.ps.un8", r(0x7B, 0, 0x68).second(0x13), [FD, FS1], Graphics;
    FcvtPsUn2 = "fcvt.ps.un2", r(0x7B, 0, 0x68).second(0x17), [FD, FS1], Graphics;
    FcvtPsSn16 = "fcvt.ps.sn16", r(0x7B, 0, 0x68).second(0x19), [FD, FS1], Graphics;
    FcvtPsSn8 = "fcvt.ps.sn8", r(0x7B, 0, 0x68).second(0x1B), [FD, FS1], Graphics;
    FcvtF11Ps = "fcvt.f11.ps", r(0x7B, 0, 0x6C).second(0x08), [FD, FS1], Graphics;
    FcvtF10Ps = "fcvt.f10.ps", r(0x7B, 0, 0x6C).second(0x0B), [FD, FS1], Graphics;
    FcvtUn24Ps = "fcvt.un24.ps", r(0x7B, 0, 0x6C).second(0x10), [FD, FS1], Graphics;
    FcvtUn16Ps = "fcvt.un16.ps", r(0x7B, 0, 0x6C).second(0x11), [FD, FS1], Graphics;
    FcvtUn10Ps = "fcvt.un10.ps", r(0x7B, 0, 0x6C).second(0x12), [FD, FS1], Graphics;
    FcvtUn8Ps = "fcvt.un8.ps", r(0x7B, 0, 0x6C).second(0x13), [FD, FS1], Graphics;
    FcvtUn2Ps = "fcvt.un2.ps", r(0x7B, 0, 0x6C).second(0x17), [FD, FS1], Graphics;
    FcvtSn16Ps = "fcvt.sn16.ps", r(0x7B, 0, 0x6C).second(0x19), [FD, FS1], Graphics;
    FcvtSn8Ps = "fcvt.sn8.ps", r(0x7B, 0, 0x6C).second(0x1B), [FD, FS1], Graphics;
    // C, with the instructions they stand for. Spec: ISA §1.1
    CAddi4spn = "c.addi4spn", c(0, 0), [C_RD_LOW, SP, C_IMM_4SPN], => Addi [Of(0), Of(1), Of(2)];
    CLw = "c.lw", c(0, 2), [C_RD_LOW, C_OFFSET_W, C_BASE], => Lw [Of(0), Of(1), Of(2)];
    CLd = "c.ld", c(0, 3), [C_RD_LOW, C_OFFSET_D, C_BASE], => Ld [Of(0), Of(1), Of(2)];
    CSw = "c.sw", c(0, 6), [C_RS2_LOW, C_OFFSET_W, C_BASE], => Sw [Of(0), Of(1), Of(2)];
    CSd = "c.sd", c(0, 7), [C_RS2_LOW, C_OFFSET_D, C_BASE], => Sd [Of(0), Of(1), Of(2)];
    CAddi = "c.addi", c(1, 0), [C_RD, C_IMM], => Addi [Of(0), Of(0), Of(1)];
    CAddiw = "c.addiw", c(1, 1), [C_RD_NONZERO, C_IMM], => Addiw [Of(0), Of(0), Of(1)];
    CLi = "c.li", c(1, 2), [C_RD, C_IMM], => Addi [Of(0), Always(0), Of(1)];
    CAddi16sp = "c.addi16sp", c(1, 3).bits(0x0F80, 0x0100), [SP, C_IMM_16SP], => Addi [Of(0), Of(0), Of(1)];
    CLui = "c.lui", c(1, 3), [C_RD, C_UPPER], => Lui [Of(0), Of(1)];
    CSrli = "c.srli", c(1, 4).bits(0x0C00, 0x0000), [C_RD_HIGH, C_SHIFT], => Srli [Of(0), Of(0), Of(1)];
    CSrai = "c.srai", c(1, 4).bits(0x0C00, 0x0400), [C_RD_HIGH, C_SHIFT], => Srai [Of(0), Of(0), Of(1)];
    CAndi = "c.andi", c(1, 4).bits(0x0C00, 0x0800), [C_RD_HIGH, C_IMM], => Andi [Of(0), Of(0), Of(1)];
    CSub = "c.sub", c(1, 4).bits(0x1C60, 0x0C00), [C_RD_HIGH, C_RS2_LOW], => Sub [Of(0), Of(0), Of(1)];
    CXor = "c.xor", c(1, 4).bits(0x1C60, 0x0C20), [C_RD_HIGH, C_RS2_LOW], => Xor [Of(0), Of(0), Of(1)];
    COr = "c.or", c(1, 4).bits(0x1C60, 0x0C40), [C_RD_HIGH, C_RS2_LOW], => Or [Of(0), Of(0), Of(1)];
    CAnd = "c.and", c(1, 4).bits(0x1C60, 0x0C60), [C_RD_HIGH, C_RS2_LOW], => And [Of(0), Of(0), Of(1)];
    CSubw = "c.subw", c(1, 4).bits(0x1C60, 0x1C00), [C_RD_HIGH, C_RS2_LOW], => Subw [Of(0), Of(0), Of(1)];
    CAddw = "c.addw", c(1, 4).bits(0x1C60, 0x1C20), [C_RD_HIGH, C_RS2_LOW], => Addw [Of(0), Of(0), Of(1)];
    CJ = "c.j", c(1, 5), [C_TARGET_J], => Jal [Always(0), Of(0)];
    CBeqz = "c.beqz", c(1, 6), [C_RD_HIGH, C_TARGET_B], => Beq [Of(0), Always(0), Of(1)];
    CBnez = "c.bnez", c(1, 7), [C_RD_HIGH, C_TARGET_B], => Bne [Of(0), Always(0), Of(1)];
    CSlli = "c.slli", c(2, 0), [C_RD, C_SHIFT], => Slli [Of(0), Of(0), Of(1)];
    CLwsp = "c.lwsp", c(2, 2), [C_RD_NONZERO, C_OFFSET_LWSP, SP_BASE], => Lw [Of(0), Of(1), Of(2)];
    CLdsp = "c.ldsp", c(2, 3), [C_RD_NONZERO, C_OFFSET_LDSP, SP_BASE], => Ld [Of(0), Of(1), Of(2)];
    CJr = "c.jr", c(2, 4).bits(0x107C, 0x0000), [C_RS1_NONZERO], => Jalr [Always(0), Always(0), Of(0)];
    CMv = "c.mv", c(2, 4).bits(0x1000, 0x0000), [C_RD, C_RS2_NONZERO], => Add [Of(0), Always(0), Of(1)];
    CEbreak = "c.ebreak", c(2, 4).bits(0x1FFC, 0x1000), [], => Ebreak [];
    CJalr = "c.jalr", c(2, 4).bits(0x107C, 0x1000), [C_RS1_NONZERO], => Jalr [Always(1), Always(0), Of(0)];
    CAdd = "c.add", c(2, 4).bits(0x1000, 0x1000), [C_RD, C_RS2_NONZERO], => Add [Of(0), Of(0), Of(1)];
    CSwsp = "c.swsp", c(2, 6), [C_RS2, C_OFFSET_SWSP, SP_BASE], => Sw [Of(0), Of(1), Of(2)];
    CSdsp = "c.sdsp", c(2, 7), [C_RS2, C_OFFSET_SDSP, SP_BASE], => Sd [Of(0), Of(1), Of(2)];
}
