//! What can go wrong on either side.

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

use crate::Command;

/// A connection that cannot be used any more; it has been closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// The peer closed its end, or died.
    #[error("peer closed the connection")]
    ByPeer,
    /// The peer closed its end, or died, in the middle of a message.
    #[error("peer closed the connection after {have} bytes of a message of {of}")]
    MidMessage {
        /// Bytes that came.
        have: usize,
        /// Bytes announced; at least the 16 of a header.
        of: usize,
    },
    /// The rest of a message did not come.
    #[error("peer stopped in the middle of a message for {0:?}")]
    Stalled(Duration),
    /// Too many requests have not been answered.
    #[error("peer has left {0} requests unanswered")]
    Unanswered(usize),
    /// A message could be sent only in part, since the peer does not read.
    #[error("peer did not take the rest of a message within {0:?}")]
    NotTaken(Duration),
    /// A header announces less than its own length, so the next message cannot be found.
    #[error("peer announced a message of {0} bytes, less than a header")]
    Undersized(u32),
    /// A message is too long even to be skipped.
    #[error("peer announced a message of {announced} bytes, the limit is {limit}")]
    Oversized {
        /// Length in the header.
        announced: u32,
        /// Longest message that would have been skipped.
        limit: usize,
    },
    /// Neither request nor reply.
    #[error("peer sent a message of type {0}")]
    BadType(u32),
    /// A reply that was not asked for, or to another command.
    #[error("peer replied to message {id} (command {command}), which was not asked")]
    UnexpectedReply {
        /// Message id of the reply.
        id: u16,
        /// Command of the reply.
        command: u16,
    },
    /// This side closed the connection.
    #[error("connection was closed on this side")]
    Here,
    /// The connection is that of the process of which this one is a fork.
    #[error("connection belongs to the process that made it, and this is a fork of that")]
    Forked,
    /// The operating system refused.
    #[error("{call} failed")]
    System {
        /// System call.
        call: &'static str,
        /// What it said.
        #[source]
        errno: Errno,
    },
}

/// What a client meets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nothing listens on the socket.
    #[error("cannot connect to {}; is the device process running?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The server accepted the connection but does not answer.
    #[error(
        "no answer to the version message within {0:?}; the server may be serving another client"
    )]
    NoAnswer(Duration),
    /// The two sides cannot agree.
    #[error("server speaks another protocol: {0}")]
    Version(String),
    /// The connection is gone; connect again.
    #[error("connection to the device is gone")]
    Disconnected(#[source] Closed),
    /// The server has not answered in time; the request may still be carried out.
    #[error("no answer to {command:?} within {after:?}")]
    Timeout {
        /// What was asked.
        command: Command,
        /// How long was waited.
        after: Duration,
    },
    /// The server refused the request.
    #[error("device refused {command:?}")]
    Refused {
        /// What was asked.
        command: Command,
        /// Why; `EIO` if the server did not say.
        #[source]
        errno: Errno,
    },
    /// The reply makes no sense.
    #[error("reply to {command:?} is wrong: {what}")]
    BadReply {
        /// What was asked.
        command: Command,
        /// What is wrong.
        what: &'static str,
    },
    /// The caller's argument cannot be sent.
    #[error("argument of {command:?} is wrong: {what}")]
    Argument {
        /// What would have been asked.
        command: Command,
        /// What is wrong.
        what: &'static str,
    },
    /// The operating system refused a resource.
    #[error("cannot {what}")]
    Resource {
        /// What was to be done.
        what: &'static str,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
}

/// What a server meets that no client can be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The socket cannot be made.
    #[error(
        "cannot listen on {}; remove it if no server uses it, and check that its folder exists",
        path.display()
    )]
    Bind {
        /// The socket.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// Someone serves there.
    #[error("another process already listens on {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The operating system refused a resource.
    #[error("cannot {what}")]
    Resource {
        /// What was to be done.
        what: &'static str,
        /// What it said.
        #[source]
        source: std::io::Error,
    },
}

/// What a device meets when it reaches for the client's memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The client refused: not mapped, or not allowed.
    #[error("client refused the access to {address:#x}")]
    Refused {
        /// First address of the piece that was refused.
        address: u64,
        /// Why; `EIO` if the client did not say.
        #[source]
        errno: Errno,
    },
    /// The client did not answer in time.
    #[error("client did not answer the access to {address:#x} within {after:?}")]
    Timeout {
        /// First address of the piece.
        address: u64,
        /// How long was waited.
        after: Duration,
    },
    /// The client answered something else.
    #[error("client answered the access to {address:#x} wrongly: {what}")]
    BadReply {
        /// First address of the piece.
        address: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The range wraps around the end of the address space.
    #[error("{len} bytes from {address:#x} on reach beyond the last address")]
    Wraps {
        /// First address.
        address: u64,
        /// Bytes.
        len: usize,
    },
    /// The client is gone.
    #[error("client is gone")]
    Disconnected(#[source] Closed),
}
