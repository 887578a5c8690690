//! What board to simulate.

mod text;

use std::num::NonZeroUsize;
use std::time::Duration;

use et_sim_cores::{CreditAbort, Execution, FloatProfile, Timing};

use crate::{Fault, ParseFaultError};

/// What executes kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ComputeKind {
    /// The simulated RISC-V cores.
    #[default]
    Cores,
    /// Nothing: every kernel ends at once and successfully. To measure host software, and to test
    /// it where no kernel is at hand.
    Null,
}

/// When what a hart writes becomes visible to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// At once: there are no caches.
    #[default]
    Flat,
    /// When it leaves the cache of its shire, or is written past it; see
    /// [`MemoryModel::Private`](et_sim_cores::MemoryModel::Private).
    Private,
    /// As late and as much out of order as the instruction set allows, drawn with
    /// [`BoardConfig::seed`]; see [`MemoryModel::Weak`](et_sim_cores::MemoryModel::Weak). One host
    /// thread executes all harts then, and the cycle counter counts instructions.
    Weak,
}

/// Whether what the host writes to DMA memory is what the device sees there, and the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DmaCoherence {
    /// At once.
    #[default]
    Coherent,
    /// After a synchronisation in the right direction, as with caches that do not look at the bus.
    /// For hosts in the same process; another process brings memory of its own kind.
    NonCoherent,
}

/// What a kernel meets at the end of its default stack of 4160 bytes.
///
/// A custom stack is as large as the launch says, and never guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StackGuards {
    /// The last 64 bytes trap for every hart: 4 KiB can be used.
    #[default]
    Default,
    /// The stack of the next hart, as on the card.
    None,
}

/// What is checked while kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Check {
    /// Nothing: an access works, or traps, as on the card.
    #[default]
    None,
    /// Every access of a kernel to DRAM. It traps if it is outside of every buffer that the host
    /// has announced, in one that is freed, writes code, or reads what nothing has written; see
    /// [`Board::watch_memory`](crate::Board::watch_memory). Kernels are slower by far.
    Memory,
    /// The same, and whether accesses of several harts to the same bytes are ordered, and see what
    /// the ones before have written: `et_isa::Race`. The memory is weak then, whatever
    /// [`BoardConfig::memory`] says. Kernels are slower still.
    Races,
}

/// What is counted while kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Count {
    /// Nothing but how many instructions there were.
    #[default]
    None,
    /// How often each instruction was executed, for
    /// [`Board::take_executed`](crate::Board::take_executed). Kernels are slower then.
    Instructions,
}

/// Whether the registers let the host's processors use device memory through BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CpuAccess {
    /// No: `io_access` of the region is 0, as on the card. The BAR is for other devices.
    #[default]
    Denied,
    /// Yes. The vendor's driver refuses such registers.
    Granted,
}

