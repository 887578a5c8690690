//! What can be wrong with a DIR.

/// A DIR that cannot be used. Spec: §3.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// The total size is below the header or above the space for the DIR. The vendor's driver
    /// misses this one (Spec: §21, 20).
    #[error("total size {total_size} is not between {min} and {max}")]
    TotalSize {
        /// What the header says.
        total_size: u16,
        /// The header's own size.
        min: usize,
        /// Space for the DIR, or the bytes given.
        max: usize,
    },
    /// A block is smaller than the known structure.
    #[error("{block} has {size} bytes, less than {known}")]
    BlockTooSmall {
        /// Which block.
        block: &'static str,
        /// Its size.
        size: u16,
        /// Size of the known structure.
        known: usize,
    },
    /// A block goes past the total size.
    #[error("{block} at {at} goes past the end at {total_size}")]
    BlockPastEnd {
        /// Which block.
        block: &'static str,
        /// Its offset.
        at: usize,
        /// The total size.
        total_size: u16,
    },
    /// The CRC is wrong.
    #[error("CRC is {computed:#010x}, the header says {expected:#010x}")]
    Crc {
        /// Of the bytes.
        computed: u32,
        /// In the header.
        expected: u32,
    },
    /// A number of the queue block is 0.
    #[error("queue block has {field} 0")]
    QueueZero {
        /// Its field.
        field: &'static str,
    },
    /// The doorbell's access size is not 1, 2, 4 or 8.
    #[error("doorbell access of {bytes} bytes is impossible")]
    DoorbellSize {
        /// The size.
        bytes: u8,
    },
    /// A queue or the doorbell is not inside its region.
    #[error("{what} is outside its region of {region_bytes} bytes")]
    OutsideRegion {
        /// Which.
        what: &'static str,
        /// Length of the region.
        region_bytes: u64,
    },
    /// Two regions have the same type.
    #[error("region type {kind} occurs twice")]
    DuplicateRegion {
        /// The type.
        kind: u8,
    },
    /// A region does not fit its BAR.
    #[error("region type {kind} does not fit BAR {bar}")]
    RegionOutsideBar {
        /// The type.
        kind: u8,
        /// The BAR.
        bar: u8,
    },
    /// Two regions overlap.
    #[error("region type {kind} overlaps region type {other} in BAR {bar}")]
    RegionOverlap {
        /// The type.
        kind: u8,
        /// The other's type, of either DIR.
        other: u8,
        /// The BAR.
        bar: u8,
    },
    /// The length of a peer-to-peer region is not a multiple of 2 MiB.
    #[error("peer-to-peer region type {kind} has {len} bytes, not a multiple of 2 MiB")]
    PeerRegionLength {
        /// The type.
        kind: u8,
        /// The length.
        len: u64,
    },
    /// Queues or doorbells are in another BAR than the mailboxes.
    #[error("region type {kind} is in BAR {bar}, not in that of the mailboxes")]
    RegionInOtherBar {
        /// The type.
        kind: u8,
        /// The BAR.
        bar: u8,
    },
    /// Device memory for the user goes past the end of the address space.
    #[error("{len} bytes of memory at {base:#x} go past the end of the address space")]
    MemoryWraps {
        /// First byte.
        base: u64,
        /// Bytes.
        len: u64,
    },
    /// A compulsory region is missing or unusable.
    #[error("region type {kind} is missing")]
    RegionMissing {
        /// The type.
        kind: u8,
    },
}

/// Something odd in a DIR that does not stop its use. Spec: §3.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirWarning {
    /// The version is another than the known one.
    Version {
        /// What the header says.
        found: u16,
    },
    /// A BAR length differs from what the bus reports.
    BarLength {
        /// The BAR.
        bar: u8,
        /// What the header says.
        found: u64,
    },
    /// A block is larger than the known structure; the rest was skipped.
    LargerBlock {
        /// Its offset.
        at: usize,
    },
    /// A region of unknown type was skipped.
    UnknownRegion {
        /// The type.
        kind: u8,
    },
    /// A region with wrong attributes was skipped.
    BadRegion {
        /// The type.
        kind: u8,
    },
    /// The blocks do not add up to the total size.
    SizeSum {
        /// Sum of the blocks.
        sum: usize,
    },
}

/// The warnings of one DIR, in order; the first 16 are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    kept: [Option<DirWarning>; 16],
}

impl Warnings {
    pub(crate) fn push(&mut self, warning: DirWarning) {
        if let Some(place) = self.kept.iter_mut().find(|place| place.is_none()) {
            *place = Some(warning);
        }
    }

    /// Goes through the warnings.
    pub fn iter(&self) -> impl Iterator<Item = DirWarning> + '_ {
        self.kept.iter().flatten().copied()
    }
}
