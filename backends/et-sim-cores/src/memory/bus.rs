//! Loads, stores and atomics that the fast path in [`exec`](crate::exec) does not cover: L2
//! scratchpad, device registers, misaligned accesses and faults. Spec: ISA §1.2, §3.1, §4.3

use std::sync::atomic::{AtomicU64, Ordering, fence};

use et_isa::Access;

use crate::exec::event::Event;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::Region;
use crate::memory::dram::{lanes_of, store_lanes};
use crate::memory::esr::{self, EsrFault};
use crate::memory::map::{self, DRAM_BASE, Place};
use crate::memory::weak::{Bank, Change, Target};

/// Returns `true` if a private cache is between a hart and DRAM at an address. Stacks are not
/// cached: no other shire looks at them.
fn is_cached(core: &Core<'_>, hart: &Hart, address: u64) -> bool {
    hart.cache.is_some() && !core.stacks.are_at(address)
}

/// Reads `size` bytes (1, 2, 4 or 8), zero-extended.
#[cold]
#[inline(never)]
pub(crate) fn load(
    core: &Core<'_>,
    hart: &mut Hart,
    effective: u64,
    size: u64,
) -> Result<u64, Event> {
    let (address, shire) = (map::canonical(effective), hart.shire());
    match map::place(address, shire) {
        Place::Dram(offset) if core.is_closed(offset, size, Access::Load) => {
            Err(core.refusal(offset, size, Access::Load).unwrap_or(Event::load_fault(address)))
        }
        Place::Dram(offset) if is_cached(core, hart, address) => {
            let is_inside = offset + size <= core.chip.dram.size();
            let cache = hart.cache.as_mut().filter(|_| is_inside);
            cache.map(|cache| cache.load(core, offset, size)).ok_or(Event::load_fault(address))
        }
        Place::Dram(offset) => match core.chip.weak() {
            None => read(core.chip.dram.region(), offset, size),
            Some(mut weak) => (offset + size <= core.chip.dram.size())
                .then(|| weak.load(core, hart.id, Bank::Dram, offset, size)),
        }
        .ok_or(Event::load_fault(address)),
        Place::Scratchpad(offset) if address.is_multiple_of(size) => match core.chip.weak() {
            None => read(core.chip.scratchpads.region(), offset, size).ok_or(Event::BusError),
            Some(mut weak) => Ok(weak.load(core, hart.id, Bank::Scratchpads, offset, size)),
        },
        Place::Scratchpad(_) => {
            let mut value = 0;
            for at in 0..size {
                value |= load(core, hart, address.wrapping_add(at), 1)? << (8 * at);
            }
            Ok(value)
        }
        Place::Nothing => Err(Event::BusError),
        Place::Esr(offset) if size == 8 && address.is_multiple_of(8) => {
            esr::read(core, shire, offset).map_err(|fault| match fault {
                EsrFault::Access => Event::load_fault(address),
                EsrFault::Bus => Event::BusError,
            })
        }
        Place::Esr(_) | Place::Forbidden => Err(Event::load_fault(address)),
    }
}

/// Writes the low `size` bytes (1, 2, 4 or 8) of `value`.
#[cold]
#[inline(never)]
pub(crate) fn store(
    core: &Core<'_>,
    hart: &mut Hart,
    effective: u64,
    size: u64,
    value: u64,
) -> Result<(), Event> {
    let (address, shire) = (map::canonical(effective), hart.shire());
    match map::place(address, shire) {
        Place::Dram(offset) if core.is_closed(offset, size, Access::Store) => {
            Err(core.refusal(offset, size, Access::Store).unwrap_or(Event::store_fault(address)))
        }
        Place::Dram(offset) if is_cached(core, hart, address) => {
            let is_inside = offset + size <= core.chip.dram.size();
            let cache = hart.cache.as_mut().filter(|_| is_inside);
            cache
                .map(|cache| cache.store(core, offset, size, value))
                .ok_or(Event::store_fault(address))
        }
        Place::Dram(offset) => match core.chip.weak() {
            None => write(core.chip.dram.region(), offset, size, value)
                .map(|()| note_store(core, offset, size)),
            Some(mut weak) => (offset + size <= core.chip.dram.size())
                .then(|| weak.store(core, hart.id, Bank::Dram, offset, size, value)),
        }
        .ok_or(Event::store_fault(address)),
        Place::Scratchpad(offset) if address.is_multiple_of(size) => match core.chip.weak() {
            None => {
                write(core.chip.scratchpads.region(), offset, size, value).ok_or(Event::BusError)
            }
            Some(mut weak) => {
                weak.store(core, hart.id, Bank::Scratchpads, offset, size, value);
                Ok(())
            }
        },
        Place::Scratchpad(_) => {
            // Each part is checked by itself; the last first, so that a store that leaves the
            // scratchpad has no effect.
            let last = map::canonical(address.wrapping_add(size - 1));
            match map::place(last, shire) {
                Place::Scratchpad(_) => {}
                Place::Nothing => return Err(Event::BusError),
                _ => return Err(Event::store_fault(last)),
            }
            for at in 0..size {
                store(core, hart, address.wrapping_add(at), 1, value >> (8 * at))?;
            }
            Ok(())
        }
        Place::Nothing => Err(Event::BusError),
        Place::Esr(offset) if size == 8 && address.is_multiple_of(8) => {
            esr::write(core, shire, offset, value).map_err(|fault| match fault {
                EsrFault::Access => Event::store_fault(address),
                EsrFault::Bus => Event::BusError,
            })
        }
        Place::Esr(_) | Place::Forbidden => Err(Event::store_fault(address)),
    }
}

