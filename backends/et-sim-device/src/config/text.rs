//! The text form of a board's configuration.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use et_devapi::options::key_values;
use et_sim_cores::{CreditAbort, Execution, FloatProfile, Timing};

use super::{
    BoardConfig, Check, ComputeKind, ConfigError, Count, CpuAccess, DmaCoherence, MemoryKind,
    StackGuards,
};
use crate::Fault;

/// An option that the text form has.
struct Key {
    name: &'static str,
    /// What its value must be.
    expected: &'static str,
    /// Sets the option; `None` if the value does not suit.
    set: fn(&mut BoardConfig, &str) -> Option<()>,
    show: fn(&BoardConfig) -> String,
}

/// The one option that may be repeated; it is not among the [`KEYS`].
const FAULT: &str = "fault";

/// Defines a key whose values are words for the values of a field.
macro_rules! words {
    ($name:literal, $expected:literal, $field:ident: $($word:literal => $value:expr),+) => {
        Key {
            name: $name,
            expected: $expected,
            set: |config, text| {
                config.$field = match text {
                    $($word => $value,)+
                    _ => return None,
                };
                Some(())
            },
            show: |config| {
                let words = [$(($value, $word)),+];
                let word = words.into_iter().find(|(value, _)| *value == config.$field);
                word.map_or("", |(_, word)| word).to_owned()
            },
        }
    };
}

/// Defines a key whose value a function reads and another shows.
macro_rules! value {
    ($name:literal, $expected:expr, $field:ident: $read:expr, $show:expr) => {
        Key {
            name: $name,
            expected: $expected,
            set: |config, text| {
                config.$field = $read(text)?;
                Some(())
            },
            show: |config| $show(config.$field),
        }
    };
}

const SHIRES: &str = "1 to 32 compute shires, 33 for the master shire too, or a mask as 0x…";

const KEYS: &[Key] = &[
    value!("shires", SHIRES, shires: shires, |mask| format!("{mask:#x}")),
    value!("dram", "a size as 8GiB", dram_bytes: bytes, |bytes: u64| bytes.to_string()),
    value!("threads", "a number above 0", host_threads: parsed, |n: NonZeroUsize| n.to_string()),
    words!("compute", "cores or null", compute:
        "cores" => ComputeKind::Cores, "null" => ComputeKind::Null),
    words!("float", "hardware or ieee", float:
        "hardware" => FloatProfile::Hardware, "ieee" => FloatProfile::IeeeStandard),
    words!("timing", "host or deterministic", timing:
        "host" => Timing::HostClock, "deterministic" => Timing::Deterministic),
    words!("memory", "flat, private or weak", memory:
        "flat" => MemoryKind::Flat, "private" => MemoryKind::Private, "weak" => MemoryKind::Weak),
    words!("coherent", "yes or no", coherence:
        "yes" => DmaCoherence::Coherent, "no" => DmaCoherence::NonCoherent),
    words!("cpu-access", "yes or no", cpu_access:
        "yes" => CpuAccess::Granted, "no" => CpuAccess::Denied),
    words!("stack-guards", "default or none", stack_guards:
        "default" => StackGuards::Default, "none" => StackGuards::None),
    words!("check", "none, memory or races", check:
        "none" => Check::None, "memory" => Check::Memory, "races" => Check::Races),
    words!("count", "none or instructions", count:
        "none" => Count::None, "instructions" => Count::Instructions),
    words!("execution", "translated or interpreted", execution:
        "translated" => Execution::Translated, "interpreted" => Execution::Interpreted),
    words!("credit-abort", "yes or no", credit_abort:
        "yes" => CreditAbort::Ends, "no" => CreditAbort::Waits),
    value!("ack-timeout", "microseconds", ack_timeout: micros, show_micros),
    value!("mhz", "a number", frequency_mhz: parsed, |mhz: u32| mhz.to_string()),
    Key {
        name: "serial",
        expected: "up to 255 bytes of text",
        set: |config, text| {
            config.serial = (text.len() < 256).then(|| text.to_owned())?;
            Some(())
        },
        show: |config| config.serial.clone(),
    },
    value!("part", "a number", part_number: small, |part: u32| format!("{part:#x}")),
    value!("temperature", "°C from 0 to 255", temperature_c: parsed, |c: u8| c.to_string()),
    value!("power", "milliwatts", power_mw: parsed, |mw: u16| mw.to_string()),
    value!("tdp", "watts from 0 to 255", tdp_watts: parsed, |watts: u8| watts.to_string()),
    value!("heat", "milliseconds", heat: millis, |time: Duration| time.as_millis().to_string()),
    value!("boot-step", "microseconds", boot_step: micros, show_micros),
    value!("spin", "microseconds", spin: micros, show_micros),
    value!("seed", "a number", seed: number, |seed: u64| seed.to_string()),
];

impl BoardConfig {
    /// Returns the keys of the text form.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.name).chain([FAULT])
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        if name == FAULT {
            self.faults.push(value.parse::<Fault>()?);
            return Ok(());
        }
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Err(ConfigError::UnknownKey { key: name.to_owned() });
        };
        (key.set)(self, value).ok_or_else(|| ConfigError::BadValue {
            key: name.to_owned(),
            value: value.to_owned(),
            expected: key.expected,
        })
    }
}

