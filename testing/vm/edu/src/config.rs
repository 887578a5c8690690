//! The command register of the configuration space.

use std::io::Result;

use crate::function::{Function, index};

const COMMAND: u64 = 4;
/// The function may decode addresses of its BARs.
const MEMORY: u16 = 2;
/// The function may send: DMA and message-signalled interrupts.
pub const BUS_MASTER: u16 = 4;

/// Lets the function send, or not; returns the command register read back.
///
/// # Errors
/// What the kernel says.
pub fn set_bus_master(function: &impl Function, on: bool) -> Result<u16> {
    let mut bytes = [0; 2];
    function.read(index::CONFIG, COMMAND, &mut bytes)?;
    let old = u16::from_le_bytes(bytes) | MEMORY;
    let new = if on { old | BUS_MASTER } else { old & !BUS_MASTER };
    function.write(index::CONFIG, COMMAND, &new.to_le_bytes())?;
    function.read(index::CONFIG, COMMAND, &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}
