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

/// Which users to tell of a result.
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

    /// Runs what users have registered; returns the messages of those that panicked.
    pub fn run(self) -> Vec<String> {
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

    /// Sets the result, has `tell` wake the threads that wait, and runs the runtime's own
    /// continuations; `None` if there was a result already, which stays.
    ///
    /// Callbacks and wakers of users are handed back, to be run where they can do no harm.
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
        let is_own = |interest: &mut Interest<R>| matches!(interest, Interest::Own(_));
        for own in interests.extract_if(.., is_own) {
            if let (Interest::Own(callback), Some(result)) = (own, &result_too) {
                callback(result);
            }
        }
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
        let mut old = None;
        if inner.result.is_none() {
            let number = match *key {
                Some(WakerKey(number)) => number,
                None => {
                    inner.next_waker += 1;
                    inner.next_waker
                }
            };
            *key = Some(WakerKey(number));
            let its_own = inner.interests.iter_mut().find_map(|interest| match interest {
                Interest::Waker(other, its_own) if *other == number => Some(its_own),
                _ => None,
            });
            match its_own {
                Some(its_own) if its_own.will_wake(waker) => {}
                Some(its_own) => old = Some(std::mem::replace(its_own, waker.clone())),
                None => inner.interests.push(Interest::Waker(number, waker.clone())),
            }
        }
        let result = inner.result.clone();
        drop(inner);
        // As in `forget`: the last task of another future may go with it.
        drop(old);
        result
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

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts<const N: usize>() -> ([Arc<Count>; N], [Waker; N]) {
        let counts = [(); N].map(|()| Arc::new(Count::default()));
        let wakers = counts.clone().map(Waker::from);
        (counts, wakers)
    }

    fn woken<const N: usize>(counts: &[Arc<Count>; N]) -> [u32; N] {
        counts.each_ref().map(|count| count.0.load(Ordering::Relaxed))
    }

    /// Sets the result and returns which of the parkers were told, with what is left to run.
    fn set(one: &OneShot<u32>, result: u32) -> (Vec<*const Parker>, Continuations<u32>) {
        let mut told = Vec::new();
        let left = one.set(result, |parker| told.push(std::ptr::from_ref(parker)));
        (told, left.expect("it is set for the first time"))
    }

    /// What was done, in its order.
    type Record = Arc<Mutex<Vec<&'static str>>>;

    fn note(record: &Record, what: &'static str) -> impl FnOnce(&u32) + Send + use<> {
        let record = Arc::clone(record);
        move |result| {
            assert_eq!(*result, 7);
            lock(&record).push(what);
        }
    }

    #[test]
    fn each_future_is_woken_once_by_the_waker_it_left_last() {
        let (counts, [old, new, other]) = counts();
        let one = OneShot::new();
        let (mut first, mut second) = (None, None);
        assert_eq!(one.poll(&old, &mut first), None);
        assert_eq!(one.poll(&other, &mut second), None);
        let key = first;
        assert_eq!(one.poll(&new, &mut first), None);
        assert_eq!(first, key, "a future keeps its number");
        assert_ne!(first, second);
        let (told, left) = set(&one, 7);
        assert!(told.is_empty());
        assert_eq!(woken(&counts), [0; 3], "not under a lock of the one who sets it");
        assert!(left.run().is_empty());
        assert_eq!(woken(&counts), [0, 1, 1]);
        assert_eq!(one.poll(&new, &mut first), Some(7));
    }

    /// Its last handle has the waker of a future that goes with it.
    struct Forgets(Arc<OneShot<u32>>, WakerKey);

    impl Wake for Forgets {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Forgets {
        fn drop(&mut self) {
            self.0.forget(self.1);
        }
    }

    #[test]
    fn a_waker_that_is_replaced_may_take_another_future_with_it() {
        let (counts, [new, other]) = counts();
        let one = Arc::new(OneShot::new());
        let (mut first, mut second) = (None, None);
        assert_eq!(one.poll(&other, &mut second), None);
        let old = Forgets(Arc::clone(&one), second.expect("it waits"));
        assert_eq!(one.poll(&Waker::from(Arc::new(old)), &mut first), None);
        assert_eq!(one.poll(&new, &mut first), None);
        assert!(set(&one, 7).1.run().is_empty());
        assert_eq!(woken(&counts), [1, 0]);
    }

    #[test]
    fn a_future_that_is_dropped_is_forgotten_and_no_other() {
        let (counts, wakers) = counts::<3>();
        let one = OneShot::new();
        let keys = wakers.each_ref().map(|waker| {
            let mut key = None;
            assert_eq!(one.poll(waker, &mut key), None);
            key.expect("it waits")
        });
        drop(wakers);
        one.forget(keys[1]);
        assert_eq!(counts.each_ref().map(Arc::strong_count), [2, 1, 2], "its waker is dropped");
        assert!(set(&one, 7).1.run().is_empty());
        assert_eq!(woken(&counts), [1, 0, 1]);
    }

    #[test]
    fn a_wait_that_timed_out_is_forgotten_and_no_other() {
        let parkers = [(); 3].map(|()| Arc::new(Parker::new()));
        let (counts, [waker]) = counts();
        let one = OneShot::new();
        assert!(parkers.iter().all(|parker| one.subscribe(parker)));
        assert_eq!(one.poll(&waker, &mut None), None);
        one.unsubscribe(&parkers[1]);
        let (told, left) = set(&one, 7);
        assert_eq!(told, [Arc::as_ptr(&parkers[0]), Arc::as_ptr(&parkers[2])]);
        assert!(left.run().is_empty());
        assert_eq!(woken(&counts), [1]);
        assert!(!one.subscribe(&parkers[1]), "the result is in");
    }

    #[test]
    fn the_runtime_hears_of_a_result_before_users_do() {
        let record = Record::default();
        let one = OneShot::new();
        assert!(one.call(note(&record, "user")).is_none());
        one.call_first(note(&record, "own"));
        assert!(one.call(note(&record, "another user")).is_none());
        one.call_first(note(&record, "another own"));
        assert!(lock(&record).is_empty());
        let left = set(&one, 7).1;
        assert_eq!(*lock(&record), ["own", "another own"]);
        assert!(!left.is_empty());
        assert!(left.run().is_empty());
        assert_eq!(*lock(&record), ["own", "another own", "user", "another user"]);
    }

    #[test]
    fn who_comes_after_the_result_is_called_at_once() {
        let record = Record::default();
        let one = OneShot::new();
        assert!(set(&one, 7).1.is_empty());
        one.call_first(note(&record, "own"));
        assert_eq!(*lock(&record), ["own"]);
        let left = one.call(note(&record, "user")).expect("the result is in");
        assert_eq!(*lock(&record), ["own"], "the caller runs it where it can do no harm");
        assert!(left.run().is_empty());
        assert_eq!(*lock(&record), ["own", "user"]);
    }

    #[test]
    fn the_first_result_stays() {
        let mut one = OneShot::new();
        assert_eq!((one.is_done(), one.get(), one.peek()), (false, None, None));
        assert!(set(&one, 7).1.is_empty());
        assert!(one.set(8, |_| unreachable!("no one waits")).is_none());
        assert_eq!((one.is_done(), one.get(), one.peek()), (true, Some(7), Some(&7)));
    }

    #[test]
    fn a_callback_that_panics_keeps_no_other_from_the_result() {
        let record = Record::default();
        let one = OneShot::new();
        assert!(one.call(|_| panic!("a user's mistake")).is_none());
        assert!(one.call(note(&record, "user")).is_none());
        assert_eq!(set(&one, 7).1.run(), ["a user's mistake"]);
        assert_eq!(*lock(&record), ["user"]);
    }
}
