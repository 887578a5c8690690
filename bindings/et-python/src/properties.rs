//! What a device says about itself.

use et::NoPeer;
use et::hal::Sharing;
use pyo3::prelude::*;

/// What a device says about itself; `None` where it does not.
#[pyclass(frozen, get_all, module = "et")]
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    /// Shires that kernels can use, a bit for each.
    shire_mask: u64,
    /// Their number.
    shires: u32,
    /// Number of cores.
    cores: u32,
    /// Number of hardware threads.
    harts: u32,
    /// First address of the memory for users.
    memory_base: u64,
    /// Its bytes.
    memory_bytes: u64,
    /// Scratchpad of a shire, in bytes.
    local_memory_bytes: Option<u64>,
    /// Caches: level and bytes.
    caches: Vec<(u8, u64)>,
    /// A cache line, in bytes.
    cache_line_bytes: u32,
    /// Frequency of the cores at boot.
    frequency_mhz: Option<u32>,
    /// Bandwidth of the memory in MB/s.
    memory_bandwidth_mbps: Option<u32>,
    /// Thermal design power.
    tdp_watts: Option<u8>,
    /// Version of the firmware's interface.
    api_version: (u16, u16, u16),
    /// Addresses and lengths of copies are multiples of this.
    dma_align_bytes: u64,
    /// The ways of copies.
    copies: CopyPaths,
    /// Submission queues.
    queues: u16,
}

impl From<et::Properties> for Properties {
    fn from(from: et::Properties) -> Self {
        let version = from.api_version;
        Self {
            shire_mask: from.shire_mask,
            shires: from.shires,
            cores: from.cores,
            harts: from.harts,
            memory_base: from.global_memory_base.as_u64(),
            memory_bytes: from.global_memory_bytes,
            local_memory_bytes: from.local_memory_bytes,
            caches: from.caches.iter().map(|cache| (cache.level, cache.size_bytes)).collect(),
            cache_line_bytes: from.cache_line_bytes,
            frequency_mhz: from.boot_frequency_mhz,
            memory_bandwidth_mbps: from.memory_bandwidth_mbps,
            tdp_watts: from.tdp_watts,
            api_version: (version.major, version.minor, version.patch),
            dma_align_bytes: from.dma_align_bytes,
            copies: from.copies.into(),
            queues: from.queues,
        }
    }
}

#[pymethods]
impl Properties {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// The way that bytes take in each kind of copy: `"direct"` if the device's engine moves them where
/// they are, `"staged"` if through staging memory of the host, `"cores"` if a kernel moves them and
/// they do not leave the device.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyPaths {
    /// Between ordinary memory and the device.
    ordinary: &'static str,
    /// Between host buffers and the device. Memory that was lent and that the device cannot reach
    /// is moved once more.
    host_buffer: &'static str,
    /// `Buffer.copy_from_buffer`.
    on_device: &'static str,
    /// `Builtins.copy`.
    builtin: &'static str,
}

impl From<et::CopyPaths> for CopyPaths {
    fn from(from: et::CopyPaths) -> Self {
        let name = |path| match path {
            et::CopyPath::Direct => "direct",
            et::CopyPath::Staged => "staged",
            et::CopyPath::Cores => "cores",
            _ => "unknown",
        };
        Self {
            ordinary: name(from.ordinary),
            host_buffer: name(from.host_buffer),
            on_device: name(from.on_device),
            builtin: name(from.builtin),
        }
    }
}

