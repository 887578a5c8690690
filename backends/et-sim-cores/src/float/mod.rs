//! Single-precision operations as instructions use them. Spec: ISA §1.4
//!
//! Results in the common case come from the host's floats: round to nearest even, operands normal
//! or zero, result normal. A host operation then gives the right result, and whether it is inexact
//! follows from the error term, which host floats compute exactly; it is not even computed once
//! the sticky flag is set. Everything else goes to [`soft`].

pub(crate) mod lanes;
pub(crate) mod soft;
pub(crate) mod wide;

use crate::float::soft::{NV, NX, QUIET_NAN, Rounding, SIGN};

/// Returns `true` if a value is subnormal. Zero wraps around to the largest number.
#[inline(always)]
fn is_subnormal(bits: u32) -> bool {
    (bits << 1).wrapping_sub(1) < 0x00FF_FFFF
}

/// Returns `true` if a result is normal and above the smallest normal number, where tininess would
/// be in question.
#[inline(always)]
fn is_safe(bits: u32) -> bool {
    (bits & !SIGN).wrapping_sub(0x0080_0001) < soft::INFINITY - 0x0080_0001
}

/// `a + b`, if the fast path applies.
#[inline(always)]
pub(crate) fn fast_add(a: u32, b: u32, flags: &mut u32) -> Option<u32> {
    if is_subnormal(a) || is_subnormal(b) {
        return None;
    }
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let sum = x + y;
    if !is_safe(sum.to_bits()) {
        return None;
    }
    if *flags & NX == 0 {
        // Knuth's two-sum: the error of an addition is itself a float.
        let y_part = sum - x;
        let error = (x - (sum - y_part)) + (y - y_part);
        *flags |= u32::from(error != 0.0);
    }
    Some(sum.to_bits())
}

/// `a · b`, if the fast path applies.
#[inline(always)]
pub(crate) fn fast_mul(a: u32, b: u32, flags: &mut u32) -> Option<u32> {
    if is_subnormal(a) || is_subnormal(b) {
        return None;
    }
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let product = x * y;
    if !is_safe(product.to_bits()) {
        return None;
    }
    if *flags & NX == 0 {
        // Two significands of 24 bits: the product is exact in double precision.
        *flags |= u32::from(f64::from(x) * f64::from(y) != f64::from(product));
    }
    Some(product.to_bits())
}

/// `a · b + c` rounded once, if the fast path applies.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounding to single precision is the purpose")]
pub(crate) fn fast_mul_add(a: u32, b: u32, c: u32, flags: &mut u32) -> Option<u32> {
    /// Smallest normal number, and the distance from it to the largest, as doubles without sign.
    const SMALLEST: u64 = 0x3810_0000_0000_0000 << 1;
    const RANGE: u64 = (0x47EF_FFFF_E000_0000 << 1) - SMALLEST;
    if is_subnormal(a) || is_subnormal(b) || is_subnormal(c) {
        return None;
    }
    let product = f64::from(f32::from_bits(a)) * f64::from(f32::from_bits(b));
    let addend = f64::from(f32::from_bits(c));
    let sum = product + addend;
    // The product is exact, the sum is rounded to double precision. Rounding it again is right
    // unless it lies exactly between two floats: every such point is a double, so the first
    // rounding cannot step across one.
    let between = sum.to_bits() & 0x1FFF_FFFF == 0x1000_0000;
    // Above the smallest normal number, where tininess would be in question, and no overflow.
    let safe = (sum.to_bits() << 1).wrapping_sub(SMALLEST + 1) < RANGE;
    if between || !safe {
        return None;
    }
    let result = sum as f32;
    if *flags & NX == 0 {
        let addend_part = sum - product;
        let error = (product - (sum - addend_part)) + (addend - addend_part);
        *flags |= u32::from(error != 0.0 || f64::from(result) != sum);
    }
    Some(result.to_bits())
}

/// `a · b + c` rounded once, if that raises no other flag than the one for inexact results. For
/// code that is compiled for processors with such an instruction.
#[inline(always)]
pub(crate) fn inexact_mul_add(a: u32, b: u32, c: u32) -> Option<u32> {
    if is_subnormal(a) || is_subnormal(b) || is_subnormal(c) {
        return None;
    }
    let sum = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)).to_bits();
    is_safe(sum).then_some(sum)
}

/// Which operand of a minimum or maximum is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    Smaller,
    Larger,
}

/// Smaller (or larger) operand; negative zero is the smaller zero. A NaN gives the other operand.
#[inline(always)]
pub(crate) fn min_max(a: u32, b: u32, pick: Pick, flags: &mut u32) -> u32 {
    let (a, b) = (soft::flush(a, flags), soft::flush(b, flags));
    if soft::is_signalling(a) || soft::is_signalling(b) {
        *flags |= NV;
    }
    match (soft::is_nan(a), soft::is_nan(b)) {
        (true, true) => QUIET_NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            let a_is_less = key(a) < key(b);
            if a_is_less == (pick == Pick::Smaller) { a } else { b }
        }
    }
}

