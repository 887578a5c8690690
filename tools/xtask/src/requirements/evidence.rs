//! What ran, and what became of it.

/// The end of a test or of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// With the reason.
    Skipped(String),
}

/// Tests by their names, other checks as `ci:…`, `vm:…` and `loom:…`.
#[derive(Debug, Default)]
pub(crate) struct Evidence(Vec<(String, Verdict)>);

impl Evidence {
    pub(crate) fn note(&mut self, name: &str, verdict: Verdict) {
        self.0.push((name.to_owned(), verdict));
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// What became of the tests below a module or a suite, by their names in there.
    pub(crate) fn below(&self, suite: &str) -> Vec<(String, Verdict)> {
        let below = |(name, verdict): &(String, Verdict)| {
            let name = name.strip_prefix(suite)?.strip_prefix("::")?;
            Some((name.to_owned(), verdict.clone()))
        };
        self.0.iter().filter_map(below).collect()
    }

    /// What became of a test, which is named as a whole or by its last parts; `None` if it did not
    /// run. Of several that bear the name all must have passed that ran. What is part of a skipped
    /// step was skipped with it.
    pub(crate) fn of(&self, test: &str) -> Option<&Verdict> {
        self.named(test).or_else(|| {
            let (step, _) = test.split_once(':')?;
            let step = self.named(&format!("ci:{step}"))?;
            matches!(step, Verdict::Skipped(_)).then_some(step)
        })
    }

    fn named(&self, test: &str) -> Option<&Verdict> {
        let named = self.0.iter().filter(|(name, _)| is_named(name, test));
        let rank = |verdict: &&Verdict| match verdict {
            Verdict::Failed => 2,
            Verdict::Passed => 1,
            Verdict::Skipped(_) => 0,
        };
        named.map(|(_, verdict)| verdict).max_by_key(rank)
    }
}

/// Returns `true` if `test` is a whole name, or what is behind a `::` of it.
pub(super) fn is_named(name: &str, test: &str) -> bool {
    name.strip_suffix(test).is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// Where in the output of a test program a line is.
#[derive(PartialEq, Eq)]
enum Part {
    /// A line for each test.
    Verdicts,
    /// What the tests have printed, which may look like anything.
    Output,
    /// Names again.
    Names,
}

/// Reads the output of `cargo test … -- --show-output`: what became of each test, and the lines
/// with the results of whole programs.
pub(crate) fn test_results(text: &str) -> (Vec<(String, Verdict)>, Vec<&str>) {
    let mut tests: Vec<(String, Verdict)> = Vec::new();
    let mut results = Vec::new();
    let mut part = Part::Verdicts;
    // Tests of other programs may have the same names.
    let mut first = 0;
    let mut speaker = None;
    for line in text.lines() {
        match line {
            "successes:" | "failures:" => {
                part = if part == Part::Output { Part::Names } else { Part::Output };
            }
            _ if part == Part::Output => {
                let name = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"));
                if let Some(name) = name {
                    speaker = tests[first..].iter().position(|(test, _)| test == name);
                }
                let why = line.split_once("skipped, because ").map(|(_, why)| why);
                if let (Some(why), Some(at)) = (why, speaker)
                    && tests[first + at].1 == Verdict::Passed
                {
                    tests[first + at].1 = Verdict::Skipped(why.to_owned());
                }
            }
            _ => {
                if let Some(result) = line.strip_prefix("test result: ") {
                    results.push(result);
                    (part, first, speaker) = (Part::Verdicts, tests.len(), None);
                } else if let Some(test) = verdict(line) {
                    tests.push(test);
                }
            }
        }
    }
    (tests, results)
}

/// A line as `test NAME ... ok`.
fn verdict(line: &str) -> Option<(String, Verdict)> {
    let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = match end {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        _ => {
            let why = end.strip_prefix("ignored")?.trim_start_matches(", ");
            Verdict::Skipped(if why.is_empty() { "it is marked as ignored" } else { why }.into())
        }
    };
    Some((name.trim_end_matches(" - should panic").to_owned(), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 5 tests
test a::good ... ok
test a::bad ... FAILED
test a::later ... ignored, needs a card
test a::tool ... ok
test a::actor ... ok

successes:

---- a::tool stdout ----
skipped, because cc is not installed
---- a::actor stdout ----
test a::bad ... ok
test a::dream ... ok
test result: ok. 9 passed; 0 failed

successes:
    a::tool
    a::actor

failures:

---- a::bad stdout ----
test a::bad ... ok

failures:
    a::bad

test result: FAILED. 3 passed; 1 failed; 1 ignored
test small::runtime::x ... ok
test default::runtime::x ... ignored, too small

running 1 test
test a::good - should panic ... ok

test result: ok. 1 passed; 0 failed; 0 ignored
";

    #[test]
    fn only_what_the_test_program_says_counts() {
        let (tests, results) = test_results(OUTPUT);
        let skipped = |why: &str| Verdict::Skipped(why.into());
        let expected = [
            ("a::good", Verdict::Passed),
            ("a::bad", Verdict::Failed),
            ("a::later", skipped("needs a card")),
            ("a::tool", skipped("cc is not installed")),
            ("a::actor", Verdict::Passed),
            ("small::runtime::x", Verdict::Passed),
            ("default::runtime::x", skipped("too small")),
            ("a::good", Verdict::Passed),
        ];
        assert_eq!(tests, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
        assert_eq!(results.len(), 2);
    }

    #[test]
    fn a_test_is_found_by_its_last_parts() {
        let mut evidence = Evidence::default();
        for (name, verdict) in test_results(OUTPUT).0 {
            evidence.note(&name, verdict);
        }
        assert_eq!(evidence.of("runtime::x"), Some(&Verdict::Passed), "ignored in one suite");
        assert_eq!(evidence.of("bad"), Some(&Verdict::Failed));
        assert_eq!(evidence.of("ad"), None, "the end of a word is no name");
        assert_eq!(evidence.of("later"), Some(&Verdict::Skipped("needs a card".into())));
        evidence.note("b::runtime::x", Verdict::Failed);
        assert_eq!(evidence.of("runtime::x"), Some(&Verdict::Failed), "all must pass");
        assert_eq!(evidence.of("ci:docs"), None);
        let late = Verdict::Skipped("it is late".into());
        evidence.note("ci:vm", late.clone());
        evidence.note("ci:loom", Verdict::Passed);
        assert_eq!(evidence.of("vm:sim"), Some(&late));
        assert_eq!(evidence.of("loom:gone"), None, "the step ran without it");
    }
}
