//! `et cc`: compiles kernels with a stock compiler.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use et::kernel::Symbols;
use et_isa::Support;
use serde_json::json;

use crate::elf;
use crate::objdump;
use crate::output::{self, Format};

/// What the compiler is for: the program `PREFIXgcc`.
const PREFIXES: [&str; 3] = ["riscv64-unknown-elf-", "riscv64-elf-", "riscv-none-elf-"];

/// Files for kernels, as they are in `testing/kernels`.
const FILES: [(&str, &str); 4] = [
    ("include/etsoc.h", include_str!("../../../testing/kernels/include/etsoc.h")),
    ("include/trace.h", include_str!("../../../testing/kernels/include/trace.h")),
    ("src/crt.S", include_str!("../../../testing/kernels/src/crt.S")),
    ("kernel.ld", include_str!("../../../testing/kernels/kernel.ld")),
];

/// What the cores execute, and code that can be loaded anywhere. The reasons are in
/// `testing/kernels/rebuild.sh`. The user's options come later, and so win.
const COMPILE: [&str; 15] = [
    "-march=rv64imfc",
    "-mabi=lp64f",
    "-mcmodel=medany",
    "-mno-fdiv",
    "-mno-relax",
    "-msmall-data-limit=0",
    "-ffreestanding",
    "-fno-tree-loop-distribute-patterns",
    "-fno-common",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-pic",
    "-ffunction-sections",
    "-gdwarf-4",
    "-gz=none",
];

const LINK: [&str; 8] = [
    "-nostartfiles",
    "-static",
    "-Wl,--emit-relocs",
    "-Wl,--no-relax",
    "-Wl,-z,max-page-size=4096",
    "-Wl,--build-id=none",
    "-Wl,--gc-sections",
    "-Wl,--fatal-warnings",
];

/// Options after which the compiler does not link.
const NO_LINK: [&str; 7] = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version"];

/// The C library of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Library {
    /// None: only what the compiler brings, such as `stdint.h`.
    None,
    /// Picolibc.
    Picolibc,
}

/// Options of `cc`. Those of the compiler come after them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fails if the result has instructions on which the card traps, and names them.
    #[arg(long)]
    check: bool,
    /// The C library.
    #[arg(long, value_enum, default_value = "none")]
    libc: Library,
    /// Where `include/`, `src/crt.S` and `kernel.ld` are, instead of the built-in ones.
    #[arg(long, value_name = "DIR", env = "ET_KERNEL_FILES")]
    files: Option<PathBuf>,
    /// What is before `gcc` in the name of the compiler.
    #[arg(long, value_name = "PREFIX", env = "CROSS_COMPILE")]
    prefix: Option<String>,
    /// Sources and options for the compiler, such as `-O2 kernel.c -o kernel.elf`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    let gcc = compiler(args.prefix.as_deref())?;
    let folder = tempfile::tempdir().context("creating a folder for temporary files")?;
    let files = match &args.files {
        Some(files) => files.clone(),
        None => unpack(folder.path())?,
    };
    let front = folder.path().join("bin");
    std::fs::create_dir(&front)?;
    // This program is the assembler front end when it has that name.
    std::os::unix::fs::symlink(std::env::current_exe()?, front.join("as"))?;
    let mut command = Command::new(&gcc);
    command.env(et_as::REAL_ASSEMBLER, assembler(&gcc)?);
    // The slash is part of the names that the compiler makes of it.
    command.arg("-B").arg(front.join(""));
    command.args(COMPILE);
    command.arg("-isystem").arg(files.join("include"));
    if args.libc == Library::Picolibc {
        command.arg(format!("--specs={}", picolibc(&gcc)?.display()));
    }
    let links = links(&args.args);
    if links {
        command.args(LINK);
    }
    command.args(&args.args);
    if links {
        link(&mut command, args, &files);
    }
    let status = command.status().with_context(|| format!("running {}", gcc.display()))?;
    // The compiler has said why.
    ensure!(status.success(), "{} failed", gcc.display());
    if args.check {
        let output = result(&args.args, links)
            .context("--check needs a file to look at: link, or give -o with -c")?;
        check(&output, links, format)?;
    }
    Ok(())
}

/// Finds the compiler.
fn compiler(prefix: Option<&str>) -> anyhow::Result<PathBuf> {
    let prefixes = prefix.map_or(PREFIXES.to_vec(), |prefix| vec![prefix]);
    for prefix in &prefixes {
        let gcc = PathBuf::from(format!("{prefix}gcc"));
        if Command::new(&gcc).arg("-dumpversion").output().is_ok() {
            return Ok(gcc);
        }
    }
    bail!(
        "no compiler for bare RISC-V: {} not found; install the package gcc-riscv64-unknown-elf \
         (Debian, Ubuntu), riscv64-elf-gcc (Arch, Homebrew), or set CROSS_COMPILE",
        prefixes.iter().map(|prefix| format!("{prefix}gcc")).collect::<Vec<_>>().join(", ")
    )
}

