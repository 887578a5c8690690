//! One open device.

pub(crate) mod open;
mod peer;
mod recover;
mod returned;

pub use peer::{NoPeer, PeerPath};
pub use recover::{Recovery, RecoveryError, RecoveryPolicy, RecoveryStep, Remedy};

use std::any::Any;
use std::fmt;
use std::ops::DerefMut;
use std::time::Duration;

use et_devapi::msg::ops::{Body, Command, FirmwareType, FirmwareVersionStatus, Version};
use et_hal::{
    DeviceAccess, DeviceAddr, Dma, Hal, Import, Reset, ResetScope, ResetState, StableDeref, Word,
};

use crate::config::{Config, Drain};
use crate::core_dump::CoreDump;
use crate::event::Event;
use crate::kernel::{
    BUILTIN_FILE, Builtins, Image, Images, Kernel, KernelImage, LaunchFailure, Module, failed,
    refused,
};
use crate::link::{Activity, Counters, DeviceError, DeviceErrors, Driver, ErrorLists, Harm, Link};
use crate::link::{Parker, Wire};
use crate::management;
use crate::memory::{
    BufferOptions, DeviceArray, DeviceBuffer, DeviceSlice, HostBuffer, ImportError, MemoryStats,
    TagStats, array_bytes,
};
use crate::profile::Profiler;
use crate::properties::Properties;
use crate::stream::{Stream, StreamOptions};
use crate::sync::{Arc, thread};
use crate::{Error, LoadError, OpenError, Refusal, Result};

fn not_imported<O, E: et_hal::Error>(refused: ImportError<O, E>) -> ImportError<O, Error> {
    let ImportError { owner, error } = refused;
    ImportError { owner, error: Error::hal("importing host memory")(error) }
}

/// An open device.
///
/// It owns the drain thread and what belongs to the device as a whole; memory, streams and kernels
/// come from here and stay usable from any thread. There are no globals: a process may open as many
/// devices as it has.
///
/// # Life
///
/// Opening waits for boot, checks the registers and the firmware's version, and aborts what a
/// previous user left. Closing, by [`close`](Device::close) or by dropping, refuses new work, gives
/// work in flight [`Config::shutdown_timeout`] to end, aborts the rest, and joins the thread.
/// Handles that outlive the device answer [`Error::Closed`]; those from before a
/// [`reset`](Device::reset), [`Error::Stale`].
pub struct Device<H: Hal> {
    link: Arc<Link<H>>,
    thread: Option<thread::JoinHandle<()>>,
    version: Version,
    default_stream: Stream<H>,
    /// Opened when it is first used.
    management: Arc<management::relay::Slot<H>>,
    /// Kernel files that are on the device.
    images: Images,
    /// What is to end with the device.
    attached: Vec<Box<dyn Any + Send + Sync>>,
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
    /// [`OpenError`].
    pub fn open(hal: H) -> Result<Self, OpenError> {
        Self::open_with(hal, Config::new())
    }

