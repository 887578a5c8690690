//! The simulator without a guest: its socket, and programs that drive it from the host.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::hindrance::Hindrance;
use super::layers::CPU_ACCESS;
use super::program::limited;
use super::simulator::Simulator;
use super::stage::Bench;
use super::tally::{Protocol, Tally};

/// Limit of one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Limit of one command.
const COMMAND: Duration = Duration::from_secs(900);

pub(crate) fn run(bench: &mut Bench, commands: &[&str], folder: &Path) -> Result<Tally, Hindrance> {
    let program = bench.simulator()?;
    let sockets = tempfile::tempdir()?;
    let socket = sockets.path().join("card");
    let log = folder.join("simulator.log");
    let mut tally = Tally::default();
    let mut simulator = Simulator::start(&program, &[], &socket, &log)?;
    // The second shows that it outlives its client.
    for client in ["first", "second"] {
        match negotiate(&socket) {
            Ok(()) => tally.passed += 1,
            Err(error) => tally.fail(format!("version of the {client} client: {error:#}")),
        }
    }
    if let Some(status) = simulator.died() {
        tally.fail(format!("the simulator ended by itself with {status}"));
    }
    drop(simulator);
    for (index, command) in commands.iter().enumerate() {
        let socket = sockets.path().join(format!("card{index}"));
        let log = folder.join(format!("command{index}.log"));
        match on_host(bench, &program, command, &socket, &log) {
            Ok(result) => tally.add(result),
            Err(hindrance) => tally.hinder(command, &hindrance),
        }
    }
    Ok(tally)
}

/// Runs a command of the host against a simulator of its own.
fn on_host(
    bench: &mut Bench,
    simulator: &Path,
    command: &str,
    socket: &Path,
    log: &Path,
) -> Result<Tally, Hindrance> {
    let name = command.split(' ').next().unwrap_or_default();
    let program = bench.builds.program(name)?;
    let mut simulator = Simulator::start(simulator, CPU_ACCESS, socket, log)?;
    let place = socket.to_str().context("the temporary folder's name is not text")?;
    let mut call = Command::new(program);
    call.args(command.split(' ').skip(1).map(|word| word.replace("{socket}", place)));
    let output = limited(COMMAND, &call).output().context("starting timeout")?;
    let text = String::from_utf8_lossy(&output.stdout);
    File::create(log)?.write_all(&output.stdout)?;
    File::create(log.with_extension("errors"))?.write_all(&output.stderr)?;
    // The same protocol as in a guest, with the host in the place of its first process.
    let mut protocol = Protocol::new([command.to_owned()]);
    protocol.take(&format!("GUEST-RUN {command}"));
    text.lines().for_each(|line| protocol.take(line));
    protocol.take(&format!("GUEST-EXIT {}", output.status.code().unwrap_or(-1)));
    protocol.take(&format!("GUEST-RC {}", u8::from(!output.status.success())));
    if let Some(status) = simulator.died() {
        protocol.tally.fail(format!("the simulator ended by itself with {status}"));
    }
    Ok(protocol.finish("the command ended"))
}

/// Connects and agrees on a version, as every client of the vfio-user protocol begins.
fn negotiate(socket: &Path) -> anyhow::Result<()> {
    const VERSION: u16 = 1;
    const REPLY: u32 = 1;
    let mut stream = UnixStream::connect(socket).context("connecting")?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let capabilities = b"{\"capabilities\":{\"max_msg_fds\":8}}\0";
    let id = 0x1234_u16;
    let length = u32::try_from(16 + 4 + capabilities.len())?;
    let mut request = Vec::new();
    request.extend(id.to_le_bytes());
    request.extend(VERSION.to_le_bytes());
    request.extend(length.to_le_bytes());
    request.extend([0; 8]);
    // Version 0.1 of the protocol.
    request.extend([0, 0, 1, 0]);
    request.extend(capabilities);
    stream.write_all(&request)?;

    let mut header = [0; 16];
    stream.read_exact(&mut header).context("reading the reply")?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    ensure!(half(0) == id && half(2) == VERSION, "the reply is to another request");
    ensure!(word(8) == REPLY, "the reply has the flags {:#x}, error {}", word(8), word(12));
    ensure!((20..=4096).contains(&word(4)), "the reply has {} bytes", word(4));
    let mut body = vec![0; usize::try_from(word(4))? - 16];
    stream.read_exact(&mut body).context("reading the reply")?;
    ensure!(body[..2] == [0, 0], "another major version");
    Ok(())
}
