//! Traces of the operations firmware: configuration, control, and buffers. What kernels trace is
//! the matter of `user_trace`, what the service processor traces that of `sp`.
//!
//! By default the master minion logs what fails, and each compute hart its exceptions. How far each
//! command has come is traced only after the host has configured the trace, because it costs time.

use std::collections::BTreeMap;

use et_devapi::abi;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{
    TraceConfig, TraceConfigStatus, TraceControl, TraceControlStatus, TraceRtConfig, TraceRuntimes,
};
use et_devapi::trace::{BufferType, CmdProgress, MAGIC, TraceHeader, VERSION};
use et_sim_cores::{Dram, HartFailure};
use zerocopy::IntoBytes;

use super::kernel::Reachable;
use super::log::{self, Place, Position};
use super::sp;
use crate::board::Slot;

/// Bytes of one hart's part of the CM trace. Spec: §16.1
const CM_PART_BYTES: u32 = 4096;
/// Parts of the CM trace: one for each compute hart. Spec: §16.1
const CM_PARTS: u16 = 2080;
/// Bytes of the master minion's trace. Spec: §16.1
const MM_BYTES: u32 = 0x10_0000;
/// Offset of the first entry in the first part, and in every other part. Spec: §16.1
pub(super) const FIRST_ENTRY: u32 = 64;
pub(super) const FIRST_ENTRY_OF_OTHERS: u32 = 4;
/// Alignment of trace buffers and of their parts. Spec: §9.1
pub(super) const ALIGN_BYTES: u64 = 64;

/// Bit of the master shire in shire masks.
pub(super) const MASTER_SHIRE: u64 = 1 << 32;
/// Harts of a shire that are masters in the master shire, and those that are not.
pub(super) const LOW_THREADS: u64 = 0xffff_ffff;
pub(super) const HIGH_THREADS: u64 = !LOW_THREADS;

/// Which firmware trace buffers a read list fetches. Spec: §8
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirmwareBuffers {
    mm: bool,
    cm: bool,
}

impl FirmwareBuffers {
    pub(crate) const NONE: Self = Self { mm: false, cm: false };

