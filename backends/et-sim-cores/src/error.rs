//! Why the cores or their memory refuse a request.

use std::io;

/// The cores or the device memory could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoresError {
    /// The host did not give memory.
    #[error("no host memory for {what} of {bytes} bytes")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// Size of the request, in bytes.
        bytes: u64,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The size of device memory is not supported.
    #[error(
        "device memory of {bytes} bytes: a multiple of 2 MiB from 128 MiB to 256 GiB is needed"
    )]
    DramSize {
        /// The requested size, in bytes.
        bytes: u64,
    },
    /// An access touches addresses outside the memory.
    #[error("{len} bytes at {addr:#x} are outside the memory")]
    OutOfRange {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// The configuration makes no sense.
    #[error("bad configuration: {what}")]
    Config {
        /// The rule that is broken.
        what: &'static str,
    },
    /// A launch names shires that do not exist, or none.
    #[error("shire mask {requested:#x} is empty or exceeds the machine's {available:#x}")]
    ShireMask {
        /// The mask of the launch.
        requested: u64,
        /// The shires the machine has.
        available: u64,
    },
    /// A kernel is still running; there is one kernel slot.
    #[error("a kernel is still running")]
    Busy,
    /// A host thread could not be started.
    #[error("no host thread for the cores")]
    Thread(#[source] io::Error),
}
