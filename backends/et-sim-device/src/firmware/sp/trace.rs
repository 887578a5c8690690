//! What the service processor traces: its log, its exceptions, and statistics.
//!
//! | Buffer | What is in it |
//! |---|---|
//! | log, first half of the SP buffer | what happens to the card; commands, once that is wanted |
//! | exceptions, second half | the state at a trap; this firmware has one only as a test |
//! | SP statistics | samples of power, and of what `GET_SP_STATS` answers |
//! | MM statistics | samples of what `GET_MM_STATS` answers |
//!
//! The specification gives formats and sizes, but not what is written. This is the simulator's own:
//! the levels behind the texts, as the kernel library puts them there; the payloads of statistics;
//! the time between two samples; that the exceptions are part 1 of one buffer; that sizes in the
//! headers are up to date after every entry; and the hart, 0, with a cycle counter that starts with
//! the firmware.
//!
//! Spec: §16.1, §16.2, §17.2

use std::time::{Duration, Instant};

use et_devapi::msg::mgmt::{
    Event, EventClass, EventId, MmStats, SpStats, StatsControl, StatsKind, TraceControl,
    TraceEvents, TraceFilter,
};
use et_devapi::trace::{
    BufferType, CustomEvent, EntryHeader, EntryType, ExecutionStack, LEVEL_MARK, MAGIC, MmEvent,
    PowerStatus, SpEvent, TraceHeader, TraceSizeHeader,
};
use et_sim_cores::Dram;
use zerocopy::{FromZeros, IntoBytes};

use super::event;
use crate::firmware::log::{MASTER_TEXT_BYTES, Place, Position};
use crate::firmware::trace::{FIRST_ENTRY, FIRST_ENTRY_OF_OTHERS, header};

/// Time between two samples of statistics.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The bits that control a trace, and statistics.
const CONTROLS: u32 = TraceControl::ENABLE | TraceControl::UART | TraceControl::RESET;
const STATS_CONTROLS: u32 =
    StatsControl::ENABLE | StatsControl::RESET_COUNTER | StatsControl::RESET_BUFFER;

/// How much a text matters. Spec: §16.2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Critical = 0,
    Error,
    Warning,
    Info,
    Debug,
}

/// Where a buffer is, and how it is divided. Spec: §12.1, §16.1
#[derive(Clone, Copy, Debug)]
struct Area {
    kind: BufferType,
    base: u64,
    part_bytes: u32,
    parts: u16,
}

const SP: Area = Area { kind: BufferType::Sp, base: 0x80_0440_1000, part_bytes: 0x1000, parts: 2 };
const SP_STATS: Area =
    Area { kind: BufferType::SpStats, base: 0x80_04d2_3000, part_bytes: 0x10_0000, parts: 1 };
const MM_STATS: Area =
    Area { kind: BufferType::MmStats, base: 0x80_04e2_3000, part_bytes: 0x10_0000, parts: 1 };

impl Area {
    fn place(self, part: u16) -> Place {
        Place {
            base: self.base + u64::from(part) * u64::from(self.part_bytes),
            bytes: self.part_bytes,
            first: if part == 0 { FIRST_ENTRY } else { FIRST_ENTRY_OF_OTHERS },
        }
    }

    /// Publishes how many bytes a part holds.
    fn publish(self, dram: &Dram, part: u16, used: u32) {
        let at = self.place(part).base;
        let written = if part == 0 {
            dram.write(at, header(self.kind, self.part_bytes, self.parts, used).as_bytes())
        } else {
            dram.write(at, TraceSizeHeader { data_size: used.into() }.as_bytes())
        };
        debug_assert!(written.is_ok(), "the firmware's buffers are part of every DRAM");
    }

    /// Empties the buffer. What an earlier run left behind the headers would look like entries that
    /// were overwritten, so it goes.
    fn clear(self, dram: &Dram) {
        if !self.is_empty(dram) {
            let len = u64::from(self.part_bytes) * u64::from(self.parts);
            let cleared = dram.fill(self.base, len, 0);
            debug_assert!(cleared.is_ok(), "the firmware's buffers are part of every DRAM");
        }
        for part in 0..self.parts {
            self.publish(dram, part, self.place(part).first);
        }
    }

    /// Returns `true` if nothing was ever written, or nothing since the buffer was emptied: one of
    /// 1 MiB costs no memory before it is used.
    fn is_empty(self, dram: &Dram) -> bool {
        let mut first = TraceHeader::new_zeroed();
        let is_read = dram.read(self.base, first.as_mut_bytes()).is_ok();
        let is_fresh = first.as_bytes().iter().all(|byte| *byte == 0);
        let is_ours = first.magic_header.get() == MAGIC && first.data_size.get() == FIRST_ENTRY;
        // The exceptions have a size of their own.
        is_read && (is_fresh || is_ours && self.parts == 1)
    }
}

