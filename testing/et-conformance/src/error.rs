//! Why a case fails, and what is wrong with options.

use std::error::Error;
use std::fmt;
use std::panic::Location;

/// Why a case failed, and where in the case.
///
/// Every error becomes one by `?`. It is no `Error` itself, since it ends in a report for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    place: Option<&'static Location<'static>>,
}

impl Failure {
    /// Makes a failure of the caller's place.
    #[must_use]
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: Some(Location::caller()) }
    }

    /// Makes a failure whose message says where.
    pub(crate) fn anywhere(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None }
    }

    /// Returns what went wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{}:{}: ", place.file(), place.line())?;
        }
        f.write_str(&self.message)
    }
}

impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::new(et_runtime::Report(&error).to_string())
    }
}

/// Options of a run that make no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// An exception names no case; a renamed case must not silently lose its exception.
    #[error("{option} {pattern} names no case; --list shows their names")]
    NoSuchCase {
        /// `--skip` or `--expect-failure`.
        option: &'static str,
        /// The name as given.
        pattern: String,
    },
    /// No case has the name of the filter.
    #[error("no case matches; --list shows their names")]
    NothingSelected,
    /// The JSON report could not be written.
    #[error("the report {path} could not be written")]
    Report {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_where_the_error_came_up_and_why() {
        fn fails() -> Result<(), Failure> {
            let error = OptionError::Report {
                path: "x.json".into(),
                source: std::io::Error::other("disk full"),
            };
            Err(error)?
        }
        let text = fails().unwrap_err().to_string();
        let why = "the report x.json could not be written: disk full";
        assert!(text.contains("error.rs:") && text.ends_with(why), "{text}");
    }
}