/// An integer that orders floats, the zeros included.
pub(crate) fn key(bits: u32) -> i32 {
    let bits = bits.cast_signed();
    bits ^ (bits >> 31 & i32::MAX)
}

/// A comparison; false if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    Less,
    LessOrEqual,
}

#[inline]
pub(crate) fn compare(a: u32, b: u32, compare: Compare, flags: &mut u32) -> bool {
    let (a, b) = (soft::flush(a, flags), soft::flush(b, flags));
    if soft::is_nan(a) || soft::is_nan(b) {
        let quiet = compare == Compare::Equal;
        if !quiet || soft::is_signalling(a) || soft::is_signalling(b) {
            *flags |= NV;
        }
        return false;
    }
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    match compare {
        Compare::Equal => a == b,
        Compare::Less => a < b,
        Compare::LessOrEqual => a <= b,
    }
}

/// Class of a value as a one-hot mask of 10 bits.
pub(crate) fn class(bits: u32) -> u32 {
    let negative = bits & SIGN != 0;
    let position = match bits & !SIGN {
        0 => [4, 3][usize::from(negative)],
        1..0x0080_0000 => [5, 2][usize::from(negative)],
        0x0080_0000..soft::INFINITY => [6, 1][usize::from(negative)],
        soft::INFINITY => [7, 0][usize::from(negative)],
        _ if soft::is_signalling(bits) => 8,
        _ => 9,
    };
    1 << position
}

/// Float to i32, saturating; the operand is flushed.
pub(crate) fn to_i32(bits: u32, rounding: Rounding, flags: &mut u32) -> i32 {
    let bits = soft::flush(bits, flags);
    let (value, raised) = soft::to_integer(bits, i32::MIN.into(), i32::MAX.into(), rounding);
    *flags |= raised;
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Float to u32, saturating; the operand is flushed.
pub(crate) fn to_u32(bits: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    let (value, raised) = soft::to_integer(bits, 0, u32::MAX.into(), rounding);
    *flags |= raised;
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Integer of at most 32 bits and a sign to float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "rounding to single precision is the purpose; 33 bits are exact in f64"
)]
pub(crate) fn from_i33(value: i64, rounding: Rounding, flags: &mut u32) -> u32 {
    if rounding == Rounding::NearestEven {
        let wide = value as f64;
        let near = wide as f32;
        *flags |= u32::from(f64::from(near) != wide);
        return near.to_bits();
    }
    let (bits, raised) = soft::from_integer(value.into(), rounding);
    *flags |= raised;
    bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn float() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            (0x70_u32..0x90, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
            (0x78_u32..0x88, 0_u32..64, any::<bool>())
                .prop_map(|(e, f, s)| u32::from(s) << 31 | e << 23 | f << 17),
            (0_u32..4, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn fast_paths_agree_with_the_slow_ones(a in float(), b in float(), c in float()) {
            let nearest = Rounding::NearestEven;
            let mut flags = 0;
            if let Some(sum) = fast_add(a, b, &mut flags) {
                prop_assert_eq!((sum, flags), soft::add(a, b, nearest));
            }
            flags = 0;
            if let Some(product) = fast_mul(a, b, &mut flags) {
                prop_assert_eq!((product, flags), soft::mul(a, b, nearest));
            }
            if let Some(result) = inexact_mul_add(a, b, c) {
                let (expected, raised) = soft::mul_add(a, b, c, nearest);
                prop_assert_eq!((result, raised | NX), (expected, NX));
            }
            flags = 0;
            if let Some(result) = fast_mul_add(a, b, c, &mut flags) {
                prop_assert_eq!((result, flags), soft::mul_add(a, b, c, nearest));
            }
        }

        #[test]
        fn conversion_from_integers_agrees_with_the_slow_one(value: i32, unsigned: u32) {
            for value in [i64::from(value), i64::from(unsigned)] {
                let mut flags = 0;
                let bits = from_i33(value, Rounding::NearestEven, &mut flags);
                let expected = soft::from_integer(value.into(), Rounding::NearestEven);
                prop_assert_eq!((bits, flags), expected);
            }
        }
    }

    #[test]
    fn fused_sums_that_lie_between_two_floats_take_the_slow_path() {
        // 1 · 2^-24 + 1 is half way; a product slightly above it must round up.
        let just_above = 0x3380_0001;
        let one = 0x3F80_0000;
        assert_eq!(fast_mul_add(one, 0x3380_0000, one, &mut 0), None);
        assert_eq!(soft::mul_add(one, just_above, one, Rounding::NearestEven), (one + 1, NX));
    }

    #[test]
    fn classes_are_told_apart() {
        let classes = [
            0xFF80_0000,
            0xBF80_0000,
            0x8000_0001,
            SIGN,
            0,
            1,
            0x3F80_0000,
            0x7F80_0000,
            0x7F80_0001,
            QUIET_NAN,
        ];
        for (position, bits) in classes.into_iter().enumerate() {
            assert_eq!(class(bits), 1 << position);
        }
    }
}
