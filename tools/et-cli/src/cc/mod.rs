//! `et cc`: compiles kernels with a stock compiler.

mod check;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use et_cc::{Compiler, Options};

use crate::output::Format;

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
    /// A Clang to compile with, instead of GCC, whose assembler and linker it uses. Implies
    /// --check: it cannot be told to do without division of floats.
    #[arg(long, value_name = "PROGRAM", env = "ET_CC")]
    compiler: Option<PathBuf>,
    /// What is before `gcc` in the name of GCC.
    #[arg(long, value_name = "PREFIX", env = "CROSS_COMPILE")]
    prefix: Option<String>,
    /// Sources and options for the compiler, such as `-O2 kernel.c -o kernel.elf`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &Args, format: Format) -> anyhow::Result<()> {
    if args.check && args.args.iter().all(|arg| et_cc::has_extension(arg, &["elf"])) {
        return args.args.iter().try_for_each(|file| check::check(Path::new(file), format));
    }
    let library = match args.libc {
        Library::None => et_cc::Library::None,
        Library::Picolibc => et_cc::Library::Picolibc,
    };
    let compiler = Compiler::find(&Options {
        clang: args.compiler.as_deref(),
        prefix: args.prefix.as_deref(),
        files: args.files.as_deref(),
        library,
    })?;
    let name = compiler.program().display();
    let mut call = compiler.call(&args.args)?;
    let status = call.command().status().with_context(|| format!("running {name}"))?;
    // The compiler has said why.
    ensure!(status.success(), "{name} failed");
    match et_cc::result(&args.args, et_cc::links(&args.args)) {
        Some(output) if args.check || compiler.needs_check() => check::check(&output, format),
        None if args.check => {
            bail!("--check needs a file to look at: link, or give -o with -c")
        }
        _ => Ok(()),
    }
}
