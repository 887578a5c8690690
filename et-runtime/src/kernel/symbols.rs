//! From an address in a kernel to a function and a source line.

use std::fmt;
use std::sync::Arc;

use crate::sync::{Mutex, lock};

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, SectionId};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};

const ENDIAN: LittleEndian = LittleEndian;
/// Symbols that are tried below an address. More nest only in files made to waste time.
const MAX_TRIES: usize = 64;
/// Longer names are cut off.
const MAX_NAME_BYTES: usize = 1024;

type Sections<'data> = SectionTable<'data, FileHeader64<LittleEndian>>;
type Reader = EndianArcSlice<gimli::LittleEndian>;

/// Where an address is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Location {
    /// Name of the function, and the address's distance from its start in bytes.
    pub symbol: Option<(String, u64)>,
    /// Source file and line, counted from 1.
    pub source: Option<(String, u32)>,
}

/// The functions and source lines of a kernel file.
pub struct Symbols {
    /// Sorted by address.
    functions: Vec<Function>,
    /// Names of the functions, in one piece because they may share their bytes.
    strings: Vec<u8>,
    /// It fills its caches while it is asked, so it needs the lock; it is only asked when something
    /// went wrong.
    lines: Option<Mutex<Context<Reader>>>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    /// First address behind it.
    end: u64,
    rank: Rank,
    name: usize,
}

/// Which of several symbols at one address names it best; later ones are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Label,
    GlobalLabel,
    Sized,
    GlobalSized,
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols")
            .field("functions", &self.functions.len())
            .field("has_lines", &self.lines.is_some())
            .finish_non_exhaustive()
    }
}

impl Symbols {
    /// Reads the symbols and line numbers of a kernel file.
    ///
    /// Never fails: what is missing or damaged is left out. Compressed debug sections are left out
    /// too.
    #[must_use]
    pub fn parse(elf: &[u8]) -> Self {
        let empty = Self { functions: Vec::new(), strings: Vec::new(), lines: None };
        let Ok(header) = FileHeader64::<LittleEndian>::parse(elf) else {
            return empty;
        };
        let Ok(sections) = header.sections(ENDIAN, elf) else {
            return empty;
        };
        let (functions, strings) = read_functions(&sections, elf);
        Self { functions, strings, lines: read_lines(&sections, elf).map(Mutex::new) }
    }

    /// Finds the function and the source line of a link address.
    #[must_use]
    pub fn locate(&self, link_addr: u64) -> Location {
        Location { symbol: self.symbol(link_addr), source: self.source(link_addr) }
    }

    fn symbol(&self, address: u64) -> Option<(String, u64)> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(..after)?.iter().rev().take(MAX_TRIES);
        let function = function.into_iter().find(|function| address < function.end)?;
        let name = name_at(&self.strings, function.name);
        let name = &name[..name.len().min(MAX_NAME_BYTES)];
        Some((String::from_utf8_lossy(name).into_owned(), address - function.start))
    }

    fn source(&self, address: u64) -> Option<(String, u32)> {
        // The library looks at the byte behind the address, too.
        address.checked_add(1)?;
        // Nothing is half done when a lookup panics: its caches are filled in one step.
        let lines = lock(self.lines.as_ref()?);
        let location = lines.find_location(address).ok()??;
        // Line 0 marks code that belongs to no line.
        let line = location.line.filter(|&line| line != 0)?;
        Some((location.file?.to_owned(), line))
    }
}

fn read_functions(sections: &Sections<'_>, elf: &[u8]) -> (Vec<Function>, Vec<u8>) {
    let Ok(table) = sections.symbols(ENDIAN, elf, elf::SHT_SYMTAB) else {
        return Default::default();
    };
    let strings = sections
        .section(table.string_section())
        .ok()
        .and_then(|section| section.data(ENDIAN, elf).ok())
        .unwrap_or_default();
    let mut functions = Vec::new();
    for (index, symbol) in table.enumerate() {
        let kind = symbol.st_type();
        if kind != elf::STT_FUNC && kind != elf::STT_NOTYPE {
            continue;
        }
        let Ok(Some(section)) = table.symbol_section(ENDIAN, symbol, index) else {
            continue;
        };
        let Ok(section) = sections.section(section) else {
            continue;
        };
        if !section.sh_flags(ENDIAN).contains(elf::SHF_EXECINSTR) {
            continue;
        }
        let name = symbol.st_name(ENDIAN) as usize;
        // `$x` marks code, `.L` is the compiler's own label.
        if matches!(name_at(strings, name), [] | [b'$', ..] | [b'.', b'L', ..]) {
            continue;
        }
        let (start, size) = (symbol.st_value(ENDIAN), symbol.st_size(ENDIAN));
        // A label in assembly has no size; it goes on to the next symbol, at most to the end of its
        // section.
        let section_end = section.sh_addr(ENDIAN).saturating_add(section.sh_size(ENDIAN));
        let end = if size == 0 { section_end } else { start.saturating_add(size) };
        let rank = match (size == 0, symbol.st_bind() == elf::STB_LOCAL) {
            (true, true) => Rank::Label,
            (true, false) => Rank::GlobalLabel,
            (false, true) => Rank::Sized,
            (false, false) => Rank::GlobalSized,
        };
        functions.push(Function { start, end, rank, name });
    }
    functions.sort_by_key(|function| (function.start, function.rank));
    (functions, strings.to_vec())
}

