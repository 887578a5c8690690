//! What a graph refuses.

use std::fmt;
use std::ops::Range;

use super::{FunctionId, TaskId};
use crate::memory::{AllocError, UsageError};

/// A description of a graph that cannot be right, or a patch that does not fit.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// An edge or a patch names a task that is not there.
    #[error("{task} does not exist, there are {tasks} tasks")]
    UnknownTask {
        /// The task named.
        task: TaskId,
        /// Tasks there are.
        tasks: usize,
    },
    /// A task names a function that was not registered with this builder.
    #[error("{function} does not exist, {functions} are registered")]
    UnknownFunction {
        /// The function named.
        function: FunctionId,
        /// Functions there are.
        functions: usize,
    },
    /// A task would have to end before it begins.
    #[error("{task} has an edge to itself")]
    SelfEdge {
        /// The task.
        task: TaskId,
    },
    /// Edges lead back to where they come from.
    #[error("the edges form a cycle: {path}")]
    Cycle {
        /// The tasks along it.
        path: CyclePath,
    },
    /// The buffers of a graph belong to one device, between two of its resets.
    #[error(
        "{task} uses {len} bytes at {start:#x}, which belong to another device than the buffers of \
         earlier tasks, or to the time before a reset"
    )]
    BufferOfAnotherDevice {
        /// The task, or the one it would have become.
        task: TaskId,
        /// Device address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A kernel is on another device than the rest of the graph, or was loaded before a reset.
    #[error(
        "{task} runs kernel {kernel}, which is loaded on another device, or from before a reset"
    )]
    KernelOfAnotherDevice {
        /// The task it would have become.
        task: TaskId,
        /// The kernel's name.
        kernel: Box<str>,
    },
    /// Two writes that one task declares have bytes in common.
    #[error(
        "{task} declares overlapping writes: {:#x}..{:#x} and {:#x}..{:#x}",
        first.start, first.end, second.start, second.end
    )]
    OverlappingWrites {
        /// The task it would have become.
        task: TaskId,
        /// The write that begins first.
        first: Range<u64>,
        /// The other.
        second: Range<u64>,
    },
    /// A region is not inside its [`Resource`](super::Resource).
    #[error(
        "{task} uses {}..{} of a resource of {len} units", range.start, range.end
    )]
    OutsideResource {
        /// The task it would have become.
        task: TaskId,
        /// The region.
        range: Range<u64>,
        /// Length of the resource.
        len: u64,
    },
    /// A kernel cannot take that many arguments.
    #[error("{task} has {len} bytes of arguments, a kernel takes at most {max}")]
    ArgumentsTooLarge {
        /// The task.
        task: TaskId,
        /// Bytes given.
        len: usize,
        /// Bytes possible.
        max: usize,
    },
    /// The arguments of a task have another length than its function expects, or than those they
    /// replace.
    #[error("{task} has {found} bytes of arguments where {expected} are expected")]
    ArgumentsMismatch {
        /// The task.
        task: TaskId,
        /// Bytes expected.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// New arguments have another address where the task declared a region by its argument; rebind
    /// the region instead.
    #[error(
        "{task} has address {found:#x} in argument word {word}, the region declared there is at {expected:#x}"
    )]
    AddressMismatch {
        /// The task.
        task: TaskId,
        /// Number of the 8-byte word of the arguments.
        word: usize,
        /// Where the region is, with the patch applied.
        expected: u64,
        /// The new argument.
        found: u64,
    },
    /// A condition cannot look at this word.
    #[error("there is no {kind} at byte {offset} of {len}, aligned to its length")]
    NoWord {
        /// Type of the word.
        kind: &'static str,
        /// Where it would begin.
        offset: u64,
        /// Bytes there are.
        len: u64,
    },
    /// A task reads what no earlier one writes of a [transient buffer](super::TransientBuffer).
    #[error(
        "{task} reads byte {at} of a transient buffer of {len}, which no task before it writes"
    )]
    NotWritten {
        /// The task it would have become.
        task: TaskId,
        /// The first byte that is not written.
        at: u64,
        /// Length of the buffer.
        len: u64,
    },
    /// A transient buffer is declared for another device than the graph uses, or for the time
    /// before a reset.
    #[error("a transient buffer of {len} bytes is for another device than the graph uses")]
    TransientOfAnotherDevice {
        /// Its length.
        len: u64,
    },
    /// There is no memory for transient buffers.
    #[error("no device memory for transient buffers")]
    Memory(#[source] Box<AllocError>),
    /// Two sides of a copy have different lengths.
    #[error("{task} copies between {host} bytes on the host and {device} bytes on the device")]
    CopyLength {
        /// The task it would have become.
        task: TaskId,
        /// Bytes on the host.
        host: u64,
        /// Bytes on the device.
        device: u64,
    },
    /// A task may run nowhere.
    #[error("{task} has an empty set of cores")]
    EmptyCoreSet {
        /// The task it would have become.
        task: TaskId,
    },
    /// A task may run nowhere.
    #[error("{task} has an empty shire mask")]
    EmptyShireMask {
        /// The task it would have become.
        task: TaskId,
    },
    /// A task would do nothing.
    #[error("{task} has no parts")]
    NoParts {
        /// The task it would have become.
        task: TaskId,
    },
    /// A task of several parts writes the word of its own condition, so that some of them could
    /// find it true and others not.
    #[error("{task} has several parts and writes the word of its condition")]
    PartsWriteCondition {
        /// The task it would have become.
        task: TaskId,
    },
    /// A buffer is not for what a task does with it. See
    /// [`Device::alloc_with`](crate::Device::alloc_with).
    #[error("{task} may not use a buffer that it declares")]
    Usage {
        /// The task.
        task: TaskId,
        /// What it wants, and what is allowed.
        #[source]
        error: Box<UsageError>,
    },
    /// More than the storage can count.
    #[error("{count} {what} are more than the {max} that a graph can hold")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there would be.
        count: u64,
        /// Most there can be.
        max: u64,
    },
    /// A patch gives data to a task that is not a copy.
    #[error("{task} is not a copy")]
    NotACopy {
        /// The task.
        task: TaskId,
    },
    /// A buffer can be replaced only by one of the same device.
    #[error(
        "{len} bytes at {start:#x} belong to another device than the graph, or to the time before \
         a reset"
    )]
    RebindToAnotherDevice {
        /// Device address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A buffer can be replaced only by one of the same length.
    #[error("{old} bytes cannot be rebound to {new} bytes")]
    RebindLength {
        /// Bytes of the old range.
        old: u64,
        /// Bytes of the new range.
        new: u64,
    },
    /// The range to be replaced is used by no task.
    #[error("no region of the graph is inside {:#x}..{:#x}", old.start, old.end)]
    RebindUnused {
        /// Device addresses.
        old: Range<u64>,
    },
    /// The range to be replaced ends inside a region, or two such ranges overlap.
    #[error(
        "{:#x}..{:#x} cannot be rebound, {:#x}..{:#x} is only partly inside it",
        old.start, old.end, region.start, region.end
    )]
    RebindSplits {
        /// The range to be replaced.
        old: Range<u64>,
        /// What it would cut.
        region: Range<u64>,
    },
    /// After the patch two regions would share bytes that they did not share when the edges were
    /// derived.
    #[error(
        "after the patch {:#x}..{:#x} and {:#x}..{:#x} would overlap, which no edge accounts for",
        first.start, first.end, second.start, second.end
    )]
    RebindOverlaps {
        /// The region that begins first.
        first: Range<u64>,
        /// The other.
        second: Range<u64>,
    },
    /// After the patch two copies would share host data that they did not share when the edges were
    /// derived.
    #[error("the new data of {task} is used by {other} too, which no edge accounts for")]
    DataInUse {
        /// One copy.
        task: TaskId,
        /// The other user.
        other: TaskId,
    },
}

