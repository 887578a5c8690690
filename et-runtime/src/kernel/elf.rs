//! Loading kernels: from an ELF file to bytes at an address.
//!
//! The vendor's loader places segments by their offset in the file and assumes a link convention (Spec: §21, 25); this
//! one places them by their physical address, which is the same for files of that convention and right for others.
//!
//! Spec: §13

use et_hal::DeviceAddr;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Rela, SectionHeader};
use object::{LittleEndian as Le, Object, ObjectSymbol};

/// Largest kernel in bytes.
const MAX_SPAN: u64 = 1 << 30;
/// Kernel code begins at a cache line at least.
const MIN_ALIGN: u64 = 64;
const MAX_ALIGN: u64 = 4096;
/// `e_flags`: mask and values of the float ABI.
const FLOAT_ABI: u32 = 0x6;
const FLOAT_ABI_DOUBLE: u32 = 0x4;

/// A file that cannot be loaded as a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It is not an ELF file, or it is cut off.
    #[error("not a complete ELF file: {0}")]
    Malformed(String),
    /// It is not a 64-bit little-endian file.
    #[error("not a 64-bit little-endian ELF file")]
    Class,
    /// It is for another machine.
    #[error("ELF file is for machine {0}, not RISC-V (243)")]
    Machine(u16),
    /// It is not an executable.
    #[error("ELF file of type {0} is not a statically linked executable")]
    Kind(u16),
    /// It needs double or quad precision registers, which the device lacks.
    #[error(
        "ELF file uses a float ABI the device lacks (flags {flags:#x}); build with -mabi=lp64f"
    )]
    FloatAbi {
        /// Its flags.
        flags: u32,
    },
    /// Nothing in it is to be loaded.
    #[error("ELF file has no loadable segment")]
    NoSegments,
    /// A segment is larger in the file than in memory.
    #[error("segment {index} has {file} bytes in the file and {memory} in memory")]
    SegmentSize {
        /// Number of the segment.
        index: usize,
        /// Bytes in the file.
        file: u64,
        /// Bytes in memory.
        memory: u64,
    },
    /// A segment is not inside the file, or wraps around the address space.
    #[error("segment {index} is outside the file or the address space")]
    SegmentRange {
        /// Number of the segment.
        index: usize,
    },
    /// Two segments overlap.
    #[error("segments {first} and {second} overlap")]
    Overlap {
        /// Number of one.
        first: usize,
        /// Number of the other.
        second: usize,
    },
    /// It occupies too much memory.
    #[error("kernel occupies {span} bytes, at most {max} are possible")]
    TooLarge {
        /// Bytes from the first to the last segment.
        span: u64,
        /// Most possible.
        max: u64,
    },
    /// The entry is not in an executable segment.
    #[error("entry {entry:#x} is not in an executable segment")]
    Entry {
        /// The address as linked.
        entry: u64,
    },
    /// There is no such function.
    #[error("no function {0}")]
    NoSymbol(String),
    /// A relocation points outside the bytes that are in the file.
    #[error("relocation at {offset:#x} is outside the file's segments")]
    Relocation {
        /// Address as linked.
        offset: u64,
    },
}

/// A checked kernel, ready to be placed at any address.
#[derive(Clone, Debug)]
pub struct KernelImage {
    link_base: u64,
    /// All segments, zero-filled, from the lowest physical address.
    bytes: Vec<u8>,
    align: u64,
    /// Entry by the ELF header, from the start.
    entry: u64,
    /// Executable ranges, from the start.
    executable: Vec<(u64, u64)>,
    /// Places of absolute 64-bit addresses, from the start; the value there is as linked.
    absolute: Vec<u64>,
    /// Functions: name, from the start.
    functions: Vec<(String, u64)>,
}

#[derive(Clone, Copy)]
struct Segment<'d> {
    index: usize,
    /// As linked: physical and virtual.
    physical: u64,
    virtual_: u64,
    memory: u64,
    data: &'d [u8],
    is_executable: bool,
    align: u64,
}

