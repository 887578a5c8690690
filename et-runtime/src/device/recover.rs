//! Getting a device to work again, whatever is wrong with it.

use std::fmt;
use std::time::Duration;

use et_devapi::msg::ops::{Body, EchoStatus};
use et_hal::{Hal, Loss, Reset, ResetScope};

use super::Device;
use crate::link::Wire;
use crate::report::debug_as_report;
use crate::{Error, Refusal, Result};

/// What [`Device::recover`] may do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryPolicy {
    /// The widest reset that is allowed.
    pub widest: ResetScope,
    /// Limit of each remedy, and of each check after it.
    pub timeout: Duration,
}

impl RecoveryPolicy {
    /// Everything through the bus is allowed, and may take five seconds a step.
    #[must_use]
    pub const fn new() -> Self {
        Self { widest: ResetScope::Slot, timeout: Duration::from_secs(5) }
    }

    /// Sets the widest reset that is allowed.
    #[must_use]
    pub const fn widest(mut self, scope: ResetScope) -> Self {
        self.widest = scope;
        self
    }

    /// Sets the limit of each step.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

/// One thing that can be done about a device that does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// All work in flight is aborted.
    Abort,
    /// A reset.
    Reset(ResetScope),
}

impl Remedy {
    /// From the gentlest to the most violent.
    const LADDER: [Self; 6] = [
        Self::Abort,
        Self::Reset(ResetScope::Compute),
        Self::Reset(ResetScope::Operations),
        Self::Reset(ResetScope::Function),
        Self::Reset(ResetScope::Slot),
        Self::Reset(ResetScope::Chip),
    ];

    fn is_within(self, widest: ResetScope) -> bool {
        match self {
            Self::Abort => true,
            Self::Reset(scope) => scope <= widest,
        }
    }

    /// Returns `true` if it can mend a device in this state at all.
    fn helps_against(self, ill: &Ill) -> bool {
        let Ill::Operations(error) = ill else {
            // The service processor starts anew with the function at the earliest.
            return matches!(self, Self::Reset(scope) if scope >= ResetScope::Function);
        };
        match (self, error) {
            (Self::Abort, Error::NeedsReset { .. }) => false,
            (Self::Reset(scope), Error::NeedsReset { scope: needed, .. }) => scope >= *needed,
            (Self::Abort | Self::Reset(ResetScope::Compute), _) => {
                // The firmware must still listen.
                !matches!(
                    error,
                    Error::Lost { .. }
                        | Error::Hal { .. }
                        | Error::Open(_)
                        | Error::Stale { .. }
                        | Error::Closed { .. }
                )
            }
            _ => true,
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abort => f.write_str("abort"),
            Self::Reset(scope) => write!(f, "{scope} reset"),
        }
    }
}

/// Which endpoint does not work, and why.
#[derive(Clone, Debug)]
enum Ill {
    Operations(Error),
    Management(Error),
}

impl Ill {
    fn error(&self) -> &Error {
        let (Self::Operations(error) | Self::Management(error)) = self;
        error
    }
}

/// What became of a remedy.
#[derive(Clone, Debug)]
pub struct RecoveryStep {
    /// What was done.
    pub remedy: Remedy,
    /// How long it took, with the check after it.
    pub took: Duration,
    /// Whether the device works since; otherwise what is wrong with it.
    pub outcome: Result<()>,
}

/// A device that works again, or always did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// What was wrong; `None` if the device worked.
    pub ill: Option<Error>,
    /// What was done, in this order; the last one helped.
    pub steps: Vec<RecoveryStep>,
    /// What the remedies may have destroyed, those that failed included. Handles of before are
    /// [`Error::Stale`] if queues are lost.
    pub lost: Loss,
}

/// A device that nothing helps that the policy allows; it is closed, or does not work.
#[derive(Clone, thiserror::Error)]
#[error("the device does not work again after {}", list(steps))]
#[non_exhaustive]
pub struct RecoveryError {
    /// What was done, in this order.
    pub steps: Vec<RecoveryStep>,
    /// What that may have destroyed.
    pub lost: Loss,
    /// What is wrong now.
    #[source]
    pub ill: Error,
}

debug_as_report!(RecoveryError);

fn list(steps: &[RecoveryStep]) -> String {
    if steps.is_empty() {
        return "nothing that the policy allows".into();
    }
    let texts: Vec<_> = steps.iter().map(|step| step.remedy.to_string()).collect();
    texts.join(", ")
}

