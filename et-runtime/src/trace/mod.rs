//! What kernels and firmware trace: text, values, counters, exceptions. Spec: §16
//!
//! ```text
//! kernel: et_printf, et_trace_… ─▶ its part of a buffer ─▶ KernelTrace::read ────┐
//! firmware of the minions ─▶ its own parts, copied ──────▶ FirmwareTrace::read ──┼─▶ Trace
//! service processor, statistics ─▶ memory of the card ───▶ ManagementTrace::read ┘
//! ```

mod firmware;
mod kernel;
pub(crate) mod level;
mod regions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::mgmt::Extremes;
use et_devapi::trace::{Body, Buffer, Entries, Entry, Header, Layout, News};

use crate::kernel::Program;
use level::say;

pub use et_devapi::trace as layout;
pub(crate) use firmware::FIRMWARE_BYTES;
pub use firmware::{FirmwareTrace, FirmwareTraceConfig};
pub use kernel::{KernelTrace, KernelTraceConfig};
pub(crate) use level::DEBUG;
pub use regions::Region;

/// Who traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Firmware of the master minions, which dispatches commands. Their statistics too.
    MasterMinion,
    /// Firmware of the compute minions.
    Compute,
    /// A kernel.
    Kernel,
    /// The service processor, and its statistics.
    ServiceProcessor,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MasterMinion => "mm",
            Self::Compute => "cm",
            Self::Kernel => "kernel",
            Self::ServiceProcessor => "sp",
        })
    }
}

/// Entries that a report has of each source from its start, and as many from its end.
const EACH_END: usize = 64;

/// Entries that have been read.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Whole entries, one piece behind the other.
    bytes: Vec<u8>,
    /// Source and end of each piece.
    pieces: Vec<(Source, usize)>,
    parts_with_losses: u64,
    /// Buffers whose header was overwritten.
    broken_headers: u64,
    frequency_mhz: Option<u32>,
    /// The highest level of texts that was asked for, if it was not the highest there is.
    most: Option<u8>,
    /// What has traced, if that is known.
    program: Option<Arc<Program>>,
}

/// How many entries are not in a [`Trace`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Harts whose part was written over before it was read; how many entries cannot be known.
    pub harts: u64,
    /// Entries that make no sense.
    pub entries: u64,
    /// Bytes that are no entries.
    pub bytes: u64,
    /// Buffers whose header was overwritten. Their parts are read where they should be, as far as
    /// that makes sense.
    pub headers: u64,
}

impl Trace {
    fn new(frequency_mhz: Option<u32>) -> Self {
        Self { frequency_mhz, ..Self::default() }
    }

    /// The same, for texts of firmware that was asked for a level.
    pub(crate) fn of_level(frequency_mhz: Option<u32>, most: u8) -> Self {
        Self { most: Some(most), ..Self::new(frequency_mhz) }
    }

    /// Takes what is new in a part.
    pub(crate) fn add_news(&mut self, source: Source, news: &News<'_>) {
        self.add(source, &news.older);
        self.add(source, &news.newer);
        self.parts_with_losses += u64::from(news.has_losses);
    }

