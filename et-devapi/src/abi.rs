//! What kernels see, and where things are in device memory.

use et_hal::DeviceAddr;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kernel environment, whose address a kernel finds in `a1`. Spec: §14.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct KernelEnvironment {
    /// Major version of the kernel interface, 0.
    pub version_major: U16,
    /// Minor version, 1.
    pub version_minor: U16,
    /// Patch version, 0.
    pub version_patch: U16,
    /// Undefined.
    pub version_reserved: U16,
    /// Shires of this launch.
    pub shire_mask: U64,
    /// Minion boot frequency in MHz.
    pub frequency: U32,
    /// Padding.
    pub pad: [u8; 44],
}

const _: () = assert!(size_of::<KernelEnvironment>() == 64);

impl KernelEnvironment {
    /// Creates the environment of a launch.
    #[must_use]
    pub fn new(shire_mask: u64, frequency_mhz: u32) -> Self {
        Self {
            version_major: 0.into(),
            version_minor: 1.into(),
            version_patch: 0.into(),
            version_reserved: 0.into(),
            shire_mask: shire_mask.into(),
            frequency: frequency_mhz.into(),
            pad: [0; 44],
        }
    }
}

/// State of a failed hart in the exception buffer. Spec: §15.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExceptionEntry {
    /// [`ExceptionType`].
    pub r#type: U64,
    /// Cycle counter when saved.
    pub cycles: U64,
    /// Hart id.
    pub hart_id: U64,
    /// Program counter.
    pub sepc: U64,
    /// CSR `sstatus`.
    pub sstatus: U64,
    /// CSR `stval`.
    pub stval: U64,
    /// CSR `scause`.
    pub scause: U64,
    /// Return value.
    pub user_error: I64,
    /// x1 to x31.
    pub gpr: [U64; 31],
    /// Padding.
    pub pad: [u8; 8],
}

const _: () = assert!(size_of::<ExceptionEntry>() == 320);

/// Kind of an [`ExceptionEntry`]. Spec: §15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ExceptionType {
    /// No firmware writes it.
    Hang = 0,
    /// The kernel trapped.
    UmodeException = 1,
    /// The host aborted the kernel.
    SystemAbort = 2,
    /// The kernel gave up.
    SelfAbort = 3,
    /// The kernel returned a negative value.
    UserKernelError = 4,
    /// The writer is disabled in firmware.
    TensorError = 5,
    /// A bus error.
    BusError = 6,
}

impl ExceptionType {
    /// Returns the kind of that number, if there is one.
    #[must_use]
    pub const fn from_u64(value: u64) -> Option<Self> {
        Some(match value {
            0 => Self::Hang,
            1 => Self::UmodeException,
            2 => Self::SystemAbort,
            3 => Self::SelfAbort,
            4 => Self::UserKernelError,
            5 => Self::TensorError,
            6 => Self::BusError,
            _ => return None,
        })
    }
}

/// How a kernel ends, `a2` of environment call 8. Spec: §14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ReturnType {
    /// Normal end.
    Success = 0,
    /// The kernel gave up.
    SelfAbort = 1,
    /// The host aborted it.
    SystemAbort = 2,
    /// It trapped.
    Exception = 3,
    /// A bus error.
    BusError = 4,
}

/// The environment call that ends a kernel. Spec: §14.
pub const ECALL_RETURN: u64 = 8;

/// Entries of the exception buffer, one for each compute hart. Spec: §15.
pub const EXCEPTION_ENTRIES: usize = 2080;
/// Size of the exception buffer in bytes. Spec: §15.
pub const EXCEPTION_BUFFER_BYTES: usize = EXCEPTION_ENTRIES * size_of::<ExceptionEntry>();
/// What a host fills the exception buffer with, because firmware never clears it. Spec: §15.
pub const EXCEPTION_FILL: u8 = 0xcd;

/// The master shire. Spec: §14.
pub const MASTER_SHIRE: u32 = 32;
/// All shires with compute harts. Spec: §14.
pub const ALL_SHIRES: u64 = 0x1_ffff_ffff;
/// Harts of a compute shire. Spec: §14.
pub const HARTS_PER_SHIRE: u32 = 64;
/// First hart of the master shire that runs kernels. Spec: §14.
pub const MASTER_FIRST_HART: u32 = 2080;

/// Returns the index of a hart among the compute harts; `None` if it runs no kernels. Spec: §14.
#[must_use]
pub const fn compute_hart_index(hart_id: u32) -> Option<usize> {
    match hart_id {
        0..=2047 => Some(hart_id as usize),
        2080..=2111 => Some(hart_id.wrapping_sub(32) as usize),
        _ => None,
    }
}

