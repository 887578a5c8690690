//! The report on a card and its host.

use std::fmt;

use crate::checks::Context;
use crate::{Bdf, Check, Error, Finding, Host, Mode, Verdict};

/// What a program plans to use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// Bytes of host memory it will pin for the device.
    pub pinned_bytes: u64,
}

impl Needs {
    /// Returns the needs of a program that pins so many bytes.
    #[must_use]
    pub fn pinning(pinned_bytes: u64) -> Self {
        Self { pinned_bytes }
    }
}

/// 256 MiB: staging for a few streams.
impl Default for Needs {
    fn default() -> Self {
        Self::pinning(256 << 20)
    }
}

/// Findings about a card and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Preflight {
    /// The card.
    pub bdf: Bdf,
    /// One finding for each of [`Check::ALL`], in that order.
    pub findings: Vec<Finding>,
    /// The best way to open it, if its nodes exist.
    pub mode: Option<Mode>,
}

impl Preflight {
    /// Reports that nothing keeps this process from using the card.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems().next().is_none()
    }

    /// Returns what keeps this process from using the card.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.verdict == Verdict::Problem)
    }

    /// Returns the finding of a check.
    #[must_use]
    pub fn finding(&self, check: Check) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.check == check)
    }
}

/// The problems, a line each; one line when there are none.
impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() {
            return write!(f, "{}: no problem found on this host", self.bdf);
        }
        let lines: Vec<_> = self.problems().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

pub(crate) fn run(host: &Host, bdf: Bdf, needs: &Needs) -> Preflight {
    let function = host.function(bdf);
    let group = match &function {
        Ok(function) => function.group.map(|number| host.group(number)).transpose(),
        Err(_) => Ok(None),
    };
    // A group that cannot be read must not look like none.
    let (function, group, failure) = match (function, group) {
        (Ok(function), Ok(group)) => (Some(function), group, None),
        (Ok(function), Err(error)) => (Some(function), None, Some(error)),
        (Err(error), _) => (None, None, Some(error)),
    };
    let mode = function.as_ref().and_then(|function| host.mode(function, group.as_ref()));
    let context = Context { host, bdf, needs, function, group, mode };
    let findings = Check::ALL.map(|check| match &failure {
        Some(error) => context.without(check, error),
        None => context.check(check),
    });
    let Context { mode, .. } = context;
    Preflight { bdf, findings: findings.into(), mode }
}

pub(crate) fn of_host(host: &Host, needs: &Needs) -> Vec<Finding> {
    let bdf = Bdf::default();
    let context = Context { host, bdf, needs, function: None, group: None, mode: None };
    [Check::Card, Check::Iommu, Check::Module, Check::Lockdown, Check::Memlock]
        .map(|check| context.of_host(check))
        .into()
}

/// Returns a failure with its causes in one line.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
