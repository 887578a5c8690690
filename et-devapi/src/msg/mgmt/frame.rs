//! Whole messages.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::event::{BREAKPOINT_ID, EVENT_IDS};
use super::wire::{ResponseExt, StatusWord};
use super::{BreakpointEvent, Event, EventId};
use crate::msg::{CommandFlags, FramingError, HEADER_BYTES, Header, Tag, command_bytes};

/// The firmware's command buffer; it does not check. Erratum 6 (§21).
pub const MAX_COMMAND_BYTES: usize = 512;

/// Header and extension of a response.
const RESPONSE_BYTES: usize = HEADER_BYTES + size_of::<ResponseExt>();

/// A message that is none of the management interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There is no room for it.
    #[error("message of {len} bytes, room is for {max}")]
    TooLarge {
        /// Length of the message in bytes.
        len: usize,
        /// Most possible.
        max: usize,
    },
    /// It ends before what every message of its kind has.
    #[error("message of {len} bytes, {needed} are needed")]
    TooShort {
        /// Length of the message in bytes.
        len: usize,
        /// Fewest possible.
        needed: usize,
    },
    /// The size in its header cannot be right.
    #[error(transparent)]
    Size(#[from] FramingError),
}

/// All fixed structures are multiples of 8 bytes. Spec: §6.
const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// Writes a command; returns its length in bytes.
///
/// # Errors
/// [`FrameError::TooLarge`] for what `out` or the firmware has no room for.
///
/// Spec: §17.1
pub fn encode_command(
    id: u16,
    tag: Tag,
    payload: &[u8],
    out: &mut [u8],
) -> Result<usize, FrameError> {
    let len = padded(HEADER_BYTES.saturating_add(payload.len()));
    let max = out.len().min(MAX_COMMAND_BYTES);
    let too_large = FrameError::TooLarge { len, max };
    let size = u16::try_from(len).map_err(|_| too_large)?;
    let header = Header::new(size, tag, id, CommandFlags::EMPTY);
    let place = out.get_mut(..len).filter(|_| len <= max).ok_or(too_large)?;
    write(place, &[header.as_bytes(), payload]);
    Ok(len)
}

/// Reads a command: its header, and its payload with the padding.
///
/// # Errors
/// [`FrameError::TooShort`]; [`FrameError::Size`].
pub fn parse_command(bytes: &[u8]) -> Result<(Header, &[u8]), FrameError> {
    let (header, rest) = header(bytes)?;
    let needed = command_bytes(header)?;
    let short = FrameError::TooShort { len: bytes.len(), needed };
    let payload = rest.get(..needed.saturating_sub(HEADER_BYTES)).ok_or(short)?;
    Ok((*header, payload))
}

fn header(bytes: &[u8]) -> Result<(&Header, &[u8]), FrameError> {
    let short = FrameError::TooShort { len: bytes.len(), needed: HEADER_BYTES };
    Header::ref_from_prefix(bytes).map_err(|_| short)
}

/// Writes the parts one after the other, then zeros.
fn write(mut place: &mut [u8], parts: &[&[u8]]) {
    for part in parts {
        let Some((now, rest)) = place.split_at_mut_checked(part.len()) else { return };
        now.copy_from_slice(part);
        place = rest;
    }
    place.fill(0);
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Tag of the command. Match by it: one command is answered with the id of another.
    /// Erratum 3 (§21).
    pub tag: Tag,
    /// Id in the header.
    pub id: u16,
    /// Time the service processor spent on the command, in microseconds.
    pub latency_us: u64,
    /// 0, or a negative error of the firmware.
    pub status: i32,
    /// What follows.
    pub payload: &'a [u8],
}

impl<'a> Response<'a> {
    /// Writes the response; returns its length in bytes, or `None` if `out` is too small.
    #[must_use]
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let len = padded(RESPONSE_BYTES.checked_add(self.payload.len())?);
        let size = u16::try_from(len.checked_sub(HEADER_BYTES)?).ok()?;
        let header = Header::new(size, self.tag, self.id, CommandFlags::EMPTY);
        let ext = ResponseExt {
            device_latency_usec: self.latency_us.into(),
            status: self.status.into(),
            pad: [0; 4],
        };
        write(out.get_mut(..len)?, &[header.as_bytes(), ext.as_bytes(), self.payload]);
        Some(len)
    }

    /// Reads the start of the payload; `None` if it is too short.
    #[must_use]
    pub fn read<R: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Option<R> {
        R::read_from_prefix(self.payload).ok().map(|(payload, _)| payload)
    }

    fn parse(header: &Header, rest: &'a [u8]) -> Result<Self, FrameError> {
        let len = rest.len().saturating_add(HEADER_BYTES);
        let short = FrameError::TooShort { len, needed: RESPONSE_BYTES };
        let (ext, payload) = ResponseExt::ref_from_prefix(rest).map_err(|_| short)?;
        Ok(Self {
            tag: header.tag(),
            id: header.msg_id.get(),
            latency_us: ext.device_latency_usec.get(),
            status: ext.status.get(),
            payload,
        })
    }
}

/// What is in the completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// An answer.
    Response(Response<'a>),
    /// An event.
    Event(Event),
    /// What became of a breakpoint. Spec: §17.4.
    Breakpoint(BreakpointEvent),
}

impl<'a> Message<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`FrameError::TooShort`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (header, rest) = header(bytes)?;
        let id = header.msg_id.get();
        if EVENT_IDS.contains(&id) {
            return Event::parse(EventId::from(u32::from(id)), rest).map(Self::Event);
        }
        if id == BREAKPOINT_ID {
            let short = FrameError::TooShort { len: bytes.len(), needed: 16 };
            let (word, _) = StatusWord::ref_from_prefix(rest).map_err(|_| short)?;
            return Ok(Self::Breakpoint(word.status.get().into()));
        }
        Response::parse(header, rest).map(Self::Response)
    }
}