/// Asks the compiler for a path; none if it has nothing of that name.
fn ask(gcc: &Path, question: &str) -> anyhow::Result<Option<PathBuf>> {
    let output = Command::new(gcc).arg(question).output()?;
    let answer = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(answer.is_absolute().then_some(answer))
}

/// The assembler that the compiler would call.
fn assembler(gcc: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = ask(gcc, "-print-prog-name=as")?.or_else(et_as::assembler) {
        return Ok(path);
    }
    bail!(
        "no assembler for {}: install the package binutils-riscv64-unknown-elf (Debian, Ubuntu) \
         or riscv64-elf-binutils (Arch, Homebrew)",
        gcc.display()
    )
}

fn picolibc(gcc: &Path) -> anyhow::Result<PathBuf> {
    ask(gcc, "-print-file-name=picolibc.specs")?.with_context(|| {
        format!(
            "{} does not know picolibc: install the package picolibc-riscv64-unknown-elf (Debian, \
             Ubuntu), or leave --libc out",
            gcc.display()
        )
    })
}

/// Writes the built-in files.
fn unpack(folder: &Path) -> anyhow::Result<PathBuf> {
    for (name, text) in FILES {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(folder.to_owned())
}

/// Returns `true` if these arguments make the compiler link.
fn links(args: &[OsString]) -> bool {
    let stops = args.iter().any(|arg| NO_LINK.iter().any(|option| arg == option));
    // Questions such as -print-file-name have no inputs.
    let has_input = args.iter().any(|arg| {
        let extension = Path::new(arg).extension().and_then(OsStr::to_str);
        matches!(extension, Some("c" | "S" | "s" | "o" | "a" | "cc" | "cpp" | "i"))
    });
    has_input && !stops
}

fn has(args: &[OsString], option: &str) -> bool {
    args.iter().any(|arg| arg == option)
}

/// Adds what is linked.
fn link(command: &mut Command, args: &Args, files: &Path) {
    // A kernel with a start of its own says so as usual.
    if !has(&args.args, "-nostartfiles") {
        command
            .args(["-x", "assembler-with-cpp"])
            .arg(files.join("src/crt.S"))
            .args(["-x", "none"]);
    }
    if !args.args.iter().any(|arg| arg.to_string_lossy().starts_with("-T")) {
        command.arg("-T").arg(files.join("kernel.ld"));
    }
    match args.libc {
        Library::None => command.arg("-nostdlib"),
        Library::Picolibc => command.args(["-nodefaultlibs", "-lm", "-lc", "-lgcc"]),
    };
}

/// The file that the compiler has written.
fn result(args: &[OsString], links: bool) -> Option<PathBuf> {
    let mut named = None;
    for (index, arg) in args.iter().enumerate() {
        if arg == "-o" {
            named = args.get(index + 1).map(PathBuf::from);
        } else if let Some(name) = arg.to_str().and_then(|arg| arg.strip_prefix("-o")) {
            named = Some(name.into());
        }
    }
    named.or_else(|| links.then(|| "a.out".into()))
}

/// Fails if a file has instructions that trap.
fn check(path: &Path, is_linked: bool, format: Format) -> anyhow::Result<()> {
    let bytes = elf::read(path)?;
    let symbols = Symbols::parse(&bytes);
    let (sections, _) = elf::sections(&bytes)?;
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
            let location =
                if is_linked { symbols.locate(line.address) } else { Default::default() };
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
            let place = match (source, function) {
                (Some((file, number)), _) => format!("{file}:{number}"),
                (None, Some((name, distance))) => format!("{name}+{distance:#x}"),
                (None, None) => path.display().to_string(),
            };
            eprintln!("{place}: {}", objdump::trap(*line));
        }
    }
    match (found.len(), format) {
        (0, _) => Ok(()),
        (_, Format::Json) => Err(output::Reported.into()),
        (1, _) => bail!("{}: the card traps on 1 instruction", path.display()),
        (count, _) => bail!("{}: the card traps on {count} instructions", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn only_inputs_are_linked() {
        assert!(links(&args("-O2 k.c -o k.elf")) && links(&args("a.o b.o")));
        assert!(!links(&args("-c k.c")) && !links(&args("-print-prog-name=as")));
        assert!(!links(&args("-E k.S")));
    }

    #[test]
    fn the_result_is_the_last_output() {
        assert_eq!(result(&args("k.c -o k.elf"), true), Some("k.elf".into()));
        assert_eq!(result(&args("-ok.elf k.c"), true), Some("k.elf".into()));
        assert_eq!(result(&args("k.c"), true), Some("a.out".into()));
        assert_eq!(result(&args("-c k.c"), false), None);
    }
}
