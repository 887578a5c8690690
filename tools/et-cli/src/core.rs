//! `et core`: what is in a core file.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context;
use et::core_dump::{CoreFile, CoreRegion};
use et::kernel::{HartContext, HartGroup};
use serde_json::{Value, json};

use crate::output::{self, Format};

/// Options of `core`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The core file.
    core: PathBuf,
    /// Writes the kernel's file, which is in the core file, to this one.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    let path = &args.core;
    let named = || format!("reading {}", path.display());
    let file = File::open(path).with_context(named)?;
    let core = CoreFile::read(BufReader::new(file)).with_context(named)?;
    if let Some(kernel) = &args.kernel {
        std::fs::write(kernel, &core.kernel)
            .with_context(|| format!("writing {}", kernel.display()))?;
    }
    let gdb = gdb(&core, path, args.kernel.as_deref());
    let groups = groups(&core);
    match format {
        Format::Json => output::json(&json!({
            "kernel": core.failure.kernel(),
            "status": core.failure.status.to_string(),
            "shires": core.shires,
            "entry": core.entry,
            "load": core.load,
            "harts": core.failure.contexts.iter().map(|hart| describe(&core, hart)).collect::<Vec<_>>(),
            "regions": core.regions.iter().map(region).collect::<Vec<_>>(),
            "gdb": gdb,
        })),
        Format::Text => {
            let name = core.failure.kernel();
            println!("{name} on shires {:#x}: {}", core.shires, core.failure.status);
            println!("loaded at {:#x}, entry {:#x}", core.load, core.entry);
            for (count, harts, what) in groups {
                println!("{count:>5} {harts}: {what}");
            }
            for region in &core.regions {
                let size = output::bytes(region.bytes);
                print!("{:#x} {size:>12}  {}", region.address, region.name);
                match &region.error {
                    Some(error) => println!(" ({} bytes of it: {error})", region.written),
                    None => println!(),
                }
            }
            println!("{gdb}");
            Ok(())
        }
    }
}

/// What happened, and which harts it happened to.
fn groups(core: &CoreFile) -> Vec<(usize, String, String)> {
    let groups = core.failure.groups();
    let text = |group: &HartGroup<'_>| {
        let mut what = group.first.kind.to_string();
        if let Some(location) = core.failure.location(group.first) {
            if let Some((name, offset)) = location.symbol {
                what += &format!(" in {name}+{offset:#x}");
            }
            if let Some((file, line)) = location.source {
                what += &format!(" at {file}:{line}");
            }
        } else if let Some(pc) = group.first.pc {
            what += &format!(" at pc {pc:#x}");
        }
        (group.harts.len(), group.ranges(), what)
    };
    groups.iter().map(text).collect()
}

fn describe(core: &CoreFile, hart: &HartContext) -> Value {
    let location = core.failure.location(hart).unwrap_or_default();
    json!({
        "hart": hart.hart_id,
        "what": hart.kind.to_string(),
        "pc": hart.pc,
        "function": location.symbol.as_ref().map(|(name, _)| name),
        "file": location.source.as_ref().map(|(file, _)| file),
        "line": location.source.as_ref().map(|(_, line)| line),
    })
}

fn region(region: &CoreRegion) -> Value {
    json!({
        "name": region.name,
        "address": region.address,
        "bytes": region.bytes,
        "written": region.written,
        "error": region.error,
    })
}

/// The command that opens the file. The kernel runs at another address than it was linked to, so
/// the debugger is told the distance.
fn gdb(core: &CoreFile, path: &Path, kernel: Option<&Path>) -> String {
    let name = || format!("{}.elf", core.failure.kernel());
    let kernel = kernel.map_or_else(name, |path| path.display().to_string());
    let symbols = format!("symbol-file -o {:#x} {kernel}", core.bias);
    format!("gdb-multiarch -c {} -ex '{symbols}' -ex bt", path.display())
}
