//! The configuration space of the card.

use et_devapi::pci::{BAR0_BYTES, BAR2_BYTES, BASE_CLASS, SIMULATED_IDS, VECTORS};

/// Bytes of the configuration space of a PCI Express function.
pub(crate) const BYTES: usize = 4096;

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const REVISION: usize = 0x08;
const BASE_CLASS_CODE: usize = 0x0b;
const BARS: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;

const POWER: u8 = 0x40;
const MSI: u8 = 0x50;
const MSI_CONTROL: usize = MSI as usize + 2;
const MSI_ENABLE: u8 = 1;
const VECTORS_LOG2: u8 = 2;
const _: () = assert!(1 << VECTORS_LOG2 == VECTORS);
const EXPRESS: u8 = 0x70;
const DEVICE_CONTROL: usize = EXPRESS as usize + 8;
/// In the second byte of the register.
const DEVICE_CONTROL_FLR: u8 = 1 << 7;
const RESIZABLE_BAR: usize = 0x100;

/// Memory BARs of 64 bits; flags are those of the first word.
const BAR_64: u32 = 0b0100;
const BAR_PREFETCHABLE: u32 = 0b1000;

/// What a write has changed that others must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Memory space, bus mastering or MSIs.
    Enables,
    /// A function-level reset was asked for.
    Reset,
}

/// Registers, and which of their bits the host can write.
///
/// Identity and BARs: spec §1. Capabilities: power management, MSI with four vectors of 64 bits,
/// PCI Express endpoint with function-level reset, resizable BAR0 that offers its one size.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; BYTES]>,
    writable: Box<[u8; BYTES]>,
}

