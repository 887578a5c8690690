//! The simulated card as a process of its own, behind a socket.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::lines::{Lines, Next};

/// Limit of its start.
const START: Duration = Duration::from_secs(20);

/// A running simulator; ends when dropped.
#[derive(Debug)]
pub(crate) struct Simulator {
    child: Child,
    _lines: Lines,
    pub(crate) socket: PathBuf,
    /// The bench itself has ended it.
    killed: bool,
}

impl Simulator {
    /// Starts it and waits until it listens; its output goes to `log` with two endings.
    pub(crate) fn start(
        program: &Path,
        args: &[&str],
        socket: &Path,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(args).arg("--socket").arg(socket).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(log.with_extension("err"))?);
        let mut child =
            command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let lines = Lines::new(output, &log.with_extension("out"));
        // From here on it ends whatever happens.
        let starting = |lines| Self { child, _lines: lines, socket: socket.into(), killed: false };
        let simulator = starting(lines?);
        let deadline = Instant::now() + START;
        loop {
            match simulator._lines.next_before(deadline) {
                Next::Line(line) if line.starts_with("listening on ") => return Ok(simulator),
                Next::Line(_) => {}
                Next::End => bail!("the simulator ended before it listened"),
                Next::Late => bail!("the simulator did not listen within {START:.0?}"),
            }
        }
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.killed = true;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The number of its process.
    #[cfg(test)]
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if the bench did not end it.
    pub(crate) fn died(&mut self) -> Option<ExitStatus> {
        if self.killed { None } else { self.child.try_wait().ok().flatten() }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
