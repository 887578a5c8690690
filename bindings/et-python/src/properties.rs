//! What a device says about itself.

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
