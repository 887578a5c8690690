//! Resets of the function and of its slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use et_hal::{Error, ErrorKind, ErrorType, Loss, Reset, ResetScope, ResetState};

use crate::config_space::{BUS_MASTER, MEMORY};
use crate::hal::Device;
use crate::sync::lock;
use crate::sys::Errno;
use crate::transport::Transport;
use crate::{Call, LostBecause, VfioError};

/// What a reset call said, once it has.
#[derive(Debug, Default)]
struct Outcome {
    result: Mutex<Option<Result<(), VfioError>>>,
    there: Condvar,
}

/// A reset in progress.
#[derive(Debug)]
pub(crate) struct Job {
    scope: ResetScope,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The kernel works on it. The call can take minutes on a dead device, so a thread of its own
    /// makes it, and is left alone if it takes too long.
    Calling { outcome: Arc<Outcome>, until: Instant },
    /// The device comes up.
    Booting { until: Instant },
}

impl Job {
    /// Returns `true` while the kernel is at work: calls on the device may take as long.
    fn is_calling(&self) -> bool {
        match &self.stage {
            Stage::Calling { outcome, .. } => lock(&outcome.result).is_none(),
            Stage::Booting { .. } => false,
        }
    }
}

impl Device {
    /// Returns `true` while the kernel is at work on a reset.
    pub(crate) fn is_reset_call_running(&self) -> bool {
        lock(&self.job).as_ref().is_some_and(Job::is_calling)
    }

    pub(crate) fn begin_reset(&self, scope: ResetScope) -> Result<(), VfioError> {
        let mut job = lock(&self.job);
        let booting = |job: &Job| matches!(job.stage, Stage::Booting { .. });
        let resetting = self.shared.is_resetting();
        if job.as_ref().is_some_and(|job| job.is_calling() || resetting && booting(job)) {
            return Err(VfioError::ResetBusy);
        }
        if !self.shared.transport.can_reset(scope) {
            return Err(VfioError::NoReset(scope));
        }
        *job = None;
        self.shared.begin_reset()?;
        lock(&self.bars).clear();
        self.interrupts.wake_all();
        // The device writes to no memory from here on. If it does not answer at all, the
        // reset itself sees to that.
        match self.shared.config.set_command(0, BUS_MASTER) {
            Ok(()) | Err(VfioError::Lost(_)) => {}
            Err(error) => return Err(error),
        }
        self.interrupts.disarm(&*self.shared.transport)?;
        let outcome = Arc::new(Outcome::default());
        self.interrupts.forget_errors();
        start(&self.shared.transport, scope, &outcome)?;
        let until = Instant::now() + self.options.reset_timeout;
        *job = Some(Job { scope, stage: Stage::Calling { outcome, until } });
        Ok(())
    }

    pub(crate) fn poll_reset(&self) -> Result<ResetState, VfioError> {
        let mut slot = lock(&self.job);
        let Some(job) = slot.as_mut() else {
            return self.shared.stamp().map(|_| ResetState::Done(self.shared.generation()));
        };
        if let Stage::Calling { outcome, until } = &job.stage {
            let Some(result) = lock(&outcome.result).take() else {
                if Instant::now() < *until {
                    return Ok(ResetState::InProgress);
                }
                // The job stays: as long as the call runs, the device must not be touched.
                return Err(self.shared.lose(LostBecause::LinkDown));
            };
            let scope = job.scope;
            *slot = None;
            self.finish_call(scope, result)?;
            let until = Instant::now() + self.options.boot_timeout;
            *slot = Some(Job { scope, stage: Stage::Booting { until } });
        }
        let Some(Job { stage: Stage::Booting { until }, .. }) = slot.as_ref() else {
            return Ok(ResetState::InProgress);
        };
        if self.shared.shows_boot_status() {
            *slot = None;
            let generation = self.shared.end_reset()?;
            self.pool.end_reset();
            self.shared.is_alive();
            tracing::info!(device = %self.shared.name, generation = generation.0, "reset done");
            return Ok(ResetState::Done(generation));
        }
        if Instant::now() < *until {
            return Ok(ResetState::InProgress);
        }
        *slot = None;
        Err(self.shared.lose(LostBecause::LinkDown))
    }

