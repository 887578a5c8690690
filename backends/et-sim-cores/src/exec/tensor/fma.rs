//! Multiplication of tiles: fp32, pairs of fp16 to fp32, and groups of four int8 to int32.

use super::{BAD_PAIRING, LINES, Operation, Row, SCRATCHPAD_OFF, SIDE, fail, tile, unit};
use crate::float::lanes;
use crate::float::soft::{NX, Rounding};
use crate::float::wide;
use crate::machine::chip::Core;
use crate::machine::hart::{Hart, Vector};

const FP32: usize = 0;
const FP16: usize = 1;
const INT8: usize = 3;

/// Operands and result of a multiplication. Only the first `rows`, `depth` and `columns` count;
/// what is beyond them in `b` is 0.
pub(super) struct Tile {
    pub(super) a: [Row; SIDE],
    pub(super) b: [Row; SIDE],
    pub(super) c: [Row; SIDE],
    pub(super) rows: usize,
    /// Columns of A, rows of B.
    pub(super) depth: usize,
    pub(super) columns: usize,
    /// The first step ignores what C was.
    pub(super) first_pass: bool,
}

/// Returns `true` unless the operation is an illegal instruction.
pub(super) fn is_legal(operation: &Operation, fcsr: u32) -> bool {
    match operation.bits(1, 3) {
        FP32 => Rounding::new(fcsr >> 5 & 7).is_some(),
        FP16 | INT8 => true,
        _ => false,
    }
}

/// Executes a multiplication.
pub(super) fn execute(hart: &mut Hart, core: &Core<'_>, operation: &Operation) {
    let uses_ten_b = operation.flag(20);
    let depth = operation.bits(47, 4) + 1;
    let (unit, is_on) = unit(hart, core);
    // Whatever becomes of it, a load to the buffer is paired with this operation.
    let loaded = unit.ten_b_rows.take();
    let is_paired = if uses_ten_b { loaded == Some(depth) } else { loaded.is_none() };
    if !is_paired {
        return fail(hart, core, BAD_PAIRING);
    }
    if !is_on {
        return fail(hart, core, SCRATCHPAD_OFF);
    }
    let columns = 4 * (operation.bits(55, 2) + 1);
    let (line_a, line_b) = (operation.bits(4, 6), operation.bits(12, 6));
    let offset = operation.bits(43, 4);
    let b = |k: usize| if uses_ten_b { unit.ten_b[k] } else { unit.lines[(line_b + k) % LINES] };
    let mut tile = Tile {
        a: std::array::from_fn(|row| {
            let mut line = unit.lines[(line_a + row) % LINES];
            if offset != 0 {
                line.rotate_left(offset);
            }
            line
        }),
        b: [[0; SIDE]; SIDE],
        c: unit.ten_c,
        rows: operation.bits(51, 4) + 1,
        depth,
        columns,
        first_pass: operation.flag(0),
    };
    for k in 0..depth {
        tile.b[k][..columns].copy_from_slice(&b(k)[..columns]);
    }
    match operation.bits(1, 3) {
        INT8 => int8(hart, core, operation, &mut tile),
        kind => {
            for (row, c) in tile.c.iter_mut().enumerate() {
                *c = get(hart, row);
            }
            let mut flags = hart.fcsr;
            let rounding = Rounding::new(flags >> 5 & 7).unwrap_or(Rounding::NearestEven);
            for row in 0..tile.rows {
                if operation.row_is_on(row) {
                    continue;
                }
                if tile.first_pass {
                    tile.c[row][..columns].fill(0);
                }
            }
            let is_on = |row: usize| operation.row_is_on(row);
            if kind == FP32 {
                fp32(&mut tile, is_on, rounding, &mut flags);
            } else {
                let place = &mut self::unit(hart, core).0.wide;
                let mut wide = place.take().unwrap_or_else(tile::Wide::new);
                fp16(&mut tile, &mut wide, is_on, &mut flags);
                self::unit(hart, core).0.wide = Some(wide);
            }
            hart.fcsr = flags;
            put(hart, &tile);
        }
    }
}

