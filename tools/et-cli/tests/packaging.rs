//! `et completions` and `et man`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is a failure")]

use std::process::{Command, Stdio};

fn et(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_et")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = et(&["completions", shell]);
        for command in ["demo", "objdump", "completions"] {
            assert!(text.contains(command), "{shell}: {command}");
        }
    }
    // What bash reads is a program: it must be one.
    let text = et(&["completions", "bash"]);
    let mut bash = Command::new("bash");
    let probe = bash.arg("-n").stdin(Stdio::piped()).spawn();
    let Ok(mut bash) = probe else {
        println!("skipped, because bash is not installed");
        return;
    };
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    et(&["man", folder.path().to_str().unwrap()]);
    for name in ["et", "et-run", "et-graph", "et-stat"] {
        let page = std::fs::read_to_string(folder.path().join(name).with_extension("1")).unwrap();
        assert!(
            page.contains(&format!(".TH {name}")) && page.contains(".SH DESCRIPTION"),
            "{page}"
        );
    }
    // What makes pages is none of what users call.
    assert!(!folder.path().join("et-man.1").exists());
}
