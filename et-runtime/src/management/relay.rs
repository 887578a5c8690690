//! The management endpoint of a card that another process has, and the other side of that.

use std::fmt;

use et_devapi::msg::HEADER_BYTES;
use et_devapi::msg::mgmt::MAX_COMMAND_BYTES;
use et_hal::Hal;

use super::Management;
use super::core::Answer;
use super::link::{ManagementLink, parts};
use super::way::{Relay, Way};
use crate::config::Config;
use crate::link::{Activity, Link};
use crate::sync::{Arc, Mutex, Weak, lock};
use crate::{Error, Result};

impl<H: Hal> Management<H> {
    /// Makes a handle whose commands go through a relay. Events stay with the process that has the
    /// card, as do updates and resets: those calls fail with [`Error::Refused`].
    #[must_use]
    pub fn through(relay: Arc<dyn Relay>, config: &Config) -> Self {
        Self { way: Way::Relay(relay), timeout: config.command_timeout }
    }

    /// Returns what the process that has the card has it do; `None` if the handle goes
    /// [through](Self::through) no other process, see
    /// [`Device::activity`](crate::Device::activity).
    ///
    /// # Errors
    /// As for any command.
    pub fn activity(&self) -> Result<Option<Activity>> {
        match &self.way {
            Way::Own(_) => Ok(None),
            Way::Relay(relay) => relay.activity(self.timeout).map(Some),
        }
    }

    /// Executes a command for someone else, and returns its answer as it came.
    ///
    /// # Errors
    /// Those of [`Management`], but for what is in the answer; [`Error::Unsupported`] if the
    /// payload is larger than that of any command.
    pub fn forward(&self, id: u16, payload: &[u8], op: &'static str) -> Result<Answer> {
        const MOST: usize = MAX_COMMAND_BYTES - HEADER_BYTES;
        if payload.len() > MOST {
            return Err(Error::Unsupported { op, why: "its payload is larger than any command's" });
        }
        self.way.call(id, payload, op, self.timeout)
    }
}

/// Looks at a device through all of its resets without keeping it open; see
/// [`Device::watch`](crate::Device).
pub struct Watch<H: Hal>(Weak<Slot<H>>);

impl<H: Hal> Clone for Watch<H> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<H: Hal> fmt::Debug for Watch<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl<H: Hal> Watch<H> {
    /// Returns the management endpoint; opens it the first time, and after a reset of the device.
    ///
    /// # Errors
    /// [`Error::Hal`] if the backend does not open its mailbox; [`Error::Closed`] when the device
    /// is; [`Error::Stale`] while it is being reset.
    pub fn management(&self) -> Result<Management<H>> {
        self.0.upgrade().ok_or_else(|| Error::closed("management"))?.get()
    }

    /// Counts what the device is asked to do at the moment.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn activity(&self) -> Result<Activity> {
        let closed = || Error::closed("activity");
        let slot = self.0.upgrade().ok_or_else(closed)?;
        let link = lock(&slot.0).link.upgrade().ok_or_else(closed)?;
        Ok(link.activity())
    }
}

/// Where a device keeps its management endpoint, which is opened when it is first used.
pub(crate) struct Slot<H: Hal>(Mutex<State<H>>);

struct State<H: Hal> {
    /// What opens it: the link of the device since its last reset.
    link: Weak<Link<H>>,
    opened: Option<Management<H>>,
}

impl<H: Hal> Default for Slot<H> {
    fn default() -> Self {
        Self(Mutex::new(State { link: Weak::new(), opened: None }))
    }
}

impl<H: Hal> Slot<H> {
    /// What is asked for from now on belongs to this link.
    pub(crate) fn serve(&self, link: &Arc<Link<H>>) {
        lock(&self.0).link = Arc::downgrade(link);
    }

    pub(crate) fn watch(self: &Arc<Self>) -> Watch<H> {
        Watch(Arc::downgrade(self))
    }

    pub(crate) fn get(&self) -> Result<Management<H>> {
        let mut state = lock(&self.0);
        if let Some(management) = &state.opened {
            return Ok(management.clone());
        }
        let link = state.link.upgrade().ok_or_else(|| Error::closed("management"))?;
        if let Some(error @ (Error::Closed { .. } | Error::Stale { .. })) = link.refusal() {
            return Err(error);
        }
        let (dir, layout) = parts(&link.layout);
        let hal = Arc::clone(&link.hal);
        let opened = ManagementLink::open(hal, dir, layout, link.config.clone())?;
        let management = Management::new(Arc::new(opened));
        state.opened = Some(management.clone());
        Ok(management)
    }

    pub(crate) fn is_open(&self) -> bool {
        lock(&self.0).opened.is_some()
    }

    pub(crate) fn take(&self) -> Option<Management<H>> {
        lock(&self.0).opened.take()
    }

    pub(crate) fn put_back(&self, management: Management<H>) {
        lock(&self.0).opened = Some(management);
    }
}
