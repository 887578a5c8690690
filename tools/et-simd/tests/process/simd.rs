//! The program as a child of the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use et::{AnyHal, Device};
use rustix::process::{Pid, Signal, kill_process};

/// Long enough for a busy machine; only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(100);

/// Two shires and little memory.
const BOARD: &str = "shires=2,dram=1GiB";

/// Looks again and again until `done`.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A folder for sockets. There is one at a time, so that a test may count what the process has.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    pub(crate) fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self { folder: tempfile::tempdir().unwrap(), _turn: turn }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("card")
    }

    pub(crate) fn open(&self) -> Device<AnyHal> {
        self.try_open().unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    pub(crate) fn try_open(&self) -> Result<Device<AnyHal>, et::OpenError> {
        et::open(&format!("vfio-user:{}", self.socket().display()))
    }

    pub(crate) fn start(&self) -> Simd {
        self.start_with(&[])
    }

    /// Starts the program and waits until it says that it listens.
    pub(crate) fn start_with(&self, args: &[&str]) -> Simd {
        let socket = self.socket();
        let mut command = program();
        command.arg("--socket").arg(&socket).args(["--board", BOARD]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = lines(child.stdout.take().unwrap());
        let simd = Simd { child, said };
        assert_eq!(simd.hear().as_deref(), Some(&*format!("listening on {}", socket.display())));
        simd
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        program().arg("--socket").arg(self.socket()).args(args).output().unwrap()
    }
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_et-simd"))
}

/// What a child says, line by line, until it has ended.
pub(crate) fn lines(from: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The running program; killed at the end.
pub(crate) struct Simd {
    child: Child,
    said: Receiver<String>,
}

impl Simd {
    /// The next line, or `None` when the program has ended.
    fn hear(&self) -> Option<String> {
        match self.said.recv_timeout(LONG) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the program says nothing"),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) fn end(mut self) -> ExitStatus {
        assert_eq!(self.hear(), None, "it says nothing more");
        self.child.wait().unwrap()
    }

    /// Ends it without a chance to tidy up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns `true` if none of its threads runs.
    pub(crate) fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
            // The name before the state is in parentheses.
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, after)| after.starts_with('T'))
        })
    }

    /// Parts of the address space that are memory of a client.
    pub(crate) fn windows(&self) -> usize {
        client_memory(&PathBuf::from(format!("/proc/{}", self.child.id())))
    }

    pub(crate) fn descriptors(&self) -> usize {
        descriptors(&format!("/proc/{}/fd", self.child.id()))
    }
}

impl Drop for Simd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client_memory(process: &Path) -> usize {
    let mut maps = String::new();
    std::fs::File::open(process.join("maps")).unwrap().read_to_string(&mut maps).unwrap();
    maps.lines().filter(|line| line.contains("memfd:et-dma")).count()
}

fn descriptors(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// What this process has: descriptors and DMA memory.
pub(crate) fn possessions() -> (usize, usize) {
    (descriptors("/proc/self/fd"), client_memory(Path::new("/proc/self")))
}

/// An error and all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
