//! Handlers of jumps, branches and the system.

use std::sync::atomic::{self, Ordering};

use crate::decode::code;
use crate::decode::op::Op;
use crate::exec::csr as registers;
use crate::exec::event::{self, Event};
use crate::exec::handlers::HANDLERS;
use crate::exec::slow_float;
use crate::exec::{Env, Ops, leave, next, stop};
use crate::machine::hart::Hart;

/// Decodes the instruction and executes it.
pub(crate) fn undecoded<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    _: Op,
) {
    let op = env.decode(at);
    HANDLERS[usize::from(op.kind())](hart, env, ops, at, left, op);
}

/// Counts the instruction and executes it.
pub(crate) fn counted<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    _: Op,
) {
    let op = env.count(at);
    HANDLERS[usize::from(op.kind())](hart, env, ops, at, left, op);
}

/// Executes an instruction that continues in the next page.
pub(crate) fn straddle<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    let pc = env.address(at);
    match code::decode_straddling(env.dram, pc, env.core.code.memory()) {
        Some(op) => HANDLERS[usize::from(op.kind())](hart, env, ops, at, left, op),
        None => {
            let tval = pc.wrapping_add(2);
            let fault = Event::Trap { cause: event::FETCH_FAULT, tval };
            stop(hart, env, at, left, op, fault);
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "positions are counted in 64 bits")]
fn target(at: usize, op: Op) -> usize {
    at.wrapping_add(op.imm() as usize)
}

/// Defines handlers of conditional branches.
macro_rules! branch {
    ($($name:ident($a:ident, $b:ident) = $condition:expr;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            op: Op,
        ) {
            let ($a, $b) = (hart.x[op.rs1()], hart.x[op.rs2()]);
            if $condition {
                return next(hart, env, ops, target(at, op), left);
            }
            next(hart, env, ops, at + LEN, left);
        })*
    };
}

branch! {
    beq(a, b) = a == b;
    bne(a, b) = a != b;
    blt(a, b) = a.cast_signed() < b.cast_signed();
    bge(a, b) = a.cast_signed() >= b.cast_signed();
    bltu(a, b) = a < b;
    bgeu(a, b) = a >= b;
}

pub(crate) fn jal<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    hart.x[op.rd()] = env.address(at + op.halfwords());
    next(hart, env, ops, target(at, op), left);
}

pub(crate) fn jalr<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    let to = hart.x[op.rs1()].wrapping_add(op.imm()) & !1;
    hart.x[op.rd()] = env.address(at + op.halfwords());
    match env.position(to) {
        Some(at) => next(hart, env, ops, at, left),
        None => leave(hart, to, left),
    }
}

pub(crate) fn fence<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    _: Op,
) {
    // Orders what the relaxed accesses of this hart left open.
    atomic::fence(Ordering::SeqCst);
    next(hart, env, ops, at + LEN, left);
}

/// A fence that also completes what the hart has posted.
pub(crate) fn weak_fence<const LEN: usize>(
    hart: &mut Hart,
    env: &Env<'_>,
    ops: &Ops,
    at: usize,
    left: u64,
    op: Op,
) {
    if let Some(mut weak) = env.core.chip.weak() {
        weak.fence(env.core, hart.id);
    }
    fence::<LEN>(hart, env, ops, at, left, op);
}

/// Defines handlers that stop with an event.
macro_rules! stops {
    ($($(#[$doc:meta])* $name:ident($env:ident, $pc:ident) = $event:expr;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name<const LEN: usize>(
            hart: &mut Hart,
            $env: &Env<'_>,
            _: &Ops,
            at: usize,
            left: u64,
            op: Op,
        ) {
            let $pc = $env.address(at);
            stop(hart, $env, at, left, op, $event);
        })*
    };
}

stops! {
    illegal(env, pc) = Event::illegal(env.core, pc);
    ebreak(env, pc) = Event::Trap { cause: event::BREAKPOINT, tval: pc };
    ecall(env, _pc) = Event::Trap { cause: event::USER_CALL, tval: 0 };
    /// A hint that the hart spins: others get their turn.
    pause(env, _pc) = Event::Yield;
}

/// Stops at the instruction `op` with the event that the hart has.
#[cold]
#[inline(never)]
pub(crate) fn stop_noted(hart: &mut Hart, env: &Env<'_>, at: usize, left: u64, op: Op) {
    if let Some(event) = hart.event {
        stop(hart, env, at, left, op, event);
    }
}

/// Defines handlers that leave the work to a function that may fail.
macro_rules! delegate {
    ($($name:ident = $function:path;)*) => {
        $(pub(crate) fn $name<const LEN: usize>(
            hart: &mut Hart,
            env: &Env<'_>,
            ops: &Ops,
            at: usize,
            left: u64,
            op: Op,
        ) {
            // Nothing of this may be on the handler's own stack: it would keep the call of the next
            // handler from being a jump.
            #[inline(never)]
            fn completes(hart: &mut Hart, env: &Env<'_>, op: Op, at: usize) -> bool {
                let result = $function(hart, env.core, op, env.address(at));
                hart.event = result.err();
                hart.event.is_none()
            }
            if completes(hart, env, op, at) {
                next(hart, env, ops, at + LEN, left);
            } else {
                stop_noted(hart, env, at, left, op);
            }
        })*
    };
}
pub(crate) use delegate;

delegate! {
    csr = registers::execute;
    microcoded = slow_float::microcoded;
}
