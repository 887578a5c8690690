//! The form in which instructions are executed: one 64-bit word each, read with a single atomic
//! load so that it can be replaced while harts run.
//!
//! | Bits | Field |
//! |---|---|
//! | 7:0 | kind, see [`kind`] |
//! | 13:8 | destination register; writes to x0 go to [`SINK`] |
//! | 15:14 | length in halfwords |
//! | 21:16 | first source register |
//! | 29:24 | second source register |
//! | 63:32 | immediate: value, distance in halfwords, details, or the instruction itself |
//!
//! Packed instructions are kept whole; their number is where the source registers would be.

use et_isa::Id;

use crate::config::MemoryModel;
use crate::float::wide;

/// Where integer results for x0 go, so that x0 stays 0 without a test per instruction.
pub(crate) const SINK: u32 = 32;
/// Size of a hart's integer register array: any 6-bit register field is a valid index.
pub(crate) const REGISTERS: usize = 64;

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op(pub(crate) u64);

impl Op {
    /// Not decoded yet.
    pub(crate) const UNDECODED: Self = Self(0);
    /// To be counted before it is executed; what is executed, the page has elsewhere.
    pub(crate) const COUNTED: Self = Self(kind::COUNTED as u64);

    pub(crate) fn new(kind: u8, rd: u32, rs1: u32, rs2: u32, imm: i32) -> Self {
        Self(
            u64::from(kind)
                | u64::from(rd & 63) << 8
                | u64::from(rs1 & 63) << 16
                | u64::from(rs2 & 63) << 24
                | u64::from(imm.cast_unsigned()) << 32,
        )
    }

    /// A packed instruction: its number and itself.
    pub(crate) fn packed(id: Id, rd: u32, raw: u32) -> Self {
        let number = id as u32;
        // Rounding to nearest, or what the register says, is the common case.
        let is_usual = matches!(raw >> 12 & 7, 0 | 7);
        let kind = match id {
            Id::MovMX => kind::MOV_M_X,
            Id::MovaXM => kind::MOVA_X_M,
            Id::MovaMX => kind::MOVA_M_X,
            // The following have handlers that need the features.
            _ if !wide::is_available() => kind::PACKED,
            Id::FmaddPs if is_usual => kind::PACKED_FUSED,
            Id::FmsubPs | Id::FnmsubPs | Id::FnmaddPs if is_usual => kind::PACKED_FUSED_SIGNED,
            Id::FaddPs if is_usual => kind::PACKED_SUM,
            Id::FsubPs if is_usual => kind::PACKED_DIFFERENCE,
            Id::FmulPs if is_usual => kind::PACKED_PRODUCT,
            Id::FlwPs => kind::PACKED_LOAD,
            Id::FswPs => kind::PACKED_STORE,
            Id::FbcPs => kind::PACKED_BROADCAST,
            Id::FgbPs => kind::PACKED_GATHER,
            Id::FghPs => kind::PACKED_GATHER_HALVES,
            Id::Fg32bPs => kind::PACKED_GATHER_BLOCK,
            Id::FcvtPsPw => kind::PACKED_FROM_INTEGERS,
            Id::FcvtPsF16 => kind::PACKED_FROM_HALVES,
            Id::FswizzPs => kind::PACKED_SWIZZLE,
            Id::FbcxPs => kind::PACKED_SPREAD,
            Id::FbciPs => kind::PACKED_SHORT_FLOAT,
            Id::FbciPi => kind::PACKED_SHORT_INTEGER,
            Id::FandiPi => kind::PACKED_MASK,
            Id::FsrliPi => kind::PACKED_SHIFT,
            _ => kind::PACKED,
        };
        Self::new(kind, rd, number & 63, number >> 6, raw.cast_signed())
    }

    /// Number of a packed instruction.
    #[inline(always)]
    pub(crate) fn packed_number(self) -> usize {
        self.rs1() | self.rs2() << 6
    }

