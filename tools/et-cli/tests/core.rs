//! Core files and traces: `et run --core`, `et core`, `et run --log`, `et trace`, profiles.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

const DEVICE: &str = "sim:shires=2,dram=1GiB";

fn et(args: &[&str]) -> Output {
    Command::cargo_bin("et").unwrap().env("ET_DEVICE", DEVICE).args(args).output().unwrap()
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
    assert!(stderr.contains("core of 1 hart written to") && stderr.contains("hart 70"), "{stderr}");

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
        assert_eq!(output.status.code(), Some(3));
    }
    let output = et(&["core", &trap]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("not an ELF core file"), "{}", text(&output.stderr));
}

#[test]
fn a_log_has_what_kernel_and_firmware_say() {
    let args = ["--arg", "u64:1", "--arg", "u64:3", "--shires", "1", "--log"];
    let output = et(&[&["run", &kernel("trace")][..], &args].concat());
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains(" us] kernel hart 70: hart 0070 of shire 01"), "{stderr}");
    assert!(stderr.contains(" us] kernel hart 64: value 0 = 0x4000000000"), "{stderr}");
    assert!(!stderr.contains("lost") && !stderr.contains("kernel hart 63"), "{stderr}");

    let small = ["--arg", "u64:50", "--arg", "u64:3", "--log", "--log-bytes", "256"];
    let output = et(&[&["run", &kernel("trace")][..], &small].concat());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("lost: older entries of 128 harts"), "{stderr}");

    // A kernel that writes over the header of its trace loses that, and no entries.
    let smash = ["--arg", "u64:0", "--arg", "u64:16", "--log"];
    let output = et(&[&["run", &kernel("trace_header")][..], &smash].concat());
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.matches(": value 0 = ").count(), 128, "{stderr}");
    assert!(stderr.contains("lost: ") && stderr.contains(" 1 headers"), "{stderr}");

    let output = et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--log"]);
    let stderr = text(&output.stderr);
    for part in
        [" cm hart 70: exception: cause 5, pc 0x", " mm hart 2048: launch ", "hart 70 (shire 1"]
    {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn traces_of_the_device_and_of_files_are_shown() {
    let report: Value = serde_json::from_slice(&et(&["trace", "--all", "--json"]).stdout).unwrap();
    let texts: Vec<_> = report["entries"].as_array().unwrap().iter().map(|e| &e["text"]).collect();
    assert!(texts.iter().any(|text| text.as_str().unwrap().ends_with(": Received")), "{report}");
    assert_eq!(report["losses"]["entries"], 0);

    // A buffer of one part with a text, an entry that is none, and nonsense behind it.
    let mut bytes = vec![0; 256];
    bytes[..12].copy_from_slice(&[0x10, 0x32, 0x54, 0x76, 0, 0, 6, 0, 0, 0, 0, 0]);
    bytes[12] = 200;
    bytes[17] = 1;
    bytes[20] = 1;
    bytes[64..88].copy_from_slice(b"\x05\0\0\0\0\0\0\0\x08\0\0\0\x46\0\0\0hi\x1b\0\0\0\0\0");
    bytes[88..104].copy_from_slice(b"\x06\0\0\0\0\0\0\0\0\0\0\0\x46\0\x63\0");
    bytes[104..200].fill(0xff);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.bin").display().to_string();
    std::fs::write(&path, &bytes).unwrap();
    let output = et(&["trace", "--file", &path]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("hart 70: hi\\u{1b}"), "{stdout}");
    assert!(stdout.contains("not decoded: 1 entries, 96 bytes"), "{stdout}");
    std::fs::write(&path, &bytes[1..]).unwrap();
    assert!(text(&et(&["trace", "--file", &path]).stderr).contains("trace buffer starts with"));
}

#[test]
fn a_profile_is_written_in_the_format_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, part) in [
        ("a.json", "\"name\":\"trace\""),
        ("a.jsonl", "\"kernel\":\"trace\""),
        ("a.csv", ",launch,\"trace\",0,false,"),
    ] {
        let path = folder.path().join(name);
        let args = ["--arg", "u64:1", "--arg", "u64:3", "--log", "--profile"];
        let file = path.display().to_string();
        let output = et(&[&["run", &kernel("trace")][..], &args, &[&file]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.contains(part), "{part} in {written:.2000}");
        assert_eq!(written.contains("hart 0127 of shire 01"), name != "a.csv");
    }
}
