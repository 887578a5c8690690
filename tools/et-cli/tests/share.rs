//! `et share`.

#![expect(clippy::unwrap_used, reason = "tests: a panic is a failure")]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const ET: &str = env!("CARGO_BIN_EXE_et");

/// Ends with the test, also if that fails.
struct Share(Child);

impl Drop for Share {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads events until one is there.
fn event(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> Value {
    loop {
        let line = lines.next().expect("the program has ended").unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["event"] == name {
            return event;
        }
    }
}

/// What the packaged unit starts, for such variables; without the program.
fn unit_command(variables: &[(&str, &str)]) -> Vec<String> {
    let unit = include_str!("../../packaging/et-share@.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/et "));
    let words = command.unwrap().split(' ').flat_map(|word| {
        let replace = |word: String, (name, value): &(&str, &str)| word.replace(name, value);
        let word = variables.iter().fold(word.to_owned(), replace);
        // What is not in braces is several words.
        word.split(' ').map(str::to_owned).collect::<Vec<_>>()
    });
    words.collect()
}

fn demo(socket: &str) -> Child {
    let mut et = Command::new(ET);
    et.args(["--device", &format!("vfio-user:{socket}"), "demo"]).stdout(Stdio::piped());
    et.spawn().unwrap()
}

#[test]
fn clients_of_a_shared_card_come_compute_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("share");
    let share = Command::new(ET)
        .args(["--json", "--device", "sim:shires=2,dram=512MiB", "share", "--every", "0.1"])
        .args(["--clients", "2", "--memory", "64MiB", "--dir"])
        .arg(&dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut share = Share(share);
    let mut lines = BufReader::new(share.0.stdout.take().unwrap()).lines();
    let listening = event(&mut lines, "listening");
    let socket = |slot: usize| listening["sockets"][slot].as_str().unwrap();
    let demos = [demo(socket(0)), demo(socket(1))];
    for demo in demos.into_iter().map(|demo| demo.wait_with_output().unwrap()) {
        let said = String::from_utf8_lossy(&demo.stdout);
        assert!(demo.status.success() && said.contains("correct"), "{said}");
    }
    let status = loop {
        let status = event(&mut lines, "status");
        let has_left = |slot: usize| {
            let slot = &status["slots"][slot];
            slot["clients"] == 1 && slot["pid"].is_null() && slot["ready"] == true
        };
        if has_left(0) && has_left(1) {
            break status;
        }
    };
    for slot in 0..2 {
        let slot = &status["slots"][slot];
        assert_eq!(slot["memory_bytes"], 64 << 20);
        assert!(slot["launches"].as_u64().unwrap() > 0, "{status}");
    }
    kill_process(Pid::from_child(&share.0), Signal::TERM).unwrap();
    assert!(share.0.wait().unwrap().success());
    assert!(!std::fs::exists(socket(0)).unwrap(), "the socket is left");
}

#[test]
fn the_packaged_unit_shares_a_card() {
    let folder = tempfile::tempdir().unwrap();
    let command = unit_command(&[
        ("${DEVICE}", "sim:shires=2,dram=512MiB"),
        ("${CLIENTS}", "1"),
        ("$OPTIONS", "--kernel-limit 60 --json"),
        ("%t", folder.path().to_str().unwrap()),
        ("%i", "one"),
    ]);
    let share = Command::new(ET).args(command).stdout(Stdio::piped()).spawn().unwrap();
    let mut share = Share(share);
    let mut lines = BufReader::new(share.0.stdout.take().unwrap()).lines();
    let listening = event(&mut lines, "listening");
    let socket = folder.path().join("et-share/one/0");
    assert_eq!(listening["sockets"], serde_json::json!([socket.to_str().unwrap()]));
    let demo = demo(socket.to_str().unwrap()).wait_with_output().unwrap();
    assert!(demo.status.success(), "{demo:?}");
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(ET)
        .args(["--device", "sim:shires=1,dram=256MiB", "share", "--memory", "1GiB", "--dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("do not fit"), "{said}");
}
