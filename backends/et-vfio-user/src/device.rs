//! What a device offers, and what is asked of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::{BusMaster, PeerEvent};

/// Which accesses are possible or allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
}

impl Access {
    /// Neither.
    pub const NONE: Self = Self { read: false, write: false };
    /// Reads only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writes only.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const READ_WRITE: Self = Self { read: true, write: true };
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// It is a PCI function: the region and interrupt indices are those of `vfio-pci`.
    pub pci: bool,
    /// It can be reset.
    pub resettable: bool,
    /// Number of regions; for PCI 9, BAR0 to BAR5, ROM, configuration space, VGA.
    pub regions: u32,
    /// Number of interrupt kinds; for PCI 5, `INTx`, MSI, MSI-X, error, removal request.
    pub irqs: u32,
}

/// The process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Peer {
    /// Its number; 0 if it is not visible from here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// A region of a device.
#[derive(Clone, Debug)]
pub struct Region {
    /// Bytes; 0 if the region does not exist.
    pub size: u64,
    /// Accesses by message.
    pub access: Access,
    /// Parts that may be mapped through `memory`; empty if all accesses go by message.
    pub areas: Vec<Area>,
    /// What to map.
    pub memory: Option<RegionMemory>,
}

impl Region {
    /// A region that does not exist.
    pub const ABSENT: Self =
        Self { size: 0, access: Access::NONE, areas: Vec::new(), memory: None };

    /// A region all of whose accesses go by message.
    #[must_use]
    pub const fn trapped(size: u64, access: Access) -> Self {
        Self { size, access, areas: Vec::new(), memory: None }
    }
}

/// The file behind a region.
#[derive(Clone, Debug)]
pub struct RegionMemory {
    /// Descriptor that can be mapped shared.
    pub fd: Arc<OwnedFd>,
    /// Where byte 0 of the region lies in it.
    pub offset: u64,
}

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    /// First byte, in the region.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The interrupts of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IrqInfo {
    /// How many there are.
    pub count: u32,
    /// Eventfds can be connected.
    pub eventfd: bool,
    /// Can be masked.
    pub maskable: bool,
    /// Masks itself when triggered.
    pub automasked: bool,
    /// All of a kind are connected in one call.
    pub noresize: bool,
}

/// What happens to interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IrqAction {
    /// Masks, or connects an event that tells of masking.
    Mask,
    /// Unmasks, or connects an event that tells of unmasking.
    Unmask,
    /// Triggers, or connects the event that is the interrupt.
    Trigger,
}

/// To which interrupts it happens.
#[derive(Debug)]
pub enum IrqData {
    /// To all of the range; an empty range with [`IrqAction::Trigger`] disconnects the kind.
    None,
    /// To those that are true; one per interrupt of the range.
    Bool(Vec<bool>),
    /// Connects these events, or disconnects; one per interrupt of the range.
    Eventfds(Vec<Option<PeerEvent>>),
}

/// A change to the interrupts of a kind; the range lies inside what [`Device::irq`] said.
#[derive(Debug)]
pub struct IrqRequest {
    /// Which kind.
    pub index: u32,
    /// First interrupt of the kind.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
    /// What happens.
    pub action: IrqAction,
    /// To which.
    pub data: IrqData,
}

/// How writes to part of a region can be taken by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoFdKind {
    /// The descriptor is an eventfd, signalled by each matching write.
    Ioeventfd,
    /// The descriptor is a socket to which KVM forwards the access.
    Ioregionfd,
}

/// A descriptor that takes accesses to part of a region.
#[derive(Clone, Debug)]
pub struct IoFd {
    /// First byte, in the region.
    pub offset: u64,
    /// Bytes of an access; 0 if any will do.
    pub len: u64,
    /// The descriptor.
    pub fd: Arc<OwnedFd>,
    /// What it is.
    pub kind: IoFdKind,
    /// As KVM defines them for the kind.
    pub flags: u32,
    /// Ioeventfd: value to match; ioregionfd: handed back by the kernel.
    pub data: u64,
}

/// Memory of the client that the device may use.
#[derive(Debug)]
pub struct DmaWindow {
    /// First bus address.
    pub address: u64,
    /// Bytes; never 0, and the window never wraps around the end of the address space.
    pub len: u64,
    /// What the device may do.
    pub access: Access,
    /// Descriptor that can be mapped shared, and where the window starts in it; without one the
    /// memory is reached through [`BusMaster`].
    pub file: Option<(OwnedFd, u64)>,
}

/// A device that a [`Server`](crate::Server) offers.
///
/// Calls come from the thread that serves, one at a time. A failure is sent to the client as the
/// errno returned. What is passed has been checked: regions exist and allow the access, ranges lie
/// inside them, interrupts exist, windows do not overlap.
pub trait Device: Send + Sync + 'static {
    /// What the device is; must not change while a client is connected.
    fn info(&self) -> DeviceInfo;

    /// Region `index`, or `None` if there is no such region.
    fn region(&self, index: u32) -> Option<Region>;

    /// Reads from a region; the length is that of the client's access.
    ///
    /// # Errors
    /// Any errno; it is sent to the client.
    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Writes to a region.
    ///
    /// # Errors
    /// Any errno; it is sent to the client unless the write was posted.
    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno>;

    /// The interrupts of kind `index`.
    fn irq(&self, index: u32) -> IrqInfo;

    /// Connects, masks or triggers interrupts.
    ///
    /// # Errors
    /// Any errno; it is sent to the client.
    fn set_irqs(&self, request: IrqRequest) -> Result<(), Errno>;

    /// Descriptors that take writes to parts of a region; none unless overridden.
    ///
    /// # Errors
    /// Any errno; it is sent to the client.
    fn io_fds(&self, region: u32) -> Result<Vec<IoFd>, Errno> {
        let _ = region;
        Ok(Vec::new())
    }

    /// The client offers memory. `bus` reaches it without a descriptor, from any thread, until
    /// the client goes.
    ///
    /// # Errors
    /// Any errno; it is sent to the client, and the window does not exist.
    fn dma_map(&self, window: DmaWindow, bus: &Arc<BusMaster>) -> Result<(), Errno>;

    /// A window goes; it is always one that [`Device::dma_map`] accepted, whole. When this
    /// returns the device does not touch it any more.
    ///
    /// # Errors
    /// Any errno; it is sent to the client, and the window stays.
    fn dma_unmap(&self, address: u64, len: u64) -> Result<(), Errno>;

    /// Resets the device; windows and interrupts stay connected.
    ///
    /// # Errors
    /// Any errno; it is sent to the client.
    fn reset(&self) -> Result<(), Errno>;

    /// A client has agreed on a version and may use the device.
    fn connected(&self, _peer: Peer) {}

    /// That client is gone: all windows and connected events are to be dropped.
    fn disconnected(&self) {}
}
