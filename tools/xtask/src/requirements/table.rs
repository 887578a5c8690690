//! The rows of the table.

use anyhow::{Context, bail, ensure};

/// Every id, as its letters and how many there are of them.
const IDS: [(&str, u32); 11] = [
    ("ER", 26),
    ("MD", 11),
    ("MU", 6),
    ("CS", 20),
    ("KE", 7),
    ("EH", 3),
    ("MP", 5),
    ("DQ", 15),
    ("DL", 5),
    ("DO", 10),
    ("P", 43),
];

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) state: State,
    /// What shows that it is met; empty if it is not.
    pub(super) tests: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Met,
    Unmet,
}

/// Reads all rows: each id once and in order, each with what its state asks for.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Row>> {
    let rows = unordered(text)?;
    let all = IDS.iter().flat_map(|(letters, count)| {
        (1..=*count).map(move |number| format!("{letters}-{number:02}"))
    });
    let mut found = rows.iter().map(|row| &row.id);
    for id in all {
        match found.next() {
            Some(other) if *other == id => {}
            Some(other) => bail!("{other} is where {id} should be"),
            None => bail!("{id} has no row"),
        }
    }
    ensure!(found.next().is_none(), "there are rows behind the last id");
    Ok(rows)
}

/// Reads the rows there are.
fn unordered(text: &str) -> anyhow::Result<Vec<Row>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines
        .filter(|line| !line.starts_with("| ID |") && !line.starts_with("|---"))
        .map(|line| row(line).with_context(|| line.to_owned()))
        .collect()
}

fn row(line: &str) -> anyhow::Result<Row> {
    let cells = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
    let cells: Vec<_> = cells.context("a row ends with |")?.split('|').map(str::trim).collect();
    let [id, state, api, last] = cells[..] else { bail!("a row has four cells") };
    let state = match state {
        "met" => State::Met,
        "unmet" => State::Unmet,
        other => bail!("\"{other}\" is not a state"),
    };
    let mut tests = Vec::new();
    if state == State::Met {
        ensure!(!api.is_empty(), "it says not with what");
        tests = spans(last)?;
        ensure!(!tests.is_empty(), "no test shows it");
    } else {
        ensure!(last.chars().any(char::is_alphabetic), "it says not why");
    }
    Ok(Row { id: id.into(), state, tests })
}

/// The code spans of a cell.
fn spans(cell: &str) -> anyhow::Result<Vec<String>> {
    let parts: Vec<_> = cell.split('`').collect();
    ensure!(parts.len() % 2 == 1, "a code span has no end");
    let spans: Vec<String> = parts.into_iter().skip(1).step_by(2).map(str::to_owned).collect();
    ensure!(spans.iter().all(|span| !span.trim().is_empty()), "a code span is empty");
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Vec<String> {
        let ids = IDS.iter().flat_map(|(letters, count)| (1..=*count).map(move |n| (letters, n)));
        ids.map(|(letters, n)| format!("| {letters}-{n:02} | met | `api` | `a::b`, `loom:c` |"))
            .collect()
    }

    fn message(rows: &[String]) -> String {
        format!("{:#}", parse(&rows.join("\n")).expect_err("a bad table"))
    }

    #[test]
    fn a_complete_table_is_read() {
        let mut rows = complete();
        rows[3] = "| ER-04 | unmet | | does not apply: there is none |".into();
        rows.insert(4, "## Text\n\n| ID | State | API | Test |\n|---|---|---|---|".into());
        let table = parse(&rows.join("\n")).unwrap();
        assert_eq!(table.len(), 26 + 82 + 43);
        assert_eq!(table[0].tests, ["a::b", "loom:c"]);
        let fourth = Row { id: "ER-04".into(), state: State::Unmet, tests: Vec::new() };
        assert_eq!(table[3], fourth);
    }

    #[test]
    fn each_mistake_in_a_table_has_its_text() {
        let with = |row: &str| {
            let mut rows = complete();
            rows[0] = row.into();
            message(&rows)
        };
        assert!(with("| ER-01 | met | `x` | by reading |").ends_with("no test shows it"));
        assert!(with("| ER-01 | met | | `x` |").ends_with("it says not with what"));
        assert!(with("| ER-01 | unmet | `x` | - |").ends_with("it says not why"));
        assert!(with("| ER-01 | partial | `x` | `y` |").ends_with("\"partial\" is not a state"));
        assert!(with("| ER-01 | met | `x` | `y` | `z` |").ends_with("a row has four cells"));
        assert!(with("| ER-01 | met | `x` | `y |").ends_with("a code span has no end"));
        assert!(with("| ER-01 | met | `x` | `` |").ends_with("a code span is empty"));
        assert!(with("| ER-01 | met | `x` | `y`").ends_with("a row ends with |"));
        assert_eq!(with("| ER-02 | met | `x` | `y` |"), "ER-02 is where ER-01 should be");
        let mut twice = complete();
        twice.insert(9, twice[8].clone());
        assert_eq!(message(&twice), "ER-09 is where ER-10 should be");
        let mut short = complete();
        short.pop();
        assert_eq!(message(&short), "P-43 has no row");
        let mut long = complete();
        long.push("| P-44 | met | `x` | `y` |".into());
        assert_eq!(message(&long), "there are rows behind the last id");
    }
}
