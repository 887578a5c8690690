//! The blocks of a DIR, byte for byte.

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

use zerocopy::little_endian::{I16, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! blocks {
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

blocks! {
    /// Header of the operations registers. Spec: §3.1.
    OpsHeader = 16 {
        /// Size of this block.
        attributes_size: U16,
        /// 1.
        version: U16,
        /// Bytes of the whole DIR.
        total_size: U16,
        /// Number of region records.
        num_mem_regions: U16,
        /// Boot status.
        status: I16,
        /// CRC of everything after the header.
        crc32: U32,
        /// Padding.
        pad: [u8; 2],
    }
    /// Queue block of the operations registers. Spec: §3.2.
    OpsQueues = 32 {
        /// Size of this block.
        attributes_size: U16,
        /// Doorbell access size in bytes.
        int_trg_size: u8,
        /// Doorbell value.
        int_id: u8,
        /// Doorbell offset in the doorbell region.
        int_trg_offset: U32,
        /// Offset of SQ 0 in the queue region.
        sq_offset: U32,
        /// Number of SQs.
        sq_count: U16,
        /// Bytes of each SQ.
        per_sq_size: U16,
        /// Offset of CQ 0.
        cq_offset: U32,
        /// Number of CQs.
        cq_count: U16,
        /// Bytes of each CQ.
        per_cq_size: U16,
        /// Offset of HPSQ 0.
        sq_hp_offset: U32,
        /// Number of HPSQs.
        sq_hp_count: U16,
        /// Bytes of each HPSQ.
        per_sq_hp_size: U16,
    }
    /// Header of the management registers. Spec: §3.3.
    MgmtHeader = 72 {
        /// Size of this block.
        attributes_size: U16,
        /// 2.
        version: U16,
        /// Bytes of the whole DIR.
        total_size: U16,
        /// Number of region records.
        num_mem_regions: U16,
        /// Reserved.
        reserved0: [u8; 8],
        /// CRC of everything after the header.
        crc32: U32,
        /// Memory bandwidth in MB/s.
        ddr_bandwidth: U32,
        /// Active compute shires 0 to 31.
        cm_shires_mask: U32,
        /// Minion frequency in MHz.
        minion_boot_freq: U32,
        /// All scratchpads in KiB.
        scp_size: U32,
        /// All L2 in KiB.
        l2_size: U32,
        /// All L3 in KiB.
        l3_size: U32,
        /// Boot status.
        status: I16,
        /// L2 banks of a shire.
        l2_shire_banks: u8,
        /// Master shire.
        sync_min_shire_id: u8,
        /// 0 ET-SoC-1, 1 Pantero, 2 Gepardo.
        arch_rev: u8,
        /// 1 PCIe card, 2 M.2.
        form_factor: u8,
        /// Thermal design power in watts.
        device_tdp: u8,
        /// Cache line in bytes.
        cache_line_size: u8,
        /// Reserved.
        reserved1: [u8; 4],
        /// Length of BAR 0.
        bar0_size: U64,
        /// Length of BAR 2.
        bar2_size: U64,
    }
    /// Queue block of the management registers. Spec: §3.4.
    MgmtQueues = 24 {
        /// Size of this block.
        attributes_size: U16,
        /// Doorbell access size in bytes.
        int_trg_size: u8,
        /// Doorbell value.
        int_id: u8,
        /// Doorbell offset in the doorbell region.
        int_trg_offset: U32,
        /// Offset of the SQ in the queue region.
        sq_offset: U32,
        /// Number of SQs.
        sq_count: U16,
        /// Bytes of each SQ.
        per_sq_size: U16,
        /// Offset of the CQ.
        cq_offset: U32,
        /// Number of CQs.
        cq_count: U16,
        /// Bytes of each CQ.
        per_cq_size: U16,
    }
    /// Region record. Spec: §3.5.
    RegionRecord = 32 {
        /// Size of this record.
        attributes_size: U16,
        /// Region type.
        r#type: u8,
        /// BAR index.
        bar: u8,
        /// Access bits, see [`super::AccessAttr`].
        access_attr: U32,
        /// Offset in the BAR.
        bar_offset: U64,
        /// Length in bytes.
        bar_size: U64,
        /// Device address, or 0.
        dev_address: U64,
    }
}
