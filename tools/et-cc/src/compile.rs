//! The call of the compiler.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use crate::toolchain::{self, Clang, Sdk};

/// What the cores execute, and code that can be loaded anywhere. The reasons are in
/// `testing/kernels/rebuild.sh`. The user's options come later, and so win.
const ARCHITECTURE: [&str; 2] = ["-march=rv64imfc", "-mabi=lp64f"];

const COMPILE: [&str; 11] = [
    "-mcmodel=medany",
    "-mno-relax",
    "-msmall-data-limit=0",
    "-ffreestanding",
    "-fno-common",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-pic",
    "-ffunction-sections",
    "-gdwarf-4",
    "-gz=none",
];

/// What Clang has no options for: its loops do not become calls with `-ffreestanding`, and division
/// of floats is left to checks of the result.
const COMPILE_GCC: [&str; 2] = ["-mno-fdiv", "-fno-tree-loop-distribute-patterns"];

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Library {
    #[default]
    /// None: only what the compiler brings, such as `stdint.h`.
    None,
    /// Picolibc.
    Picolibc,
}

/// What a [`Compiler`] is made of; what is not said is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// A Clang, instead of GCC.
    pub clang: Option<&'a Path>,
    /// What is before `gcc` in the name of GCC.
    pub prefix: Option<&'a str>,
    /// The folder of the device SDK.
    pub files: Option<&'a Path>,
    /// The C library.
    pub library: Library,
}

/// A stock compiler, the device SDK, and how kernels are built with them.
#[derive(Debug)]
pub struct Compiler {
    /// It, or what it brings, is used in any case.
    gcc: PathBuf,
    clang: Option<Clang>,
    sdk: Sdk,
    library: Library,
}

/// A call that can be made; what it needs besides lives as long.
#[derive(Debug)]
pub struct Call {
    command: Command,
    _folder: tempfile::TempDir,
}

impl Call {
    /// Returns the command, for its output to be directed.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }
}

impl Compiler {
    /// Finds a compiler for C, and the device SDK: in a folder, or beside this program.
    ///
    /// # Errors
    /// If there is no compiler, or no SDK, or Clang is to use picolibc.
    pub fn find(options: &Options<'_>) -> anyhow::Result<Self> {
        let gcc = toolchain::compiler(options.prefix, "gcc")?;
        let clang = options.clang.map(|program| Clang::find(program, &gcc)).transpose()?;
        ensure!(
            clang.is_none() || options.library == Library::None,
            "picolibc comes with options for GCC only: leave --compiler or --libc out"
        );
        Ok(Self { gcc, clang, sdk: Sdk::find(options.files)?, library: options.library })
    }

    /// Returns the name of the compiler.
    #[must_use]
    pub fn program(&self) -> &Path {
        self.clang.as_ref().map_or(&self.gcc, |clang| &clang.program)
    }

    /// Returns `true` if the compiler may use instructions on which the card traps without being
    /// asked to.
    #[must_use]
    pub fn needs_check(&self) -> bool {
        self.clang.is_some()
    }

    /// Prepares a call with the user's arguments, such as `-O2 kernel.c -o kernel.elf`. Compiles
    /// what belongs to every kernel, if these arguments link.
    ///
    /// # Errors
    /// If a part of the toolchain or the SDK is missing.
    pub fn call(&self, args: &[OsString]) -> anyhow::Result<Call> {
        let folder = tempfile::tempdir().context("creating a folder for temporary files")?;
        let mut command = Command::new(self.program());
        self.prepare(&mut command)?;
        let links = links(args);
        if links {
            command.args(LINK);
        }
        command.args(args);
        if links {
            self.link(&mut command, args, folder.path())?;
        }
        Ok(Call { command, _folder: folder })
    }

    /// What is before the user's options.
    fn prepare(&self, command: &mut Command) -> anyhow::Result<()> {
        self.sdk.apply(command, &self.gcc, self.library != Library::None)?;
        command.args(ARCHITECTURE).args(COMPILE);
        match &self.clang {
            Some(clang) => command.args(&clang.options),
            None => command.args(COMPILE_GCC),
        };
        if self.library == Library::Picolibc {
            command.arg(format!("--specs={}", toolchain::picolibc(&self.gcc)?.display()));
        }
        Ok(())
    }

    /// Adds what is linked.
    fn link(&self, command: &mut Command, args: &[OsString], folder: &Path) -> anyhow::Result<()> {
        // A kernel with a start of its own says so as usual.
        let start = (!has(args, "-nostartfiles")).then_some("crt.S");
        let text = (self.library == Library::None).then_some("string.c");
        for source in start.into_iter().chain(text).chain(["print.c"]) {
            let object = folder.join(source).with_extension("o");
            let mut compile = Command::new(self.program());
            self.prepare(&mut compile)?;
            compile.args(RUNTIME).arg(self.sdk.file("src").join(source)).arg("-o").arg(&object);
            let output = compile.output();
            let output = output.with_context(|| format!("running {}", self.program().display()))?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr);
                bail!("{} of the device SDK does not compile:\n{text}", source);
            }
            command.arg(object);
        }
        if !args.iter().any(|arg| arg.to_string_lossy().starts_with("-T")) {
            command.arg("-T").arg(self.sdk.file("kernel.ld"));
        }
        match self.library {
            Library::None => command.arg("-nostdlib"),
            Library::Picolibc => command.args(["-nodefaultlibs", "-lm", "-lc", "-lgcc"]),
        };
        Ok(())
    }
}

/// Acts as a compiler of a language, `gcc` or `g++`, for build systems: with the
/// assembler, the headers and the architecture of the card, and nothing else.
///
/// # Errors
/// If a part of the toolchain or the SDK is missing.
pub fn driver(language: &str, args: Vec<OsString>) -> anyhow::Result<ExitCode> {
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

/// Returns `true` if a name ends in one of these extensions.
#[must_use]
pub fn has_extension(name: &OsStr, extensions: &[&str]) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| extensions.contains(&extension))
}

/// Returns `true` if these arguments make the compiler link.
#[must_use]
pub fn links(args: &[OsString]) -> bool {
    let stops = args.iter().any(|arg| NO_LINK.iter().any(|option| arg == option));
    // Questions such as -print-file-name have no inputs.
    let inputs = ["c", "S", "s", "o", "a", "cc", "cpp", "i"];
    let has_input = args.iter().any(|arg| has_extension(arg, &inputs));
    has_input && !stops
}

fn has(args: &[OsString], option: &str) -> bool {
    args.iter().any(|arg| arg == option)
}

/// Returns the file that the compiler has written with these arguments.
#[must_use]
pub fn result(args: &[OsString], links: bool) -> Option<PathBuf> {
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
