//! Routines that all translated code shares.
//!
//! Translated code keeps the hart, the context and the number of instructions left in registers of
//! their own. Accesses pass an effective address and get where the bytes are, with the carry flag
//! set if they are there.

use std::mem::offset_of;

use super::context::{Constants, Context, LINKS, Link, PAGE_SHIFT};
use super::emit::{
    Alu, Cond, Emitter, Label, R8, R9, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP,
    Reg, Rm, Shift, Width,
};
use crate::exec::cache::LINE_MASK;
use crate::machine::hart::Hart;
use crate::memory::map::{SCRATCHPAD_BASE, SCRATCHPAD_BYTES, SHIRES};
use crate::memory::private::{self, Frame};

pub(super) const HART: Reg = RDI;
pub(super) const CONTEXT: Reg = RSI;
pub(super) const LEFT: Reg = R9;

/// A field of the context.
macro_rules! of_context {
    ($field:ident) => {
        Rm::At(
            $crate::native::thunks::CONTEXT,
            $crate::native::thunks::distance(std::mem::offset_of!(
                $crate::native::context::Context,
                $field
            )),
        )
    };
}
pub(super) use of_context;

/// A field of the hart.
macro_rules! of_hart {
    ($($field:ident).+) => {
        Rm::At(
            $crate::native::thunks::HART,
            $crate::native::thunks::distance(std::mem::offset_of!(
                $crate::machine::hart::Hart,
                $($field).+
            )),
        )
    };
}
pub(super) use of_hart;

/// The offset of a field as an operand has it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "fields are near the start"
)]
pub(super) const fn distance(offset: usize) -> i32 {
    offset as i32
}

/// Sizes of accesses: 1, 2, 4, 8 bytes, eight bytes at any address, a register, half of one.
pub(super) const SIZES: usize = 7;
pub(super) const ANY_EIGHT: usize = 4;
pub(super) const REGISTER: usize = 5;
/// Only loaded.
pub(super) const HALF_REGISTER: usize = 6;

/// Offsets of the routines.
#[derive(Clone, Debug, Default)]
pub(super) struct Thunks {
    pub(super) enter: usize,
    pub(super) exit: usize,
    /// Goes on at the address in `rax`, which the hart has as well, if its page has a translation.
    pub(super) depart: usize,
    /// Sets the control word; the zero flag says if that is possible.
    pub(super) compute: usize,
    /// Has the instruction at the position in `rcx` executed; the result is in `rax`.
    pub(super) execute_one: usize,
    pub(super) loads: [usize; SIZES],
    pub(super) stores: [usize; SIZES],
    /// Operations on lines, with the operand in `rax` and the stride in `rcx`: with the carry flag
    /// set if they have nothing to do.
    pub(super) prefetch: usize,
    pub(super) write_back: usize,
}

const SAVED: [Reg; 6] = [RBX, RBP, R12, R13, R14, R15];

/// Writes the routines, which are at the start of the memory for code.
pub(super) fn make(is_private: bool) -> Option<(Vec<u8>, Thunks)> {
    let mut emitter = Emitter::new(0);
    let e = &mut emitter;
    let mut thunks = Thunks { enter: e.here(), ..Thunks::default() };
    enter(e);
    thunks.exit = e.here();
    exit(e);
    thunks.depart = e.here();
    depart(e, thunks.exit);
    thunks.compute = e.here();
    compute(e);
    thunks.execute_one = e.here();
    execute_one(e);
    for size in 0..SIZES {
        thunks.loads[size] = e.here();
        load(e, size, is_private);
        thunks.stores[size] = e.here();
        if !matches!(size, ANY_EIGHT | HALF_REGISTER) {
            store(e, size, is_private);
        }
    }
    thunks.prefetch = e.here();
    prefetch(e);
    thunks.write_back = e.here();
    write_back(e, is_private);
    Some((emitter.finish()?, thunks))
}

