//! Arithmetic on eight lanes at a time, on the host's vector instructions.
//!
//! The host tells no flags. So these functions are of use when the flag for inexact results is set,
//! and when no lane raises another one: they find out, and give up otherwise.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls of functions for processor features that were detected")
)]

use crate::float::soft::{INFINITY, SIGN};

/// The lanes of a register.
pub(crate) type Lanes = [u32; 8];

/// Returns `true` if the processor has vectors of eight lanes, and rounds a product and a sum once.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
}

/// Returns `true` if there are handlers of packed instructions for the vectors of the processor.
#[inline]
pub(crate) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_avx2();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Compiles a function that is inlined here for processors with wide vectors. It comes by
/// reference: what it captures was just written, part by part, and would be copied as a whole.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn on_avx2<R>(function: &mut impl FnMut() -> R) -> R {
    function()
}

/// Calls a function, compiled for the vector instructions of the processor at hand.
///
/// A register that is written by halves and then read as a whole is slow on many processors, so
/// moves of registers belong in here, too.
#[inline(always)]
pub(crate) fn run<R>(mut function: impl FnMut() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { on_avx2(&mut function) };
    }
    function()
}

/// Without its sign and moved up; subnormal numbers become small, zeros the largest.
#[inline(always)]
fn rank(bits: u32) -> u32 {
    (bits << 1).wrapping_sub(1)
}

/// Lanes of `new` where a bit of `mask` is set, else of `old`.
#[inline(always)]
pub(crate) fn blend(mask: u64, new: &Lanes, old: &Lanes) -> Lanes {
    std::array::from_fn(|lane| if mask >> lane & 1 != 0 { new[lane] } else { old[lane] })
}

/// Half precision, in the low halves, to single precision, if no lane is special.
#[inline(always)]
pub(crate) fn from_halves(a: &Lanes) -> Option<Lanes> {
    let mut special = 0;
    let out = a.map(|bits| {
        let (magnitude, sign) = (bits & 0x7FFF, (bits & 0x8000) << 16);
        let is_zero = magnitude == 0;
        // Subnormal ones, infinities and NaNs.
        special |= u32::from(!is_zero && magnitude.wrapping_sub(0x0400) >= 0x7800);
        sign | if is_zero { 0 } else { (magnitude << 13) + (112 << 23) }
    });
    (special == 0).then_some(out)
}

/// Smaller or larger of two floats, if none is a NaN or subnormal.
#[inline(always)]
pub(crate) fn pick(a: &Lanes, b: &Lanes, larger: bool) -> Option<Lanes> {
    let mut special = 0;
    let out = std::array::from_fn(|lane| {
        let (a, b) = (a[lane], b[lane]);
        let is_special =
            |bits: u32| u32::from(rank(bits) < 0x00FF_FFFF) | u32::from(bits & !SIGN > INFINITY);
        special |= is_special(a) | is_special(b);
        let key = |bits: u32| bits.cast_signed() ^ (bits.cast_signed() >> 31 & i32::MAX);
        if (key(a) < key(b)) == larger { b } else { a }
    });
    (special == 0).then_some(out)
}

/// Signed integers to floats, if all are exact.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "only exact ones are used")]
pub(crate) fn from_integers(a: &Lanes) -> Option<Lanes> {
    let mut large = 0;
    let out = a.map(|bits| {
        large |= bits.wrapping_add(1 << 24) >> 25;
        (bits.cast_signed() as f32).to_bits()
    });
    (large == 0).then_some(out)
}
