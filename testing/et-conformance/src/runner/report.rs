//! What became of the cases, for people and for programs.

#![expect(clippy::print_stdout, reason = "results of tests go to standard output")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::OptionError;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
pub enum Verdict {
    /// As it should.
    Passed,
    /// Not as it should; why.
    Failed(String),
    /// Not run, or expected to fail; why.
    Ignored(String),
}

impl Verdict {
    pub(super) fn ignored(reason: impl Into<String>) -> Self {
        Self::Ignored(reason.into())
    }
}

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The case.
    pub name: String,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Outcome {
    pub(super) fn new(name: String, verdict: Verdict, took: Duration) -> Self {
        Self { name, verdict, seconds: took.as_secs_f64() }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases that were ignored.
    pub ignored: usize,
    /// Cases behind one that hangs.
    pub not_run: usize,
    /// In the order in which they ran.
    pub cases: Vec<Outcome>,
}

pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>, ignored: bool) {
    for name in names.filter(|_| !ignored) {
        println!("{name}: test");
    }
}

pub(super) fn begin(cases: usize) {
    println!("\nrunning {cases} tests");
}

impl Report {
    /// Returns `true` if no case failed and all were run.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failed == 0 && self.not_run == 0
    }

    /// Notes and prints a result, as one line that nothing interrupts.
    pub(super) fn add(&mut self, outcome: Outcome) {
        let name = &outcome.name;
        match &outcome.verdict {
            Verdict::Passed => {
                self.passed += 1;
                println!("test {name} ... ok");
            }
            Verdict::Failed(why) => {
                self.failed += 1;
                println!("test {name} ... FAILED\n    {}", why.replace('\n', "\n    "));
            }
            Verdict::Ignored(why) => {
                self.ignored += 1;
                println!("test {name} ... ignored, {}", why.replace('\n', " "));
            }
        }
        // Someone may read along on a serial line.
        let _ = std::io::stdout().flush();
        self.cases.push(outcome);
    }

    pub(super) fn end(&mut self, not_run: usize) {
        self.not_run = not_run;
        let Self { passed, failed, ignored, .. } = self;
        let rest = if not_run == 0 { String::new() } else { format!("; {not_run} not run") };
        println!("\n{passed} passed; {failed} failed; {ignored} ignored{rest}");
    }

    pub(super) fn write_json(&self, path: Option<&Path>) -> Result<(), OptionError> {
        let Some(path) = path else { return Ok(()) };
        let failed = |source| OptionError::Report { path: path.display().to_string(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        std::fs::write(path, text + "\n").map_err(failed)
    }
}
