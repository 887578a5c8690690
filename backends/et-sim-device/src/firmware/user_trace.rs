//! Traces of kernels: what the workers' firmware writes when a kernel starts and when it has ended.
//! Spec: §9.1, §16.1, §16.3

use et_devapi::abi;
use et_devapi::msg::ops::TraceConfig;
use et_devapi::trace::{
    BufferType, HeaderKind, TRACE_DISABLED_OFFSET, TraceControl, TraceHeader, TraceSizeHeader,
};
use et_sim_cores::{CoresError, Dram};
use zerocopy::{FromBytes, IntoBytes};

use super::trace::{
    ALIGN_BYTES, FIRST_ENTRY, FIRST_ENTRY_OF_OTHERS, HIGH_THREADS, LOW_THREADS, MASTER_SHIRE,
    header, selected_harts,
};

/// Bytes of a control block.
const BLOCK_BYTES: u64 = size_of::<TraceControl>() as u64;
/// The value of the byte that says whether a hart traces.
const DISABLED: u8 = 1;

/// The traces of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserTrace {
    /// Shires of the launch.
    shires: u64,
    config: Option<TraceConfig>,
}

/// Where a hart traces to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    base: u64,
    bytes: u32,
    kind: HeaderKind,
}

impl UserTrace {
    /// The traces of a launch on `shires`; `config` has been checked, if there is one.
    pub(crate) fn new(shires: u64, config: Option<TraceConfig>) -> Self {
        Self { shires, config }
    }

    /// Writes the control blocks of all harts of the launch, and headers of empty parts.
    pub(crate) fn begin(&self, dram: &Dram) {
        let disable = |block| dram.write(block + TRACE_DISABLED_OFFSET, &[DISABLED]);
        // Asked once, not by each hart: the optimiser may move the tests of a configuration's masks
        // out of the loop, before the test whether there is one, which valgrind reports.
        let Some(config) = &self.config else {
            self.blocks().for_each(|(hart, block)| told(hart, disable(block)));
            return;
        };
        for (hart, block) in self.blocks() {
            let written = match part(config, hart) {
                Some(part) => enable(dram, block, config, part),
                None => disable(block),
            };
            told(hart, written);
        }
    }

    /// Writes into the header of each part how much of it the kernel has used.
    pub(crate) fn end(&self, dram: &Dram) {
        let Some(config) = &self.config else { return };
        for (hart, block) in self.blocks() {
            if let Some(part) = part(config, hart) {
                told(hart, refresh(dram, block, part));
            }
        }
    }

    /// The harts of the launch and where their control blocks are.
    fn blocks(&self) -> impl Iterator<Item = (u32, u64)> {
        self.harts().filter_map(|hart| Some((hart, block_of(hart)?)))
    }

    fn harts(&self) -> impl Iterator<Item = u32> {
        let shires = (0..=abi::MASTER_SHIRE).filter(|shire| self.shires >> shire & 1 != 0);
        shires.flat_map(|shire| {
            let first = shire * abi::HARTS_PER_SHIRE;
            (first..first + abi::HARTS_PER_SHIRE)
                .filter(|hart| abi::compute_hart_index(*hart).is_some())
        })
    }
}

/// Returns where a hart traces to; `None` if it does not. Spec: §16.1
fn part(config: &TraceConfig, hart: u32) -> Option<Part> {
    let (shires, threads) = (config.shire_mask.get(), config.thread_mask.get());
    let (shire, thread) = (abi::shire_of_hart(hart), hart % abi::HARTS_PER_SHIRE);
    if shires >> shire & 1 == 0 || threads >> thread & 1 == 0 {
        return None;
    }
    let below = |bits: u64, bit: u32| u64::from((bits & ((1 << bit) - 1)).count_ones());
    let per_shire = u64::from(threads.count_ones());
    let threads_here = if shire == abi::MASTER_SHIRE { threads & HIGH_THREADS } else { threads };
    let index = below(shires & (LOW_THREADS | MASTER_SHIRE), shire) * per_shire
        + below(threads_here, thread);
    let parts = selected_harts(config);
    let bytes = u64::from(config.buffer_size.get()) / parts / ALIGN_BYTES * ALIGN_BYTES;
    let base = config.buffer.get().checked_add(index * bytes)?;
    let kind = if index == 0 { HeaderKind::Standard } else { HeaderKind::Size };
    // Checked to be at least one line.
    Some(Part { base, bytes: u32::try_from(bytes).ok().filter(|bytes| *bytes != 0)?, kind })
}

