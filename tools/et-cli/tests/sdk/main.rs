//! The device SDK: its headers alone, and kernels with them on the simulator.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests: a panic is a failure")]

mod headers;
mod math;
mod packed;
mod print;
mod synchronisation;
mod tensor;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use et::{AnyHal, Device, DeviceBuffer, Launch};
use tempfile::TempDir;

/// Long enough for a busy machine; only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);
/// What every kernel must be built without.
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
const CLANG: &[&str] = &["--compiler", "clang"];

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/device")
}

fn et(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_et"));
    command.env("ET_LOG", "off").args(args).output().unwrap()
}

/// Runs `et cc`, which must succeed without a word.
fn cc(args: &[&str]) {
    let output = et(&[&["cc"], args].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
}

/// Returns `true` if kernels can be built here.
fn has_compiler() -> bool {
    let found = Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped, because riscv64-unknown-elf-gcc is not installed");
    }
    found
}

/// The compilers that are installed, as options of `et cc`; the first is GCC.
fn compilers() -> Vec<&'static [&'static str]> {
    if !has_compiler() {
        return Vec::new();
    }
    if Command::new("clang").arg("--version").output().is_err() {
        eprintln!("Clang is skipped, because clang is not installed");
        return vec![&[]];
    }
    vec![&[], CLANG]
}

/// Returns `true` if there is a C library for kernels.
fn has_picolibc() -> bool {
    let question = "-print-file-name=picolibc.specs";
    let output = Command::new("riscv64-unknown-elf-gcc").arg(question).output().unwrap();
    let found = output.stdout.starts_with(b"/");
    if !found {
        eprintln!("skipped, because picolibc-riscv64-unknown-elf is not installed");
    }
    found
}

/// A device, a compiler, and a place for kernels.
struct Rig {
    device: Device<AnyHal>,
    compiler: &'static [&'static str],
    folder: TempDir,
}

impl Rig {
    /// One for each compiler.
    fn each(parameters: &str) -> impl Iterator<Item = Self> {
        let locator = format!("sim:shires=2,dram=1GiB{parameters}");
        compilers().into_iter().map(move |compiler| {
            let device = et::open(&locator).unwrap();
            Self { device, compiler, folder: tempfile::tempdir().unwrap() }
        })
    }

    /// Returns `true` if the compiler has such an option.
    fn knows(&self, option: &str) -> bool {
        // Of GCC alone; for its optimizer at link time Clang needs another linker.
        let only_gcc = ["-flto", "-mno-fdiv", "--libc=picolibc"].contains(&option);
        self.compiler.is_empty() || !only_gcc
    }

    /// A launch of a kernel of `bindings/device/tests`, built with these options.
    fn launch(&self, source: &str, options: &[&str]) -> Launch {
        self.launch_with(&[], source, options)
    }

    /// The same, with options of `et cc` itself.
    fn launch_with(&self, ours: &[&str], source: &str, options: &[&str]) -> Launch {
        let path = sdk().join("tests").join(source);
        let elf = self.folder.path().join("kernel.elf");
        let files = [path.to_str().unwrap(), "-o", elf.to_str().unwrap()];
        cc(&[&["--check"], ours, self.compiler, &WARNINGS, options, &files].concat());
        let kernel = self.device.load_kernel(source, &std::fs::read(&elf).unwrap()).unwrap();
        Launch::new(&kernel)
    }

    /// A buffer with these words.
    fn words(&self, words: &[u64]) -> DeviceBuffer {
        let buffer = self.device.alloc_aligned(words.len() as u64 * 8, 64).unwrap();
        let stream = self.device.default_stream();
        stream.copy_to_device(words, &buffer).unwrap().wait(LONG).unwrap();
        buffer
    }

    fn run(&self, launch: &Launch) {
        self.device.default_stream().launch(launch).unwrap().wait(LONG).unwrap();
    }

    fn read<const N: usize>(&self, buffer: &DeviceBuffer) -> [u64; N] {
        let mut words = [0; N];
        self.device.default_stream().read(buffer, &mut words, LONG).unwrap();
        words
    }
}

#[test]
fn memory_and_text_functions_work_without_a_library() {
    for rig in Rig::each("") {
        for options in [&["-O0", "-std=c11"], &["-O2", "-fno-builtin"], &["-O3", "-flto"]] {
            if rig.knows(options[1]) {
                let out = rig.words(&[u64::MAX; 2]);
                rig.run(&rig.launch("text.c", options).buffer(&out));
                assert_eq!(rig.read(&out), [0, 20 * 9 * 64 * 2], "{options:?}");
            }
        }
    }
}

#[test]
fn a_task_in_cpp_doubles() {
    for rig in Rig::each("") {
        let n = 1001_u64;
        let x: Vec<u64> = (0..n).collect();
        let (x, z) = (rig.words(&x), rig.words(&[0; 1001]));
        let launch = rig.launch("task.cpp", &["-O2", "-std=c++17", "-fno-exceptions"]);
        rig.run(&launch.buffer(&x).buffer(&z).u64(2 * n));
        let expected: [u64; 1001] = std::array::from_fn(|i| 2 * i as u64);
        assert_eq!(rig.read(&z), expected);
    }
}

#[test]
fn a_missing_sdk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    if has_compiler() {
        let output = et(&["cc", "--files", folder, "k.c"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("no device SDK in {folder}")), "{said}");
    }
}

#[test]
fn what_is_no_clang_is_refused() {
    if !has_compiler() {
        return;
    }
    for (options, why) in [
        (["--compiler", "cat"], "cat is no Clang: cat "),
        (["--compiler", "no-such-clang"], "no compiler no-such-clang: install the package clang"),
        (["--compiler", "clang"], "picolibc comes with options for GCC only"),
    ] {
        let output = et(&[&["cc", "--libc", "picolibc"][..], &options, &["k.c"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let is_missing = said.contains("no compiler clang: install the package clang");
        assert!(said.contains(why) || is_missing, "{said}");
    }
}

/// It has no option to do without.
#[test]
fn floats_that_clang_divides_are_found_without_asking() {
    let folder = tempfile::tempdir().unwrap();
    let [source, object] = ["k.c", "k.o"].map(|name| folder.path().join(name));
    std::fs::write(&source, "float f(float x, float y)\n{\n    return x / y;\n}\n").unwrap();
    for compiler in compilers() {
        let files = ["-c", source.to_str().unwrap(), "-g", "-o", object.to_str().unwrap()];
        let output = et(&[&["cc"], compiler, &files].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), compiler.is_empty(), "{said}");
        assert_eq!(said.contains("fdiv.s"), !compiler.is_empty(), "{said}");
    }
}
