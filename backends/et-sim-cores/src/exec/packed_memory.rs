//! Loads, stores, gathers, scatters and atomics of packed registers. Spec: ISA §3.6

use std::sync::atomic::Ordering;

use et_isa::Id;

use crate::decode::{imm_i, imm_s, rd, rs1, rs2};
use crate::exec::amo::Atomic;
use crate::exec::event::Event;
use crate::exec::packed::{Access, Execute, LANES};
use crate::float::Pick;
use crate::float::wide::{self, Lanes};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};
use crate::memory::bus::{self, Scope};
use crate::memory::map;
use crate::memory::private::Private;
use crate::memory::weak::{Bank, Change, Target};

/// Alignment of coherent accesses to a whole register.
const REGISTER_BYTES: u64 = 32;
const LINE_BYTES: u64 = 64;
/// The mask of all lanes.
const ALL: u64 = 0xFF;

/// Executes one access, which is known when this is compiled.
macro_rules! access {
    ($access:expr) => {
        |hart, core, raw, _| {
            const ACCESS: Access = $access;
            execute(hart, core, raw, ACCESS)
        }
    };
}

/// Returns what executes an access; none if the instruction is not one of these.
pub(crate) const fn of(id: Id) -> Option<Execute> {
    use Scope::{Global, Local};
    Some(match id {
        Id::Flq2 => access!(Access::LoadWhole),
        Id::Fsq2 => access!(Access::StoreWhole),
        Id::FbcPs => access!(Access::LoadBroadcast),
        Id::FlwPs => access!(Access::Load),
        Id::FswPs => access!(Access::Store),
        Id::FlwlPs => access!(Access::LoadCoherent(Local)),
        Id::FlwgPs => access!(Access::LoadCoherent(Global)),
        Id::FswlPs => access!(Access::StoreCoherent(Local)),
        Id::FswgPs => access!(Access::StoreCoherent(Global)),
        Id::Fg32bPs => access!(Access::GatherBlock(1)),
        Id::Fsc32bPs => access!(Access::ScatterBlock(1)),
        Id::FgbPs => access!(Access::Gather(1, None)),
        Id::FscbPs => access!(Access::Scatter(1, None)),
        Id::FgblPs => access!(Access::Gather(1, Some(Local))),
        Id::FscblPs => access!(Access::Scatter(1, Some(Local))),
        Id::FgbgPs => access!(Access::Gather(1, Some(Global))),
        Id::FscbgPs => access!(Access::Scatter(1, Some(Global))),
        Id::Fg32hPs => access!(Access::GatherBlock(2)),
        Id::Fsc32hPs => access!(Access::ScatterBlock(2)),
        Id::FghPs => access!(Access::Gather(2, None)),
        Id::FschPs => access!(Access::Scatter(2, None)),
        Id::FghlPs => access!(Access::Gather(2, Some(Local))),
        Id::FschlPs => access!(Access::Scatter(2, Some(Local))),
        Id::FghgPs => access!(Access::Gather(2, Some(Global))),
        Id::FschgPs => access!(Access::Scatter(2, Some(Global))),
        Id::Fg32wPs => access!(Access::GatherBlock(4)),
        Id::Fsc32wPs => access!(Access::ScatterBlock(4)),
        Id::FgwPs => access!(Access::Gather(4, None)),
        Id::FscwPs => access!(Access::Scatter(4, None)),
        Id::FgwlPs => access!(Access::Gather(4, Some(Local))),
        Id::FscwlPs => access!(Access::Scatter(4, Some(Local))),
        Id::FgwgPs => access!(Access::Gather(4, Some(Global))),
        Id::FscwgPs => access!(Access::Scatter(4, Some(Global))),
        Id::FamoaddlPi => access!(Access::Atomic(Atomic::Add, Local)),
        Id::FamoaddgPi => access!(Access::Atomic(Atomic::Add, Global)),
        Id::FamoswaplPi => access!(Access::Atomic(Atomic::Swap, Local)),
        Id::FamoswapgPi => access!(Access::Atomic(Atomic::Swap, Global)),
        Id::FamoandlPi => access!(Access::Atomic(Atomic::And, Local)),
        Id::FamoandgPi => access!(Access::Atomic(Atomic::And, Global)),
        Id::FamoorlPi => access!(Access::Atomic(Atomic::Or, Local)),
        Id::FamoorgPi => access!(Access::Atomic(Atomic::Or, Global)),
        Id::FamoxorlPi => access!(Access::Atomic(Atomic::Xor, Local)),
        Id::FamoxorgPi => access!(Access::Atomic(Atomic::Xor, Global)),
        Id::FamominlPi => access!(Access::Atomic(Atomic::Min, Local)),
        Id::FamomingPi => access!(Access::Atomic(Atomic::Min, Global)),
        Id::FamomaxlPi => access!(Access::Atomic(Atomic::Max, Local)),
        Id::FamomaxgPi => access!(Access::Atomic(Atomic::Max, Global)),
        Id::FamominulPi => access!(Access::Atomic(Atomic::MinUnsigned, Local)),
        Id::FamominugPi => access!(Access::Atomic(Atomic::MinUnsigned, Global)),
        Id::FamomaxulPi => access!(Access::Atomic(Atomic::MaxUnsigned, Local)),
        Id::FamomaxugPi => access!(Access::Atomic(Atomic::MaxUnsigned, Global)),
        Id::FamominlPs => access!(Access::AtomicFloat(Pick::Smaller, Local)),
        Id::FamomingPs => access!(Access::AtomicFloat(Pick::Smaller, Global)),
        Id::FamomaxlPs => access!(Access::AtomicFloat(Pick::Larger, Local)),
        Id::FamomaxgPs => access!(Access::AtomicFloat(Pick::Larger, Global)),
        _ => return None,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "lanes have 32 bits")]
fn low(value: u64) -> u32 {
    value as u32
}

/// A loaded value of `size` bytes, sign-extended to a lane.
fn extend(value: u64, size: u64) -> u32 {
    let unused = 32 - 8 * u32::try_from(size).unwrap_or(4);
    ((low(value) << unused).cast_signed() >> unused).cast_unsigned()
}

fn offset(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset.into())
}