/// Arguments: hart, context, instructions left, the prologue of the page, where to start.
fn enter(e: &mut Emitter) {
    for register in SAVED {
        e.push(register);
    }
    // The stack is aligned to 16 bytes where calls are made.
    e.alu_constant(Width::Double, Alu::Sub, Rm::Reg(RSP), 8);
    e.load(LEFT, Rm::Reg(RDX));
    // The fourth and fifth argument are in rcx and r8; the fifth is used by the prologue.
    let skip = e.label();
    e.alu_constant(Width::Word, Alu::Cmp, of_context!(computes), 0);
    e.jump_if(Cond::Equal, skip);
    e.store_control(of_context!(control_outside));
    e.load_control(of_context!(control));
    e.bind(skip);
    e.jump_at(Rm::Reg(RCX));
}

fn exit(e: &mut Emitter) {
    e.store(of_hart!(left), LEFT);
    let skip = e.label();
    e.alu_constant(Width::Word, Alu::Cmp, of_context!(computes), 0);
    e.jump_if(Cond::Equal, skip);
    e.store_control(of_context!(control_after));
    e.load_control(of_context!(control_outside));
    e.bind(skip);
    e.zero_upper();
    e.alu_constant(Width::Double, Alu::Add, Rm::Reg(RSP), 8);
    for register in SAVED.into_iter().rev() {
        e.pop(register);
    }
    e.ret();
}

fn depart(e: &mut Emitter, exit: usize) {
    /// A field of the link.
    macro_rules! of_link {
        ($field:ident) => {
            Rm::At(RDX, distance(offset_of!(Link, $field)))
        };
    }
    let none = e.label();
    e.load(RCX, Rm::Reg(RAX));
    e.alu_constant(Width::Double, Alu::And, Rm::Reg(RCX), -(1 << PAGE_SHIFT));
    e.load(RDX, Rm::Reg(RAX));
    e.shift(Width::Double, Shift::Right, RDX, PAGE_SHIFT);
    e.alu_constant(Width::Word, Alu::And, Rm::Reg(RDX), distance(LINKS) - 1);
    e.multiply_constant(RDX, Rm::Reg(RDX), distance(size_of::<Link>()));
    e.lea(RDX, Rm::Indexed(CONTEXT, RDX, 0, distance(offset_of!(Context, links))));
    e.alu(Width::Double, Alu::Cmp, RCX, of_link!(address));
    e.jump_if(Cond::NotEqual, none);
    e.load(R8, of_link!(current));
    e.load_word(R8, Rm::At(R8, 0));
    e.alu(Width::Word, Alu::Cmp, R8, of_link!(translation));
    e.jump_if(Cond::NotEqual, none);
    e.load(R8, of_context!(epoch));
    e.load(R8, Rm::At(R8, 0));
    e.alu(Width::Double, Alu::Cmp, R8, of_link!(epoch));
    e.jump_if(Cond::NotEqual, none);
    e.alu(Width::Double, Alu::Sub, RAX, Rm::Reg(RCX));
    e.load(R8, of_link!(starts));
    e.load_word(R8, Rm::Indexed(R8, RAX, 1, 0));
    e.test(Width::Word, R8, R8);
    e.jump_if(Cond::Equal, none);
    e.store(of_context!(base), RCX);
    e.load(RCX, of_link!(page));
    e.store(of_context!(page), RCX);
    e.load_word(RCX, of_link!(translation));
    e.store_word(of_context!(translation), RCX);
    e.store_word(of_hart!(resume.translation), RCX);
    e.alu(Width::Double, Alu::Add, R8, of_context!(code));
    e.load(RCX, of_link!(prologue));
    e.jump_at(Rm::Reg(RCX));
    e.bind(none);
    e.jump_offset(exit);
}

fn compute(e: &mut Emitter) {
    let refuse = e.label();
    // The rounding mode.
    e.test_byte(of_hart!(fcsr), 0xE0);
    e.jump_if(Cond::NotEqual, refuse);
    e.store_control(of_context!(control_outside));
    e.load_control(of_context!(control));
    e.store_constant(of_context!(computes), 1);
    e.bind(refuse);
    e.ret();
}

fn execute_one(e: &mut Emitter) {
    // With the two return addresses the stack is aligned after an even number.
    for register in [HART, CONTEXT, LEFT, RAX] {
        e.push(register);
    }
    e.zero_upper();
    e.load(RDX, Rm::Reg(RCX));
    e.call_at(of_context!(execute_one));
    e.pop(RCX);
    for register in [LEFT, CONTEXT, HART] {
        e.pop(register);
    }
    e.ret();
}

