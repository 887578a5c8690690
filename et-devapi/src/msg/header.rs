//! The eight bytes at the start of every message.

use core::fmt;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 8;

/// The header. Spec: §6.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Length in bytes; what it counts depends on the direction, see [`super::command_bytes`] and
    /// [`super::completion_bytes`].
    pub size: U16,
    /// Ties a response to its command.
    pub tag_id: U16,
    /// Kind of message.
    pub msg_id: U16,
    /// [`CommandFlags`] in commands; undefined in responses and events.
    pub flags: U16,
}

impl Header {
    /// Makes a header.
    #[must_use]
    pub fn new(size: u16, tag: Tag, msg_id: u16, flags: CommandFlags) -> Self {
        Self {
            size: size.into(),
            tag_id: tag.as_u16().into(),
            msg_id: msg_id.into(),
            flags: flags.bits().into(),
        }
    }

    /// Returns the tag.
    #[must_use]
    pub fn tag(&self) -> Tag {
        Tag::new(self.tag_id.get())
    }

    /// Returns the flags, which mean something in commands only.
    #[must_use]
    pub fn flags(&self) -> CommandFlags {
        CommandFlags(self.flags.get())
    }
}

/// The number that ties a response to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(u16);

impl Tag {
    /// The tag of events, which answer no command. Spec: §6.
    pub const EVENT: Self = Self(0xffff);

    /// Makes a tag.
    #[must_use]
    pub const fn new(tag: u16) -> Self {
        Self(tag)
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// The flags of a command. Spec: §6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CommandFlags(u16);

impl CommandFlags {
    /// No flag.
    pub const EMPTY: Self = Self(0);
    /// Start only when every earlier command of the same queue has completed.
    pub const BARRIER: Self = Self(0x01);
    /// Kernel launch: the payload has a trace configuration.
    pub const KERNEL_TRACE: Self = Self(0x02);
    /// DMA read list: fetch the trace buffer of the master minions.
    pub const MMFW_TRACEBUF: Self = Self(0x04);
    /// DMA read list: fetch the trace buffer of the compute minions.
    pub const CMFW_TRACEBUF: Self = Self(0x08);
    /// Kernel launch: evict the L3 before the kernel starts.
    pub const FLUSH_L3: Self = Self(0x10);
    /// Kernel launch: the payload has arguments.
    pub const ARGS_EMBEDDED: Self = Self(0x20);
    /// Kernel launch: the payload has a stack configuration.
    pub const USER_STACK: Self = Self(0x40);

    /// Returns both sets of flags together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Makes flags from their bits; unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}
