//! What the harts of a failed launch left behind.

use std::fmt;

use et_devapi::abi::{
    DRAM_BASE, EXCEPTION_FILL, ExceptionEntry, ExceptionType, compute_hart_index, hart_of_index,
    shire_of_hart,
};
use et_hal::{DeviceAddr, WatchedBuffer};
use et_isa::{MemoryFault, Race};
use zerocopy::FromBytes;

use crate::memory::DeviceMemory;

/// What a register holds that firmware has not written.
const FILL: u64 = u64::from_le_bytes([EXCEPTION_FILL; 8]);

/// Faults below are taken for accesses through a null pointer, with an index or a field's offset.
const NULL_PAGE_END: u64 = 0x1000;
/// First address of device DRAM, where the firmware is.
const DRAM_START: u64 = DRAM_BASE.as_u64();
/// First address behind the firmware's code and data. Spec: §12.1.
const FIRMWARE_END: u64 = 0x80_0400_0000;

/// Names of x1 to x31 in the calling convention.
const REGISTER_NAMES: [&str; 31] = [
    "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// State of a failed hart. Spec: §15.
///
/// Its `Display` is one line; [`registers`](Self::registers) shows the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HartContext {
    /// Hart id, 0 to 2111.
    pub hart_id: u32,
    /// What happened.
    pub kind: ExceptionKind,
    /// Program counter, if the hart was stopped in the kernel.
    pub pc: Option<u64>,
    /// Cycle counter when the state was saved.
    pub cycles: u64,
    /// CSR `sstatus`; 0 if it was not saved.
    pub sstatus: u64,
    /// x1 to x31, if the hart was stopped in the kernel.
    pub gpr: Option<Box<[u64; 31]>>,
    /// The buffer nearest to a [fault that a checker has found](Cause::Memory): the one with its
    /// address, or else the next one on either side.
    pub nearest: Option<WatchedBuffer>,
}

/// Why a hart failed. Spec: §15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// The kernel trapped.
    Trap {
        /// Why.
        cause: Cause,
        /// Address or instruction, depending on the cause.
        tval: u64,
    },
    /// The host aborted the kernel.
    SystemAbort,
    /// The kernel gave up.
    SelfAbort,
    /// The kernel returned this negative value.
    KernelError(i64),
    /// A load, store or atomic went to an address without a device; with the kernel's return value.
    BusError(i64),
    /// The hart did not answer. No known firmware reports it.
    Hang,
    /// The tensor unit reported an error. No known firmware reports it.
    TensorError,
    /// A type that is not in the specification. No [`HartContext`] has it, since such an entry is
    /// taken for memory that firmware did not write.
    Unknown(u64),
}

/// Why a kernel trapped. Spec: isa.md §1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// 1: code outside DRAM, or in memory of the firmware.
    InstructionAccessFault,
    /// 2: an undefined instruction or one that kernels may not use.
    IllegalInstruction,
    /// 3: `ebreak`.
    Breakpoint,
    /// 5: a load from where the kernel may not read, or a misaligned one where it must be aligned.
    LoadAccessFault,
    /// 7: the same for stores and atomics.
    StoreAccessFault,
    /// 8: `ecall`.
    EnvironmentCall,
    /// 12: only with address translation.
    InstructionPageFault,
    /// 13: only with address translation.
    LoadPageFault,
    /// 15: only with address translation.
    StorePageFault,
    /// 25: code could not be fetched.
    FetchBusError,
    /// 26: code was damaged in memory.
    FetchEccError,
    /// 27: only with address translation.
    LoadSplitPageFault,
    /// 28: only with address translation.
    StoreSplitPageFault,
    /// 30: an instruction that the hardware leaves to software, which does not provide it.
    Microcode,
    /// A checker of memory has found the access to be wrong. The device that has one is simulated:
    /// see [`Hal::watch_memory`](et_hal::Hal::watch_memory).
    Memory(MemoryFault),
    /// A checker has found that another hart uses the same memory, and something is missing between
    /// the two. The device that has one is simulated.
    Race(Race),
    /// Another number.
    Other(u64),
}

