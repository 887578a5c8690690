//! Code in ELF files, for listings and checks.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, ensure};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, Sym};

const ENDIAN: LittleEndian = LittleEndian;

/// A section with instructions.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    pub(crate) name: String,
    /// Address of the first byte; 0 in object files.
    pub(crate) address: u64,
    pub(crate) bytes: &'a [u8],
    /// Names by address.
    pub(crate) symbols: BTreeMap<u64, String>,
    /// Where the assembler says that data starts (`true`) and code goes on (`false`).
    data: BTreeMap<u64, bool>,
}

/// An instruction in a section, or data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) address: u64,
    pub(crate) word: u32,
    /// The assembler calls it data.
    pub(crate) is_data: bool,
}

impl Line {
    pub(crate) fn decode(self) -> Option<et_isa::Decoded> {
        let decoded = et_isa::decode(self.word)?;
        // Vendor instructions of opcodes with which stock assemblers start longer ones are written
        // as data.
        let is_written_as_data = self.word & 0x1F == 0x1F;
        (!self.is_data || is_written_as_data).then_some(decoded)
    }
}

impl Code<'_> {
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        et_isa::words(self.bytes).map(|(at, word)| {
            let address = self.address.wrapping_add(at as u64);
            let marked = self.data.range(..=address).next_back();
            Line { address, word, is_data: marked.is_some_and(|(_, is_data)| *is_data) }
        })
    }

    /// Name and distance of the symbol before an address.
    pub(crate) fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.address.wrapping_add(self.bytes.len() as u64);
        let inside = (self.address..end).contains(&address);
        let (start, name) = self.symbols.range(..=address).next_back().filter(|_| inside)?;
        Some((name, address - start))
    }
}

/// Finds the sections of code, and the entry of the file; object files have none.
pub(crate) fn sections(bytes: &[u8]) -> anyhow::Result<(Vec<Code<'_>>, Option<u64>)> {
    let malformed = |error: object::Error| anyhow!("not a usable ELF file: {error}");
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(malformed)?;
    let machine = header.e_machine(ENDIAN);
    ensure!(machine == elf::EM_RISCV, "built for another machine than RISC-V");
    let sections = header.sections(ENDIAN, bytes).map_err(malformed)?;
    let mut found = BTreeMap::new();
    for (index, section) in sections.enumerate() {
        if !section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR) {
            continue;
        }
        let name = sections.section_name(ENDIAN, section).map_err(malformed)?;
        let code = Code {
            name: String::from_utf8_lossy(name).into_owned(),
            address: section.sh_addr(ENDIAN),
            bytes: section.data(ENDIAN, bytes).map_err(malformed)?,
            symbols: BTreeMap::new(),
            data: BTreeMap::new(),
        };
        found.insert(index.0, code);
    }
    let table = sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB).map_err(malformed)?;
    for (index, symbol) in table.enumerate() {
        let section = table.symbol_section(ENDIAN, symbol, index).map_err(malformed)?;
        let Some(code) = section.and_then(|section| found.get_mut(&section.0)) else { continue };
        let name = table.symbol_name(ENDIAN, symbol).map_err(malformed)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let at = symbol.st_value(ENDIAN);
        match name.as_bytes() {
            [b'$', b'd', ..] => drop(code.data.insert(at, true)),
            [b'$', b'x', ..] => drop(code.data.insert(at, false)),
            [] | [b'.', b'L', ..] => {}
            _ if symbol.st_type() == elf::STT_SECTION => {}
            // Functions are better names than labels.
            _ if symbol.st_type() == elf::STT_FUNC => drop(code.symbols.insert(at, name)),
            _ => drop(code.symbols.entry(at).or_insert(name)),
        }
    }
    let is_linked = header.e_type(ENDIAN) != elf::ET_REL;
    let entry = is_linked.then(|| header.e_entry(ENDIAN));
    Ok((found.into_values().collect(), entry))
}

/// Reads a file.
pub(crate) fn read(path: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}
