//! The configuration space of the function.
//!
//! The kernel shows a virtual one; it must never be reached through sysfs, which bypasses that.

use std::sync::Arc;

use et_hal::PciIds;

use crate::transport::{CONFIG_REGION, Region, Transport};
use crate::{LostBecause, VfioError};

const VENDOR: u64 = 0x00;
const DEVICE: u64 = 0x02;
const COMMAND: u64 = 0x04;
const STATUS: u64 = 0x06;
const REVISION: u64 = 0x08;
const SUBSYSTEM_VENDOR: u64 = 0x2c;
const SUBSYSTEM: u64 = 0x2e;
const FIRST_CAPABILITY: u64 = 0x34;

const STATUS_HAS_CAPABILITIES: u16 = 1 << 4;

/// Answer to accesses of the device's memory.
pub(crate) const MEMORY: u16 = 1 << 1;
/// The device may reach memory.
pub(crate) const BUS_MASTER: u16 = 1 << 2;

/// Bits of the command register that are always 0. The register of a dead device reads as ones,
/// except for bits that the kernel makes up; the ids may be made up altogether.
const COMMAND_RESERVED: u16 = 0xf800;

const PCI_EXPRESS: u8 = 0x10;
/// Bit of the device capabilities, 4 bytes into the PCI Express capability.
const FLR: u32 = 1 << 28;

/// Capabilities start behind the header and are at least 4 bytes apart, so there are no more.
const MAX_CAPABILITIES: u32 = 48;
const FIRST_CAPABILITY_AT: u8 = 0x40;

/// The configuration space.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    transport: Arc<dyn Transport>,
    region: Region,
}

impl ConfigSpace {
    pub(crate) fn new(transport: &Arc<dyn Transport>) -> Result<Self, VfioError> {
        let region = transport.region(CONFIG_REGION)?;
        Ok(Self { transport: Arc::clone(transport), region })
    }

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], VfioError> {
        let mut bytes = [0; N];
        self.transport.read(&self.region, at, &mut bytes)?;
        Ok(bytes)
    }

    fn u16(&self, at: u64) -> Result<u16, VfioError> {
        self.read(at).map(u16::from_le_bytes)
    }

    /// Returns vendor and device id.
    ///
    /// # Errors
    /// `Lost` if the device does not answer.
    pub(crate) fn ids(&self) -> Result<(u16, u16), VfioError> {
        match (self.u16(VENDOR)?, self.u16(DEVICE)?) {
            (u16::MAX, _) => Err(VfioError::Lost(LostBecause::LinkDown)),
            ids => Ok(ids),
        }
    }

    /// Returns all that says what the function is.
    ///
    /// # Errors
    /// As [`ids`](Self::ids).
    pub(crate) fn identity(&self) -> Result<PciIds, VfioError> {
        let (vendor, device) = self.ids()?;
        let (subsystem_vendor, subsystem) = (self.u16(SUBSYSTEM_VENDOR)?, self.u16(SUBSYSTEM)?);
        let [revision] = self.read(REVISION)?;
        Ok(PciIds { vendor, device, subsystem_vendor, subsystem, revision })
    }

    /// Returns the command register.
    ///
    /// # Errors
    /// `Lost` if the device does not answer.
    pub(crate) fn command(&self) -> Result<u16, VfioError> {
        let command = self.u16(COMMAND)?;
        if command & COMMAND_RESERVED != 0 {
            return Err(VfioError::Lost(LostBecause::LinkDown));
        }
        Ok(command)
    }

    /// Changes bits of the command register and reads them back: when this returns, no write of the
    /// device that was sent before is still on its way.
    pub(crate) fn set_command(&self, set: u16, clear: u16) -> Result<(), VfioError> {
        let old = self.command()?;
        let written = (old | set) & !clear;
        self.transport.write(&self.region, COMMAND, &written.to_le_bytes())?;
        let found = self.command()?;
        if (found ^ written) & (set | clear) != 0 {
            return Err(VfioError::CommandRegister { written, found });
        }
        Ok(())
    }

    /// Finds a capability. A list that goes in a circle, or back into the header, ends the search.
    fn capability(&self, id: u8) -> Result<Option<u64>, VfioError> {
        if self.u16(STATUS)? & STATUS_HAS_CAPABILITIES == 0 {
            return Ok(None);
        }
        let [mut at] = self.read(FIRST_CAPABILITY)?;
        for _ in 0..MAX_CAPABILITIES {
            at &= !3;
            if at < FIRST_CAPABILITY_AT {
                return Ok(None);
            }
            let [found, next] = self.read(u64::from(at))?;
            if found == id {
                return Ok(Some(u64::from(at)));
            }
            at = next;
        }
        Ok(None)
    }

    /// Returns `true` if the function has a reset of its own.
    pub(crate) fn has_flr(&self) -> Result<bool, VfioError> {
        let Some(at) = self.capability(PCI_EXPRESS)? else { return Ok(false) };
        Ok(u32::from_le_bytes(self.read(at + 4)?) & FLR != 0)
    }
}
