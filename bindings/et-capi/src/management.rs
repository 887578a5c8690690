//! The service processor of a card.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use et::management::{
    ActivePowerManagement, Asset, ErrorSource, EventClass, ManagementEventKind, Pll, PowerState,
    Statistic, StatsKind, StepClock, ThrottleState,
};
use et::{AnyHal, Management};

use crate::call::{guard, may_close, may_wait, timeout};
use crate::device::{self, config, et_device, et_device_options, no_such};
use crate::raw::{self, Growing};
use crate::sensors::{
    et_asic_voltages, et_cache_config, et_card_event, et_error_counts, et_firmware_versions,
    et_frequencies, et_management_counters, et_memory_rate, et_minion_errors, et_module_voltages,
    et_residency, et_statistic, et_temperatures,
};
use crate::status::{Failure, et_status, initialised};
use crate::table::{self, handle};

/// The service processor of a card: temperatures, clocks, errors, firmware. It shares nothing with
/// copies and launches but the card, so it answers while kernels hang.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_management {
    /// A number to be looked up; 0 is no management.
    pub id: u64,
}

handle!(et_management, 17, Management<AnyHal>);

/// Values that the service processor has kept since it began.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_statistics {
    /// A number to be looked up; 0 is no list.
    pub id: u64,
}

handle!(et_statistics, 18, Box<[Statistic]>);

/// A text about the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_asset {
    /// Name of the manufacturer.
    ET_ASSET_MANUFACTURER = 1,
    /// Part number.
    ET_ASSET_PART_NUMBER = 2,
    /// Serial number.
    ET_ASSET_SERIAL_NUMBER = 3,
    /// Revision of the chip.
    ET_ASSET_CHIP_REVISION = 4,
    /// Revision of the driver; current firmware leaves it empty.
    ET_ASSET_DRIVER_REVISION = 5,
    /// PCIe address; current firmware leaves it empty.
    ET_ASSET_PCIE_ADDRESS = 6,
    /// PCIe ports and their speed.
    ET_ASSET_PCIE_PORTS = 7,
    /// Size of the memory in MB.
    ET_ASSET_MEMORY_SIZE = 8,
    /// Revision of the module.
    ET_ASSET_MODULE_REVISION = 9,
    /// Form factor.
    ET_ASSET_FORM_FACTOR = 10,
    /// Vendor and part number of the memory.
    ET_ASSET_MEMORY_VENDOR = 11,
    /// Type of the memory.
    ET_ASSET_MEMORY_TYPE = 12,
}

/// What is watched for errors.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_error_source {
    /// The DRAM.
    ET_ERRORS_DRAM = 1,
    /// The static memory of the shires.
    ET_ERRORS_SRAM = 2,
    /// The PCIe link.
    ET_ERRORS_PCIE = 3,
}

/// A clock that can be set.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_clock {
    /// That of the minions.
    ET_CLOCK_MINIONS = 1,
    /// That of the network on chip.
    ET_CLOCK_NETWORK = 2,
}

/// Whose statistics.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_processor {
    /// The service processor's.
    ET_SERVICE_PROCESSOR = 1,
    /// The master minion's.
    ET_MASTER_MINION = 2,
}

/// Power state of the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_power_state {
    /// Maximum power.
    ET_POWER_MAXIMUM = 0,
    /// Managed power.
    ET_POWER_MANAGED = 1,
    /// Safe power.
    ET_POWER_SAFE = 2,
    /// Low power.
    ET_POWER_LOW = 3,
}

/// State of the throttle.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_throttle_state {
    /// Power idle.
    ET_THROTTLE_IDLE = 0,
    /// Power up.
    ET_THROTTLE_UP = 1,
    /// Power down.
    ET_THROTTLE_DOWN = 2,
    /// Power safe.
    ET_THROTTLE_SAFE = 3,
}

/// How bad an event of the card is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_severity {
    /// For information.
    ET_SEVERITY_INFO = 0,
    /// A warning.
    ET_SEVERITY_WARNING = 1,
    /// Critical.
    ET_SEVERITY_CRITICAL = 2,
    /// Fatal.
    ET_SEVERITY_FATAL = 3,
}

fn no_number(what: &str, number: u32) -> Failure {
    Failure::new(et_status::ET_INVALID, format!("there is no {what} {number}"))
}

fn error_source(number: u32) -> Result<ErrorSource, Failure> {
    let all = [
        (et_error_source::ET_ERRORS_DRAM, ErrorSource::Dram),
        (et_error_source::ET_ERRORS_SRAM, ErrorSource::Sram),
        (et_error_source::ET_ERRORS_PCIE, ErrorSource::Pcie),
    ];
    let found = all.into_iter().find(|(known, _)| *known as u32 == number);
    found.map(|(_, source)| source).ok_or_else(|| no_number("source of errors", number))
}