/// Sets the buffers up, as the firmware does when it starts.
pub(crate) fn format_at_boot(dram: &Dram) {
    [SP, SP_STATS, MM_STATS].into_iter().for_each(|area| area.clear(dram));
}

/// A buffer that is being written.
#[derive(Debug)]
struct Writer {
    area: Area,
    /// How far each part is written.
    at: [Position; 2],
}

impl Writer {
    fn new(area: Area) -> Self {
        Self { area, at: [Position::default(); 2] }
    }

    /// Writes an entry; returns the event of a full part, if it is due. The threshold is the part:
    /// no command of this endpoint sets another. Spec: §16.1, §17.4
    fn append(&mut self, dram: &Dram, part: u16, entry: &[u8]) -> Option<Event> {
        let place = self.area.place(part);
        let position = &mut self.at[usize::from(part)];
        let is_due = position.append(dram, place, 0, entry);
        let used = position.used(place);
        self.area.publish(dram, part, used);
        let syndromes = [self.area.kind as u64, place.bytes.into()];
        is_due.then(|| event(EventId::TraceBufferFull, EventClass::Info, 1, syndromes))
    }

    fn reset(&mut self, dram: &Dram) {
        self.area.clear(dram);
        self.at = [Position::default(); 2];
    }
}

/// Statistics of one processor.
#[derive(Debug)]
struct Samples {
    writer: Writer,
    is_on: bool,
}

/// One look at the card.
pub(super) struct Sample {
    pub(super) power: PowerStatus,
    pub(super) sp: SpStats,
    pub(super) mm: MmStats,
}

/// What the host has set, and how far the buffers have been written.
#[derive(Debug)]
pub(super) struct Trace {
    started: Instant,
    frequency_mhz: u64,
    writer: Writer,
    control: u32,
    event_mask: u32,
    filter_mask: u32,
    /// The host has configured the trace, so it wants more than what happens by itself.
    is_configured: bool,
    sp: Samples,
    mm: Samples,
    /// When the next sample is taken, while there are any.
    due: Option<Instant>,
}

impl Trace {
    pub(super) fn new(frequency_mhz: u32, now: Instant) -> Self {
        let samples = |area| Samples { writer: Writer::new(area), is_on: false };
        Self {
            started: now,
            frequency_mhz: frequency_mhz.into(),
            writer: Writer::new(SP),
            control: TraceControl::ENABLE,
            event_mask: TraceEvents::STRING,
            filter_mask: TraceFilter::DEBUG,
            is_configured: false,
            sp: samples(SP_STATS),
            mm: samples(MM_STATS),
            due: None,
        }
    }

    fn cycles(&self, now: Instant) -> u64 {
        let up = now.saturating_duration_since(self.started);
        let whole = up.as_secs().wrapping_mul(self.frequency_mhz * 1_000_000);
        whole.wrapping_add(u64::from(up.subsec_nanos()) * self.frequency_mhz / 1000)
    }

    fn is_on(&self) -> bool {
        self.control & TraceControl::ENABLE != 0 && self.control & TraceControl::UART == 0
    }

    fn wants(&self, level: Level) -> bool {
        let is_text = self.event_mask & TraceEvents::STRING != 0;
        self.is_on() && is_text && level as u32 <= self.filter_mask & 0xff
    }

    /// Returns `true` if each command is logged.
    pub(super) fn wants_commands(&self) -> bool {
        self.is_configured && self.wants(Level::Debug)
    }

    /// Logs a text; returns the event of a full part, if it is due.
    pub(super) fn log(
        &mut self,
        dram: &Dram,
        now: Instant,
        level: Level,
        text: &str,
    ) -> Option<Event> {
        if !self.wants(level) {
            return None;
        }
        let entry = text_entry(self.cycles(now), level, text);
        self.writer.append(dram, 0, &entry)
    }

    /// Notes the state at a trap: program counter, cause and value.
    pub(super) fn exception(
        &mut self,
        dram: &Dram,
        now: Instant,
        (epc, cause, tval): (u64, u64, u64),
    ) -> Option<Event> {
        if !self.is_on() {
            return None;
        }
        let mut entry = ExecutionStack::new_zeroed();
        entry.header = header_of::<ExecutionStack>(self.cycles(now), EntryType::Exception);
        (entry.epc, entry.cause, entry.tval) = (epc.into(), cause.into(), tval.into());
        self.writer.append(dram, 1, entry.as_bytes())
    }

