//! One run of a guest, from power-on to power-off.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::lines::{Lines, Next};
use super::monitor;
use super::simulator::Simulator;
use super::tally::{Protocol, Tally};

/// What the host does when the guest prints a line; it answers with `HOST-DONE` then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaction {
    /// The whole line.
    pub(crate) marker: &'static str,
    pub(crate) action: Action,
}

/// Something that only the host can do to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The simulator dies without a word.
    KillSimulator,
    /// A command of QEMU's human monitor.
    Monitor(&'static str),
}

/// What one run needs beside QEMU's call.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) commands: &'a [String],
    pub(crate) reactions: &'a [Reaction],
    pub(crate) limit: Duration,
    /// QEMU's control socket.
    pub(crate) monitor: &'a Path,
    /// Receives the guest's lines; QEMU's errors go beside it.
    pub(crate) log: &'a Path,
}

/// What became of a guest.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tally: Tally,
    /// Its first process ran: what failed then is not the emulator's fault.
    pub(crate) userspace: bool,
}

/// A started QEMU; ends when dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It has most likely ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Run<'_> {
    /// Runs the guest until it powers off, at most until the limit.
    pub(crate) fn run(
        &self,
        mut qemu: Command,
        mut simulator: Option<Simulator>,
    ) -> anyhow::Result<Ended> {
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped());
        qemu.stderr(File::create(self.log.with_extension("qemu"))?);
        let mut guest = Guest(qemu.spawn().context("starting QEMU")?);
        let lines = Lines::new(guest.0.stdout.take().context("its output is a pipe")?, self.log)?;
        let mut answers = guest.0.stdin.take().context("its input is a pipe")?;
        let deadline = Instant::now() + self.limit;
        let mut protocol = Protocol::new(self.commands.iter().cloned());
        let end = loop {
            match lines.next_before(deadline) {
                Next::Line(line) => {
                    protocol.take(&line);
                    if let Err(error) = self.react(&line, simulator.as_mut(), &mut answers) {
                        protocol.tally.fail(format!("the host cannot react: {error:#}"));
                    }
                }
                Next::End => break "QEMU ended".to_owned(),
                Next::Late => break format!("the limit of {:.0?} was over", self.limit),
            }
        };
        drop(guest);
        if let Some(status) = simulator.as_mut().and_then(Simulator::died) {
            protocol.tally.fail(format!("the simulator ended by itself with {status}"));
        }
        Ok(Ended { userspace: protocol.userspace, tally: protocol.finish(&end) })
    }

    fn react(
        &self,
        line: &str,
        simulator: Option<&mut Simulator>,
        answers: &mut ChildStdin,
    ) -> anyhow::Result<()> {
        let Some(reaction) = self.reactions.iter().find(|reaction| reaction.marker == line) else {
            return Ok(());
        };
        match reaction.action {
            Action::KillSimulator => simulator.context("there is no simulator")?.kill()?,
            Action::Monitor(command) => monitor::command(self.monitor, command)?,
        }
        writeln!(answers, "HOST-DONE").context("answering the guest")
    }
}

/// The last lines of a file, for a failure's report.
pub(crate) fn tail(path: &Path, count: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;
    use std::time::Duration;

    use super::{Action, Ended, Reaction, Run, Simulator};

    /// Runs a shell script in QEMU's place.
    fn run(script: &str, limit: Duration, reactions: &[Reaction]) -> Ended {
        run_with(script, limit, reactions, None)
    }

    fn run_with(
        script: &str,
        limit: Duration,
        reactions: &[Reaction],
        simulator: Option<Simulator>,
    ) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let commands = ["a".to_owned()];
        let log = folder.path().join("log");
        let monitor = folder.path().join("monitor");
        let run = Run { commands: &commands, reactions, limit, monitor: &monitor, log: &log };
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        run.run(shell, simulator).unwrap()
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_guest_that_says_so_has_passed() {
        let script = "echo GUEST-USERSPACE 1; echo GUEST-RUN a; echo 'test x ... ok'
                      echo GUEST-EXIT 0; echo GUEST-RC 0";
        let ended = run(script, LONG, &[]);
        assert!(ended.userspace);
        assert_eq!((ended.tally.passed, ended.tally.failed), (1, 0));
    }

    #[test]
    fn a_guest_that_hangs_is_ended_and_has_failed() {
        let ended = run("echo GUEST-USERSPACE 1; exec sleep 600", Duration::from_millis(300), &[]);
        assert!(ended.userspace);
        assert_eq!(ended.tally.failed, 1);
        assert!(ended.tally.reasons[0].contains("limit"), "{:?}", ended.tally.reasons);
    }

    #[test]
    fn success_of_the_emulator_is_not_success_of_the_guest() {
        let ended = run("exit 0", LONG, &[]);
        assert!(!ended.userspace);
        assert_eq!(ended.tally.failed, 1);
    }

    #[test]
    fn the_guest_is_told_what_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let simulator = folder.path().join("simulator");
        let script = "#!/bin/sh\necho listening on $2; exec sleep 600";
        std::fs::write(&simulator, script).unwrap();
        std::fs::set_permissions(&simulator, Permissions::from_mode(0o755)).unwrap();
        let socket = folder.path().join("socket");
        let simulator =
            Simulator::start(&simulator, &[], &socket, &folder.path().join("simulator.log"))
                .unwrap();
        let reactions = [Reaction { marker: "DO-IT", action: Action::KillSimulator }];
        let script = "echo GUEST-RUN a; echo DO-IT; read answer; echo \"test $answer ... ok\"
                      echo GUEST-EXIT 0; echo GUEST-RC 0";
        let ended = run_with(script, LONG, &reactions, Some(simulator));
        assert_eq!((ended.tally.passed, ended.tally.failed), (1, 0), "{:?}", ended.tally.reasons);
    }

    #[test]
    fn a_simulator_that_ends_by_itself_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let simulator = folder.path().join("simulator");
        // It ends when its file is there, which the guest makes.
        let end = folder.path().join("end");
        let script =
            format!("#!/bin/sh\nmkfifo {0}; echo listening on $2; exec cat {0}", end.display());
        std::fs::write(&simulator, script).unwrap();
        std::fs::set_permissions(&simulator, Permissions::from_mode(0o755)).unwrap();
        let socket = folder.path().join("socket");
        let log = folder.path().join("simulator.log");
        let simulator = Simulator::start(&simulator, &[], &socket, &log).unwrap();
        let process = simulator.process();
        let script = format!(
            "echo GUEST-RUN a; echo > {}; while ! grep -q '^State:.Z' /proc/{process}/status; do :; done
             echo GUEST-EXIT 0; echo GUEST-RC 0",
            end.display()
        );
        let ended = run_with(&script, LONG, &[], Some(simulator));
        assert_eq!(ended.tally.failed, 1);
        assert!(ended.tally.reasons[0].contains("by itself"), "{:?}", ended.tally.reasons);
    }

    #[test]
    fn a_reaction_that_cannot_be_had_is_a_failure() {
        let reactions = [Reaction { marker: "DO-IT", action: Action::KillSimulator }];
        let script = "echo GUEST-RUN a; echo DO-IT; echo GUEST-EXIT 0; echo GUEST-RC 0";
        let ended = run(script, LONG, &reactions);
        assert_eq!(ended.tally.failed, 1);
        assert!(ended.tally.reasons[0].contains("simulator"), "{:?}", ended.tally.reasons);
    }
}
