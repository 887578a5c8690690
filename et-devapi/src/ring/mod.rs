//! The circular buffer of a queue, over any [`Mmio`].
//!
//! A control block of 32 bytes (head, tail, length), then the data. The producer owns `head`, the
//! next byte to write; the consumer owns `tail`, the next byte to read; one byte stays empty, so
//! that head = tail means empty. Each side keeps its own index privately and believes the other's
//! only after checking it against the length.
//!
//! The same source runs in the host, in the simulated firmware and in the loom models, which give
//! it a window of their own; it has no atomics of its own.
//!
//! Spec: §5.2

mod consumer;
mod producer;

use et_hal::{BarOffset, Mmio};

pub use consumer::Consumer;
pub use producer::Producer;

use crate::msg::FramingError;

/// Bytes before the data. Spec: §5.2.
pub const CONTROL_BYTES: u32 = 32;

const HEAD: u64 = 0;
const TAIL: u64 = 8;
const LENGTH: u64 = 16;

/// What is wrong with a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError<E> {
    /// The window failed.
    #[error("ring access failed")]
    Access(#[source] E),
    /// The ring's place is impossible: too small, too large, or not aligned to 8 bytes.
    #[error("no ring of {size_bytes} bytes fits at {at}")]
    Place {
        /// Start of the control block.
        at: BarOffset,
        /// Size with the control block.
        size_bytes: u32,
    },
    /// The length in the control block is not the ring's size.
    #[error("ring says it has {found} bytes, its registers say {expected}")]
    LengthMismatch {
        /// Length in the control block.
        found: u64,
        /// Length by the registers.
        expected: u32,
    },
    /// The peer published an index outside the ring; the queue is unusable until reset.
    #[error("peer index {index} is outside the ring of {length} bytes")]
    CorruptIndex {
        /// The index.
        index: u64,
        /// Length of the ring in bytes.
        length: u32,
    },
    /// A message can never fit.
    #[error("message of {len} bytes, the ring takes at most {max}")]
    TooLarge {
        /// Length of the message in bytes.
        len: usize,
        /// Largest possible.
        max: u32,
    },
    /// More was asked for than is in the ring.
    #[error("{asked} bytes asked, {available} are in the ring")]
    NotThere {
        /// Bytes asked for.
        asked: usize,
        /// Bytes in the ring, as last seen.
        available: u32,
    },
    /// The next message claims more bytes than the ring can ever hold; the queue is unusable until
    /// reset.
    #[error("message claims {len} bytes, the ring holds at most {max}")]
    Oversized {
        /// Length it claims.
        len: usize,
        /// Largest possible.
        max: u32,
    },
    /// The next message cannot be framed; the queue is unusable until reset.
    #[error("message in the ring cannot be framed")]
    Framing(#[source] FramingError),
    /// The next message does not fit the caller's buffer; it stays in the ring.
    #[error("message of {len} bytes does not fit a buffer of {buffer} bytes")]
    BufferTooSmall {
        /// Length of the message in bytes.
        len: usize,
        /// Length of the buffer in bytes.
        buffer: usize,
    },
}

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    at: BarOffset,
    length: u32,
}

impl Ring {
    /// Makes the ring that occupies `size_bytes` at `at`, control block included.
    ///
    /// # Errors
    /// [`RingError::Place`] unless there is room for two bytes of data, the sum fits the address
    /// space and `at` is a multiple of 8.
    pub fn new<E>(at: BarOffset, size_bytes: u32) -> Result<Self, RingError<E>> {
        let place = RingError::Place { at, size_bytes };
        let length = size_bytes.checked_sub(CONTROL_BYTES).filter(|&length| length >= 2);
        let fits = at.checked_add(u64::from(size_bytes)).is_some() && at.is_aligned_to(8);
        match length {
            Some(length) if fits => Ok(Self { at, length }),
            _ => Err(place),
        }
    }

    /// Returns the number of data bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the largest message that can ever fit: one byte less than the data.
    #[must_use]
    pub fn max_message(&self) -> u32 {
        self.length.saturating_sub(1)
    }

    /// Empties the ring and writes its length. For the device, before it announces the ring.
    ///
    /// # Errors
    /// [`RingError::Access`].
    pub fn format<M: Mmio + ?Sized>(&self, mmio: &M) -> Result<(), RingError<M::Error>> {
        for (offset, value) in [(HEAD, 0), (TAIL, 0), (LENGTH, u64::from(self.length))] {
            mmio.store_release_u64(self.control(offset), value).map_err(RingError::Access)?;
        }
        Ok(())
    }

    fn control(&self, offset: u64) -> BarOffset {
        // `new` checked that the control block is inside the address space.
        BarOffset::new(self.at.as_u64().saturating_add(offset))
    }

    fn data(&self, index: u32) -> BarOffset {
        self.control(u64::from(CONTROL_BYTES).saturating_add(u64::from(index)))
    }

    fn check_length<M: Mmio + ?Sized>(&self, mmio: &M) -> Result<(), RingError<M::Error>> {
        let found = mmio.load_acquire_u64(self.control(LENGTH)).map_err(RingError::Access)?;
        if found == u64::from(self.length) {
            return Ok(());
        }
        Err(RingError::LengthMismatch { found, expected: self.length })
    }

    fn load_index<M: Mmio + ?Sized>(
        &self,
        mmio: &M,
        offset: u64,
    ) -> Result<u32, RingError<M::Error>> {
        let index = mmio.load_acquire_u64(self.control(offset)).map_err(RingError::Access)?;
        match u32::try_from(index) {
            Ok(index) if index < self.length => Ok(index),
            _ => Err(RingError::CorruptIndex { index, length: self.length }),
        }
    }

    /// Bytes from `from` up to `to`, going round.
    fn distance(&self, from: u32, to: u32) -> u32 {
        match to.checked_sub(from) {
            Some(distance) => distance,
            // to < from < length, so nothing here wraps.
            None => self.length.saturating_sub(from).saturating_add(to),
        }
    }

    /// The index `bytes` further on; `bytes` is at most the length.
    fn advance(&self, index: u32, bytes: u32) -> u32 {
        let next = index.saturating_add(bytes);
        next.checked_sub(self.length).unwrap_or(next)
    }
}
