//! One open device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{
    Completion, FirmwareType, FirmwareVersionStatus, KernelAbortStatus, Version,
};
use et_hal::{Hal, Mailbox, Reset, ResetScope, ResetState};

use crate::boot;
use crate::command::Wire;
use crate::config::{Config, Drain};
use crate::event::Event;
use crate::executor::{DeviceExecutor, ExecutorConfig, RunError};
use crate::handshake::Parker;
use crate::kernel::{Kernel, KernelImage, KernelInner};
use crate::memory::{DeviceBuffer, HostBuffer, MemoryStats};
use crate::profile::Profiler;
use crate::properties::Properties;
use crate::shared::{Counters, Shared};
use crate::stream::Stream;
use crate::{Error, Result};

/// An open device.
///
/// It owns the drain thread and what belongs to the device as a whole; memory, streams and kernels come from here and stay
/// usable from any thread. There are no globals: a process may open as many devices as it has.
///
/// # Life
///
/// Opening waits for boot, checks the registers and the firmware's version, and aborts what a previous user left.
/// Closing, by [`close`](Device::close) or by dropping, refuses new work, gives work in flight
/// [`Config::shutdown_timeout`] to end, aborts the rest, and joins the thread. Handles that outlive the device answer
/// [`Error::Closed`]; those from before a [`reset`](Device::reset), [`Error::Stale`].
pub struct Device<H: Hal> {
    shared: Arc<Shared<H>>,
    thread: Option<JoinHandle<()>>,
    version: Version,
    default_stream: Stream<H>,
}

impl<H: Hal> fmt::Debug for Device<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("version", &self.version).finish_non_exhaustive()
    }
}

impl<H: Hal> Device<H> {
    /// Opens the device behind `hal` with default options.
    ///
    /// # Errors
    /// [`Error::Boot`]; [`Error::Registers`]; [`Error::Version`]; [`Error::Hal`].
    pub fn open(hal: H) -> Result<Self> {
        Self::open_with(hal, Config::new())
    }

    /// Opens the device behind `hal`.
    ///
    /// # Errors
    /// As [`open`](Device::open).
    pub fn open_with(hal: H, config: Config) -> Result<Self> {
        Self::start(Arc::new(hal), config)
    }

    fn start(hal: Arc<H>, config: Config) -> Result<Self> {
        let (shared, version) = boot::open(hal, config)?;
        let shared = Arc::new(shared);
        let thread = match shared.config.drain {
            Drain::Caller => None,
            Drain::Thread => {
                let shared = Arc::clone(&shared);
                let builder = std::thread::Builder::new().name("et-drain".into());
                let spawned = builder.spawn(move || shared.run_drain_thread());
                Some(spawned.map_err(|error| Error::Hal {
                    op: "starting the drain thread",
                    kind: et_hal::ErrorKind::Exhausted(et_hal::Resource::Handles),
                    source: Arc::new(error),
                })?)
            }
        };
        let default_stream = Stream::new(&shared);
        Ok(Self { shared, thread, version, default_stream })
    }

    /// Returns what the device says about itself.
    #[must_use]
    pub fn properties(&self) -> Properties {
        Properties::new(&self.shared.layout, self.version)
    }

    /// Asks for the version of a firmware.
    ///
    /// # Errors
    /// [`Error::Refused`] if the device does not know it; [`Error::Timeout`].
    ///
    /// Spec: §7.3
    pub fn firmware_version(&self, firmware: FirmwareType) -> Result<Version> {
        let op = "firmware version query";
        let deadline = self.shared.deadline(self.shared.config.command_timeout);
        let wire = Wire::FirmwareVersion(firmware);
        match self.shared.call(0, CommandFlags::EMPTY, &wire, op, deadline)? {
            Completion::FirmwareVersion {
                status: FirmwareVersionStatus::Success, version, ..
            } => Ok(version),
            Completion::FirmwareVersion { status, .. } => {
                Err(Error::Refused { op, status: status.to_string().into() })
            }
            other => Err(Error::Lost { why: format!("answer to a {op} is {other:?}").into() }),
        }
    }