    /// Which instruction this is, if its immediate has such details.
    #[inline(always)]
    pub(crate) fn id(self) -> Option<Id> {
        Id::from_number((self.raw() & 0xFFF) as usize)
    }

    /// Rounding mode, if the immediate has such details.
    pub(crate) fn rounding(self) -> u32 {
        self.raw() >> 12 & 7
    }

    /// Third source register, if the immediate has such details.
    pub(crate) fn rs3(self) -> usize {
        (self.raw() >> 16 & 31) as usize
    }

    /// The same operation with another destination.
    pub(crate) fn with_rd(self, rd: u32) -> Self {
        Self(self.0 & !(63 << 8) | u64::from(rd & 63) << 8)
    }

    /// The same operation as an instruction of 32 bits.
    pub(crate) fn long(self) -> Self {
        Self(self.0 & !(3 << 14) | 2 << 14)
    }

    /// The same operation as an instruction of 16 bits.
    pub(crate) fn short(self) -> Self {
        Self(self.0 & !(3 << 14 | 0xFF) | 1 << 14 | u64::from(short(self.kind())))
    }

    /// The same operation on memory of a model.
    pub(crate) fn under(self, memory: MemoryModel) -> Self {
        match memory {
            MemoryModel::Flat => self,
            MemoryModel::Weak { .. } => self.with_kind(weak(self.kind())),
            MemoryModel::Private => self.with_kind(private(self.kind())),
        }
    }

    /// The same operands of an operation of another kind.
    pub(crate) fn with_kind(self, kind: u8) -> Self {
        Self(self.0 & !0xFF | u64::from(kind))
    }

