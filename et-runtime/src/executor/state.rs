//! Where a task is.

use std::fmt;

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
    /// It has run, and what it wrote can be used by the tasks behind it; by the host when the run
    /// has ended.
    Executed = 5,
    /// It has run, and what it wrote can be used. Final.
    Complete = 6,
    /// It failed. Final.
    Failed = 7,
    /// It was cancelled before it ran, or its run ended before it; of a task with several
    /// [parts](crate::graph::Task::parts), before all of them had begun. Final.
    Cancelled = 8,
    /// A task it depends on failed or was cancelled. Final.
    DependencyFailed = 9,
    /// Its [condition](crate::graph::Task::only_if) was false, so it did not run, and those that
    /// depend on it go on. Final.
    Skipped = 10,
}

impl TaskState {
    /// Returns `true` if it stays like this.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Complete
                | Self::Failed
                | Self::Cancelled
                | Self::DependencyFailed
                | Self::Skipped
        )
    }

    /// Returns `true` if what depends on it goes on: it has run, or was skipped.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Complete | Self::Skipped)
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
            9 => Self::DependencyFailed,
            _ => Self::Skipped,
        }
    }
}

impl TaskState {
    /// Returns the state that is displayed so.
    pub(super) fn named(name: &str) -> Option<Self> {
        (0..=10).map(Self::from_u8).find(|state| state.to_string() == name)
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
            Self::Skipped => "skipped",
        })
    }
}
