//! What packed instructions compute in one lane. Spec: ISA §3.5

use crate::float;
use crate::float::soft::{self, DZ, NV, NX, OF, QUIET_NAN, Rounding, SIGN, UF};

pub(crate) fn add(a: u32, b: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    if rounding == Rounding::NearestEven
        && let Some(bits) = float::fast_add(a, b, flags)
    {
        return bits;
    }
    raise(soft::add(a, b, rounding), flags)
}

pub(crate) fn mul(a: u32, b: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    if rounding == Rounding::NearestEven
        && let Some(bits) = float::fast_mul(a, b, flags)
    {
        return bits;
    }
    raise(soft::mul(a, b, rounding), flags)
}

pub(crate) fn mul_add(a: u32, b: u32, c: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    if rounding == Rounding::NearestEven
        && let Some(bits) = float::fast_mul_add(a, b, c, flags)
    {
        return bits;
    }
    raise(soft::mul_add(a, b, c, rounding), flags)
}

fn raise((bits, raised): soft::Flagged, flags: &mut u32) -> u32 {
    *flags |= raised;
    bits
}

/// Result of a function of one operand for a NaN; none if it is not one.
fn nan(bits: u32, flags: &mut u32) -> Option<u32> {
    if soft::is_signalling(bits) {
        *flags |= NV;
    }
    soft::is_nan(bits).then_some(QUIET_NAN)
}

/// Smallest power of two from which on all floats are integral.
const INTEGRAL: f32 = 8_388_608.0;

/// Rounds to an integral value.
pub(crate) fn round(bits: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    if let Some(bits) = nan(bits, flags) {
        return bits;
    }
    if f32::from_bits(bits).abs() >= INTEGRAL {
        return bits;
    }
    let (value, raised) = soft::to_integer(bits, i128::MIN, i128::MAX, rounding);
    *flags |= raised;
    let (magnitude, _) = soft::from_integer(value.abs(), Rounding::NearestEven);
    bits & SIGN | magnitude
}

/// The part behind the point, with the sign of the operand.
pub(crate) fn fraction(bits: u32, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    if let Some(bits) = nan(bits, flags) {
        return bits;
    }
    let value = f32::from_bits(bits);
    if value.abs() >= INTEGRAL {
        return bits & SIGN;
    }
    bits & SIGN | (value - value.trunc()).abs().to_bits()
}

/// Rounds the double-precision value of an approximated function; flags are not raised for it.
#[expect(clippy::cast_possible_truncation, reason = "rounding to single precision is the purpose")]
fn nearest(value: f64) -> u32 {
    (value as f32).to_bits()
}

pub(crate) fn log2(bits: u32, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    if let Some(bits) = nan(bits, flags) {
        return bits;
    }
    match f64::from(f32::from_bits(bits)) {
        0.0 => soft::INFINITY | SIGN,
        value if value < 0.0 => {
            *flags |= NV;
            QUIET_NAN
        }
        value => nearest(value.log2()),
    }
}

pub(crate) fn exp2(bits: u32, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    if let Some(bits) = nan(bits, flags) {
        return bits;
    }
    match f64::from(f32::from_bits(bits)) {
        value if value < -126.0 => 0,
        value if value >= 128.0 => soft::INFINITY,
        value => nearest(value.exp2()),
    }
}

pub(crate) fn reciprocal(bits: u32, flags: &mut u32) -> u32 {
    /// 2^126: reciprocals of larger values would be subnormal.
    const LARGEST: u32 = 0x7E80_0000;
    let bits = soft::flush(bits, flags);
    if let Some(bits) = nan(bits, flags) {
        return bits;
    }
    match bits & !SIGN {
        0 => {
            *flags |= DZ;
            bits | soft::INFINITY
        }
        magnitude if magnitude > LARGEST => bits & SIGN,
        _ => nearest(1.0 / f64::from(f32::from_bits(bits))),
    }
}

