//! Handlers of loads, stores and atomics.
//!
//! Aligned accesses to DRAM are made here; all others, and all faults, go to [`bus`]. So do all
//! accesses on weak memory, for which the slow handlers are entered directly. With private caches
//! the handlers look there instead.

use std::sync::atomic::Ordering;

use crate::decode::op::Op;
use crate::exec::amo;
use crate::exec::control::{delegate, stop_noted};
use crate::exec::{Env, Ops, next, stop};
use crate::machine::hart::{Hart, Vector};
use crate::memory::bus;
use crate::memory::guards::Stacked;

/// Defines handlers of loads: which word of memory, its size, and what the register gets of it.
macro_rules! load {
    ($($name:ident, $private:ident, $slow:ident: $word:ident $load:ident $size:literal,
       $value:ident: $unsigned:ident =>
       $hart:ident, $op:ident, $write:expr;)*) => {
        $(
            pub(crate) fn $name<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                let word = env.dram.$word(effective);
                let Some(word) = word.filter(|_| !env.guards.hold(effective)) else {
                    return $slow::<LEN>($hart, env, ops, at, left, $op);
                };
                let $value: $unsigned = word.load(Ordering::Relaxed);
                $write;
                next($hart, env, ops, at + LEN, left);
            }

            pub(crate) fn $private<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                let word = match env.guards.look(effective) {
                    Stacked::No => $hart.cache.as_ref().and_then(|cache| cache.$load(effective)),
                    Stacked::Yes => {
                        env.dram.$word(effective).map(|word| word.load(Ordering::Relaxed))
                    }
                    Stacked::Guarded => None,
                };
                let Some($value) = word else {
                    return $slow::<LEN>($hart, env, ops, at, left, $op);
                };
                $write;
                next($hart, env, ops, at + LEN, left);
            }

            #[cold]
            #[inline(never)]
            #[allow(clippy::cast_possible_truncation, reason = "the value has the size of the load")]
            pub(crate) fn $slow<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                match bus::load(env.core, $hart, effective, $size) {
                    Ok(value) => {
                        let $value = value as $unsigned;
                        $write;
                        next($hart, env, ops, at + LEN, left);
                    }
                    Err(event) => stop($hart, env, at, left, $op, event),
                }
            }
        )*
    };
}

#[inline(always)]
fn sext(value: impl Into<i64>) -> u64 {
    value.into().cast_unsigned()
}

load! {
    lb, lb_private, lb_slow: user_byte load_byte 1, v: u8 => hart, op, hart.x[op.rd()] = sext(v.cast_signed());
    lh, lh_private, lh_slow: user_half load_half 2, v: u16 => hart, op, hart.x[op.rd()] = sext(v.cast_signed());
    lw, lw_private, lw_slow: user_word load_word 4, v: u32 => hart, op, hart.x[op.rd()] = sext(v.cast_signed());
    lbu, lbu_private, lbu_slow: user_byte load_byte 1, v: u8 => hart, op, hart.x[op.rd()] = v.into();
    lhu, lhu_private, lhu_slow: user_half load_half 2, v: u16 => hart, op, hart.x[op.rd()] = v.into();
    lwu, lwu_private, lwu_slow: user_word load_word 4, v: u32 => hart, op, hart.x[op.rd()] = v.into();
    ld, ld_private, ld_slow: user_double load_double 8, v: u64 => hart, op, hart.x[op.rd()] = v;
    flw, flw_private, flw_slow: user_word load_word 4, v: u32 => hart, op, hart.f[op.rd() & 31] = Vector::scalar(v);
}

/// Defines handlers of stores: which word of memory, its size, and what is stored.
macro_rules! store {
    ($($name:ident, $private:ident, $slow:ident: $word:ident $store:ident $size:literal
       $unsigned:ident =
       $hart:ident, $op:ident, $value:expr;)*) => {
        $(
            #[allow(clippy::cast_possible_truncation, reason = "the low bytes are stored")]
            pub(crate) fn $name<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                // The slow path also handles stores to pages of code.
                let is_special =
                    || env.core.code.may_hold(effective) || env.guards.hold(effective);
                let word = env.dram.$word(effective);
                let Some(word) = word.filter(|_| !is_special()) else {
                    return $slow::<LEN>($hart, env, ops, at, left, $op);
                };
                let value: u64 = $value;
                word.store(value as $unsigned, Ordering::Relaxed);
                next($hart, env, ops, at + LEN, left);
            }

            #[allow(clippy::cast_possible_truncation, reason = "the low bytes are stored")]
            pub(crate) fn $private<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                let value: u64 = $value;
                let done = match env.guards.look(effective) {
                    // Code is fetched from memory, where nothing changes now.
                    Stacked::No => {
                        let cache = $hart.cache.as_mut();
                        cache.and_then(|cache| cache.$store(effective, value as $unsigned))
                    }
                    Stacked::Yes if !env.core.code.may_hold(effective) => {
                        let word = env.dram.$word(effective);
                        word.map(|word| word.store(value as $unsigned, Ordering::Relaxed))
                    }
                    Stacked::Yes | Stacked::Guarded => None,
                };
                if done.is_none() {
                    return $slow::<LEN>($hart, env, ops, at, left, $op);
                }
                next($hart, env, ops, at + LEN, left);
            }

            #[cold]
            #[inline(never)]
            pub(crate) fn $slow<const LEN: usize>(
                $hart: &mut Hart,
                env: &Env<'_>,
                ops: &Ops,
                at: usize,
                left: u64,
                $op: Op,
            ) {
                let effective = $hart.x[$op.rs1()].wrapping_add($op.imm());
                let value: u64 = $value;
                match bus::store(env.core, $hart, effective, $size, value) {
                    Ok(()) => next($hart, env, ops, at + LEN, left),
                    Err(event) => stop($hart, env, at, left, $op, event),
                }
            }
        )*
    };
}

store! {
    sb, sb_private, sb_slow: user_byte store_byte 1 u8 = hart, op, hart.x[op.rs2()];
    sh, sh_private, sh_slow: user_half store_half 2 u16 = hart, op, hart.x[op.rs2()];
    sw, sw_private, sw_slow: user_word store_word 4 u32 = hart, op, hart.x[op.rs2()];
    sd, sd_private, sd_slow: user_double store_double 8 u64 = hart, op, hart.x[op.rs2()];
    fsw, fsw_private, fsw_slow: user_word store_word 4 u32 = hart, op, hart.f[op.rs2() & 31].0[0].into();
}

delegate! {
    atomic = amo::execute;
    small_store = amo::small_store;
}
