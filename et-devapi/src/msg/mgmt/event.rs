//! Events of the service processor.

use core::ops::RangeInclusive;

use zerocopy::IntoBytes;

use super::wire::EventMessage;
use super::{EventClass, EventId, FrameError};
use crate::msg::{CommandFlags, HEADER_BYTES, Header, Tag};

/// Message ids of events. Spec: §17.4.
pub(super) const EVENT_IDS: RangeInclusive<u16> = 256..=512;
/// Message id of the breakpoint event.
pub(super) const BREAKPOINT_ID: u16 = 192;
/// The only event whose size does not count the header.
const TRACE_FULL_ID: u32 = 512;

/// Something that nothing has asked for. Spec: §17.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Event {
    /// What has happened.
    pub id: EventId,
    /// How bad it is.
    pub class: EventClass,
    /// How often, up to 16383.
    pub count: u16,
    /// Details whose meaning depends on the kind, see [`detail`](Self::detail).
    pub syndromes: [u64; 2],
}

/// What the syndromes of an event say. Spec: §17.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventDetail {
    /// An error of the memory.
    Dram {
        /// The memory shire.
        mem_shire: u8,
    },
    /// An error of the minions' firmware.
    Minion {
        /// Where: 0 hang and 1 error of the master minion, 2 compute minion, others in the
        /// specification.
        source: u64,
        /// What.
        code: i64,
    },
    /// How long the clock was reduced.
    Throttled {
        /// The time in microseconds.
        time_us: u32,
    },
    /// A trace buffer has passed its threshold.
    TraceBuffer {
        /// Whose buffer.
        buffer: u64,
        /// The threshold in bytes.
        threshold: u64,
    },
    /// Not described.
    Raw([u64; 2]),
}

impl Event {
    /// Size of every event in bytes.
    pub const BYTES: usize = HEADER_BYTES + size_of::<EventMessage>();

    /// Reads what follows the header; its last bytes, the padding, may be missing.
    pub(super) fn parse(id: EventId, rest: &[u8]) -> Result<Self, FrameError> {
        const PAD: usize = 6;
        let mut bytes = [0; size_of::<EventMessage>()];
        let needed = Self::BYTES.saturating_sub(PAD);
        let len = rest.len().saturating_add(HEADER_BYTES);
        if len < needed {
            return Err(FrameError::TooShort { len, needed });
        }
        for (to, from) in bytes.iter_mut().zip(rest) {
            *to = *from;
        }
        let message: EventMessage = zerocopy::transmute!(bytes);
        let word = message.class_count.get();
        Ok(Self {
            id,
            class: u32::from(word & 3).into(),
            count: word >> 2,
            syndromes: [message.syndrome0.get(), message.syndrome1.get()],
        })
    }

    /// Writes the event, as firmware does: its size counts the header, except in one kind.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let id = u32::from(self.id);
        let size = if id == TRACE_FULL_ID { size_of::<EventMessage>() } else { Self::BYTES };
        let (size, id) = (u16::try_from(size), u16::try_from(id));
        let header = Header::new(
            size.unwrap_or(u16::MAX),
            Tag::new(0),
            id.unwrap_or(u16::MAX),
            CommandFlags::EMPTY,
        );
        let class = u16::try_from(u32::from(self.class) & 3).unwrap_or_default();
        let [syndrome0, syndrome1] = self.syndromes.map(Into::into);
        let message = EventMessage {
            class_count: (self.count << 2 | class).into(),
            syndrome0,
            syndrome1,
            pad: [0; 6],
        };
        let mut bytes = [0; Self::BYTES];
        if let Some((head, rest)) = bytes.split_at_mut_checked(HEADER_BYTES) {
            head.copy_from_slice(header.as_bytes());
            rest.copy_from_slice(message.as_bytes());
        }
        bytes
    }

    /// Returns what the syndromes say.
    #[must_use]
    pub fn detail(&self) -> EventDetail {
        let [first, second] = self.syndromes;
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or_default();
        match self.id {
            EventId::DramCorrected | EventId::DramUncorrected => {
                EventDetail::Dram { mem_shire: u8::try_from(first >> 32 & 7).unwrap_or_default() }
            }
            EventId::MinionExceptions | EventId::MinionHangs => {
                EventDetail::Minion { source: first, code: second.cast_signed() }
            }
            EventId::ThrottleTime => EventDetail::Throttled { time_us: low(first) },
            EventId::SpTraceFull | EventId::TraceBufferFull => {
                EventDetail::TraceBuffer { buffer: first, threshold: second }
            }
            _ => EventDetail::Raw(self.syndromes),
        }
    }
}
