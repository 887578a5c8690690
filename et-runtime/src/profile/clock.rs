//! The clocks of host and device.

use std::time::Duration;

use et_devapi::msg::ops::{Body, EchoStatus, Times};
use et_hal::Hal;

use super::ClockFit;
use crate::link::Wire;
use crate::timeline::Timeline;
use crate::{Device, Error, Refusal, Result};

/// When the device had a command, on the host's clock.
///
/// Each time may be off by [`error`](Self::error) in either direction; the distances between them
/// are the device's own and exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSpan {
    /// The device picked it up.
    pub taken: Duration,
    /// It was dispatched: the kernel started, or the first byte was copied.
    pub started: Duration,
    /// It had been executed.
    pub executed: Duration,
    /// How far each of them may be off.
    pub error: Duration,
}

impl ClockFit {
    /// Returns when the device had an operation; `None` if it reported no times, or if nothing is
    /// known of its clock yet. Of several commands of one operation the execution times are added
    /// up, as in [`Timeline::device`].
    #[must_use]
    pub fn span(&self, timeline: &Timeline) -> Option<DeviceSpan> {
        let Times { start, wait, execute } = timeline.device?;
        let dispatched = start.wrapping_add(wait);
        Some(DeviceSpan {
            taken: self.host_time(start)?,
            started: self.host_time(dispatched)?,
            executed: self.host_time(dispatched.wrapping_add(execute))?,
            error: self.error()?,
        })
    }
}

impl<H: Hal> Device<H> {
    /// Finds out where the device's cycle counter is on the host's clock, by `rounds` echoes; the
    /// more, the smaller the [error](ClockFit::error). Operations that are [added](ClockFit::add)
    /// to it later make it smaller still, and show if the clocks do not run evenly.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not say how long a cycle is; [`Error::Refused`];
    /// [`Error::Timeout`].
    ///
    /// Spec: §7.4, §11
    pub fn correlate_clocks(&self, rounds: u32) -> Result<ClockFit> {
        let op = "echo";
        let why = "the registers do not say how long a cycle is";
        let mhz = self.properties().boot_frequency_mhz;
        let mut fit = ClockFit::new(mhz.ok_or(Error::Unsupported { op, why })?);
        let link = self.link();
        let deadline = link.deadline(link.config.command_timeout);
        for _ in 0..rounds {
            let sent = link.now();
            let start = match link.call(Wire::ECHO, op, deadline)? {
                Body::Echo { start, status: EchoStatus::Success } => start,
                Body::Echo { status, .. } => {
                    return Err(Error::Refused { op, status: Refusal::Echo(status) });
                }
                other => {
                    let why = format!("answer to an {op} is {other:?}");
                    return Err(Error::lost(why));
                }
            };
            let device = Some(Times { start, wait: 0, execute: 0 });
            fit.add(&Timeline { queued: sent, sent, completed: link.now(), device });
        }
        Ok(fit)
    }
}
