//! The operations registers.

use et_hal::DeviceAddr;
use zerocopy::{FromBytes, IntoBytes};

use super::parse::{Blocks, Rule, check_nonzero, write};
use super::{
    AccessAttr, BarSizes, DirError, DirWarning, OPS_VERSION, OpsHeader, OpsQueues, OpsStatus,
    Region, Warnings,
};

/// Region types of the operations registers. Spec: §3.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpsRegion {
    /// The queues.
    VqBuffer = 0,
    /// Device memory for the user.
    HostManaged = 1,
}

const RULES: [Rule; 2] = [
    Rule {
        is_compulsory: true,
        is_valid: |region| {
            let access = region.access;
            access.is_io() && access.nodes() == 0 && access.dma_align() == 0
        },
    },
    Rule {
        is_compulsory: true,
        is_valid: |region| {
            let access = region.access;
            // The vendor's driver refuses a region that the host may map, since it would map it.
            access.nodes() & 1 == 0 && region.device_addr.as_u64() != 0
        },
    },
];

/// Checked operations registers. Spec: §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsDir {
    version: u16,
    status: OpsStatus,
    queues: OpsQueues,
    regions: [Option<Region>; RULES.len()],
    warnings: Warnings,
}

impl OpsDir {
    /// Reads and checks a DIR by all rules of the vendor's driver but one, and its total size,
    /// which that misses.
    ///
    /// The one: device memory may be granted to the host's processors, as
    /// [`with_cpu_access`](Self::with_cpu_access) does.
    ///
    /// # Errors
    /// [`DirError`], one variant for each rule.
    ///
    /// Spec: §3.8
    pub fn parse(bytes: &[u8], bars: &BarSizes) -> Result<Self, DirError> {
        let (total_size, header_size) = sizes(bytes)?;
        let mut blocks = Blocks::new(bytes, header_size, total_size)?;
        let header: &OpsHeader = blocks.block("header")?;
        blocks.check_crc(header_size, header.crc32.get())?;
        let version = header.version.get();
        if version != OPS_VERSION {
            blocks.warnings.push(DirWarning::Version { found: version });
        }
        let queues: &OpsQueues = blocks.block("queue block")?;
        check_nonzero(&[
            ("sq_count", queues.sq_count.get().into()),
            ("per_sq_size", queues.per_sq_size.get().into()),
            ("cq_count", queues.cq_count.get().into()),
            ("per_cq_size", queues.per_cq_size.get().into()),
            ("sq_hp_count", queues.sq_hp_count.get().into()),
            ("per_sq_hp_size", queues.per_sq_hp_size.get().into()),
            ("int_trg_size", queues.int_trg_size.into()),
        ])?;
        let mut regions = [None; RULES.len()];
        blocks.regions(header.num_mem_regions.get(), bars, &RULES, &mut regions)?;
        Ok(Self {
            version,
            status: header.status.get().into(),
            queues: *queues,
            regions,
            warnings: blocks.warnings,
        })
    }

    /// Describes a device as current firmware does.
    ///
    /// `host_managed_len` in bytes is that of [`crate::abi::host_managed_len`]. Spec: §3.2, §3.6.
    #[must_use]
    pub fn firmware(host_managed_len: u64) -> Self {
        let queues = OpsQueues {
            attributes_size: 32.into(),
            int_trg_size: 4,
            int_id: 1,
            int_trg_offset: 4.into(),
            sq_offset: 0.into(),
            sq_count: 2.into(),
            per_sq_size: 0x440.into(),
            cq_offset: 0x900.into(),
            cq_count: 1.into(),
            per_cq_size: 0x600.into(),
            sq_hp_offset: 0x880.into(),
            sq_hp_count: 2.into(),
            per_sq_hp_size: 0x40.into(),
        };
        let vq_buffer = Region {
            kind: OpsRegion::VqBuffer as u8,
            bar: 2,
            access: AccessAttr::io(0),
            bar_offset: 0x100,
            len_bytes: 0xf00,
            device_addr: DeviceAddr::new(0),
        };
        let host_managed = Region {
            kind: OpsRegion::HostManaged as u8,
            bar: 0,
            access: AccessAttr::from_bits(0x0002_091c),
            bar_offset: 0x180_0000,
            len_bytes: host_managed_len,
            device_addr: crate::abi::HOST_MANAGED_BASE,
        };
        Self {
            version: OPS_VERSION,
            status: OpsStatus::Ready,
            queues,
            regions: [Some(vq_buffer), Some(host_managed)],
            warnings: Warnings::default(),
        }
    }

