//! The abort command: everything of one submission queue. Spec: §10.1

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{AbortStatus, Body};

use super::mm::Shared;
use super::sq::SubmissionWorker;

/// An abort that waits for the cores, and for copies of a parent, to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aborting {
    tag: Tag,
    queue: usize,
}

/// Begins an abort: answers what was not started, stops copies, tells the cores to stop.
pub(crate) fn begin(
    tag: Tag,
    queue: usize,
    sq: &mut SubmissionWorker,
    shared: &mut Shared,
) -> Aborting {
    sq.abort(shared);
    shared.abort_dma(queue);
    if shared.kernel.runs_from(queue) {
        shared.abort_kernel();
    }
    Aborting { tag, queue }
}

impl Aborting {
    /// Answers the abort if everything has stopped; returns `true` if it has.
    ///
    /// Erratum 11 (§21): it always succeeds.
    pub(crate) fn finish(self, shared: &mut Shared) -> bool {
        if shared.kernel.runs_from(self.queue) || shared.dma.is_away(self.queue) {
            return false;
        }
        shared.respond(self.tag, Body::Abort { status: AbortStatus::Success });
        true
    }
}
