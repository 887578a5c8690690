//! What translated code needs besides the hart, and what it calls.

#![expect(unsafe_code, reason = "translated code passes pointers")]

use std::arch::asm;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PageCode;
use super::arena::Arena;
use crate::decode::code::{CodeCache, PAGE_BYTES, Page};
use crate::decode::op::{Op, kind};
use crate::exec::event::Event;
use crate::exec::handlers::HANDLERS;
use crate::exec::{Env, reach};
use crate::float::soft::{DZ, NV, NX, OF, UF};
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::Dram;
use crate::memory::guards::Guards;
use crate::memory::map::{DRAM_BASE, USER_BASE};
use crate::memory::private::{Frame, Private, Tables};

/// Eight equal lanes, or not.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Wide([u32; 8]);

impl Wide {
    const fn all(value: u32) -> Self {
        Self([value; 8])
    }
}

/// Constants of vector instructions.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Constants {
    pub(super) ones: Wide,
    /// Twice the largest subnormal number, less one.
    pub(super) subnormal: Wide,
    pub(super) sign: Wide,
    pub(super) in_order: Wide,
    pub(super) in_order_halves: Wide,
    pub(super) half_magnitude: Wide,
    pub(super) half_sign: Wide,
    pub(super) half_large: Wide,
    pub(super) half_small: Wide,
    pub(super) half_bias: Wide,
}

static CONSTANTS: Constants = Constants {
    ones: Wide::all(u32::MAX),
    subnormal: Wide::all(0x00FF_FFFE),
    sign: Wide::all(1 << 31),
    in_order: Wide([0, 1, 2, 3, 4, 5, 6, 7]),
    in_order_halves: Wide([0, 2, 4, 6, 8, 10, 12, 14]),
    half_magnitude: Wide::all(0x7FFF),
    half_sign: Wide::all(0x8000),
    half_large: Wide::all(0x7BFF),
    half_small: Wide::all(0x0400),
    half_bias: Wide::all(112 << 23),
};

/// The floating-point control word while translated code computes: results that are subnormal, and
/// such operands, are zero; no exception traps.
const CONTROL: u32 = 0x9FC0;
/// Its flags but that for inexact results, and that for subnormal operands, which are zero.
const OTHERS: u32 = 0x1D;

/// The lowest bit of the number of a page.
pub(super) const PAGE_SHIFT: u8 = 12;
const _: () = assert!(PAGE_BYTES == 1 << PAGE_SHIFT);
/// Pages that code can go to from another one.
pub(super) const LINKS: usize = 16;

/// A page that code can go to from another one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Link {
    /// Its address; that of no page if there is none.
    pub(super) address: u64,
    pub(super) starts: *const u32,
    /// What loads the registers.
    pub(super) prologue: *const u8,
    /// The number of the translation in force: it has to be that of this one.
    pub(super) current: *const AtomicU32,
    /// The epoch in which the page was compared with memory: it has to go on.
    pub(super) epoch: u64,
    pub(super) page: *const Page,
    pub(super) translation: u32,
}

const NO_LINK: Link = Link {
    address: 1,
    starts: ptr::null(),
    prologue: ptr::null(),
    current: ptr::null(),
    epoch: 0,
    page: ptr::null(),
    translation: 0,
};

