//! The bundle.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use et_devapi::mailbox::RingMailbox;
use et_devapi::pci::{DEVICE_ID, DEVICE_ID_EMULATION, MAILBOX_BAR, VENDOR_ID, Vector};
use et_hal::{
    Bar, Error, ErrorKind, ErrorType, Generation, Hal, Identity, MailboxLayout, ResetScope,
};

#[cfg(any(test, feature = "vfio-ioctls"))]
use crate::Bdf;
use crate::HugePages;
use crate::about::About;
use crate::bar::Bar as MappedBar;
use crate::config_space::{BUS_MASTER, MEMORY};
use crate::irq::Interrupts;
use crate::notifier::Heard;
use crate::owner::{Claim, Owner};
use crate::pool::Pool;
use crate::reset::Job;
use crate::shared::Shared;
use crate::sync::lock;
#[cfg(any(test, feature = "vfio-ioctls"))]
use crate::sys::Fd;
use crate::sys::{Linux, Sys};
use crate::transport::{IrqIndex, Transport, connect, open};
#[cfg(any(test, feature = "vfio-ioctls"))]
use crate::transport::{Keep, lent};
use crate::{
    Mode, ResetAtOpen, UserAddress, VfioAddress, VfioDma, VfioError, VfioOptions, VfioReset,
    VfioSignal, VfioWindow,
};

/// A mailbox of the card.
pub type VfioMailbox = RingMailbox<VfioWindow, VfioSignal, VfioError>;

/// What is known about an open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The way to it.
    pub mode: Mode,
    /// Interrupt vectors that are enabled, of the four it wants.
    pub vectors: usize,
    /// The function can be reset by itself; otherwise a function reset is whatever the kernel
    /// chooses.
    pub function_level_reset: bool,
}

/// Counts of what should not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Interrupts that did not come within [`VfioOptions::interrupt_patience`] after their messages
    /// were found, nor any other.
    pub lost_interrupts: u64,
}

/// What a test of one interrupt vector found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptTest {
    /// The vector.
    pub vector: Vector,
    /// It arrived.
    pub arrived: bool,
}

/// An open device: what its handles and its resets share.
pub(crate) struct Device {
    pub(crate) interrupts: Interrupts,
    pub(crate) pool: Arc<Pool>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: VfioOptions,
    pub(crate) job: Mutex<Option<Job>>,
    pub(crate) reset_taken: AtomicBool,
    /// BARs that are open, so that windows share their mappings.
    pub(crate) bars: Mutex<BTreeMap<u8, Weak<MappedBar>>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.shared)
    }
}

/// A card behind VFIO.
///
/// Everything that was got from it (windows, mailboxes, buffers) keeps the device open for other
/// processes' purposes; drop it before [`close`](VfioHal::close). Dropping the value without
/// closing does the same, but cannot report failures.
#[derive(Debug)]
pub struct VfioHal {
    dma: VfioDma,
    device: Arc<Device>,
    about: Box<About>,
    owner: Owner,
    closed: bool,
    #[expect(
        dead_code,
        reason = "other openers in this process are refused as long as it is there"
    )]
    claim: Option<Claim>,
}

impl VfioHal {
    /// Opens a device.
    ///
    /// # Errors
    /// `Unsupported` if VFIO is not set up for it, or it is no ET-SoC-1; `Permission`; `Busy`;
    /// `Exhausted`; `Lost`.
    pub fn open(address: &VfioAddress, options: &VfioOptions) -> Result<Self, VfioError> {
        Self::open_with(Arc::new(Linux), address, options)
    }

