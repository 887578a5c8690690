//! What the service processor traces, and its statistics: read through the memory of the card.

use std::fmt;

use et_devapi::dir::{MgmtRegion, Region};
use et_devapi::msg::mgmt::StatsKind;
use et_devapi::trace::{Buffer, BufferError, Cursor, EntryHeader, Header, Part, TraceHeader};
use et_devapi::trace::{MAGIC, TraceSizeHeader};
use et_hal::{Bar, BarOffset, Hal, Mmio};

use super::Management;
use super::link::ManagementLink;
use crate::sync::{Arc, Ordering};
use crate::trace::{Source, Trace, level};
use crate::{Error, Result};

const OP: &str = "reading a trace of the service processor";
/// Bytes of the largest of these buffers; what is behind them is not read. Spec: §16.1
const MOST_BYTES: u64 = 0x10_0000;
/// Where the exceptions are, in the buffer of the service processor. Spec: §16.1
const EXCEPTIONS_AT: usize = 0x1000;
/// Parts of that buffer: the log, and the exceptions.
const PARTS: usize = 2;
/// Attempts at a buffer that is overwritten while it is read.
const TRIES: usize = 4;
/// What shows that a part has begun again, at its start: the header and the first entry.
const STANDARD: usize = size_of::<TraceHeader>();
const SIZE: usize = size_of::<TraceSizeHeader>();
const ENTRY: usize = size_of::<EntryHeader>();

impl<H: Hal> Management<H> {
    /// Makes a reader of what the service processor traces, its log and its exceptions: everything
    /// that is there now is new to it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the card's registers name no such region; [`Error::Refused`]
    /// [through](Self::through) another process.
    ///
    /// Spec: §16.2
    pub fn firmware_trace(&self) -> Result<ManagementTrace<H>> {
        ManagementTrace::new(self, MgmtRegion::SpTrace, Source::ServiceProcessor)
    }

    /// Makes a reader of the samples of statistics, which are written while
    /// [`control_statistics`](Self::control_statistics) has them on: everything that is there now
    /// is new to it. [`Statistic::of_entry`](super::Statistic::of_entry) reads an entry.
    ///
    /// # Errors
    /// As [`firmware_trace`](Self::firmware_trace); [`Error::Unsupported`] for a processor that
    /// there is not.
    ///
    /// Spec: §16.1, §17.2
    pub fn statistics_trace(&self, of: StatsKind) -> Result<ManagementTrace<H>> {
        let (region, source) = match of {
            StatsKind::Sp => (MgmtRegion::SpStats, Source::ServiceProcessor),
            StatsKind::Mm => (MgmtRegion::MmStats, Source::MasterMinion),
            _ => return Err(Error::Unsupported { op: OP, why: "no processor has this number" }),
        };
        ManagementTrace::new(self, region, source)
    }

    /// Has the service processor trace all kinds of entries, and texts up to a level: 0 critical,
    /// 1 error, 2 warning, 3 info, 4 debug. `None` for what the log lets through at the target
    /// `et::firmware` at this moment; everything, if `tracing` has no subscriber.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::Refused`] for a level that there is not.
    ///
    /// Spec: §16.2, §17.3
    pub fn set_trace_level(&self, level: Option<u8>) -> Result<()> {
        let (events, filter) = level::masks(u32::MAX, level.unwrap_or_else(level::of_firmware));
        self.configure_trace(events, filter)
    }
}

/// A reader of one buffer of the management endpoint, who gets each entry once.
///
/// It keeps a copy of the buffer, 8 KiB of the trace and 1 MiB of statistics, and of each part how
/// far it has been read; of statistics only what is new is fetched. Reading needs no answer of the
/// service processor: it works while that is silent, as long as the card is on the bus.
///
/// # Examples
///
/// ```
/// # let hal = et_hal_sim::SimHal::open("shires=1,dram=256MiB".parse()?)?;
/// let device = et_runtime::Device::open(hal)?;
/// let management = device.management()?;
/// let mut reader = management.firmware_trace()?;
/// for (_, entry) in reader.read()?.entries() {
///     println!("{}", et_runtime::trace::Text(&entry));
/// }
/// assert_eq!(reader.log()?, 0, "each entry is read once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ManagementTrace<H: Hal> {
    link: Arc<ManagementLink<H>>,
    region: Region,
    source: Source,
    bytes: Vec<u8>,
    /// How far a buffer of one part was written at the last look; 0 if all of it is to be read.
    known: usize,
    cursors: [Cursor; PARTS],
}