/// Asks the service processor.
fn ask<T>(
    management: et_management,
    ask: impl FnOnce(&Management<AnyHal>) -> et::Result<T>,
) -> Result<T, Failure> {
    may_wait()?;
    Ok(ask(&*table::get(management)?)?)
}

/// Asks for a number.
fn number<T>(
    management: et_management,
    out: Option<&mut MaybeUninit<T>>,
    question: impl FnOnce(&Management<AnyHal>) -> et::Result<T>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(out, "place of the value")?;
        out.write(ask(management, question)?);
        Ok(())
    })
}

/// Asks for values.
///
/// # Safety
/// - As [`raw::put`].
unsafe fn values<V, T: From<V> + Growing>(
    management: et_management,
    out: *mut T,
    question: impl FnOnce(&Management<AnyHal>) -> et::Result<V>,
) -> et_status {
    guard(|| {
        let value = T::from(ask(management, question)?);
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, out, "place of the values") }
    })
}

/// Opens the service processor of an open device. Its calls take at most `timeout_ns`; 0 is the
/// device's `command_timeout_ns`.
#[unsafe(no_mangle)]
pub extern "C" fn et_device_management(
    device: et_device,
    timeout_ns: u64,
    management: Option<&mut MaybeUninit<et_management>>,
) -> et_status {
    guard(|| {
        may_wait()?;
        let out = raw::wanted(management, "management")?;
        let opened = device::with(device, |device| Ok(device.management()?))?;
        let opened = match timeout_ns {
            0 => opened,
            timeout_ns => opened.with_timeout(Duration::from_nanos(timeout_ns)),
        };
        out.write(table::insert(opened)?);
        Ok(())
    })
}

/// Opens the service processor of a card alone, which needs no operations firmware: a card whose
/// firmware does not start can be updated and reset. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_open(
    locator: *const c_char,
    options: *const et_device_options,
    management: Option<&mut MaybeUninit<et_management>>,
) -> et_status {
    guard(|| {
        initialised()?;
        may_close()?;
        let out = raw::wanted(management, "management")?;
        // SAFETY: promised by the caller.
        let locator = unsafe { raw::text(locator, "locator") }?;
        // SAFETY: promised by the caller.
        let options = unsafe { raw::options(options, "options") }?;
        let parsed = locator.parse().map_err(et::OpenError::from)?;
        let config = config(&options).name(locator);
        out.write(table::insert(et::open_management(parsed, config)?)?);
        Ok(())
    })
}

/// Frees a management. One that was opened alone closes its card with the last call that uses it.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_free(management: et_management) -> et_status {
    guard(|| {
        may_close()?;
        table::remove(management)
    })
}

/// Returns a text about the module, an `et_asset`; an empty one if the firmware does not know it.
/// `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_asset(
    management: et_management,
    asset: u32,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let all = [
            (et_asset::ET_ASSET_MANUFACTURER, Asset::Manufacturer),
            (et_asset::ET_ASSET_PART_NUMBER, Asset::PartNumber),
            (et_asset::ET_ASSET_SERIAL_NUMBER, Asset::SerialNumber),
            (et_asset::ET_ASSET_CHIP_REVISION, Asset::ChipRevision),
            (et_asset::ET_ASSET_DRIVER_REVISION, Asset::DriverRevision),
            (et_asset::ET_ASSET_PCIE_ADDRESS, Asset::PcieAddress),
            (et_asset::ET_ASSET_PCIE_PORTS, Asset::PciePorts),
            (et_asset::ET_ASSET_MEMORY_SIZE, Asset::MemorySize),
            (et_asset::ET_ASSET_MODULE_REVISION, Asset::ModuleRevision),
            (et_asset::ET_ASSET_FORM_FACTOR, Asset::FormFactor),
            (et_asset::ET_ASSET_MEMORY_VENDOR, Asset::MemoryVendor),
            (et_asset::ET_ASSET_MEMORY_TYPE, Asset::MemoryType),
        ];
        let found = all.into_iter().find(|(number, _)| *number as u32 == asset);
        let (_, found) = found.ok_or_else(|| no_number("asset", asset))?;
        let text = ask(management, |inner| inner.asset(found))?;
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, buffer, capacity, needed) }
    })
}

/// Returns the versions of the firmware that runs. The caller sets `versions->size`, and so on
/// below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_firmware_versions(
    management: et_management,
    versions: *mut et_firmware_versions,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, versions, Management::firmware_versions) }
}

