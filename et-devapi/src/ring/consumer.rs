//! The reading end.

use et_hal::{Mmio, Pop};
use zerocopy::FromBytes;

use super::{HEAD, Ring, RingError, TAIL};
use crate::msg::{FramingError, HEADER_BYTES, Header};

/// The part of a ring that may be read without the producer having heard of it, as a divisor.
const KEPT: u32 = 4;

/// The reading end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    ring: Ring,
    /// Next byte to read.
    tail: u32,
    /// The producer's index, as last seen.
    head: u32,
    /// The own index as the producer sees it: at `tail`, or a few messages behind.
    published: u32,
}

impl Consumer {
    /// Takes the reading end over, at the indices in the control block.
    ///
    /// # Errors
    /// [`RingError::LengthMismatch`], [`RingError::CorruptIndex`], [`RingError::Access`].
    pub fn attach<M: Mmio + ?Sized>(ring: Ring, mmio: &M) -> Result<Self, RingError<M::Error>> {
        ring.check_length(mmio)?;
        let tail = ring.load_index(mmio, TAIL)?;
        let head = ring.load_index(mmio, HEAD)?;
        Ok(Self { ring, tail, head, published: tail })
    }

    /// Makes the reading end from indices kept elsewhere; see [`indices`](Self::indices) and
    /// [`published`](Self::published).
    #[must_use]
    pub fn resume(ring: Ring, tail: u32, head: u32, published: u32) -> Self {
        Self { ring, tail, head, published }
    }

    /// Returns the own index and the producer's as last seen.
    #[must_use]
    pub fn indices(&self) -> (u32, u32) {
        (self.tail, self.head)
    }

    /// Returns the own index as it is in the control block.
    #[must_use]
    pub fn published(&self) -> u32 {
        self.published
    }

    /// Returns the ring.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Looks at the producer's index and returns the bytes that can be read.
    ///
    /// # Errors
    /// [`RingError::CorruptIndex`], [`RingError::Access`].
    ///
    /// # Ordering
    /// Acquire: the bytes up to the returned number are visible.
    pub fn used<M: Mmio + ?Sized>(&mut self, mmio: &M) -> Result<u32, RingError<M::Error>> {
        self.head = self.ring.load_index(mmio, HEAD)?;
        Ok(self.known_used())
    }

    fn known_used(&self) -> u32 {
        self.ring.distance(self.tail, self.head)
    }

    /// Copies bytes that start `skip` bytes after the next one, without consuming them.
    ///
    /// The caller knows from [`used`](Self::used) that they are there.
    ///
    /// # Errors
    /// [`RingError::NotThere`]; [`RingError::Access`].
    pub fn peek<M: Mmio + ?Sized>(
        &self,
        mmio: &M,
        skip: u32,
        out: &mut [u8],
    ) -> Result<(), RingError<M::Error>> {
        let end = usize::try_from(skip).unwrap_or(usize::MAX).saturating_add(out.len());
        let available = self.known_used();
        if end > usize::try_from(available).unwrap_or(usize::MAX) {
            return Err(RingError::NotThere { asked: end, available });
        }
        let start = self.ring.advance(self.tail, skip);
        let until_end = usize::try_from(self.ring.length.saturating_sub(start));
        let split = until_end.unwrap_or(usize::MAX).min(out.len());
        let (first, second) = out.split_at_mut(split);
        mmio.read_bytes(self.ring.data(start), first).map_err(RingError::Access)?;
        if !second.is_empty() {
            mmio.read_bytes(self.ring.data(0), second).map_err(RingError::Access)?;
        }
        Ok(())
    }

    /// Gives `bytes` back to the producer.
    ///
    /// # Errors
    /// [`RingError::NotThere`]; [`RingError::Access`].
    ///
    /// # Ordering
    /// Release: the producer that sees the room does not overwrite bytes that are still being read.
    pub fn advance<M: Mmio + ?Sized>(
        &mut self,
        mmio: &M,
        bytes: u32,
    ) -> Result<(), RingError<M::Error>> {
        let available = self.known_used();
        if bytes > available {
            let asked = usize::try_from(bytes).unwrap_or(usize::MAX);
            return Err(RingError::NotThere { asked, available });
        }
        self.publish(mmio, self.ring.advance(self.tail, bytes))
    }

    fn publish<M: Mmio + ?Sized>(
        &mut self,
        mmio: &M,
        tail: u32,
    ) -> Result<(), RingError<M::Error>> {
        mmio.store_release_u64(self.ring.control(TAIL), u64::from(tail))
            .map_err(RingError::Access)?;
        self.tail = tail;
        self.published = tail;
        Ok(())
    }

    /// Takes one whole message, whose length `frame` tells from its header.
    ///
    /// A message that is not completely there stays, and the answer is [`Pop::Empty`].
    ///
    /// The producer gets the room of several messages at once: when no more are known of, and at
    /// the latest when a quarter of the ring is read. The index costs a write on the bus, or a
    /// cache line that the producer wants too.
    ///
    /// # Errors
    /// [`RingError::Framing`]; [`RingError::Oversized`];
    /// [`RingError::BufferTooSmall`]; [`RingError::CorruptIndex`]; [`RingError::Access`].
    pub fn pop_message<M: Mmio + ?Sized>(
        &mut self,
        mmio: &M,
        frame: impl Fn(&Header) -> Result<usize, FramingError>,
        out: &mut [u8],
    ) -> Result<Pop, RingError<M::Error>> {
        const HEADER: u32 = 8;
        if self.known_used() < HEADER && self.used(mmio)? < HEADER {
            return self.pop_nothing(mmio);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.peek(mmio, 0, &mut bytes)?;
        let header = Header::read_from_bytes(&bytes).unwrap_or_default();
        let len = frame(&header).map_err(RingError::Framing)?;
        let max = self.ring.max_message();
        let needed = match u32::try_from(len) {
            Ok(needed) if needed <= max => needed,
            _ => return Err(RingError::Oversized { len, max }),
        };
        if self.known_used() < needed && self.used(mmio)? < needed {
            return self.pop_nothing(mmio);
        }
        let buffer = out.len();
        let place = out.get_mut(..len).ok_or(RingError::BufferTooSmall { len, buffer })?;
        // The header is read once: a read from a card is a round trip on the bus, and the caller
        // sees the one that was framed, even if the producer changed it meanwhile.
        let (head, body) = place.split_at_mut(HEADER_BYTES.min(len));
        head.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        self.peek(mmio, HEADER, body)?;
        let tail = self.ring.advance(self.tail, needed);
        let kept = self.ring.distance(self.published, tail);
        if tail == self.head || kept >= self.ring.length / KEPT {
            self.publish(mmio, tail)?;
        }
        self.tail = tail;
        Ok(Pop::Message(len))
    }

    fn pop_nothing<M: Mmio + ?Sized>(&mut self, mmio: &M) -> Result<Pop, RingError<M::Error>> {
        if self.published != self.tail {
            self.publish(mmio, self.tail)?;
        }
        Ok(Pop::Empty)
    }
}