impl<H: Hal> fmt::Debug for ManagementTrace<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut of = f.debug_struct("ManagementTrace");
        of.field("source", &self.source).finish_non_exhaustive()
    }
}

impl<H: Hal> ManagementTrace<H> {
    fn new(management: &Management<H>, region: MgmtRegion, source: Source) -> Result<Self> {
        let link = Arc::clone(management.way.own(OP)?);
        let why = "the card's registers name no region for it";
        let region = *link.dir.region(region).ok_or(Error::Unsupported { op: OP, why })?;
        let len = usize::try_from(region.len_bytes.min(MOST_BYTES)).unwrap_or_default();
        let cursors = [Cursor::new(); PARTS];
        Ok(Self { link, region, source, bytes: vec![0; len], known: 0, cursors })
    }

    /// Reads the buffer, and returns what is new.
    ///
    /// A part that the service processor has gone through more than once since the last call, or
    /// that it goes on overwriting while it is read, has [losses](Trace::losses). Entries that make
    /// no sense are skipped and counted. A buffer that was never set up is empty.
    ///
    /// # Errors
    /// [`Error::Hal`] if the backend does not read the region; [`Error::Malformed`] if what is
    /// there is no trace buffer; [`Error::Lost`] if it is nothing but ones; [`Error::Closed`] or
    /// [`Error::Stale`] after the device was closed or reset.
    ///
    /// Spec: §16.1
    pub fn read(&mut self) -> Result<Trace> {
        self.read_buffer().map_err(|error| self.link.during(OP, error))
    }

    /// Reads what is new, and [logs](Trace::log) it. Returns the number of entries.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn log(&mut self) -> Result<usize> {
        let trace = self.read()?;
        trace.log();
        Ok(trace.entries().count())
    }

    fn read_buffer(&mut self) -> Result<Trace> {
        let steadiness = self.fetch()?;
        let frequency = self.link.dir.header.minion_boot_freq.get();
        let most = self.link.trace_level.load(Ordering::Relaxed);
        let mut trace = Trace::of_level(Some(frequency), most);
        let header = self.bytes.get(..STANDARD).unwrap_or_default();
        let is_blank = header.iter().all(|byte| *byte == 0);
        let (parts, behind) = match parts(&self.bytes) {
            Ok(parts) => parts,
            Err(BufferError::Magic { found: 0 }) if is_blank => return Ok(trace),
            Err(BufferError::Magic { found: u32::MAX }) => {
                return Err(Error::lost("the card's memory reads as all ones"));
            }
            Err(error) => {
                return Err(Error::Malformed { op: OP, why: error.to_string().into() });
            }
        };
        for (part, cursor) in parts.into_iter().flatten().zip(&mut self.cursors) {
            trace.add_news(self.source, &cursor.advance(&part));
        }
        if behind == Header::Broken {
            trace.add_broken_header();
        }
        if steadiness == Steadiness::Moving {
            trace.add_loss();
        }
        Ok(trace)
    }

    /// Copies the buffer. It is written meanwhile: what was overwritten is not taken for what was
    /// there before, if that comes to an end.
    fn fetch(&mut self) -> Result<Steadiness> {
        if let Some(error) = self.link.refusal() {
            return Err(error);
        }
        let bar = Bar::new(self.region.bar).ok_or(Error::Unsupported {
            op: OP,
            why: "the card's registers name a BAR that there is not",
        })?;
        let window = self.link.hal.window(bar).map_err(Error::hal(OP))?;
        let first = self.region.bar_offset;
        let at = |offset: usize| BarOffset::new(first + offset as u64);
        for _ in 0..TRIES {
            self.fetch_new(&window)?;
            let mut is_steady = true;
            for (offset, header) in [(0, STANDARD), (EXCEPTIONS_AT, SIZE)] {
                let mut after = [0; STANDARD + ENTRY];
                let after = &mut after[..header + ENTRY];
                let Some(before) = self.bytes.get(offset..offset + after.len()) else { continue };
                window.read_bytes(at(offset), after).map_err(Error::hal(OP))?;
                // In statistics the second place is amid the entries of the only part.
                let is_part = offset == 0 || self.has_two_parts();
                is_steady &= !is_part || !has_begun_again(before, after, header);
            }
            if is_steady {
                if !self.has_two_parts() {
                    self.known = used(&self.bytes, STANDARD);
                }
                return Ok(Steadiness::Steady);
            }
        }
        Ok(Steadiness::Moving)
    }

    fn has_two_parts(&self) -> bool {
        self.region.kind == MgmtRegion::SpTrace as u8
    }

    /// Copies what may have changed since the last look. A megabyte of a BAR takes long to read.
    fn fetch_new(&mut self, window: &H::Mmio) -> Result<()> {
        let at = |offset: usize| BarOffset::new(self.region.bar_offset + offset as u64);
        let known = std::mem::take(&mut self.known);
        let mut unread = 0..self.bytes.len();
        if known >= STANDARD + ENTRY {
            let mut start = [0; STANDARD + ENTRY];
            window.read_bytes(at(0), &mut start).map_err(Error::hal(OP))?;
            let before = self.bytes.get_mut(..start.len()).unwrap_or_default();
            let now = used(&start, STANDARD);
            if now >= known && before.get(STANDARD..) == start.get(STANDARD..) {
                before.copy_from_slice(&start);
                unread = known..now;
            }
        }
        let (from, into) = (unread.start, self.bytes.get_mut(unread).unwrap_or_default());
        if into.is_empty() {
            Ok(())
        } else {
            window.read_bytes(at(from), into).map_err(Error::hal(OP))
        }
    }
}

