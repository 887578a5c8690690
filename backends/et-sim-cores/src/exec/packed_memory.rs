//! Loads, stores, gathers, scatters and atomics of packed registers. Spec: ISA §3.6

use std::sync::atomic::Ordering;

use et_isa::Id;

use crate::decode::{imm_i, imm_s, rd, rs1, rs2};
use crate::exec::amo::Atomic;
use crate::exec::event::Event;
use crate::exec::packed::{Access, LANES};
use crate::float::Pick;
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};
use crate::memory::bus::{self, Scope};
use crate::memory::map;
use crate::memory::weak::{Bank, Change, Target};

/// Alignment of coherent accesses to a whole register.
const REGISTER_BYTES: u64 = 32;

/// Returns the access that an instruction makes; none if it is not one of these.
pub(crate) const fn of(id: Id) -> Option<Access> {
    use Scope::{Global, Local};
    Some(match id {
        Id::Flq2 => Access::LoadWhole,
        Id::Fsq2 => Access::StoreWhole,
        Id::FbcPs => Access::LoadBroadcast,
        Id::FlwPs => Access::Load,
        Id::FswPs => Access::Store,
        Id::FlwlPs => Access::LoadCoherent(Local),
        Id::FlwgPs => Access::LoadCoherent(Global),
        Id::FswlPs => Access::StoreCoherent(Local),
        Id::FswgPs => Access::StoreCoherent(Global),
        Id::Fg32bPs => Access::GatherBlock(1),
        Id::Fsc32bPs => Access::ScatterBlock(1),
        Id::FgbPs => Access::Gather(1, None),
        Id::FscbPs => Access::Scatter(1, None),
        Id::FgblPs => Access::Gather(1, Some(Local)),
        Id::FscblPs => Access::Scatter(1, Some(Local)),
        Id::FgbgPs => Access::Gather(1, Some(Global)),
        Id::FscbgPs => Access::Scatter(1, Some(Global)),
        Id::Fg32hPs => Access::GatherBlock(2),
        Id::Fsc32hPs => Access::ScatterBlock(2),
        Id::FghPs => Access::Gather(2, None),
        Id::FschPs => Access::Scatter(2, None),
        Id::FghlPs => Access::Gather(2, Some(Local)),
        Id::FschlPs => Access::Scatter(2, Some(Local)),
        Id::FghgPs => Access::Gather(2, Some(Global)),
        Id::FschgPs => Access::Scatter(2, Some(Global)),
        Id::Fg32wPs => Access::GatherBlock(4),
        Id::Fsc32wPs => Access::ScatterBlock(4),
        Id::FgwPs => Access::Gather(4, None),
        Id::FscwPs => Access::Scatter(4, None),
        Id::FgwlPs => Access::Gather(4, Some(Local)),
        Id::FscwlPs => Access::Scatter(4, Some(Local)),
        Id::FgwgPs => Access::Gather(4, Some(Global)),
        Id::FscwgPs => Access::Scatter(4, Some(Global)),
        Id::FamoaddlPi => Access::Atomic(Atomic::Add, Local),
        Id::FamoaddgPi => Access::Atomic(Atomic::Add, Global),
        Id::FamoswaplPi => Access::Atomic(Atomic::Swap, Local),
        Id::FamoswapgPi => Access::Atomic(Atomic::Swap, Global),
        Id::FamoandlPi => Access::Atomic(Atomic::And, Local),
        Id::FamoandgPi => Access::Atomic(Atomic::And, Global),
        Id::FamoorlPi => Access::Atomic(Atomic::Or, Local),
        Id::FamoorgPi => Access::Atomic(Atomic::Or, Global),
        Id::FamoxorlPi => Access::Atomic(Atomic::Xor, Local),
        Id::FamoxorgPi => Access::Atomic(Atomic::Xor, Global),
        Id::FamominlPi => Access::Atomic(Atomic::Min, Local),
        Id::FamomingPi => Access::Atomic(Atomic::Min, Global),
        Id::FamomaxlPi => Access::Atomic(Atomic::Max, Local),
        Id::FamomaxgPi => Access::Atomic(Atomic::Max, Global),
        Id::FamominulPi => Access::Atomic(Atomic::MinUnsigned, Local),
        Id::FamominugPi => Access::Atomic(Atomic::MinUnsigned, Global),
        Id::FamomaxulPi => Access::Atomic(Atomic::MaxUnsigned, Local),
        Id::FamomaxugPi => Access::Atomic(Atomic::MaxUnsigned, Global),
        Id::FamominlPs => Access::AtomicFloat(Pick::Smaller, Local),
        Id::FamomingPs => Access::AtomicFloat(Pick::Smaller, Global),
        Id::FamomaxlPs => Access::AtomicFloat(Pick::Larger, Local),
        Id::FamomaxgPs => Access::AtomicFloat(Pick::Larger, Global),
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
pub(crate) fn execute(
    hart: &mut Hart,
    core: &Core<'_>,
    raw: u32,
    access: Access,
) -> Result<(), Event> {
    let base = hart.x[rs1(raw) as usize];
    let fd = rd(raw) as usize;
    let word = |lane: usize| 4 * lane as u64;
    match access {
        Access::LoadWhole => {
            let from = offset(base, imm_i(raw));
            load(hart, core, fd, None, |_| true, |lane| from.wrapping_add(word(lane)))
        }
        Access::StoreWhole => {
            let to = offset(base, imm_s(raw));
            store(hart, core, rs2(raw) as usize, None, |_| true, to)
        }
        Access::Load => {
            let (from, masks) = (offset(base, imm_i(raw)), hart.masks);
            let enabled = |lane| masks >> lane & 1 != 0;
            load(hart, core, fd, None, enabled, |lane| from.wrapping_add(word(lane)))
        }
        Access::Store => {
            let masks = hart.masks;
            let enabled = |lane| masks >> lane & 1 != 0;
            store(hart, core, rs2(raw) as usize, None, enabled, offset(base, imm_s(raw)))
        }
        Access::LoadBroadcast => {
            let (from, masks) = (offset(base, imm_i(raw)), hart.masks);
            load(hart, core, fd, None, |lane| masks >> lane & 1 != 0, |_| from)
        }
        Access::LoadCoherent(scope) => {
            if !base.is_multiple_of(REGISTER_BYTES) {
                return Err(Event::load_fault(map::canonical(base)));
            }
            let masks = hart.masks;
            let enabled = |lane| masks >> lane & 1 != 0;
            load(hart, core, fd, Some(scope), enabled, |lane| base.wrapping_add(word(lane)))
        }
        Access::StoreCoherent(scope) => {
            if !base.is_multiple_of(REGISTER_BYTES) {
                return Err(Event::store_fault(map::canonical(base)));
            }
            // With a partial mask the result is undefined on the first silicon; the reference
            // stores all lanes.
            store(hart, core, fd, Some(scope), |_| hart.masks & 0xFF != 0, base)
        }
        Access::GatherBlock(size) => {
            let (block, masks) = (hart.x[rs2(raw) as usize], hart.masks);
            let mut result = hart.f[fd].0;
            for (lane, bits) in result.iter_mut().enumerate() {
                if masks >> lane & 1 != 0 {
                    let from = in_block(block, base, size, lane);
                    *bits = extend(bus::load(core, hart.id, from, size)?, size);
                }
            }
            hart.f[fd] = Vector(result);
            Ok(())
        }
        Access::ScatterBlock(size) => {
            let block = hart.x[rs2(raw) as usize];
            for lane in (0..LANES).filter(|&lane| hart.enables(lane)) {
                let to = in_block(block, base, size, lane);
                bus::store(core, hart.id, to, size, hart.f[fd].0[lane].into())?;
            }
            Ok(())
        }
        _ => lane_by_lane(hart, core, raw, access),
    }
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

/// Loads a word per enabled lane; a fault leaves the register as it was.
fn load(
    hart: &mut Hart,
    core: &Core<'_>,
    fd: usize,
    scope: Option<Scope>,
    enabled: impl Fn(usize) -> bool,
    address: impl Fn(usize) -> u64,
) -> Result<(), Event> {
    let mut result = hart.f[fd].0;
    let flat = core.chip.weak.is_none();
    for lane in (0..LANES).filter(|&lane| enabled(lane)) {
        let from = address(lane);
        result[lane] = match core.chip.dram.user_word(from) {
            Some(word) if flat && !core.guards.hold(from) => word.load(Ordering::Relaxed),
            _ => low(bus::load_scoped(core, hart.id, from, 4, scope)?),
        };
    }
    hart.f[fd] = Vector(result);
    Ok(())
}

/// Stores the enabled lanes of a register to consecutive words.
fn store(
    hart: &Hart,
    core: &Core<'_>,
    source: usize,
    scope: Option<Scope>,
    enabled: impl Fn(usize) -> bool,
    to: u64,
) -> Result<(), Event> {
    let lanes = hart.f[source].0;
    let flat = core.chip.weak.is_none();
    for (lane, bits) in lanes.into_iter().enumerate().filter(|&(lane, _)| enabled(lane)) {
        let to = to.wrapping_add(4 * lane as u64);
        match core.chip.dram.user_word(to) {
            Some(word) if flat && !core.code.may_hold(to) && !core.guards.hold(to) => {
                word.store(bits, Ordering::Relaxed);
            }
            _ => bus::store_scoped(core, hart.id, to, 4, bits.into(), scope)?,
        }
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
    for lane in (first..LANES).filter(|&lane| hart.masks >> lane & 1 != 0) {
        let at = offset(base, indices[lane].cast_signed());
        let operand = hart.f[fd].0[lane];
        match one_lane(hart.id, core, access, at, operand) {
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
    hart: u32,
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
fn atomic(hart: u32, core: &Core<'_>, at: u64, scope: Scope, change: Change) -> Result<u32, Event> {
    let shire = hart / map::HARTS_PER_SHIRE;
    let (region, offset) =
        bus::coherent(core, shire, at, 4, scope).map_err(bus::Coherence::of_store)?;
    if let Some(mut weak) = core.chip.weak() {
        let target = Target { scope, bank: Bank::of(core, region), offset, size: 4 };
        return Ok(low(weak.change(core, hart, target, change)));
    }
    let old = change.in_region(region, offset, 4).ok_or(Event::store_fault(map::canonical(at)))?;
    bus::note_coherent(core, region, offset, 4);
    Ok(low(old))
}
