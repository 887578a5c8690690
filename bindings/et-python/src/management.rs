//! The service processor of a card.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use et::management::{
    ActivePowerManagement, ErrorSource, Module, Pll, PowerState, StatsKind, StepClock,
    ThrottleState,
};
use et::{AnyHal, management};
use pyo3::prelude::*;

use crate::card::Card;
use crate::error::{self, Raise};
use crate::life::Here;
use crate::raw::Source;
use crate::sensors::{
    AsicVoltages, CacheConfig, CardEvent, ErrorCounts, Frequencies, ManagementCounters, MemoryRate,
    MinionErrors, Residency, Statistic, Temperatures,
};
use crate::wait;

/// What the service processor knows of a card: temperatures, clocks, errors, firmware.
///
/// It shares nothing with copies and launches but the card, so it answers while kernels hang. Every
/// call ends within the time that was given to `Device.management`; values have their unit in the
/// name. Any thread may use it.
///
///     >>> import et
///     >>> with et.open("sim:shires=1,dram=128MiB,serial=A-7,temperature=55") as device:
///     ...     management = device.management(timeout=60)
///     ...     management.asset("serial_number"), management.temperatures().minion_average_c
///     ('A-7', 55)
#[pyclass(frozen, module = "et")]
#[derive(Debug)]
pub(crate) struct Management {
    /// Keeps the device open, if it is that of one.
    _card: Option<Arc<Card>>,
    inner: Here<et::Management<AnyHal>>,
}

/// Texts about the module, by their names here.
const ASSETS: [(&str, management::Asset); 12] = [
    ("manufacturer", management::Asset::Manufacturer),
    ("part_number", management::Asset::PartNumber),
    ("serial_number", management::Asset::SerialNumber),
    ("chip_revision", management::Asset::ChipRevision),
    ("driver_revision", management::Asset::DriverRevision),
    ("pcie_address", management::Asset::PcieAddress),
    ("pcie_ports", management::Asset::PciePorts),
    ("memory_size", management::Asset::MemorySize),
    ("module_revision", management::Asset::ModuleRevision),
    ("form_factor", management::Asset::FormFactor),
    ("memory_vendor", management::Asset::MemoryVendor),
    ("memory_type", management::Asset::MemoryType),
];
const SOURCES: [(&str, ErrorSource); 3] =
    [("dram", ErrorSource::Dram), ("sram", ErrorSource::Sram), ("pcie", ErrorSource::Pcie)];
const CLOCKS: [(&str, Pll); 2] = [("minions", Pll::Minion), ("network", Pll::Noc)];
const THROTTLES: [(&str, ThrottleState); 4] = [
    ("idle", ThrottleState::Idle),
    ("up", ThrottleState::Up),
    ("down", ThrottleState::Down),
    ("safe", ThrottleState::Safe),
];
const POWERS: [(&str, PowerState); 4] = [
    ("maximum", PowerState::MaxPower),
    ("managed", PowerState::ManagedPower),
    ("safe", PowerState::SafePower),
    ("low", PowerState::LowPower),
];
const PROCESSORS: [(&str, StatsKind); 2] = [("service", StatsKind::Sp), ("master", StatsKind::Mm)];
const MODULES: [(&str, Module); 7] = [
    ("ddr", Module::Ddr),
    ("l2_cache", Module::L2Cache),
    ("maxion", Module::Maxion),
    ("minion", Module::Minion),
    ("pcie", Module::Pcie),
    ("noc", Module::Noc),
    ("pcie_logic", Module::PcieLogic),
];

/// Finds what a name stands for.
fn named<T: Copy>(all: &[(&str, T)], name: &str) -> PyResult<T> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(known, _)| *known).collect();
        error::raise("ArgumentError", format!("{name:?} is none of {}", names.join(", ")))
    })
}

impl Management {
    pub(crate) fn new(
        card: Option<&Arc<Card>>,
        inner: et::Management<AnyHal>,
        timeout: Option<Duration>,
    ) -> Self {
        let inner = match timeout {
            Some(timeout) => inner.with_timeout(timeout),
            None => inner,
        };
        Self { _card: card.map(Arc::clone), inner: Here::new(inner) }
    }

    /// Asks, without the interpreter.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&et::Management<AnyHal>) -> et::Result<T> + Send,
    ) -> PyResult<T> {
        let inner = self.inner.get()?;
        py.detach(|| ask(inner)).map_err(Raise::raise)
    }
}

