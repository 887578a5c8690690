//! Sockets that end with the value, whatever a child of a fork still has.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{Shutdown, shutdown};

/// A socket of this process. A child of a fork has a copy of its descriptor for as long as it runs
/// the same program, so closing alone would tell the other end nothing; and dropping the child's
/// copy must not end what is the parent's.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// The process that made it.
    home: u32,
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, home: std::process::id() }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.home == std::process::id() {
            // It fails if the other end has gone, which is as good.
            let _ = shutdown(&self.fd, Shutdown::Both);
        }
    }
}
