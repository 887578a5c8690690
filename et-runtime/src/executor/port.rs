//! Where tasks go that host threads cannot run.

use std::sync::Arc;
use std::time::Duration;

use super::TaskFailure;
use super::run::RunShared;
use crate::graph::Graph;

/// A task that is ready.
pub(super) struct Unit<'a> {
    pub(super) run: &'a Arc<RunShared>,
    pub(super) task: u32,
}

/// How a task has ended.
#[derive(Debug)]
pub(super) enum Ended {
    Complete,
    Failed(TaskFailure),
    /// It was given up before it started.
    NotRun,
}

impl From<Result<(), TaskFailure>> for Ended {
    fn from(result: Result<(), TaskFailure>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Complete)
    }
}

/// A task that has ended.
#[derive(Debug)]
pub(super) struct Done {
    /// Number of its run.
    pub(super) run: u64,
    pub(super) task: u32,
    pub(super) ended: Ended,
    /// For runs taken as a whole: worker, and start and end since the launch of the run.
    pub(super) span: Option<(u32, Duration, Duration)>,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Taken, by this worker; behind another task or not.
    Taken { worker: u32, is_staged: bool },
    /// There is no room now.
    Full,
}

/// Runs kernels and copies; driven by whoever schedules.
pub(super) trait Port: Send {
    /// Name of the place where the kernels of a graph run.
    fn name(&self, graph: &Graph) -> &'static str;

    /// Takes a run as a whole, if that is how it works; its tasks then come back as done and none is offered.
    fn take(&mut self, run: &Arc<RunShared>) -> Result<bool, TaskFailure>;

    /// Offers a task.
    fn offer(&mut self, unit: &Unit<'_>) -> Result<Offer, TaskFailure>;

    /// Collects tasks that have ended; tells whether there was any progress.
    fn poll(&mut self, done: &mut Vec<Done>) -> bool;

    /// Tells whether it has tasks.
    fn is_busy(&self) -> bool;

    /// How often it has to be polled while it has tasks, if its completions do not notify.
    fn nap(&self) -> Option<Duration>;

    /// Gives up on all it has of a run, which is cancelled or late; running kernels are aborted if `late`. What it had comes
    /// back as done, now or later, but within the time the device has for an abort.
    fn give_up(&mut self, run: u64, late: Option<Duration>, done: &mut Vec<Done>);

    /// Says what it has at the moment, for messages; empty if nothing.
    fn describe(&self) -> String;

    /// Lets the cores go. Nothing is offered afterwards.
    fn close(&mut self);
}
