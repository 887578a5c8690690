//! Translation of hot code to that of x86-64 processors with AVX2.
//!
//! A page of code in which many instructions were interpreted is translated as a whole, as far as
//! instructions in it can be reached from those that were executed. Translated code does what the
//! interpreter does, in the same turns: it counts instructions in advance, a segment of some
//! instructions without a jump at a time. Every instruction can be entered. What it has no code
//! for, and every case of an instruction that is not the common one, the interpreter executes,
//! called for this one instruction; so traps, device registers and misses of caches are its
//! business alone.
//!
//! - **Ends of turns.** With private caches turns are short. Segments that need nothing but
//!   registers of the hart are executed ahead, some turns at a time: no one can see when. Each of
//!   the others is there a second time, with each instruction counted by itself, for a turn that
//!   ends within it. What only loads may be executed ahead, too, as long as the shire's cache can
//!   watch it (`machine::ahead`): the tables that accesses look at are others then, so that code is
//!   the same. A hart whose turn ends remembers where it goes on: nothing else has to be
//!   looked at then but whether the translation is still in force. In the long turns of flat memory
//!   the interpreter executes what is left.
//! - **Pages.** Jumps to registers and to other pages lead to the beginnings of segments, which
//!   rely on nothing: those of the page itself, and those of the pages that were entered lately,
//!   as long as their translations are in force.
//! - **Registers.** The eight integer registers that a page uses most are in registers of the
//!   processor while its code runs, all others in the hart.
//! - **Floats.** The processor's control word is set so that it flushes results as the hardware
//!   does; its sticky flags become those of the hart when the code ends. Results that are NaN are
//!   left to the interpreter. So are subnormal operands, which raise a flag of their own: registers
//!   are looked at once in a segment, unless arithmetic has written them in it. If one is found,
//!   its flag is set from then on, and the processor takes such operands for zeros as the hardware
//!   does.
//! - **Changed code.** A page whose code changes has its translation dropped. Harts that execute it
//!   go on until they leave it, at the end of the turn at the latest, or of what they execute
//!   ahead; what a hart changes itself takes effect at once, since such stores leave the translated
//!   code.

mod arena;
pub(crate) mod context;
mod emit;
mod float;
mod integer;
mod memory;
mod page;
mod registers;
#[cfg(test)]
mod tests;
mod thunks;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::config::MemoryModel;
use crate::decode::code::PAGE_SLOTS;
use crate::exec::Env;
use crate::float::soft::{INFINITY, SIGN};
use crate::float::wide::{self, has_avx2};
use crate::machine::group::LONGEST_TURN;
use crate::machine::hart::Hart;
use arena::Arena;
pub(crate) use context::Context;

/// Instructions that are interpreted in a page before it is translated.
pub(crate) const HOT: u32 = 20_000;
/// Each translation of a page takes twice as many as the one before, up to this power of two.
const MOST_TIMES: u32 = 10;
/// Translations that a cache of code can have.
const MOST: usize = 2048;
/// Instructions to interpret where there is no translation.
const UNKNOWN: u64 = 64;
/// Instructions that a hart with a private cache executes ahead of its turns, about.
const AHEAD: u32 = 64 * LONGEST_TURN;

/// Returns `true` if the processor has what translated code needs.
fn is_available() -> bool {
    has_avx2() && std::is_x86_feature_detected!("bmi2")
}

/// What a page knows of its translation.
#[derive(Debug)]
pub(crate) struct Native {
    /// The number of the translation in force; 0 if there is none.
    current: AtomicU32,
    /// Instructions that were interpreted for want of a translation.
    heat: AtomicU32,
    /// How often the page was translated.
    times: AtomicU32,
}

impl Native {
    pub(crate) fn new() -> Self {
        Self { current: AtomicU32::new(0), heat: AtomicU32::new(0), times: AtomicU32::new(0) }
    }

    #[inline]
    fn current(&self) -> u32 {
        // Acquire: pairs with the release of `publish`.
        self.current.load(Ordering::Acquire)
    }

    /// Takes note that the code has changed.
    pub(crate) fn forget(&self) {
        self.current.store(0, Ordering::Release);
    }

    /// Takes note that instructions were interpreted; returns `true` if it is time to translate.
    fn warm(&self, executed: u64, limit: u32) -> bool {
        let executed = u32::try_from(executed).unwrap_or(u32::MAX);
        // Not exact if several harts do it at once, which does no harm.
        let heat = self.heat.load(Ordering::Relaxed).saturating_add(executed);
        self.heat.store(heat, Ordering::Relaxed);
        heat >= limit << self.times.load(Ordering::Relaxed).min(MOST_TIMES)
    }

    /// Makes the next translation of the page less urgent.
    fn cool(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.heat.store(0, Ordering::Relaxed);
    }

