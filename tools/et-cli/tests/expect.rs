//! `et run --expect` and `--seeds`: what a kernel made, and what it should have made.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod arrays;

use std::path::Path;
use std::process::Output;

use arrays::save;
use assert_cmd::Command;
use half::f16;
use serde_json::{Value, json};

const DEVICE: &str = "sim:shires=1,dram=1GiB";

fn et(folder: &Path, args: &[&str]) -> Output {
    let mut et = Command::cargo_bin("et").unwrap();
    et.env("ET_DEVICE", DEVICE).current_dir(folder).arg("run").args(args).output().unwrap()
}

fn kernel(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    folder.join(format!("{name}.elf")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

/// x = 0, 1, … 99 and y = 1, 1, … in a folder, with 2 x + y.
fn saxpy() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let x: Vec<f32> = (0..100u8).map(f32::from).collect();
    save(folder.path().join("x.npy"), &x);
    save(folder.path().join("y.npy"), &[1.0f32; 100]);
    save(folder.path().join("z.npy"), &x.iter().map(|x| 2.0 * x + 1.0).collect::<Vec<_>>());
    (folder, kernel("saxpy"))
}

const SAXPY: [&str; 8] =
    ["--arg", "in:x.npy", "--arg", "inout:y.npy:out.npy", "--arg", "f32:2", "--arg", "u64:100"];

#[test]
fn outputs_are_compared_with_what_is_expected() {
    let (folder, kernel) = saxpy();
    let run = |expected: &str, more: &[&str]| {
        let args = [&[&*kernel, "--expect", expected], &SAXPY[..], more].concat();
        et(folder.path(), &args)
    };
    let right = run("z.npy", &[]);
    assert!(right.status.success(), "{}", text(&right.stderr));

    let mut almost: Vec<f32> = (0..100u8).map(|x| 2.0 * f32::from(x) + 1.0).collect();
    almost[7] = 15.01;
    save(folder.path().join("almost.npy"), &almost);
    let wrong = run("almost.npy", &[]);
    let stderr = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(3), "{stderr}");
    let said = "out.npy: 1 of 100 elements differ; [7] is 15 and should be 15.01";
    assert!(stderr.contains(said), "{stderr}");
    assert!(folder.path().join("out.npy").exists(), "it is there to be looked at");
    assert!(run("almost.npy", &["--tolerance", "0.001"]).status.success());

    save(folder.path().join("doubles.npy"), &[0.0f64; 100]);
    let other = run("doubles.npy", &[]);
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stderr));
    let two = et(
        folder.path(),
        &[&[&*kernel, "--expect", "z.npy"], &SAXPY[..4], &["--expect", "z.npy"]].concat(),
    );
    assert!(
        text(&two.stderr).contains("2 arrays are expected, of 1 outputs"),
        "{}",
        text(&two.stderr)
    );
}

#[test]
fn a_kernel_with_its_fences_is_right_with_every_seed() {
    let (folder, kernel) = saxpy();
    let run = |more: &[&str]| {
        et(folder.path(), &[&[&*kernel, "--seeds", "20"], &SAXPY[..], more].concat())
    };
    let output = run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "saxpy is right with 20 of 20 seeds\n");
    assert!(!folder.path().join("out.npy").exists(), "no file is written");
    let report = document(&run(&["--json", "--expect", "z.npy"]));
    assert_eq!(report, json!({ "kernel": "saxpy", "seeds": 20, "right": 20, "wrong": [] }));
}

