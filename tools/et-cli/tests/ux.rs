//! `et` as people use it: pipes, Ctrl-C, failures for machines, exit codes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod arrays;

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const DEVICE: &str = "sim:shires=2,dram=1GiB";

fn et(args: &[&str]) -> Command {
    let mut et = Command::new(env!("CARGO_BIN_EXE_et"));
    et.env("ET_DEVICE", DEVICE).args(args);
    et
}

fn output(args: &[&str]) -> Output {
    et(args).output().unwrap()
}

fn kernel(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    folder.join(format!("{name}.elf")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A graph of one task that never ends.
fn endless(folder: &Path) -> String {
    let path = folder.join("endless.json");
    let kernel = kernel("hang");
    let graph = format!(r#"{{"kernels":{{"hang":"{kernel}"}},"tasks":[{{"kernel":"hang"}}]}}"#);
    fs::write(&path, graph).unwrap();
    path.display().to_string()
}

/// A pipe that no one reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_that_has_enough_ends_every_command_quietly_and_a_full_disk_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let core = folder.path().join("a.core").display().to_string();
    output(&["run", &kernel("trap_load"), "--arg", "u64:70", "--core", &core]);
    let graph = endless(folder.path());
    let add = kernel("add");
    for args in [
        &["list"][..],
        &["info"],
        &["info", "--json"],
        &["demo"],
        &["core", &core],
        &["core", &core, "--json"],
        &["objdump", &add],
        &["trace", "--all"],
        &["graph", &graph, "--dot"],
        &["stat", "--watch", "--interval", "0.01"],
        &["top", "--json", "--interval", "0.05"],
        &["run", &kernel("trace"), "--arg", "u64:1", "--arg", "u64:3"],
    ] {
        let out = et(args).stdout(closed_pipe()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((out.status.code(), &*text(&out.stderr)), (Some(0), ""), "{args:?}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = et(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: writing to standard output: No space"), "{stderr}");
    }
    // A failure keeps its exit code, and a closed standard error changes nothing.
    let mut trap = et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--log"]);
    let out = trap.stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
    assert_eq!(out.code(), Some(3));
}

#[test]
fn the_demo_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = et(&["demo"]).env("TMPDIR", folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // The result comes first, whatever becomes of the profile.
    let out = output(&["demo", "--profile", "/no/such/folder/x.json"]);
    assert!(text(&out.stdout).contains("16384 of 16384 elements correct"), "{out:?}");
    assert!(text(&out.stderr).contains("/no/such/folder/x.json"), "{out:?}");
}

/// Waits until the program catches Ctrl-C.
fn wait_for_handler(child: &mut Child) {
    let caught = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> 1 & 1 != 0
    };
    let path = format!("/proc/{}/status", child.id());
    while !caught(&fs::read_to_string(&path).unwrap()) {
        assert!(child.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
}

#[test]
fn ctrl_c_aborts_the_kernel_and_says_where_it_was() {
    let mut hang = et(&["run", &kernel("hang"), "--timeout", "6000", "--json"]);
    let mut child = hang.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_handler(&mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{out:?}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["kind"], "interrupted");
    assert_eq!(report["error"], "interrupted, kernel aborted");
    assert_eq!(report["failure"]["groups"][0]["function"], "entry_point");
    assert_eq!(report["failure"]["groups"][0]["count"], 128);
}

#[test]
fn ctrl_c_ends_a_graph() {
    let folder = tempfile::tempdir().unwrap();
    let graph = endless(folder.path());
    for place in ["auto", "streams"] {
        let mut hang = et(&["graph", &graph, "--place", place]);
        let mut child = hang.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_handler(&mut child);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(130), "{out:?}");
        assert!(text(&out.stderr).starts_with("error: "), "{out:?}");
    }
}

#[test]
fn failures_have_a_structure_for_machines_and_exit_codes_of_their_own() {
    let out = output(&["run", &kernel("trap_load"), "--arg", "u64:70", "--json"]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["kind"], "kernel");
    let failure = &report["failure"];
    assert_eq!(failure["kernel"], "trap_load");
    assert_eq!(failure["status"], "kernel trapped");
    assert_eq!((&failure["shire_mask"], &failure["failed_harts"]), (&"0x2".into(), &1.into()));
    let group = &failure["groups"][0];
    assert_eq!((&group["hart"], &group["count"]), (&70.into(), &1.into()));
    assert_eq!((&group["cause"], &group["value"]), (&5.into(), &0.into()));
    assert_eq!((&group["function"], &group["line"]), (&"load_from_null".into(), &19.into()));
    assert!(group["file"].as_str().unwrap().ends_with("trap_load.c"), "{group}");
    assert_eq!(group["harts"], serde_json::json!([70]));
    assert_eq!(group["registers"].as_array().unwrap().len(), 31);
    let said: Vec<_> = failure["firmware"].as_array().unwrap().iter().collect();
    assert!(said.iter().any(|entry| entry["source"] == "cm" && entry["hart"] == 70), "{failure}");

    let add = kernel("add");
    for (code, kind, args) in [
        (4, "timeout", &["run", &kernel("hang"), "--timeout", "0.1"][..]),
        (5, "device", &["info", "--device", "sim:shires=1,dram=256MiB,fault=bad-crc:ops"]),
        (1, "failure", &["run", "/no/such/kernel.elf"]),
        (1, "failure", &["info", "--device", "sim:x=1"]),
        (1, "failure", &["run", &add, "--shires", "0x10"]),
    ] {
        let out = output(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?} {out:?}");
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(report["kind"], kind, "{report}");
    }
    let out = output(&["run", &add, "--arg", "q8:1"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[test]
fn harts_that_fail_in_the_same_way_are_one_line() {
    let out = output(&["run", &kernel("trap_load"), "--arg", "u64:18446744073709551615"]);
    let stderr = text(&out.stderr);
    assert!(stderr.contains("; 127 more harts"), "{stderr}");
    assert!(stderr.contains("\n  the same: harts 0-127\n"), "{stderr}");
    assert_eq!(stderr.matches("load access fault").count(), 1, "{stderr}");
}

#[test]
fn what_a_device_is_not_used_for_does_not_take_one() {
    for args in [&["list", "-d", "sim:"][..], &["-d", "sim:", "objdump", &kernel("add")]] {
        let out = output(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains("uses no device"), "{out:?}");
    }
    // Not so if it is the user's usual one.
    assert!(output(&["list"]).status.success());
    let out = output(&["doctor", "-d", "sim:"]);
    assert!(text(&out.stderr).contains("sim: needs nothing of this machine"), "{out:?}");
    let out = output(&["doctor", "-d", "vfio:0000:7f:1f.7"]);
    assert!(text(&out.stdout).starts_with("0000:7f:1f.7\n"), "{out:?}");
    let out = output(&["info", "-d", "cuda:0"]);
    assert!(text(&out.stderr).contains("which has sim, vfio, vfio-user"), "{out:?}");
    assert!(text(&output(&["--version"]).stdout).starts_with("et 0."));
}

#[test]
fn arrays_of_another_type_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.npy");
    arrays::save(&path, &[0.0f64; 4]);
    let wide = path.display().to_string();
    let out = output(&["run", &kernel("add"), "--arg", &format!("in:{wide}:f32")]);
    assert!(text(&out.stderr).contains("wide.npy is an array of f64, not of f32"), "{out:?}");
}

#[test]
fn bench_measures_what_it_is_asked_for_and_checks_that_it_arrived() {
    let nop = kernel("task_nop");
    let common = ["--threads", "2", "--streams", "3", "--count", "4", "--batch", "5", "--json"];
    for memory in ["pageable", "pinned"] {
        let args = ["bench", "--what", "to-device,to-host,launch", "--size", "8,4KiB,1 MiB"];
        let more = ["--kernel", &nop, "--shires", "0", "--memory", memory];
        let out = output(&[&args[..], &more, &common].concat());
        assert!(out.status.success(), "{out:?}");
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(report["memory"], memory);
        let runs = report["runs"].as_array().unwrap();
        let kinds: Vec<_> =
            runs.iter().map(|r| (r["what"].as_str().unwrap(), r["size_bytes"].as_u64())).collect();
        let sizes = [Some(8), Some(4096), Some(1 << 20)];
        let copies = ["to-device", "to-host"].into_iter().flat_map(|w| sizes.map(|size| (w, size)));
        assert_eq!(kinds, copies.chain([("launch", None)]).collect::<Vec<_>>());
        for run in runs {
            let operations = if run["what"] == "launch" { 24 * 5 } else { 24 };
            assert_eq!(run["operations"], operations, "{run}");
            let number = |value: &Value| value.as_f64().unwrap();
            let per_s = f64::from(operations) / number(&run["seconds"]);
            assert!((number(&run["operations_per_s"]) / per_s - 1.0).abs() < 1e-9, "{run}");
            if let Some(size) = run["size_bytes"].as_f64() {
                assert!((number(&run["bytes_per_s"]) / (per_s * size) - 1.0).abs() < 1e-9, "{run}");
            }
            let latency =
                ["least", "median", "p99", "most"].map(|name| number(&run["latency_us"][name]));
            assert!(latency.is_sorted() && latency[0] > 0.0, "{run}");
        }
    }
    let table = text(&output(&["bench", "--size", "4096", "--count", "2"]).stdout);
    assert_eq!(table.lines().count(), 3, "{table}");
    let out = output(&["bench", "--what", "launch"]);
    assert!(text(&out.stderr).contains("launches need a kernel"), "{out:?}");
    // A card that goes away ends the measurement.
    let device = format!("{DEVICE},fault=link-loss:30");
    let out = output(&["bench", "--size", "4096", "--count", "200", "-d", &device]);
    assert_eq!(out.status.code(), Some(5), "{out:?}");
}