    /// Reads a buffer whose layout is known, and notes if its header was overwritten. One that was
    /// never set up has nothing in it.
    fn buffer<'a>(&mut self, bytes: &'a [u8], layout: Layout) -> Buffer<'a> {
        let buffer = Buffer::with_layout(bytes, layout);
        self.broken_headers += u64::from(buffer.header() == Header::Broken);
        buffer
    }

    /// Notes that the header of a buffer was overwritten.
    pub(crate) fn add_broken_header(&mut self) {
        self.broken_headers += 1;
    }

    /// Notes that a part was overwritten while it was read.
    pub(crate) fn add_loss(&mut self) {
        self.parts_with_losses += 1;
    }

    /// Takes from the buffers of firmware, one behind the other, what is not older than `since`:
    /// of each source the first and the last entries, in the order of time.
    pub(crate) fn of_firmware(bytes: &[u8], frequency_mhz: Option<u32>, since: u64) -> Self {
        let mut trace = Self::new(frequency_mhz);
        let mut found = Vec::new();
        for (source, bytes, layout) in firmware::halves(bytes) {
            let buffer = trace.buffer(bytes, layout);
            let mut its = Vec::new();
            for part in buffer.parts() {
                let mut entries = part.entries();
                loop {
                    let before = entries.bytes();
                    let Some(entry) = entries.next() else { break };
                    let end = before.len() - entries.bytes().len();
                    if entry.cycle >= since {
                        its.push((entry.cycle, source, &before[..end]));
                    }
                }
            }
            its.sort_by_key(|(cycle, ..)| *cycle);
            if its.len() > 2 * EACH_END {
                its.drain(EACH_END..its.len() - EACH_END);
            }
            found.extend(its);
        }
        found.sort_by_key(|(cycle, ..)| *cycle);
        for (_, source, bytes) in found {
            trace.add(source, &Entries::new(bytes));
        }
        trace
    }

    fn add(&mut self, source: Source, entries: &Entries<'_>) {
        if !entries.bytes().is_empty() {
            self.bytes.extend_from_slice(entries.bytes());
            self.pieces.push((source, self.bytes.len()));
        }
    }

    fn pieces(&self) -> impl Iterator<Item = (Source, Entries<'_>)> {
        let mut start = 0;
        self.pieces.iter().map(move |&(source, end)| {
            let bytes = self.bytes.get(std::mem::replace(&mut start, end)..end);
            (source, Entries::new(bytes.unwrap_or_default()))
        })
    }

    /// Returns the entries, hart by hart, those of one hart in the order in which it wrote them.
    pub fn entries(&self) -> impl Iterator<Item = (Source, Entry<'_>)> {
        self.pieces().flat_map(|(source, entries)| entries.map(move |entry| (source, entry)))
    }

    /// Returns what is missing.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let (harts, headers) = (self.parts_with_losses, self.broken_headers);
        let mut losses = Losses { harts, headers, ..Losses::default() };
        for (_, mut entries) in self.pieces() {
            entries.by_ref().for_each(drop);
            losses.entries += entries.skipped();
            losses.bytes += entries.skipped_bytes();
        }
        losses
    }

    /// Returns the time of an entry since the cycle counter was 0; `None` if the device does not
    /// say how long a cycle is.
    #[must_use]
    pub fn time(&self, entry: &Entry<'_>) -> Option<Duration> {
        let mhz = self.frequency_mhz.filter(|mhz| *mhz != 0)?;
        let nanos = u128::from(entry.cycle) * 1000 / u128::from(mhz);
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Hands every entry to `tracing`, in the order of their times, with hart and device time: what
    /// is of kernels with the target `et::kernel`, what is of firmware with `et::firmware`.
    ///
    /// Texts have the level at which they were written, critical ones as errors. Where the writer
    /// has not put it into the trace, which has no field for it (Spec: §16.2), it is the highest
    /// that was asked for; for kernels `info` at most. Exceptions and failed commands are `warn`,
    /// other entries of kernels `info`, and of firmware `debug`. Losses are a `warn`, too.
    pub fn log(&self) {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_by_key(|(_, entry)| entry.cycle);
        for (source, entry) in entries {
            let (hart, cycle) = (entry.hart_id, entry.cycle);
            let micros = self.time(&entry).map(|time| time.as_secs_f64() * 1e6);
            let text = Text(&entry);
            let level = level::of(source, &entry, self.most.unwrap_or(DEBUG));
            let is_exception = matches!(entry.body, Body::Exception(_));
            if source == Source::Kernel && !is_exception {
                say!(level, "et::kernel", hart, cycle, micros, "{text}");
            } else {
                say!(level, "et::firmware", hart, cycle, micros, "{text}");
            }
        }
        let losses = self.losses();
        if losses != Losses::default() {
            let Losses { harts, entries, bytes, headers } = losses;
            let text = "trace entries are lost";
            tracing::warn!(target: "et::trace", harts, entries, bytes, headers, "{text}");
        }
    }
}