    /// Allocates device memory, aligned to 64 bytes. Its contents are undefined.
    ///
    /// # Errors
    /// [`Error::Memory`], with what was asked, what is free and the largest block.
    pub fn alloc(&self, len_bytes: u64) -> Result<DeviceBuffer> {
        self.alloc_aligned(len_bytes, 64)
    }

    /// Allocates device memory at a multiple of `align` bytes, a power of two.
    ///
    /// # Errors
    /// As [`alloc`](Device::alloc).
    pub fn alloc_aligned(&self, len_bytes: u64, align: u64) -> Result<DeviceBuffer> {
        if let Some(error) = self.shared.refusal() {
            return Err(error);
        }
        self.shared.memory.alloc(len_bytes, align)
    }

    /// Returns how much device memory is used and free.
    #[must_use]
    pub fn memory_stats(&self) -> MemoryStats {
        self.shared.memory.stats()
    }

    /// Allocates host memory that the device reaches directly; zeroed.
    ///
    /// # Errors
    /// [`Error::Hal`].
    pub fn host_buffer(&self, len_bytes: usize) -> Result<HostBuffer<H>> {
        self.shared.host_buffer(len_bytes)
    }

    /// Returns the stream that is always there.
    #[must_use]
    pub fn default_stream(&self) -> &Stream<H> {
        &self.default_stream
    }

    /// Makes a stream.
    #[must_use]
    pub fn stream(&self) -> Stream<H> {
        Stream::new(&self.shared)
    }

    /// Loads a kernel: checks the ELF file, places and relocates it, and copies it to the device.
    ///
    /// # Errors
    /// [`Error::Elf`], with nothing sent; [`Error::Memory`]; those of [`Stream::copy_to_device`].
    ///
    /// Spec: §13
    pub fn load_kernel(&self, name: &str, elf: &[u8]) -> Result<Kernel> {
        self.load_kernel_entry(name, elf, None)
    }

    /// Loads a kernel whose entry is the function `entry` instead of the ELF file's own.
    ///
    /// # Errors
    /// As [`load_kernel`](Device::load_kernel).
    pub fn load_kernel_entry(&self, name: &str, elf: &[u8], entry: Option<&str>) -> Result<Kernel> {
        let image = KernelImage::parse(elf)?;
        let entry = image.entry(entry)?;
        let align = image.align_bytes().max(4096);
        let code = self.alloc_aligned(image.span_bytes(), align)?;
        let bytes = image.place(code.addr());
        let timeout = self.shared.config.command_timeout;
        self.default_stream.copy_to_device(&bytes, &code)?.wait(timeout)?;
        let inner = KernelInner::new(name, elf.into(), &image, entry, code);
        Ok(Kernel { inner: Arc::new(inner) })
    }

    /// Aborts one launch; its event fails with [`Error::Launch`] and the state of every hart. Other work goes on.
    ///
    /// # Errors
    /// [`Error::KernelAbort`] if the launch is not running (any more); [`Error::Timeout`].
    ///
    /// Spec: §10.2
    pub fn abort_launch(&self, event: &Event, timeout: Duration) -> Result<()> {
        self.shared.abort_launch(event, timeout)
    }

    /// Takes what has arrived, without waiting; returns the number of messages. For [`Drain::Caller`].
    pub fn poll(&self) -> usize {
        self.shared.poll_now()
    }

