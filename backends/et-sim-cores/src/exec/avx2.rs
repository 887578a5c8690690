//! Packed instructions on the vector registers of x86 processors: those on registers. Those on
//! memory are in [`wide_memory`](super::wide_memory).
//!
//! The compiler, left alone, takes lanes apart to move them about. A register that is written in
//! parts and then read as a whole costs more than all the rest of an instruction, so these are
//! written with the vector instructions themselves. They return `false`, with nothing done, if
//! something is in the way; what they do is what the function in [`packed`](super::packed) does.

#![expect(unsafe_code, reason = "loads and stores of whole registers")]

use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256,
    _mm256_andnot_si256, _mm256_blendv_epi8, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmpeq_epi32, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps, _mm256_fmadd_ps, _mm256_load_si256,
    _mm256_max_epu32, _mm256_min_epu32, _mm256_movemask_ps, _mm256_mul_ps, _mm256_or_si256,
    _mm256_permutevar_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_slli_epi32, _mm256_srl_epi32, _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_store_si256,
    _mm256_sub_epi32, _mm256_testz_si256, _mm256_xor_si256,
};
use std::ptr;

use et_isa::operand;

use crate::decode::{funct3, rd, rs1, rs2};
use crate::float::soft::{INFINITY, NX, SIGN};
use crate::machine::hart::{Hart, Vector};

const ALL: u64 = 0xFF;
/// Smallest normal number.
const SMALLEST: u32 = 0x0080_0000;

#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn get(register: &Vector) -> __m256i {
    // SAFETY: the register has 32 bytes, aligned to as many.
    unsafe { _mm256_load_si256(ptr::from_ref(register).cast()) }
}

/// The first source register.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn first(hart: &Hart, raw: u32) -> __m256i {
    get(&hart.f[rs1(raw) as usize])
}

/// Writes the enabled lanes of the destination.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn put(hart: &mut Hart, raw: u32, value: __m256i) -> bool {
    let register = &mut hart.f[rd(raw) as usize];
    let mask = hart.masks & ALL;
    let value = if mask == ALL {
        value
    } else {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let enabled = _mm256_and_si256(_mm256_set1_epi32(mask as i32), bits);
        _mm256_blendv_epi8(get(register), value, _mm256_cmpeq_epi32(enabled, bits))
    };
    // SAFETY: the register has 32 bytes, aligned to as many.
    unsafe { _mm256_store_si256(ptr::from_mut(register).cast(), value) };
    true
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn second(hart: &Hart, raw: u32) -> __m256i {
    get(&hart.f[rs2(raw) as usize])
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn third(hart: &Hart, raw: u32) -> __m256i {
    get(&hart.f[(raw >> 27) as usize])
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn all(bits: u32) -> __m256i {
    _mm256_set1_epi32(bits.cast_signed())
}

/// Without signs and less one; subnormal numbers are small, zeros the largest.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn rank(a: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_and_si256(a, all(!SIGN)), all(u32::MAX))
}

/// Returns `true` if an instruction rounds to nearest, and the flag for inexact results is set. Its
/// mode is to nearest or dynamic.
#[inline(always)]
fn is_usual(hart: &Hart, raw: u32) -> bool {
    // The field moved to where the mode is in the register: all ones if dynamic.
    hart.fcsr & (raw >> 7 & 0xE0 | NX) == NX
}

/// Results that are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// All are in doubt: they are rare, and it costs something to find out.
    Doubted,
    /// Those are in doubt that are not certainly exact.
    Examined,
}

/// Lanes, by their highest bits, that may raise another flag than that for inexact results: an
/// operand is subnormal, as the least rank says, or the result is not a number above the smallest
/// normal one, where tininess would be in question.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn doubtful(least: __m256i, result: __m256i) -> __m256i {
    let magnitude = _mm256_and_si256(result, all(!SIGN));
    // If all operands are zero, so is the result.
    let subnormal = _mm256_sub_epi32(least, all(SMALLEST - 1));
    let small = _mm256_sub_epi32(magnitude, all(SMALLEST + 1));
    let large = _mm256_add_epi32(magnitude, all((1 << 31) - INFINITY));
    _mm256_or_si256(_mm256_or_si256(subnormal, small), large)
}

/// The same, apart from lanes without subnormal operands whose result is zero, and exact as
/// `is_exact` says.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn examined(least: __m256i, result: __m256i, is_exact: __m256i) -> __m256i {
    let twice = _mm256_add_epi32(result, result);
    let is_zero = _mm256_cmpeq_epi32(twice, _mm256_setzero_si256());
    // Unsigned: the least may be that of a zero.
    let plain = _mm256_cmpeq_epi32(_mm256_max_epu32(least, all(SMALLEST - 1)), least);
    let excused = _mm256_and_si256(_mm256_and_si256(is_zero, plain), is_exact);
    _mm256_andnot_si256(excused, doubtful(least, result))
}

/// Writes the result if no lane is in doubt.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn put_unless(hart: &mut Hart, raw: u32, doubt: __m256i, result: __m256i) -> bool {
    _mm256_movemask_ps(_mm256_castsi256_ps(doubt)) == 0 && put(hart, raw, result)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn fused_of(hart: &mut Hart, raw: u32, zeros: Zeros, [a, b, c]: [__m256i; 3]) -> bool {
    let [x, y, z] = [_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _mm256_castsi256_ps(c)];
    let result = _mm256_castps_si256(_mm256_fmadd_ps(x, y, z));
    let (of_a, of_b) = (rank(a), rank(b));
    let least = _mm256_min_epu32(_mm256_min_epu32(of_a, of_b), rank(c));
    let doubt = match zeros {
        Zeros::Doubted => doubtful(least, result),
        Zeros::Examined => examined(least, result, has_zero(of_a, of_b)),
    };
    put_unless(hart, raw, doubt, result)
}