/// Executes an access.
#[inline(always)]
fn execute(hart: &mut Hart, core: &Core<'_>, raw: u32, access: Access) -> Result<(), Event> {
    let base = hart.x[rs1(raw) as usize];
    let fd = rd(raw) as usize;
    let mask = hart.masks & ALL;
    match access {
        Access::LoadWhole => load(hart, core, fd, None, ALL, offset(base, imm_i(raw))),
        Access::StoreWhole => {
            store(hart, core, rs2(raw) as usize, None, ALL, offset(base, imm_s(raw)))
        }
        Access::Load => load(hart, core, fd, None, mask, offset(base, imm_i(raw))),
        Access::Store => store(hart, core, rs2(raw) as usize, None, mask, offset(base, imm_s(raw))),
        Access::LoadBroadcast => broadcast(hart, core, fd, mask, offset(base, imm_i(raw))),
        Access::LoadCoherent(_) if !base.is_multiple_of(REGISTER_BYTES) => {
            Err(Event::load_fault(map::canonical(base)))
        }
        Access::LoadCoherent(scope) => load(hart, core, fd, Some(scope), mask, base),
        Access::StoreCoherent(_) if !base.is_multiple_of(REGISTER_BYTES) => {
            Err(Event::store_fault(map::canonical(base)))
        }
        // With a partial mask the result is undefined on the first silicon; the reference stores
        // all lanes.
        Access::StoreCoherent(scope) => {
            let mask = if mask == 0 { 0 } else { ALL };
            store(hart, core, fd, Some(scope), mask, base)
        }
        Access::GatherBlock(size) => {
            let block = hart.x[rs2(raw) as usize];
            let at_once = |hart: &mut Hart| match size {
                1 => wide::run(|| gather_block_at_once::<1>(hart, core, fd, block, base)),
                2 => wide::run(|| gather_block_at_once::<2>(hart, core, fd, block, base)),
                _ => wide::run(|| gather_block_at_once::<4>(hart, core, fd, block, base)),
            };
            let start = block & !(REGISTER_BYTES - 1);
            if at_once(hart) || fetch(hart, core, start, REGISTER_BYTES) && at_once(hart) {
                return Ok(());
            }
            let mut result = hart.f[fd].0;
            for (lane, bits) in result.iter_mut().enumerate() {
                if mask >> lane & 1 != 0 {
                    let from = in_block(block, base, size, lane);
                    *bits = extend(bus::load(core, hart, from, size)?, size);
                }
            }
            hart.f[fd] = Vector(result);
            Ok(())
        }
        Access::Gather(size, None) if gather(hart, core, raw, size) => Ok(()),
        Access::ScatterBlock(size) => {
            let block = hart.x[rs2(raw) as usize];
            for lane in (0..LANES).filter(|&lane| mask >> lane & 1 != 0) {
                let to = in_block(block, base, size, lane);
                let bits = hart.f[fd].0[lane];
                bus::store(core, hart, to, size, bits.into())?;
            }
            Ok(())
        }
        _ => lane_by_lane(hart, core, raw, access),
    }
}

