//! The one error type of the backend.

use std::fmt;
use std::path::PathBuf;

use et_devapi::mailbox::MailboxError;
use et_hal::{
    AccessError, Bar, BarOffset, ErrorKind, LossReason, OutOfRange, ResetScope, Resource,
};
use rustix::io::Errno;

use crate::advice::advice;
use crate::{AddressError, Bdf, Holder};

/// A call of the kernel, as the errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Opening `/dev/vfio/vfio`.
    OpenContainer,
    /// Opening `/dev/vfio/<group>`.
    OpenGroup,
    /// Opening `/dev/vfio/noiommu-<group>`.
    OpenUnprotectedGroup,
    /// Opening `/dev/vfio/devices/vfio<n>`.
    OpenDevice,
    /// Opening `/dev/iommu`.
    OpenIommufd,
    /// Reading a file of the device in sysfs.
    Sysfs,
    /// `VFIO_GET_API_VERSION`, `VFIO_CHECK_EXTENSION`.
    Version,
    /// `VFIO_GROUP_GET_STATUS`.
    GroupStatus,
    /// `VFIO_GROUP_SET_CONTAINER`.
    SetContainer,
    /// `VFIO_SET_IOMMU`.
    SetIommu,
    /// `VFIO_GROUP_GET_DEVICE_FD`.
    DeviceFd,
    /// Copying a descriptor of a device that the program opened.
    Duplicate,
    /// `VFIO_DEVICE_BIND_IOMMUFD`.
    Bind,
    /// `VFIO_DEVICE_ATTACH_IOMMUFD_PT`.
    Attach,
    /// `IOMMU_IOAS_ALLOC`.
    Ioas,
    /// `VFIO_DEVICE_GET_INFO` and its relatives for regions and interrupts.
    Info,
    /// `VFIO_IOMMU_GET_INFO`, `IOMMU_IOAS_IOVA_RANGES`.
    IommuInfo,
    /// `VFIO_DEVICE_SET_IRQS`.
    SetIrqs,
    /// `VFIO_IOMMU_MAP_DMA`, `IOMMU_IOAS_MAP`.
    MapDma,
    /// `VFIO_IOMMU_UNMAP_DMA`, `IOMMU_IOAS_UNMAP`.
    UnmapDma,
    /// `VFIO_DEVICE_RESET`.
    Reset,
    /// `VFIO_DEVICE_PCI_HOT_RESET`.
    HotReset,
    /// Reading or writing a region by the device's descriptor.
    Region,
    /// Mapping a BAR.
    MapBar,
    /// Making memory for DMA.
    Memory,
    /// Reading `/proc/self/pagemap`.
    PageMap,
    /// Making an event counter.
    Event,
    /// Waiting for events.
    Poll,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenContainer => "opening /dev/vfio/vfio",
            Self::OpenGroup => "opening the VFIO group",
            Self::OpenUnprotectedGroup => "opening the VFIO group without IOMMU",
            Self::OpenDevice => "opening the VFIO device node",
            Self::OpenIommufd => "opening /dev/iommu",
            Self::Sysfs => "reading sysfs",
            Self::Version => "asking VFIO for its version",
            Self::GroupStatus => "asking for the group's status",
            Self::SetContainer => "adding the group to a container",
            Self::SetIommu => "choosing the IOMMU type",
            Self::DeviceFd => "getting the device from its group",
            Self::Duplicate => "copying the device's descriptor",
            Self::Bind => "binding the device to iommufd",
            Self::Attach => "attaching the device to its address space",
            Self::Ioas => "making an address space",
            Self::Info => "asking about the device",
            Self::IommuInfo => "asking about the IOMMU",
            Self::SetIrqs => "setting interrupts",
            Self::MapDma => "mapping memory for the device",
            Self::UnmapDma => "unmapping memory from the device",
            Self::Reset => "resetting the function",
            Self::HotReset => "resetting the slot",
            Self::Region => "accessing a region",
            Self::MapBar => "mapping a BAR",
            Self::Memory => "making memory for DMA",
            Self::PageMap => "looking up a physical address",
            Self::Event => "making an event counter",
            Self::Poll => "waiting for events",
        })
    }
}

/// Why a device cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostBecause {
    /// The kernel asked for the device back: it is being unbound or unplugged.
    RemovalRequested,
    /// The bus reported an error that cannot be corrected.
    BusError,
    /// Reads return all ones, or boot status never came.
    LinkDown,
    /// The backend was closed.
    Closed,
    /// The process that simulates the device has ended, or closed the connection.
    Disconnected,
    /// It belongs to the process of which this one is a fork.
    Forked,
}

