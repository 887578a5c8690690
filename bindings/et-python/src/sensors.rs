//! What the service processor says, with units in the names.

use et::management as from;
use pyo3::prelude::*;

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[pyclass(frozen, get_all, eq, module = "et")]
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $($(#[$fdoc])* $field: $type,)*
        }

        #[pymethods]
        impl $name {
            fn __repr__(&self) -> String {
                format!("{self:?}")
            }
        }

        impl From<from::$name> for $name {
            fn from(from: from::$name) -> Self {
                Self { $($field: from.$field,)* }
            }
        }
    )*};
}

values! {
    /// Temperatures in °C.
    Temperatures {
        /// Minion shires, average.
        minion_average_c: i16,
        /// Minion shires, lowest.
        minion_lowest_c: i16,
        /// Minion shires, highest.
        minion_highest_c: i16,
        /// I/O shire, now.
        io_shire_c: i16,
        /// I/O shire, lowest.
        io_shire_lowest_c: i16,
        /// I/O shire, highest.
        io_shire_highest_c: i16,
        /// Power management controller.
        power_controller_c: u8,
    }
    /// Voltages in mV, as measured in the chip.
    AsicVoltages {
        /// Memory.
        ddr_mv: u16,
        /// L2 caches.
        l2_cache_mv: u16,
        /// Maxions.
        maxion_mv: u16,
        /// Minions.
        minion_mv: u16,
        /// PCIe shire.
        pcie_shire_mv: u16,
        /// Network on chip.
        noc_mv: u16,
        /// I/O shire.
        io_shire_mv: u16,
        /// VDDQLP.
        vddqlp_mv: u16,
        /// VDDQ.
        vddq_mv: u16,
    }
    /// Clocks in MHz.
    Frequencies {
        /// Minion shires.
        minion_mhz: u32,
        /// Network on chip.
        noc_mhz: u32,
        /// Memory shires.
        memory_shire_mhz: u32,
        /// Memory.
        ddr_mhz: u32,
        /// PCIe shire.
        pcie_shire_mhz: u32,
        /// I/O shire.
        io_shire_mhz: u32,
    }
    /// Errors that error correction has found.
    ErrorCounts {
        /// Corrected ones.
        corrected: u32,
        /// Uncorrectable ones.
        uncorrectable: u32,
    }
    /// Errors of the master minion.
    MinionErrors {
        /// Hangs.
        hangs: u32,
        /// Exceptions.
        exceptions: u32,
    }
    /// Requests to the memory.
    MemoryRate {
        /// Reads in a second.
        reads_per_s: u32,
        /// Writes in a second.
        writes_per_s: u32,
    }
    /// How the memory of each shire is divided, in KiB.
    CacheConfig {
        /// Scratchpad.
        scratchpad_kib: u16,
        /// Its part of the L2 cache.
        l2_kib: u16,
        /// Its part of the L3 cache.
        l3_kib: u16,
    }
    /// Counts of what has come from the service processor since it was opened.
    ManagementCounters {
        /// Responses that no command waits for; they are ignored.
        stray_responses: u64,
        /// Messages that are none of the interface; they are ignored.
        malformed_messages: u64,
        /// Events.
        events: u64,
        /// Events that were dropped here, because no one took them.
        events_lost: u64,
        /// Times the queue was found full, so that the service processor may have dropped events.
        full_queues: u64,
    }
}

/// How long the device was in a state, in seconds.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Residency {
    /// In all.
    total: f64,
    /// Average of a stay.
    average: f64,
    /// Longest stay.
    longest: f64,
    /// Shortest stay.
    shortest: f64,
}

impl From<from::Residency> for Residency {
    fn from(from: from::Residency) -> Self {
        Self {
            total: from.total.as_secs_f64(),
            average: from.average.as_secs_f64(),
            longest: from.longest.as_secs_f64(),
            shortest: from.shortest.as_secs_f64(),
        }
    }
}

/// A value over the time since statistics began.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statistic {
    /// Of what, as `"minion_power"`.
    name: &'static str,
    /// Sign of the unit.
    unit: &'static str,
    /// Average.
    average: u64,
    /// Least.
    least: u64,
    /// Greatest.
    greatest: u64,
}

impl From<from::Statistic> for Statistic {
    fn from(from: from::Statistic) -> Self {
        Self {
            name: from.name,
            unit: from.unit.symbol(),
            average: from.average,
            least: from.least,
            greatest: from.greatest,
        }
    }
}

/// Something that the card has announced by itself.
#[pyclass(frozen, get_all, eq, module = "et")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CardEvent {
    /// What has happened.
    name: String,
    /// How bad it is.
    severity: String,
    /// How often.
    count: u16,
    /// Two numbers whose meaning depends on the kind.
    syndromes: [u64; 2],
    /// When it was seen, in seconds of the device's clock on the host.
    seen: f64,
}

impl From<from::ManagementEvent> for CardEvent {
    fn from(from: from::ManagementEvent) -> Self {
        let seen = from.seen.as_secs_f64();
        match from.kind {
            from::ManagementEventKind::Card(event) => Self {
                name: event.id.to_string(),
                severity: event.class.to_string(),
                count: event.count,
                syndromes: event.syndromes,
                seen,
            },
            // Nothing here sets breakpoints.
            other => Self {
                name: format!("{other:?}"),
                severity: "info".to_owned(),
                count: 1,
                syndromes: [0; 2],
                seen,
            },
        }
    }
}

#[pymethods]
impl Residency {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl Statistic {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl CardEvent {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
