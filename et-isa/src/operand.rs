//! Operands: which bits of an instruction they are, and which values they may have.

use crate::csr;
use crate::names;

/// Bits of an instruction that are bits of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Lowest bit in the instruction.
    at: u32,
    /// How many.
    bits: u32,
    /// Lowest bit in the value.
    to: u32,
}

impl Part {
    /// Returns the lowest bit in the instruction.
    #[must_use]
    pub const fn at(&self) -> u32 {
        self.at
    }

    /// Returns the lowest bit in the value.
    #[must_use]
    pub const fn to(&self) -> u32 {
        self.to
    }

    /// Returns as many ones as it has bits.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }
}

/// What the value of an operand stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// One of x0 to x31.
    Integer,
    /// One of x8 to x15, which is what most 16-bit instructions can name.
    IntegerNear,
    /// x2, always.
    StackPointer,
    /// One of f0 to f31.
    Float,
    /// One of m0 to m7.
    Mask,
    /// A signed number.
    Signed,
    /// An unsigned number.
    Unsigned,
    /// An unsigned number that is a pattern of bits.
    Bits,
    /// The upper 20 bits of a word, as a signed number; written in hexadecimal without a sign.
    Upper,
    /// The distance of a jump in bytes.
    Target,
    /// The number of a control and status register.
    Csr,
    /// A rounding mode.
    Rounding,
    /// A set of the accesses that a fence orders.
    Accesses,
}

/// How an operand is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// By itself, between commas.
    Plain,
    /// Before the base in parentheses: an offset, or a register of indices.
    BeforeBase,
    /// In parentheses.
    Base,
}

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    name: &'static str,
    class: Class,
    parts: &'static [Part],
    pub(crate) place: Place,
    /// Zero is reserved.
    nonzero: bool,
}

/// Why a value cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// Outside of the range, whose ends are given.
    Range {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Not a multiple of this.
    Multiple(i64),
    /// A value that is reserved.
    Reserved,
}

impl core::fmt::Display for ValueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Range { min, max } => write!(f, "is not in {min}..={max}"),
            Self::Multiple(of) => write!(f, "is not a multiple of {of}"),
            Self::Reserved => f.write_str("is reserved"),
        }
    }
}