/// Gets what the shire's cache lacks of memory, if there is one; returns `false` if there is none.
#[cold]
#[inline(never)]
pub(crate) fn fetch(hart: &mut Hart, core: &Core<'_>, from: u64, size: u64) -> bool {
    if core.guards.are_at(from) || core.guards.are_at(from.wrapping_add(size - 1)) {
        return false;
    }
    hart.cache.as_mut().map(|cache| cache.fetch(core, from, size)).is_some()
}

/// Gathers all enabled lanes, after a look at what the cache lacks; returns `false`, with nothing
/// done, if something else is in the way.
fn gather(hart: &mut Hart, core: &Core<'_>, raw: u32, size: u64) -> bool {
    let at_once = |hart: &mut Hart| match size {
        1 => wide::run(|| gather_at_once::<1>(hart, core, raw)),
        2 => wide::run(|| gather_at_once::<2>(hart, core, raw)),
        _ => wide::run(|| gather_at_once::<4>(hart, core, raw)),
    };
    if at_once(hart) {
        return true;
    }
    let (base, mask) = (hart.x[rs2(raw) as usize], hart.masks & ALL);
    let indices = hart.f[rs1(raw) as usize].0;
    let lanes = (0..LANES).filter(|&lane| mask >> lane & 1 != 0);
    let mut has_cache = false;
    let mut last = None;
    for lane in lanes {
        let from = offset(base, indices[lane].cast_signed());
        // Neighbours are mostly in one line.
        let ends = Some((from / LINE_BYTES, from.wrapping_add(size - 1) / LINE_BYTES));
        if ends != last {
            has_cache = fetch(hart, core, from, size);
            last = ends;
        }
    }
    has_cache && at_once(hart)
}

/// Gathers all enabled lanes, if nothing is in the way of any; returns `false`, with nothing done,
/// otherwise.
#[inline(always)]
pub(crate) fn gather_at_once<const SIZE: u64>(hart: &mut Hart, core: &Core<'_>, raw: u32) -> bool {
    if hart.gsc_progress != 0 || !is_direct(hart, core, None) {
        return false;
    }
    let (base, mask) = (hart.x[rs2(raw) as usize], hart.masks & ALL);
    let indices = hart.f[rs1(raw) as usize].0;
    if mask == ALL
        && SIZE == 1
        && let Some(result) = gather_near(hart, core, base, &indices)
    {
        hart.f[rd(raw) as usize] = Vector(result);
        return true;
    }
    let mut result = [0; LANES];
    for lane in (0..LANES).filter(|&lane| mask >> lane & 1 != 0) {
        let from = offset(base, indices[lane].cast_signed());
        let Some(bits) = direct_word(hart, core, from, SIZE) else { return false };
        result[lane] = extend(bits.into(), SIZE);
    }
    put(hart, rd(raw) as usize, mask, &result);
    true
}

