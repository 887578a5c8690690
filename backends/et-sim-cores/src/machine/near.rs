//! Hints to the processor what is needed next.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint takes a pointer"))]

/// Has the processor bring a value near, if it can.
#[inline(always)]
pub(crate) fn bring<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        let first = std::ptr::from_ref(value).cast::<i8>();
        for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
            // SAFETY: nothing is accessed, whatever the pointer is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