/// Returns where the control block of a hart is; `None` if it runs no kernels.
fn block_of(hart: u32) -> Option<u64> {
    let index = abi::compute_hart_index(hart)? as u64;
    Some(abi::TRACE_CONTROL_BASE.as_u64() + index * BLOCK_BYTES)
}

/// Offset of the first entry behind a header.
fn first_entry(kind: HeaderKind) -> u32 {
    match kind {
        HeaderKind::Standard => FIRST_ENTRY,
        HeaderKind::Size => FIRST_ENTRY_OF_OTHERS,
    }
}

fn enable(dram: &Dram, block: u64, config: &TraceConfig, part: Part) -> Result<(), CoresError> {
    let threshold = match config.threshold.get() {
        0 => part.bytes,
        wanted => wanted.min(part.bytes),
    };
    let events = config.event_mask.get();
    let filter = if events == u32::MAX { u32::MAX } else { config.filter_mask.get() };
    let control = TraceControl {
        functions: [0.into(); 3],
        base: part.base.into(),
        size: part.bytes.into(),
        offset: first_entry(part.kind).into(),
        threshold: threshold.into(),
        event_mask: events.into(),
        filter_mask: filter.into(),
        reserved: 0.into(),
        notified: 0,
        is_disabled: 0,
        header_kind: part.kind as u8,
        pad: [0; 5],
    };
    dram.write(block, control.as_bytes())?;
    // The size is 0 until the part is refreshed.
    match part.kind {
        HeaderKind::Standard => {
            let parts = u16::try_from(selected_harts(config)).unwrap_or(u16::MAX);
            let header = header(BufferType::CmUmode, part.bytes, parts, 0);
            dram.write(part.base, header.as_bytes())
        }
        HeaderKind::Size => {
            dram.write(part.base, TraceSizeHeader { data_size: 0.into() }.as_bytes())
        }
    }
}

fn refresh(dram: &Dram, block: u64, part: Part) -> Result<(), CoresError> {
    let mut control = [0; size_of::<TraceControl>()];
    dram.read(block, &mut control)?;
    let offset = TraceControl::read_from_bytes(&control).map_or(0, |control| control.offset.get());
    let size_at = match part.kind {
        HeaderKind::Standard => core::mem::offset_of!(TraceHeader, data_size) as u64,
        HeaderKind::Size => 0,
    };
    dram.write(part.base + size_at, &offset.to_le_bytes())
}

