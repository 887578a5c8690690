//! The device interface registers and the places of the rings, as current firmware publishes them.
//!
//! Spec: §3, §5.1

use et_devapi::abi;
use et_devapi::dir::{MgmtDir, OpsDir};
use et_devapi::pci::{DIR_BYTES, MGMT_DIR, OPS_DIR};
use et_devapi::ring::{Ring, RingError};
use et_hal::{AccessError, BarOffset, DeviceAddr, Endpoint, Mmio};

use crate::board::Slot;
use crate::{BoardError, CpuAccess, Fault};

/// Control block of the operations completion queue.
pub(crate) const OPS_COMPLETION_AT: BarOffset = BarOffset::new(0xa00);
const OPS_COMPLETION_BYTES: u32 = 0x600;
const OPS_SUBMISSION_AT: u64 = 0x100;
const OPS_SUBMISSION_BYTES: u32 = 0x440;
const OPS_HIGH_PRIORITY_AT: u64 = 0x980;
const OPS_HIGH_PRIORITY_BYTES: u32 = 0x40;
const MGMT_SUBMISSION_AT: BarOffset = BarOffset::new(0x1200);
const MGMT_COMPLETION_AT: BarOffset = BarOffset::new(0x1900);
const MGMT_RING_BYTES: u32 = 0x700;

/// Both mailboxes: everything below the doorbells.
const MAILBOX_BYTES: usize = 0x2000;

/// Offsets of the boot status in the headers. Spec: §3.1, §3.3
const OPS_STATUS: u16 = 8;
const MGMT_STATUS: u16 = 44;
/// Offset of the total size in both headers.
const TOTAL_SIZE: usize = 4;

/// Sizes of scratchpad, L2 and L3, KiB.
pub(super) const CACHES_KIB: (u32, u32, u32) = (81920, 16384, 32768);

fn ring(at: BarOffset, size_bytes: u32) -> Result<Ring, BoardError> {
    Ring::new(at, size_bytes).map_err(|e: RingError<AccessError>| BoardError::Registers(e.into()))
}

pub(crate) fn submission(index: u32) -> Result<Ring, BoardError> {
    let at = OPS_SUBMISSION_AT + u64::from(index * OPS_SUBMISSION_BYTES);
    ring(BarOffset::new(at), OPS_SUBMISSION_BYTES)
}

pub(crate) fn high_priority(index: u32) -> Result<Ring, BoardError> {
    let at = OPS_HIGH_PRIORITY_AT + u64::from(index * OPS_HIGH_PRIORITY_BYTES);
    ring(BarOffset::new(at), OPS_HIGH_PRIORITY_BYTES)
}

pub(crate) fn completion() -> Result<Ring, BoardError> {
    ring(OPS_COMPLETION_AT, OPS_COMPLETION_BYTES)
}

pub(crate) fn management_submission() -> Result<Ring, BoardError> {
    ring(MGMT_SUBMISSION_AT, MGMT_RING_BYTES)
}

pub(crate) fn management_completion() -> Result<Ring, BoardError> {
    ring(MGMT_COMPLETION_AT, MGMT_RING_BYTES)
}

/// Publishes the management registers and empties the rings; the status is left as it is.
pub(crate) fn write_management(slot: &Slot) -> Result<(), BoardError> {
    for ring in [management_submission()?, management_completion()?] {
        ring.format(&slot.page).map_err(|e| BoardError::Registers(e.into()))?;
    }
    let config = &slot.config;
    // The mask has no room for the master shire. Spec: §14
    let shires = u32::try_from(config.shires & 0xffff_ffff).unwrap_or(u32::MAX);
    let has_no_clock = slot.boot_faults().contains(&Fault::NoFrequency);
    let mhz = if has_no_clock { 0 } else { config.frequency_mhz };
    let dir = MgmtDir::firmware(shires, mhz, config.tdp_watts, CACHES_KIB);
    let mut bytes = [0; DIR_BYTES];
    let len = dir.encode(&mut bytes);
    write(slot, Endpoint::Management, &mut bytes, len)
}

