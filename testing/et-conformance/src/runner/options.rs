//! What is run.

use std::path::PathBuf;
use std::str::FromStr;

use crate::OptionError;

/// Options of a run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Runs only cases whose name contains one of these.
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Takes filters as whole names.
    #[arg(long)]
    pub exact: bool,
    /// Prints the names of the cases and runs none.
    #[arg(long)]
    pub list: bool,
    /// Leaves a case out; a `*` at the end stands for anything.
    #[arg(long, value_name = "NAME=REASON")]
    pub skip: Vec<Exception>,
    /// Runs a case that is known to fail; it must not pass then.
    #[arg(long, value_name = "NAME=REASON")]
    pub expect_failure: Vec<Exception>,
    /// Writes the results to a file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// With --list: only cases that are ignored without being run, which are none.
    #[arg(long, hide = true)]
    pub ignored: bool,
    #[command(flatten)]
    accepted: Accepted,
}

/// Options of libtest that runners give and that change nothing here.
#[derive(Clone, Debug, Default, clap::Args)]
struct Accepted {
    #[arg(long, hide = true)]
    format: Option<String>,
    #[arg(long, hide = true)]
    color: Option<String>,
    #[arg(long, hide = true)]
    test_threads: Option<String>,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    no_capture: bool,
    #[arg(long, hide = true)]
    show_output: bool,
    #[arg(long, hide = true)]
    include_ignored: bool,
    #[arg(long, short, hide = true)]
    quiet: bool,
}

impl Options {
    /// Runs cases whose name contains the text.
    #[must_use]
    pub fn matching(filter: &str) -> Self {
        Self { filters: vec![filter.to_owned()], ..Self::default() }
    }

    /// Runs the one case of that name.
    #[must_use]
    pub fn only(name: &str) -> Self {
        Self { exact: true, ..Self::matching(name) }
    }

    /// Returns `true` if a case is to be run.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact { name == filter } else { name.contains(filter.as_str()) }
        };
        self.filters.is_empty() || self.filters.iter().any(matches)
    }
}

/// A case that is not treated like the others, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The name of the case, or its beginning and a `*`.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

/// An exception without a reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not of the form NAME=REASON; an exception needs a reason")]
pub struct NoReason(String);

impl FromStr for Exception {
    type Err = NoReason;

    fn from_str(text: &str) -> Result<Self, NoReason> {
        let parts = text.split_once('=').map(|(name, reason)| (name.trim(), reason.trim()));
        match parts {
            Some((name, reason)) if !name.is_empty() && !reason.is_empty() => {
                Ok(Self { pattern: name.to_owned(), reason: reason.to_owned() })
            }
            _ => Err(NoReason(text.to_owned())),
        }
    }
}

impl Exception {
    fn is_for(&self, name: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.pattern,
        }
    }
}

/// Exceptions and whether a case was found for them.
#[derive(Debug, Default)]
pub(super) struct Unused {
    seen: Vec<(&'static str, String, bool)>,
}

impl Unused {
    /// Returns the reason of the first exception for a case.
    pub(super) fn find(
        &mut self,
        option: &'static str,
        exceptions: &[Exception],
        name: &str,
    ) -> Option<String> {
        for exception in exceptions {
            let is_for = exception.is_for(name);
            let known = self
                .seen
                .iter_mut()
                .find(|(its, pattern, _)| *its == option && *pattern == exception.pattern);
            match known {
                Some((_, _, used)) => *used |= is_for,
                None => self.seen.push((option, exception.pattern.clone(), is_for)),
            }
        }
        exceptions.iter().find(|exception| exception.is_for(name)).map(|found| found.reason.clone())
    }

    pub(super) fn check(self) -> Result<(), OptionError> {
        match self.seen.into_iter().find(|(_, _, used)| !used) {
            None => Ok(()),
            Some((option, pattern, _)) => Err(OptionError::NoSuchCase { option, pattern }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_need_a_reason() {
        let exception: Exception = "hal::reset::*=the slot = the card".parse().unwrap();
        assert_eq!(exception.reason, "the slot = the card");
        assert!(exception.is_for("hal::reset::who_waits_is_woken"));
        assert!(!exception.is_for("hal::wait::x"));
        for text in ["name", "name=", "=reason", "name= "] {
            assert!(text.parse::<Exception>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_exception_for_nothing_is_an_error() {
        let exceptions = ["a=why".parse().unwrap(), "b*=why".parse().unwrap()];
        let mut unused = Unused::default();
        assert_eq!(unused.find("--skip", &exceptions, "a").as_deref(), Some("why"));
        assert_eq!(unused.find("--skip", &exceptions, "c"), None);
        let error = unused.check().unwrap_err();
        assert!(error.to_string().starts_with("--skip b* names no case"), "{error}");
    }

    #[test]
    fn filters_are_parts_of_names_or_names() {
        let options = Options::matching("wait");
        assert!(options.selects("hal::wait::x") && !options.selects("hal::dma::x"));
        let options = Options::only("wait");
        assert!(options.selects("wait") && !options.selects("hal::wait::x"));
        assert!(Options::default().selects("anything"));
    }
}
