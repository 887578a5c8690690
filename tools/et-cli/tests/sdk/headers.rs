//! Each header alone, in each language.

use std::path::{Path, PathBuf};

use super::{WARNINGS, cc, compilers, has_compiler, sdk};

/// Users may want to know more about their own code.
const MORE: [&str; 4] = ["-Wconversion", "-Wshadow", "-Wcast-qual", "-Wundef"];

fn headers(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => headers(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn every_header_stands_alone() {
    if !has_compiler() {
        return;
    }
    let mut found = Vec::new();
    headers(&sdk().join("include").canonicalize().unwrap(), &mut found);
    headers(&sdk().join("compat").canonicalize().unwrap(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let folder = tempfile::tempdir().unwrap();
    for header in &found {
        let source = folder.path().join("source");
        // By its path, or it is a header of the system, about which compilers say nothing.
        let include = format!("#include \"{}\"\n", header.display());
        std::fs::write(&source, include.repeat(2) + "typedef int not_empty;\n").unwrap();
        let source = source.to_str().unwrap();
        for language in [["-xc", "-std=c11"], ["-xc", "-std=gnu99"], ["-xc++", "-std=c++17"]] {
            for compiler in compilers() {
                let options = [&WARNINGS[..], &MORE, &["-fsyntax-only"], &language, &[source]];
                cc(&[compiler, &options.concat()].concat());
            }
        }
    }
}

#[test]
fn assembly_has_the_numbers_and_macros() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("k.S");
    let text = "#include <et/device.h>\n.globl _start\n_start: et_harts t1, a1\n et_index t2, a1\n\
                et_hart_id t3\n et_store_g64 t3, a0\n csrwi ET_CSR_TENSOR_WAIT, 6\n ecall\n";
    std::fs::write(&source, text).unwrap();
    let elf = folder.path().join("k.elf");
    let [source, elf] = [source.to_str().unwrap(), elf.to_str().unwrap()];
    for compiler in compilers() {
        cc(&[&["--check"], compiler, &["-nostartfiles", source, "-o", elf]].concat());
    }
}
