//! The one place that names atomics and locks, so that the models of `testing/et-loom` check the
//! source that ships; so do the random schedules of `testing/et-shuttle`.

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub(crate) use std::hint::spin_loop as relax;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{self, yield_now as give_way, yield_now};
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    // A model has to be told that others must go on, or it explores a loop that never ends.
    pub(crate) use loom::thread::{self, yield_now as relax, yield_now};

    /// Nothing: loom takes a yield for a promise that what was seen before it is not seen again,
    /// and old values are what the models are about.
    pub(crate) fn give_way() {}
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::hint::spin_loop as relax;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, yield_now as give_way, yield_now};
}

pub(crate) use imp::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering,
    fence, give_way, relax, thread, yield_now,
};
// Reference counts order nothing here but their own end, and the models' kind has no weak ones.
pub(crate) use std::sync::{Arc, Weak};

use std::time::Duration;

/// Locks, and goes on if another holder panicked: every critical section of this crate leaves its
/// data consistent at each step, and a poisoned runtime could not shut down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Waits for a notification; it may end without one.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    match condvar.wait(guard) {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Waits for a notification, at most for `timeout`; it may end without either.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    _: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    match condvar.wait_timeout(guard, timeout) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

/// As above. In a model a nap passes at once, and what is longer never, so that it cannot hide that
/// a thread was not woken.
#[cfg(any(loom, shuttle))]
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    if timeout >= Duration::from_secs(1) {
        return wait(condvar, guard);
    }
    drop(guard);
    // Or a thread that naps might do nothing else.
    give_way();
    lock(mutex)
}