impl FromStr for BoardConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for item in key_values(text) {
            let (key, value) = item.map_err(|item| ConfigError::NoValue { item: item.into() })?;
            config.set(key, value)?;
        }
        config.validate()?;
        Ok(config)
    }
}

/// What is not as by default.
impl fmt::Display for BoardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let keys = KEYS.iter().map(|key| (key.name, (key.show)(self), (key.show)(&default)));
        let others = keys.filter(|(_, value, default)| value != default);
        let others = others.map(|(name, value, _)| (name, value));
        let faults = self.faults.iter().map(|fault| (FAULT, fault.to_string()));
        for (number, (name, value)) in others.chain(faults).enumerate() {
            let separator = if number == 0 { "" } else { "," };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

/// Returns the keys as an error message lists them.
pub(super) fn key_list() -> String {
    BoardConfig::keys().collect::<Vec<_>>().join(", ")
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn small(text: &str) -> Option<u32> {
    number(text)?.try_into().ok()
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

fn micros(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_micros)
}

fn show_micros(time: Duration) -> String {
    time.as_micros().to_string()
}

fn shires(text: &str) -> Option<u64> {
    let value = number(text)?;
    if text.starts_with("0x") {
        return Some(value);
    }
    (1..=33).contains(&value).then(|| (1 << value) - 1)
}

fn bytes(text: &str) -> Option<u64> {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if let Some(count) = text.strip_suffix(unit) {
            return count.trim().parse::<u64>().ok()?.checked_mul(factor);
        }
    }
    number(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_text_is_the_default_board() {
        assert_eq!("".parse(), Ok(BoardConfig::default()));
    }

    #[test]
    fn every_key_is_understood() {
        let text = "shires=0x10000000f, dram=1GiB, threads=2, compute=null, float=ieee, \
                    timing=deterministic, memory=weak, coherent=no, cpu-access=yes, stack-guards=none, check=memory, \
                    count=instructions, execution=interpreted, \
                    mhz=700, serial=A-7, part=0x12, temperature=50, power=9000, tdp=30, heat=10, \
                    boot-step=5, credit-abort=no, ack-timeout=50, spin=10, seed=0xff, fault=noise, fault=hang:3";
        let config: BoardConfig = text.parse().unwrap();
        assert_eq!(config.shires, 0x1_0000_000f);
        assert_eq!(config.dram_bytes, 1 << 30);
        assert_eq!(config.host_threads.get(), 2);
        assert_eq!(config.compute, ComputeKind::Null);
        assert_eq!(config.float, FloatProfile::IeeeStandard);
        assert_eq!(config.timing, Timing::Deterministic);
        assert_eq!(config.memory, MemoryKind::Weak);
        assert_eq!(config.coherence, DmaCoherence::NonCoherent);
        assert_eq!(config.cpu_access, CpuAccess::Granted);
        assert_eq!(config.stack_guards, StackGuards::None);
        assert_eq!(config.check, Check::Memory);
        assert_eq!(config.count, Count::Instructions);
        assert_eq!(config.execution, Execution::Interpreted);
        assert_eq!(config.credit_abort, CreditAbort::Waits);
        assert_eq!(config.ack_timeout, Duration::from_micros(50));
        assert_eq!(config.frequency_mhz, 700);
        assert_eq!((config.serial.as_str(), config.part_number), ("A-7", 0x12));
        assert_eq!((config.temperature_c, config.power_mw, config.tdp_watts), (50, 9000, 30));
        assert_eq!(config.heat, Duration::from_millis(10));
        assert_eq!(config.boot_step, Duration::from_micros(5));
        assert_eq!(config.spin, Duration::from_micros(10));
        assert_eq!(config.seed, 255);
        assert_eq!(config.faults, [Fault::Noise, Fault::Hang { after: 3 }]);
        assert_eq!(config.to_string().parse(), Ok(config));
        assert!(BoardConfig::keys().all(|key| text.contains(&format!("{key}="))));
    }

    #[test]
    fn shires_are_counted_from_the_first_and_the_master_shire_is_the_last() {
        let shires = |text: &str| text.parse::<BoardConfig>().unwrap().shires;
        assert_eq!(shires("shires=1"), 1);
        assert_eq!(shires("shires=32"), 0xffff_ffff);
        assert_eq!(shires("shires=33"), BoardConfig::ALL_SHIRES);
        let error = "shires=34".parse::<BoardConfig>().unwrap_err().to_string();
        assert!(error.contains("32 compute shires, 33 for the master shire too"), "{error}");
    }

    #[test]
    fn the_default_survives_its_text_form() {
        let config = BoardConfig::default();
        assert_eq!(config.to_string().parse(), Ok(config));
    }

    #[test]
    fn errors_say_what_is_possible() {
        let error = |text: &str| text.parse::<BoardConfig>().unwrap_err();
        assert!(error("shire=1").to_string().contains("keys are shires, dram"));
        assert!(error("dram").to_string().contains("key=value"));
        assert!(error("memory=strong").to_string().contains("flat, private or weak"));
        assert!(error("compute=gpu").to_string().contains("cores or null"));
        assert!(matches!(error("fault=x"), ConfigError::Fault(_)));
        assert!(matches!(error("dram=1MiB"), ConfigError::Dram { .. }));
        for text in ["shires=0", "shires=34", "dram=x", "dram=99999999999GiB", "threads=0"] {
            assert!(matches!(error(text), ConfigError::BadValue { .. }), "{text}");
        }
    }
}