impl fmt::Display for LostBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemovalRequested => {
                "the kernel asks for it back (unbind or unplug); drop all handles so that it can go on"
            }
            Self::BusError => "the bus reported an uncorrectable error; reset the device or the slot",
            Self::LinkDown => "it does not answer; reset the slot or power the machine off and on",
            Self::Closed => "the backend was closed",
            Self::Disconnected => "the process that simulates it is gone; start it and open the device again",
            Self::Forked => "it belongs to the process that opened it, and this is a fork of that; open it here",
        })
    }
}

/// What can go wrong with a device behind VFIO.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// The text that names the device is wrong.
    #[error("device cannot be named so")]
    Address(#[from] AddressError),
    /// The kernel refused a call.
    #[error("{call} failed for {target}: {}", advice(*call, *errno).1)]
    Call {
        /// The call.
        call: Call,
        /// Path or range it was made for.
        target: String,
        /// What the kernel said.
        #[source]
        errno: Errno,
    },
    /// Another process, or another part of this one, has the device open.
    #[error("{address} is in use{}: close it there, or share one handle", by(holder.as_ref()))]
    Busy {
        /// The device.
        address: Bdf,
        /// Who said last that it has it; not proof.
        holder: Option<Holder>,
    },
    /// The group has a member that another driver controls.
    #[error(
        "group {group} cannot be used: bind every device of /sys/kernel/iommu_groups/{group}/devices to vfio-pci, \
         or leave it without driver"
    )]
    NotViable {
        /// Number of the group.
        group: u32,
    },
    /// The kernel's interface is not the one this crate knows.
    #[error("kernel lacks {what}: {remedy}")]
    Lacking {
        /// What is missing.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The device is not one of ours.
    #[error("{address} is {vendor:04x}:{device:04x}, not an ET-SoC-1 (1e0a:eb01 or 1e0a:9038)")]
    NotOurs {
        /// Its address, or the socket.
        address: String,
        /// Its vendor id.
        vendor: u16,
        /// Its device id.
        device: u16,
    },
    /// The server of a simulated device does not answer as it should.
    #[error("cannot use the device behind {path}", path = path.display())]
    Server {
        /// Its socket.
        path: PathBuf,
        /// What happened.
        #[source]
        source: Box<et_vfio_user::ClientError>,
    },
    /// A mode without protection was named but not allowed.
    #[error(
        "{address}: mode noiommu lets the device write to all memory of the machine; \
         allow it with VfioOptions::allow_unsafe_no_iommu"
    )]
    NoIommuNotAllowed {
        /// The device.
        address: Bdf,
    },
    /// The process may not lock that much memory.
    #[error(
        "{need} bytes must be locked in all, the limit is {}: raise it with ulimit -l or LimitMEMLOCK=",
        limit.map_or_else(|| "not known".into(), |limit| limit.to_string())
    )]
    LockedMemory {
        /// Bytes that would be locked with this mapping.
        need: u64,
        /// Bytes the process may lock.
        limit: Option<u64>,
    },
    /// The IOMMU takes no more mappings.
    #[error("all {in_use} mapping entries are in use: allocate fewer, larger buffers")]
    MappingEntries {
        /// Mappings of this device.
        in_use: u64,
    },
    /// No room is left between the bus addresses in use.
    #[error("no bus addresses left for {len} bytes: free buffers")]
    NoBusAddresses {
        /// Length asked for.
        len: u64,
    },
    /// The kernel unmapped another length than was mapped; the range is never used again.
    #[error(
        "{unmapped} of {len} bytes at {iova:#x} were unmapped: the range is given up until close"
    )]
    ShortUnmap {
        /// First bus address.
        iova: u64,
        /// Length that was mapped.
        len: u64,
        /// Length that the kernel says it unmapped.
        unmapped: u64,
    },
    /// The memory to import is not whole pages.
    #[error(
        "imported memory must start and end on a page of {page} bytes, copy it into a buffer instead"
    )]
    ImportAlignment {
        /// Page size in bytes.
        page: usize,
    },
    /// This mode cannot do that.
    #[error("{what} is not possible in mode {mode}")]
    NotInMode {
        /// What was asked for.
        what: &'static str,
        /// The mode.
        mode: crate::Mode,
    },
    /// The device has no such window.
    #[error("{0} has no window")]
    NoWindow(Bar),
    /// The window cannot make the access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Doorbells can be written as registers, and nothing else.
    #[error("doorbell region at {at} takes register writes only")]
    Doorbell {
        /// Offset asked for.
        at: BarOffset,
    },
    /// The handle is of a generation before the last reset.
    #[error("handle is older than the last reset")]
    Stale,
    /// The device is gone.
    #[error("device is lost: {0}")]
    Lost(LostBecause),
    /// The device does not take bus mastering away or give it back.
    #[error("command register reads {found:#06x} after {written:#06x} was written")]
    CommandRegister {
        /// Value written.
        written: u16,
        /// Value read back.
        found: u16,
    },
    /// The buffer is empty or too large.
    #[error("DMA buffer of {len} bytes: possible are 1 to {max}")]
    BufferSize {
        /// Length asked for.
        len: usize,
        /// Largest possible.
        max: usize,
    },
    /// The range does not lie inside the buffer.
    #[error("range is outside the DMA buffer")]
    BufferRange(#[source] OutOfRange),
    /// Another caller controls resets, or a reset is in progress.
    #[error("resets are controlled by another caller, or one is in progress")]
    ResetBusy,
    /// The transport cannot make this reset.
    #[error("no {0} reset by the transport")]
    NoReset(ResetScope),
    /// A slot reset would hit devices that are not ours.
    #[error(
        "slot reset would also hit {0}: bind it to vfio-pci and open its group here, or reset the function"
    )]
    ResetHitsOthers(String),
    /// The reset failed; the device is in no known state.
    #[error("{scope} reset failed: try a larger one")]
    ResetFailed {
        /// What was tried.
        scope: ResetScope,
        /// Why it failed.
        #[source]
        source: Box<VfioError>,
    },
    /// Handles of the device are still there; it is quiet, but other processes cannot open it
    /// before they are gone.
    #[error(
        "closed, but {handles} handles (windows, mailboxes, buffers) still hold the device: drop them first"
    )]
    HandlesRemain {
        /// How many.
        handles: usize,
    },
    /// A mailbox failed.
    #[error("mailbox failed")]
    Mailbox(#[source] Box<MailboxError<VfioError>>),
}

