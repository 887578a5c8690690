//! Code of floating-point and packed instructions.

use et_isa::{Id, operand};

use super::emit::{Alu, Cond, Lanes, RAX, RCX, RDX, Rm, VectorShift, Vex, Width};
use super::page::{Needs, Translator};
use super::registers::float;
use super::thunks::of_hart;
use crate::decode::op::{Op, kind};
use crate::decode::{funct3, rd, rs1, rs2};
use crate::exec::packed::short_float;
use crate::float::soft::{INFINITY, SIGN};

/// The offset of a constant of vector instructions.
macro_rules! constant {
    ($name:ident) => {
        $crate::native::thunks::distance(std::mem::offset_of!(
            $crate::native::context::Constants,
            $name
        ))
    };
}
pub(super) use constant;

/// Comparison: one of the operands is NaN. No flag is raised for quiet ones.
const UNORDERED: u8 = 3;
/// Twice a magnitude, less one, is below this for subnormal numbers.
const SUBNORMAL: i32 = 0x00FF_FFFF;

/// The operation on lanes of packed instructions without a kind of their own.
fn lanes_of(op: Op) -> Option<Vex> {
    Some(match Id::from_number(op.packed_number())? {
        Id::FaddPi => Vex::ADD_INTEGERS,
        Id::FsubPi => Vex::SUB_INTEGERS,
        Id::FmulPi => Vex::MUL_INTEGERS,
        Id::FandPi => Vex::AND,
        Id::ForPi => Vex::OR,
        Id::FxorPi => Vex::XOR,
        _ => return None,
    })
}

/// Shifts of lanes by a constant.
fn shift_of(op: Op) -> Option<VectorShift> {
    Some(match Id::from_number(op.packed_number())? {
        Id::FslliPi => VectorShift::Left,
        Id::FsraiPi => VectorShift::RightSigned,
        _ => return None,
    })
}

/// How the smaller or the larger of floats is found: each of two operands before the other, and
/// what joins both results, so that the sign of zeros is right.
const LEAST: [Vex; 2] = [Vex::MIN, Vex::OR];
const GREATEST: [Vex; 2] = [Vex::MAX, Vex::AND];

/// The same, of a packed instruction.
fn pick_of(op: Op) -> Option<[Vex; 2]> {
    Some(match Id::from_number(op.packed_number())? {
        Id::FminPs => LEAST,
        Id::FmaxPs => GREATEST,
        _ => return None,
    })
}

fn is_constant_sum(op: Op) -> bool {
    Id::from_number(op.packed_number()) == Some(Id::FaddiPi)
}

/// Returns `true` if a packed instruction without a kind of its own has code.
pub(super) fn has_code(op: Op) -> bool {
    lanes_of(op).is_some() || pick_of(op).is_some() || shift_of(op).is_some() || is_constant_sum(op)
}

/// What the code of an operation relies on.
pub(super) fn needs(op: Op) -> Needs {
    let kind = op.kind();
    let computes = matches!(
        kind,
        kind::FADD..=kind::WIDE_FNMADD
            | kind::FEQ..=kind::FLE
            | kind::PACKED_FUSED..=kind::PACKED_PRODUCT
            | kind::PACKED_FROM_INTEGERS
    );
    let mask = matches!(
        kind,
        kind::PACKED_FUSED..=kind::PACKED_SHIFT
            | kind::PRIVATE_PACKED_LOAD..=kind::PRIVATE_PACKED_GATHER_BLOCK
    );
    Needs { computes, mask: mask || kind == kind::PACKED && has_code(op) }
}

