//! One row of the result.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// One row of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    name: Cow<'static, str>,
    /// Median.
    pub(crate) value: f64,
    unit: &'static str,
    /// The same thing done in the cheapest way there is, in the same unit.
    floor: f64,
    /// Value over floor.
    pub(crate) ratio: f64,
    min: f64,
    max: f64,
    /// What the floor is.
    floor_is: &'static str,
}

impl Figure {
    /// Sums runs up.
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        unit: &'static str,
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
        figure.unit,
        figure.floor_is
    );
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
