//! What a board that mediates checks beyond the firmware: everything the device would touch for a
//! launch lies in the partition, to its last byte.

use std::ops::Range;

use et_devapi::abi::{self, EXCEPTION_BUFFER_BYTES};
use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{LaunchStatus, StackConfig, TraceConfig};
use zerocopy::{FromBytes, IntoBytes};

use crate::compute::LaunchParts;

/// Unit of a stack configuration. Spec: §9.1
const STACK_UNIT_BYTES: u64 = 4096;

/// The memory that a launch names beside its code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// 0 for none.
    pub(crate) args: u64,
    /// Bytes that firmware writes to the arguments' place.
    pub(crate) embedded: usize,
    /// 0 for none.
    pub(crate) exception_buffer: u64,
    pub(crate) trace: Option<TraceConfig>,
}

/// Checks that all of it lies in the partition. That each begins there is checked already, as
/// firmware does, which takes the host's word for the lengths. Spec: §9.1
pub(crate) fn check(partition: &Range<u64>, named: &Named) -> Result<(), LaunchStatus> {
    let holds = |at: u64, len: u64| {
        at >= partition.start && at.checked_add(len).is_some_and(|end| end <= partition.end)
    };
    let Named { args, embedded, exception_buffer, trace } = *named;
    if args != 0 && !holds(args, embedded as u64) {
        return Err(LaunchStatus::InvalidAddress);
    }
    if exception_buffer != 0 && !holds(exception_buffer, EXCEPTION_BUFFER_BYTES as u64) {
        return Err(LaunchStatus::InvalidAddress);
    }
    if trace.is_some_and(|t| !holds(t.buffer.get(), t.buffer_size.get().into())) {
        return Err(LaunchStatus::InvalidAddress);
    }
    Ok(())
}

/// Has the stack begin where it does for the device: its host counts from the start of the
/// partition. The firmware of the device counts in 32 bits, so that what is farther than 4 GiB from
/// the start of its memory cannot be named. Erratum 14 (§21), spec §9.1
pub(crate) fn place_stack(
    parts: &mut LaunchParts,
    partition: &Range<u64>,
) -> Result<(), LaunchStatus> {
    if !parts.flags.contains(CommandFlags::USER_STACK) {
        return Ok(());
    }
    let has_trace = parts.flags.contains(CommandFlags::KERNEL_TRACE);
    let at = if has_trace { size_of::<TraceConfig>() } else { 0 };
    let invalid = LaunchStatus::InvalidStackConfig;
    let place = parts.bytes.get_mut(at..at + size_of::<StackConfig>()).ok_or(invalid)?;
    let mut config = StackConfig::read_from_bytes(&*place).map_err(|_| invalid)?;
    let before = partition.start.checked_sub(abi::HOST_MANAGED_BASE.as_u64()).ok_or(invalid)?;
    if !before.is_multiple_of(STACK_UNIT_BYTES) {
        return Err(invalid);
    }
    let start = u64::from(config.stack_base_offset.get()) * STACK_UNIT_BYTES;
    let total = u64::from(config.stack_size.get()) * STACK_UNIT_BYTES;
    // Without wrapping, whatever the firmware would make of it.
    let inside = start + total <= partition.end - partition.start;
    let moved = before + start;
    if !inside || moved + total > u64::from(u32::MAX) {
        return Err(invalid);
    }
    let offset = u32::try_from(moved / STACK_UNIT_BYTES).map_err(|_| invalid)?;
    config.stack_base_offset = offset.into();
    place.copy_from_slice(config.as_bytes());
    Ok(())
}
