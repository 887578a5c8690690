//! What aborts promise, looked at after each step.

use super::{Kind, Known, Model, World};
use crate::link::core::abort::{Abort, Harm};
use crate::link::core::{Role, Sent};

impl World {
    /// Checks that what was aborted is on its way to its end, and that a kernel of another is not
    /// ended for it if that was asked for.
    pub(super) fn check_aborts(&self) {
        for known in &self.ops {
            let Some(harm) = known.aborted else { continue };
            let slot = known.key.slot;
            let op = self.core.ops.get(slot).filter(|op| op.operation.key.id == known.key.id);
            let Some(op) = op else { continue };
            assert!(op.pending.is_empty(), "more of it is sent");
            assert!(!op.is_open || op.error.is_some(), "more of it is accepted");
            for (queue, place) in (0..).zip(&self.core.queues) {
                let is_own = |sent: &&Sent<Model>| sent.op == Some(slot) && !sent.is_extra;
                assert!(!place.again.iter().any(|sent| is_own(&sent)), "it is sent again");
                let is_here =
                    |sent: &&Sent<Model>| sent.queue == queue && sent.role == Role::Normal;
                let here = || self.core.flights.iter().filter(is_here);
                let Some(first) = here().filter(is_own).map(|sent| sent.sequence).min() else {
                    continue;
                };
                let is_innocent = |sent: &Sent<Model>| {
                    let its = |known: &Known| known.aborted.is_none() || known.ended != 0;
                    let op = self.ops.iter().find(|known| known.key.id == sent.load.op);
                    sent.load.kind == Kind::Launch && op.is_none_or(its)
                };
                let harms = here().any(|sent| sent.sequence < first && is_innocent(sent));
                match place.abort {
                    Abort::None => assert!(
                        harm == Harm::Avoid && harms || self.has_refused,
                        "its abort is not asked for"
                    ),
                    // Later, what was before the kernel may have ended.
                    Abort::Wanted(id) | Abort::Asked(id)
                        if id == known.key.id && self.asked[queue as usize] != id =>
                    {
                        let may = harm == Harm::Accept || self.has_foreign;
                        assert!(may || !harms, "its abort harms a kernel");
                    }
                    _ => {}
                }
            }
        }
    }
}
