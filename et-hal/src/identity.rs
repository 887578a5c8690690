//! What a device and its backend are.

use core::fmt;

/// Ids of a PCI function, as its configuration space has them.
///
/// The text form is `vendor:device`, the ids of the subsystem and the revision, as `lspci -n` has
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciIds {
    /// Who made the chip.
    pub vendor: u16,
    /// Which chip it is.
    pub device: u16,
    /// Who made the card; 0 if it does not say.
    pub subsystem_vendor: u16,
    /// Which card it is; 0 if it does not say.
    pub subsystem: u16,
    /// Revision of the chip.
    pub revision: u8,
}

impl fmt::Display for PciIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, device, subsystem_vendor, subsystem, revision } = self;
        write!(f, "{vendor:04x}:{device:04x}")?;
        write!(f, " (subsystem {subsystem_vendor:04x}:{subsystem:04x}, revision {revision:02x})")
    }
}

/// Who may use a device at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// The backend does not say.
    #[default]
    Unsaid,
    /// One owner has all of it, until it closes the device or ends. Opening fails with
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) meanwhile.
    Exclusive,
    /// Each opening makes a device of its own.
    OneEach,
}

/// What a device is and what connects it, as far as its backend knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity<'a> {
    /// Name of the backend; empty if it does not say.
    pub backend: &'a str,
    /// Version of the backend; empty if it does not say.
    pub backend_version: &'a str,
    /// The interface below the backend, with its version.
    pub interface: Option<&'a str>,
    /// The driver of the kernel that has the device, with the version of the kernel it is part of.
    pub driver: Option<&'a str>,
    /// Who may use the device at a time.
    pub sharing: Sharing,
    /// Ids of the function.
    pub pci: Option<PciIds>,
    /// Its place on the bus of this machine, as `domain:bus:device.function`: the same each time it
    /// is opened, as long as the card stays in its slot.
    pub pci_address: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// Names a backend and its version.
    #[must_use]
    pub const fn new(backend: &'a str, backend_version: &'a str) -> Self {
        Self {
            backend,
            backend_version,
            interface: None,
            driver: None,
            sharing: Sharing::Unsaid,
            pci: None,
            pci_address: None,
        }
    }

    /// Adds the ids of the function.
    #[must_use]
    pub const fn with_pci(mut self, ids: PciIds) -> Self {
        self.pci = Some(ids);
        self
    }

    /// Says who may use the device.
    #[must_use]
    pub const fn with_sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }
}
