//! The management endpoint of an open device.

use std::time::Duration;

use et_devapi::dir::MgmtStatus;
use et_devapi::discovery;
use et_devapi::pci::MAILBOX_BAR;
use et_hal::{Hal, Mmio};

use super::link::ManagementLink;
use super::{Management, Watch, Way};
use crate::clock::Deadline;
use crate::device::Device;
use crate::link::Parker;
use crate::sync::Arc;
use crate::{Error, Result};

/// Pause between two looks at a chip that resets itself.
const PAUSE: Duration = Duration::from_micros(200);
/// Longest wait until the chip is seen to have begun, and to be back.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

impl<H: Hal> Device<H> {
    /// Returns the management endpoint; opens it the first time.
    ///
    /// # Errors
    /// [`Error::Hal`] if the backend does not open its mailbox; [`Error::Closed`].
    pub fn management(&self) -> Result<Management<H>> {
        self.management_slot().get()
    }

    /// Returns what looks at the device also after a reset, without keeping it open: for threads
    /// that serve others meanwhile.
    #[must_use]
    pub fn watch(&self) -> Watch<H> {
        self.management_slot().watch()
    }

    /// Resets the operations endpoint by the service processor and opens it again. Works while its
    /// firmware hangs. Device memory keeps its contents; the management endpoint stays open.
    ///
    /// Every stream, buffer, kernel and event of before is stale; work in flight fails with
    /// [`Error::Stale`].
    ///
    /// # Errors
    /// Those of [`management`](Device::management) and of [`open`](Device::open);
    /// [`Error::Refused`] if it does not start again; [`Error::Timeout`]. After an error the device
    /// is closed, but a reset may be tried again.
    ///
    /// Spec: §18
    pub fn reset_operations(&mut self, timeout: Duration) -> Result<()> {
        let management = self.service_processor()?;
        // It has nothing to do with what ends now.
        self.management_slot().take();
        self.abandon(&Error::all_stale());
        let reset = management.clone().with_timeout(timeout).reset_operations();
        let outcome = reset.and_then(|_| self.reopen());
        self.management_slot().put_back(management);
        outcome
    }

    /// Resets the whole chip by the service processor, then the function, and opens the device
    /// again. Everything is lost, device memory included; an installed firmware image runs
    /// afterwards.
    ///
    /// # Errors
    /// As [`reset_operations`](Device::reset_operations), and those of [`reset`](Device::reset).
    ///
    /// Spec: §18
    pub fn reset_chip(&mut self, timeout: Duration) -> Result<()> {
        let management = self.service_processor()?;
        let deadline = self.link().deadline(timeout);
        management.reset_chip()?;
        if let Way::Own(link) = &management.way {
            await_chip_reset(link, deadline);
        }
        let left = deadline.left(&*self.link().config.clock);
        self.reset(left)
    }
}

impl<H: Hal> Device<H> {
    /// Returns the management endpoint, also of a device whose operations did not start again after
    /// a reset: what it knew of the card is older than that.
    fn service_processor(&self) -> Result<Management<H>> {
        let link = self.link();
        if !link.is_closed() {
            return self.management();
        }
        Ok(Management::open_alone(Arc::clone(&link.hal), link.config.clone())?)
    }
}

impl<H: Hal> Management<H> {
    pub(crate) fn lose(&self, error: &Error) {
        if let Way::Own(link) = &self.way {
            link.fail(error.clone());
        }
    }
}

/// Waits until the chip has begun to reset itself, and until it answers again or some time has
/// passed: a function reset that comes too early would take its place.
fn await_chip_reset<H: Hal>(link: &ManagementLink<H>, deadline: Deadline) {
    let Ok(window) = link.hal.window(MAILBOX_BAR) else { return };
    // The first field of the control block: the next byte of the queue, 0 in a new one.
    let head = link.layout.submission.at;
    let begun = || !window.load_acquire_u64(head).is_ok_and(|head| head != 0);
    let is_back = || matches!(discovery::mgmt_status(&window), Ok(MgmtStatus::DevReady) | Err(_));
    pass_until(link, deadline, &begun);
    pass_until(link, deadline, &is_back);
}

fn pass_until<H: Hal>(link: &ManagementLink<H>, deadline: Deadline, is_done: &dyn Fn() -> bool) {
    let parker = Parker::new();
    let until = link.deadline(SEEN_WITHIN);
    while !is_done() && !link.left(until).is_zero() && !link.left(deadline).is_zero() {
        // No one gives the token: this only passes the time.
        parker.park_timeout(PAUSE);
    }
}
