//! Traces of kernels.

use std::fmt;
use std::time::Duration;

use et_devapi::trace::Buffer;
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
        let harts = config.shire_mask.count_ones() * config.thread_mask.count_ones();
        let part = u64::from(config.bytes_per_hart).next_multiple_of(64);
        // Firmware puts its header into the first part.
        let buffer = device.alloc_aligned(u64::from(harts.max(1)) * part.max(128), 64)?;
        let frequency_mhz = device.properties().boot_frequency_mhz;
        let trace = Self {
            buffer,
            config,
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

    /// Takes what the last launch has traced.
    ///
    /// # Errors
    /// Those of [`Stream::read`]; what was traced is then still there.
    pub fn read(&self, timeout: Duration) -> Result<Trace> {
        let mut bytes = vec![0; usize::try_from(self.buffer.len_bytes()).unwrap_or(usize::MAX)];
        self.stream.read(&self.buffer, &mut bytes, timeout)?;
        let mut trace = Trace::new(self.frequency_mhz);
        trace.most = Some(self.asked.load(Ordering::Relaxed));
        // Without a header no kernel has run.
        if let Ok(buffer) = Buffer::parse(&bytes) {
            for part in buffer.parts() {
                trace.add(Source::Kernel, &part.entries());
                trace.parts_with_losses += u64::from(part.has_wrapped());
            }
        }
        self.clear(timeout)?;
        Ok(trace)
    }

    /// Zeros are what tells parts that have been written over.
    fn clear(&self, timeout: Duration) -> Result<()> {
        self.stream.fill(&self.buffer, 0)?.wait(timeout).map(drop)
    }
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
