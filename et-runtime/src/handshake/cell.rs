//! A result that is set once and waited for by many.

use std::task::Waker;

use super::Parker;
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, lock};

type Callback<R> = Box<dyn FnOnce(&R) + Send>;

/// A place for one result.
#[derive(Debug)]
pub struct Cell<R> {
    /// 1 once the result is in; lets pollers look without the lock.
    done: AtomicU32,
    inner: Mutex<Inner<R>>,
}

/// The callbacks of a cell whose result has come.
#[must_use = "callbacks that are not run are lost"]
pub struct Callbacks<R> {
    /// `Some` if there are callbacks.
    result: Option<R>,
    callbacks: Vec<Callback<R>>,
}

impl<R> Callbacks<R> {
    /// Tells whether there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.callbacks.is_empty()
    }

    /// Calls all of them.
    pub fn run(self) {
        if let Some(result) = self.result {
            for callback in self.callbacks {
                callback(&result);
            }
        }
    }
}

impl<R> std::fmt::Debug for Callbacks<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks").field("count", &self.callbacks.len()).finish()
    }
}

struct Inner<R> {
    result: Option<R>,
    parkers: Vec<Arc<Parker>>,
    wakers: Vec<Waker>,
    callbacks: Vec<Callback<R>>,
}

impl<R> std::fmt::Debug for Inner<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("done", &self.result.is_some())
            .field("waiters", &(self.parkers.len() + self.wakers.len() + self.callbacks.len()))
            .finish()
    }
}

impl<R: Clone> Default for Cell<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Clone> Cell<R> {
    /// Makes an empty cell.
    #[must_use]
    pub fn new() -> Self {
        let inner =
            Inner { result: None, parkers: Vec::new(), wakers: Vec::new(), callbacks: Vec::new() };
        Self { done: AtomicU32::new(0), inner: Mutex::new(inner) }
    }

    /// Tells whether the result is in.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // Acquire: whoever sees the result sees what the device did before; pairs with `set`.
        self.done.load(Ordering::Acquire) != 0
    }

    /// Returns the result, if it is in.
    #[must_use]
    pub fn get(&self) -> Option<R> {
        if !self.is_done() {
            return None;
        }
        lock(&self.inner).result.clone()
    }

    /// Sets the result and wakes everybody; `None` if there was one already, which stays.
    ///
    /// Callbacks are handed back, to be run where they can do no harm.
    pub fn set(&self, result: R) -> Option<Callbacks<R>> {
        let mut inner = lock(&self.inner);
        if inner.result.is_some() {
            return None;
        }
        let callbacks = std::mem::take(&mut inner.callbacks);
        let callbacks =
            Callbacks { result: (!callbacks.is_empty()).then(|| result.clone()), callbacks };
        inner.result = Some(result);
        // Release: pairs with the Acquire in `is_done`.
        self.done.store(1, Ordering::Release);
        let parkers = std::mem::take(&mut inner.parkers);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        for parker in parkers {
            parker.unpark();
        }
        for waker in wakers {
            waker.wake();
        }
        Some(callbacks)
    }

    /// Has `parker` unparked when the result comes; `false` if it is in already.
    #[must_use]
    pub fn subscribe(&self, parker: &Arc<Parker>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.result.is_some() {
            return false;
        }
        inner.parkers.push(Arc::clone(parker));
        true
    }

    /// Forgets a parker whose wait timed out.
    pub fn unsubscribe(&self, parker: &Arc<Parker>) {
        lock(&self.inner).parkers.retain(|other| !Arc::ptr_eq(other, parker));
    }

    /// Has `waker` woken when the result comes; returns the result if it is in already.
    pub fn poll(&self, waker: &Waker) -> Option<R> {
        let mut inner = lock(&self.inner);
        if inner.result.is_none() && !inner.wakers.iter().any(|other| other.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        inner.result.clone()
    }

    /// Has `callback` called with the result: at once if it is in, else by whoever sets it.
    pub fn call(&self, callback: impl FnOnce(&R) + Send + 'static) {
        let mut inner = lock(&self.inner);
        match inner.result.clone() {
            None => inner.callbacks.push(Box::new(callback)),
            Some(result) => {
                drop(inner);
                callback(&result);
            }
        }
    }
}