impl ConfigSpace {
    pub(crate) fn new() -> Self {
        let mut space = Self { bytes: Box::new([0; BYTES]), writable: Box::new([0; BYTES]) };
        space.header();
        space.capabilities();
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn open(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    fn header(&mut self) {
        let ids = SIMULATED_IDS;
        self.put(0, &ids.vendor.to_le_bytes());
        self.put(2, &ids.device.to_le_bytes());
        self.put(REVISION, &[ids.revision]);
        self.put(STATUS, &[STATUS_CAPABILITIES]);
        self.put(BASE_CLASS_CODE, &[BASE_CLASS]);
        // Memory, bus master, parity and system errors; no INTx.
        self.open(COMMAND, &[COMMAND_MEMORY | COMMAND_BUS_MASTER | 1 << 6, 0b101]);
        // Cache line size, interrupt line: scratch for the host.
        self.open(0x0c, &[0xff]);
        self.open(0x3c, &[0xff]);
        let bars = [(0, BAR0_BYTES, BAR_64 | BAR_PREFETCHABLE), (2, BAR2_BYTES, BAR_64)];
        for (index, size, flags) in bars {
            let at = BARS + 4 * index;
            self.put(at, &flags.to_le_bytes());
            // A BAR is as wide as the bits that can be written.
            self.open(at, &(!(size - 1)).to_le_bytes());
        }
        self.put(SUBSYSTEM, &ids.subsystem_vendor.to_le_bytes());
        self.put(SUBSYSTEM + 2, &ids.subsystem.to_le_bytes());
        self.put(CAPABILITIES, &[POWER]);
    }

    fn capabilities(&mut self) {
        // Version 3; D0 and D3hot, which keeps the registers.
        self.put(POWER.into(), &[0x01, MSI, 0x03, 0x00, 0x08, 0x00]);
        self.open(usize::from(POWER) + 4, &[0x03]);

        self.put(MSI.into(), &[0x05, EXPRESS, 0x80 | VECTORS_LOG2 << 1, 0x00]);
        self.open(MSI_CONTROL, &[MSI_ENABLE | 0b111 << 4]);
        // Address of 64 bits, data.
        self.open(
            usize::from(MSI) + 4,
            &[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        );

        // Version 2, endpoint; function-level reset, payloads to 512 bytes; 16 GT/s, 8 lanes.
        self.put(EXPRESS.into(), &[0x10, 0x00, 0x02, 0x00, 0x02, 0x80, 0x00, 0x10]);
        self.open(DEVICE_CONTROL, &[0xff, 0x7f]);
        let link = [0x84, 0x00, 0x00, 0x00];
        self.put(usize::from(EXPRESS) + 0x0c, &link);
        self.put(usize::from(EXPRESS) + 0x12, &link[..2]);
        self.put(usize::from(EXPRESS) + 0x2c, &[0x1e]);
        self.put(usize::from(EXPRESS) + 0x30, &[0x04]);

        // One BAR; of the sizes from 1 MiB (bit 4) on only 32 GiB (bit 19).
        let size = BAR0_BYTES.trailing_zeros() - 20;
        self.put(RESIZABLE_BAR, &[0x15, 0x00, 0x01, 0x00]);
        self.put(RESIZABLE_BAR + 4, &(1_u32 << (size + 4)).to_le_bytes());
        self.put(RESIZABLE_BAR + 8, &(1_u32 << 5 | size << 8).to_le_bytes());
    }

    /// Reads; the range is inside the space.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
    }

    /// Writes what can be written; the range is inside the space.
    pub(crate) fn write(&mut self, at: usize, from: &[u8]) -> Effect {
        let before = self.enables();
        let mut resets = false;
        for (at, byte) in (at..).zip(from) {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | byte & writable;
            resets |= at == DEVICE_CONTROL + 1 && byte & DEVICE_CONTROL_FLR != 0;
        }
        if resets {
            *self = Self::new();
            return Effect::Reset;
        }
        if self.enables() == before { Effect::Nothing } else { Effect::Enables }
    }

    fn enables(&self) -> [bool; 3] {
        [self.memory_enabled(), self.bus_master_enabled(), self.msi_enabled()]
    }

    pub(crate) fn memory_enabled(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_MEMORY != 0
    }

    pub(crate) fn bus_master_enabled(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_BUS_MASTER != 0
    }

    pub(crate) fn msi_enabled(&self) -> bool {
        self.bytes[MSI_CONTROL] & MSI_ENABLE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &ConfigSpace, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn identity_is_that_of_the_card() {
        let space = ConfigSpace::new();
        assert_eq!(word(&space, 0), 0xeb01_1e0a);
        assert_eq!(word(&space, 8) >> 24, 0x12);
    }

    #[test]
    fn bars_tell_their_size_when_all_ones_are_written() {
        let mut space = ConfigSpace::new();
        for at in (0x10..0x28).step_by(4) {
            let _ = space.write(at, &[0xff; 4]);
        }
        let bars: Vec<u32> = (0x10..0x28).step_by(4).map(|at| word(&space, at)).collect();
        assert_eq!(bars, [0xc, 0xffff_fff8, 0xffff_c004, 0xffff_ffff, 0, 0]);
    }

    #[test]
    fn capabilities_are_a_list_that_ends() {
        let space = ConfigSpace::new();
        let mut ids = Vec::new();
        let mut at = word(&space, CAPABILITIES) as usize & 0xff;
        while at != 0 {
            ids.push(word(&space, at) & 0xff);
            at = word(&space, at) as usize >> 8 & 0xff;
        }
        assert_eq!(ids, [0x01, 0x05, 0x10]);
        // MSI: off, four vectors possible, one enabled, 64 bits.
        assert_eq!(word(&space, MSI.into()) >> 16, 0x84);
        assert_eq!(word(&space, usize::from(EXPRESS) + 4) >> 28, 1, "function-level reset");
        // 2¹⁵ MiB, and no other size.
        assert_eq!(word(&space, RESIZABLE_BAR + 4), 1 << 19);
        assert_eq!(word(&space, RESIZABLE_BAR + 8) >> 8, 15);
    }

    #[test]
    fn enabling_is_told_and_reset_undoes_it() {
        let mut space = ConfigSpace::new();
        assert_eq!(space.write(COMMAND, &[0x06, 0]), Effect::Enables);
        assert_eq!(space.write(COMMAND, &[0x06, 0]), Effect::Nothing);
        assert_eq!(space.write(MSI_CONTROL, &[0x21]), Effect::Enables);
        assert!(space.memory_enabled() && space.bus_master_enabled() && space.msi_enabled());
        assert_eq!(word(&space, MSI.into()) >> 16, 0xa5);
        assert_eq!(space.write(0, &[0; 4]), Effect::Nothing);
        assert_eq!(word(&space, 0), 0xeb01_1e0a, "read-only");
        assert_eq!(space.write(DEVICE_CONTROL, &[0x10, 0xa8]), Effect::Reset);
        assert!(!space.memory_enabled() && !space.msi_enabled());
        assert_eq!(word(&space, DEVICE_CONTROL) & 0x8000, 0, "reads as zero");
    }
}