    /// Returns counts of oddities.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Makes an executor for graphs that use this device.
    ///
    /// # Errors
    /// As [`DeviceExecutor::new`].
    pub fn executor(&self, config: &ExecutorConfig) -> Result<DeviceExecutor<H>, RunError> {
        DeviceExecutor::new(self, config)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<H>> {
        &self.shared
    }

    /// Returns the recorder of the device.
    #[must_use]
    pub fn profiler(&self) -> &Profiler {
        &self.shared.profiler
    }

    /// Returns the backend.
    #[must_use]
    pub fn hal(&self) -> &H {
        &self.shared.hal
    }

    /// Resets the compute cores: aborts everything, then restarts them. Memory and kernels stay; work in flight fails
    /// with an abort.
    ///
    /// # Errors
    /// [`Error::Refused`] if they did not come back; [`Error::Timeout`].
    ///
    /// Spec: §10.3
    pub fn reset_compute(&self, timeout: Duration) -> Result<()> {
        let shared = &self.shared;
        let deadline = shared.deadline(timeout);
        for queue in 0..shared.queues.len() {
            shared.send_high(queue, CommandFlags::EMPTY, &Wire::Abort, deadline)?;
        }
        let op = "compute reset";
        match shared.send_high(0, CommandFlags::EMPTY, &Wire::CmReset, deadline)? {
            Completion::CmReset { status: et_devapi::msg::ops::CmResetStatus::Success, .. } => {
                shared.set_compute_down(None);
                Ok(())
            }
            Completion::CmReset { status, .. } => {
                Err(Error::Refused { op, status: status.to_string().into() })
            }
            other => Err(Error::Lost { why: format!("answer to a {op} is {other:?}").into() }),
        }
    }

    /// Resets the whole device through the bus and opens it again. Works on a device that does not answer any more.
    ///
    /// Every stream, buffer, kernel and event of before is stale; work in flight fails with [`Error::Stale`].
    ///
    /// # Errors
    /// [`Error::Hal`] if the backend cannot reset; [`Error::Timeout`]; those of [`open`](Device::open). After an error the
    /// device is closed, but a reset may be tried again.
    pub fn reset(&mut self, timeout: Duration) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        self.stop(&Error::Stale, Duration::ZERO);
        let deadline = shared.deadline(timeout);
        let hal = Arc::clone(&shared.hal);
        let mut control = hal.reset().map_err(Error::hal("resetting the device"))?;
        control.begin(ResetScope::Function).map_err(Error::hal("resetting the device"))?;
        let parker = Parker::new();
        loop {
            match control.poll().map_err(Error::hal("resetting the device"))? {
                ResetState::Done(_) => break,
                ResetState::InProgress => {}
            }
            let left = deadline.left(&*shared.config.clock);
            if left.is_zero() {
                return Err(Error::Timeout { op: "reset", after: timeout });
            }
            parker.park_timeout(Duration::from_micros(100).min(left));
        }
        drop(control);
        shared.end_quarantine();
        let config = shared.config.clone();
        drop(shared);
        *self = Self::start(hal, config)?;
        Ok(())
    }

    /// Closes the device; returns when nothing of it runs any more.
    pub fn close(mut self) {
        let timeout = self.shared.config.shutdown_timeout;
        self.stop(&Error::Closed, timeout);
    }

    /// Refuses new work, waits for what is in flight, aborts what remains, and joins the thread.
    fn stop(&mut self, why: &Error, timeout: Duration) {
        let shared = &self.shared;
        let thread = self.thread.take();
        let was_open = shared.refusal().is_none();
        let idle = || shared.gate.work().in_flight() == 0;
        if was_open
            && !timeout.is_zero()
            && !shared.wait_until(&idle, None, shared.deadline(timeout))
        {
            tracing::warn!("closing with work in flight");
            let deadline = shared.deadline(timeout);
            for queue in 0..shared.queues.len() {
                let aborted = shared.send_high(queue, CommandFlags::EMPTY, &Wire::Abort, deadline);
                if aborted.is_err() {
                    break;
                }
            }
            shared.wait_until(&idle, None, deadline);
        }
        shared.fail_everything(why);
        shared.run_callbacks();
        shared.gate.close();
        shared.mailbox.wake();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the drain thread panicked");
        }
    }
}

impl<H: Hal> Drop for Device<H> {
    fn drop(&mut self) {
        if self.shared.refusal().is_none() || self.thread.is_some() {
            let timeout = self.shared.config.shutdown_timeout;
            self.stop(&Error::Closed, timeout);
        }
    }
}

