//! `cargo xtask bench`: each figure beside a floor that was measured in the same run.
//!
//! A figure is a median of several runs; minimum and maximum are printed with it, because the
//! machines are shared. Nothing here passes or fails on a time.

#![expect(clippy::print_stdout, reason = "this program's output goes to standard output")]
#![allow(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

mod against;
mod compute;
mod copies;
mod dumps;
mod figure;
mod floor;
mod graph;
mod host;
mod hosts;
mod llama;
mod management;
mod python;
mod report;
mod vfio;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use figure::{Figure, print, print_head, write_json};

/// Measures the figures of the documentation, each beside a floor of the same run; without a
/// command, everything but those of `graph`.
#[derive(Debug, Parser)]
#[command(about, bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    /// Writes the figures as JSON.
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    /// Only figures whose name contains this.
    #[arg(long, global = true)]
    only: Option<String>,
    /// Fails if a figure is worse than in the JSON of an earlier run: relative to its floor, in all
    /// runs, and by more than a quarter.
    #[arg(long, global = true, value_name = "JSON")]
    against: Option<PathBuf>,
}

/// A group of figures of its own.
#[derive(Debug, Subcommand)]
enum What {
    /// Task graphs.
    Graph,
    /// A card in another process.
    Vfio,
    /// Calls through the C interface, and launches on all harts, as llama.cpp makes them.
    Llama,
    /// The Python package, by the interpreter that the environment variable PYTHON names; it needs
    /// the wheel and NumPy.
    Python,
    /// `et report` with a profile of 100 000 tasks, and what a browser does with it.
    Report,
    /// The examples with Ray and MPI, by the same; it needs the wheel and what they import.
    Hosts,
    /// The other process of a measurement.
    #[command(hide = true)]
    Peer {
        /// The processor to run on.
        #[arg(long)]
        cpu: Option<usize>,
        #[command(subcommand)]
        role: Box<vfio::Role>,
    },
}

/// A measurement: its name, and how to make it.
type Bench = (&'static str, fn() -> anyhow::Result<Figure>);

const BENCHES: &[Bench] = &[
    ("submit_latency_us", host::submit_latency),
    ("submit_throughput_per_s", host::submit_throughput),
    ("submit_batch_throughput_per_s", host::submit_batch_throughput),
    ("copy_h2d_dma_ratio", copies::dma),
    ("copy_h2d_pageable_ratio", copies::pageable),
    ("copy_h2d_4k_per_s", copies::small),
    ("cores_int_mips", compute::int_mips),
    ("cores_fp_mips", compute::fp_mips),
    ("cores_scaling", compute::scaling),
    ("cores_private_int_ratio", compute::private_int),
    ("cores_private_fp_ratio", compute::private_fp),
    ("cores_private_loads_ratio", compute::private_loads),
    ("cores_private_matmul_ratio", compute::private_matmul),
    ("open_to_first_result_ms", host::open_to_first_result),
    ("idle_cpu_percent", host::idle_cpu),
    ("alloc_pair_ns", host::alloc_pair),
    ("mgmt_query_loaded_us", management::query_under_load),
    ("recover_hang_ms", management::recovery),
    ("recover_compute_reset_ms", management::compute_reset),
    ("core_dump_ratio", dumps::core),
    ("trace_entries_per_s", dumps::trace),
    ("profile_cost_percent", dumps::profile),
];

fn main() -> anyhow::Result<()> {
    let Cli { what, json, only, against } = Cli::parse();
    if let Some(What::Peer { cpu, role }) = what {
        return vfio::play(&role, cpu);
    }
    print_head();
    let mut figures = Vec::new();
    let only = only.as_deref();
    // Of figures that are measured together only those asked for are shown.
    let mut take = |figure: Figure| {
        if only.is_none_or(|only| figure.name.contains(only)) {
            print(&figure);
            figures.push(figure);
        }
    };
    match what {
        Some(What::Graph) => graph::figures(only, &mut take)?,
        Some(What::Llama) => llama::figures(only, &mut take)?,
        Some(What::Python) => python::figures(&mut take)?,
        Some(What::Report) => report::figures(&mut take)?,
        Some(What::Hosts) => hosts::figures(&mut take)?,
        Some(_) => vfio::figures(only, &mut take)?,
        None => {
            for (name, bench) in BENCHES {
                if only.is_none_or(|only| name.contains(only)) {
                    take(bench()?);
                }
            }
            vfio::figures(only, &mut take)?;
        }
    }
    write_json(json.as_deref(), &figures)?;
    against.map_or(Ok(()), |before| against::compare(&before, &figures))
}
