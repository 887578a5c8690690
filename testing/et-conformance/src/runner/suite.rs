//! The cases on one device.

use et_hal::Hal;

use super::Exception;
use crate::Rig;

/// All cases on one device, and what is known to be different there.
#[derive(Debug)]
pub struct Suite<H: Hal> {
    pub(super) name: &'static str,
    pub(super) rig: Rig<H>,
    pub(super) is_complete: bool,
    pub(super) skip: Vec<Exception>,
    pub(super) expect_failure: Vec<Exception>,
}

impl<H: Hal> Suite<H> {
    /// Makes a suite; its name comes before those of the cases, unless it is empty.
    #[must_use]
    pub fn new(name: &'static str, rig: Rig<H>) -> Self {
        let (skip, expect_failure) = (Vec::new(), Vec::new());
        Self { name, rig, is_complete: false, skip, expect_failure }
    }

    /// Says that the device has all that cases need: what it lacks is a failure then, not a reason
    /// to ignore a case.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.is_complete = true;
        self
    }

    /// Leaves out a case, or those that begin with the text before a `*`.
    #[must_use]
    pub fn skip(mut self, case: &str, reason: &str) -> Self {
        self.skip.push(exception(case, reason));
        self
    }

    /// Runs a case that is known to fail, and fails if it passes.
    #[must_use]
    pub fn expect_failure(mut self, case: &str, reason: &str) -> Self {
        self.expect_failure.push(exception(case, reason));
        self
    }
}

fn exception(case: &str, reason: &str) -> Exception {
    Exception { pattern: case.to_owned(), reason: reason.to_owned() }
}
