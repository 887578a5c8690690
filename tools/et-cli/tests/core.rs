//! Core files by `et run` and `et core`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const DEVICE: &str = "sim:shires=2,dram=1GiB";

fn et(args: &[&str]) -> Output {
    Command::cargo_bin("et").unwrap().args(["--device", DEVICE]).args(args).output().unwrap()
}

fn kernel(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    folder.join(format!("{name}.elf")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_failed_run_leaves_a_core_that_is_summed_up_and_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (core, elf) = (path("a.core"), path("a.elf"));
    let output = et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--core", &core]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("core of 1 harts written to") && stderr.contains("hart 70"),
        "{stderr}"
    );

    let output = et(&["core", &core, "--kernel", &elf]);
    let stdout = text(&output.stdout);
    for part in [
        "trap_load on shires 0x3: kernel trapped",
        "    1 hart 70: load access fault at 0x0 (null pointer) in load_from_null+0x0 at ",
        "trap_load.c:19",
        "8 KiB  stack of hart 70",
        "8 bytes  arguments",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let report: Value = serde_json::from_slice(&et(&["core", "--json", &core]).stdout).unwrap();
    assert_eq!(report["harts"][0]["hart"], 70);
    assert_eq!(report["harts"][0]["function"], "load_from_null");
    assert_eq!(report["harts"][0]["line"], 19);

    // The command as it is printed.
    let command = stdout.lines().find(|line| line.starts_with("gdb-multiarch")).unwrap();
    let command = format!("{command} -batch -nx 2>&1");
    let shown = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    let shown = text(&shown.stdout);
    if shown.contains("gdb-multiarch: not found") {
        eprintln!("skipped, because gdb-multiarch is not installed");
        return;
    }
    for part in ["#0  load_from_null () at src/trap_load.c:19", "trap_load.c:27", "_start"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn harts_that_were_aborted_together_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let core = folder.path().join("hang.core").display().to_string();
    et(&["run", &kernel("hang"), "--timeout", "0.2", "--core", &core]);
    let output = et(&["core", &core]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("  128 harts 0-127: aborted by the host in entry_point"), "{stdout}");
    assert!(stdout.contains("1 MiB  stacks of harts 0-127"), "{stdout}");
}

#[test]
fn a_core_that_cannot_be_written_hides_nothing() {
    let trap = kernel("trap_load");
    for (path, why) in [("/does/not/exist", "No such file"), ("/dev/full", "No space left")] {
        let output = et(&["run", &trap, "--core", path]);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("no core file") && stderr.contains(why), "{stderr}");
        assert!(stderr.contains("load access fault at 0x0"), "{stderr}");
        assert_eq!(output.status.code(), Some(1));
    }
    let output = et(&["core", &trap]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("not an ELF core file"), "{}", text(&output.stderr));
}
