//! Packed instructions.
use crate::chip::Core;
use crate::event::Event;
use crate::hart::Hart;
use crate::op::Op;

pub(crate) fn is_known(_raw: u32) -> bool {
    false
}

pub(crate) fn execute(_hart: &mut Hart, core: &Core<'_>, _op: Op, pc: u64) -> Result<(), Event> {
    Err(Event::illegal(core, pc))
}
