//! Resets of the transport.

use core::fmt;

use crate::ErrorType;

/// How much a reset covers, from small to large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResetScope {
    /// The compute cores; by message, see the device's own commands.
    Compute,
    /// The operations endpoint; by message.
    Operations,
    /// The PCI function.
    Function,
    /// Everything behind the slot.
    Slot,
    /// The whole chip with its memory, by itself; by message.
    Chip,
}

impl fmt::Display for ResetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Operations => "operations",
            Self::Function => "function",
            Self::Slot => "slot",
            Self::Chip => "chip",
        })
    }
}

/// What a reset destroys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Loss {
    /// Commands in flight and queue contents.
    pub queues: bool,
    /// State of the compute cores.
    pub compute: bool,
    /// Contents of device memory.
    pub memory: bool,
}

/// Counts the resets of a device; handles remember the one they were made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Generation(pub u32);

/// How far a reset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum ResetState {
    /// Poll again.
    InProgress,
    /// Finished; every handle of before is stale.
    Done(Generation),
}

/// Resets the device through the transport.
///
/// # For HAL authors
///
/// `begin` MUST make every window, mailbox and DMA buffer allocator of the present generation
/// answer `Stale`; memory the device may still write to MUST stay mapped until the reset is done.
pub trait Reset: ErrorType {
    /// Returns what a reset of this scope destroys; `None` if the transport cannot do it.
    fn loss(&self, scope: ResetScope) -> Option<Loss>;

    /// Starts a reset.
    ///
    /// # Errors
    /// `Unsupported` if [`loss`](Reset::loss) is `None`; `Busy` while another is in progress;
    /// `Permission`; `Lost`.
    fn begin(&mut self, scope: ResetScope) -> Result<(), Self::Error>;

    /// Looks whether the reset has finished. The caller keeps the deadline.
    ///
    /// # Errors
    /// `Lost` if the device did not come back.
    fn poll(&mut self) -> Result<ResetState, Self::Error>;
}

const _: fn(&dyn Reset<Error = crate::ErrorKind>) = |_| ();

macro_rules! forward {
    ($(#[$attr:meta])* $target:ty) => {
        $(#[$attr])*
        impl<T: Reset + ?Sized> Reset for $target {
            fn loss(&self, scope: ResetScope) -> Option<Loss> {
                T::loss(self, scope)
            }
            fn begin(&mut self, scope: ResetScope) -> Result<(), Self::Error> {
                T::begin(self, scope)
            }
            fn poll(&mut self) -> Result<ResetState, Self::Error> {
                T::poll(self)
            }
        }
    };
}

forward!(&mut T);
