//! One row of the result.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// What is counted, and whether less or more of it is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Unit {
    Less(&'static str),
    More(&'static str),
}

impl Unit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Less(name) | Self::More(name) => name,
        }
    }
}

/// One row of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: Cow<'static, str>,
    /// Median.
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    /// The same thing done in the cheapest way there is, in the same unit.
    pub(crate) floor: f64,
    /// Value over floor.
    pub(crate) ratio: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// What the floor is.
    floor_is: &'static str,
}

/// Takes figures as they are made.
pub(crate) type Take<'a> = &'a mut dyn FnMut(Figure);

/// Figures that are measured together: what their names begin with, and how to make them.
pub(crate) type Group = (&'static str, fn(Take<'_>) -> anyhow::Result<()>);

/// Makes the figures of groups; with `only`, those of groups in which one may have that in its
/// name.
pub(crate) fn measure(groups: &[Group], only: Option<&str>, take: Take<'_>) -> anyhow::Result<()> {
    for (start, figures) in groups {
        if only.is_none_or(|only| may_contain(start, only)) {
            figures(take)?;
        }
    }
    Ok(())
}

/// Returns `true` if a name that begins with `start` may have `part` in it.
fn may_contain(start: &str, part: &str) -> bool {
    start.contains(part)
        || part.contains(start)
        || (1..start.len()).any(|at| part.starts_with(&start[at..]))
}

impl Figure {
    /// Sums runs up.
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        unit: Unit,
        runs: &[f64],
        (floor_is, floor): (&'static str, f64),
    ) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let value = sorted[sorted.len() / 2];
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Self { name: name.into(), value, unit, floor, ratio: value / floor, min, max, floor_is }
    }
}

pub(crate) fn print_head() {
    println!(
        "{:<26} {:>12} {:>12} {:>8} {:>12} {:>12}  unit, floor",
        "name", "median", "floor", "ratio", "min", "max"
    );
}

pub(crate) fn print(figure: &Figure) {
    println!(
        "{:<26} {:>12.3} {:>12.3} {:>8.3} {:>12.3} {:>12.3}  {}, {}",
        figure.name,
        figure.value,
        figure.floor,
        figure.ratio,
        figure.min,
        figure.max,
        figure.unit.name(),
        figure.floor_is
    );
}

/// The middle one of several values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Runs `run` several times and returns what it returns each time.
pub(crate) fn repeat(
    times: usize,
    mut run: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<f64>> {
    (0..times).map(|_| run()).collect()
}

/// Writes all of them to a file as JSON.
pub(crate) fn write_json(path: Option<&Path>, figures: &[Figure]) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(figures)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_measured_in_which_a_name_may_be_meant() {
        let is_measured = |only| may_contain("graph_speedup_2w", only);
        assert!(["speedup", "graph_speedup_2w", "speedup_2w_2us"].into_iter().all(is_measured));
        assert!(!["flow_task", "trace", "graph_bytes"].into_iter().any(is_measured));
    }
}
