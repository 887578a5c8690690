//! What became of a run.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::{RunError, RunTrace, TaskFailure, TaskRecord};
use crate::graph::{Graph, TaskId};

/// Where a task is. It only goes forward, in the order given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// Tasks it depends on are not complete.
    Waiting = 0,
    /// It can run.
    Ready = 1,
    /// The place has the whole run and orders the tasks itself; it says no more of this one before
    /// it has ended.
    Delegated = 2,
    /// A worker has it, behind another one.
    Staged = 3,
    /// A worker has it.
    Running = 4,
    /// It has run.
    Executed = 5,
    /// It has run, and those that depend on it know. Final.
    Complete = 6,
    /// It failed. Final.
    Failed = 7,
    /// It was cancelled before it ran, or its run ended before it. Final.
    Cancelled = 8,
    /// A task it depends on failed or was cancelled. Final.
    DependencyFailed = 9,
}

impl TaskState {
    /// Returns `true` if it stays like this.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Cancelled | Self::DependencyFailed)
    }

    pub(super) const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Waiting,
            1 => Self::Ready,
            2 => Self::Delegated,
            3 => Self::Staged,
            4 => Self::Running,
            5 => Self::Executed,
            6 => Self::Complete,
            7 => Self::Failed,
            8 => Self::Cancelled,
            _ => Self::DependencyFailed,
        }
    }
}

impl TaskState {
    /// Returns the state that is displayed so.
    pub(super) fn named(name: &str) -> Option<Self> {
        (0..=9).map(Self::from_u8).find(|state| state.to_string() == name)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Delegated => "delegated",
            Self::Staged => "staged",
            Self::Running => "running",
            Self::Executed => "executed",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::DependencyFailed => "not run",
        })
    }
}

/// Why a run ended before all its tasks had run, apart from failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Cancelled,
    Deadline(Duration),
}

/// What became of every task of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub(super) graph: Graph,
    pub(super) states: Vec<TaskState>,
    /// In the order in which they failed.
    pub(super) failures: Vec<(TaskId, TaskFailure)>,
    /// Of each task not run for it, the one that failed.
    pub(super) roots: HashMap<u32, u32>,
    pub(super) cut: Option<Cut>,
    pub(super) elapsed: Duration,
    pub(super) place: &'static str,
    pub(super) trace: Option<RunTrace>,
    pub(super) records: Vec<TaskRecord>,
}

impl Outcome {
    /// Returns the final state of a task.
    ///
    /// # Panics
    /// If the graph has no such task.
    #[must_use]
    pub fn state(&self, task: TaskId) -> TaskState {
        self.states[task.index()]
    }

    /// Counts the tasks in a state.
    #[must_use]
    pub fn count(&self, state: TaskState) -> usize {
        self.states.iter().filter(|other| **other == state).count()
    }

    /// Returns the tasks that failed by themselves, in the order in which they did, and why.
    #[must_use]
    pub fn failures(&self) -> &[(TaskId, TaskFailure)] {
        &self.failures
    }

    /// Returns the failed or cancelled task because of which a task was not run.
    #[must_use]
    pub fn root_cause(&self, task: TaskId) -> Option<TaskId> {
        let root = self.roots.get(&u32::try_from(task.index()).ok()?)?;
        Some(TaskId::from_index(*root))
    }

    /// Returns `true` if all tasks are complete.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failures.is_empty()
            && self.cut.is_none()
            && self.roots.is_empty()
            && self.states.iter().all(|state| *state == TaskState::Complete)
    }

    /// Returns the time from the launch to the end of the last task.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the name of the place where the tasks ran.
    #[must_use]
    pub fn place(&self) -> &'static str {
        self.place
    }

    /// Returns when each task ran and where, if the launch asked for it.
    #[must_use]
    pub fn trace(&self) -> Option<&RunTrace> {
        self.trace.as_ref()
    }

    /// Returns what tasks that were to be [recorded](crate::graph::Task::recorded) got and left, in
    /// the order of the tasks: also of tasks that failed, were stopped at a deadline, or were not
    /// run.
    #[must_use]
    pub fn records(&self) -> &[TaskRecord] {
        &self.records
    }

    /// Returns the graph, as it was launched.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the first thing that went wrong, if any.
    ///
    /// # Errors
    /// [`RunError::Deadline`], [`RunError::TaskFailed`], [`RunError::Cancelled`].
    pub fn check(&self) -> Result<(), RunError> {
        let tasks = self.states.len();
        let unfinished = tasks - self.count(TaskState::Complete);
        if let Some(Cut::Deadline(after)) = self.cut {
            return Err(RunError::Deadline { after, unfinished, tasks });
        }
        if let Some((task, failure)) = self.failures.first() {
            return Err(RunError::TaskFailed {
                task: *task,
                name: self.graph.name(*task).map_or(String::new(), |name| format!(" \"{name}\"")),
                failure: failure.clone(),
                dependents: self.roots.len(),
            });
        }
        if unfinished != 0 {
            return Err(RunError::Cancelled { unfinished, tasks });
        }
        Ok(())
    }
}
