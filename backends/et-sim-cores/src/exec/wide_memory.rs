//! Handlers of the most frequent packed instructions on memory, as those in [`wide`](super::wide).
//!
//! There is one for flat memory, and one for private caches. Each does what is simplest, without a
//! stack of its own: an access whose words are aligned to eight bytes, in DRAM or in the cache,
//! with nothing special about them. What else is frequent, its second attempt does, and the rest
//! the handler of all packed instructions.

#![expect(unsafe_code, reason = "calls of functions for processor features that were detected")]

use std::arch::x86_64::{
    __m256i, _mm_cvtsi64_si128, _mm_cvtsi128_si32, _mm_set_epi64x, _mm256_broadcastd_epi32,
    _mm256_castsi256_si128, _mm256_cvtepi8_epi32, _mm256_cvtepi16_epi32, _mm256_extract_epi64,
    _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_setr_epi64x, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_testz_si256,
    _mm256_xor_si256,
};
use std::ptr;
use std::sync::atomic::Ordering;

use crate::decode::op::Op;
use crate::decode::{imm_i, imm_s, rd, rs1, rs2};
use crate::exec::avx2::{first, get, put};
use crate::exec::wide::{handlers, otherwise};
use crate::exec::{Env, Ops, next, packed_memory};
use crate::float::wide::has_avx2;
use crate::machine::hart::Hart;
use crate::memory::private::Private;

const ALL: u64 = 0xFF;
const REGISTER_BYTES: u64 = 32;
const EIGHT: u64 = 8;
/// Packed indices 0 to 7, 5 bits each.
const IN_ORDER: u64 = 0x39_8A41_8820;

handlers! {
    load, load_wide, load_missed: |hart, env, raw|
        load_from_memory(hart, env, raw, Stacks::Elsewhere),
        load_from_memory(hart, env, raw, Stacks::Included);
    private_load, private_load_wide, private_load_missed: |hart, env, raw|
        load_from_cache(hart, env, raw, Private::aligned_register),
        load_from_cache(hart, env, raw, Private::register)
            || fetched(hart, env, load_address(hart, raw), REGISTER_BYTES)
                && load_from_cache(hart, env, raw, Private::register)
            || load_from_memory(hart, env, raw, Stacks::Alone);
    store, store_wide, store_missed: |hart, env, raw|
        store_to_memory(hart, env, raw, Stacks::Elsewhere),
        store_to_memory(hart, env, raw, Stacks::Included);
    private_store, private_store_wide, private_store_missed: |hart, env, raw|
        store_to_cache(hart, env, raw),
        fetched(hart, env, store_address(hart, raw), REGISTER_BYTES)
            && store_to_cache(hart, env, raw)
            || store_to_memory(hart, env, raw, Stacks::Alone);
    broadcast, broadcast_wide, broadcast_missed: |hart, env, raw|
        broadcast_from_memory(hart, env, raw, Stacks::Elsewhere),
        broadcast_from_memory(hart, env, raw, Stacks::Included);
    private_broadcast, private_broadcast_wide, private_broadcast_missed: |hart, env, raw|
        broadcast_from_cache(hart, env, raw),
        fetched(hart, env, load_address(hart, raw), 4) && broadcast_from_cache(hart, env, raw)
            || broadcast_from_memory(hart, env, raw, Stacks::Alone);
    gather, gather_wide, gather_missed: |hart, env, raw|
        gather_in_order(hart, env, raw, Source::Memory),
        packed_memory::gather_at_once::<1>(hart, env.core, raw);
    private_gather, private_gather_wide, private_gather_missed: |hart, env, raw|
        gather_in_order(hart, env, raw, Source::Cache),
        gather_in_order(hart, env, raw, Source::Fetched)
            || packed_memory::gather_at_once::<1>(hart, env.core, raw);
    gather_halves, gather_halves_wide, gather_halves_missed: |hart, env, raw|
        gather_halves_in_order(hart, env, raw, Source::Memory),
        packed_memory::gather_at_once::<2>(hart, env.core, raw);
    private_gather_halves, private_gather_halves_wide, private_gather_halves_missed:
        |hart, env, raw|
        gather_halves_in_order(hart, env, raw, Source::Cache),
        gather_halves_in_order(hart, env, raw, Source::Fetched)
            || packed_memory::gather_at_once::<2>(hart, env.core, raw);
    gather_block, gather_block_wide, gather_block_missed: |hart, env, raw|
        gather_block_in_order(hart, env, raw, Source::Memory),
        gather_in_block(hart, env, raw);
    private_gather_block, private_gather_block_wide, private_gather_block_missed:
        |hart, env, raw|
        gather_block_in_order(hart, env, raw, Source::Cache),
        gather_block_in_order(hart, env, raw, Source::Fetched) || gather_in_block(hart, env, raw);
}

