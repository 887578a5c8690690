//! An event that stays raised.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Home;

/// Can be raised once, looked at cheaply, and polled.
#[derive(Debug)]
pub(crate) struct Stop {
    raised: AtomicBool,
    event: OwnedFd,
    home: Home,
}

impl Stop {
    pub(crate) fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { raised: AtomicBool::new(false), event, home: Home::new() })
    }

    /// A child does not raise its parent's, which is the same event.
    pub(crate) fn raise(&self) {
        if !self.home.is_here() {
            return;
        }
        // Release: who sees the flag sees what was done before; pairs with `is_raised`.
        if !self.raised.swap(true, Ordering::AcqRel) {
            // The counter was 0 and is written only here, so there is room for the 1.
            let _ = rustix::io::write(&self.event, &1_u64.to_le_bytes());
        }
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
