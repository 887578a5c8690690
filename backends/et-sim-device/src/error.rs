//! Why a board cannot be built or used.

use et_hal::BusAddr;

use crate::ConfigError;

/// The board could not be powered on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// The configuration makes no sense.
    #[error("the board cannot be built as configured")]
    Config(#[from] ConfigError),
    /// The host did not give memory.
    #[error("no memory for the {what}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The simulated cores could not be made.
    #[error("the compute cores cannot be built")]
    Cores(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The device registers could not be laid out.
    #[error("the device interface registers cannot be built")]
    Registers(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The firmware thread could not be started.
    #[error("the firmware thread cannot be started")]
    Thread(#[source] std::io::Error),
}

/// Host memory could not be given to, or taken from, the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The range is empty or does not fit 64-bit addresses.
    #[error("{len} bytes at bus address {bus} are no range")]
    BadRange {
        /// First address.
        bus: BusAddr,
        /// Bytes.
        len: u64,
    },
    /// Some of the addresses are in use.
    #[error("{len} bytes at bus address {bus} overlap another mapping")]
    Overlap {
        /// First address.
        bus: BusAddr,
        /// Bytes.
        len: u64,
    },
    /// No mapping starts there.
    #[error("no mapping starts at bus address {bus}")]
    NotMapped {
        /// The address.
        bus: BusAddr,
    },
}

/// A reset is already in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reset is already in progress")]
pub struct ResetBusy;
