//! The examples, built by the compilers of this machine against the library, and run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

const DEVICE: &str = "sim:shires=2,dram=1GiB";
const ADDRESS_SANITIZER: [&str; 2] = ["-fsanitize=address", "-g"];

/// A folder with the library under its installed names.
struct Prefix {
    folder: tempfile::TempDir,
}

impl Prefix {
    fn new() -> Self {
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

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds an example; warnings are errors.
    fn build(&self, compiler: &str, source: &str, more: &[&str]) -> PathBuf {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = self.file(&format!("{}{}", source.replace('.', "_"), more.len()));
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-O1"]).args(more);
        command.arg("-I").arg(self.file("include"));
        command.arg(package.join("examples").join(source)).arg("-o").arg(&program);
        command.arg("-L").arg(self.file("lib")).args(["-let", "-pthread"]);
        command.arg(format!("-Wl,-rpath,{}", self.file("lib").display()));
        run(&mut command);
        program
    }

    fn saxpy(&self, mut command: Command) -> String {
        run(command.arg(DEVICE).arg(common::kernels()))
    }

    fn graph(&self, mut command: Command) {
        let profile = self.file("profile.json");
        let said = run(command.arg(DEVICE).arg(common::kernels()).arg(&profile));
        assert!(said.contains("the graph ran twice"), "{said}");
        let profile = std::fs::read_to_string(profile).unwrap();
        assert!(profile.contains("\"traceEvents\""), "{profile}");
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

#[expect(clippy::print_stderr, reason = "says what was not tested")]
fn is_there(tool: &str, args: &[&str]) -> bool {
    let works = Command::new(tool).args(args).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped, because {tool} {} does not work here", args.join(" "));
    }
    works
}

/// Whether a compiler can build and link with the address sanitizer.
fn has_sanitizer(prefix: &Prefix, compiler: &str) -> bool {
    let source = prefix.file("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let (source, program) = (source.to_string_lossy(), prefix.file("empty"));
    let program = program.to_string_lossy();
    is_there(compiler, &[ADDRESS_SANITIZER[0], "-x", "c", &source, "-o", &program])
}

fn valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    // What is still reachable at the end are tables of handles.
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes"]);
    command.args(["--errors-for-leak-kinds=definite"]).arg(program);
    command
}

#[test]
fn the_c_example_runs() {
    if !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    for standard in ["-std=c99", "-std=c11"] {
        let program = prefix.build("cc", "saxpy.c", &[standard]);
        let said = prefix.saxpy(Command::new(&program));
        for part in ["1000 elements are right", "freed twice: et_mem", "cause 5", "load_from_null"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn the_cpp_example_runs() {
    if !is_there("c++", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    for standard in ["-std=c++17", "-std=c++20"] {
        let program = prefix.build("c++", "graph.cpp", &[standard]);
        prefix.graph(Command::new(&program));
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    let prefix = Prefix::new();
    if has_sanitizer(&prefix, "cc") {
        prefix.saxpy(Command::new(prefix.build("cc", "saxpy.c", &ADDRESS_SANITIZER)));
    }
    if has_sanitizer(&prefix, "c++") {
        prefix.graph(Command::new(prefix.build("c++", "graph.cpp", &ADDRESS_SANITIZER)));
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !is_there("valgrind", &["--version"]) || !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    prefix.saxpy(valgrind(&prefix.build("cc", "saxpy.c", &["-g"])));
}

#[test]
fn pkg_config_names_what_is_needed() {
    if !is_there("pkg-config", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    let ask = |args: &[&str]| {
        let mut command = Command::new("pkg-config");
        run(command.args(args).arg("et").env("PKG_CONFIG_PATH", prefix.file("lib/pkgconfig")))
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let flags = ask(&["--cflags", "--libs"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/saxpy.c");
    let mut command = Command::new("cc");
    command.arg(source).arg("-o").arg(prefix.file("program")).args(flags.split_whitespace());
    run(&mut command);
    let mut command = Command::new(prefix.file("program"));
    command.env("LD_LIBRARY_PATH", prefix.file("lib"));
    prefix.saxpy(command);
}

const CMAKE: &str = "cmake_minimum_required(VERSION 3.16)
project(check LANGUAGES C CXX)
find_package(et 0.1 REQUIRED CONFIG)
add_executable(saxpy ${EXAMPLES}/saxpy.c)
target_link_libraries(saxpy PRIVATE et::et)
";

#[test]
fn cmake_finds_the_package() {
    if !is_there("cmake", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    std::fs::write(prefix.file("CMakeLists.txt"), CMAKE).unwrap();
    let mut command = Command::new("cmake");
    command.arg("-S").arg(prefix.folder.path()).arg("-B").arg(prefix.file("build"));
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.folder.path().display()));
    run(command.arg(format!("-DEXAMPLES={}", examples.display())));
    run(Command::new("cmake").arg("--build").arg(prefix.file("build")));
    prefix.saxpy(Command::new(prefix.file("build/saxpy")));
}
