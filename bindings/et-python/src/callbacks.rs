//! Functions of the user at the end of something. They have a thread of their own, so that no
//! thread of the runtime ever waits for the interpreter.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::life::{self, Born};

type Job = Box<dyn FnOnce(Python<'_>) + Send>;

struct Caller {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    born: Born,
}

static CALLER: Mutex<Option<Caller>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Caller>> {
    CALLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a job done, unless the interpreter ends.
pub(crate) fn post(job: impl FnOnce(Python<'_>) + Send + 'static) {
    let mut caller = lock();
    if life::is_ending() {
        return;
    }
    if caller.as_ref().is_some_and(|caller| caller.born.is_foreign()) {
        // The thread is the parent's.
        std::mem::forget(caller.take());
    }
    if caller.is_none() {
        let (jobs, todo) = channel::<Job>();
        let run = move || {
            // Without an interpreter there is nothing to call.
            while let Ok(job) = todo.recv() {
                if Python::try_attach(job).is_none() {
                    return;
                }
            }
        };
        let Ok(thread) = std::thread::Builder::new().name("et-callbacks".into()).spawn(run) else {
            return;
        };
        *caller = Some(Caller { jobs, thread, born: Born::now() });
    }
    if let Some(caller) = &*caller {
        // A receiver that is gone says that the interpreter is.
        let _ = caller.jobs.send(Box::new(job));
    }
}

/// Calls a function; what it raises goes to `sys.unraisablehook`.
pub(crate) fn call<'py>(py: Python<'py>, function: &Py<PyAny>, args: impl PyCallArgs<'py>) {
    if let Err(error) = function.call1(py, args) {
        error.write_unraisable(py, Some(function.bind(py)));
    }
}

/// Does what has been posted, and ends the thread. The caller must not hold the interpreter.
pub(crate) fn stop() {
    let caller = lock().take();
    let Some(Caller { jobs, thread, born }) = caller else { return };
    drop(jobs);
    if born.is_foreign() {
        std::mem::forget(thread);
    } else {
        // A panic was reported by the thread.
        let _ = thread.join();
    }
}
