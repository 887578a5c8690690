//! Writes instructions of x86-64 processors with AVX2.

/// Number of a register, of either kind.
pub(super) type Reg = u8;

pub(super) const RAX: Reg = 0;
pub(super) const RCX: Reg = 1;
pub(super) const RDX: Reg = 2;
pub(super) const RBX: Reg = 3;
pub(super) const RSP: Reg = 4;
pub(super) const RBP: Reg = 5;
pub(super) const RSI: Reg = 6;
pub(super) const RDI: Reg = 7;
pub(super) const R8: Reg = 8;
pub(super) const R9: Reg = 9;
pub(super) const R10: Reg = 10;
pub(super) const R11: Reg = 11;
pub(super) const R12: Reg = 12;
pub(super) const R13: Reg = 13;
pub(super) const R14: Reg = 14;
pub(super) const R15: Reg = 15;

/// An operand in a register or in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rm {
    Reg(Reg),
    /// Base and distance.
    At(Reg, i32),
    /// Base, index, the power of two it is scaled by, and distance.
    Indexed(Reg, Reg, u8, i32),
}

/// Conditions of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cond {
    Below = 2,
    NotBelow = 3,
    Equal = 4,
    NotEqual = 5,
    NotAbove = 6,
    Above = 7,
    Parity = 10,
    NoParity = 11,
    Less = 12,
    NotLess = 13,
    Greater = 15,
}

/// Binary operations, by the number that their encodings have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Shift {
    Left = 4,
    Right = 5,
    RightSigned = 7,
}

/// Width of an operation on integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Word,
    Double,
}

impl Width {
    fn is_double(self) -> bool {
        self == Self::Double
    }
}

/// The opcode of a vector instruction: map, prefix and byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vex(u8, u8, u8);

impl Vex {
    pub(super) const LOAD_BITS: Self = Self(1, 1, 0x6E);
    /// The first lane of one register, with the others of another.
    pub(super) const MOVE_FIRST: Self = Self(1, 2, 0x10);
    pub(super) const LOAD_ALIGNED: Self = Self(1, 0, 0x28);
    pub(super) const STORE_ALIGNED: Self = Self(1, 0, 0x29);
    pub(super) const LOAD: Self = Self(1, 0, 0x10);
    pub(super) const STORE: Self = Self(1, 0, 0x11);
    pub(super) const BROADCAST_FLOAT: Self = Self(2, 1, 0x18);
    pub(super) const BROADCAST: Self = Self(2, 1, 0x58);
    pub(super) const ADD: Self = Self(1, 0, 0x58);
    pub(super) const MUL: Self = Self(1, 0, 0x59);
    pub(super) const MIN: Self = Self(1, 0, 0x5D);
    pub(super) const MAX: Self = Self(1, 0, 0x5F);
    pub(super) const SUB: Self = Self(1, 0, 0x5C);
    pub(super) const ADD_SCALAR: Self = Self(1, 2, 0x58);
    pub(super) const MUL_SCALAR: Self = Self(1, 2, 0x59);
    pub(super) const SUB_SCALAR: Self = Self(1, 2, 0x5C);
    pub(super) const COMPARE: Self = Self(1, 0, 0xC2);
    pub(super) const COMPARE_QUIET: Self = Self(1, 0, 0x2E);
    pub(super) const COMPARE_SIGNALLING: Self = Self(1, 0, 0x2F);
    pub(super) const FROM_INTEGERS: Self = Self(1, 0, 0x5B);
    pub(super) const TEST: Self = Self(2, 1, 0x17);
    pub(super) const AND: Self = Self(1, 1, 0xDB);
    pub(super) const AND_NOT: Self = Self(1, 1, 0xDF);
    pub(super) const OR: Self = Self(1, 1, 0xEB);
    pub(super) const XOR: Self = Self(1, 1, 0xEF);
    pub(super) const ADD_INTEGERS: Self = Self(1, 1, 0xFE);
    pub(super) const SUB_INTEGERS: Self = Self(1, 1, 0xFA);
    pub(super) const MUL_INTEGERS: Self = Self(2, 1, 0x40);
    pub(super) const MIN_UNSIGNED: Self = Self(2, 1, 0x3B);
    pub(super) const EQUAL: Self = Self(1, 1, 0x76);
    pub(super) const GREATER: Self = Self(1, 1, 0x66);
    /// With the kind of shift where the register is.
    pub(super) const SHIFT: Self = Self(1, 1, 0x72);
    pub(super) const PERMUTE: Self = Self(3, 1, 0x04);
    pub(super) const WIDEN_BYTES: Self = Self(2, 1, 0x21);
    pub(super) const WIDEN_HALVES: Self = Self(2, 1, 0x23);
    /// `a · b + c`, with the sum in place of the third operand.
    pub(super) const FUSED: [Self; 2] = [Self(2, 1, 0xB8), Self(2, 1, 0xB9)];
    pub(super) const FUSED_SUB: [Self; 2] = [Self(2, 1, 0xBA), Self(2, 1, 0xBB)];
    pub(super) const FUSED_NEGATED: [Self; 2] = [Self(2, 1, 0xBC), Self(2, 1, 0xBD)];
    pub(super) const FUSED_NEGATED_SUB: [Self; 2] = [Self(2, 1, 0xBE), Self(2, 1, 0xBF)];
    const SHIFT_LEFT_BY: Self = Self(2, 1, 0xF7);
    const SHIFT_RIGHT_BY: Self = Self(2, 3, 0xF7);
    const SHIFT_RIGHT_SIGNED_BY: Self = Self(2, 2, 0xF7);
}

