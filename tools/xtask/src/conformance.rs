//! `cargo xtask conformance`: which case of the conformance kit passes on which board. What is
//! found is kept in the repository, shown in the book, and compared with each run of the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::requirements::{Evidence, Verdict, test_results};
use crate::shell::{capture, cargo, root, write_json};
use crate::vm::work_folder;

/// Where the results are kept.
const RESULTS: &str = "testing/conformance.json";

/// A board, and where a run leaves its results.
struct Board {
    name: &'static str,
    what: &'static str,
    source: Source,
}

enum Source {
    /// A suite of the kit's own tests.
    Suite,
    /// What the kit has printed in a layer of the virtual machines.
    Log(&'static str),
}

const BOARDS: [Board; 10] = [
    suite("small", "four shires, 1 GiB, device memory that the host may use"),
    suite("default", "the simulator's default: all shires"),
    suite("card", "as a card: the host may not use device memory, shires have caches of their own"),
    suite("non-coherent", "a bus on which the host must hand memory over"),
    suite("asleep", "aborts do not reach harts that wait for a credit"),
    suite("checked", "accesses of kernels are compared with buffers"),
    log("vfio-user", "another process, over a socket", "selftest/command0.log"),
    log("vfio-group", "a guest's kernel: VFIO by groups", "group/conformance.log"),
    log(
        "vfio-cdev",
        "a guest's kernel: VFIO by character devices, iommufd",
        "cdev/conformance.log",
    ),
    log("vfio-noiommu", "a guest's kernel without an IOMMU", "noiommu/conformance.log"),
];

const fn suite(name: &'static str, what: &'static str) -> Board {
    Board { name, what, source: Source::Suite }
}

const fn log(name: &'static str, what: &'static str, file: &'static str) -> Board {
    Board { name, what, source: Source::Log(file) }
}

/// By board and case: nothing if it passes, or why it is left out or expected to fail.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Results(BTreeMap<String, Cases>);

type Cases = BTreeMap<String, Option<String>>;

/// Runs the kit's own tests, and takes the rest from the last run of `cargo xtask vm`.
pub(crate) fn run() -> anyhow::Result<()> {
    let args = ["test", "--locked", "--package", "et-conformance", "--test", "sim"];
    let output = capture(&mut cargo(&args))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut evidence = Evidence::default();
    for (name, verdict) in test_results(&text).0 {
        evidence.note(&name, verdict);
    }
    let mut results = Results::default();
    for board in &BOARDS {
        let cases = board.cases(&evidence, &work_folder())?;
        let what = board.name;
        let cases = cases.with_context(|| format!("{what}: run `cargo xtask vm` before"))?;
        results.0.insert(what.to_owned(), cases);
    }
    write_json(Some(&root().join(RESULTS)), &results)?;
    crate::generate::run()
}

/// Compares the results that are kept with those of the tests and machines that have run; returns
/// the boards of which there are none.
pub(crate) fn check(evidence: &Evidence) -> anyhow::Result<Vec<&'static str>> {
    differences(&committed()?, evidence, &work_folder())
}

fn differences(
    committed: &Results,
    evidence: &Evidence,
    folder: &Path,
) -> anyhow::Result<Vec<&'static str>> {
    let mut absent = Vec::new();
    let mut differences = String::new();
    for board in &BOARDS {
        let Some(found) = board.cases(evidence, folder)? else {
            absent.push(board.name);
            continue;
        };
        let kept = committed.0.get(board.name).with_context(|| format!("no {}", board.name))?;
        let cases: BTreeSet<_> = kept.keys().chain(found.keys()).collect();
        for case in cases.into_iter().filter(|&case| kept.get(case) != found.get(case)) {
            let (is, was) = (end(found.get(case)), end(kept.get(case)));
            let _ = write!(differences, "\n  {} {case}: {is}; {RESULTS} says: {was}", board.name);
        }
    }
    ensure!(differences.is_empty(), "run `cargo xtask conformance`:{differences}");
    Ok(absent)
}

fn end(outcome: Option<&Option<String>>) -> &str {
    match outcome {
        None => "there is no such case",
        Some(None) => "it passes",
        Some(Some(why)) => why,
    }
}

