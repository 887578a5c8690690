//! Names of tasks and functions inside one graph.

use std::fmt;

/// A task of a graph: its index in order of creation, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub(super) u32);

impl TaskId {
    pub(super) fn at(index: usize) -> Self {
        Self(super::span::to_u32(index))
    }

    /// Returns the index in order of creation.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Names the task of this index, to talk about a graph whose builder is gone. Whether there is
    /// such a task shows when it is used.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.0)
    }
}

/// A kernel or host function that was registered with a graph: its index in order of registration,
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub(super) u32);

impl FunctionId {
    /// Returns the index in order of registration.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function {}", self.0)
    }
}
