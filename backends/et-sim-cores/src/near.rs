//! Hints to the processor what is needed next.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint takes a pointer"))]

const LINE_BYTES: usize = 64;

/// Has the processor bring the first bytes of a value near, if it can.
#[inline(always)]
pub(crate) fn bring<T, const BYTES: usize>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    (0..BYTES).step_by(LINE_BYTES).for_each(|at| bring_line(first.wrapping_add(at)));
}

/// The same for the line of an address. No access is made, and none need be possible.
#[inline(always)]
pub(crate) fn bring_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: this is a hint; the processor drops it for addresses it cannot load from.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
