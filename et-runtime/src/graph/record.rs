//! Which copies record which tasks.

use super::Access;

/// A task that is recorded.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) task: u32,
    pub(crate) regions: Vec<RecordedRegion>,
}

/// A region of device memory that it uses, and the copies of that: at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedRegion {
    pub(crate) access: Access,
    /// The copy before the task, if it reads the region.
    pub(crate) before: Option<u32>,
    /// The copy after it, if it writes the region.
    pub(crate) after: Option<u32>,
}
