//! What a user waits for: one operation, of one or many commands.

use std::time::Duration;

use super::OneShot;
use crate::Error;
use crate::Result;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::timeline::Timeline;

pub(crate) type Outcome = Result<Timeline>;

/// How far an operation is. States never go back.
///
/// There is no state for an operation that runs: firmware says nothing between the command and its
/// response, which has the times ([`Timeline`]). See
/// [`Properties::reports_running`](crate::Properties::reports_running).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventState {
    /// Accepted, and still on the host: something has to end first, or there is no room.
    Queued,
    /// The device has it, or the first part of it, and will run it or runs it.
    Ready,
    /// The device has answered all of it, and the host is not done with the answer: after a kernel
    /// that failed its report is fetched. What succeeds is [`Complete`](Self::Complete) at once.
    Executed,
    /// It has succeeded, and what it wrote can be used.
    Complete,
    /// It has failed; [`Event::outcome`](crate::Event::outcome) says why.
    Failed,
}

impl EventState {
    /// All of them, in their order.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Ready, Self::Executed, Self::Complete, Self::Failed];

    /// The last one of an operation that has ended so.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        if outcome.is_ok() { Self::Complete } else { Self::Failed }
    }
}

/// Names an operation inside its link. Never used again, unlike wire tags and places in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OpKey {
    pub(super) slot: u32,
    pub(crate) id: u64,
}

/// The part of an operation that its handles see.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) key: OpKey,
    /// What the operation is, for messages and profiles.
    pub(crate) name: &'static str,
    /// Number of its stream.
    pub(crate) stream: u32,
    pub(crate) result: OneShot<Outcome>,
    pub(crate) queued: Duration,
    /// The number of the kernel, of a launch that is recorded.
    kernel: AtomicU32,
    is_looked_at: AtomicBool,
}

/// What messages say of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpName {
    pub(super) id: u64,
    pub(super) name: &'static str,
    pub(super) stream: u32,
}

impl Operation {
    pub(crate) fn name(&self) -> OpName {
        OpName { id: self.key.id, name: self.name, stream: self.stream }
    }

    pub(super) fn new(key: OpKey, name: &'static str, stream: u32, queued: Duration) -> Self {
        let is_looked_at = AtomicBool::new(false);
        let (result, kernel) = (OneShot::new(), AtomicU32::new(0));
        Self { key, name, stream, result, queued, kernel, is_looked_at }
    }

    /// Says which kernel it launches, for profiles.
    pub(super) fn set_kernel(&self, number: u32) {
        // Relaxed: whoever sends the launch has set it.
        self.kernel.store(number, Ordering::Relaxed);
    }

    /// Returns what was set, or 0.
    pub(crate) fn kernel(&self) -> u32 {
        self.kernel.load(Ordering::Relaxed)
    }

    /// A handle has the outcome, or will get it.
    pub(crate) fn look_at(&self) {
        // Relaxed: read when all handles are gone, which orders it.
        self.is_looked_at.store(true, Ordering::Relaxed);
    }

    /// Returns its failure if none of its handles, which are gone, has asked for it.
    pub(crate) fn unseen_failure(mut self) -> Option<Error> {
        let is_looked_at = self.is_looked_at.load(Ordering::Relaxed);
        match self.result.peek() {
            Some(Err(error)) if !is_looked_at => Some(error.clone()),
            _ => None,
        }
    }
}