impl Cause {
    /// Returns the cause of a value of the CSR `scause`.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        match value {
            1 => Self::InstructionAccessFault,
            2 => Self::IllegalInstruction,
            3 => Self::Breakpoint,
            5 => Self::LoadAccessFault,
            7 => Self::StoreAccessFault,
            8 => Self::EnvironmentCall,
            12 => Self::InstructionPageFault,
            13 => Self::LoadPageFault,
            15 => Self::StorePageFault,
            25 => Self::FetchBusError,
            26 => Self::FetchEccError,
            27 => Self::LoadSplitPageFault,
            28 => Self::StoreSplitPageFault,
            30 => Self::Microcode,
            other => match (MemoryFault::from_cause(other), Race::from_cause(other)) {
                (Some(fault), _) => Self::Memory(fault),
                (None, Some(race)) => Self::Race(race),
                (None, None) => Self::Other(other),
            },
        }
    }

    /// Returns the value of the CSR `scause`.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        match self {
            Self::InstructionAccessFault => 1,
            Self::IllegalInstruction => 2,
            Self::Breakpoint => 3,
            Self::LoadAccessFault => 5,
            Self::StoreAccessFault => 7,
            Self::EnvironmentCall => 8,
            Self::InstructionPageFault => 12,
            Self::LoadPageFault => 13,
            Self::StorePageFault => 15,
            Self::FetchBusError => 25,
            Self::FetchEccError => 26,
            Self::LoadSplitPageFault => 27,
            Self::StoreSplitPageFault => 28,
            Self::Microcode => 30,
            Self::Memory(fault) => fault.cause(),
            Self::Race(race) => race.cause(),
            Self::Other(value) => value,
        }
    }
}

impl Cause {
    /// Says what most likely led to an access fault at an address.
    const fn likely_reason(self, address: u64) -> &'static str {
        let is_fetch = matches!(self, Self::InstructionAccessFault);
        match address {
            // A kernel that returns from its entry instead of ending jumps to 0, too. Spec: §14.
            ..NULL_PAGE_END if is_fetch => "null function pointer, or the entry returned",
            ..NULL_PAGE_END => "null pointer",
            DRAM_START..FIRMWARE_END => "memory of the firmware",
            _ if is_fetch => "not code: wild function pointer or return address",
            _ => "wild pointer, or misaligned where that is not allowed",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InstructionAccessFault => "instruction access fault",
            Self::IllegalInstruction => "illegal instruction",
            Self::Breakpoint => "breakpoint",
            Self::LoadAccessFault => "load access fault",
            Self::StoreAccessFault => "store access fault",
            Self::EnvironmentCall => "environment call",
            Self::InstructionPageFault => "instruction page fault",
            Self::LoadPageFault => "load page fault",
            Self::StorePageFault => "store page fault",
            Self::FetchBusError => "bus error while fetching an instruction",
            Self::FetchEccError => "memory error while fetching an instruction",
            Self::LoadSplitPageFault => "page fault of a load across two pages",
            Self::StoreSplitPageFault => "page fault of a store across two pages",
            Self::Microcode => "instruction that the hardware does not execute",
            Self::Memory(fault) => return fault.fmt(f),
            Self::Race(race) => return race.fmt(f),
            Self::Other(value) => return write!(f, "trap with cause {value}"),
        })
    }
}

impl fmt::Display for ExceptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trap { cause, tval } => match cause {
                Cause::InstructionAccessFault
                | Cause::LoadAccessFault
                | Cause::StoreAccessFault => {
                    write!(f, "{cause} at {tval:#x} ({})", cause.likely_reason(*tval))
                }
                Cause::InstructionPageFault
                | Cause::LoadPageFault
                | Cause::StorePageFault
                | Cause::LoadSplitPageFault
                | Cause::StoreSplitPageFault
                | Cause::Memory(_) => write!(f, "{cause} at {tval:#x}"),
                // Always the program counter, or 0.
                Cause::Breakpoint
                | Cause::EnvironmentCall
                | Cause::FetchBusError
                | Cause::FetchEccError => cause.fmt(f),
                // The hardware gives the bits of 32-bit instructions only.
                Cause::IllegalInstruction if *tval == 0 => cause.fmt(f),
                Cause::IllegalInstruction | Cause::Microcode => {
                    write!(f, "{cause} {tval:#010x}")?;
                    let decoded = u32::try_from(*tval).ok().and_then(et_isa::decode);
                    decoded.map_or(Ok(()), |decoded| write!(f, " ({})", decoded.text()))
                }
                Cause::Race(_) => write!(f, "{cause}, at {tval:#x}"),
                Cause::Other(_) => write!(f, "{cause}, value {tval:#x}"),
            },
            Self::SystemAbort => f.write_str("aborted by the host"),
            Self::SelfAbort => f.write_str("the kernel aborted itself"),
            Self::KernelError(value) => write!(f, "the kernel returned {value}"),
            Self::BusError(value) => write!(f, "bus error (the kernel returned {value})"),
            Self::Hang => f.write_str("hang"),
            Self::TensorError => f.write_str("tensor error"),
            Self::Unknown(value) => write!(f, "exception of type {value}"),
        }
    }
}

