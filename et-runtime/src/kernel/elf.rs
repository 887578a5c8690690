//! Kernel files.
//!
//! The device knows nothing about ELF: the host lays out the image, relocates it and passes an
//! address. Segments keep their distances in memory, not those in the file as the vendor's loader
//! has it; for files that follow its conventions both give the same image.

use std::ops::Range;

use et_hal::DeviceAddr;
use object::elf::{self, FileHeader64};
use object::read::elf::{
    FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym, SymbolTable,
};
use object::{LittleEndian, SectionIndex};
use thiserror::Error;

use super::{Signature, SignatureError};

/// Larger images are taken for a mistake.
const MAX_SPAN_BYTES: u64 = 1 << 30;
/// Least alignment of code, in bytes: a cache line. Spec: §12.1.
const MIN_ALIGN_BYTES: u64 = 64;
/// Segments that ask for more get this much, which is the page size of the usual linker.
const MAX_ALIGN_BYTES: u64 = 4096;
/// Size of a 64-bit ELF header in bytes.
const HEADER_BYTES: usize = size_of::<Header>();

/// The section in which `ET_ARGUMENTS` of the device SDK leaves its text.
const ARGUMENTS_SECTION: &[u8] = b".et.arguments";

const ENDIAN: LittleEndian = LittleEndian;

type Header = FileHeader64<LittleEndian>;
type Sections<'data> = SectionTable<'data, Header>;

