//! Entries of the exception buffer. Spec: §15

use et_devapi::abi::{self, ExceptionEntry, ExceptionType};
use et_sim_cores::{Dram, HartExit, HartFailure};

/// What is dumped for a failed hart: only the listed fields, the rest keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// Registers of a hart that was stopped in user mode.
    Context { kind: ExceptionType, cause: u64, value: u64 },
    /// A number that the hart gave back.
    Error { kind: ExceptionType, error: i64 },
    /// Nothing: the hart did not get into user mode.
    Nothing,
}

/// Cause of an environment call from user mode: how a kernel gives up. Spec: §14
const USER_CALL: u64 = 8;
/// Distance of the entries.
const ENTRY_BYTES: u64 = size_of::<ExceptionEntry>() as u64;
/// Bytes of the fields that every entry has: type, cycles, hart id.
const COMMON_BYTES: usize = 24;
/// Offset of the user error.
const USER_ERROR: usize = 56;
/// Offset of the registers x1 to x31.
const REGISTERS: u64 = 64;

impl Dump {
    pub(crate) fn of(failure: &HartFailure) -> Self {
        match failure.exit {
            HartExit::NegativeReturn(error) => {
                Self::Error { kind: ExceptionType::UserKernelError, error }
            }
            HartExit::SelfAbort(_) => {
                Self::Context { kind: ExceptionType::SelfAbort, cause: USER_CALL, value: 0 }
            }
            HartExit::Exception { cause, tval } => {
                Self::Context { kind: ExceptionType::UmodeException, cause, value: tval }
            }
            HartExit::BusError => Self::Error { kind: ExceptionType::BusError, error: 0 },
            HartExit::Aborted => {
                Self::Context { kind: ExceptionType::SystemAbort, cause: 0, value: 0 }
            }
            _ => Self::Nothing,
        }
    }

    /// Returns `true` if the hart trapped.
    pub(crate) fn is_exception(self) -> bool {
        matches!(self, Self::Context { kind: ExceptionType::UmodeException, .. })
    }

    /// Returns `true` if the shire of the hart is named in the launch response. Spec: §9.4
    pub(crate) fn marks_shire(self) -> bool {
        use ExceptionType::{SystemAbort, UmodeException};
        matches!(self, Self::Context { kind: UmodeException | SystemAbort, .. })
    }

    /// Writes the entry of the hart. The buffer's start was checked, its length is the host's
    /// promise: an entry outside device memory is not written.
    pub(crate) fn write(self, dram: &Dram, buffer: u64, failure: &HartFailure, cycles: u64) {
        let Some(index) = abi::compute_hart_index(failure.hart_id) else { return };
        let Some(at) = buffer.checked_add(index as u64 * ENTRY_BYTES) else {
            return;
        };
        let state = &failure.state;
        let common = |kind: ExceptionType| {
            let mut bytes = [0; COMMON_BYTES];
            bytes[0..8].copy_from_slice(&(kind as u64).to_le_bytes());
            bytes[8..16].copy_from_slice(&cycles.to_le_bytes());
            bytes[16..24].copy_from_slice(&u64::from(failure.hart_id).to_le_bytes());
            bytes
        };
        let written = match self {
            Self::Nothing => Ok(()),
            Self::Error { kind, error } => dram
                .write(at, &common(kind))
                .and_then(|()| dram.write(at + USER_ERROR as u64, &error.to_le_bytes())),
            Self::Context { kind, cause, value } => {
                let mut head = [0; USER_ERROR];
                head[..COMMON_BYTES].copy_from_slice(&common(kind));
                for (field, number) in [state.pc, state.sstatus, value, cause].iter().enumerate() {
                    let at = COMMON_BYTES + 8 * field;
                    head[at..at + 8].copy_from_slice(&number.to_le_bytes());
                }
                let mut registers = [0; 31 * 8];
                for (bytes, number) in registers.chunks_exact_mut(8).zip(&state.x[1..]) {
                    bytes.copy_from_slice(&number.to_le_bytes());
                }
                dram.write(at, &head).and_then(|()| dram.write(at + REGISTERS, &registers))
            }
        };
        if written.is_err() {
            tracing::debug!(
                hart = failure.hart_id,
                buffer,
                "exception entry outside device memory"
            );
        }
    }
}
