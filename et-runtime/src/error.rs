//! Everything that can go wrong, in one type.

use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::{DmaStatus, Version};
use et_hal::{DeviceAddr, ErrorKind, ResetScope};

use crate::kernel::{ElfError, LaunchFailure};
use crate::memory::AllocError;

/// Result of the runtime's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure of the runtime, of the device or of a command.
///
/// Values are cheap to clone: every waiter of an event gets the same one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend failed.
    #[error("{op} failed in the backend")]
    Hal {
        /// What the runtime was doing.
        op: &'static str,
        /// The backend's classification.
        kind: ErrorKind,
        /// The backend's own error.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The device did not finish booting.
    #[error("the device did not boot within {after:?}: {endpoint} status is {status}")]
    Boot {
        /// Whose status: `mgmt` or `ops`.
        endpoint: &'static str,
        /// The last status seen. Spec: §3.9.
        status: i16,
        /// How long the runtime waited.
        after: Duration,
    },
    /// The device interface registers are unusable.
    #[error("device interface registers are invalid")]
    Registers(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The firmware speaks another version of the operations interface.
    #[error(
        "device API {}.{}.{} is not supported, {required}.x is",
        found.major, found.minor, found.patch
    )]
    Version {
        /// What the device reported.
        found: Version,
        /// The major version this runtime speaks.
        required: u16,
    },
    /// A deadline passed.
    #[error("{op} did not finish within {after:?}")]
    Timeout {
        /// What was waited for.
        op: &'static str,
        /// How long.
        after: Duration,
    },
    /// The device was closed.
    #[error("the device is closed")]
    Closed,
    /// The handle belongs to the time before a reset.
    #[error("the handle is older than the last reset of the device")]
    Stale,
    /// The device broke the protocol or disappeared; everything in flight failed with this.
    #[error("the device is lost: {why}")]
    Lost {
        /// What was seen.
        why: Arc<str>,
    },
    /// The compute side is down; reset it before the next launch. Spec: §10.4.
    #[error("compute is unusable until a {scope} reset: {why}")]
    NeedsReset {
        /// The smallest reset that helps.
        scope: ResetScope,
        /// The event the device sent.
        why: Arc<str>,
    },
    /// Device memory could not be allocated or freed.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// A range is not inside its buffer.
    #[error("{len} bytes at offset {offset} are outside a buffer of {buffer} bytes")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Length of the buffer.
        buffer: u64,
    },
    /// A copy does not meet the device's alignment.
    #[error("copy of {len} bytes at {addr} is not aligned to {align} bytes")]
    Misaligned {
        /// Device address of the copy.
        addr: DeviceAddr,
        /// Its length in bytes.
        len: u64,
        /// What the device demands.
        align: u64,
    },
    /// Source and destination of a copy overlap.
    #[error("source {src} and destination {dst} overlap over {len} bytes")]
    Overlap {
        /// Source address.
        src: DeviceAddr,
        /// Destination address.
        dst: DeviceAddr,
        /// Length of the copy.
        len: u64,
    },
    /// Two sides of a copy have different lengths.
    #[error("{from} bytes cannot be copied to a place of {to} bytes")]
    LengthMismatch {
        /// Bytes to copy.
        from: u64,
        /// Bytes there is room for.
        to: u64,
    },
    /// The buffer belongs to another device, or to the time before a reset.
    #[error("the buffer belongs to another device")]
    ForeignBuffer,
    /// The launch names shires that the device does not have.
    #[error(
        "shire mask {asked:#x} is empty or has shires that the device lacks, it has {available:#x}"
    )]
    ShireMask {
        /// The mask of the launch.
        asked: u64,
        /// The mask of the device.
        available: u64,
    },
    /// The kernel's arguments do not fit.
    #[error("{len} bytes of arguments, at most {max} are possible")]
    ArgumentsTooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes possible.
        max: usize,
    },
    /// A launch option the device would refuse. Spec: §9.1.
    #[error("launch option {option} is invalid: {why}")]
    LaunchOption {
        /// Its name.
        option: &'static str,
        /// The rule it breaks.
        why: String,
    },
    /// The kernel file is unusable.
    #[error("the kernel cannot be loaded")]
    Elf(#[source] Arc<ElfError>),
    /// The kernel is still in use.
    #[error("kernel {name} has launches in flight")]
    KernelInUse {
        /// The kernel's name.
        name: Arc<str>,
    },
    /// The device refused or failed a copy. Spec: §7.8.
    #[error("copy failed on the device: {status}")]
    Copy {
        /// The device's answer.
        status: DmaStatus,
    },
    /// The device refused or failed a launch. Spec: §9.4.
    #[error("{0}")]
    Launch(Arc<LaunchFailure>),
    /// The device refused another command.
    #[error("{op} failed on the device: {status}")]
    Refused {
        /// The command.
        op: &'static str,
        /// The device's answer, as text.
        status: Arc<str>,
    },
    /// The command was aborted, with its stream.
    #[error("aborted")]
    Aborted,
    /// A kernel was ended by the abort of another operation, because the device can abort only a
    /// whole queue. Spec: §10.1.
    #[error("aborted together with operation {operation}, which shares its queue")]
    AbortedWith {
        /// Number of the operation that was to be aborted; see [`Event::id`](crate::Event::id).
        operation: u64,
    },
    /// The device cannot do this.
    #[error("{op} is not possible on this device: {why}")]
    Unsupported {
        /// What was asked for.
        op: &'static str,
        /// What it lacks.
        why: &'static str,
    },
    /// The event belongs to another device.
    #[error("the event belongs to another device")]
    ForeignEvent,
    /// The operation has ended, so it cannot be aborted any more.
    #[error("operation {operation} has ended already")]
    HasEnded {
        /// Its number; see [`Event::id`](crate::Event::id).
        operation: u64,
    },
}

impl Error {
    pub(crate) fn range(error: &et_hal::OutOfRange) -> Self {
        let et_hal::OutOfRange { offset, len, buffer } = *error;
        Self::OutOfRange { offset: offset as u64, len: len as u64, buffer: buffer as u64 }
    }

    pub(crate) fn hal<E: et_hal::Error>(op: &'static str) -> impl Fn(E) -> Self {
        move |source| match source.kind() {
            ErrorKind::Stale => Self::Stale,
            kind => Self::Hal { op, kind, source: Arc::new(source) },
        }
    }

    /// Returns the failure as one of the kinds that backends use too.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Hal { kind, .. } => *kind,
            Self::Boot { .. } | Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Registers(_) | Self::Version { .. } => ErrorKind::Protocol,
            Self::Closed => ErrorKind::Lost(et_hal::LossReason::Closed),
            Self::Stale => ErrorKind::Stale,
            Self::Lost { .. } => ErrorKind::NeedsReset(ResetScope::Function),
            Self::NeedsReset { scope, .. } => ErrorKind::NeedsReset(*scope),
            Self::OutOfRange { .. } => ErrorKind::OutOfBounds,
            Self::Misaligned { .. } => ErrorKind::Misaligned,
            Self::ArgumentsTooLarge { .. } => ErrorKind::TooLarge,
            Self::KernelInUse { .. } => ErrorKind::Busy,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Other,
        }
    }

    /// Returns the report of a failed launch.
    #[must_use]
    pub fn launch_failure(&self) -> Option<&LaunchFailure> {
        match self {
            Self::Launch(failure) => Some(failure),
            _ => None,
        }
    }
}

impl From<ElfError> for Error {
    fn from(error: ElfError) -> Self {
        Self::Elf(Arc::new(error))
    }
}