crate::report::debug_as_report!(GraphError);

impl GraphError {
    pub(super) fn check_count(what: &'static str, count: usize, max: u32) -> Result<(), Self> {
        if count <= max as usize {
            return Ok(());
        }
        Err(Self::TooMany { what, count: count as u64, max: max.into() })
    }
}

/// The tasks along a cycle, each once; an edge leads from each to the next and from the last to the
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CyclePath {
    tasks: Box<[TaskId]>,
    /// Names of the tasks that are displayed; empty where there is none.
    names: Box<[Box<str>]>,
}

impl CyclePath {
    /// Tasks at the beginning and at the end of a long path that are displayed.
    const SHOWN: usize = 6;

    pub(super) fn new(tasks: Vec<TaskId>, name: impl Fn(TaskId) -> Option<Box<str>>) -> Self {
        let names = tasks
            .iter()
            .enumerate()
            .map(|(at, &task)| {
                let shown = at < Self::SHOWN || at + Self::SHOWN >= tasks.len();
                if shown { name(task).unwrap_or_default() } else { Box::default() }
            })
            .collect();
        Self { tasks: tasks.into(), names }
    }

    /// Returns the tasks, in the direction of the edges.
    #[must_use]
    pub fn tasks(&self) -> &[TaskId] {
        &self.tasks
    }
}

impl fmt::Display for CyclePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.tasks.len();
        // Nothing is gained by hiding a single task.
        let hidden = if len > 2 * Self::SHOWN + 1 { Self::SHOWN..len - Self::SHOWN } else { 0..0 };
        for (at, task) in self.tasks.iter().enumerate() {
            if hidden.contains(&at) {
                if at == hidden.start {
                    write!(f, "… {} more → ", hidden.len())?;
                }
                continue;
            }
            match &*self.names[at] {
                "" => write!(f, "{task} → ")?,
                name => write!(f, "{task} \"{name}\" → ")?,
            }
        }
        self.tasks.first().map_or(Ok(()), |first| write!(f, "{first}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_says_of_what_and_how_many() {
        assert_eq!(GraphError::check_count("tasks", 7, 7), Ok(()));
        let error = GraphError::check_count("tasks", 8, 7).unwrap_err();
        assert_eq!(error.to_string(), "8 tasks are more than the 7 that a graph can hold");
    }
}
