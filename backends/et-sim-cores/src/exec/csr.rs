//! Control and status registers of user mode. Spec: ISA §2

use std::sync::atomic::Ordering;

use et_isa::Id;
use et_isa::csr::{
    EVICT_VA, FCC, FCCNB, FCSR, FFLAGS, FLB, FLUSH_VA, FRM, GSC_PROGRESS, HARTID, HPMCOUNTER3,
    HPMCOUNTER4, HPMCOUNTER8, LOCK_VA, PREFETCH_VA, STALL, TENSOR_CONV_CTRL, TENSOR_CONV_SIZE,
    TENSOR_COOP, TENSOR_ERROR, TENSOR_FMA, TENSOR_LOAD, TENSOR_LOAD_L2, TENSOR_MASK, TENSOR_QUANT,
    TENSOR_REDUCE, TENSOR_STORE, TENSOR_WAIT, UCACHE_CONTROL, UNLOCK_VA, VALIDATION0, VALIDATION1,
    VALIDATION2, VALIDATION3,
};

use crate::decode::op::Op;
use crate::exec::cache;
use crate::exec::event::Event;
use crate::exec::tensor;
use crate::machine::chip::Core;
use crate::machine::hart::Hart;
use crate::memory::weak::{Sync, WriteBack};

/// Writable bits of `fcsr`; above the rounding mode only the vendor flag.
const FCSR_MASK: u64 = 0x8000_00FF;
/// Bits of `fcsr` that are flags.
const FLAGS_MASK: u64 = 0x8000_001F;
const FRM_MASK: u64 = 0xE0;
const UCACHE_WRITABLE: u64 = 0x7DE;
const UCACHE_SPLIT: u16 = 1;
const TENSOR_ERROR_MASK: u64 = 0x3FF;
const TENSOR_COOP_MASK: u64 = 0xF_FF1F;

/// What `tensor_wait` waits for: evictions, flushes and locks.
const WAIT_CACHE_OPERATIONS: u64 = 6;

/// What a write leaves for the destination register.
enum Written {
    /// The old value, as usual.
    Old,
    /// A result of the action that the write started.
    Result(u64),
}

/// Executes a CSR instruction at `pc`.
#[inline(never)]
pub(crate) fn execute(hart: &mut Hart, core: &Core<'_>, op: Op, pc: u64) -> Result<(), Event> {
    let id = op.id().ok_or_else(|| Event::illegal(core, pc))?;
    let number = op.raw() >> 16;
    let operand = match id {
        Id::Csrrw | Id::Csrrs | Id::Csrrc => hart.x[op.rs1()],
        _ => op.rs1() as u64,
    };
    let writes = matches!(id, Id::Csrrw | Id::Csrrwi) || op.rs1() != 0;
    let privileged = number >> 8 & 3 != 0;
    let read_only = number >> 10 == 3;
    if privileged || read_only && writes {
        return Err(Event::illegal(core, pc));
    }
    let old = read(hart, core, number).ok_or_else(|| Event::illegal(core, pc))?;
    let mut result = old;
    if writes {
        let new = match id {
            Id::Csrrw | Id::Csrrwi => operand,
            Id::Csrrs | Id::Csrrsi => old | operand,
            _ => old & !operand,
        };
        match write(hart, core, number, new, pc)? {
            Written::Old => {}
            Written::Result(value) => result = value,
        }
    }
    hart.x[op.rd()] = result;
    Ok(())
}

/// Reads a register; none if there is no such register for this hart.
fn read(hart: &Hart, core: &Core<'_>, number: u32) -> Option<u64> {
    let port = core.chip.port(hart.id);
    Some(match number {
        FFLAGS => u64::from(hart.fcsr) & FLAGS_MASK,
        FRM => u64::from(hart.fcsr >> 5 & 7),
        FCSR => hart.fcsr.into(),
        TENSOR_REDUCE | TENSOR_FMA | TENSOR_COOP | TENSOR_QUANT | TENSOR_LOAD | TENSOR_STORE
            if hart.is_second_thread() =>
        {
            return None;
        }
        TENSOR_REDUCE | TENSOR_FMA | TENSOR_CONV_SIZE | TENSOR_CONV_CTRL | TENSOR_COOP
        | TENSOR_QUANT | TENSOR_LOAD | TENSOR_LOAD_L2 | TENSOR_STORE | TENSOR_WAIT | FLB | FCC
        | STALL | PREFETCH_VA | EVICT_VA | FLUSH_VA | LOCK_VA | UNLOCK_VA | VALIDATION1 => 0,
        TENSOR_MASK => hart.tensor_mask.into(),
        TENSOR_ERROR => port.tensor_error.load(Ordering::Relaxed).into(),
        UCACHE_CONTROL => {
            core.chip.port(hart.id & !1).ucache_control.load(Ordering::Relaxed).into()
        }
        GSC_PROGRESS => hart.gsc_progress.into(),
        VALIDATION0 => hart.validation[0],
        VALIDATION2 => hart.validation[2],
        VALIDATION3 => hart.validation[3],
        HPMCOUNTER3 => core.chip.clock.cycles(),
        // Instructions of this thread of the minion; those of the other one are not counted here.
        _ if number == HPMCOUNTER4 + (hart.id & 1) => hart.retired,
        HPMCOUNTER4..=HPMCOUNTER8 => 0,
        FCCNB => u64::from(port.credits(0)) | u64::from(port.credits(1)) << 16,
        HARTID => hart.id.into(),
        _ => return None,
    })
}

