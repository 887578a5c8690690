//! Orders accesses of memory and of the device against each other.
//!
//! BARs are mapped uncached. On x86-64 the processor keeps stores in order with uncached ones, so
//! only the compiler must be held back. Elsewhere the barrier must reach the bus, which the one
//! between processors does not promise.

#![cfg_attr(
    any(target_arch = "aarch64", target_arch = "riscv64"),
    expect(unsafe_code, reason = "the barriers that reach devices exist as instructions only")
)]

use std::sync::atomic::{Ordering, fence};

/// Everything written before is seen by the device before what is written after.
#[inline]
pub(crate) fn write_barrier() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction orders stores and touches neither registers nor memory.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("fence ow, ow", options(nostack, preserves_flags));
    }
    fence(Ordering::Release);
}

/// Everything read after is read after what was read before.
#[inline]
pub(crate) fn read_barrier() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction orders loads and touches neither registers nor memory.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("fence ir, ir", options(nostack, preserves_flags));
    }
    fence(Ordering::Acquire);
}
