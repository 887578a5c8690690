//! The tensor unit of a minion, which its first hart drives by register writes. Spec: ISA §3.8
//!
//! Operations are executed when they start, except that a reduction may have to wait for its
//! partner. On weak memory they are executed later: loads when they are waited for, or at a moment
//! that is drawn, or at once if accesses are checked; arithmetic also when an instruction needs its
//! registers; stores are posted like coherent ones. So an operation that is not waited for leaves
//! its mark.

mod fma;
mod load;
mod quant;
pub(crate) mod reduce;
mod store;
mod tile;

use std::sync::atomic::Ordering;

use et_isa::csr::{
    TENSOR_FMA, TENSOR_LOAD, TENSOR_LOAD_L2, TENSOR_QUANT, TENSOR_REDUCE, TENSOR_STORE,
};

use crate::exec::event::Event;
use crate::exec::slow_float;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::bus::Missing;

/// Bits of an operand that are a line address or a stride between lines.
const LINE_MASK: u64 = 0xFFFF_FFFF_FFC0;
/// `ucache_control`: the L1 scratchpad is on.
pub(crate) const SCRATCHPAD_ON: u16 = 1 << 1;

/// Bits of `tensor_error`.
const BAD_TRANSFORM: u16 = 1 << 1;
const SCRATCHPAD_OFF: u16 = 1 << 4;
const BAD_PAIRING: u16 = 1 << 6;
const MEMORY_FAULT: u16 = 1 << 7;
const BAD_SHAPE: u16 = 1 << 8;
const BAD_REDUCTION: u16 = 1 << 9;

/// Lines of the L1 scratchpad.
const LINES: usize = 48;
/// Rows, and columns of 32 bits, of the largest tile.
const SIDE: usize = 16;

/// A line of 64 bytes, or a row of a tile, as little-endian words.
type Row = [u32; SIDE];

/// What the tensor unit keeps. It belongs to the minion, and only its first hart touches it.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    lines: [Row; LINES],
    ten_b: [Row; SIDE],
    /// Rows that were loaded to `ten_b` and wait for their multiplication.
    ten_b_rows: Option<usize>,
    ten_c: [Row; SIDE],
    /// Room for operands that are converted, once there were some.
    wide: Option<Box<tile::Wide>>,
    /// How often the scratchpad had been turned on when its lines were last known.
    turned_on: u32,
    /// Operations that have not been executed yet, oldest first. Only on weak memory.
    pending: Vec<Operation>,
}

impl Unit {
    fn new() -> Box<Self> {
        Box::new(Self {
            lines: [[0; SIDE]; LINES],
            ten_b: [[0; SIDE]; SIDE],
            ten_b_rows: None,
            ten_c: [[0; SIDE]; SIDE],
            wide: None,
            turned_on: 0,
            pending: Vec::new(),
        })
    }
}

/// An operation with all that it takes from integer registers and masks.
#[derive(Clone, Copy, Debug)]
struct Operation {
    /// The register that starts it.
    register: u32,
    value: u64,
    /// Stride and number, from x31.
    x31: u64,
    tensor_mask: u16,
}

impl Operation {
    #[expect(clippy::cast_possible_truncation, reason = "fields are short")]
    fn bits(&self, low: u32, count: u32) -> usize {
        (self.value >> low & ((1 << count) - 1)) as usize
    }

    fn flag(&self, bit: u32) -> bool {
        self.value >> bit & 1 != 0
    }

    fn row_is_on(&self, row: usize) -> bool {
        !self.flag(63) || self.tensor_mask >> row & 1 != 0
    }

    /// Address of a line, counted in strides from the operation's own.
    fn line_address(&self, row: usize) -> u64 {
        (self.value & LINE_MASK).wrapping_add((self.x31 & LINE_MASK).wrapping_mul(row as u64))
    }

    /// Returns `true` if instructions on floating-point registers wait for this operation.
    fn is_arithmetic(&self) -> bool {
        matches!(self.register, TENSOR_FMA | TENSOR_QUANT)
    }

    /// What `tensor_wait` calls this operation.
    fn wait(&self) -> u64 {
        match self.register {
            TENSOR_LOAD => self.x31 & 1,
            TENSOR_LOAD_L2 => WAIT_LOAD_L2 + (self.x31 & 1),
            TENSOR_FMA => WAIT_FMA,
            _ => WAIT_QUANT,
        }
    }
}

const WAIT_LOAD_L2: u64 = 2;
const WAIT_FMA: u64 = 7;
const WAIT_STORE: u64 = 8;
const WAIT_REDUCE: u64 = 9;
const WAIT_QUANT: u64 = 10;

/// Takes note of an error of the tensor unit.
fn fail(hart: &Hart, core: &Core<'_>, error: u16) {
    core.chip.port(hart.id).tensor_error.fetch_or(error, Ordering::Relaxed);
}

/// What follows from a line that is not there: an error, and a bus error if the address decodes.
fn missing(hart: &Hart, core: &Core<'_>, missing: Missing) -> Result<(), Event> {
    match missing {
        Missing::Fault => {
            fail(hart, core, MEMORY_FAULT);
            Ok(())
        }
        Missing::Nothing => Err(Event::BusError),
        Missing::Refused(event) => Err(event),
    }
}

