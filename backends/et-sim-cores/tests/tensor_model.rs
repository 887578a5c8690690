//! The tensor unit against a slow model written from the instruction set notes: one element and one
//! step at a time, in the arithmetic of the hart's own scalar instructions. Spec: ISA §3.8

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests: constants of their making, and a panic is a failure"
)]

use std::sync::Arc;

use et_sim_cores::{Dram, FloatProfile, MemoryModel, SingleHart, Step};
use proptest::prelude::*;

const CODE: u64 = 0x80_0600_0000;
const MEM: u64 = 0x80_0700_0000;
const MEM_BYTES: usize = 32 << 10;
const OUT: u64 = 0x80_0710_0000;

const TENSOR_FMA: u32 = 0x801;
const TENSOR_MASK: u32 = 0x805;
const TENSOR_QUANT: u32 = 0x806;
const TENSOR_ERROR: u32 = 0x808;
const TENSOR_LOAD: u32 = 0x83F;
const TENSOR_STORE: u32 = 0x87F;

const NX: u32 = 1;
/// fmadd.s, fmul.s, fcvt.s.w and fcvt.w.s with the dynamic rounding mode.
const FMADD: u32 = 2 << 27 | 1 << 20 | 7 << 12 | 3 << 7 | 0x43;
const FMUL: u32 = 0x08 << 25 | 1 << 20 | 7 << 12 | 3 << 7 | 0x53;
const FCVT_S_W: u32 = 0x68 << 25 | 10 << 15 | 7 << 12 | 3 << 7 | 0x53;
const FCVT_W_S: u32 = 0x60 << 25 | 7 << 12 | 11 << 7 | 0x53;

type Row = [u32; 16];

struct Bench {
    dram: Arc<Dram>,
    code: Vec<u32>,
    hart: SingleHart,
}

impl Bench {
    fn new() -> Self {
        let dram = Arc::new(Dram::new(128 << 20).unwrap());
        let memory = MemoryModel::Flat;
        let hart =
            SingleHart::with_memory(FloatProfile::Hardware, memory, Arc::clone(&dram)).unwrap();
        Self { dram, code: Vec::new(), hart }
    }

    fn step(&mut self, word: u32) {
        // Each instruction has a place of its own: what is decoded once stays.
        let known = self.code.iter().position(|&other| other == word);
        let place = known.unwrap_or_else(|| {
            self.code.push(word);
            self.code.len() - 1
        });
        let at = CODE + 4 * place as u64;
        if known.is_none() {
            self.dram.write(at, &word.to_le_bytes()).unwrap();
        }
        self.hart.set_pc(at);
        assert_eq!(self.hart.step(), Step::Retired);
    }

    /// Writes a register with x31 set.
    fn csr(&mut self, number: u32, value: u64, x31: u64) {
        self.hart.set_x(10, value);
        self.hart.set_x(31, x31);
        self.step(number << 20 | 10 << 15 | 1 << 12 | 0x73);
    }

    /// Fills the scratchpad from line 0 on.
    fn fill(&mut self, lines: &[Row]) {
        for (first, part) in (0..).step_by(16).zip(lines.chunks(16)) {
            let bytes: Vec<u8> =
                part.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
            self.dram.write(OUT, &bytes).unwrap();
            self.csr(TENSOR_LOAD, first << 53 | OUT | (part.len() as u64 - 1), 64);
        }
    }

    fn lines(&mut self) -> Vec<u8> {
        for first in [0, 16, 32] {
            let to = OUT + 64 * first;
            self.csr(TENSOR_STORE, first << 56 | 15 << 51 | 1 << 48 | to, 64);
        }
        self.out(48 * 64)
    }

    fn out(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.dram.read(OUT, &mut bytes).unwrap();
        bytes
    }

    /// Executes a scalar instruction on f0, f1, f2, x10 and returns f3 and x11.
    fn scalar(&mut self, word: u32, operands: [u32; 3]) -> (u32, u32) {
        for (register, bits) in operands.into_iter().enumerate() {
            self.hart.set_f(register, [bits, 0, 0, 0, 0, 0, 0, 0]);
        }
        self.hart.set_x(10, operands[0].into());
        self.step(word);
        (self.hart.f(3)[0], self.hart.x(11) as u32)
    }

    fn set_tile(&mut self, first: usize, tile: &[Row]) {
        for (row, words) in tile.iter().enumerate() {
            for half in 0..2 {
                let lanes = words[8 * half..8 * half + 8].try_into().unwrap();
                self.hart.set_f((first + 2 * row + half) % 32, lanes);
            }
        }
    }

