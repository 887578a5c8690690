//! What a device says about itself.

use et_devapi::abi::{MASTER_SHIRE, harts_in_mask};
use et_devapi::dir::{MgmtRegion, OpsRegion};
use et_devapi::discovery::Layout;
use et_devapi::msg::ops::Version;
use et_devapi::pci::{BAR0_DEVICE_ADDR, DRAM_BAR};
use et_hal::{DeviceAddr, Identity, PciIds, Sharing};

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

/// What a cache is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheKind {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// A part of the device's address space that its registers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressRange {
    /// What is there.
    pub name: &'static str,
    /// Its first byte.
    pub base: DeviceAddr,
    /// Its length in bytes.
    pub len_bytes: u64,
}

/// One level of cache. Registers speak of the second and third level only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLevel {
    /// 2 or 3.
    pub level: u8,
    /// What it is for.
    pub kind: CacheKind,
    /// All of it, in bytes.
    pub size_bytes: u64,
    /// A line in bytes.
    pub line_bytes: u32,
    /// Banks in each shire, where the device says so.
    pub banks_per_shire: Option<u8>,
}

/// What connects a device, and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// Its name; empty if it does not say.
    pub name: String,
    /// Its version; empty if it does not say.
    pub version: String,
    /// The interface below it, with its version.
    pub interface: Option<String>,
    /// The kernel's driver that has the device, with the version of the kernel.
    pub driver: Option<String>,
}

/// The way that bytes take in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyPath {
    /// The device's engine moves them between device memory and the host memory they are in.
    Direct,
    /// The device's engine moves them between device memory and staging memory of the host.
    /// Between that and memory of the caller, the host's processors move them.
    Staged,
    /// The device's cores move them, by a kernel: they do not leave its memory.
    Cores,
}

/// The way of each kind of copy.
///
/// Copies between two devices are those of [`Device::peer_path`](crate::Device::peer_path), parts
/// that are shown to the host those of [`Mapping::path`](crate::Mapping::path).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CopyPaths {
    /// Between ordinary memory and the device:
    /// [`Stream::copy_to_device`](crate::Stream::copy_to_device),
    /// [`Stream::read`](crate::Stream::read), and their lists.
    pub ordinary: CopyPath,
    /// Between host buffers and the device: [`Stream::upload`](crate::Stream::upload),
    /// [`Stream::download`](crate::Stream::download), and their lists. Memory that was lent and
    /// that the device cannot reach is moved once more, when it is lent or given back:
    /// [`HostBuffer::bounce`](crate::HostBuffer::bounce).
    pub host_buffer: CopyPath,
    /// Within the device's memory, by
    /// [`Stream::copy_on_device`](crate::Stream::copy_on_device).
    pub on_device: CopyPath,
    /// Within the device's memory, by [`Builtins::copy`](crate::kernel::Builtins::copy).
    pub builtin: CopyPath,
}

/// Properties of a device. Values the device does not report are `None`, never 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Shires that kernels can use.
    pub shire_mask: u64,
    /// Their number.
    pub shires: u32,
    /// The shire whose first half runs the firmware, and whose second half is a spare that
    /// [`shire_mask`](Self::shire_mask) cannot name. Spec: §14.
    pub master_shire: u8,
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
    /// Parts of the address space, lowest first; [`global_memory_base`](Self::global_memory_base)
    /// is among them. Spec: §12.1.
    pub address_map: Vec<AddressRange>,
    /// Memory that kernels may treat as constant: all of it, there is no separate one.
    pub constant_memory_bytes: u64,
    /// Scratchpad of one shire, in bytes.
    pub local_memory_bytes: Option<u64>,
    /// Memory bandwidth in MB/s.
    pub memory_bandwidth_mbps: Option<u32>,
    /// Frequency of the cores at boot, in MHz. Registers say no other maximum; what they run at
    /// now, [`Management::frequencies`](crate::Management::frequencies) knows.
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
    /// The backend and what is below it.
    pub backend: Backend,
    /// Who may use the device at a time. Its memory and cores are not divided.
    pub sharing: Sharing,
    /// PCI ids and revision.
    pub pci: Option<PciIds>,
    /// Where the device is on the bus of this machine, `domain:bus:device.function`: the same as
    /// long as the card stays in its slot.
    /// [`Management::asset`](crate::Management::asset) has the serial number, which goes with it.
    pub pci_address: Option<String>,
    /// Cycles of device time stamps in a second.
    pub timestamp_hz: Option<u64>,
    /// Most nodes of a DMA list.
    pub dma_max_nodes: u8,
    /// Most bytes of a DMA node.
    pub dma_max_node_bytes: u64,
    /// Alignment of DMA on device addresses, in bytes.
    pub dma_align_bytes: u64,
    /// Who moves the bytes of copies, and what memory they pass through. No command of the
    /// operations interface copies within the device's memory. Spec: §7
    pub copies: CopyPaths,
    /// The registers let other devices reach its memory; whether one does,
    /// [`Device::peer_path`](crate::Device::peer_path) says.
    pub peer_to_peer: bool,
    /// The registers let the host use device memory without DMA, which
    /// [`Place::Cores`](crate::executor::Place::Cores) needs. No current firmware does. Spec: §3.5
    pub cpu_access: bool,
    /// Submission queues.
    pub queues: u16,
    /// The device says when a command begins to run. No current firmware does, so
    /// [`EventState`](crate::EventState) has nothing for it, and the times of a command are known
    /// when it has ended.
    pub reports_running: bool,
}

