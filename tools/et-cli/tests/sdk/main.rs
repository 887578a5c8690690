//! The device SDK: its headers alone, and kernels with them on the simulator.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests: a panic is a failure")]

mod headers;
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

/// A device, and a place for kernels.
struct Rig {
    device: Device<AnyHal>,
    folder: TempDir,
}

impl Rig {
    /// None if kernels cannot be built here.
    fn new(parameters: &str) -> Option<Self> {
        if !has_compiler() {
            return None;
        }
        let device = et::open(&format!("sim:shires=2,dram=1GiB{parameters}")).unwrap();
        Some(Self { device, folder: tempfile::tempdir().unwrap() })
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
        cc(&[&["--check"], ours, &WARNINGS, options, &files].concat());
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
    let Some(rig) = Rig::new("") else { return };
    for options in [&["-O0", "-std=c11"], &["-O2", "-fno-builtin"], &["-O3", "-flto"]] {
        let out = rig.words(&[u64::MAX; 2]);
        rig.run(&rig.launch("text.c", options).buffer(&out));
        assert_eq!(rig.read(&out), [0, 20 * 9 * 64 * 2], "{options:?}");
    }
}

#[test]
fn a_task_in_cpp_doubles() {
    let Some(rig) = Rig::new("") else { return };
    let n = 1001_u64;
    let x: Vec<u64> = (0..n).collect();
    let (x, z) = (rig.words(&x), rig.words(&[0; 1001]));
    let launch = rig.launch("task.cpp", &["-O2", "-std=c++17", "-fno-exceptions"]);
    rig.run(&launch.buffer(&x).buffer(&z).u64(2 * n));
    let expected: [u64; 1001] = std::array::from_fn(|i| 2 * i as u64);
    assert_eq!(rig.read(&z), expected);
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
