//! `et report`: a profile as a page to look at, in one file.

mod analysis;
mod instructions;
mod mix;
mod page;
mod profile;
mod read;

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use crate::output::{self, Format};

/// Options of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The profile: what `--profile` of `et run`, `et graph` and `et demo` wrote, as Chrome trace
    /// events or JSON lines.
    profile: PathBuf,
    /// Where to write the page.
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// The ELF file of a kernel, to show what its code consists of.
    #[arg(long, value_name = "FILE")]
    kernel: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    let path = args.profile.display().to_string();
    let bytes = std::fs::read(&args.profile).with_context(|| format!("reading {path}"))?;
    let profile = read::read(&bytes).with_context(|| format!("reading {path}"))?;
    let mixes = args.kernel.iter().map(|kernel| {
        let bytes = crate::elf::read(kernel)?;
        let name = kernel.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, mix::of_file(&bytes).with_context(|| format!("in {}", kernel.display()))?))
    });
    let mixes = mixes.collect::<anyhow::Result<Vec<_>>>()?;
    let name = args.profile.file_name().unwrap_or_default().to_string_lossy();
    let page = page::page(&name, &profile, &mixes)?;
    std::fs::write(&args.output, &page)
        .with_context(|| format!("writing {}", args.output.display()))?;
    match format {
        Format::Json => output::json(&json!({
            "profile": path, "report": args.output, "bytes": page.len(),
            "spans": profile.count(), "failures": profile.failures.len(),
        })),
        Format::Text => {
            println!(
                "{} spans, {} failures: {} ({})",
                profile.count(),
                profile.failures.len(),
                args.output.display(),
                output::bytes(page.len() as u64)
            );
            Ok(())
        }
    }
}