/// Returns the hart at an index among the compute harts; `None` above the last. Spec: §14.
#[must_use]
pub const fn hart_of_index(index: u32) -> Option<u32> {
    match index {
        0..=2047 => Some(index),
        2048..=2079 => Some(index.wrapping_add(32)),
        _ => None,
    }
}

/// Returns the shire of a hart. Spec: §14.
#[must_use]
pub const fn shire_of_hart(hart_id: u32) -> u32 {
    hart_id / HARTS_PER_SHIRE
}

/// Returns the compute harts of the shires in `mask`. Spec: §14.
#[must_use]
pub const fn harts_in_mask(mask: u64) -> u32 {
    let compute = (mask & 0xffff_ffff).count_ones().wrapping_mul(HARTS_PER_SHIRE);
    if mask & 1 << MASTER_SHIRE != 0 { compute.wrapping_add(32) } else { compute }
}

/// Start of device DRAM. Spec: §12.1.
pub const DRAM_BASE: DeviceAddr = DeviceAddr::new(0x80_0000_0000);
/// Start of the memory that belongs to the host. Spec: §12.1.
pub const HOST_MANAGED_BASE: DeviceAddr = DeviceAddr::new(0x80_0580_1000);
/// Largest memory that firmware accepts, in bytes. Spec: §4.
pub const MAX_DRAM_BYTES: u64 = 32 << 30;
/// Top of the default kernel stacks. Spec: §14.
pub const DEFAULT_STACK_TOP: DeviceAddr = DeviceAddr::new(0x80_0580_0000);
/// Bytes of each default kernel stack. Spec: §14.
pub const DEFAULT_STACK_BYTES: u64 = 4160;
/// Start of the master minions' trace buffer; that of the compute minions follows. Spec: §12.1.
pub const MM_TRACE_BASE: DeviceAddr = DeviceAddr::new(0x80_0440_3000);
/// Size of the master minions' trace buffer in bytes. Spec: §12.1.
pub const MM_TRACE_BYTES: u64 = 0x10_0000;
/// Start of the compute minions' trace buffer. Spec: §12.1.
pub const CM_TRACE_BASE: DeviceAddr = DeviceAddr::new(0x80_0450_3000);
/// Size of the compute minions' trace buffer in bytes. Spec: §12.1.
pub const CM_TRACE_BYTES: u64 = 0x82_0000;
/// Start of the trace control blocks, one for each compute hart. Spec: §16.3.
pub const TRACE_CONTROL_BASE: DeviceAddr = DeviceAddr::new(0x80_04f2_3000);
/// First byte of the L2 scratchpad window that DMA accepts. Spec: §8.
pub const SCRATCHPAD_FIRST: DeviceAddr = DeviceAddr::new(0x8000_0000);
/// Last byte of that window. Spec: §8.
pub const SCRATCHPAD_LAST: DeviceAddr = DeviceAddr::new(0x883f_ffff);
/// Where the environment of the kernel in slot 0 is. Spec: §12.2.
pub const KERNEL_ENVIRONMENT: DeviceAddr = DeviceAddr::new(0x9000_7740);
/// Unit of stack configurations in bytes. Spec: §9.1.
pub const STACK_UNIT: u64 = 4096;

/// Returns the bytes of host-managed memory of a device with `dram_bytes` of DRAM; 0 if it is too
/// small.
///
/// Spec: §12.1
#[must_use]
pub const fn host_managed_len(dram_bytes: u64) -> u64 {
    dram_bytes.saturating_sub(0x0580_1000) & !0x1f_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_managed_length_matches_the_table() {
        assert_eq!(host_managed_len(8 << 30), 0x1_fa60_0000);
        assert_eq!(host_managed_len(16 << 30), 0x3_fa60_0000);
        assert_eq!(host_managed_len(32 << 30), 0x7_fa60_0000);
        assert_eq!(host_managed_len(1), 0);
    }

    #[test]
    fn hart_indices_skip_the_firmware_harts() {
        for index in 0..2080 {
            let hart = hart_of_index(index);
            assert_eq!(hart.and_then(compute_hart_index), Some(index as usize));
        }
        assert_eq!(compute_hart_index(2048), None);
        assert_eq!(compute_hart_index(2112), None);
        assert_eq!(hart_of_index(2080), None);
        assert_eq!(harts_in_mask(ALL_SHIRES), 2080);
        assert_eq!(harts_in_mask(1 << 32 | 0b11), 160);
    }
}
