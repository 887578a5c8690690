//! What became of a run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{RunError, RunTrace, TaskFailure, TaskRecord, TaskState};
use crate::graph::{Graph, TaskId};

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
    /// The name of the device, if the executor has one.
    pub(super) device: Option<Arc<str>>,
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

    /// Returns `true` if all tasks are complete or were skipped.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failures.is_empty()
            && self.cut.is_none()
            && self.roots.is_empty()
            && self.states.iter().all(|state| state.is_success())
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
        let unfinished = self.states.iter().filter(|state| !state.is_success()).count();
        let device = self.device.clone();
        if let Some(Cut::Deadline(after)) = self.cut {
            return Err(RunError::Deadline { device, after, unfinished, tasks });
        }
        if let Some((task, failure)) = self.failures.first() {
            return Err(RunError::TaskFailed {
                device,
                task: *task,
                name: self
                    .graph
                    .name(*task)
                    .map_or_else(Box::default, |name| format!(" \"{name}\"").into()),
                failure: failure.clone(),
                dependents: self.roots.len(),
            });
        }
        if unfinished != 0 {
            return Err(RunError::Cancelled { device, unfinished, tasks });
        }
        Ok(())
    }
}