/// Why a file is not a kernel that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The file does not begin like an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// The file ends too early, or a table in it makes no sense.
    #[error("the {what} is cut off or malformed")]
    Malformed {
        /// The part of the file.
        what: &'static str,
    },
    /// Not a 64-bit file.
    #[error("ELF class {class} instead of 2 (64-bit)")]
    NotSixtyFourBit {
        /// The class in the header; 1 is 32-bit.
        class: u8,
    },
    /// Not a little-endian file.
    #[error("data encoding {encoding} instead of 1 (little-endian)")]
    NotLittleEndian {
        /// The encoding in the header; 2 is big-endian.
        encoding: u8,
    },
    /// Built for another processor.
    #[error("built for machine {machine} instead of 243 (RISC-V)")]
    WrongMachine {
        /// The machine in the header.
        machine: u16,
    },
    /// An object file, a core dump or the like.
    #[error("file type {kind} cannot be run (expected 2 or 3, was the file linked?)")]
    NotExecutable {
        /// The type in the header; 1 is an object file.
        kind: u16,
    },
    /// The file wants a dynamic linker.
    #[error("the file is dynamically linked")]
    NotStatic,
    /// Floating-point arguments are passed in registers that the minions do not have.
    #[error("built for {abi}-precision float arguments; the minions have single precision")]
    FloatAbi {
        /// `double` or `quad`.
        abi: &'static str,
    },
    /// Built for 16 registers or 32-bit pointers.
    #[error("built for the {abi} calling convention")]
    CallingConvention {
        /// `RV32E/RV64E` or `ILP32`.
        abi: &'static str,
    },
    /// Nothing to load.
    #[error("the file has no load segment")]
    NoSegments,
    /// A segment has more bytes in the file than in memory.
    #[error(
        "the segment at {address:#x} has {file_bytes} bytes in the file but {memory_bytes} in memory"
    )]
    SegmentSizes {
        /// Link address of the segment.
        address: u64,
        /// Bytes in the file.
        file_bytes: u64,
        /// Bytes in memory.
        memory_bytes: u64,
    },
    /// The alignment of a segment is not a power of two.
    #[error("the segment at {address:#x} has alignment {align}, which is not a power of two")]
    SegmentAlign {
        /// Link address of the segment.
        address: u64,
        /// The alignment in bytes.
        align: u64,
    },
    /// A segment goes beyond the end of the address space.
    #[error("the segment at {address:#x} does not fit the address space")]
    SegmentRange {
        /// Link address of the segment.
        address: u64,
    },
    /// Two segments share memory, or more bytes are loaded than the file has.
    #[error("the segment at {address:#x} overlaps another one")]
    Overlap {
        /// Link address of the later segment.
        address: u64,
    },
    /// The segments' physical addresses are not at the distances of their virtual addresses.
    #[error(
        "the segment at {address:#x} has a physical address at another distance than the first one"
    )]
    Displaced {
        /// Link address of the segment.
        address: u64,
    },
    /// The image is unreasonably large.
    #[error("the image spans {span_bytes} bytes; the limit is {limit_bytes}")]
    TooLarge {
        /// Bytes from the first to the last.
        span_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The entry is not in the file's part of an executable segment.
    #[error("the entry {address:#x} is not in executable code")]
    EntryOutside {
        /// Link address of the entry.
        address: u64,
    },
    /// The entry is not at a multiple of 2, where instructions start.
    #[error("the entry {address:#x} is not the start of an instruction")]
    EntryMisaligned {
        /// Link address of the entry.
        address: u64,
    },
    /// No symbol of that name is defined.
    #[error("the file defines no symbol {name:?} (was it stripped?)")]
    UnknownSymbol {
        /// The name.
        name: String,
    },
    /// A relocation is for a place that the file does not provide.
    #[error("a relocation is for {address:#x}, which is not in the file's part of a segment")]
    RelocationOutside {
        /// Link address of the word.
        address: u64,
    },
    /// A position-independent file has a relocation that needs a dynamic linker.
    #[error("the relocation of {address:#x} has type {kind}, which needs a dynamic linker")]
    UnsupportedRelocation {
        /// Link address of the word.
        address: u64,
        /// Type of the relocation.
        kind: u32,
    },
    /// The relocations of loaded memory have no addends of their own.
    #[error("relocations of form REL or RELR are not supported")]
    PackedRelocations,
    /// What the file says about its arguments makes no sense.
    #[error("the file states its arguments wrongly")]
    Arguments(#[source] SignatureError),
}

impl ElfError {
    const fn malformed(what: &'static str) -> Self {
        Self::Malformed { what }
    }
}

/// A kernel that has been read and checked, ready to be placed anywhere in device memory.
///
/// Offsets count from the image's first byte, which is the lowest link address rounded down to
/// [`align_bytes`](Self::align_bytes).
///
/// Spec: §13
#[derive(Clone, Debug)]
pub struct KernelImage {
    link_base: u64,
    align_bytes: u64,
    span_bytes: u64,
    /// Link address of the entry that the header names.
    entry: u64,
    /// Sorted by offset; never overlapping.
    segments: Vec<Segment>,
    relocations: Vec<Relocation>,
    /// A segment may be written.
    is_writable: bool,
    /// Offsets of the bytes that may not be written.
    read_only: Vec<Range<u64>>,
    symbols: Names,
    signature: Option<Signature>,
}

#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    access: Access,
    /// Its part of the file; the rest is zero.
    data: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Executable,
    Data,
}

/// A word whose value depends on where the image is.
#[derive(Clone, Copy, Debug)]
struct Relocation {
    offset: u64,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    /// The word holds its value at the link address.
    Word,
    /// This is its value at the link address.
    Addend(u64),
}

/// The defined symbols. Names stay in one piece, because entries of a string table may share their
/// bytes.
#[derive(Clone, Debug, Default)]
struct Names {
    strings: Vec<u8>,
    entries: Vec<Name>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    at: usize,
    address: u64,
    is_local: bool,
}

fn signature(sections: &Sections<'_>, bytes: &[u8]) -> Result<Option<Signature>, ElfError> {
    let Some((_, section)) = sections.section_by_name(ENDIAN, ARGUMENTS_SECTION) else {
        return Ok(None);
    };
    let malformed = || ElfError::malformed("statement of arguments");
    let text = section.data(ENDIAN, bytes).map_err(|_| malformed())?;
    let text = std::str::from_utf8(text).map_err(|_| malformed())?;
    text.trim_end_matches('\0').parse().map(Some).map_err(ElfError::Arguments)
}

