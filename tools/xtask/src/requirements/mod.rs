//! `docs/src/requirements.md`: what is promised, and what shows it.

mod evidence;
mod mutations;
mod table;

pub(crate) use evidence::{Evidence, Verdict, test_results};
pub(crate) use mutations::{Options, run};

use anyhow::ensure;
use serde::Serialize;

use crate::copy;
use crate::shell::root;
use table::{Row, State};

/// Where the table is, from the root.
const TABLE: &str = "docs/src/requirements.md";

/// What the rows come to in one run.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    met: u64,
    unmet: u64,
    /// Rows whose proof could not run here.
    skipped: u64,
    /// Which, and why.
    reasons: Vec<String>,
    /// What was promised and does not hold.
    broken: Vec<String>,
}

fn rows() -> anyhow::Result<Vec<Row>> {
    table::parse(&copy::read(&root().join(TABLE))?)
}

/// Checks what can be checked without running a test.
pub(crate) fn check() -> anyhow::Result<()> {
    let rows = rows()?;
    mutations::check(&rows, &mutations::read()?)?;
    // A page that is named exists.
    let text = copy::read(&root().join(TABLE))?;
    for link in text.split("](").skip(1).filter_map(|rest| rest.split_once([')', '#'])) {
        let page = root().join("docs/src").join(link.0);
        ensure!(page.is_file(), "{TABLE} names {}, which is not there", link.0);
    }
    Ok(())
}

/// Prints what the rows come to, and fails if one is not what it says.
pub(crate) fn judge(evidence: &Evidence) -> anyhow::Result<Summary> {
    let summary = judged(&rows()?, evidence);
    let Summary { met, unmet, skipped, reasons, broken } = &summary;
    println!("requirements: {met} met, {unmet} unmet, {skipped} skipped");
    for reason in reasons {
        println!("  skipped {reason}");
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(summary)
}

fn judged(rows: &[Row], evidence: &Evidence) -> Summary {
    let mut summary = Summary::default();
    for Row { id, state, tests } in rows {
        if *state == State::Unmet {
            summary.unmet += 1;
            continue;
        }
        let mut skipped = None;
        let mut is_broken = false;
        for test in tests {
            match evidence.of(test) {
                Some(Verdict::Passed) => {}
                Some(Verdict::Skipped(why)) => skipped = Some(format!("{id}: {test}: {why}")),
                Some(Verdict::Failed) => {
                    is_broken = true;
                    summary.broken.push(format!("{id}: {test} failed"));
                }
                None => {
                    is_broken = true;
                    summary.broken.push(format!("{id}: {test} did not run"));
                }
            }
        }
        match skipped {
            _ if is_broken => {}
            Some(why) => {
                summary.skipped += 1;
                summary.reasons.push(why);
            }
            None => summary.met += 1,
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_mutations_are_sound() {
        check().unwrap();
    }

    #[test]
    fn a_row_is_what_its_tests_were_in_this_run() {
        let row = |id: &str, state, tests: &[&str]| Row {
            id: id.into(),
            state,
            tests: tests.iter().map(|&test| test.into()).collect(),
        };
        let mut evidence = Evidence::default();
        evidence.note("good", Verdict::Passed);
        evidence.note("bad", Verdict::Failed);
        evidence.note("vm:cdev", Verdict::Skipped("no virtualisation".into()));
        let rows = [
            row("ER-01", State::Met, &["good"]),
            row("ER-02", State::Unmet, &[]),
            row("ER-03", State::Met, &["good", "vm:cdev"]),
            row("ER-04", State::Met, &["bad"]),
            row("ER-05", State::Met, &["good", "renamed"]),
            row("ER-06", State::Met, &["vm:cdev", "bad"]),
        ];
        let expected = Summary {
            met: 1,
            unmet: 1,
            skipped: 1,
            reasons: vec!["ER-03: vm:cdev: no virtualisation".into()],
            broken: ["ER-04: bad failed", "ER-05: renamed did not run", "ER-06: bad failed"]
                .map(String::from)
                .into(),
        };
        assert_eq!(judged(&rows, &evidence), expected);
    }
}
