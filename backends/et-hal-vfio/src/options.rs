//! How a device is opened.

use std::path::PathBuf;
use std::time::Duration;

/// When opening a device resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ResetAtOpen {
    /// If its last owner did not close it.
    #[default]
    IfUnclean,
    /// In any case.
    Always,
    /// Not at all: its state is the caller's business.
    Never,
}

/// Options that are no part of a device's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct VfioOptions {
    pub(crate) unsafe_no_iommu: bool,
    pub(crate) also: Vec<(u16, u16)>,
    pub(crate) sysfs: PathBuf,
    pub(crate) dev: PathBuf,
    pub(crate) owner_dir: Option<PathBuf>,
    pub(crate) reset_at_open: ResetAtOpen,
    pub(crate) reset_timeout: Duration,
    pub(crate) boot_timeout: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) answer_timeout: Duration,
    pub(crate) interrupt_patience: Duration,
    pub(crate) spin: Duration,
}

impl Default for VfioOptions {
    fn default() -> Self {
        Self {
            unsafe_no_iommu: false,
            also: Vec::new(),
            sysfs: "/sys".into(),
            dev: "/dev".into(),
            owner_dir: Some("/run/lock".into()),
            reset_at_open: ResetAtOpen::IfUnclean,
            reset_timeout: Duration::from_secs(30),
            boot_timeout: Duration::from_secs(100),
            close_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
            interrupt_patience: Duration::from_secs(10),
            spin: Duration::from_micros(20),
        }
    }
}

impl VfioOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows mode `noiommu`, in which a defect of the device, its firmware or a kernel can
    /// overwrite any memory of the machine.
    pub fn allow_unsafe_no_iommu(mut self) -> Self {
        self.unsafe_no_iommu = true;
        self
    }

    /// Accepts one more vendor and device id, for boards and device models that answer by other ids
    /// than the card.
    pub fn also_accept(mut self, vendor: u16, device: u16) -> Self {
        self.also.push((vendor, device));
        self
    }

    /// Sets where sysfs and the device nodes are, for containers that have them elsewhere.
    pub fn roots(mut self, sysfs: impl Into<PathBuf>, dev: impl Into<PathBuf>) -> Self {
        self.sysfs = sysfs.into();
        self.dev = dev.into();
        self
    }

    /// Sets the directory of the owner files, which name the holder of a device and say whether it
    /// was closed; `None` does without.
    pub fn owner_dir(mut self, directory: Option<PathBuf>) -> Self {
        self.owner_dir = directory;
        self
    }

    /// Sets when opening resets.
    pub fn reset_at_open(mut self, when: ResetAtOpen) -> Self {
        self.reset_at_open = when;
        self
    }

    /// Sets how long the kernel, or the process behind a vfio-user socket, may take for a reset
    /// before the device counts as lost; 30 s unless set.
    pub fn reset_timeout(mut self, timeout: Duration) -> Self {
        self.reset_timeout = timeout;
        self
    }

    /// Sets how long boot status may take to appear after a reset before the device counts as lost.
    /// Spec: §4
    pub fn boot_timeout(mut self, timeout: Duration) -> Self {
        self.boot_timeout = timeout;
        self
    }

    /// Sets how long closing waits for the kernel, which resets the device then; the kernel goes on
    /// by itself after that.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// Sets how long the process behind a vfio-user socket may take for an answer, resets excepted;
    /// 10 s unless set. Afterwards the call fails.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Sets how long the device may be silent, after messages were found whose interrupt has not
    /// come, before that interrupt counts as lost; 10 s unless set. Slow devices raise it late.
    pub fn interrupt_patience(mut self, patience: Duration) -> Self {
        self.interrupt_patience = patience;
        self
    }

    /// Sets how long a wait looks at the queue before it sleeps.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }
}
