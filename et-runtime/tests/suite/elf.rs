//! The loader of kernels against files made by hand, damaged files and the kernels of the test
//! suite.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests are tests too")]

use std::path::Path;

use et_hal::DeviceAddr;
use et_runtime::kernel::{ElfError, KernelImage};

const BASE: u64 = 0x80_0580_1000;
const LOAD: DeviceAddr = DeviceAddr::new(0x80_1234_5000);
const EXECUTE: u32 = 5;
const DATA: u32 = 6;

const R_RISCV_64: u64 = 2;
const R_RISCV_RELATIVE: u64 = 3;
const R_RISCV_CALL: u64 = 18;

#[derive(Clone)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

#[derive(Clone, Default)]
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    info: u32,
    content: Vec<u8>,
}

#[derive(Clone)]
struct Symbol {
    name: &'static str,
    info: u8,
    section: u16,
    value: u64,
}

/// A small file: code at file offset 0x1000, data at 0x2000, then the sections.
#[derive(Clone)]
struct File {
    kind: u16,
    machine: u16,
    flags: u32,
    entry: u64,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
}

fn segment(flags: u32, offset: u64, filesz: u64, memsz: u64) -> Segment {
    let address = BASE + offset - 0x1000;
    Segment { kind: 1, flags, offset, vaddr: address, paddr: address, filesz, memsz, align: 0x1000 }
}

fn symbol(name: &'static str, value: u64) -> Symbol {
    // Global function in section 1, the code.
    Symbol { name, info: 0x12, section: 1, value }
}

impl File {
    fn new() -> Self {
        Self {
            kind: 2,
            machine: 243,
            flags: 3,
            entry: BASE + 4,
            segments: vec![
                segment(EXECUTE, 0x1000, 0x40, 0x40),
                segment(DATA, 0x2000, 0x30, 0x100),
            ],
            sections: vec![
                Section { name: ".text", kind: 1, flags: 6, ..Section::default() },
                Section { name: ".data", kind: 1, flags: 3, ..Section::default() },
            ],
            symbols: vec![symbol("_start", BASE + 4), symbol("other", BASE + 8)],
        }
    }

    /// Adds relocations of the section with index `target`.
    fn relocations(mut self, name: &'static str, target: u32, entries: &[(u64, u64, i64)]) -> Self {
        let content = entries
            .iter()
            .flat_map(|&(offset, info, addend)| {
                [offset.to_le_bytes(), info.to_le_bytes(), addend.to_le_bytes()].concat()
            })
            .collect();
        // The symbol table comes behind the sections.
        let link = 0xffff;
        self.sections.push(Section { name, kind: 4, flags: 0, link, info: target, content });
        self
    }

