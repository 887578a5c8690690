//! The text form of a board's configuration.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use et_sim_device::{
    BoardConfig, ComputeKind, ConfigError, Fault, FloatProfile, MemoryKind, ParseFaultError, Timing,
};

/// Which board to simulate.
///
/// The text form is a list of `key=value`, separated by commas; what is not named keeps its default.
///
/// | Key | Value |
/// |---|---|
/// | `shires` | number of shires from 1 to 33, or their mask as `0x…` |
/// | `dram` | installed memory, as `8GiB`, `512MiB` or bytes |
/// | `threads` | host threads that execute kernels |
/// | `compute` | `cores`, or `null` for kernels that end at once |
/// | `float` | `hardware`, or `ieee` to execute what traps on the silicon |
/// | `timing` | `host`, or `deterministic` for one thread and a clock of instructions |
/// | `memory` | `flat`, or `weak` for caches that are not coherent, in an order that `seed` decides |
/// | `mhz` | minion clock |
/// | `boot-step` | microseconds from one boot status to the next |
/// | `spin` | microseconds the firmware looks for work before it sleeps |
/// | `seed` | seed of everything random: noise of faults, order of events on weak memory |
/// | `fault` | something the device does wrong, see [`Fault`]; may be repeated |
///
/// # Examples
///
/// ```
/// let config: et_hal_sim::SimConfig = "shires=4,dram=1GiB,compute=null".parse()?;
/// assert_eq!(config.board().shires, 0b1111);
/// # Ok::<(), et_hal_sim::SimConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SimConfig {
    board: BoardConfig,
}

/// The keys of the text form.
pub const KEYS: &[&str] = &[
    "shires",
    "dram",
    "threads",
    "compute",
    "float",
    "timing",
    "memory",
    "mhz",
    "boot-step",
    "spin",
    "seed",
    "fault",
];

impl SimConfig {
    /// Returns the configuration of the board.
    #[must_use]
    pub fn board(&self) -> &BoardConfig {
        &self.board
    }

    /// Returns the configuration of the board.
    #[must_use]
    pub fn into_board(self) -> BoardConfig {
        self.board
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SimConfigError> {
        let bad = |expected| SimConfigError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let board = &mut self.board;
        match key {
            "shires" => {
                board.shires = shires(value).ok_or_else(|| bad("1 to 33, or a mask as 0x…"))?;
            }
            "dram" => board.dram_bytes = bytes(value).ok_or_else(|| bad("a size as 8GiB"))?,
            "threads" => {
                let threads = value.parse::<NonZeroUsize>();
                board.host_threads = threads.map_err(|_| bad("a number above 0"))?;
            }
            "compute" => {
                board.compute = match value {
                    "cores" => ComputeKind::Cores,
                    "null" => ComputeKind::Null,
                    _ => return Err(bad("cores or null")),
                };
            }
            "float" => {
                board.float = match value {
                    "hardware" => FloatProfile::Hardware,
                    "ieee" => FloatProfile::IeeeStandard,
                    _ => return Err(bad("hardware or ieee")),
                };
            }
            "timing" => {
                board.timing = match value {
                    "host" => Timing::HostClock,
                    "deterministic" => Timing::Deterministic,
                    _ => return Err(bad("host or deterministic")),
                };
            }
            "memory" => {
                board.memory = match value {
                    "flat" => MemoryKind::Flat,
                    "weak" => MemoryKind::Weak,
                    _ => return Err(bad("flat or weak")),
                };
            }
            "mhz" => board.frequency_mhz = value.parse().map_err(|_| bad("a number"))?,
            "boot-step" => board.boot_step = micros(value).ok_or_else(|| bad("microseconds"))?,
            "spin" => board.spin = micros(value).ok_or_else(|| bad("microseconds"))?,
            "seed" => board.seed = number(value).ok_or_else(|| bad("a number"))?,
            "fault" => board.faults.push(value.parse::<Fault>()?),
            _ => return Err(SimConfigError::UnknownKey { key: key.to_owned() }),
        }
        Ok(())
    }
}

impl From<BoardConfig> for SimConfig {
    fn from(board: BoardConfig) -> Self {
        Self { board }
    }
}

impl FromStr for SimConfig {
    type Err = SimConfigError;