    fn tile(&self, first: usize) -> Vec<Row> {
        let word = |row: usize, column: usize| {
            self.hart.f((first + 2 * row + column / 8) % 32)[column % 8]
        };
        (0..16).map(|row| std::array::from_fn(|column| word(row, column))).collect()
    }
}

/// Elements that need care, and harmless ones, of which most tiles consist.
fn single() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => (0x70_u32..0x90, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
        1 => Just(0_u32),
    ]
}

fn wild() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        single(),
        prop::sample::select(vec![0, 1 << 31, 0x7F80_0000, 0x7FC0_0000, 0x7FA0_0000, 1, 0x80_0000]),
    ]
}

/// Pairs of finite halves.
fn halves() -> impl Strategy<Value = u32> {
    let signed = |bits: u32, sign: bool| bits | u32::from(sign) << 15;
    let half = move || {
        prop_oneof![
            (0_u32..0x7C00, any::<bool>()).prop_map(move |(bits, sign)| signed(bits, sign)),
            Just(0),
            0x3800_u32..0x4400,
        ]
    };
    (half(), half()).prop_map(|(low, high)| low | high << 16)
}

/// Floats so large that small products are less than half a unit of a double near them.
fn large() -> impl Strategy<Value = u32> {
    (153_u32..172, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF)
}

fn tiny_halves() -> impl Strategy<Value = u32> {
    (0x0400_u32..0x0C00, 0x0400_u32..0x0C00, any::<bool>())
        .prop_map(|(low, high, sign)| low | high << 16 | if sign { 0x8000_8000 } else { 0 })
}

fn rows(element: impl Strategy<Value = u32>, count: usize) -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec(prop::collection::vec(element, 16), count)
        .prop_map(|rows| rows.into_iter().map(|row| row.try_into().unwrap()).collect())
}

/// The fields of a multiplication.
#[derive(Clone, Debug)]
struct Fields {
    rows: usize,
    depth: usize,
    columns: usize,
    offset: usize,
    line_a: usize,
    line_b: usize,
    first: bool,
    mask: Option<u16>,
    /// For int8: to the registers, A unsigned, B unsigned.
    bytes: [bool; 3],
}

fn fields() -> impl Strategy<Value = Fields> {
    let shape = (1_usize..17, 1_usize..17, 1_usize..5, 0_usize..16, 0_usize..48, 0_usize..48);
    (shape, any::<bool>(), any::<Option<u16>>(), any::<[bool; 3]>()).prop_map(
        |((rows, depth, columns, offset, line_a, line_b), first, mask, bytes)| Fields {
            rows,
            depth,
            columns: 4 * columns,
            offset,
            line_a,
            line_b,
            first,
            mask,
            bytes,
        },
    )
}

impl Fields {
    fn value(&self, kind: u64) -> u64 {
        let [to_registers, a_unsigned, b_unsigned] = self.bytes.map(u64::from);
        u64::from(self.mask.is_some()) << 63
            | (self.columns as u64 / 4 - 1) << 55
            | (self.rows as u64 - 1) << 51
            | (self.depth as u64 - 1) << 47
            | (self.offset as u64) << 43
            | to_registers << 23
            | b_unsigned << 22
            | a_unsigned << 21
            | (self.line_b as u64) << 12
            | (self.line_a as u64) << 4
            | kind << 1
            | u64::from(self.first)
    }

    /// Calls `step` for every element and step, as `step(row, column, first, last, a, b)`, and
    /// `clear` for the elements that masked-off rows lose.
    fn each(
        &self,
        lines: &[Row],
        mut step: impl FnMut(usize, usize, bool, bool, u32, u32),
        mut clear: impl FnMut(usize, usize),
    ) {
        for row in 0..self.rows {
            for column in 0..self.columns {
                if self.mask.is_some_and(|mask| mask >> row & 1 == 0) {
                    if self.first {
                        clear(row, column);
                    }
                    continue;
                }
                for k in 0..self.depth {
                    let a = lines[(self.line_a + row) % 48][(self.offset + k) % 16];
                    let b = lines[(self.line_b + k) % 48][column];
                    step(row, column, self.first && k == 0, k + 1 == self.depth, a, b);
                }
            }
        }
    }
}

/// Runs a multiplication on the unit; returns the registers and the flags.
fn multiply(
    bench: &mut Bench,
    fields: &Fields,
    kind: u64,
    lines: &[Row],
    c: &[Row],
    fcsr: u32,
) -> (Vec<Row>, u32) {
    bench.hart.restart();
    bench.fill(lines);
    bench.set_tile(0, c);
    bench.hart.set_fcsr(fcsr);
    bench.csr(TENSOR_MASK, fields.mask.unwrap_or(0).into(), 0);
    bench.csr(TENSOR_FMA, fields.value(kind), 0);
    assert_eq!(bench.hart.tensor_error(), 0);
    (bench.tile(0), bench.hart.fcsr())
}

