//! Listening to llama.cpp's programs, some of which run for a quarter of an hour.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, anyhow};

use super::judge;

/// Runs a program on a device, and returns what it said on both outputs; `hear` gets each line of
/// the first as it comes.
pub(super) fn said(
    program: &Path,
    device: &str,
    args: &[&str],
    mut hear: impl FnMut(&str),
) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(args).env("ET_DEVICE", device).stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {}", program.display()))?;
    let (Some(output), Some(mut errors)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes");
    };
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        errors.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut said = String::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading what a program says")?;
        let line = String::from_utf8_lossy(&line);
        hear(&line);
        said += &line;
        said.push('\n');
    }
    child.wait().context("waiting for a program")?;
    let errors = errors.join().map_err(|_| anyhow!("a reader panicked"))?;
    Ok(said + &String::from_utf8_lossy(&errors.context("reading what a program says")?))
}

/// Tells how many cases of each operator have ended, and how long they took.
#[derive(Default)]
pub(super) struct Operators {
    current: Option<(String, usize, Instant)>,
}

impl Operators {
    /// Hears a line of `test-backend-ops`.
    pub(super) fn hear(&mut self, line: &str) {
        let Some(name) = judge::operator(line) else { return };
        match &mut self.current {
            Some((current, count, _)) if current == name => *count += 1,
            // Its first case began when the last of the one before had ended.
            current => {
                let began = Instant::now();
                if let Some(ended) = current.replace((name.to_owned(), 1, began)) {
                    print(&ended);
                }
            }
        }
    }

    /// Tells of the last one.
    pub(super) fn tell(&self) {
        self.current.iter().for_each(print);
    }
}

fn print((name, count, began): &(String, usize, Instant)) {
    println!("  {name}: {count} cases, {:.1} s", began.elapsed().as_secs_f64());
}