impl<H: Hal> Device<H> {
    /// Makes the device work again with the gentlest remedy that helps: an abort of all work in
    /// flight, then wider and wider resets as far as the policy allows: of the compute cores, the
    /// operations endpoint, the function, the slot, the chip. After each it is checked whether the
    /// device works.
    ///
    /// A device that works and has nothing in flight is left alone.
    ///
    /// # Errors
    /// [`RecoveryError`], with what was tried; a later call may try more.
    ///
    /// Spec: §10, §18
    pub fn recover(&mut self, policy: &RecoveryPolicy) -> Result<Recovery, RecoveryError> {
        let mut recovery = Recovery { ill: None, steps: Vec::new(), lost: Loss::default() };
        // Who has not used the management endpoint does not miss it.
        let is_managed = self.management_slot().is_open();
        let Err(mut ill) = self.check(is_managed, policy.timeout) else { return Ok(recovery) };
        let error = ill.error() as &dyn std::error::Error;
        tracing::warn!(device = %self.link.name, error, "recovery of the device");
        recovery.ill = Some(ill.error().clone());
        for remedy in Remedy::LADDER {
            if !remedy.is_within(policy.widest) || !remedy.helps_against(&ill) {
                continue;
            }
            let started = self.link.now();
            let outcome = self
                .apply(remedy, policy.timeout, &mut recovery.lost)
                .map_err(Ill::Operations)
                .and_then(|()| self.check(is_managed, policy.timeout));
            let took = self.link.now().saturating_sub(started);
            let works = outcome.is_ok();
            tracing::info!(device = %self.link.name, %remedy, ?took, works, "remedy");
            let result = outcome.as_ref().map(|&()| ()).map_err(|ill| ill.error().clone());
            recovery.steps.push(RecoveryStep { remedy, took, outcome: result });
            match outcome {
                Ok(()) => return Ok(recovery),
                Err(still) => ill = still,
            }
        }
        let Recovery { steps, lost, .. } = recovery;
        Err(RecoveryError { steps, lost, ill: ill.error().clone() })
    }

    /// Returns what is wrong: the device is lost, compute is down, firmware does not answer, or
    /// something is still in flight.
    fn check(&self, is_managed: bool, timeout: Duration) -> Result<(), Ill> {
        self.check_operations(timeout).map_err(Ill::Operations)?;
        if is_managed {
            let uptime = self.management().and_then(|it| it.with_timeout(timeout).uptime());
            uptime.map_err(Ill::Management)?;
        }
        Ok(())
    }

    fn check_operations(&self, timeout: Duration) -> Result<()> {
        let link = &self.link;
        if let Some(error) = link.compute_refusal() {
            return Err(error);
        }
        let op = "echo";
        match link.call(Wire::ECHO, op, link.deadline(timeout))? {
            Body::Echo { status: EchoStatus::Success, .. } => {}
            Body::Echo { status, .. } => {
                return Err(Error::Refused { op, status: Refusal::Echo(status) });
            }
            other => {
                return Err(Error::lost(format!("answer to an {op} is {other:?}")));
            }
        }
        let is_idle = |within| link.wait_idle(None, link.deadline(within));
        // What the runtime does for itself, as it puts the memory of a failed launch in order, is
        // no illness as long as it ends.
        let may_end = || link.activity().pending == 0 && is_idle(timeout);
        if !is_idle(Duration::ZERO) && !may_end() {
            return Err(link.timeout("work in flight", Duration::ZERO));
        }
        Ok(())
    }

    fn apply(&mut self, remedy: Remedy, timeout: Duration, lost: &mut Loss) -> Result<()> {
        match remedy {
            Remedy::Abort => {
                self.link.abort_all()?;
                let deadline = self.link.deadline(timeout);
                if self.link.wait_idle(None, deadline) {
                    return Ok(());
                }
                Err(self.link.timeout("abort", timeout))
            }
            Remedy::Reset(ResetScope::Compute) => {
                lost.compute = true;
                self.reset_compute(timeout)
            }
            Remedy::Reset(ResetScope::Operations) => {
                *lost = Loss { queues: true, compute: true, ..*lost };
                self.reset_operations(timeout)
            }
            Remedy::Reset(ResetScope::Chip) => {
                *lost = Loss { queues: true, compute: true, memory: true };
                self.reset_chip(timeout)
            }
            Remedy::Reset(scope) => {
                let hal = self.hal();
                let op = "resetting the device";
                let loss = hal.reset().map_err(Error::hal(op))?.loss(scope);
                let why = "the backend has no reset of this scope";
                let loss = loss.ok_or(Error::Unsupported { op, why })?;
                lost.queues |= loss.queues;
                lost.compute |= loss.compute;
                lost.memory |= loss.memory;
                self.reset_by(scope, timeout)
            }
        }
    }
}
