//! An error and its causes, as text.

use std::fmt;

/// An error with its causes, in one line; the [`Debug`](fmt::Debug) of the runtime's errors too,
/// because that is what a `main` prints which returns one.
#[derive(Clone, Copy)]
pub struct Report<'a>(pub &'a dyn std::error::Error);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let causes = std::iter::successors(self.0.source(), |cause| cause.source());
        causes.into_iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! debug_as_report {
    ($($error:ty),*) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&$crate::report::Report(self), f)
            }
        }
    )*};
}
pub(crate) use debug_as_report;
