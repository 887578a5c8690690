//! Handlers of integer arithmetic.

use crate::decode::op::Op;
use crate::exec::{Env, Ops, next};
use crate::machine::hart::Hart;

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "word instructions use the low half")]
fn low(value: u64) -> u32 {
    value as u32
}

#[inline(always)]
fn sext(value: u32) -> u64 {
    i64::from(value.cast_signed()).cast_unsigned()
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the high half is what is left")]
fn high(product: i128) -> u64 {
    (product >> 64).cast_unsigned() as u64
}

#[inline(always)]
fn wide(value: u64) -> i128 {
    value.cast_signed().into()
}

/// Defines handlers that compute one register from a register and the immediate.
macro_rules! immediate {
    ($($name:ident($a:ident, $op:ident) = $value:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            $op: Op,
        ) {
            let $a = hart.x[$op.rs1()];
            hart.x[$op.rd()] = $value;
            next(hart, env, ops, at + LEN, left);
        })*
    };
}

/// Defines handlers that compute one register from two.
macro_rules! register {
    ($($name:ident($a:ident, $b:ident) = $value:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            op: Op,
        ) {
            let ($a, $b) = (hart.x[op.rs1()], hart.x[op.rs2()]);
            hart.x[op.rd()] = $value;
            next(hart, env, ops, at + LEN, left);
        })*
    };
}

immediate! {
    addi(a, op) = a.wrapping_add(op.imm());
    slti(a, op) = u64::from(a.cast_signed() < op.imm().cast_signed());
    sltiu(a, op) = u64::from(a < op.imm());
    xori(a, op) = a ^ op.imm();
    ori(a, op) = a | op.imm();
    andi(a, op) = a & op.imm();
    slli(a, op) = a << (op.raw() & 63);
    srli(a, op) = a >> (op.raw() & 63);
    srai(a, op) = (a.cast_signed() >> (op.raw() & 63)).cast_unsigned();
    addiw(a, op) = sext(low(a).wrapping_add(op.raw()));
    slliw(a, op) = sext(low(a) << (op.raw() & 31));
    srliw(a, op) = sext(low(a) >> (op.raw() & 31));
    sraiw(a, op) = sext((low(a).cast_signed() >> (op.raw() & 31)).cast_unsigned());
}

register! {
    add(a, b) = a.wrapping_add(b);
    sub(a, b) = a.wrapping_sub(b);
    sll(a, b) = a << (b & 63);
    slt(a, b) = u64::from(a.cast_signed() < b.cast_signed());
    sltu(a, b) = u64::from(a < b);
    xor(a, b) = a ^ b;
    srl(a, b) = a >> (b & 63);
    sra(a, b) = (a.cast_signed() >> (b & 63)).cast_unsigned();
    or(a, b) = a | b;
    and(a, b) = a & b;
    addw(a, b) = sext(low(a).wrapping_add(low(b)));
    subw(a, b) = sext(low(a).wrapping_sub(low(b)));
    sllw(a, b) = sext(low(a) << (b & 31));
    srlw(a, b) = sext(low(a) >> (b & 31));
    sraw(a, b) = sext((low(a).cast_signed() >> (b & 31)).cast_unsigned());
    mul(a, b) = a.wrapping_mul(b);
    mulh(a, b) = high(wide(a) * wide(b));
    mulhsu(a, b) = high(wide(a) * i128::from(b));
    mulhu(a, b) = high((u128::from(a) * u128::from(b)).cast_signed());
    div(a, b) = div_signed(a, b);
    divu(a, b) = a.checked_div(b).unwrap_or(u64::MAX);
    rem(a, b) = rem_signed(a, b);
    remu(a, b) = a.checked_rem(b).unwrap_or(a);
    mulw(a, b) = sext(low(a).wrapping_mul(low(b)));
    divw(a, b) = sext(div_word(low(a), low(b)));
    divuw(a, b) = sext(low(a).checked_div(low(b)).unwrap_or(u32::MAX));
    remw(a, b) = sext(rem_word(low(a), low(b)));
    remuw(a, b) = sext(low(a).checked_rem(low(b)).unwrap_or(low(a)));
    packb(a, b) = a & 0xFF | (b & 0xFF) << 8;
}

#[inline(always)]
fn div_signed(a: u64, b: u64) -> u64 {
    let (a, b) = (a.cast_signed(), b.cast_signed());
    (if b == 0 { -1 } else { a.wrapping_div(b) }).cast_unsigned()
}

#[inline(always)]
fn rem_signed(a: u64, b: u64) -> u64 {
    let (a, b) = (a.cast_signed(), b.cast_signed());
    (if b == 0 { a } else { a.wrapping_rem(b) }).cast_unsigned()
}

#[inline(always)]
fn div_word(a: u32, b: u32) -> u32 {
    let (a, b) = (a.cast_signed(), b.cast_signed());
    (if b == 0 { -1 } else { a.wrapping_div(b) }).cast_unsigned()
}

#[inline(always)]
fn rem_word(a: u32, b: u32) -> u32 {
    let (a, b) = (a.cast_signed(), b.cast_signed());
    (if b == 0 { a } else { a.wrapping_rem(b) }).cast_unsigned()
}

pub(crate) fn lui<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    hart.x[op.rd()] = op.imm();
    next(hart, env, ops, at + LEN, left);
}

pub(crate) fn auipc<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    hart.x[op.rd()] = env.address(at).wrapping_add(op.imm());
    next(hart, env, ops, at + LEN, left);
}
