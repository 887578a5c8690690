//! The debugger of the minions, as far as messages show it.
//!
//! Memory is that of the card. Harts are not: what is halted, stepped or written into a register
//! here is remembered and reported, but kernels do not notice.

use std::collections::{BTreeMap, BTreeSet};

use et_devapi::msg::mgmt::{
    GprDump, HartControl, HartStatus, MemRead, MemWrite, RegisterRead, RegisterWrite,
};
use et_sim_cores::Dram;
use zerocopy::FromZeros;

/// Most harts of a chip.
const HARTS: u64 = 34 * 64;
/// Registers whose number is that of a control register come after the others.
pub(super) const CONTROL: u64 = 1 << 32;

#[derive(Debug, Default)]
pub(super) struct Debugger {
    halted: BTreeSet<u64>,
    registers: BTreeMap<(u64, u64), u64>,
}

impl Debugger {
    /// Halts a hart or lets it go on; `false` if there is no such.
    pub(super) fn control(&mut self, command: &HartControl, halts: bool) -> bool {
        let hart = command.hart_id.get();
        if hart >= HARTS {
            return false;
        }
        if halts {
            self.halted.insert(hart);
        } else {
            self.halted.remove(&hart);
        }
        true
    }

    pub(super) fn status(&self, command: &HartControl) -> HartStatus {
        match command.hart_id.get() {
            hart if hart >= HARTS => HartStatus::Error,
            hart if self.halted.contains(&hart) => HartStatus::Halted,
            _ => HartStatus::Running,
        }
    }

    pub(super) fn read(&self, command: &RegisterRead, space: u64) -> u64 {
        let register = space + u64::from(command.register.get());
        self.registers.get(&(command.hart_id.get(), register)).copied().unwrap_or_default()
    }

    pub(super) fn write(&mut self, command: &RegisterWrite, space: u64) {
        let register = space + u64::from(command.register.get());
        self.registers.insert((command.hart_id.get(), register), command.data.get());
    }

    pub(super) fn dump(&self, hart: u64) -> GprDump {
        let mut dump = GprDump::new_zeroed();
        for (number, register) in (0_u64..).zip(&mut dump.gpr) {
            let value = self.registers.get(&(hart, number)).copied();
            *register = value.unwrap_or_default().into();
        }
        dump
    }
}

/// Reads up to 8 bytes; `None` if they are not there.
pub(super) fn read_memory(dram: &Dram, command: &MemRead) -> Option<u64> {
    let mut bytes = [0; 8];
    let len = usize::try_from(command.size.get()).ok()?;
    dram.read(command.address.get(), bytes.get_mut(..len)?).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Writes up to 8 bytes; `None` if their place is not there.
pub(super) fn write_memory(dram: &Dram, command: &MemWrite) -> Option<()> {
    let bytes = command.data.get().to_le_bytes();
    let len = usize::try_from(command.size.get()).ok()?;
    dram.write(command.address.get(), bytes.get(..len)?).ok()
}
