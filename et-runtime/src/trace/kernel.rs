//! Traces of kernels.

use std::fmt;
use std::time::Duration;

use et_devapi::abi::MASTER_SHIRE;
use et_devapi::trace::{BufferType, Layout};
use et_hal::Hal;

use super::{DEBUG, Source, Trace, level};
use crate::kernel::UserTrace;
use crate::memory::DeviceBuffer;
use crate::sync::{AtomicU8, Ordering};
use crate::{Device, Result, Stream};

/// What kernels are to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelTraceConfig {
    /// Shires that trace.
    pub shire_mask: u64,
    /// Harts of each.
    pub thread_mask: u64,
    /// Bytes of each hart's part; rounded up to a multiple of 64.
    pub bytes_per_hart: u32,
    /// Kinds of entries. Spec: §16.2
    pub event_mask: u32,
    /// Highest level of texts: 0 critical, 1 error, 2 warning, 3 info, 4 debug. `None` for what the
    /// log lets through at the target `et::kernel` when a launch is given the trace; everything,
    /// if `tracing` has no subscriber.
    pub level: Option<u8>,
}

impl KernelTraceConfig {
    /// All kinds of entries, texts as far as the log lets them through, on all harts of the shires
    /// of `shire_mask`, 4 KiB each.
    #[must_use]
    pub const fn new(shire_mask: u64) -> Self {
        let (thread_mask, event_mask) = (u64::MAX, u32::MAX);
        Self { shire_mask, thread_mask, bytes_per_hart: 4096, event_mask, level: None }
    }
}

/// A buffer that kernels trace into.
///
/// One launch at a time may use it, and it is read between two of them.
pub struct KernelTrace<H: Hal> {
    buffer: DeviceBuffer,
    config: KernelTraceConfig,
    layout: Layout,
    stream: Stream<H>,
    frequency_mhz: Option<u32>,
    /// The highest level of texts that the last launch was asked for.
    // Relaxed: a number that orders nothing.
    asked: AtomicU8,
}

impl<H: Hal> fmt::Debug for KernelTrace<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelTrace").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<H: Hal> KernelTrace<H> {
    fn new(device: &Device<H>, config: KernelTraceConfig, timeout: Duration) -> Result<Self> {
        let harts = harts(&config).max(1);
        let part = u64::from(config.bytes_per_hart).next_multiple_of(64);
        // Firmware puts its header into the first part.
        let part = part.max(128);
        let buffer = device.alloc_aligned(u64::from(harts) * part, 64)?;
        let layout = Layout {
            kind: BufferType::CmUmode,
            part_bytes: u32::try_from(part).unwrap_or(u32::MAX),
            part_count: u16::try_from(harts).unwrap_or(u16::MAX),
        };
        let frequency_mhz = device.properties().boot_frequency_mhz;
        let trace = Self {
            buffer,
            config,
            layout,
            stream: device.stream(),
            frequency_mhz,
            asked: AtomicU8::new(DEBUG),
        };
        trace.clear(timeout)?;
        Ok(trace)
    }

    /// Returns what a launch that traces into it is given: see [`Launch::trace`](crate::Launch).
    /// The level of texts is that of this moment.
    #[must_use]
    pub fn option(&self) -> UserTrace {
        let KernelTraceConfig { shire_mask, thread_mask, event_mask, level, .. } = self.config;
        let level = level.unwrap_or_else(level::of_kernels);
        self.asked.store(level, Ordering::Relaxed);
        let (event_mask, filter_mask) = level::masks(event_mask, level);
        let buffer = self.buffer.whole();
        UserTrace { buffer, threshold: 0, shire_mask, thread_mask, event_mask, filter_mask }
    }

    /// Takes what the last launch has traced, and [logs](Trace::log) it. Returns the number of
    /// entries.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn log(&self, timeout: Duration) -> Result<usize> {
        let trace = self.read(timeout)?;
        trace.log();
        Ok(trace.entries().count())
    }

    /// Takes what the last launch has traced. What it has overwritten or lost is in the
    /// [losses](Trace::losses), a header of the buffer too: the entries are read nevertheless.
    ///
    /// # Errors
    /// Those of [`Stream::read`]; what was traced is then still there.
    pub fn read(&self, timeout: Duration) -> Result<Trace> {
        let mut bytes = vec![0; usize::try_from(self.buffer.len_bytes()).unwrap_or(usize::MAX)];
        self.stream.read(&self.buffer, &mut bytes, timeout)?;
        let mut trace = Trace::new(self.frequency_mhz);
        trace.most = Some(self.asked.load(Ordering::Relaxed));
        // Without a header no kernel has run, or none on the first of the shires.
        for part in trace.buffer(&bytes, self.layout).parts() {
            trace.add(Source::Kernel, &part.entries());
            trace.parts_with_losses += u64::from(part.has_wrapped());
        }
        self.clear(timeout)?;
        Ok(trace)
    }

    /// Zeros are what tells parts that have been written over.
    fn clear(&self, timeout: Duration) -> Result<()> {
        self.stream.fill(&self.buffer, 0)?.wait(timeout).map(drop)
    }
}

/// Harts that a buffer has parts for: of the master shire only the upper half runs kernels.
/// Spec: §16.1
fn harts(config: &KernelTraceConfig) -> u32 {
    let KernelTraceConfig { shire_mask, thread_mask, .. } = *config;
    let of_master = if shire_mask >> MASTER_SHIRE & 1 == 0 { 0 } else { thread_mask >> 32 };
    let compute = (shire_mask & 0xffff_ffff).count_ones();
    compute * thread_mask.count_ones() + of_master.count_ones()
}

impl<H: Hal> Device<H> {
    /// Makes a buffer that kernels trace into; see [`Launch::trace`](crate::Launch::trace).
    ///
    /// # Errors
    /// As [`alloc`](Device::alloc); those of [`Stream::fill`].
    pub fn kernel_trace(&self, config: KernelTraceConfig) -> Result<KernelTrace<H>> {
        KernelTrace::new(self, config, self.link().config.command_timeout)
    }
}