    pub(crate) fn open_with(
        sys: Arc<dyn Sys>,
        address: &VfioAddress,
        options: &VfioOptions,
    ) -> Result<Self, VfioError> {
        let bdf = address.bdf;
        let Some(claim) = Claim::new(&sys, bdf) else {
            let holder = Owner::look(&sys, options.owner_dir.as_deref(), bdf).holder;
            return Err(VfioError::Busy { address: bdf, holder });
        };
        let mut owner = Owner::look(&sys, options.owner_dir.as_deref(), bdf);
        let transport = open(&sys, address, options).map_err(|error| match error {
            VfioError::Call { .. } if error.kind() == ErrorKind::Busy => {
                VfioError::Busy { address: bdf, holder: owner.holder.take() }
            }
            error => error,
        })?;
        let memory = (address.huge_pages, address.iova_bits);
        let name = bdf.to_string();
        let mut options = options.clone();
        options.reset_timeout = address.reset_timeout.unwrap_or(options.reset_timeout);
        Self::with_transport(&sys, transport, name, memory, &options, owner, Some(claim))
    }

    /// Takes over a device that the program opened with the crate `vfio-ioctls`, so that both share
    /// a process and an IOMMU domain.
    ///
    /// Mappings of the program in `container` stay what they are; this backend makes its own at bus
    /// addresses from `addresses` only, which the program leaves free. Until the backend is closed,
    /// interrupts, command register and resets of the device are the backend's. `device` and
    /// `container` are dropped when the last handle is gone; the program may keep others. `address`
    /// is for messages, and for refusing a second opener in this process.
    ///
    /// There is no owner file, so that nothing is known of the last owner, and no slot reset, which
    /// needs the group.
    ///
    /// # Errors
    /// `Unsupported` if it is no ET-SoC-1; `Busy` if this backend has the device already;
    /// `Exhausted`; `Lost`.
    #[cfg(feature = "vfio-ioctls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "vfio-ioctls")))]
    pub fn from_device(
        address: Bdf,
        device: Arc<vfio_ioctls::VfioDevice>,
        container: Arc<vfio_ioctls::VfioContainer>,
        addresses: std::ops::RangeInclusive<u64>,
        options: &VfioOptions,
    ) -> Result<Self, VfioError> {
        use std::os::fd::AsRawFd;
        let fds = (device.as_raw_fd(), container.as_raw_fd());
        // The device lets go of the container when it is dropped.
        let keep = Box::new((device, container));
        Self::lent(Arc::new(Linux), address, fds, addresses.into_inner(), keep, options)
    }

    #[cfg(any(test, feature = "vfio-ioctls"))]
    pub(crate) fn lent(
        sys: Arc<dyn Sys>,
        bdf: Bdf,
        fds: (Fd, Fd),
        window: (u64, u64),
        keep: Keep,
        options: &VfioOptions,
    ) -> Result<Self, VfioError> {
        let Some(claim) = Claim::new(&sys, bdf) else {
            return Err(VfioError::Busy { address: bdf, holder: None });
        };
        let transport = Arc::new(lent(&sys, bdf, fds, window, keep, options.close_timeout)?);
        let (name, memory) = (bdf.to_string(), (HugePages::IfFree, u64::BITS));
        let owner = Owner::unknown();
        Self::with_transport(&sys, transport, name, memory, options, owner, Some(claim))
    }

    /// Connects to a process that simulates a card, by the vfio-user protocol: by the path of its
    /// socket, or an address with time limits. The process decides who may use the card, one client
    /// at a time, and resets it in between.
    ///
    /// # Errors
    /// `Unsupported` if nothing listens there, or what is served is no ET-SoC-1; `Busy` if another
    /// client is served; `Permission`; `Exhausted`; `Lost`.
    pub fn connect(
        address: impl Into<UserAddress>,
        options: &VfioOptions,
    ) -> Result<Self, VfioError> {
        let address = address.into();
        let mut options = options.clone();
        options.answer_timeout = address.answer_timeout.unwrap_or(options.answer_timeout);
        options.reset_timeout = address.reset_timeout.unwrap_or(options.reset_timeout);
        let sys: Arc<dyn Sys> = Arc::new(Linux);
        let path = &address.path;
        let transport = Arc::new(connect(path, options.answer_timeout, options.reset_timeout)?);
        let name = path.display().to_string();
        let memory = (HugePages::IfFree, u64::BITS);
        Self::with_transport(&sys, transport, name, memory, &options, Owner::unknown(), None)
    }