#[inline(always)]
fn load_address(hart: &Hart, raw: u32) -> u64 {
    hart.x[rs1(raw) as usize].wrapping_add_signed(imm_i(raw).into())
}

#[inline(always)]
fn store_address(hart: &Hart, raw: u32) -> u64 {
    hart.x[rs1(raw) as usize].wrapping_add_signed(imm_s(raw).into())
}

/// Gets what the cache lacks; returns `true` if another look is worth while.
fn fetched(hart: &mut Hart, env: &Env<'_>, from: u64, size: u64) -> bool {
    !env.guards.overlap(from, size) && packed_memory::fetch(hart, env.core, from, size)
}

/// Where an access may be that goes to memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stacks {
    /// In stacks, which are not cached, and nowhere else.
    Alone,
    /// Anywhere.
    Included,
    /// Not near stacks: the simplest look.
    Elsewhere,
}

impl Stacks {
    /// Returns `true` if nothing is in the way of an access.
    #[inline(always)]
    fn allow(self, env: &Env<'_>, from: u64, size: u64) -> bool {
        let last = from.wrapping_add(size - 1);
        match self {
            Self::Elsewhere => !env.guards.overlap(from, size),
            Self::Included => !env.guards.are_near(from, size),
            Self::Alone => {
                env.guards.are_at(from)
                    && env.guards.are_at(last)
                    && !env.guards.are_near(from, size)
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_from_memory(hart: &mut Hart, env: &Env<'_>, raw: u32, stacks: Stacks) -> bool {
    let from = load_address(hart, raw);
    if !stacks.allow(env, from, REGISTER_BYTES) {
        return false;
    }
    let Some(doubles) = env.dram.user_doubles(from) else { return false };
    let [a, b, c, d] =
        [0, 1, 2, 3].map(|at: usize| doubles[at].load(Ordering::Relaxed).cast_signed());
    put(hart, raw, _mm256_setr_epi64x(a, b, c, d))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_from_cache(
    hart: &mut Hart,
    env: &Env<'_>,
    raw: u32,
    look: impl Fn(&Private, u64) -> Option<&[u8; 32]>,
) -> bool {
    let from = load_address(hart, raw);
    if env.guards.overlap(from, REGISTER_BYTES) {
        return false;
    }
    let Some(cache) = &hart.cache else { return false };
    let Some(bytes) = look(cache, from) else { return false };
    // SAFETY: there are 32 bytes; no alignment is asked for.
    let value: __m256i = unsafe { _mm256_loadu_si256(ptr::from_ref(bytes).cast()) };
    put(hart, raw, value)
}

/// Stores all lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_to_memory(hart: &mut Hart, env: &Env<'_>, raw: u32, stacks: Stacks) -> bool {
    let to = store_address(hart, raw);
    let is_code =
        env.core.code.may_hold(to) || env.core.code.may_hold(to.wrapping_add(REGISTER_BYTES));
    if hart.masks & ALL != ALL || is_code || !stacks.allow(env, to, REGISTER_BYTES) {
        return false;
    }
    let Some(doubles) = env.dram.user_doubles(to) else { return false };
    let value = get(&hart.f[rs2(raw) as usize]);
    doubles[0].store(_mm256_extract_epi64::<0>(value).cast_unsigned(), Ordering::Relaxed);
    doubles[1].store(_mm256_extract_epi64::<1>(value).cast_unsigned(), Ordering::Relaxed);
    doubles[2].store(_mm256_extract_epi64::<2>(value).cast_unsigned(), Ordering::Relaxed);
    doubles[3].store(_mm256_extract_epi64::<3>(value).cast_unsigned(), Ordering::Relaxed);
    true
}

/// Stores all lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_to_cache(hart: &mut Hart, env: &Env<'_>, raw: u32) -> bool {
    let to = store_address(hart, raw);
    if hart.masks & ALL != ALL || env.guards.overlap(to, REGISTER_BYTES) {
        return false;
    }
    let mut bytes = [0; 32];
    let value = get(&hart.f[rs2(raw) as usize]);
    // SAFETY: there are 32 bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(ptr::from_mut(&mut bytes).cast(), value) };
    let Some(cache) = &mut hart.cache else { return false };
    cache.store_register(to, &bytes).is_some()
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn broadcast_from_memory(hart: &mut Hart, env: &Env<'_>, raw: u32, stacks: Stacks) -> bool {
    let from = load_address(hart, raw);
    if !stacks.allow(env, from, 4) {
        return false;
    }
    let Some(word) = env.dram.user_word(from) else { return false };
    put(hart, raw, _mm256_set1_epi32(word.load(Ordering::Relaxed).cast_signed()))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn broadcast_from_cache(hart: &mut Hart, env: &Env<'_>, raw: u32) -> bool {
    let from = load_address(hart, raw);
    if env.guards.overlap(from, 4) {
        return false;
    }
    let Some(cache) = &hart.cache else { return false };
    let Some(word) = cache.load_word(from) else { return false };
    put(hart, raw, _mm256_set1_epi32(word.cast_signed()))
}

/// Where the numbers of a gather begin, of so many bytes each, if their indices follow each other
/// and all lanes take part.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn in_order<const SIZE: i32>(hart: &Hart, raw: u32) -> Option<u64> {
    let indices = first(hart, raw);
    let start = _mm256_broadcastd_epi32(_mm256_castsi256_si128(indices));
    let differ = _mm256_xor_si256(
        _mm256_sub_epi32(indices, start),
        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(SIZE)),
    );
    let index = _mm_cvtsi128_si32(_mm256_castsi256_si128(indices));
    let is_in_order = hart.masks & ALL == ALL
        && hart.gsc_progress == 0
        && _mm256_testz_si256(differ, differ) != 0
        // Each lane's address is of its own: an index that wraps around leads elsewhere.
        && index <= i32::MAX - 7 * SIZE;
    is_in_order.then(|| hart.x[rs2(raw) as usize].wrapping_add_signed(index.into()))
}

/// Where the bytes of a gather within a block of 32 begin, if that is what the indices say.
#[inline(always)]
fn in_block(hart: &Hart, raw: u32) -> Option<u64> {
    let (from, indices) = (hart.x[rs2(raw) as usize], hart.x[rs1(raw) as usize]);
    let is_in_order = indices << 24 == IN_ORDER << 24;
    (is_in_order && from % REGISTER_BYTES <= REGISTER_BYTES - EIGHT).then_some(from)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn gather_in_block(hart: &mut Hart, env: &Env<'_>, raw: u32) -> bool {
    let (block, indices) = (hart.x[rs2(raw) as usize], hart.x[rs1(raw) as usize]);
    packed_memory::gather_block_at_once::<1>(hart, env.core, rd(raw) as usize, block, indices)
}

/// Where gathered bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Memory,
    Cache,
    /// The cache, which gets what it lacks, or a stack.
    Fetched,
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn gather_in_order(hart: &mut Hart, env: &Env<'_>, raw: u32, source: Source) -> bool {
    let Some(from) = in_order::<1>(hart, raw) else { return false };
    gather_from(hart, env, raw, from, source)
}

/// Writes eight halves, sign-extended, to the lanes. Those at odd addresses are for others.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn gather_halves_in_order(hart: &mut Hart, env: &Env<'_>, raw: u32, source: Source) -> bool {
    let Some(from) = in_order::<2>(hart, raw).filter(|from| from.is_multiple_of(2)) else {
        return false;
    };
    let parts = [0, EIGHT].map(|at| eight_of(hart, env, from.wrapping_add(at), source));
    let [Some(low), Some(high)] = parts else { return false };
    let halves = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
    put(hart, raw, _mm256_cvtepi16_epi32(halves))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn gather_block_in_order(hart: &mut Hart, env: &Env<'_>, raw: u32, source: Source) -> bool {
    let Some(from) = in_block(hart, raw) else { return false };
    gather_from(hart, env, raw, from, source)
}

/// Writes eight bytes, sign-extended, to the lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn gather_from(hart: &mut Hart, env: &Env<'_>, raw: u32, from: u64, source: Source) -> bool {
    let Some(bytes) = eight_of(hart, env, from, source) else { return false };
    put(hart, raw, _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes.cast_signed())))
}

#[inline(always)]
fn eight_of(hart: &mut Hart, env: &Env<'_>, from: u64, source: Source) -> Option<u64> {
    match source {
        Source::Memory => eight_of_memory(env, from, Stacks::Elsewhere),
        Source::Cache => eight_of_cache(hart, env, from),
        Source::Fetched if fetched(hart, env, from, EIGHT) => eight_of_cache(hart, env, from),
        Source::Fetched => eight_of_memory(env, from, Stacks::Alone),
    }
}

#[inline(always)]
fn eight_of_memory(env: &Env<'_>, from: u64, stacks: Stacks) -> Option<u64> {
    if stacks.allow(env, from, EIGHT) { env.dram.user_eight(from) } else { None }
}

#[inline(always)]
fn eight_of_cache(hart: &Hart, env: &Env<'_>, from: u64) -> Option<u64> {
    if env.guards.overlap(from, EIGHT) {
        return None;
    }
    let bytes = hart.cache.as_ref()?.near(from, EIGHT)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