    /// Switches the trace; `false` for bits that have no meaning. What is not set is off.
    /// Spec: §17.3
    pub(super) fn control(&mut self, dram: &Dram, control: u32) -> bool {
        let is_known = control & !CONTROLS == 0;
        if is_known {
            self.control = control;
            if control & TraceControl::RESET != 0 {
                self.writer.reset(dram);
            }
        }
        is_known
    }

    /// Sets kinds and level of what is traced; `false` for a level that there is not. Other bits
    /// are not looked at, nor does the operations firmware look at them. Spec: §7.10, §16.2
    pub(super) fn configure(&mut self, event_mask: u32, filter_mask: u32) -> bool {
        let has_all = event_mask == TraceEvents::ALL;
        let is_known = has_all || filter_mask & 0xff <= TraceFilter::DEBUG;
        if is_known {
            self.event_mask = event_mask;
            self.filter_mask = if has_all { u32::MAX } else { filter_mask };
            self.is_configured = true;
        }
        is_known
    }

    /// Switches samples; `None` for bits and processors that there are not, otherwise whether the
    /// counters begin anew. The first sample is taken at once. Spec: §17.3
    pub(super) fn control_statistics(
        &mut self,
        dram: &Dram,
        now: Instant,
        of: StatsKind,
        control: u32,
    ) -> Option<bool> {
        let samples = match of {
            StatsKind::Sp => &mut self.sp,
            StatsKind::Mm => &mut self.mm,
            _ => return None,
        };
        if control & !STATS_CONTROLS != 0 {
            return None;
        }
        samples.is_on = control & StatsControl::ENABLE != 0;
        if control & StatsControl::RESET_BUFFER != 0 {
            samples.writer.reset(dram);
        }
        if samples.is_on {
            self.due = Some(now);
        } else if !self.sp.is_on && !self.mm.is_on {
            self.due = None;
        }
        Some(control & StatsControl::RESET_COUNTER != 0)
    }

    /// Returns when the next sample is to be taken, if there is one.
    pub(super) fn next_sample(&self) -> Option<Instant> {
        self.due
    }

    /// Writes a sample of each processor whose samples are on; returns events of full buffers.
    pub(super) fn sample(&mut self, dram: &Dram, now: Instant, of: &Sample) -> Vec<Event> {
        let cycle = self.cycles(now);
        let mut events = Vec::new();
        if self.sp.is_on {
            let mut power = of.power;
            power.header = header_of::<PowerStatus>(cycle, EntryType::PowerStatus);
            let stats = custom_entry(cycle, SpEvent::OpStats as u32, of.sp.as_bytes());
            let writer = &mut self.sp.writer;
            events.extend(writer.append(dram, 0, power.as_bytes()));
            events.extend(writer.append(dram, 0, &stats));
        }
        if self.mm.is_on {
            let stats = custom_entry(cycle, MmEvent::ComputeResources as u32, of.mm.as_bytes());
            events.extend(self.mm.writer.append(dram, 0, &stats));
        }
        self.due = (self.sp.is_on || self.mm.is_on).then(|| now + SAMPLE_EVERY);
        events
    }
}

fn entry_header(cycle: u64, kind: EntryType, payload: usize) -> EntryHeader {
    EntryHeader {
        cycle: cycle.into(),
        payload_size: u32::try_from(payload).unwrap_or(u32::MAX).into(),
        hart_id: 0.into(),
        r#type: (kind as u16).into(),
    }
}

/// Header of an entry of one layout.
fn header_of<T>(cycle: u64, kind: EntryType) -> EntryHeader {
    entry_header(cycle, kind, size_of::<T>() - size_of::<EntryHeader>())
}

/// A text with its end, padding to 8 bytes, and its level at the end of that.
fn text_entry(cycle: u64, level: Level, text: &str) -> Vec<u8> {
    const BEHIND: usize = 3;
    let text = &text.as_bytes()[..text.len().min(MASTER_TEXT_BYTES - BEHIND)];
    let payload = (text.len() + BEHIND).next_multiple_of(8);
    let mut entry = entry_header(cycle, EntryType::String, payload).as_bytes().to_vec();
    entry.extend_from_slice(text);
    entry.resize(size_of::<EntryHeader>() + payload - 2, 0);
    entry.extend([LEVEL_MARK, level as u8]);
    entry
}

