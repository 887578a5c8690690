//! Traces of the firmware.

use std::fmt;
use std::time::Duration;

use et_devapi::abi::{CM_TRACE_BYTES, EXCEPTION_ENTRIES, MASTER_SHIRE, MM_TRACE_BYTES};
use et_devapi::msg::ops::{
    Body, Command, TraceConfigStatus, TraceControl, TraceControlStatus, TraceRtConfig,
    TraceRuntimes,
};
use et_devapi::trace::{Cursor, Layout};
use et_hal::Hal;

use super::{Source, Trace, level};
use crate::link::Wire;
use crate::sync::{Arc, AtomicU8, Ordering};
use crate::{Device, Error, Refusal, Result, Stream};

/// What firmware is to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirmwareTraceConfig {
    /// Shires that trace; bit 32 is the master shire, whose lower harts dispatch commands.
    pub shire_mask: u64,
    /// Harts of each.
    pub thread_mask: u64,
    /// Kinds of entries. Spec: §16.2
    pub event_mask: u32,
    /// Highest level of texts: 0 critical, 1 error, 2 warning, 3 info, 4 debug. `None` for what the
    /// log lets through at the target `et::firmware` when it is configured; everything, if
    /// `tracing` has no subscriber.
    pub level: Option<u8>,
    /// Bytes of a part at which the device sends an event, which
    /// [`Counters`](crate::Counters) count; 0 for a full part.
    pub threshold: u32,
}

impl FirmwareTraceConfig {
    /// All kinds of entries, texts as far as the log lets them through, on the master minion and
    /// all harts of the shires of `shire_mask`.
    #[must_use]
    pub const fn new(shire_mask: u64) -> Self {
        Self {
            shire_mask: shire_mask | 1 << MASTER_SHIRE,
            thread_mask: u64::MAX,
            event_mask: u32::MAX,
            level: None,
            threshold: 0,
        }
    }
}

/// A reader of what firmware traces, who gets each entry once.
pub struct FirmwareTrace<H: Hal> {
    stream: Stream<H>,
    master: Cursor,
    compute: Vec<Cursor>,
    frequency_mhz: Option<u32>,
    /// The highest level of texts that firmware was asked for.
    // Relaxed: a number that orders nothing.
    asked: Arc<AtomicU8>,
}

impl<H: Hal> fmt::Debug for FirmwareTrace<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirmwareTrace").finish_non_exhaustive()
    }
}

/// Bytes of the buffer of the master minion, and of both. Spec: §8
const MASTER_BYTES: usize = 0x10_0000;
pub(crate) const FIRMWARE_BYTES: usize = MASTER_BYTES + 0x82_0000;
const _: () = assert!(MASTER_BYTES as u64 == MM_TRACE_BYTES);
const _: () = assert!(FIRMWARE_BYTES as u64 == MM_TRACE_BYTES + CM_TRACE_BYTES);

/// Cuts both buffers, as they are fetched.
pub(super) fn halves(bytes: &[u8]) -> [(Source, &[u8], Layout); 2] {
    let (master, compute) = bytes.split_at(MASTER_BYTES.min(bytes.len()));
    [(Source::MasterMinion, master, Layout::MASTER), (Source::Compute, compute, Layout::COMPUTE)]
}

impl<H: Hal> FirmwareTrace<H> {
    fn new(device: &Device<H>) -> Self {
        Self {
            stream: device.stream(),
            master: Cursor::new(),
            compute: vec![Cursor::new(); EXCEPTION_ENTRIES],
            frequency_mhz: device.properties().boot_frequency_mhz,
            asked: Arc::clone(&device.link().firmware_level),
        }
    }

    /// Fetches both buffers, 9 MiB, and returns what is new.
    ///
    /// A part that firmware has gone through more than once since the last call has losses, which
    /// the trace says, as it does of a buffer whose header was overwritten.
    ///
    /// # Errors
    /// Those of [`Stream::download`].
    pub fn read(&mut self, timeout: Duration) -> Result<Trace> {
        let bytes = self.stream.fetch_firmware_trace(timeout)?;
        let most = self.asked.load(Ordering::Relaxed);
        let mut trace = Trace::of_level(self.frequency_mhz, most);
        let cursors = [std::slice::from_mut(&mut self.master), &mut self.compute];
        for ((source, bytes, layout), cursors) in halves(&bytes).into_iter().zip(cursors) {
            let buffer = trace.buffer(bytes, layout);
            for (part, cursor) in buffer.parts().zip(cursors) {
                trace.add_news(source, &cursor.advance(&part));
            }
        }
        Ok(trace)
    }

    /// Fetches what is new, and [logs](Trace::log) it. Returns the number of entries.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn log(&mut self, timeout: Duration) -> Result<usize> {
        let trace = self.read(timeout)?;
        trace.log();
        Ok(trace.entries().count())
    }
}

impl<H: Hal> Device<H> {
    /// Makes a reader of what firmware traces: everything that is there now is new to it.
    #[must_use]
    pub fn firmware_trace(&self) -> FirmwareTrace<H> {
        FirmwareTrace::new(self)
    }

    /// Sets what firmware traces.
    ///
    /// # Errors
    /// [`Error::Refused`] for shires or harts that there are not; [`Error::Timeout`].
    ///
    /// Spec: §7.10
    pub fn configure_trace(&self, config: &FirmwareTraceConfig) -> Result<()> {
        let level = config.level.unwrap_or_else(level::of_firmware);
        let (event_mask, filter_mask) = level::masks(config.event_mask, level);
        let config = TraceRtConfig {
            shire_mask: config.shire_mask,
            thread_mask: config.thread_mask,
            event_mask,
            filter_mask,
            threshold: config.threshold,
        };
        let op = "trace configuration";
        match self.own_command(Command::TraceRtConfig(config), op)? {
            Body::TraceConfig { status: TraceConfigStatus::Success } => {
                self.link().firmware_level.store(level, Ordering::Relaxed);
                Ok(())
            }
            Body::TraceConfig { status } => {
                Err(Error::Refused { op, status: Refusal::TraceConfig(status) })
            }
            other => Err(Error::lost(format!("answer to a {op} is {other:?}"))),
        }
    }

    /// Switches the traces of firmware on, or off, and empties them.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Timeout`].
    ///
    /// Spec: §7.11
    pub fn reset_trace(&self, runtimes: TraceRuntimes, control: TraceControl) -> Result<()> {
        let op = "trace control";
        let control = control.with(TraceControl::RESET);
        match self.own_command(Command::TraceRtControl { runtimes, control }, op)? {
            Body::TraceControl { status: TraceControlStatus::Success } => Ok(()),
            Body::TraceControl { status } => {
                Err(Error::Refused { op, status: Refusal::TraceControl(status) })
            }
            other => Err(Error::lost(format!("answer to a {op} is {other:?}"))),
        }
    }

    fn own_command(&self, command: Command<'static>, op: &'static str) -> Result<Body> {
        let link = self.link();
        link.call(Wire::Plain(command), op, link.deadline(link.config.command_timeout))
    }
}