    /// Takes a connected device over.
    pub(crate) fn with_transport(
        sys: &Arc<dyn Sys>,
        transport: Arc<dyn Transport>,
        name: String,
        (huge_pages, iova_bits): (HugePages, u32),
        options: &VfioOptions,
        owner: Owner,
        claim: Option<Claim>,
    ) -> Result<Self, VfioError> {
        let shared = Arc::new(Shared::new(name, sys, transport)?);
        let (vendor, device) = shared.config.ids()?;
        let is_card = vendor == VENDOR_ID && [DEVICE_ID, DEVICE_ID_EMULATION].contains(&device);
        if !is_card && !options.also.contains(&(vendor, device)) {
            let address = shared.name.clone();
            return Err(VfioError::NotOurs { address, vendor, device });
        }
        let about = Box::new(About::ask(&shared, options)?);
        // Whatever the last owner left behind, the device reaches no memory before all is set up.
        shared.config.set_command(MEMORY, BUS_MASTER)?;
        let interrupts = Interrupts::new(sys, &*shared.transport)?;
        let pool = Arc::new(Pool::new(&shared, huge_pages, iova_bits)?);
        let device = Arc::new(Device {
            interrupts,
            pool: Arc::clone(&pool),
            shared,
            options: options.clone(),
            job: Mutex::new(None),
            reset_taken: AtomicBool::new(false),
            bars: Mutex::new(BTreeMap::new()),
        });
        let dma = VfioDma::new(&pool);
        // From here on dropping the value silences the device.
        let hal = Self { dma, device, about, owner, closed: false, claim };
        hal.owner.mark_open(&**sys);
        hal.bring_up()?;
        Ok(hal)
    }

    fn bring_up(&self) -> Result<(), VfioError> {
        let when = self.device.options.reset_at_open;
        let wanted =
            when == ResetAtOpen::Always || when == ResetAtOpen::IfUnclean && self.owner.unclean;
        if wanted && self.device.shared.transport.can_reset(ResetScope::Function) {
            tracing::info!(device = %self.device.shared.name, "resetting before use");
            return self.device.reset_now(ResetScope::Function);
        }
        if wanted {
            tracing::warn!(device = %self.device.shared.name, "no function reset: its state is as its last owner left it");
        }
        self.device.set_up()
    }

    /// Returns what is known about the device.
    ///
    /// # Errors
    /// `Lost`.
    pub fn facts(&self) -> Result<Facts, VfioError> {
        self.device.shared.check_home()?;
        Ok(Facts {
            mode: self.device.shared.transport.mode(),
            vectors: self.device.interrupts.armed(),
            function_level_reset: self.device.shared.config.has_flr()?,
        })
    }