#[pymethods]
impl CopyPaths {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// Usage of the memory of a device, in bytes.
#[pyclass(frozen, get_all, module = "et")]
#[derive(Clone, Debug)]
pub(crate) struct MemoryStats {
    /// All of it.
    total: u64,
    /// What is free.
    free: u64,
    /// What is allocated.
    used: u64,
    /// The largest free block.
    largest_free: u64,
    /// The most that was ever allocated at one time.
    peak_used: u64,
    /// Number of allocated blocks.
    blocks: u64,
}

impl From<et::MemoryStats> for MemoryStats {
    fn from(from: et::MemoryStats) -> Self {
        Self {
            total: from.total_bytes,
            free: from.free_bytes,
            used: from.used_bytes,
            largest_free: from.largest_free_bytes,
            peak_used: from.peak_used_bytes,
            blocks: from.live_blocks,
        }
    }
}

#[pymethods]
impl MemoryStats {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// What a program has a device do at the moment, and what it has done since the device was opened
/// or reset. Two looks and the time between them give a load.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Streams that have a handle, those of the package itself included.
    streams: u64,
    /// Operations that were accepted.
    accepted: u64,
    /// Those of them that have not ended.
    pending: u64,
    /// Commands that the device has and has not answered, those of the package itself included.
    in_flight: u64,
    /// Device memory that is managed, in bytes.
    memory_bytes: u64,
    /// How much of it is in live buffers.
    memory_used_bytes: u64,
    /// Live buffers.
    buffers: u64,
    /// Kernels that have run, well or not.
    launches: u64,
    /// Bytes that were copied to the device.
    to_device_bytes: u64,
    /// Bytes that were copied from the device.
    to_host_bytes: u64,
    /// Shires that kernels can run on, a bit for each.
    available_shires: u64,
    /// Shires that kernels have which have not ended, a bit for each: it is busy, or will be.
    launched_shires: u64,
    /// For how many cycles of the minions' clock each of the 32 shires has run kernels, as the
    /// device says when a kernel has ended.
    busy_cycles: Vec<u64>,
}

impl From<et::Activity> for Activity {
    fn from(from: et::Activity) -> Self {
        Self {
            streams: from.streams,
            accepted: from.accepted,
            pending: from.pending,
            in_flight: from.in_flight,
            memory_bytes: from.memory_bytes,
            memory_used_bytes: from.memory_used_bytes,
            buffers: from.buffers,
            launches: from.launches,
            to_device_bytes: from.to_device_bytes,
            to_host_bytes: from.to_host_bytes,
            available_shires: from.available_shires,
            launched_shires: from.launched_shires,
            busy_cycles: from.busy_cycles.to_vec(),
        }
    }
}

#[pymethods]
impl Activity {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// What a device is and what connects it; `None` where the backend does not say.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Name of the backend.
    backend: String,
    /// Version of the backend.
    backend_version: String,
    /// The interface below the backend, with its version.
    interface: Option<String>,
    /// The kernel's driver that has the device.
    driver: Option<String>,
    /// Version of the runtime.
    runtime_version: &'static str,
    /// Who may use the device at a time: `"exclusive"` for one owner, `"one_each"` where each
    /// opening makes a device of its own.
    sharing: Option<&'static str>,
    /// PCI ids and revision, as `lspci -n` has them.
    pci_ids: Option<String>,
    /// Where the device is on the bus, `domain:bus:device.function`.
    pci_address: Option<String>,
}

impl From<et::Properties> for Identity {
    fn from(from: et::Properties) -> Self {
        let et::Backend { name, version, interface, driver, .. } = from.backend;
        Self {
            backend: name,
            backend_version: version,
            interface,
            driver,
            runtime_version: from.runtime_version,
            sharing: match from.sharing {
                Sharing::Exclusive => Some("exclusive"),
                Sharing::OneEach => Some("one_each"),
                _ => None,
            },
            pci_ids: from.pci.map(|ids| ids.to_string()),
            pci_address: from.pci_address,
        }
    }
}

#[pymethods]
impl Identity {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// The way from the memory of one device to that of another.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerPath {
    /// `"same_device"`, whose copies are `Buffer.copy_from_buffer`, or `"host"`: through memory of
    /// the host, by `Stream.copy_to_peer`.
    path: &'static str,
    /// Why the devices do not reach each other's memory: `"refused"` by the registers of at least
    /// one, or `"not_mapped"` by any backend.
    why: Option<&'static str>,
}

impl From<et::PeerPath> for PeerPath {
    fn from(from: et::PeerPath) -> Self {
        let (path, why) = match from {
            et::PeerPath::SameDevice => ("same_device", None),
            et::PeerPath::Host(NoPeer::Refused) => ("host", Some("refused")),
            et::PeerPath::Host(NoPeer::NotMapped) => ("host", Some("not_mapped")),
            _ => ("host", None),
        };
        Self { path, why }
    }
}

#[pymethods]
impl PeerPath {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// A process that has a device, by its own words.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Process id.
    pid: u32,
    /// Number of the user that it acts for, where it says so.
    user: Option<u32>,
    /// Command line.
    command: String,
}

impl From<et::Holder> for Holder {
    fn from(from: et::Holder) -> Self {
        let et::Holder { pid, user, command, .. } = from;
        Self { pid, user, command }
    }
}

#[pymethods]
impl Holder {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

/// A device that can be opened.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceInfo {
    /// What to pass to `open`.
    locator: String,
    /// What it is.
    description: String,
    /// Who has it now, where that can be told; opening it fails meanwhile.
    holder: Option<Holder>,
}

impl From<et::DeviceInfo> for DeviceInfo {
    fn from(from: et::DeviceInfo) -> Self {
        let et::DeviceInfo { locator, description, holder, .. } = from;
        Self { locator, description, holder: holder.map(Holder::from) }
    }
}

#[pymethods]
impl DeviceInfo {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
