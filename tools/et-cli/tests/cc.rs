//! Kernels from source to result with `et cc`, and listings of them.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests: a panic is a failure")]

mod arrays;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const PACKED: &str = include_str!("kernels/packed.c");

fn et(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_et"));
    command.env("ET_LOG", "off").current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed without a word on standard error.
fn good(folder: &Path, args: &[&str]) -> String {
    let output = et(folder, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must fail; returns what it says.
fn bad(folder: &Path, args: &[&str]) -> String {
    let output = et(folder, args);
    assert!(!output.status.success(), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// A folder with a source; none if there is no compiler.
fn folder(name: &str, source: &str) -> Option<TempDir> {
    if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
        eprintln!("skipped, because riscv64-unknown-elf-gcc is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), source).unwrap();
    Some(folder)
}

#[test]
fn a_kernel_with_packed_instructions_computes_on_the_simulator() {
    let Some(folder) = folder("packed.c", PACKED) else { return };
    let path = folder.path();
    let n = 1003_u16;
    let x: Vec<_> = (0..n).map(|i| f32::from(i) / 16.0).collect();
    let y: Vec<_> = (0..n).map(|i| 50.0 - f32::from(i)).collect();
    arrays::save(path.join("x.npy"), &x);
    arrays::save(path.join("y.npy"), &y);
    for options in [&["-O2", "-g1"][..], &["-Os", "-march=rv64imf", "-pipe"], &["-O3", "-flto"]] {
        let mut args = vec!["cc", "--check"];
        args.extend(options);
        args.extend(["packed.c", "-o", "packed.elf"]);
        good(path, &args);
        let run = [
            "--device",
            "sim:shires=2,dram=1GiB",
            "run",
            "packed.elf",
            "--arg",
            "in:x.npy",
            "--arg",
            "in:y.npy",
            "--arg",
            "out:z.npy:f32[1003]",
            "--arg",
            "u64:1003",
        ];
        good(path, &run);
        let bytes = fs::read(path.join("z.npy")).unwrap();
        let z = npyz::NpyFile::new(&bytes[..]).unwrap().into_vec::<f32>().unwrap();
        for ((x, y), z) in x.iter().zip(&y).zip(z) {
            assert_eq!(z.to_bits(), x.mul_add(*y, 1.0).to_bits(), "{options:?}: {x} * {y} + 1");
        }
    }
}

#[test]
fn a_listing_shows_vendor_instructions_and_targets() {
    let Some(folder) = folder("packed.c", PACKED) else { return };
    good(folder.path(), &["cc", "-O2", "packed.c", "-o", "packed.elf"]);
    let listing = good(folder.path(), &["objdump", "packed.elf"]);
    for part in [
        "packed.elf: entry 0x8005801000",
        "<_start>:\n8005801000:  ",
        "<et_task>:",
        "  57f0707b  mov.m.x m0, zero, 0xff\n",
        "csrrs zero, hartid, zero  # number of the hart on the chip\n",
        "  3f80011f  fbci.ps ft2, 0x3f800\n",
        "fmadd.ps ft0, ft0, ft1, ft2, rne\n",
        " <et_task+0x",
        "  8082      c.jr ra\n",
    ] {
        assert!(listing.contains(part), "{part} is not in\n{listing}");
    }
    let one = good(folder.path(), &["objdump", "packed.elf", "--function", "et_task"]);
    assert!(one.contains("<et_task>:") && !one.contains("<_start>:"));
    let json = good(folder.path(), &["--json", "objdump", "packed.elf", "--function", "et_task"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let instructions = json["instructions"].as_array().unwrap();
    assert!(
        instructions
            .iter()
            .any(|line| line["text"] == "flw.ps ft1, 0(a3)" || line["vendor"] == true)
    );
    assert!(instructions.iter().all(|line| line["symbol"]["name"] == "et_task"));
    let none = bad(folder.path(), &["objdump", "packed.elf", "--function", "nothing"]);
    assert!(none.contains("no function nothing"), "{none}");
    let other = bad(folder.path(), &["objdump", "packed.c"]);
    assert!(other.contains("not a usable ELF file"), "{other}");
}

#[test]
fn check_names_what_the_card_traps_on() {
    let source = "#include <et/device.h>\nfloat f(float a, int64_t b) { return a / 3.1f + b; }\n\
                  int g(int *p) { return __atomic_fetch_add(p, 1, 0); }\n\
                  int64_t entry_point(const struct args *a, const struct kernel_environment *e)\n\
                  { return (int64_t)f((uintptr_t)a, (uintptr_t)e) + g((int *)a); }\n";
    let Some(folder) = folder("k.c", source) else { return };
    let flags = ["cc", "--check", "-O1", "-fno-inline", "-g1", "-mfdiv", "-march=rv64imafc"];
    let found = bad(folder.path(), &[&flags[..], &["k.c", "-o", "k.elf"]].concat());
    for part in [
        "k.c:2: fdiv.s fa0, fa0, fa5, dyn: traps on the card, cause 30, at 0x80058010",
        "k.c:2: fcvt.s.l fa5, a0, dyn: traps on the card, cause 30, at 0x80058010",
        " in f+0x",
        " in g+0x",
        "not an instruction of the card, cause 2, at 0x",
        "error: k.elf: the card traps on 5 instructions",
    ] {
        assert!(found.contains(part), "{part} is not in\n{found}");
    }
    let again = bad(folder.path(), &["cc", "--check", "k.elf"]);
    assert_eq!(again, found, "the same without compiling");
    let object = bad(folder.path(), &[&flags[..], &["-c", "k.c", "-o", "k.o"]].concat());
    assert!(
        object.contains("k.o: fdiv.s")
            && object.contains(" in f+0x")
            && object.contains("cause 30"),
        "{object}"
    );
    let unnamed = bad(folder.path(), &[&flags[..], &["-c", "k.c"]].concat());
    assert!(unnamed.contains("--check needs a file"), "{unnamed}");
}

#[test]
fn mistakes_have_the_place_in_the_source() {
    let Some(folder) = folder("k.c", "void f(void)\n{\n__asm__(\"fadd.ps f0, f1, a2\");\n}\n")
    else {
        return;
    };
    let message = bad(folder.path(), &["cc", "-c", "k.c"]);
    assert!(
        message.contains("k.c:3: Error: operand 3, `a2', is not a float register in `fadd.ps"),
        "{message}"
    );
}

#[test]
fn a_kernel_with_its_own_start_is_linked_without_ours() {
    let source = ".globl _start\n_start: li a0, 8\n li a1, 0\n li a2, 0\n ecall\n";
    let Some(folder) = folder("k.S", source) else { return };
    good(folder.path(), &["cc", "--check", "-nostartfiles", "k.S", "-o", "k.elf"]);
    good(folder.path(), &["--device", "sim:shires=2,dram=1GiB", "run", "k.elf"]);
}

#[test]
fn the_c_library_is_linked_on_request() {
    let source = "#include <et/device.h>\n#include <string.h>\n\
                  int64_t entry_point(const struct args *a, const struct kernel_environment *e)\n\
                  { (void)a; return -(int64_t)strlen((const char *)e + 64 - 64) * 0; }\n";
    let Some(folder) = folder("k.c", source) else { return };
    let specs =
        Command::new("riscv64-unknown-elf-gcc").arg("-print-file-name=picolibc.specs").output();
    let arguments = ["cc", "--libc", "picolibc", "--check", "-O1", "k.c", "-o", "k.elf"];
    if text(&specs.unwrap().stdout).starts_with('/') {
        good(folder.path(), &arguments);
        let listing = good(folder.path(), &["objdump", "k.elf", "--function", "strlen"]);
        assert!(listing.contains("<strlen>:"));
        good(folder.path(), &["--device", "sim:shires=2,dram=1GiB", "run", "k.elf"]);
    } else {
        eprintln!("skipped, because picolibc-riscv64-unknown-elf is not installed");
        let message = bad(folder.path(), &arguments);
        assert!(message.contains("install the package picolibc-riscv64-unknown-elf"), "{message}");
    }
}

#[test]
fn a_missing_compiler_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let message = bad(folder.path(), &["cc", "--prefix", "no-such-", "k.c"]);
    assert!(message.contains("no-such-gcc not found; install the package"), "{message}");
}

#[test]
fn the_projects_own_kernels_consist_of_known_instructions() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    let mut seen = String::new();
    for entry in fs::read_dir(&kernels).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let listing = good(&kernels, &["objdump", &name]);
        // Zeros fill gaps, and are what one kernel traps on.
        let is_unknown = |line: &&str| line.contains("byte 0x") && !line.ends_with("0x0000");
        let unknown: Vec<_> = listing.lines().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        seen += &listing;
    }
    // What `et/atomic.h` has for all types.
    for operation in ["add", "swap", "xor", "or", "and", "min", "max", "minu", "maxu", "cmpswap"] {
        let mnemonic = format!("  amo{operation}g.d ");
        assert!(seen.contains(&mnemonic), "no kernel has {mnemonic}");
    }
    for mnemonic in ["  amoaddl.d ", "  amoswapg.w ", "  sbg ", "  shg ", ", flb, ", ", fcc, "] {
        assert!(seen.contains(mnemonic), "no kernel has {mnemonic}");
    }
}
