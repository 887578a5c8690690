//! Handlers of floating-point and packed instructions.

use crate::decode::op::Op;
use crate::decode::rs1;
use crate::exec::control::{delegate, stop_noted};
use crate::exec::packed as vectors;
use crate::exec::slow_float;
use crate::exec::{Env, Ops, next, stop};
use crate::float::soft::SIGN;
use crate::float::{self, Compare, Pick};
use crate::machine::hart::{Hart, Vector};

/// Register number of an operand.
macro_rules! f {
    ($hart:ident, $op:ident, $register:ident) => {
        $hart.f[$op.$register() & 31].0[0]
    };
}

/// Defines handlers of arithmetic: the fast path, if the rounding mode is the usual one and it
/// gives a result, otherwise the slow path.
macro_rules! arithmetic {
    ($($name:ident($hart:ident, $op:ident) = $fast:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            $hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            $op: Op,
        ) {
            if $hart.fcsr & $op.raw() & 0xE0 == 0
                && let Some(bits) = $fast
            {
                $hart.f[$op.rd() & 31] = Vector::scalar(bits);
                return next($hart, env, ops, at + LEN, left);
            }
            slow_arithmetic($hart, env, ops, at, left, $op);
        })*
    };
}

arithmetic! {
    fadd(hart, op) =
        float::fast_add(f!(hart, op, rs1), f!(hart, op, rs2), &mut hart.fcsr);
    fsub(hart, op) =
        float::fast_add(f!(hart, op, rs1), f!(hart, op, rs2) ^ SIGN, &mut hart.fcsr);
    fmul(hart, op) =
        float::fast_mul(f!(hart, op, rs1), f!(hart, op, rs2), &mut hart.fcsr);
    fmadd(hart, op) =
        fused(hart, op, 0, 0);
    fmsub(hart, op) =
        fused(hart, op, 0, SIGN);
    fnmsub(hart, op) =
        fused(hart, op, SIGN, 0);
    fnmadd(hart, op) =
        fused(hart, op, SIGN, SIGN);
}

/// A fused operation with the signs of product and addend flipped as given.
#[inline(always)]
fn fused(hart: &mut Hart, op: Op, product: u32, addend: u32) -> Option<u32> {
    let (a, b) = (f!(hart, op, rs1), f!(hart, op, rs2));
    let c = hart.f[(op.raw() >> 8 & 31) as usize].0[0];
    float::fast_mul_add(a ^ product, b, c ^ addend, &mut hart.fcsr)
}

#[cold]
#[inline(never)]
fn slow_arithmetic(hart: &mut Hart, env: &Env<'_>, ops: &Ops, at: usize, left: u64, op: Op) {
    match slow_float::arithmetic(hart, env.core, op, env.address(at)) {
        Ok(bits) => {
            hart.f[op.rd() & 31] = Vector::scalar(bits);
            next(hart, env, ops, at + op.halfwords(), left);
        }
        Err(event) => stop(hart, env, at, left, op, event),
    }
}

/// Defines handlers that write a floating-point register and cannot fail.
macro_rules! scalar {
    ($($name:ident($hart:ident, $op:ident) = $bits:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            $hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            $op: Op,
        ) {
            $hart.f[$op.rd() & 31] = Vector::scalar($bits);
            next($hart, env, ops, at + LEN, left);
        })*
    };
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is moved")]
#[inline(always)]
fn low(value: u64) -> u32 {
    value as u32
}

scalar! {
    fsgnj(hart, op) = f!(hart, op, rs1) & !SIGN | f!(hart, op, rs2) & SIGN;
    fsgnjn(hart, op) = f!(hart, op, rs1) & !SIGN | !f!(hart, op, rs2) & SIGN;
    fsgnjx(hart, op) = f!(hart, op, rs1) ^ f!(hart, op, rs2) & SIGN;
    fmv_w_x(hart, op) = low(hart.x[op.rs1()]);
    fmin(hart, op) = pick(hart, op, Pick::Smaller);
    fmax(hart, op) = pick(hart, op, Pick::Larger);
}

#[inline(always)]
fn pick(hart: &mut Hart, op: Op, pick: Pick) -> u32 {
    let (a, b) = (f!(hart, op, rs1), f!(hart, op, rs2));
    float::min_max(a, b, pick, &mut hart.fcsr)
}

/// Defines handlers that write an integer register and cannot fail.
macro_rules! integer {
    ($($name:ident($hart:ident, $op:ident) = $value:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            $hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            $op: Op,
        ) {
            $hart.x[$op.rd()] = $value;
            next($hart, env, ops, at + LEN, left);
        })*
    };
}

#[inline(always)]
fn compare(hart: &mut Hart, op: Op, compare: Compare) -> u64 {
    let (a, b) = (f!(hart, op, rs1), f!(hart, op, rs2));
    float::compare(a, b, compare, &mut hart.fcsr).into()
}

integer! {
    fmv_x_w(hart, op) = i64::from(f!(hart, op, rs1).cast_signed()).cast_unsigned();
    feq(hart, op) = compare(hart, op, Compare::Equal);
    flt(hart, op) = compare(hart, op, Compare::Less);
    fle(hart, op) = compare(hart, op, Compare::LessOrEqual);
}

/// Defines handlers that only change the hart.
macro_rules! change {
    ($($name:ident($hart:ident, $op:ident) = $change:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            $hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            $op: Op,
        ) {
            $change;
            next($hart, env, ops, at + LEN, left);
        })*
    };
}

change! {
    set_one_mask(hart, op) = vectors::set_one_mask(hart, op.raw());
    get_masks(hart, op) = hart.x[op.rd()] = hart.masks;
    set_masks(hart, op) = hart.masks = hart.x[rs1(op.raw()) as usize];
}

delegate! {
    other = slow_float::other;
    packed = vectors::execute;
}
