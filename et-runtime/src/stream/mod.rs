//! Queues of operations.

mod copy;
mod download;
mod forward;
mod launch;
mod list;
mod map;
mod peer;

use std::fmt;
use std::time::Duration;

use et_hal::Hal;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::event::{Event, Transfer};
use crate::kernel::{Launch, check_pattern};
use crate::link::core::Command;
use crate::link::{
    Driver, Keep, Link, Load, Operation, Priority, StreamError, StreamErrors, StreamKey,
    Submission, Wire,
};
use crate::memory::{Access, ArraySlice, DeviceSlice, HostBuffer};
use crate::profile::Returned;
use crate::sync::Arc;
use crate::{Error, Result};

pub use forward::{Forwarded, ForwardedLaunch, LaunchAnswer};
pub use map::{MapPath, Mapping, UnmapError};

/// One copy of a [list](Stream::copy_list).
#[derive(Debug)]
pub enum ListedCopy<'a> {
    /// Host to device; both sides have the same length.
    ToDevice(&'a [u8], DeviceSlice),
    /// Device to device.
    OnDevice(DeviceSlice, DeviceSlice),
}

/// Options of a stream.
///
/// ```
/// use et_runtime::{Priority, StreamOptions};
/// let options = StreamOptions::new().priority(Priority::High);
/// assert_ne!(options, StreamOptions::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    priority: Priority,
}

impl StreamOptions {
    /// Those of [`Device::stream`](crate::Device::stream).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how soon commands are sent when there is not room for all that are ready; `Normal` at
    /// first.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// An in-order queue of operations on a device.
///
/// An operation starts when all earlier ones of its stream have completed; operations of different
/// streams are not ordered and may overlap. Streams share the device's submission queues, but keep
/// their own order whatever else is in them.
///
/// An operation that has nothing to do, as a copy of no bytes, ends in its turn, too.
///
/// A stream may be used by several threads; operations are in the order of the calls. Dropping it
/// waits for nothing and loses nothing: what was accepted is done.
///
/// # What blocks
///
/// What takes or gives a plain slice blocks until the slice is the caller's again:
/// [`copy_to_device`](Self::copy_to_device) and [`copy_list`](Self::copy_list) until the bytes are
/// in staging memory, [`read`](Self::read) until they have arrived. What says "wait", as
/// [`synchronize`](Self::synchronize) and [`abort`](Self::abort), waits. Everything else returns as
/// soon as the operation is accepted, [`upload`](Self::upload) and [`download`](Self::download) of
/// whole host buffers too; that is at once unless the device's queue has no room.
pub struct Stream<H: Hal> {
    inner: Arc<Inner<H>>,
}

// Not derived, which would ask for `H: Clone`.
impl<H: Hal> Clone for Stream<H> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<H: Hal> {
    link: Arc<Link<H>>,
    key: StreamKey,
    number: u32,
}

impl<H: Hal> Drop for Inner<H> {
    fn drop(&mut self) {
        self.link.drop_stream(self.key, self.number);
    }
}

impl<H: Hal> fmt::Debug for Stream<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.inner.number).finish_non_exhaustive()
    }
}

impl<H: Hal> Stream<H> {
    pub(crate) fn new(link: &Arc<Link<H>>) -> Self {
        Self::with(link, &StreamOptions::new())
    }

    pub(crate) fn with(link: &Arc<Link<H>>, options: &StreamOptions) -> Self {
        let (key, number) = link.open_stream(options.priority);
        Self { inner: Arc::new(Inner { link: Arc::clone(link), key, number }) }
    }

