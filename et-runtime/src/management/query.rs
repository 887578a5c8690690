//! Questions.

use std::time::Duration;

use et_devapi::msg::mgmt::{
    ByteArg, HartControl, HartFlag, HartStatus, PowerState, StatsKind, Text, ThrottleState, calls,
};
use et_hal::Hal;

use super::stats::{of_master_minion, of_service_processor};
use super::{
    AsicVoltages, Asset, CacheConfig, ErrorCounts, ErrorSource, FirmwareVersions, Frequencies,
    Management, MemoryRate, MinionErrors, ModuleVoltages, Residency, Statistic, Temperatures,
};
use crate::Result;

/// Makes the parameter of a command that takes a code of 8 bits; one that does not fit is one that
/// the firmware does not know either.
pub(super) fn byte(code: u32) -> ByteArg {
    ByteArg { value: u8::try_from(code).unwrap_or(u8::MAX), pad: [0; 7] }
}

/// Returns what is before the first NUL; what is no text is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl<H: Hal> Management<H> {
    /// Returns a text about the module; empty if the firmware does not know it.
    ///
    /// # Errors
    /// See [`Management`].
    ///
    /// Spec: §17.2
    pub fn asset(&self, asset: Asset) -> Result<String> {
        let call = match asset {
            Asset::Manufacturer => calls::GET_MODULE_MANUFACTURE_NAME,
            Asset::PartNumber => calls::GET_MODULE_PART_NUMBER,
            Asset::SerialNumber => calls::GET_MODULE_SERIAL_NUMBER,
            Asset::ChipRevision => calls::GET_ASIC_CHIP_REVISION,
            Asset::DriverRevision => calls::GET_MODULE_DRIVER_REVISION,
            Asset::PcieAddress => calls::GET_MODULE_PCIE_ADDR,
            Asset::PciePorts => calls::GET_MODULE_PCIE_NUM_PORTS_MAX_SPEED,
            Asset::MemorySize => calls::GET_MODULE_MEMORY_SIZE_MB,
            Asset::ModuleRevision => calls::GET_MODULE_REVISION,
            Asset::FormFactor => calls::GET_MODULE_FORM_FACTOR,
            Asset::MemoryVendor => calls::GET_MODULE_MEMORY_VENDOR_PART_NUMBER,
            Asset::MemoryType => calls::GET_MODULE_MEMORY_TYPE,
        };
        Ok(text(&self.get(call, "asset query")?.asset))
    }

    /// Returns the serial number of the module.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn serial_number(&self) -> Result<String> {
        self.asset(Asset::SerialNumber)
    }

    /// Returns the part number of the module.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn part_number(&self) -> Result<String> {
        self.asset(Asset::PartNumber)
    }

    /// Returns the data of the replaceable unit: 256 bytes.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn replaceable_unit(&self) -> Result<Vec<u8>> {
        let Text { asset } = self.get(calls::GET_FRU, "query of the replaceable unit")?;
        Ok(asset.to_vec())
    }

    /// Returns the table of least voltages: 256 bytes.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn voltage_table(&self) -> Result<Vec<u8>> {
        let Text { asset } = self.get(calls::GET_VMIN_LUT, "query of the voltage table")?;
        Ok(asset.to_vec())
    }

    /// Returns the versions of the firmware that runs.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn firmware_versions(&self) -> Result<FirmwareVersions> {
        let op = "firmware version query";
        Ok(self.get(calls::GET_MODULE_FIRMWARE_REVISIONS, op)?.into())
    }

    /// Returns the fused public keys: 32 bytes.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn public_keys(&self) -> Result<[u8; 32]> {
        Ok(self.get(calls::GET_FUSED_PUBLIC_KEYS, "public key query")?.keys)
    }

    /// Returns once the firmware says that it has booted.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::Refused`](crate::Error::Refused) if it has not.
    pub fn check_boot(&self) -> Result<()> {
        self.get(calls::GET_FIRMWARE_BOOT_STATUS, "boot status query").map(drop)
    }

    /// Returns the temperatures.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn temperatures(&self) -> Result<Temperatures> {
        Ok(self.get(calls::GET_MODULE_CURRENT_TEMPERATURE, "temperature query")?.into())
    }

    /// Returns the highest temperature so far, in °C.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn highest_temperature_c(&self) -> Result<u8> {
        Ok(self.get(calls::GET_MODULE_MAX_TEMPERATURE, "temperature query")?.value)
    }

    /// Returns the temperature above which the clock is reduced, in °C.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn temperature_threshold_c(&self) -> Result<u8> {
        Ok(self.get(calls::GET_MODULE_TEMPERATURE_THRESHOLDS, "threshold query")?.value)
    }

    /// Returns the power of the module, in mW.
    ///
    /// The unit is that of the vendor's tools; the interface does not name one.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn power_mw(&self) -> Result<u16> {
        Ok(self.get(calls::GET_MODULE_POWER, "power query")?.power.get())
    }

    /// Returns the power state.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn power_state(&self) -> Result<PowerState> {
        let state = self.call(calls::GET_MODULE_POWER_STATE, &byte(0), "power state query")?;
        Ok(u32::from(state.value).into())
    }

    /// Returns the thermal design power, in watts.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn tdp_watts(&self) -> Result<u8> {
        Ok(self.get(calls::GET_MODULE_STATIC_TDP_LEVEL, "power query")?.value)
    }

    /// Returns how long the throttle was in a state.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn throttle_residency(&self, state: ThrottleState) -> Result<Residency> {
        let call = calls::GET_MODULE_RESIDENCY_THROTTLE_STATES;
        Ok(self.call(call, &byte(state.into()), "throttle time query")?.into())
    }

    /// Returns how long the module was in a power state.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn power_residency(&self, state: PowerState) -> Result<Residency> {
        let call = calls::GET_MODULE_RESIDENCY_POWER_STATES;
        Ok(self.call(call, &byte(state.into()), "power state query")?.into())
    }

    /// Returns how long the service processor has been running, in whole minutes.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn uptime(&self) -> Result<Duration> {
        let uptime = self.get(calls::GET_MODULE_UPTIME, "uptime query")?;
        let hours = 24 * u64::from(uptime.day.get()) + u64::from(uptime.hours);
        Ok(Duration::from_secs(60 * (60 * hours + u64::from(uptime.mins))))
    }

    /// Returns the voltages that the chip measures.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn asic_voltages(&self) -> Result<AsicVoltages> {
        Ok(self.get(calls::GET_ASIC_VOLTAGE, "voltage query")?.into())
    }

    /// Returns the voltages that the regulators are set to.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn module_voltages(&self) -> Result<ModuleVoltages> {
        Ok(self.get(calls::GET_MODULE_VOLTAGE, "voltage query")?.into())
    }

    /// Returns the present clocks.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn frequencies(&self) -> Result<Frequencies> {
        Ok(self.get(calls::GET_ASIC_FREQUENCIES, "frequency query")?.into())
    }

    /// Returns the errors of one kind since the last reset of the chip.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn error_counts(&self, source: ErrorSource) -> Result<ErrorCounts> {
        let call = match source {
            ErrorSource::Dram => calls::GET_MODULE_DDR_ECC_UECC,
            ErrorSource::Sram => calls::GET_MODULE_SRAM_ECC_UECC,
            ErrorSource::Pcie => calls::GET_MODULE_PCIE_ECC_UECC,
        };
        Ok(self.get(call, "error count query")?.into())
    }

    /// Returns the greatest count of memory errors.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn most_memory_errors(&self) -> Result<u32> {
        Ok(self.get(calls::GET_MAX_MEMORY_ERROR, "error count query")?.value.get())
    }

    /// Returns the errors of the master minion.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn minion_errors(&self) -> Result<MinionErrors> {
        Ok(self.get(calls::GET_MM_ERROR_COUNT, "error count query")?.into())
    }

    /// Returns the present requests to the memory.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn memory_rate(&self) -> Result<MemoryRate> {
        Ok(self.get(calls::GET_DRAM_BANDWIDTH, "bandwidth query")?.into())
    }

    /// Returns the highest rate of requests to the memory so far.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn highest_memory_rate(&self) -> Result<MemoryRate> {
        Ok(self.get(calls::GET_MODULE_MAX_DDR_BW, "bandwidth query")?.into())
    }

    /// Returns the used part of the memory, in percent.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn memory_used_percent(&self) -> Result<u32> {
        let op = "memory utilisation query";
        Ok(self.get(calls::GET_DRAM_CAPACITY_UTILIZATION, op)?.value.get())
    }

    /// Returns how the memory of the shires is divided.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn cache_config(&self) -> Result<CacheConfig> {
        Ok(self.get(calls::GET_SHIRE_CACHE_CONFIG, "cache query")?.into())
    }

    /// Returns the state of a hart.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn hart_status(&self, hart: u64) -> Result<HartStatus> {
        let flags = u64::from(u32::from(HartFlag::Status)).into();
        let command = HartControl { hart_id: hart.into(), flags };
        let status = self.call(calls::MDI_GET_HART_STATUS, &command, "hart query")?;
        Ok(status.status.get().into())
    }

    /// Returns statistics; none of an unknown kind. Powers are in mW and voltages in mV: the
    /// interface does not name units.
    ///
    /// # Errors
    /// See [`Management`].
    ///
    pub fn statistics(&self, of: StatsKind) -> Result<Vec<Statistic>> {
        Ok(match of {
            StatsKind::Sp => {
                of_service_processor(&self.get(calls::GET_SP_STATS, "statistics query")?)
            }
            StatsKind::Mm => of_master_minion(&self.get(calls::GET_MM_STATS, "statistics query")?),
            _ => Vec::new(),
        })
    }
}
