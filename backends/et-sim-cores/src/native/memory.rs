//! Code of loads and stores.

use et_isa::Id;
use et_isa::csr::{EVICT_VA, FLUSH_VA, PREFETCH_VA};

use super::context::PAGE_SHIFT;
use super::emit::{Alu, Cond, Lanes, R8, RAX, RCX, RDX, Rm, Shift, Vex, Width};
use super::float::constant;
use super::integer::immediate;
use super::page::Translator;
use super::registers::float;
use super::thunks::{self, ANY_EIGHT, HALF_REGISTER, REGISTER, of_context, of_hart};
use crate::decode::op::{Op, SINK, kind};
use crate::decode::{imm_i, imm_s, rd, rs1, rs2};
use crate::exec::reach::{is_load, is_store};
use crate::memory::map::DRAM_BASE;
use crate::memory::private::{self, Frame};

/// Packed indices 0 to 7, 5 bits each, moved to the top.
const IN_ORDER: u64 = 0x39_8A41_8820 << 24;

/// Returns `true` if the interpreter neither computes with floats for an operation nor looks at
/// their flags, whatever becomes of it.
#[inline]
pub(super) fn is_indifferent(op: Op) -> bool {
    match op.kind() {
        kind::FLW
        | kind::FSW
        | kind::PRIVATE_FLW
        | kind::PRIVATE_FSW
        | kind::PACKED_LOAD..=kind::PACKED_GATHER_BLOCK
        | kind::PRIVATE_PACKED_LOAD..=kind::PRIVATE_PACKED_GATHER_BLOCK => true,
        kind::PACKED => [Id::FgwPs, Id::FschPs].iter().any(|id| *id as usize == op.packed_number()),
        _ => is_load(op) || is_store(op) || is_line_operation(op),
    }
}

/// The register with the distance between lines.
const STRIDE: usize = 31;

/// Returns the register that an operation on lines of the cache writes, if it is one that mostly
/// does nothing.
fn line_operation(op: Op) -> Option<u32> {
    let is_plain = op.kind() == kind::CSR && op.id() == Some(Id::Csrrw) && op.rd() == SINK as usize;
    let register = op.raw() >> 16;
    (is_plain && matches!(register, PREFETCH_VA | EVICT_VA | FLUSH_VA)).then_some(register)
}

/// Returns `true` if an operation is one on lines of the cache.
pub(super) fn is_line_operation(op: Op) -> bool {
    line_operation(op).is_some()
}

/// Where the bytes of an access are, once it was found out.
const FOUND: Rm = Rm::At(RAX, 0);
/// The same for a load that has found them in a frame of the cache.
const IN_FRAME: Rm = Rm::Indexed(R8, RAX, 0, private::offsets::BYTES);

/// Numbers that are gathered.
#[derive(Clone, Copy)]
struct Numbers {
    bytes: i32,
    /// The size of eight of them.
    size: usize,
    /// The constant with the indices of eight that follow each other.
    in_order: i32,
    widen: Vex,
}

const BYTES: Numbers =
    Numbers { bytes: 1, size: ANY_EIGHT, in_order: constant!(in_order), widen: Vex::WIDEN_BYTES };
const HALVES: Numbers = Numbers {
    bytes: 2,
    size: HALF_REGISTER,
    in_order: constant!(in_order_halves),
    widen: Vex::WIDEN_HALVES,
};

/// The register that mostly leads to the stack.
const SP: usize = 2;

/// The number of the first page of DRAM.
#[expect(clippy::cast_possible_truncation, reason = "checked below")]
const FIRST_PAGE: i32 = (DRAM_BASE >> PAGE_SHIFT) as i32;
const _: () = assert!((FIRST_PAGE as u64) << PAGE_SHIFT == DRAM_BASE);

