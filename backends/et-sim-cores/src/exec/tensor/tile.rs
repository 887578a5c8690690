//! Inner loops over rows of tiles, in the host's arithmetic.
//!
//! They are written so that the compiler turns them into vector instructions, and compiled a second
//! time for processors that have more of these.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls of functions for processor features that were detected")
)]

use std::ops::Range;

use super::fma::Tile;
use super::{Row, SIDE};
use crate::float::soft::{DENORMAL_INPUT, SIGN};
#[cfg(target_arch = "x86_64")]
use crate::float::wide::has_avx2;

/// Bits of a double below those of a single.
const BELOW_SINGLE: u64 = 0x1FFF_FFFF;

/// Returns `true` if the host rounds a product and a sum once, in one instruction.
pub(super) fn has_host_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_avx2();
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Compiles a function for the processor at hand, too.
macro_rules! on_host {
    ($(#[$doc:meta])* $name:ident, $wide:ident = $generic:ident(
        $($argument:ident: $type:ty),*) $(-> $result:ty)?) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $wide($($argument: $type),*) $(-> $result)? {
            $generic($($argument),*)
        }

        $(#[$doc])*
        pub(super) fn $name($($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                // SAFETY: the processor has the features that the function is compiled for.
                return unsafe { $wide($($argument),*) };
            }
            $generic($($argument),*)
        }
    };
}

/// Returns `true` if values are 0, or their exponents lie in a range.
#[inline(always)]
fn are_within(values: &[u32], exponents: Range<u32>) -> bool {
    let mut ok = true;
    for &bits in values {
        ok &= bits & !SIGN == 0 || exponents.contains(&(bits >> 23 & 0xFF));
    }
    ok
}

/// Returns `true` if sums of a tile of floats can neither overflow nor get too small to be normal:
/// all are multiples of 2^-126.
#[inline(always)]
pub(super) fn is_tame32(tile: &Tile) -> bool {
    // Factors within 2^±40: products are multiples of 2^(-40 - 23 - 40 - 23).
    let factors = 127 - 40..127 + 41;
    tile.a[..tile.rows].iter().all(|row| are_within(&row[..tile.depth], factors.clone()))
        && tile.b[..tile.depth].iter().all(|row| are_within(row, factors.clone()))
        && has_tame_sums(tile)
}

/// The same for what the products are added to.
#[inline(always)]
fn has_tame_sums(tile: &Tile) -> bool {
    let sums = 127 - 103..127 + 100;
    tile.first_pass
        || tile.c[..tile.rows].iter().all(|row| are_within(&row[..tile.columns], sums.clone()))
}

#[inline(always)]
fn generic_row32(tile: &mut Tile, row: usize) {
    let mut c = tile.c[row].map(f32::from_bits);
    for k in 0..tile.depth {
        let (a, b) = (tile.a[row][k], &tile.b[k]);
        if tile.first_pass && k == 0 {
            c = b.map(|b| f32::from_bits(a) * f32::from_bits(b));
        } else if a != 0 {
            for (c, &b) in c.iter_mut().zip(b) {
                let sum = f32::from_bits(a).mul_add(f32::from_bits(b), *c);
                *c = if b == 0 { *c } else { sum };
            }
        }
    }
    let columns = tile.columns;
    tile.c[row][..columns].copy_from_slice(&c.map(f32::to_bits)[..columns]);
}

on_host! {
    /// Multiplies a row of a tame tile, rounding to nearest. Raises no flags.
    row32, row32_avx2 = generic_row32(tile: &mut Tile, row: usize)
}

/// Both halves of the words of B as doubles, and which words are 0: of as many rows as the tile
/// has.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    low: [[f64; SIDE]; SIDE],
    high: [[f64; SIDE]; SIDE],
    /// All ones where a step is skipped.
    skipped: [[u64; SIDE]; SIDE],
}

/// The value of a half that is finite; subnormal ones count as 0.
#[inline(always)]
fn half(bits: u32) -> f64 {
    // Biases 15 and 127.
    let magnitude = ((bits & 0x7FFF) << 13) + (112 << 23);
    let magnitude = if bits & 0x7C00 == 0 { 0 } else { magnitude };
    f32::from_bits((bits & 0x8000) << 16 | magnitude).into()
}

impl Wide {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            low: [[0.0; SIDE]; SIDE],
            high: [[0.0; SIDE]; SIDE],
            skipped: [[0; SIDE]; SIDE],
        })
    }
}