impl KernelImage {
    /// Reads and checks an ELF file.
    ///
    /// # Errors
    /// [`ElfError`], a variant for each rule.
    ///
    /// Spec: §13
    pub fn parse(file: &[u8]) -> Result<Self, ElfError> {
        let ident = file.get(..6).ok_or_else(|| ElfError::Malformed("no header".into()))?;
        if ident[..4] != elf::ELFMAG {
            return Err(ElfError::Malformed("no ELF magic".into()));
        }
        if ident[4] != elf::ELFCLASS64.0 || ident[5] != elf::ELFDATA2LSB.0 {
            return Err(ElfError::Class);
        }
        let malformed = |error: object::Error| ElfError::Malformed(error.to_string());
        let elf_file = ElfFile64::<Le>::parse(file).map_err(malformed)?;
        let header = elf_file.elf_header();
        check_header(header)?;
        let segments = segments(header, file)?;
        let base = segments.iter().map(|s| s.physical).min().ok_or(ElfError::NoSegments)?;
        let end = segments.iter().map(|s| s.physical + s.memory).max().unwrap_or(base);
        let span = end - base;
        if span > MAX_SPAN {
            return Err(ElfError::TooLarge { span, max: MAX_SPAN });
        }
        let mut bytes = vec![0; usize::try_from(span).unwrap_or(usize::MAX)];
        for segment in &segments {
            let start = usize::try_from(segment.physical - base).unwrap_or(usize::MAX);
            bytes[start..start + segment.data.len()].copy_from_slice(segment.data);
        }
        let to_offset = |address: u64| offset_of(&segments, base, address);
        let e_entry = header.e_entry(Le);
        let executable: Vec<_> = segments
            .iter()
            .filter(|segment| segment.is_executable)
            .map(|segment| (segment.physical - base, segment.memory))
            .collect();
        let is_code = |offset: u64| {
            executable.iter().any(|&(start, len)| offset >= start && offset - start < len)
        };
        let entry = to_offset(e_entry)
            .filter(|&offset| is_code(offset))
            .ok_or(ElfError::Entry { entry: e_entry })?;
        let absolute = relocations(header, file, &segments, base)?;
        let functions = elf_file
            .symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| {
                let offset = to_offset(symbol.address()).filter(|&offset| is_code(offset))?;
                Some((symbol.name().ok()?.to_owned(), offset))
            })
            .collect();
        let align = segments.iter().map(|s| s.align).max().unwrap_or(MIN_ALIGN);
        let align = align.clamp(MIN_ALIGN, MAX_ALIGN).next_power_of_two();
        Ok(Self { link_base: base, bytes, align, entry, executable, absolute, functions })
    }

    /// Returns the bytes it occupies in memory.
    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the alignment of the load address in bytes.
    #[must_use]
    pub fn align_bytes(&self) -> u64 {
        self.align
    }

    /// Returns the address it was linked for.
    #[must_use]
    pub fn link_base(&self) -> u64 {
        self.link_base
    }

    /// Returns the entry in bytes from the load address: that of the ELF header, or of the function named.
    ///
    /// # Errors
    /// [`ElfError::NoSymbol`].
    pub fn entry(&self, function: Option<&str>) -> Result<u64, ElfError> {
        let Some(name) = function else {
            return Ok(self.entry);
        };
        self.functions
            .iter()
            .find(|(other, _)| other == name)
            .map(|&(_, offset)| offset)
            .ok_or_else(|| ElfError::NoSymbol(name.to_owned()))
    }

    /// Returns the executable ranges: bytes from the load address, and length.
    #[must_use]
    pub fn executable(&self) -> &[(u64, u64)] {
        &self.executable
    }

    /// Returns the bytes for a load address, relocated.
    #[must_use]
    pub fn place(&self, load: DeviceAddr) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let distance = load.as_u64().wrapping_sub(self.link_base);
        for &offset in &self.absolute {
            // `relocations` checked that the eight bytes are there.
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            if let Some(word) = bytes.get_mut(at..at + 8).and_then(|w| w.first_chunk_mut::<8>()) {
                *word = u64::from_le_bytes(*word).wrapping_add(distance).to_le_bytes();
            }
        }
        bytes
    }
}