/// Lanes in which one of two ranks is that of a zero.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn has_zero(a: __m256i, b: __m256i) -> __m256i {
    _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), all(u32::MAX))
}

/// `a · b + c`, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn fused(hart: &mut Hart, raw: u32, zeros: Zeros) -> bool {
    let operands = [first(hart, raw), second(hart, raw), third(hart, raw)];
    is_usual(hart, raw) && fused_of(hart, raw, zeros, operands)
}

/// The same with the signs of product and addend flipped as the instruction says.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn fused_signed(hart: &mut Hart, raw: u32, zeros: Zeros) -> bool {
    let a = _mm256_xor_si256(first(hart, raw), all(raw << 5 & SIGN));
    let c = _mm256_xor_si256(third(hart, raw), all(raw << 6 & SIGN));
    let operands = [a, second(hart, raw), c];
    is_usual(hart, raw) && fused_of(hart, raw, zeros, operands)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_of(hart: &mut Hart, raw: u32, a: __m256i, b: __m256i) -> bool {
    let sum = _mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let result = _mm256_castps_si256(sum);
    // Sums that are zero are exact.
    let doubt = examined(_mm256_min_epu32(rank(a), rank(b)), result, all(u32::MAX));
    put_unless(hart, raw, doubt, result)
}

/// `a + b`.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn sum(hart: &mut Hart, raw: u32) -> bool {
    let (a, b) = (first(hart, raw), second(hart, raw));
    is_usual(hart, raw) && sum_of(hart, raw, a, b)
}

/// `a - b`.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn difference(hart: &mut Hart, raw: u32) -> bool {
    let (a, b) = (first(hart, raw), _mm256_xor_si256(second(hart, raw), all(SIGN)));
    is_usual(hart, raw) && sum_of(hart, raw, a, b)
}

/// `a · b`.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn product(hart: &mut Hart, raw: u32) -> bool {
    let (a, b) = (first(hart, raw), second(hart, raw));
    let product = _mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let (of_a, of_b) = (rank(a), rank(b));
    let result = _mm256_castps_si256(product);
    let doubt = examined(_mm256_min_epu32(of_a, of_b), result, has_zero(of_a, of_b));
    is_usual(hart, raw) && put_unless(hart, raw, doubt, result)
}

/// Floats from signed integers, if all are exact and the mode is to nearest.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn from_integers(hart: &mut Hart, raw: u32) -> bool {
    let is_nearest = match funct3(raw) {
        0 => true,
        7 => hart.fcsr & 0xE0 == 0,
        _ => false,
    };
    let a = first(hart, raw);
    // At most 24 bits and the sign.
    let high = _mm256_srli_epi32::<25>(_mm256_add_epi32(a, _mm256_set1_epi32(1 << 24)));
    is_nearest
        && _mm256_testz_si256(high, high) != 0
        && put(hart, raw, _mm256_castps_si256(_mm256_cvtepi32_ps(a)))
}

/// Single precision from the low halves, if none is subnormal, infinite or no number.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn from_halves(hart: &mut Hart, raw: u32) -> bool {
    let a = first(hart, raw);
    let magnitude = _mm256_and_si256(a, _mm256_set1_epi32(0x7FFF));
    let sign = _mm256_slli_epi32::<16>(_mm256_and_si256(a, _mm256_set1_epi32(0x8000)));
    let is_zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
    // Biases 15 and 127.
    let bits = _mm256_add_epi32(_mm256_slli_epi32::<13>(magnitude), _mm256_set1_epi32(112 << 23));
    let is_large = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7BFF));
    let is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x0400), magnitude);
    let special = _mm256_or_si256(is_large, _mm256_andnot_si256(is_zero, is_small));
    _mm256_testz_si256(special, special) != 0
        && put(hart, raw, _mm256_or_si256(sign, _mm256_andnot_si256(is_zero, bits)))
}

/// One value to all lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn constant(hart: &mut Hart, raw: u32, value: u32) -> bool {
    put(hart, raw, _mm256_set1_epi32(value.cast_signed()))
}

/// Lanes of each half, chosen by the instruction.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn swizzle(hart: &mut Hart, raw: u32) -> bool {
    let selector = _mm256_set1_epi32(operand::IMM8.value(raw));
    let chosen = _mm256_srlv_epi32(selector, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    let a = _mm256_castsi256_ps(first(hart, raw));
    put(hart, raw, _mm256_castps_si256(_mm256_permutevar_ps(a, chosen)))
}

/// Lanes and a constant.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn mask(hart: &mut Hart, raw: u32) -> bool {
    let constant = _mm256_set1_epi32(operand::IMM10.value(raw));
    put(hart, raw, _mm256_and_si256(first(hart, raw), constant))
}

/// Lanes shifted right by a constant.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn shift(hart: &mut Hart, raw: u32) -> bool {
    let count = _mm_cvtsi32_si128(rs2(raw).cast_signed());
    put(hart, raw, _mm256_srl_epi32(first(hart, raw), count))
}