#[inline(always)]
fn generic_widen(wide: &mut Wide, tile: &Tile) {
    let Wide { low, high, skipped } = wide;
    let rows = low.iter_mut().zip(high).zip(skipped);
    for (row, ((low, high), skipped)) in tile.b[..tile.depth].iter().zip(rows) {
        let to = low.iter_mut().zip(high).zip(skipped);
        for (word, ((low, high), skipped)) in row.iter().zip(to) {
            *low = half(word & 0xFFFF);
            *high = half(word >> 16);
            *skipped = if *word == 0 { u64::MAX } else { 0 };
        }
    }
}

on_host! {
    /// Takes over the rows of B of a tame tile.
    widen, widen_avx2 = generic_widen(wide: &mut Wide, tile: &Tile)
}

#[inline(always)]
fn generic_is_tame16(tile: &Tile, flags: u32) -> bool {
    let is_tame = |half: u32| {
        let is_subnormal = half & 0x7C00 == 0 && half & 0x3FF != 0;
        half & 0x7C00 != 0x7C00 && (!is_subnormal || flags & DENORMAL_INPUT != 0)
    };
    let all =
        |words: &[u32]| words.iter().all(|word| is_tame(word & 0xFFFF) && is_tame(word >> 16));
    tile.a[..tile.rows].iter().all(|row| all(&row[..tile.depth]))
        && tile.b[..tile.depth].iter().all(|row| all(row))
        && has_tame_sums(tile)
}

on_host! {
    /// Returns `true` if all halves are finite, the flag for subnormal ones is set if there are
    /// any, and sums stay normal. Products of halves are multiples of 2^-48.
    is_tame16, is_tame16_avx2 = generic_is_tame16(tile: &Tile, flags: u32) -> bool
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the bits below a single's are zero")]
fn generic_row16(tile: &mut Tile, wide: &Wide, row: usize) -> bool {
    let mut c = tile.c[row].map(|bits| f64::from(f32::from_bits(bits)));
    let mut lost = false;
    for k in 0..tile.depth {
        let word = tile.a[row][k];
        let is_first = tile.first_pass && k == 0;
        if is_first {
            // The one number that changes no sum, not even one that is zero.
            c = [-0.0; SIDE];
        } else if word == 0 {
            continue;
        }
        let (low, high) = (half(word & 0xFFFF), half(word >> 16));
        for (column, c) in c.iter_mut().enumerate() {
            let (one, two) = (low * wide.low[k][column], high * wide.high[k][column]);
            // Two exact products, their sum and what it loses: must be nothing.
            let products = one + two;
            let part = products - one;
            lost |= (one - (products - part)) + (two - part) != 0.0;
            // The sum of all, and what it loses: the value lies just below or above.
            let sum = products + *c;
            let part = sum - products;
            let error = (products - (sum - part)) + (*c - part);
            let is_below = error != 0.0 && (error < 0.0) != (sum < 0.0);
            let cut = (sum.to_bits() - u64::from(is_below)) & !BELOW_SINGLE;
            let skipped = if is_first { 0 } else { wide.skipped[k][column] };
            *c = f64::from_bits(c.to_bits() & skipped | cut & !skipped);
        }
    }
    if lost {
        return false;
    }
    let columns = tile.columns;
    for (bits, sum) in tile.c[row][..columns].iter_mut().zip(c) {
        *bits = (sum as f32).to_bits();
    }
    true
}

on_host! {
    /// Multiplies a row of pairs of a tame tile. Raises no flags. Returns `false`, with nothing
    /// done, if a sum of two products has too many bits.
    row16, row16_avx2 = generic_row16(tile: &mut Tile, wide: &Wide, row: usize) -> bool
}

#[inline(always)]
fn generic_row8(tile: &Tile, c: &mut Row, row: usize, steps: Range<usize>, signed: (bool, bool)) {
    let byte = |word: u32, at: u32, signed: bool| {
        let [byte, ..] = (word >> (8 * at)).to_le_bytes();
        if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
    };
    for k in steps {
        let a: [i32; 4] = [0, 1, 2, 3].map(|at| byte(tile.a[row][k], at, signed.0));
        for (c, &b) in c[..tile.columns].iter_mut().zip(&tile.b[k]) {
            let products = (0..4).map(|at| a[at as usize] * byte(b, at, signed.1));
            *c = c.wrapping_add_signed(products.sum());
        }
    }
}

on_host! {
    /// Adds the products of some steps of a row to `c`, wrapping. `signed` is for A and B.
    row8, row8_avx2 = generic_row8(
        tile: &Tile, c: &mut Row, row: usize, steps: Range<usize>, signed: (bool, bool))
}
