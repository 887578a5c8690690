//! The `et` command, as users call it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod arrays;

use std::path::{Path, PathBuf};
use std::process::Output;

use arrays::save;
use assert_cmd::Command;
use serde_json::{Value, json};

const DEVICE: &str = "sim:shires=2,dram=1GiB,cpu-access=yes";

fn et(args: &[&str]) -> Output {
    Command::cargo_bin("et").unwrap().env("ET_DEVICE", DEVICE).args(args).output().unwrap()
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

fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

/// Events of a kind in a profile: `X` is a span, `s` and `f` are the ends of an arrow.
fn events(trace: &Value, kind: &str) -> usize {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    events.filter(|event| event["ph"] == kind).count()
}

/// A folder with `x.npy`: 0, 1, … 999.
fn folder() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    save(path.join("x.npy"), &(0..1000u16).map(f32::from).collect::<Vec<_>>());
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
    assert_eq!(events(&trace, "X"), 4);
    // Both sums wait for the first one, the product for both.
    assert_eq!((events(&trace, "s"), events(&trace, "f")), (4, 4));
    let report = json(&et(&["demo", "--json", "--a", "1", "--b", "0.5"]));
    assert_eq!(report["correct"], 16_384);
    assert_eq!(report["expected"], 8.75);
    assert!(["cores", "resident", "streams"].contains(&report["place"].as_str().unwrap()));
    assert!(stdout.contains("4 tasks in ") && stdout.contains(", place "), "{stdout}");
}

