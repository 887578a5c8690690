//! Code of integer instructions and branches.

use super::emit::{Alu, Cond, Label, RAX, RCX, RDX, Reg, Rm, Shift, Width};
use super::page::Translator;
use crate::decode::op::{Op, SINK, kind};

impl Translator<'_> {
    /// Gets a register of the hart; where it is not held, into `scratch`.
    pub(super) fn read(&mut self, x: usize, scratch: Reg) -> Reg {
        match self.registers.holder(x) {
            Some(holder) => holder,
            None => {
                self.read_into(scratch, x);
                scratch
            }
        }
    }

    pub(super) fn read_into(&mut self, to: Reg, x: usize) {
        if x == 0 {
            self.e.constant(to, 0);
        } else if self.registers.holder(x) != Some(to) {
            self.e.load(to, self.registers.place(x));
        }
    }

    /// Writes a register of the hart.
    pub(super) fn write(&mut self, x: usize, from: Reg) {
        if x < SINK as usize {
            match self.registers.holder(x) {
                Some(holder) if holder == from => {}
                Some(holder) => self.e.load(holder, Rm::Reg(from)),
                None => self.e.store(self.registers.place(x), from),
            }
        }
    }

    /// Where a result is computed: the register that holds the destination, if there is one.
    fn target(&self, op: Op) -> Reg {
        self.registers.holder(op.rd()).unwrap_or(RAX)
    }

    /// Adds a constant of 32 bits.
    pub(super) fn add_constant(&mut self, to: Reg, value: u64) {
        if value != 0 {
            self.e.alu_constant(Width::Double, Alu::Add, Rm::Reg(to), immediate(value));
        }
    }

    /// Writes the code of an instruction; `false` if there is none.
    pub(super) fn integer(&mut self, op: Op) -> bool {
        use Width::{Double, Word};
        let kind = op.kind();
        let is_known = matches!(
            kind,
            kind::LUI | kind::AUIPC | kind::C_LUI | kind::PACKB
                | kind::ADDI..=kind::REMUW
                | kind::C_ADDI..=kind::C_SUBW
        );
        if !is_known {
            return false;
        }
        // They cannot fail.
        if op.rd() == SINK as usize {
            return true;
        }
        match kind {
            kind::LUI | kind::C_LUI => {
                let to = self.target(op);
                self.e.constant(to, op.imm());
                self.write(op.rd(), to);
            }
            kind::AUIPC => {
                self.address(RAX, self.position());
                self.add_constant(RAX, op.imm());
                self.write(op.rd(), RAX);
            }
            kind::ADDI | kind::C_ADDI => self.add_immediate(op),
            kind::XORI => self.immediate(Double, Alu::Xor, op),
            kind::ORI => self.immediate(Double, Alu::Or, op),
            kind::ANDI | kind::C_ANDI => self.immediate(Double, Alu::And, op),
            kind::ADDIW | kind::C_ADDIW => self.immediate(Word, Alu::Add, op),
            kind::SLLI | kind::C_SLLI => self.shift(Double, Shift::Left, op),
            kind::SRLI | kind::C_SRLI => self.shift(Double, Shift::Right, op),
            kind::SRAI | kind::C_SRAI => self.shift(Double, Shift::RightSigned, op),
            kind::SLLIW => self.shift(Word, Shift::Left, op),
            kind::SRLIW => self.shift(Word, Shift::Right, op),
            kind::SRAIW => self.shift(Word, Shift::RightSigned, op),
            kind::ADD | kind::C_ADD => self.binary(Double, Alu::Add, op),
            kind::SUB | kind::C_SUB => self.binary(Double, Alu::Sub, op),
            kind::XOR | kind::C_XOR => self.binary(Double, Alu::Xor, op),
            kind::OR | kind::C_OR => self.binary(Double, Alu::Or, op),
            kind::AND | kind::C_AND => self.binary(Double, Alu::And, op),
            kind::ADDW | kind::C_ADDW => self.binary(Word, Alu::Add, op),
            kind::SUBW | kind::C_SUBW => self.binary(Word, Alu::Sub, op),
            kind::SLL => self.shift_by(Double, Shift::Left, op),
            kind::SRL => self.shift_by(Double, Shift::Right, op),
            kind::SRA => self.shift_by(Double, Shift::RightSigned, op),
            kind::SLLW => self.shift_by(Word, Shift::Left, op),
            kind::SRLW => self.shift_by(Word, Shift::Right, op),
            kind::SRAW => self.shift_by(Word, Shift::RightSigned, op),
            kind::SLT => self.set_if(Cond::Less, op),
            kind::SLTU => self.set_if(Cond::Below, op),
            kind::SLTI => self.set_if_immediate(Cond::Less, op),
            kind::SLTIU => self.set_if_immediate(Cond::Below, op),
            kind::MUL => self.multiply(Double, op),
            kind::MULW => self.multiply(Word, op),
            kind::MULH => self.multiply_high(op, true),
            kind::MULHU => self.multiply_high(op, false),
            kind::DIV => self.divide(Double, true, RAX, op),
            kind::REM => self.divide(Double, true, RDX, op),
            kind::DIVU => self.divide(Double, false, RAX, op),
            kind::REMU => self.divide(Double, false, RDX, op),
            kind::DIVW => self.divide(Word, true, RAX, op),
            kind::REMW => self.divide(Word, true, RDX, op),
            kind::DIVUW => self.divide(Word, false, RAX, op),
            kind::REMUW => self.divide(Word, false, RDX, op),
            kind::PACKB => {
                self.read_into(RAX, op.rs1());
                self.read_into(RCX, op.rs2());
                self.e.load_byte(RAX, Rm::Reg(RAX));
                self.e.load_byte(RCX, Rm::Reg(RCX));
                self.e.shift(Word, Shift::Left, RCX, 8);
                self.e.alu(Word, Alu::Or, RAX, Rm::Reg(RCX));
                self.write(op.rd(), RAX);
            }
            _ => return false,
        }
        true
    }

    /// Ends an operation whose result is in a register: words are extended.
    fn result(&mut self, width: Width, op: Op, from: Reg) {
        if width == Width::Word {
            self.e.load_word_signed(from, Rm::Reg(from));
        }
        self.write(op.rd(), from);
    }

    fn add_immediate(&mut self, op: Op) {
        let to = self.target(op);
        match (op.rs1(), self.registers.holder(op.rs1())) {
            (0, _) => self.e.constant(to, op.imm()),
            (_, Some(from)) if from != to && op.imm() != 0 => {
                self.e.lea(to, Rm::At(from, immediate(op.imm())));
            }
            _ => {
                self.read_into(to, op.rs1());
                self.add_constant(to, op.imm());
            }
        }
        self.write(op.rd(), to);
    }

    fn immediate(&mut self, width: Width, alu: Alu, op: Op) {
        let to = self.target(op);
        self.read_into(to, op.rs1());
        if op.imm() != 0 || alu == Alu::And {
            self.e.alu_constant(width, alu, Rm::Reg(to), immediate(op.imm()));
        }
        self.result(width, op, to);
    }

    fn shift(&mut self, width: Width, shift: Shift, op: Op) {
        let to = self.target(op);
        self.read_into(to, op.rs1());
        let bits = if width == Width::Double { 63 } else { 31 };
        let [count, ..] = (op.raw() & bits).to_le_bytes();
        self.e.shift(width, shift, to, count);
        self.result(width, op, to);
    }

    fn shift_by(&mut self, width: Width, shift: Shift, op: Op) {
        let (to, from) = (self.target(op), self.read(op.rs1(), RAX));
        let count = self.read(op.rs2(), RCX);
        self.e.shift_by(width, shift, to, Rm::Reg(from), count);
        self.result(width, op, to);
    }

    fn binary(&mut self, width: Width, alu: Alu, op: Op) {
        let (mut a, mut b) = (op.rs1(), op.rs2());
        let mut to = self.target(op);
        if self.registers.holder(b) == Some(to) && a != b {
            if alu == Alu::Sub {
                to = RAX;
            } else {
                std::mem::swap(&mut a, &mut b);
            }
        }
        self.read_into(to, a);
        // The register x0 of the hart is in memory, and 0.
        let other = if a == b { Rm::Reg(to) } else { self.registers.place(b) };
        self.e.alu(width, alu, to, other);
        self.result(width, op, to);
    }

    fn set_if(&mut self, cond: Cond, op: Op) {
        let a = self.read(op.rs1(), RAX);
        self.e.alu(Width::Double, Alu::Cmp, a, self.registers.place(op.rs2()));
        self.e.set_if(cond, RAX);
        self.write(op.rd(), RAX);
    }

    fn set_if_immediate(&mut self, cond: Cond, op: Op) {
        let place = self.registers.place(op.rs1());
        self.e.alu_constant(Width::Double, Alu::Cmp, place, immediate(op.imm()));
        self.e.set_if(cond, RAX);
        self.write(op.rd(), RAX);
    }

    fn multiply(&mut self, width: Width, op: Op) {
        self.read_into(RAX, op.rs1());
        self.e.multiply(width, RAX, self.registers.place(op.rs2()));
        self.result(width, op, RAX);
    }

    fn multiply_high(&mut self, op: Op, is_signed: bool) {
        self.read_into(RAX, op.rs1());
        self.e.multiply_wide(self.registers.place(op.rs2()), is_signed);
        self.write(op.rd(), RDX);
    }

    /// A quotient or a remainder, as `from` says.
    fn divide(&mut self, width: Width, is_signed: bool, from: Reg, op: Op) {
        let slow = self.slow();
        self.read_into(RCX, op.rs2());
        self.e.test(width, RCX, RCX);
        self.e.jump_if(Cond::Equal, slow);
        if is_signed {
            // The smallest number divided by it is too large.
            self.e.alu_constant(width, Alu::Cmp, Rm::Reg(RCX), -1);
            self.e.jump_if(Cond::Equal, slow);
        }
        self.read_into(RAX, op.rs1());
        self.e.divide(width, Rm::Reg(RCX), is_signed);
        self.result(width, op, from);
    }

    /// Jumps to `taken` if the condition of a branch holds.
    pub(super) fn branch(&mut self, op: Op, taken: Label) {
        let (a, b) = (op.rs1(), op.rs2());
        let cond = match op.kind() {
            kind::BEQ | kind::C_BEQ => Cond::Equal,
            kind::BNE | kind::C_BNE => Cond::NotEqual,
            kind::BLT => Cond::Less,
            kind::BGE => Cond::NotLess,
            kind::BLTU => Cond::Below,
            _ => Cond::NotBelow,
        };
        if b == 0 {
            let place = self.registers.place(a);
            match place {
                Rm::Reg(a) if matches!(cond, Cond::Equal | Cond::NotEqual) => {
                    self.e.test(Width::Double, a, a);
                }
                _ => self.e.alu_constant(Width::Double, Alu::Cmp, place, 0),
            }
        } else {
            let a = self.read(a, RAX);
            self.e.alu(Width::Double, Alu::Cmp, a, self.registers.place(b));
        }
        self.e.jump_if(cond, taken);
    }
}

/// An immediate as it is encoded: it has 32 bits, and is sign-extended.
#[expect(clippy::cast_possible_truncation, reason = "operations have 32 bits of it")]
pub(super) fn immediate(value: u64) -> i32 {
    value as i32
}
