//! Reduction: one minion sends registers, another combines them with its own.
//!
//! The sender leaves its registers with the receiver and goes on, until it waits for the end of
//! the reduction or starts another one. The receiver waits at once.

use std::sync::atomic::Ordering;

use super::{BAD_REDUCTION, Operation, fail};
use crate::exec::event::Event;
use crate::exec::slow_float;
use crate::float::lanes;
use crate::float::soft::Rounding;
use crate::float::{self, Pick};
use crate::machine::chip::{Core, Wait};
use crate::machine::hart::{Hart, Vector};
use crate::memory::map::HART_SLOTS;

/// Registers on their way to another minion.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// First hart of the sender.
    pub(crate) from: u32,
    /// All registers, from the first one of the operation on.
    registers: Box<[Vector; 32]>,
}

#[cfg(test)]
impl Message {
    pub(crate) fn of_zeros(from: u32) -> Self {
        Self { from, registers: Box::new([Vector::default(); 32]) }
    }
}

/// What the receiver does with two lanes.
#[derive(Clone, Copy, Debug)]
enum Function {
    Add,
    Float(Pick),
    Integer(fn(u32, u32) -> u32),
}

impl Function {
    fn new(number: usize) -> Option<Self> {
        Some(match number {
            0 => Self::Add,
            2 => Self::Float(Pick::Larger),
            3 => Self::Float(Pick::Smaller),
            4 => Self::Integer(u32::wrapping_add),
            6 => Self::Integer(lanes::max_signed),
            7 => Self::Integer(lanes::min_signed),
            8 => Self::Integer(|theirs, _| theirs),
            _ => return None,
        })
    }
}

enum Role {
    Send,
    Receive,
}

/// Finds the partner's minion number and the own role; none if the minion takes no part.
fn partner(operation: &Operation, minion: u64) -> Option<(u64, Role)> {
    let command = operation.bits(0, 2);
    if command < 2 {
        let role = if command == 0 { Role::Send } else { Role::Receive };
        return Some((operation.bits(3, 13) as u64, role));
    }
    let distance = 1 << operation.bits(3, 4);
    let broadcast = command == 2;
    let (partner, receives) = match minion % (2 * distance) {
        0 => (minion + distance, !broadcast),
        within if within == distance => (minion - distance, broadcast),
        _ => return None,
    };
    Some((partner, if receives { Role::Receive } else { Role::Send }))
}

/// Starts a reduction.
pub(super) fn start(
    hart: &mut Hart,
    core: &Core<'_>,
    operation: &Operation,
    pc: u64,
) -> Result<(), Event> {
    wait(hart, core)?;
    let count = operation.bits(16, 7);
    let minion = u64::from(hart.id / 2);
    let Some((partner, role)) = partner(operation, minion) else { return Ok(()) };
    if count == 0 {
        return Ok(());
    }
    if partner == minion || partner >= u64::from(HART_SLOTS / 2) {
        fail(hart, core, BAD_REDUCTION);
        return Ok(());
    }
    // Below the number of slots.
    let partner = 2 * u32::try_from(partner).unwrap_or(0);
    let first = operation.bits(57, 5);
    match role {
        Role::Send => {
            let registers = std::array::from_fn(|register| hart.f[(first + register) % 32]);
            let message = Message { from: hart.id, registers: Box::new(registers) };
            core.chip.port(hart.id).is_sending.store(true, Ordering::Release);
            core.deliver(partner, message);
            Ok(())
        }
        Role::Receive => {
            let Some(function) = Function::new(operation.bits(24, 4)) else {
                fail(hart, core, BAD_REDUCTION);
                return Ok(());
            };
            let rounding = match function {
                Function::Add => slow_float::dynamic(hart, core, pc)?,
                _ => Rounding::NearestEven,
            };
            let message = core
                .take_message(hart.id, partner)
                .ok_or(Event::WaitPartner(Wait::Message(partner)))?;
            combine(hart, function, &message, first, count, rounding);
            Ok(())
        }
    }
}

fn combine(
    hart: &mut Hart,
    function: Function,
    message: &Message,
    first: usize,
    count: usize,
    rounding: Rounding,
) {
    let mut flags = 0;
    for register in 0..count {
        let theirs = message.registers[register % 32].0;
        let own = &mut hart.f[(first + register) % 32].0;
        for (own, theirs) in own.iter_mut().zip(theirs) {
            *own = match function {
                Function::Add => lanes::add(theirs, *own, rounding, &mut flags),
                Function::Float(pick) => float::min_max(theirs, *own, pick, &mut flags),
                Function::Integer(function) => function(theirs, *own),
            };
        }
    }
    hart.fcsr |= flags;
}

/// Waits until what the hart sent has been taken.
pub(super) fn wait(hart: &Hart, core: &Core<'_>) -> Result<(), Event> {
    if core.chip.port(hart.id).is_sending.load(Ordering::Acquire) {
        return Err(Event::WaitPartner(Wait::Sent));
    }
    Ok(())
}