/// What translated code reaches through one register.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Context {
    /// Where the memory open to kernels is, and how much there is of it.
    pub(super) memory: *const u8,
    pub(super) memory_bytes: u64,
    pub(super) memory_base: u64,
    pub(super) dram_base: u64,
    pub(super) stacks_low: u64,
    pub(super) stacks_span: u64,
    /// The same with the 32 bytes before them.
    pub(super) near_stacks_low: u64,
    pub(super) near_stacks_span: u64,
    /// The same for accesses to 32 bytes that have to be in there; 0 if they take the long way.
    pub(super) stacks_span_wide: u64,
    pub(super) stacks_inverse: u64,
    pub(super) stacks_guarded: u64,
    /// Stores between these go the long way: there is code.
    pub(super) code_low: *const AtomicU64,
    pub(super) code_high: *const AtomicU64,
    pub(super) execute_one: unsafe extern "sysv64" fn(*mut Hart, *const Context, u64) -> u64,
    pub(super) constants: *const Constants,
    /// The cache of the shire: frames by page.
    pub(super) pages: Cell<*const u16>,
    pub(super) page_count: Cell<u64>,
    /// The same for code that looks for what it loads there before anything else.
    pub(super) first_page_count: Cell<u64>,
    can_look_there_first: bool,
    /// The same for loads, and for stores.
    pub(super) load_pages: Cell<*const u16>,
    pub(super) store_pages: Cell<*const u16>,
    pub(super) store_page_count: Cell<u64>,
    /// How much there is of stacks, which are memory itself.
    pub(super) stack_bytes: Cell<u64>,
    /// 1 while a hart reads ahead of its turn: what is not loaded from watched pages fails.
    pub(super) is_ahead: Cell<u32>,
    pub(super) frames: Cell<*mut Frame>,
    /// Address of the page.
    pub(super) base: Cell<u64>,
    pub(super) page: Cell<*const Page>,
    core: Cell<*const Core<'static>>,
    /// Where code is.
    pub(super) code: Cell<*const u8>,
    pub(super) epoch: *const AtomicU64,
    /// The number of the translation that runs.
    pub(super) translation: Cell<u32>,
    /// 1 while the floating-point control word is that of translated code.
    pub(super) computes: Cell<u32>,
    pub(super) control: u32,
    /// The control word outside.
    pub(super) control_outside: Cell<u32>,
    /// The control word, and so the flags, with which translated code ended.
    pub(super) control_after: Cell<u32>,
    /// Last, since they are large. By the lowest bits of the numbers of pages.
    pub(super) links: [Cell<Link>; LINKS],
}

impl Context {
    pub(crate) fn new(dram: &Dram, guards: &Guards, code: &CodeCache) -> Self {
        let [code_low, code_high] = code.bounds();
        let memory = dram.region().byte(USER_BASE - DRAM_BASE);
        let [stacks_low, stacks_span, stacks_span_wide, stacks_inverse, stacks_guarded] =
            guards.numbers();
        Self {
            memory: memory.map_or(ptr::null(), |byte| ptr::from_ref(byte).cast()),
            memory_bytes: dram.size() - (USER_BASE - DRAM_BASE),
            memory_base: USER_BASE,
            dram_base: DRAM_BASE,
            stacks_low,
            stacks_span,
            near_stacks_low: stacks_low.wrapping_sub(32),
            near_stacks_span: stacks_span.saturating_add(32),
            stacks_span_wide,
            stacks_inverse,
            stacks_guarded,
            code_low,
            code_high,
            execute_one,
            constants: &raw const CONSTANTS,
            pages: Cell::new(ptr::null()),
            page_count: Cell::new(0),
            first_page_count: Cell::new(0),
            can_look_there_first: guards.are_lines(),
            load_pages: Cell::new(ptr::null()),
            store_pages: Cell::new(ptr::null()),
            store_page_count: Cell::new(0),
            stack_bytes: Cell::new(0),
            is_ahead: Cell::new(0),
            frames: Cell::new(ptr::null_mut()),
            base: Cell::new(0),
            page: Cell::new(ptr::null()),
            core: Cell::new(ptr::null()),
            code: Cell::new(ptr::null()),
            epoch: code.epoch(),
            links: [const { Cell::new(NO_LINK) }; LINKS],
            translation: Cell::new(0),
            computes: Cell::new(0),
            control: CONTROL,
            control_outside: Cell::new(0),
            control_after: Cell::new(0),
        }
    }

