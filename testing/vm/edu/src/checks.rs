//! One line per check, in the words of Rust's test harness.

#![expect(clippy::print_stdout, reason = "checks are lines on standard output")]

use std::fmt::Display;

/// Counts checks and prints each as it is done.
#[derive(Debug, Default)]
pub struct Checks {
    passed: u32,
    failed: u32,
}

impl Checks {
    /// No checks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A check that holds or not; `seen` is told if it does not.
    pub fn holds(&mut self, name: &str, holds: bool, seen: impl Display) {
        if holds {
            self.passed += 1;
            println!("test {name} ... ok");
        } else {
            self.failed += 1;
            println!("test {name} ... FAILED, saw {seen}");
        }
    }

    /// A check that two values are the same.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, seen: T, expected: T) {
        let holds = seen == expected;
        self.holds(name, holds, format_args!("{seen:x?}, not {expected:x?}"));
    }

    /// What a check needs: counted only if it fails.
    pub fn step<T, E: Display>(&mut self, name: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.holds(name, false, error)).ok()
    }

    /// A check that something succeeds; its value if it does.
    pub fn works<T, E: Display>(&mut self, name: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                self.holds(name, true, "");
                Some(value)
            }
            Err(error) => {
                self.holds(name, false, error);
                None
            }
        }
    }

    /// A check that something is refused.
    pub fn refused<T>(&mut self, name: &str, result: std::io::Result<T>) {
        self.holds(name, result.is_err(), "that it was done");
    }

    /// Prints the sum; what the process is to end with.
    #[must_use]
    pub fn finish(&self) -> std::process::ExitCode {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {verdict}. {} passed; {} failed", self.passed, self.failed);
        // A program that checked nothing has not passed.
        u8::from(self.failed != 0 || self.passed == 0).into()
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::Checks;

    /// Exit codes cannot be compared, but printed.
    fn text(code: ExitCode) -> String {
        format!("{code:?}")
    }

    #[test]
    fn only_checks_that_all_hold_end_with_success() {
        let mut checks = Checks::new();
        assert_eq!(text(checks.finish()), text(ExitCode::FAILURE));
        checks.same("one", 1, 1);
        assert_eq!(text(checks.finish()), text(ExitCode::SUCCESS));
        checks.refused("two", Ok(()));
        assert_eq!(text(checks.finish()), text(ExitCode::FAILURE));
    }
}
