//! One thread's place to sleep.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, lock};

/// A token that one thread waits for and any thread can give; giving it twice is giving it once.
#[derive(Debug, Default)]
pub struct Parker {
    token: Mutex<bool>,
    given: Condvar,
}

impl Parker {
    /// Makes a parker without a token.
    #[must_use]
    pub fn new() -> Self {
        Self { token: Mutex::new(false), given: Condvar::new() }
    }

    /// Waits for the token and takes it.
    pub fn park(&self) {
        let mut token = lock(&self.token);
        while !*token {
            token = match self.given.wait(token) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        *token = false;
    }

    /// Waits for the token, but no longer than `timeout`; takes it if it came.
    pub fn park_timeout(&self, timeout: Duration) {
        let mut token = lock(&self.token);
        if !*token {
            token = match self.given.wait_timeout(token, timeout) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *token = false;
    }

    /// Gives the token.
    pub fn unpark(&self) {
        *lock(&self.token) = true;
        self.given.notify_one();
    }
}