/// Returns how far a part is written, by its header.
fn used(start: &[u8], header: usize) -> usize {
    let size = if header == SIZE { start.get(..4) } else { start.get(12..16) };
    let used = size.and_then(|size| size.try_into().ok()).map_or(0, u32::from_le_bytes);
    used.try_into().unwrap_or(usize::MAX)
}

/// Whether a buffer was overwritten while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steadiness {
    Steady,
    Moving,
}

/// Compares two looks at the start of a part. An entry more does not matter; another first entry
/// does, as does a part that was emptied.
fn has_begun_again(before: &[u8], after: &[u8], header: usize) -> bool {
    let (was, is) = (used(before, header), used(after, header));
    was > header && (is < was || before.get(header..) != after.get(header..))
}

/// Returns the parts of a buffer. The specification does not say whether the exceptions of the
/// service processor are the second part of its buffer, or a buffer of their own behind it: both
/// are read. Says what the header of a buffer behind the log is worth, too.
fn parts(bytes: &[u8]) -> Result<([Option<Part<'_>>; PARTS], Header), BufferError> {
    let buffer = Buffer::parse(bytes)?;
    let mut parts = buffer.parts();
    let log = parts.next();
    let mut exceptions = parts.next();
    let mut header = Header::Good;
    let behind = bytes.get(EXCEPTIONS_AT..).unwrap_or_default();
    if buffer.part_count() == 1 && behind.starts_with(&MAGIC.to_le_bytes()) {
        match Buffer::parse(behind) {
            Ok(buffer) => exceptions = buffer.parts().next(),
            Err(_) => header = Header::Broken,
        }
    }
    Ok(([log, exceptions], header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_overwritten_is_read_again() {
        let start = |used: u32, first: u8| {
            let mut bytes = used.to_le_bytes().to_vec();
            bytes.extend([first; ENTRY]);
            bytes
        };
        let moved = |before: Vec<u8>, after: Vec<u8>| has_begun_again(&before, &after, SIZE);
        assert!(!moved(start(100, 1), start(140, 1)), "an entry more");
        assert!(!moved(start(4, 0), start(40, 1)), "the first entry");
        assert!(moved(start(100, 1), start(140, 2)), "round the end");
        assert!(moved(start(100, 1), start(4, 1)), "emptied");
        let mut standard = vec![0; STANDARD + ENTRY];
        standard[12..16].copy_from_slice(&200u32.to_le_bytes());
        let mut later = standard.clone();
        later[STANDARD] = 1;
        assert!(has_begun_again(&standard, &later, STANDARD));
    }
}