/// The floating-point registers that the code of an operation uses.
pub(super) fn operands(op: Op) -> [Option<usize>; 4] {
    let kind = op.kind();
    let raw = op.raw();
    let field = |shift: u32| Some((raw >> shift & 31) as usize);
    let [to, a, b] = [op.rd(), op.rs1(), op.rs2()].map(|f| Some(f & 31));
    match kind {
        kind::FADD | kind::FSUB | kind::FMUL | kind::FMIN | kind::FMAX => [to, a, b, None],
        kind::FMADD..=kind::WIDE_FNMADD => [to, a, b, field(8)],
        kind::FEQ | kind::FLT | kind::FLE => [None, a, b, None],
        kind::FLW | kind::PRIVATE_FLW | kind::FMV_W_X => [to, None, None, None],
        kind::PACKED_FUSED | kind::PACKED_FUSED_SIGNED => {
            [field(7), field(15), field(20), field(27)]
        }
        kind::PACKED_SUM | kind::PACKED_DIFFERENCE | kind::PACKED_PRODUCT => {
            [field(7), field(15), field(20), None]
        }
        kind::PACKED_LOAD
        | kind::PRIVATE_PACKED_LOAD
        | kind::PACKED_BROADCAST
        | kind::PRIVATE_PACKED_BROADCAST
        | kind::PACKED_GATHER_BLOCK
        | kind::PRIVATE_PACKED_GATHER_BLOCK
        | kind::PACKED_SPREAD
        | kind::PACKED_SHORT_FLOAT
        | kind::PACKED_SHORT_INTEGER => [field(7), None, None, None],
        kind::PACKED_STORE | kind::PRIVATE_PACKED_STORE => [field(20), None, None, None],
        kind::PACKED_GATHER
        | kind::PACKED_GATHER_HALVES
        | kind::PRIVATE_PACKED_GATHER
        | kind::PRIVATE_PACKED_GATHER_HALVES
        | kind::PACKED_FROM_INTEGERS
        | kind::PACKED_FROM_HALVES
        | kind::PACKED_SWIZZLE
        | kind::PACKED_MASK
        | kind::PACKED_SHIFT => [field(7), field(15), None, None],
        kind::PACKED if has_code(op) => [field(7), field(15), None, None],
        _ => [None; 4],
    }
}

/// Which lanes an operation computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    First,
    All,
}

/// Signs of a product and what is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fused {
    Add,
    Sub,
    NegatedAdd,
    NegatedSub,
}

impl Fused {
    fn vex(self, shape: Shape) -> Vex {
        let both = match self {
            Self::Add => Vex::FUSED,
            Self::Sub => Vex::FUSED_SUB,
            Self::NegatedAdd => Vex::FUSED_NEGATED,
            Self::NegatedSub => Vex::FUSED_NEGATED_SUB,
        };
        both[usize::from(shape == Shape::First)]
    }

    /// That of a packed instruction.
    fn of(raw: u32) -> Self {
        // As the bits that flip signs.
        match (raw << 5 & SIGN != 0, raw << 6 & SIGN != 0) {
            (false, false) => Self::Add,
            (false, true) => Self::Sub,
            (true, false) => Self::NegatedAdd,
            (true, true) => Self::NegatedSub,
        }
    }
}

