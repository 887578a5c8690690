//! The exception buffer, decoded.
//!
//! Spec: §15

use std::fmt;

use et_devapi::abi::{
    EXCEPTION_ENTRIES, ExceptionEntry, ExceptionType, HARTS_PER_SHIRE, hart_of_index, shire_of_hart,
};
use zerocopy::FromBytes;

/// Names of x1 to x31 in the calling convention.
const REGISTERS: [&str; 31] = [
    "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

macro_rules! causes {
    ($($value:literal => $variant:ident $text:literal,)*) => {
        /// Why a hart trapped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Cause {
            $(#[doc = concat!("Cause ", stringify!($value), ": ", $text, ".")] $variant,)*
            /// Another number.
            Unknown(u64),
        }

        impl From<u64> for Cause {
            fn from(value: u64) -> Self {
                match value {
                    $($value => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<Cause> for u64 {
            fn from(cause: Cause) -> Self {
                match cause {
                    $(Cause::$variant => $value,)*
                    Cause::Unknown(other) => other,
                }
            }
        }

        impl fmt::Display for Cause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Unknown(other) => write!(f, "trap with cause {other}"),
                }
            }
        }
    };
}

causes! {
    1 => InstructionAccess "instruction access fault",
    2 => IllegalInstruction "illegal instruction",
    3 => Breakpoint "breakpoint",
    4 => LoadMisaligned "misaligned load",
    5 => LoadAccess "load access fault",
    6 => StoreMisaligned "misaligned store",
    7 => StoreAccess "store access fault",
    8 => EnvironmentCall "environment call",
    12 => InstructionPage "instruction page fault",
    13 => LoadPage "load page fault",
    15 => StorePage "store page fault",
    25 => FetchBus "bus error at an instruction fetch",
    26 => FetchEcc "ECC error at an instruction fetch",
    27 => LoadSplitPage "load split over two pages",
    28 => StoreSplitPage "store split over two pages",
    30 => Microcoded "instruction the hardware does not execute (division, square root, 64-bit conversion)",
}

/// What happened to a hart. Spec: §15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// It trapped.
    Trap {
        /// Why.
        cause: Cause,
        /// The address or instruction that goes with the cause.
        tval: u64,
    },
    /// The host aborted the kernel while the hart was in it.
    SystemAbort,
    /// The kernel gave up.
    SelfAbort,
    /// The kernel returned this negative value.
    KernelError(i64),
    /// It touched an address where nothing is.
    BusError(i64),
    /// It hung.
    Hang,
    /// A tensor operation failed.
    TensorError,
}

/// The state of a failed hart. Spec: §15.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HartContext {
    /// Hart id.
    pub hart_id: u32,
    /// What happened.
    pub kind: ExceptionKind,
    /// Cycle counter when saved.
    pub cycles: u64,
    /// Program counter, if it was saved.
    pub pc: Option<u64>,
    /// CSR `sstatus`, if it was saved.
    pub sstatus: Option<u64>,
    /// x1 to x31, if they were saved.
    pub gpr: Option<Box<[u64; 31]>>,
}

impl HartContext {
    /// Returns shire, minion within it, and thread within that.
    #[must_use]
    pub fn place(&self) -> (u32, u32, u32) {
        let index = self.hart_id % HARTS_PER_SHIRE;
        (shire_of_hart(self.hart_id), index / 2, index % 2)
    }

    /// Returns the registers as text, four in a line.
    #[must_use]
    pub fn registers(&self) -> String {
        let Some(gpr) = &self.gpr else {
            return String::from("registers were not saved");
        };
        let named: Vec<String> = REGISTERS
            .iter()
            .zip(gpr.iter())
            .map(|(name, value)| format!("{name:>3} {value:016x}"))
            .collect();
        named.chunks(4).map(|line| line.join("  ")).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for HartContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shire, minion, thread) = self.place();
        write!(f, "hart {} (shire {shire}, minion {minion}, thread {thread}): ", self.hart_id)?;
        match self.kind {
            ExceptionKind::Trap { cause, tval } => match cause {
                Cause::IllegalInstruction | Cause::Microcoded if tval != 0 => {
                    write!(f, "{cause} {tval:#010x}")?;
                }
                Cause::IllegalInstruction | Cause::Microcoded | Cause::EnvironmentCall => {
                    write!(f, "{cause}")?;
                }
                _ => write!(f, "{cause} at address {tval:#x}")?,
            },
            ExceptionKind::SystemAbort => f.write_str("aborted by the host")?,
            ExceptionKind::SelfAbort => f.write_str("kernel gave up")?,
            ExceptionKind::KernelError(value) => write!(f, "kernel returned {value}")?,
            ExceptionKind::BusError(value) => write!(f, "bus error, kernel returned {value}")?,
            ExceptionKind::Hang => f.write_str("hang")?,
            ExceptionKind::TensorError => f.write_str("tensor error")?,
        }
        match self.pc {
            Some(pc) => write!(f, ", pc {pc:#x}"),
            None => Ok(()),
        }
    }
}