    /// Sets the device up again after the call.
    fn finish_call(
        &self,
        scope: ResetScope,
        result: Result<(), VfioError>,
    ) -> Result<(), VfioError> {
        let Err(error) = result else { return self.set_up() };
        if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Permission | ErrorKind::Busy)
        {
            // Nothing was done to the device; it can be used as before, by new handles.
            self.set_up()?;
            self.shared.end_reset()?;
            self.pool.end_reset();
            return Err(error);
        }
        Err(VfioError::ResetFailed { scope, source: Box::new(error) })
    }

    /// Gives the device memory decoding, interrupts and bus mastering, in this order.
    pub(crate) fn set_up(&self) -> Result<(), VfioError> {
        let shared = &self.shared;
        match shared.config.ids().and_then(|_| shared.config.set_command(MEMORY, 0)) {
            Err(VfioError::Lost(because)) => return Err(shared.lose(because)),
            outcome => outcome?,
        }
        self.interrupts.arm(&*shared.transport)?;
        shared.config.set_command(BUS_MASTER, 0)
    }

    /// Resets before the device is used, and waits for the call, but not for the device to
    /// boot.
    pub(crate) fn reset_now(&self, scope: ResetScope) -> Result<(), VfioError> {
        self.begin_reset(scope)?;
        if let Some(Job { stage: Stage::Calling { outcome, until }, .. }) = &*lock(&self.job) {
            let mut result = lock(&outcome.result);
            while result.is_none() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(self.shared.lose(LostBecause::LinkDown));
                }
                let waited = outcome.there.wait_timeout(result, left);
                (result, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        let job = lock(&self.job).take();
        if let Some(Job { stage: Stage::Calling { outcome, .. }, .. }) = job {
            let result = lock(&outcome.result).take().unwrap_or(Ok(()));
            result.map_err(|error| VfioError::ResetFailed { scope, source: Box::new(error) })?;
        }
        self.set_up()?;
        self.shared.end_reset()?;
        Ok(())
    }
}

fn start(
    transport: &Arc<dyn Transport>,
    scope: ResetScope,
    outcome: &Arc<Outcome>,
) -> Result<(), VfioError> {
    let transport = Arc::clone(transport);
    let told = Arc::clone(outcome);
    let work = move || {
        let result = transport.reset(scope);
        // Whoever hears the result may be about to close the device.
        drop(transport);
        *lock(&told.result) = Some(result);
        told.there.notify_all();
    };
    let spawned = std::thread::Builder::new().name("et-vfio-reset".into()).spawn(work);
    spawned.map(|_| ()).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        VfioError::call(Call::Reset, "a thread for the reset", errno)
    })
}

/// Control over the resets of a card; there is one at a time.
#[derive(Debug)]
pub struct VfioReset {
    device: Arc<Device>,
    #[expect(dead_code, reason = "counted by being there")]
    handle: Arc<()>,
}

impl VfioReset {
    pub(crate) fn take(device: &Arc<Device>) -> Result<Self, VfioError> {
        device.shared.check_home()?;
        // Acquire and Release: one holder after the other.
        if device.reset_taken.swap(true, Ordering::Acquire) {
            return Err(VfioError::ResetBusy);
        }
        Ok(Self { device: Arc::clone(device), handle: device.shared.handle() })
    }
}

impl Drop for VfioReset {
    fn drop(&mut self) {
        self.device.reset_taken.store(false, Ordering::Release);
    }
}

impl ErrorType for VfioReset {
    type Error = VfioError;
}

impl Reset for VfioReset {
    fn loss(&self, scope: ResetScope) -> Option<Loss> {
        // What a function reset leaves of the firmware's state is not documented, so nothing is
        // promised to survive. Spec: §18
        let possible = self.device.shared.transport.can_reset(scope);
        possible.then_some(Loss { queues: true, compute: true, memory: true })
    }

    fn begin(&mut self, scope: ResetScope) -> Result<(), VfioError> {
        self.device.shared.check_home()?;
        self.device.begin_reset(scope)
    }

    fn poll(&mut self) -> Result<ResetState, VfioError> {
        self.device.shared.check_home()?;
        self.device.poll_reset()
    }
}
