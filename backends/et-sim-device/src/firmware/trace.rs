//! Traces of the firmware: configuration, control, and buffers that are well-formed and empty.
//!
//! The simulated firmware logs nothing; what kernels trace is the matter of `user_trace`. What it
//! does with its buffers is what a reader depends on: headers, sizes, and the order of parts.

use et_devapi::abi;
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{
    TraceConfig, TraceConfigStatus, TraceControl, TraceControlStatus, TraceRtConfig, TraceRuntimes,
};
use et_devapi::trace::{BufferType, MAGIC, TraceHeader, VERSION};
use et_sim_cores::Dram;
use zerocopy::IntoBytes;

use super::kernel::Reachable;
use crate::board::Slot;

/// Bytes of one hart's part of the CM trace. Spec: §16.1
const CM_PART_BYTES: u32 = 4096;
/// Parts of the CM trace: one for each compute hart. Spec: §16.1
const CM_PARTS: u16 = 2080;
/// Trace of the service processor, and both statistics buffers. Spec: §12.1
const SP_TRACE_BASE: u64 = 0x80_0440_1000;
const SP_TRACE_PART_BYTES: u32 = 0x1000;
const SP_STATS_BASE: u64 = 0x80_04d2_3000;
const MM_STATS_BASE: u64 = 0x80_04e2_3000;
const STATS_BYTES: u32 = 0x10_0000;
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

/// What the host has set; there is nothing that it could change in an empty trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceService {
    mm_control: u32,
    cm_control: u32,
    event_mask: u32,
    filter_mask: u32,
}

impl TraceService {
    pub(crate) fn new() -> Self {
        Self { mm_control: 1, cm_control: 1, ..Self::default() }
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
        if shires & possible == 0 || shires & possible & !slot.config.shires != 0 {
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
        self.event_mask = config.event_mask;
        self.filter_mask = config.filter_mask;
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
        if mm {
            self.mm_control = control.bits();
        }
        if cm {
            self.cm_control = control.bits();
        }
        if control.contains(TraceControl::RESET) {
            refresh(&slot.dram, FirmwareBuffers { mm, cm });
        }
        tracing::debug!(?self, "trace control");
        TraceControlStatus::Success
    }
}

/// Writes what an eviction brings to memory: here, headers of empty buffers.
pub(crate) fn refresh(dram: &Dram, buffers: FirmwareBuffers) {
    if buffers.mm {
        format(dram, abi::MM_TRACE_BASE.as_u64(), BufferType::Mm, MM_BYTES, 1);
    }
    if buffers.cm {
        format(dram, abi::CM_TRACE_BASE.as_u64(), BufferType::Cm, CM_PART_BYTES, CM_PARTS);
    }
}

/// Writes the headers of the buffers that are small, as the firmware does when it starts.
pub(crate) fn format_at_boot(dram: &Dram) {
    format(dram, SP_TRACE_BASE, BufferType::Sp, SP_TRACE_PART_BYTES, 1);
    format(dram, abi::MM_TRACE_BASE.as_u64(), BufferType::Mm, MM_BYTES, 1);
    format(dram, SP_STATS_BASE, BufferType::SpStats, STATS_BYTES, 1);
    format(dram, MM_STATS_BASE, BufferType::MmStats, STATS_BYTES, 1);
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

/// Empties a firmware buffer.
fn format(dram: &Dram, base: u64, kind: BufferType, part_bytes: u32, parts: u16) {
    let header = header(kind, part_bytes, parts, FIRST_ENTRY);
    let mut written = dram.write(base, header.as_bytes());
    for part in 1..u64::from(parts) {
        let Some(at) = base.checked_add(part * u64::from(part_bytes)) else { break };
        written = written.and_then(|()| dram.write(at, &FIRST_ENTRY_OF_OTHERS.to_le_bytes()));
    }
    debug_assert!(written.is_ok(), "the firmware's buffers are part of every DRAM");
}
