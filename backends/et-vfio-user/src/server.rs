//! A socket on which a device is offered, to one client after another.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::link::Link;
use crate::session::Session;
use crate::stop::Stop;
use crate::{Closed, Device, Home, ServerError};

/// See [`Server::with_patience`].
const PATIENCE: Duration = Duration::from_secs(5);

/// Offers a device on a Unix socket.
///
/// One client is served at a time. Others that connect wait in the socket's backlog and are served
/// in turn; their version message is answered when the client before them is gone, or they give up.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    /// Removed with the server, if the server made it.
    path: Option<PathBuf>,
    stop: Arc<Stop>,
    patience: Duration,
    home: Home,
}

/// Ends a [`Server`] from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Stop>);

impl StopHandle {
    /// Closes the connection and lets [`Server::run`] and [`Server::serve_one`] return, now or as
    /// soon as the device returns from its call. Cannot be undone.
    pub fn stop(&self) {
        self.0.raise();
    }
}

/// Why [`Server::serve_one`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// [`StopHandle::stop`] was called.
    Stopped,
    /// The client is gone.
    Client(Closed),
    /// The client could not agree on a version; the device has not been told of it.
    Refused,
}

impl Server {
    /// Listens on a new socket file.
    ///
    /// # Errors
    /// [`ServerError::Bind`], also if the file exists.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, ServerError> {
        let path = path.as_ref();
        let listener = UnixListener::bind(path)
            .map_err(|source| ServerError::Bind { path: path.to_owned(), source })?;
        let mut server = Self::from_listener(listener)?;
        server.path = Some(path.to_owned());
        Ok(server)
    }

    /// As [`bind`](Self::bind), and removes the socket file that a process that was killed has left
    /// there.
    ///
    /// # Errors
    /// [`ServerError::InUse`]; as [`bind`](Self::bind), also if the file is no socket.
    pub fn bind_anew(path: impl AsRef<Path>) -> Result<Self, ServerError> {
        let path = path.as_ref();
        match UnixStream::connect(path) {
            Ok(_) => return Err(ServerError::InUse { path: path.to_owned() }),
            // So is whoever connects to an ordinary file.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let found = std::fs::symlink_metadata(path);
                if found.is_ok_and(|found| found.file_type().is_socket()) {
                    std::fs::remove_file(path)
                        .map_err(|source| ServerError::Bind { path: path.to_owned(), source })?;
                }
            }
            // Not there; or what it is, `bind` will say.
            Err(_) => {}
        }
        Self::bind(path)
    }

    /// Serves on a socket that someone else made.
    ///
    /// # Errors
    /// [`ServerError::Resource`].
    pub fn from_listener(listener: UnixListener) -> Result<Self, ServerError> {
        let refused = |what| move |source| ServerError::Resource { what, source };
        listener.set_nonblocking(true).map_err(refused("set up the socket"))?;
        let stop = Stop::new().map_err(io::Error::from).map_err(refused("make an eventfd"))?;
        Ok(Self {
            listener,
            path: None,
            stop: Arc::new(stop),
            patience: PATIENCE,
            home: Home::new(),
        })
    }

    /// How long a client may take to state its version, to finish a message it has begun, and to
    /// read a reply, before it is dropped; 5 s unless set.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What ends this server.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.stop))
    }

    /// Waits for a client and serves it until it goes.
    ///
    /// # Errors
    /// [`ServerError::Resource`] if the operating system does not give a connection.
    pub fn serve_one(&self, device: &Arc<dyn Device>) -> Result<Ended, ServerError> {
        let Some(socket) = self.accept()? else { return Ok(Ended::Stopped) };
        let link = Link::new(socket, Arc::clone(&self.stop), self.patience).map_err(|errno| {
            ServerError::Resource { what: "make an eventfd", source: errno.into() }
        })?;
        let ended = match Session::open(Arc::new(link), device) {
            Ok(session) => Ended::Client(session.run()),
            Err(why) => why,
        };
        Ok(if self.stop.is_raised() { Ended::Stopped } else { ended })
    }

    /// Serves one client after another until stopped.
    ///
    /// # Errors
    /// As for [`Server::serve_one`].
    pub fn run(&self, device: &Arc<dyn Device>) -> Result<(), ServerError> {
        loop {
            match self.serve_one(device)? {
                Ended::Stopped => return Ok(()),
                ended => tracing::debug!(?ended, "client is gone"),
            }
        }
    }

    /// The next connection; `None` when stopped.
    fn accept(&self) -> Result<Option<OwnedFd>, ServerError> {
        let failed = |errno: Errno| ServerError::Resource {
            what: "accept a connection",
            source: errno.into(),
        };
        loop {
            let mut fds = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&*self.stop, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if self.stop.is_raised() {
                return Ok(None);
            }
            match accept_with(self.listener.as_fd(), SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                // The client has gone again already.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A child has a copy of the server, and the parent still listens.
        if let Some(path) = self.path.as_ref().filter(|_| self.home.is_here()) {
            // A drop reports nothing; a file left behind is named by the next `bind`.
            let _ = std::fs::remove_file(path);
        }
    }
}