impl ExceptionKind {
    fn of(entry: &ExceptionEntry) -> Self {
        let value = entry.r#type.get();
        match ExceptionType::from_u64(value) {
            Some(ExceptionType::UmodeException) => {
                Self::Trap { cause: Cause::from_u64(entry.scause.get()), tval: entry.stval.get() }
            }
            Some(ExceptionType::SystemAbort) => Self::SystemAbort,
            Some(ExceptionType::SelfAbort) => Self::SelfAbort,
            Some(ExceptionType::UserKernelError) => Self::KernelError(entry.user_error.get()),
            Some(ExceptionType::BusError) => Self::BusError(entry.user_error.get()),
            Some(ExceptionType::Hang) => Self::Hang,
            Some(ExceptionType::TensorError) => Self::TensorError,
            None => Self::Unknown(value),
        }
    }

    /// Returns the type, cause, trap value and return value that [`of`](Self::of) takes it from.
    const fn to_parts(self) -> (u64, u64, u64, i64) {
        match self {
            Self::Trap { cause, tval } => {
                (ExceptionType::UmodeException as u64, cause.as_u64(), tval, 0)
            }
            Self::SystemAbort => (ExceptionType::SystemAbort as u64, 0, 0, 0),
            Self::SelfAbort => (ExceptionType::SelfAbort as u64, 0, 0, 0),
            Self::KernelError(value) => (ExceptionType::UserKernelError as u64, 0, 0, value),
            Self::BusError(value) => (ExceptionType::BusError as u64, 0, 0, value),
            Self::Hang => (ExceptionType::Hang as u64, 0, 0, 0),
            Self::TensorError => (ExceptionType::TensorError as u64, 0, 0, 0),
            Self::Unknown(value) => (value, 0, 0, 0),
        }
    }

    /// Returns `true` if firmware saves program counter and registers.
    const fn has_registers(self) -> bool {
        matches!(self, Self::Trap { .. } | Self::SystemAbort | Self::SelfAbort)
    }
}

impl HartContext {
    fn of(hart_id: u32, entry: &ExceptionEntry) -> Self {
        let kind = ExceptionKind::of(entry);
        // An aborted hart is saved only if it was in the kernel; otherwise the fill is still there.
        let is_saved = kind.has_registers() && entry.sepc.get() != FILL;
        Self {
            hart_id,
            kind,
            pc: is_saved.then(|| entry.sepc.get()),
            cycles: entry.cycles.get(),
            sstatus: if is_saved { entry.sstatus.get() } else { 0 },
            gpr: is_saved.then(|| Box::new(entry.gpr.map(u64::from))),
            nearest: None,
        }
    }

