//! The service processor: the management endpoint.
//!
//! It takes its commands one by one and answers none of them: like real firmware it drops what it
//! does not know. Spec: §5.3, §5.5

use std::sync::Arc;

use et_devapi::msg::command_bytes;
use et_devapi::pci::Vector;
use et_devapi::ring::Consumer;
use et_hal::{Endpoint, Pop};

use super::registers;
use crate::BoardError;
use crate::board::Slot;

/// The firmware's command buffer; what is larger is dropped here. Erratum 6 (§21).
const COMMAND_BYTES: usize = 512;

/// The worker of the management queues.
#[derive(Debug)]
pub(crate) struct ServiceProcessor {
    slot: Arc<Slot>,
    submission: Consumer,
    doorbells_seen: u32,
    /// There may be another command.
    look: bool,
}

impl ServiceProcessor {
    pub(crate) fn new(slot: &Arc<Slot>) -> Result<Self, BoardError> {
        let ring = registers::management_submission()?;
        let attached = Consumer::attach(ring, &slot.page);
        Ok(Self {
            slot: Arc::clone(slot),
            submission: attached.map_err(|e| BoardError::Registers(Box::new(e)))?,
            doorbells_seen: 0,
            look: false,
        })
    }

    /// Takes one command, if there is one; returns `true` if there was.
    pub(crate) fn step(&mut self) -> bool {
        let rung = self.slot.bell.rung(Endpoint::Management);
        if rung != self.doorbells_seen {
            self.doorbells_seen = rung;
            self.look = true;
        }
        if !self.look {
            return false;
        }
        let mut command = [0; COMMAND_BYTES];
        // A message that cannot be framed stops the task until the next doorbell. Spec: §5.5
        let popped = self.submission.pop_message(&self.slot.page, command_bytes, &mut command);
        let Ok(Pop::Message(bytes)) = popped else {
            self.look = false;
            return true;
        };
        self.slot.interrupts.raise(Vector::MgmtSubmission);
        tracing::debug!(bytes, "management command dropped");
        true
    }
}
