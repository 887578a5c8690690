//! What every handle of a device shares: the connection, and whether it may still be used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use et_devapi::pci::{MAILBOX_BAR, MGMT_DIR, OPS_DIR};
use et_hal::{Error, ErrorKind, Generation, LossReason};
use et_vfio_user::Home;

use crate::config_space::ConfigSpace;
use crate::sys::Sys;
use crate::transport::{Region, Transport};
use crate::{LostBecause, VfioError};

/// Offsets of the boot status of both endpoints in the mailbox BAR. Spec: §3.1, §3.3
const BOOT_STATUS: [u64; 2] = [MGMT_DIR.as_u64() + 44, OPS_DIR.as_u64() + 8];

/// Whether the device may be used. With the generation it makes one word, so that the check in
/// every access is one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Up = 0,
    Resetting = 1,
    Removed = 2,
    BusError = 3,
    LinkDown = 4,
    Closed = 5,
    Disconnected = 6,
}

/// Generation and phase of a handle's device, as a handle expects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    fn new(generation: Generation, phase: Phase) -> Self {
        Self(u64::from(generation.0) | u64::from(phase as u32) << 32)
    }

    fn generation(self) -> Generation {
        // The low half; the shift and the mask leave 32 bits.
        Generation(u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX))
    }

    fn phase(self) -> Phase {
        match self.0 >> 32 {
            0 => Phase::Up,
            1 => Phase::Resetting,
            2 => Phase::Removed,
            3 => Phase::BusError,
            4 => Phase::LinkDown,
            6 => Phase::Disconnected,
            _ => Phase::Closed,
        }
    }
}

/// Shared by all handles of a device.
pub(crate) struct Shared {
    /// Address or socket, for messages.
    pub(crate) name: String,
    pub(crate) sys: Arc<dyn Sys>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) config: ConfigSpace,
    mailbox_region: Region,
    state: AtomicU64,
    /// Only there the device may be used.
    home: Home,
    /// The device has answered in this generation, so that all ones from now on are no sign of
    /// booting.
    alive: AtomicBool,
    /// Held by everything a caller may keep.
    handles: Arc<()>,
    /// Interrupts that did not come, long after their messages were found.
    pub(crate) lost_interrupts: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({}, {:?})", self.name, self.now())
    }
}