    fn publish(&self, number: u32) {
        self.current.store(number, Ordering::Release);
    }
}

/// Where an instruction can be entered, and what has to be so.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where it is in the memory for code.
    start: u32,
    /// The same for a turn that ends within its segment; 0 if the interpreter does that.
    part: u32,
    /// Instructions of its segment from it on.
    remaining: u16,
    /// The segment may be executed ahead.
    is_own: bool,
    /// Something in the segment computes with floats.
    computes: bool,
    /// Something in the segment is done if all lanes are enabled.
    needs_mask: bool,
    /// Registers of which no lane is subnormal.
    normal: u32,
    /// Registers of which the first lane is not subnormal.
    normal_first: u32,
}

impl Entry {
    /// The entry for a hart that was there before, so what has to be so is.
    fn resume(&self) -> Resume {
        let Self { start, remaining, computes, .. } = *self;
        Resume { start, remaining, computes: computes.into(), ..Resume::default() }
    }
}

/// Where a hart goes on whose turn has ended in translated code: nothing changes it until then, so
/// what the code relies on stays as it is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Resume {
    /// The number of the translation.
    translation: u32,
    /// What loads the registers, in the memory for code.
    prologue: u32,
    /// Where to go on; 0 if the turn has not ended there.
    start: u32,
    /// Instructions from there on that are to be counted first.
    remaining: u16,
    /// 1 if the control word is to be that for floats.
    computes: u16,
}

/// The instructions of a page that are left to the interpreter.
const INTERPRETED: u16 = u16::MAX;

/// The translation of a page.
#[derive(Debug)]
struct PageCode {
    /// What loads the registers, in the memory for code.
    prologue: u32,
    /// By position: 0 for instructions that are not known, [`INTERPRETED`], or the number of the
    /// entry plus 1.
    index: Box<[u16; PAGE_SLOTS]>,
    entries: Vec<Entry>,
    /// By position: where segments begin, in the memory for code; 0 where none does. There code
    /// relies on nothing.
    starts: Box<[u32; PAGE_SLOTS]>,
}

/// All translations of a cache of code.
#[derive(Debug)]
pub(crate) struct Store {
    /// `None` in it if the system gives no memory for code.
    arena: OnceLock<Option<Arena>>,
    codes: Box<[OnceLock<PageCode>]>,
    used: Mutex<u32>,
    memory: MemoryModel,
    /// Instructions to be interpreted in a page before it is translated.
    limit: u32,
    /// Instructions that may be executed ahead. What translated code has left includes them.
    ahead: u32,
    /// How often translated code was entered.
    #[cfg(test)]
    entered: AtomicU32,
}

/// What became of an attempt to execute translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many instructions were executed, and so many more ahead of their turn.
    Executed(u64, u32),
    /// The interpreter is to execute so many.
    Interpret(u64),
    /// The same, and they count for a translation.
    Missing(u64),
}

impl Store {
    /// Creates a store without translations; none if the processor lacks what they need. So many
    /// instructions are to be interpreted in a page before it is translated.
    pub(crate) fn new(memory: MemoryModel, limit: u32) -> Option<Self> {
        is_available().then(|| Self {
            arena: OnceLock::new(),
            codes: (0..MOST).map(|_| OnceLock::new()).collect(),
            used: Mutex::new(0),
            memory,
            limit,
            ahead: if memory == MemoryModel::Private { AHEAD } else { 0 },
            #[cfg(test)]
            entered: AtomicU32::new(0),
        })
    }

    #[cfg(test)]
    fn entered(&self) -> u32 {
        self.entered.load(Ordering::Relaxed)
    }

    /// Executes translated code, if there is some for the position. The hart goes on where its last
    /// turn ended if `resume` has that.
    #[inline(always)]
    pub(crate) fn run(
        &self,
        hart: &mut Hart,
        env: &Env<'_>,
        at: usize,
        fuel: u64,
        resume: Resume,
    ) -> Outcome {
        match self.go(hart, env, at, fuel, resume) {
            // The interpreter takes it from here.
            Ok(0) if hart.event.is_none() => Outcome::Interpret(1),
            Ok(executed) => {
                let ahead = u32::try_from(executed.saturating_sub(fuel)).unwrap_or(u32::MAX);
                Outcome::Executed(executed.min(fuel), ahead)
            }
            Err(outcome) => outcome,
        }
    }

    /// Executes translated code that loads, about `most` instructions, ahead of their turns;
    /// returns how many there were.
    pub(crate) fn run_ahead(&self, hart: &mut Hart, env: &Env<'_>, at: usize, most: u32) -> u32 {
        env.core.context.is_ahead.set(1);
        let executed = self.go(hart, env, at, most.into(), hart.resume);
        env.core.context.is_ahead.set(0);
        // What had to stop it comes again in its turn.
        hart.event = None;
        executed.map_or(0, |executed| u32::try_from(executed).unwrap_or(u32::MAX))
    }