impl Operand {
    /// Returns its name in the manual.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what its value stands for.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Returns which bits of the instruction are which bits of the value.
    #[must_use]
    pub const fn parts(&self) -> &'static [Part] {
        self.parts
    }

    /// Returns `true` if it may be left out, which means [`default`](Self::default_value).
    #[must_use]
    pub const fn is_optional(&self) -> bool {
        self.default_value().is_some()
    }

    /// Returns the value that it has when it is left out; `None` if it must be written.
    #[must_use]
    pub const fn default_value(&self) -> Option<i64> {
        match (self.class, self.place) {
            (Class::Rounding, _) => Some(names::DYNAMIC as i64),
            (Class::Accesses, _) => Some(15),
            (Class::Signed | Class::Unsigned, Place::BeforeBase) => Some(0),
            _ => None,
        }
    }

    /// Returns the bits of an instruction that hold this operand.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        let mut mask = 0;
        let mut index = 0;
        while index < self.parts.len() {
            let part = self.parts[index];
            mask |= part.mask() << part.at;
            index += 1;
        }
        mask
    }

    /// Number of bits of the value, those included that are always 0.
    const fn bits(&self) -> u32 {
        let mut bits = 0;
        let mut index = 0;
        while index < self.parts.len() {
            let end = self.parts[index].to + self.parts[index].bits;
            bits = if end > bits { end } else { bits };
            index += 1;
        }
        bits
    }

    /// Number of low bits that are always 0.
    const fn low_zeros(&self) -> u32 {
        let mut low = if self.parts.is_empty() { 0 } else { 32 };
        let mut index = 0;
        while index < self.parts.len() {
            let to = self.parts[index].to;
            low = if to < low { to } else { low };
            index += 1;
        }
        low
    }

    const fn is_signed(&self) -> bool {
        matches!(self.class, Class::Signed | Class::Upper | Class::Target)
    }

    /// Takes the value out of an instruction.
    #[inline(always)]
    #[must_use]
    pub const fn value(&self, word: u32) -> i32 {
        let mut value = 0;
        let mut index = 0;
        while index < self.parts.len() {
            let part = self.parts[index];
            value |= (word >> part.at & part.mask()) << part.to;
            index += 1;
        }
        if self.is_signed() {
            let unused = 32 - self.bits();
            return (value << unused).cast_signed() >> unused;
        }
        match self.class {
            Class::IntegerNear => value.cast_signed() + 8,
            Class::StackPointer => 2,
            _ => value.cast_signed(),
        }
    }

    /// Returns the smallest and the largest value.
    #[must_use]
    pub const fn range(&self) -> (i64, i64) {
        let count = 1_i64 << self.bits();
        match self.class {
            Class::StackPointer => (2, 2),
            Class::IntegerNear => (8, 15),
            _ if self.is_signed() => (-count / 2, count / 2 - (1 << self.low_zeros())),
            _ => (0, count - (1 << self.low_zeros())),
        }
    }

    /// Returns `true` if the device takes the value that an instruction has here.
    #[must_use]
    pub(crate) fn is_legal(&self, word: u32) -> bool {
        let value = self.value(word).into();
        !(self.nonzero && value == 0)
            && (self.class != Class::Rounding || names::rounding(value).is_some())
    }

    /// Returns the bits of an instruction for a value.
    ///
    /// # Errors
    /// A [`ValueError`] if there are none.
    pub fn encode(&self, value: i64) -> Result<u32, ValueError> {
        let (min, max) = self.range();
        // What is written without a sign is the same bits.
        let folds = self.class == Class::Upper && (0x8_0000..=0xF_FFFF).contains(&value);
        let value = if folds { value - 0x10_0000 } else { value };
        if value < min || value > max {
            return Err(ValueError::Range { min, max });
        }
        let step = 1 << self.low_zeros();
        if value % step != 0 {
            return Err(ValueError::Multiple(step));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in range, and the bits are those of two's complement"
        )]
        let bits = value as u32;
        let mut word = 0;
        for part in self.parts {
            word |= (bits >> part.to & part.mask()) << part.at;
        }
        if self.is_legal(word) { Ok(word) } else { Err(ValueError::Reserved) }
    }

    /// Reads a value as an assembler does: the name of a register, rounding mode, or a number.
    ///
    /// `None` if it is nothing of the kind, such as an expression.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<i64> {
        match self.class {
            Class::Integer | Class::IntegerNear | Class::StackPointer => names::integer(text),
            Class::Float => names::float(text),
            Class::Mask => names::mask(text),
            Class::Rounding => names::rounding_mode(text),
            Class::Accesses => names::accesses(text),
            Class::Csr => csr::by_name(text).map(|csr| csr.number.into()).or_else(|| number(text)),
            Class::Target => distance(text),
            Class::Signed | Class::Unsigned | Class::Bits | Class::Upper => number(text),
        }
    }
}

/// Reads a number as C writes it, with a sign if there is one.
#[must_use]
pub fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // The conversion would take a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?.cast_signed();
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Reads a distance from the instruction: `.`, `.+8` or `.-8`.
fn distance(text: &str) -> Option<i64> {
    let rest = text.strip_prefix('.')?.trim_start();
    let value = |rest: &str| number(rest.trim_start()).filter(|&value| value >= 0);
    match rest.as_bytes() {
        [] => Some(0),
        [b'+', ..] => value(&rest[1..]),
        [b'-', ..] => value(&rest[1..]).map(|value| -value),
        _ => None,
    }
}

const fn part(at: u32, bits: u32, to: u32) -> Part {
    Part { at, bits, to }
}

const fn plain(name: &'static str, class: Class, parts: &'static [Part]) -> Operand {
    Operand { name, class, parts, place: Place::Plain, nonzero: false }
}

impl Operand {
    const fn place(self, place: Place) -> Self {
        Self { place, ..self }
    }

    const fn nonzero(self) -> Self {
        Self { nonzero: true, ..self }
    }
}

const FIELD_D: &[Part] = &[part(7, 5, 0)];
const FIELD_S: &[Part] = &[part(15, 5, 0)];
const FIELD_T: &[Part] = &[part(20, 5, 0)];

