//! The program: its command line is that of the assembler behind it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::Translator;

/// The variable that names the assembler behind this one.
pub const REAL_ASSEMBLER: &str = "ET_AS";

/// Names that assemblers for bare RISC-V have in distributions.
const NAMES: [&str; 3] = ["riscv64-unknown-elf-as", "riscv64-elf-as", "riscv-none-elf-as"];

/// Options whose value is the next argument.
const WITH_VALUE: [&str; 9] =
    ["-o", "-I", "--MD", "-defsym", "--defsym", "-march", "-mabi", "--debug-prefix-map", "-T"];

/// Finds the assembler behind this one: `ET_AS`, or the first of the usual names in `PATH`.
#[must_use]
pub fn assembler() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(REAL_ASSEMBLER).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    let this = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    NAMES
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)))
        .find(|path| path.is_file() && path.canonicalize().ok() != this)
}

/// The parts of the command line that matter here.
#[derive(Debug, Default)]
struct Arguments {
    /// Everything but the inputs.
    options: Vec<OsString>,
    inputs: Vec<OsString>,
    symbols: HashMap<String, i64>,
}

impl Arguments {
    fn parse(arguments: &[OsString]) -> Self {
        let mut parsed = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_str().unwrap_or_default();
            if argument == OsStr::new("-") || !text.starts_with(['-', '@']) {
                parsed.inputs.push(argument.clone());
                continue;
            }
            parsed.options.push(argument.clone());
            if WITH_VALUE.contains(&text)
                && let Some(value) = arguments.next()
            {
                parsed.options.push(value.clone());
                if text.ends_with("defsym") {
                    parsed.define(&value.to_string_lossy());
                }
            } else if let Some((_, symbol)) = text.split_once("-defsym=") {
                parsed.define(symbol);
            }
        }
        parsed
    }

    fn define(&mut self, symbol: &str) {
        if let Some((name, value)) = symbol.split_once('=')
            && let Some(value) = et_isa::operand::number(value)
        {
            self.symbols.insert(name.to_owned(), value);
        }
    }
}

/// Translates the inputs and runs the assembler on the result.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    match try_run(&arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("et-as: {message}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &[OsString]) -> Result<ExitCode, String> {
    let assembler = assembler().ok_or_else(|| {
        format!(
            "no assembler found: none of {} is in PATH and {REAL_ASSEMBLER} is not set; install \
             binutils for bare RISC-V (Debian, Ubuntu: binutils-riscv64-unknown-elf)",
            NAMES.join(", ")
        )
    })?;
    let parsed = Arguments::parse(arguments);
    // Questions for the assembler itself.
    let asks = |option: &OsString| {
        matches!(option.to_str(), Some("--version" | "-version" | "--help" | "--target-help"))
    };
    if parsed.options.iter().any(asks) {
        return wait(Command::new(&assembler).args(arguments), &assembler, None);
    }
    let mut translator = Translator::new(parsed.symbols);
    let standard_input = [OsString::from("-")];
    let inputs = if parsed.inputs.is_empty() { &standard_input[..] } else { &parsed.inputs };
    for input in inputs {
        let (name, source) = read(input)?;
        translator.add(&name, &source);
    }
    let translation = translator.finish();
    if !translation.diagnostics.is_empty() {
        for diagnostic in &translation.diagnostics {
            eprintln!("{diagnostic}");
        }
        return Ok(ExitCode::FAILURE);
    }
    let from_files = !parsed.inputs.is_empty() && !parsed.inputs.iter().any(|input| input == "-");
    if !translation.changed && from_files {
        return wait(Command::new(&assembler).args(arguments), &assembler, None);
    }
    let mut command = Command::new(&assembler);
    command.args(&parsed.options).arg("-");
    wait(&mut command, &assembler, Some(&translation.source))
}

fn read(input: &OsStr) -> Result<(String, Vec<u8>), String> {
    let mut source = Vec::new();
    if input == "-" {
        let name = "{standard input}".to_owned();
        return match io::stdin().lock().read_to_end(&mut source) {
            Ok(_) => Ok((name, source)),
            Err(error) => Err(format!("{name}: {error}")),
        };
    }
    let name = Path::new(input).display().to_string();
    let source = std::fs::read(input).map_err(|error| format!("{name}: {error}"))?;
    Ok((name, source))
}

/// Runs the assembler to its end.
fn wait(command: &mut Command, name: &Path, input: Option<&[u8]>) -> Result<ExitCode, String> {
    let failed = |error: io::Error| format!("running {}: {error}", name.display());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // An assembler that ends early has said why.
        let _ = pipe.write_all(input);
    }
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