    /// Returns the stream's number on its device.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.number
    }

    fn link(&self) -> &Arc<Link<H>> {
        &self.inner.link
    }

    fn begin(&self, name: &'static str) -> Result<Submission<'_, H>> {
        Submission::begin(&self.inner.link, self.inner.key, name)
    }

    /// Submits an operation of at most one command, which is ready.
    fn submit(&self, name: &'static str, command: Option<Command<Box<Load<H>>>>) -> Result<Event> {
        let operation = self.link().submit(self.inner.key, name, command)?;
        self.link().admit(operation.key, 1)?;
        Ok(self.event(operation))
    }

    /// Does a call of the interface.
    #[inline]
    fn call<T: Returned>(&self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let link = self.link();
        link.profiler.call(name, (Some(self.inner.number), None), call).during(name, &link.name)
    }

    fn event(&self, operation: Arc<Operation>) -> Event {
        Event::new(operation, Arc::clone(self.link()) as Arc<dyn Driver>)
    }

    /// Copies ordinary memory to the device. The data is taken before the call returns.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Misaligned`]; [`Error::ForeignBuffer`];
    /// [`Error::Usage`] if the buffer is not for that; [`Error::Hal`] if there is no host memory;
    /// [`Error::Timeout`] if nothing of the stream makes progress for the command timeout;
    /// [`Error::Aborted`] if the stream is aborted meanwhile; those of [`Error`] that say the
    /// device is gone.
    pub fn copy_to_device<T: IntoBytes + Immutable>(
        &self,
        from: &[T],
        to: impl Into<DeviceSlice>,
    ) -> Result<Event> {
        self.call("copy_to_device", || self.copy_staged(from.as_bytes(), &to.into()))
    }

    /// Copies device memory to ordinary memory, and waits for it.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device), and the failure of the copy itself.
    /// [`Error::Timeout`] after `timeout`, with `into` partly written.
    pub fn read<T: FromBytes + IntoBytes>(
        &self,
        from: impl Into<DeviceSlice>,
        into: &mut [T],
        timeout: Duration,
    ) -> Result<()> {
        self.call("read", || self.read_bytes(&from.into(), into.as_mut_bytes(), timeout))
    }

    /// Copies elements to all of an array on the device, or of a part of one. The data is taken
    /// before the call returns.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device).
    pub fn write<T: IntoBytes + Immutable>(
        &self,
        from: &[T],
        to: impl Into<ArraySlice<T>>,
    ) -> Result<Event> {
        self.copy_to_device(from, to.into())
    }

    /// Copies all elements of an array on the device, or of a part of one, and waits for it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec<T: FromBytes + IntoBytes>(
        &self,
        from: impl Into<ArraySlice<T>>,
        timeout: Duration,
    ) -> Result<Vec<T>> {
        let from = from.into();
        let mut elements: Vec<T> = (0..from.len()).map(|_| T::new_zeroed()).collect();
        self.read(from, &mut elements, timeout)?;
        Ok(elements)
    }

    /// Shows the host a part of device memory, as it is when the earlier operations of the stream
    /// have ended, which is waited for: through the BAR where the registers grant that
    /// ([`Properties::cpu_access`](crate::Properties::cpu_access)), else as a copy.
    ///
    /// With [`Access::Write`] nothing is fetched; all of it should be written then, since nothing
    /// says what the rest has afterwards. A part that is written has one mapping at a time. Kernels
    /// and copies are not kept from it.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Mapped`].
    pub fn map(
        &self,
        range: impl Into<DeviceSlice>,
        access: Access,
        timeout: Duration,
    ) -> Result<Mapping<H>> {
        self.call("map", || self.map_slice(range.into(), access, timeout))
    }

    /// Copies a host buffer to the device, without staging and without waiting.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); [`Error::Access`] if the host buffer is for the
    /// other direction. The buffer is lost with the error.
    pub fn upload(&self, from: HostBuffer<H>, to: impl Into<DeviceSlice>) -> Result<Transfer<H>> {
        self.call("upload", || self.direct_to_device(from, &[(0, to.into())]))
    }

    /// Copies device memory to a host buffer, without staging and without waiting.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); [`Error::Access`] if the host buffer is for the
    /// other direction. The buffer is lost with the error.
    pub fn download(&self, from: impl Into<DeviceSlice>, to: HostBuffer<H>) -> Result<Transfer<H>> {
        self.call("download", || self.direct_to_host(&[(0, from.into())], to))
    }

    /// Copies parts of a host buffer to the device, each from its byte offset, without staging and
    /// without waiting: as one operation, in as few commands as the device's limits for lists
    /// allow. The copies are not ordered among themselves.
    ///
    /// # Errors
    /// As [`upload`](Self::upload); [`Error::Misaligned`] for offsets, too.
    pub fn upload_list(
        &self,
        from: HostBuffer<H>,
        copies: &[(usize, DeviceSlice)],
    ) -> Result<Transfer<H>> {
        self.call("upload_list", || self.direct_to_device(from, copies))
    }

    /// Copies device memory to parts of a host buffer, each to its byte offset, as
    /// [`upload_list`](Self::upload_list). The rest of the buffer stays as it is.
    ///
    /// # Errors
    /// As [`download`](Self::download); [`Error::Misaligned`] for offsets, too.
    pub fn download_list(
        &self,
        copies: &[(usize, DeviceSlice)],
        to: HostBuffer<H>,
    ) -> Result<Transfer<H>> {
        self.call("download_list", || self.direct_to_host(copies, to))
    }

    /// Copies several pieces of device memory to ordinary memory, and waits for them: as
    /// [`read`](Self::read), but as one operation and with many small pieces in one command.
    ///
    /// # Errors
    /// As [`read`](Self::read). All copies are checked before the first is sent.
    pub fn read_list(
        &self,
        copies: &mut [(DeviceSlice, &mut [u8])],
        timeout: Duration,
    ) -> Result<()> {
        self.call("read_list", || self.read_all(copies, timeout))
    }

    /// Copies within the device's memory. The operations interface has no command for that, so the
    /// data goes through staging memory and never to the caller.
    /// [`Builtins::copy`](crate::kernel::Builtins::copy) has the cores do it instead.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); [`Error::Overlap`].
    pub fn copy_on_device(
        &self,
        from: impl Into<DeviceSlice>,
        to: impl Into<DeviceSlice>,
    ) -> Result<Event> {
        let list = [ListedCopy::OnDevice(from.into(), to.into())];
        self.call("copy_on_device", || self.copy_all("copy on device", &list))
    }

    /// Copies from this device to another, which the stream `peer` belongs to, without waiting.
    ///
    /// The copy has its place in both streams: it starts when the earlier operations of each have
    /// completed. Later ones of this stream wait until all has been read, later ones of `peer`
    /// until all has been written. The event belongs to `peer`, and is complete when all bytes are
    /// there; else it has failed, and the contents of `to` are undefined.
    ///
    /// The data goes through the host, in pieces, of which some are read while others are written.
    /// The card's own commands for copies between devices (Spec: §7.9) need the other card's BAR0
    /// at an address of the bus that its IOMMU lets it use, which no backend offers. With
    /// [`Drain::Caller`](crate::Drain::Caller) someone has to drain each of the two devices.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device), which then concerns `peer`; [`Error::Source`]
    /// if this device has failed; [`Error::Overlap`] if both are one. So it is with the event. Both
    /// devices give up their part then, and what follows in the two streams goes on.
    ///
    /// Spec: §8
    pub fn copy_to_peer<P: Hal>(
        &self,
        from: impl Into<DeviceSlice>,
        peer: &Stream<P>,
        to: impl Into<DeviceSlice>,
    ) -> Result<Event> {
        self.call("copy_to_peer", || self.relay(&from.into(), peer, &to.into()))
    }

    /// Does several copies as one operation; they are not ordered among themselves. Small ones
    /// share commands, as far as the device's limits for lists allow; large ones are divided.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device); [`Error::Overlap`]. All copies are checked
    /// before the first is sent.
    pub fn copy_list(&self, copies: &[ListedCopy<'_>]) -> Result<Event> {
        self.call("copy_list", || self.copy_all("copy list", copies))
    }

    /// Sets device memory to a byte.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device).
    pub fn fill(&self, to: impl Into<DeviceSlice>, byte: u8) -> Result<Event> {
        self.call("fill", || self.fill_with(&to.into(), &[byte]))
    }

    /// Sets device memory to a pattern of 1, 2, 4, 8 or 16 bytes, which begins at the first byte
    /// of `to` and is cut off at its end.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a pattern of another length; otherwise as
    /// [`copy_to_device`](Self::copy_to_device).
    pub fn fill_pattern(&self, to: impl Into<DeviceSlice>, pattern: &[u8]) -> Result<Event> {
        check_pattern(pattern)?;
        self.call("fill_pattern", || self.fill_with(&to.into(), pattern))
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// [`Error::ShireMask`]; [`Error::ArgumentsTooLarge`]; [`Error::ArgumentsMismatch`];
    /// [`Error::LaunchOption`]; [`Error::ForeignBuffer`]; [`Error::Memory`] if there is no device
    /// memory for arguments and exception buffer; [`Error::NeedsReset`] if compute is down; the
    /// failure of the copy that brought the kernel; otherwise as
    /// [`copy_to_device`](Self::copy_to_device). Nothing is sent then. The kernel's own failure
    /// comes with the event, as [`Error::Launch`].
    pub fn launch(&self, launch: &Launch) -> Result<Event> {
        self.call("launch", || self.start(launch))
    }

    /// Launches kernels, one after the other, as so many calls of [`launch`](Self::launch) do; but
    /// the commands go to the device together, with one lock and one doorbell for all of them.
    /// Each launch has an event of its own.
    ///
    /// ```no_run
    /// # // Runs in the tests of the conformance kit, which have kernels.
    /// # fn f<H: et_hal::Hal>(stream: &et_runtime::Stream<H>, kernel: &et_runtime::Kernel,
    /// # ) -> et_runtime::Result<()> {
    /// use et_runtime::Launch;
    /// let steps: Vec<_> = (0..16).map(|step| Launch::new(kernel).u64(step)).collect();
    /// let events = stream.launch_all(&steps)?;
    /// events[15].wait(std::time::Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`launch`](Self::launch). All launches are checked before the first is sent.
    pub fn launch_all(&self, launches: &[Launch]) -> Result<Vec<Event>> {
        self.call("launch_all", || self.start_all(launches))
    }

    /// Copies to the device, launches a kernel, and copies what it made to a host buffer, each copy
    /// to its byte offset: as one operation with one event, without a return to the host in
    /// between. The inputs are taken before the call returns; the rest of the buffer stays as it
    /// is.
    ///
    /// ```no_run
    /// # // Runs in the tests of the conformance kit, which have kernels.
    /// # fn f<H: et_hal::Hal>(device: &et_runtime::Device<H>, launch: &et_runtime::Launch,
    /// #     x: et_runtime::DeviceSlice, y: et_runtime::DeviceSlice, data: &[u8],
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let result = device.host_buffer(4096)?;
    /// let inputs = [(data, x)];
    /// let transfer = device.default_stream().launch_staged(&inputs, launch, &[(0, y)], result)?;
    /// let result = transfer.wait(std::time::Duration::from_secs(1))?;
    /// # drop(result);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`copy_list`](Self::copy_list), [`launch`](Self::launch) and
    /// [`download_list`](Self::download_list), all of which are checked before the first command is
    /// sent. If a part fails the operation fails with its error, and the outputs are undefined.
    pub fn launch_staged(
        &self,
        inputs: &[(&[u8], DeviceSlice)],
        launch: &Launch,
        outputs: &[(usize, DeviceSlice)],
        into: HostBuffer<H>,
    ) -> Result<Transfer<H>> {
        self.call("launch_staged", || self.start_staged(inputs, launch, outputs, into))
    }

    /// Returns an event that completes when everything before it has.
    ///
    /// # Errors
    /// Those of [`Error`] that say the device is gone.
    pub fn barrier(&self) -> Result<Event> {
        self.call("barrier", || {
            self.submit("barrier", Some(Command::new(Load::copy(Wire::ECHO, Keep::Nothing))))
        })
    }

    /// Makes later operations of this stream wait for an event of another, of this or any other
    /// device.
    ///
    /// This is about order only: if what the event stands for fails, the stream goes on.
    pub fn wait_for(&self, event: &Event) {
        self.call("wait_for", || self.put_behind(event));
    }

    fn put_behind(&self, event: &Event) {
        let (link, key) = (self.link(), self.inner.key);
        if event.outcome().is_some() {
            return;
        }
        if event.link_address() == link.address() {
            link.depend(key, event.operation().key);
            return;
        }
        let wait = link.add_wait(key);
        let link = Arc::downgrade(link);
        event.on_done_first(move |_| {
            if let Some(link) = link.upgrade() {
                link.fired(key, wait);
            }
        });
    }

    /// Waits until all operations of the stream are done, failed ones included.
    ///
    /// # Errors
    /// [`Error::Timeout`]; those of [`Error`] that say the device is gone.
    pub fn synchronize(&self, timeout: Duration) -> Result<()> {
        self.call("synchronize", || self.wait_idle("synchronize", timeout))
    }

    fn wait_idle(&self, op: &'static str, timeout: Duration) -> Result<()> {
        let link = self.link();
        if link.wait_idle(Some(self.inner.key), link.deadline(timeout)) {
            return Ok(());
        }
        Err(link.refusal().unwrap_or_else(|| Error::timeout(op, timeout)))
    }

    /// Returns `true` if all operations are done, without waiting.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.link().wait_idle(Some(self.inner.key), self.link().deadline(Duration::ZERO))
    }

    /// Takes what went wrong without anyone hearing of it: failures of operations whose events are
    /// gone and were never asked for the outcome, and panics of callbacks.
    ///
    /// An event that is still held can be asked, so its failure is not listed. Of a list that is
    /// not taken the first 64 are kept, and the others counted. The list is that of all handles of
    /// the stream.
    #[must_use]
    pub fn take_errors(&self) -> StreamErrors {
        self.link().take_errors(self.inner.number)
    }

    /// Has a function called with each error as it is [listed](Self::take_errors), before that of
    /// [`Device::on_error`](crate::Device::on_error); it stays in the list. Takes the place of an
    /// earlier one, and ends with the last handle of the stream: what fails later is the device's.
    ///
    /// It is called as callbacks of events are, and may use the device. If it panics, that is
    /// logged and [counted](crate::Counters::callback_panics).
    pub fn on_error(&self, callback: impl Fn(&StreamError) + Send + Sync + 'static) {
        self.link().listen_to(self.inner.number, Arc::new(callback));
    }

    /// Aborts the operations of this stream, sent or not, and waits until all of them are done.
    ///
    /// The device can only abort a whole submission queue (Spec: §10.1). What other streams have in
    /// it is sent again, in its order; only a kernel of theirs that was running fails, with
    /// [`Error::AbortedWith`].
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Unsupported`]; those of [`Error`] that say the device is gone.
    pub fn abort(&self, timeout: Duration) -> Result<()> {
        self.call("abort stream", || {
            self.link().abort_stream(self.inner.key)?;
            self.wait_idle("stream abort", timeout)
        })
    }
}
