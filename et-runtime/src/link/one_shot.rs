//! A result that is set once and waited for by many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;

use super::Parker;
use crate::error::panic_message;
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

/// Who wants to hear of a result.
enum Interest<R> {
    /// A thread that waits.
    Parker(Arc<Parker>),
    /// A future, by its number.
    Waker(u64, Waker),
    /// A continuation of the runtime itself.
    Own(Callback<R>),
    Callback(Callback<R>),
}

/// Whom to tell of a result; the runtime's own continuations come first.
#[must_use = "what is not run is lost"]
pub struct Continuations<R> {
    /// `Some` if there is anything to run.
    result: Option<R>,
    interests: Vec<Interest<R>>,
}

impl<R> Continuations<R> {
    /// Callbacks of users that are to be told `result`.
    pub(crate) fn of(result: R, callbacks: Vec<Callback<R>>) -> Self {
        let interests = callbacks.into_iter().map(Interest::Callback).collect();
        Self { result: Some(result), interests }
    }

    /// Returns `true` if there is nothing to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.interests.is_empty()
    }

    /// Runs the runtime's own continuations, which do not panic.
    pub fn run_own(&mut self) {
        let Some(result) = &self.result else { return };
        for own in self.interests.extract_if(.., |interest| matches!(interest, Interest::Own(_))) {
            if let Interest::Own(callback) = own {
                callback(result);
            }
        }
    }

    /// Runs what users have registered; returns the messages of those that panicked.
    pub fn run(mut self) -> Vec<String> {
        self.run_own();
        let mut panics = Vec::new();
        for interest in self.interests {
            let call = || match (interest, &self.result) {
                (Interest::Waker(_, waker), _) => waker.wake(),
                (Interest::Callback(callback), Some(result)) => callback(result),
                _ => {}
            };
            // A callback's own data may be half changed; that is for its owner to know.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                let message = panic_message(&*panic);
                tracing::error!(message, "a callback panicked");
                panics.push(message);
            }
        }
        panics
    }
}

impl<R> std::fmt::Debug for Continuations<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Continuations").field("interests", &self.interests.len()).finish()
    }
}

struct Inner<R> {
    result: Option<R>,
    interests: Vec<Interest<R>>,
    next_waker: u64,
}

impl<R> std::fmt::Debug for Inner<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("done", &self.result.is_some())
            .field("interests", &self.interests.len())
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
        let inner = Inner { result: None, interests: Vec::new(), next_waker: 0 };
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

    /// Looks at the result of one that no other thread can reach.
    pub fn peek(&mut self) -> Option<&R> {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).result.as_ref()
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
        let mut interests = std::mem::take(&mut inner.interests);
        let is_parker = |interest: &Interest<R>| matches!(interest, Interest::Parker(_));
        let result_too = interests.iter().any(|other| !is_parker(other)).then(|| result.clone());
        inner.result = Some(result);
        // Release: pairs with the Acquire in `is_done`.
        self.done.store(1, Ordering::Release);
        drop(inner);
        interests.retain(|interest| {
            if let Interest::Parker(parker) = interest {
                tell(parker);
            }
            !is_parker(interest)
        });
        Some(Continuations { result: result_too, interests })
    }

    /// Has `parker` unparked when the result comes; `false` if it is in already.
    #[must_use]
    pub fn subscribe(&self, parker: &Arc<Parker>) -> bool {
        let mut inner = lock(&self.inner);
        if inner.result.is_some() {
            return false;
        }
        inner.interests.push(Interest::Parker(Arc::clone(parker)));
        true
    }

    /// Forgets a parker whose wait timed out.
    pub fn unsubscribe(&self, parker: &Arc<Parker>) {
        lock(&self.inner).interests.retain(
            |other| !matches!(other, Interest::Parker(other) if Arc::ptr_eq(other, parker)),
        );
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
            let old = inner.interests.iter_mut().find_map(|interest| match interest {
                Interest::Waker(other, old) if *other == number => Some(old),
                _ => None,
            });
            match old {
                Some(old) => old.clone_from(waker),
                None => inner.interests.push(Interest::Waker(number, waker.clone())),
            }
        }
        inner.result.clone()
    }

    /// Forgets the waker of a future that is dropped.
    pub fn forget(&self, key: WakerKey) {
        let mut inner = lock(&self.inner);
        let is_it = |other: &Interest<R>| matches!(other, Interest::Waker(it, _) if *it == key.0);
        let found = inner.interests.iter().position(is_it);
        let waker = found.map(|at| inner.interests.remove(at));
        drop(inner);
        // A waker's own destructor may do anything, so it runs without the lock.
        drop(waker);
    }

    /// Has `callback` called with the result by whoever sets it; hands it back, to be run now, if
    /// the result is in.
    pub fn call(&self, callback: impl FnOnce(&R) + Send + 'static) -> Option<Continuations<R>> {
        let mut inner = lock(&self.inner);
        let callback = Interest::Callback(Box::new(callback));
        match inner.result.clone() {
            None => {
                inner.interests.push(callback);
                None
            }
            result => Some(Continuations { result, interests: vec![callback] }),
        }
    }

    /// As [`call`](Self::call), for a continuation of the runtime: it goes before all of users, and
    /// is run here if the result is in.
    pub fn call_first(&self, callback: impl FnOnce(&R) + Send + 'static) {
        let mut inner = lock(&self.inner);
        match inner.result.clone() {
            None => inner.interests.push(Interest::Own(Box::new(callback))),
            Some(result) => {
                drop(inner);
                callback(&result);
            }
        }
    }
}