/// Why there is no memory for an access of the tensor unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The address is closed, or above the end of memory.
    Fault,
    /// There is no device at the address.
    Nothing,
    /// A checker refuses the access.
    Refused(Event),
}

/// Finds the memory of `size` bytes that do not cross a line.
fn in_line(
    core: &Core<'_>,
    hart: &Hart,
    address: u64,
    size: u64,
    access: Access,
) -> Result<(Bank, u64), Missing> {
    let address = map::canonical(address);
    match map::place(address, hart.shire()) {
        Place::Dram(offset) if core.is_closed(offset, size, access) => {
            Err(core.refusal(offset, size, access).map_or(Missing::Fault, Missing::Refused))
        }
        Place::Dram(offset) if offset + size <= core.chip.dram.size() => Ok((Bank::Dram, offset)),
        Place::Scratchpad(offset) => Ok((Bank::Scratchpads, offset)),
        Place::Nothing => Err(Missing::Nothing),
        _ => Err(Missing::Fault),
    }
}

/// Reads a line for the tensor unit, which does not look into the L1.
pub(crate) fn load_line(
    core: &Core<'_>,
    hart: &mut Hart,
    address: u64,
) -> Result<[u8; 64], Missing> {
    // Most lines are there: several minions of a shire read the same ones.
    if !(core.guards.touch(address, 64) || core.stacks.are_at(address))
        && let Some(line) = hart.cache.as_ref().and_then(|cache| cache.near(address, 64))
        && let Ok(line) = line.try_into()
    {
        return Ok(line);
    }
    let (bank, offset) = in_line(core, hart, address, 64, Access::Line)?;
    if let Some(mut weak) = core.chip.weak() {
        return Ok(weak.load_line(core, hart.id, (bank, offset)));
    }
    if bank == Bank::Dram
        && is_cached(core, hart, DRAM_BASE + offset)
        && let Some(cache) = &mut hart.cache
    {
        return Ok(cache.load_line(core, offset));
    }
    let doubles = bank.region(core.chip).doubles::<8>(offset).ok_or(Missing::Fault)?;
    let mut line = [0; 64];
    for (word, double) in line.as_chunks_mut::<8>().0.iter_mut().zip(doubles) {
        *word = double.load(Ordering::Relaxed).to_le_bytes();
    }
    Ok(line)
}

/// When a store of the tensor unit takes effect on weak memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Now,
    Later,
}

/// Writes words of 8 bytes within a line to memory, for the tensor unit.
pub(crate) fn store_public(
    core: &Core<'_>,
    hart: &mut Hart,
    address: u64,
    bytes: &[u8],
    effect: Effect,
) -> Result<(), Missing> {
    let (bank, offset) = in_line(core, hart, address, bytes.len() as u64, Access::Store)?;
    let (words, _) = bytes.as_chunks::<8>();
    let words = (offset..).step_by(8).zip(words.iter().map(|word| u64::from_le_bytes(*word)));
    if let Some(mut weak) = core.chip.weak() {
        for (at, value) in words {
            let target = Target { scope: Scope::Global, bank, offset: at, size: 8 };
            match effect {
                Effect::Now => drop(weak.change(core, hart.id, target, Change::Data(value))),
                Effect::Later => weak.post(core, hart.id, target, Change::Data(value)),
            }
        }
        return Ok(());
    }
    let region = bank.region(core.chip);
    for (at, value) in words {
        write(region, at, 8, value).ok_or(Missing::Fault)?;
    }
    note_coherent(core, region, offset, bytes.len() as u64);
    if let (Some(cache), Bank::Dram) = (&mut hart.cache, bank) {
        cache.update(offset, bytes);
    }
    Ok(())
}

