//! Shire registers that user mode can reach: credits, barriers and a few that only have to be
//! there. Spec: ISA §3.3, §4.3

use std::sync::atomic::Ordering;

use crate::machine::chip::Core;
use crate::memory::map::SHIRES;
use crate::memory::weak::Sync;

const OWN_SHIRE: u64 = 0xFF;
const BROADCAST_DATA: u64 = 0x35_FFF0;
const BROADCAST: u64 = 0x35_FFF8;
/// State field of the shire-cache operation register: idle.
const CACHE_IDLE: u64 = 0x400_0000;
const BROADCAST_SHIRES: u64 = 0xFF_FFFF_FFFF;

/// Why an access to a register fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EsrFault {
    /// User mode has no access: a trap.
    Access,
    /// There is no such register: a bus error.
    Bus,
}

/// A register within its shire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    /// Credit increment for a thread's counter.
    Credit {
        thread: u32,
        counter: usize,
    },
    Barrier(usize),
    /// Writes are ignored, reads give this value.
    Constant(u64),
    Dummy(usize),
    RedirectPc(usize),
    BroadcastData,
    Broadcast,
}

/// Finds the shire and the register at an offset in the ESR window.
fn decode(own_shire: u32, offset: u64) -> Result<(u32, Register), EsrFault> {
    if offset >> 30 & 3 != 0 {
        return Err(EsrFault::Access);
    }
    let shire = match offset >> 22 & 0xFF {
        OWN_SHIRE => own_shire,
        #[expect(clippy::cast_possible_truncation, reason = "the field has eight bits")]
        shire => shire as u32,
    };
    if shire >= SHIRES {
        return Err(EsrFault::Bus);
    }
    let register = offset & 0x3F_FFFF;
    let neighbourhood = (register >> 16 & 3) as usize;
    let register = match register {
        0x34_00C0 | 0x34_00C8 | 0x34_00D0 | 0x34_00D8 => Register::Credit {
            thread: u32::from(register & 0x10 != 0),
            counter: usize::from(register & 8 != 0),
        },
        0x34_0100..0x34_0200 => Register::Barrier((register >> 3 & 31) as usize),
        0x34_0080 => Register::Constant(0),
        0x34_02F8 => Register::Constant(1),
        0x30_0100 | 0x30_2100 | 0x30_4100 | 0x30_6100 => Register::Constant(CACHE_IDLE),
        0x10_0000 | 0x11_0000 | 0x12_0000 | 0x13_0000 => Register::Dummy(neighbourhood),
        0x10_0040 | 0x11_0040 | 0x12_0040 | 0x13_0040 => Register::RedirectPc(neighbourhood),
        BROADCAST_DATA => Register::BroadcastData,
        BROADCAST => Register::Broadcast,
        // The heads of the message ports, which the firmware keeps closed.
        0..0x10_0000 if register & 0xF00 == 0x800 => return Err(EsrFault::Access),
        _ => return Err(EsrFault::Bus),
    };
    Ok((shire, register))
}

/// Reads the register at `offset` in the ESR window.
pub(crate) fn read(core: &Core<'_>, own_shire: u32, offset: u64) -> Result<u64, EsrFault> {
    let (shire, register) = decode(own_shire, offset)?;
    let state = core.chip.shire(shire);
    Ok(match register {
        Register::Credit { .. } | Register::Broadcast => 0,
        Register::Barrier(number) => {
            core.chip.note(|races| races.takes(Sync::barrier(shire, number as u64)));
            state.barriers[number].load(Ordering::Acquire).into()
        }
        Register::Constant(value) => value,
        Register::Dummy(number) => state.dummy[number].load(Ordering::Relaxed),
        Register::RedirectPc(number) => state.redirect_pc[number].load(Ordering::Relaxed),
        Register::BroadcastData => state.broadcast_data.load(Ordering::Relaxed),
    })
}

/// Writes the register at `offset` in the ESR window.
#[expect(clippy::cast_possible_truncation, reason = "barriers have eight bits")]
pub(crate) fn write(
    core: &Core<'_>,
    own_shire: u32,
    offset: u64,
    value: u64,
) -> Result<(), EsrFault> {
    let (shire, register) = decode(own_shire, offset)?;
    let state = core.chip.shire(shire);
    match register {
        Register::Credit { thread, counter } => core.give_credits(shire, thread, counter, value),
        Register::Barrier(number) => {
            core.chip.note(|races| races.gives(Sync::barrier(shire, number as u64)));
            state.barriers[number].store(value as u8, Ordering::Release);
        }
        Register::Constant(_) => {}
        Register::Dummy(number) => {
            state.dummy[number].store(value & 0xFFFF_FFFF, Ordering::Relaxed);
        }
        Register::RedirectPc(number) => state.redirect_pc[number].store(value, Ordering::Relaxed),
        Register::BroadcastData => state.broadcast_data.store(value, Ordering::Relaxed),
        Register::Broadcast => {
            let data = state.broadcast_data.load(Ordering::Relaxed);
            return broadcast(core, own_shire, value, data);
        }
    }
    Ok(())
}

/// Writes `data` to one register of every shire in a mask.
fn broadcast(core: &Core<'_>, own_shire: u32, command: u64, data: u64) -> Result<(), EsrFault> {
    if command >> 59 != 0 {
        return Err(EsrFault::Access);
    }
    let register = (command >> 54 & 0x1F) << 17 | (command >> 40 & 0x3FFF) << 3;
    if matches!(register, BROADCAST_DATA | BROADCAST) {
        return Err(EsrFault::Bus);
    }
    let shires = command & BROADCAST_SHIRES;
    for shire in (0..u64::from(SHIRES)).filter(|shire| shires >> shire & 1 != 0) {
        write(core, own_shire, shire << 22 | register, data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_shire_and_offset() {
        let credit = |thread, counter| Register::Credit { thread, counter };
        assert_eq!(decode(7, 0x34_00C0), Ok((0, credit(0, 0))));
        assert_eq!(decode(7, 5 << 22 | 0x34_00D8), Ok((5, credit(1, 1))));
        assert_eq!(decode(7, 0x3FF4_00C8), Ok((7, credit(0, 1))));
        assert_eq!(decode(7, 0x3FF4_01F8), Ok((7, Register::Barrier(31))));
    }

    #[test]
    fn privileged_and_unknown_registers_fail_differently() {
        assert_eq!(decode(0, 0x4034_0290), Err(EsrFault::Access));
        assert_eq!(decode(0, 0x34_0300), Err(EsrFault::Bus));
        assert_eq!(decode(0, 33 << 22 | 0x34_00C0), Err(EsrFault::Bus));
    }
}
