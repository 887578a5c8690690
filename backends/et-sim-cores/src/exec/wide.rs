//! Handlers of the most frequent packed instructions, compiled for the vector instructions of the
//! processor at hand. What is not the common case goes to the handler of all packed instructions.

#![expect(unsafe_code, reason = "calls of functions for processor features that were detected")]

use et_isa::operand;

use crate::decode::op::Op;
use crate::decode::{imm_i, imm_s, rd, rs1, rs2};
use crate::exec::packed::{self, Form};
use crate::exec::{Env, Ops, avx2, float, next, packed_memory};
use crate::float::soft::SIGN;
use crate::float::wide::has_avx2;
use crate::machine::hart::Hart;

/// The handler of all packed instructions; apart, so that what is common needs no stack.
#[cold]
#[inline(never)]
fn otherwise<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    float::packed::<LEN>(hart, env, ops, at, left, op);
}

/// Defines handlers: what is tried, with the instruction at hand.
macro_rules! handlers {
    ($($name:ident, $wide:ident: |$hart:ident, $env:ident, $raw:ident| $done:expr;)*) => {
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
                otherwise::<LEN>($hart, $env, ops, at, left, op);
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
                // SAFETY: the processor has the features that the function is compiled for, or no
                // operation would have been decoded to one of these kinds.
                unsafe { $wide::<LEN>(hart, env, ops, at, left, op) }
            }
        )*
    };
}

/// Which signs an instruction flips: of the product, and of the addend.
#[inline(always)]
fn fused_flips(raw: u32) -> (u32, u32) {
    let format = raw >> 25 & 3;
    (format >> 1 << 31, format << 31)
}

/// Subtraction has bit 2 of funct7 set.
#[inline(always)]
fn sum_flips(raw: u32) -> (u32, u32) {
    (0, raw << 4 & SIGN)
}

handlers! {
    fused, fused_wide: |hart, _env, raw|
        packed::all_lanes(hart, raw, Form::Fused, fused_flips(raw));
    sum, sum_wide: |hart, _env, raw|
        packed::all_lanes(hart, raw, Form::Sum, sum_flips(raw));
    product, product_wide: |hart, _env, raw|
        packed::all_lanes(hart, raw, Form::Product, (0, 0));
    load, load_wide: |hart, env, raw| avx2::load(hart, env.core, raw);
    store, store_wide: |hart, env, raw| {
        avx2::store(hart, env.core, raw)
            || {
                let to = hart.x[rs1(raw) as usize].wrapping_add_signed(imm_s(raw).into());
                packed_memory::store_at_once(hart, env.core, rs2(raw) as usize, to)
            }
    };
    broadcast, broadcast_wide: |hart, env, raw| {
        let from = hart.x[rs1(raw) as usize].wrapping_add_signed(imm_i(raw).into());
        let word = packed_memory::one_word(hart, env.core, from);
        word.is_some_and(|bits| avx2::constant(hart, raw, bits))
    };
    gather, gather_wide: |hart, env, raw| {
        avx2::gather(hart, env.core, raw)
            || packed_memory::gather_at_once::<1>(hart, env.core, raw)
    };
    gather_block, gather_block_wide: |hart, env, raw| {
        let (block, indices) = (hart.x[rs2(raw) as usize], hart.x[rs1(raw) as usize]);
        avx2::gather_block(hart, env.core, raw)
            || packed_memory::gather_block_at_once::<1>(
                hart,
                env.core,
                rd(raw) as usize,
                block,
                indices,
            )
    };
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
