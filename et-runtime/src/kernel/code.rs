//! Instructions around the place where a hart stopped.

use std::collections::VecDeque;
use std::fmt;

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

const ENDIAN: LittleEndian = LittleEndian;
/// Instructions that are shown before and after the one in question.
const BEFORE: usize = 3;
const AFTER: usize = 2;

/// An instruction of a kernel, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeLine {
    /// Device address.
    pub address: u64,
    /// Its bits; the upper half of 16-bit instructions is 0.
    pub word: u32,
    /// It is the one that was asked for, not a neighbour.
    pub is_current: bool,
}

/// Shows mark, address, bits and assembly text.
impl fmt::Display for CodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_current { '>' } else { ' ' };
        write!(f, "{mark} {:x}:  ", self.address)?;
        match self.word & 3 {
            3 => write!(f, "{:08x}  ", self.word)?,
            _ => write!(f, "{:04x}      ", self.word)?,
        }
        match et_isa::decode(self.word) {
            Some(decoded) => write!(f, "{}", decoded.text().at(self.address)),
            None => f.write_str("not an instruction"),
        }
    }
}

/// Finds the instructions around a link address; none if it is not in the file's code.
///
/// Decoding starts at `start`, which should be that of the function, because instructions have two
/// lengths. If it does not come by the address, the lines before it are left out.
pub(super) fn around(file: &[u8], start: Option<u64>, at: u64, bias: u64) -> Vec<CodeLine> {
    let Some((base, code)) = segment(file, at) else { return Vec::new() };
    let line = |address: u64, word| CodeLine {
        address: address.wrapping_add(bias),
        word,
        is_current: address == at,
    };
    let from = start.filter(|start| (base..=at).contains(start)).unwrap_or(base);
    let mut lines = VecDeque::new();
    for (offset, word) in words(code, base, from) {
        if offset >= at {
            break;
        }
        lines.push_back(line(offset, word));
        if lines.len() > BEFORE {
            lines.pop_front();
        }
    }
    let ends_here = lines.back().is_some_and(|last| {
        let bytes = if last.word & 3 == 3 { 4 } else { 2 };
        last.address.wrapping_add(bytes) == at.wrapping_add(bias)
    });
    if !ends_here {
        lines.clear();
    }
    let after = words(code, base, at).take(1 + AFTER);
    lines.extend(after.map(|(address, word)| line(address, word)));
    lines.into()
}

/// Instructions of a segment from an address on.
fn words(code: &[u8], base: u64, from: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
    let skip = usize::try_from(from - base).unwrap_or(usize::MAX);
    let code = code.get(skip..).unwrap_or_default();
    et_isa::words(code).map(move |(at, word)| (from + at as u64, word))
}

/// Finds the executable segment with an address: its own address, and its bytes in the file.
fn segment(file: &[u8], at: u64) -> Option<(u64, &[u8])> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    header.program_headers(ENDIAN, file).ok()?.iter().find_map(|segment| {
        let is_code =
            segment.p_type(ENDIAN) == elf::PT_LOAD && segment.p_flags(ENDIAN).contains(elf::PF_X);
        let base = segment.p_vaddr(ENDIAN);
        let bytes = segment.data(ENDIAN, file).ok()?;
        let distance = at.checked_sub(base)?;
        (is_code && distance < bytes.len() as u64).then_some((base, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one segment of code at 0x1000.
    fn file(code: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16] = 2;
        file[18] = 243;
        file[20] = 1;
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        file[56] = 1;
        let segment = &mut file[64..];
        segment[0] = 1;
        segment[4] = 5;
        segment[8] = 120;
        segment[17] = 0x10;
        segment[25] = 0x10;
        let len = u8::try_from(code.len()).unwrap();
        (segment[32], segment[40]) = (len, len);
        file.extend_from_slice(code);
        file
    }

    fn show(lines: &[CodeLine]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    /// c.li a0, 0; fadd.ps ft4, ft1, ft2, rne; c.nop; jal zero, .-8; fdiv.s; zero halfword.
    const CODE: [u8; 18] = [
        0x01, 0x45, 0x7B, 0x82, 0x20, 0x00, 0x01, 0x00, 0x6F, 0xF0, 0x9F, 0xFF, 0x53, 0x82, 0x20,
        0x18, 0, 0,
    ];

    #[test]
    fn neighbours_are_shown_with_device_addresses() {
        let file = file(&CODE);
        assert_eq!(
            show(&around(&file, Some(0x1000), 0x100C, 0x80_0000_0000)),
            [
                "  8000001002:  0020827b  fadd.ps ft4, ft1, ft2, rne",
                "  8000001006:  0001      c.addi zero, 0",
                "  8000001008:  ff9ff06f  jal zero, 0x8000001000",
                "> 800000100c:  18208253  fdiv.s ft4, ft1, ft2, rne",
                "  8000001010:  0000      not an instruction",
            ]
        );
        let first = around(&file, Some(0x1000), 0x1000, 0);
        assert_eq!((first.len(), first[0].is_current), (3, true));
    }

    #[test]
    fn without_a_start_the_segment_is_decoded() {
        let file = file(&CODE);
        assert_eq!(around(&file, None, 0x100C, 0), around(&file, Some(0x1000), 0x100C, 0));
        assert_eq!(around(&file, Some(0x2000), 0x100C, 0), around(&file, None, 0x100C, 0));
    }

    #[test]
    fn what_does_not_lead_to_the_address_is_left_out() {
        // In the middle of the second instruction.
        let lines = around(&file(&CODE), Some(0x1000), 0x1004, 0);
        assert!(lines[0].is_current && lines[0].address == 0x1004);
    }

    #[test]
    fn addresses_outside_and_broken_files_give_nothing() {
        let file = file(&CODE);
        for at in [0, 0xFFF, 0x1012, u64::MAX] {
            assert_eq!(around(&file, None, at, 0), []);
        }
        for len in 0..file.len() {
            let _ = around(&file[..len], None, 0x100C, 0);
        }
        assert_eq!(around(b"", None, 0, 0), []);
    }
}