    /// Returns `true` if the instruction is one on floating-point or mask registers. A straddling
    /// one may be.
    pub(crate) fn uses_floats(self) -> bool {
        matches!(
            self.kind(),
            kind::FLW
                ..=kind::PACKED
                    | kind::WEAK_FLW
                    | kind::WEAK_FSW
                    | kind::PRIVATE_FLW
                    | kind::PRIVATE_FSW
                    | kind::PRIVATE_PACKED_LOAD..=kind::PRIVATE_PACKED_GATHER_BLOCK
                    | kind::STRADDLE
        )
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the kind is the low byte")]
    pub(crate) fn kind(self) -> u8 {
        self.0 as u8
    }

    #[inline(always)]
    pub(crate) fn rd(self) -> usize {
        (self.0 >> 8 & 63) as usize
    }

    #[inline(always)]
    pub(crate) fn halfwords(self) -> usize {
        (self.0 >> 14 & 3) as usize
    }

    #[inline(always)]
    pub(crate) fn rs1(self) -> usize {
        (self.0 >> 16 & 63) as usize
    }

    #[inline(always)]
    pub(crate) fn rs2(self) -> usize {
        (self.0 >> 24 & 63) as usize
    }

    /// The immediate, sign-extended.
    #[inline(always)]
    pub(crate) fn imm(self) -> u64 {
        (self.0.cast_signed() >> 32).cast_unsigned()
    }

    /// The immediate as bits.
    #[inline(always)]
    pub(crate) fn raw(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Numbers the kinds and names them.
macro_rules! kinds {
    ($($name:ident)*) => {
        /// What an [`Op`] does.
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "only used to number")]
        #[repr(u8)]
        enum Number { $($name),* }

        /// Kinds of [`Op`]s.
        pub(crate) mod kind {
            $(pub(crate) const $name: u8 = super::Number::$name as u8;)*
        }
    };
}

kinds! {
    UNDECODED ILLEGAL STRADDLE MICROCODED
    LUI AUIPC JAL JALR
    BEQ BNE BLT BGE BLTU BGEU
    LB LH LW LD LBU LHU LWU
    SB SH SW SD
    ADDI SLTI SLTIU XORI ORI ANDI SLLI SRLI SRAI
    ADDIW SLLIW SRLIW SRAIW
    ADD SUB SLL SLT SLTU XOR SRL SRA OR AND
    ADDW SUBW SLLW SRLW SRAW
    MUL MULH MULHSU MULHU DIV DIVU REM REMU
    MULW DIVW DIVUW REMW REMUW
    FENCE PAUSE ECALL EBREAK CSR ATOMIC SMALL_STORE PACKB
    FLW FSW
    FADD FSUB FMUL FMADD FMSUB FNMSUB FNMADD WIDE_FMADD WIDE_FMSUB WIDE_FNMSUB WIDE_FNMADD
    FSGNJ FSGNJN FSGNJX FMV_X_W FMV_W_X FMIN FMAX FEQ FLT FLE
    FLOAT PACKED_FUSED PACKED_FUSED_SIGNED PACKED_SUM PACKED_DIFFERENCE PACKED_PRODUCT PACKED_LOAD PACKED_STORE PACKED_BROADCAST
    PACKED_GATHER PACKED_GATHER_HALVES PACKED_GATHER_BLOCK PACKED_FROM_INTEGERS PACKED_FROM_HALVES PACKED_SWIZZLE
    PACKED_SPREAD PACKED_SHORT_FLOAT PACKED_SHORT_INTEGER PACKED_MASK PACKED_SHIFT
    MOV_M_X MOVA_X_M MOVA_M_X PACKED
    C_LUI C_BEQ C_BNE C_LW C_LD C_SW C_SD C_ADDI C_ANDI C_SLLI
    C_SRLI C_SRAI C_ADDIW C_ADD C_SUB C_XOR C_OR C_AND C_ADDW C_SUBW
    WEAK_LB WEAK_LH WEAK_LW WEAK_LD WEAK_LBU WEAK_LHU WEAK_LWU WEAK_FLW
    WEAK_SB WEAK_SH WEAK_SW WEAK_SD WEAK_FSW WEAK_FENCE
    C_WEAK_LW C_WEAK_LD C_WEAK_SW C_WEAK_SD
    PRIVATE_LB PRIVATE_LH PRIVATE_LW PRIVATE_LD PRIVATE_LBU PRIVATE_LHU PRIVATE_LWU PRIVATE_FLW
    PRIVATE_SB PRIVATE_SH PRIVATE_SW PRIVATE_SD PRIVATE_FSW
    C_PRIVATE_LW C_PRIVATE_LD C_PRIVATE_SW C_PRIVATE_SD
    PRIVATE_PACKED_LOAD PRIVATE_PACKED_STORE PRIVATE_PACKED_BROADCAST
    PRIVATE_PACKED_GATHER PRIVATE_PACKED_GATHER_HALVES PRIVATE_PACKED_GATHER_BLOCK
    COUNTED
}

/// Returns the kind that does the same as `kind` and is one halfword long.
///
/// Where the next instruction lies must not depend on a field of this one: the processor would
/// have to load each operation before it could start to load the next. So the frequent short
/// operations have kinds of their own, and the length is known by the jump to the code for a kind,
/// which the processor predicts.
pub(crate) fn short(kind: u8) -> u8 {
    match kind {
        kind::LUI => kind::C_LUI,
        kind::BEQ => kind::C_BEQ,
        kind::BNE => kind::C_BNE,
        kind::LW => kind::C_LW,
        kind::LD => kind::C_LD,
        kind::SW => kind::C_SW,
        kind::SD => kind::C_SD,
        kind::ADDI => kind::C_ADDI,
        kind::ANDI => kind::C_ANDI,
        kind::SLLI => kind::C_SLLI,
        kind::SRLI => kind::C_SRLI,
        kind::SRAI => kind::C_SRAI,
        kind::ADDIW => kind::C_ADDIW,
        kind::ADD => kind::C_ADD,
        kind::SUB => kind::C_SUB,
        kind::XOR => kind::C_XOR,
        kind::OR => kind::C_OR,
        kind::AND => kind::C_AND,
        kind::ADDW => kind::C_ADDW,
        kind::SUBW => kind::C_SUBW,
        // These look at the length field.
        _ => kind,
    }
}

/// Returns the kind that does the same as `kind` with the fused operations of the processor, if it
/// has them.
pub(crate) fn fused(kind: u8) -> u8 {
    match kind {
        _ if !wide::is_available() => kind,
        kind::FMADD => kind::WIDE_FMADD,
        kind::FMSUB => kind::WIDE_FMSUB,
        kind::FNMSUB => kind::WIDE_FNMSUB,
        kind::FNMADD => kind::WIDE_FNMADD,
        _ => kind,
    }
}

/// Returns the kind that does the same as `kind` on weak memory.
///
/// The model is a matter of decoding, so that the operations on flat memory need not look for it.
/// Kinds that leave their work to a function have it look there.
fn weak(kind: u8) -> u8 {
    match kind {
        kind::LB => kind::WEAK_LB,
        kind::LH => kind::WEAK_LH,
        kind::LW => kind::WEAK_LW,
        kind::LD => kind::WEAK_LD,
        kind::LBU => kind::WEAK_LBU,
        kind::LHU => kind::WEAK_LHU,
        kind::LWU => kind::WEAK_LWU,
        kind::FLW => kind::WEAK_FLW,
        kind::SB => kind::WEAK_SB,
        kind::SH => kind::WEAK_SH,
        kind::SW => kind::WEAK_SW,
        kind::SD => kind::WEAK_SD,
        kind::FSW => kind::WEAK_FSW,
        kind::FENCE => kind::WEAK_FENCE,
        kind::C_LW => kind::C_WEAK_LW,
        kind::C_LD => kind::C_WEAK_LD,
        kind::C_SW => kind::C_WEAK_SW,
        kind::C_SD => kind::C_WEAK_SD,
        kind::PACKED_LOAD
        | kind::PACKED_STORE
        | kind::PACKED_BROADCAST
        | kind::PACKED_GATHER
        | kind::PACKED_GATHER_HALVES
        | kind::PACKED_GATHER_BLOCK => kind::PACKED,
        _ => kind,
    }
}

/// Returns the kind that does the same as `kind` with private caches.
fn private(kind: u8) -> u8 {
    match kind {
        kind::LB => kind::PRIVATE_LB,
        kind::LH => kind::PRIVATE_LH,
        kind::LW => kind::PRIVATE_LW,
        kind::LD => kind::PRIVATE_LD,
        kind::LBU => kind::PRIVATE_LBU,
        kind::LHU => kind::PRIVATE_LHU,
        kind::LWU => kind::PRIVATE_LWU,
        kind::FLW => kind::PRIVATE_FLW,
        kind::SB => kind::PRIVATE_SB,
        kind::SH => kind::PRIVATE_SH,
        kind::SW => kind::PRIVATE_SW,
        kind::SD => kind::PRIVATE_SD,
        kind::FSW => kind::PRIVATE_FSW,
        kind::C_LW => kind::C_PRIVATE_LW,
        kind::C_LD => kind::C_PRIVATE_LD,
        kind::C_SW => kind::C_PRIVATE_SW,
        kind::C_SD => kind::C_PRIVATE_SD,
        kind::PACKED_LOAD => kind::PRIVATE_PACKED_LOAD,
        kind::PACKED_STORE => kind::PRIVATE_PACKED_STORE,
        kind::PACKED_BROADCAST => kind::PRIVATE_PACKED_BROADCAST,
        kind::PACKED_GATHER => kind::PRIVATE_PACKED_GATHER,
        kind::PACKED_GATHER_HALVES => kind::PRIVATE_PACKED_GATHER_HALVES,
        kind::PACKED_GATHER_BLOCK => kind::PRIVATE_PACKED_GATHER_BLOCK,
        _ => kind,
    }
}
