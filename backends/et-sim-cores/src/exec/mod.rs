//! The interpreter: runs a hart until it stops.
//!
//! Every kind of operation has a handler: a small function that executes one instruction and then
//! calls the handler of the next one as its very last act. The optimiser makes jumps of such
//! calls, so that each instruction costs one indirect jump, and each handler has its own, which
//! the processor predicts well. Nothing depends on that: at most [`CHAIN`] handlers call each
//! other before they return to the loop in [`run`], so the stack is bounded in any build. The loop
//! is also where fuel is looked at and where pages change.

pub(crate) mod amo;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub(crate) mod cache;
pub(crate) mod control;
pub(crate) mod csr;
pub(crate) mod event;
pub(crate) mod float;
pub(crate) mod handlers;
pub(crate) mod integer;
pub(crate) mod memory;
pub(crate) mod packed;
pub(crate) mod packed_memory;
pub(crate) mod reach;
pub(crate) mod slow_float;
pub(crate) mod tensor;
#[cfg(target_arch = "x86_64")]
mod wide;
#[cfg(target_arch = "x86_64")]
mod wide_memory;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decode::code::{self, PAGE_BYTES, PAGE_SLOTS, Page};
use crate::decode::op::{Op, kind};
use crate::exec::event::Event;
use crate::exec::handlers::HANDLERS;
use crate::histogram::Number;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::Dram;
use crate::memory::guards::Guards;
use crate::memory::map;
use crate::native::Outcome;

/// Instructions that may be executed in a row before the loop looks at fuel.
const CHAIN: u64 = 128;

/// Executes one instruction and then others.
///
/// The numbers are the position of the operation in its page, and how many instructions may be
/// executed in this chain, this one included.
pub(crate) type Handler = fn(&mut Hart, &Env<'_>, &Ops, usize, u64, Op);

/// The operations of a page.
pub(crate) type Ops = [AtomicU64; PAGE_SLOTS];

/// What handlers need besides the hart.
pub(crate) struct Env<'a> {
    pub(crate) dram: &'a Dram,
    pub(crate) core: &'a Core<'a>,
    pub(crate) guards: Guards,
    page: &'a Page,
    /// Address of the page.
    base: u64,
}

impl<'a> Env<'a> {
    /// What handlers need for instructions of the page with the address `base`.
    #[inline(always)]
    pub(crate) fn new(core: &'a Core<'a>, page: &'a Page, base: u64) -> Self {
        Self { dram: &core.chip.dram, core, guards: core.guards, page, base }
    }
}

impl Env<'_> {
    /// The page.
    pub(crate) fn page(&self) -> &Page {
        self.page
    }

    /// The operations of the page.
    pub(crate) fn ops(&self) -> &Ops {
        &self.page.ops
    }

    /// Returns the address of the instruction at a position; positions outside the page wrap.
    #[inline(always)]
    pub(crate) fn address(&self, at: usize) -> u64 {
        self.base.wrapping_add((at as u64) << 1)
    }

    /// Returns the position of an address; none if it is in another page.
    #[inline(always)]
    pub(crate) fn position(&self, address: u64) -> Option<usize> {
        let distance = address.wrapping_sub(self.base);
        (distance < PAGE_BYTES).then_some((distance >> 1) as usize)
    }

    /// Executes what the tensor unit has pending, if the instruction at a position needs
    /// floating-point registers. Spec: ISA §3.9
    #[cold]
    fn wait_for_arithmetic(&self, hart: &mut Hart, at: usize) -> Result<(), Event> {
        if !self.operation(at).uses_floats() {
            return Ok(());
        }
        tensor::finish_arithmetic(hart, self.core)
    }

    /// Returns the operation at a position.
    fn operation(&self, at: usize) -> Op {
        let op = Op(self.page.ops[at].load(Ordering::Relaxed));
        let op = if op.kind() == Op::UNDECODED.kind() { self.decode(at) } else { op };
        if op == Op::COUNTED { self.counted(at).0 } else { op }
    }

    /// Returns `true` if the instruction at a position could change what other harts have read
    /// ahead of their turns.
    #[cold]
    fn disturbs(&self, hart: &mut Hart, at: usize) -> bool {
        reach::disturbs(hart, self.core, self.operation(at))
    }

    /// Decodes the instruction at a position.
    pub(crate) fn decode(&self, at: usize) -> Op {
        self.page.decode(at, self.dram)
    }

    /// Returns the operation behind one that only has it counted, and what it counts as.
    fn counted(&self, at: usize) -> (Op, Option<Number>) {
        let (op, number) = self.page.counted(at);
        if op.kind() != kind::STRADDLE {
            return (op, number);
        }
        let raw = code::fetch(self.dram, self.address(at));
        (op, raw.and_then(Number::of))
    }

    /// Counts the instruction at a position; returns what executes it.
    #[inline(never)]
    pub(crate) fn count(&self, at: usize) -> Op {
        let (op, number) = self.counted(at);
        if let (Some(counters), Some(number)) = (self.core.counters, number) {
            counters.add(number);
        }
        op
    }

    /// Takes back that the instruction at a position was counted, if it was.
    #[cold]
    fn uncount(&self, at: usize) {
        if let Some(counters) = self.core.counters
            && let Some(number) = self.counted(at).1
        {
            counters.take_back(number);
        }
    }
}

