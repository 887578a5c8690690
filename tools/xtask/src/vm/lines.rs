//! What a running program prints, line by line, with a deadline.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::Context;

/// The lines of a program's output; each is also kept in a file.
#[derive(Debug)]
pub(crate) struct Lines {
    from: Receiver<String>,
}

/// The next line, or why there is none.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Line(String),
    /// The output was closed.
    End,
    /// Nothing came in time.
    Late,
}

impl Lines {
    pub(crate) fn new(output: impl Read + Send + 'static, keep: &Path) -> anyhow::Result<Self> {
        let mut log = File::create(keep).with_context(|| format!("creating {}", keep.display()))?;
        let (to, from) = channel();
        // Ends with the output, so with the program.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|count| count != 0) {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end_matches(['\n', '\r']);
                // A full disk must not end the run; the lines still arrive.
                writeln!(log, "{text}").ok();
                // The receiver may be gone; the program's output must flow all the same.
                to.send(text.to_owned()).ok();
                line.clear();
            }
        });
        Ok(Self { from })
    }

    pub(crate) fn next_before(&self, deadline: Instant) -> Next {
        match self.from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Next::Line(line),
            Err(RecvTimeoutError::Disconnected) => Next::End,
            Err(RecvTimeoutError::Timeout) => Next::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Lines, Next};

    #[test]
    fn lines_come_without_their_ends_and_stay_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let keep = folder.path().join("log");
        let lines = Lines::new(&b"one\r\ntwo\nrest"[..], &keep).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        for expected in ["one", "two", "rest"] {
            assert_eq!(lines.next_before(deadline), Next::Line(expected.into()));
        }
        assert_eq!(lines.next_before(deadline), Next::End);
        assert_eq!(std::fs::read_to_string(keep).unwrap(), "one\ntwo\nrest\n");
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let lines = Lines::new(reader, &folder.path().join("log")).unwrap();
        assert_eq!(lines.next_before(Instant::now()), Next::Late);
    }
}