impl KernelImage {
    /// Reads a kernel file: a statically linked 64-bit little-endian RISC-V executable.
    ///
    /// Files that are linked to a fixed address need their relocations kept (`--emit-relocs`) if
    /// they hold absolute addresses in data; without them they can still be loaded, but those words
    /// stay as they are. Position-independent executables bring what they need.
    ///
    /// # Errors
    /// [`ElfError`] says what is wrong with the file.
    ///
    /// Spec: §13
    pub fn parse(bytes: &[u8]) -> Result<Self, ElfError> {
        let header = check_header(bytes)?;
        let layout = Layout::read(header, bytes)?;
        let sections =
            header.sections(ENDIAN, bytes).map_err(|_| ElfError::malformed("section table"))?;
        let mut image = Self {
            link_base: layout.link_base,
            align_bytes: layout.align_bytes,
            span_bytes: layout.span_bytes,
            entry: header.e_entry.get(ENDIAN),
            segments: layout.segments,
            relocations: Vec::new(),
            is_writable: layout.is_writable,
            read_only: layout.read_only,
            symbols: Names::read(&sections, bytes),
            signature: signature(&sections, bytes)?,
        };
        image.read_relocations(header, &sections, bytes)?;
        Ok(image)
    }

    /// Returns the memory that the image needs, in bytes; not 0.
    #[must_use]
    pub const fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// Returns what the load address must be a multiple of, in bytes: 64 to 4096.
    #[must_use]
    pub const fn align_bytes(&self) -> u64 {
        self.align_bytes
    }

    /// Returns the link address of the image's first byte, a multiple of
    /// [`align_bytes`](Self::align_bytes).
    #[must_use]
    pub const fn link_base(&self) -> u64 {
        self.link_base
    }

    /// Returns `true` if the kernel has memory of its own to write: variables that keep their
    /// values from launch to launch.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns what the file says about the arguments of its kernels; `None` if it says nothing.
    #[must_use]
    pub const fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Returns the offsets of code and constants: what the file's segments do not let kernels
    /// write.
    pub(crate) fn read_only(&self) -> &[Range<u64>] {
        &self.read_only
    }

    /// Returns the offset of the entry: of `symbol`, or else of the entry that the file names.
    ///
    /// # Errors
    /// [`ElfError::UnknownSymbol`]; [`ElfError::EntryOutside`]; [`ElfError::EntryMisaligned`].
    pub fn entry(&self, symbol: Option<&str>) -> Result<u64, ElfError> {
        let address = match symbol {
            None => self.entry,
            Some(name) => self
                .symbols
                .find(name)
                .ok_or_else(|| ElfError::UnknownSymbol { name: name.to_owned() })?,
        };
        let offset = address
            .checked_sub(self.link_base)
            .filter(|&offset| {
                self.segment_of(offset, 1)
                    .is_some_and(|(segment, _)| segment.access == Access::Executable)
            })
            .ok_or(ElfError::EntryOutside { address })?;
        if !offset.is_multiple_of(2) {
            return Err(ElfError::EntryMisaligned { address });
        }
        Ok(offset)
    }

    /// Returns the [`span_bytes`](Self::span_bytes) bytes of the image as they must be at `load`,
    /// which should be a multiple of [`align_bytes`](Self::align_bytes).
    #[must_use]
    pub fn place(&self, load: DeviceAddr) -> Vec<u8> {
        let bias = load.as_u64().wrapping_sub(self.link_base);
        let mut image = vec![0; index(self.span_bytes)];
        for segment in &self.segments {
            let start = index(segment.offset);
            if let Some(target) = image.get_mut(start..start + segment.data.len()) {
                target.copy_from_slice(&segment.data);
            }
        }
        for relocation in &self.relocations {
            let word = image.get_mut(index(relocation.offset)..).and_then(<[u8]>::first_chunk_mut);
            let Some(word) = word else { continue };
            let linked = match relocation.value {
                Value::Word => u64::from_le_bytes(*word),
                Value::Addend(addend) => addend,
            };
            *word = linked.wrapping_add(bias).to_le_bytes();
        }
        image
    }