/// Tests the alignment of the address in `rax`.
fn aligned(e: &mut Emitter, size: usize, fail: Label) {
    let bits = match size {
        ANY_EIGHT => return,
        REGISTER | HALF_REGISTER => 7,
        size => (1_u8 << size) - 1,
    };
    if bits != 0 {
        e.test_byte(Rm::Reg(RAX), bits);
        e.jump_if(Cond::NotEqual, fail);
    }
}

/// Bytes that an access of a size has behind those that its alignment answers for.
fn excess(size: usize) -> i32 {
    match size {
        ANY_EIGHT => 7,
        REGISTER => 24,
        HALF_REGISTER => 8,
        _ => 0,
    }
}

/// Leads an address in `rax` to memory itself, of which there are so many bytes, and returns from
/// the routine.
fn to_memory(e: &mut Emitter, size: usize, bytes: Rm, fail: Label) {
    aligned(e, size, fail);
    e.alu(Width::Double, Alu::Sub, RAX, of_context!(memory_base));
    // Addresses below become large.
    if excess(size) != 0 {
        e.lea(RCX, Rm::At(RAX, excess(size)));
        e.alu(Width::Double, Alu::Cmp, RCX, bytes);
        e.jump_if(Cond::NotBelow, fail);
    }
    e.alu(Width::Double, Alu::Cmp, RAX, bytes);
    e.jump_if(Cond::NotBelow, fail);
    e.alu(Width::Double, Alu::Add, RAX, of_context!(memory));
    e.set_carry();
    e.ret();
}

/// Makes stores to code, or close before it, fail.
fn beside_code(e: &mut Emitter, fail: Label) {
    let beside = e.label();
    e.lea(RCX, Rm::At(RAX, 32));
    e.load(RDX, of_context!(code_low));
    e.alu(Width::Double, Alu::Cmp, RCX, Rm::At(RDX, 0));
    e.jump_if(Cond::Below, beside);
    e.load(RDX, of_context!(code_high));
    e.alu(Width::Double, Alu::Cmp, RAX, Rm::At(RDX, 0));
    e.jump_if(Cond::Below, fail);
    e.bind(beside);
}

/// Tests whether the address in `rax` is near stacks. Goes on if not.
fn near_stacks(e: &mut Emitter, size: usize, stacked: Label) {
    e.load(RCX, Rm::Reg(RAX));
    if size >= ANY_EIGHT {
        // Any byte of the access.
        e.alu(Width::Double, Alu::Sub, RCX, of_context!(near_stacks_low));
        e.alu(Width::Double, Alu::Cmp, RCX, of_context!(near_stacks_span));
    } else {
        e.alu(Width::Double, Alu::Sub, RCX, of_context!(stacks_low));
        e.alu(Width::Double, Alu::Cmp, RCX, of_context!(stacks_span));
    }
    e.jump_if(Cond::Below, stacked);
}

/// Makes accesses to guarded memory of stacks fail, and those that are not whole in stacks.
fn guarded(e: &mut Emitter, size: usize, fail: Label) {
    e.load(RCX, Rm::Reg(RAX));
    e.alu(Width::Double, Alu::Sub, RCX, of_context!(stacks_low));
    if size >= ANY_EIGHT {
        e.alu(Width::Double, Alu::Cmp, RCX, of_context!(stacks_span_wide));
        e.jump_if(Cond::NotBelow, fail);
        e.lea(RDX, Rm::At(RCX, 31));
        e.multiply(Width::Double, RDX, of_context!(stacks_inverse));
        e.alu(Width::Double, Alu::Cmp, RDX, of_context!(stacks_guarded));
        e.jump_if(Cond::Below, fail);
    }
    e.multiply(Width::Double, RCX, of_context!(stacks_inverse));
    e.alu(Width::Double, Alu::Cmp, RCX, of_context!(stacks_guarded));
    e.jump_if(Cond::Below, fail);
}

