//! The thread that answers others on behalf of a device.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use et_hal::Hal;
use et_runtime::Device;
use et_runtime::management::{Answer, ManagementCounters, Watch, command_info};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, listen, recv,
    send, socket_with, socketpair, sockopt,
};

use super::socket::Socket;
use super::wire::{self, Failure, Request, Response};
use super::{MOST_CLIENTS, ShareError, Shared, name};

/// Longest time that one request may keep the others waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long no one is accepted after the system could not give a connection: what waits stays
/// readable, and would keep the thread busy.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// A device that is shared for as long as this lives.
#[derive(Debug)]
pub struct Share {
    shared: Shared,
    /// Dropped to end the thread.
    stop: Option<Socket>,
    thread: Option<JoinHandle<()>>,
}

impl Share {
    /// Returns what others call the device.
    #[must_use]
    pub fn name(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.shared.pid != std::process::id() {
            // The child of a fork has a copy; the thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        drop(self.stop.take());
        let thread = self.thread.take().map(JoinHandle::join);
        debug_assert!(!matches!(thread, Some(Err(_))), "the thread that shares panicked");
    }
}

/// Shares a device that was not opened by [`open`](crate::open), or was by a process that does not
/// share; `locator` says where it is from.
///
/// It ends with the return value, which [`Device::attach`] can keep.
///
/// # Errors
/// [`ShareError::Os`].
pub fn share<H: Hal>(device: &Device<H>, locator: &str) -> Result<Share, ShareError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let (pid, index) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let shared = Shared { pid, index, locator: locator.to_owned() };
    let listener: Socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(ShareError::os("create a socket"))?
            .into();
    bind(&listener, &name::of(&shared)?).map_err(ShareError::os("name the socket"))?;
    listen(&listener, BACKLOG).map_err(ShareError::os("listen"))?;
    let flags = SocketFlags::CLOEXEC;
    let (stop, stopped) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(|(stop, stopped)| (Socket::from(stop), Socket::from(stopped)))
        .map_err(ShareError::os("create a socket"))?;
    let server = Server {
        device: device.watch(),
        greeting: wire::greeting(locator),
        counters: ManagementCounters::default(),
    };
    let thread = std::thread::Builder::new()
        .name("et-share".into())
        .spawn(move || server.serve(&listener, &stopped))
        .map_err(|source| ShareError::Os { what: "start a thread", source })?;
    Ok(Share { shared, stop: Some(stop), thread: Some(thread) })
}

struct Server<H: Hal> {
    device: Watch<H>,
    greeting: Vec<u8>,
    /// As of the latest answer.
    counters: ManagementCounters,
}

impl<H: Hal> Server<H> {
    /// Answers until the other end of `stopped` is closed.
    fn serve(mut self, listener: &Socket, stopped: &Socket) {
        let mut clients: Vec<Socket> = Vec::new();
        let mut accepts = true;
        loop {
            let newcomers = accepts.then(|| listener.as_fd());
            let Ok(ready) = wait(stopped.as_fd(), newcomers, &clients) else { return };
            if ready.is_stopped {
                return;
            }
            let mut is_ready = ready.clients.into_iter();
            clients.retain(|client| !is_ready.next().unwrap_or(false) || self.answer(client));
            accepts = true;
            if !ready.has_new {
                continue;
            }
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(client) => {
                    let client = Socket::from(client);
                    if clients.len() < MOST_CLIENTS
                        && is_trusted(&client)
                        && tell(&client, &self.greeting)
                    {
                        clients.push(client);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // Out of descriptors, or of memory.
                Err(_) => accepts = false,
            }
        }
    }

    /// Answers one request; `false` if the connection is over.
    fn answer(&mut self, client: &Socket) -> bool {
        let mut message = [0; wire::MOST];
        let received = recv(client, &mut message[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC);
        let request = match received {
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Ok((_, len)) => message.get(..len).and_then(Request::parse),
            Err(_) => None,
        };
        // Who closes, or writes something else, is not answered.
        let Some(request) = request else { return false };
        let outcome = self.execute(&request);
        let response = Response { outcome, counters: self.counters };
        tell(client, &response.encode())
    }

    fn execute(&mut self, request: &Request<'_>) -> Result<Answer, Failure> {
        if request.id == wire::ACTIVITY {
            let payload = wire::encode_activity(self.device.activity()?).into();
            return Ok(Answer { status: 0, latency: Duration::ZERO, payload });
        }
        if !command_info(request.id).is_some_and(|command| command.is_query()) {
            let why = "left to the process that has the card; others may only look".to_owned();
            return Err(Failure::Refused(why));
        }
        let management = self.device.management()?.with_timeout(request.timeout.min(PATIENCE));
        let answer = management.forward(request.id, request.payload, "shared query");
        self.counters = management.counters();
        Ok(answer?)
    }
}

struct Ready {
    is_stopped: bool,
    has_new: bool,
    clients: Vec<bool>,
}

/// Without a listener, for a while at most.
fn wait(
    stopped: BorrowedFd<'_>,
    listener: Option<BorrowedFd<'_>>,
    clients: &[Socket],
) -> Result<Ready, Errno> {
    let timeout = listener.is_none().then_some(&PAUSE);
    let fds = [stopped, listener.unwrap_or(stopped)];
    let fds = fds.into_iter().chain(clients.iter().map(AsFd::as_fd));
    let mut fds: Vec<PollFd<'_>> =
        fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    // Also what has failed: the call that follows finds out.
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    let (is_stopped, has_new) = (ready.next() == Some(true), ready.next() == Some(true));
    Ok(Ready { is_stopped, has_new, clients: ready.collect() })
}

/// Only the own user and root.
fn is_trusted(client: &Socket) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(client).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Who does not take what it asked for is not waited for.
fn tell(client: &Socket, message: &[u8]) -> bool {
    send(client, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}
