//! The `et` command, as users call it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use npyz::WriterBuilder;
use serde_json::Value;

const DEVICE: &str = "sim:shires=2,dram=1GiB";

fn et(args: &[&str]) -> Output {
    Command::cargo_bin("et").unwrap().args(["--device", DEVICE]).args(args).output().unwrap()
}

fn kernel(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    folder.join(format!("{name}.elf")).display().to_string()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn save(path: &Path, values: &[f32]) {
    let file = std::fs::File::create(path).unwrap();
    let shape = [values.len() as u64];
    let writer = npyz::WriteOptions::<f32>::new().default_dtype().shape(&shape).writer(file);
    let mut writer = writer.begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

/// A folder with `x.npy`: 0, 1, … 999.
fn folder() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    save(&path.join("x.npy"), &(0..1000u16).map(f32::from).collect::<Vec<_>>());
    (folder, move |name| path.join(name))
}

#[test]
fn demo_checks_every_element_and_writes_a_profile() {
    let (_folder, path) = folder();
    let profile = path("trace.json").display().to_string();
    let output = et(&["demo", "--profile", &profile]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("16384 of 16384 elements correct (42)"), "{stdout}");
    let trace: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    let launches = trace["traceEvents"].as_array().unwrap().iter();
    assert_eq!(launches.filter(|event| event["name"] == "launch" && event["pid"] == 2).count(), 4);
    let report = json(&et(&["demo", "--json", "--a", "1", "--b", "0.5"]));
    assert_eq!(report["correct"], 16_384);
    assert_eq!(report["expected"], 8.75);
}

#[test]
fn list_and_info_know_the_simulator() {
    assert_eq!(json(&et(&["list", "--json"]))[0]["locator"], "sim:");
    let info = json(&et(&["info", "--json"]));
    assert_eq!(info["shires"], 2);
    assert_eq!(info["harts"], 128);
    assert_eq!(info["versions"]["device_api"], "2.6.0");
    let output = et(&["info"]);
    assert!(text(&output.stdout).contains("shire mask"));
}

#[test]
fn run_packs_arguments_and_writes_outputs() {
    let (_folder, path) = folder();
    let (x, z) = (path("x.npy").display().to_string(), path("z.npy").display().to_string());
    let input = format!("in:{x}");
    let output = format!("out:{z}:f32[10,100]");
    let args = ["--arg", &input, "--arg", &output, "--arg", "f32:2.5", "--arg", "u64:1000"];
    let run = et(&[&["run", &kernel("add_scalar")][..], &args].concat());
    assert!(run.status.success(), "{}", text(&run.stderr));
    let expected: Vec<f32> = (0..1000u16).map(|i| f32::from(i) + 2.5).collect();
    assert_eq!(read(Path::new(&z)), expected);

    let inout = format!("inout:{x}:{z}");
    let args = ["--arg", &input, "--arg", &inout, "--arg", "f32:3", "--arg", "u64:1000"];
    let report =
        json(&et(&[&["run", "--json", "--shires", "1", &kernel("saxpy")][..], &args].concat()));
    assert_eq!(report["status"], "completed");
    assert_eq!(read(Path::new(&z))[999], 999.0 * 4.0);
}

#[test]
fn a_failing_kernel_is_explained_and_the_exit_code_says_so() {
    let output = et(&["run", &kernel("trap_load"), "--arg", "u64:70"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    for part in ["hart 70", "load access fault", "load_from_null", "trap_load.c", "sp "] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn an_endless_kernel_is_aborted() {
    let output = et(&["run", &kernel("hang"), "--timeout", "0.2"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("did not end") && stderr.contains("aborted by the host"), "{stderr}");
}

#[test]
fn mistakes_are_explained() {
    let (_folder, path) = folder();
    let text_file = path("text.npy");
    std::fs::write(&text_file, "no array").unwrap();
    let text_arg = format!("in:{}", text_file.display());
    let add = kernel("add");
    for (args, part) in [
        (&["run", "/no/such/kernel.elf"][..], "reading /no/such/kernel.elf"),
        (&["run", &add, "--arg", "q8:1"], "unknown type"),
        (&["run", &add, "--arg", "u8:256"], "is no u8"),
        (&["run", &add, "--arg", &text_arg], "not an .npy file"),
        (&["run", &add, "--shires", "0x10"], "shire mask 0x10"),
        (&["run", &text_file.display().to_string()], "cannot be loaded"),
        (&["run", &add, "--entry", "nothing"], "nothing"),
    ] {
        let output = et(args);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(part), "{args:?}: {stderr}");
    }
    let output = Command::cargo_bin("et").unwrap().args(["--device", "sim:x=1", "info"]).output();
    assert!(text(&output.unwrap().stderr).contains("keys are"));
}
