//! How commands get to the service processor.

use std::fmt;
use std::time::Duration;

use et_hal::Hal;

use super::core::{Answer, ManagementCounters};
use super::link::ManagementLink;
use crate::link::Activity;
use crate::sync::Arc;
use crate::{Error, Refusal, Result};

/// Carries commands to a management endpoint that is open elsewhere.
///
/// It is for looking at a card that is in use: of what it refuses, it says why with
/// [`Error::Refused`].
pub trait Relay: fmt::Debug + Send + Sync {
    /// Has a command executed there, and returns its answer as it came.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`; [`Error::Refused`]; [`Error::Closed`] when the other
    /// side is gone.
    fn call(&self, id: u16, payload: &[u8], op: &'static str, timeout: Duration) -> Result<Answer>;

    /// Returns what has come out of the queue there, by the latest answer.
    fn counters(&self) -> ManagementCounters;

    /// Returns what the process there has the device do.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn activity(&self, timeout: Duration) -> Result<Activity>;
}

/// How commands get to the service processor.
pub(super) enum Way<H: Hal> {
    Own(Arc<ManagementLink<H>>),
    Relay(Arc<dyn Relay>),
}

impl<H: Hal> Clone for Way<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(link) => Self::Own(Arc::clone(link)),
            Self::Relay(relay) => Self::Relay(Arc::clone(relay)),
        }
    }
}

impl<H: Hal> Way<H> {
    pub(super) fn call(
        &self,
        id: u16,
        payload: &[u8],
        op: &'static str,
        timeout: Duration,
    ) -> Result<Answer> {
        match self {
            Self::Own(link) => link.call(id, payload, op, link.deadline(timeout)),
            Self::Relay(relay) => relay.call(id, payload, op, timeout),
        }
    }

    /// For what cannot be done through a relay.
    pub(super) fn own(&self, op: &'static str) -> Result<&Arc<ManagementLink<H>>> {
        match self {
            Self::Own(link) => Ok(link),
            Self::Relay(_) => {
                let status = Refusal::Owner("left to the process that has the card".into());
                Err(Error::Refused { op, status })
            }
        }
    }
}