#[pymethods]
impl Management {
    /// A text about the module, empty if the firmware does not know it: `"manufacturer"`,
    /// `"part_number"`, `"serial_number"`, `"chip_revision"`, `"memory_type"` and others.
    fn asset(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let asset = named(&ASSETS, name)?;
        self.ask(py, |inner| inner.asset(asset))
    }

    /// All texts about the module that the firmware knows.
    fn assets(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, String>> {
        let all = self.ask(py, |inner| {
            ASSETS.iter().map(|(name, asset)| Ok((*name, inner.asset(*asset)?))).collect()
        });
        let mut all: BTreeMap<_, String> = all?;
        all.retain(|_, text| !text.is_empty());
        Ok(all)
    }

    /// Versions of the firmware that runs, by its parts; "release" is that of all.
    fn firmware_versions(
        &self,
        py: Python<'_>,
    ) -> PyResult<BTreeMap<&'static str, (u16, u16, u16)>> {
        let of = self.ask(py, et::Management::firmware_versions)?;
        let all = [
            ("release", of.release),
            ("boot_loader_1", of.boot_loader_1),
            ("boot_loader_2", of.boot_loader_2),
            ("master_minion", of.master_minion),
            ("worker_minion", of.worker_minion),
            ("machine_minion", of.machine_minion),
            ("power_controller", of.power_controller),
        ];
        Ok(all.into_iter().map(|(name, v)| (name, (v.major, v.minor, v.patch))).collect())
    }