/// Returns the time since the service processor was started, in whole minutes.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_uptime(
    management: et_management,
    uptime_ns: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    number(management, uptime_ns, |inner| inner.uptime().map(nanoseconds))
}

/// Returns temperatures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_temperatures(
    management: et_management,
    temperatures: *mut et_temperatures,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, temperatures, Management::temperatures) }
}

/// Returns the highest temperature so far, in °C.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_highest_temperature_c(
    management: et_management,
    celsius: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, celsius, |inner| inner.highest_temperature_c().map(u32::from))
}

/// Returns the temperature above which the clock is reduced, in °C.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_temperature_threshold_c(
    management: et_management,
    celsius: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, celsius, |inner| inner.temperature_threshold_c().map(u32::from))
}

/// Sets the temperature above which the clock is reduced, in °C.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_set_temperature_threshold_c(
    management: et_management,
    celsius: u8,
) -> et_status {
    guard(|| ask(management, |inner| inner.set_temperature_threshold_c(celsius)))
}

/// Returns the power of the module, in mW.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_power_mw(
    management: et_management,
    milliwatts: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, milliwatts, |inner| inner.power_mw().map(u32::from))
}

/// Returns the power state of the module: an `et_power_state`, or another number of the firmware's.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_power_state(
    management: et_management,
    state: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, state, |inner| inner.power_state().map(u32::from))
}

/// Returns the thermal design power, in watts.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_tdp_watts(
    management: et_management,
    watts: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, watts, |inner| inner.tdp_watts().map(u32::from))
}

/// Sets the thermal design power, in watts.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_set_tdp_watts(management: et_management, watts: u8) -> et_status {
    guard(|| ask(management, |inner| inner.set_tdp_watts(watts)))
}

/// Has the firmware manage power, or not.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_set_power_management(
    management: et_management,
    is_on: bool,
) -> et_status {
    let to = if is_on { ActivePowerManagement::On } else { ActivePowerManagement::Off };
    guard(|| ask(management, |inner| inner.set_power_management(to)))
}

/// Sets a clock, an `et_clock`, in MHz; through the step clock, or at once.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_set_frequency_mhz(
    management: et_management,
    clock: u32,
    mhz: u16,
    by_steps: bool,
) -> et_status {
    let step = if by_steps { StepClock::On } else { StepClock::Off };
    guard(|| {
        let all =
            [(et_clock::ET_CLOCK_MINIONS, Pll::Minion), (et_clock::ET_CLOCK_NETWORK, Pll::Noc)];
        let found = all.into_iter().find(|(known, _)| *known as u32 == clock);
        let (_, pll) = found.ok_or_else(|| no_number("clock", clock))?;
        ask(management, |inner| inner.set_frequency_mhz(pll, mhz, step))
    })
}

/// Sets how many errors of an `et_error_source` are announced at once. Current firmware ignores the
/// number.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_set_error_threshold(
    management: et_management,
    source: u32,
    count: u8,
) -> et_status {
    guard(|| {
        let of = error_source(source)?;
        ask(management, |inner| inner.set_error_threshold(of, count))
    })
}

/// Returns how long the throttle was in a state, an `et_throttle_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_throttle_residency(
    management: et_management,
    state: u32,
    residency: *mut et_residency,
) -> et_status {
    if state > et_throttle_state::ET_THROTTLE_SAFE as u32 {
        return no_number("throttle state", state).report();
    }
    let state = ThrottleState::from(state);
    // SAFETY: promised by the caller.
    unsafe { values(management, residency, |inner| inner.throttle_residency(state)) }
}

/// Returns how long the module was in a power state, an `et_power_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_power_residency(
    management: et_management,
    state: u32,
    residency: *mut et_residency,
) -> et_status {
    if state > et_power_state::ET_POWER_LOW as u32 {
        return no_number("power state", state).report();
    }
    let state = PowerState::from(state);
    // SAFETY: promised by the caller.
    unsafe { values(management, residency, |inner| inner.power_residency(state)) }
}

/// Returns clocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_frequencies(
    management: et_management,
    frequencies: *mut et_frequencies,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, frequencies, Management::frequencies) }
}

/// Returns voltages that the chip measures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_asic_voltages(
    management: et_management,
    voltages: *mut et_asic_voltages,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, voltages, Management::asic_voltages) }
}

/// Returns voltages that the regulators are set to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_module_voltages(
    management: et_management,
    voltages: *mut et_module_voltages,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, voltages, Management::module_voltages) }
}

