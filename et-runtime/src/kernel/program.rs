//! What is kept of a kernel file, to explain where a hart was.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

use super::code::{self, CodeLine};
use super::{Location, Symbols};

/// What is needed to explain a program counter, also when the kernel is gone.
pub(crate) struct Program {
    pub(crate) name: Arc<str>,
    load: Range<u64>,
    bias: u64,
    elf: Arc<[u8]>,
    /// Parsed only when something has to be explained.
    symbols: OnceLock<Symbols>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Program {
    /// `load` are the addresses it is at, `bias` the load address minus the link address.
    pub(crate) fn new(name: Arc<str>, load: Range<u64>, bias: u64, elf: Arc<[u8]>) -> Self {
        Self { name, load, bias, elf, symbols: OnceLock::new() }
    }

    /// Returns the addresses it is at.
    pub(crate) fn load(&self) -> Range<u64> {
        self.load.clone()
    }

    /// Returns the load address minus the link address.
    pub(crate) fn bias(&self) -> u64 {
        self.bias
    }

    /// Returns the file.
    pub(crate) fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// Returns the flags of the file's header: extensions and calling convention.
    pub(crate) fn elf_flags(&self) -> u32 {
        let header = FileHeader64::<LittleEndian>::parse(&*self.elf);
        header.map_or(0, |header| header.e_flags(LittleEndian).0)
    }

    /// Finds the function and source line of a device address; `None` if it is not in this kernel.
    pub(crate) fn locate(&self, pc: u64) -> Option<Location> {
        if !self.load.contains(&pc) {
            return None;
        }
        let symbols = self.symbols.get_or_init(|| Symbols::parse(&self.elf));
        Some(symbols.locate(pc.wrapping_sub(self.bias)))
    }

    /// Returns the text at a device address, up to its 0, as the file has it; `None` if there is
    /// none, or it is longer than a name.
    pub(crate) fn text(&self, address: u64) -> Option<String> {
        const LONGEST: u64 = 256;
        if !self.load.contains(&address) {
            return None;
        }
        let header = FileHeader64::<LittleEndian>::parse(&*self.elf).ok()?;
        let segments = header.program_headers(LittleEndian, &*self.elf).ok()?;
        let linked = address.wrapping_sub(self.bias);
        let bytes = segments.iter().find_map(|segment| {
            let offset = linked.checked_sub(segment.p_vaddr(LittleEndian))?;
            let left = segment.p_filesz(LittleEndian).checked_sub(offset)?;
            let start = segment.p_offset(LittleEndian).checked_add(offset)?;
            let range = start..start.checked_add(left.min(LONGEST))?;
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            self.elf.get(range).filter(|bytes| !bytes.is_empty())
        })?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes.get(..end)?.to_vec()).ok()
    }

    /// Returns the instructions around a device address; none if it is not in this kernel's code.
    pub(crate) fn code(&self, pc: u64) -> Vec<CodeLine> {
        let Some(location) = self.locate(pc) else { return Vec::new() };
        let at = pc.wrapping_sub(self.bias);
        let start = location.symbol.map(|(_, offset)| at.wrapping_sub(offset));
        code::around(&self.elf, start, at, self.bias)
    }
}