/// Goes on at position `at`, after an instruction that was one of `left`.
#[inline(always)]
pub(crate) fn next(hart: &mut Hart, env: &Env<'_>, ops: &Ops, at: usize, left: u64) {
    let left = left - 1;
    if left == 0 {
        hart.pc = env.address(at);
        hart.left = 0;
        return;
    }
    let Some(slot) = ops.get(at) else {
        hart.pc = env.address(at);
        hart.left = left;
        return;
    };
    // Relaxed: an operation is complete in itself.
    let op = Op(slot.load(Ordering::Relaxed));
    HANDLERS[usize::from(op.kind())](hart, env, ops, at, left, op);
}

/// Leaves the chain for an address, after an instruction that was one of `left`.
#[inline(always)]
pub(crate) fn leave(hart: &mut Hart, address: u64, left: u64) {
    hart.pc = address;
    hart.left = left - 1;
}

/// Stops at the instruction `op` with an event.
#[cold]
#[inline(never)]
pub(crate) fn stop(hart: &mut Hart, env: &Env<'_>, at: usize, left: u64, op: Op, event: Event) {
    hart.event = Some(event);
    if event.completes() {
        leave(hart, env.address(at.wrapping_add(op.halfwords())), left);
    } else {
        env.uncount(at);
        hart.pc = env.address(at);
        hart.left = left;
    }
}

/// Executes instructions until the hart stops, at most `fuel` of them. Those that were executed
/// ahead come first.
///
/// Translated code may execute more, if nothing but registers of the hart depends on them: they
/// count when their turn comes.
///
/// Inlined, as turns are so short that a call in each slowed llama.cpp by some percent.
#[inline(always)]
pub(crate) fn run<'c>(hart: &mut Hart, core: &'c Core<'c>, fuel: u32) -> Event {
    let done = hart.ahead.min(fuel);
    hart.ahead -= done;
    hart.retired += u64::from(done);
    let mut fuel = u64::from(fuel - done);
    if fuel == 0 {
        return Event::OutOfFuel;
    }
    // Checked accesses take the long way, all of them.
    let native = core.code.native().filter(|_| core.check.is_none());
    // It holds for the first instruction of the turn.
    let mut resume = std::mem::take(&mut hart.resume);
    'pages: loop {
        let pc = map::canonical(hart.pc);
        hart.pc = pc;
        let page = map::physical(pc).and_then(|physical| core.page(physical));
        let Some(page) = page else {
            break Event::Trap { cause: event::FETCH_FAULT, tval: pc };
        };
        let env = Env::new(core, page, pc & !(PAGE_BYTES - 1));
        while let Some(at) = env.position(hart.pc) {
            let mut chain = fuel.min(CHAIN);
            let mut is_missing = false;
            let resume = std::mem::take(&mut resume);
            if chain == 0 {
                break 'pages Event::OutOfFuel;
            }
            if hart.has_pending_arithmetic {
                chain = 1;
                if hart.is_watched() {
                    break 'pages Event::Disturbs;
                }
                if let Err(event) = env.wait_for_arithmetic(hart, at) {
                    break 'pages event;
                }
            } else if let Some(native) = native {
                match native.run(hart, &env, at, fuel, resume) {
                    Outcome::Executed(executed, ahead) => {
                        hart.retired += executed;
                        fuel -= executed;
                        hart.ahead = ahead;
                        if let Some(event) = hart.event {
                            break 'pages event;
                        }
                        continue;
                    }
                    Outcome::Interpret(most) => chain = chain.min(most),
                    Outcome::Missing(most) => {
                        chain = chain.min(most);
                        is_missing = true;
                    }
                }
            }
            if hart.is_watched() {
                chain = 1;
                if env.disturbs(hart, at) {
                    break 'pages Event::Disturbs;
                }
            }
            hart.event = None;
            // One more than may be executed: `next` counts the instruction it comes from.
            next(hart, &env, &page.ops, at, chain + 1);
            let executed = chain - hart.left;
            hart.retired += executed;
            fuel -= executed;
            if is_missing && let Some(native) = native {
                native.warm(&env, executed);
            }
            if let Some(event) = hart.event {
                break 'pages event;
            }
        }
        if fuel == 0 {
            break Event::OutOfFuel;
        }
    }
}

/// Executes instructions of later turns, about `most`, as far as they only load from the shire's
/// cache, which watches what they loaded from then; returns how many.
#[inline(never)]
pub(crate) fn run_ahead<'c>(hart: &mut Hart, core: &'c Core<'c>, most: u32) -> u32 {
    let Some(native) = core.code.native().filter(|_| core.check.is_none()) else { return 0 };
    let pc = map::canonical(hart.pc);
    let page = map::physical(pc).and_then(|physical| core.page(physical));
    let Some(page) = page.filter(|_| !hart.has_pending_arithmetic) else { return 0 };
    let env = Env::new(core, page, pc & !(PAGE_BYTES - 1));
    env.position(pc).map_or(0, |at| native.run_ahead(hart, &env, at, most))
}