fn check_fp32(fields: &Fields, lines: &[Row], c: &[Row], fcsr: u32) {
    let mut bench = Bench::new();
    let actual = multiply(&mut bench, fields, 0, lines, c, fcsr);
    let mut expected = c.to_vec();
    let mut cleared = Vec::new();
    bench.hart.set_fcsr(fcsr);
    fields.each(
        lines,
        |row, column, first, _, a, b| {
            let c = &mut expected[row][column];
            if first {
                *c = bench.scalar(FMUL, [a, b, 0]).0;
            } else if a != 0 && b != 0 {
                *c = bench.scalar(FMADD, [a, b, *c]).0;
            }
        },
        |row, column| cleared.push((row, column)),
    );
    for (row, column) in cleared {
        expected[row][column] = 0;
    }
    assert_eq!(actual, (expected, bench.hart.fcsr()));
}

/// A finite float, or a half in its low bits, as a multiple of 2^-73.
fn on_grid(bits: u32, half: bool) -> i128 {
    let (exponent, fraction, negative) = if half {
        ((bits >> 10 & 31) as i32 - 15 - 10, bits & 0x3FF | 0x400, bits >> 15 & 1 != 0)
    } else {
        ((bits >> 23 & 0xFF) as i32 - 127 - 23, bits & 0x7F_FFFF | 0x80_0000, bits >> 31 != 0)
    };
    let magnitude = if half && bits & 0x7C00 == 0 || !half && bits << 1 == 0 {
        0
    } else if half {
        // Halves are factors: their products have the grid.
        i128::from(fraction) << (exponent + 24)
    } else {
        i128::from(fraction) << (exponent + 73)
    };
    if negative { -magnitude } else { magnitude }
}

/// One step of pairs: exact, then cut. Zeros have the sign of no cancellation.
fn dot(a: u32, b: u32, c: u32, flags: &mut u32) -> u32 {
    let product = |shift: u32| {
        for half in [a >> shift, b >> shift] {
            if half & 0x7C00 == 0 && half & 0x3FF != 0 {
                *flags |= 1 << 31;
            }
        }
        // Both factors are multiples of 2^-24.
        (on_grid(a >> shift, true) * on_grid(b >> shift, true)) << 25
    };
    let sum: i128 = [0, 16].map(product).iter().sum::<i128>() + on_grid(c, false);
    if sum == 0 {
        let sign = |bits: u32, shift: u32| bits >> (shift + 15) & 1;
        let products = [0, 16].map(|shift| sign(a, shift) ^ sign(b, shift));
        return if products == [1, 1] && c >> 31 == 1 { 1 << 31 } else { 0 };
    }
    let top = 127 - sum.unsigned_abs().leading_zeros() as i32;
    let shift = top - 23;
    let kept = if shift > 0 { sum.unsigned_abs() >> shift } else { sum.unsigned_abs() << -shift };
    if shift > 0 && kept << shift != sum.unsigned_abs() {
        *flags |= NX;
    }
    let exponent = (top - 73 + 127) as u32;
    u32::from(sum < 0) << 31 | exponent << 23 | kept as u32 & 0x7F_FFFF
}

fn check_fp16(fields: &Fields, lines: &[Row], c: &[Row], fcsr: u32) {
    let mut bench = Bench::new();
    let actual = multiply(&mut bench, fields, 1, lines, c, fcsr);
    let mut expected = c.to_vec();
    let mut cleared = Vec::new();
    let mut flags = fcsr;
    fields.each(
        lines,
        |row, column, first, _, a, b| {
            let c = &mut expected[row][column];
            if first {
                *c = dot(a, b, 1 << 31, &mut flags);
            } else if a != 0 && b != 0 {
                *c = dot(a, b, *c, &mut flags);
            }
        },
        |row, column| cleared.push((row, column)),
    );
    for (row, column) in cleared {
        expected[row][column] = 0;
    }
    assert_eq!(actual, (expected, flags));
}

