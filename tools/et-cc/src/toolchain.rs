//! What kernels are built with: a stock compiler, and the device SDK.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

/// What the compiler is for: the program `PREFIXgcc`.
const PREFIXES: [&str; 3] = ["riscv64-unknown-elf-", "riscv64-elf-", "riscv-none-elf-"];

/// Where the device SDK is in an installed prefix.
const INSTALLED: &str = "lib/et/device";

/// Another compiler than GCC, which works with the assembler, the linker and the support library of
/// a GCC.
#[derive(Debug)]
pub(crate) struct Clang {
    pub(crate) program: PathBuf,
    /// What makes it compile for the target of that GCC, and find its tools.
    pub(crate) options: [OsString; 4],
}

impl Clang {
    /// Takes a program, which must be a Clang.
    pub(crate) fn find(program: &Path, gcc: &Path) -> anyhow::Result<Self> {
        let name = program.display();
        let output = Command::new(program).arg("--version").output().with_context(|| {
            format!("no compiler {name}: install the package clang, or leave --compiler out")
        })?;
        let says = String::from_utf8_lossy(&output.stdout);
        let first = says.lines().next().unwrap_or_default();
        ensure!(first.contains("clang version"), "{name} is no Clang: {first}");
        // PREFIX/lib/gcc/TARGET/VERSION/include
        let include = ask(gcc, "-print-file-name=include")?;
        let version = include.as_deref().and_then(Path::parent);
        let target = version.and_then(Path::parent);
        let prefix = target.and_then(|target| target.ancestors().nth(3));
        let (Some(target), Some(prefix)) = (target.and_then(Path::file_name), prefix) else {
            bail!("{} does not say where it is installed", gcc.display());
        };
        let with = |option: &str, value: &OsStr| {
            let mut option = OsString::from(option);
            option.push(value);
            option
        };
        let options = [
            with("--target=", target),
            with("--gcc-toolchain=", prefix.as_os_str()),
            // It has an assembler of its own, which does not know the vendor's instructions.
            "-fno-integrated-as".into(),
            // Stock options that mean nothing in one of its steps.
            "-Wno-unused-command-line-argument".into(),
        ];
        Ok(Self { program: program.to_owned(), options })
    }
}

/// Finds the compiler of a language, `gcc` or `g++`.
pub(crate) fn compiler(prefix: Option<&str>, language: &str) -> anyhow::Result<PathBuf> {
    let prefixes = prefix.map_or(PREFIXES.to_vec(), |prefix| vec![prefix]);
    for prefix in &prefixes {
        let gcc = PathBuf::from(format!("{prefix}{language}"));
        if Command::new(&gcc).arg("-dumpversion").output().is_ok() {
            return Ok(gcc);
        }
    }
    bail!(
        "no compiler for bare RISC-V: {} not found; install the package gcc-riscv64-unknown-elf \
         (Debian, Ubuntu), riscv64-elf-gcc (Arch, Homebrew), or set CROSS_COMPILE",
        prefixes.iter().map(|prefix| format!("{prefix}{language}")).collect::<Vec<_>>().join(", ")
    )
}

/// Asks the compiler for a path; none if it has nothing of that name.
fn ask(gcc: &Path, question: &str) -> anyhow::Result<Option<PathBuf>> {
    let output = Command::new(gcc).arg(question).output()?;
    let answer = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(answer.is_absolute().then_some(answer))
}

/// The assembler that the compiler would call.
pub(crate) fn assembler(gcc: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = ask(gcc, "-print-prog-name=as")?.or_else(et_as::assembler) {
        return Ok(path);
    }
    bail!(
        "no assembler for {}: install the package binutils-riscv64-unknown-elf (Debian, Ubuntu) \
         or riscv64-elf-binutils (Arch, Homebrew)",
        gcc.display()
    )
}

/// The file that makes the compiler use picolibc; none if it is not installed.
pub(crate) fn has_picolibc(gcc: &Path) -> anyhow::Result<Option<PathBuf>> {
    ask(gcc, "-print-file-name=picolibc.specs")
}

/// The same where it has been asked for.
pub(crate) fn picolibc(gcc: &Path) -> anyhow::Result<PathBuf> {
    has_picolibc(gcc)?.with_context(|| {
        format!(
            "{} does not know picolibc: install the package picolibc-riscv64-unknown-elf (Debian, \
             Ubuntu), or leave --libc out",
            gcc.display()
        )
    })
}

/// Headers, start-up code and linker script for kernels.
#[derive(Debug)]
pub(crate) struct Sdk {
    folder: PathBuf,
    /// Where `as` is, if the SDK has none of its own.
    front: Option<tempfile::TempDir>,
}

impl Sdk {
    /// Finds the SDK: in this folder, or in the prefix or the source tree of this program.
    pub(crate) fn find(folder: Option<&Path>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => Self::beside(&program)?,
        };
        ensure!(
            folder.join("include/et").is_dir(),
            "no device SDK in {}: there is no include/et",
            folder.display()
        );
        let front = match folder.join("bin/as").exists() {
            true => None,
            false => {
                let front = tempfile::tempdir().context("creating a folder for the assembler")?;
                // This program is the assembler front end when it has that name.
                std::os::unix::fs::symlink(program, front.path().join("as"))?;
                Some(front)
            }
        };
        Ok(Self { folder, front })
    }

    fn beside(program: &Path) -> anyhow::Result<PathBuf> {
        let prefix = program.parent().and_then(Path::parent);
        let installed = prefix.map(|prefix| prefix.join(INSTALLED));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/device");
        let places = installed.into_iter().chain(source.canonicalize().ok());
        places.into_iter().find(|place| place.is_dir()).with_context(|| {
            format!(
                "no device SDK for {}: install one with `cargo xtask sdk --prefix DIR` and use its \
                 bin/et, or say --files DIR",
                program.display()
            )
        })
    }

    /// A file of the SDK.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a command of the compiler use the assembler and the headers.
    pub(crate) fn apply(
        &self,
        command: &mut Command,
        gcc: &Path,
        has_libc: bool,
    ) -> anyhow::Result<()> {
        command.env(et_as::REAL_ASSEMBLER, assembler(gcc)?);
        let front = self.front.as_ref().map_or(self.file("bin"), |front| front.path().to_owned());
        // The slash is part of the names that the compiler makes of it.
        command.arg("-B").arg(front.join(""));
        let folders: &[&str] = match has_libc {
            true => &["include", "compat"],
            false => &["include", "compat", "include/nolibc"],
        };
        for folder in folders {
            command.arg("-isystem").arg(self.file(folder));
        }
        Ok(())
    }
}

/// The compiler that a program's name asks for: `et-gcc` and `et-g++` are compilers that know the
/// vendor's instructions, for build systems.
#[must_use]
pub fn language(program: &OsStr) -> Option<&'static str> {
    match program.to_str()? {
        "et-gcc" => Some("gcc"),
        "et-g++" => Some("g++"),
        _ => None,
    }
}