impl Shared {
    pub(crate) fn new(
        name: String,
        sys: &Arc<dyn Sys>,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, VfioError> {
        let config = ConfigSpace::new(&transport)?;
        let mailbox_region = transport.region(MAILBOX_BAR.index().into())?;
        Ok(Self {
            name,
            sys: Arc::clone(sys),
            transport,
            config,
            mailbox_region,
            state: AtomicU64::new(Stamp::new(Generation::default(), Phase::Up).0),
            home: Home::new(),
            alive: AtomicBool::new(false),
            handles: Arc::new(()),
            lost_interrupts: AtomicU64::new(0),
        })
    }

    /// Counts one more handle until the result is dropped.
    pub(crate) fn handle(&self) -> Arc<()> {
        Arc::clone(&self.handles)
    }

    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.handles) - 1
    }

    fn now(&self) -> Stamp {
        // Acquire: what happened before the change is visible to whoever sees it.
        Stamp(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn generation(&self) -> Generation {
        self.now().generation()
    }

    pub(crate) fn is_resetting(&self) -> bool {
        self.now().phase() == Phase::Resetting
    }

    /// Returns the stamp for a new handle.
    pub(crate) fn stamp(&self) -> Result<Stamp, VfioError> {
        let now = self.now();
        self.check(Stamp::new(now.generation(), Phase::Up))?;
        Ok(now)
    }

    /// Checks that a handle may be used.
    #[inline]
    pub(crate) fn check(&self, expected: Stamp) -> Result<(), VfioError> {
        if self.is_usable(expected) { Ok(()) } else { Err(self.refusal(self.now())) }
    }

    /// Returns `true` if a handle may be used.
    #[inline]
    pub(crate) fn is_usable(&self, expected: Stamp) -> bool {
        self.now() == expected && self.home.is_here()
    }

    /// Returns `false` in a child of the process that opened the device. There nothing may be done
    /// to the device, and no lock be taken: a thread that did not come along may hold it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Checks that the device is this process's own.
    pub(crate) fn check_home(&self) -> Result<(), VfioError> {
        if self.is_here() { Ok(()) } else { Err(VfioError::Lost(LostBecause::Forked)) }
    }

    #[cold]
    fn refusal(&self, now: Stamp) -> VfioError {
        if !self.is_here() {
            return VfioError::Lost(LostBecause::Forked);
        }
        VfioError::Lost(match now.phase() {
            Phase::Up | Phase::Resetting => return VfioError::Stale,
            Phase::Removed => LostBecause::RemovalRequested,
            Phase::BusError => LostBecause::BusError,
            Phase::LinkDown => LostBecause::LinkDown,
            Phase::Closed => LostBecause::Closed,
            Phase::Disconnected => LostBecause::Disconnected,
        })
    }

    fn change(&self, step: impl Fn(Stamp) -> Option<Stamp>) -> Option<Stamp> {
        // Release: pairs with the Acquire in `now`.
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            step(Stamp(state)).map(|stamp| stamp.0)
        });
        changed.ok().map(Stamp)
    }

    /// Declares the device lost; the first reason stays. Returns the error that says so.
    pub(crate) fn lose(&self, because: LostBecause) -> VfioError {
        let phase = match because {
            LostBecause::RemovalRequested => Phase::Removed,
            LostBecause::BusError => Phase::BusError,
            LostBecause::LinkDown => Phase::LinkDown,
            LostBecause::Closed => Phase::Closed,
            LostBecause::Disconnected => Phase::Disconnected,
            LostBecause::Forked => return VfioError::Lost(because),
        };
        let changed = self.change(|now| {
            matches!(now.phase(), Phase::Up | Phase::Resetting)
                .then(|| Stamp::new(now.generation(), phase))
        });
        if changed.is_some() {
            tracing::warn!(device = %self.name, %because, "device lost");
        }
        self.refusal(self.now())
    }

    /// Makes every handle answer that the backend was closed.
    pub(crate) fn close(&self) {
        let _ = self.change(|now| Some(Stamp::new(now.generation(), Phase::Closed)));
    }

    /// Makes every handle stale. A device that a bus error stopped can be reset; one that was
    /// removed or closed cannot.
    pub(crate) fn begin_reset(&self) -> Result<(), VfioError> {
        let begun = self.change(|now| {
            let possible = matches!(
                now.phase(),
                Phase::Up | Phase::Resetting | Phase::BusError | Phase::LinkDown
            );
            let next = match now.phase() {
                // A reset that failed and is tried again.
                Phase::Resetting => now.generation(),
                _ => Generation(now.generation().0.wrapping_add(1)),
            };
            possible.then(|| Stamp::new(next, Phase::Resetting))
        });
        self.alive.store(false, Ordering::Relaxed);
        begun.map(|_| ()).ok_or_else(|| self.refusal(self.now()))
    }

    /// Allows new handles.
    pub(crate) fn end_reset(&self) -> Result<Generation, VfioError> {
        let ended = self.change(|now| {
            (now.phase() == Phase::Resetting).then(|| Stamp::new(now.generation(), Phase::Up))
        });
        ended.map(Stamp::generation).ok_or_else(|| self.refusal(self.now()))
    }

    /// Says that the device answers.
    pub(crate) fn is_alive(&self) {
        self.alive.store(true, Ordering::Relaxed);
    }

    /// Decides what a read of all ones, or an access that failed, means.
    ///
    /// Configuration space must answer sensibly. Something between us and the device may answer for
    /// all of it; so a device that has answered before must also show a boot status.
    ///
    /// # Errors
    /// `Lost`.
    #[cold]
    pub(crate) fn confirm(&self) -> Result<(), VfioError> {
        self.check_home()?;
        let answer = self.config.ids().and_then(|_| self.config.command());
        if let Err(error) = answer {
            let because = match error {
                VfioError::Lost(because) => because,
                _ if error.kind() == ErrorKind::Lost(LossReason::Removed) => {
                    LostBecause::RemovalRequested
                }
                _ => LostBecause::LinkDown,
            };
            return Err(self.lose(because));
        }
        if self.alive.load(Ordering::Relaxed) && !self.shows_boot_status() {
            return Err(self.lose(LostBecause::LinkDown));
        }
        Ok(())
    }

    /// Returns `true` if an endpoint shows a boot status other than all ones, by reads that cannot
    /// fault.
    pub(crate) fn shows_boot_status(&self) -> bool {
        // A device that is no card, accepted by its ids, has none to show.
        self.mailbox_region.size == 0
            || BOOT_STATUS.iter().any(|&at| {
                let mut bytes = [0xff; 2];
                let read = self.transport.read(&self.mailbox_region, at, &mut bytes);
                read.is_ok() && bytes != [0xff; 2]
            })
    }
}
