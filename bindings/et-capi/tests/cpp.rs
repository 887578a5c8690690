//! The C++ layer and the original runtime's interface on it, which are in `bindings/et-cpp`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;
#[path = "common/prefix.rs"]
mod prefix;

use std::path::{Path, PathBuf};
use std::process::Command;

use prefix::{ADDRESS_SANITIZER, Prefix, has_sanitizer, is_there, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../et-cpp")
}

fn includes() -> [String; 2] {
    ["include", "compat/include"].map(|name| format!("-I{}", folder().join(name).display()))
}

/// Compiles the original's interface: to objects, or with `-fsyntax-only` to nothing.
fn compatibility(prefix: &Prefix, more: &[&str]) -> Vec<PathBuf> {
    let mut sources: Vec<_> = std::fs::read_dir(folder().join("compat/src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "cpp"))
        .collect();
    sources.sort();
    let mut objects = Vec::new();
    for source in sources {
        let name = source.with_extension("o");
        let object = prefix.file(name.file_name().unwrap().to_str().unwrap());
        let mut command = prefix.compiler("c++", more);
        command.arg("-Wshadow").args(includes()).arg("-c").arg(source).arg("-o").arg(&object);
        run(&mut command);
        objects.push(object);
    }
    objects
}

/// Builds a test of the layer, or with its objects of the original's interface, and runs it.
/// Returns what it said.
fn passes(prefix: &Prefix, test: &str, objects: &[PathBuf], more: &[&str]) -> String {
    let sources = [&[folder().join("tests").join(test)], objects].concat();
    let includes = includes();
    let mut flags = more.to_vec();
    flags.extend(includes.iter().map(String::as_str));
    flags.push("-Wshadow");
    let program = prefix.build("c++", &sources, &flags);
    let said = run(Command::new(program).arg(common::kernels()));
    assert!(said.contains(": passed") && !said.contains("skipped"), "{said}");
    said
}

#[test]
fn the_layer_works() {
    if is_there("c++", &["--version"]) {
        let prefix = Prefix::new();
        for standard in ["-std=c++17", "-std=c++20"] {
            passes(&prefix, "layer.cpp", &[], &[standard]);
        }
    }
}

#[test]
fn its_graphs_work() {
    if is_there("c++", &["--version"]) {
        passes(&Prefix::new(), "graph.cpp", &[], &["-std=c++17"]);
    }
}

#[test]
fn the_original_interface_works() {
    let has_cereal = ["-fsyntax-only", "-include", "cereal/cereal.hpp", "-x", "c++", "/dev/null"];
    if is_there("c++", &["--version"]) {
        let prefix = Prefix::new();
        let objects = compatibility(&prefix, &["-std=c++17"]);
        passes(&prefix, "compat.cpp", &objects, &["-std=c++17"]);
        let said = passes(&prefix, "profile.cpp", &objects, &["-std=c++17"]);
        let are_read = said.contains("read by cereal");
        assert_eq!(are_read, is_there("c++", &has_cereal), "{said}");
        let without = ["-std=c++17", "-DRT_WITHOUT_CEREAL"];
        passes(&prefix, "profile.cpp", &objects, &without);
        for more in [&without[..], &["-std=c++20"]] {
            compatibility(&prefix, &[more, &["-fsyntax-only"]].concat());
        }
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    let prefix = Prefix::new();
    if has_sanitizer(&prefix, "c++") {
        let flags = [&["-std=c++17"], &ADDRESS_SANITIZER[..]].concat();
        let objects = compatibility(&prefix, &flags);
        passes(&prefix, "compat.cpp", &objects, &flags);
        passes(&prefix, "profile.cpp", &objects, &flags);
        passes(&prefix, "graph.cpp", &[], &flags);
    }
}

#[test]
fn the_trace_decoder_is_c_too() {
    if !is_there("cc", &["--version"]) {
        return;
    }
    let prefix = Prefix::new();
    let source = prefix.file("trace.c");
    let text = "#define ET_TRACE_DECODER_IMPL\n#include <et-trace/decoder.h>\n\
        int main(void) { return Trace_Decode(0, 0) != 0; }\n";
    std::fs::write(&source, text).unwrap();
    let include = format!("-I{}", folder().join("compat/include").display());
    let program = prefix.build("cc", &[source], &["-std=c11", &include]);
    run(&mut Command::new(program));
}