    /// Finds the segment whose file part holds `len` bytes at an offset, and where in it.
    fn segment_of(&self, offset: u64, len: u64) -> Option<(&Segment, u64)> {
        let after = self.segments.partition_point(|segment| segment.offset <= offset);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        let within = offset - segment.offset;
        let end = within.checked_add(len)?;
        (end <= segment.data.len() as u64).then_some((segment, within))
    }

    fn read_relocations(
        &mut self,
        header: &Header,
        sections: &Sections<'_>,
        bytes: &[u8],
    ) -> Result<(), ElfError> {
        let is_dynamic = header.e_type.get(ENDIAN) == elf::ET_DYN;
        // Tables that overlap would make more work than the file is long.
        let mut allowed = bytes.len();
        for section in sections.iter() {
            if !is_for_memory(section, sections, is_dynamic) {
                continue;
            }
            if section.sh_type(ENDIAN) != elf::SHT_RELA {
                return Err(ElfError::PackedRelocations);
            }
            let malformed = ElfError::malformed("relocation table");
            let Ok(Some((entries, link))) = section.rela(ENDIAN, bytes) else {
                return Err(malformed);
            };
            allowed = allowed.checked_sub(size_of_val(entries)).ok_or(malformed)?;
            let symbols = sections.symbol_table_by_index(ENDIAN, bytes, link).ok();
            for entry in entries {
                self.read_relocation(entry, symbols.as_ref(), is_dynamic)?;
            }
        }
        // A word that is listed twice still moves only once.
        self.relocations.sort_by_key(|relocation| relocation.offset);
        self.relocations.dedup_by_key(|relocation| relocation.offset);
        Ok(())
    }

    fn read_relocation(
        &mut self,
        entry: &elf::Rela64<LittleEndian>,
        symbols: Option<&SymbolTable<'_, Header>>,
        is_dynamic: bool,
    ) -> Result<(), ElfError> {
        let address = entry.r_offset(ENDIAN);
        let value = match entry.r_type(ENDIAN, false) {
            elf::R_RISCV_64 if !is_dynamic => {
                let symbol = entry.symbol(ENDIAN, false);
                let symbol = symbol.and_then(|index| symbols?.symbol(index).ok());
                // A number stays what it is, and so does the zero of a weak symbol that no one
                // defines.
                if symbol.is_some_and(|symbol| {
                    symbol.is_undefined(ENDIAN) || symbol.st_shndx(ENDIAN) == elf::SHN_ABS
                }) {
                    return Ok(());
                }
                Value::Word
            }
            elf::R_RISCV_RELATIVE => Value::Addend(entry.r_addend(ENDIAN).cast_unsigned()),
            elf::R_RISCV_NONE => return Ok(()),
            // The linker has resolved these for good: they are relative to the program counter.
            _ if !is_dynamic => return Ok(()),
            kind => {
                return Err(ElfError::UnsupportedRelocation { address, kind: kind.0 });
            }
        };
        let offset = address
            .checked_sub(self.link_base)
            .filter(|&offset| self.segment_of(offset, 8).is_some())
            .ok_or(ElfError::RelocationOutside { address })?;
        self.relocations.push(Relocation { offset, value });
        Ok(())
    }
}

/// What the program headers say.
struct Layout {
    link_base: u64,
    align_bytes: u64,
    span_bytes: u64,
    segments: Vec<Segment>,
    is_writable: bool,
    read_only: Vec<Range<u64>>,
}

