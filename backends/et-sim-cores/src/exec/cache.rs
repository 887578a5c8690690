//! Cache operations on lines. On flat memory only their effect on data and their errors are left.
//! Spec: ISA §3.7

use std::sync::atomic::Ordering;

use crate::exec::event::Event;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::bus;
use crate::memory::map::{self, Place};
use crate::memory::weak::{Bank, WriteBack};

const LINE_BYTES: u64 = 64;
/// Bits of an operand that are a line address or a stride between lines.
pub(crate) const LINE_MASK: u64 = 0xFFFF_FFFF_FFC0;
/// `tensor_error` bit: memory fault in a cache operation.
const MEMORY_FAULT: u16 = 1 << 7;

/// What is done to each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Prefetch,
    WriteBack(WriteBack),
    Lock,
    Unlock,
}

/// Writes neighbouring lines back, if there are private caches and all of them are in DRAM; returns
/// `false`, with nothing done, otherwise.
fn write_back_all(hart: &mut Hart, core: &Core<'_>, value: u64, kind: WriteBack) -> bool {
    let (first, lines) = (map::canonical(value & LINE_MASK), (value & 15) + 1);
    let bytes = lines * LINE_BYTES;
    let Some(cache) = hart.cache.as_mut().filter(|_| hart.x[31] & LINE_MASK == LINE_BYTES) else {
        return false;
    };
    match map::place(first, 0) {
        Place::Dram(offset) if offset + bytes <= core.chip.dram.size() => {
            cache.write_back(core, offset, bytes, kind);
            true
        }
        _ => false,
    }
}

/// Executes a cache operation with the operand `value` and the stride in x31.
pub(crate) fn execute(
    hart: &mut Hart,
    core: &Core<'_>,
    value: u64,
    operation: Operation,
) -> Result<(), Event> {
    let level = value >> 58 & 3;
    if matches!((operation, level), (Operation::WriteBack(_), 0) | (Operation::Prefetch, 3)) {
        return Ok(());
    }
    let has_level = matches!(operation, Operation::WriteBack(_) | Operation::Prefetch);
    let masked = value >> 63 != 0;
    if !masked
        && let Operation::WriteBack(kind) = operation
        && level >= 2
        && write_back_all(hart, core, value, kind)
    {
        return Ok(());
    }
    let mut line = value & LINE_MASK;
    for bit in 0..=(value & 15) {
        if !masked || hart.tensor_mask >> bit & 1 != 0 {
            let address = map::canonical(line);
            let at = match map::place(address, hart.shire()) {
                Place::Dram(offset) if offset < core.chip.dram.size() => (Bank::Dram, offset),
                Place::Scratchpad(_) if has_level && level >= 2 => return Err(Event::BusError),
                Place::Scratchpad(offset) => (Bank::Scratchpads, offset),
                Place::Nothing => return Err(Event::BusError),
                _ => {
                    let port = core.chip.port(hart.id);
                    port.tensor_error.fetch_or(MEMORY_FAULT, Ordering::Relaxed);
                    return Ok(());
                }
            };
            if let (Operation::WriteBack(kind), Some(cache), (Bank::Dram, offset), 2..) =
                (operation, &mut hart.cache, at, level)
            {
                cache.write_back(core, offset, LINE_BYTES, kind);
            }
            match (operation, core.chip.weak()) {
                (Operation::WriteBack(kind), Some(mut weak)) => {
                    weak.post_write_back(core, hart.id, at, kind, level);
                }
                (Operation::Prefetch, Some(mut weak)) => weak.prefetch(core, hart.id, at, level),
                _ => {}
            }
            if operation == Operation::Lock {
                for at in (0..LINE_BYTES).step_by(8) {
                    bus::store(core, hart, address.wrapping_add(at), 8, 0)?;
                }
            }
        }
        line = line.wrapping_add(hart.x[31] & LINE_MASK);
    }
    Ok(())
}
