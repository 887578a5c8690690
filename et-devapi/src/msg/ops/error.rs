//! Errors of messages.

/// A message that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The output buffer is too small.
    #[error("message of {needed} bytes does not fit a buffer of {available} bytes")]
    BufferTooSmall {
        /// Length of the message in bytes.
        needed: usize,
        /// Length of the buffer in bytes.
        available: usize,
    },
    /// The optional parts and arguments of a launch are too long. Spec: §9.1.
    #[error("launch payload of {len} bytes, at most {max} are possible")]
    PayloadTooLarge {
        /// Length in bytes.
        len: usize,
        /// Longest possible.
        max: usize,
    },
    /// A DMA list has no nodes or too many. Spec: §8.
    #[error("DMA list of {count} nodes, possible are 1 to {max}")]
    NodeCount {
        /// Number of nodes.
        count: usize,
        /// Most possible.
        max: usize,
    },
    /// A command that was too short to be read cannot be written either.
    #[error("command {msg_id:#x} is incomplete")]
    Short {
        /// Its id.
        msg_id: u16,
    },
}

/// A message that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Fewer bytes than a header.
    #[error("message of {len} bytes has no header")]
    NoHeader {
        /// Length in bytes.
        len: usize,
    },
    /// The message is shorter or longer than its kind demands.
    #[error("message {msg_id:#x} has {len} bytes")]
    Length {
        /// Its id.
        msg_id: u16,
        /// Its length in bytes.
        len: usize,
    },
    /// The size field does not match the bytes there are.
    #[error("message {msg_id:#x} claims {claimed} bytes and has {len}")]
    Size {
        /// Its id.
        msg_id: u16,
        /// Bytes according to its size field.
        claimed: usize,
        /// Bytes there are.
        len: usize,
    },
}
