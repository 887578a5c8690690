//! What is known of an operation that has ended.

use crate::sync::Arc;
use crate::timeline::Timeline;

/// One recorded operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// What it was.
    pub name: &'static str,
    /// Name of the kernel, of a launch.
    pub kernel: Option<Arc<str>>,
    /// Number of the operation.
    pub id: u64,
    /// Its stream.
    pub stream: u32,
    /// When.
    pub timeline: Timeline,
    /// It failed.
    pub failed: bool,
    /// Why, if it failed.
    pub error: Option<Arc<str>>,
}

impl Record {
    /// Returns what a profile calls it: the kernel, or else the operation.
    #[must_use]
    pub fn title(&self) -> &str {
        self.kernel.as_deref().unwrap_or(self.name)
    }
}