/// Reads an exception buffer that was filled with a pattern before the launch.
///
/// An entry counts only if its type is known and its hart id is that of its place; the rest is pattern.
pub(crate) fn decode(buffer: &[u8]) -> Vec<HartContext> {
    (0u32..)
        .zip(buffer.chunks_exact(size_of::<ExceptionEntry>()).take(EXCEPTION_ENTRIES))
        .filter_map(|(index, bytes)| entry(hart_of_index(index)?, bytes))
        .collect()
}

fn entry(hart_id: u32, bytes: &[u8]) -> Option<HartContext> {
    let entry = ExceptionEntry::ref_from_bytes(bytes).ok()?;
    if entry.hart_id.get() != u64::from(hart_id) {
        return None;
    }
    let kind = match ExceptionType::from_u64(entry.r#type.get())? {
        ExceptionType::UmodeException => {
            ExceptionKind::Trap { cause: entry.scause.get().into(), tval: entry.stval.get() }
        }
        ExceptionType::SystemAbort => ExceptionKind::SystemAbort,
        ExceptionType::SelfAbort => ExceptionKind::SelfAbort,
        ExceptionType::UserKernelError => ExceptionKind::KernelError(entry.user_error.get()),
        ExceptionType::BusError => ExceptionKind::BusError(entry.user_error.get()),
        ExceptionType::Hang => ExceptionKind::Hang,
        ExceptionType::TensorError => ExceptionKind::TensorError,
    };
    // The other kinds leave these fields as they were.
    let is_saved = matches!(
        kind,
        ExceptionKind::Trap { .. } | ExceptionKind::SystemAbort | ExceptionKind::SelfAbort
    );
    Some(HartContext {
        hart_id,
        kind,
        cycles: entry.cycles.get(),
        pc: is_saved.then(|| entry.sepc.get()),
        sstatus: is_saved.then(|| entry.sstatus.get()),
        gpr: is_saved.then(|| Box::new(entry.gpr.map(|register| register.get()))),
    })
}

#[cfg(test)]
mod tests {
    use et_devapi::abi::{EXCEPTION_BUFFER_BYTES, EXCEPTION_FILL};
    use zerocopy::IntoBytes;

    use super::*;

    fn buffer_with(index: usize, hart_id: u64, kind: u64) -> Vec<u8> {
        let mut buffer = vec![EXCEPTION_FILL; EXCEPTION_BUFFER_BYTES];
        let size = size_of::<ExceptionEntry>();
        let bytes = &mut buffer[index * size..(index + 1) * size];
        let entry = ExceptionEntry::mut_from_bytes(bytes).unwrap();
        entry.r#type = kind.into();
        entry.hart_id = hart_id.into();
        entry.scause = 5.into();
        entry.stval = 0x10.into();
        entry.sepc = 0x80_0580_1010.into();
        entry.user_error = (-7).into();
        assert_eq!(entry.as_bytes().len(), 320);
        buffer
    }

    #[test]
    fn an_untouched_buffer_has_no_contexts() {
        assert_eq!(decode(&vec![EXCEPTION_FILL; EXCEPTION_BUFFER_BYTES]), []);
    }

    #[test]
    fn a_trap_is_decoded_with_hart_cause_pc_and_address() {
        let contexts = decode(&buffer_with(70, 70, 1));
        assert_eq!(contexts.len(), 1);
        assert_eq!(
            contexts[0].to_string(),
            "hart 70 (shire 1, minion 3, thread 0): load access fault at address 0x10, \
             pc 0x8005801010"
        );
    }

    #[test]
    fn master_shire_harts_are_32_places_lower() {
        assert_eq!(decode(&buffer_with(2048, 2080, 1)).len(), 1);
        assert_eq!(decode(&buffer_with(2048, 2048, 1)).len(), 0);
    }

    #[test]
    fn entries_of_unknown_type_or_foreign_hart_are_pattern() {
        assert_eq!(decode(&buffer_with(3, 3, 99)), []);
        assert_eq!(decode(&buffer_with(3, 4, 1)), []);
    }

    #[test]
    fn a_negative_return_has_no_registers() {
        let contexts = decode(&buffer_with(3, 3, 4));
        assert_eq!(contexts[0].kind, ExceptionKind::KernelError(-7));
        assert_eq!(contexts[0].pc, None);
        assert_eq!(contexts[0].gpr, None);
    }
}
