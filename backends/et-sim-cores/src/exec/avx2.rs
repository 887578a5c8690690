//! Packed instructions on the vector registers of x86 processors.
//!
//! The compiler, left alone, takes lanes apart to move them about. A register that is written in
//! parts and then read as a whole costs more than all the rest of an instruction, so these are
//! written with the vector instructions themselves. They return `false`, with nothing done, if
//! something is in the way; what they do is what the function in [`packed`](super::packed) does.

#![expect(unsafe_code, reason = "loads and stores of whole registers")]

use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si32, _mm256_add_epi32,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_blendv_epi8, _mm256_broadcastd_epi32,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpeq_epi32,
    _mm256_cmpgt_epi32, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_load_si256,
    _mm256_loadu_si256, _mm256_or_si256, _mm256_permutevar_ps, _mm256_set1_epi32,
    _mm256_setr_epi32, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srl_epi32,
    _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_store_si256, _mm256_storeu_si256,
    _mm256_sub_epi32, _mm256_testz_si256, _mm256_xor_si256,
};
use std::ptr;

use et_isa::operand;

use crate::decode::{funct3, imm_i, imm_s, rd, rs1, rs2};
use crate::exec::packed_memory::{Way, fetch, is_direct, way};
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};

const ALL: u64 = 0xFF;
const REGISTER_BYTES: u64 = 32;
/// Packed indices 0 to 7, 5 bits each.
const IN_ORDER: u64 = 0x39_8A41_8820;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn get(register: &Vector) -> __m256i {
    // SAFETY: the register has 32 bytes, aligned to as many.
    unsafe { _mm256_load_si256(ptr::from_ref(register).cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn of_bytes(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: there are 32 bytes; no alignment is asked for.
    unsafe { _mm256_loadu_si256(ptr::from_ref(bytes).cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn to_bytes(value: __m256i) -> [u8; 32] {
    let mut bytes = [0; 32];
    // SAFETY: there are 32 bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(ptr::from_mut(&mut bytes).cast(), value) };
    bytes
}

/// The first source register.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first(hart: &Hart, raw: u32) -> __m256i {
    get(&hart.f[rs1(raw) as usize])
}

/// Writes the enabled lanes of the destination.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn put(hart: &mut Hart, raw: u32, value: __m256i) -> bool {
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

/// Gets what a private cache lacks; returns `true` if another look is worth while.
#[cold]
#[inline(never)]
fn fetches(hart: &mut Hart, core: &Core<'_>, from: u64, size: u64) -> bool {
    is_direct(hart, core, None) && fetch(hart, core, from, size)
}

/// The bytes of a register at an effective address, if nothing is in the way.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn at_address(hart: &Hart, core: &Core<'_>, from: u64) -> Option<__m256i> {
    if !is_direct(hart, core, None) || core.guards.are_near(from, REGISTER_BYTES) {
        return None;
    }
    match way(hart, core, from, REGISTER_BYTES)? {
        Way::Cache(cache) => Some(of_bytes(cache.register(from)?)),
        Way::Memory => {
            let lanes = core.chip.dram.user_lanes(from)?;
            let [a, b, c, d, e, f, g, h] = lanes.map(u32::cast_signed);
            Some(_mm256_setr_epi32(a, b, c, d, e, f, g, h))
        }
    }
}

/// Loads consecutive words to the enabled lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn load(hart: &mut Hart, core: &Core<'_>, raw: u32) -> bool {
    let from = hart.x[rs1(raw) as usize].wrapping_add_signed(imm_i(raw).into());
    let mut is_first = true;
    loop {
        if let Some(value) = at_address(hart, core, from) {
            return put(hart, raw, value);
        }
        if !is_first || !fetches(hart, core, from, REGISTER_BYTES) {
            return false;
        }
        is_first = false;
    }
}

/// Stores all lanes to consecutive words, if they are in a private cache.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn store(hart: &mut Hart, core: &Core<'_>, raw: u32) -> bool {
    let to = hart.x[rs1(raw) as usize].wrapping_add_signed(imm_s(raw).into());
    let value = to_bytes(get(&hart.f[rs2(raw) as usize]));
    let is_stack = core.guards.are_at(to) || core.guards.are_at(to.wrapping_add(REGISTER_BYTES));
    if hart.masks & ALL != ALL || is_stack {
        return false;
    }
    hart.cache.as_mut().and_then(|cache| cache.store_register(to, &value)).is_some()
}

/// Eight bytes at an effective address, if nothing is in the way.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn eight(hart: &Hart, core: &Core<'_>, from: u64) -> Option<u64> {
    if !is_direct(hart, core, None) || core.guards.are_near(from, 8) {
        return None;
    }
    match way(hart, core, from, 8)? {
        Way::Cache(cache) => Some(u64::from_le_bytes(cache.near(from, 8)?.try_into().ok()?)),
        Way::Memory => core.chip.dram.user_eight(from),
    }
}

/// Writes eight bytes, sign-extended, to the lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn put_eight(hart: &mut Hart, core: &Core<'_>, raw: u32, from: u64) -> bool {
    let mut is_first = true;
    loop {
        if let Some(bytes) = eight(hart, core, from) {
            let bytes = _mm_cvtsi64_si128(bytes.cast_signed());
            return put(hart, raw, _mm256_cvtepi8_epi32(bytes));
        }
        if !is_first || !fetches(hart, core, from, 8) {
            return false;
        }
        is_first = false;
    }
}

/// Gathers bytes whose indices follow each other, to all lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn gather(hart: &mut Hart, core: &Core<'_>, raw: u32) -> bool {
    let indices = first(hart, raw);
    let start = _mm256_broadcastd_epi32(_mm256_castsi256_si128(indices));
    let in_order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let differ = _mm256_xor_si256(_mm256_sub_epi32(indices, start), in_order);
    if hart.masks & ALL != ALL || hart.gsc_progress != 0 || _mm256_testz_si256(differ, differ) == 0
    {
        return false;
    }
    let index = _mm_cvtsi128_si32(_mm256_castsi256_si128(indices));
    // Each lane's address is of its own: an index that wraps around leads elsewhere.
    if index > i32::MAX - 7 {
        return false;
    }
    let from = hart.x[rs2(raw) as usize].wrapping_add_signed(index.into());
    put_eight(hart, core, raw, from)
}

/// Gathers the bytes from a place in a block of 32 on, if that is what the indices say.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn gather_block(hart: &mut Hart, core: &Core<'_>, raw: u32) -> bool {
    let (from, indices) = (hart.x[rs2(raw) as usize], hart.x[rs1(raw) as usize]);
    let is_in_order = indices << 24 == IN_ORDER << 24;
    is_in_order && from % REGISTER_BYTES <= 24 && put_eight(hart, core, raw, from)
}
