//! Packed arithmetic against the scalar instructions, lane by lane, with the flag for inexact
//! results set and not set before: if it is, lanes may be computed all at once.
//! Spec: ISA §1.4, §3.5

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests: constants of their making, and a panic is a failure"
)]

use std::sync::Arc;

use et_sim_cores::{Dram, FloatProfile, MemoryModel, SingleHart, Step};
use proptest::prelude::*;

const CODE: u64 = 0x80_0600_0000;
const DATA: u64 = 0x80_0700_0000;
const NX: u32 = 1;

/// Packed instructions on f6, f1, f2, f3, with the scalar ones that do the same.
const PAIRS: [(&str, &str); 14] = [
    ("fmadd.ps f6, f1, f2, f3", "fmadd.s f6, f1, f2, f3"),
    ("fmsub.ps f6, f1, f2, f3", "fmsub.s f6, f1, f2, f3"),
    ("fnmsub.ps f6, f1, f2, f3", "fnmsub.s f6, f1, f2, f3"),
    ("fnmadd.ps f6, f1, f2, f3", "fnmadd.s f6, f1, f2, f3"),
    ("fmadd.ps f6, f1, f2, f3, rne", "fmadd.s f6, f1, f2, f3, rne"),
    ("fmadd.ps f6, f1, f2, f3, rup", "fmadd.s f6, f1, f2, f3, rup"),
    ("fadd.ps f6, f1, f2", "fadd.s f6, f1, f2"),
    ("fsub.ps f6, f1, f2", "fsub.s f6, f1, f2"),
    ("fsub.ps f6, f1, f2, rtz", "fsub.s f6, f1, f2, rtz"),
    ("fmul.ps f6, f1, f2", "fmul.s f6, f1, f2"),
    ("fmin.ps f6, f1, f2", "fmin.s f6, f1, f2"),
    ("fmax.ps f6, f1, f2", "fmax.s f6, f1, f2"),
    ("fsgnjx.ps f6, f1, f2", "fsgnjx.s f6, f1, f2"),
    ("fcvt.ps.pw f6, f4", "fcvt.s.w f6, x10"),
];

struct Bench {
    dram: Arc<Dram>,
    hart: SingleHart,
    next: u64,
}

impl Bench {
    fn new(memory: MemoryModel) -> Self {
        let dram = Arc::new(Dram::new(128 << 20).unwrap());
        let hart =
            SingleHart::with_memory(FloatProfile::Hardware, memory, Arc::clone(&dram)).unwrap();
        Self { dram, hart, next: CODE }
    }

    fn step(&mut self, text: &str) {
        assert_eq!(self.try_step(text), Step::Retired, "{text}");
    }

    fn try_step(&mut self, text: &str) -> Step {
        let word = et_isa::assemble(text).unwrap();
        self.dram.write(self.next, &word.to_le_bytes()).unwrap();
        self.hart.set_pc(self.next);
        self.next += 4;
        self.hart.step()
    }
}

/// Any value, more often one of a harmless size, zeros, and sums that cancel.
fn lane() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => any::<u32>(),
        8 => (0x70_u32..0x90, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
        1 => (1_u32..0x40, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
        2 => prop::sample::select(vec![
            0, 1 << 31, 0x3F80_0000, 0xBF80_0000, 0x0080_0000, 0x8080_0001, 0x7F7F_FFFF,
        ]),
    ]
}