/// Integer destination.
pub const RD: Operand = plain("rd", Class::Integer, FIELD_D);
/// First integer source.
pub const RS1: Operand = plain("rs1", Class::Integer, FIELD_S);
/// Second integer source.
pub const RS2: Operand = plain("rs2", Class::Integer, FIELD_T);
/// Address, in parentheses, in the first source field.
pub const BASE: Operand = RS1.place(Place::Base);
/// Address, in parentheses, in the second source field.
pub const BASE2: Operand = RS2.place(Place::Base);
/// Packed indices in an integer register.
pub const INDICES: Operand = RS1.place(Place::BeforeBase);
/// Float destination, or the source in its place.
pub const FD: Operand = plain("fd", Class::Float, FIELD_D);
/// First float source.
pub const FS1: Operand = plain("fs1", Class::Float, FIELD_S);
/// Second float source.
pub const FS2: Operand = plain("fs2", Class::Float, FIELD_T);
/// Third float source.
pub const FS3: Operand = plain("fs3", Class::Float, &[part(27, 5, 0)]);
/// An index per lane.
pub const FINDICES: Operand = FS1.place(Place::BeforeBase);
/// Mask destination.
pub const MD: Operand = plain("md", Class::Mask, &[part(7, 3, 0)]);
/// First mask source.
pub const MS1: Operand = plain("ms1", Class::Mask, &[part(15, 3, 0)]);
/// Second mask source.
pub const MS2: Operand = plain("ms2", Class::Mask, &[part(20, 3, 0)]);
/// Rounding mode.
pub const RM: Operand = plain("rm", Class::Rounding, &[part(12, 3, 0)]);

/// 12-bit signed immediate.
pub const IMM12: Operand = plain("imm", Class::Signed, &[part(20, 12, 0)]);
/// 12-bit signed offset of loads and of `jalr`.
pub const OFFSET: Operand =
    plain("offset", Class::Signed, &[part(20, 12, 0)]).place(Place::BeforeBase);
/// 12-bit signed offset of stores.
pub const OFFSET_S: Operand =
    plain("offset", Class::Signed, &[part(25, 7, 5), part(7, 5, 0)]).place(Place::BeforeBase);
/// Distance of a branch.
pub const TARGET_B: Operand = plain(
    "target",
    Class::Target,
    &[part(31, 1, 12), part(7, 1, 11), part(25, 6, 5), part(8, 4, 1)],
);
/// Distance of a jump.
pub const TARGET_J: Operand = plain(
    "target",
    Class::Target,
    &[part(31, 1, 20), part(12, 8, 12), part(20, 1, 11), part(21, 10, 1)],
);
/// Upper 20 bits.
pub const IMM20: Operand = plain("imm", Class::Upper, &[part(12, 20, 0)]);
/// Shift of 64 bits.
pub const SHIFT6: Operand = plain("shamt", Class::Unsigned, &[part(20, 6, 0)]);
/// Shift of 32 bits.
pub const SHIFT5: Operand = plain("shamt", Class::Unsigned, &[part(20, 5, 0)]);
/// Control and status register.
pub const CSR: Operand = plain("csr", Class::Csr, &[part(20, 12, 0)]);
/// Constant source of CSR instructions.
pub const UIMM5: Operand = plain("uimm", Class::Unsigned, FIELD_S);
/// Earlier accesses of a fence.
pub const PREDECESSORS: Operand = plain("pred", Class::Accesses, &[part(24, 4, 0)]);
/// Later accesses of a fence.
pub const SUCCESSORS: Operand = plain("succ", Class::Accesses, &[part(20, 4, 0)]);
/// 10-bit signed constant of `faddi.pi` and `fandi.pi`.
pub const IMM10: Operand = plain("imm", Class::Signed, &[part(27, 5, 5), part(20, 5, 0)]);
/// Bits of `mov.m.x`, and the selector of `fswizz.ps`.
pub const IMM8: Operand = plain("imm", Class::Bits, &[part(20, 5, 3), part(12, 3, 0)]);
/// A lane of a packed register.
pub const LANE: Operand = plain("lane", Class::Unsigned, &[part(20, 3, 0)]);
/// Selector of `maskpopc.rast`.
pub const IMM4: Operand = plain("imm", Class::Bits, &[part(23, 2, 2), part(18, 2, 0)]);