/// Finds what a coherent load or store names, if there are caches and it is memory.
fn scoped_target(
    core: &Core<'_>,
    hart: &Hart,
    effective: u64,
    size: u64,
    scope: Option<Scope>,
    access: Access,
) -> Option<Target> {
    let scope = scope?;
    if core.chip.weak.is_none() && hart.cache.is_none() {
        return None;
    }
    // Only atomics are kept away from scratchpads by a local scope.
    let found = coherent(core, hart.shire(), effective, size, Scope::Global, access);
    let (region, offset) = found.ok()?;
    Some(Target { scope, bank: Bank::of(core, region), offset, size })
}

/// Reads `size` bytes (1, 2 or 4), zero-extended, where the scope says; without one, as [`load`].
pub(crate) fn load_scoped(
    core: &Core<'_>,
    hart: &mut Hart,
    effective: u64,
    size: u64,
    scope: Option<Scope>,
) -> Result<u64, Event> {
    let Some(target) = scoped_target(core, hart, effective, size, scope, Access::Load) else {
        return load(core, hart, effective, size);
    };
    if let Some(mut weak) = core.chip.weak() {
        return Ok(weak.load_coherent(core, hart.id, target));
    }
    if target.scope == Scope::Local {
        return load(core, hart, effective, size);
    }
    Ok(read(target.bank.region(core.chip), target.offset, size).unwrap_or(0))
}

/// Writes the low `size` bytes (1, 2 or 4) of `value` where the scope says; without one, as
/// [`store`].
pub(crate) fn store_scoped(
    core: &Core<'_>,
    hart: &mut Hart,
    effective: u64,
    size: u64,
    value: u64,
    scope: Option<Scope>,
) -> Result<(), Event> {
    match scoped_target(core, hart, effective, size, scope, Access::Store) {
        Some(target) => {
            post(core, hart, target, Change::Data(value));
            Ok(())
        }
        None => store(core, hart, effective, size, value),
    }
}

/// Finds the 32 bytes of a packed register, whole words within a line, where no cache is between
/// them and the hart: in a scratchpad, and in DRAM if the scope is global. None is for those who
/// look at lanes one by one.
fn past_caches<'a>(
    core: &Core<'a>,
    hart: &Hart,
    effective: u64,
    scope: Option<Scope>,
    access: Access,
) -> Option<(Bank, &'a [AtomicU64; 4], u64)> {
    const BYTES: u64 = 32;
    if core.chip.weak.is_some() || effective % 64 > 64 - BYTES {
        return None;
    }
    let (bank, offset) = match map::place(map::canonical(effective), hart.shire()) {
        Place::Scratchpad(offset) => (Bank::Scratchpads, offset),
        Place::Dram(offset)
            if scope == Some(Scope::Global) && !core.is_closed(offset, BYTES, access) =>
        {
            (Bank::Dram, offset)
        }
        _ => return None,
    };
    Some((bank, bank.region(core.chip).doubles(offset)?, offset))
}

/// Loads eight words from where there are no caches; none if they are elsewhere.
pub(crate) fn load_past_caches(
    core: &Core<'_>,
    hart: &Hart,
    effective: u64,
    scope: Option<Scope>,
) -> Option<[u32; 8]> {
    let (_, doubles, _) = past_caches(core, hart, effective, scope, Access::Load)?;
    Some(lanes_of(doubles))
}

/// Stores eight words to where there are no caches; none, and nothing stored, if they are
/// elsewhere.
pub(crate) fn store_past_caches(
    core: &Core<'_>,
    hart: &mut Hart,
    effective: u64,
    scope: Option<Scope>,
    lanes: [u32; 8],
) -> Option<()> {
    let (bank, doubles, offset) = past_caches(core, hart, effective, scope, Access::Store)?;
    if scope.is_some() {
        // What the hart stored before is visible to who sees this.
        fence(Ordering::Release);
    }
    store_lanes(doubles, lanes);
    if bank == Bank::Dram {
        note_store(core, offset, 32);
        if let Some(cache) = &mut hart.cache {
            let mut bytes = [0; 32];
            for (bytes, lane) in bytes.chunks_exact_mut(4).zip(lanes) {
                bytes.copy_from_slice(&lane.to_le_bytes());
            }
            cache.update(offset, &bytes);
        }
    }
    Some(())
}

/// Changes an aligned word at once; returns what was there before.
pub(crate) fn change(core: &Core<'_>, hart: &mut Hart, target: Target, change: Change) -> u64 {
    let Target { scope, bank, offset, size } = target;
    if let Some(mut weak) = core.chip.weak() {
        return weak.change(core, hart.id, target, change);
    }
    if bank == Bank::Dram
        && is_cached(core, hart, DRAM_BASE + offset)
        && let Some(cache) = &mut hart.cache
    {
        return cache.change(core, scope, (offset, size), change);
    }
    let region = bank.region(core.chip);
    let old = change.in_region(region, offset, size).unwrap_or(0);
    note_coherent(core, region, offset, size);
    old
}