fn check_header(header: &elf::FileHeader64<Le>) -> Result<(), ElfError> {
    let machine = header.e_machine(Le);
    if machine != elf::EM_RISCV {
        return Err(ElfError::Machine(machine.0));
    }
    let kind = header.e_type(Le);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(ElfError::Kind(kind.0));
    }
    let flags = header.e_flags(Le).0;
    if flags & FLOAT_ABI >= FLOAT_ABI_DOUBLE {
        return Err(ElfError::FloatAbi { flags });
    }
    Ok(())
}

/// The loadable segments that are not empty. Compilers emit empty ones at address 0.
fn segments<'d>(
    header: &elf::FileHeader64<Le>,
    file: &'d [u8],
) -> Result<Vec<Segment<'d>>, ElfError> {
    let headers =
        header.program_headers(Le, file).map_err(|error| ElfError::Malformed(error.to_string()))?;
    let mut found: Vec<Segment<'d>> = Vec::new();
    for (index, program) in headers.iter().enumerate() {
        // The vendor's loader tests one bit here and takes other types too (Spec: §13).
        if program.p_type(Le) != elf::PT_LOAD || program.p_memsz(Le) == 0 {
            continue;
        }
        let (physical, virtual_) = (program.p_paddr(Le), program.p_vaddr(Le));
        let (size, memory) = (program.p_filesz(Le), program.p_memsz(Le));
        if size > memory {
            return Err(ElfError::SegmentSize { index, file: size, memory });
        }
        let outside = ElfError::SegmentRange { index };
        if physical.checked_add(memory).is_none() || virtual_.checked_add(memory).is_none() {
            return Err(outside);
        }
        let data = program.data(Le, file).map_err(|()| outside)?;
        let overlap = found.iter().find(|other| {
            physical < other.physical + other.memory && other.physical < physical + memory
        });
        if let Some(other) = overlap {
            return Err(ElfError::Overlap { first: other.index, second: index });
        }
        found.push(Segment {
            index,
            physical,
            virtual_,
            memory,
            data,
            is_executable: program.p_flags(Le).0 & elf::PF_X.0 != 0,
            align: program.p_align(Le),
        });
    }
    Ok(found)
}

/// Where an address as linked is in the image.
fn offset_of(segments: &[Segment<'_>], base: u64, address: u64) -> Option<u64> {
    segments.iter().find_map(|segment| {
        let inside = address.checked_sub(segment.virtual_)?;
        (inside < segment.memory).then(|| segment.physical - base + inside)
    })
}

/// The places whose absolute address must move with the kernel.
fn relocations(
    header: &elf::FileHeader64<Le>,
    file: &[u8],
    segments: &[Segment<'_>],
    base: u64,
) -> Result<Vec<u64>, ElfError> {
    let malformed = |error: object::Error| ElfError::Malformed(error.to_string());
    let sections = header.sections(Le, file).map_err(malformed)?;
    let mut places = Vec::new();
    for section in sections.iter() {
        let Some((entries, _)) = section.rela(Le, file).map_err(malformed)? else {
            continue;
        };
        let name = sections.section_name(Le, section).unwrap_or_default();
        if name.starts_with(b".rela.debug") {
            continue;
        }
        // Only sections that are in memory move with the kernel.
        let target = sections.section(section.info_link(Le));
        let is_in_memory = target.is_ok_and(|target| target.sh_flags(Le).0 & elf::SHF_ALLOC.0 != 0);
        let is_dynamic = section.sh_flags(Le).0 & elf::SHF_ALLOC.0 != 0;
        if !is_in_memory && !is_dynamic {
            continue;
        }
        for entry in entries {
            let kind = entry.r_type(Le, false);
            if kind != elf::R_RISCV_64 && kind != elf::R_RISCV_RELATIVE {
                continue;
            }
            let offset = Rela::r_offset(entry, Le);
            let inside = segments.iter().find_map(|segment| {
                let inside = offset.checked_sub(segment.virtual_)?;
                let end = inside.checked_add(8)?;
                (end <= segment.data.len() as u64).then(|| segment.physical - base + inside)
            });
            places.push(inside.ok_or(ElfError::Relocation { offset })?);
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}
