//! Why a run is not done yet.

use std::fmt;

use crate::graph::TaskId;

/// Where the tasks of a run were when a wait for it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// What the run waits for.
    pub cause: StallCause,
    /// Tasks that workers have begun, as far as the host knows.
    pub running: usize,
    /// Tasks that workers were sent and have not begun.
    pub staged: usize,
    /// Tasks that the place orders by itself.
    pub delegated: usize,
    /// Tasks that no worker has been sent.
    pub ready: usize,
    /// Tasks that wait for others of the run.
    pub waiting: usize,
    /// The first of those that hold the run up.
    pub task: Option<TaskId>,
}

/// What a run waits for: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallCause {
    /// Another run, whose buffers it uses. None of its tasks is looked at before, unless it is one
    /// of a [flow](super::Flow): then its tasks that are left wait for tasks of earlier ones.
    OtherRun,
    /// Workers, which run tasks of it that do not end.
    Running,
    /// The place, which has all of the run and does not say how far it is.
    Delegated,
    /// Workers, which were sent tasks of it and have not begun them: what they do first does not
    /// end, or they do not answer.
    NotBegun,
    /// A worker: tasks of it are ready, and those that may take them have no room.
    NoWorker,
    /// The scheduler, which has not come to it.
    Scheduler,
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherRun => "it waits for a run whose buffers it uses",
            Self::Running => "tasks run and do not end",
            Self::Delegated => "the device orders its tasks and has not ended them",
            Self::NotBegun => "workers have its tasks and have not begun them",
            Self::NoWorker => "its tasks are ready and no worker has room",
            Self::Scheduler => "it is not scheduled yet",
        })
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        let counts = [
            (self.running, "running"),
            (self.staged, "staged"),
            (self.delegated, "delegated"),
            (self.ready, "ready"),
            (self.waiting, "waiting"),
        ];
        let mut open = " (";
        for (count, what) in counts.into_iter().filter(|(count, _)| *count != 0) {
            write!(f, "{open}{count} {what}")?;
            open = ", ";
        }
        f.write_str(if open == ", " { ")" } else { "" })
    }
}
