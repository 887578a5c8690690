//! How a machine is built.

use std::num::NonZeroUsize;
use std::thread;

use crate::error::CoresError;

/// All 33 shires that can run kernels.
pub const ALL_SHIRES: u64 = (1 << 33) - 1;

/// What floating-point instructions do where the hardware departs from the standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FloatProfile {
    /// As the silicon: division, square root and conversions from and to 64-bit integers trap with
    /// cause 30.
    #[default]
    Hardware,
    /// The scalar instructions that trap on the silicon are executed with the results of a
    /// standard RV64F hart, subnormal numbers included. All others behave as on the silicon.
    IeeeStandard,
}

/// Where the cycle counter and the order of execution come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Timing {
    /// Cycles follow the host's clock; all host threads take part.
    #[default]
    HostClock,
    /// One host thread whatever the configuration says, and a cycle counter that counts retired
    /// instructions: equal launches on a new machine behave equally.
    Deterministic,
}

/// When what a hart writes becomes visible to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryModel {
    /// At once: there are no caches. Kernels that lack evictions, flushes or fences run as if they
    /// had them.
    #[default]
    Flat,
    /// In memory when it leaves the shire's cache.
    ///
    /// - A shire sees a line of DRAM as it was when one of its harts first looked at it, with what
    ///   its harts have written since. They share one cache of 4 MiB; L2 scratchpads have none.
    /// - What a shire wrote gets to memory with `evict_va` and `flush_va` to level 2 or 3, and at
    ///   the end of the kernel. A line that was evicted is looked at afresh. If the cache is full,
    ///   the page that came first goes; otherwise nothing leaves it by itself.
    /// - Local atomics and coherent accesses act in the cache. Global ones, and stores of the
    ///   tensor unit, act in memory, and change what the cache has of the same bytes. All take
    ///   effect at once.
    /// - The harts of a shire take turns of at most 50 instructions on one host thread, in the
    ///   order of their numbers, whatever [`fuel`](MachineConfig::fuel) says. Translated code
    ///   executes instructions on registers of a hart, and loads of what no other hart changes
    ///   meanwhile, ahead of their turns. Nothing can show that but what is reported of harts that
    ///   are aborted, code that another changes meanwhile, and lines that get to the cache for a
    ///   load that does not come, since another hart has changed what it depends on. Shires run in
    ///   parallel.
    ///
    /// Kernels in which several shires compute the same rows in place are right so, as on the card,
    /// and wrong on flat memory. Runs are equal if shires do not race for what they tell one
    /// another, or under [`Timing::Deterministic`].
    ///
    /// Spec: ISA §3.1, §3.2, §3.7, §7; device interface §8, §9.4
    Private,
    /// As late, and as much out of order, as the instruction set allows.
    ///
    /// - Each minion has an L1 of 4 KiB for both its harts, each shire an L2 of 512 KiB, both with
    ///   lines of 64 bytes, and neither is coherent with others. Plain loads and stores act in the
    ///   L1, local atomics and local coherent accesses in the L2, global ones in memory, which is
    ///   also what host, DMA and instruction fetch see. Lines carry a mark per byte written.
    /// - `evict_va` and `flush_va`, atomics without a result and coherent stores take effect later,
    ///   in order only on the same line by the same way. `fence` completes the atomics and stores
    ///   of the hart, `csrwi tensor_wait, 6` its evictions and flushes. A fence does not write
    ///   lines back.
    /// - Lines also leave the caches by themselves, at moments that are drawn.
    /// - Credits and barriers take effect at once, and order nothing else.
    /// - At the start of a kernel all caches are empty; before its end is reported, everything is
    ///   in memory.
    ///
    /// One host thread executes all harts, in turns of 1 to 50 instructions whose order is drawn,
    /// and the cycle counter counts retired instructions, whatever
    /// [`host_threads`](MachineConfig::host_threads), [`fuel`](MachineConfig::fuel) and
    /// [`timing`](MachineConfig::timing) say. Everything drawn depends on the seed and on the
    /// number of the launch on its machine, so equal launches on new machines are equal, unless
    /// the host writes to memory or aborts meanwhile.
    ///
    /// Spec: ISA §3.1, §3.2, §3.3, §3.7; device interface §8, §9.4, §14
    Weak {
        /// Seed of everything that is drawn.
        seed: u64,
    },
}