/// Shows what an entry says, on one line.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a Entry<'a>);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use et_devapi::msg::mgmt::WideExtremes;
        use et_devapi::trace::{CmdProgress, CounterId, CustomPayload};
        match self.0.body {
            // Control characters would change the terminal.
            Body::String(text) => {
                let text = String::from_utf8_lossy(text);
                text.trim_end().chars().try_for_each(|c| {
                    if c.is_control() && c != '\t' {
                        write!(f, "{}", c.escape_default())
                    } else {
                        write!(f, "{c}")
                    }
                })
            }
            Body::PmcCounter(pmc) => match CounterId::from_number(pmc.counter.into()) {
                Some(counter) => write!(f, "counter {counter:?} = {}", pmc.value),
                None => write!(f, "counter {} = {}", pmc.counter, pmc.value),
            },
            Body::PmcCountersCompute(pmc) => {
                write!(f, "counters {:?}", pmc.hpmcounter.map(u64::from))
            }
            Body::PmcCountersSc(pmc) => {
                write!(f, "shire cache counters {} {}", pmc.sc_pmc0, pmc.sc_pmc1)
            }
            Body::PmcCountersMs(pmc) => {
                write!(f, "memory shire {} counters {} {}", pmc.ms_id, pmc.ms_pmc0, pmc.ms_pmc1)
            }
            Body::ValueU64(value) => write!(f, "value {} = {:#x}", value.tag, value.value),
            Body::ValueU32(value) => write!(f, "value {} = {:#x}", value.tag, value.value),
            Body::ValueU16(value) => write!(f, "value {} = {:#x}", value.tag, value.value),
            Body::ValueU8(value) => write!(f, "value {} = {:#x}", value.tag, value.value),
            Body::ValueFloat(value) => {
                write!(f, "value {} = {}", value.tag, f32::from_bits(value.value.get()))
            }
            Body::Memory(memory, bytes) => {
                write!(f, "{} bytes at {:#x}", bytes.len(), memory.src_addr)
            }
            Body::Exception(state) => {
                write!(f, "exception: cause {}, pc {:#x}", state.cause, state.epc)?;
                write!(f, ", value {:#x}", state.tval)
            }
            Body::CmdStatus(status) => {
                write!(f, "command {} of kind {}: ", status.trans_id, status.mesg_id)?;
                match CmdProgress::from_number(status.cmd_status.into()) {
                    Some(progress) => write!(f, "{progress:?}"),
                    None => write!(f, "state {}", status.cmd_status),
                }
            }
            Body::PowerStatus(power) => {
                write!(
                    f,
                    "power {}, {} °C, {} MHz",
                    power.current_power, power.current_temp, power.tgt_freq
                )
            }
            Body::Custom(event, bytes) => match event.payload(bytes) {
                CustomPayload::OpStats(stats) => {
                    write!(f, "statistics: power {}", Of(&stats.system_power))?;
                    write!(f, " mW, {}", Of(&stats.system_temperature))?;
                    write!(f, " °C, {} MHz", Of(&stats.minion_freq))
                }
                CustomPayload::ComputeResources(stats) => {
                    let WideExtremes { avg, min, max } = stats.cm_utilization;
                    write!(f, "statistics: minions busy {avg} % ({min} to {max})")
                }
                _ => write!(f, "event {} with {} bytes", event.custom_type, bytes.len()),
            },
            Body::UserProfile(event) => {
                write!(
                    f,
                    "mark {:#x}, {} instructions",
                    event.line_region_status, event.retired_insts
                )
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// Average, least and greatest value.
struct Of<'a>(&'a Extremes);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Extremes { avg, min, max } = self.0;
        write!(f, "{avg} ({min} to {max})")
    }
}