/// The address of a buffer is not checked (spec §9.1): parts outside device memory are not written.
fn told(hart: u32, written: Result<(), CoresError>) {
    if let Err(error) = written {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(hart, error, "trace outside device memory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: u64 = 0x80_0600_0000;

    fn config(size: u32, shires: u64, threads: u64) -> TraceConfig {
        TraceConfig {
            buffer: BUFFER.into(),
            buffer_size: size.into(),
            threshold: 0.into(),
            shire_mask: shires.into(),
            thread_mask: threads.into(),
            event_mask: 1.into(),
            filter_mask: 4.into(),
        }
    }

    fn dram() -> Dram {
        Dram::new(128 << 20).unwrap()
    }

    fn control(dram: &Dram, index: u64) -> TraceControl {
        let mut bytes = [0; 64];
        dram.read(0x80_04F2_3000 + 64 * index, &mut bytes).unwrap();
        TraceControl::read_from_bytes(&bytes).unwrap()
    }

    #[test]
    fn parts_follow_the_selected_harts_of_the_selected_shires() {
        // Threads 0, 33 and 40 of shires 1 and 3, of which 33 and 40 exist in the master shire.
        let threads = 1 << 40 | 1 << 33 | 1;
        let config = config(8 * 128 + 64, 1 << 32 | 0b1010, threads);
        let part = |hart| part(&config, hart).map(|part| (part.base, part.bytes, part.kind));
        let at = |index: u64, kind| Some((BUFFER + 128 * index, 128, kind));
        assert_eq!(part(64), at(0, HeaderKind::Standard));
        assert_eq!(part(64 + 33), at(1, HeaderKind::Size));
        assert_eq!(part(192), at(3, HeaderKind::Size));
        assert_eq!(part(192 + 40), at(5, HeaderKind::Size));
        assert_eq!(part(2048 + 33), at(6, HeaderKind::Size));
        assert_eq!(part(2048 + 40), at(7, HeaderKind::Size));
        for hart in [0, 65, 128, 2048 + 34] {
            assert_eq!(part(hart), None, "{hart}");
        }
    }

    #[test]
    fn harts_that_do_not_trace_are_told_so_and_nothing_else() {
        let dram = dram();
        dram.fill(0x80_04F2_3000, 0x2_0800, 0xaa).unwrap();
        UserTrace::new(0b10, None).begin(&dram);
        for index in 0..192 {
            let block = control(&dram, index);
            let expected = if index / 64 == 1 { 1 } else { 0xaa };
            assert_eq!(block.is_disabled, expected, "{index}");
            assert_eq!((block.notified, block.header_kind), (0xaa, 0xaa));
        }
        // Selected, but not part of the launch: no firmware runs there to write its block.
        UserTrace::new(0b10, Some(config(4096, 0b101, 1))).begin(&dram);
        assert_eq!(control(&dram, 0).is_disabled, 0xaa);
        assert_eq!(control(&dram, 64).is_disabled, 1);
    }

    #[test]
    fn blocks_and_headers_describe_empty_parts_and_then_what_was_used() {
        let dram = dram();
        let mut wanted = config(3 * 4096, 1 << 32 | 1, 1 << 32 | 1);
        (wanted.event_mask, wanted.threshold) = (u32::MAX.into(), 100.into());
        let trace = UserTrace::new(1 << 32 | 1, Some(wanted));
        dram.fill(BUFFER, 3 * 4096, 0xee).unwrap();
        trace.begin(&dram);
        for (index, part, kind, first) in [(0, 0, 0, 64), (32, 1, 1, 4), (2048, 2, 1, 4)] {
            let block = control(&dram, index);
            assert_eq!((block.base.get(), block.size.get()), (BUFFER + 4096 * part, 4096));
            assert_eq!((block.offset.get(), block.threshold.get()), (first, 100));
            assert_eq!((block.event_mask.get(), block.filter_mask.get()), (u32::MAX, u32::MAX));
            assert_eq!((block.is_disabled, block.header_kind), (0, kind));
        }
        let mut bytes = [0; 64];
        dram.read(BUFFER, &mut bytes).unwrap();
        let found = TraceHeader::read_from_bytes(&bytes).unwrap();
        let sizes = (found.sub_buffer_size.get(), found.sub_buffer_count.get());
        assert_eq!((found.r#type.get(), found.data_size.get(), sizes), (3, 0, (4096, 3)));
        let used = |at: u64| {
            let mut bytes = [0; 4];
            dram.read(BUFFER + at, &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        assert_eq!((used(4096), used(8192)), (0, 0));
        dram.write(0x80_04F2_3000 + 36, &200_u32.to_le_bytes()).unwrap();
        trace.end(&dram);
        assert_eq!((used(12), used(4096), used(8192)), (200, 4, 4));
    }

    #[test]
    fn a_threshold_above_the_part_is_the_part() {
        let dram = dram();
        let mut wanted = config(4096, 1, 1);
        wanted.threshold = 5000.into();
        UserTrace::new(1, Some(wanted)).begin(&dram);
        let block = control(&dram, 0);
        assert_eq!((block.threshold.get(), block.filter_mask.get()), (4096, 4));
    }
}
