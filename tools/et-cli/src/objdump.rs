//! `et objdump`: what a kernel file consists of, vendor instructions included.

use std::fmt::Write;
use std::path::PathBuf;

use et_isa::{Class, Decoded, Support, csr};
use serde_json::json;

use crate::elf::{self, Code, Line};
use crate::output::{self, Format};

/// Options of `objdump`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An ELF file, linked or not.
    file: PathBuf,
    /// Shows this function only.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
}

pub(crate) fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    let bytes = elf::read(&args.file)?;
    let (sections, entry) = elf::sections(&bytes)?;
    let wanted = |code: &Code<'_>, address| match &args.function {
        Some(name) => code.symbol(address).is_some_and(|(symbol, _)| symbol == name),
        None => true,
    };
    let mut lines = Vec::new();
    for code in &sections {
        lines.extend(
            code.lines().filter(|line| wanted(code, line.address)).map(|line| (code, line)),
        );
    }
    anyhow::ensure!(
        !lines.is_empty() || args.function.is_none(),
        "no function {}",
        args.function.as_deref().unwrap_or_default()
    );
    match format {
        Format::Json => {
            let lines: Vec<_> = lines.iter().map(|(code, line)| document(code, *line)).collect();
            output::json(&json!({ "file": args.file, "entry": entry, "instructions": lines }))
        }
        Format::Text => {
            match entry {
                Some(entry) => println!("{}: entry {entry:#x}", args.file.display()),
                None => println!("{}: object file", args.file.display()),
            }
            let mut section = None;
            for (code, line) in lines {
                if section != Some(&code.name) {
                    section = Some(&code.name);
                    println!("\nsection {}", code.name);
                }
                print(code, line);
            }
            Ok(())
        }
    }
}

fn print(code: &Code<'_>, line: Line) {
    if let Some(name) = code.symbols.get(&line.address) {
        println!("\n{:010x} <{name}>:", line.address);
    }
    println!("{}", listing(code, line));
}

/// One line of a listing: address, word, instruction, remarks.
fn listing(code: &Code<'_>, line: Line) -> String {
    let word = match line.word & 3 {
        3 => format!("{:08x}", line.word),
        _ => format!("{:04x}    ", line.word),
    };
    let mut text = format!("{:>10x}:  {word}  {}", line.address, text(line));
    if let Some(decoded) = line.decode() {
        if let Some((name, distance)) =
            decoded.target(line.address).and_then(|target| code.symbol(target))
        {
            let _ = match distance {
                0 => write!(text, " <{name}>"),
                _ => write!(text, " <{name}+{distance:#x}>"),
            };
        }
        if let Some(remark) = remark(&decoded) {
            let _ = write!(text, "  # {remark}");
        }
    }
    text
}

fn text(line: Line) -> String {
    match line.decode() {
        Some(decoded) => decoded.text().at(line.address).to_string(),
        None if line.word & 3 == 3 => format!(".4byte {:#010x}", line.word),
        None => format!(".2byte {:#06x}", line.word),
    }
}

/// What a line traps on.
pub(crate) fn trap(line: Line) -> String {
    match line.decode() {
        Some(decoded) => {
            let remark = remark(&decoded).unwrap_or_default();
            format!("{}: {remark}", decoded.text())
        }
        None => format!("{}: not an instruction of the card, cause 2", text(line)),
    }
}

/// What a reader may not know: instructions that trap, and what vendor registers are.
fn remark(decoded: &Decoded) -> Option<String> {
    match decoded.instruction().support() {
        Support::Microcoded => return Some("traps on the card, cause 30".to_owned()),
        Support::Graphics | Support::Privileged => {
            return Some("traps on the card, cause 2".to_owned());
        }
        _ => {}
    }
    let operands = decoded.instruction().operands();
    let operand = operands.iter().find(|operand| operand.class() == Class::Csr)?;
    let register = csr::by_number(u32::try_from(operand.value(decoded.word())).ok()?)?;
    register.is_vendor().then(|| register.about.to_owned())
}

fn document(code: &Code<'_>, line: Line) -> serde_json::Value {
    let decoded = line.decode();
    json!({
        "section": code.name,
        "address": line.address,
        "symbol": code.symbol(line.address).map(|(name, offset)| json!({ "name": name, "offset": offset })),
        "bytes": if line.word & 3 == 3 { 4 } else { 2 },
        "word": line.word,
        "text": text(line),
        "vendor": decoded.is_some_and(|decoded| decoded.instruction().is_vendor()),
        "target": decoded.and_then(|decoded| decoded.target(line.address)),
    })
}
