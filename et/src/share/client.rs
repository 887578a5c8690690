//! Looking at the device of another process.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use et_runtime::management::{Answer, ManagementCounters, Relay};
use et_runtime::{Activity, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect as connect_to, recv,
    send, socket_with, sockopt,
};

use super::socket::Socket;
use super::wire::{self, Failure, Request, Response};
use super::{ShareError, Shared, name, shared};

/// How long the other side may take for its greeting, and for what is not the service processor's
/// time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Connects to a device of another process, for
/// [`Management::through`](crate::Management::through).
///
/// # Errors
/// [`ShareError`].
pub fn connect(
    pid: u32,
    index: Option<u32>,
) -> std::result::Result<impl Relay + use<>, ShareError> {
    let is_it = |other: &Shared| other.pid == pid && index.is_none_or(|it| it == other.index);
    let found = shared().into_iter().find(is_it);
    greet(&found.ok_or(ShareError::Missing { pid, index })?).map(|(connection, _)| connection)
}

/// Connects to whoever shares the device of that name; `None` if no one does, or not with us.
pub(crate) fn find(locator: &str) -> Option<impl Relay + use<>> {
    // The names of the sockets may be cut short; the greeting is not.
    let mut greeted = shared().into_iter().filter_map(|other| greet(&other).ok());
    greeted.find(|(_, theirs)| theirs == locator).map(|(connection, _)| connection)
}

/// Connects, and returns where the device is from.
fn greet(to: &Shared) -> std::result::Result<(Connection, String), ShareError> {
    let pid = to.pid;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: Socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(ShareError::os("create a socket"))?
        .into();
    match connect_to(&socket, &name::of(to)?) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED) => return Err(ShareError::Missing { pid, index: Some(to.index) }),
        Err(Errno::AGAIN) => return Err(ShareError::Crowded { pid }),
        Err(errno) => return Err(ShareError::os("connect")(errno)),
    }
    // The name says nothing of who made it.
    let own = rustix::process::geteuid();
    let peer = sockopt::socket_peercred(&socket).map_err(ShareError::os("see who it is"))?;
    if peer.uid != own && !peer.uid.is_root() && !own.is_root() {
        return Err(ShareError::ForeignUser { pid });
    }
    let mut message = [0; wire::MOST];
    match receive(&socket, &mut message, Instant::now() + PATIENCE) {
        Ok(&[]) if peer.uid != own && !own.is_root() => Err(ShareError::ForeignUser { pid }),
        Ok(&[]) => Err(ShareError::Crowded { pid }),
        Ok(greeting) => match wire::parse_greeting(greeting) {
            Some(locator) => {
                let counters = ManagementCounters::default();
                let open = Open { socket: Some(socket), counters };
                Ok((Connection { to: to.clone(), open: Mutex::new(open) }, locator))
            }
            None => Err(ShareError::Version { pid }),
        },
        Err(errno) => Err(ShareError::os("hear from the process")(errno)),
    }
}

/// Receives a message; an empty one when the other side has closed.
fn receive<'m>(
    socket: &Socket,
    message: &'m mut [u8; wire::MOST],
    until: Instant,
) -> std::result::Result<&'m [u8], Errno> {
    loop {
        match recv(socket, &mut message[..], RecvFlags::DONTWAIT) {
            Ok((_, len)) => return Ok(message.get(..len).unwrap_or_default()),
            Err(Errno::CONNRESET) => return Ok(&[]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// A connection to the process that has the device.
struct Connection {
    to: Shared,
    open: Mutex<Open>,
}

struct Open {
    /// `None` once it is of no use: an answer that came late would be taken for the next one.
    socket: Option<Socket>,
    counters: ManagementCounters,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.to.to_string()).finish()
    }
}

impl Connection {
    /// One request at a time; what is in here is consistent at each step.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay for Connection {
    fn call(&self, id: u16, payload: &[u8], op: &'static str, timeout: Duration) -> Result<Answer> {
        let mut open = self.lock();
        let socket = open.socket.take().ok_or_else(|| Error::closed(op))?;
        let request = Request { id, timeout, payload }.encode();
        let until = Instant::now() + timeout.saturating_add(PATIENCE);
        let mut message = [0; wire::MOST];
        let received = send(&socket, &request, SendFlags::NOSIGNAL)
            .and_then(|_| receive(&socket, &mut message, until));
        let response = match received {
            Ok(message) => Response::parse(message),
            Err(Errno::TIMEDOUT) => return Err(Failure::Timeout.error(op, timeout)),
            Err(_) => None,
        };
        let Response { outcome, counters } = response.ok_or_else(|| Error::closed(op))?;
        (open.socket, open.counters) = (Some(socket), counters);
        outcome.map_err(|failure| failure.error(op, timeout))
    }

    fn counters(&self) -> ManagementCounters {
        self.lock().counters
    }

    fn activity(&self, timeout: Duration) -> Result<Activity> {
        let op = "asking what the device does";
        let answer = self.call(wire::ACTIVITY, &[], op, timeout)?;
        wire::parse_activity(&answer.payload).ok_or_else(|| Error::closed(op))
    }
}
