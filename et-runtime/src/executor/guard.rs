//! Code of users, called by threads that others depend on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicU64, Ordering};

/// Counts the panics of callbacks and wakers.
#[derive(Debug)]
pub(super) struct Panics(AtomicU64);

impl Default for Panics {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Panics {
    /// Calls code of a user. A panic ends here: it is counted and logged.
    pub(super) fn guard(&self, what: &'static str, call: impl FnOnce()) {
        // What it leaves half done is its own.
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
            tracing::error!("a {what} of a run panicked");
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A user's waker whose panics harm only itself.
pub(super) struct Guarded {
    waker: Waker,
    panics: Arc<Panics>,
}

impl Guarded {
    pub(super) fn new(waker: Waker, panics: Arc<Panics>) -> Self {
        Self { waker, panics }
    }
}

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.panics.guard("waker", || self.waker.wake_by_ref());
    }
}
