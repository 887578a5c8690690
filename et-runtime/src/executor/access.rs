//! What executors use of the rest of the crate that is not public.
//!
//! All of it is here, so that the places depend on streams and events only. Nothing here waits.

use std::num::NonZeroU32;
use std::time::Duration;

use et_hal::{DeviceAccess, Hal};

use crate::clock::Clock;
use crate::config::Drain;
use crate::device;
use crate::event::{Event, Transfer};
use crate::graph::HostData;
use crate::link::{Harm, Link};
use crate::memory::{DeviceMemory, DeviceSlice, HostBuffer};
use crate::stream::Stream;
use crate::sync::Arc;
use crate::{Device, Error, Result};

pub(super) use crate::link::Window;

/// Firmware waits for 5 s until all cores have booted. Spec: §10.3
const RESET_LIMIT: Duration = Duration::from_secs(10);

/// A device, as executors see it.
pub(super) struct Access<H: Hal> {
    link: Arc<Link<H>>,
}

// Not derived, which would ask for `H: Clone`.
impl<H: Hal> Clone for Access<H> {
    fn clone(&self) -> Self {
        Self { link: Arc::clone(&self.link) }
    }
}

impl<H: Hal> Access<H> {
    pub(super) fn new(device: &Device<H>) -> Self {
        Self { link: Arc::clone(device.link()) }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.link.config.clock
    }

    pub(super) fn now(&self) -> Duration {
        self.link.now()
    }

    pub(super) fn device(&self) -> Arc<str> {
        Arc::clone(&self.link.name)
    }

    pub(super) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.link.memory
    }

    pub(super) fn stream(&self) -> Stream<H> {
        Stream::new(&self.link)
    }

    /// Shires that kernels can run on.
    pub(super) fn shires(&self) -> u64 {
        self.link.available_shires()
    }

    /// Where copies may begin and end.
    pub(super) fn copy_align(&self) -> u64 {
        self.link.copy_align()
    }

    /// Why nothing can be sent to the device, if so.
    pub(super) fn refusal(&self) -> Option<Error> {
        self.link.refusal()
    }

    /// Frequency of the cores; `None` if the registers do not say.
    pub(super) fn mhz(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.link.layout.mgmt.header.minion_boot_freq.get())
    }

    /// Returns `true` if nothing takes responses but who asks for them.
    pub(super) fn must_poll(&self) -> bool {
        self.link.config.drain == Drain::Caller
    }

    /// Takes the responses that have come, if nothing else does.
    pub(super) fn poll(&self) {
        if self.must_poll() {
            self.link.poll();
        }
    }

    /// Where the device leaves the contexts of harts that trap in a launch, while it has it.
    pub(super) fn exceptions(&self, event: &Event) -> Option<DeviceSlice> {
        self.link.exceptions(event.operation().key)
    }

    /// A copy of device memory to the host that is looked at later.
    pub(super) fn fetch(&self, stream: &Stream<H>, from: DeviceSlice) -> Result<Transfer<H>> {
        let len = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
        stream.download(from, self.link.host_buffer(len, DeviceAccess::Write)?)
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
        copy(&buffer)
    }

    /// Returns `true` if the registers let the host use device memory.
    pub(super) fn grants_cpu_access(&self) -> bool {
        self.link.grants_cpu_access()
    }

    /// Opens the window on device memory; `None` unless the host may use it, and is able to without
    /// messages.
    pub(super) fn window(&self) -> Option<Window<H>> {
        self.link.window()
    }

    /// Resets the cores, because they do not heed an abort. Done by a thread of its own, since it
    /// takes seconds.
    pub(super) fn request_compute_reset(&self) {
        let link = Arc::clone(&self.link);
        let reset = move || match link.reset_compute(link.deadline(RESET_LIMIT)) {
            Ok(()) => tracing::info!(device = %link.name, "compute was reset"),
            Err(error) => tracing::error!(device = %link.name, %error, "compute is not reset"),
        };
        if let Err(error) = std::thread::Builder::new().name("et-compute-reset".into()).spawn(reset)
        {
            tracing::error!(device = %self.link.name, %error, "no thread to reset compute");
        }
    }
}

/// A launch that is told to end: by an abort, and if that does not end it in time, by a reset of
/// the cores.
pub(super) struct Stop {
    launch: Event,
    /// Why the device could not even be asked.
    refusal: Option<Error>,
    limit: Duration,
    until: Duration,
    is_given_up: bool,
}

impl Stop {
    /// Asks for the abort, which may take as long as the limit.
    pub(super) fn new<H: Hal>(access: &Access<H>, launch: &Event, limit: Duration) -> Self {
        // One that has just ended needs none.
        let refusal = device::request_abort(&access.link, launch, Harm::Avoid)
            .err()
            .filter(|error| !matches!(error, Error::HasEnded { .. }));
        let until = access.now().saturating_add(limit);
        Self { launch: launch.clone(), refusal, limit, until, is_given_up: false }
    }

    /// Returns `true` once the launch is given up: no abort ends it. That is said, and the cores
    /// are reset, once.
    pub(super) fn poll<H: Hal>(&mut self, access: &Access<H>) -> bool {
        if self.is_given_up || self.launch.outcome().is_some() {
            return self.is_given_up;
        }
        if access.link.waits_for_a_kernel(self.launch.operation().key) {
            // Whatever has the cores is none of ours.
            self.until = access.now().saturating_add(self.limit);
        }
        let why = match self.refusal.take() {
            Some(error) => error.to_string(),
            None if access.now() < self.until => return false,
            None => format!("it has not ended after {:?}", self.limit),
        };
        let (device, launch) = (&*access.link.name, self.launch.id());
        tracing::warn!(device, launch, why, "a kernel cannot be aborted; resetting compute");
        access.request_compute_reset();
        self.is_given_up = true;
        true
    }
}
