//! A high-priority submission queue and its worker: aborts and compute resets.

use et_devapi::msg::ops::Command;
use et_devapi::ring::{Consumer, Ring};

use super::abort::{self, Aborting};
use super::cm_reset;
use super::mm::Shared;
use super::sq::{Batch, SubmissionWorker};

/// The worker of one high-priority queue; its commands act on the submission queue of the same
/// number.
#[derive(Debug)]
pub(crate) struct HighPriorityWorker {
    index: usize,
    ring: Consumer,
    batch: Batch,
    aborting: Option<Aborting>,
    look: bool,
}

impl HighPriorityWorker {
    /// Takes an empty ring over. What its control block says by now is the host's matter.
    pub(crate) fn new(index: usize, ring: Ring) -> Self {
        Self {
            index,
            ring: Consumer::resume(ring, 0, 0, 0),
            batch: Batch::new(ring),
            aborting: None,
            look: false,
        }
    }

    /// The doorbell was rung.
    pub(crate) fn look(&mut self) {
        self.look = true;
    }

    /// Executes as much as possible; returns `true` if anything was done.
    ///
    /// Commands are executed one after the other, so a barrier has nothing to wait for.
    pub(crate) fn step(&mut self, sq: &mut SubmissionWorker, shared: &mut Shared) -> bool {
        let mut busy = false;
        if let Some(aborting) = self.aborting {
            if !aborting.finish(shared) {
                return false;
            }
            self.aborting = None;
            busy = true;
        }
        if self.batch.is_empty() {
            if !self.look {
                return busy;
            }
            self.look = self.batch.pick_up(&mut self.ring, &shared.slot) != 0;
        }
        while !shared.cq.is_full() && !shared.hangs() {
            let Some((header, message)) = self.batch.front() else {
                self.batch.clear();
                break;
            };
            busy = true;
            let (tag, len) = (header.tag(), message.len());
            shared.count_command();
            match Command::parse(message) {
                Ok((_, Command::Abort)) => {
                    let aborting = abort::begin(tag, self.index, sq, shared);
                    self.aborting = Some(aborting).filter(|aborting| !aborting.finish(shared));
                }
                Ok((_, Command::CmReset { .. })) => cm_reset::execute(tag, shared),
                // Everything else belongs into the submission queues.
                _ => shared.unsupported(tag),
            }
            self.batch.skip(len);
            shared.count_down();
            if self.aborting.is_some() {
                break;
            }
        }
        busy
    }
}
