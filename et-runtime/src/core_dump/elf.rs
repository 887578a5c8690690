//! The container: an ELF core file, written front to back but for its headers.

use std::io::{self, Seek, SeekFrom, Write};

use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Machine number of RISC-V.
pub(super) const EM_RISCV: u16 = 243;
const ET_CORE: u16 = 4;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// Permissions of a region: read, write and execute.
const RWX: u32 = 7;

const FILE_HEADER_BYTES: u16 = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
const _: () = assert!(size_of::<FileHeader>() == FILE_HEADER_BYTES as usize);
const _: () = assert!(size_of::<ProgramHeader>() == PROGRAM_HEADER_BYTES as usize);

#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct FileHeader {
    /// Magic number, 64-bit, little-endian, version 1, no particular system.
    ident: [u8; 16],
    kind: U16,
    machine: U16,
    version: U32,
    entry: U64,
    program_headers: U64,
    section_headers: U64,
    flags: U32,
    header_bytes: U16,
    program_header_bytes: U16,
    program_header_count: U16,
    section_header_bytes: U16,
    section_header_count: U16,
    section_names: U16,
}

#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct ProgramHeader {
    kind: U32,
    flags: U32,
    offset: U64,
    virtual_address: U64,
    physical_address: U64,
    file_bytes: U64,
    memory_bytes: U64,
    align: U64,
}

#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct NoteHeader {
    name_bytes: U32,
    data_bytes: U32,
    kind: U32,
}

/// State of a thread, as Linux has it for 64-bit RISC-V: note `NT_PRSTATUS`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct ThreadStatus {
    pub(super) signal_info: [U32; 3],
    pub(super) signal: I16,
    pad: [u8; 2],
    signals: [U64; 2],
    pub(super) thread: U32,
    pub(super) parent_group_session: [U32; 3],
    times: [U64; 8],
    /// Program counter and x1 to x31.
    pub(super) registers: [U64; 32],
    has_floats: U32,
    end: [u8; 4],
}

const _: () = assert!(size_of::<ThreadStatus>() == 376);

/// The process: note `NT_PRPSINFO`.
#[derive(FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct ProcessInfo {
    state: [u8; 4],
    pad: [u8; 4],
    flags: U64,
    user_group: [U32; 2],
    pub(super) process: U32,
    parent_group_session: [U32; 3],
    pub(super) name: [u8; 16],
    pub(super) arguments: [u8; 80],
}

const _: () = assert!(size_of::<ProcessInfo>() == 136);

/// Where a region is in memory, and how much of it is in the file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
    written: u64,
}

/// A core file that is being written. Its headers come last, so that a file that was not finished
/// is not taken for one.
pub(super) struct Writer<W> {
    out: W,
    at: u64,
    flags: u32,
    segments: Vec<Segment>,
    notes: Vec<u8>,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file with room for the headers of `regions` regions; `flags` are those of the
    /// kernel's file, which name its calling convention.
    pub(super) fn new(mut out: W, regions: usize, flags: u32) -> io::Result<Self> {
        let headers = u64::from(PROGRAM_HEADER_BYTES) * (regions as u64 + 1);
        let at = u64::from(FILE_HEADER_BYTES) + headers;
        out.seek(SeekFrom::Start(0))?;
        io::copy(&mut io::Read::take(io::repeat(0), at), &mut out)?;
        Ok(Self { out, at, flags, segments: Vec::with_capacity(regions), notes: Vec::new() })
    }

    /// Starts the next region; what is [appended](Self::append) afterwards is its content.
    pub(super) fn region(&mut self, address: u64, bytes: u64) {
        self.segments.push(Segment { address, bytes, offset: self.at, written: 0 });
    }

    /// Adds bytes to the region.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        if let Some(segment) = self.segments.last_mut() {
            segment.written += bytes.len() as u64;
        }
        Ok(())
    }

    /// Returns how much of the region there is.
    pub(super) fn written(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.written)
    }

    /// Adds a note.
    pub(super) fn note(&mut self, name: &str, kind: u32, data: &[u8]) {
        let size = |len: usize| U32::new(u32::try_from(len).unwrap_or(u32::MAX));
        let header = NoteHeader {
            name_bytes: size(name.len() + 1),
            data_bytes: size(data.len()),
            kind: kind.into(),
        };
        self.notes.extend_from_slice(header.as_bytes());
        for part in [&[name.as_bytes(), &[0]].concat()[..], data] {
            self.notes.extend_from_slice(part);
            self.notes.resize(self.notes.len().next_multiple_of(4), 0);
        }
    }

    /// Writes notes and headers; returns the bytes of the file.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.out.write_all(&self.notes)?;
        let header = |kind: u32, segment: Segment, align: u64| ProgramHeader {
            kind: kind.into(),
            flags: if kind == PT_LOAD { RWX.into() } else { 0.into() },
            offset: segment.offset.into(),
            virtual_address: segment.address.into(),
            physical_address: 0.into(),
            file_bytes: segment.written.into(),
            memory_bytes: segment.bytes.into(),
            align: align.into(),
        };
        let written = self.notes.len() as u64;
        let notes = Segment { address: 0, bytes: 0, offset: self.at, written };
        let mut headers = header(PT_NOTE, notes, 4).as_bytes().to_vec();
        for segment in &self.segments {
            headers.extend_from_slice(header(PT_LOAD, *segment, 1).as_bytes());
        }
        let file = FileHeader {
            ident: *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
            kind: ET_CORE.into(),
            machine: EM_RISCV.into(),
            version: 1.into(),
            entry: 0.into(),
            program_headers: u64::from(FILE_HEADER_BYTES).into(),
            section_headers: 0.into(),
            flags: self.flags.into(),
            header_bytes: FILE_HEADER_BYTES.into(),
            program_header_bytes: PROGRAM_HEADER_BYTES.into(),
            program_header_count: U16::new(
                u16::try_from(self.segments.len() + 1).unwrap_or(u16::MAX),
            ),
            section_header_bytes: 0.into(),
            section_header_count: 0.into(),
            section_names: 0.into(),
        };
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(file.as_bytes())?;
        self.out.write_all(&headers)?;
        self.out.flush()?;
        Ok(self.at + written)
    }
}
