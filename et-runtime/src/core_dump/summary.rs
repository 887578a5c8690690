//! What is in a core file, and what is not.

use std::io;

use crate::Error;
use crate::report::debug_as_report;
use crate::sync::Arc;

/// What was written of a region.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DumpedRegion {
    /// What it is.
    pub name: String,
    /// First device address.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Bytes that are in the file.
    pub written: u64,
    /// Why the rest is not, if so.
    pub error: Option<Error>,
}

/// What a core file has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoreSummary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Harts whose registers are in it.
    pub harts: usize,
    /// The regions, in the order of their addresses.
    pub regions: Vec<DumpedRegion>,
}

/// Why a core file that a [launch asked for](crate::Launch::core_dump) is not there, or not whole.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CoreWriteError {
    /// It could not be written; what is there is no core file.
    #[error("the file cannot be written")]
    File(#[source] Arc<io::Error>),
    /// It is there, without a region or without the end of one, as
    /// [its own list](super::CoreFile::regions) says.
    #[error("{region} cannot be read")]
    Region {
        /// What the region is.
        region: String,
        /// Why.
        #[source]
        error: Error,
    },
    /// The device was closed before.
    #[error("the device is closed")]
    Closed,
}

debug_as_report!(CoreWriteError);