/// Whether an abort reaches a hart that waits for a credit. Spec: ISA §3.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CreditAbort {
    /// The abort ends the wait, and the hart leaves the kernel.
    #[default]
    Ends,
    /// The hart sleeps until it gets a credit, or until a reset. So on the reference emulator;
    /// what silicon does is unknown.
    Waits,
}

/// How code is executed. The results, and the turns that harts take, are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// Hot code is translated to that of the host, where there is a translator for it: on x86-64
    /// processors with AVX2, FMA and BMI2. On weak memory, where instructions are counted, and
    /// where accesses are checked, all code is interpreted.
    #[default]
    Translated,
    /// All code is interpreted.
    Interpreted,
}

/// Configuration of a [`Machine`](crate::Machine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineConfig {
    /// Shires that exist, bit *s* for shire *s* up to 32 (the master shire, of which harts 2080 to
    /// 2111 run kernels).
    pub shires: u64,
    /// Host threads that execute harts.
    pub host_threads: NonZeroUsize,
    /// Instructions that a hart executes before the next one has its turn. A turn may last up to
    /// a page of straight-line code longer. Abort takes effect between turns.
    pub fuel: u32,
    /// What floating-point instructions do.
    pub float: FloatProfile,
    /// Frequency of the simulated cores in MHz, the rate of the cycle counter.
    pub frequency_mhz: u32,
    /// Source of time and order.
    pub timing: Timing,
    /// When writes become visible.
    pub memory: MemoryModel,
    /// Whether an abort reaches a hart that waits for a credit.
    pub credit_abort: CreditAbort,
    /// Whether each launch counts what it executes, for
    /// [`LaunchReport::histogram`](crate::LaunchReport::histogram). Kernels are slower then.
    pub counts_instructions: bool,
    /// How code is executed.
    pub execution: Execution,
    /// Whether weak memory looks for accesses of several harts to the same bytes that nothing
    /// orders, and for data that has not arrived when it is used. A hart traps at the first that it
    /// shows, with the cause of an [`et_isa::Race`], after the access; if all others wait then, for
    /// credits or messages, the kernel is aborted. Without effect on other memory.
    pub finds_races: bool,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            shires: ALL_SHIRES,
            host_threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            fuel: 20_000,
            float: FloatProfile::Hardware,
            frequency_mhz: 1000,
            timing: Timing::HostClock,
            memory: MemoryModel::Flat,
            credit_abort: CreditAbort::Ends,
            counts_instructions: false,
            execution: Execution::Translated,
            finds_races: false,
        }
    }
}

impl MachineConfig {
    /// Checks the rules between the fields.
    pub(crate) fn check(&self) -> Result<(), CoresError> {
        let broken = if self.shires == 0 || self.shires & !ALL_SHIRES != 0 {
            "shires must be a non-empty subset of bits 0 to 32"
        } else if self.fuel == 0 {
            "fuel must not be zero"
        } else if self.frequency_mhz == 0 {
            "the frequency must not be zero"
        } else {
            return Ok(());
        };
        Err(CoresError::Config { what: broken })
    }

    /// Host threads that will run.
    pub(crate) fn workers(&self) -> usize {
        match self.effective_timing() {
            Timing::HostClock => self.host_threads.get(),
            Timing::Deterministic => 1,
        }
    }

    /// Host threads that count what they execute.
    pub(crate) fn counting_workers(&self) -> usize {
        if self.counts_instructions { self.workers() } else { 0 }
    }

    /// The timing that is in force: weak memory brings its own.
    pub(crate) fn effective_timing(&self) -> Timing {
        match self.memory {
            MemoryModel::Flat | MemoryModel::Private => self.timing,
            MemoryModel::Weak { .. } => Timing::Deterministic,
        }
    }
}
