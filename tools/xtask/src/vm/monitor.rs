//! QEMU's control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// Limit of an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Gives QEMU one command of its human monitor.
pub(crate) fn command(socket: &Path, line: &str) -> anyhow::Result<()> {
    let stream = UnixStream::connect(socket).context("connecting to QEMU's control socket")?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let greeting = answer(&mut answers, "QMP")?;
    ensure!(greeting.is_object(), "QEMU greets with {greeting}");
    let mut stream = stream;
    execute(&mut stream, &mut answers, json!({"execute": "qmp_capabilities"}))?;
    let call = json!({"execute": "human-monitor-command", "arguments": {"command-line": line}});
    let said = execute(&mut stream, &mut answers, call)?;
    let said = said.as_str().unwrap_or_default().trim();
    // An error of the human monitor is only a text.
    for refusal in ["Error", "unknown command", "invalid", "not found"] {
        ensure!(!said.contains(refusal), "QEMU refuses \"{line}\": {said}");
    }
    Ok(())
}

fn execute(
    stream: &mut UnixStream,
    answers: &mut impl BufRead,
    call: Value,
) -> anyhow::Result<Value> {
    writeln!(stream, "{call}")?;
    answer(answers, "return")
}

/// The value of the next answer that has this key; events in between are passed over.
fn answer(answers: &mut impl BufRead, key: &str) -> anyhow::Result<Value> {
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(answers.read_line(&mut line)? != 0, "QEMU closed its control socket");
        let mut message: Value = serde_json::from_str(&line)?;
        if let Some(error) = message.get("error") {
            bail!("QEMU answers with {error}");
        }
        if let Some(value) = message.get_mut(key) {
            return Ok(value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::{BufRead, BufReader, Write, command};

    /// Plays QEMU for one command.
    fn play(says: &'static str) -> anyhow::Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let qemu = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut calls = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            stream.write_all(b"{\"QMP\": {\"version\": {}}}\n").unwrap();
            calls.read_line(&mut line).unwrap();
            stream.write_all(b"{\"return\": {}}\n{\"event\": \"RESUME\"}\n").unwrap();
            calls.read_line(&mut line).unwrap();
            stream.write_all(says.as_bytes()).unwrap();
            line
        });
        let result = command(&socket, "do this");
        assert!(qemu.join().unwrap().contains("do this"));
        result
    }

    #[test]
    fn a_command_that_is_taken_succeeds() {
        play("{\"return\": \"OK id: rp0\\r\\n\"}\n").unwrap();
    }

    #[test]
    fn refusals_of_either_kind_are_errors() {
        play("{\"return\": \"Error: no device rp0\\r\\n\"}\n").unwrap_err();
        play("{\"error\": {\"class\": \"GenericError\"}}\n").unwrap_err();
    }
}
