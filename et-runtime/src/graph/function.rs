//! Host functions: what they see and how they fail.

use std::fmt;
use std::sync::Arc;

use super::{PartOf, TaskId};

/// What the closures of host tasks are.
pub(crate) type HostFunction =
    dyn Fn(&TaskContext<'_>) -> Result<(), TaskError> + Send + Sync + 'static;

/// What a host function sees of the task it runs for.
#[derive(Clone, Copy)]
pub struct TaskContext<'a> {
    task: TaskId,
    args: &'a [u64],
    part: u32,
    parts: u32,
    is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("task", &self.task)
            .field("args", &self.args)
            .field("part", &self.part)
            .field("parts", &self.parts)
            .field("is_cancelled", &self.is_cancelled())
            .finish()
    }
}

impl<'a> TaskContext<'a> {
    pub(crate) fn new(
        PartOf { task, part, parts }: PartOf,
        args: &'a [u64],
        is_cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { task: TaskId(task), args, part, parts, is_cancelled }
    }

    /// Returns the task.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Returns the number of the part of the task that is to be done, from 0; see
    /// [`Task::parts`](super::Task::parts).
    #[must_use]
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Returns the number of parts of the task, mostly 1.
    #[must_use]
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Returns the arguments as a kernel would see them in memory, in words of 8 bytes, the last
    /// one filled with zeros: a `u64` is one word, two `u32` in a row share one, the first in the
    /// low half.
    #[must_use]
    pub fn args(&self) -> &'a [u64] {
        self.args
    }

    /// Returns `true` if the launch was cancelled; a long function then returns early, with any
    /// result.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        (self.is_cancelled)()
    }
}

/// Why a host function failed.
///
/// ```
/// use et_runtime::graph::TaskError;
///
/// fn parse(text: &str) -> Result<u32, TaskError> {
///     text.parse().map_err(TaskError::new)
/// }
/// assert_eq!(parse("x").unwrap_err().to_string(), "invalid digit found in string");
/// assert_eq!(TaskError::from("no data").to_string(), "no data");
/// ```
#[derive(Clone, Debug)]
pub struct TaskError(Cause);

#[derive(Clone, Debug)]
enum Cause {
    Message(Arc<str>),
    Error(Arc<dyn std::error::Error + Send + Sync>),
}

impl TaskError {
    /// Wraps an error; its causes remain visible through [`source`](std::error::Error::source).
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(Cause::Error(error.into().into()))
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Message(message) => f.write_str(message),
            Cause::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TaskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Cause::Message(_) => None,
            // Its own text is already that of this error.
            Cause::Error(error) => error.source(),
        }
    }
}

impl From<String> for TaskError {
    fn from(message: String) -> Self {
        Self(Cause::Message(message.into()))
    }
}

impl From<&str> for TaskError {
    fn from(message: &str) -> Self {
        Self(Cause::Message(message.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_shows_what_it_was_given() {
        let of = PartOf { task: 3, part: 1, parts: 4 };
        let context = TaskContext::new(of, &[1, 2], &|| true);
        assert_eq!((context.task(), context.args()), (TaskId(3), &[1, 2][..]));
        assert_eq!((context.part(), context.parts()), (1, 4));
        assert!(context.is_cancelled());
        assert!(format!("{context:?}").contains("is_cancelled: true"));
    }

    #[test]
    fn an_error_keeps_its_text_and_its_causes() {
        use std::error::Error as _;
        let error = TaskError::new(crate::Error::closed("fill"));
        assert_eq!(error.clone().to_string(), "fill: the device is closed");
        let inner = std::io::Error::other(crate::Error::stale("fill"));
        assert!(TaskError::new(inner).source().is_none());
        assert_eq!(TaskError::from(String::from("x")).to_string(), "x");
    }
}
