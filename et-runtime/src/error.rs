//! Everything that can go wrong, in one type.

use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::{DmaStatus, Version};
use et_hal::{DeviceAccess, DeviceAddr, ErrorKind, ResetScope, Resource};

use crate::kernel::{ElfError, LaunchFailure};
use crate::memory::{AllocError, UsageError};
use crate::refusal::Refusal;
use crate::report::debug_as_report;
use crate::site::Site;

/// Result of the runtime's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure of the runtime, of the device or of a command.
///
/// Values are cheap to clone: every waiter of an event gets the same one.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend failed.
    #[error("{site} failed in the backend")]
    Hal {
        /// What the runtime was doing, and where.
        site: Site,
        /// The backend's classification.
        kind: ErrorKind,
        /// The backend's own error.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The device could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// A kernel could not be loaded.
    #[error(transparent)]
    Load(LoadError),
    /// A deadline passed.
    #[error("{site} did not finish within {after:?}")]
    Timeout {
        /// What was waited for, and where.
        site: Site,
        /// How long.
        after: Duration,
    },
    /// The device was closed.
    #[error("{}the device is closed", site.lead())]
    Closed {
        /// What was asked for, of which device.
        site: Site,
    },
    /// The handle belongs to the time before a reset.
    #[error("{}the handle is older than the last reset of the device", site.lead())]
    Stale {
        /// What was asked for, of which device.
        site: Site,
    },
    /// The device broke the protocol or disappeared; everything in flight failed with this.
    #[error("{}the device is lost: {why}", site.lead())]
    Lost {
        /// What failed with it, and which device it is.
        site: Site,
        /// What was seen.
        why: Arc<str>,
    },
    /// The compute side is down; reset it before the next launch. Spec: §10.4.
    #[error("{}compute is unusable until a {scope} reset: {why}", site.lead())]
    NeedsReset {
        /// What failed because of it, on which device.
        site: Site,
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
    /// A host buffer was allocated for the other direction.
    #[error("{op} is not possible: the device has {access:?} access to the buffer")]
    Access {
        /// The copy.
        op: &'static str,
        /// What the buffer was allocated for.
        access: DeviceAccess,
    },
    /// A buffer of the device is not for this. See
    /// [`Device::alloc_with`](crate::Device::alloc_with).
    #[error(transparent)]
    Usage(Box<UsageError>),
    /// The buffer belongs to another device. One from before a reset is [stale](Self::Stale).
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
    /// The arguments are not those that the kernel's file states.
    #[error("kernel {kernel} has {expected} bytes of arguments ({signature}), {found} were given")]
    ArgumentsMismatch {
        /// The kernel's name.
        kernel: Arc<str>,
        /// Bytes given, padding included.
        found: usize,
        /// Bytes by the statement.
        expected: usize,
        /// The statement; see [`Signature`](crate::kernel::Signature).
        signature: String,
    },
    /// A launch option the device would refuse. Spec: §9.1.
    #[error("launch option {option} is invalid: {why}")]
    LaunchOption {
        /// Its name.
        option: &'static str,
        /// The rule it breaks.
        why: String,
    },
    /// The kernel is still in use.
    #[error("kernel {name} has launches in flight")]
    KernelInUse {
        /// The kernel's name.
        name: Arc<str>,
    },
    /// A part of the memory is [mapped](crate::Stream::map) already, and one of the two is to be
    /// written.
    #[error("{len} bytes at {addr} are mapped already")]
    Mapped {
        /// Where the other mapping starts.
        addr: DeviceAddr,
        /// Its length in bytes.
        len: u64,
    },
    /// The device refused or failed a copy. Spec: §7.8.
    #[error("{op} failed on the device: {status}")]
    Copy {
        /// The direction.
        op: &'static str,
        /// The device's answer.
        status: DmaStatus,
    },
    /// Of a copy between devices, the device that was to be read failed. What is not said of it
    /// concerns the device that was to be written.
    #[error("the source of a copy between devices failed")]
    Source {
        /// Its failure.
        #[source]
        source: Arc<Error>,
    },
    /// The device refused or failed a launch. Spec: §9.4.
    #[error("{0}")]
    Launch(Arc<LaunchFailure>),
    /// The device refused another command.
    #[error("{op} failed on the device: {status}")]
    Refused {
        /// The command.
        op: &'static str,
        /// The device's answer.
        status: Refusal,
    },
    /// The service processor has answered a command with something that is no answer to it.
    #[error("{op} failed: {why}")]
    Malformed {
        /// The command.
        op: &'static str,
        /// What was seen.
        why: Arc<str>,
    },
    /// The operation was aborted, or its stream.
    #[error("{op} was aborted")]
    Aborted {
        /// The operation.
        op: &'static str,
    },
    /// A kernel was ended by the abort of another operation, because the device can abort only a
    /// whole queue. Spec: §10.1.
    #[error("{op} was aborted together with operation {operation}, which shares its queue")]
    AbortedWith {
        /// The operation that was not meant.
        op: &'static str,
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

/// A device that could not be opened. Spec: §4.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
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
    /// A step failed like an operation of an open device.
    #[error("the device did not open")]
    Step(#[source] Box<Error>),
}

impl OpenError {
    /// Returns the failure as one of the kinds that backends use too.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Boot { .. } => ErrorKind::Timeout,
            Self::Registers(_) | Self::Version { .. } => ErrorKind::Protocol,
            Self::Step(error) => error.kind(),
        }
    }
}

/// A kernel that could not be loaded. Spec: §13.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is unusable; nothing was sent.
    #[error("kernel {name} cannot be loaded")]
    Elf {
        /// The kernel's name.
        name: Arc<str>,
        /// What is wrong with the file.
        #[source]
        source: Arc<ElfError>,
    },
    /// The device has no room for it, or it could not be copied there.
    #[error("kernel {name} cannot be put on the device")]
    Device {
        /// The kernel's name.
        name: Arc<str>,
        /// The failure of the allocation or copy.
        #[source]
        source: Box<Error>,
    },
}