impl Layout {
    fn read(header: &Header, bytes: &[u8]) -> Result<Self, ElfError> {
        let headers = header
            .program_headers(ENDIAN, bytes)
            .map_err(|_| ElfError::malformed("program header table"))?;
        if headers.iter().any(|header| header.p_type(ENDIAN) == elf::PT_INTERP) {
            return Err(ElfError::NotStatic);
        }
        let mut loads: Vec<_> = headers
            .iter()
            .filter(|header| header.p_type(ENDIAN) == elf::PT_LOAD && header.p_memsz(ENDIAN) != 0)
            .collect();
        loads.sort_by_key(|header| header.p_vaddr(ENDIAN));
        let Some(&first) = loads.first() else {
            return Err(ElfError::NoSegments);
        };

        let mut align_bytes = MIN_ALIGN_BYTES;
        for header in &loads {
            let (address, align) = (header.p_vaddr(ENDIAN), header.p_align(ENDIAN));
            // 0 and 1 both mean that there is no demand.
            if align != 0 && !align.is_power_of_two() {
                return Err(ElfError::SegmentAlign { address, align });
            }
            align_bytes = align_bytes.max(align.min(MAX_ALIGN_BYTES));
        }
        // Rounded down, so that the load address is congruent to the link address.
        let link_base = first.p_vaddr(ENDIAN) & !(align_bytes - 1);
        let displacement = first.p_paddr(ENDIAN).wrapping_sub(first.p_vaddr(ENDIAN));

        let is_writable = loads.iter().any(|load| load.p_flags(ENDIAN).contains(elf::PF_W));
        let mut read_only = Vec::new();
        let mut span_bytes = 0u64;
        let mut allowed = bytes.len();
        let mut segments = Vec::with_capacity(loads.len());
        for header in loads {
            let address = header.p_vaddr(ENDIAN);
            let file_bytes = header.p_filesz(ENDIAN);
            let memory_bytes = header.p_memsz(ENDIAN);
            let offset = address - link_base;
            let physical = address.wrapping_add(displacement);
            if address.checked_add(memory_bytes).is_none()
                || header.p_paddr(ENDIAN).checked_add(memory_bytes).is_none()
            {
                return Err(ElfError::SegmentRange { address });
            }
            if header.p_paddr(ENDIAN) != physical {
                return Err(ElfError::Displaced { address });
            }
            if file_bytes > memory_bytes {
                return Err(ElfError::SegmentSizes { address, file_bytes, memory_bytes });
            }
            if offset < span_bytes {
                return Err(ElfError::Overlap { address });
            }
            span_bytes = offset + memory_bytes;
            if !header.p_flags(ENDIAN).contains(elf::PF_W) {
                read_only.push(offset..span_bytes);
            }
            if span_bytes > MAX_SPAN_BYTES {
                let limit_bytes = MAX_SPAN_BYTES;
                return Err(ElfError::TooLarge { span_bytes, limit_bytes });
            }
            let data = match file_bytes {
                0 => &[],
                _ => header
                    .data(ENDIAN, bytes)
                    .map_err(|()| ElfError::malformed("content of a segment"))?,
            };
            // Segments that share bytes of the file could ask for more memory than the file is
            // long.
            allowed = allowed.checked_sub(data.len()).ok_or(ElfError::Overlap { address })?;
            let is_executable = header.p_flags(ENDIAN).contains(elf::PF_X);
            let access = if is_executable { Access::Executable } else { Access::Data };
            segments.push(Segment { offset, access, data: data.to_vec() });
        }
        Ok(Self { link_base, align_bytes, span_bytes, segments, is_writable, read_only })
    }
}

