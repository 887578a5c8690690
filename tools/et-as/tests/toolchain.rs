//! Behind a stock compiler.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests: a panic is a failure")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const FLAGS: [&str; 5] =
    ["-march=rv64imf", "-mabi=lp64f", "-mcmodel=medany", "-ffreestanding", "-O2"];

/// A directory with the front end as `as`, and sources; none if there is no compiler.
fn folder(files: &[(&str, &str)]) -> Option<TempDir> {
    if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
        eprintln!("skipped, because riscv64-unknown-elf-gcc is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let link = folder.path().join("bin/as");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_et-as"), link).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Some(folder)
}

fn gcc(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("riscv64-unknown-elf-gcc");
    command.current_dir(folder).args(["-B", "bin/"]).args(FLAGS).args(args).output().unwrap()
}

fn works(folder: &Path, args: &[&str]) {
    let output = gcc(folder, args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && message.is_empty(), "{message}");
}

/// The instructions of a file's code, as text.
fn code(folder: &Path, file: &str) -> String {
    let binary = folder.join("code.bin");
    let status = Command::new("riscv64-unknown-elf-objcopy")
        .args(["-O", "binary", "-j", ".text"])
        .arg(folder.join(file))
        .arg(&binary)
        .status();
    assert!(status.unwrap().success());
    let code = fs::read(binary).unwrap();
    let text = |(_, word)| et_isa::decode(word).unwrap().text().to_string() + "\n";
    et_isa::words(&code).map(text).collect()
}

const KERNEL: &str = r#"
float table[16];
#define MASK 0xB1
#define STRING_(x) #x
#define STRING(x) STRING_(x)
void scale(float *x, const float *factor)
{
    __asm__ volatile("mov.m.x m0, zero, 0xff\n\t"
                     "fbc.ps f1, %1\n\t"
                     "flw.ps f0, %0\n\t"
                     "fswizz.ps f2, f0, " STRING(MASK) "\n\t"
                     "fbci.ps f3, 0x3f800 # one\n\t"
                     "fmadd.ps f0, f0, f1, f3, rne; fsw.ps f0, %0"
                     : "+m"(*(float(*)[8])x) : "m"(*factor) : "f0", "f1", "f2", "f3");
    __asm__ volatile("flw.ps f0, %0\n1:\taddi %1, %1, 1\n\tblt %1, zero, 1b"
                     : : "m"(table), "r"(x) : "f0");
}
"#;

const EXPECTED: [&str; 8] = [
    "mov.m.x m0, zero, 0xff",
    "fbc.ps ft1, 0(a1)",
    "flw.ps ft0, 0(a0)",
    "fswizz.ps ft2, ft0, 0xb1",
    "fbci.ps ft3, 0x3f800",
    "fmadd.ps ft0, ft0, ft1, ft3, rne",
    "fsw.ps ft0, 0(a0)",
    "flw.ps ft0, ",
];

#[test]
fn compiled_with_everything_that_makes_assembly_longer() {
    let Some(folder) = folder(&[("k.c", KERNEL)]) else { return };
    for extra in [&[][..], &["-g"], &["-pipe"], &["-march=rv64imfc", "-g3", "-save-temps"]] {
        works(folder.path(), &[&["-c", "k.c", "-o", "k.o"], extra].concat());
        let code = code(folder.path(), "k.o");
        for expected in EXPECTED {
            assert!(code.contains(expected), "{extra:?}: {expected} is not in\n{code}");
        }
    }
}

#[test]
fn link_time_optimisation_comes_here_a_second_time() {
    let start =
        "void scale(float*, const float*); float x[8], y;\nvoid _start(void) { scale(x, &y); }\n";
    let Some(folder) = folder(&[("k.c", KERNEL), ("start.c", start)]) else { return };
    for lto in [&["-flto", "-ffat-lto-objects"][..], &["-flto"]] {
        works(folder.path(), &[&["-c", "k.c", "-o", "k.o"], lto].concat());
        works(folder.path(), &[&["-c", "start.c", "-o", "start.o"], lto].concat());
        let link = ["-nostdlib", "-Wl,-Ttext=0x8005801000", "k.o", "start.o", "-o", "k.elf"];
        works(folder.path(), &[lto, &link].concat());
        assert!(code(folder.path(), "k.elf").contains("fmadd.ps ft0, ft0, ft1, ft3, rne"));
    }
}