/// Returns the name at an offset in a string table, without the zero behind it.
fn name_at(strings: &[u8], at: usize) -> &[u8] {
    let rest = strings.get(at..).unwrap_or_default();
    let rest = &rest[..rest.len().min(MAX_NAME_BYTES + 1)];
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn read_lines(sections: &Sections<'_>, elf: &[u8]) -> Option<Context<Reader>> {
    let load = |id: SectionId| -> Result<Reader, gimli::Error> {
        let data = sections
            .section_by_name(ENDIAN, id.name().as_bytes())
            .filter(|(_, section)| !section.sh_flags(ENDIAN).contains(elf::SHF_COMPRESSED))
            .and_then(|(_, section)| section.data(ENDIAN, elf).ok())
            .unwrap_or_default();
        Ok(EndianArcSlice::new(Arc::from(data), gimli::LittleEndian))
    };
    sections.section_by_name(ENDIAN, SectionId::DebugLine.name().as_bytes())?;
    Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> Option<Vec<u8>> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/");
        std::fs::read(format!("{path}{name}.elf")).ok()
    }

    #[test]
    fn a_compiled_function_has_a_name_and_a_line() {
        let Some(elf) = kernel("trap_load") else {
            eprintln!("skipped, because the kernels are not in this package");
            return;
        };
        let symbols = Symbols::parse(&elf);
        let function = symbols
            .functions
            .iter()
            .find(|function| name_at(&symbols.strings, function.name) == b"load_from_null")
            .copied()
            .unwrap();
        let location = symbols.locate(function.start);
        assert_eq!(location.symbol, Some(("load_from_null".to_owned(), 0)));
        let (file, line) = location.source.unwrap();
        assert_eq!(file, "testing/kernels/src/trap_load.c");
        assert!((10..40).contains(&line), "{line}");
        let symbol = symbols.locate(function.start + 2).symbol;
        assert_eq!(symbol, Some(("load_from_null".to_owned(), 2)));
    }

    #[test]
    fn assembly_has_names_and_lines_too() {
        let Some(elf) = kernel("trap_illegal") else {
            eprintln!("skipped, because the kernels are not in this package");
            return;
        };
        let symbols = Symbols::parse(&elf);
        let start = symbols.functions[0].start;
        let location = symbols.locate(start);
        assert!(location.symbol.is_some());
        let (file, line) = location.source.unwrap();
        assert!(file.ends_with(".S") && line > 1, "{file}:{line}");
    }

    #[test]
    fn addresses_outside_have_no_location() {
        for name in ["trap_load", "bss"] {
            let Some(elf) = kernel(name) else {
                eprintln!("skipped, because the kernels are not in this package");
                return;
            };
            let symbols = Symbols::parse(&elf);
            for address in [0, 1, u64::MAX, symbols.functions[0].start - 1] {
                assert_eq!(symbols.locate(address), Location::default());
            }
        }
    }

    #[test]
    fn nothing_usable_gives_nothing() {
        for bytes in [&b""[..], b"\x7fELF", &[0xff; 200]] {
            assert_eq!(Symbols::parse(bytes).locate(0), Location::default());
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        let Some(elf) = kernel("trap_load") else {
            eprintln!("skipped, because the kernels are not in this package");
            return;
        };
        let mut random = 0x2545_f491_4f6c_dd1du64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let len = elf.len() as u64;
        let place = |random: u64| usize::try_from(random % len).unwrap();
        for _ in 0..2000 {
            let mut damaged = elf.clone();
            for _ in 0..=next() % 8 {
                damaged[place(next())] = next().to_le_bytes()[0];
            }
            if next() % 8 == 0 {
                damaged.truncate(place(next()));
            }
            let symbols = Symbols::parse(&damaged);
            for offset in (0..0x100).step_by(16) {
                let _ = symbols.locate(0x80_0580_1000 + offset);
            }
        }
    }

    #[test]
    fn symbols_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Symbols>();
    }
}
