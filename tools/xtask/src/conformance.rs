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

/// A board. Its results are those of the suite of the kit's own tests that bears its name, or what
/// the kit has printed in a layer of the virtual machines.
struct Board {
    name: &'static str,
    what: &'static str,
    printed: Option<Log>,
}

struct Log {
    layer: &'static str,
    file: &'static str,
}

const BOARDS: [Board; 10] = [
    suite("small", "four shires, 1 GiB, device memory that the host may use"),
    suite("default", "the simulator's default: all shires"),
    suite("card", "as a card: the host may not use device memory, shires have caches of their own"),
    suite("non-coherent", "a bus on which the host must hand memory over"),
    suite("asleep", "aborts do not reach harts that wait for a credit"),
    suite("checked", "accesses of kernels are compared with buffers"),
    guest("vfio-user", "another process, over a socket", "selftest", "command0.log"),
    guest("vfio-group", "a guest's kernel: VFIO by groups", "group", "conformance.log"),
    guest("vfio-cdev", "a guest's kernel: VFIO by iommufd", "cdev", "conformance.log"),
    guest("vfio-noiommu", "a guest's kernel without an IOMMU", "noiommu", "conformance.log"),
];

const fn suite(name: &'static str, what: &'static str) -> Board {
    Board { name, what, printed: None }
}

const fn guest(
    name: &'static str,
    what: &'static str,
    layer: &'static str,
    file: &'static str,
) -> Board {
    Board { name, what, printed: Some(Log { layer, file }) }
}

/// Which cases there are, and by board those that are left out or expected to fail, and why.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Results {
    cases: BTreeSet<String>,
    exceptions: BTreeMap<String, BTreeMap<String, String>>,
}

/// By case: nothing if it passes, or why it is left out or expected to fail.
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
        if let Some(Log { layer, .. }) = board.printed {
            evidence.note(&format!("vm:{layer}"), Verdict::Passed);
        }
        let cases = board.cases(&evidence, &work_folder())?;
        let cases =
            cases.with_context(|| format!("{}: run `cargo xtask vm` before", board.name))?;
        for (case, outcome) in cases {
            if let Some(why) = outcome {
                let exceptions = results.exceptions.entry(board.name.to_owned()).or_default();
                exceptions.insert(case.clone(), why);
            }
            results.cases.insert(case);
        }
    }
    write_json(Some(&root().join(RESULTS)), &results)?;
    crate::generate::run()
}

/// Compares the results that are kept with those of the tests and machines that have run; returns
/// the boards of which there are none.
pub(crate) fn check(evidence: &Evidence) -> anyhow::Result<Vec<&'static str>> {
    differences(&kept()?, evidence, &work_folder())
}

/// Returns `true` if these are all boards, so that nothing was compared.
pub(crate) fn are_all(absent: &[&str]) -> bool {
    absent.len() == BOARDS.len()
}

fn differences(
    kept: &Results,
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
        let kept = kept.of(board.name);
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
        let tests = match self.printed {
            None => evidence.below(self.name),
            Some(Log { layer, file }) => {
                let path = folder.join(layer).join(file);
                let ran = evidence.of(&format!("vm:{layer}"));
                // A log of another run says nothing of this one.
                if matches!(ran, None | Some(Verdict::Skipped(_))) || !path.exists() {
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

fn kept() -> anyhow::Result<Results> {
    let text = std::fs::read_to_string(root().join(RESULTS))?;
    serde_json::from_str(&text).with_context(|| format!("reading {RESULTS}"))
}

/// What the book shows.
pub(crate) fn table() -> anyhow::Result<String> {
    Ok(kept()?.table())
}

impl Results {
    /// What is expected of a board.
    fn of(&self, board: &str) -> Cases {
        let exceptions = self.exceptions.get(board);
        let why = |case| exceptions.and_then(|exceptions| exceptions.get(case)).cloned();
        self.cases.iter().map(|case| (case.clone(), why(case))).collect()
    }

    fn table(&self) -> String {
        let boards: Vec<_> = BOARDS.iter().map(|board| (board, self.of(board.name))).collect();
        let mut text =
            String::from("| Board | What it is | Passed | Left out |\n|---|---|---:|---:|\n");
        for (Board { name, what, .. }, cases) in &boards {
            let passed = cases.values().filter(|outcome| outcome.is_none()).count();
            let _ = writeln!(text, "| {name} | {what} | {passed} | {} |", cases.len() - passed);
        }
        let names = BOARDS.map(|board| board.name);
        let _ = writeln!(
            text,
            "\n| Case | {} |\n|---|{}",
            names.join(" | "),
            ":-:|".repeat(BOARDS.len())
        );
        let mut reasons: Vec<&str> = Vec::new();
        for case in &self.cases {
            let _ = write!(text, "| `{case}` |");
            for (_, cases) in &boards {
                let cell = match &cases[case] {
                    None => "✓".to_owned(),
                    Some(why) => {
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
        for (at, why) in reasons.iter().enumerate() {
            let _ = write!(text, "\n{}. {why}", at + 1);
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

    const RESULTS: &str = r#"{
        "cases": ["hal::a", "hal::b"],
        "exceptions": {"small": {"hal::b": "no"}, "card": {"hal::b": "no"}}
    }"#;

    fn results() -> Results {
        serde_json::from_str(RESULTS).unwrap()
    }

    #[test]
    fn what_changes_on_a_board_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let same = ["test small::hal::a ... ok", "test small::hal::b ... ignored, no"].join("\n");
        let others = "\ntest card::tests::c ... ok";
        let found = differences(&results(), &evidence(&(same + others)), folder.path()).unwrap();
        assert_eq!(found.len(), BOARDS.len() - 1, "only the small one has run: {found:?}");

        for (lines, what) in [
            (["a ... ok", "c ... ok"], "hal::b: there is no such case"),
            (["a ... ok", "c ... ok"], "hal::c: it passes"),
            (["a ... ignored, busy", "b ... ignored, no"], "hal::a: busy"),
            (["a ... ok", "b ... ok"], "hal::b: it passes"),
            (["a ... FAILED", "b ... ignored, no"], "hal::a fails on small"),
        ] {
            let lines = lines.map(|line| format!("test small::hal::{line}")).join("\n");
            let error = differences(&results(), &evidence(&lines), folder.path()).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn what_a_guest_has_printed_counts_if_its_layer_has_run() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("group/conformance.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(log, "GUEST-RUN x\r\ntest hal::a ... ok\r\n").unwrap();
        let mut evidence = Evidence::default();
        let absent = differences(&results(), &evidence, folder.path()).unwrap();
        assert!(are_all(&absent), "{absent:?}");
        evidence.note("vm:group", Verdict::Skipped("no emulator".into()));
        assert!(are_all(&differences(&results(), &evidence, folder.path()).unwrap()));
        evidence.note("vm:group", Verdict::Passed);
        let error = differences(&results(), &evidence, folder.path()).unwrap_err().to_string();
        assert!(error.contains("vfio-group hal::b: there is no such case"), "{error}");
        assert!(!error.contains("hal::a"), "{error}");
    }

    #[test]
    fn each_reason_is_said_once() {
        let table = results().table();
        let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
        let (all, some) =
            ("✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓", "1 | ✓ | 1 | ✓ | ✓ | ✓ | ✓ | ✓ | ✓ | ✓");
        assert_eq!(rows, [format!("| `hal::a` | {all} |"), format!("| `hal::b` | {some} |")]);
        assert!(table.ends_with("|\n\n1. no"), "{table}");
        assert!(table.contains("device memory that the host may use | 1 | 1 |"), "{table}");
    }
}