#[test]
fn offsets_that_the_linker_fills_in_are_right() {
    let source = ".globl _start\n_start:\n1:\tauipc a5, %pcrel_hi(data)\n\tflw.ps f0, %pcrel_lo(1b)(a5)\n\
                  \tfsw.ps f0, %pcrel_lo(1b)(a5)\n\t.equ size, end - _start\nend:\n\
                  \tmov.m.x m0, zero, end - _start\n\
                  .macro add8 d, s\n\tfadd.ps \\d, \\s, f1\n\tfaddi.pi f2, f3, \\@ + 7\n.endm\n\
                  \tadd8 f4, fa5\n\t.data\n\t.zero 24\ndata:\t.zero 32\n";
    let Some(folder) = folder(&[("k.S", source)]) else { return };
    let link = ["-Wl,--no-relax", "-Wl,-Ttext=0x8005801000", "-Wl,-Tdata=0x8005802000"];
    works(folder.path(), &[&["-nostdlib", "k.S", "-o", "k.elf"], &link[..]].concat());
    assert_eq!(
        code(folder.path(), "k.elf"),
        "auipc a5, 0x1\nflw.ps ft0, 24(a5)\nfsw.ps ft0, 24(a5)\nmov.m.x m0, zero, 0xc\n\
         fadd.ps ft4, fa5, ft1, dyn\nfaddi.pi ft2, ft3, 7\n"
    );
}

#[test]
fn debug_information_has_lines_for_vendor_instructions() {
    let Some(folder) = folder(&[("k.c", KERNEL)]) else { return };
    works(folder.path(), &["-g", "-c", "k.c", "-o", "k.o"]);
    let dump = Command::new("riscv64-unknown-elf-objdump")
        .args(["--dwarf=decodedline", "k.o"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(dump.lines().any(|line| line.starts_with("k.c") && line.contains(" 8 ")), "{dump}");
}

#[test]
fn mistakes_in_inline_assembly_are_shown_in_the_source() {
    let source = "void f(void)\n{\n    __asm__ volatile(\"flw.ps f0, 0(a0)\\n\\t\"\n\
                  \"flw.ps f0, 2048(a0)\");\n}\n";
    let Some(folder) = folder(&[("k.c", source)]) else { return };
    let output = gcc(folder.path(), &["-c", "k.c", "-o", "k.o"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    let expected = "k.c:4: Error: operand 2 is not in -2048..=2047 in `flw.ps f0, 2048(a0)'";
    assert!(message.contains(expected), "{message}");
    assert!(!folder.path().join("k.o").exists());
}

#[test]
fn the_assemblers_own_mistakes_keep_their_lines() {
    let source =
        "void f(void)\n{\n    __asm__ volatile(\"flw.ps f0, 0(a0)\\n\\tno.such a0\");\n}\n";
    let Some(folder) = folder(&[("k.c", source)]) else { return };
    let output = gcc(folder.path(), &["-c", "k.c", "-o", "k.o"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("k.c:4: Error: unrecognized opcode `no.such a0'"), "{message}");
    assert!(!output.status.success());
}

#[test]
fn the_program_passes_on_what_is_for_the_assembler() {
    let Some(folder) = folder(&[("a.s", "\tflw.ps f0, N(a0)\n"), ("b.s", "\tnop\n")]) else {
        return;
    };
    let run = |args: &[&str]| {
        let front = folder.path().join("bin/as");
        Command::new(front).current_dir(folder.path()).args(args).output().unwrap()
    };
    let version = run(&["--version"]);
    assert!(String::from_utf8_lossy(&version.stdout).contains("GNU assembler"));
    let output = run(&["-march=rv64imf", "--defsym", "N=8", "-o", "a.o", "a.s", "b.s"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(code(folder.path(), "a.o"), "flw.ps ft0, 8(a0)\naddi zero, zero, 0\n");
    let missing = run(&["-o", "a.o", "none.s"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("none.s: No such file"));
    assert!(!missing.status.success());
}