    /// Executes translated code; returns how many instructions, of which those beyond `fuel` reach
    /// nothing but registers.
    #[inline(always)]
    fn go(
        &self,
        hart: &mut Hart,
        env: &Env<'_>,
        at: usize,
        fuel: u64,
        resume: Resume,
    ) -> Result<u64, Outcome> {
        let number = env.page().native.current();
        let is_known = resume.start != 0
            && resume.translation == number
            && u64::from(resume.remaining) <= fuel;
        let all = fuel + u64::from(self.ahead);
        let (resume, counted) = if is_known {
            (resume, resume.remaining)
        } else {
            self.enter(hart, env, number, at, fuel)?
        };
        let Some(Some(arena)) = self.arena.get() else { return Err(Outcome::Missing(UNKNOWN)) };
        #[cfg(test)]
        self.entered.fetch_add(1, Ordering::Relaxed);
        let context = &env.core.context;
        context.prepare(hart, env, arena, number, resume.computes);
        (hart.event, hart.resume) = (None, Resume { translation: number, ..Resume::default() });
        let left = all - u64::from(counted);
        arena.enter(hart, context, (resume.prologue as usize, resume.start as usize), left);
        context.settle(hart);
        Ok(all - hart.left)
    }

    /// Finds where to enter a translation for a position, and how many instructions are to be
    /// counted first.
    #[inline(always)]
    fn enter(
        &self,
        hart: &Hart,
        env: &Env<'_>,
        number: u32,
        at: usize,
        fuel: u64,
    ) -> Result<(Resume, u16), Outcome> {
        let code = self.codes.get((number as usize).wrapping_sub(1)).and_then(OnceLock::get);
        let Some(code) = code else { return Err(Outcome::Missing(UNKNOWN)) };
        if let Some(Some(arena)) = self.arena.get() {
            env.core.context.link(env, code, number, arena);
        }
        let entry = match code.index.get(at) {
            None | Some(0) => return Err(Outcome::Missing(UNKNOWN)),
            Some(&INTERPRETED) => return Err(Outcome::Interpret(1)),
            Some(&index) => &code.entries[usize::from(index) - 1],
        };
        let remaining = u64::from(entry.remaining);
        let is_whole = remaining <= fuel || entry.is_own;
        let (start, counted) =
            if is_whole { (entry.start, entry.remaining) } else { (entry.part, 0) };
        if start == 0
            || entry.computes && hart.fcsr & 0xE0 != 0
            || entry.needs_mask && hart.masks & 0xFF != 0xFF
            || (entry.normal | entry.normal_first) != 0 && has_subnormal(hart, entry)
        {
            return Err(Outcome::Interpret(remaining));
        }
        Ok((Resume { start, prologue: code.prologue, ..entry.resume() }, counted))
    }

    /// Takes note that instructions were interpreted for want of a translation.
    #[inline]
    pub(crate) fn warm(&self, env: &Env<'_>, executed: u64) {
        if env.page().native.warm(executed, self.limit) {
            self.translate(env);
        }
    }

    #[cold]
    #[inline(never)]
    fn translate(&self, env: &Env<'_>) {
        let page = env.page();
        page.native.cool();
        let is_private = self.memory == MemoryModel::Private;
        let Some(arena) = self.arena.get_or_init(|| Arena::new(is_private)) else { return };
        page.with_decoded(env.dram, |ops| {
            let Some(code) = page::translate(ops, arena, is_private) else { return };
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(slot) = self.codes.get(*used as usize) else { return };
            tracing::debug!(entries = code.entries.len(), number = *used, "page translated");
            if slot.set(code).is_ok() {
                *used += 1;
                page.native.publish(*used);
            }
        });
    }
}

/// Returns `true` if an operand that code takes for no subnormal number is one.
fn has_subnormal(hart: &Hart, entry: &Entry) -> bool {
    let is_subnormal = |bits: u32| bits & INFINITY == 0 && bits & !SIGN != 0;
    let mut first = entry.normal_first & !entry.normal;
    let mut found = wide::run(|| {
        let mut all = entry.normal;
        let mut found = [0; 8];
        while all != 0 {
            let lanes = &hart.f[all.trailing_zeros() as usize].0;
            for (found, &bits) in found.iter_mut().zip(lanes) {
                // Zeros become the largest number.
                *found |= u32::from((bits << 1).wrapping_sub(1) < 0x00FF_FFFF);
            }
            all &= all - 1;
        }
        found.iter().fold(0, |all, &one| all | one) != 0
    });
    while first != 0 {
        found |= is_subnormal(hart.f[first.trailing_zeros() as usize].0[0]);
        first &= first - 1;
    }
    found
}
