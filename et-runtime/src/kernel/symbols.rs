//! From an address to function and source line.

use std::borrow::Cow;
use std::fmt;
use std::sync::Mutex;

use object::read::elf::{ElfFile64, FileHeader};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

type Reader = gimli::EndianArcSlice<gimli::LittleEndian>;

/// Where an address is in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Function, and bytes from its start.
    pub symbol: Option<(String, u64)>,
    /// Source file and line.
    pub source: Option<(String, u32)>,
}

/// Symbols and line table of an ELF file.
pub struct Symbols {
    /// Functions by address: start, size, name.
    functions: Vec<(u64, u64, String)>,
    /// `None` if the file has no usable debug information. The lock is for the caches inside.
    lines: Option<Mutex<addr2line::Context<Reader>>>,
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols")
            .field("functions", &self.functions.len())
            .field("has_lines", &self.lines.is_some())
            .finish()
    }
}

impl Symbols {
    /// Reads what the file has; damaged parts count as absent.
    #[must_use]
    pub fn parse(elf: &[u8]) -> Self {
        let Ok(file) = ElfFile64::<object::LittleEndian>::parse(elf) else {
            return Self { functions: Vec::new(), lines: None };
        };
        let mut functions: Vec<_> = file
            .symbols()
            .filter(|symbol| matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label))
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                // The assembler's own marks ($x, .L1) name no function.
                (!name.starts_with(['$', '.']))
                    .then(|| (symbol.address(), symbol.size(), name.to_owned()))
            })
            .collect();
        functions.sort_by_key(|&(start, size, _)| (start, size));
        Self { functions, lines: lines(&file).map(Mutex::new) }
    }

    /// Finds function and source line of an address as linked.
    #[must_use]
    pub fn locate(&self, address: u64) -> Location {
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let symbol = self.functions[..after].last().and_then(|(start, size, name)| {
            let offset = address - start;
            (*size == 0 || offset < *size).then(|| (name.clone(), offset))
        });
        let source = self.lines.as_ref().and_then(|lines| {
            let lines = lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let found = lines.find_location(address).ok()??;
            Some((found.file?.to_owned(), found.line?))
        });
        Location { symbol, source }
    }
}

fn lines<'d, E: FileHeader<Endian = object::LittleEndian>>(
    file: &object::read::elf::ElfFile<'d, E>,
) -> Option<addr2line::Context<Reader>> {
    // Linked with its relocations kept, the file has final values in these sections already.
    let section = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let data = file
            .section_by_name(id.name())
            .and_then(|section| section.uncompressed_data().ok())
            .unwrap_or(Cow::Borrowed(&[]));
        Ok(Reader::new(data.into_owned().into(), gimli::LittleEndian))
    };
    file.section_by_name(".debug_line")?;
    let dwarf = gimli::Dwarf::load(section).ok()?;
    addr2line::Context::from_dwarf(dwarf).ok()
}
