//! What runs tasks, as the scheduler sees it.

use std::sync::Arc;
use std::time::Duration;

use super::TaskFailure;
use super::ids::{RunId, TaskRef, WorkerId};
use super::outcome::Cut;
use super::run::RunShared;
use crate::graph::CoreSet;

/// A task that is ready.
#[derive(Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) run: &'a Arc<RunShared>,
    pub(super) task: TaskRef,
    /// The workers it may run on; `None` for all.
    pub(super) cores: Option<&'a CoreSet>,
}

/// What became of an offer.
#[derive(Debug)]
pub(super) enum Offer {
    /// Taken, for this worker; behind another task or not.
    Taken { worker: WorkerId, is_staged: bool },
    /// The whole run is taken: its tasks come back one by one, and none is to be offered any more.
    Whole,
    /// There is no room now.
    Full,
    /// It cannot run here.
    Failed(Box<TaskFailure>),
}

/// How a task has ended.
#[derive(Debug)]
pub(super) enum Ended {
    Complete,
    Failed(Box<TaskFailure>),
    /// It failed, and its run has the report.
    Reported,
    /// It was given up before it started.
    NotRun,
    /// Its condition was false.
    Skipped,
}

impl Ended {
    pub(super) fn failed(failure: TaskFailure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl From<Result<(), TaskFailure>> for Ended {
    fn from(result: Result<(), TaskFailure>) -> Self {
        result.map_or_else(Self::failed, |()| Self::Complete)
    }
}

/// When a task ran, as a place that took a whole run knows it: since the launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) worker: WorkerId,
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// A task that has ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) task: TaskRef,
    pub(super) how: Ended,
    pub(super) span: Option<Box<Span>>,
}

impl Ending {
    pub(super) fn new(task: TaskRef, how: Ended) -> Self {
        Self { task, how, span: None }
    }
}

/// What a place has to tell.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Tasks that are complete, of which there is no more to say.
    pub(super) complete: Vec<TaskRef>,
    pub(super) ended: Vec<Ending>,
    /// Tasks that run now and were staged, or belong to a run that was taken as a whole.
    pub(super) started: Vec<TaskRef>,
    /// Tasks that were taken from a worker who had not begun them, and who has them now.
    pub(super) moved: Vec<(TaskRef, WorkerId)>,
}

impl Done {
    /// A task of the host has ended; its run has the report if it has failed.
    #[inline]
    pub(super) fn end(&mut self, task: TaskRef, is_success: bool) {
        if is_success {
            self.complete.push(task);
        } else {
            self.ended.push(Ending::new(task, Ended::Reported));
        }
    }

    /// Moves all of `other` here.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.complete.append(&mut other.complete);
        self.ended.append(&mut other.ended);
        self.started.append(&mut other.started);
        self.moved.append(&mut other.moved);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.complete.is_empty()
            && self.ended.is_empty()
            && self.started.is_empty()
            && self.moved.is_empty()
    }
}

/// Whether all parts of a task can start now.
#[derive(Debug)]
pub(super) enum Room {
    /// As many offers as were asked for will be taken, each by a worker that has nothing else.
    Now,
    Later,
    Never(Box<TaskFailure>),
}

/// Runs tasks. Whoever schedules drives it, and nothing here ever waits.
///
/// In each turn of the scheduler it is polled once, then what is ready is offered, then
/// [`settle`](Place::settle) is called.
pub(super) trait Place: Send {
    /// Offers a task. One that is taken comes back as ended exactly once.
    fn offer(&mut self, unit: Unit<'_>) -> Offer;

    /// Says whether so many parts, of which this is the first, can start together. They are offered
    /// at once then, before anything else is asked of the place.
    fn room_for(&mut self, _first: Unit<'_>, _parts: u32) -> Room {
        Room::Now
    }

    /// All offers of this turn have been made, and so many tasks found no room. Returns `true` if
    /// there is room now after all.
    fn settle(&mut self, _waiting: usize) -> bool {
        false
    }

    /// Does all there is to do now, and says which tasks have started and ended. Returns `true` if
    /// anything changed.
    fn poll(&mut self, done: &mut Done) -> bool;

    /// A run is cancelled or late. What it has not started need not start. If the run is late, what
    /// runs is to be stopped; it comes back as ended, soon, whatever the device does.
    fn abort(&mut self, run: RunId, why: Cut);

    /// How soon to poll although nothing may have notified the scheduler; `None` if that is not
    /// needed.
    fn next_look(&self) -> Option<Duration>;

    /// Says what it has at the moment, for messages; nothing if it has nothing.
    fn describe(&self, parts: &mut Vec<String>);

    /// Nothing will be offered any more: it lets go of what it holds as soon as its tasks have
    /// ended.
    fn close(&mut self) {}

    /// Returns `true` if tasks come back so fast that each look at the clock counts.
    fn is_brisk(&self) -> bool {
        false
    }

    /// No run is left, for now.
    fn rest(&mut self) {}

    /// Returns `true` while it has tasks, or holds harts of the device.
    fn is_busy(&self) -> bool;
}