#[test]
fn a_kernel_without_its_fences_is_wrong_with_some_and_they_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut elf = std::fs::read(kernel("reduce")).unwrap();
    let mut fences = 0;
    for at in (0..elf.len() - 4).step_by(2) {
        let word = u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
        // Every fence does nothing, and no swap (a store here) waits for what was there.
        let patched = match word {
            0x0FF0_000F => 0x0000_0013,
            word if word & 0xFE00_707F == 0x0A00_303B => word & !(31 << 7),
            _ => continue,
        };
        fences += u32::from(word == 0x0FF0_000F);
        elf[at..at + 4].copy_from_slice(&u32::to_le_bytes(patched));
    }
    assert!(fences > 0, "the kernel has none");
    std::fs::write(folder.path().join("unfenced.elf"), &elf).unwrap();
    save(folder.path().join("x.npy"), &[1u64; 100]);
    let args = |path: &str| {
        let args = ["--arg", "in:x.npy", "--arg", "u64:100", "--arg", "out:z.npy:u64[4]"];
        let more = ["--seeds", "30", "--json"];
        et(folder.path(), &[&[path], &args[..], &more].concat())
    };
    let right = document(&args(&kernel("reduce")));
    assert_eq!(right["right"], 30, "{right}");

    let output = args("unfenced.elf");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let report = document(&output);
    let wrong = report["wrong"].as_array().unwrap();
    assert_eq!(report["right"].as_u64().unwrap() + wrong.len() as u64, 30);
    let first = &wrong[0];
    assert_eq!(first["output"], "z.npy");
    assert_ne!(first["difference"]["found"], first["difference"]["expected"]);

    // The seed is wrong again by itself.
    save(folder.path().join("sum.npy"), &[100u64, 64, 64, 64]);
    let device = format!("{DEVICE},memory=weak,seed={}", first["seed"]);
    let mut et = Command::cargo_bin("et").unwrap();
    let again = et.current_dir(folder.path()).args(["--device", &device, "run", "unfenced.elf"]);
    let again = again.args(["--arg", "in:x.npy", "--arg", "u64:100", "--arg", "out:z.npy:u64[4]"]);
    let again = again.args(["--expect", "sum.npy"]).output().unwrap();
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
}

#[test]
fn every_seed_may_be_looked_at_for_races() {
    let folder = tempfile::tempdir().unwrap();
    let run = |which: &str| {
        let mut et = Command::cargo_bin("et").unwrap();
        let device = "sim:shires=2,dram=1GiB,check=races";
        let args = ["--arg", which, "--arg", "out:c.npy:u64[1024]", "--arg", "out:s.npy:u64[1024]"];
        et.current_dir(folder.path()).args(["--device", device, "run", &*kernel("races")]);
        et.args(args).args(["--seeds", "3", "--json"]).output().unwrap()
    };
    assert_eq!(document(&run("u64:0"))["right"], 3);
    // What all write, one after the other, on flat memory is expected.
    let output = run("u64:9");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let report = document(&output);
    let error = report["wrong"][0]["error"].as_str().unwrap();
    assert!(report["right"] == 0 && error.contains("data race: store of 8 bytes"), "{report}");
}

#[test]
fn a_kernel_that_fails_is_wrong_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| et(folder.path(), args);
    // It fails on flat memory, too, so that nothing can be expected.
    let none = run(&[&kernel("trap_load"), "--seeds", "0"]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stderr));
    let fails = run(&[&kernel("trap_load"), "--seeds", "2"]);
    assert_eq!(fails.status.code(), Some(3), "{}", text(&fails.stderr));
    let card = Command::cargo_bin("et")
        .unwrap()
        .args(["--device", "vfio:0000:01:00.0", "run"])
        .args([&*kernel("trap_load"), "--seeds", "2"])
        .output()
        .unwrap();
    assert!(text(&card.stderr).contains("has no memory model to choose"), "{}", text(&card.stderr));
}

#[test]
fn half_floats_are_read_compared_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let fill = |value: f32, expected: &str| {
        save(folder.path().join(expected), &[f16::from_f32(value); 8]);
        let byte = f16::from_f32(value).to_bits().to_le_bytes();
        assert_eq!(byte[0], byte[1], "the kernel sets bytes");
        let word = format!("u64:{}", byte[0]);
        let args = ["--arg", "out:z.npy:f16[8]", "--arg", &word, "--arg", "u64:16"];
        et(folder.path(), &[&[&*kernel("memset"), "--expect", expected], &args[..]].concat())
    };
    // 0x3c3c
    let output = fill(1.058_593_8, "one.npy");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        std::fs::read(folder.path().join("z.npy")).unwrap(),
        std::fs::read(folder.path().join("one.npy")).unwrap()
    );
    let wrong = et(
        folder.path(),
        &[
            &kernel("memset"),
            "--expect",
            "one.npy",
            "--arg",
            "out:z.npy:f16[8]",
            "--arg",
            "u64:0",
            "--arg",
            "u64:16",
        ],
    );
    assert!(
        text(&wrong.stderr).contains("[0] is 0 and should be 1.05859375"),
        "{}",
        text(&wrong.stderr)
    );
}