    /// Makes it that of a hart, for a translation of the page that `env` is of.
    #[inline]
    pub(super) fn prepare(
        &self,
        hart: &mut Hart,
        env: &Env<'_>,
        arena: &Arena,
        translation: u32,
        computes: u16,
    ) {
        self.code.set(arena.code());
        self.base.set(env.address(0));
        self.page.set(env.page());
        self.core.set(ptr::from_ref(env.core).cast());
        self.translation.set(translation);
        self.computes.set(computes.into());
        if let Some(cache) = &mut hart.cache {
            self.look_at(cache);
        }
    }

    /// Lets code of other pages go to the page that `env` is of.
    #[inline]
    pub(super) fn link(&self, env: &Env<'_>, code: &PageCode, translation: u32, arena: &Arena) {
        let address = env.address(0);
        let link = &self.links[(address >> PAGE_SHIFT) as usize % LINKS];
        let old = link.get();
        let epoch = env.page().epoch();
        if (old.address, old.translation, old.epoch) == (address, translation, epoch) {
            return;
        }
        link.set(Link {
            address,
            starts: code.starts.as_ptr(),
            prologue: arena.code().wrapping_add(code.prologue as usize),
            current: &raw const env.page().native.current,
            epoch,
            page: env.page(),
            translation,
        });
    }

    #[inline]
    fn look_at(&self, cache: &mut Private) {
        let Tables { pages, watched, unwatched, frames } = cache.tables();
        let is_ahead = self.is_ahead.get() != 0;
        self.pages.set(pages.as_ptr());
        self.page_count.set(pages.len() as u64);
        self.first_page_count.set(if self.can_look_there_first { pages.len() as u64 } else { 0 });
        self.load_pages.set(if is_ahead { watched } else { pages }.as_ptr());
        self.store_pages.set(unwatched.as_ptr());
        self.store_page_count.set(if is_ahead { 0 } else { unwatched.len() as u64 });
        self.stack_bytes.set(if is_ahead { 0 } else { self.memory_bytes });
        self.frames.set(frames.as_mut_ptr());
    }

    /// Sets the control word to that outside of translated code, whose own is kept.
    fn leave_control(&self) {
        // SAFETY: both are words of this context, and the second is what Rust code has it set to.
        unsafe {
            asm!(
                "stmxcsr [{after}]",
                "ldmxcsr [{outside}]",
                after = in(reg) self.control_after.as_ptr(),
                outside = in(reg) self.control_outside.as_ptr(),
                options(nostack)
            );
        }
    }

    /// Sets the control word to that of translated code, without flags.
    fn return_to_control(&self) {
        // SAFETY: a word of this context. Only translated code computes until it is set again.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const self.control, options(nostack)) }
    }

    /// Takes over the flags that translated code has raised.
    #[inline]
    pub(super) fn settle(&self, hart: &mut Hart) {
        if self.computes.replace(0) != 0 {
            self.note_flags(hart);
        }
    }

    fn note_flags(&self, hart: &mut Hart) {
        let raised = self.control_after.get();
        if raised & OTHERS == 0 {
            hart.fcsr |= raised >> 5 & NX;
            return;
        }
        let mut flags = 0;
        for (bit, flag) in [(1, NV), (4, DZ), (8, OF), (16, UF), (32, NX)] {
            if raised & bit != 0 {
                flags |= flag;
            }
        }
        hart.fcsr |= flags;
    }
}