    fn build(&self) -> Vec<u8> {
        let mut bytes = vec![0; 0x2030];
        for (at, byte) in bytes.iter_mut().enumerate().skip(0x1000) {
            *byte = u8::try_from(at % 251).unwrap();
        }
        for word in 0..6u64 {
            let at = 0x2000 + usize::try_from(word).unwrap() * 8;
            bytes[at..at + 8].copy_from_slice(&(BASE + word).to_le_bytes());
        }
        let mut strings = vec![0];
        let mut symbols = vec![0; 24];
        for symbol in &self.symbols {
            symbols.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
            symbols.extend([symbol.info, 0]);
            symbols.extend(symbol.section.to_le_bytes());
            symbols.extend(symbol.value.to_le_bytes());
            symbols.extend(0u64.to_le_bytes());
            strings.extend(symbol.name.bytes());
            strings.push(0);
        }
        let symtab = u32::try_from(self.sections.len()).unwrap() + 1;
        let mut sections = vec![Section::default()];
        sections.extend(self.sections.iter().cloned());
        for section in &mut sections {
            if section.link == 0xffff {
                section.link = symtab;
            }
        }
        let table = Section {
            name: ".symtab",
            kind: 2,
            link: symtab + 1,
            content: symbols,
            ..Section::default()
        };
        sections.push(table);
        sections.push(Section { name: ".strtab", kind: 3, content: strings, ..Section::default() });
        let mut names = Vec::new();
        let mut headers = Vec::new();
        let names_index = sections.len();
        sections.push(Section { name: ".shstrtab", kind: 3, ..Section::default() });
        for section in &sections {
            names.push(0);
            names.extend(section.name.bytes());
        }
        names.push(0);
        sections[names_index].content = names.clone();
        let mut name_at = 0;
        for section in &sections {
            let name = u32::try_from(name_at + 1).unwrap();
            name_at += section.name.len() + 1;
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            headers.extend(section.flags.to_le_bytes());
            headers.extend(0u64.to_le_bytes());
            headers.extend((bytes.len() as u64).to_le_bytes());
            headers.extend((section.content.len() as u64).to_le_bytes());
            headers.extend(section.link.to_le_bytes());
            headers.extend(section.info.to_le_bytes());
            headers.extend(1u64.to_le_bytes());
            let entry = match section.kind {
                2 | 4 => 24u64,
                _ => 0,
            };
            headers.extend(entry.to_le_bytes());
            bytes.extend(&section.content);
        }
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header.extend(self.kind.to_le_bytes());
        header.extend(self.machine.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        header.extend(self.entry.to_le_bytes());
        header.extend(64u64.to_le_bytes());
        header.extend((bytes.len() as u64).to_le_bytes());
        header.extend(self.flags.to_le_bytes());
        header.extend(64u16.to_le_bytes());
        header.extend(56u16.to_le_bytes());
        header.extend(u16::try_from(self.segments.len()).unwrap().to_le_bytes());
        header.extend(64u16.to_le_bytes());
        header.extend(u16::try_from(sections.len()).unwrap().to_le_bytes());
        header.extend(u16::try_from(names_index).unwrap().to_le_bytes());
        for segment in &self.segments {
            header.extend(segment.kind.to_le_bytes());
            header.extend(segment.flags.to_le_bytes());
            for word in [
                segment.offset,
                segment.vaddr,
                segment.paddr,
                segment.filesz,
                segment.memsz,
                segment.align,
            ] {
                header.extend(word.to_le_bytes());
            }
        }
        bytes[..header.len()].copy_from_slice(&header);
        bytes.extend(headers);
        bytes
    }

    fn parse(&self) -> Result<KernelImage, ElfError> {
        KernelImage::parse(&self.build())
    }

    fn error(&self) -> ElfError {
        self.parse().expect_err("the file is bad")
    }
}

fn word(image: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(image[offset..offset + 8].try_into().unwrap())
}

#[test]
fn segments_are_placed_and_the_rest_is_zero() {
    let file = File::new().build();
    let image = KernelImage::parse(&file).unwrap();
    assert_eq!(
        (image.span_bytes(), image.align_bytes(), image.link_base()),
        (0x1100, 0x1000, BASE)
    );
    let placed = image.place(LOAD);
    assert_eq!(placed.len(), 0x1100);
    assert_eq!(placed[..0x40], file[0x1000..0x1040]);
    assert_eq!(placed[0x1000..0x1030], file[0x2000..0x2030]);
    assert!(placed[0x40..0x1000].iter().chain(&placed[0x1030..]).all(|&byte| byte == 0));
}

#[test]
fn a_file_at_any_address_in_memory_is_read() {
    let mut file = vec![0];
    file.extend(File::new().build());
    KernelImage::parse(&file[1..]).unwrap();
}

#[test]
fn entries_are_offsets() {
    let mut file = File::new();
    let local = Symbol { info: 0x02, ..symbol("other", BASE + 12) };
    file.symbols.insert(0, local);
    file.symbols.push(Symbol { info: 0x02, ..symbol("hidden", BASE + 16) });
    file.symbols.push(symbol("data", BASE + 0x1000));
    file.symbols.push(symbol("odd", BASE + 5));
    file.symbols.push(symbol("before", BASE - 2));
    file.symbols.push(Symbol { section: 0, ..symbol("missing", 0) });
    file.symbols.push(Symbol { section: 0xfff1, ..symbol("number", BASE) });
    let image = file.parse().unwrap();
    assert_eq!(image.entry(None), Ok(4));
    assert_eq!(image.entry(Some("_start")), Ok(4));
    assert_eq!(image.entry(Some("other")), Ok(8), "the global one");
    assert_eq!(image.entry(Some("hidden")), Ok(16));
    for name in ["", "_star", "_start2", "start", "missing", "number", "nul\0"] {
        let name = name.to_owned();
        assert_eq!(image.entry(Some(&name)), Err(ElfError::UnknownSymbol { name }));
    }
    for (name, address) in [("data", BASE + 0x1000), ("before", BASE - 2)] {
        assert_eq!(image.entry(Some(name)), Err(ElfError::EntryOutside { address }));
    }
    let address = BASE + 5;
    assert_eq!(image.entry(Some("odd")), Err(ElfError::EntryMisaligned { address }));
    for entry in [0, BASE + 0x40, BASE + 0x1000, u64::MAX] {
        let image = File { entry, ..File::new() }.parse().unwrap();
        assert_eq!(image.entry(None), Err(ElfError::EntryOutside { address: entry }));
    }
}

#[test]
fn absolute_words_move_with_the_image() {
    let undefined = 3 << 32;
    let number = 4 << 32;
    let mut file = File::new();
    file.symbols.push(Symbol { section: 0, ..symbol("weak", 0) });
    file.symbols.push(Symbol { section: 0xfff1, ..symbol("number", 7) });
    let file = file
        .relocations(
            ".rela.data",
            2,
            &[
                (BASE + 0x1000, R_RISCV_64 | 1 << 32, 0),
                (BASE + 0x1010, R_RISCV_64, 0x7777),
                (BASE + 0x1010, R_RISCV_64, 0x7777),
                (BASE + 0x1018, R_RISCV_64 | undefined, 0),
                (BASE + 0x1020, R_RISCV_64 | number, 0),
                (BASE + 0x1028, R_RISCV_RELATIVE, 0x10),
                (BASE + 0x28, R_RISCV_CALL, 0),
                (0, R_RISCV_CALL, 0),
            ],
        )
        .relocations(".rela.debug_info", 0, &[(0, R_RISCV_64, 0), (BASE, R_RISCV_64, 0)]);
    let image = file.parse().unwrap();
    let bias = LOAD.as_u64() - BASE;
    let placed = image.place(LOAD);
    let words: Vec<u64> = (0..6).map(|index| word(&placed, 0x1000 + index * 8)).collect();
    let expected =
        [BASE + bias, BASE + 1, BASE + 2 + bias, BASE + 3, BASE + 4, bias.wrapping_add(0x10)];
    assert_eq!(words, expected);
    assert_eq!(placed[..0x40], file.build()[0x1000..0x1040]);
    // At the link address nothing changes but the words that the file leaves to the loader.
    let placed = image.place(DeviceAddr::new(BASE));
    assert_eq!(placed[0x1000..0x1028], file.build()[0x2000..0x2028]);
    // Below the link address, too.
    assert_eq!(word(&image.place(DeviceAddr::new(0x1000)), 0x1000), 0x1000);
}

#[test]
fn relocations_of_sections_that_are_not_loaded_are_left_alone() {
    let mut file = File::new();
    file.sections.push(Section { name: ".note", kind: 1, ..Section::default() });
    file.relocations(".rela.note", 3, &[(0, R_RISCV_64, 0)]).parse().unwrap();
}

#[test]
fn relocations_outside_the_file_part_are_refused() {
    for address in [0, BASE - 8, BASE + 0x39, BASE + 0x40, BASE + 0x1029, BASE + 0x1030, u64::MAX] {
        let file = File::new().relocations(".rela.data", 2, &[(address, R_RISCV_64, 0)]);
        assert_eq!(file.error(), ElfError::RelocationOutside { address });
    }
}

#[test]
fn position_independent_files_use_their_dynamic_relocations_only() {
    let mut file = File { kind: 3, ..File::new() }
        .relocations(".rela.data", 2, &[(BASE + 0x1000, R_RISCV_64, 0)])
        .relocations(".rela.dyn", 0, &[(BASE + 0x1000, R_RISCV_RELATIVE, 0x1234)]);
    file.sections.last_mut().unwrap().flags = 2;
    let placed = file.parse().unwrap().place(LOAD);
    assert_eq!(word(&placed, 0x1000), (LOAD.as_u64() - BASE).wrapping_add(0x1234));

    let address = BASE + 0x1000;
    let mut file =
        File { kind: 3, ..File::new() }.relocations(".rela.dyn", 0, &[(address, R_RISCV_64, 0)]);
    file.sections.last_mut().unwrap().flags = 2;
    assert_eq!(file.error(), ElfError::UnsupportedRelocation { address, kind: 2 });
    for kind in [9, 19] {
        file.sections.last_mut().unwrap().kind = kind;
        assert_eq!(file.error(), ElfError::PackedRelocations);
    }
}

#[test]
fn a_base_that_is_not_aligned_keeps_addresses_congruent() {
    let mut file = File::new();
    file.segments[0].vaddr += 0x80;
    file.segments[0].paddr += 0x80;
    file.entry += 0x80;
    let image = file.parse().unwrap();
    assert_eq!((image.link_base(), image.entry(None)), (BASE, Ok(0x84)));
    assert_eq!(image.place(LOAD)[0x80..0xc0], file.build()[0x1000..0x1040]);
    for segment in &mut file.segments {
        segment.align = 1;
    }
    let image = file.parse().unwrap();
    assert_eq!((image.link_base(), image.align_bytes()), (BASE + 0x80, 64));
    file.segments[1].align = 1 << 40;
    assert_eq!(file.parse().unwrap().align_bytes(), 4096);
}

#[test]
fn physical_addresses_may_be_displaced_as_a_whole() {
    let mut file = File::new();
    for segment in &mut file.segments {
        segment.paddr = segment.vaddr - 0x1_0000;
    }
    assert_eq!(file.parse().unwrap().link_base(), BASE);
    file.segments[1].paddr += 64;
    assert_eq!(file.error(), ElfError::Displaced { address: BASE + 0x1000 });
}

#[test]
fn only_load_segments_with_memory_count() {
    let mut file = File::new();
    file.segments.push(Segment { kind: 0x7000_0003, memsz: 0, ..segment(4, 0, 0x4000, 0) });
    file.segments.push(segment(EXECUTE, 0x1000, 0, 0));
    file.segments.push(Segment { kind: 7, ..segment(DATA, 0x1000, 8, 8) });
    assert_eq!(file.parse().unwrap().span_bytes(), 0x1100);
    file.segments.push(Segment { kind: 3, ..segment(DATA, 0x1000, 8, 8) });
    assert_eq!(file.error(), ElfError::NotStatic);
    for kind in [0, 2, 4, 5, 6] {
        let mut file = File::new();
        for segment in &mut file.segments {
            segment.kind = kind;
        }
        assert_eq!(file.error(), ElfError::NoSegments);
    }
    assert_eq!(File { segments: Vec::new(), ..File::new() }.error(), ElfError::NoSegments);
}

#[test]
fn bad_segments_are_refused() {
    let with = |change: fn(&mut Segment)| {
        let mut file = File::new();
        change(&mut file.segments[1]);
        file.error()
    };
    let address = BASE + 0x1000;
    assert_eq!(
        with(|segment| segment.memsz = 0x2f),
        ElfError::SegmentSizes { address, file_bytes: 0x30, memory_bytes: 0x2f }
    );
    assert_eq!(with(|segment| segment.align = 3), ElfError::SegmentAlign { address, align: 3 });
    assert_eq!(with(|segment| segment.memsz = u64::MAX), ElfError::SegmentRange { address });
    let what = "content of a segment";
    assert_eq!(with(|segment| segment.offset = u64::MAX), ElfError::Malformed { what });
    assert_eq!(with(|segment| segment.offset = 1 << 40), ElfError::Malformed { what });
    let overlap = |segment: &mut Segment| {
        segment.vaddr = BASE + 0x3f;
        segment.paddr = segment.vaddr;
    };
    assert_eq!(with(overlap), ElfError::Overlap { address: BASE + 0x3f });
    let error = with(|segment| segment.memsz = (1 << 30) - 0xfff);
    let (span_bytes, limit_bytes) = ((1 << 30) + 1, 1 << 30);
    assert_eq!(error, ElfError::TooLarge { span_bytes, limit_bytes });
    assert_eq!(error.to_string(), "the image spans 1073741825 bytes; the limit is 1073741824");
}

#[test]
fn a_short_file_cannot_ask_for_much_memory() {
    let mut file = File::new();
    file.segments = (0..60)
        .map(|index| {
            let address = BASE + index * 0x1000;
            let base = segment(EXECUTE, 0x1000, 0x1000, 0x1000);
            Segment { vaddr: address, paddr: address, ..base }
        })
        .collect();
    assert!(matches!(file.error(), ElfError::Overlap { .. }));

    // Two tables of relocations over the same bytes.
    let entries = vec![(BASE + 0x1000, R_RISCV_64, 0); 400];
    let file = File::new().relocations(".rela.data", 2, &entries);
    let mut bytes = file.build();
    let headers = usize::try_from(word(&bytes, 0x28)).unwrap();
    assert!(KernelImage::parse(&bytes).is_ok());
    let table: [u8; 64] = bytes[headers + 3 * 64..][..64].try_into().unwrap();
    bytes[headers + 64..][..64].copy_from_slice(&table);
    let what = "relocation table";
    assert_eq!(KernelImage::parse(&bytes).err(), Some(ElfError::Malformed { what }));
}

#[test]
fn other_kinds_of_file_are_refused() {
    assert_eq!(KernelImage::parse(b"").err(), Some(ElfError::NotElf));
    assert_eq!(KernelImage::parse(b"#!/bin/sh\n").err(), Some(ElfError::NotElf));
    let what = "file header";
    assert_eq!(KernelImage::parse(b"\x7fELF").err(), Some(ElfError::Malformed { what }));
    let with = |at: usize, byte: u8| {
        let mut bytes = File::new().build();
        bytes[at] = byte;
        KernelImage::parse(&bytes).err()
    };
    assert_eq!(with(4, 1), Some(ElfError::NotSixtyFourBit { class: 1 }));
    assert_eq!(with(5, 2), Some(ElfError::NotLittleEndian { encoding: 2 }));
    assert_eq!(File { machine: 62, ..File::new() }.error(), ElfError::WrongMachine { machine: 62 });
    for kind in [0, 1, 4, 0xfe00] {
        assert_eq!(File { kind, ..File::new() }.error(), ElfError::NotExecutable { kind });
    }
    for (flags, abi) in [(5, "double"), (6, "quad")] {
        assert_eq!(File { flags, ..File::new() }.error(), ElfError::FloatAbi { abi });
    }
    for (flags, abi) in [(0x9, "RV32E/RV64E"), (0x21, "ILP32")] {
        assert_eq!(File { flags, ..File::new() }.error(), ElfError::CallingConvention { abi });
    }
    for flags in [0, 1, 2, 3] {
        File { flags, ..File::new() }.parse().unwrap();
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = File::new().relocations(".rela.data", 2, &[(BASE, R_RISCV_64, 0)]).build();
    for len in (0..0x400).chain(0xff0..0x1100).chain(0x2000..bytes.len()) {
        assert!(KernelImage::parse(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn stripped_files_run_from_their_entry() {
    let mut bytes = File::new().build();
    // No section table: e_shoff, e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let image = KernelImage::parse(&bytes).unwrap();
    assert_eq!(image.entry(None), Ok(4));
    let name = "_start".to_owned();
    assert_eq!(image.entry(Some("_start")), Err(ElfError::UnknownSymbol { name }));
}

#[test]
fn damaged_files_never_panic_nor_ask_for_much() {
    let file = File::new()
        .relocations(
            ".rela.data",
            2,
            &[(BASE + 0x1000, R_RISCV_64, 0), (BASE, R_RISCV_RELATIVE, 1)],
        )
        .build();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    // The headers and tables; the content in between does not matter.
    let places: Vec<usize> = (0..0x100).chain(0x2000..file.len()).collect();
    let count = places.len() as u64;
    let mut accepted = 0;
    for _ in 0..50_000 {
        let mut damaged = file.clone();
        for _ in 0..=next() % 4 {
            let at = places[usize::try_from(next() % count).unwrap()];
            let value = match next() % 4 {
                0 => 0,
                1 => 0xff,
                2 => damaged[at] ^ (1 << (next() % 8)),
                _ => next().to_le_bytes()[0],
            };
            damaged[at] = value;
        }
        if next() % 16 == 0 {
            damaged.truncate(usize::try_from(next() % file.len() as u64).unwrap());
        }
        let Ok(image) = KernelImage::parse(&damaged) else {
            continue;
        };
        accepted += 1;
        let span = image.span_bytes();
        assert!(span > 0 && span <= 1 << 30);
        for symbol in [None, Some("_start"), Some("other")] {
            assert!(image.entry(symbol).unwrap_or(0) < span);
        }
        if span < 1 << 20 {
            assert_eq!(image.place(LOAD).len() as u64, span);
        }
    }
    assert!(accepted > 1000, "only {accepted} of the files were tried to the end");
}

#[test]
fn the_kernels_of_the_test_suite_load() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf");
    let Ok(files) = std::fs::read_dir(folder) else {
        eprintln!("skipped, because the kernels are not in this package");
        return;
    };
    for file in files {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "elf") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let image = KernelImage::parse(&bytes).unwrap();
        let name = path.display();
        assert_eq!(image.link_base(), BASE, "{name}");
        assert_eq!(image.entry(None), image.entry(Some("_start")), "{name}");
        // As the vendor's loader has it: the first segment is at file offset 0x1000, distances in
        // memory are those in the file. So at the link address the image is the file, as far as
        // that goes.
        let placed = image.place(DeviceAddr::new(BASE));
        assert_eq!(placed.len() as u64, image.span_bytes());
        let code = usize::try_from(image.entry(None).unwrap()).unwrap();
        assert_eq!(placed[code..code + 16], bytes[0x1000 + code..][..16], "{name}");
        // Words differ only where there is an absolute address.
        let moved = image.place(LOAD);
        let bias = LOAD.as_u64() - BASE;
        for at in (0..placed.len() / 8 * 8).step_by(8) {
            let (before, after) = (word(&placed, at), word(&moved, at));
            assert!(after == before || after == before.wrapping_add(bias), "{name} at {at:#x}");
        }
        if path.ends_with("bss.elf") {
            assert_ne!(placed, moved, "{name} has absolute addresses");
        }
    }
}
