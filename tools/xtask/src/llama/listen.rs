//! Listening to llama.cpp's programs, some of which run for a quarter of an hour.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::judge::{self, BY_SIGNAL};

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
    let status = child.wait().context("waiting for a program")?;
    let errors = errors.join().map_err(|_| anyhow!("a reader panicked"))?;
    said += &String::from_utf8_lossy(&errors.context("reading what a program says")?);
    // What was judged before may all be well.
    if let Some(signal) = status.signal() {
        said += &format!("\n{BY_SIGNAL} {signal}\n");
    }
    Ok(said)
}

/// Tells how many cases each operator had, and how long they took.
#[derive(Default)]
pub(super) struct Operators {
    name: String,
    cases: usize,
    /// When its first case began, and its last one ended.
    times: (Duration, Duration),
}

impl Operators {
    /// Hears a line of `test-backend-ops`; tells of the operator before, if it is the first of
    /// another.
    pub(super) fn hear(&mut self, line: &str, now: Duration) -> Option<String> {
        let name = judge::operator(line)?;
        let (_, last) = self.times;
        let mut ended = None;
        if name != self.name {
            ended = self.last();
            *self = Self { name: name.to_owned(), cases: 0, times: (last, now) };
        }
        self.cases += 1;
        self.times.1 = now;
        ended
    }

    /// Tells of the last one.
    pub(super) fn last(&self) -> Option<String> {
        let Self { name, cases, times: (began, ended) } = self;
        let seconds = (*ended - *began).as_secs_f64();
        (*cases != 0).then(|| format!("{name}: {cases} cases, {seconds:.1} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_a_signal_ends_is_told_from_one_that_ends() {
        let run = |script| said(Path::new("sh"), "sim:", &["-c", script], |_| ()).unwrap();
        assert_eq!(run("echo $ET_DEVICE; exit 1"), "sim:\n");
        let killed = run("echo '| llama|OK'; kill -ABRT $$");
        assert_eq!(killed, format!("| llama|OK\n\n{BY_SIGNAL} 6\n"));
    }

    #[test]
    fn the_first_case_of_an_operator_began_when_the_one_before_had_ended() {
        let mut operators = Operators::default();
        assert_eq!(operators.last(), None);
        let mut hear = |name: &str, at| {
            operators.hear(&format!("  {name}(type=f32): OK"), Duration::from_secs(at))
        };
        assert_eq!(hear("ADD", 3), None);
        assert_eq!(hear("ADD", 4), None);
        assert_eq!(hear("MUL", 14), Some("ADD: 2 cases, 4.0 s".to_owned()));
        let unclaimed = "  DIV(type=f32): not supported [ET0]";
        assert_eq!(operators.hear(unclaimed, Duration::from_secs(20)), None);
        assert_eq!(operators.last(), Some("MUL: 1 cases, 10.0 s".to_owned()));
    }
}
