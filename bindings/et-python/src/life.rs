//! When calls are possible: not in the child of a fork with what the parent opened, and not while
//! the interpreter ends.

#![expect(unsafe_code, reason = "asks the C library to be told of forks")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::{apart, callbacks, card, error};

/// Forks that this process is behind. Relaxed: it changes only while a process has one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The interpreter ends. Relaxed: what follows from it is ordered by the locks of the devices.
static ENDING: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has forks counted, however they are made.
pub(crate) fn watch_forks() -> PyResult<()> {
    // SAFETY: the function is there as long as the process, since Python never unloads modules, and
    // does nothing but to add to an atomic, which is allowed between fork and exec.
    let status = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if status != 0 {
        return Err(std::io::Error::from_raw_os_error(status).into());
    }
    Ok(())
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Born(u32);

impl Born {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns `true` if a fork has come between, so that the threads of that time do not exist.
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::now()
    }

    /// Refuses use in a child.
    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_foreign() {
            return Err(error::raise(
                "ForkError",
                "the device was opened before a fork; open it in the child, or start processes \
                 with multiprocessing's \"spawn\" or \"forkserver\"",
            ));
        }
        Ok(())
    }
}

/// A value with threads or locks behind it, which is of use only in the process that made it.
#[derive(Debug)]
pub(crate) struct Here<T> {
    /// `None` only inside `drop`.
    value: Option<T>,
    born: Born,
}

impl<T> Here<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), born: Born::now() }
    }

    /// Returns the value, unless this is the child of a fork.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.born.check()?;
        match &self.value {
            Some(value) => Ok(value),
            None => unreachable!("taken out only by `drop`"),
        }
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if self.born.is_foreign() {
            // A lock may have been held when the process was copied, by a thread that was not.
            std::mem::forget(self.value.take());
        }
    }
}

/// Returns `true` if the interpreter ends.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Closes all devices, and ends the threads of this package. For `atexit`: later no thread may
/// enter the interpreter any more.
#[pyfunction]
#[pyo3(name = "_end")]
pub(crate) fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::Relaxed);
    py.detach(|| {
        card::close_all();
        apart::join();
        callbacks::stop();
    });
}