/// A row of the result, which is in the floating-point registers.
fn get(hart: &Hart, row: usize) -> Row {
    std::array::from_fn(|column| hart.f[2 * row + column / 8].0[column % 8])
}

/// Writes the result to the floating-point registers.
fn put(hart: &mut Hart, tile: &Tile) {
    for (row, c) in tile.c[..tile.rows].iter().enumerate() {
        for (half, lanes) in c[..tile.columns].chunks(8).enumerate() {
            let Vector(register) = &mut hart.f[2 * row + half];
            register[..lanes.len()].copy_from_slice(lanes);
        }
    }
}

fn fp32(tile: &mut Tile, is_on: impl Fn(usize) -> bool, rounding: Rounding, flags: &mut u32) {
    // The host's arithmetic tells no flags: it is of use when the one that may come up is set.
    let tame = rounding == Rounding::NearestEven
        && tile::has_host_fma()
        && wide::run(|| tile::is_tame32(tile));
    for row in (0..tile.rows).filter(|&row| is_on(row)) {
        if tame && *flags & NX != 0 {
            tile::row32(tile, row);
        } else {
            slow_row32(tile, row, rounding, flags);
        }
    }
}

/// Multiplies one row, one operation at a time.
fn slow_row32(tile: &mut Tile, row: usize, rounding: Rounding, flags: &mut u32) {
    for k in 0..tile.depth {
        let a = tile.a[row][k];
        let is_first = tile.first_pass && k == 0;
        if a == 0 && !is_first {
            continue;
        }
        for column in 0..tile.columns {
            let (b, c) = (tile.b[k][column], &mut tile.c[row][column]);
            if is_first {
                *c = lanes::mul(a, b, rounding, flags);
            } else if b != 0 {
                *c = lanes::mul_add(a, b, *c, rounding, flags);
            }
        }
    }
}

fn fp16(tile: &mut Tile, wide: &mut tile::Wide, is_on: impl Fn(usize) -> bool, flags: &mut u32) {
    let is_tame = tile::is_tame16(tile, *flags);
    if is_tame {
        tile::widen(wide, tile);
    }
    for row in (0..tile.rows).filter(|&row| is_on(row)) {
        let done = is_tame && *flags & NX != 0 && tile::row16(tile, wide, row);
        if !done {
            slow_row16(tile, row, flags);
        }
    }
}

/// Multiplies one row of pairs, one step at a time.
fn slow_row16(tile: &mut Tile, row: usize, flags: &mut u32) {
    for k in 0..tile.depth {
        let a = tile.a[row][k];
        let is_first = tile.first_pass && k == 0;
        if a == 0 && !is_first {
            continue;
        }
        for column in 0..tile.columns {
            let (b, c) = (tile.b[k][column], &mut tile.c[row][column]);
            if is_first || b != 0 {
                let addend = if is_first { None } else { Some(*c) };
                *c = lanes::dot_halves(a, b, addend, flags);
            }
        }
    }
}

/// Multiplies bytes. The sum is kept in the unit; the last step may send it to the floating-point
/// registers instead.
fn int8(hart: &mut Hart, core: &Core<'_>, operation: &Operation, tile: &mut Tile) {
    let to_registers = operation.flag(23);
    let signed = (!operation.flag(21), !operation.flag(22));
    let mut results = tile.c;
    for (row, result) in results.iter_mut().enumerate().take(tile.rows) {
        if operation.row_is_on(row) {
            let steps = tile.depth - usize::from(to_registers);
            if tile.first_pass {
                result[..tile.columns].fill(0);
            }
            tile::row8(tile, result, row, 0..steps, signed);
            if !tile.first_pass || steps != 0 {
                tile.c[row] = *result;
            }
            tile::row8(tile, result, row, steps..tile.depth, signed);
        } else if tile.first_pass {
            tile.c[row][..tile.columns].fill(0);
            result[..tile.columns].fill(0);
        } else {
            *result = get(hart, row);
        }
    }
    let (unit, _) = unit(hart, core);
    for row in 0..tile.rows {
        unit.ten_c[row][..tile.columns].copy_from_slice(&tile.c[row][..tile.columns]);
    }
    if to_registers {
        tile.c = results;
        put(hart, tile);
    }
}
