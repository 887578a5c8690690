//! `et cc`: compiles kernels with a stock compiler.

mod check;
mod toolchain;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::output::Format;
use toolchain::Sdk;

pub(crate) use toolchain::language;

/// What the cores execute, and code that can be loaded anywhere. The reasons are in
/// `testing/kernels/rebuild.sh`. The user's options come later, and so win.
const ARCHITECTURE: [&str; 2] = ["-march=rv64imfc", "-mabi=lp64f"];

const COMPILE: [&str; 13] = [
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

/// How what belongs to every kernel is compiled; it has no lines that reports could show.
const RUNTIME: [&str; 4] = ["-O2", "-std=gnu11", "-g0", "-c"];

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
    /// Fails if the result has instructions on which the card traps, and names them. With nothing
    /// but files that end in `.elf`, only looks at those.
    #[arg(long)]
    check: bool,
    /// The C library.
    #[arg(long, value_enum, default_value = "none")]
    libc: Library,
    /// Where the device SDK is, instead of beside this program.
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
    if args.check && args.args.iter().all(|arg| has_extension(arg, &["elf"])) {
        return args.args.iter().try_for_each(|file| check::check(Path::new(file), format));
    }
    let gcc = toolchain::compiler(args.prefix.as_deref(), "gcc")?;
    let sdk = Sdk::find(args.files.as_deref())?;
    let links = links(&args.args);
    let folder = tempfile::tempdir().context("creating a folder for temporary files")?;
    let mut command = Command::new(&gcc);
    prepare(&mut command, args, &gcc, &sdk)?;
    if links {
        command.args(LINK);
    }
    command.args(&args.args);
    if links {
        link(&mut command, args, &gcc, &sdk, folder.path())?;
    }
    execute(&mut command, &gcc)?;
    if args.check {
        let output = result(&args.args, links)
            .context("--check needs a file to look at: link, or give -o with -c")?;
        check::check(&output, format)?;
    }
    Ok(())
}

/// Acts as a compiler for build systems: with the assembler, the headers and the architecture of
/// the card, and nothing else.
pub(crate) fn driver(language: &str, args: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let prefix = std::env::var("CROSS_COMPILE").ok();
    let gcc = toolchain::compiler(prefix.as_deref(), language)?;
    let sdk = Sdk::find(std::env::var_os("ET_KERNEL_FILES").as_deref().map(Path::new))?;
    let mut command = Command::new(&gcc);
    let specs = toolchain::has_picolibc(&gcc)?;
    sdk.apply(&mut command, &gcc, specs.is_some())?;
    command.args(ARCHITECTURE);
    if let Some(specs) = specs {
        command.arg(format!("--specs={}", specs.display()));
    }
    // Stock toolchains come with one linker.
    command.args(args.iter().filter(|arg| *arg != "-fuse-ld=lld"));
    let status = command.status().with_context(|| format!("running {}", gcc.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// What is before the user's options.
fn prepare(command: &mut Command, args: &Args, gcc: &Path, sdk: &Sdk) -> anyhow::Result<()> {
    sdk.apply(command, gcc, args.libc != Library::None)?;
    command.args(ARCHITECTURE).args(COMPILE);
    if args.libc == Library::Picolibc {
        command.arg(format!("--specs={}", toolchain::picolibc(gcc)?.display()));
    }
    Ok(())
}

fn execute(command: &mut Command, gcc: &Path) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("running {}", gcc.display()))?;
    // The compiler has said why.
    ensure!(status.success(), "{} failed", gcc.display());
    Ok(())
}

fn has_extension(name: &OsStr, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| extensions.contains(&extension))
}

/// Returns `true` if these arguments make the compiler link.
fn links(args: &[OsString]) -> bool {
    let stops = args.iter().any(|arg| NO_LINK.iter().any(|option| arg == option));
    // Questions such as -print-file-name have no inputs.
    let inputs = ["c", "S", "s", "o", "a", "cc", "cpp", "i"];
    let has_input = args.iter().any(|arg| has_extension(arg, &inputs));
    has_input && !stops
}

fn has(args: &[OsString], option: &str) -> bool {
    args.iter().any(|arg| arg == option)
}

/// Adds what is linked.
fn link(
    command: &mut Command,
    args: &Args,
    gcc: &Path,
    sdk: &Sdk,
    folder: &Path,
) -> anyhow::Result<()> {
    // A kernel with a start of its own says so as usual.
    let start = (!has(&args.args, "-nostartfiles")).then_some("crt.S");
    let text = (args.libc == Library::None).then_some("string.c");
    for source in start.into_iter().chain(text).chain(["print.c"]) {
        let object = folder.join(source).with_extension("o");
        let mut compile = Command::new(gcc);
        prepare(&mut compile, args, gcc, sdk)?;
        compile.args(RUNTIME).arg(sdk.file("src").join(source)).arg("-o").arg(&object);
        execute(&mut compile, gcc)?;
        command.arg(object);
    }
    if !args.args.iter().any(|arg| arg.to_string_lossy().starts_with("-T")) {
        command.arg("-T").arg(sdk.file("kernel.ld"));
    }
    match args.libc {
        Library::None => command.arg("-nostdlib"),
        Library::Picolibc => command.args(["-nodefaultlibs", "-lm", "-lc", "-lgcc"]),
    };
    Ok(())
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
