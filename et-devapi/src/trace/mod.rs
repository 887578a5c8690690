//! Trace buffers: headers and entries. Spec: §16

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

mod cursor;
mod custom;
mod decode;

pub use cursor::{Cursor, News};
pub use custom::CustomPayload;
pub use decode::{Body, Buffer, BufferError, Entries, Entry, Header, Layout, Part, Parts};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of a trace buffer. Spec: §16.1.
pub const MAGIC: u32 = 0x7654_3210;
/// Version of the trace layout: major, minor, patch. Spec: §19.
pub const VERSION: (u16, u16, u16) = (0, 6, 0);
/// What is before a level at the end of the padding of a text: `ET_TRACE_LEVEL_MARK` of the kernel
/// library. The format has no field for levels. Spec: §16.2.
pub const LEVEL_MARK: u8 = 0xe7;

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

layout! {
    /// Header of part 0 of a buffer. Spec: §16.1.
    TraceHeader = 64 {
        /// [`MAGIC`].
        magic_header: U32,
        /// Major version of the layout.
        version_major: U16,
        /// Minor version.
        version_minor: U16,
        /// Patch version.
        version_patch: U16,
        /// [`BufferType`].
        r#type: U16,
        /// Offset of the first free byte of part 0, this header included.
        data_size: U32,
        /// Bytes of each part.
        sub_buffer_size: U32,
        /// Number of parts.
        sub_buffer_count: U16,
        /// Padding.
        pad: [u8; 42],
    }
    /// Header of every other part. Spec: §16.1.
    TraceSizeHeader = 4 {
        /// Offset of the first free byte of the part, this header included.
        data_size: U32,
    }
    /// What a hart's tracing library works by; firmware writes it at every launch. Spec: §16.3.
    TraceControl = 64 {
        /// Functions that firmware uses on its own blocks, 0 for kernels.
        functions: [U64; 3],
        /// Start of the hart's part of the buffer.
        base: U64,
        /// Bytes of the part.
        size: U32,
        /// Offset of the next entry in the part.
        offset: U32,
        /// Bytes from which on the part counts as full.
        threshold: U32,
        /// Kinds of entries to write.
        event_mask: U32,
        /// Levels of entries to write.
        filter_mask: U32,
        /// Not used any more, 0.
        reserved: U32,
        /// Whether the threshold has been reached, 0 for kernels.
        notified: u8,
        /// 0 if the hart traces, 1 if not.
        is_disabled: u8,
        /// [`HeaderKind`] of the part.
        header_kind: u8,
        /// Padding.
        pad: [u8; 5],
    }
    /// Start of an entry. Spec: §16.2.
    EntryHeader = 16 {
        /// Cycle counter.
        cycle: U64,
        /// Bytes after this header.
        payload_size: U32,
        /// Who wrote it.
        hart_id: U16,
        /// [`EntryType`].
        r#type: U16,
    }
    /// A performance counter. Spec: §16.2.
    PmcCounter = 32 {
        /// Start.
        header: EntryHeader,
        /// Its value.
        value: U64,
        /// Which counter.
        counter: u8,
        /// Padding.
        pad: [u8; 7],
    }
    /// All counters of a hart. Spec: §16.2.
    PmcCountersCompute = 64 {
        /// Start.
        header: EntryHeader,
        /// `hpmcounter3` to `hpmcounter8`.
        hpmcounter: [U64; 6],
    }
    /// Shire cache counters. Spec: §16.2.
    PmcCountersSc = 32 {
        /// Start.
        header: EntryHeader,
        /// Counter 0.
        sc_pmc0: U64,
        /// Counter 1.
        sc_pmc1: U64,
    }
    /// Memory shire counters. Spec: §16.2.
    PmcCountersMs = 40 {
        /// Start.
        header: EntryHeader,
        /// Counter 0.
        ms_pmc0: U64,
        /// Counter 1.
        ms_pmc1: U64,
        /// Which memory shire.
        ms_id: u8,
        /// Padding.
        pad: [u8; 7],
    }
    /// A 64-bit value. Spec: §16.2.
    ValueU64 = 32 {
        /// Start.
        header: EntryHeader,
        /// Chosen by the writer.
        tag: U32,
        /// The value.
        value: U64,
        /// Padding.
        pad: [u8; 4],
    }
    /// A 32-bit value, or the bits of a float. Spec: §16.2.
    ValueU32 = 24 {
        /// Start.
        header: EntryHeader,
        /// Chosen by the writer.
        tag: U32,
        /// The value.
        value: U32,
    }
    /// A 16-bit value. Spec: §16.2.
    ValueU16 = 24 {
        /// Start.
        header: EntryHeader,
        /// Chosen by the writer.
        tag: U32,
        /// The value.
        value: U16,
        /// Padding.
        pad: [u8; 2],
    }
    /// An 8-bit value. Spec: §16.2.
    ValueU8 = 24 {
        /// Start.
        header: EntryHeader,
        /// Chosen by the writer.
        tag: U32,
        /// The value.
        value: u8,
        /// Padding.
        pad: [u8; 3],
    }
    /// Start of a memory dump; the bytes follow. Spec: §16.2.
    MemoryEntry = 32 {
        /// Start.
        header: EntryHeader,
        /// Device address.
        src_addr: U64,
        /// Bytes.
        size: U64,
    }
    /// State of a hart at an exception. Spec: §16.2.
    ExecutionStack = 296 {
        /// Start.
        header: EntryHeader,
        /// Program counter.
        epc: U64,
        /// Trap value.
        tval: U64,
        /// Status.
        status: U64,
        /// Cause.
        cause: U64,
        /// x1 to x31.
        gpr: [U64; 31],
    }
    /// Progress of a command. Spec: §16.2.
    CmdStatus = 24 {
        /// Start.
        header: EntryHeader,
        /// Message id.
        mesg_id: U16,
        /// 1 waiting for a barrier, 2 received, 3 executing, 4 failed, 5 aborted, 6 succeeded.
        cmd_status: u8,
        /// Queue.
        queue_slot_id: u8,
        /// Tag.
        trans_id: U16,
        /// Reserved.
        reserved: [u8; 2],
    }
    /// Power of the card. Spec: §16.2.
    PowerStatus = 32 {
        /// Start.
        header: EntryHeader,
        /// Power.
        current_power: U16,
        /// Throttle state.
        throttle_state: u8,
        /// Power state.
        power_state: u8,
        /// Temperature in degrees Celsius.
        current_temp: u8,
        /// Padding.
        pad_1: [u8; 3],
        /// Target frequency in MHz.
        tgt_freq: U16,
        /// Target voltage.
        tgt_voltage: U16,
        /// Padding.
        pad_2: [u8; 4],
    }
    /// Start of an event of the writer's own; its bytes follow. Spec: §16.2.
    CustomEvent = 24 {
        /// Start.
        header: EntryHeader,
        /// Chosen by the writer.
        custom_type: U32,
        /// Bytes that follow.
        payload_size: U32,
    }
    /// A profiling mark of a kernel. Spec: §16.2.
    UserProfileEvent = 48 {
        /// Start.
        header: EntryHeader,
        /// Address of the function's name.
        func: U64,
        /// Instructions retired.
        retired_insts: U64,
        /// Line, region and status.
        line_region_status: U64,
        /// Address of the region's name.
        region_name: U64,
    }
}