/// Returns the minion's unit, and whether its scratchpad is on.
fn unit<'a>(hart: &'a mut Hart, core: &Core<'_>) -> (&'a mut Unit, bool) {
    let port = core.chip.port(hart.id & !1);
    let unit = hart.unit.get_or_insert_with(Unit::new);
    let turned_on = port.turned_on.load(Ordering::Acquire);
    if unit.turned_on != turned_on {
        unit.turned_on = turned_on;
        unit.lines = [[0; SIDE]; LINES];
    }
    (unit, port.ucache_control.load(Ordering::Acquire) & SCRATCHPAD_ON != 0)
}

/// Starts the operation of a write of `value` to `register`. What cannot be executed for lack of
/// partners ends with an event and is to be tried again.
pub(crate) fn start(
    hart: &mut Hart,
    core: &Core<'_>,
    register: u32,
    value: u64,
    pc: u64,
) -> Result<(), Event> {
    let (x31, tensor_mask) = (hart.x[31], hart.tensor_mask);
    let operation = Operation { register, value, x31, tensor_mask };
    match register {
        TENSOR_REDUCE => {
            finish_arithmetic(hart, core)?;
            return reduce::start(hart, core, &operation, pc);
        }
        TENSOR_FMA if !fma::is_legal(&operation, hart.fcsr) => {
            return Err(Event::illegal(core, pc));
        }
        TENSOR_QUANT => {
            slow_float::dynamic(hart, core, pc)?;
        }
        TENSOR_LOAD if !load::check(hart, core, &operation) => return Ok(()),
        _ => {}
    }
    // What is checked is executed at once, so that a fault is that of this instruction.
    let is_checked = core.check.is_some() || core.chip.finds_races;
    if core.chip.weak.is_none() || register == TENSOR_STORE || is_checked {
        return execute(hart, core, &operation);
    }
    if operation.is_arithmetic() {
        finish_arithmetic(hart, core)?;
        hart.has_pending_arithmetic = true;
    } else if register == TENSOR_LOAD && load::is_to_ten_b(&operation) {
        // The multiplication that takes it waits for it.
        return execute(hart, core, &operation);
    }
    let (unit, _) = unit(hart, core);
    unit.pending.push(operation);
    // From now on instructions are looked at one by one.
    Err(Event::Yield)
}

fn execute(hart: &mut Hart, core: &Core<'_>, operation: &Operation) -> Result<(), Event> {
    match operation.register {
        TENSOR_LOAD => load::load(hart, core, operation),
        TENSOR_LOAD_L2 => load::load_l2(hart, core, operation),
        TENSOR_FMA => {
            fma::execute(hart, core, operation);
            Ok(())
        }
        TENSOR_QUANT => {
            quant::execute(hart, core, operation);
            Ok(())
        }
        _ => store::execute(hart, core, operation),
    }
}

/// Waits for an event. Spec: ISA §3.8
pub(crate) fn wait(hart: &mut Hart, core: &Core<'_>, event: u64) -> Result<(), Event> {
    match event {
        WAIT_REDUCE => reduce::wait(hart, core),
        WAIT_STORE => {
            if let Some(mut weak) = core.chip.weak() {
                weak.fence(core, hart.id);
            }
            Ok(())
        }
        _ => finish(hart, core, |operation| operation.wait() == event),
    }
}

/// Executes the pending operations up to the last one that is `wanted`, of its kind: operations of
/// a kind are executed in their order.
fn finish(
    hart: &mut Hart,
    core: &Core<'_>,
    wanted: impl Fn(&Operation) -> bool,
) -> Result<(), Event> {
    let pending = |hart: &Hart, of: &dyn Fn(&Operation) -> bool| {
        hart.unit.as_ref().and_then(|unit| unit.pending.iter().position(of))
    };
    let mut result = Ok(());
    while let Some(last) = pending(hart, &wanted) {
        let Some(unit) = &mut hart.unit else { break };
        let register = unit.pending[last].register;
        let first = unit.pending.iter().position(|other| other.register == register);
        let operation = unit.pending.remove(first.unwrap_or(last));
        hart.has_pending_arithmetic = unit.pending.iter().any(Operation::is_arithmetic);
        // The rest is executed all the same.
        result = result.and(execute(hart, core, &operation));
    }
    result
}

/// Executes pending arithmetic: what instructions on floating-point registers wait for.
pub(crate) fn finish_arithmetic(hart: &mut Hart, core: &Core<'_>) -> Result<(), Event> {
    finish(hart, core, Operation::is_arithmetic)
}

/// Executes all that is pending, as it will be in the end.
pub(crate) fn finish_all(hart: &mut Hart, core: &Core<'_>) -> Result<(), Event> {
    finish(hart, core, |_| true)
}

/// Executes the pending operation that is the oldest.
pub(crate) fn finish_oldest(hart: &mut Hart, core: &Core<'_>) -> Result<(), Event> {
    let oldest = hart.unit.as_ref().and_then(|unit| unit.pending.first().copied());
    let Some(oldest) = oldest else { return Ok(()) };
    finish(hart, core, |operation| {
        operation.register == oldest.register && operation.value == oldest.value
    })
}