/// Loads a byte to each lane, if they are near each other and nothing is in the way of what lies
/// between them: what is to be checked is checked once.
#[inline(always)]
fn gather_near(hart: &Hart, core: &Core<'_>, base: u64, indices: &Lanes) -> Option<Lanes> {
    let signed = indices.map(u32::cast_signed);
    let least = signed.into_iter().fold(i32::MAX, i32::min);
    let most = signed.into_iter().fold(i32::MIN, i32::max);
    let first = offset(base, least);
    let len = u64::from(most.abs_diff(least)) + 1;
    if len > 64 || core.guards.are_near(first, len) {
        return None;
    }
    let at = |lane: usize| indices[lane].wrapping_sub(least.cast_unsigned()) as usize;
    let mut lanes = [0; LANES];
    match way(hart, core, first, len)? {
        Way::Cache(cache) => {
            let bytes = cache.near(first, len)?;
            for (lane, bits) in lanes.iter_mut().enumerate() {
                *bits = extend((*bytes.get(at(lane))?).into(), 1);
            }
        }
        Way::Memory => {
            let bytes = core.chip.dram.user_bytes(first, len)?;
            for (lane, bits) in lanes.iter_mut().enumerate() {
                *bits = extend(bytes.get(at(lane))?.load(Ordering::Relaxed).into(), 1);
            }
        }
    }
    Some(lanes)
}

/// The same for a gather within a block, whose indices are packed.
#[inline(always)]
pub(crate) fn gather_block_at_once<const SIZE: u64>(
    hart: &mut Hart,
    core: &Core<'_>,
    fd: usize,
    block: u64,
    indices: u64,
) -> bool {
    if !is_direct(hart, core, None) {
        return false;
    }
    let start = block & !(REGISTER_BYTES - 1);
    let Some(words) = direct_lanes(hart, core, start) else { return false };
    let result = std::array::from_fn(|lane| {
        // Below 32.
        let at = low(in_block(block, indices, SIZE, lane).wrapping_sub(start));
        extend((words[(at / 4) as usize % LANES] >> (8 * (at % 4))).into(), SIZE)
    });
    put(hart, fd, hart.masks & ALL, &result);
    true
}

/// Address of a lane in a block of 32 bytes: the packed indices move on from that of the base.
fn in_block(base: u64, indices: u64, size: u64, lane: usize) -> u64 {
    let within = match size {
        1 => base.wrapping_add(indices >> (5 * lane)) & 31,
        2 => base.wrapping_add(indices >> (4 * lane) << 1) & 30,
        _ => base.wrapping_add(indices >> (3 * lane) << 2) & 28,
    };
    (base & !31).wrapping_add(within)
}

/// Returns `true` if the memory of an access is DRAM itself, or the shire's cache if there is one.
pub(crate) fn is_direct(hart: &Hart, core: &Core<'_>, scope: Option<Scope>) -> bool {
    core.is_flat() || hart.cache.is_some() && scope != Some(Scope::Global)
}

/// What loads and stores go to.
pub(crate) enum Way<'a> {
    Cache(&'a Private),
    Memory,
}

/// Returns what an access goes to that has no scope; none if that is not the same for all of it.
/// On weak memory it is not asked.
#[inline(always)]
pub(crate) fn way<'a>(hart: &'a Hart, core: &Core<'_>, from: u64, size: u64) -> Option<Way<'a>> {
    let Some(cache) = &hart.cache else { return Some(Way::Memory) };
    match (core.guards.are_at(from), core.guards.are_at(from.wrapping_add(size - 1))) {
        (false, false) => Some(Way::Cache(cache)),
        (true, true) => Some(Way::Memory),
        _ => None,
    }
}

/// Loads a word, if nothing is in the way.
#[inline(always)]
fn direct_word(hart: &Hart, core: &Core<'_>, from: u64, size: u64) -> Option<u32> {
    if core.guards.hold(from) {
        return None;
    }
    let dram = &core.chip.dram;
    match (way(hart, core, from, size)?, size) {
        (Way::Cache(cache), 1) => cache.load_byte(from).map(u32::from),
        (Way::Cache(cache), 2) => cache.load_half(from).map(u32::from),
        (Way::Cache(cache), _) => cache.load_word(from),
        (Way::Memory, 1) => dram.user_byte(from).map(|byte| byte.load(Ordering::Relaxed).into()),
        (Way::Memory, 2) => dram.user_half(from).map(|half| half.load(Ordering::Relaxed).into()),
        (Way::Memory, _) => dram.user_word(from).map(|word| word.load(Ordering::Relaxed)),
    }
}