/// An event of the writer's own, padded to 8 bytes.
fn custom_entry(cycle: u64, kind: u32, bytes: &[u8]) -> Vec<u8> {
    let head = size_of::<CustomEvent>() - size_of::<EntryHeader>();
    let payload = (head + bytes.len()).next_multiple_of(8);
    let event = CustomEvent {
        header: entry_header(cycle, EntryType::CustomEvent, payload),
        custom_type: kind.into(),
        payload_size: u32::try_from(bytes.len()).unwrap_or(u32::MAX).into(),
    };
    let mut entry = event.as_bytes().to_vec();
    entry.extend_from_slice(bytes);
    entry.resize(size_of::<EntryHeader>() + payload, 0);
    entry
}

#[cfg(test)]
mod tests {
    use et_devapi::trace::{Body, Buffer, CustomPayload};

    use super::*;

    fn fixture() -> (Dram, Trace, Instant) {
        let dram = Dram::new(128 << 20).unwrap();
        format_at_boot(&dram);
        let now = Instant::now();
        (dram, Trace::new(600, now), now)
    }

    fn bytes(dram: &Dram, area: Area) -> Vec<u8> {
        let len = usize::try_from(area.part_bytes).unwrap() * usize::from(area.parts);
        let mut bytes = vec![0; len];
        dram.read(area.base, &mut bytes).unwrap();
        bytes
    }

    /// Time, level and text of what is in the log.
    fn texts(dram: &Dram) -> Vec<(u64, u8, String)> {
        let bytes = bytes(dram, SP);
        let part = Buffer::parse(&bytes).unwrap().parts().next().unwrap();
        let text = |body| match body {
            Body::String(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        part.entries().map(|entry| (entry.cycle, entry.level.unwrap(), text(entry.body))).collect()
    }

    fn sample() -> Sample {
        let mut sample = Sample {
            power: PowerStatus::new_zeroed(),
            sp: SpStats::new_zeroed(),
            mm: MmStats::new_zeroed(),
        };
        sample.power.current_power = 8000.into();
        sample.sp.system_power.max = 25_000.into();
        sample.mm.cm_utilization.avg = 40.into();
        sample
    }

    #[test]
    fn texts_have_level_and_time_and_obey_the_masks() {
        let (dram, mut trace, start) = fixture();
        let second = start + Duration::from_secs(1);
        let log = |trace: &mut Trace, level, text: &str| trace.log(&dram, second, level, text);
        log(&mut trace, Level::Info, "booted");
        assert!(trace.configure(TraceEvents::STRING, TraceFilter::WARNING));
        log(&mut trace, Level::Info, "too much");
        log(&mut trace, Level::Warning, "hot");
        assert!(trace.configure(TraceEvents::PMC, TraceFilter::DEBUG));
        log(&mut trace, Level::Critical, "no texts");
        assert!(trace.configure(TraceEvents::ALL, 0), "all kinds let all levels through");
        log(&mut trace, Level::Debug, &"x".repeat(2000));
        let found = texts(&dram);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], (600_000_000, 3, "booted".into()));
        assert_eq!(found[1], (600_000_000, 2, "hot".into()));
        assert_eq!((found[2].1, found[2].2.len()), (4, 509));
        assert!(!trace.configure(TraceEvents::STRING, 5), "there is no such level");
        assert!(trace.wants(Level::Debug), "nothing changed");
    }

    #[test]
    fn the_trace_is_switched_and_emptied() {
        let (dram, mut trace, now) = fixture();
        let log = |trace: &mut Trace, text: &str| trace.log(&dram, now, Level::Error, text);
        for (control, text) in [(0, "off"), (3, "to the UART"), (1, "on"), (8, "no such bit")] {
            assert_eq!(trace.control(&dram, control), control != 8);
            log(&mut trace, text);
            trace.exception(&dram, now, (1, 2, 3));
        }
        let said: Vec<_> = texts(&dram).into_iter().map(|(.., text)| text).collect();
        assert_eq!(said, ["on", "no such bit"]);
        let exceptions = |dram: &Dram| {
            let bytes = bytes(dram, SP);
            let part = Buffer::parse(&bytes).unwrap().parts().nth(1).unwrap();
            let of = |body| match body {
                Body::Exception(s) => (s.epc.get(), s.cause.get(), s.tval.get()),
                other => panic!("{other:?}"),
            };
            part.entries().map(|entry| of(entry.body)).collect::<Vec<_>>()
        };
        assert_eq!(exceptions(&dram), [(1, 2, 3); 2]);
        assert!(trace.control(&dram, 5));
        assert_eq!((texts(&dram), exceptions(&dram)), (vec![], vec![]));
        let bytes = bytes(&dram, SP);
        assert!(bytes[64..4096].iter().chain(&bytes[4100..]).all(|byte| *byte == 0));
        log(&mut trace, "again");
        assert_eq!(texts(&dram).len(), 1);
    }