/// Lanes that a vector instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// One, or four.
    Few,
    Eight,
}

/// A place in the code that may not be known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

const UNKNOWN: usize = usize::MAX;

/// Code under construction.
#[derive(Debug)]
pub(super) struct Emitter {
    bytes: Vec<u8>,
    /// Where the code will be.
    base: usize,
    labels: Vec<usize>,
    /// Distances of 32 bits to fill in: where they are, and what they lead to.
    jumps: Vec<(usize, Label)>,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "code is much smaller than 2 GiB, and distances are cut to the bytes they fit in"
)]
impl Emitter {
    /// Starts code that will be at an offset of the memory for code.
    pub(super) fn new(base: usize) -> Self {
        Self { bytes: Vec::with_capacity(1 << 14), base, labels: Vec::new(), jumps: Vec::new() }
    }

    /// Offset of the next instruction in the memory for code.
    pub(super) fn here(&self) -> usize {
        self.base + self.bytes.len()
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(UNKNOWN);
        Label(self.labels.len() - 1)
    }

    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = self.bytes.len();
    }

    /// Returns the code, with all distances filled in; `None` if a label was never bound.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0];
            if to == UNKNOWN {
                return None;
            }
            let distance = to as i32 - (at as i32 + 4);
            self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        Some(self.bytes)
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn word(&mut self, word: i32) {
        self.bytes.extend(word.to_le_bytes());
    }

    /// The bits of register numbers that do not fit behind the opcode: register, index, base.
    fn high(reg: Reg, rm: Rm) -> (u8, u8, u8) {
        let (index, base) = match rm {
            Rm::Reg(base) | Rm::At(base, _) => (0, base),
            Rm::Indexed(base, index, ..) => (index, base),
        };
        (reg >> 3, index >> 3, base >> 3)
    }

    /// The bytes behind the opcode.
    fn operands(&mut self, reg: Reg, rm: Rm) {
        let reg = (reg & 7) << 3;
        let (base, disp, index) = match rm {
            Rm::Reg(rm) => return self.byte(0xC0 | reg | rm & 7),
            Rm::At(base, disp) => (base, disp, None),
            Rm::Indexed(base, index, scale, disp) => {
                (base, disp, Some(scale << 6 | (index & 7) << 3))
            }
        };
        let short = i8::try_from(disp);
        let mode = if short.is_ok() { 0x40 } else { 0x80 };
        match index {
            Some(index) => {
                self.byte(mode | reg | 4);
                self.byte(index | base & 7);
            }
            // The number of the stack pointer means that there is an index.
            None if base & 7 == RSP => {
                self.byte(mode | reg | 4);
                self.byte(0x24);
            }
            None => self.byte(mode | reg | base & 7),
        }
        match short {
            Ok(short) => self.byte(short.cast_unsigned()),
            Err(_) => self.word(disp),
        }
    }

    fn op(&mut self, width: Width, opcode: &[u8], reg: Reg, rm: Rm) {
        let (r, x, b) = Self::high(reg, rm);
        let rex = u8::from(width.is_double()) << 3 | r << 2 | x << 1 | b;
        if rex != 0 {
            self.byte(0x40 | rex);
        }
        self.bytes.extend(opcode);
        self.operands(reg, rm);
    }

    pub(super) fn load(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Double, &[0x8B], reg, rm);
    }

    /// The upper half becomes zero.
    pub(super) fn load_word(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Word, &[0x8B], reg, rm);
    }

    pub(super) fn load_word_signed(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Double, &[0x63], reg, rm);
    }

    pub(super) fn load_half(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Word, &[0x0F, 0xB7], reg, rm);
    }

    pub(super) fn load_half_signed(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Double, &[0x0F, 0xBF], reg, rm);
    }

    /// From memory or one of the first four registers.
    pub(super) fn load_byte(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Word, &[0x0F, 0xB6], reg, rm);
    }

    pub(super) fn load_byte_signed(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Double, &[0x0F, 0xBE], reg, rm);
    }

    pub(super) fn store(&mut self, rm: Rm, reg: Reg) {
        self.op(Width::Double, &[0x89], reg, rm);
    }

    pub(super) fn store_word(&mut self, rm: Rm, reg: Reg) {
        self.op(Width::Word, &[0x89], reg, rm);
    }

    pub(super) fn store_half(&mut self, rm: Rm, reg: Reg) {
        self.byte(0x66);
        self.op(Width::Word, &[0x89], reg, rm);
    }

    /// From one of the first four registers.
    pub(super) fn store_byte(&mut self, rm: Rm, reg: Reg) {
        debug_assert!(reg < 4, "others need a prefix");
        self.op(Width::Word, &[0x88], reg, rm);
    }

    pub(super) fn lea(&mut self, reg: Reg, rm: Rm) {
        self.op(Width::Double, &[0x8D], reg, rm);
    }

    /// Sets a register to a constant.
    pub(super) fn constant(&mut self, reg: Reg, value: u64) {
        if value == 0 {
            self.op(Width::Word, &[0x31], reg, Rm::Reg(reg));
        } else if let Ok(word) = u32::try_from(value) {
            if reg >= 8 {
                self.byte(0x41);
            }
            self.byte(0xB8 | reg & 7);
            self.word(word.cast_signed());
        } else if let Ok(word) = i32::try_from(value.cast_signed()) {
            self.op(Width::Double, &[0xC7], 0, Rm::Reg(reg));
            self.word(word);
        } else {
            self.byte(0x48 | reg >> 3);
            self.byte(0xB8 | reg & 7);
            self.bytes.extend(value.to_le_bytes());
        }
    }

    /// Stores a word that is a constant.
    pub(super) fn store_constant(&mut self, rm: Rm, value: i32) {
        self.op(Width::Word, &[0xC7], 0, rm);
        self.word(value);
    }

    pub(super) fn alu(&mut self, width: Width, alu: Alu, reg: Reg, rm: Rm) {
        self.op(width, &[(alu as u8) << 3 | 3], reg, rm);
    }

    /// With the result, if it has one, in memory.
    pub(super) fn alu_to(&mut self, width: Width, alu: Alu, rm: Rm, reg: Reg) {
        self.op(width, &[(alu as u8) << 3 | 1], reg, rm);
    }

    pub(super) fn alu_constant(&mut self, width: Width, alu: Alu, rm: Rm, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.op(width, &[0x83], alu as u8, rm);
            self.byte(short.cast_unsigned());
        } else {
            self.op(width, &[0x81], alu as u8, rm);
            self.word(value);
        }
    }

    /// Compares a byte of memory with a constant.
    pub(super) fn compare_byte(&mut self, rm: Rm, value: u8) {
        self.op(Width::Word, &[0x80], Alu::Cmp as u8, rm);
        self.byte(value);
    }

    /// Tests bits of a byte: of memory, or of one of the first four registers.
    pub(super) fn test_byte(&mut self, rm: Rm, bits: u8) {
        self.op(Width::Word, &[0xF6], 0, rm);
        self.byte(bits);
    }

    pub(super) fn test(&mut self, width: Width, a: Reg, b: Reg) {
        self.op(width, &[0x85], a, Rm::Reg(b));
    }

    pub(super) fn shift(&mut self, width: Width, shift: Shift, reg: Reg, count: u8) {
        self.op(width, &[0xC1], shift as u8, Rm::Reg(reg));
        self.byte(count);
    }

    /// `to = from` shifted by what is in `count`.
    pub(super) fn shift_by(&mut self, width: Width, shift: Shift, to: Reg, from: Rm, count: Reg) {
        let vex = match shift {
            Shift::Left => Vex::SHIFT_LEFT_BY,
            Shift::Right => Vex::SHIFT_RIGHT_BY,
            Shift::RightSigned => Vex::SHIFT_RIGHT_SIGNED_BY,
        };
        self.vex_of_width(width.is_double(), Lanes::Few, vex, to, count, from);
    }

    pub(super) fn multiply(&mut self, width: Width, reg: Reg, rm: Rm) {
        self.op(width, &[0x0F, 0xAF], reg, rm);
    }

    pub(super) fn multiply_constant(&mut self, reg: Reg, rm: Rm, value: i32) {
        self.op(Width::Double, &[0x69], reg, rm);
        self.word(value);
    }

    /// `rdx:rax = rax · rm`.
    pub(super) fn multiply_wide(&mut self, rm: Rm, is_signed: bool) {
        self.op(Width::Double, &[0xF7], if is_signed { 5 } else { 4 }, rm);
    }

    /// Quotient to `rax` and remainder to `rdx`, of `rax` and `rm`.
    pub(super) fn divide(&mut self, width: Width, rm: Rm, is_signed: bool) {
        if is_signed {
            if width.is_double() {
                self.byte(0x48);
            }
            self.byte(0x99);
        } else {
            self.constant(RDX, 0);
        }
        self.op(width, &[0xF7], if is_signed { 7 } else { 6 }, rm);
    }

    /// Tells the bit of `reg` that `index` names, and sets it.
    pub(super) fn set_bit(&mut self, reg: Reg, index: Reg) {
        self.op(Width::Double, &[0x0F, 0xAB], index, Rm::Reg(reg));
    }

    /// Tells the bit of `reg` that `index` names.
    pub(super) fn test_bit(&mut self, reg: Reg, index: Reg) {
        self.op(Width::Double, &[0x0F, 0xA3], index, Rm::Reg(reg));
    }

    /// Sets one of the first four registers to 1 or 0.
    pub(super) fn set_if(&mut self, cond: Cond, reg: Reg) {
        debug_assert!(reg < 4, "others need a prefix");
        self.op(Width::Word, &[0x0F, 0x90 | cond as u8], 0, Rm::Reg(reg));
        self.load_byte(reg, Rm::Reg(reg));
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.byte(0xE9);
        self.distance(to);
    }

    pub(super) fn jump_if(&mut self, cond: Cond, to: Label) {
        self.byte(0x0F);
        self.byte(0x80 | cond as u8);
        self.distance(to);
    }

    fn distance(&mut self, to: Label) {
        self.jumps.push((self.bytes.len(), to));
        self.word(0);
    }

    pub(super) fn call(&mut self, to: Label) {
        self.byte(0xE8);
        self.distance(to);
    }

    /// Calls what is at an offset of the memory for code.
    pub(super) fn call_offset(&mut self, to: usize) {
        self.byte(0xE8);
        self.distance_to_offset(to);
    }

    pub(super) fn jump_offset(&mut self, to: usize) {
        self.byte(0xE9);
        self.distance_to_offset(to);
    }

    fn distance_to_offset(&mut self, to: usize) {
        let next = self.here() + 4;
        self.word((to as i64 - next as i64) as i32);
    }

    pub(super) fn call_at(&mut self, rm: Rm) {
        self.op(Width::Word, &[0xFF], 2, rm);
    }

    pub(super) fn jump_at(&mut self, rm: Rm) {
        self.op(Width::Word, &[0xFF], 4, rm);
    }

    pub(super) fn push(&mut self, reg: Reg) {
        if reg >= 8 {
            self.byte(0x41);
        }
        self.byte(0x50 | reg & 7);
    }

    pub(super) fn pop(&mut self, reg: Reg) {
        if reg >= 8 {
            self.byte(0x41);
        }
        self.byte(0x58 | reg & 7);
    }

    pub(super) fn ret(&mut self) {
        self.byte(0xC3);
    }

    /// Clears the carry flag.
    pub(super) fn clear_carry(&mut self) {
        self.byte(0xF8);
    }

    /// Sets the carry flag.
    pub(super) fn set_carry(&mut self) {
        self.byte(0xF9);
    }

    /// Leaves no upper halves of vector registers.
    pub(super) fn zero_upper(&mut self) {
        self.bytes.extend([0xC5, 0xF8, 0x77]);
    }

    pub(super) fn load_control(&mut self, rm: Rm) {
        self.op(Width::Word, &[0x0F, 0xAE], 2, rm);
    }

    pub(super) fn store_control(&mut self, rm: Rm) {
        self.op(Width::Word, &[0x0F, 0xAE], 3, rm);
    }

    fn vex_of_width(&mut self, wide: bool, lanes: Lanes, vex: Vex, reg: Reg, other: Reg, rm: Rm) {
        let Vex(map, prefix, opcode) = vex;
        let (r, x, b) = Self::high(reg, rm);
        self.byte(0xC4);
        self.byte((r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | map);
        let length = u8::from(lanes == Lanes::Eight);
        self.byte(u8::from(wide) << 7 | (!other & 15) << 3 | length << 2 | prefix);
        self.byte(opcode);
        self.operands(reg, rm);
    }

    /// A vector instruction: two registers, and one or memory.
    pub(super) fn vector(&mut self, lanes: Lanes, vex: Vex, reg: Reg, other: Reg, rm: Rm) {
        self.vex_of_width(false, lanes, vex, reg, other, rm);
    }

    /// A vector instruction of one register, and one or memory.
    pub(super) fn vector_of(&mut self, lanes: Lanes, vex: Vex, reg: Reg, rm: Rm) {
        self.vector(lanes, vex, reg, 0, rm);
    }

    /// A vector instruction with a constant behind it.
    pub(super) fn vector_with(&mut self, vex: Vex, reg: Reg, other: Reg, rm: Rm, value: u8) {
        self.vector(Lanes::Eight, vex, reg, other, rm);
        self.byte(value);
    }

    /// Shifts lanes by a constant.
    pub(super) fn vector_shift(&mut self, shift: VectorShift, to: Reg, from: Reg, count: u8) {
        self.vector_with(Vex::SHIFT, shift as u8, to, Rm::Reg(from), count);
    }
}

/// Shifts of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum VectorShift {
    Right = 2,
    RightSigned = 4,
    Left = 6,
}