    /// Seconds since the service processor was started, in whole minutes.
    fn uptime(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.ask(py, et::Management::uptime)?.as_secs_f64())
    }

    /// Temperatures.
    fn temperatures(&self, py: Python<'_>) -> PyResult<Temperatures> {
        Ok(self.ask(py, et::Management::temperatures)?.into())
    }

    /// The highest temperature so far, in °C.
    fn highest_temperature_c(&self, py: Python<'_>) -> PyResult<u8> {
        self.ask(py, et::Management::highest_temperature_c)
    }

    /// The temperature above which the clock is reduced, in °C.
    fn temperature_threshold_c(&self, py: Python<'_>) -> PyResult<u8> {
        self.ask(py, et::Management::temperature_threshold_c)
    }

    /// Sets the temperature above which the clock is reduced, in °C.
    fn set_temperature_threshold_c(&self, py: Python<'_>, celsius: u8) -> PyResult<()> {
        self.ask(py, |inner| inner.set_temperature_threshold_c(celsius))
    }

    /// Power of the module, in mW.
    fn power_mw(&self, py: Python<'_>) -> PyResult<u16> {
        self.ask(py, et::Management::power_mw)
    }

    /// Power state, as a text.
    fn power_state(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.ask(py, et::Management::power_state)?.to_string())
    }

    /// Thermal design power, in watts.
    fn tdp_watts(&self, py: Python<'_>) -> PyResult<u8> {
        self.ask(py, et::Management::tdp_watts)
    }

    /// Sets the thermal design power, in watts.
    fn set_tdp_watts(&self, py: Python<'_>, watts: u8) -> PyResult<()> {
        self.ask(py, |inner| inner.set_tdp_watts(watts))
    }

    /// Has the firmware manage power, or not.
    fn set_power_management(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        let to = if on { ActivePowerManagement::On } else { ActivePowerManagement::Off };
        self.ask(py, |inner| inner.set_power_management(to))
    }

    /// Sets the clock of the "minions" or of the "network" on chip, in MHz; through the step clock,
    /// or at once.
    #[pyo3(signature = (clock, mhz, *, by_steps = false))]
    fn set_frequency_mhz(
        &self,
        py: Python<'_>,
        clock: &str,
        mhz: u16,
        by_steps: bool,
    ) -> PyResult<()> {
        let pll = named(&CLOCKS, clock)?;
        let step = if by_steps { StepClock::On } else { StepClock::Off };
        self.ask(py, |inner| inner.set_frequency_mhz(pll, mhz, step))
    }

    /// Sets how many errors of "dram", "sram" or "pcie" are announced at once. Current firmware
    /// ignores the number.
    fn set_error_threshold(&self, py: Python<'_>, source: &str, count: u8) -> PyResult<()> {
        let source = named(&SOURCES, source)?;
        self.ask(py, |inner| inner.set_error_threshold(source, count))
    }

    /// How long the throttle was in a state: "idle", "up", "down" or "safe".
    #[pyo3(signature = (state = "down"))]
    fn throttle_residency(&self, py: Python<'_>, state: &str) -> PyResult<Residency> {
        let state = named(&THROTTLES, state)?;
        Ok(self.ask(py, |inner| inner.throttle_residency(state))?.into())
    }

    /// How long the module was in a power state: "maximum", "managed", "safe" or "low".
    fn power_residency(&self, py: Python<'_>, state: &str) -> PyResult<Residency> {
        let state = named(&POWERS, state)?;
        Ok(self.ask(py, |inner| inner.power_residency(state))?.into())
    }

    /// Clocks.
    fn frequencies(&self, py: Python<'_>) -> PyResult<Frequencies> {
        Ok(self.ask(py, et::Management::frequencies)?.into())
    }

    /// Voltages that the chip measures.
    fn asic_voltages(&self, py: Python<'_>) -> PyResult<AsicVoltages> {
        Ok(self.ask(py, et::Management::asic_voltages)?.into())
    }

    /// Voltages in mV that the regulators are set to, of those whose codes are known.
    fn module_voltages(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, f32>> {
        let of = self.ask(py, et::Management::module_voltages)?;
        let known = MODULES.into_iter();
        Ok(known.filter_map(|(name, module)| Some((name, of.millivolts(module)?))).collect())
    }

    /// Errors since the last reset of the chip, of "dram", "sram" or "pcie".
    fn error_counts(&self, py: Python<'_>, source: &str) -> PyResult<ErrorCounts> {
        let source = named(&SOURCES, source)?;
        Ok(self.ask(py, |inner| inner.error_counts(source))?.into())
    }

    /// Errors of the master minion.
    fn minion_errors(&self, py: Python<'_>) -> PyResult<MinionErrors> {
        Ok(self.ask(py, et::Management::minion_errors)?.into())
    }

    /// Present requests to the memory.
    fn memory_rate(&self, py: Python<'_>) -> PyResult<MemoryRate> {
        Ok(self.ask(py, et::Management::memory_rate)?.into())
    }

    /// The used part of the memory, in percent.
    fn memory_used_percent(&self, py: Python<'_>) -> PyResult<u32> {
        self.ask(py, et::Management::memory_used_percent)
    }

    /// How the memory of the shires is divided.
    fn cache_config(&self, py: Python<'_>) -> PyResult<CacheConfig> {
        Ok(self.ask(py, et::Management::cache_config)?.into())
    }

    /// Averages and extremes that the "service" processor or the "master" minion keeps.
    #[pyo3(signature = (processor = "service"))]
    fn statistics(&self, py: Python<'_>, processor: &str) -> PyResult<Vec<Statistic>> {
        let of = named(&PROCESSORS, processor)?;
        let list = self.ask(py, |inner| inner.statistics(of))?;
        Ok(list.into_iter().map(Into::into).collect())
    }

    /// The next event of the card; `None` if none comes within `timeout` seconds.
    ///
    /// The last 1024 are kept until they are taken; what was lost is in `counters()`.
    #[pyo3(signature = (timeout = Some(0.0)), text_signature = "($self, timeout=0.0)")]
    fn event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<CardEvent>> {
        let inner = self.inner.get()?;
        let limit = wait::timeout(timeout)?;
        let next = wait::wait(py, limit, |slice| inner.event(slice).transpose())?;
        Ok(next.transpose().map_err(Raise::raise)?.map(Into::into))
    }

    /// What has come from the service processor since it was opened.
    fn counters(&self) -> PyResult<ManagementCounters> {
        Ok(self.inner.get()?.counters().into())
    }

    /// Installs a firmware image: its bytes. It runs from the next reset of the chip on; what the
    /// service processor refuses changes nothing. `name` is what its log calls the image.
    #[pyo3(signature = (image, name = "image"))]
    fn update_firmware(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        name: &str,
    ) -> PyResult<()> {
        // A copy: others may write to it meanwhile.
        let image = Source::of(image)?.bytes().to_vec();
        self.ask(py, |inner| inner.update_firmware(&image, name))
    }

    fn __repr__(&self) -> &'static str {
        "<et.Management>"
    }
}