fn check_int8(fields: &Fields, lines: &[Row], c: &[Row]) {
    let mut bench = Bench::new();
    // Two passes: what the first leaves in the unit shows in the second.
    let mut second = fields.clone();
    second.first = false;
    second.bytes[0] = true;
    let mut ten_c = vec![[0_u32; 16]; 16];
    let mut registers = c.to_vec();
    multiply(&mut bench, fields, 3, lines, c, 0);
    bench.csr(TENSOR_FMA, second.value(3), 0);
    for fields in [fields, &second] {
        let [to_registers, a_unsigned, b_unsigned] = fields.bytes;
        let byte = |word: u32, at: u32, unsigned: bool| {
            let byte = (word >> (8 * at)) as u8;
            if unsigned { i32::from(byte) } else { i32::from(byte.cast_signed()) }
        };
        let mut cleared = Vec::new();
        fields.each(
            lines,
            |row, column, first, last, a, b| {
                let old = if first { 0 } else { ten_c[row][column] };
                let sum = (0..4).map(|at| byte(a, at, a_unsigned) * byte(b, at, b_unsigned)).sum();
                let to = if last && to_registers { &mut registers } else { &mut ten_c };
                to[row][column] = old.wrapping_add_signed(sum);
            },
            |row, column| cleared.push((row, column)),
        );
        for (row, column) in cleared {
            ten_c[row][column] = 0;
            if to_registers {
                registers[row][column] = 0;
            }
        }
    }
    assert_eq!(bench.tile(0), registers);
}

