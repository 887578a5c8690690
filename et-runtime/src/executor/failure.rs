//! Why tasks fail and launches are refused.

use std::sync::Arc;
use std::time::Duration;

use super::{Stall, TaskState};
use crate::graph::{TaskError, TaskId};
use crate::report::debug_as_report;

/// Why a task failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskFailure {
    /// Its host function returned an error.
    #[error(transparent)]
    Function(TaskError),
    /// Its host function panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Its kernel returned a negative value.
    #[error("the kernel returned {value} on hart {hart}")]
    Returned {
        /// What it returned.
        value: i64,
        /// The hart it ran on.
        hart: u64,
    },
    /// Its launch or copy failed.
    #[error(transparent)]
    Device(crate::Error),
    /// The hart it ran on trapped.
    #[error("worker {worker}: {failure}")]
    Trapped {
        /// The worker, by its index.
        worker: u32,
        /// What the device reports: hart, cause, place.
        failure: Arc<crate::LaunchFailure>,
    },
    /// It was not complete at the deadline of its run.
    #[error("not complete after {after:?}{}", on(*worker))]
    Deadline {
        /// The limit.
        after: Duration,
        /// The worker that had it, by its index, if one had it and is known.
        worker: Option<u32>,
    },
    /// One of its [parts](crate::graph::Task::parts) failed; of several, the first that was heard
    /// of.
    #[error("part {part} of {parts}: {failure}")]
    Part {
        /// Its number, from 0.
        part: u32,
        /// How many the task has.
        parts: u32,
        /// Why.
        failure: Box<TaskFailure>,
    },
    /// A task that it depends on, of an earlier graph of its [flow](super::Flow), did not complete.
    #[error("{task}{name} of an earlier graph of the flow, which it depends on, is {state}")]
    Earlier {
        /// The task, in its own graph.
        task: TaskId,
        /// Its name in quotes behind a blank, empty if it has none.
        name: Box<str>,
        /// What became of it.
        state: TaskState,
    },
    /// The worker that had it has gone, or there is no thread for one.
    #[error("worker {worker} is lost: {why}")]
    WorkerLost {
        /// The worker, by its index.
        worker: u32,
        /// What is known.
        why: String,
    },
}

impl TaskFailure {
    /// Returns what happened on the worker: of a task with several parts, why its part failed.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Part { failure, .. } => failure,
            _ => self,
        }
    }
}

debug_as_report!(TaskFailure, RunError);

/// Why a graph could not be launched, or did not end well.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A task failed; the others that failed by themselves are in the outcome.
    #[error("{task}{name} failed{}; {dependents} {} on it", of(.device), depend(*.dependents))]
    TaskFailed {
        /// The device, if the executor has one.
        device: Option<Arc<str>>,
        /// The first one that failed.
        task: TaskId,
        /// Its name in quotes behind a blank, empty if it has none.
        name: Box<str>,
        /// Why.
        #[source]
        failure: TaskFailure,
        /// Tasks that were not run because of failed ones.
        dependents: usize,
    },
    /// It was cancelled.
    #[error("cancelled{} with {unfinished} of {tasks} tasks not run", of(.device))]
    Cancelled {
        /// The device, if the executor has one.
        device: Option<Arc<str>>,
        /// Tasks that did not run.
        unfinished: usize,
        /// All tasks.
        tasks: usize,
    },
    /// Its deadline passed.
    #[error("{unfinished} of {tasks} tasks were not complete{} after {after:?}", of(.device))]
    Deadline {
        /// The device, if the executor has one.
        device: Option<Arc<str>>,
        /// The limit.
        after: Duration,
        /// Tasks that were not complete.
        unfinished: usize,
        /// All tasks.
        tasks: usize,
    },
    /// The graph has kernels or copies, and the executor has no device.
    #[error("{task} needs a device, and this executor has none")]
    NeedsDevice {
        /// One of them.
        task: TaskId,
    },
    /// The graph uses buffers or kernels of another device. Those from before a reset are
    /// [stale](crate::Error::Stale), in [`Device`](Self::Device).
    #[error("the graph's buffers belong to another device")]
    OtherDevice,
    /// A task may only run on workers that do not exist.
    #[error("{task} wants a worker of {cores}, there are {workers}")]
    NoSuchWorker {
        /// The task.
        task: TaskId,
        /// The workers it may run on.
        cores: String,
        /// How many there are.
        workers: u32,
    },
    /// The parts of a task are to start together, and there are not as many workers.
    #[error("{task} has {parts} parts that are to start together, there are {workers} workers")]
    TooManyParts {
        /// The task.
        task: TaskId,
        /// How many it has.
        parts: u32,
        /// Workers that may run them.
        workers: u32,
    },
    /// Place `cores` was asked for, and the registers of the device do not let the host use its
    /// memory. Spec: §3.6
    #[error(
        "place cores needs a device whose registers let the host use its memory (io_access); the \
         simulator has such with cpu-access=yes; take place resident"
    )]
    NoCpuAccess,
    /// The place asked for cannot run this graph.
    #[error("place {place} cannot run this graph: {why}")]
    Unsupported {
        /// Its name.
        place: &'static str,
        /// Why.
        why: String,
    },
    /// The device has not enough memory for the graph.
    #[error(
        "the graph needs {needed} bytes of device memory for {what}, the largest free block has {free}"
    )]
    DeviceFull {
        /// What for.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes in the largest free block.
        free: u64,
    },
    /// The device refused something that the launch needs.
    #[error(transparent)]
    Device(crate::Error),
    /// The executor is closed.
    #[error("the executor{} is closed", of(.device))]
    Closed {
        /// The device, if the executor has one.
        device: Option<Arc<str>>,
    },
    /// A wait ended before the run did; the run goes on.
    #[error("not done{} after {after:?}: {finished} of {tasks} tasks are; {stall}; {busy}", of(.device))]
    Timeout {
        /// The device, if the executor has one.
        device: Option<Arc<str>>,
        /// The limit of the wait.
        after: Duration,
        /// Tasks that have ended.
        finished: usize,
        /// All tasks.
        tasks: usize,
        /// What the run waits for.
        stall: Stall,
        /// What workers have at the moment.
        busy: Box<str>,
    },
}

impl RunError {
    /// Returns the name of the device, if the error knows; see
    /// [`Config::name`](crate::Config::name).
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::TaskFailed { device, .. }
            | Self::Cancelled { device, .. }
            | Self::Deadline { device, .. }
            | Self::Timeout { device, .. }
            | Self::Closed { device } => device.as_deref(),
            Self::Device(error) => error.device(),
            _ => None,
        }
    }
}

fn of(device: &Option<Arc<str>>) -> String {
    device.as_ref().map_or_else(String::new, |device| format!(" on {device}"))
}

fn on(worker: Option<u32>) -> String {
    worker.map_or_else(String::new, |worker| format!(" on worker {worker}"))
}

fn depend(tasks: usize) -> &'static str {
    if tasks == 1 { "task depended" } else { "tasks depended" }
}

impl From<crate::Error> for RunError {
    fn from(error: crate::Error) -> Self {
        Self::Device(error)
    }
}