/// The end of a routine where an access fails.
fn failing(e: &mut Emitter, fail: Label) {
    e.bind(fail);
    e.clear_carry();
    e.ret();
}

/// Finds the frame of the address in `rax` in a table with an entry for each of so many pages: it
/// gets to `r8`, the byte in it to `rcx`, and its group of lines to `rdx`.
fn frame(e: &mut Emitter, size: usize, (pages, count): (Rm, Rm), fail: Label, not_frame_0: bool) {
    aligned(e, size, fail);
    e.load(RCX, Rm::Reg(RAX));
    e.alu(Width::Double, Alu::Sub, RCX, of_context!(dram_base));
    e.load(RDX, Rm::Reg(RCX));
    e.shift(Width::Double, Shift::Right, RDX, PAGE_SHIFT);
    e.alu(Width::Double, Alu::Cmp, RDX, count);
    e.jump_if(Cond::NotBelow, fail);
    e.load(R8, pages);
    e.load_half(R8, Rm::Indexed(R8, RDX, 1, 0));
    if not_frame_0 {
        e.test(Width::Word, R8, R8);
        e.jump_if(Cond::Equal, fail);
    }
    e.multiply_constant(R8, Rm::Reg(R8), distance(size_of::<Frame>()));
    e.alu(Width::Double, Alu::Add, R8, of_context!(frames));
    e.alu_constant(Width::Word, Alu::And, Rm::Reg(RCX), 0xFFF);
    e.load_word(RDX, Rm::Reg(RCX));
    e.shift(Width::Word, Shift::Right, RDX, 9);
}

fn load(e: &mut Emitter, size: usize, is_private: bool) {
    let (fail, stacked, plain) = (e.label(), e.label(), e.label());
    near_stacks(e, size, stacked);
    if !is_private {
        e.bind(plain);
        to_memory(e, size, of_context!(memory_bytes), fail);
        e.bind(stacked);
        guarded(e, size, fail);
        e.jump(plain);
        return failing(e, fail);
    }
    let pages = (of_context!(load_pages), of_context!(page_count));
    frame(e, size, pages, fail, false);
    e.load(RDX, Rm::Indexed(R8, RDX, 3, private::offsets::VALID));
    if size < ANY_EIGHT {
        e.lea(RAX, Rm::Indexed(R8, RCX, 0, private::offsets::BYTES));
        e.shift(Width::Word, Shift::Right, RCX, 3);
        // The carry flag is the answer.
        e.test_bit(RDX, RCX);
        e.ret();
    } else {
        if size == ANY_EIGHT {
            // All of it in one group of lines.
            e.load_word(RAX, Rm::Reg(RCX));
            e.alu_constant(Width::Word, Alu::And, Rm::Reg(RAX), 0x1FF);
            e.alu_constant(Width::Word, Alu::Cmp, Rm::Reg(RAX), 512 - 8);
            e.jump_if(Cond::Above, fail);
        }
        e.lea(RAX, Rm::Indexed(R8, RCX, 0, private::offsets::BYTES));
        if size != ANY_EIGHT {
            // Words behind the last one of the group count as not there.
            e.shift(Width::Word, Shift::Right, RCX, 3);
            e.shift_by(Width::Double, Shift::Right, RDX, Rm::Reg(RDX), RCX);
            e.alu_constant(Width::Word, Alu::Xor, Rm::Reg(RDX), -1);
            e.test_byte(Rm::Reg(RDX), if size == REGISTER { 0xF } else { 3 });
            e.jump_if(Cond::NotEqual, fail);
            e.set_carry();
            e.ret();
        } else {
            // The word of the first byte and that of the last one.
            e.lea(R8, Rm::At(RCX, 7));
            e.shift(Width::Word, Shift::Right, RCX, 3);
            e.test_bit(RDX, RCX);
            e.jump_if(Cond::NotBelow, fail);
            e.shift(Width::Word, Shift::Right, R8, 3);
            e.test_bit(RDX, R8);
            e.ret();
        }
    }
    e.bind(stacked);
    guarded(e, size, fail);
    to_memory(e, size, of_context!(stack_bytes), fail);
    failing(e, fail);
}

