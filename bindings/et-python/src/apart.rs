//! What may take long to end and cannot be cut short, as a close or a reset: a thread of its own
//! does it, so that Ctrl-C ends the wait, and the rest goes on behind.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use pyo3::prelude::*;

use crate::life::{self, Born};
use crate::{error, wait};

/// Those that may not have ended.
static THREADS: Mutex<Vec<(Born, JoinHandle<()>)>> = Mutex::new(Vec::new());

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Calls a host function of a graph: executors that end wait for it.
pub(crate) fn host_function<R>(call: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IN_HOST_FUNCTION.set(self.0);
        }
    }
    let _back = Back(IN_HOST_FUNCTION.replace(true));
    call()
}

/// Waits until it is the caller's turn to take something out. A host function does not wait for
/// who waits for it: none if another has the turn.
pub(crate) fn turn(lock: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    if !IN_HOST_FUNCTION.get() {
        return Some(lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match lock.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Does work that ends by itself, without the interpreter, and returns its result. If the handler
/// of a signal raises meanwhile, this does too, and the work goes on.
pub(crate) fn work<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if IN_HOST_FUNCTION.get() {
        // The runtime sees by its thread that it must not be waited for.
        return Ok(py.detach(work));
    }
    let (done, result) = channel();
    let mut threads = lock();
    if life::is_ending() {
        drop(threads);
        return Ok(py.detach(work));
    }
    // Those of the parent of a fork are left alone.
    threads.retain(|(born, thread)| born.is_foreign() || !thread.is_finished());
    let thread = std::thread::Builder::new().name("et-apart".into());
    // A result that is not waited for any more is dropped.
    let thread = thread.spawn(move || done.send(work()).map_or_else(drop, drop))?;
    threads.push((Born::now(), thread));
    drop(threads);
    wait::sent(py, result)?.ok_or_else(|| error::raise("Error", "the work panicked"))
}

/// Waits for all that goes on. The caller must not hold the interpreter, and no more may come.
pub(crate) fn join() {
    let threads = std::mem::take(&mut *lock());
    for (born, thread) in threads {
        if born.is_foreign() {
            std::mem::forget(thread);
        } else {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<(Born, JoinHandle<()>)>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}
