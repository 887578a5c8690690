//! The one error type of the backend.

use et_devapi::mailbox::MailboxError;
use et_hal::{AccessError, Bar, BarOffset, ErrorKind, OutOfRange, ResetScope, Resource};
use et_sim_device::BoardError;

/// What can go wrong with a simulated device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The board cannot be powered on.
    #[error("simulated board cannot be powered on")]
    Board(#[from] BoardError),
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
    /// Memory that is to be imported does not begin and end on a page.
    #[error("imported memory must begin and end on a multiple of {page} bytes")]
    ImportAlignment {
        /// Bytes of a page.
        page: usize,
    },
    /// The buffer is empty or too large.
    #[error("DMA buffer of {len} bytes: possible are 1 to {max}")]
    BufferSize {
        /// Length asked for.
        len: usize,
        /// Largest possible.
        max: usize,
    },
    /// The host did not give memory.
    #[error("no host memory for a DMA buffer of {len} bytes")]
    NoMemory {
        /// Length asked for.
        len: usize,
        /// What the operating system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// All bus addresses have been used.
    #[error("no bus addresses left for {len} bytes")]
    NoBusAddresses {
        /// Length asked for.
        len: usize,
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
    /// A mailbox failed.
    #[error("mailbox failed")]
    Mailbox(#[source] Box<MailboxError<SimError>>),
}

impl et_hal::Error for SimError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoWindow(_) | Self::Doorbell { .. } | Self::NoReset(_) => ErrorKind::Unsupported,
            Self::Access(error) => error.kind(),
            Self::BufferRange(_) => ErrorKind::OutOfBounds,
            Self::BufferSize { .. } => ErrorKind::TooLarge,
            Self::ImportAlignment { .. } => ErrorKind::Misaligned,
            Self::Stale => ErrorKind::Stale,
            Self::NoMemory { .. } | Self::Board(BoardError::Memory { .. }) => {
                ErrorKind::Exhausted(Resource::HostMemory)
            }
            Self::NoBusAddresses { .. } => ErrorKind::Exhausted(Resource::BusAddresses),
            Self::Board(BoardError::Thread(_)) => ErrorKind::Exhausted(Resource::Handles),
            Self::ResetBusy => ErrorKind::Busy,
            Self::Mailbox(error) => error.kind(),
            Self::Board(_) => ErrorKind::Other,
        }
    }
}

impl From<MailboxError<Self>> for SimError {
    fn from(error: MailboxError<Self>) -> Self {
        match error {
            MailboxError::Access(error) => error,
            error => Self::Mailbox(Box::new(error)),
        }
    }
}
