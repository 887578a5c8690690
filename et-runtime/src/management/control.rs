//! Orders.

use et_devapi::msg::mgmt::{
    ActivePowerManagement, CacheSizes, LaneWidth, LinkSpeed, Module, Pll, SetFrequency, SetVoltage,
    StatsKind, StatsRun, StatusWord, StepClock, Text, TraceEvents, TraceMasks, WordArg, calls,
};
use et_hal::Hal;

use super::query::byte;
use super::{CacheConfig, ErrorSource, Management, MinionErrors, Way};
use crate::sync::Ordering;
use crate::trace::DEBUG;
use crate::{Error, Result};

fn word(value: u32) -> WordArg {
    WordArg { value: value.into(), pad: 0.into() }
}

/// A code of 8 bits; one that does not fit is one that the firmware does not know either.
fn code(code: u32) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn data(bytes: &[u8]) -> Result<Text> {
    let mut asset = [0; 256];
    let (from, to) = (bytes.len() as u64, asset.len() as u64);
    let place = asset.get_mut(..bytes.len()).ok_or(Error::LengthMismatch { from, to })?;
    place.copy_from_slice(bytes);
    Ok(Text { asset })
}

impl<H: Hal> Management<H> {
    /// Writes the part number into flash memory.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_part_number(&self, number: u32) -> Result<()> {
        let op = "setting the part number";
        self.call(calls::SET_MODULE_PART_NUMBER, &word(number), op).map(drop)
    }

    /// Writes the data of the replaceable unit, up to 256 bytes, into flash memory.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::LengthMismatch`].
    pub fn set_replaceable_unit(&self, bytes: &[u8]) -> Result<()> {
        self.call(calls::SET_FRU, &data(bytes)?, "setting the replaceable unit").map(drop)
    }

    /// Writes the table of least voltages, up to 256 bytes, into flash memory.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::LengthMismatch`].
    pub fn set_voltage_table(&self, bytes: &[u8]) -> Result<()> {
        self.call(calls::SET_VMIN_LUT, &data(bytes)?, "setting the voltage table").map(drop)
    }

    /// Sets the temperature above which the clock is reduced, in °C.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_temperature_threshold_c(&self, celsius: u8) -> Result<()> {
        let call = calls::SET_MODULE_TEMPERATURE_THRESHOLDS;
        self.call(call, &byte(celsius.into()), "setting the threshold").map(drop)
    }

    /// Sets the thermal design power, in watts.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_tdp_watts(&self, watts: u8) -> Result<()> {
        let call = calls::SET_MODULE_STATIC_TDP_LEVEL;
        self.call(call, &byte(watts.into()), "setting the power").map(drop)
    }

    /// Switches power management.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_power_management(&self, management: ActivePowerManagement) -> Result<()> {
        let call = calls::SET_MODULE_ACTIVE_POWER_MANAGEMENT;
        self.call(call, &byte(management.into()), "setting power management").map(drop)
    }

    /// Sets a voltage, as the code of its regulator.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_voltage_code(&self, module: Module, value: u8) -> Result<()> {
        let command = SetVoltage { r#type: code(module.into()), value, pad: [0; 6] };
        self.call(calls::SET_MODULE_VOLTAGE, &command, "setting a voltage").map(drop)
    }

    /// Sets a clock, in MHz.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_frequency_mhz(&self, pll: Pll, mhz: u16, step: StepClock) -> Result<()> {
        let command = SetFrequency {
            pll_freq: mhz.into(),
            pll_id: code(pll.into()),
            use_step_clock: code(step.into()),
            pad: [0; 4],
        };
        self.call(calls::SET_FREQUENCY, &command, "setting a frequency").map(drop)
    }

    /// Sets how many errors are announced at once. Current firmware ignores the number.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_error_threshold(&self, source: ErrorSource, count: u8) -> Result<()> {
        let call = match source {
            ErrorSource::Dram => calls::SET_DDR_ECC_COUNT,
            ErrorSource::Sram => calls::SET_SRAM_ECC_COUNT,
            ErrorSource::Pcie => calls::SET_PCIE_ECC_COUNT,
        };
        self.call(call, &byte(count.into()), "setting an error threshold").map(drop)
    }

    /// Sets the highest speed of the link.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_link_speed(&self, speed: LinkSpeed) -> Result<()> {
        let op = "setting the link speed";
        self.call(calls::SET_PCIE_MAX_LINK_SPEED, &word(speed.into()), op).map(drop)
    }

    /// Sets the width of the link.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_lane_width(&self, width: LaneWidth) -> Result<()> {
        let op = "setting the link width";
        self.call(calls::SET_PCIE_LANE_WIDTH, &word(width.into()), op).map(drop)
    }

    /// Trains the link again.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn retrain_link(&self) -> Result<()> {
        self.get(calls::SET_PCIE_RETRAIN_PHY, "training the link").map(drop)
    }

    /// Divides the memory of the shires.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn set_cache_config(&self, config: CacheConfig) -> Result<()> {
        let sizes = CacheSizes {
            scp_size: config.scratchpad_kib.into(),
            l2_size: config.l2_kib.into(),
            l3_size: config.l3_kib.into(),
        };
        self.call(calls::SET_SHIRE_CACHE_CONFIG, &sizes, "dividing the caches").map(drop)
    }

    /// Controls statistics by bits of [`StatsControl`](et_devapi::msg::mgmt::StatsControl). What is
    /// not set is off: counters that begin anew are traced on only if that bit is set too. The
    /// samples are read by [`statistics_trace`](Self::statistics_trace).
    ///
    /// # Errors
    /// See [`Management`].
    pub fn control_statistics(&self, of: StatsKind, control: u32) -> Result<()> {
        let command = StatsRun { r#type: u32::from(of).into(), control: control.into() };
        self.call(calls::SET_STATS_RUN_CONTROL, &command, "controlling statistics").map(drop)
    }

    /// Switches the trace of the service processor by bits of
    /// [`TraceControl`](et_devapi::msg::mgmt::TraceControl). What is not set is off. The trace is
    /// read by [`firmware_trace`](Self::firmware_trace).
    ///
    /// # Errors
    /// See [`Management`].
    pub fn control_trace(&self, control: u32) -> Result<()> {
        let command = StatusWord { status: control.into(), pad: [0; 4] };
        self.call(calls::SET_DM_TRACE_RUN_CONTROL, &command, "controlling the trace").map(drop)
    }

    /// Sets what the service processor traces: bits of
    /// [`TraceEvents`], and the greatest level of text, a number
    /// of [`TraceFilter`](et_devapi::msg::mgmt::TraceFilter), in the lowest 8 bits of the filter.
    /// [`set_trace_level`](Self::set_trace_level) sets both.
    ///
    /// # Errors
    /// See [`Management`].
    ///
    /// Spec: §16.2, §17.3
    pub fn configure_trace(&self, events: u32, filter: u32) -> Result<()> {
        let masks = TraceMasks { event_mask: events.into(), filter_mask: filter.into() };
        self.call(calls::SET_DM_TRACE_CONFIG, &masks, "configuring the trace")?;
        if let Way::Own(link) = &self.way {
            let is_all = events == TraceEvents::ALL;
            let asked = u8::try_from(filter & 0xff).unwrap_or(DEBUG).min(DEBUG);
            let level = if is_all { DEBUG } else { asked };
            link.trace_level.store(level, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has a test build of the firmware send each of its events; others do nothing.
    ///
    /// # Errors
    /// See [`Management`].
    pub fn send_test_events(&self) -> Result<()> {
        self.get(calls::GET_DEVICE_ERROR_EVENTS, "asking for events").map(drop)
    }

    /// Resets the operations endpoint: whatever it does is lost, device memory stays. Returns the
    /// errors of the master minion.
    ///
    /// An open device does not notice: use [`Device::reset_operations`](crate::Device) for one.
    ///
    /// # Errors
    /// See [`Management`].
    ///
    /// Spec: §18
    pub fn reset_operations(&self) -> Result<MinionErrors> {
        Ok(self.get(calls::MM_RESET, "operations reset")?.into())
    }

    /// Resets the whole chip. There is no answer, and the card is gone for a while: the backend has
    /// to be opened, or reset, anew. An open device is better reset by
    /// [`Device::reset_chip`](crate::Device).
    ///
    /// # Errors
    /// See [`Management`].
    ///
    /// Spec: §18
    pub fn reset_chip(&self) -> Result<()> {
        let op = "chip reset";
        self.way.own(op)?.tell(calls::RESET_ETSOC.id, &[0; 8], op)
    }
}