    /// Grants device memory to the host's processors (`io_access`), which no current firmware does.
    /// Spec: §3.5
    #[must_use]
    pub fn with_cpu_access(mut self) -> Self {
        if let Some(Some(region)) = self.regions.get_mut(OpsRegion::HostManaged as usize) {
            let io = AccessAttr::io(0).bits();
            region.access = AccessAttr::from_bits(region.access.bits() | io);
        }
        self
    }

    /// Offers a part of the device's memory only, which begins at `base`.
    #[must_use]
    pub fn with_host_managed(mut self, base: DeviceAddr, len_bytes: u64) -> Self {
        if let Some(Some(region)) = self.regions.get_mut(OpsRegion::HostManaged as usize) {
            let before = base.as_u64().saturating_sub(crate::abi::HOST_MANAGED_BASE.as_u64());
            region.bar_offset = region.bar_offset.saturating_add(before);
            region.len_bytes = len_bytes;
            region.device_addr = base;
        }
        self
    }

    /// States the most bytes of a node of a DMA list, in steps of 32 MiB up to 255 of them; what is
    /// between two steps is the lower one. Current firmware states 128 MiB. Spec: §3.5
    #[must_use]
    pub fn with_max_node_bytes(mut self, bytes: u64) -> Self {
        if let Some(Some(region)) = self.regions.get_mut(OpsRegion::HostManaged as usize) {
            region.access = region.access.with_max_node_bytes(bytes);
        }
        self
    }

    /// Writes the DIR, CRC included; the inverse of [`parse`](Self::parse). Returns its length in
    /// bytes, or `None` if `out` is too small.
    #[must_use]
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let count = self.regions().count();
        let total = size_of::<OpsHeader>()
            .checked_add(size_of::<OpsQueues>())?
            .checked_add(count.checked_mul(size_of::<super::RegionRecord>())?)?;
        let header = OpsHeader {
            attributes_size: 16.into(),
            version: self.version.into(),
            total_size: u16::try_from(total).ok()?.into(),
            num_mem_regions: u16::try_from(count).ok()?.into(),
            status: i16::from(self.status).into(),
            crc32: 0.into(),
            pad: [0; 2],
        };
        // A newer block was cut to what is known, and so is its size.
        let queues = OpsQueues { attributes_size: 32.into(), ..self.queues };
        let (len, whole) = write(&header, &queues, self.regions().copied(), out)?;
        let (head, covered) = whole.split_at_mut_checked(size_of::<OpsHeader>())?;
        let sealed = OpsHeader { crc32: crc32fast::hash(covered).into(), ..header };
        head.copy_from_slice(sealed.as_bytes());
        Some(len)
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the boot status at the time of reading.
    #[must_use]
    pub fn status(&self) -> OpsStatus {
        self.status
    }

    /// Returns the queue block.
    #[must_use]
    pub fn queues(&self) -> &OpsQueues {
        &self.queues
    }

    /// Goes through the regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region> + Clone {
        self.regions.iter().flatten()
    }

    /// Returns the region of a type.
    #[must_use]
    pub fn region(&self, kind: OpsRegion) -> Option<&Region> {
        self.regions.get(kind as usize).and_then(Option::as_ref)
    }

    /// Returns what was odd.
    #[must_use]
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }
}

/// Total size and header size, the same place in both DIRs.
pub(crate) fn sizes(bytes: &[u8]) -> Result<(u16, u16), DirError> {
    #[derive(FromBytes)]
    #[repr(C)]
    struct Start {
        header_size: zerocopy::little_endian::U16,
        _version: [u8; 2],
        total_size: zerocopy::little_endian::U16,
    }
    let (start, _) = Start::read_from_prefix(bytes).map_err(|_| DirError::BlockPastEnd {
        block: "header",
        at: 0,
        total_size: u16::try_from(bytes.len()).unwrap_or(u16::MAX),
    })?;
    Ok((start.total_size.get(), start.header_size.get()))
}