    fn from_str(text: &str) -> Result<Self, SimConfigError> {
        let mut config = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| SimConfigError::NoValue { item: item.to_owned() })?;
            config.set(key.trim(), value.trim())?;
        }
        config.board.validate()?;
        Ok(config)
    }
}

impl fmt::Display for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = &self.board;
        let compute = if board.compute == ComputeKind::Null { "null" } else { "cores" };
        write!(f, "shires={:#x},dram={}", board.shires, board.dram_bytes)?;
        let float = if board.float == FloatProfile::Hardware { "hardware" } else { "ieee" };
        let timing = if board.timing == Timing::HostClock { "host" } else { "deterministic" };
        write!(f, ",threads={},compute={compute}", board.host_threads)?;
        let memory = if board.memory == MemoryKind::Flat { "flat" } else { "weak" };
        write!(f, ",float={float},timing={timing},memory={memory}")?;
        write!(f, ",mhz={},boot-step={}", board.frequency_mhz, board.boot_step.as_micros())?;
        write!(f, ",spin={},seed={}", board.spin.as_micros(), board.seed)?;
        board.faults.iter().try_for_each(|fault| write!(f, ",fault={fault}"))
    }
}

/// A text that describes no board.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimConfigError {
    /// There is no such key.
    #[error("unknown key \"{key}\"; keys are {}", KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// An item is not of the form `key=value`.
    #[error("\"{item}\" is not of the form key=value; keys are {}", KEYS.join(", "))]
    NoValue {
        /// The item.
        item: String,
    },
    /// The value does not suit the key.
    #[error("\"{value}\" is no value for {key}: must be {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// There is no such fault.
    #[error("unknown fault")]
    Fault(#[from] ParseFaultError),
    /// The values do not make a board.
    #[error("no such board")]
    Board(#[from] ConfigError),
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn micros(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_micros)
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
        assert_eq!("".parse(), Ok(SimConfig::default()));
    }

    #[test]
    fn every_key_is_understood() {
        let text = "shires=0x10000000f, dram=1GiB, threads=2, compute=null, float=ieee, \
                    timing=deterministic, memory=weak, mhz=700, boot-step=5, spin=10, seed=0xff, \
                    fault=noise, fault=hang:3";
        let config: SimConfig = text.parse().unwrap();
        let board = config.board();
        assert_eq!(board.shires, 0x1_0000_000f);
        assert_eq!(board.dram_bytes, 1 << 30);
        assert_eq!(board.host_threads.get(), 2);
        assert_eq!(board.compute, ComputeKind::Null);
        assert_eq!(board.float, FloatProfile::IeeeStandard);
        assert_eq!(board.timing, Timing::Deterministic);
        assert_eq!(board.memory, MemoryKind::Weak);
        assert_eq!(board.frequency_mhz, 700);
        assert_eq!(board.boot_step, Duration::from_micros(5));
        assert_eq!(board.spin, Duration::from_micros(10));
        assert_eq!(board.seed, 255);
        assert_eq!(board.faults, [Fault::Noise, Fault::Hang { after: 3 }]);
        assert_eq!(config.to_string().parse(), Ok(config));
        assert!(KEYS.iter().all(|key| text.contains(&format!("{key}="))));
    }

    #[test]
    fn errors_say_what_is_possible() {
        let error = |text: &str| text.parse::<SimConfig>().unwrap_err();
        assert!(error("shire=1").to_string().contains("keys are shires, dram"));
        assert!(error("dram").to_string().contains("key=value"));
        assert!(error("memory=strong").to_string().contains("flat or weak"));
        assert!(error("compute=gpu").to_string().contains("cores or null"));
        assert!(matches!(error("fault=x"), SimConfigError::Fault(_)));
        assert!(matches!(error("dram=1MiB"), SimConfigError::Board(_)));
        for text in ["shires=0", "shires=34", "dram=x", "dram=99999999999GiB", "threads=0"] {
            assert!(matches!(error(text), SimConfigError::BadValue { .. }), "{text}");
        }
    }
}
