//! The program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use assert_cmd::Command;

const DEVICE: &str = "sim:shires=1,dram=256MiB";

fn program(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("et-conformance").unwrap();
    let output = command.args(["--device", DEVICE]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_case_is_listed_once() {
    let (code, out, _) = program(&["--list"]);
    let names: Vec<_> = out.lines().map(|line| line.strip_suffix(": test").unwrap()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!((code, unique.len()), (0, names.len()));
    assert!(names.len() > 100, "{}", names.len());
    assert!(names.contains(&"hal::open::handles_may_outlive_the_device"), "{out}");
}

/// `cargo xtask conformance` keeps the results that the book shows.
#[test]
fn every_case_has_results_that_are_kept() {
    let (_, out, _) = program(&["--list"]);
    let cases: BTreeSet<_> = out.lines().map(|line| line.strip_suffix(": test").unwrap()).collect();
    let kept = include_str!("../../conformance.json");
    let kept: serde_json::Value = serde_json::from_str(kept).unwrap();
    let kept = kept["cases"].as_array().unwrap().iter().map(|case| case.as_str().unwrap());
    assert_eq!(kept.collect::<BTreeSet<_>>(), cases, "run `cargo xtask conformance`");
}

/// A device by its locator lends its backend, so that the cases of both levels run on it.
#[test]
fn a_device_by_its_locator_passes_both_levels() {
    for group in ["hal::", "runtime::mistakes", "runtime::copies"] {
        let (code, out, err) = program(&[group]);
        assert_eq!(code, 0, "{out}{err}");
        let last = out.lines().last().unwrap();
        assert!(last.ends_with(" passed; 0 failed; 0 ignored"), "{out}");
    }
}

#[test]
fn what_the_device_has_not_is_ignored_with_a_reason() {
    let case = "runtime::failures::a_trap_is_reported";
    let (code, out, _) = program(&[case]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("... ignored, needs 2 shires, the device has 1\n"), "{out}");
    let (code, out, _) = program(&["--lacks", "compute", "runtime::kernels"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("\n0 passed; 0 failed; 10 ignored"), "{out}");
}

#[test]
fn exceptions_have_reasons_and_cases() {
    let case = "hal::window::bars_that_do_not_exist_are_refused";
    let (code, out, _) = program(&["--skip", &format!("{case}=no time"), "hal::window::bars"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(&format!("test {case} ... ignored, no time\n")), "{out}");
    let unexpected = format!("{case}=broken");
    let (code, out, _) = program(&["--expect-failure", &unexpected, "hal::window::bars"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains(&format!("test {case} ... FAILED\n    passes, although")), "{out}");
    assert!(out.contains("\n0 passed; 1 failed; 0 ignored"), "{out}");
    for wrong in [&["--skip", "nothing=why"][..], &["--skip", case], &["no_such_case"]] {
        let (code, _, err) = program(wrong);
        assert_eq!(code, 2, "{err}");
        assert!(!err.is_empty());
    }
}

#[test]
fn results_are_also_written_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let (code, out, _) = program(&["--json", file.to_str().unwrap(), "hal::open"]);
    assert_eq!(code, 0, "{out}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["passed"], 5);
    assert_eq!(report["cases"][0]["verdict"], "passed");
    assert!(report["cases"][0]["seconds"].as_f64().unwrap() > 0.0);
    let (code, _, err) = program(&["--json", "/no/such/folder/x.json", "hal::open"]);
    assert_eq!(code, 2);
    assert!(err.contains("/no/such/folder/x.json"), "{err}");
}

#[test]
fn a_device_that_does_not_open_fails_every_case() {
    let mut command = Command::cargo_bin("et-conformance").unwrap();
    let device = "sim:dram=256MiB,compute=null,fault=never-boots";
    let arguments = ["--device", device, "--limit", "1", "runtime::copies::copies_of_n"];
    let output = command.args(arguments).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("the device did not open") && out.contains("did not boot"), "{out}");
}