impl LoadError {
    /// Returns the failure as one of the kinds that backends use too.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Elf { .. } => ErrorKind::Invalid,
            Self::Device { source, .. } => source.kind(),
        }
    }
}

debug_as_report!(Error, OpenError, LoadError);

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        match error {
            Error::Open(error) => error,
            error => Self::Step(Box::new(error)),
        }
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Step(error) => *error,
            error => Self::Open(error),
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// Where a failure belongs, borrowed as the error is.
macro_rules! site {
    ($error:expr) => {
        match $error {
            Error::Hal { site, .. }
            | Error::Timeout { site, .. }
            | Error::Closed { site }
            | Error::Stale { site }
            | Error::Lost { site, .. }
            | Error::NeedsReset { site, .. } => Some(site),
            _ => None,
        }
    };
}

impl Error {
    /// [`Timeout`](Self::Timeout) of what was waited for.
    #[must_use]
    pub fn timeout(operation: &'static str, after: Duration) -> Self {
        Self::Timeout { site: Site::of(operation), after }
    }

    /// [`Closed`](Self::Closed) of what was asked for.
    #[must_use]
    pub fn closed(operation: &'static str) -> Self {
        Self::Closed { site: Site::of(operation) }
    }

    pub(crate) fn stale(operation: &'static str) -> Self {
        Self::Stale { site: Site::of(operation) }
    }

    /// What everything in flight ends with when its device is closed.
    pub(crate) fn all_closed() -> Self {
        Self::Closed { site: Site::default() }
    }

    /// What everything in flight ends with when its device is reset.
    pub(crate) fn all_stale() -> Self {
        Self::Stale { site: Site::default() }
    }

    pub(crate) fn lost(why: impl Into<Arc<str>>) -> Self {
        Self::Lost { site: Site::default(), why: why.into() }
    }

    /// The same, as the failure of this operation if it does not know of one.
    pub(crate) fn during(mut self, operation: &'static str) -> Self {
        if let Some(site) = site!(&mut self) {
            site.operation.get_or_insert(operation);
        }
        self
    }

    /// The same, on the device of this name if it does not know of one.
    #[must_use]
    pub fn on(mut self, device: impl Into<Arc<str>>) -> Self {
        if let Some(site) = site!(&mut self) {
            site.device.get_or_insert_with(|| device.into());
        }
        self
    }

