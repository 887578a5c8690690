//! What a device says about itself.

use et_devapi::abi::{MASTER_SHIRE, harts_in_mask};
use et_devapi::dir::OpsRegion;
use et_devapi::discovery::Layout;
use et_devapi::msg::ops::Version;
use et_hal::DeviceAddr;

/// Shape of the card. Spec: §3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormFactor {
    /// A PCIe card.
    PcieCard,
    /// An M.2 module.
    M2,
    /// Something this version does not know.
    Unknown(u8),
}

/// Revision of the architecture. Spec: §3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchRevision {
    /// ET-SoC-1.
    EtSoc1,
    /// Pantero.
    Pantero,
    /// Gepardo.
    Gepardo,
    /// Something this version does not know.
    Unknown(u8),
}

/// One level of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLevel {
    /// 2 or 3.
    pub level: u8,
    /// All of it, in bytes.
    pub size_bytes: u64,
    /// A line in bytes.
    pub line_bytes: u32,
    /// Banks in each shire, where the device says so.
    pub banks_per_shire: Option<u8>,
}

/// Properties of a device. Values the device does not report are `None`, never 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Shires that kernels can use.
    pub shire_mask: u64,
    /// Their number.
    pub shires: u32,
    /// Compute cores (minions).
    pub cores: u32,
    /// Hardware threads (harts), two for each core.
    pub harts: u32,
    /// Scalar units: one for each core.
    pub scalar_units: u32,
    /// Vector units: one for each core, 256 bits wide.
    pub vector_units: u32,
    /// Host and device have one address space.
    pub unified_address_space: bool,
    /// Memory for the user, in bytes.
    pub global_memory_bytes: u64,
    /// Where it begins.
    pub global_memory_base: DeviceAddr,
    /// Memory that kernels may treat as constant: all of it, there is no separate one.
    pub constant_memory_bytes: u64,
    /// Scratchpad of one shire, in bytes.
    pub local_memory_bytes: Option<u64>,
    /// Memory bandwidth in MB/s.
    pub memory_bandwidth_mbps: Option<u32>,
    /// Frequency of the cores at boot, in MHz. Firmware reports no other maximum.
    pub boot_frequency_mhz: Option<u32>,
    /// Caches.
    pub caches: Vec<CacheLevel>,
    /// Cache line in bytes.
    pub cache_line_bytes: u32,
    /// Thermal design power in watts.
    pub tdp_watts: Option<u8>,
    /// Shape of the card.
    pub form_factor: FormFactor,
    /// Revision of the architecture.
    pub arch_revision: ArchRevision,
    /// Version of the operations interface.
    pub api_version: Version,
    /// Version of this runtime.
    pub runtime_version: &'static str,
    /// Cycles of device time stamps in a second.
    pub timestamp_hz: Option<u64>,
    /// Most nodes of a DMA list.
    pub dma_max_nodes: u8,
    /// Most bytes of a DMA node.
    pub dma_max_node_bytes: u64,
    /// Alignment of DMA on device addresses, in bytes.
    pub dma_align_bytes: u64,
    /// Other devices may reach its memory.
    pub peer_to_peer: bool,
    /// The registers let the host use device memory without DMA, which
    /// [`Place::Cores`](crate::executor::Place::Cores) needs. No current firmware does. Spec: §3.5
    pub cpu_access: bool,
    /// Submission queues.
    pub queues: u16,
}

impl Properties {
    pub(crate) fn new(layout: &Layout, api_version: Version) -> Self {
        let header = &layout.mgmt.header;
        let mask = u64::from(header.cm_shires_mask.get());
        let harts = harts_in_mask(mask & ((1 << MASTER_SHIRE) - 1));
        let shires = mask.count_ones();
        let line_bytes = u32::from(header.cache_line_size);
        let some = |value: u32| (value != 0).then_some(value);
        let kib = |value: u32| some(value).map(|kib| u64::from(kib) << 10);
        let frequency = some(header.minion_boot_freq.get());
        let caches = [
            (2, kib(header.l2_size.get()), Some(header.l2_shire_banks).filter(|&banks| banks != 0)),
            (3, kib(header.l3_size.get()), None),
        ];
        Self {
            shire_mask: mask,
            shires,
            cores: harts / 2,
            harts,
            scalar_units: harts / 2,
            vector_units: harts / 2,
            unified_address_space: false,
            global_memory_bytes: layout.host_managed.len,
            global_memory_base: layout.host_managed.base,
            constant_memory_bytes: layout.host_managed.len,
            local_memory_bytes: kib(header.scp_size.get())
                .and_then(|all| all.checked_div(u64::from(shires))),
            memory_bandwidth_mbps: some(header.ddr_bandwidth.get()),
            boot_frequency_mhz: frequency,
            caches: caches
                .into_iter()
                .filter_map(|(level, size, banks_per_shire)| {
                    Some(CacheLevel { level, size_bytes: size?, line_bytes, banks_per_shire })
                })
                .collect(),
            cache_line_bytes: line_bytes,
            tdp_watts: Some(header.device_tdp).filter(|&watts| watts != 0),
            form_factor: match header.form_factor {
                1 => FormFactor::PcieCard,
                2 => FormFactor::M2,
                other => FormFactor::Unknown(other),
            },
            arch_revision: match header.arch_rev {
                0 => ArchRevision::EtSoc1,
                1 => ArchRevision::Pantero,
                2 => ArchRevision::Gepardo,
                other => ArchRevision::Unknown(other),
            },
            api_version,
            runtime_version: env!("CARGO_PKG_VERSION"),
            timestamp_hz: frequency.map(|mhz| u64::from(mhz) * 1_000_000),
            dma_max_nodes: layout.dma.max_nodes,
            dma_max_node_bytes: layout.dma.max_node_bytes,
            dma_align_bytes: layout.dma.align_bytes,
            peer_to_peer: layout.dma.p2p,
            cpu_access: layout
                .ops
                .region(OpsRegion::HostManaged)
                .is_some_and(|region| region.access.is_io()),
            queues: layout.ops_mailbox.submission.count,
        }
    }
}
