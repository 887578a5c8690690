//! The simulated cores as compute side of the board.

use std::sync::Arc;

use et_sim_cores::{
    Dram, HartFailure, Launch, Machine, MachineConfig, MemoryModel, Scratchpads, Stack,
};

use crate::compute::{Compute, Report, Reports, Start, Started};
use crate::firmware::Dump;
use crate::{BoardConfig, BoardError, Check, Count, MemoryKind};

/// [`Compute`] by the machine of `et-sim-cores`.
#[derive(Debug)]
pub(crate) struct Cores {
    machine: Machine,
    dram: Arc<Dram>,
}

impl Cores {
    pub(crate) fn new(config: &BoardConfig, dram: &Arc<Dram>) -> Result<Self, BoardError> {
        let config = MachineConfig {
            shires: config.shires,
            host_threads: config.host_threads,
            frequency_mhz: config.frequency_mhz,
            float: config.float,
            timing: config.timing,
            memory: match config.effective_memory() {
                MemoryKind::Flat => MemoryModel::Flat,
                MemoryKind::Private => MemoryModel::Private,
                MemoryKind::Weak => MemoryModel::Weak { seed: config.seed },
            },
            credit_abort: config.credit_abort,
            counts_instructions: config.count == Count::Instructions,
            execution: config.execution,
            finds_races: config.check == Check::Races,
            ..MachineConfig::default()
        };
        let machine = Machine::new(config, Arc::clone(dram));
        let machine = machine.map_err(|error| BoardError::Cores(Box::new(error)))?;
        Ok(Self { machine, dram: Arc::clone(dram) })
    }
}

impl Compute for Cores {
    fn start(&mut self, start: &Start, number: u64, reports: &Arc<Reports>) -> Started {
        let launch = Launch {
            entry: start.entry,
            args: start.args,
            env: start.environment,
            shire_mask: start.shire_mask,
            stack: Stack {
                top: start.stack_top,
                bytes_per_hart: start.stack_bytes_per_hart,
                guard_bytes: start.stack_guard_bytes,
            },
        };
        let reports = Arc::clone(reports);
        start.trace.begin(&self.dram);
        let ended = Box::new(move |report| reports.deliver(number, Report::Own(report)));
        // Spec: §15; the hart's own firmware writes its entry when it fails, others go on.
        let (dram, buffer) = (Arc::clone(&self.dram), start.exception_buffer);
        let failed = Box::new(move |failure: &HartFailure, cycles| {
            if buffer != 0 {
                Dump::of(failure).write(&dram, buffer, failure, cycles);
            }
        });
        match self.machine.launch_watched(launch, failed, ended) {
            Ok(()) => Started::Running,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "launch refused");
                Started::Refused
            }
        }
    }

    fn abort(&mut self) {
        self.machine.abort();
    }

    fn reset(&mut self) {
        self.machine.reset();
    }

    fn sleeping_shires(&self) -> u64 {
        self.machine.sleeping_shires()
    }

    fn dumps_failures(&self) -> bool {
        true
    }

    fn cycles(&self) -> u64 {
        self.machine.cycles()
    }

    fn memory_changed(&mut self) {
        self.machine.invalidate_code();
    }

    fn scratchpads(&self) -> Option<&Scratchpads> {
        Some(self.machine.scratchpads())
    }
}