/// One byte of a line that a load makes. Spec: ISA §3.8, table of commands
fn loaded(memory: &[u8], command: u64, offset: usize, stride: usize, i: usize, at: usize) -> u8 {
    match command {
        0 => memory[i * stride + at],
        1 => memory[16 * offset + (4 * i + at % 4) * stride + at / 4],
        2 => {
            let (halfword, byte) = (at / 2, at % 2);
            memory[32 * (offset / 2) + (2 * i + halfword % 2) * stride + 2 * (halfword / 2) + byte]
        }
        5 => memory[at * stride + i + 16 * offset],
        6 => memory[at / 2 * stride + 2 * (i + 16 * (offset / 2)) + at % 2],
        _ => memory[at / 4 * stride + 4 * i + at % 4],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn loads_lay_lines_out_as_the_table_says(
        memory in prop::collection::vec(any::<u8>(), MEM_BYTES),
        command in prop::sample::select(vec![0_u64, 1, 2, 5, 6, 7]),
        (offset, stride) in (0_usize..4, 1_usize..8),
        (first, rows) in (0_usize..48, 1_usize..17),
        mask: Option<u16>,
    ) {
        let mut bench = Bench::new();
        bench.dram.write(MEM, &memory).unwrap();
        let before: Vec<Row> = (0..48).map(|line| [0x1111_1111 * (line % 13); 16]).collect();
        bench.fill(&before);
        bench.csr(TENSOR_MASK, mask.unwrap_or(0).into(), 0);
        let value = u64::from(mask.is_some()) << 63 | command << 59 | (first as u64) << 53
            | MEM | (offset as u64) << 4 | (rows as u64 - 1);
        bench.csr(TENSOR_LOAD, value, 64 * stride as u64);
        let mut expected: Vec<u8> =
            before.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        for row in (0..rows).filter(|row| mask.is_none_or(|mask| mask >> row & 1 != 0)) {
            for at in 0..64 {
                expected[(first + row) % 48 * 64 + at] =
                    loaded(&memory, command, offset, 64 * stride, row, at);
            }
        }
        prop_assert_eq!(bench.lines(), expected);
    }

    #[test]
    fn products_of_floats_are_those_of_scalar_instructions(
        fields in fields(),
        lines in rows(single(), 48),
        c in rows(single(), 16),
        flags in prop::sample::select(vec![0, NX]),
    ) {
        check_fp32(&fields, &lines, &c, flags);
    }

    #[test]
    fn products_of_wild_floats_are_those_of_scalar_instructions(
        fields in fields(),
        lines in rows(wild(), 48),
        c in rows(wild(), 16),
        (flags, rounding) in (prop::sample::select(vec![0, NX]), 0_u32..5),
    ) {
        check_fp32(&fields, &lines, &c, flags | rounding << 5);
    }

    #[test]
    fn products_of_halves_are_exact_sums_that_are_cut(
        fields in fields(),
        (lines, c) in prop_oneof![
            (rows(halves(), 48), rows(single(), 16)),
            (rows(tiny_halves(), 48), rows(large(), 16)),
        ],
        flags in prop::sample::select(vec![0, NX, NX | 1 << 31]),
    ) {
        check_fp16(&fields, &lines, &c, flags);
    }

    #[test]
    fn products_of_bytes_are_sums_that_wrap(
        fields in fields(),
        lines in rows(any::<u32>(), 48),
        c in rows(any::<u32>(), 16),
    ) {
        check_int8(&fields, &lines, &c);
    }

    #[test]
    fn quantisation_takes_one_step_after_the_other(
        steps in prop::collection::vec(1_u64..11, 0..10),
        (line, count, columns, first) in (0_usize..48, 1_usize..17, 1_usize..5, 0_usize..32),
        lines in rows(wild(), 48),
        tile in rows(wild(), 16),
        rounding in 0_u32..5,
    ) {
        let mut bench = Bench::new();
        bench.fill(&lines);
        bench.set_tile(first, &tile);
        bench.hart.set_fcsr(rounding << 5);
        let chain = steps.iter().rev().fold(0, |chain, step| chain << 4 | step);
        let value = chain | (line as u64) << 45 | (count as u64 - 1) << 51
            | (columns as u64 - 1) << 55 | (first as u64) << 57;
        bench.csr(TENSOR_QUANT, value, 0);
        let actual = (bench.tile(first), bench.hart.fcsr());
        bench.hart.set_fcsr(rounding << 5);
        let mut expected = tile;
        let mut line = line;
        for step in steps {
            let vector = lines[line % 48];
            for (row, elements) in expected.iter_mut().enumerate().take(count) {
                let before = *elements;
                for (column, element) in elements.iter_mut().enumerate().take(4 * columns) {
                    let signed = element.cast_signed();
                    let other = vector[if step == 5 || step == 7 { row } else { column }];
                    *element = match step {
                        1 => bench.scalar(FCVT_S_W, [*element, 0, 0]).0,
                        2 => bench.scalar(FCVT_W_S, [*element, 0, 0]).1,
                        3 => signed.max(0) as u32,
                        4 | 5 => element.wrapping_add(other),
                        6 | 7 => bench.scalar(FMUL, [*element, other, 0]).0,
                        8 => signed.clamp(-128, 127) as u32 & 0xFF,
                        9 => signed.clamp(0, 255) as u32,
                        _ if column < columns => (0..4).fold(0, |packed, byte| {
                            packed | (before[4 * column + byte] & 0xFF) << (8 * byte)
                        }),
                        _ => *element,
                    };
                }
            }
            line += usize::from((4..=7).contains(&step));
        }
        prop_assert_eq!(actual, (expected, bench.hart.fcsr()));
    }

    #[test]
    fn stores_take_registers_by_halves(
        (step, first, rows) in (1_usize..5, 0_usize..32, 1_usize..17),
        chunks in prop::sample::select(vec![1_usize, 2, 4]),
        (start, stride) in (0_u64..8, 0_u64..16),
    ) {
        let mut bench = Bench::new();
        for register in 0..32_usize {
            let lane = |lane: usize| (register as u32) << 8 | lane as u32;
            bench.hart.set_f(register, std::array::from_fn(lane));
        }
        let value = (step as u64 - 1) << 62 | (first as u64) << 57 | (chunks as u64 - 1) << 55
            | (rows as u64 - 1) << 51 | (OUT + 16 * start);
        bench.csr(TENSOR_STORE, value, 16 * stride);
        let mut expected = vec![0; 8192];
        let mut register = first;
        for row in 0..rows as u64 {
            let to = (16 * (start + row * stride)) & !(16 * chunks as u64 - 1);
            for chunk in 0..chunks {
                for lane in 0..4 {
                    let word = ((register % 32) as u32) << 8 | (4 * (chunk % 2) + lane) as u32;
                    let at = to as usize + 16 * chunk + 4 * lane;
                    expected[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
                if chunks == 1 || chunk % 2 == 1 {
                    register += step;
                }
            }
        }
        prop_assert_eq!(bench.out(8192), expected);
    }
}

#[test]
fn errors_leave_everything_as_it_was() {
    let mut bench = Bench::new();
    let (off, on) = (0x201, 0x203);
    // A buffered operand that is not used, one that is missing, and a scratchpad that is off.
    for (loads, fma, control, error) in
        [(true, 0, on, 1 << 6), (false, 1 << 20, on, 1 << 6), (false, 0, off, 1 << 4)]
    {
        bench.hart.restart();
        bench.hart.set_f(0, [7; 8]);
        if loads {
            bench.csr(TENSOR_LOAD, 1 << 52 | MEM, 64);
        }
        bench.csr(0x810, control, 0);
        bench.csr(TENSOR_FMA, fma | 3 << 55 | 1, 0);
        assert_eq!((bench.hart.tensor_error(), bench.hart.f(0)), (error, [7; 8]));
        bench.csr(TENSOR_ERROR, 0, 0);
        assert_eq!(bench.hart.tensor_error(), 0);
    }
}