impl Properties {
    pub(crate) fn new(layout: &Layout, api_version: Version, identity: Identity<'_>) -> Self {
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
            master_shire: header.sync_min_shire_id,
            cores: harts / 2,
            harts,
            scalar_units: harts / 2,
            vector_units: harts / 2,
            unified_address_space: false,
            global_memory_bytes: layout.host_managed.len,
            global_memory_base: layout.host_managed.base,
            address_map: address_map(layout),
            constant_memory_bytes: layout.host_managed.len,
            local_memory_bytes: kib(header.scp_size.get())
                .and_then(|all| all.checked_div(u64::from(shires))),
            memory_bandwidth_mbps: some(header.ddr_bandwidth.get()),
            boot_frequency_mhz: frequency,
            caches: caches
                .into_iter()
                .filter_map(|(level, size, banks_per_shire)| {
                    let kind = CacheKind::ReadWrite;
                    Some(CacheLevel { level, kind, size_bytes: size?, line_bytes, banks_per_shire })
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
            backend: Backend {
                name: identity.backend.to_owned(),
                version: identity.backend_version.to_owned(),
                interface: identity.interface.map(str::to_owned),
                driver: identity.driver.map(str::to_owned),
            },
            sharing: identity.sharing,
            pci: identity.pci,
            pci_address: identity.pci_address.map(str::to_owned),
            timestamp_hz: frequency.map(|mhz| u64::from(mhz) * 1_000_000),
            dma_max_nodes: layout.dma.max_nodes,
            dma_max_node_bytes: layout.dma.max_node_bytes,
            dma_align_bytes: layout.dma.align_bytes,
            copies: CopyPaths {
                ordinary: CopyPath::Staged,
                host_buffer: CopyPath::Direct,
                on_device: CopyPath::Staged,
                builtin: CopyPath::Cores,
            },
            peer_to_peer: layout.dma.p2p,
            cpu_access: layout
                .ops
                .region(OpsRegion::HostManaged)
                .is_some_and(|region| region.access.is_io()),
            queues: layout.ops_mailbox.submission.count,
            reports_running: false,
        }
    }
}

/// Spec: §1, §3.6, §12.1
fn address_map(layout: &Layout) -> Vec<AddressRange> {
    const NAMES: [(MgmtRegion, &str); 6] = [
        (MgmtRegion::Scratch, "scratch"),
        (MgmtRegion::SpTrace, "service processor trace"),
        (MgmtRegion::MmTrace, "master minion trace"),
        (MgmtRegion::CmTrace, "compute minion trace"),
        (MgmtRegion::SpStats, "service processor statistics"),
        (MgmtRegion::MmStats, "master minion statistics"),
    ];
    let named = NAMES.iter().filter_map(|(kind, name)| {
        let region = layout.mgmt.region(*kind)?;
        let is_memory = region.bar == DRAM_BAR.index();
        let base = BAR0_DEVICE_ADDR.checked_add(region.bar_offset).filter(|_| is_memory)?;
        Some(AddressRange { name, base, len_bytes: region.len_bytes })
    });
    let host = &layout.host_managed;
    let user = AddressRange { name: "user", base: host.base, len_bytes: host.len };
    let mut map: Vec<_> = named.chain([user]).collect();
    map.sort_by_key(|range| range.base);
    map
}
