//! What the service processor says, with units in the names.

#![expect(unsafe_code, reason = "structs of the interface may grow")]

use std::time::Duration;

use et::management as from;

use crate::raw::Growing;

/// Temperatures in °C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_temperatures {
    /// `sizeof(et_temperatures)`, set by the caller.
    pub size: usize,
    /// Minion shires, average.
    pub minion_average_c: i32,
    /// Minion shires, lowest.
    pub minion_lowest_c: i32,
    /// Minion shires, highest.
    pub minion_highest_c: i32,
    /// I/O shire, now.
    pub io_shire_c: i32,
    /// I/O shire, lowest.
    pub io_shire_lowest_c: i32,
    /// I/O shire, highest.
    pub io_shire_highest_c: i32,
    /// Power management controller.
    pub power_controller_c: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_temperatures {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::Temperatures> for et_temperatures {
    fn from(from: from::Temperatures) -> Self {
        Self {
            size: 0,
            minion_average_c: from.minion_average_c.into(),
            minion_lowest_c: from.minion_lowest_c.into(),
            minion_highest_c: from.minion_highest_c.into(),
            io_shire_c: from.io_shire_c.into(),
            io_shire_lowest_c: from.io_shire_lowest_c.into(),
            io_shire_highest_c: from.io_shire_highest_c.into(),
            power_controller_c: from.power_controller_c.into(),
            reserved: 0,
        }
    }
}

/// Clocks in MHz.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_frequencies {
    /// `sizeof(et_frequencies)`, set by the caller.
    pub size: usize,
    /// Minion shires.
    pub minion_mhz: u32,
    /// Network on chip.
    pub noc_mhz: u32,
    /// Memory shires.
    pub memory_shire_mhz: u32,
    /// Memory.
    pub ddr_mhz: u32,
    /// PCIe shire.
    pub pcie_shire_mhz: u32,
    /// I/O shire.
    pub io_shire_mhz: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_frequencies {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::Frequencies> for et_frequencies {
    fn from(from: from::Frequencies) -> Self {
        Self {
            size: 0,
            minion_mhz: from.minion_mhz,
            noc_mhz: from.noc_mhz,
            memory_shire_mhz: from.memory_shire_mhz,
            ddr_mhz: from.ddr_mhz,
            pcie_shire_mhz: from.pcie_shire_mhz,
            io_shire_mhz: from.io_shire_mhz,
        }
    }
}

/// Voltages in mV, as measured in the chip.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_asic_voltages {
    /// `sizeof(et_asic_voltages)`, set by the caller.
    pub size: usize,
    /// Memory.
    pub ddr_mv: u32,
    /// L2 caches.
    pub l2_cache_mv: u32,
    /// Maxions.
    pub maxion_mv: u32,
    /// Minions.
    pub minion_mv: u32,
    /// PCIe shire.
    pub pcie_shire_mv: u32,
    /// Network on chip.
    pub noc_mv: u32,
    /// I/O shire.
    pub io_shire_mv: u32,
    /// VDDQLP.
    pub vddqlp_mv: u32,
    /// VDDQ.
    pub vddq_mv: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_asic_voltages {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::AsicVoltages> for et_asic_voltages {
    fn from(from: from::AsicVoltages) -> Self {
        Self {
            size: 0,
            ddr_mv: from.ddr_mv.into(),
            l2_cache_mv: from.l2_cache_mv.into(),
            maxion_mv: from.maxion_mv.into(),
            minion_mv: from.minion_mv.into(),
            pcie_shire_mv: from.pcie_shire_mv.into(),
            noc_mv: from.noc_mv.into(),
            io_shire_mv: from.io_shire_mv.into(),
            vddqlp_mv: from.vddqlp_mv.into(),
            vddq_mv: from.vddq_mv.into(),
            reserved: 0,
        }
    }
}

/// Present requests to the memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_memory_rate {
    /// `sizeof(et_memory_rate)`, set by the caller.
    pub size: usize,
    /// Reads in a second.
    pub reads_per_s: u32,
    /// Writes in a second.
    pub writes_per_s: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_memory_rate {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::MemoryRate> for et_memory_rate {
    fn from(from: from::MemoryRate) -> Self {
        Self { size: 0, reads_per_s: from.reads_per_s, writes_per_s: from.writes_per_s }
    }
}

/// Errors of the master minion.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_minion_errors {
    /// `sizeof(et_minion_errors)`, set by the caller.
    pub size: usize,
    /// Hangs.
    pub hangs: u32,
    /// Exceptions.
    pub exceptions: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_minion_errors {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::MinionErrors> for et_minion_errors {
    fn from(from: from::MinionErrors) -> Self {
        Self { size: 0, hangs: from.hangs, exceptions: from.exceptions }
    }
}

/// Errors that error correction has found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_error_counts {
    /// `sizeof(et_error_counts)`, set by the caller.
    pub size: usize,
    /// Corrected ones.
    pub corrected: u32,
    /// Uncorrectable ones.
    pub uncorrectable: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_error_counts {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::ErrorCounts> for et_error_counts {
    fn from(from: from::ErrorCounts) -> Self {
        Self { size: 0, corrected: from.corrected, uncorrectable: from.uncorrectable }
    }
}

/// How the memory of each shire is divided, in KiB.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_cache_config {
    /// `sizeof(et_cache_config)`, set by the caller.
    pub size: usize,
    /// Scratchpad.
    pub scratchpad_kib: u32,
    /// Its part of the L2 cache.
    pub l2_kib: u32,
    /// Its part of the L3 cache.
    pub l3_kib: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_cache_config {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::CacheConfig> for et_cache_config {
    fn from(from: from::CacheConfig) -> Self {
        Self {
            size: 0,
            scratchpad_kib: from.scratchpad_kib.into(),
            l2_kib: from.l2_kib.into(),
            l3_kib: from.l3_kib.into(),
            reserved: 0,
        }
    }
}

/// Counts of what has come from the service processor since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_management_counters {
    /// `sizeof(et_management_counters)`, set by the caller.
    pub size: usize,
    /// Responses that no command waits for; they are ignored.
    pub stray_responses: u64,
    /// Messages that are none of the interface; they are ignored.
    pub malformed_messages: u64,
    /// Events.
    pub events: u64,
    /// Events that were dropped here, because no one took them.
    pub events_lost: u64,
    /// Times the queue was found full, so that the service processor may have dropped events.
    pub full_queues: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_management_counters {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::ManagementCounters> for et_management_counters {
    fn from(from: from::ManagementCounters) -> Self {
        Self {
            size: 0,
            stray_responses: from.stray_responses,
            malformed_messages: from.malformed_messages,
            events: from.events,
            events_lost: from.events_lost,
            full_queues: from.full_queues,
        }
    }
}

/// A version.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct et_firmware_version {
    /// Changes that break programs.
    pub major: u16,
    /// Additions.
    pub minor: u16,
    /// Repairs.
    pub patch: u16,
    /// 0.
    pub reserved: u16,
}

impl From<et::Version> for et_firmware_version {
    fn from(from: et::Version) -> Self {
        Self { major: from.major, minor: from.minor, patch: from.patch, reserved: 0 }
    }
}

/// Versions of the firmware.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_firmware_versions {
    /// `sizeof(et_firmware_versions)`, set by the caller.
    pub size: usize,
    /// The release all of them belong to.
    pub release: et_firmware_version,
    /// First boot loader.
    pub boot_loader_1: et_firmware_version,
    /// Second boot loader, the service processor's runtime.
    pub boot_loader_2: et_firmware_version,
    /// Master minion.
    pub master_minion: et_firmware_version,
    /// Worker minions.
    pub worker_minion: et_firmware_version,
    /// Machine mode of the minions.
    pub machine_minion: et_firmware_version,
    /// Power management controller.
    pub power_controller: et_firmware_version,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_firmware_versions {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::FirmwareVersions> for et_firmware_versions {
    fn from(from: from::FirmwareVersions) -> Self {
        Self {
            size: 0,
            release: from.release.into(),
            boot_loader_1: from.boot_loader_1.into(),
            boot_loader_2: from.boot_loader_2.into(),
            master_minion: from.master_minion.into(),
            worker_minion: from.worker_minion.into(),
            machine_minion: from.machine_minion.into(),
            power_controller: from.power_controller.into(),
        }
    }
}

/// Voltages in mV that the regulators are set to; 0 of one whose codes are not known.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_module_voltages {
    /// `sizeof(et_module_voltages)`, set by the caller.
    pub size: usize,
    /// Memory.
    pub ddr_mv: f32,
    /// L2 caches.
    pub l2_cache_mv: f32,
    /// Maxions.
    pub maxion_mv: f32,
    /// Minions.
    pub minion_mv: f32,
    /// PCIe.
    pub pcie_mv: f32,
    /// Network on chip.
    pub noc_mv: f32,
    /// PCIe logic.
    pub pcie_logic_mv: f32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_module_voltages {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::ModuleVoltages> for et_module_voltages {
    fn from(from: from::ModuleVoltages) -> Self {
        use from::Module as M;
        let of = |module| from.millivolts(module).unwrap_or(0.0);
        Self {
            size: 0,
            ddr_mv: of(M::Ddr),
            l2_cache_mv: of(M::L2Cache),
            maxion_mv: of(M::Maxion),
            minion_mv: of(M::Minion),
            pcie_mv: of(M::Pcie),
            noc_mv: of(M::Noc),
            pcie_logic_mv: of(M::PcieLogic),
            reserved: 0,
        }
    }
}

/// How long the device was in a state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_residency {
    /// `sizeof(et_residency)`, set by the caller.
    pub size: usize,
    /// In all.
    pub total_ns: u64,
    /// Average of a stay.
    pub average_ns: u64,
    /// Longest stay.
    pub longest_ns: u64,
    /// Shortest stay.
    pub shortest_ns: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_residency {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::Residency> for et_residency {
    fn from(from: from::Residency) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            size: 0,
            total_ns: nanoseconds(from.total),
            average_ns: nanoseconds(from.average),
            longest_ns: nanoseconds(from.longest),
            shortest_ns: nanoseconds(from.shortest),
        }
    }
}

/// What a statistic counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_unit {
    /// mW.
    ET_MILLIWATTS = 1,
    /// °C.
    ET_CELSIUS = 2,
    /// mV.
    ET_MILLIVOLTS = 3,
    /// MHz.
    ET_MEGAHERTZ = 4,
    /// %.
    ET_PERCENT = 5,
    /// MB/s.
    ET_MEGABYTES_PER_SECOND = 6,
    /// One that this version does not know.
    ET_OTHER_UNIT = 7,
}

impl From<from::Unit> for et_unit {
    fn from(from: from::Unit) -> Self {
        match from {
            from::Unit::Milliwatts => Self::ET_MILLIWATTS,
            from::Unit::Celsius => Self::ET_CELSIUS,
            from::Unit::Millivolts => Self::ET_MILLIVOLTS,
            from::Unit::Megahertz => Self::ET_MEGAHERTZ,
            from::Unit::Percent => Self::ET_PERCENT,
            from::Unit::MegabytesPerSecond => Self::ET_MEGABYTES_PER_SECOND,
            _ => Self::ET_OTHER_UNIT,
        }
    }
}

/// A value over the time since statistics began.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_statistic {
    /// `sizeof(et_statistic)`, set by the caller.
    pub size: usize,
    /// Average.
    pub average: u64,
    /// Least.
    pub least: u64,
    /// Greatest.
    pub greatest: u64,
    /// An `et_unit`.
    pub unit: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_statistic {
    const FIRST: usize = size_of::<Self>();
}

impl From<from::Statistic> for et_statistic {
    fn from(from: from::Statistic) -> Self {
        Self {
            size: 0,
            average: from.average,
            least: from.least,
            greatest: from.greatest,
            unit: et_unit::from(from.unit) as u32,
            reserved: 0,
        }
    }
}

/// Something that the card has announced by itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_card_event {
    /// `sizeof(et_card_event)`, set by the caller.
    pub size: usize,
    /// When it was seen, in nanoseconds since the device was opened.
    pub seen_ns: u64,
    /// Two numbers whose meaning depends on the kind.
    pub syndromes: [u64; 2],
    /// Its kind, by the number that the interface specification has for it (section 17.4).
    pub kind: u32,
    /// An `et_severity`.
    pub severity: u32,
    /// How often it has happened.
    pub count: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_card_event {
    const FIRST: usize = size_of::<Self>();
}
