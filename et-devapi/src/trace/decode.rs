//! Reading trace buffers, which kernels and firmware have written: nothing in them is trusted.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{
    BufferType, CmdStatus, CustomEvent, EntryHeader, EntryType, ExecutionStack, HeaderKind,
    LEVEL_MARK, MAGIC, MemoryEntry, PmcCounter, PmcCountersCompute, PmcCountersMs, PmcCountersSc,
    PowerStatus, TraceHeader, TraceSizeHeader, UserProfileEvent, VERSION, ValueU8, ValueU16,
    ValueU32, ValueU64,
};

/// Why bytes are not a trace buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// Fewer bytes than the header of part 0.
    #[error("{len} bytes are no trace buffer")]
    Short {
        /// Bytes there are.
        len: usize,
    },
    /// Not a trace buffer, or one that no one has set up.
    #[error("a trace buffer starts with {MAGIC:#x}, not with {found:#x}")]
    Magic {
        /// The first word.
        found: u32,
    },
    /// Written by firmware whose layout is another.
    #[error("trace layout {found} is not supported, {}.x is", VERSION.0)]
    Version {
        /// Its major version.
        found: u16,
    },
    /// The parts have no room for their headers.
    #[error("parts of {bytes} bytes are too small")]
    PartSize {
        /// Bytes of each part.
        bytes: u32,
    },
}

/// A trace buffer: parts, each with a header and entries. Spec: §16.1.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    bytes: &'a [u8],
    kind: u16,
    part_bytes: usize,
    part_count: usize,
    header: Header,
}

/// How the writer of a buffer divides it. Spec: §16.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Who writes it.
    pub kind: BufferType,
    /// Bytes of each part: at least those of the header of part 0.
    pub part_bytes: u32,
    /// Number of parts.
    pub part_count: u16,
}

impl Layout {
    /// That of the master minion.
    pub const MASTER: Self = Self { kind: BufferType::Mm, part_bytes: 0x10_0000, part_count: 1 };
    /// That of the firmware of the compute minions, by index of the hart.
    pub const COMPUTE: Self = Self { kind: BufferType::Cm, part_bytes: 4096, part_count: 2080 };
}

/// What the header of a buffer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// It says how the buffer is divided.
    Good,
    /// Zeros: the buffer has not been set up, or not by the writer of part 0.
    Blank,
    /// Something else: it was overwritten.
    Broken,
}

impl<'a> Buffer<'a> {
    /// Reads a buffer whose layout is known, so that a header that was overwritten costs none of
    /// the entries: parts are where they should be, whatever it says. [`header`](Self::header)
    /// returns if it agrees.
    #[must_use]
    pub fn with_layout(bytes: &'a [u8], layout: Layout) -> Self {
        let Layout { kind, part_bytes, part_count } = layout;
        let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
        let (part_bytes, part_count) =
            (part_bytes.max(size_of::<TraceHeader>()), usize::from(part_count));
        let start = bytes.get(..size_of::<TraceHeader>()).unwrap_or(bytes);
        let header = match Self::parse(bytes) {
            Ok(said) if (said.part_bytes, said.part_count) == (part_bytes, part_count) => {
                Header::Good
            }
            _ if start.iter().all(|byte| *byte == 0) => Header::Blank,
            _ => Header::Broken,
        };
        Self { bytes, kind: kind as u16, part_bytes, part_count, header }
    }

    /// Returns what the header is worth; [`parse`](Self::parse) takes good ones only.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// Reads the header. The bytes may end within the buffer; parts behind the end are left out.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BufferError> {
        let (header, _) = TraceHeader::ref_from_prefix(bytes)
            .map_err(|_| BufferError::Short { len: bytes.len() })?;
        let (found, version) = (header.magic_header.get(), header.version_major.get());
        if found != MAGIC {
            return Err(BufferError::Magic { found });
        }
        if version != VERSION.0 {
            return Err(BufferError::Version { found: version });
        }
        let size = header.sub_buffer_size.get();
        let part_bytes = usize::try_from(size).unwrap_or(usize::MAX);
        if part_bytes < size_of::<TraceHeader>() {
            return Err(BufferError::PartSize { bytes: size });
        }
        let part_count = usize::from(header.sub_buffer_count.get());
        let kind = header.r#type.get();
        Ok(Self { bytes, kind, part_bytes, part_count, header: Header::Good })
    }

    /// Returns who writes it; `None` if that number is not known.
    #[must_use]
    pub const fn kind(&self) -> Option<BufferType> {
        BufferType::from_number(self.kind)
    }

    /// Returns how many parts the header says there are.
    #[must_use]
    pub const fn part_count(&self) -> usize {
        self.part_count
    }

    /// Returns the parts.
    #[must_use]
    pub fn parts(&self) -> Parts<'a> {
        Parts { chunks: self.bytes.chunks(self.part_bytes), index: 0, count: self.part_count }
    }
}

