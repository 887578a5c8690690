//! Looking at a card that another process has.
//!
//! Every device that [`open`](crate::open) gives is shared: as long as it is open, a thread answers
//! what other processes ask of its [management endpoint](crate::Management), beside running work
//! and without touching it. [`open_management`](crate::open_management) finds that by itself;
//! [`Locator::Process`](crate::Locator) names a card by its process, which is the only name of
//! cards that are simulated in one.
//!
//! Only what asks is passed on, no setting, reset, update or debugging. Only processes of the same
//! user and of root are answered; the kernel vouches for both sides. `ET_SHARE=no` in the
//! environment keeps a process from sharing.
//!
//! | File | What |
//! |---|---|
//! | `name.rs` | sockets: names without files, gone with their process |
//! | `socket.rs` | sockets that end with their value, in spite of forks |
//! | `wire.rs` | messages |
//! | `server.rs` | the thread in the process that has the card |
//! | `client.rs` | the other side |

mod client;
mod name;
mod server;
mod socket;
mod wire;

use std::fmt;
use std::io;

pub use client::connect;
pub(crate) use client::find;
pub use server::{Share, share};

/// Name of the environment variable that, set to `no`, keeps [`open`](crate::open) from sharing.
pub const VARIABLE: &str = "ET_SHARE";

/// Most processes that look at a device at once.
pub const MOST_CLIENTS: usize = 16;

/// A device of a process, as it is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shared {
    /// The process.
    pub pid: u32,
    /// Which of its devices, from 0.
    pub index: u32,
    /// Where it has the device from.
    pub locator: String,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process:{}/{}", self.pid, self.index)
    }
}

/// A device that cannot be shared, or looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// No such process shares such a device.
    #[error(
        "process {pid} shares no device{}; it may have closed it, or have ET_SHARE=no",
        number(*index)
    )]
    Missing {
        /// The process.
        pid: u32,
        /// Which of its devices, if one was named.
        index: Option<u32>,
    },
    /// The other side is not answered, or not trusted: it is of another user.
    #[error("process {pid} belongs to another user")]
    ForeignUser {
        /// The process.
        pid: u32,
    },
    /// As many processes look as may.
    #[error("{MOST_CLIENTS} processes look at the device of process {pid} already")]
    Crowded {
        /// The process.
        pid: u32,
    },
    /// The other side is of another version, or no such process at all.
    #[error("process {pid} speaks another version of this protocol")]
    Version {
        /// The process.
        pid: u32,
    },
    /// The operating system refuses.
    #[error("cannot {what}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

fn number(index: Option<u32>) -> String {
    index.map_or_else(String::new, |index| format!(" {index}"))
}

impl ShareError {
    fn os(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Os { what, source: errno.into() }
    }
}

/// Returns what a device is shared as, by which [`find`] knows it; `None` for what can only be
/// named by its process.
#[cfg(any(feature = "sim", feature = "vfio"))]
pub(crate) fn key(locator: &crate::Locator) -> Option<String> {
    match locator {
        #[cfg(feature = "vfio")]
        crate::Locator::Vfio(address) => Some(format!("vfio:{}", address.bdf)),
        #[cfg(feature = "vfio")]
        crate::Locator::VfioUser(address) => {
            let path = std::fs::canonicalize(&address.path);
            let path = path.unwrap_or_else(|_| address.path.clone());
            Some(format!("vfio-user:{}", path.display()))
        }
        _ => None,
    }
}

/// Shares a device that was just opened, for as long as it is open, unless the environment says no.
#[cfg(any(feature = "sim", feature = "vfio"))]
pub(crate) fn begin(device: &mut crate::Device, name: &str) {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "no") {
        return;
    }
    match share(device, name) {
        Ok(share) => device.attach(share),
        // It works all the same.
        Err(error) => tracing::warn!(error = %crate::Report(&error), "the device is not shared"),
    }
}

/// Lists the devices that processes of this machine share, of all users.
#[must_use]
pub fn shared() -> Vec<Shared> {
    name::all()
}
