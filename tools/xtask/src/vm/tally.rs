//! What the checks of a guest came to.

use std::collections::VecDeque;

use super::hindrance::Hindrance;

/// Counts, and what is to be said about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// What failed or was skipped, and why.
    pub(crate) reasons: Vec<String>,
    /// The line before was about a failure.
    after_failure: bool,
}

impl Tally {
    pub(crate) fn fail(&mut self, why: String) {
        self.failed += 1;
        self.reasons.push(format!("FAILED: {why}"));
    }

    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.skipped += 1;
        self.reasons.push(format!("{what}: skipped, because {why}"));
    }

    /// Counts what could not run.
    pub(crate) fn hinder(&mut self, what: &str, hindrance: &Hindrance) {
        match hindrance {
            Hindrance::Absent(why) => self.skip(what, why),
            Hindrance::Broken(why) => self.fail(format!("{what}: {why}")),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
    }

    /// Counts a line of the form `test NAME ... ok`, `... FAILED` or `... ignored, because WHY`.
    /// What stands indented below a failure is its reason.
    pub(crate) fn check(&mut self, line: &str) -> bool {
        let after_failure = std::mem::take(&mut self.after_failure);
        if let (true, Some(why), Some(last)) =
            (after_failure, line.strip_prefix("    "), self.reasons.last_mut())
        {
            last.push_str(": ");
            last.push_str(why.trim());
            self.after_failure = true;
            return true;
        }
        let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            return false;
        };
        let (verdict, why) = result.split_once(", ").unwrap_or((result, ""));
        match verdict.trim_end() {
            "ok" => self.passed += 1,
            "ignored" => self.skip(name, why.strip_prefix("because ").unwrap_or(why)),
            // Whatever is not known to be good is bad.
            "FAILED" => {
                self.fail(name.to_owned());
                self.after_failure = true;
            }
            _ => self.fail(format!("{name}: {result}")),
        }
        true
    }
}

/// Reads the guest's protocol: commands, their checks, their ends.
#[derive(Debug, Default)]
pub(crate) struct Protocol {
    pub(crate) tally: Tally,
    /// The guest ran its first process.
    pub(crate) userspace: bool,
    /// What the guest says in the end: how many commands failed.
    pub(crate) code: Option<u64>,
    /// The commands that are to come.
    expected: VecDeque<String>,
    /// The command that runs, and the counts before it.
    running: Option<(String, Tally)>,
}

impl Protocol {
    pub(crate) fn new(commands: impl IntoIterator<Item = String>) -> Self {
        Self { expected: commands.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn take(&mut self, line: &str) {
        if line.starts_with("GUEST-USERSPACE ") {
            self.userspace = true;
        } else if let Some(what) = line.strip_prefix("GUEST-BROKEN ") {
            self.tally.fail(format!("in the guest: {what}"));
        } else if let Some(command) = line.strip_prefix("GUEST-RUN ") {
            if self.expected.pop_front().as_deref() != Some(command) {
                self.tally.fail(format!("the guest runs {command}, which is not its turn"));
            }
            self.running = Some((command.to_owned(), self.tally.clone()));
        } else if let Some(code) = line.strip_prefix("GUEST-EXIT ") {
            self.exit(code);
        } else if let Some(code) = line.strip_prefix("GUEST-RC ") {
            self.code = code.trim().parse().ok();
        } else {
            self.tally.check(line);
        }
    }

    /// A command is a check of its own if it printed none, or if it says that it failed and no
    /// check does.
    fn exit(&mut self, code: &str) {
        let Some((command, before)) = self.running.take() else {
            return self.tally.fail("a command ended that had not begun".into());
        };
        match code {
            "0" if before == self.tally => self.tally.passed += 1,
            "0" => {}
            _ if before.failed == self.tally.failed => {
                self.tally.fail(format!("{command} ended with {code}"));
            }
            _ => {}
        }
    }

    /// The counts of a guest that has stopped; `end` says how it did.
    pub(crate) fn finish(mut self, end: &str) -> Tally {
        if let Some((command, _)) = &self.running {
            self.tally.fail(format!("{end} while {command} ran"));
        } else if self.code.is_none() {
            self.tally.fail(format!("{end} before the guest gave its result"));
        } else if let Some(command) = self.expected.front() {
            self.tally.fail(format!("the guest did not run {command}"));
        } else if self.code != Some(0) && self.tally.failed == 0 {
            self.tally.fail("the guest counts a failure that no check has shown".into());
        }
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocol, Tally};

    fn read(commands: &[&str], lines: &[&str]) -> Tally {
        let mut protocol = Protocol::new(commands.iter().map(|command| (*command).to_owned()));
        for line in lines {
            protocol.take(line);
        }
        protocol.finish("it stopped")
    }

    fn counts(tally: &Tally) -> (u64, u64, u64) {
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn every_check_counts_once() {
        let tally = read(
            &["a", "b"],
            &[
                "GUEST-USERSPACE 1",
                "GUEST-RUN a",
                "test x ... ok",
                "test y ... FAILED",
                "    1 is not 2",
                "test z ... ignored, because it is late",
                "test result: FAILED. 1 passed",
                "GUEST-EXIT 1",
                "GUEST-RUN b",
                "GUEST-EXIT 0",
                "GUEST-RC 1",
            ],
        );
        assert_eq!(counts(&tally), (2, 1, 1));
        assert_eq!(tally.reasons, ["FAILED: y: 1 is not 2", "z: skipped, because it is late"]);
    }

    #[test]
    fn a_command_that_fails_without_a_failed_check_is_a_failure() {
        let lines = ["GUEST-RUN a", "test x ... ok", "GUEST-EXIT 134", "GUEST-RC 1"];
        assert_eq!(counts(&read(&["a"], &lines)), (1, 1, 0));
    }

    #[test]
    fn unknown_verdicts_are_failures() {
        let lines = ["GUEST-RUN a", "test x ... okay", "GUEST-EXIT 0", "GUEST-RC 0"];
        assert_eq!(counts(&read(&["a"], &lines)), (0, 1, 0));
    }

    #[test]
    fn nothing_that_is_missing_passes() {
        let whole = ["GUEST-RUN a", "test x ... ok", "GUEST-EXIT 0", "GUEST-RC 0"];
        assert_eq!(counts(&read(&["a"], &whole)), (1, 0, 0));
        for length in 0..whole.len() {
            assert_eq!(read(&["a"], &whole[..length]).failed, 1, "{length} lines");
        }
        assert_eq!(read(&["a", "b"], &whole).failed, 1);
        assert_eq!(read(&["b"], &whole).failed, 1);
    }

    #[test]
    fn the_guests_own_count_is_believed_if_it_is_worse() {
        let lines = ["GUEST-RUN a", "test x ... ok", "GUEST-EXIT 0", "GUEST-RC 1"];
        assert_eq!(read(&["a"], &lines).failed, 1);
    }
}