/// x2 of 16-bit instructions.
pub const SP: Operand = plain("sp", Class::StackPointer, &[]);
/// x2 as the base of 16-bit instructions.
pub const SP_BASE: Operand = SP.place(Place::Base);
/// Destination of 16-bit instructions, often a source as well.
pub const C_RD: Operand = RD;
/// The same, where x0 is reserved.
pub const C_RD_NONZERO: Operand = RD.nonzero();
/// Source of 16-bit jumps.
pub const C_RS1_NONZERO: Operand = plain("rs1", Class::Integer, FIELD_D).nonzero();
/// Second source of 16-bit instructions.
pub const C_RS2: Operand = plain("rs2", Class::Integer, &[part(2, 5, 0)]);
/// The same, where x0 is reserved.
pub const C_RS2_NONZERO: Operand = C_RS2.nonzero();
/// x8 to x15 in the upper field.
pub const C_RD_HIGH: Operand = plain("rd", Class::IntegerNear, &[part(7, 3, 0)]);
/// x8 to x15 in the upper field, as an address.
pub const C_BASE: Operand = plain("rs1", Class::IntegerNear, &[part(7, 3, 0)]).place(Place::Base);
/// x8 to x15 in the lower field.
pub const C_RD_LOW: Operand = plain("rd", Class::IntegerNear, &[part(2, 3, 0)]);
/// x8 to x15 in the lower field.
pub const C_RS2_LOW: Operand = plain("rs2", Class::IntegerNear, &[part(2, 3, 0)]);
/// 6-bit signed immediate.
pub const C_IMM: Operand = plain("imm", Class::Signed, &[part(12, 1, 5), part(2, 5, 0)]);
/// Upper bits of `c.lui`.
pub const C_UPPER: Operand = plain("imm", Class::Upper, &[part(12, 1, 5), part(2, 5, 0)]).nonzero();
/// Shift of 64 bits.
pub const C_SHIFT: Operand = plain("shamt", Class::Unsigned, &[part(12, 1, 5), part(2, 5, 0)]);
/// Immediate of `c.addi4spn`.
pub const C_IMM_4SPN: Operand =
    plain("imm", Class::Unsigned, &[part(11, 2, 4), part(7, 4, 6), part(6, 1, 2), part(5, 1, 3)])
        .nonzero();
/// Immediate of `c.addi16sp`.
pub const C_IMM_16SP: Operand = plain(
    "imm",
    Class::Signed,
    &[part(12, 1, 9), part(6, 1, 4), part(5, 1, 6), part(3, 2, 7), part(2, 1, 5)],
)
.nonzero();
/// Offset of words.
pub const C_OFFSET_W: Operand =
    plain("offset", Class::Unsigned, &[part(10, 3, 3), part(6, 1, 2), part(5, 1, 6)])
        .place(Place::BeforeBase);
/// Offset of double words.
pub const C_OFFSET_D: Operand =
    plain("offset", Class::Unsigned, &[part(10, 3, 3), part(5, 2, 6)]).place(Place::BeforeBase);
/// Offset of word loads from the stack.
pub const C_OFFSET_LWSP: Operand =
    plain("offset", Class::Unsigned, &[part(12, 1, 5), part(4, 3, 2), part(2, 2, 6)])
        .place(Place::BeforeBase);
/// Offset of double-word loads from the stack.
pub const C_OFFSET_LDSP: Operand =
    plain("offset", Class::Unsigned, &[part(12, 1, 5), part(5, 2, 3), part(2, 3, 6)])
        .place(Place::BeforeBase);
/// Offset of word stores to the stack.
pub const C_OFFSET_SWSP: Operand =
    plain("offset", Class::Unsigned, &[part(9, 4, 2), part(7, 2, 6)]).place(Place::BeforeBase);
/// Offset of double-word stores to the stack.
pub const C_OFFSET_SDSP: Operand =
    plain("offset", Class::Unsigned, &[part(10, 3, 3), part(7, 3, 6)]).place(Place::BeforeBase);
/// Distance of a 16-bit branch.
pub const C_TARGET_B: Operand = plain(
    "target",
    Class::Target,
    &[part(12, 1, 8), part(10, 2, 3), part(5, 2, 6), part(3, 2, 1), part(2, 1, 5)],
);
/// Distance of a 16-bit jump.
pub const C_TARGET_J: Operand = plain(
    "target",
    Class::Target,
    &[
        part(12, 1, 11),
        part(11, 1, 4),
        part(9, 2, 8),
        part(8, 1, 10),
        part(7, 1, 6),
        part(6, 1, 7),
        part(3, 3, 1),
        part(2, 1, 5),
    ],
);
