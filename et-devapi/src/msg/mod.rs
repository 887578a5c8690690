//! Messages: header and framing, and the operations interface.

mod framing;
mod header;
pub mod ops;

pub use framing::{FramingError, command_bytes, completion_bytes};
pub use header::{CommandFlags, HEADER_BYTES, Header, Tag};
pub use ops::{EncodeError, MessageError};