/// Executes the instruction at a position as the interpreter does; for translated code.
///
/// Returns 0 if that goes on behind it, 1 if it does not, and 2 if it does not because the
/// instruction was not executed. The program counter is set then.
///
/// # Safety
/// The pointers must be those that the code was entered with, during that call.
unsafe extern "sysv64" fn execute_one(hart: *mut Hart, context: *const Context, at: u64) -> u64 {
    const GO_ON: u64 = 0;
    const LEAVE: u64 = 1;
    const LEAVE_BEFORE: u64 = 2;
    // SAFETY: as the caller promises. The code that has entered with it uses it no more until this
    // returns.
    let hart = unsafe { &mut *hart };
    // SAFETY: as the caller promises.
    let context = unsafe { &*context };
    // SAFETY: set by `prepare`, and borrowed until the code returns.
    let core = unsafe { &*context.core.get() };
    // SAFETY: set by `prepare`, or from a link; the cache of code, which the core borrows, has the
    // page, and never drops it.
    let page = unsafe { &*context.page.get() };
    let env = &Env::new(core, page, context.base.get());
    #[expect(clippy::cast_possible_truncation, reason = "a position in a page")]
    let at = at as usize;
    let ops = env.ops();
    let op = ops.get(at).map_or(Op::UNDECODED, |slot| Op(slot.load(Ordering::Relaxed)));
    hart.pc = env.address(at);
    if op.kind() == kind::UNDECODED {
        return LEAVE_BEFORE;
    }
    let is_ahead = context.is_ahead.get() != 0;
    if is_ahead && !reach::can_be_ahead(hart, core, op) {
        return LEAVE_BEFORE;
    }
    if !is_ahead && reach::disturbs(hart, core, op) {
        hart.event = Some(Event::Disturbs);
        return LEAVE_BEFORE;
    }
    // To change the control word takes longer than many an instruction.
    let stays = context.computes.get() == 0 || super::memory::is_indifferent(op);
    if !stays {
        context.leave_control();
        context.note_flags(hart);
    }
    hart.event = None;
    let behind = env.address(at + op.halfwords());
    HANDLERS[usize::from(op.kind())](hart, env, ops, at, 1, op);
    if !stays {
        context.return_to_control();
    }
    if let Some(cache) = &mut hart.cache {
        context.look_at(cache);
    }
    // The rounding mode was that to nearest even when the control word was set.
    let can_compute = context.computes.get() == 0 || hart.fcsr & 0xE0 == 0;
    if hart.event.is_none()
        && hart.pc == behind
        && can_compute
        && !hart.has_pending_arithmetic
        && env.page().native.current() == context.translation.get()
    {
        GO_ON
    } else if hart.left == 0 {
        LEAVE
    } else {
        LEAVE_BEFORE
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{MachineConfig, MemoryModel};
    use crate::machine::chip::Chip;
    use crate::memory::map::USER_BASE;

    /// The control word as it is.
    fn control() -> u32 {
        let mut control = 0_u32;
        // SAFETY: a word of this function.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack)) }
        control
    }

    #[test]
    fn translated_code_finds_its_control_word_whatever_becomes_of_an_instruction() {
        let dram = Arc::new(Dram::new(128 << 20).unwrap());
        let chip = Chip::new(&MachineConfig::default(), Arc::clone(&dram)).unwrap();
        let code = CodeCache::new(&dram, MemoryModel::Flat, false);
        let guards = Guards::default();
        let core = Core {
            chip: &chip,
            code: &code,
            guards,
            stacks: guards,
            check: None,
            wake: &|_| {},
            recent: Cell::new(None),
            counters: None,
            context: Context::new(&dram, &guards, &code),
        };
        let mut hart = Hart::new(0);
        let texts = ["fdiv.s f1, f2, f3", "lw x5, 0(x0)", "ecall", "csrrw x5, 0x1, x0"];
        for (at, text) in (0..).step_by(4).zip(texts) {
            let word = et_isa::assemble(text).unwrap();
            dram.write(USER_BASE + at, &word.to_le_bytes()).unwrap();
        }
        let page = core.page(USER_BASE).unwrap();
        let context = &core.context;
        context.base.set(USER_BASE);
        context.page.set(page);
        context.core.set(ptr::from_ref(&core).cast());
        // What is behind is not decoded, as if another hart had just changed it.
        for number in 0..texts.len() {
            page.decode(2 * number, &dram);
        }
        context.control_outside.set(control());
        for at in [0, 2, 4, 6, 8] {
            context.computes.set(1);
            context.return_to_control();
            // SAFETY: everything that it reaches has been set above.
            unsafe { execute_one(&raw mut hart, context, at) };
            let found = control();
            context.leave_control();
            assert_eq!(found & !0x3F, CONTROL, "the instruction at {at}");
        }
    }
}
