//! How long a message is: the one place that knows the three meanings of `size`.

use et_hal::Endpoint;

use super::{HEADER_BYTES, Header};

/// Management events whose `size` counts the header. Spec: §6.
const SELF_COUNTING_EVENTS: core::ops::RangeInclusive<u16> = 256..=511;

/// A header whose size field cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {msg_id:#x} claims an impossible size of {size} bytes")]
pub struct FramingError {
    /// The size field.
    pub size: u16,
    /// The message id.
    pub msg_id: u16,
}

/// Returns the bytes of a whole command: its `size` counts the header.
///
/// # Errors
/// If that is less than a header.
///
/// Spec: §6
pub fn command_bytes(header: &Header) -> Result<usize, FramingError> {
    counting_header(header)
}

/// Returns the bytes of a whole message of a completion queue: `size` counts what follows the
/// header, except in management events 256 to 511, where it counts the header too.
///
/// # Errors
/// If `size` is 0, or counts the header and is less than one.
///
/// Spec: §5.5, §6
pub fn completion_bytes(endpoint: Endpoint, header: &Header) -> Result<usize, FramingError> {
    let msg_id = header.msg_id.get();
    if endpoint == Endpoint::Management && SELF_COUNTING_EVENTS.contains(&msg_id) {
        return counting_header(header);
    }
    match header.size.get() {
        0 => Err(FramingError { size: 0, msg_id }),
        size => Ok(usize::from(size).saturating_add(HEADER_BYTES)),
    }
}

fn counting_header(header: &Header) -> Result<usize, FramingError> {
    let size = header.size.get();
    if usize::from(size) < HEADER_BYTES {
        return Err(FramingError { size, msg_id: header.msg_id.get() });
    }
    Ok(usize::from(size))
}