/// Sum of the products of two pairs of halves and of `c`, if there is one: rounded once, toward
/// zero. Spec: ISA §3.8, §7
pub(crate) fn dot_halves(a: u32, b: u32, c: Option<u32>, flags: &mut u32) -> u32 {
    let mut product =
        |shift: u32| (from_half(a >> shift & 0xFFFF, flags), from_half(b >> shift & 0xFFFF, flags));
    let products = [product(0), product(16)];
    raise(soft::dot(products, c), flags)
}

const HALF_SIGN: u32 = 0x8000;
const HALF_INFINITY: u32 = 0x7C00;
const HALF_LARGEST: u32 = 0x7BFF;
const HALF_NAN: u32 = 0x7E00;

/// Half precision, in the low half of a lane, to single precision: exact.
pub(crate) fn from_half(bits: u32, flags: &mut u32) -> u32 {
    let sign = (bits & HALF_SIGN) << 16;
    let (exponent, fraction) = (bits >> 10 & 31, bits & 0x3FF);
    match (exponent, fraction) {
        (0, 0) => sign,
        (0, _) => {
            *flags |= soft::DENORMAL_INPUT;
            sign
        }
        (31, 0) => sign | soft::INFINITY,
        (31, _) => {
            if fraction & 0x200 == 0 {
                *flags |= NV;
            }
            QUIET_NAN
        }
        // Biases 15 and 127.
        _ => sign | (exponent + 112) << 23 | fraction << 13,
    }
}

/// Single precision to half precision.
pub(crate) fn to_half(bits: u32, rounding: Rounding, flags: &mut u32) -> u32 {
    let bits = soft::flush(bits, flags);
    if nan(bits, flags).is_some() {
        return HALF_NAN;
    }
    let (negative, sign) = (bits & SIGN != 0, bits >> 16 & HALF_SIGN);
    match bits & !SIGN {
        0 => return sign,
        soft::INFINITY => return sign | HALF_INFINITY,
        _ => {}
    }
    // The sum of exponent and rounded significand: a carry moves into the exponent by itself.
    let exponent = (bits >> 23 & 0xFF).cast_signed() - 127 + 15;
    let (significand, inexact) =
        soft::cut(u128::from(bits & 0x7F_FFFF | 0x80_0000), 13, negative, rounding);
    let carry = i32::from(significand == 1 << 11);
    if exponent + carry < 1 {
        *flags |= UF | NX;
        return sign;
    }
    if exponent + carry > 30 {
        *flags |= OF | NX;
        let to_infinity = match rounding {
            Rounding::NearestEven | Rounding::NearestMaxMagnitude => true,
            Rounding::TowardZero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        return sign | if to_infinity { HALF_INFINITY } else { HALF_LARGEST };
    }
    *flags |= if inexact { NX } else { 0 };
    let fraction = if carry != 0 { 0 } else { low(significand) & 0x3FF };
    sign | (exponent + carry).cast_unsigned() << 10 | fraction
}

#[expect(clippy::cast_possible_truncation, reason = "significands of half precision")]
fn low(value: u128) -> u32 {
    value as u32
}

pub(crate) fn shift_left(a: u32, b: u32) -> u32 {
    a.checked_shl(b).unwrap_or(0)
}

pub(crate) fn shift_right(a: u32, b: u32) -> u32 {
    a.checked_shr(b).unwrap_or(0)
}

pub(crate) fn shift_right_signed(a: u32, b: u32) -> u32 {
    (a.cast_signed() >> b.min(31)).cast_unsigned()
}

pub(crate) fn multiply_high(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

pub(crate) fn multiply_high_signed(a: u32, b: u32) -> u32 {
    let product = i64::from(a.cast_signed()) * i64::from(b.cast_signed());
    (product.cast_unsigned() >> 32) as u32
}

pub(crate) fn min_signed(a: u32, b: u32) -> u32 {
    a.cast_signed().min(b.cast_signed()).cast_unsigned()
}

pub(crate) fn max_signed(a: u32, b: u32) -> u32 {
    a.cast_signed().max(b.cast_signed()).cast_unsigned()
}

/// Clamps a signed lane and keeps its low byte.
pub(crate) fn saturate(a: u32, min: i32, max: i32) -> u32 {
    a.cast_signed().clamp(min, max).cast_unsigned() & 0xFF
}
