//! The management registers.

use et_hal::DeviceAddr;
use zerocopy::IntoBytes;

use super::ops::sizes;
use super::parse::{Blocks, Rule, check_nonzero, write};
use super::{
    AccessAttr, BarSizes, DirError, DirWarning, MGMT_VERSION, MgmtHeader, MgmtQueues, MgmtStatus,
    Region, RegionRecord, Warnings,
};

/// Region types of the management registers. Spec: §3.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MgmtRegion {
    /// The queues.
    VqBuffer = 0,
    /// The doorbells of both endpoints.
    Doorbells = 1,
    /// Firmware update image.
    Scratch = 2,
    /// Trace of the service processor.
    SpTrace = 3,
    /// Trace of the master minions.
    MmTrace = 4,
    /// Trace of the compute minions.
    CmTrace = 5,
    /// Statistics of the service processor.
    SpStats = 6,
    /// Statistics of the master minions.
    MmStats = 7,
}

const fn rule(is_compulsory: bool, is_valid: fn(&Region) -> bool) -> Rule {
    Rule { is_compulsory, is_valid }
}

fn is_plain_io(region: &Region) -> bool {
    region.access.is_io() && region.access.dma_align() == 0
}

const RULES: [Rule; 8] = [
    rule(true, |region| is_plain_io(region) && region.access.nodes() == 0),
    rule(true, |region| is_plain_io(region) && region.access.nodes() == 0),
    rule(true, |region| is_plain_io(region) && region.access.nodes() == 1),
    rule(false, is_plain_io),
    rule(false, is_plain_io),
    rule(false, is_plain_io),
    rule(false, is_plain_io),
    rule(false, is_plain_io),
];

/// Checked management registers. Spec: §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MgmtDir {
    /// Everything the header says; sizes, count and CRC in it are recomputed by
    /// [`encode`](Self::encode).
    pub header: MgmtHeader,
    queues: MgmtQueues,
    regions: [Option<Region>; RULES.len()],
    warnings: Warnings,
}

impl MgmtDir {
    /// Reads and checks a DIR by all rules of the vendor's driver, and its total size, which that
    /// misses.
    ///
    /// # Errors
    /// [`DirError`], one variant for each rule.
    ///
    /// Spec: §3.8
    pub fn parse(bytes: &[u8], bars: &BarSizes) -> Result<Self, DirError> {
        let (total_size, header_size) = sizes(bytes)?;
        let mut blocks = Blocks::new(bytes, header_size, total_size)?;
        let header: &MgmtHeader = blocks.block("header")?;
        blocks.check_crc(header_size, header.crc32.get())?;
        if header.version.get() != MGMT_VERSION {
            blocks.warnings.push(DirWarning::Version { found: header.version.get() });
        }
        for (bar, found, actual) in
            [(0, header.bar0_size.get(), bars.bar0), (2, header.bar2_size.get(), bars.bar2)]
        {
            if found != actual {
                blocks.warnings.push(DirWarning::BarLength { bar, found });
            }
        }
        let queues: &MgmtQueues = blocks.block("queue block")?;
        check_nonzero(&[
            ("sq_count", queues.sq_count.get().into()),
            ("per_sq_size", queues.per_sq_size.get().into()),
            ("cq_count", queues.cq_count.get().into()),
            ("per_cq_size", queues.per_cq_size.get().into()),
            ("int_trg_size", queues.int_trg_size.into()),
        ])?;
        let mut regions = [None; RULES.len()];
        blocks.regions(header.num_mem_regions.get(), bars, &RULES, &mut regions)?;
        Ok(Self { header: *header, queues: *queues, regions, warnings: blocks.warnings })
    }

