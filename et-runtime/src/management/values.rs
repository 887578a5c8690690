//! What the service processor says, with units.

use std::time::Duration;

use et_devapi::msg::mgmt as wire;
use et_devapi::msg::ops::Version;

/// A text about the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asset {
    /// Name of the manufacturer.
    Manufacturer,
    /// Part number.
    PartNumber,
    /// Serial number.
    SerialNumber,
    /// Revision of the chip.
    ChipRevision,
    /// Revision of the driver; current firmware leaves it empty.
    DriverRevision,
    /// PCIe address; current firmware leaves it empty.
    PcieAddress,
    /// PCIe ports and their speed.
    PciePorts,
    /// Size of the memory in MB.
    MemorySize,
    /// Revision of the module.
    ModuleRevision,
    /// Form factor.
    FormFactor,
    /// Vendor and part number of the memory.
    MemoryVendor,
    /// Type of the memory.
    MemoryType,
}

impl Asset {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Manufacturer,
        Self::PartNumber,
        Self::SerialNumber,
        Self::ChipRevision,
        Self::DriverRevision,
        Self::PcieAddress,
        Self::PciePorts,
        Self::MemorySize,
        Self::ModuleRevision,
        Self::FormFactor,
        Self::MemoryVendor,
        Self::MemoryType,
    ];
}

/// Versions of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirmwareVersions {
    /// The release all of them belong to.
    pub release: Version,
    /// First boot loader.
    pub boot_loader_1: Version,
    /// Second boot loader, the service processor's runtime.
    pub boot_loader_2: Version,
    /// Master minion.
    pub master_minion: Version,
    /// Worker minions.
    pub worker_minion: Version,
    /// Machine mode of the minions.
    pub machine_minion: Version,
    /// Power management controller.
    pub power_controller: Version,
}

impl From<wire::FirmwareVersions> for FirmwareVersions {
    fn from(versions: wire::FirmwareVersions) -> Self {
        let version = |word: u32| {
            let [_, patch, minor, major] = word.to_le_bytes().map(u16::from);
            Version { major, minor, patch }
        };
        Self {
            release: version(versions.fw_release_rev.get()),
            boot_loader_1: version(versions.bl1_v.get()),
            boot_loader_2: version(versions.bl2_v.get()),
            master_minion: version(versions.mm_v.get()),
            worker_minion: version(versions.wm_v.get()),
            machine_minion: version(versions.machm_v.get()),
            power_controller: version(versions.pmic_v.get()),
        }
    }
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident of $wire:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty = $from:ident $($get:ident)?,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
        }

        impl From<wire::$wire> for $name {
            fn from(wire: wire::$wire) -> Self {
                Self { $($field: wire.$from$(.$get())?,)* }
            }
        }
    )*};
}

