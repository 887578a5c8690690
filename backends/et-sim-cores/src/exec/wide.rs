//! Handlers of the most frequent packed instructions, compiled for the vector instructions of the
//! processor at hand. What is not the common case goes to the handler of all packed instructions.

#![expect(unsafe_code, reason = "calls of functions for processor features that were detected")]

use et_isa::operand;

use crate::decode::op::{Op, kind};
use crate::decode::rs1;
use crate::exec::avx2::Zeros;
use crate::exec::packed;
use crate::exec::{Env, Ops, avx2, float, next};
use crate::float::inexact_mul_add;
use crate::float::soft::{NX, SIGN};
use crate::float::wide::has_avx2;
use crate::machine::hart::{Hart, Vector};

/// The handler of all packed instructions; apart, so that what is common needs no stack.
#[cold]
#[inline(never)]
pub(super) fn otherwise<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    float::packed::<LEN>(hart, env, ops, at, left, op);
}

/// Defines handlers, with the instruction at hand: what is tried, and, if that is worth while, what
/// is tried then.
macro_rules! handlers {
    ($($name:ident, $wide:ident $(, $again:ident)?: |$hart:ident, $env:ident, $raw:ident|
        $done:expr $(, $second:expr)?;)*) => {
        $(
            #[target_feature(enable = "avx2,fma")]
            fn $wide<const LEN: usize>(
                $hart: &mut Hart,
                $env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                op: Op,
            ) {
                let $raw = op.raw();
                if $done {
                    return next($hart, $env, ops, at + LEN, left);
                }
                $(return $again::<LEN>($hart, $env, ops, at, left, op);)?
                #[allow(unreachable_code, reason = "there may be a second attempt")]
                otherwise::<LEN>($hart, $env, ops, at, left, op);
            }

            $(
                // Apart, so that what is common needs no stack.
                #[inline(never)]
                #[target_feature(enable = "avx2,fma")]
                fn $again<const LEN: usize>(
                    $hart: &mut Hart,
                    $env: &Env<'_>,
                    ops: &Ops,
                    at: usize,
                    left: u64,
                    op: Op,
                ) {
                    let $raw = op.raw();
                    if $second {
                        return next($hart, $env, ops, at + LEN, left);
                    }
                    otherwise::<LEN>($hart, $env, ops, at, left, op);
                }
            )?

            pub(crate) fn $name<const LEN: usize>(
                hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                op: Op,
            ) {
                debug_assert!(has_avx2(), "no such operation is decoded without");
                // SAFETY: the processor has the features that the function is compiled for, or no
                // operation would have been decoded to one of these kinds.
                unsafe { $wide::<LEN>(hart, env, ops, at, left, op) }
            }
        )*
    };
}
pub(super) use handlers;

handlers! {
    fused, fused_wide, fused_again: |hart, _env, raw|
        avx2::fused(hart, raw, Zeros::Doubted), avx2::fused(hart, raw, Zeros::Examined);
    fused_signed, fused_signed_wide, fused_signed_again: |hart, _env, raw|
        avx2::fused_signed(hart, raw, Zeros::Doubted),
        avx2::fused_signed(hart, raw, Zeros::Examined);
    sum, sum_wide: |hart, _env, raw| avx2::sum(hart, raw);
    difference, difference_wide: |hart, _env, raw| avx2::difference(hart, raw);
    product, product_wide: |hart, _env, raw| avx2::product(hart, raw);
    from_integers, from_integers_wide: |hart, _env, raw| avx2::from_integers(hart, raw);
    from_halves, from_halves_wide: |hart, _env, raw| avx2::from_halves(hart, raw);
    swizzle, swizzle_wide: |hart, _env, raw| avx2::swizzle(hart, raw);
    spread, spread_wide: |hart, _env, raw|
        avx2::constant(hart, raw, packed::low(hart.x[rs1(raw) as usize]));
    short_float, short_float_wide: |hart, _env, raw|
        avx2::constant(hart, raw, packed::short_float(raw >> 12));
    short_integer, short_integer_wide: |hart, _env, raw|
        avx2::constant(hart, raw, operand::IMM20.value(raw).cast_unsigned());
    mask, mask_wide: |hart, _env, raw| avx2::mask(hart, raw);
    shift, shift_wide: |hart, _env, raw| avx2::shift(hart, raw);
}

/// Defines handlers of scalar fused operations: which signs of product and addend are flipped, and
/// the kind under which everything but the common case is executed.
macro_rules! scalar {
    ($($name:ident, $wide:ident, $kind:ident: $product:expr, $addend:expr;)*) => {
        $(
            #[target_feature(enable = "avx2,fma")]
            fn $wide<const LEN: usize>(
                hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                op: Op,
            ) {
                let register = |number: usize| hart.f[number & 31].0[0];
                let (a, b) = (register(op.rs1()) ^ $product, register(op.rs2()));
                let c = register((op.raw() >> 8) as usize) ^ $addend;
                let is_usual = hart.fcsr & (op.raw() & 0xE0 | NX) == NX;
                if is_usual && let Some(bits) = inexact_mul_add(a, b, c) {
                    hart.f[op.rd() & 31] = Vector::scalar(bits);
                    return next(hart, env, ops, at + LEN, left);
                }
                float::$name::<LEN>(hart, env, ops, at, left, op.with_kind(kind::$kind));
            }

            pub(crate) fn $name<const LEN: usize>(
                hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                op: Op,
            ) {
                debug_assert!(has_avx2(), "no such operation is decoded without");
                // SAFETY: as above.
                unsafe { $wide::<LEN>(hart, env, ops, at, left, op) }
            }
        )*
    };
}

scalar! {
    fmadd, fmadd_wide, FMADD: 0, 0;
    fmsub, fmsub_wide, FMSUB: 0, SIGN;
    fnmsub, fnmsub_wide, FNMSUB: SIGN, 0;
    fnmadd, fnmadd_wide, FNMADD: SIGN, SIGN;
}