/// Writes the lanes of `mask`.
#[inline(always)]
fn put(hart: &mut Hart, fd: usize, mask: u64, lanes: &Lanes) {
    let Vector(register) = &mut hart.f[fd];
    *register = if mask == ALL { *lanes } else { wide::blend(mask, lanes, register) };
}

/// Loads eight words, if nothing is in the way.
#[inline(always)]
fn direct_lanes(hart: &Hart, core: &Core<'_>, from: u64) -> Option<[u32; LANES]> {
    if core.guards.are_near(from, REGISTER_BYTES) {
        return None;
    }
    match way(hart, core, from, REGISTER_BYTES)? {
        Way::Cache(cache) => {
            let Vector(lanes) = Vector::of_bytes(cache.register(from)?);
            Some(lanes)
        }
        Way::Memory => core.chip.dram.user_lanes(from),
    }
}

/// Stores eight words, if nothing is in the way.
#[inline(always)]
fn store_direct_lanes(
    hart: &mut Hart,
    core: &Core<'_>,
    to: u64,
    lanes: [u32; LANES],
) -> Option<()> {
    if core.guards.are_near(to, REGISTER_BYTES) {
        return None;
    }
    let is_memory = matches!(way(hart, core, to, REGISTER_BYTES)?, Way::Memory);
    match &mut hart.cache {
        Some(cache) if !is_memory => {
            let mut bytes = [0; 32];
            for (bytes, lane) in bytes.chunks_exact_mut(4).zip(lanes) {
                bytes.copy_from_slice(&lane.to_le_bytes());
            }
            cache.store_register(to, &bytes)
        }
        _ if core.code.may_hold(to) || core.code.may_hold(to + REGISTER_BYTES) => None,
        _ => core.chip.dram.store_user_lanes(to, lanes),
    }
}

/// Returns one word, if nothing is in the way.
#[inline(always)]
pub(crate) fn one_word(hart: &Hart, core: &Core<'_>, from: u64) -> Option<u32> {
    if is_direct(hart, core, None) { direct_word(hart, core, from, 4) } else { None }
}

/// Loads consecutive words to the lanes of `mask`; a fault leaves the register as it was.
fn load(
    hart: &mut Hart,
    core: &Core<'_>,
    fd: usize,
    scope: Option<Scope>,
    mask: u64,
    from: u64,
) -> Result<(), Event> {
    let at_once = |hart: &mut Hart| {
        wide::run(|| {
            let lanes = direct_lanes(hart, core, from);
            lanes.map(|lanes| put(hart, fd, mask, &lanes)).is_some()
        })
    };
    let direct = is_direct(hart, core, scope);
    if direct && (at_once(hart) || fetch(hart, core, from, REGISTER_BYTES) && at_once(hart)) {
        return Ok(());
    }
    load_in_turn(hart, core, fd, scope, mask, from)
}

/// Loads lane by lane, whatever is in the way.
#[cold]
#[inline(never)]
fn load_in_turn(
    hart: &mut Hart,
    core: &Core<'_>,
    fd: usize,
    scope: Option<Scope>,
    mask: u64,
    from: u64,
) -> Result<(), Event> {
    if let Some(lanes) = bus::load_past_caches(core, hart, from, scope) {
        wide::run(|| put(hart, fd, mask, &lanes));
        return Ok(());
    }
    let mut result = hart.f[fd].0;
    for lane in (0..LANES).filter(|&lane| mask >> lane & 1 != 0) {
        let from = from.wrapping_add(4 * lane as u64);
        result[lane] = low(bus::load_scoped(core, hart, from, 4, scope)?);
    }
    hart.f[fd] = Vector(result);
    Ok(())
}

