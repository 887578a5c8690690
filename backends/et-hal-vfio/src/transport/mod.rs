//! What the backend needs of whatever connects it to the device.
//!
//! The kernel transports share [`kernel`]; they differ in who translates bus addresses.

mod caps;
mod cdev;
mod group;
mod kernel;
mod noiommu;
mod open;
mod user;

use std::fmt;
use std::sync::Arc;

use et_hal::{DeviceAccess, ResetScope, Widths};
use vfio_bindings::bindings::vfio;

use crate::sys::Fd;
use crate::{Mode, VfioError};

#[cfg(any(test, feature = "vfio-ioctls"))]
pub(crate) use group::{Keep, lent};
pub(crate) use open::open;
pub(crate) use user::connect;

/// The region with the configuration space.
pub(crate) const CONFIG_REGION: u32 = vfio::VFIO_PCI_CONFIG_REGION_INDEX;

/// The interrupt indices of a PCI device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum IrqIndex {
    /// The device's messages.
    Msi,
    /// Uncorrectable errors of the bus.
    Error,
    /// The kernel wants the device back.
    Request,
}

impl IrqIndex {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Msi => vfio::VFIO_PCI_MSI_IRQ_INDEX,
            Self::Error => vfio::VFIO_PCI_ERR_IRQ_INDEX,
            Self::Request => vfio::VFIO_PCI_REQ_IRQ_INDEX,
        }
    }
}

/// Part of a region, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A region of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) index: u32,
    /// Bytes; 0 if the device does not have it.
    pub(crate) size: u64,
    /// Where it is in the device's file; only the transport knows what that means.
    pub(crate) offset: u64,
    /// What may be mapped, in order, disjoint.
    pub(crate) areas: Vec<Area>,
}

/// What became of the wish for interrupt vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Vectors {
    /// All are enabled.
    Enabled,
    /// None is: there are only this many.
    Only(u32),
}

/// Who decides on bus addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// We do, inside these ranges (first and last address), in multiples of the page size.
    Chosen {
        ranges: Vec<(u64, u64)>,
        page_bytes: u64,
        /// Mappings the IOMMU still takes, if it counts.
        entries: Option<u64>,
    },
    /// They are physical addresses; nothing is mapped.
    Physical,
}

/// Memory to be mapped for the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmaRequest {
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) access: DeviceAccess,
    /// Where it is mapped in this process.
    pub(crate) address: u64,
    /// The file it belongs to and its place there; imported memory has none.
    pub(crate) file: Option<(Fd, u64)>,
}

/// The connection to one device.
///
/// Register windows, DMA pools and interrupts above know only this. Every method may be called by
/// several threads. Dropping the last reference closes the connection; the device has been silenced
/// before.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    fn mode(&self) -> Mode;
    /// Names the interface and its version.
    fn interface(&self) -> String;

    /// Describes a region; size 0 if there is none.
    fn region(&self, index: u32) -> Result<Region, VfioError>;
    /// The file and the offset in it that show the region from `at` on.
    fn file(&self, region: &Region, at: u64) -> (Fd, u64);
    fn read(&self, region: &Region, at: u64, into: &mut [u8]) -> Result<(), VfioError>;
    fn write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError>;
    /// Writes without waiting for the write to arrive, where the transport can.
    fn posted_write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError> {
        self.write(region, at, from)
    }
    /// Widths that `read` and `write` do not split.
    fn unsplit_widths(&self) -> Widths;

    /// Number of vectors of an interrupt index; 0 if it cannot signal events.
    fn vectors(&self, index: IrqIndex) -> Result<u32, VfioError>;
    /// Makes vectors 0 and up signal these event counters, all or none.
    fn set_vectors(&self, index: IrqIndex, events: &[Fd]) -> Result<Vectors, VfioError>;
    fn disable_vectors(&self, index: IrqIndex) -> Result<(), VfioError>;
    /// Signals a vector as if the device had.
    fn trigger(&self, index: IrqIndex, vector: u32) -> Result<(), VfioError>;

    fn addressing(&self) -> Result<Addressing, VfioError>;
    /// Maps memory for the device.
    fn map_dma(&self, request: &DmaRequest) -> Result<(), VfioError>;
    /// Unmaps what one call mapped; returns the bytes that were.
    fn unmap_dma(&self, iova: u64, len: u64) -> Result<u64, VfioError>;

    /// A descriptor that is readable once the device is gone for good.
    fn gone(&self) -> Option<Fd> {
        None
    }

    /// Returns `true` if `reset` can do this.
    fn can_reset(&self, scope: ResetScope) -> bool;
    /// Resets, and returns when that is done; this may take minutes on a device that is dead.
    fn reset(&self, scope: ResetScope) -> Result<(), VfioError>;
}

const _: fn(Arc<dyn Transport>) = |_| ();