    #[test]
    fn a_full_log_begins_again_and_says_so_once() {
        let (dram, mut trace, now) = fixture();
        // 84 entries of 48 bytes fit behind the header.
        let text = "x".repeat(29);
        let full = |trace: &mut Trace, count| {
            let log = |_| trace.log(&dram, now, Level::Info, &text);
            (0..count).filter_map(log).collect::<Vec<_>>()
        };
        assert_eq!(full(&mut trace, 84), []);
        let events = full(&mut trace, 200);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].id, events[0].syndromes), (EventId::TraceBufferFull, [2, 4096]));
        assert!(trace.control(&dram, 5));
        assert_eq!(full(&mut trace, 85).len(), 1, "an emptied buffer can be full again");
        assert_eq!(texts(&dram).len(), 1);
    }

    #[test]
    fn samples_are_taken_while_they_are_on() {
        let (dram, mut trace, now) = fixture();
        assert_eq!((trace.next_sample(), trace.sample(&dram, now, &sample())), (None, vec![]));
        let (sp, mm) = (StatsKind::Sp, StatsKind::Mm);
        assert_eq!(trace.control_statistics(&dram, now, sp, 1), Some(false));
        assert_eq!(trace.next_sample(), Some(now));
        trace.sample(&dram, now, &sample());
        assert_eq!(trace.next_sample(), Some(now + SAMPLE_EVERY));
        assert_eq!(trace.control_statistics(&dram, now, mm, 3), Some(true));
        trace.sample(&dram, now, &sample());
        let count = |area| {
            let bytes = bytes(&dram, area);
            Buffer::parse(&bytes).unwrap().parts().next().unwrap().entries().count()
        };
        assert_eq!((count(SP_STATS), count(MM_STATS)), (4, 1));
        let bytes = bytes(&dram, SP_STATS);
        let part = Buffer::parse(&bytes).unwrap().parts().next().unwrap();
        let found: Vec<_> = part.entries().map(|entry| entry.body).collect();
        assert!(matches!(found[0], Body::PowerStatus(p) if p.current_power.get() == 8000));
        let Body::Custom(event, payload) = found[1] else { panic!("{found:?}") };
        let CustomPayload::OpStats(stats) = event.payload(payload) else { panic!("{found:?}") };
        assert_eq!(stats.system_power.max.get(), 25_000);
        // Off, emptied, and what there is not.
        assert_eq!(trace.control_statistics(&dram, now, sp, 4), Some(false));
        assert_eq!(trace.control_statistics(&dram, now, mm, 0), Some(false));
        assert_eq!(trace.next_sample(), None);
        trace.sample(&dram, now, &sample());
        assert_eq!((count(SP_STATS), count(MM_STATS)), (0, 1));
        assert_eq!(trace.control_statistics(&dram, now, StatsKind::from(3), 1), None);
        assert_eq!(trace.control_statistics(&dram, now, sp, 9), None);
    }

    #[test]
    fn full_statistics_begin_again_and_say_so_once() {
        let (dram, mut trace, now) = fixture();
        trace.control_statistics(&dram, now, StatsKind::Sp, 1);
        trace.control_statistics(&dram, now, StatsKind::Mm, 1);
        let full: Vec<_> = (0..8000)
            .flat_map(|_| trace.sample(&dram, now, &sample()))
            .map(|e| e.syndromes)
            .collect();
        // Of 264 bytes each, and of 144; 8000 of either are more than a buffer.
        assert_eq!(full, [[5, 0x10_0000], [4, 0x10_0000]]);
        for area in [SP_STATS, MM_STATS] {
            let bytes = bytes(&dram, area);
            let part = Buffer::parse(&bytes).unwrap().parts().next().unwrap();
            assert!(part.has_wrapped() && part.entries().skipped() == 0, "{area:?}");
        }
    }

    #[test]
    fn a_new_run_finds_empty_buffers() {
        let (dram, mut trace, now) = fixture();
        trace.log(&dram, now, Level::Info, "of before");
        trace.exception(&dram, now, (1, 2, 3));
        trace.control_statistics(&dram, now, StatsKind::Sp, 1);
        trace.sample(&dram, now, &sample());
        format_at_boot(&dram);
        for area in [SP, SP_STATS, MM_STATS] {
            let bytes = bytes(&dram, area);
            for part in Buffer::parse(&bytes).unwrap().parts() {
                assert_eq!((part.entries().count(), part.has_wrapped()), (0, false), "{area:?}");
            }
        }
    }
}
