//! Around every call: no panic gets out, and none that may wait is made by a callback.

#![expect(unsafe_code, reason = "calls functions of the caller")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::imports::et_released;
use crate::raw::User;
use crate::status::{Failure, et_status};

/// Does a call; turns failure and panic into a status with a message.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> et_status {
    if INSIDE.get() == Inside::Release {
        let why = "something is given back, and whoever is told must call nothing of the library";
        return Failure::new(et_status::ET_IN_CALLBACK, why).report();
    }
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => et_status::ET_OK,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => {
            let why = format!("panicked: {}", message(&*payload));
            Failure::new(et_status::ET_INTERNAL, why).report()
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Told when what belongs to a caller is no longer used; dropped, it tells so.
#[derive(Debug)]
pub(crate) struct Release {
    released: et_released,
    user: User,
}

impl Release {
    pub(crate) fn new(released: et_released, user: *mut c_void) -> Self {
        Self { released, user: User::new(user) }
    }

    /// Not a field: a closure would keep that alone, and drop the rest.
    pub(crate) fn user(&self) -> User {
        self.user
    }

    /// It has never left the caller.
    pub(crate) fn forget(&mut self) {
        self.released = None;
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(released) = self.released {
            let user = self.user.get();
            // SAFETY: the caller gave a function that may be called with this pointer on any
            // thread.
            inside(Inside::Release, || unsafe { released(user) });
        }
    }
}

/// In whose code a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    Nothing,
    /// A callback at the end of something: it holds up those that wait.
    Completion,
    /// A host function of a graph: it may wait, but not for the end of its own thread.
    HostFunction,
    /// A callback that is told of what is given back: the runtime may hold locks.
    Release,
}

thread_local! {
    static INSIDE: Cell<Inside> = const { Cell::new(Inside::Nothing) };
}

/// Calls code of the user.
pub(crate) fn inside<R>(what: Inside, call: impl FnOnce() -> R) -> R {
    struct Back(Inside);
    impl Drop for Back {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _back = Back(INSIDE.replace(what));
    call()
}

/// Refuses a call that may wait.
pub(crate) fn may_wait() -> Result<(), Failure> {
    refuse(INSIDE.get() == Inside::Completion)
}

/// Refuses a call that may wait for threads to end.
pub(crate) fn may_close() -> Result<(), Failure> {
    refuse(INSIDE.get() != Inside::Nothing)
}

fn refuse(is_refused: bool) -> Result<(), Failure> {
    if is_refused {
        let why = "this call may wait, and a callback must not";
        return Err(Failure::new(et_status::ET_IN_CALLBACK, why));
    }
    Ok(())
}

/// A time that is not to be waited for in callbacks; zero is no waiting.
pub(crate) fn timeout(nanoseconds: u64) -> Result<Duration, Failure> {
    if nanoseconds != 0 {
        may_wait()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
