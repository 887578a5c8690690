//! What failed in a stream and was not looked at.

use std::collections::BTreeMap;

use crate::Error;
use crate::sync::{Mutex, lock};

/// Most errors that are kept; the first ones, which tend to be the causes of the others.
const LIMIT: usize = 64;

/// Something that went wrong in a stream without anyone hearing of it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// An operation failed, and its last handle went without asking for the outcome.
    #[error("operation {operation} ({name}) failed")]
    Failed {
        /// The operation, as [`Event::id`](crate::Event::id) gives it.
        operation: u64,
        /// What it was.
        name: &'static str,
        /// Why.
        #[source]
        error: Error,
    },
    /// A callback panicked.
    #[error("a callback of operation {operation} ({name}) panicked: {message}")]
    Panicked {
        /// The operation.
        operation: u64,
        /// What it was.
        name: &'static str,
        /// The message of the panic.
        message: String,
    },
}

/// Errors of a stream since they were taken the last time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StreamErrors {
    /// The first 64, oldest first.
    pub errors: Vec<StreamError>,
    /// How many came after them and were dropped.
    pub dropped: u64,
}

impl StreamErrors {
    /// Returns `true` if nothing went wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Where operations leave their errors, by the number of their stream. Touched only if there are
/// any, and by streams that come and go.
#[derive(Debug, Default)]
pub(super) struct ErrorLists(Mutex<BTreeMap<u32, StreamErrors>>);

impl ErrorLists {
    pub(super) fn open(&self, stream: u32) {
        lock(&self.0).insert(stream, StreamErrors::default());
    }

    /// No one is left who could ask.
    pub(super) fn close(&self, stream: u32) {
        lock(&self.0).remove(&stream);
    }

    pub(super) fn push(&self, stream: u32, error: StreamError) {
        let mut lists = lock(&self.0);
        let Some(list) = lists.get_mut(&stream) else { return };
        if list.errors.len() < LIMIT {
            list.errors.push(error);
        } else {
            list.dropped += 1;
        }
    }

    pub(super) fn take(&self, stream: u32) -> StreamErrors {
        lock(&self.0).get_mut(&stream).map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_errors_are_kept_and_the_others_counted() {
        let lists = ErrorLists::default();
        let number = |operation| StreamError::Failed { operation, name: "x", error: Error::Closed };
        lists.open(3);
        (0..LIMIT as u64 + 6).for_each(|operation| lists.push(3, number(operation)));
        let taken = lists.take(3);
        assert_eq!((taken.errors.len(), taken.dropped), (LIMIT, 6));
        assert!(matches!(taken.errors[0], StreamError::Failed { operation: 0, .. }));
        assert!(lists.take(3).is_empty());
        lists.push(3, number(100));
        assert_eq!((lists.take(3).errors.len(), lists.take(3).dropped), (1, 0));
        lists.close(3);
        lists.push(3, number(101));
        assert!(lists.take(3).is_empty());
    }
}
