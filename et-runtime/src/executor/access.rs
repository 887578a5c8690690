//! What executors use of the rest of the crate that is not public.
//!
//! All of it is here, so that the places depend on streams and events only. Nothing here waits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use et_devapi::dir::{OpsRegion, Region};
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{Completion, KernelAbortStatus};
use et_hal::{AccessPath, Bar, BarOffset, Hal, Mmio};

use crate::clock::Clock;
use crate::command::{InFlight, Pending, Then, Wire};
use crate::config::Drain;
use crate::event::{Event, Transfer};
use crate::graph::HostData;
use crate::handshake::Cell;
use crate::memory::{DeviceMemory, DeviceSlice, HostBuffer};
use crate::shared::Shared;
use crate::stream::Stream;
use crate::{Device, Error, Result};

/// A device, as executors see it.
pub(super) struct Access<H: Hal> {
    shared: Arc<Shared<H>>,
}

// Not derived, which would ask for `H: Clone`.
impl<H: Hal> Clone for Access<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H: Hal> Access<H> {
    pub(super) fn new(device: &Device<H>) -> Self {
        Self { shared: Arc::clone(device.shared()) }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.config.clock
    }

    pub(super) fn now(&self) -> Duration {
        self.shared.now()
    }

    pub(super) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.shared.memory
    }

    pub(super) fn stream(&self) -> Stream<H> {
        Stream::new(&self.shared)
    }

    /// Shires that kernels can run on.
    pub(super) fn shires(&self) -> u64 {
        self.shared.available_shires()
    }

    /// Why nothing can be sent to the device, if so.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.shared.refusal()
    }

    /// Frequency of the cores; `None` if the registers do not say.
    pub(super) fn mhz(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.shared.layout.mgmt.header.minion_boot_freq.get())
    }

    /// Returns `true` if nothing takes responses but who asks for them.
    pub(super) fn must_poll(&self) -> bool {
        self.shared.config.drain == Drain::Caller
    }

    /// Takes the responses that have come, if nothing else does.
    pub(super) fn poll(&self) {
        if self.must_poll() {
            self.shared.poll_now();
        }
    }

    /// Where the device leaves the contexts of harts that trap in a launch, once it is sent.
    pub(super) fn exceptions(event: &Event) -> Option<DeviceSlice> {
        event.operation().exceptions.get().cloned()
    }

    /// A copy of device memory to the host that is looked at later.
    pub(super) fn fetch(&self, stream: &Stream<H>, from: DeviceSlice) -> Result<Transfer<H>> {
        let len = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
        stream.copy_to_host_buffer(from, self.shared.host_buffer(len)?)
    }

    /// Takes what a fetch that has ended has brought.
    pub(super) fn take(&self, transfer: Transfer<H>, into: &mut [u8]) -> Result<()> {
        self.receive(transfer, |buffer| buffer.copy_out(0, into))
    }

    /// The same, into the bytes of a graph.
    pub(super) fn take_into(&self, transfer: Transfer<H>, into: &HostData) -> Result<()> {
        self.receive(transfer, |buffer| into.with_mut(|bytes| buffer.copy_out(0, bytes)))
    }

    fn receive(
        &self,
        transfer: Transfer<H>,
        copy: impl FnOnce(&HostBuffer<H>) -> Result<()>,
    ) -> Result<()> {
        let buffer = transfer.wait(Duration::ZERO).map_err(|error| error.error)?;
        buffer.sync_for_cpu(self.shared.hal.dma())?;
        copy(&buffer)
    }

    /// Opens the window on device memory; `None` unless the registers let the host use it.
    pub(super) fn window(&self) -> Option<Window<H>> {
        let region: Region = *self.shared.layout.ops.region(OpsRegion::HostManaged)?;
        let window = self.shared.hal.window(Bar::new(region.bar)?).ok()?;
        let origin = region.bar_offset.wrapping_sub(region.device_addr.as_u64());
        let path = window.path(BarOffset::new(region.bar_offset), region.len_bytes);
        (path == AccessPath::Direct).then_some(Window { mmio: window, origin })
    }

    /// Asks the device to stop a launch.
    pub(super) fn request_abort(&self, launch: &Event) -> Abort {
        let mut abort = Abort { launch: launch.clone(), reply: None, again_at: Duration::ZERO };
        abort.ask(self);
        abort
    }

    /// Resets the cores, because they do not heed an abort. Done by a thread of its own, since it
    /// takes seconds.
    pub(super) fn request_compute_reset(&self, limit: Duration) {
        let shared = Arc::clone(&self.shared);
        let reset = move || {
            let deadline = shared.deadline(limit);
            let high = |queue, wire| shared.send_high(queue, CommandFlags::EMPTY, wire, deadline);
            let aborted =
                (0..shared.queues.len()).try_for_each(|queue| high(queue, &Wire::Abort).map(drop));
            match aborted.and_then(|()| high(0, &Wire::CmReset)) {
                Ok(_) => tracing::info!("compute was reset"),
                Err(error) => tracing::error!(%error, "compute cannot be reset"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("et-compute-reset".into()).spawn(reset)
        {
            tracing::error!(%error, "no thread to reset compute");
        }
    }
}

/// Device memory as the host sees it without messages.
pub(super) struct Window<H: Hal> {
    pub(super) mmio: H::Mmio,
    /// Where device address 0 would be in it.
    origin: u64,
}

impl<H: Hal> Window<H> {
    /// Where an address is.
    pub(super) fn at(&self, addr: u64) -> BarOffset {
        BarOffset::new(addr.wrapping_add(self.origin))
    }
}

/// An abort of a launch, on its way.
pub(super) struct Abort {
    launch: Event,
    reply: Option<Arc<Cell<Completion>>>,
    again_at: Duration,
}

/// The device does not know a launch before its kernel has the cores (Spec: §10.2): it is asked
/// again so much later.
const AGAIN: Duration = Duration::from_millis(1);

impl Abort {
    fn ask<H: Hal>(&mut self, access: &Access<H>) {
        let shared = &access.shared;
        self.again_at = access.now().saturating_add(AGAIN);
        let Some(tag) = self.launch.operation().tag() else { return };
        // On another queue, since the launch's own may be blocked by the next kernel.
        let own = self.launch.operation().lane.queue;
        let queue = (0..shared.queues.len()).rev().find(|&queue| queue != own).unwrap_or(own);
        let reply = Arc::new(Cell::new());
        let then = Then::Reply(Arc::clone(&reply));
        let payload = InFlight { operation: None, queue, then, sent: Duration::ZERO };
        let wire = Wire::KernelAbort(tag);
        shared.post(queue, Pending { flags: CommandFlags::EMPTY, wire, payload });
        self.reply = Some(reply);
    }

    /// Looks what the device says; the error is its refusal. Asks again if it does not know the
    /// launch yet.
    fn poll<H: Hal>(&mut self, access: &Access<H>) -> std::result::Result<Answer, String> {
        let answer = self.reply.as_ref().and_then(|reply| reply.get());
        match answer {
            None if self.reply.is_some() => Ok(Answer::None),
            None
            | Some(Completion::KernelAbort { status: KernelAbortStatus::InvalidTagId, .. }) => {
                if access.now() >= self.again_at {
                    self.reply = None;
                    self.ask(access);
                }
                Ok(Answer::Unknown)
            }
            Some(Completion::KernelAbort { status: KernelAbortStatus::Success, .. }) => {
                Ok(Answer::Accepted)
            }
            Some(Completion::KernelAbort { status, .. }) => Err(status.to_string()),
            Some(other) => Err(format!("it answers {other:?}")),
        }
    }
}

/// What the device says of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    None,
    /// It waits for its turn in a queue, or has just ended.
    Unknown,
    Accepted,
}

/// A launch that is told to end: by an abort, and if the device says that it does so and does not,
/// by a reset of the cores.
pub(super) struct Stop {
    abort: Abort,
    limit: Duration,
    until: Duration,
    is_given_up: bool,
}

impl Stop {
    /// Asks for the abort, which may take as long as the limit.
    pub(super) fn new<H: Hal>(access: &Access<H>, launch: &Event, limit: Duration) -> Self {
        let until = access.now().saturating_add(limit);
        Self { abort: access.request_abort(launch), limit, until, is_given_up: false }
    }

    /// Returns `true` once the launch is given up: no abort ends it. That is said, and the cores
    /// are reset, once.
    pub(super) fn poll<H: Hal>(&mut self, access: &Access<H>) -> bool {
        if self.is_given_up || self.abort.launch.outcome().is_some() {
            return self.is_given_up;
        }
        let now = access.now();
        let why = match self.abort.poll(access) {
            Ok(Answer::Unknown) => {
                // Whatever has the cores is none of ours.
                self.until = now.saturating_add(self.limit);
                return false;
            }
            Ok(_) if now < self.until => return false,
            Ok(_) => format!("it has not ended after {:?}", self.limit),
            Err(why) => why,
        };
        let launch = self.abort.launch.id();
        tracing::warn!(why, launch, "a kernel cannot be aborted; resetting compute");
        access.request_compute_reset(self.limit);
        self.is_given_up = true;
        true
    }
}