impl Translator<'_> {
    /// Finds the bytes of a load; returns where they are.
    fn find(&mut self, size: usize, x: usize, distance: i32) -> Rm {
        let routine = self.thunks.loads[size];
        if self.has_private_caches && x != SP {
            self.find_in_frame(size, x, distance, routine);
            return IN_FRAME;
        }
        self.effective(x, distance);
        self.found_by(routine);
        FOUND
    }

    /// Looks for the bytes of a load in the cache. What is elsewhere, as stacks are, is left to the
    /// routine.
    fn find_in_frame(&mut self, size: usize, x: usize, distance: i32, routine: usize) {
        let [slow, found] = self.slow_load(routine, x, distance);
        self.effective(x, distance);
        // Words of a register behind the last one of its group count as not there.
        let beside = if size == REGISTER { 7 } else { (1 << size) - 1 };
        if beside != 0 {
            self.e.test_byte(Rm::Reg(RAX), beside);
            self.e.jump_if(Cond::NotEqual, slow);
        }
        self.e.load(RDX, Rm::Reg(RAX));
        self.e.shift(Width::Double, Shift::Right, RDX, PAGE_SHIFT);
        self.e.alu_constant(Width::Double, Alu::Sub, Rm::Reg(RDX), FIRST_PAGE);
        // Pages before become large.
        self.e.alu(Width::Double, Alu::Cmp, RDX, of_context!(first_page_count));
        self.e.jump_if(Cond::NotBelow, slow);
        self.e.load(R8, of_context!(load_pages));
        self.e.load_half(R8, Rm::Indexed(R8, RDX, 1, 0));
        self.e.multiply_constant(R8, Rm::Reg(R8), thunks::distance(size_of::<Frame>()));
        self.e.alu(Width::Double, Alu::Add, R8, of_context!(frames));
        self.e.alu_constant(Width::Word, Alu::And, Rm::Reg(RAX), 0xFFF);
        self.e.load_word(RCX, Rm::Reg(RAX));
        self.e.shift(Width::Word, Shift::Right, RCX, 9);
        self.e.load(RDX, Rm::Indexed(R8, RCX, 3, private::offsets::VALID));
        self.e.load_word(RCX, Rm::Reg(RAX));
        self.e.shift(Width::Word, Shift::Right, RCX, 3);
        if size == REGISTER {
            self.e.shift_by(Width::Double, Shift::Right, RDX, Rm::Reg(RDX), RCX);
            self.e.alu_constant(Width::Word, Alu::Xor, Rm::Reg(RDX), -1);
            self.e.test_byte(Rm::Reg(RDX), 0xF);
            self.e.jump_if(Cond::NotEqual, slow);
        } else {
            self.e.test_bit(RDX, RCX);
            self.e.jump_if(Cond::NotBelow, slow);
        }
        self.e.bind(found);
    }

    /// Finds the bytes of a store.
    fn find_to_store(&mut self, size: usize, x: usize, distance: i32) {
        self.effective(x, distance);
        let routine = self.thunks.stores[size];
        self.found_by(routine);
    }

    /// Puts an effective address into `rax`.
    pub(super) fn effective(&mut self, x: usize, distance: i32) {
        match self.registers.holder(x) {
            Some(holder) if distance != 0 => self.e.lea(RAX, Rm::At(holder, distance)),
            _ => {
                self.read_into(RAX, x);
                self.add_constant(RAX, i64::from(distance).cast_unsigned());
            }
        }
    }

    fn found_by(&mut self, routine: usize) {
        let slow = self.slow();
        self.e.call_offset(routine);
        self.e.jump_if(Cond::NotBelow, slow);
    }

    /// Writes the code of an access; `false` if there is none.
    pub(super) fn access(&mut self, op: Op) -> bool {
        let raw = op.raw();
        let distance = immediate(op.imm());
        match op.kind() {
            kind::FLW | kind::PRIVATE_FLW => {
                let from = self.find(2, op.rs1(), distance);
                self.e.vector_of(Lanes::Few, Vex::LOAD_BITS, 0, from);
                self.put_float(op.rd());
            }
            kind::FSW | kind::PRIVATE_FSW => {
                self.find_to_store(2, op.rs1(), distance);
                self.e.load_word(RCX, float(op.rs2()));
                self.e.store_word(FOUND, RCX);
            }
            kind::PACKED_LOAD | kind::PRIVATE_PACKED_LOAD => {
                let from = self.find(REGISTER, rs1(raw) as usize, imm_i(raw));
                self.e.vector_of(Lanes::Eight, Vex::LOAD, 0, from);
                self.put_float(rd(raw) as usize);
            }
            kind::PACKED_STORE | kind::PRIVATE_PACKED_STORE => {
                self.find_to_store(REGISTER, rs1(raw) as usize, imm_s(raw));
                let from = self.vector(rs2(raw) as usize, 0);
                self.e.vector_of(Lanes::Eight, Vex::STORE, from, FOUND);
            }
            kind::PACKED_BROADCAST | kind::PRIVATE_PACKED_BROADCAST => {
                let from = self.find(2, rs1(raw) as usize, imm_i(raw));
                self.e.vector_of(Lanes::Eight, Vex::BROADCAST_FLOAT, 0, from);
                self.put_float(rd(raw) as usize);
            }
            kind::PACKED_GATHER | kind::PRIVATE_PACKED_GATHER => self.gather(raw, BYTES),
            kind::PACKED_GATHER_HALVES | kind::PRIVATE_PACKED_GATHER_HALVES => {
                self.gather(raw, HALVES);
            }
            kind::PACKED_GATHER_BLOCK | kind::PRIVATE_PACKED_GATHER_BLOCK => {
                self.gather_block(raw);
            }
            _ if is_load(op) => self.load(op, distance),
            _ if is_store(op) => self.store(op, distance),
            _ => return false,
        }
        true
    }

    fn load(&mut self, op: Op, distance: i32) {
        let (size, is_signed) = match op.kind() {
            kind::LB | kind::PRIVATE_LB => (0, true),
            kind::LH | kind::PRIVATE_LH => (1, true),
            kind::LW | kind::C_LW | kind::PRIVATE_LW | kind::C_PRIVATE_LW => (2, true),
            kind::LBU | kind::PRIVATE_LBU => (0, false),
            kind::LHU | kind::PRIVATE_LHU => (1, false),
            kind::LWU | kind::PRIVATE_LWU => (2, false),
            _ => (3, false),
        };
        let from = self.find(size, op.rs1(), distance);
        if op.rd() == SINK as usize {
            return;
        }
        let to = self.registers.holder(op.rd()).unwrap_or(RCX);
        match (size, is_signed) {
            (0, true) => self.e.load_byte_signed(to, from),
            (0, false) => self.e.load_byte(to, from),
            (1, true) => self.e.load_half_signed(to, from),
            (1, false) => self.e.load_half(to, from),
            (2, true) => self.e.load_word_signed(to, from),
            (2, false) => self.e.load_word(to, from),
            _ => self.e.load(to, from),
        }
        self.write(op.rd(), to);
    }

    fn store(&mut self, op: Op, distance: i32) {
        let size = match op.kind() {
            kind::SB | kind::PRIVATE_SB => 0,
            kind::SH | kind::PRIVATE_SH => 1,
            kind::SW | kind::C_SW | kind::PRIVATE_SW | kind::C_PRIVATE_SW => 2,
            _ => 3,
        };
        self.find_to_store(size, op.rs1(), distance);
        match size {
            0 => {
                self.read_into(RCX, op.rs2());
                self.e.store_byte(FOUND, RCX);
            }
            _ => {
                let from = self.read(op.rs2(), RCX);
                match size {
                    1 => self.e.store_half(FOUND, from),
                    2 => self.e.store_word(FOUND, from),
                    _ => self.e.store(FOUND, from),
                }
            }
        }
    }

    /// Eight numbers that follow each other, as their indices say.
    fn gather(&mut self, raw: u32, numbers: Numbers) {
        let slow = self.slow();
        let indices = float(rs1(raw) as usize);
        self.e.compare_byte(of_hart!(gsc_progress), 0);
        self.e.jump_if(Cond::NotEqual, slow);
        let lanes = self.vector(rs1(raw) as usize, 0);
        self.e.vector_of(Lanes::Eight, Vex::BROADCAST, 1, Rm::Reg(lanes));
        self.e.vector(Lanes::Eight, Vex::SUB_INTEGERS, 1, lanes, Rm::Reg(1));
        self.vector_constant(Vex::XOR, 1, 1, numbers.in_order);
        self.e.vector_of(Lanes::Eight, Vex::TEST, 1, Rm::Reg(1));
        self.e.jump_if(Cond::NotEqual, slow);
        // An index that wraps around leads elsewhere.
        self.e.alu_constant(Width::Word, Alu::Cmp, indices, i32::MAX - 7 * numbers.bytes);
        self.e.jump_if(Cond::Greater, slow);
        self.e.load_word_signed(RAX, indices);
        self.e.alu(Width::Double, Alu::Add, RAX, self.registers.place(rs2(raw) as usize));
        self.gathered(raw, numbers);
    }

    /// Eight bytes of a block, whose indices follow each other.
    fn gather_block(&mut self, raw: u32) {
        let slow = self.slow();
        self.read_into(RAX, rs1(raw) as usize);
        self.e.shift(Width::Double, Shift::Left, RAX, 24);
        self.e.constant(RCX, IN_ORDER);
        self.e.alu(Width::Double, Alu::Cmp, RAX, Rm::Reg(RCX));
        self.e.jump_if(Cond::NotEqual, slow);
        self.read_into(RAX, rs2(raw) as usize);
        self.e.load(RCX, Rm::Reg(RAX));
        self.e.alu_constant(Width::Word, Alu::And, Rm::Reg(RCX), 31);
        self.e.alu_constant(Width::Word, Alu::Cmp, Rm::Reg(RCX), 24);
        self.e.jump_if(Cond::Above, slow);
        self.gathered(raw, BYTES);
    }

    fn gathered(&mut self, raw: u32, numbers: Numbers) {
        let routine = self.thunks.loads[numbers.size];
        self.found_by(routine);
        self.e.vector_of(Lanes::Eight, numbers.widen, 0, FOUND);
        self.put_float(rd(raw) as usize);
    }

    /// An operation on lines of the cache, which mostly does nothing; `false` if the instruction is
    /// another one. Real kernels have them in their innermost loops.
    pub(super) fn lines(&mut self, op: Op) -> bool {
        let Some(register) = line_operation(op) else { return false };
        self.read_into(RAX, op.rs1());
        self.read_into(RCX, STRIDE);
        self.found_by(match register {
            PREFETCH_VA => self.thunks.prefetch,
            _ => self.thunks.write_back,
        });
        true
    }

    /// A vector instruction whose last operand is one of the constants.
    pub(super) fn vector_constant(&mut self, vex: Vex, to: u8, a: u8, constant: i32) {
        self.e.load(RCX, of_context!(constants));
        self.e.vector(Lanes::Eight, vex, to, a, Rm::At(RCX, constant));
    }
}