    /// Returns what failed or was waited for, if the error knows.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Access { op, .. }
            | Self::Copy { op, .. }
            | Self::Refused { op, .. }
            | Self::Malformed { op, .. }
            | Self::Aborted { op }
            | Self::AbortedWith { op, .. }
            | Self::Unsupported { op, .. } => Some(op),
            Self::Source { source } => source.operation(),
            error => site!(error).and_then(Site::operation),
        }
    }

    /// Returns the [name](crate::Config::name) of the device that failed, if the error knows.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Source { source } => source.device(),
            error => site!(error).and_then(Site::device),
        }
    }

    pub(crate) fn range(error: &et_hal::OutOfRange) -> Self {
        let et_hal::OutOfRange { offset, len, buffer } = *error;
        Self::OutOfRange { offset: offset as u64, len: len as u64, buffer: buffer as u64 }
    }

    pub(crate) fn hal<E: et_hal::Error>(op: &'static str) -> impl Fn(E) -> Self {
        move |source| match source.kind() {
            ErrorKind::Stale => Self::stale(op),
            kind => Self::Hal { site: Site::of(op), kind, source: Arc::new(source) },
        }
    }

    pub(crate) fn no_thread(op: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Hal {
            site: Site::of(op),
            kind: ErrorKind::Exhausted(Resource::Handles),
            source: Arc::new(source),
        }
    }

    pub(crate) fn at_source(error: Self) -> Self {
        Self::Source { source: Arc::new(error) }
    }

    /// Returns the failure as one of the kinds that backends use too.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Hal { kind, .. } => *kind,
            Self::Open(error) => error.kind(),
            Self::Load(error) => error.kind(),
            Self::Source { source } => source.kind(),
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Closed { .. } => ErrorKind::Lost(et_hal::LossReason::Closed),
            Self::Stale { .. } => ErrorKind::Stale,
            Self::Lost { .. } => ErrorKind::NeedsReset(ResetScope::Function),
            Self::NeedsReset { scope, .. } => ErrorKind::NeedsReset(*scope),
            Self::Memory(AllocError::OutOfMemory { .. }) => {
                ErrorKind::Exhausted(Resource::DeviceMemory)
            }
            Self::OutOfRange { .. } => ErrorKind::OutOfBounds,
            Self::Misaligned { .. } => ErrorKind::Misaligned,
            Self::Access { .. } | Self::Usage(_) => ErrorKind::Permission,
            Self::ArgumentsTooLarge { .. } => ErrorKind::TooLarge,
            Self::KernelInUse { .. } | Self::Mapped { .. } => ErrorKind::Busy,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Malformed { .. } => ErrorKind::Protocol,
            Self::Memory(_)
            | Self::Overlap { .. }
            | Self::LengthMismatch { .. }
            | Self::ForeignBuffer
            | Self::ForeignEvent
            | Self::ShireMask { .. }
            | Self::ArgumentsMismatch { .. }
            | Self::LaunchOption { .. }
            | Self::HasEnded { .. } => ErrorKind::Invalid,
            // What the device has done is no failure of the transport.
            Self::Copy { .. }
            | Self::Launch(_)
            | Self::Refused { .. }
            | Self::Aborted { .. }
            | Self::AbortedWith { .. } => ErrorKind::Other,
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

