//! Callbacks of users: run by a thread that holds no lock, and listed if they panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use et_hal::Hal;

use super::core::Reached;
use super::{
    Continuations, DeviceError, EventState, Link, OpName, Operation, Outcome, StreamError,
};
use crate::error::panic_message;
use crate::sync::{Arc, Ordering, lock};

/// What to call.
pub(super) enum Errand {
    /// Those who wait for the end of an operation.
    Ended(OpName, Continuations<Outcome>),
    /// Those who wait until an operation is sent, or executed.
    Reached(Reached),
    /// The listeners of a stream and of the device.
    Report(DeviceError),
}

impl<H: Hal> Link<H> {
    /// Runs callbacks of an operation; those that panic are counted and listed.
    pub(super) fn run_listed<R>(&self, of: OpName, errand: Continuations<R>) {
        for message in errand.run() {
            let OpName { id: operation, name, stream } = of;
            let error = StreamError::Panicked { operation, name, message };
            self.report(DeviceError::Stream { stream, error });
            // Last: whoever sees it counted finds it listed.
            self.counts.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells who waited for an operation to be sent or executed how far it is by now: another
    /// thread may have told of its end before.
    fn tell_reached(&self, Reached { operation, state, told }: Reached) {
        let end = operation.result.get();
        let state = end.map_or(state, |end| EventState::of(&end));
        self.run_listed(operation.name(), Continuations::of(state, told));
        if let Some(operation) = Arc::into_inner(operation) {
            self.list(operation);
        }
    }

    /// Lists the failure of an operation that has no handle any more.
    pub(super) fn list(&self, operation: Operation) {
        let OpName { id, name, stream } = operation.name();
        if let Some(error) = operation.unseen_failure() {
            let error = StreamError::Failed { operation: id, name, error };
            self.report(DeviceError::Stream { stream, error });
        }
    }

    /// Lists an error, and has listeners called. May be called with locks held.
    pub(super) fn report(&self, error: DeviceError) {
        if let Some(error) = self.errors.push(error) {
            self.add_errand(Errand::Report(error));
        }
    }

    fn tell_listeners(&self, error: &DeviceError) {
        for call in self.errors.calls(error).into_iter().flatten() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                // Not listed: it would be told of that, too.
                let message = panic_message(&*panic);
                tracing::error!(message, "the callback for errors panicked");
                self.counts.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn add_errand(&self, errand: Errand) {
        let mut errands = lock(&self.errands);
        errands.push_back(errand);
        self.has_errands.store(true, Ordering::Release);
    }

    /// Runs the callbacks of users. They may use the device.
    pub(crate) fn run_errands(&self) {
        while self.has_errands.load(Ordering::Acquire) {
            let next = {
                let mut errands = lock(&self.errands);
                let next = errands.pop_front();
                self.has_errands.store(!errands.is_empty(), Ordering::Release);
                next
            };
            match next {
                Some(Errand::Ended(of, told)) => self.run_listed(of, told),
                Some(Errand::Reached(reached)) => self.tell_reached(reached),
                Some(Errand::Report(error)) => self.tell_listeners(&error),
                None => return,
            }
        }
    }
}
