//! Instructions on which the card traps, in files.

use std::path::Path;

use anyhow::bail;
use et::kernel::Symbols;
use et_isa::Support;
use serde_json::json;

use crate::elf;
use crate::objdump;
use crate::output::{self, Format};

/// Fails if a file has instructions that trap.
pub(super) fn check(path: &Path, format: Format) -> anyhow::Result<()> {
    let bytes = elf::read(path)?;
    let symbols = Symbols::parse(&bytes);
    let (sections, entry) = elf::sections(&bytes)?;
    let mut found = Vec::new();
    for code in &sections {
        // Zeros are what linkers fill gaps with.
        for line in code.lines().filter(|line| !line.is_data && line.word != 0) {
            let cause = match line.decode().map(|decoded| decoded.instruction().support()) {
                Some(Support::Hardware) => continue,
                Some(Support::Microcoded) => 30,
                _ => 2,
            };
            // Addresses of object files are not unique.
            let location = match entry {
                Some(_) => symbols.locate(line.address),
                None => Default::default(),
            };
            let function = code.symbol(line.address);
            found.push((line, cause, function, location.source));
        }
    }
    if let Format::Json = format {
        let list: Vec<_> = found
            .iter()
            .map(|(line, cause, function, source)| {
                json!({
                    "address": line.address, "word": line.word, "cause": cause,
                    "text": line.decode().map(|decoded| decoded.text().to_string()),
                    "function": function.map(|(name, _)| name),
                    "file": source.as_ref().map(|(file, _)| file),
                    "line": source.as_ref().map(|(_, line)| line),
                })
            })
            .collect();
        output::json(&json!({ "file": path, "traps": list }))?;
    } else {
        for (line, _, function, source) in &found {
            let place = match source {
                Some((file, number)) => format!("{file}:{number}"),
                None => path.display().to_string(),
            };
            let function = match function {
                Some((name, distance)) => format!(" in {name}+{distance:#x}"),
                None => String::new(),
            };
            eprintln!("{place}: {}, at {:#x}{function}", objdump::trap(*line), line.address);
        }
    }
    match (found.len(), format) {
        (0, _) => Ok(()),
        (_, Format::Json) => Err(output::Reported(output::Exit::Failure).into()),
        (1, _) => bail!("{}: the card traps on 1 instruction", path.display()),
        (count, _) => bail!("{}: the card traps on {count} instructions", path.display()),
    }
}