fn store(e: &mut Emitter, size: usize, is_private: bool) {
    const DOUBLE: usize = 3;
    let (fail, stacked, plain) = (e.label(), e.label(), e.label());
    near_stacks(e, size, stacked);
    if !is_private {
        e.bind(plain);
        beside_code(e, fail);
        to_memory(e, size, of_context!(memory_bytes), fail);
        e.bind(stacked);
        guarded(e, size, fail);
        e.jump(plain);
        return failing(e, fail);
    }
    let pages = (of_context!(store_pages), of_context!(store_page_count));
    frame(e, size, pages, fail, size >= DOUBLE);
    match size {
        REGISTER => {
            // All of it in one line.
            e.load_word(RAX, Rm::Reg(RCX));
            e.alu_constant(Width::Word, Alu::And, Rm::Reg(RAX), 63);
            e.alu_constant(Width::Word, Alu::Cmp, Rm::Reg(RAX), 32);
            e.jump_if(Cond::Above, fail);
            e.lea(RDX, Rm::Indexed(R8, RDX, 3, 0));
            e.lea(RAX, Rm::Indexed(R8, RCX, 0, private::offsets::BYTES));
            e.shift(Width::Word, Shift::Right, RCX, 3);
            e.constant(R8, 0xF);
            e.shift_by(Width::Double, Shift::Left, R8, Rm::Reg(R8), RCX);
            e.alu_to(Width::Double, Alu::Or, Rm::At(RDX, private::offsets::VALID), R8);
            e.alu_to(Width::Double, Alu::Or, Rm::At(RDX, private::offsets::WRITTEN), R8);
        }
        DOUBLE => {
            e.lea(RDX, Rm::Indexed(R8, RDX, 3, 0));
            e.lea(RAX, Rm::Indexed(R8, RCX, 0, private::offsets::BYTES));
            e.shift(Width::Word, Shift::Right, RCX, 3);
            for field in [private::offsets::VALID, private::offsets::WRITTEN] {
                e.load(R8, Rm::At(RDX, field));
                e.set_bit(R8, RCX);
                e.store(Rm::At(RDX, field), R8);
            }
        }
        _ => {
            e.load(RDX, Rm::Indexed(R8, RDX, 3, private::offsets::VALID));
            e.load_word(RAX, Rm::Reg(RCX));
            e.shift(Width::Word, Shift::Right, RAX, 3);
            e.test_bit(RDX, RAX);
            e.jump_if(Cond::NotBelow, fail);
            e.constant(RDX, (1 << (1_u64 << size)) - 1);
            e.shift_by(Width::Double, Shift::Left, RDX, Rm::Reg(RDX), RCX);
            e.load_word(RAX, Rm::Reg(RCX));
            e.shift(Width::Word, Shift::Right, RAX, 6);
            let part = Rm::Indexed(R8, RAX, 3, private::offsets::PARTS);
            e.alu_to(Width::Double, Alu::Or, part, RDX);
            e.load(RDX, Rm::At(R8, private::offsets::HAS_PARTS));
            e.set_bit(RDX, RAX);
            e.store(Rm::At(R8, private::offsets::HAS_PARTS), RDX);
            e.lea(RAX, Rm::Indexed(R8, RCX, 0, private::offsets::BYTES));
        }
    }
    e.set_carry();
    e.ret();
    e.bind(stacked);
    guarded(e, size, fail);
    beside_code(e, fail);
    to_memory(e, size, of_context!(stack_bytes), fail);
    failing(e, fail);
}

const _: () = assert!(size_of::<Hart>() < 1 << 16 && size_of::<Context>() < 1 << 12);
const _: () = assert!(offset_of!(Constants, ones) == 0);

/// Makes operations fail whose lines a mask chooses.
fn unmasked(e: &mut Emitter, fail: Label) {
    e.load(RDX, Rm::Reg(RAX));
    e.shift(Width::Double, Shift::Right, RDX, 63);
    e.jump_if(Cond::NotEqual, fail);
}