/// A board to be simulated.
///
/// Start from [`Default`] and change what matters; [`validate`](Self::validate) is called by
/// [`Board::power_on`](crate::Board::power_on).
///
/// The text form is a list of `key=value`, separated by commas; what is not named keeps its
/// default.
///
/// | Key | Value |
/// |---|---|
/// | `shires` | number of compute shires, 33 for the master shire too, or a mask as `0x…` |
/// | `dram` | installed memory, as `8GiB`, `512MiB` or bytes |
/// | `threads` | host threads that execute kernels |
/// | `compute` | `cores`, or `null` for kernels that end at once |
/// | `float` | `hardware`, or `ieee` to execute what traps on the silicon |
/// | `timing` | `host`, or `deterministic` for one thread and a clock of instructions |
/// | `memory` | `flat`, `private` caches of shires, or `weak`: incoherent, as `seed` decides |
/// | `coherent` | `yes`, or `no` for DMA memory that has to be synchronised |
/// | `cpu-access` | `no`, or `yes` for registers that let the host use device memory |
/// | `stack-guards` | `default`, or `none` for default stacks that run into one another |
/// | `check` | `none`, or `memory` for kernels that trap when they touch what is in no buffer |
/// | `count` | `none`, or `instructions` for how often each of them was executed |
/// | `execution` | `translated` to code of the host where it is hot, or `interpreted` |
/// | `credit-abort` | `yes`, or `no` for aborts that do not reach harts waiting for a credit |
/// | `ack-timeout` | microseconds until the firmware gives up on such harts |
/// | `mhz` | minion clock |
/// | `serial` | serial number of the module |
/// | `part` | part number of the module |
/// | `temperature` | °C of a card that does nothing |
/// | `power` | milliwatts of a card that does nothing |
/// | `tdp` | thermal design power in watts |
/// | `heat` | milliseconds in which the temperature comes nearer to its end by two thirds |
/// | `boot-step` | microseconds from one boot status to the next |
/// | `spin` | microseconds the firmware looks for work before it sleeps |
/// | `seed` | seed of everything random: noise of faults, order of events on weak memory |
/// | `fault` | something the device does wrong, see [`Fault`]; may be repeated |
///
/// # Examples
///
/// ```
/// let config: et_sim_device::BoardConfig = "shires=4,dram=1GiB,compute=null".parse()?;
/// assert_eq!(config.shires, 0b1111);
/// # Ok::<(), et_sim_device::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardConfig {
    /// Installed DRAM in bytes: a multiple of 2 MiB, at least 128 MiB, at most 32 GiB. The host
    /// gives memory only for what is touched. Spec: §12
    pub dram_bytes: u64,
    /// Shires that booted: bits 0 to 31 are compute shires, bit 32 is the master shire, of which
    /// half the harts run kernels.
    ///
    /// The registers name compute shires only, so a host that goes by them sees 32 of the 33 shires
    /// of a whole chip, and launches on 2048 of its 2080 harts. Firmware takes bit 32 all the same.
    /// Spec: §3.3, §9.3, §14
    pub shires: u64,
    /// Host threads that execute kernels.
    pub host_threads: NonZeroUsize,
    /// What executes kernels.
    pub compute: ComputeKind,
    /// What floating-point instructions do where the silicon departs from the standard.
    pub float: FloatProfile,
    /// Where the cycle counter of the cores and their order of execution come from.
    pub timing: Timing,
    /// When writes of kernels become visible. Before a launch is reported they all are. Spec: §8,
    /// §9.4
    pub memory: MemoryKind,
    /// Whether DMA memory is coherent.
    pub coherence: DmaCoherence,
    /// Whether the registers let the host use device memory. Spec: §3.5, §3.6
    pub cpu_access: CpuAccess,
    /// Whether default stacks end in a line that traps.
    pub stack_guards: StackGuards,
    /// What is checked while kernels run.
    pub check: Check,
    /// What is counted while kernels run.
    pub count: Count,
    /// How the cores execute code.
    pub execution: Execution,
    /// Whether an abort reaches harts that wait for a credit.
    pub credit_abort: CreditAbort,
    /// How long the firmware waits for harts that sleep to acknowledge an abort, before it gives
    /// the cores up until a compute reset. Spec: §9.3, §9.4
    pub ack_timeout: Duration,
    /// Minion clock, in MHz: the unit of every time in responses.
    pub frequency_mhz: u32,
    /// Serial number of the module, up to 255 bytes of text without commas.
    pub serial: String,
    /// Part number of the module.
    pub part_number: u32,
    /// Temperature of a card that does nothing, in °C.
    pub temperature_c: u8,
    /// Power of a card that does nothing, in mW.
    pub power_mw: u16,
    /// Thermal design power in watts: what a card takes whose cores work.
    pub tdp_watts: u8,
    /// Time in which the temperature comes nearer to where it goes by two thirds.
    pub heat: Duration,
    /// Time from one boot status to the next; zero boots in microseconds.
    pub boot_step: Duration,
    /// The boot stops before the BARs are opened until [`Board::set_host_ready`], as on a bus.
    ///
    /// [`Board::set_host_ready`]: crate::Board::set_host_ready
    pub waits_for_host: bool,
    /// How long the firmware thread keeps looking for work before it goes to sleep.
    pub spin: Duration,
    /// What the device does wrong.
    pub faults: Vec<Fault>,
    /// Seed of everything random: noise in messages, and the order of events on weak memory.
    pub seed: u64,
}

impl BoardConfig {
    /// Shires of a complete chip: 32 compute shires and the master shire.
    pub const ALL_SHIRES: u64 = (1 << 33) - 1;
    /// Largest DRAM the firmware accepts. Spec: §4
    pub const MAX_DRAM_BYTES: u64 = 32 << 30;
    /// Smallest DRAM: the firmware's own areas and some for the host.
    pub const MIN_DRAM_BYTES: u64 = 128 << 20;
    /// DRAM sizes are multiples of this.
    pub const DRAM_STEP_BYTES: u64 = 2 << 20;

