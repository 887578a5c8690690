//! What a user waits for: one operation, of one or many commands.

use std::time::Duration;

use super::OneShot;
use crate::Result;
use crate::timeline::Timeline;

pub(crate) type Outcome = Result<Timeline>;

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
}

impl Operation {
    pub(super) fn new(key: OpKey, name: &'static str, stream: u32, queued: Duration) -> Self {
        Self { key, name, stream, result: OneShot::new(), queued }
    }
}