/// Publishes the operations registers; the status is left as it is.
pub(crate) fn write_operations(slot: &Slot) -> Result<(), BoardError> {
    let managed = slot.host_managed();
    let mut dir = OpsDir::firmware(abi::host_managed_len(slot.config.dram_bytes))
        .with_host_managed(DeviceAddr::new(managed.start), managed.end - managed.start);
    if slot.config.cpu_access == CpuAccess::Granted {
        dir = dir.with_cpu_access();
    }
    let mut bytes = [0; DIR_BYTES];
    let len = dir.encode(&mut bytes);
    write(slot, Endpoint::Operations, &mut bytes, len)
}

fn write(
    slot: &Slot,
    endpoint: Endpoint,
    bytes: &mut [u8],
    len: Option<usize>,
) -> Result<(), BoardError> {
    let bytes = len.and_then(|len| bytes.get_mut(..len)).unwrap_or_default();
    for fault in &*slot.boot_faults() {
        match *fault {
            Fault::BadCrc { endpoint: of } if of == endpoint => {
                // The last byte is covered by the CRC and means nothing else.
                bytes.iter_mut().last().into_iter().for_each(|byte| *byte ^= 1);
            }
            Fault::BadSize { endpoint: of, total_size } if of == endpoint => {
                bytes[TOTAL_SIZE..TOTAL_SIZE + 2].copy_from_slice(&total_size.to_le_bytes());
            }
            _ => {}
        }
    }
    // A host may be polling the status, so that must not be touched, not even for a moment.
    let (at, status) = place(endpoint);
    let (before, rest) = bytes.split_at_checked(usize::from(status)).unwrap_or_default();
    let after = rest.get(2..).unwrap_or_default();
    let behind = BarOffset::new(at.as_u64() + u64::from(status) + 2);
    slot.page
        .write_bytes(at, before)
        .and_then(|()| slot.page.write_bytes(behind, after))
        .map_err(|e| BoardError::Registers(e.into()))
}

/// Returns where the registers of an endpoint are, and where in them the status is.
fn place(endpoint: Endpoint) -> (BarOffset, u16) {
    match endpoint {
        Endpoint::Management => (MGMT_DIR, MGMT_STATUS),
        _ => (OPS_DIR, OPS_STATUS),
    }
}

/// Empties all rings of the operations endpoint.
pub(crate) fn format_operations_rings(slot: &Slot) -> Result<(), BoardError> {
    for ring in
        [submission(0)?, submission(1)?, high_priority(0)?, high_priority(1)?, completion()?]
    {
        ring.format(&slot.page).map_err(|e| BoardError::Registers(e.into()))?;
    }
    Ok(())
}

/// Publishes a boot status, in one access of 16 bits.
pub(crate) fn write_status(slot: &Slot, endpoint: Endpoint, status: i16) -> Result<(), BoardError> {
    let (registers, offset) = place(endpoint);
    let at = BarOffset::new(registers.as_u64() + u64::from(offset));
    slot.page.publish_u16(at, status.cast_unsigned()).map_err(|e| BoardError::Registers(e.into()))
}

/// Empties the operations registers, for a master minion that starts anew.
pub(crate) fn clear_operations(slot: &Slot) -> Result<(), BoardError> {
    let len = usize::try_from(MGMT_DIR.as_u64()).unwrap_or_default();
    slot.page.clear(OPS_DIR.as_u64(), len).map_err(|e| BoardError::Registers(e.into()))
}

/// Forgets everything: registers, rings and their contents.
pub(crate) fn clear(slot: &Slot) -> Result<(), BoardError> {
    slot.page.clear(0, MAILBOX_BYTES).map_err(|e| BoardError::Registers(e.into()))
}
