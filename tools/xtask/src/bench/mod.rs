//! `cargo xtask bench`: each figure beside a floor that was measured in the same run.
//!
//! A figure is a median of several runs; minimum and maximum are printed with it, because the
//! machines are shared. Nothing here passes or fails on a time.

mod compute;
mod copies;
mod floor;
mod graph;
mod host;
mod vfio;

use std::borrow::Cow;
use std::path::Path;

use serde::Serialize;

use crate::shell::write_json;

pub(crate) use vfio::{Role, play};

/// One row of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    name: Cow<'static, str>,
    /// Median.
    value: f64,
    unit: &'static str,
    /// The same thing done in the cheapest way there is, in the same unit.
    floor: f64,
    /// Value over floor.
    ratio: f64,
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

/// A measurement: its name, and how to make it.
type Bench = (&'static str, fn() -> anyhow::Result<Figure>);

const BENCHES: [Bench; 11] = [
    ("submit_latency_us", host::submit_latency),
    ("submit_throughput_per_s", host::submit_throughput),
    ("copy_h2d_dma_ratio", copies::dma),
    ("copy_h2d_pageable_ratio", copies::pageable),
    ("copy_h2d_4k_per_s", copies::small),
    ("cores_int_mips", compute::int_mips),
    ("cores_fp_mips", compute::fp_mips),
    ("cores_scaling", compute::scaling),
    ("open_to_first_result_ms", host::open_to_first_result),
    ("idle_cpu_percent", host::idle_cpu),
    ("alloc_pair_ns", host::alloc_pair),
];

pub(crate) fn run(json: Option<&Path>, only: Option<&str>) -> anyhow::Result<()> {
    print_head();
    let mut figures = Vec::new();
    for (name, bench) in BENCHES {
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let figure = bench()?;
        print(&figure);
        figures.push(figure);
    }
    vfio::figures(only, |figure| {
        print(&figure);
        figures.push(figure);
    })?;
    write_json(json, &figures)
}

/// `cargo xtask bench vfio`.
pub(crate) fn run_vfio(json: Option<&Path>, only: Option<&str>) -> anyhow::Result<()> {
    print_head();
    let mut figures = Vec::new();
    vfio::figures(only, |figure| {
        print(&figure);
        figures.push(figure);
    })?;
    write_json(json, &figures)
}

/// `cargo xtask bench graph`.
pub(crate) fn run_graph(json: Option<&Path>) -> anyhow::Result<()> {
    print_head();
    let mut figures = Vec::new();
    graph::figures(|figure| {
        print(&figure);
        figures.push(figure);
    })?;
    write_json(json, &figures)
}

fn print_head() {
    println!(
        "{:<26} {:>12} {:>12} {:>8} {:>12} {:>12}  unit, floor",
        "name", "median", "floor", "ratio", "min", "max"
    );
}

fn print(figure: &Figure) {
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
