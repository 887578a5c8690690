//! What there is to do when the state machine has been left.

use crate::Error;
use crate::link::Parker;
use crate::link::operation::{EventState, Operation};
use crate::sync::Arc;
use crate::timeline::Timeline;

/// An operation that has ended.
pub(crate) struct Ended {
    pub(crate) operation: Arc<Operation>,
    pub(crate) timeline: Timeline,
    pub(crate) error: Option<Error>,
    /// Who waits for a state before the end and is told of that, before all who wait for it.
    pub(crate) told: Vec<OnReached>,
}

/// What is called once an operation has left the host, or is executed.
pub(crate) type OnReached = Box<dyn FnOnce(&EventState) + Send>;

/// An operation that is sent or executed, and who is told.
pub(crate) struct Reached {
    pub(crate) operation: Arc<Operation>,
    pub(crate) state: EventState,
    pub(crate) told: Vec<OnReached>,
}

/// What there is to do when the state machine has been left.
pub(crate) struct Output<C> {
    /// Commands that the device is done with, or never had.
    pub(crate) finished: Vec<(C, Option<Error>)>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) wake: Vec<Arc<Parker>>,
    /// Something was put into a queue.
    pub(crate) kick: bool,
    /// The background thread sleeps and has to look.
    pub(crate) rouse: bool,
}

impl<C> Default for Output<C> {
    fn default() -> Self {
        Self {
            finished: Vec::new(),
            ended: Vec::new(),
            reached: Vec::new(),
            wake: Vec::new(),
            kick: false,
            rouse: false,
        }
    }
}

impl<C> Output<C> {
    pub(crate) fn is_empty(&self) -> bool {
        self.finished.is_empty()
            && self.ended.is_empty()
            && self.reached.is_empty()
            && self.wake.is_empty()
            && !self.rouse
    }
}