/// Returns the message of a panic.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".into())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use et_devapi::msg::ops::EchoStatus;

    use super::*;
    use crate::memory::Access;
    use crate::memory::User;

    /// One of each variant, the kind it must have, and what its message must name.
    fn all() -> Vec<(Error, ErrorKind, &'static str)> {
        let addr = DeviceAddr::new(0x80);
        let zero = || Arc::new(std::fmt::Error);
        let status = DmaStatus::InvalidAddress;
        let why: Arc<str> = "seen".into();
        let scope = ResetScope::Compute;
        let timeout = Error::timeout("read", Duration::from_secs(1));
        let holders = Vec::new();
        let memory = AllocError::OutOfMemory { asked: 64, align: 64, free: 0, largest: 0, holders };
        let version = Version { major: 3, minor: 0, patch: 0 };
        let elf =
            |name: &str| LoadError::Elf { name: name.into(), source: ElfError::NotElf.into() };
        let on_device =
            LoadError::Device { name: "add".into(), source: Box::new(memory.clone().into()) };
        vec![
            (
                Error::Hal { site: Site::of("kick"), kind: ErrorKind::Busy, source: zero() },
                ErrorKind::Busy,
                "kick",
            ),
            (
                OpenError::Boot { endpoint: "ops", status: 3, after: Duration::from_secs(2) }
                    .into(),
                ErrorKind::Timeout,
                "ops",
            ),
            (OpenError::Registers(zero()).into(), ErrorKind::Protocol, "registers"),
            (
                OpenError::Version { found: version, required: 2 }.into(),
                ErrorKind::Protocol,
                "3.0.0",
            ),
            (OpenError::from(timeout.clone()).into(), ErrorKind::Timeout, "read"),
            (timeout, ErrorKind::Timeout, "read did not finish within 1s"),
            (elf("add").into(), ErrorKind::Invalid, "add"),
            (on_device.into(), ErrorKind::Exhausted(Resource::DeviceMemory), "add"),
            (
                Error::closed("fill"),
                ErrorKind::Lost(et_hal::LossReason::Closed),
                "fill: the device is closed",
            ),
            (Error::stale("fill"), ErrorKind::Stale, "reset"),
            (Error::lost(why.clone()), ErrorKind::NeedsReset(ResetScope::Function), "seen"),
            (
                Error::NeedsReset { site: Site::default(), scope, why },
                ErrorKind::NeedsReset(scope),
                "seen",
            ),
            (memory.into(), ErrorKind::Exhausted(Resource::DeviceMemory), "64 bytes"),
            (AllocError::ZeroLength.into(), ErrorKind::Invalid, "0 bytes"),
            (Error::OutOfRange { offset: 1, len: 2, buffer: 2 }, ErrorKind::OutOfBounds, "2 bytes"),
            (Error::Misaligned { addr, len: 3, align: 4 }, ErrorKind::Misaligned, "3 bytes"),
            (
                Error::Access { op: "copy to x", access: DeviceAccess::Read },
                ErrorKind::Permission,
                "copy to x",
            ),
            (
                Error::Usage(Box::new(UsageError {
                    op: "fill",
                    tag: Some("weights".into()),
                    address: addr,
                    len_bytes: 8,
                    user: User::Host,
                    wanted: Access::Write,
                    allowed: Some(Access::Read),
                })),
                ErrorKind::Permission,
                "fill needs write access to \"weights\", 8 bytes at",
            ),
            (Error::Overlap { src: addr, dst: addr, len: 5 }, ErrorKind::Invalid, "5 bytes"),
            (Error::LengthMismatch { from: 6, to: 7 }, ErrorKind::Invalid, "6 bytes"),
            (Error::ForeignBuffer, ErrorKind::Invalid, "buffer"),
            (Error::ForeignEvent, ErrorKind::Invalid, "event"),
            (Error::ShireMask { asked: 2, available: 1 }, ErrorKind::Invalid, "0x2"),
            (Error::ArgumentsTooLarge { len: 8, max: 4 }, ErrorKind::TooLarge, "8 bytes"),
            (
                Error::ArgumentsMismatch {
                    kernel: "add".into(),
                    found: 8,
                    expected: 16,
                    signature: "x: in f32[], n: u64".into(),
                },
                ErrorKind::Invalid,
                "n: u64",
            ),
            (
                Error::LaunchOption { option: "stack", why: "too small".into() },
                ErrorKind::Invalid,
                "stack",
            ),
            (Error::KernelInUse { name: "add".into() }, ErrorKind::Busy, "add"),
            (Error::Mapped { addr, len: 12 }, ErrorKind::Busy, "12 bytes at"),
            (Error::Copy { op: "copy to the device", status }, ErrorKind::Other, "to the device"),
            (
                Error::Refused { op: "echo", status: Refusal::Echo(EchoStatus::HostAborted) },
                ErrorKind::Other,
                "echo",
            ),
            (
                Error::Malformed { op: "power query", why: "short".into() },
                ErrorKind::Protocol,
                "power query",
            ),
            (Error::Aborted { op: "fill" }, ErrorKind::Other, "fill was aborted"),
            (Error::AbortedWith { op: "fill", operation: 9 }, ErrorKind::Other, "operation 9"),
            (Error::Unsupported { op: "abort", why: "no queue" }, ErrorKind::Unsupported, "abort"),
            (Error::HasEnded { operation: 10 }, ErrorKind::Invalid, "operation 10"),
        ]
    }

    #[test]
    fn a_main_that_returns_an_error_prints_its_causes() {
        let holders = Vec::new();
        let memory = AllocError::OutOfMemory { asked: 64, align: 64, free: 0, largest: 0, holders };
        let message = memory.to_string();
        let name = "add".into();
        let error = Error::Load(LoadError::Device { name, source: Box::new(memory.into()) });
        let text = format!("kernel add cannot be put on the device: {message}");
        assert_eq!(format!("{error:?}"), text);
    }

    #[test]
    fn every_error_has_its_kind_and_names_what_it_is_about() {
        for (error, kind, name) in all() {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(name), "{error}");
            let text = error.source().map(ToString::to_string);
            assert!(text.is_none_or(|text| !error.to_string().contains(&text)), "{error}");
        }
    }
}
