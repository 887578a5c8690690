//! Messages: header and framing, the operations interface and the management interface.

mod codes;
mod framing;
mod header;
pub mod mgmt;
pub mod ops;

pub use framing::{FramingError, command_bytes, completion_bytes};
pub use header::{CommandFlags, HEADER_BYTES, Header, Tag};
pub use ops::{EncodeError, MessageError};
