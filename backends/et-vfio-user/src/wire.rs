//! The messages as they lie on the socket: a 16-byte header, then a body by command.
//!
//! The protocol uses the byte order of the machine both sides run on; this crate is for
//! little-endian machines, so every field is little-endian.

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// Bytes of a transfer header before its data: `REGION_READ`, `REGION_WRITE`, `DMA_READ`,
/// `DMA_WRITE`.
pub const TRANSFER_BYTES: usize = size_of::<RegionAccess>();
/// Protocol version spoken: major.
pub const MAJOR: u16 = 0;
/// Protocol version spoken: minor.
pub const MINOR: u16 = 1;

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What a message asks for, or answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Command { $($(#[$doc])* $name,)* }

        impl Command {
            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* }
            }

            /// The command with this number, if this crate knows it.
            #[must_use]
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

commands! {
    /// Version and capabilities; the first message of a connection.
    Version = 1,
    /// The device may use a range of the client's memory.
    DmaMap = 2,
    /// The device must not use it any more.
    DmaUnmap = 3,
    /// Number of regions and interrupt kinds.
    DeviceInfo = 4,
    /// Size, access and descriptor of a region.
    RegionInfo = 5,
    /// Descriptors that take writes to parts of a region.
    RegionIoFds = 6,
    /// Number and flags of the interrupts of a kind.
    IrqInfo = 7,
    /// Connects, masks or triggers interrupts.
    SetIrqs = 8,
    /// Reads from a region.
    RegionRead = 9,
    /// Writes to a region.
    RegionWrite = 10,
    /// Device to client: reads the client's memory.
    DmaRead = 11,
    /// Device to client: writes the client's memory.
    DmaWrite = 12,
    /// Resets the device.
    DeviceReset = 13,
    /// Several small writes in one message.
    RegionWriteMulti = 15,
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// Mask of the message type.
    pub const TYPE: u32 = 0xf;
    /// Type of a request.
    pub const REQUEST: u32 = 0;
    /// Type of a reply.
    pub const REPLY: u32 = 1;
    /// The sender wants no reply, not even to a failure.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The request failed; only in replies.
    pub const ERROR: u32 = 1 << 5;
}

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable,
            KnownLayout, Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
    )*};
}

