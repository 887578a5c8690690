//! A result that is set once and waited for by many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::Parker;
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, lock};

type Callback<R> = Box<dyn FnOnce(&R) + Send>;

/// A place for one result.
#[derive(Debug)]
pub struct OneShot<R> {
    /// 1 once the result is in; lets pollers look without the lock.
    done: AtomicU32,
    inner: Mutex<Inner<R>>,
}

/// Names a waker that waits at a [`OneShot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakerKey(u64);

/// Whom to tell of a result; the runtime's own continuations come first.
#[must_use = "what is not run is lost"]
pub struct Continuations<R> {
    /// `Some` if there are callbacks.
    result: Option<R>,
    own: Vec<Callback<R>>,
    callbacks: Vec<Callback<R>>,
    wakers: Vec<Waker>,
}

impl<R> Continuations<R> {
    /// Returns `true` if there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.callbacks.is_empty() && self.wakers.is_empty()
    }

    /// Runs the runtime's own continuations, which do not panic.
    pub fn run_own(&mut self) {
        if let Some(result) = &self.result {
            for callback in self.own.drain(..) {
                callback(result);
            }
        }
    }

    /// Runs what users have registered; returns how many of them panicked.
    pub fn run(mut self) -> u32 {
        self.run_own();
        let mut panics = 0;
        let mut guarded = |call: Box<dyn FnOnce() + '_>| {
            // A callback's own data may be half changed; that is for its owner to know.
            if catch_unwind(AssertUnwindSafe(call)).is_err() {
                panics += 1;
            }
        };
        for waker in self.wakers {
            guarded(Box::new(move || waker.wake()));
        }
        if let Some(result) = &self.result {
            for callback in self.callbacks {
                guarded(Box::new(move || callback(result)));
            }
        }
        if panics != 0 {
            tracing::error!(panics, "callbacks panicked");
        }
        panics
    }
}

impl<R> std::fmt::Debug for Continuations<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuations")
            .field("own", &self.own.len())
            .field("callbacks", &self.callbacks.len())
            .field("wakers", &self.wakers.len())
            .finish()
    }
}

struct Inner<R> {
    result: Option<R>,
    parkers: Vec<Arc<Parker>>,
    wakers: Vec<(u64, Waker)>,
    next_waker: u64,
    own: Vec<Callback<R>>,
    callbacks: Vec<Callback<R>>,
}

impl<R> std::fmt::Debug for Inner<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiters =
            self.parkers.len() + self.wakers.len() + self.own.len() + self.callbacks.len();
        f.debug_struct("Inner")
            .field("done", &self.result.is_some())
            .field("waiters", &waiters)
            .finish()
    }
}

impl<R: Clone> Default for OneShot<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Clone> OneShot<R> {
    /// Creates an empty one.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            result: None,
            parkers: Vec::new(),
            wakers: Vec::new(),
            next_waker: 0,
            own: Vec::new(),
            callbacks: Vec::new(),
        };
        Self { done: AtomicU32::new(0), inner: Mutex::new(inner) }
    }

    /// Returns `true` if the result is in.
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

    /// Sets the result and has `tell` wake the threads that wait; `None` if there was one already,
    /// which stays.
    ///
    /// Callbacks and wakers are handed back, to be run where they can do no harm.
    pub fn set(&self, result: R, mut tell: impl FnMut(&Parker)) -> Option<Continuations<R>> {
        let mut inner = lock(&self.inner);
        if inner.result.is_some() {
            return None;
        }
        let own = std::mem::take(&mut inner.own);
        let callbacks = std::mem::take(&mut inner.callbacks);
        let wakers = std::mem::take(&mut inner.wakers).into_iter().map(|(_, waker)| waker);
        let wanted = !(own.is_empty() && callbacks.is_empty());
        let continuations = Continuations {
            result: wanted.then(|| result.clone()),
            own,
            callbacks,
            wakers: wakers.collect(),
        };
        inner.result = Some(result);
        // Release: pairs with the Acquire in `is_done`.
        self.done.store(1, Ordering::Release);
        let parkers = std::mem::take(&mut inner.parkers);
        drop(inner);
        for parker in parkers {
            tell(&parker);
        }
        Some(continuations)
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

    /// Returns the result, or has `waker` woken when it comes. `key` is where the same future left
    /// its waker the last time.
    pub fn poll(&self, waker: &Waker, key: &mut Option<WakerKey>) -> Option<R> {
        let mut inner = lock(&self.inner);
        if inner.result.is_none() {
            let number = match *key {
                Some(WakerKey(number)) => number,
                None => {
                    inner.next_waker += 1;
                    inner.next_waker
                }
            };
            *key = Some(WakerKey(number));
            match inner.wakers.iter_mut().find(|(other, _)| *other == number) {
                Some((_, old)) => old.clone_from(waker),
                None => inner.wakers.push((number, waker.clone())),
            }
        }
        inner.result.clone()
    }

    /// Forgets the waker of a future that is dropped.
    pub fn forget(&self, key: WakerKey) {
        let mut inner = lock(&self.inner);
        let found = inner.wakers.iter().position(|(number, _)| *number == key.0);
        let waker = found.map(|at| inner.wakers.swap_remove(at));
        drop(inner);
        // A waker's own destructor may do anything, so it runs without the lock.
        drop(waker);
    }

    /// Has `callback` called with the result by whoever sets it; hands it back, to be run now, if
    /// the result is in.
    pub fn call(&self, callback: impl FnOnce(&R) + Send + 'static) -> Option<Continuations<R>> {
        let mut inner = lock(&self.inner);
        let callback: Callback<R> = Box::new(callback);
        let Some(result) = inner.result.clone() else {
            inner.callbacks.push(callback);
            return None;
        };
        let callbacks = vec![callback];
        Some(Continuations { result: Some(result), own: vec![], callbacks, wakers: vec![] })
    }

    /// As [`call`](Self::call), for a continuation of the runtime: it goes before all of users, and
    /// is run here if the result is in.
    pub fn call_first(&self, callback: impl FnOnce(&R) + Send + 'static) {
        let mut inner = lock(&self.inner);
        match inner.result.clone() {
            None => inner.own.push(Box::new(callback)),
            Some(result) => {
                drop(inner);
                callback(&result);
            }
        }
    }
}
