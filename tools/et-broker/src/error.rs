//! What can go wrong before there is a broker.

use std::path::PathBuf;

/// A card that cannot be shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// No clients, or more than there can be.
    #[error("{asked} clients: must be from 1 to {most}")]
    Clients {
        /// How many were asked for.
        asked: usize,
        /// How many there can be.
        most: usize,
    },
    /// The partitions do not fit into the memory of the card.
    #[error(
        "{clients} partitions of {bytes} bytes do not fit: {free} bytes of device memory are free, \
         of which {reserve} stay with the broker"
    )]
    Memory {
        /// How many partitions.
        clients: usize,
        /// Bytes of each.
        bytes: u64,
        /// Bytes that are free on the card.
        free: u64,
        /// Bytes that the broker needs for itself.
        reserve: u64,
    },
    /// The card does not give what the broker needs.
    #[error("the card cannot be used")]
    Device(#[from] et_runtime::Error),
    /// A function cannot be made.
    #[error("cannot make the function of a client")]
    Function(#[from] et_sim_device::BoardError),
    /// A socket cannot be made.
    #[error("cannot serve {}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: et_vfio_user::ServerError,
    },
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}
