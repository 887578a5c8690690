//! What commands set, what survives a reset, and what is counted.

use et_devapi::msg::mgmt::{
    CacheSizes, ErrorCounts, Event, EventClass, EventId, FirmwareVersions, LinkSpeed,
    ModuleVoltages,
};
use zerocopy::FromZeros;

use super::event;
use crate::firmware::registers::CACHES_KIB;
use crate::{BoardConfig, ErrorSource};

/// Version 1.5.0 of everything: major, minor and revision from the top.
const FIRST_VERSION: u32 = 0x0105_0000;
/// Shires that share the caches of the registers.
const SHIRES: u32 = 32;
/// All memory of a shire, in KiB.
const SHIRE_KIB: u16 = 4096;

/// What is in flash memory: it survives every reset.
#[derive(Clone, Debug)]
pub(crate) struct Flash {
    pub(super) part_number: u32,
    pub(super) replaceable_unit: [u8; 256],
    pub(super) voltage_table: [u8; 256],
    /// Versions that run.
    pub(super) versions: FirmwareVersions,
    /// Versions that run from the next reset of the chip on.
    pub(super) installed: FirmwareVersions,
}

impl Flash {
    pub(crate) fn new(config: &BoardConfig) -> Self {
        let version = FIRST_VERSION.into();
        let versions = FirmwareVersions {
            bl1_v: version,
            bl2_v: version,
            mm_v: version,
            wm_v: version,
            machm_v: version,
            fw_release_rev: version,
            pmic_v: version,
            pad: 0.into(),
        };
        Self {
            part_number: config.part_number,
            replaceable_unit: [0; 256],
            voltage_table: [0; 256],
            versions,
            installed: versions,
        }
    }

    /// Returns the release that runs, as text.
    pub(super) fn release(&self) -> String {
        version(self.versions.fw_release_rev.get())
    }

    /// The chip starts: what was installed runs.
    pub(crate) fn boot(&mut self) {
        self.versions = self.installed;
    }
}

/// Major, minor and revision, from the top.
pub(super) fn version(number: u32) -> String {
    let [major, minor, revision] = [24, 16, 8].map(|shift| number >> shift & 0xff);
    format!("{major}.{minor}.{revision}")
}

/// What commands set until the next reset of the chip.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) tdp_watts: u8,
    pub(super) link_speed: LinkSpeed,
    pub(super) voltages: ModuleVoltages,
    pub(super) noc_mhz: u16,
    pub(super) minion_mhz: u16,
    pub(super) caches: CacheSizes,
    errors: [ErrorCounts; 3],
}

impl Settings {
    pub(super) fn new(config: &BoardConfig) -> Self {
        let (scp, l2, l3) = CACHES_KIB;
        let of_shire = |kib: u32| u16::try_from(kib / SHIRES).unwrap_or(u16::MAX).into();
        Self {
            tdp_watts: config.tdp_watts,
            link_speed: LinkSpeed::Gen3,
            // 800 mV, and 900 mV for PCIe, as the regulators encode them.
            voltages: ModuleVoltages {
                ddr: 110,
                l2_cache: 110,
                maxion: 110,
                minion: 80,
                pcie: 48,
                noc: 60,
                pcie_logic: 24,
                vddqlp: 70,
                vddq: 170,
                pad: [0; 7],
            },
            noc_mhz: 500,
            minion_mhz: u16::try_from(config.frequency_mhz).unwrap_or(u16::MAX),
            caches: CacheSizes {
                scp_size: of_shire(scp),
                l2_size: of_shire(l2),
                l3_size: of_shire(l3),
            },
            errors: [ErrorCounts::new_zeroed(); 3],
        }
    }

    /// Divides the memory of the shires; `false` if there is not so much.
    pub(super) fn set_caches(&mut self, sizes: CacheSizes) -> bool {
        let parts = [sizes.scp_size, sizes.l2_size, sizes.l3_size];
        let sum: u32 = parts.iter().map(|part| u32::from(part.get())).sum();
        let fits = sum <= SHIRE_KIB.into();
        if fits {
            self.caches = sizes;
        }
        fits
    }

    pub(super) fn errors(&self, source: ErrorSource) -> ErrorCounts {
        self.errors[source as usize]
    }

    /// Returns the greatest number of errors of one kind of a memory, which the link is not.
    pub(super) fn most_errors(&self) -> u32 {
        let memories = [ErrorSource::Dram, ErrorSource::Sram].map(|source| self.errors(source));
        let all = memories.iter().flat_map(|counts| [counts.ecc.get(), counts.uecc.get()]);
        all.max().unwrap_or_default()
    }

    /// Counts errors; returns the events of it.
    pub(super) fn count_errors(
        &mut self,
        source: ErrorSource,
        corrected: u32,
        uncorrectable: u32,
    ) -> Vec<Event> {
        let counts = &mut self.errors[source as usize];
        counts.ecc += corrected;
        counts.uecc += uncorrectable;
        let (of_corrected, of_others) = match source {
            ErrorSource::Dram => (EventId::DramCorrected, EventId::DramUncorrected),
            ErrorSource::Sram => (EventId::SramCorrected, EventId::SramUncorrected),
            ErrorSource::Pcie => (EventId::PcieCorrected, EventId::PcieUncorrected),
        };
        [
            (of_corrected, EventClass::Warning, corrected),
            (of_others, EventClass::Fatal, uncorrectable),
        ]
        .into_iter()
        .filter(|(.., count)| *count != 0)
        .map(|(id, class, count)| event(id, class, count, [0; 2]))
        .collect()
    }
}