/// Writes a register that can be read.
#[expect(clippy::cast_possible_truncation, reason = "registers keep the bits they have")]
fn write(
    hart: &mut Hart,
    core: &Core<'_>,
    number: u32,
    value: u64,
    pc: u64,
) -> Result<Written, Event> {
    let port = core.chip.port(hart.id);
    let fcsr = u64::from(hart.fcsr);
    match number {
        FFLAGS => hart.fcsr = (fcsr & !FLAGS_MASK | value & FLAGS_MASK) as u32,
        FRM => hart.fcsr = (fcsr & !FRM_MASK | value << 5 & FRM_MASK) as u32,
        FCSR => hart.fcsr = (value & FCSR_MASK) as u32,
        TENSOR_COOP => hart.tensor_coop = (value & TENSOR_COOP_MASK) as u32,
        TENSOR_MASK => hart.tensor_mask = value as u16,
        TENSOR_CONV_SIZE => {
            hart.conv_size = value;
            hart.tensor_mask = convolution_mask(hart.conv_size, hart.conv_ctrl);
        }
        TENSOR_CONV_CTRL => {
            hart.conv_ctrl = value;
            hart.tensor_mask = convolution_mask(hart.conv_size, hart.conv_ctrl);
        }
        TENSOR_ERROR => {
            port.tensor_error.store((value & TENSOR_ERROR_MASK) as u16, Ordering::Relaxed);
        }
        UCACHE_CONTROL => {
            let control = (value & UCACHE_WRITABLE) as u16 | UCACHE_SPLIT;
            core.chip.port(hart.id & !1).set_cache_control(control);
        }
        GSC_PROGRESS => hart.gsc_progress = (value & 7) as u8,
        VALIDATION0 => hart.validation[0] = value,
        VALIDATION2 => hart.validation[2] = value,
        VALIDATION3 => hart.validation[3] = value,
        TENSOR_WAIT => {
            if value != WAIT_CACHE_OPERATIONS {
                tensor::wait(hart, core, value)?;
            } else if let Some(mut weak) = core.chip.weak() {
                weak.wait_for_lines(core, hart.id);
            }
        }
        // The console has no reader.
        VALIDATION1 => {}
        FLB => {
            core.chip.note(|races| races.joins(Sync::barrier(hart.shire(), value)));
            let last = core.chip.shire(hart.shire()).join_barrier(value);
            return Ok(Written::Result(last.into()));
        }
        FCC => {
            let counter = (value & 1) as usize;
            if !port.take_credit(counter) {
                return Err(Event::WaitCredit(counter));
            }
            core.chip.note(|races| races.takes(Sync::credit(hart.id, counter)));
        }
        STALL => return Err(Event::Stall),
        PREFETCH_VA => cache::execute(hart, core, value, cache::Operation::Prefetch)?,
        EVICT_VA => {
            cache::execute(hart, core, value, cache::Operation::WriteBack(WriteBack::Evict))?;
        }
        FLUSH_VA => {
            cache::execute(hart, core, value, cache::Operation::WriteBack(WriteBack::Flush))?;
        }
        LOCK_VA => cache::execute(hart, core, value, cache::Operation::Lock)?,
        UNLOCK_VA => cache::execute(hart, core, value, cache::Operation::Unlock)?,
        TENSOR_REDUCE | TENSOR_FMA | TENSOR_QUANT | TENSOR_LOAD | TENSOR_LOAD_L2 | TENSOR_STORE => {
            tensor::start(hart, core, number, value, pc)?;
        }
        _ => return Err(Event::illegal(core, pc)),
    }
    Ok(Written::Old)
}

/// The tensor mask that a convolution's geometry selects. Spec: ISA §3.8
#[expect(clippy::cast_possible_truncation, reason = "fields of 8 and 16 bits")]
fn convolution_mask(size: u64, control: u64) -> u16 {
    let step = |shift: u64| i32::from(((size >> shift) as u8).cast_signed());
    let start = |shift: u64| i32::from(((control >> shift) as u16).cast_signed());
    let count = |shift: u64| i32::from((size >> shift) as u16);
    let (mut row, mut column) = (start(32), start(0));
    let mut mask = 0;
    for bit in 0..16 {
        let inside = (0..count(32)).contains(&row) && (0..count(0)).contains(&column);
        mask |= u16::from(inside) << bit;
        row += step(56);
        column += step(24);
    }
    mask
}
