//! Programs in C and C++ against the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const ADDRESS_SANITIZER: [&str; 2] = ["-fsanitize=address", "-g"];

/// A folder with the library under its installed names.
pub(crate) struct Prefix {
    pub(crate) folder: tempfile::TempDir,
}

impl Prefix {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Beside this test program.
        let built = std::env::current_exe().unwrap().with_file_name("libet_capi.so");
        assert!(built.exists(), "{} is built with the tests", built.display());
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let prefix = Self { folder };
        for name in ["pkgconfig", "cmake/et"] {
            std::fs::create_dir_all(prefix.file("lib").join(name)).unwrap();
        }
        let link = |to: &Path, name| std::os::unix::fs::symlink(to, prefix.file(name)).unwrap();
        link(&built, "lib/libet.so");
        link(&built, "lib/libet.so.0");
        link(&package.join("include"), "include");
        link(&package.join("cmake/etConfig.cmake"), "lib/cmake/et/etConfig.cmake");
        for (template, name) in [
            ("et.pc.in", "lib/pkgconfig/et.pc"),
            ("cmake/etConfigVersion.cmake.in", "lib/cmake/et/etConfigVersion.cmake"),
        ] {
            let text = std::fs::read_to_string(package.join(template)).unwrap();
            let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
            std::fs::write(prefix.file(name), text).unwrap();
        }
        prefix
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The compiler, to which warnings are errors, with the library's headers.
    pub(crate) fn compiler(&self, compiler: &str, more: &[&str]) -> Command {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-O1"]).args(more);
        command.arg("-I").arg(self.file("include"));
        command
    }

    /// Builds a program.
    pub(crate) fn build(&self, compiler: &str, sources: &[PathBuf], more: &[&str]) -> PathBuf {
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        let program = self.file(&format!("program{}", PROGRAMS.fetch_add(1, Ordering::Relaxed)));
        let mut command = self.compiler(compiler, more);
        command.args(sources).arg("-o").arg(&program);
        command.arg("-L").arg(self.file("lib")).args(["-let", "-pthread"]);
        command.arg(format!("-Wl,-rpath,{}", self.file("lib").display()));
        run(&mut command);
        program
    }
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

#[expect(clippy::print_stderr, reason = "says what was not tested")]
pub(crate) fn is_there(tool: &str, args: &[&str]) -> bool {
    let works = Command::new(tool).args(args).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped, because {tool} {} does not work here", args.join(" "));
    }
    works
}

/// Whether a compiler can build and link with the address sanitizer.
pub(crate) fn has_sanitizer(prefix: &Prefix, compiler: &str) -> bool {
    let source = prefix.file("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let (source, program) = (source.to_string_lossy(), prefix.file("empty"));
    let program = program.to_string_lossy();
    is_there(compiler, &[ADDRESS_SANITIZER[0], "-x", "c", &source, "-o", &program])
}
