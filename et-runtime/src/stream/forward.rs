//! Launches on behalf of someone else, who has made and checked them.

use std::time::Duration;

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{self, Body, LaunchError, LaunchPayload, LaunchStatus};
use et_hal::{DeviceAddr, Hal};

use super::Stream;
use crate::event::Event;
use crate::link::core::Command;
use crate::link::{LaunchWire, Load, Then, Wire};
use crate::memory::DeviceSlice;
use crate::profile::Returned;
use crate::sync::{Arc, Mutex, lock};
use crate::{Error, Result, Times};

const NAME: &str = "forwarded launch";

/// A launch by addresses, as firmware takes it. Spec: §9.1
///
/// For programs that pass on what others ask for. Nothing in it is known to the runtime: that each
/// address belongs to who asks is for the caller to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedLaunch {
    /// First instruction.
    pub entry: DeviceAddr,
    /// What the kernel finds in `a0`.
    pub args: Option<DeviceAddr>,
    /// Where failed harts leave their state.
    pub exception_buffer: Option<DeviceAddr>,
    /// Shires to run on.
    pub shire_mask: u64,
    /// Whether the L3 is written back before the kernel.
    pub flush_l3: bool,
    /// Trace, stack and arguments.
    pub payload: LaunchPayload,
}

/// What the device has answered to a [`ForwardedLaunch`]. Spec: §9.4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchAnswer {
    /// How it has ended.
    pub status: LaunchStatus,
    /// The long form, if it came.
    pub error: Option<LaunchError>,
    /// When it was picked up, and how long it waited and ran, in cycles of the device.
    pub times: Times,
}

/// A [`ForwardedLaunch`] on its way.
#[derive(Clone, Debug)]
pub struct Forwarded {
    event: Event,
    answer: Arc<Mutex<Option<Body>>>,
}

impl Forwarded {
    /// Returns the event, which completes when the device has answered, whatever it says.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error::Timeout`], after which it can be waited for again; [`Error::Aborted`];
    /// [`Error::AbortedWith`]; [`Error::NeedsReset`] if compute goes down meanwhile; those
    /// of [`Error`] that say the device is gone.
    pub fn wait(&self, timeout: Duration) -> Result<LaunchAnswer> {
        self.event.wait(timeout)?;
        match *lock(&self.answer) {
            Some(Body::Launch { times, status, error, .. }) => {
                Ok(LaunchAnswer { status, error, times })
            }
            _ => Err(Error::lost("a launch completed without an answer")),
        }
    }
}

impl Returned for Forwarded {
    fn operation(&self) -> Option<u64> {
        Some(self.event.id())
    }
}

impl<H: Hal> Stream<H> {
    /// Launches a kernel that is known by its address only; `uses` stays allocated until the device
    /// has answered.
    ///
    /// An abort for another's sake is repeated as for any launch, if the kernel had not begun.
    ///
    /// # Errors
    /// [`Error::ForeignBuffer`]; [`Error::Stale`]; [`Error::ShireMask`]; [`Error::NeedsReset`] if
    /// compute is down; otherwise as [`copy_to_device`](Self::copy_to_device).
    pub fn forward(&self, launch: &ForwardedLaunch, uses: &[DeviceSlice]) -> Result<Forwarded> {
        self.call("forward", || self.start_forwarded(launch, uses))
    }

    fn start_forwarded(&self, launch: &ForwardedLaunch, uses: &[DeviceSlice]) -> Result<Forwarded> {
        let link = self.link();
        uses.iter().try_for_each(|slice| link.check_own(slice))?;
        let ForwardedLaunch { entry, args, exception_buffer, shire_mask, .. } = *launch;
        let available = link.available_shires();
        if shire_mask == 0 || shire_mask & !available != 0 {
            return Err(Error::ShireMask { asked: shire_mask, available });
        }
        let wire = LaunchWire {
            launch: ops::Launch { entry, args, exception_buffer, shire_mask, payload: &[] },
            payload: launch.payload.clone(),
        };
        let answer = Arc::new(Mutex::new(None));
        let then = Then::Forward { answer: Arc::clone(&answer), _uses: uses.to_vec() };
        let flags = if launch.flush_l3 { CommandFlags::FLUSH_L3 } else { CommandFlags::EMPTY };
        let command = Command::new(Load::new(Wire::Launch(wire), then)).flags(flags);
        Ok(Forwarded { event: self.submit(NAME, Some(command))?, answer })
    }
}