/// Offset of [`TraceControl::is_disabled`], all that firmware writes for a hart that does not
/// trace.
/// Spec: §16.3.
pub const TRACE_DISABLED_OFFSET: u64 = 57;

const _: () = assert!(core::mem::offset_of!(TraceControl, is_disabled) == 57);

/// Number of the first event of the compute minions' own; up to 2999, none is defined. Spec: §16.2.
pub const CM_EVENT_START: u16 = 2000;
/// Number of the first event of the master minions' own. Spec: §16.2.
pub const MM_EVENT_START: u16 = 1000;
/// Number of the first event of the service processor's own. Spec: §16.2.
pub const SP_EVENT_START: u16 = 0;
/// Each writer's own events end this far after their start. Spec: §16.2.
pub const EVENT_RANGE: u16 = 999;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty { $($value:literal => $variant:ident $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum $name {
            $(#[doc = concat!($text, ".")] $variant = $value,)*
        }

        impl $name {
            /// Returns the value of that number, if there is one.
            #[must_use]
            pub const fn from_number(number: $type) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    )*};
}

numbers! {
    /// Who writes a buffer. Spec: §16.1.
    BufferType: u16 {
        0 => Mm "Master minions",
        1 => Cm "Firmware of the compute minions",
        2 => Sp "Service processor",
        3 => CmUmode "Kernels",
        4 => SpStats "Statistics of the service processor",
        5 => MmStats "Statistics of the master minions",
    }
    /// Kind of an entry. Spec: §16.2.
    EntryType: u16 {
        0 => String "Text",
        1 => PmcCounter "A performance counter",
        2 => PmcCountersCompute "All counters of a hart",
        3 => PmcCountersMemory "Reserved",
        4 => PmcCountersSc "Shire cache counters",
        5 => PmcCountersMs "Memory shire counters",
        6 => ValueU64 "A 64-bit value",
        7 => ValueU32 "A 32-bit value",
        8 => ValueU16 "A 16-bit value",
        9 => ValueU8 "An 8-bit value",
        10 => ValueFloat "A float",
        11 => Memory "A memory dump",
        12 => Exception "State of a hart at an exception",
        13 => CmdStatus "Progress of a command",
        14 => PowerStatus "Power of the card",
        15 => CustomEvent "An event of the writer's own",
        16 => UserProfileEvent "A profiling mark",
    }
    /// Kind of the header of a part. Spec: §16.1.
    HeaderKind: u16 {
        0 => Standard "Header of part 0",
        1 => Size "Header of every other part",
    }
    /// Which counter a [`PmcCounter`] holds. Spec: §16.2.
    CounterId: u16 {
        0 => Hpmcounter3 "Hart counter 3",
        1 => Hpmcounter4 "Hart counter 4",
        2 => Hpmcounter5 "Hart counter 5",
        3 => Hpmcounter6 "Hart counter 6",
        4 => Hpmcounter7 "Hart counter 7",
        5 => Hpmcounter8 "Hart counter 8",
        6 => ShireCacheCycle "Shire cache cycles",
        7 => ShireCache1 "Shire cache counter 1",
        8 => ShireCache2 "Shire cache counter 2",
        9 => MemshireCycle "Memory shire cycles",
        10 => Memshire1 "Memory shire counter 1",
        11 => Memshire2 "Memory shire counter 2",
        12 => Memshire0Cycle "Memory shire 0 cycles",
        13 => Memshire1Cycle "Memory shire 1 cycles",
        14 => Memshire2Cycle "Memory shire 2 cycles",
        15 => Memshire3Cycle "Memory shire 3 cycles",
        16 => Memshire4Cycle "Memory shire 4 cycles",
        17 => Memshire5Cycle "Memory shire 5 cycles",
        18 => Memshire6Cycle "Memory shire 6 cycles",
        19 => Memshire7Cycle "Memory shire 7 cycles",
        20 => Memshire01 "Memory shire 0 counter 1",
        21 => Memshire11 "Memory shire 1 counter 1",
        22 => Memshire21 "Memory shire 2 counter 1",
        23 => Memshire31 "Memory shire 3 counter 1",
        24 => Memshire41 "Memory shire 4 counter 1",
        25 => Memshire51 "Memory shire 5 counter 1",
        26 => Memshire61 "Memory shire 6 counter 1",
        27 => Memshire71 "Memory shire 7 counter 1",
        28 => Memshire02 "Memory shire 0 counter 2",
        29 => Memshire12 "Memory shire 1 counter 2",
        30 => Memshire22 "Memory shire 2 counter 2",
        31 => Memshire32 "Memory shire 3 counter 2",
        32 => Memshire42 "Memory shire 4 counter 2",
        33 => Memshire52 "Memory shire 5 counter 2",
        34 => Memshire62 "Memory shire 6 counter 2",
        35 => Memshire72 "Memory shire 7 counter 2",
    }
    /// Events of the service processor's own, from 0 to 999. Spec: §16.2.
    SpEvent: u16 {
        1 => PerfGlobals "Performance",
        2 => PowerGlobals "Power",
        3 => PowerStatesGlobals "Power states",
        4 => OpStats "Operation statistics",
    }
    /// Events of the master minions' own, from 1000 to 1999. Spec: §16.2.
    MmEvent: u16 {
        1001 => ComputeResources "Use of compute resources",
    }
    /// Progress of a command in a [`CmdStatus`]. Spec: §16.2.
    CmdProgress: u16 {
        1 => WaitBarrier "Waiting for a barrier",
        2 => Received "Received",
        3 => Executing "Executing",
        4 => Failed "Failed",
        5 => Aborted "Aborted",
        6 => Succeeded "Succeeded",
    }
}