wire! {
    /// Starts every message.
    Header {
        /// Chosen by the sender of the request, repeated in the reply.
        id: U16,
        /// A [`Command`].
        command: U16,
        /// Bytes of the whole message with this header.
        size: U32,
        /// Type and modifiers, see [`flag`].
        flags: U32,
        /// In a reply with the error flag: an errno, or 0 if the peer has none to give.
        errno: U32,
    }
    /// VERSION, before the NUL-terminated JSON text.
    Version {
        /// Must be equal on both sides.
        major: U16,
        /// The smaller of both sides is spoken.
        minor: U16,
    }
    /// `DMA_MAP`; the reply has no body.
    DmaMap {
        /// Bytes of this structure.
        argsz: U32,
        /// [`ACCESS_READ`] and [`ACCESS_WRITE`].
        flags: U32,
        /// Offset of the range in the descriptor that comes along, in bytes.
        offset: U64,
        /// First bus address.
        address: U64,
        /// Bytes.
        len: U64,
    }
    /// `DMA_UNMAP`, both ways; in the reply `len` says how many bytes went.
    DmaUnmap {
        /// Largest reply body the sender takes, in bytes.
        argsz: U32,
        /// [`UNMAP_ALL`], or 0.
        flags: U32,
        /// First bus address.
        address: U64,
        /// Bytes.
        len: U64,
    }
    /// `DEVICE_GET_INFO`, both ways.
    DeviceInfo {
        /// Request: largest reply body; reply: bytes of the full reply body.
        argsz: U32,
        /// [`DEVICE_RESET`] and [`DEVICE_PCI`]; 0 in a request.
        flags: U32,
        /// Number of regions.
        regions: U32,
        /// Number of interrupt kinds.
        irqs: U32,
    }
    /// `DEVICE_GET_REGION_INFO`, both ways; capabilities follow in the reply.
    RegionInfo {
        /// Request: largest reply body; reply: bytes of the full reply body.
        argsz: U32,
        /// `REGION_*`.
        flags: U32,
        /// Which region.
        index: U32,
        /// Where the first capability starts, from the start of this structure.
        cap_offset: U32,
        /// Bytes of the region.
        size: U64,
        /// Where the region starts in its descriptor, in bytes.
        offset: U64,
    }
    /// Starts every region capability.
    Capability {
        /// Kind.
        id: U16,
        /// Version of the kind.
        version: U16,
        /// Where the next one starts, from the start of the region info; 0 ends the list.
        next: U32,
    }
    /// After the header of the sparse-mmap capability; the areas follow.
    SparseMmap {
        /// Number of areas.
        areas: U32,
        /// 0.
        reserved: U32,
    }
    /// One area that may be mapped.
    SparseArea {
        /// First byte, in the region.
        offset: U64,
        /// Bytes.
        len: U64,
    }
    /// `DEVICE_GET_REGION_IO_FDS`, both ways; [`SubRegion`]s follow in the reply.
    RegionIoFds {
        /// Request: largest reply body; reply: bytes of the full reply body.
        argsz: U32,
        /// 0.
        flags: U32,
        /// Which region.
        index: U32,
        /// Number of sub-regions.
        count: U32,
    }
    /// Part of a region that is written through a descriptor.
    SubRegion {
        /// First byte, in the region.
        offset: U64,
        /// Bytes of an access; 0 if any will do.
        len: U64,
        /// Which of the descriptors of the message.
        fd_index: U32,
        /// 0 is an ioeventfd, 1 an ioregionfd.
        kind: U32,
        /// As KVM defines them for the kind.
        flags: U32,
        /// 0.
        padding: U32,
        /// Ioeventfd: value to match; ioregionfd: handed back by the kernel.
        data: U64,
    }
    /// `DEVICE_GET_IRQ_INFO`, both ways.
    IrqInfo {
        /// Request: largest reply body; reply: bytes of the full reply body.
        argsz: U32,
        /// `IRQ_*`; 0 in a request.
        flags: U32,
        /// Which kind of interrupt.
        index: U32,
        /// Number of interrupts of the kind.
        count: U32,
    }
    /// `DEVICE_SET_IRQS`; with [`SET_BOOL`] one byte per interrupt follows. The reply has no body.
    SetIrqs {
        /// Bytes of this structure and what follows.
        argsz: U32,
        /// One `SET_*` of each group.
        flags: U32,
        /// Which kind of interrupt.
        index: U32,
        /// First interrupt of the kind.
        start: U32,
        /// Number of interrupts.
        count: U32,
    }
    /// `REGION_READ` and `REGION_WRITE`, both ways; data follows in read replies and write
    /// requests.
    RegionAccess {
        /// First byte, in the region.
        offset: U64,
        /// Which region.
        region: U32,
        /// Bytes of data.
        count: U32,
    }
    /// `DMA_READ` and `DMA_WRITE`, both ways; data follows in read replies and write requests.
    DmaAccess {
        /// First bus address.
        address: U64,
        /// Bytes of data.
        count: U64,
    }
    /// `REGION_WRITE_MULTI`, both ways; [`SmallWrite`]s follow in the request.
    WriteMulti {
        /// Number of writes; in the reply, those done.
        count: U64,
    }
    /// One write of `REGION_WRITE_MULTI`.
    SmallWrite {
        /// First byte, in the region.
        offset: U64,
        /// Which region.
        region: U32,
        /// Bytes of `data` that count, 1 to 8.
        count: U32,
        /// The bytes.
        data: [u8; 8],
    }
}