/// Returns errors since the last reset of the chip, of an `et_error_source`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_error_counts(
    management: et_management,
    source: u32,
    counts: *mut et_error_counts,
) -> et_status {
    let of = match error_source(source) {
        Ok(of) => of,
        Err(failure) => return failure.report(),
    };
    // SAFETY: promised by the caller.
    unsafe { values(management, counts, |inner| inner.error_counts(of)) }
}

/// Returns errors of the master minion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_minion_errors(
    management: et_management,
    errors: *mut et_minion_errors,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, errors, Management::minion_errors) }
}

/// Returns present requests to the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_memory_rate(
    management: et_management,
    rate: *mut et_memory_rate,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, rate, Management::memory_rate) }
}

/// Returns the used part of the memory, in percent.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_memory_used_percent(
    management: et_management,
    percent: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    number(management, percent, Management::memory_used_percent)
}

/// Returns how the memory of the shires is divided.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_cache_config(
    management: et_management,
    config: *mut et_cache_config,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, config, Management::cache_config) }
}

/// Returns averages and extremes that an `et_processor` has kept.
#[unsafe(no_mangle)]
pub extern "C" fn et_management_statistics(
    management: et_management,
    processor: u32,
    statistics: Option<&mut MaybeUninit<et_statistics>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(statistics, "statistics")?;
        let all = [
            (et_processor::ET_SERVICE_PROCESSOR, StatsKind::Sp),
            (et_processor::ET_MASTER_MINION, StatsKind::Mm),
        ];
        let found = all.into_iter().find(|(number, _)| *number as u32 == processor);
        let (_, of) = found.ok_or_else(|| no_number("processor", processor))?;
        let list: Box<[Statistic]> = ask(management, |inner| inner.statistics(of))?.into();
        out.write(table::insert(list)?);
        Ok(())
    })
}

/// Returns the number of values in a list.
#[unsafe(no_mangle)]
pub extern "C" fn et_statistics_count(
    statistics: et_statistics,
    count: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        raw::wanted(count, "count")?.write(table::get(statistics)?.len());
        Ok(())
    })
}

/// Returns a value of a list, and its name, as `minion_power`. The caller sets `statistic->size`;
/// `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_statistics_get(
    statistics: et_statistics,
    index: usize,
    statistic: *mut et_statistic,
    name: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let list = table::get(statistics)?;
        let found = *list.get(index).ok_or_else(|| no_such("statistic", index))?;
        // SAFETY: promised by the caller.
        unsafe { raw::put(&et_statistic::from(found), statistic, "statistic") }?;
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(found.name, name, capacity, needed) }
    })
}

/// Frees a list of values.
#[unsafe(no_mangle)]
pub extern "C" fn et_statistics_free(statistics: et_statistics) -> et_status {
    guard(|| table::remove(statistics))
}

/// Takes the next event of the card; `ET_TIMEOUT` if none comes within `timeout_ns`. The last 1024
/// are kept until they are taken. The caller sets `event->size`; an event whose name found no room
/// is gone. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_event(
    management: et_management,
    timeout_ns: u64,
    event: *mut et_card_event,
    name: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let after = timeout(timeout_ns)?;
        let inner = table::get(management)?;
        let Some(found) = inner.event(after)? else {
            return Err(et::Error::timeout("event of the card", after).into());
        };
        let seen_ns = u64::try_from(found.seen.as_nanos()).unwrap_or(u64::MAX);
        let mut value = et_card_event {
            size: 0,
            seen_ns,
            syndromes: [0; 2],
            kind: 0,
            severity: EventClass::Info.into(),
            count: 1,
            reserved: 0,
        };
        let text = match found.kind {
            ManagementEventKind::Card(card) => {
                value.syndromes = card.syndromes;
                value.kind = card.id.into();
                value.severity = card.class.into();
                value.count = card.count.into();
                card.id.to_string()
            }
            // Nothing here sets breakpoints.
            other => format!("{other:?}"),
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, event, "event") }?;
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, name, capacity, needed) }
    })
}

/// Returns what has come from the service processor since it was opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_counters_get(
    management: et_management,
    counters: *mut et_management_counters,
) -> et_status {
    // SAFETY: promised by the caller.
    unsafe { values(management, counters, |inner| Ok(inner.counters())) }
}

/// Installs a firmware image, which runs from the next reset of the chip on; what the service
/// processor refuses changes nothing. `name` is what its log calls the image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_management_update_firmware(
    management: et_management,
    image: *const c_void,
    bytes: usize,
    name: *const c_char,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let image = unsafe { raw::bytes(image, bytes, "image") }?;
        // SAFETY: promised by the caller.
        let name = unsafe { raw::text(name, "name") }?;
        ask(management, |inner| inner.update_firmware(image, name))
    })
}
