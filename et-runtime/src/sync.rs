//! The one place that names atomics and locks, so that the models of `testing/et-loom` check the
//! source that ships; so do the random schedules of `testing/et-shuttle`.

#[cfg(not(any(loom, shuttle)))]
mod imp {
    pub(crate) use std::hint::spin_loop as relax;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{yield_now as give_way, yield_now};
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    // A model has to be told that others must go on, or it explores a loop that never ends.
    pub(crate) use loom::thread::{yield_now as relax, yield_now};

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
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{yield_now as give_way, yield_now};
}

pub(crate) use imp::{
    Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard,
    Ordering, fence, give_way, relax, yield_now,
};

/// Locks, and goes on if another holder panicked: every critical section of this crate leaves its
/// data consistent at each step, and a poisoned runtime could not shut down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks if nobody else does.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