impl Translator<'_> {
    /// Gets a floating-point register; where it is not held, into `scratch`.
    pub(super) fn vector(&mut self, f: usize, scratch: u8) -> u8 {
        match self.registers.float_holder(f) {
            Some(holder) => holder,
            None => {
                self.e.vector_of(Lanes::Eight, Vex::LOAD_ALIGNED, scratch, float(f));
                scratch
            }
        }
    }

    /// Writes the first vector register to a floating-point register.
    pub(super) fn put_float(&mut self, f: usize) {
        self.e.vector_of(Lanes::Eight, Vex::STORE_ALIGNED, 0, float(f));
        if let Some(holder) = self.registers.float_holder(f) {
            self.e.vector_of(Lanes::Eight, Vex::LOAD_ALIGNED, holder, Rm::Reg(0));
        }
        self.set_normal(f, false);
    }

    /// Takes note of what is known about a register.
    fn set_normal(&mut self, f: usize, is_normal: bool) {
        let bit = 1 << (f & 31);
        if is_normal {
            self.normal |= bit;
            self.normal_first |= bit;
        } else {
            self.normal &= !bit;
            self.normal_first &= !bit;
        }
    }

    /// Leaves subnormal operands to the interpreter.
    fn check(&mut self, shape: Shape, f: usize) {
        let bit = 1 << (f & 31);
        let slow = self.slow();
        match shape {
            _ if self.normal & bit != 0 => {}
            Shape::First if self.normal_first & bit != 0 => {}
            Shape::First => {
                self.e.load_word(RAX, float(f));
                self.e.alu(Width::Word, Alu::Add, RAX, Rm::Reg(RAX));
                self.e.alu_constant(Width::Word, Alu::Sub, Rm::Reg(RAX), 1);
                self.e.alu_constant(Width::Word, Alu::Cmp, Rm::Reg(RAX), SUBNORMAL);
                self.e.jump_if(Cond::Below, slow);
                self.normal_first |= bit;
            }
            Shape::All => {
                let from = self.vector(f, 0);
                self.e.vector(Lanes::Eight, Vex::ADD_INTEGERS, 0, from, Rm::Reg(from));
                self.vector_constant(Vex::ADD_INTEGERS, 0, 0, constant!(ones));
                self.vector_constant(Vex::MIN_UNSIGNED, 1, 0, constant!(subnormal));
                self.e.vector(Lanes::Eight, Vex::EQUAL, 0, 0, Rm::Reg(1));
                self.e.vector_of(Lanes::Eight, Vex::TEST, 0, Rm::Reg(0));
                self.e.jump_if(Cond::NotEqual, slow);
                self.normal |= bit;
                self.normal_first |= bit;
            }
        }
    }

    fn load_float(&mut self, shape: Shape, to: u8, f: usize) {
        match shape {
            // The first four lanes, of which the others then become 0.
            Shape::First => match self.registers.float_holder(f) {
                Some(holder) => {
                    self.e.vector(Lanes::Few, Vex::XOR, to, to, Rm::Reg(to));
                    self.e.vector(Lanes::Few, Vex::MOVE_FIRST, to, to, Rm::Reg(holder));
                }
                None => self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, to, float(f)),
            },
            Shape::All => {
                self.e.vector_of(Lanes::Eight, Vex::LOAD_ALIGNED, to, self.registers.float(f));
            }
        }
    }

    /// Writes the result in the first vector register, unless it is NaN.
    fn put_result(&mut self, shape: Shape, f: usize) {
        let slow = self.slow();
        match shape {
            Shape::First => {
                self.e.vector_of(Lanes::Few, Vex::COMPARE_QUIET, 0, Rm::Reg(0));
                self.e.jump_if(Cond::Parity, slow);
            }
            Shape::All => {
                self.e.vector_with(Vex::COMPARE, 1, 0, Rm::Reg(0), UNORDERED);
                self.e.vector_of(Lanes::Eight, Vex::TEST, 1, Rm::Reg(1));
                self.e.jump_if(Cond::NotEqual, slow);
            }
        }
        self.put_float(f);
        self.set_normal(f, true);
    }

    fn arithmetic(&mut self, shape: Shape, [scalar, packed]: [Vex; 2], [to, a, b]: [usize; 3]) {
        self.check(shape, a);
        self.check(shape, b);
        let b = self.registers.float(b);
        match shape {
            Shape::First => {
                self.load_float(shape, 0, a);
                self.e.vector(Lanes::Few, scalar, 0, 0, b);
            }
            Shape::All => {
                let a = self.vector(a, 0);
                self.e.vector(Lanes::Eight, packed, 0, a, b);
            }
        }
        self.put_result(shape, to);
    }

    /// The smaller or the larger lanes.
    fn pick(&mut self, shape: Shape, [pick, join]: [Vex; 2], [to, a, b]: [usize; 3]) {
        // Operands that were looked at before may be subnormal nevertheless, if the interpreter
        // took over then. The processor takes them for zeros when it computes, but not here.
        self.set_normal(a, false);
        self.set_normal(b, false);
        self.check(shape, a);
        self.check(shape, b);
        let slow = self.slow();
        let (a, b) = match shape {
            Shape::All => (self.vector(a, 0), self.vector(b, 1)),
            // The other lanes are zeros in both, and so in the result.
            Shape::First => {
                self.load_float(shape, 0, a);
                self.load_float(shape, 1, b);
                (0, 1)
            }
        };
        self.e.vector_with(Vex::COMPARE, 2, a, Rm::Reg(b), UNORDERED);
        self.e.vector_of(Lanes::Eight, Vex::TEST, 2, Rm::Reg(2));
        self.e.jump_if(Cond::NotEqual, slow);
        // Of equal operands the processor gives the second: zeros may differ in their sign.
        self.e.vector(Lanes::Eight, pick, 2, a, Rm::Reg(b));
        self.e.vector(Lanes::Eight, pick, 3, b, Rm::Reg(a));
        self.e.vector(Lanes::Eight, join, 0, 2, Rm::Reg(3));
        self.put_float(to);
        self.set_normal(to, true);
    }

    fn fused(&mut self, shape: Shape, fused: Fused, [to, a, b, c]: [usize; 4]) {
        for f in [a, b, c] {
            self.check(shape, f);
        }
        self.load_float(shape, 0, c);
        let a = self.vector(a, 1);
        let lanes = if shape == Shape::First { Lanes::Few } else { Lanes::Eight };
        self.e.vector(lanes, fused.vex(shape), 0, a, self.registers.float(b));
        self.put_result(shape, to);
    }

    /// Writes the code of an instruction; `false` if there is none.
    pub(super) fn float(&mut self, op: Op) -> bool {
        const ADD: [Vex; 2] = [Vex::ADD_SCALAR, Vex::ADD];
        const SUB: [Vex; 2] = [Vex::SUB_SCALAR, Vex::SUB];
        const MUL: [Vex; 2] = [Vex::MUL_SCALAR, Vex::MUL];
        let raw = op.raw();
        let scalar = [op.rd(), op.rs1(), op.rs2()].map(|f| f & 31);
        let packed = [rd(raw), rs1(raw), rs2(raw)].map(|f| f as usize);
        let [to, a, b] = scalar;
        let with_third = [to, a, b, (raw >> 8 & 31) as usize];
        let [p_to, p_a, p_b] = packed;
        match op.kind() {
            kind::FADD => self.arithmetic(Shape::First, ADD, scalar),
            kind::FSUB => self.arithmetic(Shape::First, SUB, scalar),
            kind::FMUL => self.arithmetic(Shape::First, MUL, scalar),
            kind::FMADD | kind::WIDE_FMADD => self.fused(Shape::First, Fused::Add, with_third),
            kind::FMSUB | kind::WIDE_FMSUB => self.fused(Shape::First, Fused::Sub, with_third),
            kind::FNMSUB | kind::WIDE_FNMSUB => {
                self.fused(Shape::First, Fused::NegatedAdd, with_third);
            }
            kind::FNMADD | kind::WIDE_FNMADD => {
                self.fused(Shape::First, Fused::NegatedSub, with_third);
            }
            kind::PACKED_SUM => self.arithmetic(Shape::All, ADD, packed),
            kind::PACKED_DIFFERENCE => self.arithmetic(Shape::All, SUB, packed),
            kind::PACKED_PRODUCT => self.arithmetic(Shape::All, MUL, packed),
            kind::PACKED_FUSED | kind::PACKED_FUSED_SIGNED => {
                let operands = [p_to, p_a, p_b, (raw >> 27) as usize];
                let fused =
                    if op.kind() == kind::PACKED_FUSED { Fused::Add } else { Fused::of(raw) };
                self.fused(Shape::All, fused, operands);
            }
            kind::FEQ | kind::FLT | kind::FLE => self.compare(op),
            kind::FSGNJ | kind::FSGNJN | kind::FSGNJX => self.sign(op, scalar),
            kind::FMV_X_W => {
                self.e.load_word_signed(RAX, float(a));
                self.write(op.rd(), RAX);
            }
            kind::FMV_W_X => {
                let from = self.read(op.rs1(), RAX);
                self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, 0, Rm::Reg(from));
                self.put_float(to);
            }
            kind::MOV_M_X => {
                // An eighth of the register of all masks.
                let byte = operand::IMM8.value(raw);
                self.read_into(RAX, p_a);
                self.e.alu_constant(Width::Word, Alu::Or, Rm::Reg(RAX), byte);
                let Rm::At(base, masks) = of_hart!(masks) else { return false };
                let to = i32::try_from(p_to & 7).unwrap_or(0);
                self.e.store_byte(Rm::At(base, masks + to), RAX);
            }
            kind::MOVA_M_X => {
                self.read_into(RAX, p_a);
                self.e.store(of_hart!(masks), RAX);
            }
            kind::MOVA_X_M => {
                self.e.load(RAX, of_hart!(masks));
                self.write(op.rd(), RAX);
            }
            kind::PACKED_FROM_INTEGERS if matches!(funct3(raw), 0 | 7) => {
                self.e.vector_of(Lanes::Eight, Vex::FROM_INTEGERS, 0, self.registers.float(p_a));
                self.put_float(p_to);
                self.set_normal(p_to, true);
            }
            kind::PACKED_FROM_HALVES => self.widen_halves(p_to, p_a),
            kind::PACKED_SWIZZLE => {
                let [selector, ..] = operand::IMM8.value(raw).to_le_bytes();
                self.e.vector_with(Vex::PERMUTE, 0, 0, self.registers.float(p_a), selector);
                self.put_float(p_to);
            }
            kind::PACKED_SPREAD => {
                let from = self.read(p_a, RAX);
                self.spread(from);
                self.put_float(p_to);
            }
            kind::PACKED_SHORT_FLOAT => self.put_constant(p_to, short_float(raw >> 12)),
            kind::PACKED_SHORT_INTEGER => {
                self.put_constant(p_to, operand::IMM20.value(raw).cast_unsigned());
            }
            kind::PACKED_MASK => self.with_constant(Vex::AND, raw),
            kind::PACKED_SHIFT => self.shift_lanes(VectorShift::Right, raw),
            kind::PACKED if is_constant_sum(op) => self.with_constant(Vex::ADD_INTEGERS, raw),
            kind::PACKED => {
                if let Some(vex) = lanes_of(op) {
                    let a = self.vector(p_a, 0);
                    self.e.vector(Lanes::Eight, vex, 0, a, self.registers.float(p_b));
                    self.put_float(p_to);
                } else if let Some(pick) = pick_of(op) {
                    self.pick(Shape::All, pick, packed);
                } else if let Some(shift) = shift_of(op) {
                    self.shift_lanes(shift, raw);
                } else {
                    return false;
                }
            }
            kind::PACKED_FROM_INTEGERS => {
                self.set_normal(p_to, false);
                return false;
            }
            kind::FMIN => self.pick(Shape::First, LEAST, scalar),
            kind::FMAX => self.pick(Shape::First, GREATEST, scalar),
            kind::FLOAT => {
                // The interpreter writes the register, if it is one.
                self.set_normal(to, false);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// A constant in all lanes of the second vector register.
    fn spread_constant(&mut self, value: u32) {
        self.e.constant(RAX, value.into());
        self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, 1, Rm::Reg(RAX));
        self.e.vector_of(Lanes::Eight, Vex::BROADCAST, 1, Rm::Reg(1));
    }

    fn with_constant(&mut self, vex: Vex, raw: u32) {
        self.spread_constant(operand::IMM10.value(raw).cast_unsigned());
        self.e.vector(Lanes::Eight, vex, 0, 1, self.registers.float(rs1(raw) as usize));
        self.put_float(rd(raw) as usize);
    }

    fn shift_lanes(&mut self, shift: VectorShift, raw: u32) {
        let from = self.vector(rs1(raw) as usize, 0);
        let [count, ..] = rs2(raw).to_le_bytes();
        self.e.vector_shift(shift, 0, from, count);
        self.put_float(rd(raw) as usize);
    }

    fn spread(&mut self, from: u8) {
        self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, 0, Rm::Reg(from));
        self.e.vector_of(Lanes::Eight, Vex::BROADCAST, 0, Rm::Reg(0));
    }

    fn put_constant(&mut self, f: usize, value: u32) {
        self.e.constant(RAX, value.into());
        self.spread(RAX);
        self.put_float(f);
        self.set_normal(f, value & INFINITY != 0 || value & !SIGN == 0);
    }

    /// Signs of the second operand on the first.
    fn sign(&mut self, op: Op, [to, a, b]: [usize; 3]) {
        self.e.load_word(RAX, float(a));
        self.e.load_word(RCX, float(b));
        if op.kind() == kind::FSGNJN {
            self.e.alu_constant(Width::Word, Alu::Xor, Rm::Reg(RCX), -1);
        }
        self.e.alu_constant(Width::Word, Alu::And, Rm::Reg(RCX), SIGN.cast_signed());
        if op.kind() == kind::FSGNJX {
            self.e.alu(Width::Word, Alu::Xor, RAX, Rm::Reg(RCX));
        } else {
            let magnitude = (!SIGN).cast_signed();
            self.e.alu_constant(Width::Word, Alu::And, Rm::Reg(RAX), magnitude);
            self.e.alu(Width::Word, Alu::Or, RAX, Rm::Reg(RCX));
        }
        self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, 0, Rm::Reg(RAX));
        self.put_float(to);
    }

    fn compare(&mut self, op: Op) {
        let (a, b) = (op.rs1() & 31, op.rs2() & 31);
        self.check(Shape::First, a);
        self.check(Shape::First, b);
        if op.kind() == kind::FEQ {
            self.load_float(Shape::First, 0, a);
            self.e.vector_of(Lanes::Few, Vex::COMPARE_QUIET, 0, self.registers.float(b));
            // Equal, or not ordered.
            self.e.set_if(Cond::Equal, RAX);
            self.e.set_if(Cond::NoParity, RDX);
            self.e.alu(Width::Word, Alu::And, RAX, Rm::Reg(RDX));
        } else {
            let cond = if op.kind() == kind::FLT { Cond::Above } else { Cond::NotBelow };
            self.load_float(Shape::First, 0, b);
            self.e.vector_of(Lanes::Few, Vex::COMPARE_SIGNALLING, 0, self.registers.float(a));
            self.e.set_if(cond, RAX);
        }
        self.write(op.rd(), RAX);
    }

    /// Single precision from the low halves, if none is subnormal, infinite or no number.
    fn widen_halves(&mut self, to: usize, a: usize) {
        let slow = self.slow();
        self.load_float(Shape::All, 0, a);
        self.vector_constant(Vex::AND, 1, 0, constant!(half_magnitude));
        self.vector_constant(Vex::AND, 0, 0, constant!(half_sign));
        self.e.vector_shift(VectorShift::Left, 0, 0, 16);
        // Zeros, and what is too large or too small.
        self.e.vector(Lanes::Eight, Vex::XOR, 2, 2, Rm::Reg(2));
        self.e.vector(Lanes::Eight, Vex::EQUAL, 2, 2, Rm::Reg(1));
        self.vector_constant(Vex::GREATER, 3, 1, constant!(half_large));
        self.e.vector_of(Lanes::Eight, Vex::LOAD_ALIGNED, 4, Rm::At(RCX, constant!(half_small)));
        self.e.vector(Lanes::Eight, Vex::GREATER, 4, 4, Rm::Reg(1));
        self.e.vector(Lanes::Eight, Vex::AND_NOT, 4, 2, Rm::Reg(4));
        self.e.vector(Lanes::Eight, Vex::OR, 3, 3, Rm::Reg(4));
        self.e.vector_of(Lanes::Eight, Vex::TEST, 3, Rm::Reg(3));
        self.e.jump_if(Cond::NotEqual, slow);
        // Biases 15 and 127.
        self.e.vector_shift(VectorShift::Left, 1, 1, 13);
        self.vector_constant(Vex::ADD_INTEGERS, 1, 1, constant!(half_bias));
        self.e.vector(Lanes::Eight, Vex::AND_NOT, 1, 2, Rm::Reg(1));
        self.e.vector(Lanes::Eight, Vex::OR, 0, 0, Rm::Reg(1));
        self.put_float(to);
        self.set_normal(to, true);
    }
}