    pub(crate) fn of(flags: CommandFlags) -> Self {
        Self {
            mm: flags.contains(CommandFlags::MMFW_TRACEBUF),
            cm: flags.contains(CommandFlags::CMFW_TRACEBUF),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns where the buffers are; both are one behind the other.
    pub(crate) fn area(self) -> Option<std::ops::Range<u64>> {
        let mm = abi::MM_TRACE_BASE.as_u64()..abi::CM_TRACE_BASE.as_u64();
        let cm = mm.end..mm.end + abi::CM_TRACE_BYTES;
        match (self.mm, self.cm) {
            (false, false) => None,
            (true, false) => Some(mm),
            (false, true) => Some(cm),
            (true, true) => Some(mm.start..cm.end),
        }
    }
}

/// Hart of the master minion that dispatches commands.
const DISPATCHER: u32 = abi::MASTER_SHIRE * abi::HARTS_PER_SHIRE;
/// Bit of strings in event masks, and the highest level. Spec: §16.2
const STRINGS: u32 = 1;
const DEBUG: u32 = 4;
/// Levels of strings. Spec: §16.2
const ERROR: u32 = 1;

const MM_PLACE: Place =
    Place { base: abi::MM_TRACE_BASE.as_u64(), bytes: MM_BYTES, first: FIRST_ENTRY };

/// What a runtime traces.
#[derive(Clone, Copy, Debug)]
struct Runtime {
    control: TraceControl,
    event_mask: u32,
    filter_mask: u32,
    threshold: u32,
}

impl Runtime {
    fn wants_text(&self, level: u32) -> bool {
        self.is_on() && self.event_mask & STRINGS != 0 && level <= self.filter_mask & 0xff
    }

    fn is_on(&self) -> bool {
        self.control.contains(TraceControl::ENABLE) && !self.control.contains(TraceControl::TO_UART)
    }

    fn configure(&mut self, config: &TraceRtConfig) {
        self.event_mask = config.event_mask;
        let has_all = config.event_mask == u32::MAX;
        self.filter_mask = if has_all { u32::MAX } else { config.filter_mask };
        self.threshold = config.threshold;
    }
}

/// What the host has set, and how far the buffers have been written.
#[derive(Debug)]
pub(crate) struct TraceService {
    mm: Runtime,
    cm: Runtime,
    /// Shires and harts of each that trace.
    cm_harts: (u64, u64),
    /// The host has asked for the progress of commands.
    has_progress: bool,
    mm_at: Position,
    /// By index of the hart; those that have written nothing are left out.
    cm_at: BTreeMap<u16, Position>,
}

impl TraceService {
    pub(crate) fn new() -> Self {
        let runtime = Runtime {
            control: TraceControl::ENABLE,
            event_mask: STRINGS,
            filter_mask: DEBUG,
            threshold: 0,
        };
        Self {
            mm: runtime,
            cm: runtime,
            cm_harts: (u64::MAX, u64::MAX),
            has_progress: false,
            mm_at: Position::default(),
            cm_at: BTreeMap::new(),
        }
    }

    /// Notes how far a command has come; returns `true` if the event of a full buffer is due.
    pub(crate) fn command(
        &mut self,
        dram: &Dram,
        cycle: u64,
        command: (u16, u16),
        progress: CmdProgress,
    ) -> bool {
        if !self.has_progress || !self.mm.is_on() {
            return false;
        }
        let entry = log::progress(cycle, DISPATCHER, command, progress);
        self.mm_at.append(dram, MM_PLACE, self.mm.threshold, entry.as_bytes())
    }

    /// Returns the bytes at which a buffer counts as full.
    pub(crate) fn threshold(&self, kind: BufferType) -> u32 {
        let (runtime, part) = match kind {
            BufferType::Mm => (&self.mm, MM_BYTES),
            _ => (&self.cm, CM_PART_BYTES),
        };
        if runtime.threshold == 0 { part } else { runtime.threshold }
    }

    /// Returns `true` if [`command`](Self::command) notes anything.
    pub(crate) fn has_progress(&self) -> bool {
        self.has_progress
    }

    /// Logs a failure; returns `true` if the event of a full buffer is due.
    pub(crate) fn failure(&mut self, dram: &Dram, cycle: u64, text: &str) -> bool {
        if !self.mm.wants_text(ERROR) {
            return false;
        }
        let entry = log::text(cycle, DISPATCHER, text, log::MASTER_TEXT_BYTES);
        self.mm_at.append(dram, MM_PLACE, self.mm.threshold, &entry)
    }

    /// Logs what a compute hart trapped on; returns `true` if the event of a full buffer is due.
    pub(crate) fn exception(
        &mut self,
        dram: &Dram,
        cycle: u64,
        failure: &HartFailure,
        cause: (u64, u64),
    ) -> bool {
        let hart = failure.hart_id;
        let index = abi::compute_hart_index(hart).and_then(|index| u16::try_from(index).ok());
        let (true, Some(index)) = (self.cm.is_on(), index) else { return false };
        let (shires, threads) = self.cm_harts;
        let (shire, thread) = (abi::shire_of_hart(hart), hart % abi::HARTS_PER_SHIRE);
        if shires >> shire & threads >> thread & 1 == 0 {
            return false;
        }
        let place = cm_place(index);
        let position = self.cm_at.entry(index).or_default();
        let mut is_due = false;
        if self.cm.wants_text(ERROR) {
            let text = format!("U-mode exception: cause {}, pc {:#x}", cause.0, failure.state.pc);
            let entry = log::text(cycle, hart, &text, log::COMPUTE_TEXT_BYTES);
            is_due |= position.append(dram, place, self.cm.threshold, &entry);
        }
        let entry = log::exception(cycle, hart, cause, &failure.state);
        is_due | position.append(dram, place, self.cm.threshold, entry.as_bytes())
    }

    /// Spec: §7.10
    pub(crate) fn configure(
        &mut self,
        slot: &Slot,
        cores: Reachable,
        config: &TraceRtConfig,
    ) -> TraceConfigStatus {
        let (shires, threads) = (config.shire_mask, config.thread_mask);
        let master = shires & MASTER_SHIRE != 0;
        if threads == 0 || master && threads & LOW_THREADS == 0 {
            return TraceConfigStatus::BadThreadMask;
        }
        let possible = MASTER_SHIRE | LOW_THREADS;
        // The master shire has booted, or this would not run.
        let booted = slot.config.shires | MASTER_SHIRE;
        if shires & possible == 0 || shires & possible & !booted != 0 {
            return TraceConfigStatus::BadShireMask;
        }
        let compute = shires & LOW_THREADS != 0 || master && threads & HIGH_THREADS != 0;
        let part = if compute { CM_PART_BYTES } else { MM_BYTES };
        if config.threshold > part {
            return TraceConfigStatus::InvalidTraceConfigInfo;
        }
        if compute && cores == Reachable::No {
            return TraceConfigStatus::CmConfigFailed;
        }
        if master && threads & LOW_THREADS != 0 {
            self.mm.configure(config);
            self.has_progress = true;
        }
        if compute {
            self.cm.configure(config);
            self.cm_harts = (shires, threads);
        }
        TraceConfigStatus::Success
    }

    /// Spec: §7.11
    pub(crate) fn control(
        &mut self,
        slot: &Slot,
        cores: Reachable,
        runtimes: TraceRuntimes,
        control: TraceControl,
    ) -> TraceControlStatus {
        let (mm, cm) = (runtimes.contains(TraceRuntimes::MM), runtimes.contains(TraceRuntimes::CM));
        if !mm && !cm {
            return TraceControlStatus::BadRtType;
        }
        if cm && cores == Reachable::No {
            return TraceControlStatus::CmMulticastFailed;
        }
        let is_reset = control.contains(TraceControl::RESET);
        if mm {
            self.mm.control = control;
            if is_reset {
                self.mm_at = Position::default();
            }
        }
        if cm {
            self.cm.control = control;
            if is_reset {
                self.cm_at.clear();
            }
        }
        if is_reset {
            self.refresh(&slot.dram, FirmwareBuffers { mm, cm });
        }
        tracing::debug!(mm, cm, bits = control.bits(), "trace control");
        TraceControlStatus::Success
    }

    /// Writes what an eviction brings to memory: here the headers, since entries are there already.
    pub(crate) fn refresh(&self, dram: &Dram, buffers: FirmwareBuffers) {
        if buffers.mm {
            let used = self.mm_at.used(MM_PLACE);
            format(dram, MM_PLACE.base, BufferType::Mm, MM_BYTES, 1, |_| used);
        }
        if buffers.cm {
            let used =
                |part| self.cm_at.get(&part).copied().unwrap_or_default().used(cm_place(part));
            let base = abi::CM_TRACE_BASE.as_u64();
            format(dram, base, BufferType::Cm, CM_PART_BYTES, CM_PARTS, used);
        }
    }
}

/// The part of a compute hart.
fn cm_place(index: u16) -> Place {
    let base = abi::CM_TRACE_BASE.as_u64() + u64::from(index) * u64::from(CM_PART_BYTES);
    let first = if index == 0 { FIRST_ENTRY } else { FIRST_ENTRY_OF_OTHERS };
    Place { base, bytes: CM_PART_BYTES, first }
}

/// Writes the headers of the buffers that are small, as the firmware does when it starts.
pub(crate) fn format_at_boot(dram: &Dram) {
    format(dram, abi::MM_TRACE_BASE.as_u64(), BufferType::Mm, MM_BYTES, 1, |_| FIRST_ENTRY);
    sp::format_at_boot(dram);
}

/// Returns `true` if a launch may have this trace configuration. Spec: §9.1
pub(crate) fn is_valid(config: &TraceConfig) -> bool {
    let harts = selected_harts(config);
    let size = u64::from(config.buffer_size.get());
    config.buffer.get().is_multiple_of(ALIGN_BYTES)
        && size.is_multiple_of(ALIGN_BYTES)
        && harts != 0
        && size / harts >= ALIGN_BYTES
}

/// Returns how many parts the buffer has. Spec: §9.1
pub(super) fn selected_harts(config: &TraceConfig) -> u64 {
    let shires = config.shire_mask.get();
    let threads = config.thread_mask.get();
    let compute = u64::from((shires & LOW_THREADS).count_ones() * threads.count_ones());
    let master = u64::from((threads & HIGH_THREADS).count_ones());
    compute + if shires & MASTER_SHIRE != 0 { master } else { 0 }
}

/// Returns the header of a buffer's first part.
pub(super) fn header(kind: BufferType, part_bytes: u32, parts: u16, used: u32) -> TraceHeader {
    let (major, minor, patch) = VERSION;
    TraceHeader {
        magic_header: MAGIC.into(),
        version_major: major.into(),
        version_minor: minor.into(),
        version_patch: patch.into(),
        r#type: (kind as u16).into(),
        data_size: used.into(),
        sub_buffer_size: part_bytes.into(),
        sub_buffer_count: parts.into(),
        pad: [0; 42],
    }
}

/// Writes the headers of a firmware buffer; `used` gives the bytes that a part holds.
fn format(
    dram: &Dram,
    base: u64,
    kind: BufferType,
    part_bytes: u32,
    parts: u16,
    used: impl Fn(u16) -> u32,
) {
    let header = header(kind, part_bytes, parts, used(0));
    let mut written = dram.write(base, header.as_bytes());
    for part in 1..parts {
        let Some(at) = base.checked_add(u64::from(part) * u64::from(part_bytes)) else { break };
        written = written.and_then(|()| dram.write(at, &used(part).to_le_bytes()));
    }
    debug_assert!(written.is_ok(), "the firmware's buffers are part of every DRAM");
}
