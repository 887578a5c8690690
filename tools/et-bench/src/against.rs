//! Figures of this run against those of an earlier one.
//!
//! Machines differ, and are shared: what is compared is the ratio to the floor of the same run, and
//! a figure is only worse if even its best run falls behind the worst of the earlier ones, by more
//! than a margin.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::figure::{Figure, Unit};

/// By how much a figure may be worse than the worst run of before.
const MARGIN: f64 = 0.25;

/// What is known of a row of before.
#[derive(Clone, Debug, Deserialize)]
struct Before {
    name: String,
    floor: f64,
    min: f64,
    max: f64,
}

/// Reads the rows of an earlier run.
fn read(path: &Path) -> anyhow::Result<Vec<Before>> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} has no figures", path.display()))
}

/// Compares all figures that are in both; fails if one is worse, or nothing is in both.
pub(crate) fn compare(path: &Path, figures: &[Figure]) -> anyhow::Result<()> {
    let before = read(path)?;
    let (mut compared, mut worse) = (0, Vec::new());
    for figure in figures {
        let Some(row) = before.iter().find(|row| row.name == figure.name) else { continue };
        compared += 1;
        if let Some(percent) = loss(figure, row) {
            worse.push(format!("{}: by {percent:.0} %", figure.name));
        }
    }
    ensure!(compared != 0, "no figure of this run is in {}", path.display());
    ensure!(
        worse.is_empty(),
        "{} of {compared} figures are worse than every run of {}:\n{}",
        worse.len(),
        path.display(),
        worse.join("\n")
    );
    println!("none of {compared} figures is worse than in {}", path.display());
    Ok(())
}

/// By how many percent a figure is worse than all runs of before, if it is by more than the margin.
fn loss(now: &Figure, before: &Before) -> Option<f64> {
    // The best of now, and the worst of before.
    let (now, was) = match now.unit {
        Unit::Less(_) => (now.min / now.floor, before.max / before.floor),
        Unit::More(_) => (before.min / before.floor, now.max / now.floor),
    };
    // Costs that are measured as differences may be nothing, or less; what is not a number is
    // nothing to be relied on.
    let is_well = now <= 0.0 || now <= was * (1.0 + MARGIN);
    (!is_well).then(|| (now / was.max(0.0) - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(unit: Unit, runs: &[f64], floor: f64) -> Figure {
        Figure::new("row", unit, runs, ("floor", floor))
    }

    fn before(min: f64, max: f64, floor: f64) -> Before {
        Before { name: "row".into(), floor, min, max }
    }

    const TIME: Unit = Unit::Less("us");
    const RATE: Unit = Unit::More("per second");

    #[test]
    fn a_figure_is_worse_if_its_best_run_is_behind_the_worst_of_before() {
        let is_worse = |now: &Figure, before: &Before| loss(now, before).is_some();
        // Times: as slow as before relative to the floor, and slower.
        assert!(!is_worse(&figure(TIME, &[20.0, 24.0], 2.0), &before(9.0, 12.0, 1.0)));
        assert!(!is_worse(&figure(TIME, &[14.9, 99.0], 1.0), &before(9.0, 12.0, 1.0)));
        assert!(is_worse(&figure(TIME, &[15.1, 99.0], 1.0), &before(9.0, 12.0, 1.0)));
        // Rates the other way round.
        assert!(!is_worse(&figure(RATE, &[5.0, 9.7], 1.0), &before(10.0, 12.0, 1.0)));
        assert!(!is_worse(&figure(RATE, &[5.0, 8.1], 1.0), &before(10.0, 12.0, 1.0)));
        assert!(is_worse(&figure(RATE, &[5.0, 7.9], 1.0), &before(10.0, 12.0, 1.0)));
    }

    #[test]
    fn costs_may_be_nothing_and_must_be_numbers() {
        let is_worse = |runs: &[f64], before: &Before| loss(&figure(TIME, runs, 3.0), before);
        assert_eq!(is_worse(&[-0.4, 0.2], &before(-1.0, -0.5, 3.0)), None);
        assert_eq!(is_worse(&[0.0], &before(-1.0, 0.0, 3.0)), None);
        assert!(is_worse(&[0.1], &before(-1.0, -0.5, 3.0)).is_some(), "there was no cost");
        assert!(is_worse(&[f64::NAN], &before(9.0, 12.0, 1.0)).is_some());
        assert!(is_worse(&[1.0], &before(0.0, f64::NAN, 1.0)).is_some());
    }

    #[test]
    fn files_of_before_are_what_a_run_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        let write = |figures: &[Figure]| crate::figure::write_json(Some(&path), figures).unwrap();
        let (slow, fast) = (figure(TIME, &[9.0], 1.0), figure(TIME, &[1.0], 1.0));
        write(std::slice::from_ref(&fast));
        compare(&path, std::slice::from_ref(&fast)).unwrap();
        let error = compare(&path, std::slice::from_ref(&slow)).unwrap_err().to_string();
        assert!(error.contains("1 of 1") && error.contains("row: by 800 %"), "{error}");
        write(&[]);
        assert!(compare(&path, &[slow]).is_err(), "nothing to compare is no success");
        std::fs::write(&path, "{}").unwrap();
        assert!(compare(&path, &[fast]).is_err());
    }
}