impl<H: Hal> Stream<H> {
    /// Aborts the operations of this stream, and waits until all of them are done.
    ///
    /// The device can only abort a whole submission queue (Spec: §10.1). While another stream has work in it, launches are
    /// aborted one by one instead, and copies, which cannot be, run to their end.
    ///
    /// # Errors
    /// [`Error::Timeout`]; those of [`Error`] that say the device is gone.
    pub fn abort(&self, timeout: Duration) -> Result<()> {
        let (shared, lane) = (&self.inner.shared, &self.inner.lane);
        let deadline = shared.deadline(timeout);
        lane.aborting.store(true, Ordering::Release);
        let outcome = self.abort_until(deadline);
        lane.aborting.store(false, Ordering::Release);
        outcome.map_err(|error| match error {
            Error::Timeout { .. } => Error::Timeout { op: "stream abort", after: timeout },
            error => error,
        })
    }

    fn abort_until(&self, deadline: crate::clock::Deadline) -> Result<()> {
        let (shared, lane) = (&self.inner.shared, &self.inner.lane);
        self.inner.drop_deferred();
        let is_done = || lane.operations.load(Ordering::Acquire) == 0;
        let mut asked = None;
        while !is_done() {
            let (mut in_queue, mut own) = (0u32, 0u32);
            shared.table.for_each(|_, command| {
                if command.queue == lane.queue {
                    in_queue += 1;
                    let is_own =
                        command.operation.as_ref().is_some_and(|it| Arc::ptr_eq(&it.lane, lane));
                    own += u32::from(is_own);
                }
            });
            if own != 0 && in_queue == own {
                shared.send_high(lane.queue, CommandFlags::EMPTY, &Wire::Abort, deadline)?;
            } else if let Some(tag) = shared.running_launch(lane).filter(|tag| asked != Some(*tag))
            {
                let other = (0..shared.queues.len()).rev().find(|&queue| queue != lane.queue);
                let wire = Wire::KernelAbort(tag);
                let queue = other.unwrap_or(lane.queue);
                let op = "kernel abort";
                let answer = shared.call(queue, CommandFlags::EMPTY, &wire, op, deadline)?;
                // A launch that waits for its turn is not known yet; it is asked for again.
                if matches!(
                    answer,
                    Completion::KernelAbort { status: KernelAbortStatus::Success, .. }
                ) {
                    asked = Some(tag);
                }
            }
            let left = deadline.left(&*shared.config.clock).min(Duration::from_millis(1));
            shared.wait_until(&is_done, None, shared.deadline(left));
            if deadline.has_passed(&*shared.config.clock) && !is_done() {
                return Err(shared
                    .refusal()
                    .unwrap_or(Error::Timeout { op: "stream abort", after: deadline.limit() }));
            }
        }
        Ok(())
    }
}

impl<H: Hal> Shared<H> {
    /// See [`Device::abort_launch`].
    pub(crate) fn abort_launch(&self, event: &Event, timeout: Duration) -> Result<()> {
        let Some(tag) = event.operation().tag() else {
            return Err(Error::KernelAbort(KernelAbortStatus::InvalidTagId));
        };
        // On another queue, since the launch's own may be blocked by the next kernel.
        let own = event.operation().lane.queue;
        let other = (0..self.queues.len()).rev().find(|&queue| queue != own);
        let queue = other.unwrap_or(own);
        let deadline = self.deadline(timeout);
        let op = "kernel abort";
        let wire = Wire::KernelAbort(tag);
        loop {
            match self.call(queue, CommandFlags::EMPTY, &wire, op, deadline)? {
                Completion::KernelAbort { status: KernelAbortStatus::Success, .. } => return Ok(()),
                // The device does not know a launch before its kernel has the cores (Spec: §10.2).
                Completion::KernelAbort { status: KernelAbortStatus::InvalidTagId, .. }
                    if !event.is_done() && !deadline.has_passed(&*self.config.clock) =>
                {
                    let pause = self.deadline(Duration::from_micros(100));
                    self.wait_until(&|| event.outcome().is_some(), None, pause);
                }
                Completion::KernelAbort { status, .. } => return Err(Error::KernelAbort(status)),
                other => {
                    return Err(Error::Lost {
                        why: format!("answer to a {op} is {other:?}").into(),
                    });
                }
            }
        }
    }
}