/// Leads an operand in `rax` to its first line, and to its last one in `rdx`; the distance between
/// lines stays in `rcx`. Makes those fail that are not all memory.
fn lines(e: &mut Emitter, fail: Label) {
    e.load_word(RDX, Rm::Reg(RAX));
    e.alu_constant(Width::Word, Alu::And, Rm::Reg(RDX), 15);
    e.constant(R8, LINE_MASK);
    e.alu(Width::Double, Alu::And, RAX, Rm::Reg(R8));
    e.alu(Width::Double, Alu::And, RCX, Rm::Reg(R8));
    e.multiply(Width::Double, RDX, Rm::Reg(RCX));
    e.alu(Width::Double, Alu::Add, RDX, Rm::Reg(RAX));
    // Strides are not negative, and far from wrapping around.
    for line in [RAX, RDX] {
        e.load(R8, Rm::Reg(line));
        e.alu(Width::Double, Alu::Sub, R8, of_context!(memory_base));
        e.alu(Width::Double, Alu::Cmp, R8, of_context!(memory_bytes));
        e.jump_if(Cond::NotBelow, fail);
    }
}

/// To fetch memory early does nothing.
fn prefetch(e: &mut Emitter) {
    let fail = e.label();
    unmasked(e, fail);
    lines(e, fail);
    e.set_carry();
    e.ret();
    failing(e, fail);
}

/// To write back or evict does nothing if it is from the first level to the second, which all harts
/// of a shire share; and if none of the pages is in the cache.
fn write_back(e: &mut Emitter, is_private: bool) {
    const LEVEL: u8 = 58;
    const ONE_SHIRE: u8 = 23;
    const OWN_SHIRE: i32 = 0x7F;
    let (fail, deep, memory, inside) = (e.label(), e.label(), e.label(), e.label());
    unmasked(e, fail);
    e.load(RDX, Rm::Reg(RAX));
    e.shift(Width::Double, Shift::Right, RDX, LEVEL);
    e.alu_constant(Width::Word, Alu::And, Rm::Reg(RDX), 3);
    e.alu_constant(Width::Word, Alu::Cmp, Rm::Reg(RDX), 1);
    e.jump_if(Cond::Above, deep);
    // Mostly it is one line of a scratchpad.
    e.test_byte(Rm::Reg(RAX), 15);
    e.jump_if(Cond::NotEqual, memory);
    e.constant(R8, LINE_MASK);
    e.alu(Width::Double, Alu::And, R8, Rm::Reg(RAX));
    e.constant(RDX, SCRATCHPAD_BASE);
    e.alu(Width::Double, Alu::Sub, R8, Rm::Reg(RDX));
    e.load(RDX, Rm::Reg(R8));
    e.shift(Width::Double, Shift::Right, RDX, ONE_SHIRE);
    e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(RDX), OWN_SHIRE);
    e.jump_if(Cond::Equal, inside);
    e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(RDX), SHIRES.cast_signed());
    e.jump_if(Cond::NotBelow, memory);
    e.bind(inside);
    e.alu_constant(Width::Word, Alu::And, Rm::Reg(R8), (1 << ONE_SHIRE) - 1);
    e.constant(RDX, SCRATCHPAD_BYTES);
    e.alu(Width::Double, Alu::Cmp, R8, Rm::Reg(RDX));
    e.jump_if(Cond::NotBelow, fail);
    e.set_carry();
    e.ret();
    e.bind(memory);
    lines(e, fail);
    e.set_carry();
    e.ret();
    e.bind(deep);
    lines(e, fail);
    if is_private {
        // The page may be there by the time that it has its turn.
        e.alu_constant(Width::Word, Alu::Cmp, of_context!(is_ahead), 0);
        e.jump_if(Cond::NotEqual, fail);
        // What lies between the first and the last line must not be a third page.
        e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(RCX), 64);
        e.jump_if(Cond::NotEqual, fail);
        e.load(R8, of_context!(pages));
        for line in [RAX, RDX] {
            e.alu(Width::Double, Alu::Sub, line, of_context!(dram_base));
            e.shift(Width::Double, Shift::Right, line, 12);
            e.load_half(line, Rm::Indexed(R8, line, 1, 0));
            e.test(Width::Word, line, line);
            e.jump_if(Cond::NotEqual, fail);
        }
    }
    e.set_carry();
    e.ret();
    failing(e, fail);
}