impl Names {
    /// Reads what can be read: a kernel without symbols still runs.
    fn read(sections: &Sections<'_>, bytes: &[u8]) -> Self {
        let Ok(table) = sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB) else {
            return Self::default();
        };
        let strings = sections
            .section(table.string_section())
            .ok()
            .and_then(|section| section.data(ENDIAN, bytes).ok())
            .unwrap_or_default();
        let entries = table
            .iter()
            .filter(|symbol| {
                let kind = symbol.st_type();
                !symbol.is_undefined(ENDIAN)
                    && symbol.st_shndx(ENDIAN) != elf::SHN_ABS
                    && kind != elf::STT_SECTION
                    && kind != elf::STT_FILE
            })
            .map(|symbol| Name {
                at: symbol.st_name(ENDIAN) as usize,
                address: symbol.st_value(ENDIAN),
                is_local: symbol.st_bind() == elf::STB_LOCAL,
            })
            .collect();
        Self { strings: strings.to_vec(), entries }
    }

    /// Finds a symbol; a global one if there are several.
    fn find(&self, name: &str) -> Option<u64> {
        if name.is_empty() {
            return None;
        }
        let mut found = None;
        for entry in &self.entries {
            let rest = self.strings.get(entry.at..).and_then(|s| s.strip_prefix(name.as_bytes()));
            if rest.and_then(<[u8]>::first) != Some(&0) {
                continue;
            }
            if !entry.is_local {
                return Some(entry.address);
            }
            found = found.or(Some(entry.address));
        }
        found
    }
}

fn check_header(bytes: &[u8]) -> Result<&Header, ElfError> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    if bytes.len() < HEADER_BYTES {
        return Err(ElfError::malformed("file header"));
    }
    // Looked at before the rest, whose layout depends on them.
    let (class, encoding) = (bytes[4], bytes[5]);
    if class != elf::ELFCLASS64.0 {
        return Err(ElfError::NotSixtyFourBit { class });
    }
    if encoding != elf::ELFDATA2LSB.0 {
        return Err(ElfError::NotLittleEndian { encoding });
    }
    let header = Header::parse(bytes).map_err(|_| ElfError::malformed("file header"))?;
    let machine = header.e_machine.get(ENDIAN);
    if machine != elf::EM_RISCV {
        return Err(ElfError::WrongMachine { machine: machine.0 });
    }
    let kind = header.e_type.get(ENDIAN);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(ElfError::NotExecutable { kind: kind.0 });
    }
    let flags = header.e_flags.get(ENDIAN);
    match flags.0 & elf::EF_RISCV_FLOAT_ABI {
        abi if abi == elf::EF_RISCV_FLOAT_ABI_DOUBLE.0 => {
            return Err(ElfError::FloatAbi { abi: "double" });
        }
        abi if abi == elf::EF_RISCV_FLOAT_ABI_QUAD.0 => {
            return Err(ElfError::FloatAbi { abi: "quad" });
        }
        _ => {}
    }
    if flags.contains(elf::EF_RISCV_RVE) {
        return Err(ElfError::CallingConvention { abi: "RV32E/RV64E" });
    }
    if flags.contains(elf::EF_RISCV_RV64ILP32) {
        return Err(ElfError::CallingConvention { abi: "ILP32" });
    }
    Ok(header)
}

/// Returns `true` if a section relocates memory that is loaded.
fn is_for_memory(
    section: &elf::SectionHeader64<LittleEndian>,
    sections: &Sections<'_>,
    is_dynamic: bool,
) -> bool {
    let is_loaded = section.sh_flags(ENDIAN).contains(elf::SHF_ALLOC);
    match section.sh_type(ENDIAN) {
        // A position-independent file repeats the linker's own relocations in a form for loaders.
        elf::SHT_RELA if is_dynamic => is_loaded,
        elf::SHT_RELA => {
            let name = sections.section_name(ENDIAN, section).unwrap_or_default();
            let is_debug = name.windows(11).any(|part| part == b".rela.debug");
            let target = SectionIndex(section.sh_info(ENDIAN) as usize);
            let target = sections.section(target).ok().filter(|_| target.0 != 0);
            let is_for_loaded =
                target.is_none_or(|target| target.sh_flags(ENDIAN).contains(elf::SHF_ALLOC));
            !is_debug && is_for_loaded
        }
        elf::SHT_REL | elf::SHT_RELR | elf::SHT_CREL => is_loaded,
        _ => false,
    }
}

/// Makes an index of an offset in an image.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("an image spans less than an address space")
}
