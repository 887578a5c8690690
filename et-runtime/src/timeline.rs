//! When an operation was where.

use std::time::Duration;

use et_devapi::msg::ops::Times;

/// When an operation was queued, sent and completed. Host times are those of the device's clock
/// object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The call was made.
    pub queued: Duration,
    /// The first command was put into the submission queue.
    pub sent: Duration,
    /// The last response was taken from the completion queue.
    pub completed: Duration,
    /// Times of the device in cycles, if it reports any for this kind of command; execution times
    /// of several commands are added up. Spec: §11.
    pub device: Option<Times>,
}