/// [`DmaMap::flags`]: the device may read.
pub const ACCESS_READ: u32 = 1 << 0;
/// [`DmaMap::flags`]: the device may write.
pub const ACCESS_WRITE: u32 = 1 << 1;
/// [`DmaUnmap::flags`]: whatever is mapped; address and length are 0.
pub const UNMAP_ALL: u32 = 1 << 1;
/// [`DeviceInfo::flags`]: the device can be reset.
pub const DEVICE_RESET: u32 = 1 << 0;
/// [`DeviceInfo::flags`]: the device is a PCI function.
pub const DEVICE_PCI: u32 = 1 << 1;
/// [`RegionInfo::flags`]: can be read.
pub const REGION_READ: u32 = 1 << 0;
/// [`RegionInfo::flags`]: can be written.
pub const REGION_WRITE: u32 = 1 << 1;
/// [`RegionInfo::flags`]: can be mapped, wholly or in areas.
pub const REGION_MMAP: u32 = 1 << 2;
/// [`RegionInfo::flags`]: capabilities follow.
pub const REGION_CAPS: u32 = 1 << 3;
/// [`Capability::id`] of the list of areas that may be mapped.
pub const CAP_SPARSE_MMAP: u16 = 1;
/// [`IrqInfo::flags`]: eventfds can be connected.
pub const IRQ_EVENTFD: u32 = 1 << 0;
/// [`IrqInfo::flags`]: can be masked.
pub const IRQ_MASKABLE: u32 = 1 << 1;
/// [`IrqInfo::flags`]: masks itself when triggered.
pub const IRQ_AUTOMASKED: u32 = 1 << 2;
/// [`IrqInfo::flags`]: all interrupts are connected in one call.
pub const IRQ_NORESIZE: u32 = 1 << 3;
/// [`SetIrqs::flags`]: no data.
pub const SET_NONE: u32 = 1 << 0;
/// [`SetIrqs::flags`]: a byte per interrupt.
pub const SET_BOOL: u32 = 1 << 1;
/// [`SetIrqs::flags`]: a descriptor per interrupt, or none at all to disconnect.
pub const SET_EVENTFD: u32 = 1 << 2;
/// [`SetIrqs::flags`]: mask.
pub const SET_MASK: u32 = 1 << 3;
/// [`SetIrqs::flags`]: unmask.
pub const SET_UNMASK: u32 = 1 << 4;
/// [`SetIrqs::flags`]: trigger.
pub const SET_TRIGGER: u32 = 1 << 5;

impl Header {
    /// Header of a request with a body of `body` bytes.
    ///
    /// `body` comes from this crate's own limits, which are far below 4 GiB; a length that does
    /// not fit is shortened to the largest that does, and the peer will refuse it.
    #[must_use]
    pub fn request(id: u16, command: Command, body: usize, flags: u32) -> Self {
        Self {
            id: id.into(),
            command: command.code().into(),
            size: u32::try_from(HEADER_BYTES + body).unwrap_or(u32::MAX).into(),
            flags: (flag::REQUEST | flags).into(),
            errno: 0.into(),
        }
    }

    /// Header of the reply to this request, with a body of `body` bytes.
    #[must_use]
    pub fn reply(&self, body: usize) -> Self {
        let size = u32::try_from(HEADER_BYTES + body).unwrap_or(u32::MAX);
        Self { size: size.into(), flags: flag::REPLY.into(), errno: 0.into(), ..*self }
    }

    /// Header of the refusal of this request, which has no body.
    #[must_use]
    pub fn refusal(&self, errno: u32) -> Self {
        Self { flags: (flag::REPLY | flag::ERROR).into(), errno: errno.into(), ..self.reply(0) }
    }

    /// Whether `bits` of [`flag`] are all set.
    #[must_use]
    pub fn has(&self, bits: u32) -> bool {
        self.flags.get() & bits == bits
    }

    /// The message type, [`flag::REQUEST`], [`flag::REPLY`] or something undefined.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.flags.get() & flag::TYPE
    }
}

/// Takes a structure off the front of a body; `None` if the body is shorter.
#[must_use]
pub fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    body: &[u8],
) -> Option<(&T, &[u8])> {
    T::ref_from_prefix(body).ok()
}