/// Registers in which all lanes are harmless, or any.
fn register() -> impl Strategy<Value = [u32; 8]> {
    let harmless = || {
        prop_oneof![
            9 => (0x70_u32..0x90, any::<u32>()).prop_map(|(e, f)| e << 23 | f & 0x807F_FFFF),
            1 => prop::sample::select(vec![0, 1 << 31]),
        ]
    };
    prop_oneof![prop::array::uniform8(harmless()), prop::array::uniform8(lane())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn lanes_are_what_scalar_instructions_compute(
        [a, b, c] in [register(), register(), register()],
        mask in prop_oneof![Just(0xFF_u64), any::<u8>().prop_map(u64::from)],
        (flags, rounding) in (prop::sample::select(vec![0, NX]), prop::sample::select(vec![0_u32, 0, 1, 3])),
    ) {
        let mut bench = Bench::new(MemoryModel::Flat);
        let integers = a.map(|bits| if bits & 1 == 0 { bits } else { bits >> 8 });
        for (packed, scalar) in PAIRS {
            let fcsr = flags | rounding << 5;
            for (register, lanes) in [(1, a), (2, b), (3, c), (4, integers), (6, [7; 8])] {
                bench.hart.set_f(register, lanes);
            }
            bench.hart.set_masks(mask);
            bench.hart.set_fcsr(fcsr);
            bench.step(packed);
            let actual = (bench.hart.f(6), bench.hart.fcsr());
            bench.hart.set_fcsr(fcsr);
            let mut expected = [7; 8];
            for lane in (0..8).filter(|lane| mask >> lane & 1 != 0) {
                for (register, lanes) in [(1, a), (2, b), (3, c)] {
                    bench.hart.set_f(register, [lanes[lane]; 8]);
                }
                bench.hart.set_x(10, integers[lane].into());
                bench.step(scalar);
                expected[lane] = bench.hart.f(6)[0];
            }
            prop_assert_eq!(actual, (expected, bench.hart.fcsr()), "{}", packed);
        }
    }

    #[test]
    fn halves_are_converted_one_like_all(
        lanes in prop::array::uniform8(any::<u16>()),
        mask: u8,
    ) {
        let mut bench = Bench::new(MemoryModel::Flat);
        let lanes = lanes.map(u32::from);
        bench.hart.set_f(1, lanes);
        bench.hart.set_masks(mask.into());
        bench.step("fcvt.ps.f16 f6, f1");
        let (actual, flags) = (bench.hart.f(6), bench.hart.fcsr());
        // With one lane enabled at a time, and a special value in another.
        bench.hart.set_fcsr(0);
        let mut expected = [0; 8];
        for lane in (0..8).filter(|lane| mask >> lane & 1 != 0) {
            let mut one = [0x7C01; 8];
            one[lane] = lanes[lane];
            bench.hart.set_f(1, one);
            bench.hart.set_masks(1 << lane);
            bench.step("fcvt.ps.f16 f6, f1");
            expected[lane] = bench.hart.f(6)[lane];
        }
        prop_assert_eq!((actual, flags), (expected, bench.hart.fcsr()));
    }

    #[test]
    fn loads_and_stores_of_registers_are_those_of_words(
        values in register(),
        mask in prop_oneof![Just(0xFF_u64), any::<u8>().prop_map(u64::from)],
        at in 0_u64..80,
        memory in prop::sample::select(vec![MemoryModel::Flat, MemoryModel::Private]),
    ) {
        let mut bench = Bench::new(memory);
        for at in 0..32_u32 {
            let word = (0x1111 * at).to_le_bytes();
            bench.dram.write(DATA + 4 * u64::from(at), &word).unwrap();
        }
        let mut bytes = [0; 128];
        bench.dram.read(DATA, &mut bytes).unwrap();
        bench.hart.set_x(10, DATA + at);
        // The line gets into the cache, or only the first does.
        bench.step("lbu x11, 0(x10)");
        bench.hart.set_masks(mask);
        bench.hart.set_f(1, values);
        bench.hart.set_f(2, values);
        bench.hart.set_f(3, values);
        bench.step("flw.ps f2, 0(x10)");
        bench.step("fbc.ps f3, 0(x10)");
        let word = |lane: usize| {
            let from = at as usize + 4 * lane;
            u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap())
        };
        let is_on = |lane: usize| mask >> lane & 1 != 0;
        let pick = |lane: usize, new: u32| if is_on(lane) { new } else { values[lane] };
        prop_assert_eq!(bench.hart.f(2), std::array::from_fn(|lane| pick(lane, word(lane))));
        prop_assert_eq!(bench.hart.f(3), std::array::from_fn(|lane| pick(lane, word(0))));
        bench.step("fsw.ps f1, 0(x10)");
        bench.hart.write_back();
        for lane in (0..8).filter(|&lane| is_on(lane)) {
            let to = at as usize + 4 * lane;
            bytes[to..to + 4].copy_from_slice(&values[lane].to_le_bytes());
        }
        let mut actual = [0; 128];
        bench.dram.read(DATA, &mut actual).unwrap();
        prop_assert_eq!(actual, bytes);
    }

    #[test]
    fn gathers_of_bytes_are_those_of_loads(
        indices in prop_oneof![
            prop::array::uniform8(0_i32..16),
            prop::array::uniform8(-70_i32..70),
            prop::array::uniform8(-5000_i32..5000),
        ],
        mask in prop_oneof![Just(0xFF_u64), any::<u8>().prop_map(u64::from)],
        at in 0_u64..4200,
        block in any::<u64>(),
        memory in prop::sample::select(vec![MemoryModel::Flat, MemoryModel::Private]),
    ) {
        const START: u64 = DATA + 8192;
        let mut bench = Bench::new(memory);
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| ((n * 77) >> 3) as u8).collect();
        bench.dram.write(DATA, &bytes).unwrap();
        let base = START + at;
        bench.hart.set_x(10, base);
        bench.hart.set_x(11, block);
        bench.hart.set_f(1, [7; 8]);
        bench.hart.set_f(2, [7; 8]);
        bench.hart.set_f(4, indices.map(i32::cast_unsigned));
        // Some lines are in the cache before.
        bench.step("lbu x12, 0(x10)");
        bench.hart.set_masks(mask);
        bench.step("fgb.ps f1, f4(x10)");
        bench.step("fg32b.ps f2, x11(x10)");
        let byte = |address: u64| {
            i32::from(bytes[(address - DATA) as usize].cast_signed()).cast_unsigned()
        };
        let pick = |lane: usize, address| if mask >> lane & 1 != 0 { byte(address) } else { 7 };
        let gathered = |lane: usize| pick(lane, base.wrapping_add_signed(indices[lane].into()));
        prop_assert_eq!(bench.hart.f(1), std::array::from_fn(gathered));
        let in_block = |lane: usize| {
            pick(lane, base & !31 | base.wrapping_add(block >> (5 * lane)) & 31)
        };
        prop_assert_eq!(bench.hart.f(2), std::array::from_fn(in_block));
    }

    #[test]
    fn gathers_of_halves_are_those_of_loads(
        indices in prop_oneof![
            (-40_i32..40).prop_map(|first| std::array::from_fn(|lane| first + 2 * lane as i32)),
            prop::array::uniform8(-35_i32..35),
            prop::array::uniform8(-2500_i32..2500),
        ],
        is_even in prop_oneof![4 => Just(true), 1 => Just(false)],
        mask in prop_oneof![2 => Just(0xFF_u64), 1 => any::<u8>().prop_map(u64::from)],
        at in 0_u64..4200,
        memory in prop::sample::select(vec![MemoryModel::Flat, MemoryModel::Private]),
    ) {
        const START: u64 = DATA + 8192;
        let mut bench = Bench::new(memory);
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| ((n * 77) >> 3) as u8).collect();
        bench.dram.write(DATA, &bytes).unwrap();
        let base = START + if is_even { at & !1 } else { at };
        let indices = if is_even { indices.map(|index| index & !1) } else { indices };
        bench.hart.set_x(10, base);
        bench.hart.set_f(1, [7; 8]);
        bench.hart.set_f(4, indices.map(i32::cast_unsigned));
        bench.step("lbu x12, 0(x10)");
        bench.hart.set_masks(mask);
        let from = |lane: usize| base.wrapping_add_signed(indices[lane].into());
        bench.step("fgh.ps f1, f4(x10)");
        let half = |lane: usize| {
            let at = (from(lane) - DATA) as usize;
            let half = i16::from_le_bytes([bytes[at], bytes[at + 1]]);
            i32::from(half).cast_unsigned()
        };
        let gathered = |lane: usize| if mask >> lane & 1 != 0 { half(lane) } else { 7 };
        prop_assert_eq!(bench.hart.f(1), std::array::from_fn(gathered));
    }
}

/// The last lanes are four GiB before the others, where there is nothing.
#[test]
fn each_lane_of_a_gather_has_an_address_of_its_own() {
    for memory in [MemoryModel::Flat, MemoryModel::Private] {
        for (text, size) in [("fgb.ps f1, f4(x10)", 1), ("fgh.ps f1, f4(x10)", 2)] {
            for wraps in [false, true] {
                let first = i32::MAX as u32 + 1 - if wraps { 7 } else { 8 } * size;
                let mut bench = Bench::new(memory);
                bench.hart.set_x(10, DATA - u64::from(first));
                bench.hart.set_f(4, std::array::from_fn(|lane| first + size * lane as u32));
                bench.hart.set_masks(0xFF);
                let is_done = bench.try_step(text) == Step::Retired;
                assert_eq!(is_done, !wraps, "{text}, {memory:?}");
            }
        }
    }
}
