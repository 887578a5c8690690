//! One hart without firmware, stepped by hand: for debuggers and for tests of instructions.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::{FloatProfile, MachineConfig, MemoryModel, Timing};
use crate::decode::code::CodeCache;
use crate::error::CoresError;
use crate::exec;
use crate::exec::event::Event;
use crate::exec::tensor;
use crate::machine::chip::{Chip, Core};
use crate::machine::hart::{Hart, Vector};
use crate::memory::guards::Guards;
use crate::memory::{Dram, Scratchpads};
use crate::native::Context;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The instruction is complete.
    Retired,
    /// The instruction trapped and had no effect. Environment calls trap too.
    Trap {
        /// Cause as in `scause`.
        cause: u64,
        /// Value as in `stval`.
        tval: u64,
    },
    /// The instruction waits for a credit, or for an interrupt that never comes.
    Blocked,
    /// The instruction is complete and raised a bus error.
    BusError,
}

/// Hart 0 of a chip with one shire, in user mode, where no other hart runs.
///
/// Its state at the start is that of a kernel, with all integer registers 0.
#[derive(Debug)]
pub struct SingleHart {
    chip: Chip,
    code: CodeCache,
    hart: Hart,
    restarts: u64,
}

/// What surrounds the hart: no stacks, and no others to wake.
fn core<'a>(chip: &'a Chip, code: &'a CodeCache) -> Core<'a> {
    let guards = Guards::default();
    let recent = Cell::new(None);
    Core {
        chip,
        code,
        guards,
        stacks: guards,
        check: None,
        wake: &|_| {},
        recent,
        counters: None,
        context: Context::new(&chip.dram, &guards, code),
    }
}

impl SingleHart {
    /// Creates a hart on `dram`.
    ///
    /// # Errors
    /// [`CoresError::Memory`] if the host has no address space for the scratchpads.
    pub fn new(float: FloatProfile, dram: Arc<Dram>) -> Result<Self, CoresError> {
        Self::with_memory(float, MemoryModel::Flat, dram)
    }

    /// Creates a hart on `dram` that accesses it as `memory` says.
    ///
    /// # Errors
    /// [`CoresError::Memory`] if the host has no address space for the scratchpads.
    pub fn with_memory(
        float: FloatProfile,
        memory: MemoryModel,
        dram: Arc<Dram>,
    ) -> Result<Self, CoresError> {
        let timing = Timing::Deterministic;
        let config = MachineConfig { shires: 1, float, timing, memory, ..MachineConfig::default() };
        let code = CodeCache::new(&dram, memory, false);
        let mut single =
            Self { chip: Chip::new(&config, dram)?, code, hart: Hart::new(0), restarts: 0 };
        single.start();
        Ok(single)
    }

    fn start(&mut self) {
        self.hart.cache = self.chip.take_cache(0);
        if let Some(mut weak) = self.chip.weak() {
            weak.start(self.restarts, &[self.hart.id]);
        }
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Step {
        let core = core(&self.chip, &self.code);
        if let Some(mut weak) = self.chip.weak() {
            weak.pass(&core);
        }
        match exec::run(&mut self.hart, &core, 1) {
            Event::OutOfFuel | Event::Yield => Step::Retired,
            Event::Trap { cause, tval } => Step::Trap { cause, tval },
            Event::WaitCredit(_) | Event::WaitPartner(_) | Event::Stall => Step::Blocked,
            Event::BusError => Step::BusError,
            Event::Disturbs => unreachable!("no other hart is there"),
        }
    }

    /// Sets registers and counters to what a kernel finds at its start; code is looked at afresh.
    /// DRAM and scratchpads stay, as they do from one kernel to the next. On weak memory
    /// everything gets there first.
    pub fn restart(&mut self) {
        self.write_back();
        self.chip.return_cache(0, self.hart.cache.take());
        self.chip.start_kernel();
        self.code.start_launch();
        self.hart = Hart::new(0);
        self.restarts += 1;
        self.start();
    }

    /// Completes all that is on its way to memory, and empties the caches, as the firmware does at
    /// the end of a kernel. No effect on flat memory, where nothing ever is on its way.
    pub fn write_back(&mut self) {
        let core = core(&self.chip, &self.code);
        if let Err(event) = tensor::finish_all(&mut self.hart, &core) {
            tracing::debug!(?event, "a tensor operation ended badly");
        }
        if let Some(mut weak) = self.chip.weak() {
            weak.settle(&core);
        }
        if let Some(cache) = &mut self.hart.cache {
            cache.release_all(&core);
        }
    }

    /// Returns the program counter.
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.hart.pc
    }

    /// Sets the program counter.
    pub fn set_pc(&mut self, pc: u64) {
        self.hart.pc = pc;
    }

    /// Returns integer register `number`.
    ///
    /// # Panics
    /// If there is no such register.
    #[must_use]
    pub fn x(&self, number: usize) -> u64 {
        assert!(number < 32, "x0 to x31");
        self.hart.x[number]
    }

    /// Sets integer register `number`; no effect on x0.
    ///
    /// # Panics
    /// If there is no such register.
    pub fn set_x(&mut self, number: usize, value: u64) {
        assert!(number < 32, "x0 to x31");
        self.hart.set_x(number, value);
    }

    /// Returns the lanes of floating-point register `number`.
    ///
    /// # Panics
    /// If there is no such register.
    #[must_use]
    pub fn f(&self, number: usize) -> [u32; 8] {
        self.hart.f[number].0
    }

    /// Sets the lanes of floating-point register `number`.
    ///
    /// # Panics
    /// If there is no such register.
    pub fn set_f(&mut self, number: usize, lanes: [u32; 8]) {
        self.hart.f[number] = Vector(lanes);
    }

    /// Returns the mask registers, m0 in the lowest byte.
    #[must_use]
    pub fn masks(&self) -> u64 {
        self.hart.masks
    }

    /// Sets the mask registers, m0 in the lowest byte.
    pub fn set_masks(&mut self, masks: u64) {
        self.hart.masks = masks;
    }

    /// Returns `fcsr`.
    #[must_use]
    pub fn fcsr(&self) -> u32 {
        self.hart.fcsr
    }

    /// Sets `fcsr`; bits it does not have are dropped.
    pub fn set_fcsr(&mut self, fcsr: u32) {
        self.hart.fcsr = fcsr & 0x8000_00FF;
    }

    /// Returns both credit counters as `fccnb` shows them.
    #[must_use]
    pub fn credits(&self) -> u32 {
        let port = self.chip.port(0);
        u32::from(port.credits(0)) | u32::from(port.credits(1)) << 16
    }

    /// Returns `tensor_error`.
    #[must_use]
    pub fn tensor_error(&self) -> u16 {
        self.chip.port(0).tensor_error.load(Ordering::Relaxed)
    }

    /// Returns `gsc_progress`.
    #[must_use]
    pub fn gsc_progress(&self) -> u8 {
        self.hart.gsc_progress
    }

    /// Returns the L2 scratchpads.
    #[must_use]
    pub fn scratchpads(&self) -> &Scratchpads {
        &self.chip.scratchpads
    }
}
