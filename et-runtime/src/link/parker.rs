//! One thread's place to sleep.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, lock, wait, wait_timeout};

/// A token that one thread waits for and any thread can give; giving it twice is giving it once.
///
/// The thread may also sleep elsewhere, where the token does not wake it: it says so before, and
/// who gives the token then is told to wake it there.
#[derive(Debug, Default)]
pub struct Parker {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_given: bool,
    is_abroad: bool,
}

/// Whether the thread that got a token has to be woken where it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a thread that sleeps elsewhere is not woken by its token"]
pub enum Whereabouts {
    /// It is awake, or wakes up by the token.
    Here,
    /// It sleeps elsewhere.
    Abroad,
}

impl Parker {
    /// Creates a parker without a token.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the token and takes it.
    pub fn park(&self) {
        let mut state = lock(&self.state);
        while !state.is_given {
            state = wait(&self.given, state);
        }
        state.is_given = false;
    }

    /// Waits for the token, but no longer than `timeout`; takes it if it came.
    pub fn park_timeout(&self, timeout: Duration) {
        let mut state = lock(&self.state);
        if !state.is_given {
            state = wait_timeout(&self.given, &self.state, state, timeout);
        }
        state.is_given = false;
    }

    /// Gives the token to a thread that never sleeps elsewhere.
    pub fn unpark(&self) {
        // So it is here.
        let (Whereabouts::Here | Whereabouts::Abroad) = self.call();
    }

    /// Gives the token; says whether that wakes the thread.
    pub fn call(&self) -> Whereabouts {
        let mut state = lock(&self.state);
        state.is_given = true;
        let is_abroad = state.is_abroad;
        drop(state);
        self.given.notify_one();
        if is_abroad { Whereabouts::Abroad } else { Whereabouts::Here }
    }

    /// Says that the thread is going to sleep elsewhere; `false` if it must not, because the token
    /// is there.
    #[must_use]
    pub fn go_abroad(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_abroad = !state.is_given;
        state.is_abroad
    }

    /// Says that the thread is back.
    pub fn come_home(&self) {
        lock(&self.state).is_abroad = false;
    }
}