#[test]
fn list_and_info_know_the_simulator() {
    assert_eq!(json(&et(&["list", "--json"]))[0]["locator"], "sim:");
    let info = json(&et(&["info", "--json"]));
    assert_eq!(info["shires"], 2);
    assert_eq!(info["harts"], 128);
    assert_eq!(info["versions"]["device_api"], "2.6.0");
    assert_eq!(info["versions"]["backend"], concat!("et-hal-sim ", env!("CARGO_PKG_VERSION")));
    assert_eq!((&info["pci"]["vendor"], &info["pci"]["device"]), (&json!("1e0a"), &json!("eb01")));
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
fn instructions_are_counted_on_all_harts_and_only_the_simulator_counts() {
    let (_folder, path) = folder();
    let input = format!("in:{}", path("x.npy").display());
    let output = format!("out:{}:f32[1000]", path("z.npy").display());
    let args = ["--arg", &input, "--arg", &output, "--arg", "f32:2.5", "--arg", "u64:1000"];
    let run = |more: &[&str]| et(&[&["run", &kernel("add_scalar")][..], &args, more].concat());
    // One addition for each element, whatever hart makes it.
    for device in ["sim:shires=2,dram=1GiB", "sim:shires=1,dram=1GiB,memory=private"] {
        let report = json(&run(&["--instructions", "--json", "-d", device]));
        let counts = report["instructions"]["counts"].as_array().unwrap();
        let of = |name: &str| counts.iter().find(|row| row["instruction"] == name).unwrap();
        assert_eq!(of("fadd.s")["count"], 1000, "{counts:?}");
        let sum: u64 = counts.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(report["instructions"]["total"], sum);
    }
    assert!(json(&run(&["--json"]))["instructions"].is_null());

    let table = text(&run(&["--instructions"]).stdout);
    let row =
        table.lines().find(|line| line.ends_with("  fadd.s")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.trim().starts_with("1000 ") && row.contains(" % "), "{row}");
    // A kernel that fails has executed something, too.
    let failed = et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--instructions"]);
    assert_eq!(failed.status.code(), Some(3));
    assert!(text(&failed.stderr).contains("instructions executed"), "{}", text(&failed.stderr));

    let refused = run(&["--instructions", "-d", "vfio-user:/nowhere/et.sock"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("does not count instructions"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn arguments_are_compared_with_those_that_the_kernel_states() {
    let (_folder, path) = folder();
    let x = path("x.npy").display().to_string();
    let double = path("double.npy");
    save(&double, &[1.0f64; 9]);
    let double = format!("inout:{}", double.display());
    let before = std::fs::read(path("double.npy")).unwrap();
    let (input, inout) = (format!("in:{x}"), format!("inout:{x}"));
    let out = format!("out:{}:f32[1000]", path("z.npy").display());
    for (args, said) in [
        (&[&*input, &inout, "f32:3"][..], "4 arguments (x: in f32[], y: inout f32[], a: f32, n"),
        (&[&input, &inout, "f32:3", "u32:1000"], "n of the kernel is u64, u32 was given"),
        (&[&input, &inout, "u64:3", "u64:1000"], "a of the kernel is f32, u64 was given"),
        (&[&input, &double, "f32:3", "u64:9"], "y of the kernel is inout f32[], inout f64[] was"),
        (&[&input, "u64:1", "f32:3", "u64:9"], "y of the kernel is inout f32[], u64 was given"),
        (&[&out, &inout, "f32:3", "u64:9"], "x of the kernel is in f32[], out f32[] was given"),
    ] {
        let args: Vec<_> = args.iter().flat_map(|arg| ["--arg", arg]).collect();
        let output = et(&[&["run", &kernel("saxpy")][..], &args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(said), "{said}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read(path("double.npy")).unwrap(), before);
}

#[test]
fn without_a_frequency_device_times_are_cycles() {
    let device = "sim:shires=1,dram=1GiB,fault=no-frequency";
    let run = |more: &[&str]| {
        let mut command = Command::cargo_bin("et").unwrap();
        command.args(["--device", device, "run", &kernel("task_nop")]).args(more).output().unwrap()
    };
    let output = run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(" cycles on the device"), "{}", text(&output.stdout));
    let report = json(&run(&["--json"]));
    assert!(report["device_us"].is_null() && report["device_cycles"].is_u64(), "{report}");
}

#[test]
fn a_kernel_that_leaves_its_buffer_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let output = format!("out:{}:f32[256]", folder.path().join("o.npy").display());
    let device = "sim:shires=1,dram=1GiB,check=memory";
    let run = |more: &[&str], len: &str| {
        let args = ["--arg", &output, "--arg", "u64:1", "--arg", len];
        let mut command = Command::cargo_bin("et").unwrap();
        command.args(["--device", device, "run", &kernel("memset")]).args(args).args(more);
        command.output().unwrap()
    };
    assert!(run(&[], "u64:1024").status.success());
    let stderr = text(&run(&[], "u64:1025").stderr);
    let place = "store of 1 byte at 0x";
    for part in ["out of bounds", place, "right after the end of the buffer of 1024 bytes", ".c:"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    let report = json(&run(&["--json"], "u64:1025"));
    let found = &report["failure"]["groups"][0]["memory"];
    assert_eq!((&found["violation"], &found["access"]), (&"out of bounds".into(), &"store".into()));
    assert_eq!((&found["bytes"], &found["buffer"]["offset"]), (&1.into(), &1024.into()));
    assert_eq!(found["buffer"]["freed"], false);
}

#[test]
fn a_failing_kernel_is_explained_and_the_exit_code_says_so() {
    let output = et(&["run", &kernel("trap_load"), "--arg", "u64:70"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    for part in ["hart 70", "load access fault", "load_from_null", "trap_load.c", "sp "] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    // The instruction and what comes after it.
    for part in [":  00003503  ld a0, 0(zero)\n", ":  8082      c.jr ra\n"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn an_endless_kernel_is_aborted() {
    let output = et(&["run", &kernel("hang"), "--timeout", "0.2"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("did not end") && stderr.contains("aborted by the host"), "{stderr}");
    // Whether it had begun or not, and also if it ends meanwhile.
    for _ in 0..8 {
        let output = et(&["run", &kernel("hang"), "--timeout", "0"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(stderr.contains("did not end within 0ns, aborted"), "{stderr}");
        let output = et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--timeout", "0"]);
        let stderr = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(3 | 4)), "{stderr}");
        assert!(stderr.contains("hart 70") || stderr.contains("aborted"), "{stderr}");
    }
}

#[test]
fn every_cause_of_a_failure_is_printed() {
    let (_folder, path) = folder();
    let file = path("bad.elf");
    let good = std::fs::read(kernel("add")).unwrap();
    std::fs::write(&file, &good[..good.len() / 2]).unwrap();
    let file = file.display().to_string();
    let broken = "sim:shires=1,dram=256MiB,fault=bad-crc:ops";
    for (code, device, args, causes) in [
        (
            5,
            broken,
            &["info"][..],
            &[&format!("opening {broken}"), "cannot be used", "registers are invalid", "CRC"][..],
        ),
        (1, DEVICE, &["run", &file], &["kernel bad cannot be loaded", "cut off or malformed"]),
    ] {
        let run = |more: &[&str]| {
            let mut et = Command::cargo_bin("et").unwrap();
            et.args(["--device", device]).args(args).args(more).output().unwrap()
        };
        let output = run(&[]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), causes.len(), "{stderr}");
        for (index, (line, cause)) in lines.iter().zip(causes).enumerate() {
            let start = if index == 0 { "error: " } else { "  because " };
            assert!(line.starts_with(start) && line.contains(cause), "{line}: {cause}");
        }
        let report = json(&run(&["--json"]));
        assert_eq!(report["causes"].as_array().unwrap().len() + 1, causes.len(), "{report}");
    }
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
        (&["run", &kernel("task_nop"), "--shires", "0x10"], "shire mask 0x10"),
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

/// (a + b + 1)(a + b + 2) as a file; `KERNELS` stands for the folder of the kernels.
const FORMULA: &str = include_str!("formula.json");

/// A folder with the formula's graph and its inputs.
fn formula() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let a: Vec<f32> = (0..16_384u16).map(|i| f32::from(i % 100)).collect();
    save(path.join("a.npy"), &a);
    let kernels = Path::new(&kernel("add")).parent().unwrap().display().to_string();
    std::fs::write(path.join("graph.json"), FORMULA.replace("KERNELS", &kernels)).unwrap();
    (folder, move |name| path.join(name))
}

/// The path of a graph with a kernel of the tests and these tasks, beside 1000 floats `x` and `y`.
fn graph(path: &impl Fn(&str) -> PathBuf, kernels: &[&str], tasks: &str) -> String {
    let kernels: Vec<_> =
        kernels.iter().map(|name| format!("\"{name}\":\"{}\"", kernel(name))).collect();
    let text = format!(
        r#"{{"buffers":{{"x":{{"npy":"x.npy"}},"y":{{"dtype":"f32","shape":[1000]}}}},
            "kernels":{{{}}},"outputs":{{"y":"y.npy"}},"tasks":{tasks}}}"#,
        kernels.join(",")
    );
    let file = path("graph.json");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Runs the formula's graph and checks every element.
fn check_formula(path: &impl Fn(&str) -> PathBuf, device: &str, place: &str) {
    let file = path("graph.json").display().to_string();
    let mut command = Command::cargo_bin("et").unwrap();
    let output =
        command.args(["--device", device, "graph", &file, "--place", place]).output().unwrap();
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{device} {place}: {stdout}{}", text(&output.stderr));
    assert!(stdout.contains("4 of 4 tasks complete"), "{stdout}");
    assert!(place == "auto" || stdout.contains(&format!("place {place}")), "{stdout}");
    let f = read(&path("f.npy"));
    assert_eq!(f.len(), 16_384);
    for (i, f) in (0..16_384u16).zip(f) {
        let s = f32::from(i % 100) + 3.0;
        let expected = (s + 1.0) * (s + 2.0);
        assert_eq!(f.to_bits(), expected.to_bits(), "{device} {place}, element {i}");
    }
    std::fs::remove_file(path("f.npy")).unwrap();
}

#[test]
fn a_graph_counts_instructions_at_every_place() {
    let (_folder, path) = formula();
    let file = path("graph.json").display().to_string();
    let run = |more: &[&str]| et(&[&["graph", &file, "--instructions"][..], more].concat());
    for place in ["cores", "resident", "streams"] {
        let output = run(&["--json", "--repeat", "2", "--place", place, "-d", DEVICE]);
        let report = json(&output);
        let counts = report["instructions"]["counts"].as_array().unwrap();
        let of = |name: &str| counts.iter().find(|row| row["instruction"] == name).unwrap();
        // Three of the four tasks add, one multiplies, twice.
        assert_eq!(of("fadd.s")["count"], 2 * 3 * 16_384, "{place}: {counts:?}");
        assert_eq!(of("fmul.s")["count"], 2 * 16_384, "{place}: {counts:?}");
    }
    assert!(json(&et(&["graph", &file, "--json"]))["instructions"].is_null());
    let table = text(&run(&[]).stdout);
    let is_row = |line: &&str| line.ends_with("  fmul.s") && line.trim().starts_with("16384 ");
    assert!(table.lines().any(|line| is_row(&line)), "{table}");
    let refused = run(&["-d", "vfio-user:/nowhere/et.sock"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("does not count instructions"), "{why}");
}

#[test]
fn a_graph_computes_the_same_at_every_place() {
    let (_folder, path) = formula();
    for place in ["auto", "cores", "resident", "streams"] {
        check_formula(&path, DEVICE, place);
    }
}

/// Caches are not coherent there, and stores take effect late: fences and evictions have to be in
/// place.
#[test]
fn a_graph_computes_the_same_with_caches() {
    let (_folder, path) = formula();
    for place in ["cores", "resident", "streams"] {
        check_formula(&path, &format!("{DEVICE},memory=private"), place);
        for seed in 1..4 {
            check_formula(&path, &format!("{DEVICE},memory=weak,seed={seed}"), place);
        }
    }
}

#[test]
fn conditions_of_a_graph_decide_what_runs() {
    let (_folder, path) = folder();
    // The first task leaves 0x01010101 in the words that the others look at.
    let graph = format!(
        r#"{{"buffers":{{"n":{{"dtype":"u32","shape":[16]}},"y":{{"dtype":"u32","shape":[1000]}}}},
            "kernels":{{"memset":"{}"}},"outputs":{{"y":"y.npy"}},"tasks":[
            {{"name":"set","kernel":"memset","args":["out:n","u64:1","u64:64"]}},
            {{"name":"yes","kernel":"memset","args":["out:y","u64:64","u64:4000"],
              "if":"n[5] > 16843008"}},
            {{"name":"no","kernel":"memset","args":["out:y","u64:65","u64:4000"],
              "if":"n[5] <= 16843008"}}]}}"#,
        kernel("memset")
    );
    let (file, profile) = (path("graph.json"), path("profile.json").display().to_string());
    std::fs::write(&file, graph).unwrap();
    let file = file.display().to_string();
    for place in ["cores", "resident", "streams"] {
        for device in [DEVICE, &format!("{DEVICE},memory=weak,seed=3")] {
            let graph = |more: &[&str]| {
                let mut command = Command::cargo_bin("et").unwrap();
                command.args(["--device", device, "graph", &file, "--place", place]);
                let output = command.args(more).output().unwrap();
                assert!(output.status.success(), "{place}: {}", text(&output.stderr));
                output
            };
            let stdout = text(&graph(&[]).stdout);
            assert!(stdout.contains("2 of 3 tasks complete, 1 skipped"), "{place}: {stdout}");
            let bytes = std::fs::read(path("y.npy")).unwrap();
            assert!(bytes.ends_with(&[64; 4000]), "{place}");
            std::fs::remove_file(path("y.npy")).unwrap();

            let report = json(&graph(&["--json", "--profile", &profile]));
            assert_eq!(report["status"], "completed");
            let state = |task: usize| report["tasks"][task]["state"].as_str().unwrap().to_owned();
            assert_eq!([0, 1, 2].map(state), ["complete", "complete", "skipped"], "{place}");
            let written: Value = serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap();
            assert_eq!(written["otherData"]["skipped"], serde_json::json!([2]), "{place}");
            assert_eq!(written["otherData"]["incomplete"], serde_json::json!([]), "{place}");
        }
    }
    let described = json(&et(&["graph", &file, "--dot", "--json"]));
    assert_eq!(described["tasks"][2]["if"]["test"], "u32 <= 16843008");
}

/// What is between two tasks only is the graph's own.
#[test]
fn transient_buffers_of_a_graph_have_what_tasks_leave() {
    let (_folder, path) = formula();
    let file = path("graph.json").display().to_string();
    let mut graph: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let outputs = graph["outputs"].as_object().unwrap().clone();
    let mut transient = 0;
    for (name, buffer) in graph["buffers"].as_object_mut().unwrap() {
        let is_input = buffer.get("npy").is_some() || buffer.get("fill").is_some();
        if !is_input && !outputs.contains_key(name) {
            buffer["transient"] = true.into();
            transient += 1;
        }
    }
    assert_eq!(transient, 3, "the sum and the two factors");
    std::fs::write(&file, graph.to_string()).unwrap();
    for place in ["cores", "resident", "streams"] {
        check_formula(&path, DEVICE, place);
    }
    // A task that keeps what another one writes comes after it.
    let edges = || text(&et(&["graph", &file, "--dot"]).stdout).matches("->").count();
    let before = edges();
    graph["tasks"][3]["retain"] = serde_json::json!([graph["tasks"][0]["name"]]);
    std::fs::write(&file, graph.to_string()).unwrap();
    assert_eq!(edges(), before + 1);
    check_formula(&path, DEVICE, "streams");
}

#[test]
fn a_graph_records_the_tasks_that_are_asked_for() {
    let (_folder, path) = formula();
    let (file, records) = (path("graph.json").display().to_string(), path("records"));
    let folder = records.display().to_string();
    let graph = |options: &[&str]| et(&[&["graph", &file, "--record", &folder], options].concat());
    let files = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let output = graph(&["--record-task", "f"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [name] = &files(&records)[..] else { panic!("{:?}", files(&records)) };
    assert!(name.ends_with("-f"), "{name}");
    let record = records.join(name);
    assert_eq!(files(&record), ["0.before", "1.before", "2.after", "record.json"]);
    let f = std::fs::read(path("f.npy")).unwrap();
    assert!(f.ends_with(&std::fs::read(record.join("2.after")).unwrap()));
    let index: Value =
        serde_json::from_slice(&std::fs::read(record.join("record.json")).unwrap()).unwrap();
    assert_eq!((&index["function"], &index["state"]), (&"mul".into(), &"complete".into()));

    std::fs::remove_dir_all(&records).unwrap();
    assert!(graph(&["--place", "cores"]).status.success());
    assert_eq!(files(&records).len(), 4);
    let unknown = graph(&["--record-task", "g"]);
    assert!(text(&unknown.stderr).contains("no task \"g\""), "{}", text(&unknown.stderr));
}

#[test]
fn a_graph_is_drawn_without_being_run() {
    let (_folder, path) = formula();
    let (file, dot) = (path("graph.json").display().to_string(), path("graph.dot"));
    let printed = text(&et(&["graph", &file, "--dot"]).stdout);
    assert!(printed.starts_with("digraph"), "{printed}");
    assert_eq!(printed.matches(" -> ").count(), 4, "{printed}");
    let output = et(&["graph", &file, "--dot", &dot.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(dot).unwrap(), printed);
    assert_eq!(json(&et(&["graph", &file, "--dot", "--json"]))["tasks"][3]["function"], "mul");
    assert!(!path("f.npy").exists());
}

#[test]
fn a_graph_reports_for_machines_and_writes_a_profile() {
    let (_folder, path) = formula();
    let (file, profile) = (path("graph.json").display().to_string(), path("trace.json"));
    let options = ["--repeat", "3", "--profile", &profile.display().to_string(), "--json"];
    let report = json(&et(&[&["graph", &file][..], &options].concat()));
    assert_eq!(report["status"], "completed", "{report}");
    assert_eq!(report["runs_us"].as_array().unwrap().len(), 3);
    assert_eq!(report["tasks"].as_array().unwrap().len(), 4);
    assert_eq!(report["tasks"][1]["name"], "p");
    assert_eq!(report["tasks"][1]["state"], "complete");
    assert!(report["tasks"][1]["us"].as_f64().unwrap() >= 0.0);
    assert_eq!(report["outputs"][0], path("f.npy").display().to_string());
    let trace: Value = serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap();
    assert_eq!((events(&trace, "X"), events(&trace, "s"), events(&trace, "f")), (4, 4, 4));
    // What runs is not counted, but the memory in use is.
    let of_memory = |trace: &Value| {
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.filter(|event| event["name"] == "device memory").count()
    };
    assert!(of_memory(&trace) > 0 && events(&trace, "C") == of_memory(&trace), "{trace}");
    let more = ["--profile", &profile.display().to_string(), "--detail", "overhead"];
    assert!(et(&[&["graph", &file][..], &more].concat()).status.success());
    let trace: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    // Each task waits for a worker at least.
    assert!(events(&trace, "b") >= 4 && events(&trace, "b") == events(&trace, "e"), "{trace}");
    assert!(events(&trace, "C") > of_memory(&trace), "{trace}");
}

#[test]
fn parts_of_a_buffer_are_arguments_too() {
    let (_folder, path) = folder();
    // The halves meet at a cache line; the last task declares the first half only, and so waits for
    // one task.
    let file = graph(
        &path,
        &["add_scalar"],
        r#"[{"name":"low","kernel":"add_scalar",
                "args":["in:x[0..512]","out:y[0..512]","f32:1","u64:512"]},
            {"name":"high","kernel":"add_scalar",
                "args":["in:x[512..1000]","out:y[512..1000]","f32:2","u64:488"]},
            {"name":"again","kernel":"add_scalar",
                "args":["in:y[0..512]","out:y[0..512]","f32:1","u64:512"]}]"#,
    );
    let shape = json(&et(&["graph", &file, "--dot", "--json"]));
    assert_eq!(shape["edges"].as_array().unwrap().len(), 1, "{shape}");
    let output = et(&["graph", &file]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let expected: Vec<f32> = (0..1000u16).map(|i| f32::from(i) + 2.0).collect();
    assert_eq!(read(&path("y.npy")), expected);
}

#[test]
fn mistakes_in_a_graph_are_explained() {
    let (_folder, path) = folder();
    for (tasks, parts) in [
        (
            r#"[{"kernel":"add"}]"#,
            &["tasks[0], kernel", "no kernel \"add\"; there are memset, mul"][..],
        ),
        (r#"[{"kernel":"mul","args":["in:z"]}]"#, &["args[0] \"in:z\"", "no buffer \"z\""]),
        (r#"[{"kernel":"mul","args":["u32:x"]}]"#, &["args[0] \"u32:x\"", "is no u32"]),
        (r#"[{"kernel":"mul","arguments":[]}]"#, &["unknown field `arguments`", "line 2"]),
        (
            r#"[{"name":"a","kernel":"memset","after":["b"]},{"name":"b","kernel":"memset","after":["a"]}]"#,
            &["cycle", "task 1 \"b\" → task 0 \"a\" → task 1"],
        ),
        (
            r#"[{"name":"a","kernel":"memset","args":["out:y","inout:y"]}]"#,
            &["tasks[0] \"a\"", "overlapping writes"],
        ),
        (r#"[{"name":"a","kernel":"memset","shires":"0x10"}]"#, &["shire mask 0x10"]),
        (r#"[{"kernel":"mul","args":["u64:1"]}]"#, &["8 bytes of arguments where 32"]),
    ] {
        let file = graph(&path, &["memset", "mul"], tasks);
        let output = et(&["graph", &file]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{tasks}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{tasks}: {part} in {stderr}");
        }
        let report = et(&["graph", &file, "--json"]);
        assert_eq!(report.status.code(), Some(1));
        assert!(json(&report)["error"].is_string());
    }
    let output = et(&["graph", "/no/such/graph.json"]);
    assert!(text(&output.stderr).contains("reading /no/such/graph.json"));
    let file = graph(&path, &["mul"], r#"[{"kernel":"mul"}]"#);
    for options in [["--place", "nowhere"], ["--deadline", "-1"], ["--repeat", "0"]] {
        assert!(!et(&[&["graph", &file][..], &options].concat()).status.success(), "{options:?}");
    }
}

#[test]
fn a_trap_in_a_graph_says_where_and_what_depended_on_it() {
    let (_folder, path) = folder();
    let tasks = r#"[{"name":"bad","kernel":"trap_load","args":["u64:70"]},
        {"name":"next","kernel":"hang","after":["bad"]},
        {"name":"last","kernel":"hang","after":["next"]}]"#;
    let file = graph(&path, &["trap_load", "hang"], tasks);
    let output = et(&["graph", &file]);
    assert_eq!(output.status.code(), Some(3));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    for part in ["0 of 3 tasks complete", "failed", "not run", "because of 0 bad"] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    for part in ["task 0 \"bad\"", "hart 70", "load access fault", "trap_load.c", "sp "] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    assert!(!path("y.npy").exists(), "outputs of failed graphs are not written");

    let output = et(&["graph", &file, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let report = json(&output);
    assert_eq!(
        (&report["status"], &report["tasks"][0]["state"]),
        (&"failed".into(), &"failed".into())
    );
    assert!(report["tasks"][0]["failure"].as_str().unwrap().contains("hart 70"), "{report}");
    assert_eq!(report["tasks"][2]["root_cause"], 0);
    assert!(report["causes"][0].as_str().unwrap().contains("load access fault"), "{report}");
}

#[test]
fn a_single_hart_that_traps_is_named_too() {
    let (_folder, path) = folder();
    let tasks = r#"[{"name":"good","kernel":"task_nop"},
        {"name":"bad","kernel":"task_trap","args":["u64:1"],"after":["good"]}]"#;
    let file = graph(&path, &["task_nop", "task_trap"], tasks);
    for place in ["cores", "resident"] {
        let output = et(&["graph", &file, "--place", place, "--deadline", "20"]);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{place}: {stdout}{stderr}");
        assert!(stdout.contains("1 of 2 tasks complete"), "{place}: {stdout}");
        for part in ["\"bad\"", "hart ", "access fault"] {
            assert!(stderr.contains(part), "{place}: {part} in {stderr}");
        }
    }
}

#[test]
fn a_deadline_ends_a_graph() {
    let (_folder, path) = folder();
    let tasks = r#"[{"name":"forever","kernel":"hang"},
        {"name":"next","kernel":"hang","after":["forever"]}]"#;
    let file = graph(&path, &["hang"], tasks);
    let output = et(&["graph", &file, "--deadline", "0.2", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["tasks"][0]["state"], "failed", "{report}");
    assert_ne!(report["tasks"][1]["state"], "complete", "{report}");
    let error = report["error"].as_str().unwrap();
    assert!(error.ends_with(&format!("not complete on {DEVICE} after 200ms")), "{report}");
    assert_eq!(report["causes"][0], "task 0 \"forever\"");
}

/// A card that serves another program says nothing for ten seconds; then it is tried again.
#[test]
fn a_card_in_use_is_tried_again_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.sock");
    let busy = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (tried, attempts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Kept open, as by a server that has another client.
        while let Ok((client, _)) = busy.accept() {
            let Ok(()) = tried.send(client) else { return };
        }
    });
    let locator = format!("vfio-user:{}", path.display());
    let mut et = std::process::Command::new(env!("CARGO_BIN_EXE_et"));
    let mut et = et.args(["--busy-timeout", "60", "-d", &locator, "info"]).spawn().unwrap();
    let limit = std::time::Duration::from_secs(50);
    let both = [attempts.recv_timeout(limit), attempts.recv_timeout(limit)];
    et.kill().unwrap();
    et.wait().unwrap();
    assert!(both.iter().all(Result::is_ok));
    for bad in ["-1", "soon"] {
        assert_eq!(self::et(&["--busy-timeout", bad, "info"]).status.code(), Some(2), "{bad}");
    }
}
