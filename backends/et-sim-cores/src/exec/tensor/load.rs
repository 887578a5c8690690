//! Loads to the L1 scratchpad, to the second operand's buffer and to the shire's L2 scratchpad.

use super::{BAD_TRANSFORM, LINES, Operation, Row, SCRATCHPAD_OFF, SIDE, fail, missing, unit};
use crate::exec::event::Event;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::bus::{self, Effect, Missing};
use crate::memory::map::{SCRATCHPAD_BASE, SCRATCHPAD_OWN_SHIRE};

const LINE_BYTES: usize = 64;

/// The layout in which lines arrive.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Plain,
    /// Words are columns of four rows.
    InterleaveBytes,
    /// Words are columns of two rows.
    InterleaveHalves,
    /// Rows become columns.
    TransposeBytes,
    TransposeHalves,
    TransposeWords,
}

impl Layout {
    fn of(operation: &Operation) -> Option<Self> {
        Some(match operation.bits(59, 3) {
            0 => Self::Plain,
            1 => Self::InterleaveBytes,
            2 => Self::InterleaveHalves,
            5 => Self::TransposeBytes,
            6 => Self::TransposeHalves,
            7 => Self::TransposeWords,
            _ => return None,
        })
    }
}

/// Returns `true` if a load goes to the second operand's buffer.
pub(super) fn is_to_ten_b(operation: &Operation) -> bool {
    operation.flag(52)
}

/// Reads the line of a load that is so many strides away, as bytes.
fn read(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
    row: usize,
) -> Result<[u8; LINE_BYTES], Missing> {
    bus::load_line(core, hart, operation.line_address(row))
}

fn words(bytes: &[u8; LINE_BYTES]) -> Row {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|word| u32::from_le_bytes(words[word]))
}

/// Checks a load; returns `false`, with the error noted, if there is nothing to execute.
pub(super) fn check(hart: &mut Hart, core: &Core<'_>, operation: &Operation) -> bool {
    let (_, is_on) = unit(hart, core);
    if !is_on {
        fail(hart, core, SCRATCHPAD_OFF);
    } else if !is_to_ten_b(operation) && Layout::of(operation).is_none() {
        fail(hart, core, BAD_TRANSFORM);
    } else {
        return true;
    }
    false
}

/// Executes a load. The cooperative form gets every minion the same data as a plain one.
pub(super) fn load(hart: &mut Hart, core: &Core<'_>, operation: &Operation) -> Result<(), Event> {
    let rows = operation.bits(0, 4) + 1;
    if is_to_ten_b(operation) {
        unit(hart, core).0.ten_b_rows = Some(rows);
        for row in 0..rows {
            match read(hart, core, operation, row) {
                Ok(bytes) => unit(hart, core).0.ten_b[row] = words(&bytes),
                Err(error) => return missing(hart, core, error),
            }
        }
        return Ok(());
    }
    let loaded = match Layout::of(operation).unwrap_or(Layout::Plain) {
        Layout::Plain => plain(hart, core, operation, rows),
        Layout::InterleaveBytes => interleave::<1>(hart, core, operation, rows),
        Layout::InterleaveHalves => interleave::<2>(hart, core, operation, rows),
        Layout::TransposeBytes => transpose::<1>(hart, core, operation, rows),
        Layout::TransposeHalves => transpose::<2>(hart, core, operation, rows),
        Layout::TransposeWords => transpose::<4>(hart, core, operation, rows),
    };
    loaded.or_else(|error| missing(hart, core, error))
}

/// Puts line `row` of a load into the scratchpad.
fn put(hart: &mut Hart, core: &Core<'_>, operation: &Operation, row: usize, line: Row) {
    unit(hart, core).0.lines[(operation.bits(53, 6) + row) % LINES] = line;
}

fn plain(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
    rows: usize,
) -> Result<(), Missing> {
    for row in (0..rows).filter(|&row| operation.row_is_on(row)) {
        let bytes = read(hart, core, operation, row)?;
        put(hart, core, operation, row, words(&bytes));
    }
    Ok(())
}

/// Each line takes a part of as many lines of memory as a word has elements of `SIZE` bytes, and
/// alternates between them.
fn interleave<const SIZE: usize>(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
    rows: usize,
) -> Result<(), Missing> {
    let ratio = 4 / SIZE;
    let part = LINE_BYTES / ratio;
    // Parts of 32 bytes are chosen by the upper bit of the offset.
    let first = operation.bits(4, 2) / (part / 16) * SIDE;
    for row in (0..rows).filter(|&row| operation.row_is_on(row)) {
        let mut line = [0; LINE_BYTES];
        for other in 0..ratio {
            let bytes = read(hart, core, operation, ratio * row + other)?;
            let (elements, _) = bytes.as_chunks::<SIZE>();
            let (line, _) = line.as_chunks_mut::<SIZE>();
            let to = line.iter_mut().skip(other).step_by(ratio);
            to.zip(&elements[first..][..SIDE]).for_each(|(to, element)| *to = *element);
        }
        put(hart, core, operation, row, words(&line));
    }
    Ok(())
}

/// Each line takes one column of elements of `SIZE` bytes, out of as many lines of memory as fill
/// it.
fn transpose<const SIZE: usize>(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
    rows: usize,
) -> Result<(), Missing> {
    // The offset counts parts of 16 bytes; halfwords use its upper bit, words none of it.
    let first = match SIZE {
        1 => 16 * operation.bits(4, 2),
        2 => 16 * operation.bits(5, 1),
        _ => 0,
    };
    let mut lines = [[0; LINE_BYTES]; SIDE];
    for column in 0..LINE_BYTES / SIZE {
        let bytes = read(hart, core, operation, column)?;
        let (elements, _) = bytes.as_chunks::<SIZE>();
        for (line, element) in lines.iter_mut().zip(&elements[first..]).take(rows) {
            line.as_chunks_mut::<SIZE>().0[column] = *element;
        }
    }
    for row in (0..rows).filter(|&row| operation.row_is_on(row)) {
        put(hart, core, operation, row, words(&lines[row]));
    }
    Ok(())
}

/// Executes a load to the L2 scratchpad of the own shire.
pub(super) fn load_l2(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
) -> Result<(), Event> {
    let line = (operation.bits(48, 15) << 2 | operation.bits(4, 2)) as u64;
    for row in (0..=operation.bits(0, 4)).filter(|&row| operation.row_is_on(row)) {
        let to = LINE_BYTES as u64 * (line + row as u64);
        let to = SCRATCHPAD_BASE | SCRATCHPAD_OWN_SHIRE | to & 0x7F_FFFF;
        let copied = read(hart, core, operation, row)
            .and_then(|bytes| bus::store_public(core, hart, to, &bytes, Effect::Now));
        if let Err(error) = copied {
            return missing(hart, core, error);
        }
    }
    Ok(())
}