    /// Describes a device as current firmware does, given what depends on the card. Sizes of
    /// scratchpad, L2 and L3 in KiB. Spec: §3.4, §3.6.
    #[must_use]
    pub fn firmware(
        cm_shires_mask: u32,
        minion_boot_freq_mhz: u32,
        tdp_watts: u8,
        (scp_kib, l2_kib, l3_kib): (u32, u32, u32),
    ) -> Self {
        let header = MgmtHeader {
            attributes_size: 72.into(),
            version: MGMT_VERSION.into(),
            total_size: 0.into(),
            num_mem_regions: 0.into(),
            reserved0: [0; 8],
            crc32: 0.into(),
            ddr_bandwidth: 128_000.into(),
            cm_shires_mask: cm_shires_mask.into(),
            minion_boot_freq: minion_boot_freq_mhz.into(),
            scp_size: scp_kib.into(),
            l2_size: l2_kib.into(),
            l3_size: l3_kib.into(),
            status: i16::from(MgmtStatus::DevReady).into(),
            l2_shire_banks: 4,
            sync_min_shire_id: 32,
            arch_rev: 0,
            form_factor: 1,
            device_tdp: tdp_watts,
            cache_line_size: 64,
            reserved1: [0; 4],
            bar0_size: crate::pci::BAR0_BYTES.into(),
            bar2_size: crate::pci::BAR2_BYTES.into(),
        };
        let queues = MgmtQueues {
            attributes_size: 24.into(),
            int_trg_size: 4,
            int_id: 1,
            int_trg_offset: 0.into(),
            sq_offset: 0.into(),
            sq_count: 1.into(),
            per_sq_size: 0x700.into(),
            cq_offset: 0x700.into(),
            cq_count: 1.into(),
            per_cq_size: 0x700.into(),
        };
        let region = |kind: MgmtRegion, bar, nodes, bar_offset, len_bytes| {
            Some(Region {
                kind: kind as u8,
                bar,
                access: AccessAttr::io(nodes),
                bar_offset,
                len_bytes,
                device_addr: DeviceAddr::new(0),
            })
        };
        let regions = [
            region(MgmtRegion::VqBuffer, 2, 0, 0x1200, 0xe00),
            region(MgmtRegion::Doorbells, 2, 0, 0x2000, 0x2000),
            region(MgmtRegion::Scratch, 0, 1, 0, 0x40_0000),
            region(MgmtRegion::SpTrace, 0, 1, 0x40_0000, 0x2000),
            region(MgmtRegion::MmTrace, 0, 3, 0x40_2000, 0x10_0000),
            region(MgmtRegion::CmTrace, 0, 3, 0x50_2000, 0x82_0000),
            region(MgmtRegion::SpStats, 0, 1, 0xd2_2000, 0x10_0000),
            region(MgmtRegion::MmStats, 0, 3, 0xe2_2000, 0x10_0000),
        ];
        Self { header, queues, regions, warnings: Warnings::default() }
    }

    /// Writes the DIR, CRC included; the inverse of [`parse`](Self::parse). Returns its length in
    /// bytes, or `None` if `out` is too small.
    #[must_use]
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let count = self.regions().count();
        let total = size_of::<MgmtHeader>()
            .checked_add(size_of::<MgmtQueues>())?
            .checked_add(count.checked_mul(size_of::<RegionRecord>())?)?;
        // Newer blocks were cut to what is known, and so are their sizes.
        let queues = MgmtQueues { attributes_size: 24.into(), ..self.queues };
        let header = MgmtHeader {
            attributes_size: 72.into(),
            total_size: u16::try_from(total).ok()?.into(),
            num_mem_regions: u16::try_from(count).ok()?.into(),
            ..self.header
        };
        let (len, whole) = write(&header, &queues, self.regions().copied(), out)?;
        let (head, covered) = whole.split_at_mut_checked(size_of::<MgmtHeader>())?;
        let sealed = MgmtHeader { crc32: crc32fast::hash(covered).into(), ..header };
        head.copy_from_slice(sealed.as_bytes());
        Some(len)
    }

    /// Returns the boot status at the time of reading.
    #[must_use]
    pub fn status(&self) -> MgmtStatus {
        self.header.status.get().into()
    }

    /// Returns the queue block.
    #[must_use]
    pub fn queues(&self) -> &MgmtQueues {
        &self.queues
    }

    /// Goes through the regions.
    pub fn regions(&self) -> impl Iterator<Item = &Region> + Clone {
        self.regions.iter().flatten()
    }

    /// Returns the region of a type.
    #[must_use]
    pub fn region(&self, kind: MgmtRegion) -> Option<&Region> {
        self.regions.get(kind as usize).and_then(Option::as_ref)
    }

    /// Returns what was odd.
    #[must_use]
    pub fn warnings(&self) -> &Warnings {
        &self.warnings
    }
}
