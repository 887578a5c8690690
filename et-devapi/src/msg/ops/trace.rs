//! What trace commands say.

/// Whose trace a command switches. Spec: §7.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TraceRuntimes(u32);

impl TraceRuntimes {
    /// Makes the set from its bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Master minions.
    pub const MM: Self = Self(1);
    /// Compute minions.
    pub const CM: Self = Self(2);

    /// Returns both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// How a trace is switched: what is not set is off. Spec: §7.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TraceControl(u32);

impl TraceControl {
    /// Makes the set from its bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Off, into the buffer.
    pub const OFF: Self = Self(0);
    /// On.
    pub const ENABLE: Self = Self(1);
    /// To the UART instead of the buffer.
    pub const TO_UART: Self = Self(2);
    /// The buffer begins anew.
    pub const RESET: Self = Self(4);

    /// Returns both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// What firmware traces. Spec: §7.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRtConfig {
    /// Shires to trace, bit 32 is the master shire.
    pub shire_mask: u64,
    /// Harts of each shire.
    pub thread_mask: u64,
    /// Kinds of entries. Spec: §16.2.
    pub event_mask: u32,
    /// Levels. Spec: §16.2.
    pub filter_mask: u32,
    /// Bytes at which an event is sent, 0 for a full part.
    pub threshold: u32,
}
