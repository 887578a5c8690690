//! Lines of memory: their numbers, the parts of accesses in them, and the way to and from memory.

use std::ops::Range;

use super::cache::{LINE_BYTES, Line};
use super::posted::Bank;
use crate::machine::chip::Core;
use crate::memory::Region;
use crate::memory::bus;
use crate::memory::map::{self, DRAM_BASE};

/// Set in the number of a line of the scratchpads.
const SCRATCHPAD_LINE: u64 = 1 << 62;

/// Which part of an access lies in one line.
pub(super) struct Part {
    pub(super) line: u64,
    /// First byte in the line.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// Where the part is in the value, in bits.
    pub(super) shift: usize,
}

impl Part {
    /// Its bytes in the line.
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.bytes
    }
}

/// Returns the number of the line with byte `offset` of a bank.
pub(super) fn line_of(bank: Bank, offset: u64) -> u64 {
    let line = offset / LINE_BYTES as u64;
    match bank {
        Bank::Dram => line,
        Bank::Scratchpads => line | SCRATCHPAD_LINE,
    }
}

pub(super) fn is_scratchpad(line: u64) -> bool {
    line & SCRATCHPAD_LINE != 0
}

/// Returns the address of the first byte of a line.
pub(super) fn line_address(line: u64) -> u64 {
    let offset = (line & !SCRATCHPAD_LINE) * LINE_BYTES as u64;
    if is_scratchpad(line) { map::scratchpad_address(offset) } else { DRAM_BASE + offset }
}

/// Splits an access of at most 8 bytes at the end of a line.
#[expect(clippy::cast_possible_truncation, reason = "offsets in a line and sizes of accesses")]
pub(super) fn parts(bank: Bank, offset: u64, size: u64) -> impl Iterator<Item = Part> {
    let (at, size) = ((offset % LINE_BYTES as u64) as usize, size as usize);
    let first = size.min(LINE_BYTES - at);
    let head = Part { line: line_of(bank, offset), at, bytes: first, shift: 0 };
    let tail = (first < size).then(|| Part {
        line: line_of(bank, offset + first as u64),
        at: 0,
        bytes: size - first,
        shift: 8 * first,
    });
    std::iter::once(head).chain(tail)
}

/// Finds the bytes of a line in memory.
fn region<'a>(core: &Core<'a>, line: u64) -> (&'a Region, u64) {
    let offset = (line & !SCRATCHPAD_LINE) * LINE_BYTES as u64;
    let chip = core.chip;
    let region = if is_scratchpad(line) { chip.scratchpads.region() } else { chip.dram.region() };
    (region, offset)
}

/// Reads a line from memory.
pub(super) fn fetch(core: &Core<'_>, line: u64) -> Line {
    let (region, offset) = region(core, line);
    let mut bytes = [0; LINE_BYTES];
    for (at, word) in (offset..).step_by(8).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&bus::read(region, at, 8).unwrap_or(0).to_le_bytes());
    }
    Line::clean(bytes)
}

/// Writes the dirty bytes of a line to memory.
pub(in crate::memory) fn write_down(core: &Core<'_>, number: u64, line: &Line) {
    let (region, offset) = region(core, number);
    let (words, _) = line.bytes.as_chunks::<8>();
    let mut left = line.dirty;
    while left != 0 {
        let word = left.trailing_zeros() as usize / 8;
        let dirty = line.dirty >> (8 * word) & 0xFF;
        left &= !(0xFF << (8 * word));
        let to = offset + 8 * word as u64;
        let value = u64::from_le_bytes(words[word]);
        // The host must not see a part of an aligned word or double word.
        let written = match dirty {
            0xFF => bus::write(region, to, 8, value),
            0x0F => bus::write(region, to, 4, value),
            0xF0 => bus::write(region, to + 4, 4, value >> 32),
            _ => (0..8)
                .filter(|byte| dirty >> byte & 1 != 0)
                .try_for_each(|byte| bus::write(region, to + byte, 1, value >> (8 * byte))),
        };
        debug_assert!(written.is_some(), "lines in caches are inside of memory");
    }
    if !is_scratchpad(number) {
        bus::note_store(core, offset, LINE_BYTES as u64);
    }
}