    /// Returns the memory that kernels get.
    #[must_use]
    pub fn effective_memory(&self) -> MemoryKind {
        if self.check == Check::Races { MemoryKind::Weak } else { self.memory }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self { dram_bytes, shires, frequency_mhz, .. } = *self;
        if !(Self::MIN_DRAM_BYTES..=Self::MAX_DRAM_BYTES).contains(&dram_bytes)
            || dram_bytes % Self::DRAM_STEP_BYTES != 0
        {
            return Err(ConfigError::Dram { bytes: dram_bytes });
        }
        if shires & Self::ALL_SHIRES & 0xffff_ffff == 0 || shires & !Self::ALL_SHIRES != 0 {
            return Err(ConfigError::Shires { mask: shires });
        }
        if !(1..=10_000).contains(&frequency_mhz) {
            return Err(ConfigError::Frequency { mhz: frequency_mhz });
        }
        if self.spin > Duration::from_secs(1) {
            return Err(ConfigError::Spin { spin: self.spin });
        }
        if self.boot_step > Duration::from_secs(60) {
            return Err(ConfigError::BootStep { step: self.boot_step });
        }
        Ok(())
    }
}

impl Default for BoardConfig {
    /// A whole chip with 8 GiB at 600 MHz, on as many host threads as there are.
    fn default() -> Self {
        Self {
            dram_bytes: 8 << 30,
            shires: Self::ALL_SHIRES,
            host_threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            compute: ComputeKind::Cores,
            float: FloatProfile::default(),
            timing: Timing::default(),
            memory: MemoryKind::default(),
            coherence: DmaCoherence::default(),
            cpu_access: CpuAccess::default(),
            stack_guards: StackGuards::default(),
            check: Check::default(),
            count: Count::default(),
            execution: Execution::default(),
            credit_abort: CreditAbort::default(),
            ack_timeout: Duration::from_secs(5),
            frequency_mhz: 600,
            serial: "SIM0000001".to_owned(),
            part_number: 0x1,
            temperature_c: 40,
            power_mw: 8000,
            tdp_watts: 25,
            heat: Duration::from_secs(2),
            boot_step: Duration::ZERO,
            waits_for_host: false,
            spin: Duration::from_micros(40),
            faults: Vec::new(),
            seed: 0,
        }
    }
}

/// A configuration that makes no sense, or a text that describes none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The DRAM size is not possible.
    #[error("{bytes} bytes of DRAM: must be a multiple of 2 MiB from 128 MiB to 32 GiB")]
    Dram {
        /// The size in bytes.
        bytes: u64,
    },
    /// The shire mask is not possible.
    #[error("shire mask {mask:#x}: needs a compute shire, bits 0 to 31, and has none above 32")]
    Shires {
        /// The mask.
        mask: u64,
    },
    /// The clock is not possible.
    #[error("{mhz} MHz: must be from 1 to 10000")]
    Frequency {
        /// The clock in MHz.
        mhz: u32,
    },
    /// The firmware thread would burn a processor.
    #[error("{spin:?} of spinning: must be at most a second")]
    Spin {
        /// The time.
        spin: Duration,
    },
    /// The boot would take for ever.
    #[error("{step:?} for a boot step: must be at most a minute")]
    BootStep {
        /// The time.
        step: Duration,
    },
    /// There is no such key.
    #[error("unknown key \"{key}\"; keys are {}", text::key_list())]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// An item is not of the form `key=value`.
    #[error("\"{item}\" is not of the form key=value; keys are {}", text::key_list())]
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_board_is_possible() {
        assert_eq!(BoardConfig::default().validate(), Ok(()));
    }

    #[test]
    fn impossible_boards_are_refused() {
        let with = |change: fn(&mut BoardConfig)| {
            let mut config = BoardConfig::default();
            change(&mut config);
            config.validate()
        };
        assert!(matches!(with(|c| c.dram_bytes = 1 << 20), Err(ConfigError::Dram { .. })));
        assert!(matches!(with(|c| c.dram_bytes = 33 << 30), Err(ConfigError::Dram { .. })));
        assert!(matches!(with(|c| c.dram_bytes += 4096), Err(ConfigError::Dram { .. })));
        assert!(matches!(with(|c| c.shires = 0), Err(ConfigError::Shires { .. })));
        assert!(matches!(with(|c| c.shires = 1 << 32), Err(ConfigError::Shires { .. })));
        assert!(matches!(with(|c| c.shires = 1 << 33 | 1), Err(ConfigError::Shires { .. })));
        assert!(matches!(with(|c| c.frequency_mhz = 0), Err(ConfigError::Frequency { .. })));
        assert!(matches!(with(|c| c.spin = Duration::MAX), Err(ConfigError::Spin { .. })));
        assert!(matches!(with(|c| c.boot_step = Duration::MAX), Err(ConfigError::BootStep { .. })));
    }
}
