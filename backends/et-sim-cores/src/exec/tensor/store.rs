//! Stores from floating-point registers and from the L1 scratchpad.

use super::{BAD_SHAPE, LINES, Operation, SCRATCHPAD_OFF, fail, finish_arithmetic, missing, unit};
use crate::exec::event::Event;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::bus::{self, Effect};

const ADDRESS_MASK: u64 = 0xFFFF_FFFF_FFF0;
const CHUNK_BYTES: usize = 16;

/// Executes a store. Cooperating minions store the same bytes as if each stored alone.
pub(super) fn execute(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
) -> Result<(), Event> {
    if operation.flag(48) {
        return from_scratchpad(hart, core, operation);
    }
    finish_arithmetic(hart, core)?;
    let (minions, chunks) = (operation.bits(49, 2) + 1, operation.bits(55, 2) + 1);
    if !matches!((minions, chunks), (1, 1 | 2 | 4) | (2, 1 | 2) | (4, 1)) {
        fail(hart, core, BAD_SHAPE);
        return Ok(());
    }
    let step = operation.bits(62, 2) + 1;
    let mut register = operation.bits(57, 5);
    let size = (CHUNK_BYTES * chunks) as u64;
    for row in 0..=operation.bits(51, 4) {
        let mut bytes = [0; 4 * CHUNK_BYTES];
        for chunk in 0..chunks {
            let half = 4 * (chunk % 2);
            let lanes = &hart.f[register % 32].0[half..half + 4];
            let to = bytes[CHUNK_BYTES * chunk..].chunks_exact_mut(4);
            for (to, lane) in to.zip(lanes) {
                to.copy_from_slice(&lane.to_le_bytes());
            }
            if chunk % 2 == 1 || chunks == 1 {
                register += step;
            }
        }
        let stride = (operation.x31 & ADDRESS_MASK).wrapping_mul(row as u64);
        let to = (operation.value & ADDRESS_MASK).wrapping_add(stride) & !(size - 1);
        let stored =
            bus::store_public(core, hart, to, &bytes[..CHUNK_BYTES * chunks], Effect::Later);
        if let Err(error) = stored {
            return missing(hart, core, error);
        }
    }
    Ok(())
}

fn from_scratchpad(hart: &mut Hart, core: &Core<'_>, operation: &Operation) -> Result<(), Event> {
    if !unit(hart, core).1 {
        fail(hart, core, SCRATCHPAD_OFF);
        return Ok(());
    }
    let (step, first) = (operation.bits(62, 2) + 1, operation.bits(56, 6));
    for row in 0..=operation.bits(51, 4) {
        let line = unit(hart, core).0.lines[(first + row * step) % LINES];
        let mut bytes = [0; 4 * CHUNK_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(line) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        if let Err(error) =
            bus::store_public(core, hart, operation.line_address(row), &bytes, Effect::Later)
        {
            return missing(hart, core, error);
        }
    }
    Ok(())
}
