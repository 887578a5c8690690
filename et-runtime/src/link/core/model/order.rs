//! What comes before what.

use super::{Model, World};
use crate::link::core::abort::Abort;
use crate::link::core::{Ended, Queue, Sent};

impl World {
    /// What is before an operation in its stream comes first, as far as both reach the device; and
    /// so does what its stream has been told to wait for.
    pub(super) fn put_in_order(&mut self, id: u64, stream: usize) {
        let ops = self.ops.iter().filter(|op| op.stream == stream && op.key.id != id);
        let before: Vec<u64> = ops.map(|op| op.key.id).collect();
        let others = self.depends.iter().filter(|(its, _)| *its == stream).map(|(_, on)| *on);
        self.order.extend(before.into_iter().chain(others).map(|other| (other, id)));
    }

    /// Checks that what comes before an operation without commands has been executed when that
    /// ends, or ends together with it.
    pub(super) fn check_empty(&mut self, ended: &[Ended]) {
        // What an abort has ended may be answered after what was behind it.
        let is_late = |queue: &Queue<Model>| queue.abort != Abort::None || queue.recent.is_some();
        if self.has_foreign || self.core.queues.iter().any(is_late) {
            return;
        }
        let Self { order, ops, core, .. } = self;
        let has_ended = |id: u64| ended.iter().any(|its| its.operation.key.id == id);
        let has_succeeded =
            |id: u64| ended.iter().any(|its| its.operation.key.id == id && its.error.is_none());
        for &(before, id) in order.iter().filter(|(_, id)| has_succeeded(*id)) {
            let find = |id: u64| ops.iter().find(|op| op.key.id == id).expect("it is known");
            let (before, it) = (find(before), find(id));
            let is_meant = before.aborted.is_some();
            if it.touched || it.commands != 0 || before.ended != 0 || is_meant {
                continue;
            }
            // What follows from an answer, as a report, keeps no order.
            let slot = before.key.slot;
            let is_its = |sent: &Sent<Model>| sent.op == Some(slot) && !sent.is_extra;
            let op = core.ops.get(slot).filter(|op| op.operation.key.id == before.key.id);
            let mut again = core.queues.iter().flat_map(|queue| &queue.again);
            let is_executed = op.is_none_or(|op| !op.is_open && op.pending.is_empty())
                && !core.flights.iter().chain(&mut again).any(is_its);
            assert!(is_executed || has_ended(before.key.id), "operation {id} ended early");
        }
    }
}