    /// Opens the device behind `hal`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_with(hal: H, config: Config) -> Result<Self, OpenError> {
        Self::start(Arc::new(hal), config, ErrorLists::default())
    }

    fn start(hal: Arc<H>, config: Config, errors: ErrorLists) -> Result<Self, OpenError> {
        let config = config.named_for(&*hal);
        let (link, version) = open::open(hal, config, errors)?;
        let link = Arc::new(link);
        let thread = match link.config.drain {
            Drain::Caller => None,
            Drain::Thread => {
                let link = Arc::clone(&link);
                let builder = thread::Builder::new().name("et-drain".into());
                let spawned = builder.spawn(move || link.run_background());
                Some(spawned.map_err(Error::no_thread("starting the drain thread"))?)
            }
        };
        link.errors.begin();
        let default_stream = Stream::new(&link);
        let management = Arc::<management::relay::Slot<H>>::default();
        management.serve(&link);
        let images = Images::default();
        let attached = Vec::new();
        Ok(Self { link, thread, version, default_stream, management, images, attached })
    }

    /// Returns what the device says about itself.
    #[must_use]
    pub fn properties(&self) -> Properties {
        let mut properties =
            Properties::new(&self.link.layout, self.version, self.link.hal.identity());
        properties.dma_align_bytes = self.link.copy_align();
        properties
    }

    /// Asks for the version of a firmware.
    ///
    /// # Errors
    /// [`Error::Refused`] if the device does not know it; [`Error::Timeout`]; those of [`Error`]
    /// that say the device is gone.
    ///
    /// Spec: §7.3
    pub fn firmware_version(&self, firmware: FirmwareType) -> Result<Version> {
        let op = "firmware version query";
        let deadline = self.link.deadline(self.link.config.command_timeout);
        let wire = Wire::Plain(Command::FirmwareVersion { firmware });
        match self.link.call(wire, op, deadline)? {
            Body::FirmwareVersion { status: FirmwareVersionStatus::Success, version, .. } => {
                Ok(version)
            }
            Body::FirmwareVersion { status, .. } => {
                Err(Error::Refused { op, status: Refusal::FirmwareVersion(status) })
            }
            other => Err(Error::lost(format!("answer to a {op} is {other:?}"))),
        }
    }

    /// Allocates device memory, aligned to 64 bytes. Its contents are undefined.
    ///
    /// # Errors
    /// [`Error::Memory`], with what was asked, what is free and the largest block; those of
    /// [`Error`] that say the device is gone.
    pub fn alloc(&self, len_bytes: u64) -> Result<DeviceBuffer> {
        self.alloc_aligned(len_bytes, 64)
    }

    /// Allocates an array of `len` elements in device memory. Its contents are undefined.
    ///
    /// # Errors
    /// As [`alloc`](Device::alloc); [`Error::OutOfRange`] if no memory has so many bytes.
    pub fn alloc_array<T>(&self, len: usize) -> Result<DeviceArray<T>> {
        let align = align_of::<T>().max(64) as u64;
        Ok(DeviceArray::new(self.alloc_aligned(array_bytes::<T>(len)?, align)?))
    }

    /// Allocates device memory at a multiple of `align` bytes, a power of two.
    ///
    /// # Errors
    /// As [`alloc`](Device::alloc).
    pub fn alloc_aligned(&self, len_bytes: u64, align: u64) -> Result<DeviceBuffer> {
        self.alloc_with(len_bytes, &BufferOptions::new().align(align))
    }

    /// Allocates device memory for a use: what launches, tasks, copies and fills are not allowed to
    /// do with it is refused with [`Error::Usage`] before anything is sent. That is checked by the
    /// host; a kernel that writes to what it may only read is found by a device that
    /// [checks memory](et_hal::Hal::watch_memory).
    ///
    /// # Errors
    /// As [`alloc`](Device::alloc).
    pub fn alloc_with(&self, len_bytes: u64, options: &BufferOptions) -> Result<DeviceBuffer> {
        self.link.profiler.call("alloc", (None, None), || {
            self.link.check_open("alloc")?;
            self.link.memory.alloc_with(len_bytes, options)
        })
    }

    /// Returns the memory of buffers that have a [tag](BufferOptions::tag), by tag, most bytes
    /// first. Kernels that are loaded have the tag `kernels`.
    #[must_use]
    pub fn memory_by_tag(&self) -> Vec<TagStats> {
        self.link.memory.by_tag()
    }

    /// Returns how much device memory is used and free.
    #[must_use]
    pub fn memory_stats(&self) -> MemoryStats {
        self.link.memory.stats()
    }

    /// Allocates host memory that the device reaches directly; zeroed.
    ///
    /// # Errors
    /// [`Error::Hal`].
    pub fn host_buffer(&self, len_bytes: usize) -> Result<HostBuffer<H>> {
        self.link.host_buffer(len_bytes, DeviceAccess::ReadWrite)
    }

    /// Allocates host memory for one use: `access` is what copies will have the device do, and an
    /// IOMMU lets it do nothing else. The [bus address](HostBuffer::bus_addr) is a multiple of
    /// `align` bytes, a power of two. Zeroed.
    ///
    /// # Errors
    /// As [`host_buffer`](Self::host_buffer); [`Error::Memory`] for another alignment.
    pub fn host_buffer_for(
        &self,
        access: DeviceAccess,
        len_bytes: usize,
        align: usize,
    ) -> Result<HostBuffer<H>> {
        HostBuffer::alloc(self.link.hal.dma(), len_bytes, align, access)
    }

    /// Lends memory of the caller to the device, for reading: as a host buffer from which
    /// [`Stream::upload`](crate::Stream::upload) copies without staging. Others may read it
    /// meanwhile, so its owner may be an `Arc<[u8]>` or a `&'static [f32]`. The owner comes back by
    /// [`HostBuffer::into_owner`].
    ///
    /// The device reaches the memory itself if it is made of whole [granules](Self::import_granule)
    /// and the system agrees. Else its contents are copied;
    /// [`HostBuffer::bounce`] says so, and why.
    ///
    /// # Errors
    /// The owner, with an [`Error::Hal`] or what says that the device is gone.
    pub fn import<O, W>(&self, owner: O) -> Result<HostBuffer<H>, ImportError<O, Error>>
    where
        O: StableDeref<Target = [W]> + Send + Sync + 'static,
        W: Word,
    {
        match self.link.check_open("import") {
            Err(error) => Err(ImportError { owner, error }),
            Ok(()) => Import::for_reading(self.link.hal.dma(), owner)
                .map(HostBuffer::lent)
                .map_err(not_imported),
        }
    }

    /// Lends memory of the caller, whom it belongs to alone, to the device for what `access` says,
    /// as [`import`](Self::import). [`Pages`](crate::memory::Pages) are memory of whole granules;
    /// other owners, as a `Vec<f32>`, work as well.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn import_mut<O, W>(
        &self,
        owner: O,
        access: DeviceAccess,
    ) -> Result<HostBuffer<H>, ImportError<O, Error>>
    where
        O: StableDeref<Target = [W]> + DerefMut + Send + Sync + 'static,
        W: Word,
    {
        match self.link.check_open("import") {
            Err(error) => Err(ImportError { owner, error }),
            Ok(()) => Import::exclusive(self.link.hal.dma(), owner, access)
                .map(HostBuffer::lent)
                .map_err(not_imported),
        }
    }

    /// Returns the granule in bytes in which memory of the caller can be used where it is: it has
    /// to begin and to end on a multiple. `None` if its contents are always copied.
    #[must_use]
    pub fn import_granule(&self) -> Option<usize> {
        self.link.hal.dma().import_granule()
    }

    /// Returns the stream that is always there.
    #[must_use]
    pub fn default_stream(&self) -> &Stream<H> {
        &self.default_stream
    }

    /// Makes a stream.
    #[must_use]
    pub fn stream(&self) -> Stream<H> {
        Stream::new(&self.link)
    }

    /// Makes a stream with options.
    #[must_use]
    pub fn stream_with(&self, options: &StreamOptions) -> Stream<H> {
        Stream::with(&self.link, options)
    }

    /// Loads a kernel: checks the ELF file, places and relocates it, and copies it to the device.
    ///
    /// # Errors
    /// [`LoadError::Elf`], with nothing sent; [`LoadError::Device`] with the failure of an
    /// allocation or of [`Stream::copy_to_device`].
    ///
    /// Spec: §13
    pub fn load_kernel(&self, name: &str, elf: &[u8]) -> Result<Kernel, LoadError> {
        self.load_kernel_entry(name, elf, None)
    }

    /// Loads a kernel whose entry is the function `entry` instead of the ELF file's own.
    ///
    /// # Errors
    /// As [`load_kernel`](Device::load_kernel).
    pub fn load_kernel_entry(
        &self,
        name: &str,
        elf: &[u8],
        entry: Option<&str>,
    ) -> Result<Kernel, LoadError> {
        self.load(name, elf, entry, None)
    }

    /// Loads a kernel into memory of the caller's, which must not be written while the kernel is of
    /// use; it is shared with no other kernel. The kernel keeps the memory from being freed.
    ///
    /// `memory` must begin on a multiple of [`KernelImage::align_bytes`], and have
    /// [`KernelImage::span_bytes`]. If it has more, zeros follow up to a multiple of
    /// [`Properties::dma_align_bytes`].
    ///
    /// # Errors
    /// As [`load_kernel`](Device::load_kernel); [`LoadError::Device`] also with
    /// [`Error::OutOfRange`] if the memory is too short, and [`Error::Misaligned`].
    ///
    /// Spec: §13
    pub fn load_kernel_to(
        &self,
        name: &str,
        elf: &[u8],
        entry: Option<&str>,
        memory: &DeviceSlice,
    ) -> Result<Kernel, LoadError> {
        self.load(name, elf, entry, Some(memory))
    }

    fn load(
        &self,
        name: &str,
        elf: &[u8],
        entry: Option<&str>,
        memory: Option<&DeviceSlice>,
    ) -> Result<Kernel, LoadError> {
        self.link.profiler.call("load_kernel", (None, None), || {
            let name = name.into();
            let layout = KernelImage::parse(elf).map_err(|error| refused(&name, error))?;
            layout.entry(entry).map_err(|error| refused(&name, error))?;
            let placed = match memory {
                Some(memory) => self.place_at(&layout, elf, memory),
                None => self.place(&layout, elf).map(|(image, _)| image),
            };
            let image = placed.map_err(failed(&name))?;
            image.wait().map_err(failed(&name))?;
            Module { name: Arc::clone(&name), layout, image }.entry(name, entry)
        })
    }

    /// Loads a kernel file, of which one or more functions are to be launched. It is copied once,
    /// and the call does not wait for that, unless staging memory is short.
    ///
    /// The event is that of the copy; launches need not be ordered behind it, since they wait for
    /// it in whatever stream they are. If the copy fails, so do launches that come after.
    ///
    /// A file that is on the device already, byte for byte, is not copied again, if it has
    /// [nothing to write](KernelImage::is_writable); so it is with
    /// [`load_kernel`](Device::load_kernel). The event is a barrier then, or the one of the first.
    ///
    /// # Errors
    /// As [`load_kernel`](Device::load_kernel), except for a failure of the copy.
    ///
    /// Spec: §13
    pub fn load_module(&self, name: &str, elf: &[u8]) -> Result<(Module, Event), LoadError> {
        self.link.profiler.call("load_module", (None, None), || {
            let name = name.into();
            let layout = KernelImage::parse(elf).map_err(|error| refused(&name, error))?;
            let (image, copy) = self.place(&layout, elf).map_err(failed(&name))?;
            let event = copy.map_or_else(|| self.stream().barrier(), Ok).map_err(failed(&name))?;
            Ok((Module { name, layout, image }, event))
        })
    }

    /// Puts the kernels that the runtime brings along on the device, if they are not there.
    ///
    /// # Errors
    /// As [`load_module`](Device::load_module).
    pub fn builtins(&self) -> Result<Builtins, LoadError> {
        let (module, _) = self.load_module("builtins", BUILTIN_FILE)?;
        Ok(Builtins::new(module))
    }

    /// Finds or makes the image of a file; with the event of its copy, if that is under way.
    fn place(&self, layout: &KernelImage, elf: &[u8]) -> Result<(Arc<Image>, Option<Event>)> {
        self.link.check_open("load")?;
        let may_share = !layout.is_writable();
        if may_share && let Some(image) = self.images.find(elf) {
            let event = image.pending()?;
            return Ok((image, event));
        }
        let align = layout.align_bytes().max(4096);
        let options = BufferOptions::new().align(align).tag("kernels");
        let code = self.alloc_with(layout.span_bytes(), &options)?;
        for part in layout.read_only() {
            let addr = DeviceAddr::new(code.addr().as_u64() + part.start);
            self.link.memory.read_only(addr, part.end - part.start);
        }
        let (image, event) = self.put(layout, elf, code.whole())?;
        if may_share {
            self.images.insert(&image);
        }
        Ok((image, Some(event)))
    }

    /// Makes the image of a file in memory of the caller's.
    fn place_at(
        &self,
        layout: &KernelImage,
        elf: &[u8],
        memory: &DeviceSlice,
    ) -> Result<Arc<Image>> {
        self.link.check_open("load")?;
        let (span, align) = (layout.span_bytes(), layout.align_bytes());
        let whole = span.next_multiple_of(self.link.copy_align());
        let code = memory.slice(..whole.min(memory.len_bytes()).max(span))?;
        if code.addr().as_u64() % align != 0 {
            let (addr, len) = (code.addr(), code.len_bytes());
            return Err(Error::Misaligned { addr, len, align });
        }
        self.put(layout, elf, code).map(|(image, _)| image)
    }

    /// Starts the copy of an image.
    fn put(
        &self,
        layout: &KernelImage,
        elf: &[u8],
        code: DeviceSlice,
    ) -> Result<(Arc<Image>, Event)> {
        let mut bytes = layout.place(code.addr());
        bytes.resize(usize::try_from(code.len_bytes()).unwrap_or(bytes.len()), 0);
        // In a stream of its own: kernels that run must not hold it up.
        let event = self.stream().copy_to_device(&bytes, &code)?;
        Ok((Image::new(code, elf.into(), &event, self.link.config.command_timeout), event))
    }

    /// Aborts one operation, whether it runs or waits, and waits until it has ended. A kernel that
    /// ran fails with [`Error::Launch`] and the state of every hart, anything else with
    /// [`Error::Aborted`].
    ///
    /// Other work goes on: see [`Stream::abort`].
    ///
    /// # Errors
    /// [`Error::HasEnded`]; [`Error::ForeignEvent`]; [`Error::Unsupported`]; [`Error::Timeout`],
    /// after which the abort may still come true; those of [`Error`] that say the device is gone.
    ///
    /// Spec: §10.1
    pub fn abort(&self, event: &Event, timeout: Duration) -> Result<()> {
        self.link.profiler.call("abort", (None, Some(event.id())), || {
            request_abort(&self.link, event, Harm::Accept)?;
            let deadline = self.link.deadline(timeout);
            match self.link.wait_for(&event.operation().result, deadline) {
                Some(_) => Ok(()),
                None => Err(self.link.timeout("abort", timeout)),
            }
        })
    }

    /// As [`abort`](Self::abort), without waiting; the event tells when the operation has ended.
    ///
    /// # Errors
    /// [`Error::HasEnded`]; [`Error::ForeignEvent`]; [`Error::Unsupported`]; those of [`Error`]
    /// that say the device is gone.
    pub fn request_abort(&self, event: &Event) -> Result<()> {
        let about = (None, Some(event.id()));
        let request = || request_abort(&self.link, event, Harm::Accept);
        self.link.profiler.call("request_abort", about, request)
    }

    /// Takes what has arrived, without waiting; returns the number of messages. For
    /// [`Drain::Caller`].
    pub fn poll(&self) -> usize {
        self.link.poll()
    }

    /// Prepares a core file of a failed launch.
    ///
    /// Works on a device that is lost or closed, too; the file is then without what is on it.
    #[must_use]
    pub fn core_dump<'a>(&self, failure: &'a LaunchFailure) -> CoreDump<'a, H> {
        CoreDump::new(failure, self.stream(), self.link.config.command_timeout)
    }

    /// Returns counts of oddities.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.link.counters()
    }

    /// Counts what the device is asked to do at the moment.
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.link.activity()
    }

    /// Takes what went wrong without anyone hearing of it: the [lists](Stream::take_errors) of all
    /// streams, what streams have left whose last handle is gone, and what concerns the device as
    /// a whole.
    ///
    /// Each error is taken once, here or from its stream. Those of before a reset stay. Of a list
    /// that is not taken the first are kept and the others counted, see [`DeviceErrors`].
    #[must_use]
    pub fn take_errors(&self) -> DeviceErrors {
        self.link.errors.take_all()
    }

    /// Has `callback` called with each error that no one hears of, as it is put into a list.
    ///
    /// There is one callback; it takes the place of the one before, outlives resets, and goes when
    /// the device is closed. It runs in any thread of the runtime or in one that waits, may use the
    /// device, and must not block; with [`Drain::Caller`] in those that wait or
    /// [`poll`](Self::poll). If it panics, that is logged and
    /// [counted](Counters::callback_panics).
    pub fn on_error(&self, callback: impl Fn(&DeviceError) + Send + Sync + 'static) {
        self.link.errors.listen(Arc::new(callback));
    }

    pub(crate) fn link(&self) -> &Arc<Link<H>> {
        &self.link
    }

    /// Returns the recorder of the device.
    #[must_use]
    pub fn profiler(&self) -> &Profiler {
        &self.link.profiler
    }

    /// Returns the backend.
    #[must_use]
    pub fn hal(&self) -> &H {
        &self.link.hal
    }

    /// Resets the compute cores: aborts everything, then restarts them. Memory and kernels stay;
    /// work in flight fails with an abort.
    ///
    /// # Errors
    /// [`Error::Refused`] if they did not come back; [`Error::Timeout`], after which the reset goes
    /// on and launches wait for it; [`Error::Unsupported`] if the device has no queue for it;
    /// [`Error::Memory`] if there is none for what launches need, which is among the
    /// [errors of the device](Device::take_errors) after a timeout; those of [`Error`] that say the
    /// device is gone.
    ///
    /// Spec: §10.3
    pub fn reset_compute(&self, timeout: Duration) -> Result<()> {
        let link = &self.link;
        link.profiler.call("reset_compute", (None, None), || {
            let deadline = link.deadline(timeout);
            link.abort_all()?;
            // Work that does not end is no reason against a reset.
            link.wait_idle(None, link.deadline(timeout / 2));
            link.reset_compute(deadline)
        })
    }

    /// Resets the whole device through the bus and opens it again. Works on a device that does not
    /// answer any more.
    ///
    /// Every stream, buffer, kernel and event of before is stale; work in flight fails with
    /// [`Error::Stale`].
    ///
    /// # Errors
    /// [`Error::Hal`] if the backend cannot reset; [`Error::Timeout`]; those of
    /// [`open`](Device::open). After an error its handles are stale; a reset may be tried again.
    pub fn reset(&mut self, timeout: Duration) -> Result<()> {
        self.reset_by(ResetScope::Function, timeout)
    }

    fn reset_by(&mut self, scope: ResetScope, timeout: Duration) -> Result<()> {
        let link = Arc::clone(&self.link);
        self.stop(&Error::all_stale(), Duration::ZERO);
        let deadline = link.deadline(timeout);
        let hal = Arc::clone(&link.hal);
        let mut control = hal.reset().map_err(Error::hal("resetting the device"))?;
        control.begin(scope).map_err(Error::hal("resetting the device"))?;
        let parker = Parker::new();
        loop {
            match control.poll().map_err(Error::hal("resetting the device"))? {
                ResetState::Done(_) => break,
                ResetState::InProgress => {}
            }
            let left = deadline.left(&*link.config.clock);
            if left.is_zero() {
                return Err(link.timeout("reset", timeout));
            }
            parker.park_timeout(Duration::from_micros(100).min(left));
        }
        drop(control);
        drop(link);
        self.reopen()
    }

    /// Ends everything at once, for a device that is about to be reset.
    pub(crate) fn abandon(&mut self, why: &Error) {
        self.stop(why, Duration::ZERO);
    }

    /// Opens the device again, after a reset.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        let hal = Arc::clone(&self.link.hal);
        self.link.end_quarantine();
        let config = self.link.config.clone();
        let mut next = Self::start(hal, config, self.link.errors.successor())?;
        next.attached = std::mem::take(&mut self.attached);
        next.management = Arc::clone(&self.management);
        next.management.serve(&next.link);
        *self = next;
        Ok(())
    }

    /// Keeps a value until the device is closed, through resets: for what serves others on its
    /// behalf and ends when it is dropped.
    pub fn attach(&mut self, value: impl Any + Send + Sync) {
        self.attached.push(Box::new(value));
    }

    pub(crate) fn management_slot(&self) -> &Arc<management::relay::Slot<H>> {
        &self.management
    }

    /// Closes the device; returns when nothing of it runs any more, except a callback that closes
    /// it: the card is free when that has returned, and all handles are gone.
    pub fn close(mut self) {
        let timeout = self.link.config.shutdown_timeout;
        self.stop(&Error::all_closed(), timeout);
    }

    /// Refuses new work, waits for what is in flight, aborts what remains, and joins the thread.
    fn stop(&mut self, why: &Error, timeout: Duration) {
        let link = &self.link;
        if matches!(why, Error::Stale { .. }) {
            link.memory.retire();
        }
        let thread = self.thread.take();
        let was_open = link.refusal().is_none();
        if was_open && !timeout.is_zero() && !link.wait_idle(None, link.deadline(timeout)) {
            tracing::warn!(device = %link.name, "closing with work in flight");
            if let Err(error) = link.abort_all() {
                tracing::warn!(device = %link.name, %error, "abort of work in flight");
            }
            link.wait_idle(None, link.deadline(timeout));
        }
        link.lose(why);
        if let Some(management) = self.management.take() {
            management.lose(why);
        }
        link.run_errands();
        link.close();
        link.join_writer();
        // A callback that it runs may close the device; it ends behind that.
        let thread = thread.filter(|thread| thread.thread().id() != thread::current().id());
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the drain thread panicked");
        }
        // Of launches whose core files have just been written, or given up.
        self.link.run_errands();
    }
}

impl<H: Hal> Drop for Device<H> {
    fn drop(&mut self) {
        if self.link.refusal().is_none() || self.thread.is_some() {
            let timeout = self.link.config.shutdown_timeout;
            self.stop(&Error::all_closed(), timeout);
        }
        self.link.run_errands();
        self.link.errors.end(&self.link.name);
    }
}

/// Asks for the abort of an operation, if it is one of this link.
pub(crate) fn request_abort<H: Hal>(link: &Link<H>, event: &Event, harm: Harm) -> Result<()> {
    if event.link_address() != link.address() {
        return Err(Error::ForeignEvent);
    }
    if event.outcome().is_none() && link.abort(event.operation().key, harm)? {
        return Ok(());
    }
    Err(link.refusal().unwrap_or(Error::HasEnded { operation: event.id() }))
}
