//! Loads, stores, gathers, scatters and atomics of packed registers. Spec: ISA §3.6

use std::sync::atomic::Ordering;

use crate::decode::{funct3, funct7, imm_i, imm_s, rd, rs1, rs2};
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

/// The scope that an instruction's bit selects.
fn scope(global: bool) -> Scope {
    if global { Scope::Global } else { Scope::Local }
}

/// Decodes an instruction of opcode 0x0B; none if it is not an access.
pub(crate) fn decode(raw: u32) -> Option<Access> {
    let f7 = funct7(raw);
    // Sizes are encoded as 4, 8 and 16 in the steps between opcodes.
    let size = |code: u32| match code & 0x1C {
        0x04 => Some(1),
        0x08 => Some(2),
        0x10 => Some(4),
        _ => None,
    };
    Some(match funct3(raw) {
        0 => Access::LoadBroadcast,
        2 => Access::Load,
        6 => Access::Store,
        1 if f7 & 3 == 0 => match f7 & 0x60 {
            0x00 => Access::GatherBlock(size(f7)?),
            0x20 => Access::Gather(size(f7)?, None),
            0x40 => Access::ScatterBlock(size(f7)?),
            _ => Access::Scatter(size(f7)?, None),
        },
        7 => match f7 {
            0x08 | 0x09 if rs2(raw) == 0 => Access::LoadCoherent,
            0x28 | 0x29 if rs2(raw) == 0 => Access::StoreCoherent,
            0x40 | 0x41 => Access::Gather(1, Some(scope(f7 & 1 != 0))),
            0x44 | 0x45 => Access::Gather(2, Some(scope(f7 & 1 != 0))),
            0x48 | 0x49 => Access::Gather(4, Some(scope(f7 & 1 != 0))),
            0x60 | 0x61 => Access::Scatter(1, Some(scope(f7 & 1 != 0))),
            0x64 | 0x65 => Access::Scatter(2, Some(scope(f7 & 1 != 0))),
            0x68 | 0x69 => Access::Scatter(4, Some(scope(f7 & 1 != 0))),
            _ => return None,
        },
        4 => {
            let scope = scope(f7 & 0x40 != 0);
            let operation = match f7 & 0x3F {
                0x03 => Atomic::Add,
                0x07 => Atomic::Swap,
                0x0B => Atomic::And,
                0x0F => Atomic::Or,
                0x13 => Atomic::Xor,
                0x17 => Atomic::Min,
                0x1B => Atomic::Max,
                0x1F => Atomic::MinUnsigned,
                0x23 => Atomic::MaxUnsigned,
                0x18 => return Some(Access::AtomicFloat(Pick::Smaller, scope)),
                0x14 => return Some(Access::AtomicFloat(Pick::Larger, scope)),
                _ => return None,
            };
            Access::Atomic(operation, scope)
        }
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
    // Of the accesses to whole registers only the coherent ones have a scope.
    let coherent = Some(scope(funct7(raw) & 1 != 0));
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
        Access::LoadCoherent => {
            if !base.is_multiple_of(REGISTER_BYTES) {
                return Err(Event::load_fault(map::canonical(base)));
            }
            let masks = hart.masks;
            let enabled = |lane| masks >> lane & 1 != 0;
            load(hart, core, fd, coherent, enabled, |lane| base.wrapping_add(word(lane)))
        }
        Access::StoreCoherent => {
            if !base.is_multiple_of(REGISTER_BYTES) {
                return Err(Event::store_fault(map::canonical(base)));
            }
            // With a partial mask the result is undefined on the first silicon; the reference
            // stores all lanes.
            store(hart, core, fd, coherent, |_| hart.masks & 0xFF != 0, base)
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