/// Changes an aligned word: on weak memory later.
pub(crate) fn post(core: &Core<'_>, hart: &mut Hart, target: Target, change: Change) {
    match core.chip.weak() {
        Some(mut weak) => weak.post(core, hart.id, target, change),
        None => {
            self::change(core, hart, target, change);
        }
    }
}

/// Drops decoded instructions under a store to DRAM.
pub(crate) fn note_store(core: &Core<'_>, offset: u64, size: u64) {
    let (first, last) = (DRAM_BASE + offset, DRAM_BASE + offset + size - 1);
    if core.code.may_hold(first) || core.code.may_hold(last) {
        core.code.note_store(&core.chip.dram, offset, size);
    }
}

/// Reads from a region, byte by byte where misaligned; none if a byte is outside.
pub(crate) fn read(region: &Region, offset: u64, size: u64) -> Option<u64> {
    let aligned = match size {
        1 => region.byte(offset).map(|byte| byte.load(Ordering::Relaxed).into()),
        2 => region.half(offset).map(|half| half.load(Ordering::Relaxed).into()),
        4 => region.word(offset).map(|word| word.load(Ordering::Relaxed).into()),
        _ => region.double(offset).map(|double| double.load(Ordering::Relaxed)),
    };
    aligned.or_else(|| {
        (0..size).try_fold(0, |value, at| {
            let byte = region.byte(offset + at)?.load(Ordering::Relaxed);
            Some(value | u64::from(byte) << (8 * at))
        })
    })
}

/// Writes to a region, byte by byte where misaligned; none, and nothing written, if a byte is
/// outside.
#[expect(clippy::cast_possible_truncation, reason = "stores take the low bytes of a register")]
pub(crate) fn write(region: &Region, offset: u64, size: u64, value: u64) -> Option<()> {
    let aligned = match size {
        1 => region.byte(offset).map(|byte| byte.store(value as u8, Ordering::Relaxed)),
        2 => region.half(offset).map(|half| half.store(value as u16, Ordering::Relaxed)),
        4 => region.word(offset).map(|word| word.store(value as u32, Ordering::Relaxed)),
        _ => region.double(offset).map(|double| double.store(value, Ordering::Relaxed)),
    };
    aligned.or_else(|| {
        region.byte(offset + size - 1)?;
        for at in 0..size {
            region.byte(offset + at)?.store((value >> (8 * at)) as u8, Ordering::Relaxed);
        }
        Some(())
    })
}

/// Level of the memory hierarchy at which an atomic or coherent access happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The shire's L2.
    Local,
    /// L3 or memory.
    Global,
}

/// Finds the memory behind an aligned access that must be coherent.
pub(crate) fn coherent<'a>(
    core: &Core<'a>,
    shire: u32,
    effective: u64,
    size: u64,
    scope: Scope,
    access: Access,
) -> Result<(&'a Region, u64), Coherence> {
    let address = map::canonical(effective);
    if !address.is_multiple_of(size) {
        return Err(Coherence::Fault(address));
    }
    let chip = core.chip;
    match map::place(address, shire) {
        Place::Dram(offset) if core.is_closed(offset, size, access) => {
            let refused = core.refusal(offset, size, access).map(Coherence::Refused);
            Err(refused.unwrap_or(Coherence::Fault(address)))
        }
        Place::Dram(offset) if offset + size <= chip.dram.size() => {
            Ok((chip.dram.region(), offset))
        }
        Place::Scratchpad(offset) if scope == Scope::Global => {
            Ok((chip.scratchpads.region(), offset))
        }
        Place::Nothing if scope == Scope::Global => Err(Coherence::Nothing),
        _ => Err(Coherence::Fault(address)),
    }
}

/// Why there is no memory for a coherent access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coherence {
    /// The access traps with this value.
    Fault(u64),
    /// There is no device at the address.
    Nothing,
    /// A checker refuses the access.
    Refused(Event),
}

impl Coherence {
    pub(crate) fn of_store(self) -> Event {
        match self {
            Self::Refused(event) => event,
            Self::Fault(address) => Event::store_fault(address),
            Self::Nothing => Event::BusError,
        }
    }
}

/// Tells decoded code about a coherent store to `region`.
pub(crate) fn note_coherent(core: &Core<'_>, region: &Region, offset: u64, size: u64) {
    if std::ptr::eq(region, core.chip.dram.region()) {
        note_store(core, offset, size);
    }
}
