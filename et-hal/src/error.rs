//! The one error family of all traits.

use core::convert::Infallible;
use core::fmt;

use crate::ResetScope;

/// An error of a backend.
///
/// Generic code decides by [`kind`](Error::kind); the value itself keeps what the backend knows
/// (operation, address, `errno`) for people.
pub trait Error: core::error::Error + Send + Sync + 'static {
    /// Returns the failure as one of the kinds every backend shares.
    fn kind(&self) -> ErrorKind;
}

/// Names the error type of an implementation; supertrait of every trait here.
pub trait ErrorType {
    /// The error every method of the implementation returns.
    type Error: Error;
}

/// What went wrong, as far as generic code needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller named a place outside the window, buffer or queue set.
    OutOfBounds,
    /// The caller's address or length is not a multiple of what the access needs.
    Misaligned,
    /// The window does not allow this access width.
    BadWidth,
    /// The caller's message or buffer is larger than the transport can ever take.
    TooLarge,
    /// The caller's arguments make no sense, or belong to another device.
    Invalid,
    /// The transport does not have this ability.
    Unsupported,
    /// The handle is of a generation before the last reset.
    Stale,
    /// The process may not do this.
    Permission,
    /// What is needed is held elsewhere; trying again can succeed.
    Busy,
    /// A limit of the environment is reached.
    Exhausted(Resource),
    /// The device did not answer in time.
    Timeout,
    /// The device broke the protocol (a corrupt ring index, a message that cannot be framed).
    Protocol,
    /// The device must be reset, with at least this scope, before it can be used again.
    NeedsReset(ResetScope),
    /// The device is gone.
    Lost(LossReason),
    /// None of the above.
    Other,
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Host memory, or the right to pin more of it.
    HostMemory,
    /// Memory of the device.
    DeviceMemory,
    /// Bus addresses or mapping entries.
    BusAddresses,
    /// File descriptors, interrupt vectors and other handles.
    Handles,
}

/// Why the device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// It was removed, or its process ended.
    Removed,
    /// Reads return all ones: the link is down.
    LinkDown,
    /// The backend was shut down.
    Closed,
    /// The handle belongs to the process of which this one is a fork.
    Forked,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds => f.write_str("out of bounds"),
            Self::Misaligned => f.write_str("misaligned"),
            Self::BadWidth => f.write_str("access width not allowed"),
            Self::TooLarge => f.write_str("too large"),
            Self::Invalid => f.write_str("invalid argument"),
            Self::Unsupported => f.write_str("not supported"),
            Self::Stale => f.write_str("handle is older than the last reset"),
            Self::Permission => f.write_str("permission denied"),
            Self::Busy => f.write_str("busy"),
            Self::Exhausted(what) => write!(f, "no more {what}"),
            Self::Timeout => f.write_str("timed out"),
            Self::Protocol => f.write_str("protocol violation by the device"),
            Self::NeedsReset(scope) => write!(f, "device needs a {scope} reset"),
            Self::Lost(reason) => write!(f, "device lost: {reason}"),
            Self::Other => f.write_str("other error"),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostMemory => "host memory",
            Self::DeviceMemory => "device memory",
            Self::BusAddresses => "bus addresses",
            Self::Handles => "handles",
        })
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "removed",
            Self::LinkDown => "link down",
            Self::Closed => "closed",
            Self::Forked => "it belongs to the parent process",
        })
    }
}

impl core::error::Error for ErrorKind {}

impl Error for ErrorKind {
    fn kind(&self) -> ErrorKind {
        *self
    }
}

impl Error for Infallible {
    fn kind(&self) -> ErrorKind {
        match *self {}
    }
}

impl<T: ErrorType + ?Sized> ErrorType for &T {
    type Error = T::Error;
}

impl<T: ErrorType + ?Sized> ErrorType for &mut T {
    type Error = T::Error;
}

#[cfg(feature = "alloc")]
impl<T: ErrorType + ?Sized> ErrorType for alloc::sync::Arc<T> {
    type Error = T::Error;
}