/// What to do about a server.
fn server(error: &et_vfio_user::ClientError) -> ErrorKind {
    use et_vfio_user::ClientError;
    match error {
        ClientError::NoAnswer(_) => ErrorKind::Busy,
        ClientError::Disconnected(_) | ClientError::Timeout { .. } => {
            ErrorKind::Lost(LossReason::LinkDown)
        }
        ClientError::Connect { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            ErrorKind::Permission
        }
        ClientError::Resource { .. } => ErrorKind::Exhausted(Resource::Handles),
        _ => ErrorKind::Unsupported,
    }
}

fn by(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(" by {holder}"))
}

impl VfioError {
    pub(crate) fn call(call: Call, target: impl Into<String>, errno: Errno) -> Self {
        Self::Call { call, target: target.into(), errno }
    }
}

impl et_hal::Error for VfioError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Call { call, errno, .. } => advice(*call, *errno).0,
            Self::NoIommuNotAllowed { .. } => ErrorKind::Permission,
            Self::Busy { .. } | Self::ResetBusy | Self::HandlesRemain { .. } => ErrorKind::Busy,
            Self::Server { source, .. } => server(source),
            Self::NotViable { .. }
            | Self::Lacking { .. }
            | Self::NotOurs { .. }
            | Self::NotInMode { .. }
            | Self::NoWindow(_)
            | Self::Doorbell { .. }
            | Self::NoReset(_) => ErrorKind::Unsupported,
            Self::LockedMemory { .. } => ErrorKind::Exhausted(Resource::HostMemory),
            Self::MappingEntries { .. } | Self::NoBusAddresses { .. } => {
                ErrorKind::Exhausted(Resource::BusAddresses)
            }
            Self::Access(error) => error.kind(),
            Self::BufferRange(_) => ErrorKind::OutOfBounds,
            Self::ImportAlignment { .. } => ErrorKind::Misaligned,
            Self::BufferSize { .. } => ErrorKind::TooLarge,
            Self::Stale => ErrorKind::Stale,
            Self::Lost(LostBecause::RemovalRequested | LostBecause::Disconnected) => {
                ErrorKind::Lost(LossReason::Removed)
            }
            Self::Lost(LostBecause::Closed) => ErrorKind::Lost(LossReason::Closed),
            Self::Lost(LostBecause::Forked) => ErrorKind::Lost(LossReason::Forked),
            Self::Lost(_) => ErrorKind::Lost(LossReason::LinkDown),
            Self::ResetHitsOthers(_) => ErrorKind::Permission,
            Self::ResetFailed { .. } => ErrorKind::NeedsReset(ResetScope::Slot),
            Self::Mailbox(error) => error.kind(),
            Self::Address(_) | Self::ShortUnmap { .. } | Self::CommandRegister { .. } => {
                ErrorKind::Other
            }
        }
    }
}

impl From<MailboxError<Self>> for VfioError {
    fn from(error: MailboxError<Self>) -> Self {
        match error {
            MailboxError::Access(error) => error,
            error => Self::Mailbox(Box::new(error)),
        }
    }
}
