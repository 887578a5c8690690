//! The examples, built by the compilers of this machine against the library, and run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;
#[path = "common/prefix.rs"]
mod prefix;

use std::path::{Path, PathBuf};
use std::process::Command;

use prefix::{ADDRESS_SANITIZER, Prefix, has_sanitizer, is_there, run};

const DEVICE: &str = "sim:shires=2,dram=1GiB";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn build(prefix: &Prefix, compiler: &str, name: &str, more: &[&str]) -> PathBuf {
    prefix.build(compiler, &[example(name)], more)
}

fn c_example(mut command: Command) -> String {
    run(command.arg(DEVICE).arg(common::kernels()))
}

fn graph(prefix: &Prefix, mut command: Command) {
    let profile = prefix.file("profile.json");
    let said = run(command.arg(DEVICE).arg(common::kernels()).arg(&profile));
    assert!(said.contains("the graph ran twice"), "{said}");
    let profile = std::fs::read_to_string(profile).unwrap();
    assert!(profile.contains("\"traceEvents\""), "{profile}");
}

#[test]
fn a_graph_in_c_leaves_a_profile_of_its_tasks_and_memory() {
    if !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    let path = prefix.file("profile.json");
    let mut command = Command::new(build(&prefix, "cc", "formula.c", &["-std=c99"]));
    run(command.arg(DEVICE).arg(common::kernels()).arg(&path));
    let profile = std::fs::read_to_string(path).unwrap();
    let count = |part: &str| profile.matches(part).count();
    assert_eq!(count("\"cat\":\"task\""), 4, "{profile}");
    // Both sums wait for the first, and the product for both: an arrow has two ends.
    assert_eq!(count("\"cat\":\"dependency\""), 2 * 4, "{profile}");
    assert!(count("\"name\":\"device memory\"") >= 1, "{profile}");
    assert!(profile.contains("\"incomplete\":[]"), "{profile}");
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
        let program = build(&prefix, "cc", "saxpy.c", &[standard]);
        let said = c_example(Command::new(&program));
        for part in ["1000 elements are right", "freed twice: et_mem", "cause 5", "load_from_null"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn the_c_example_of_lists_and_management_runs() {
    if !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    for standard in ["-std=c99", "-std=c11"] {
        let said = c_example(Command::new(build(&prefix, "cc", "card.c", &[standard])));
        for part in ["MHz", "states what the kernel takes: x[] y[] a n", "the memory is back"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

/// Each of the programs in a language.
fn elements_are_right(prefix: &Prefix, compiler: &str, extension: &str, more: &[&str]) {
    let folder = match extension {
        "c" => example(""),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../et-cpp/examples"),
    };
    let include = format!("-I{}", folder.join("../../et-cpp/include").display());
    for (name, elements) in [("saxpy", 1000), ("formula", 16384), ("matmul", 3072)] {
        let source = folder.join(name).with_extension(extension);
        let program = prefix.build(compiler, &[source], &[more, &[&include]].concat());
        let said = c_example(Command::new(program));
        assert!(said.contains(&format!("{elements} elements are right")), "{name}: {said}");
    }
}

#[test]
fn formula_saxpy_and_matmul_run_in_c_and_cpp() {
    for (compiler, extension, standard) in [("cc", "c", "-std=c99"), ("c++", "cpp", "-std=c++17")] {
        if is_there(compiler, &["--version"]) {
            elements_are_right(&Prefix::new(), compiler, extension, &[standard]);
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
        let program = build(&prefix, "c++", "graph.cpp", &[standard]);
        graph(&prefix, Command::new(&program));
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    let prefix = Prefix::new();
    if has_sanitizer(&prefix, "cc") {
        c_example(Command::new(build(&prefix, "cc", "saxpy.c", &ADDRESS_SANITIZER)));
        c_example(Command::new(build(&prefix, "cc", "card.c", &ADDRESS_SANITIZER)));
    }
    if has_sanitizer(&prefix, "c++") {
        graph(&prefix, Command::new(build(&prefix, "c++", "graph.cpp", &ADDRESS_SANITIZER)));
        elements_are_right(&prefix, "c++", "cpp", &ADDRESS_SANITIZER);
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !is_there("valgrind", &["--version"]) || !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    c_example(valgrind(&build(&prefix, "cc", "saxpy.c", &["-g"])));
    c_example(valgrind(&build(&prefix, "cc", "card.c", &["-g"])));
    c_example(valgrind(&build(&prefix, "cc", "formula.c", &["-g"])));
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
    c_example(command);
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
    c_example(Command::new(prefix.file("build/saxpy")));
}