/// The parts of a [`Buffer`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    chunks: core::slice::Chunks<'a, u8>,
    index: usize,
    count: usize,
}

/// One writer's part of a [`Buffer`].
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its number; in the buffer of the compute firmware the index of the hart.
    pub index: usize,
    /// All its bytes.
    pub(super) bytes: &'a [u8],
    /// Offset of the first entry.
    pub(super) start: usize,
    /// Offset of the first free byte: at least `start`, at most the length.
    pub(super) end: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        if self.index >= self.count {
            return None;
        }
        let kind = if self.index == 0 { HeaderKind::Standard } else { HeaderKind::Size };
        let part = Part::new(self.index, self.chunks.next()?, kind)?;
        self.index = self.index.saturating_add(1);
        Some(part)
    }
}

impl<'a> Part<'a> {
    /// `None` if the bytes are fewer than the header.
    fn new(index: usize, bytes: &'a [u8], kind: HeaderKind) -> Option<Self> {
        let (start, used) = match kind {
            HeaderKind::Standard => {
                let (header, _) = TraceHeader::ref_from_prefix(bytes).ok()?;
                (size_of::<TraceHeader>(), header.data_size)
            }
            HeaderKind::Size => {
                let (header, _) = TraceSizeHeader::ref_from_prefix(bytes).ok()?;
                (size_of::<TraceSizeHeader>(), header.data_size)
            }
        };
        // What has just been set up may have 0 or 4.
        let end = usize::try_from(used.get()).unwrap_or(usize::MAX).clamp(start, bytes.len());
        Some(Self { index, bytes, start, end })
    }

    /// Returns the entries from the last time that the writer began at the start.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries::new(self.bytes.get(self.start..self.end).unwrap_or_default())
    }

    /// Returns `true` if there is something behind the entries: in a part that was filled with
    /// zeros before, the writer began at the start again, and older entries are lost.
    #[must_use]
    pub fn has_wrapped(&self) -> bool {
        self.bytes.get(self.end..).unwrap_or_default().iter().any(|byte| *byte != 0)
    }
}

/// The entries of a part, in the order they were written. Spec: §16.2.
///
/// What makes no sense is skipped and counted: an entry of an unknown kind or of the wrong size by
/// itself; from one that does not end within the part everything, because entries have no mark by
/// which the next could be found.
#[derive(Clone, Debug, Default)]
pub struct Entries<'a> {
    rest: &'a [u8],
    skipped: u64,
    skipped_bytes: u64,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// Cycle counter of the writer.
    pub cycle: u64,
    /// The writer.
    pub hart_id: u16,
    /// Of a text, 0 critical to 4 debug, if the writer has put it behind the text, as the kernel
    /// library does where there is room, and the simulated service processor. The format has no
    /// field for it.
    pub level: Option<u8>,
    /// What it says.
    pub body: Body<'a>,
}

