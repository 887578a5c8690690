//! Regions.

use et_hal::DeviceAddr;

use super::{BarSizes, DirError, RegionRecord};

/// The access bits of a region. Spec: §3.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AccessAttr(u32);

impl AccessAttr {
    /// Makes the attributes from their bits.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Makes attributes of a region that the host maps, for the nodes given (0 none, 1 management,
    /// 2 operations, 3 both).
    #[must_use]
    pub const fn io(nodes: u32) -> Self {
        Self(1 | (nodes & 3) << 1)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns `true` if the host maps the region.
    #[must_use]
    pub const fn is_io(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns the nodes that may use it: bit 0 management, bit 1 operations.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.0 >> 1 & 3
    }

    /// Returns the code of the DMA alignment: 0 none, 1 to 3 for 8, 32 and 64 bits.
    #[must_use]
    pub const fn dma_align(self) -> u32 {
        self.0 >> 3 & 3
    }

    /// Returns the most nodes of a DMA list, 0 if not applicable.
    #[must_use]
    pub const fn dma_elem_count(self) -> u32 {
        self.0 >> 5 & 0xf
    }

    /// Returns the most bytes of a DMA node in units of 32 MiB, 0 if not applicable.
    #[must_use]
    pub const fn dma_elem_size(self) -> u32 {
        self.0 >> 9 & 0xff
    }

    /// Sets the most bytes of a DMA node, rounded down to what the bits can say.
    pub(crate) fn with_max_node_bytes(self, bytes: u64) -> Self {
        let units = u8::try_from(bytes >> 25).map_or(0xff, u32::from);
        Self(self.0 & !(0xff << 9) | units << 9)
    }

    /// Returns `true` if other devices may reach the region.
    #[must_use]
    pub const fn is_p2p(self) -> bool {
        self.0 >> 17 & 1 != 0
    }

    /// Returns the DMA limits.
    #[must_use]
    pub fn dma_info(self) -> DmaInfo {
        let align_bytes = match self.dma_align() {
            0 | 1 => 1,
            2 => 4,
            _ => 8,
        };
        DmaInfo {
            align_bytes,
            max_nodes: u8::try_from(self.dma_elem_count()).unwrap_or(u8::MAX),
            max_node_bytes: u64::from(self.dma_elem_size()) << 25,
            p2p: self.is_p2p(),
        }
    }
}

/// What DMA on host-managed memory must respect. Spec: §3.5, §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaInfo {
    /// Alignment of device addresses in bytes: 1, 4 or 8.
    pub align_bytes: u64,
    /// Most nodes of a list.
    pub max_nodes: u8,
    /// Most bytes of a node.
    pub max_node_bytes: u64,
    /// Other devices may reach the memory.
    pub p2p: bool,
}

/// A checked region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its type, whose meaning depends on the DIR. Spec: §3.6.
    pub kind: u8,
    /// BAR index.
    pub bar: u8,
    /// Access bits.
    pub access: AccessAttr,
    /// Offset in the BAR.
    pub bar_offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Device address, or 0 if not applicable.
    pub device_addr: DeviceAddr,
}

impl Region {
    pub(crate) fn from_record(record: &RegionRecord) -> Self {
        Self {
            kind: record.r#type,
            bar: record.bar,
            access: AccessAttr::from_bits(record.access_attr.get()),
            bar_offset: record.bar_offset.get(),
            len_bytes: record.bar_size.get(),
            device_addr: record.dev_address.get().into(),
        }
    }

    pub(crate) fn to_record(self) -> RegionRecord {
        RegionRecord {
            attributes_size: u16::try_from(size_of::<RegionRecord>()).unwrap_or(u16::MAX).into(),
            r#type: self.kind,
            bar: self.bar,
            access_attr: self.access.bits().into(),
            bar_offset: self.bar_offset.into(),
            bar_size: self.len_bytes.into(),
            dev_address: self.device_addr.as_u64().into(),
        }
    }

    fn end(&self) -> u64 {
        self.bar_offset.saturating_add(self.len_bytes)
    }

    pub(crate) fn check_fit(&self, bars: &BarSizes) -> Result<(), DirError> {
        let fits = bars.of(self.bar).is_some_and(|len| {
            self.bar_offset.checked_add(self.len_bytes).is_some_and(|end| end <= len)
        });
        if !fits {
            return Err(DirError::RegionOutsideBar { kind: self.kind, bar: self.bar });
        }
        if self.access.is_p2p() && self.len_bytes & 0x1f_ffff != 0 {
            return Err(DirError::PeerRegionLength { kind: self.kind, len: self.len_bytes });
        }
        Ok(())
    }

    /// Regions that no one maps are not checked against others. Spec: §3.8.
    fn is_mapped(&self) -> bool {
        self.access.is_io() || self.access.is_p2p()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_mapped()
            && other.is_mapped()
            && self.bar == other.bar
            && self.bar_offset < other.end()
            && other.bar_offset < self.end()
    }
}

/// Checks that no mapped region overlaps another, of either DIR.
///
/// # Errors
/// [`DirError::RegionOverlap`].
///
/// Spec: §3.8
pub fn check_overlap<'r>(
    regions: impl Iterator<Item = &'r Region> + Clone,
) -> Result<(), DirError> {
    let mut rest = regions;
    while let Some(region) = rest.next() {
        if let Some(other) = rest.clone().find(|other| region.overlaps(other)) {
            return Err(DirError::RegionOverlap {
                kind: other.kind,
                other: region.kind,
                bar: region.bar,
            });
        }
    }
    Ok(())
}
