//! The other process of a measurement: this program again, with a subcommand that help does not
//! show.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use et::sim::BoardConfig;
use et_sim_device::Board;
use et_sim_server::{Card, CardOptions};
use et_vfio_user::{Device, Server};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use super::processor::Pinned;
use super::{LIMIT, calls};

/// Name of the subcommand.
const SUBCOMMAND: &str = "peer";
/// Looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// What the other process does.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Role {
    /// Simulates a card behind a socket.
    Card { socket: PathBuf, board: BoardConfig },
    /// Sends back on standard output what comes in on standard input.
    Echo { spin_us: u64 },
    /// Sends commands to a card, without a system call between them that is not needed.
    Submit { socket: PathBuf, commands: u32 },
}

/// Plays a role, until told or killed.
pub(crate) fn play(role: &Role, cpu: Option<usize>) -> anyhow::Result<()> {
    // Whatever becomes of the measurement, its peers do not stay.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let _pinned = cpu.map(Pinned::to).transpose()?;
    match role {
        Role::Card { socket, board } => serve(socket, board.clone()),
        Role::Echo { spin_us } => echo(Duration::from_micros(*spin_us)),
        Role::Submit { socket, commands } => calls::submit(socket, *commands),
    }
}

fn serve(socket: &Path, board: BoardConfig) -> anyhow::Result<()> {
    let mut config = board;
    config.waits_for_host = true;
    let card: Arc<dyn Device> = Arc::new(Card::new(Board::power_on(config)?, CardOptions::new()));
    let server = Server::bind(socket)?;
    println!("listening");
    Ok(server.run(&card)?)
}

fn echo(spin: Duration) -> anyhow::Result<()> {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    loop {
        match receive(&input, spin, Duration::MAX) {
            Ok(Some(message)) => ensure!(rustix::io::write(&output, &message)? == message.len()),
            Ok(None) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Takes one message: looks for `spin`, then sleeps. `None` is the end of a socket.
fn receive(from: impl AsFd, spin: Duration, limit: Duration) -> anyhow::Result<Option<[u8; 8]>> {
    let mut message = [0; 8];
    let start = Instant::now();
    while !spin.is_zero() && start.elapsed() < spin {
        for _ in 0..LOOKS_PER_CLOCK {
            match rustix::io::read(&from, &mut message) {
                Ok(8) => return Ok(Some(message)),
                Err(Errno::AGAIN) => std::hint::spin_loop(),
                Ok(0) => return Ok(None),
                Ok(len) => bail!("a message of {len} bytes"),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    let timeout = Timespec::try_from(limit).ok();
    let mut fds = [PollFd::new(&from, PollFlags::IN)];
    ensure!(poll(&mut fds, timeout.as_ref())? != 0, "no message within {limit:?}");
    match rustix::io::read(&from, &mut message)? {
        8 => Ok(Some(message)),
        0 => Ok(None),
        len => bail!("a message of {len} bytes"),
    }
}

/// This program, playing a role, on that processor if one is named.
pub(super) fn program(cpu: Option<usize>, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg(SUBCOMMAND);
    if let Some(cpu) = cpu {
        command.arg("--cpu").arg(cpu.to_string());
    }
    command.args(arguments);
    Ok(command)
}

/// A process that ends when dropped.
#[derive(Debug)]
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A simulated card in another process.
#[derive(Debug)]
pub(super) struct CardProcess {
    _peer: Peer,
    _directory: TempDir,
    pub(super) socket: PathBuf,
}

impl CardProcess {
    /// Starts it and waits until it listens.
    pub(super) fn start(board: &str) -> anyhow::Result<Self> {
        Self::start_on(None, board)
    }

    /// The same on one processor.
    pub(super) fn start_on(cpu: Option<usize>, board: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("making a directory for the socket")?;
        let socket = directory.path().join("card");
        let path = socket.to_str().context("the directory's name is no text")?;
        let mut command = program(cpu, &["card", path, board])?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take();
        let peer = Peer(child);
        wait_for_output(&output.context("its output is a pipe")?)?;
        Ok(Self { _peer: peer, _directory: directory, socket })
    }

    /// Its name for [`et::open`].
    pub(super) fn locator(&self) -> String {
        format!("vfio-user:{}", self.socket.display())
    }
}

/// Waits for the line that says that the process is ready.
fn wait_for_output(output: &ChildStdout) -> anyhow::Result<()> {
    let limit = Timespec::try_from(LIMIT).ok();
    let mut fds = [PollFd::new(output, PollFlags::IN)];
    ensure!(poll(&mut fds, limit.as_ref())? != 0, "the card did not start within {LIMIT:?}");
    let mut line = [0; 64];
    ensure!(rustix::io::read(output, &mut line)? != 0, "the card ended before it listened");
    Ok(())
}

/// A process that sends back what it gets.
#[derive(Debug)]
pub(super) struct Echo {
    _peer: Peer,
    to: OwnedFd,
    from: OwnedFd,
    spin: Duration,
}

impl Echo {
    /// Over an eventfd each way. Both sides look for `spin` before they sleep.
    pub(super) fn eventfds(spin: Duration, cpu: Option<usize>) -> anyhow::Result<Self> {
        let line = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (to, from) = (line()?, line()?);
        let (input, output) = (to.try_clone()?, from.try_clone()?);
        Self::start((spin, cpu), (to, from), (input, output))
    }

    /// Over a pair of Unix sockets.
    pub(super) fn sockets(spin: Duration, cpu: Option<usize>) -> anyhow::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let (from, output) = (ours.try_clone()?, theirs.try_clone()?);
        Self::start((spin, cpu), (ours, from), (theirs, output))
    }

    fn start(
        (spin, cpu): (Duration, Option<usize>),
        (to, from): (OwnedFd, OwnedFd),
        (input, output): (OwnedFd, OwnedFd),
    ) -> anyhow::Result<Self> {
        let mut command = program(cpu, &["echo", &spin.as_micros().to_string()])?;
        let child = command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).spawn()?;
        Ok(Self { _peer: Peer(child), to, from, spin })
    }

    /// One message there and back.
    pub(super) fn trip(&self) -> anyhow::Result<()> {
        let message = 1_u64.to_le_bytes();
        rustix::io::write(&self.to, &message)?;
        let back = receive(&self.from, self.spin, LIMIT)?;
        ensure!(back == Some(message), "something else came back");
        Ok(())
    }
}
