//! Statistics as a list, for programs that print or record them.

use et_devapi::msg::mgmt::{Extremes, MmStats, SpStats, WideExtremes};
use et_devapi::trace::{Body, CustomPayload, Entry};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// mW.
    Milliwatts,
    /// °C.
    Celsius,
    /// mV.
    Millivolts,
    /// MHz.
    Megahertz,
    /// %.
    Percent,
    /// MB/s.
    MegabytesPerSecond,
}

impl Unit {
    /// Returns the usual sign.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Milliwatts => "mW",
            Self::Celsius => "°C",
            Self::Millivolts => "mV",
            Self::Megahertz => "MHz",
            Self::Percent => "%",
            Self::MegabytesPerSecond => "MB/s",
        }
    }
}

/// A value over the time since statistics began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistic {
    /// Of what, as `minion_power`.
    pub name: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// Average.
    pub average: u64,
    /// Least.
    pub least: u64,
    /// Greatest.
    pub greatest: u64,
}

impl Statistic {
    /// Returns the values of an entry of a [statistics
    /// trace](super::Management::statistics_trace), those of the command for
    /// [statistics](super::Management::statistics) at its time; none for an entry of another kind.
    ///
    /// The layout is that of the simulated card: see [`CustomPayload`].
    #[must_use]
    pub fn of_entry(entry: &Entry<'_>) -> Vec<Self> {
        let Body::Custom(event, bytes) = entry.body else { return Vec::new() };
        match event.payload(bytes) {
            CustomPayload::OpStats(stats) => of_service_processor(stats),
            CustomPayload::ComputeResources(stats) => of_master_minion(stats),
            _ => Vec::new(),
        }
    }
}

trait Values {
    fn values(&self) -> [u64; 3];
}

impl Values for Extremes {
    fn values(&self) -> [u64; 3] {
        [self.avg, self.min, self.max].map(|value| value.get().into())
    }
}

impl Values for WideExtremes {
    fn values(&self) -> [u64; 3] {
        [self.avg, self.min, self.max].map(zerocopy::little_endian::U64::get)
    }
}

macro_rules! list {
    ($stats:ident: $($field:ident $unit:ident,)*) => {
        vec![$({
            let [average, least, greatest] = $stats.$field.values();
            Statistic { name: stringify!($field), unit: Unit::$unit, average, least, greatest }
        }),*]
    };
}

pub(super) fn of_service_processor(stats: &SpStats) -> Vec<Statistic> {
    list! { stats:
        system_power Milliwatts,
        system_temperature Celsius,
        minion_power Milliwatts,
        minion_temperature Celsius,
        minion_voltage Millivolts,
        minion_freq Megahertz,
        sram_power Milliwatts,
        sram_temperature Celsius,
        sram_voltage Millivolts,
        sram_freq Megahertz,
        noc_power Milliwatts,
        noc_temperature Celsius,
        noc_voltage Millivolts,
        noc_freq Megahertz,
    }
}

pub(super) fn of_master_minion(stats: &MmStats) -> Vec<Statistic> {
    list! { stats:
        cm_utilization Percent,
        cm_bw MegabytesPerSecond,
        pcie_dma_read_bw MegabytesPerSecond,
        pcie_dma_write_bw MegabytesPerSecond,
        pcie_dma_read_utilization Percent,
        pcie_dma_write_utilization Percent,
        ddr_read_bw MegabytesPerSecond,
        ddr_write_bw MegabytesPerSecond,
        l2_l3_read_bw MegabytesPerSecond,
        l2_l3_write_bw MegabytesPerSecond,
    }
}