    /// Returns the counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let lost = self.device.shared.lost_interrupts.load(Ordering::Relaxed);
        Counters { lost_interrupts: lost }
    }

    /// Makes the kernel signal each enabled vector, and returns which arrived here within `timeout`
    /// each. The device takes no part in this; waits may see the notifications.
    ///
    /// # Errors
    /// `Unsupported` if the kernel cannot; `Lost`.
    pub fn test_interrupts(&self, timeout: Duration) -> Result<Vec<InterruptTest>, VfioError> {
        let device = &self.device;
        device.shared.check_home()?;
        let mut tests = Vec::new();
        for &vector in Vector::ALL.iter().take(device.interrupts.armed()) {
            let notifier = device.interrupts.notifier_of(vector);
            // What was raised before is taken away, so that only the trigger can count.
            while notifier.wait(notifier.epoch(), Duration::ZERO)? == Heard::Notified {}
            let seen = notifier.epoch();
            device.shared.transport.trigger(IrqIndex::Msi, vector as u32)?;
            let arrived = match notifier.wait(seen, timeout)? {
                Heard::Notified => true,
                Heard::Nothing => false,
                Heard::Lost(because) => return Err(device.shared.lose(because)),
            };
            tests.push(InterruptTest { vector, arrived });
        }
        Ok(tests)
    }

    /// Silences the device, takes all memory away from it and lets go of it.
    ///
    /// # Errors
    /// `Lost` in a child of the process that opened the device, which stays as it is. `Busy` if
    /// handles are still there: the device is quiet, but stays open until they are dropped.
    /// Otherwise the first step that failed; all steps are tried.
    pub fn close(mut self) -> Result<(), VfioError> {
        self.shut_down()?;
        match self.device.shared.handles() {
            0 => Ok(()),
            handles => Err(VfioError::HandlesRemain { handles }),
        }
    }

    /// Bus mastering, interrupts, memory, in this order; descriptors follow when the last handle is
    /// dropped.
    fn shut_down(&mut self) -> Result<(), VfioError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let device = &self.device;
        let shared = &device.shared;
        shared.check_home()?;
        shared.close();
        device.interrupts.wake_all();
        let silenced = if device.is_reset_call_running() {
            // The kernel holds the device until the call returns, and so would hold us.
            Err(VfioError::ResetBusy)
        } else {
            shared.config.set_command(0, BUS_MASTER)
        };
        let quiet = silenced.is_ok();
        let mut outcome = silenced;
        if !device.is_reset_call_running() {
            outcome = outcome.and(device.interrupts.disable(&*shared.transport));
        }
        outcome = outcome.and(device.pool.shut_down(quiet));
        if quiet {
            self.owner.mark_clean(&*shared.sys);
        }
        tracing::debug!(device = %shared.name, ok = outcome.is_ok(), "closed");
        outcome
    }

    fn bar(&self, bar: Bar) -> Result<Arc<MappedBar>, VfioError> {
        let mut bars = lock(&self.device.bars);
        if let Some(open) = bars.get(&bar.index()).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let region = self.device.shared.transport.region(bar.index().into())?;
        if region.size == 0 {
            return Err(VfioError::NoWindow(bar));
        }
        let open = Arc::new(MappedBar::open(&self.device.shared, region)?);
        bars.insert(bar.index(), Arc::downgrade(&open));
        Ok(open)
    }
}

impl Drop for VfioHal {
    fn drop(&mut self) {
        if !self.device.shared.is_here() {
            return;
        }
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, "closing failed");
        }
    }
}

impl ErrorType for VfioHal {
    type Error = VfioError;
}

impl Hal for VfioHal {
    type Mmio = VfioWindow;
    type Dma = VfioDma;
    type Mailbox = VfioMailbox;
    type Reset = VfioReset;

    fn window(&self, bar: Bar) -> Result<VfioWindow, VfioError> {
        let stamp = self.device.shared.stamp()?;
        Ok(VfioWindow::new(&self.device.shared, self.bar(bar)?, bar, stamp))
    }

    fn dma(&self) -> &VfioDma {
        &self.dma
    }

    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<VfioMailbox, VfioError> {
        let window = self.window(MAILBOX_BAR)?;
        let interrupts = &self.device.interrupts;
        let signal = VfioSignal::new(
            &self.device.shared,
            window.clone(),
            interrupts.notifier(layout.endpoint),
            layout.completion.at,
            &self.device.options,
            interrupts.complete(),
        );
        let mailbox = VfioMailbox::attach(window, signal, *layout)?;
        // The rings have their lengths, so the device is there: from now on all ones mean that it
        // is not.
        self.device.shared.is_alive();
        Ok(mailbox)
    }

    fn reset(&self) -> Result<VfioReset, VfioError> {
        VfioReset::take(&self.device)
    }

    fn generation(&self) -> Generation {
        self.device.shared.generation()
    }

    fn identity(&self) -> Identity<'_> {
        self.about.identity()
    }
}
