//! The writing end.

use et_hal::{Mmio, Push};

use super::{HEAD, Ring, RingError, TAIL};

/// The writing end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    ring: Ring,
    /// Next byte to write.
    head: u32,
    /// The consumer's index, as last seen. It only moves on, so an old value hides room but never
    /// invents it.
    tail: u32,
}

impl Producer {
    /// Takes the writing end over, at the indices in the control block.
    ///
    /// # Errors
    /// [`RingError::LengthMismatch`], [`RingError::CorruptIndex`], [`RingError::Access`].
    pub fn attach<M: Mmio + ?Sized>(ring: Ring, mmio: &M) -> Result<Self, RingError<M::Error>> {
        ring.check_length(mmio)?;
        let head = ring.load_index(mmio, HEAD)?;
        let tail = ring.load_index(mmio, TAIL)?;
        Ok(Self { ring, head, tail })
    }

    /// Makes the writing end from indices kept elsewhere; see [`indices`](Self::indices).
    #[must_use]
    pub fn resume(ring: Ring, head: u32, tail: u32) -> Self {
        Self { ring, head, tail }
    }

    /// Returns the own index and the consumer's as last seen.
    #[must_use]
    pub fn indices(&self) -> (u32, u32) {
        (self.head, self.tail)
    }

    /// Returns the ring.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Looks at the consumer's index and returns the bytes that can be written.
    ///
    /// # Errors
    /// [`RingError::CorruptIndex`], [`RingError::Access`].
    pub fn free<M: Mmio + ?Sized>(&mut self, mmio: &M) -> Result<u32, RingError<M::Error>> {
        self.tail = self.ring.load_index(mmio, TAIL)?;
        Ok(self.known_free())
    }

    fn known_free(&self) -> u32 {
        let used = self.ring.distance(self.tail, self.head);
        self.ring.max_message().saturating_sub(used)
    }

    /// Writes one message, or nothing if there is no room now.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] if it can never fit; [`RingError::CorruptIndex`];
    /// [`RingError::Access`].
    ///
    /// # Ordering
    /// The consumer that sees the new head sees the message.
    pub fn push<M: Mmio + ?Sized>(
        &mut self,
        mmio: &M,
        message: &[u8],
    ) -> Result<Push, RingError<M::Error>> {
        let max = self.ring.max_message();
        let len = match u32::try_from(message.len()) {
            Ok(len) if len <= max => len,
            _ => {
                return Err(RingError::TooLarge { len: message.len(), max });
            }
        };
        if self.known_free() < len && self.free(mmio)? < len {
            return Ok(Push::Full);
        }
        let until_end = usize::try_from(self.ring.length.saturating_sub(self.head));
        let split = until_end.unwrap_or(usize::MAX).min(message.len());
        let (first, second) = message.split_at(split);
        mmio.write_bytes(self.ring.data(self.head), first).map_err(RingError::Access)?;
        if !second.is_empty() {
            mmio.write_bytes(self.ring.data(0), second).map_err(RingError::Access)?;
        }
        let head = self.ring.advance(self.head, len);
        // Release: publishes the bytes copied above; pairs with the consumer's acquire load of the
        // head.
        mmio.store_release_u64(self.ring.control(HEAD), u64::from(head))
            .map_err(RingError::Access)?;
        self.head = head;
        Ok(Push::Accepted)
    }
}
