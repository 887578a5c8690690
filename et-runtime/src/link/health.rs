//! Whether the device can be used.

use std::sync::Arc;

use et_hal::ResetScope;

use crate::{Error, Site};

/// The state of a device, as far as its link knows. The first fatal error stays, for every waiter.
#[derive(Debug, Default)]
pub(crate) struct Health {
    lost: Option<Error>,
    compute: Option<Error>,
}

impl Health {
    /// Returns why nothing can be sent, if so.
    pub(crate) fn refusal(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// Returns why nothing can be launched, if so.
    pub(crate) fn compute_refusal(&self) -> Option<&Error> {
        self.lost.as_ref().or(self.compute.as_ref())
    }

    /// Nothing can be sent any more; returns `false` if that was known.
    pub(crate) fn lose(&mut self, error: Error) -> bool {
        let is_news = self.lost.is_none();
        self.lost.get_or_insert(error);
        is_news
    }

    /// Compute needs a reset of at least `scope`; a wider scope replaces a narrower one.
    pub(crate) fn compute_down(&mut self, scope: ResetScope, why: &Arc<str>) -> Error {
        let error = Error::NeedsReset { site: Site::default(), scope, why: Arc::clone(why) };
        let is_narrower = matches!(
            self.compute,
            None | Some(Error::NeedsReset { scope: ResetScope::Compute, .. })
        );
        if is_narrower {
            self.compute = Some(error.clone());
        }
        error
    }

    /// Compute was reset.
    pub(crate) fn compute_up(&mut self) {
        self.compute = None;
    }
}