    /// Takes an entry for what it says; `None` if its hart or type does not exist.
    pub(crate) fn from_entry(entry: &ExceptionEntry) -> Option<Self> {
        let hart_id = u32::try_from(entry.hart_id.get()).ok()?;
        compute_hart_index(hart_id)?;
        ExceptionType::from_u64(entry.r#type.get())?;
        Some(Self::of(hart_id, entry))
    }

    /// Returns the entry that it would be decoded from.
    pub(crate) fn to_entry(&self) -> ExceptionEntry {
        let (kind, cause, value, error) = self.kind.to_parts();
        ExceptionEntry {
            r#type: kind.into(),
            cycles: self.cycles.into(),
            hart_id: u64::from(self.hart_id).into(),
            sepc: self.pc.unwrap_or(FILL).into(),
            sstatus: self.sstatus.into(),
            stval: value.into(),
            scause: cause.into(),
            user_error: error.into(),
            gpr: self.gpr.as_ref().map_or([0; 31], |gpr| **gpr).map(Into::into),
            pad: [0; 8],
        }
    }

    /// Returns what a checker has found, and the address of the access; `None` if it failed for
    /// another reason.
    #[must_use]
    pub const fn memory_fault(&self) -> Option<(MemoryFault, u64)> {
        match self.kind {
            ExceptionKind::Trap { cause: Cause::Memory(fault), tval } => Some((fault, tval)),
            _ => None,
        }
    }

    /// Returns what is missing between two harts that use the same memory, as a checker has found,
    /// and the address; `None` if it failed for another reason.
    #[must_use]
    pub const fn race(&self) -> Option<(Race, u64)> {
        match self.kind {
            ExceptionKind::Trap { cause: Cause::Race(race), tval } => Some((race, tval)),
            _ => None,
        }
    }

    /// Returns the program counter of the other hart of a [race](Self::race).
    #[must_use]
    pub fn other_pc(&self) -> Option<u64> {
        let (race, _) = self.race()?;
        Some(self.pc?.wrapping_add_signed(race.distance.into()))
    }

    /// Returns the address and the size of the access that a checker has found to be wrong.
    fn checked_access(&self) -> Option<(u64, u8)> {
        let fault = self.memory_fault().map(|(fault, address)| (address, fault.bytes));
        fault.or_else(|| self.race().map(|(race, address)| (address, race.bytes)))
    }

    /// Writes where the address of a fault is, as seen from the nearest buffer.
    fn write_nearest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some((address, bytes)), Some(buffer)) = (self.checked_access(), self.nearest) else {
            return Ok(());
        };
        let count = |bytes: u64| format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" });
        let (start, behind) = (buffer.addr.as_u64(), address + u64::from(bytes));
        let end = start + buffer.len_bytes;
        if address < start {
            write!(f, ", {} before {buffer}", count(start - address))
        } else if address == end {
            write!(f, ", right after the end of {buffer}")
        } else if address > end {
            write!(f, ", {} after the end of {buffer}", count(address - end))
        } else if behind > end {
            write!(f, ", the last {} after the end of {buffer}", count(behind - end))
        } else {
            write!(f, ", at byte {} of {buffer}", address - start)
        }
    }

    /// Returns the shire, 0 to 32.
    #[must_use]
    pub const fn shire(&self) -> u32 {
        shire_of_hart(self.hart_id)
    }

    /// Returns the minion in the shire, 0 to 31.
    #[must_use]
    pub const fn minion(&self) -> u32 {
        self.hart_id % 64 / 2
    }

    /// Returns the thread in the minion, 0 or 1.
    #[must_use]
    pub const fn thread(&self) -> u32 {
        self.hart_id % 2
    }

    /// Returns something that shows the saved registers, several to a line.
    #[must_use]
    pub fn registers(&self) -> impl fmt::Display + '_ {
        Registers(self)
    }
}

impl fmt::Display for HartContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shire, minion, thread) = (self.shire(), self.minion(), self.thread());
        write!(f, "hart {} (shire {shire}, minion {minion}, thread {thread}): ", self.hart_id)?;
        self.kind.fmt(f)?;
        self.write_nearest(f)?;
        match self.pc {
            Some(pc) => write!(f, ", pc {pc:#x}"),
            None => Ok(()),
        }
    }
}

struct Registers<'a>(&'a HartContext);

impl fmt::Display for Registers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(pc), Some(gpr)) = (self.0.pc, &self.0.gpr) else {
            return f.write_str("registers were not saved");
        };
        write!(f, "{:>3} {pc:#018x}  sstatus {:#018x}", "pc", self.0.sstatus)?;
        for (index, (name, value)) in REGISTER_NAMES.iter().zip(gpr.iter()).enumerate() {
            let before = if index % 4 == 0 { '\n' } else { ' ' };
            write!(f, "{before}{name:>3} {value:#018x}")?;
        }
        Ok(())
    }
}