values! {
    /// Temperatures in °C.
    Temperatures of Temperatures {
        /// Minion shires, average.
        minion_average_c: i16 = minshire_avg get,
        /// Minion shires, lowest.
        minion_lowest_c: i16 = minshire_low get,
        /// Minion shires, highest.
        minion_highest_c: i16 = minshire_high get,
        /// I/O shire, now.
        io_shire_c: i16 = ioshire_current get,
        /// I/O shire, lowest.
        io_shire_lowest_c: i16 = ioshire_low get,
        /// I/O shire, highest.
        io_shire_highest_c: i16 = ioshire_high get,
        /// Power management controller.
        power_controller_c: u8 = pmic_sys,
    }
    /// Voltages in mV, as measured in the chip.
    AsicVoltages of AsicVoltages {
        /// Memory.
        ddr_mv: u16 = ddr get,
        /// L2 caches.
        l2_cache_mv: u16 = l2_cache get,
        /// Maxions.
        maxion_mv: u16 = maxion get,
        /// Minions.
        minion_mv: u16 = minion get,
        /// PCIe shire.
        pcie_shire_mv: u16 = pshire_0p75 get,
        /// Network on chip.
        noc_mv: u16 = noc get,
        /// I/O shire.
        io_shire_mv: u16 = ioshire_0p75 get,
        /// VDDQLP.
        vddqlp_mv: u16 = vddqlp get,
        /// VDDQ.
        vddq_mv: u16 = vddq get,
    }
    /// Voltages as the codes of their regulators; [`millivolts`](ModuleVoltages::millivolts)
    /// decodes them.
    ModuleVoltages of ModuleVoltages {
        /// Memory.
        ddr_code: u8 = ddr,
        /// L2 caches.
        l2_cache_code: u8 = l2_cache,
        /// Maxions.
        maxion_code: u8 = maxion,
        /// Minions.
        minion_code: u8 = minion,
        /// PCIe.
        pcie_code: u8 = pcie,
        /// Network on chip.
        noc_code: u8 = noc,
        /// PCIe logic.
        pcie_logic_code: u8 = pcie_logic,
        /// VDDQLP.
        vddqlp_code: u8 = vddqlp,
        /// VDDQ.
        vddq_code: u8 = vddq,
    }
    /// Clocks in MHz.
    Frequencies of Frequencies {
        /// Minion shires.
        minion_mhz: u32 = minion_shire_mhz get,
        /// Network on chip.
        noc_mhz: u32 = noc_mhz get,
        /// Memory shires.
        memory_shire_mhz: u32 = mem_shire_mhz get,
        /// Memory.
        ddr_mhz: u32 = ddr_mhz get,
        /// PCIe shire.
        pcie_shire_mhz: u32 = pcie_shire_mhz get,
        /// I/O shire.
        io_shire_mhz: u32 = io_shire_mhz get,
    }
    /// Errors that error correction has found.
    ErrorCounts of ErrorCounts {
        /// Corrected ones.
        corrected: u32 = ecc get,
        /// Uncorrectable ones.
        uncorrectable: u32 = uecc get,
    }
    /// Errors of the master minion.
    MinionErrors of MinionErrors {
        /// Hangs.
        hangs: u32 = hang_count get,
        /// Exceptions.
        exceptions: u32 = exception_count get,
    }
    /// Requests to the memory.
    MemoryRate of ReadWrite {
        /// Reads in a second.
        reads_per_s: u32 = read get,
        /// Writes in a second.
        writes_per_s: u32 = write get,
    }
    /// How the memory of each shire is divided, in KiB.
    CacheConfig of CacheSizes {
        /// Scratchpad.
        scratchpad_kib: u16 = scp_size get,
        /// Its part of the L2 cache.
        l2_kib: u16 = l2_size get,
        /// Its part of the L3 cache.
        l3_kib: u16 = l3_size get,
    }
}

impl ModuleVoltages {
    /// Returns a voltage in mV; `None` for a regulator whose encoding is not known.
    ///
    /// The codes are those of the vendor's tools: steps of 5 mV from 250 mV, for PCIe of 6.25 mV
    /// from 600 mV.
    #[must_use]
    pub fn millivolts(&self, module: wire::Module) -> Option<f32> {
        let fine = |code: u8| Some(250.0 + 5.0 * f32::from(code));
        let pcie = |code: u8| Some(600.0 + 6.25 * f32::from(code));
        match module {
            wire::Module::Ddr => fine(self.ddr_code),
            wire::Module::L2Cache => fine(self.l2_cache_code),
            wire::Module::Maxion => fine(self.maxion_code),
            wire::Module::Minion => fine(self.minion_code),
            wire::Module::Noc => fine(self.noc_code),
            wire::Module::Pcie => pcie(self.pcie_code),
            wire::Module::PcieLogic => pcie(self.pcie_logic_code),
            _ => None,
        }
    }
}

impl CacheConfig {
    /// Creates a division.
    #[must_use]
    pub fn new(scratchpad_kib: u16, l2_kib: u16, l3_kib: u16) -> Self {
        Self { scratchpad_kib, l2_kib, l3_kib }
    }
}

/// How long the device was in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// In all.
    pub total: Duration,
    /// Average of a stay.
    pub average: Duration,
    /// Longest stay.
    pub longest: Duration,
    /// Shortest stay.
    pub shortest: Duration,
}

impl From<wire::Residency> for Residency {
    fn from(residency: wire::Residency) -> Self {
        Self {
            total: Duration::from_micros(residency.cumulative.get()),
            average: Duration::from_micros(residency.average.get()),
            longest: Duration::from_micros(residency.maximum.get()),
            shortest: Duration::from_micros(residency.minimum.get()),
        }
    }
}

/// What is watched for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorSource {
    /// The DRAM.
    Dram,
    /// The static memory of the shires.
    Sram,
    /// The PCIe link.
    Pcie,
}
