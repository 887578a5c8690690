//! Resets of the simulated card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use et_hal::{ErrorType, Loss, Reset, ResetScope, ResetState};
use et_sim_device::{Board, MemoryAfterReset};

use crate::SimError;

/// Control over the resets of a board; there is one at a time.
#[derive(Debug)]
pub struct SimReset {
    board: Arc<Board>,
    taken: Arc<AtomicBool>,
}

impl SimReset {
    pub(crate) fn take(board: &Arc<Board>, taken: &Arc<AtomicBool>) -> Result<Self, SimError> {
        // Acquire and Release: one holder after the other.
        if taken.swap(true, Ordering::Acquire) {
            return Err(SimError::ResetBusy);
        }
        Ok(Self { board: Arc::clone(board), taken: Arc::clone(taken) })
    }

    fn memory_after(scope: ResetScope) -> Option<MemoryAfterReset> {
        match scope {
            ResetScope::Function => Some(MemoryAfterReset::Kept),
            ResetScope::Slot => Some(MemoryAfterReset::Cleared),
            _ => None,
        }
    }
}

impl Drop for SimReset {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

impl ErrorType for SimReset {
    type Error = SimError;
}

impl Reset for SimReset {
    fn loss(&self, scope: ResetScope) -> Option<Loss> {
        let memory = Self::memory_after(scope)? == MemoryAfterReset::Cleared;
        Some(Loss { queues: true, compute: true, memory })
    }

    fn begin(&mut self, scope: ResetScope) -> Result<(), SimError> {
        let memory = Self::memory_after(scope).ok_or(SimError::NoReset(scope))?;
        self.board.begin_reset(memory).map(|_| ()).map_err(|_| SimError::ResetBusy)
    }

    fn poll(&mut self) -> Result<ResetState, SimError> {
        if self.board.resetting() {
            return Ok(ResetState::InProgress);
        }
        Ok(ResetState::Done(self.board.generation()))
    }
}