/// What an [`Entry`] says. Spec: §16.2.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the types say it")]
pub enum Body<'a> {
    /// Text without its end; mostly ASCII, but any bytes are possible.
    String(&'a [u8]),
    PmcCounter(&'a PmcCounter),
    PmcCountersCompute(&'a PmcCountersCompute),
    PmcCountersSc(&'a PmcCountersSc),
    PmcCountersMs(&'a PmcCountersMs),
    ValueU64(&'a ValueU64),
    ValueU32(&'a ValueU32),
    ValueU16(&'a ValueU16),
    ValueU8(&'a ValueU8),
    /// A float, as its bits.
    ValueFloat(&'a ValueU32),
    /// Device memory: where it was, and its bytes.
    Memory(&'a MemoryEntry, &'a [u8]),
    Exception(&'a ExecutionStack),
    CmdStatus(&'a CmdStatus),
    PowerStatus(&'a PowerStatus),
    /// An event of the writer's own, and its bytes: see [`CustomEvent::payload`].
    Custom(&'a CustomEvent, &'a [u8]),
    UserProfile(&'a UserProfileEvent),
}

impl<'a> Entries<'a> {
    /// Reads entries that follow each other.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, skipped: 0, skipped_bytes: 0 }
    }

    /// Returns how many entries were skipped so far, each of which has its size.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many bytes were skipped at the end, which are no entries.
    #[must_use]
    pub const fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Returns the bytes that were not looked at yet.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes were not looked at yet.
    pub(super) const fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some((header, entry, rest)) = split(self.rest) else {
                let left = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
                self.skipped_bytes = self.skipped_bytes.saturating_add(left);
                self.rest = &[];
                return None;
            };
            self.rest = rest;
            match body(header, entry) {
                Some(body) => {
                    let (cycle, hart_id) = (header.cycle.get(), header.hart_id.get());
                    let level = match body {
                        Body::String(text) => level(text, entry),
                        _ => None,
                    };
                    return Some(Entry { cycle, hart_id, level, body });
                }
                None => self.skipped = self.skipped.saturating_add(1),
            }
        }
    }
}

impl core::iter::FusedIterator for Entries<'_> {}

/// The level that the writer has put behind a text: two bytes at the end of the entry.
fn level(text: &[u8], entry: &[u8]) -> Option<u8> {
    let end = size_of::<EntryHeader>().checked_add(text.len())?.checked_add(1)?;
    match entry.get(end..)? {
        [.., LEVEL_MARK, level @ 0..=4] => Some(*level),
        _ => None,
    }
}

/// Cuts off the first entry: its header, all its bytes, and what follows.
fn split(bytes: &[u8]) -> Option<(&EntryHeader, &[u8], &[u8])> {
    let (header, _) = EntryHeader::ref_from_prefix(bytes).ok()?;
    let payload = usize::try_from(header.payload_size.get()).ok()?;
    let (entry, rest) = bytes.split_at_checked(payload.checked_add(size_of::<EntryHeader>())?)?;
    Some((header, entry, rest))
}

fn body<'a>(header: &EntryHeader, entry: &'a [u8]) -> Option<Body<'a>> {
    Some(match EntryType::from_number(header.r#type.get())? {
        EntryType::String => {
            let text = entry.get(size_of::<EntryHeader>()..).filter(|text| !text.is_empty())?;
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            Body::String(text.get(..end)?)
        }
        EntryType::PmcCounter => Body::PmcCounter(whole(entry)?),
        EntryType::PmcCountersCompute => Body::PmcCountersCompute(whole(entry)?),
        EntryType::PmcCountersMemory => return None,
        EntryType::PmcCountersSc => Body::PmcCountersSc(whole(entry)?),
        EntryType::PmcCountersMs => Body::PmcCountersMs(whole(entry)?),
        EntryType::ValueU64 => Body::ValueU64(whole(entry)?),
        EntryType::ValueU32 => Body::ValueU32(whole(entry)?),
        EntryType::ValueU16 => Body::ValueU16(whole(entry)?),
        EntryType::ValueU8 => Body::ValueU8(whole(entry)?),
        EntryType::ValueFloat => Body::ValueFloat(whole(entry)?),
        EntryType::Memory => {
            let (memory, bytes) = MemoryEntry::ref_from_prefix(entry).ok()?;
            let len = usize::try_from(memory.size.get()).ok()?;
            Body::Memory(memory, bytes.get(..len)?)
        }
        EntryType::Exception => Body::Exception(whole(entry)?),
        EntryType::CmdStatus => Body::CmdStatus(whole(entry)?),
        EntryType::PowerStatus => Body::PowerStatus(whole(entry)?),
        EntryType::CustomEvent => {
            let (event, bytes) = CustomEvent::ref_from_prefix(entry).ok()?;
            let len = usize::try_from(event.payload_size.get()).ok()?;
            Body::Custom(event, bytes.get(..len)?)
        }
        EntryType::UserProfileEvent => Body::UserProfile(whole(entry)?),
    })
}

fn whole<T: FromBytes + KnownLayout + Immutable + Unaligned>(entry: &[u8]) -> Option<&T> {
    T::ref_from_bytes(entry).ok()
}
