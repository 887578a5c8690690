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

    /// Compute needs a reset of at least `scope`. The first reason stays, unless a later one needs
    /// a wider reset.
    pub(crate) fn compute_down(&mut self, scope: ResetScope, why: &Arc<str>) -> Error {
        let error = Error::NeedsReset { site: Site::default(), scope, why: Arc::clone(why) };
        let is_enough = match &self.compute {
            Some(Error::NeedsReset { scope: known, .. }) => *known >= scope,
            _ => false,
        };
        if !is_enough {
            self.compute = Some(error.clone());
        }
        error
    }

    /// Compute was reset.
    pub(crate) fn compute_up(&mut self) {
        self.compute = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fatal_error_stays() {
        let mut health = Health::default();
        assert!(health.refusal().is_none());
        assert!(health.lose(Error::lost("the link is gone")));
        assert!(!health.lose(Error::lost("an index makes no sense")), "it was lost already");
        for refusal in [health.refusal(), health.compute_refusal()] {
            assert_eq!(refusal.unwrap().to_string(), Error::lost("the link is gone").to_string());
        }
        // Cores that are reset do not bring a lost device back.
        health.compute_down(ResetScope::Compute, &"cores hang".into());
        health.compute_up();
        assert!(matches!(health.compute_refusal(), Some(Error::Lost { .. })));
    }

    #[test]
    fn the_first_reason_for_a_reset_stays_until_a_wider_one_is_needed() {
        let mut health = Health::default();
        let down = |health: &mut Health, scope, why: &str| {
            let error = health.compute_down(scope, &why.into());
            assert!(error.to_string().contains(why), "{error}: who asks hears of its own");
            health.compute_refusal().unwrap().to_string()
        };
        assert!(down(&mut health, ResetScope::Compute, "first").contains("first"));
        assert!(down(&mut health, ResetScope::Compute, "second").contains("first"));
        assert!(down(&mut health, ResetScope::Operations, "wider").contains("wider"));
        assert!(down(&mut health, ResetScope::Compute, "last").contains("wider"));
        assert!(health.refusal().is_none(), "copies go on");
        health.compute_up();
        assert!(health.compute_refusal().is_none());
    }
}