impl Board {
    /// What became of the cases; none if they did not run.
    fn cases(&self, evidence: &Evidence, folder: &Path) -> anyhow::Result<Option<Cases>> {
        let tests = match self.source {
            Source::Suite => evidence.below(self.name),
            Source::Log(file) => {
                let path = folder.join(file);
                if !path.exists() {
                    return Ok(None);
                }
                let text = std::fs::read(&path)?;
                // A serial line ends lines in its own way.
                test_results(&String::from_utf8_lossy(&text).replace('\r', "")).0
            }
        };
        let mut cases = Cases::new();
        // Modules of other crates have names of suites, too.
        let is_case = |name: &str| name.starts_with("hal::") || name.starts_with("runtime::");
        for (case, verdict) in tests.into_iter().filter(|(name, _)| is_case(name)) {
            let outcome = match verdict {
                Verdict::Passed => None,
                Verdict::Skipped(why) => Some(why),
                Verdict::Failed => bail!("{case} fails on {}", self.name),
            };
            cases.insert(case, outcome);
        }
        Ok((!cases.is_empty()).then_some(cases))
    }
}

fn committed() -> anyhow::Result<Results> {
    let text = std::fs::read_to_string(root().join(RESULTS))?;
    serde_json::from_str(&text).with_context(|| format!("reading {RESULTS}"))
}

/// The page of the book.
pub(crate) fn table() -> anyhow::Result<String> {
    Ok(committed()?.table())
}

impl Results {
    fn table(&self) -> String {
        let boards = || BOARDS.iter().filter_map(|board| Some((board, self.0.get(board.name)?)));
        let mut text =
            String::from("| Board | What it is | Passed | Left out |\n|---|---|---:|---:|\n");
        for (board, cases) in boards() {
            let passed = cases.values().filter(|outcome| outcome.is_none()).count();
            let Board { name, what, .. } = board;
            let _ = writeln!(text, "| {name} | {what} | {passed} | {} |", cases.len() - passed);
        }
        let names = || boards().map(|(board, _)| board.name);
        let _ = writeln!(text, "\n| Case | {} |", names().collect::<Vec<_>>().join(" | "));
        let _ = writeln!(text, "|---|{}", names().map(|_| ":-:|").collect::<String>());
        let mut reasons: Vec<&str> = Vec::new();
        let all: BTreeSet<&String> = self.0.values().flat_map(Cases::keys).collect();
        for case in all {
            let _ = write!(text, "| `{case}` |");
            for (_, cases) in boards() {
                let cell = match cases.get(case) {
                    Some(None) => "✓".to_owned(),
                    None => String::new(),
                    Some(Some(why)) => {
                        let known = reasons.iter().position(|known| known == why);
                        let at = known.unwrap_or_else(|| {
                            reasons.push(why);
                            reasons.len() - 1
                        });
                        (at + 1).to_string()
                    }
                };
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
        if !reasons.is_empty() {
            text.push('\n');
        }
        for (at, why) in reasons.iter().enumerate() {
            let _ = writeln!(text, "{}. {why}", at + 1);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(lines: &str) -> Evidence {
        let mut evidence = Evidence::default();
        for (name, verdict) in test_results(lines).0 {
            evidence.note(&name, verdict);
        }
        evidence
    }

    fn results(text: &str) -> Results {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_changes_on_a_board_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("group/conformance.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(log, "GUEST-RUN x\r\ntest hal::a ... ignored, too slow\r\n").unwrap();
        let kept = results(
            r#"{"small": {"hal::a": null, "hal::b": "no"}, "vfio-group": {"hal::a": "too slow"}}"#,
        );
        let same = "test small::hal::a ... ok\ntest small::hal::b ... ignored, no
                    \ntest small::tests::c ... ok";
        let same = evidence(same);
        let absent = differences(&kept, &same, folder.path()).unwrap();
        assert_eq!(absent.len(), BOARDS.len() - 2);

        for (lines, what) in [
            ("test small::hal::a ... ok", "hal::b: there is no such case"),
            ("test small::hal::a ... ignored, busy\ntest small::hal::b ... ignored, no", "busy"),
            ("test small::hal::a ... ok\ntest small::hal::b ... ok", "hal::b: it passes"),
            ("test small::hal::a ... FAILED", "hal::a fails on small"),
        ] {
            let error = differences(&kept, &evidence(lines), folder.path()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn each_reason_is_said_once() {
        let text = r#"{"small": {"hal::a": null, "hal::b": "no"}, "card": {"hal::b": "no"}}"#;
        let table = results(text).table();
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows, ["| `hal::a` | ✓ |  |", "| `hal::b` | 1 | 1 |"]);
        assert!(table.ends_with("\n\n1. no\n"), "{table}");
        assert!(table.contains("device memory that the host may use | 1 | 1 |"), "{table}");
    }
}
