//! Where a failure belongs.

use core::fmt;
use std::sync::Arc;

/// Which operation failed, and on which device, as far as that is known.
///
/// ```
/// let error = et_runtime::Error::closed("fill");
/// assert_eq!(error.operation(), Some("fill"));
/// assert_eq!(error.device(), None);
/// assert_eq!(error.to_string(), "fill: the device is closed");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    pub(crate) operation: Option<&'static str>,
    pub(crate) device: Option<Arc<str>>,
}

impl Site {
    pub(crate) fn of(operation: &'static str) -> Self {
        Self { operation: Some(operation), device: None }
    }

    /// What was done, or waited for.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.operation
    }

    /// The name of the device; see [`Config::name`](crate::Config::name).
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// What a message begins with that goes on by itself.
    pub(crate) fn lead(&self) -> Lead<'_> {
        Lead(self)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.operation, &self.device) {
            (Some(operation), Some(device)) => write!(f, "{operation} on {device}"),
            (Some(operation), None) => f.write_str(operation),
            (None, Some(device)) => f.write_str(device),
            (None, None) => f.write_str("the operation"),
        }
    }
}

pub(crate) struct Lead<'s>(&'s Site);

impl fmt::Display for Lead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.0 == Site::default() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}