/// Reads the state of the failed harts from an exception buffer, in the order of their ids, with
/// the buffers near the faults that a checker has found.
pub(crate) fn decode_near(buffer: &[u8], memory: &DeviceMemory) -> Vec<HartContext> {
    let near = |mut context: HartContext| {
        let address = context.checked_access().map(|(address, _)| DeviceAddr::new(address));
        context.nearest = address.and_then(|address| memory.nearest(address));
        context
    };
    decode(buffer).into_iter().map(near).collect()
}

/// Reads the state of the failed harts from an exception buffer, in the order of their ids.
///
/// Firmware writes only the entries of failed harts and marks nothing; an entry counts if it has
/// its hart's id and a type of the specification.
pub(crate) fn decode(buffer: &[u8]) -> Vec<HartContext> {
    (0u32..)
        .map_while(hart_of_index)
        .zip(buffer.chunks_exact(size_of::<ExceptionEntry>()))
        .filter_map(|(hart_id, bytes)| {
            let entry = ExceptionEntry::ref_from_bytes(bytes).ok()?;
            HartContext::from_entry(entry).filter(|context| context.hart_id == hart_id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_ENTRIES};
    use zerocopy::IntoBytes;

    use super::*;

    fn filled() -> Vec<u8> {
        vec![EXCEPTION_FILL; EXCEPTION_BUFFER_BYTES]
    }

    fn entry(hart_id: u32, kind: u64) -> ExceptionEntry {
        let mut entry = ExceptionEntry::read_from_bytes(&[EXCEPTION_FILL; 320]).unwrap();
        entry.r#type = kind.into();
        entry.hart_id = u64::from(hart_id).into();
        entry.cycles = 1234.into();
        entry
    }

    fn trap(hart_id: u32, cause: u64, tval: u64) -> ExceptionEntry {
        let mut entry = entry(hart_id, 1);
        entry.scause = cause.into();
        entry.stval = tval.into();
        entry.sepc = 0x80_0580_1014.into();
        entry.sstatus = 0x6000.into();
        for (index, register) in (1u64..).zip(&mut entry.gpr) {
            *register = index.into();
        }
        entry
    }

    fn put(buffer: &mut [u8], index: usize, entry: &ExceptionEntry) {
        buffer[index * 320..][..320].copy_from_slice(entry.as_bytes());
    }

    fn only(entry: &ExceptionEntry) -> HartContext {
        let mut buffer = filled();
        let hart = u32::try_from(entry.hart_id.get()).unwrap();
        put(&mut buffer, compute_hart_index(hart).unwrap(), entry);
        let [context] = <[HartContext; 1]>::try_from(decode(&buffer)).unwrap();
        // A core file has entries, too.
        assert_eq!(HartContext::from_entry(&context.to_entry()), Some(context.clone()));
        context
    }

    #[test]
    fn a_filled_buffer_has_no_contexts() {
        assert_eq!(decode(&filled()), []);
        assert_eq!(decode(&[]), []);
        // In a zeroed buffer only hart 0 looks as if it had hung, which is why buffers are filled.
        assert_eq!(decode(&vec![0; EXCEPTION_BUFFER_BYTES]).len(), 1);
    }

    #[test]
    fn a_trap_has_everything() {
        let context = only(&trap(70, 5, 0));
        assert_eq!(context.kind, ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval: 0 });
        assert_eq!(context.pc, Some(0x80_0580_1014));
        assert_eq!((context.cycles, context.sstatus), (1234, 0x6000));
        assert_eq!(context.gpr.as_ref().unwrap()[30], 31);
        assert_eq!(
            context.to_string(),
            "hart 70 (shire 1, minion 3, thread 0): load access fault at 0x0 (null pointer), pc 0x8005801014"
        );
    }

    #[test]
    fn registers_have_their_names() {
        let text = only(&trap(0, 2, 0)).registers().to_string();
        assert!(text.starts_with(" pc 0x0000008005801014  sstatus 0x0000000000006000\n"), "{text}");
        assert!(text.contains("\n ra 0x0000000000000001  sp 0x0000000000000002"), "{text}");
        assert!(text.contains(" a0 0x000000000000000a"), "{text}");
        assert!(text.contains("s11 0x000000000000001b"), "{text}");
        assert!(text.ends_with(" t6 0x000000000000001f"), "{text}");
        assert_eq!(only(&entry(0, 4)).registers().to_string(), "registers were not saved");
    }

    #[test]
    fn fields_that_firmware_does_not_write_are_left_out() {
        let mut failed = entry(2111, 4);
        failed.user_error = (-5).into();
        let context = only(&failed);
        assert_eq!(context.kind, ExceptionKind::KernelError(-5));
        assert_eq!((context.pc, context.gpr.is_none(), context.sstatus), (None, true, 0));
        assert_eq!(
            context.to_string(),
            "hart 2111 (shire 32, minion 31, thread 1): the kernel returned -5"
        );
        failed.r#type = 6.into();
        assert_eq!(only(&failed).kind, ExceptionKind::BusError(-5));

        let aborted = only(&entry(9, 2));
        assert_eq!((aborted.kind, aborted.pc), (ExceptionKind::SystemAbort, None));
        let mut aborted = trap(9, 0, 0);
        aborted.r#type = 2.into();
        assert_eq!(only(&aborted).pc, Some(0x80_0580_1014));
        aborted.r#type = 3.into();
        assert_eq!(only(&aborted).kind, ExceptionKind::SelfAbort);
    }

    #[test]
    fn entries_of_another_hart_or_an_unknown_type_do_not_count() {
        let mut buffer = filled();
        put(&mut buffer, 3, &trap(4, 5, 0));
        put(&mut buffer, 5, &entry(5, 7));
        put(&mut buffer, 2048, &trap(2048, 5, 0));
        let mut high = trap(6, 5, 0);
        high.hart_id = (6 + (1 << 32)).into();
        put(&mut buffer, 6, &high);
        assert_eq!(decode(&buffer), []);
    }

    #[test]
    fn all_harts_are_found_in_order() {
        let mut buffer = filled();
        for index in 0..EXCEPTION_ENTRIES {
            let hart = hart_of_index(u32::try_from(index).unwrap()).unwrap();
            put(&mut buffer, index, &trap(hart, 30, 0));
        }
        // A partial entry and entries behind the last do no harm.
        buffer.extend_from_slice(trap(2112, 5, 0).as_bytes());
        buffer.extend_from_slice(&[0; 100]);
        let contexts = decode(&buffer);
        assert_eq!(contexts.len(), EXCEPTION_ENTRIES);
        assert!(contexts.is_sorted_by_key(|context| context.hart_id));
        assert_eq!(contexts.last().unwrap().hart_id, 2111);
        assert_eq!(decode(&buffer[..320 * 10 + 319]).len(), 10);
    }

    #[test]
    fn causes_say_what_they_mean() {
        for value in 0..64 {
            assert_eq!(Cause::from_u64(value).as_u64(), value);
        }
        let text = |cause, tval| only(&trap(0, cause, tval)).kind.to_string();
        assert_eq!(
            text(30, 0x1805_7553),
            "instruction that the hardware does not execute 0x18057553 (fdiv.s fa0, fa0, ft0, dyn)"
        );
        assert_eq!(text(2, 0), "illegal instruction");
        assert_eq!(text(2, 0x1050_0073), "illegal instruction 0x10500073 (wfi)");
        assert_eq!(text(2, 0xFFFF_FFFF), "illegal instruction 0xffffffff");
        assert_eq!(text(7, 0x10), "store access fault at 0x10 (null pointer)");
        let reason = "(null function pointer, or the entry returned)";
        assert_eq!(text(1, 0), format!("instruction access fault at 0x0 {reason}"));
        let text_7 = text(7, 0x80_03ff_fff8);
        assert_eq!(text_7, "store access fault at 0x8003fffff8 (memory of the firmware)");
        assert!(text(5, 0x80_0400_0001).contains("wild pointer, or misaligned"));
        assert!(text(1, 0x4000_0000).contains("not code"));
        assert_eq!(text(3, 0x80_0580_1014), "breakpoint");
        assert_eq!(text(11, 1), "trap with cause 11, value 0x1");
    }
}
