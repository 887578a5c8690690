//! The thread that drains when nothing else does.

use std::time::Duration;

use et_hal::Hal;

use super::Link;
use super::core::Attention;
use super::wait::Terms;
use crate::Error;
use crate::sync::{Ordering, lock};

/// How long it naps while commands are in flight and nothing depends on hearing of their end.
const NAP: Duration = Duration::from_millis(1);
/// How long while another thread drains.
const LONG_NAP: Duration = Duration::from_millis(20);
/// Naps without work after which it goes to sleep for good.
const IDLE_NAPS: u32 = 8;

impl<H: Hal> Link<H> {
    /// Drains until the link is [closed](Link::close).
    pub(crate) fn run_background(&self) {
        let mut idle_naps = 0;
        while !self.is_closed.load(Ordering::Acquire) {
            self.run_errands();
            let attention = lock(&self.core).attention();
            if attention != Attention::Nothing {
                idle_naps = 0;
            }
            match attention {
                Attention::Nothing if idle_naps < IDLE_NAPS => {
                    idle_naps += 1;
                    self.background.park_timeout(NAP);
                }
                Attention::Nothing => {
                    // Whatever comes between the look and the sleep leaves a token.
                    if lock(&self.core).sleep() {
                        self.background.park();
                    }
                    idle_naps = 0;
                }
                Attention::Flights => {
                    let is_led = self.waiters.lead().is_none();
                    self.poll();
                    self.background.park_timeout(if is_led { LONG_NAP } else { NAP });
                }
                Attention::Wanted => self.attend(),
            }
            self.watch();
        }
    }

    /// Waits as everyone else does, for a while.
    fn attend(&self) {
        let until = self.deadline(LONG_NAP);
        let mut is_done = || {
            self.is_closed.load(Ordering::Acquire)
                || lock(&self.core).attention() != Attention::Wanted
        };
        let terms = Terms { left: &|| self.left(until), tick: LONG_NAP };
        self.waiters.wait(self, &self.background, &mut is_done, terms);
    }

    /// Loses the device if its firmware has stopped.
    fn watch(&self) {
        let limit = self.config.watchdog;
        let is_silent = self.enter(|core, now| core.watch(limit, now));
        if is_silent {
            let why = format!("the firmware has not answered for {:?}", 2 * limit);
            self.lose(&Error::lost(why));
        }
    }
}