/// Loads one word to all lanes of `mask`.
fn broadcast(
    hart: &mut Hart,
    core: &Core<'_>,
    fd: usize,
    mask: u64,
    from: u64,
) -> Result<(), Event> {
    if mask == 0 {
        return Ok(());
    }
    let bits = match one_word(hart, core, from) {
        Some(bits) => bits,
        None => low(bus::load(core, hart, from, 4)?),
    };
    wide::run(|| put(hart, fd, mask, &[bits; LANES]));
    Ok(())
}

/// Stores the lanes of `mask` of a register to consecutive words.
fn store(
    hart: &mut Hart,
    core: &Core<'_>,
    source: usize,
    scope: Option<Scope>,
    mask: u64,
    to: u64,
) -> Result<(), Event> {
    let lanes = hart.f[source].0;
    let direct = mask == ALL && is_direct(hart, core, scope);
    if direct
        && (store_direct_lanes(hart, core, to, lanes).is_some()
            || fetch(hart, core, to, REGISTER_BYTES)
                && store_direct_lanes(hart, core, to, lanes).is_some())
    {
        return Ok(());
    }
    if mask == ALL && bus::store_past_caches(core, hart, to, scope, lanes).is_some() {
        return Ok(());
    }
    for (lane, bits) in lanes.into_iter().enumerate().filter(|(lane, _)| mask >> lane & 1 != 0) {
        let to = to.wrapping_add(4 * lane as u64);
        bus::store_scoped(core, hart, to, 4, bits.into(), scope)?;
    }
    Ok(())
}

/// Executes the accesses that keep the effect of the lanes before a fault and, executed again,
/// start at the lane that faulted.
fn lane_by_lane(hart: &mut Hart, core: &Core<'_>, raw: u32, access: Access) -> Result<(), Event> {
    let fd = rd(raw) as usize;
    let indices = hart.f[rs1(raw) as usize].0;
    let base = hart.x[rs2(raw) as usize];
    let first = usize::from(hart.gsc_progress);
    let masks = hart.masks;
    for lane in (first..LANES).filter(|&lane| masks >> lane & 1 != 0) {
        let at = offset(base, indices[lane].cast_signed());
        let operand = hart.f[fd].0[lane];
        match one_lane(hart, core, access, at, operand) {
            Ok(Some(bits)) => hart.f[fd].0[lane] = bits,
            Ok(None) => {}
            Err(event) => {
                hart.gsc_progress = u8::try_from(lane).unwrap_or(0);
                return Err(event);
            }
        }
    }
    hart.gsc_progress = 0;
    Ok(())
}

/// Executes one lane; returns what the lane gets, if it gets anything.
fn one_lane(
    hart: &mut Hart,
    core: &Core<'_>,
    access: Access,
    at: u64,
    operand: u32,
) -> Result<Option<u32>, Event> {
    let address = map::canonical(at);
    match access {
        Access::Gather(size, scope) => {
            if scope.is_some() && !at.is_multiple_of(size) {
                return Err(Event::load_fault(address));
            }
            Ok(Some(extend(bus::load_scoped(core, hart, at, size, scope)?, size)))
        }
        Access::Scatter(size, scope) => {
            if scope.is_some() && !at.is_multiple_of(size) {
                return Err(Event::store_fault(address));
            }
            bus::store_scoped(core, hart, at, size, operand.into(), scope)?;
            Ok(None)
        }
        Access::Atomic(operation, scope) => {
            let change = Change::Atomic { operation, operand: operand.into(), expected: 0 };
            atomic(hart, core, at, scope, change).map(Some)
        }
        Access::AtomicFloat(pick, scope) => {
            atomic(hart, core, at, scope, Change::Float { pick, operand }).map(Some)
        }
        // The others are not executed lane by lane.
        _ => Ok(None),
    }
}

/// Executes an atomic of one lane; returns the old value.
fn atomic(
    hart: &mut Hart,
    core: &Core<'_>,
    at: u64,
    scope: Scope,
    change: Change,
) -> Result<u32, Event> {
    let shire = hart.shire();
    let (region, offset) = bus::coherent(core, shire, at, 4, scope, et_isa::Access::Atomic)
        .map_err(bus::Coherence::of_store)?;
    let target = Target { scope, bank: Bank::of(core, region), offset, size: 4 };
    Ok(low(bus::change(core, hart, target, change)))
}
