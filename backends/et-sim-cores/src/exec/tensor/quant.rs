//! Quantisation: a chain of steps over a tile in the floating-point registers.

use super::{LINES, Operation, Row, SCRATCHPAD_OFF, SIDE, fail, unit};
use crate::float::lanes;
use crate::float::soft::Rounding;
use crate::float::{self};
use crate::machine::chip::Core;
use crate::machine::hart::Hart;

const STEPS: u32 = 10;

/// Executes all steps.
pub(super) fn execute(hart: &mut Hart, core: &Core<'_>, operation: &Operation) {
    let rounding = Rounding::new(hart.fcsr >> 5 & 7).unwrap_or(Rounding::NearestEven);
    let rows = operation.bits(51, 4) + 1;
    let columns = 4 * (operation.bits(55, 2) + 1);
    let first = operation.bits(57, 5);
    let mut line = operation.bits(45, 6);
    let steps = (0..STEPS).map(|step| operation.bits(4 * step, 4));
    let steps: Vec<usize> = steps.take_while(|step| (1..=10).contains(step)).collect();
    let (unit, is_on) = unit(hart, core);
    if !is_on && steps.iter().any(|step| (4..=7).contains(step)) {
        fail(hart, core, SCRATCHPAD_OFF);
        return;
    }
    let lines = unit.lines;
    let mut tile: [Row; SIDE] = std::array::from_fn(|row| get(hart, first, row));
    let mut flags = 0;
    for step in steps {
        let vector = &lines[line % LINES];
        for (row, elements) in tile[..rows].iter_mut().enumerate() {
            if step == 10 {
                pack(elements, columns);
                continue;
            }
            for (column, element) in elements[..columns].iter_mut().enumerate() {
                let other = vector[if matches!(step, 5 | 7) { row } else { column }];
                *element = match step {
                    1 => float::from_i33(element.cast_signed().into(), rounding, &mut flags),
                    2 => float::to_i32(*element, rounding, &mut flags).cast_unsigned(),
                    3 => lanes::max_signed(*element, 0),
                    4 | 5 => element.wrapping_add(other),
                    6 | 7 => lanes::mul(*element, other, rounding, &mut flags),
                    8 => lanes::saturate(*element, -128, 127),
                    _ => lanes::saturate(*element, 0, 255),
                };
            }
        }
        line += usize::from((4..=7).contains(&step));
    }
    for (row, elements) in tile[..rows].iter().enumerate() {
        let (low, high) = elements.split_at(SIDE / 2);
        hart.f[(first + 2 * row) % 32].0.copy_from_slice(low);
        hart.f[(first + 2 * row + 1) % 32].0.copy_from_slice(high);
    }
    hart.fcsr |= flags;
}

/// The two registers of a row.
fn get(hart: &Hart, first: usize, row: usize) -> Row {
    let register = first + 2 * row;
    std::array::from_fn(|column| hart.f[(register + column / 8) % 32].0[column % 8])
}

/// Moves the low byte of each element to the low end of the row.
fn pack(elements: &mut Row, columns: usize) {
    let all = *elements;
    let (words, _) = all[..columns].as_chunks::<4>();
    for (packed, from) in elements.iter_mut().zip(words) {
        *packed = u32::from_le_bytes(from.map(|element| element.to_le_bytes()[0]));
    }
}
