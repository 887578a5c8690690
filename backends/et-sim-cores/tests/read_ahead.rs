//! Harts with private caches read ahead of their turns: random kernels, in which the harts of a
//! shire race for shared memory, do the same as when every turn is executed by itself.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests: constants of their making, and a panic is a failure"
)]

mod common;

use std::num::NonZeroUsize;

use common::{A0, A1, Asm, Board, DATA, HARTID, STACKS_TOP, T0, ZERO};
use et_sim_cores::{Execution, MachineConfig, MemoryModel, Timing};
use proptest::prelude::*;

/// Bytes that all harts share.
const SHARED: u64 = 1 << 14;
/// Where harts leave what they have computed, behind pages that fill the cache.
const RESULTS: u64 = 16 << 20;
const RESULT_BYTES: u64 = 64;
/// Where there are stacks, which are not cached, from the shared memory on.
const STACKS: u64 = STACKS_TOP.wrapping_sub(0x8000).wrapping_sub(DATA);
/// The harts of two shires.
const HARTS: u64 = 128;

/// The iteration, and what harts compute.
const TURN: u32 = 25;
const SUMS: [u32; 3] = [22, 23, 24];
/// The address of an access.
const AT: u32 = 28;

/// Which word an access is to: it depends on the iteration and the hart.
#[derive(Clone, Copy, Debug)]
struct Place {
    by_turn: u64,
    by_hart: u64,
    /// Places that there are, a power of two.
    bits: u32,
    /// Distance of places, a power of two.
    shift: i32,
    from: u64,
}

/// What an iteration does.
#[derive(Clone, Debug)]
enum Step {
    /// Loads, stores and so on, as their text says, at [`AT`].
    Access(&'static str, Place),
    /// The same in one of so many iterations.
    Rarely(&'static str, Place, u32),
    Compute(&'static str),
}

/// Labels behind steps.
const SKIPS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];

const LOADS: [&str; 12] = [
    "ld x6, 0(x28)",
    "lw x6, 4(x28)",
    "lbu x6, 3(x28)",
    "lh x6, 2(x28)",
    "ld x6, 60(x28)",
    "flw f6, 0(x28)",
    "flw.ps f7, 0(x28)",
    "fbc.ps f7, 4(x28)",
    "fgb.ps f7, f8(x28)",
    "fgw.ps f7, f8(x28)",
    "fg32b.ps f7, x5(x28)",
    "flq2 f7, 0(x28)",
];

const STORES: [&str; 6] = [
    "sd x22, 0(x28)",
    "sw x23, 4(x28)",
    "sb x24, 1(x28)",
    "sh x22, 62(x28)",
    "fsw.ps f7, 0(x28)",
    "fscb.ps f7, f8(x28)",
];

const OTHERS: [&str; 7] = [
    "amoaddl.d x6, x22, (x28)",
    "amoorg.d x6, x23, (x28)",
    // Evictions and flushes of a line, to the second level and to memory.
    "csrrw x0, 0x89F, x9",
    "csrrw x0, 0x8BF, x9",
    "csrrw x0, 0x81F, x9",
    "fence rw, rw",
    "csrrs x6, 0xC03, x0",
];

const COMPUTATIONS: [&str; 7] = [
    "add x22, x22, x6",
    "xor x23, x23, x6",
    "mul x24, x22, x23",
    "fadd.s f9, f9, f6",
    "fadd.ps f10, f10, f7",
    "frcp.ps f11, f9",
    "sub x22, x22, x24",
];

fn place() -> impl Strategy<Value = Place> {
    let near = (0..9_u64, 0..9_u64, 0..6_u32, 3..5_i32, 0..4_u64);
    let near = near.prop_map(|(by_turn, by_hart, bits, shift, page)| Place {
        by_turn,
        by_hart,
        bits,
        shift,
        from: page << 12,
    });
    // More pages than the cache has room for.
    let far = (1..30_u64, 0..30_u64).prop_map(|(by_turn, by_hart)| Place {
        by_turn,
        by_hart,
        bits: 11,
        shift: 12,
        from: SHARED,
    });
    let on_stacks = (0..9_u64, 0..9_u64, 0..6_u32, 3..5_i32);
    let on_stacks = on_stacks.prop_map(|(by_turn, by_hart, bits, shift)| Place {
        by_turn,
        by_hart,
        bits,
        shift,
        from: STACKS,
    });
    prop_oneof![6 => near, 1 => far, 1 => on_stacks]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (prop::sample::select(&LOADS[..]), place())
            .prop_map(|(text, place)| Step::Access(text, place)),
        3 => (prop::sample::select(&STORES[..]), place(), 3..9_u32)
            .prop_map(|(text, place, bits)| Step::Rarely(text, place, bits)),
        1 => (prop::sample::select(&OTHERS[..]), place(), 3..9_u32)
            .prop_map(|(text, place, bits)| Step::Rarely(text, place, bits)),
        4 => prop::sample::select(&COMPUTATIONS[..]).prop_map(Step::Compute),
    ]
}

fn word(code: &mut Asm, text: &str) {
    code.raw(et_isa::assemble(text).unwrap_or_else(|error| panic!("{text}: {error:?}")));
}

/// Puts the address of a place into [`AT`], and the operand that evicts its line into x9.
fn address(code: &mut Asm, place: Place) {
    code.li(T0, place.by_turn);
    word(code, "mul x28, x25, x5");
    code.li(T0, place.by_hart);
    word(code, "mul x29, x11, x5");
    code.add(AT, AT, 29).li(T0, (1 << place.bits) - 1);
    word(code, "and x28, x28, x5");
    code.slli(AT, AT, place.shift).li(T0, place.from).add(AT, AT, T0).add(AT, AT, A0);
    code.li(T0, 3 << 58).add(9, AT, T0).li(T0, 0x39_8A41_8820);
}

fn kernel(steps: &[Step], turns: u64) -> Asm {
    let mut code = Asm::new();
    code.csrr(A1, HARTID).li(TURN, turns).li(31, 0);
    for (sum, number) in SUMS.into_iter().zip([3, 5, 7]) {
        code.add(sum, A1, ZERO).addi(sum, sum, number);
    }
    // Indices of gathers: some are behind each other, some are not.
    for text in ["fbcx.ps f8, x11", "fandi.pi f8, f8, 7", "fbcx.ps f6, x11", "fbcx.ps f9, x11"] {
        word(&mut code, text);
    }
    code.label("again");
    for (step, skip) in steps.iter().zip(SKIPS) {
        match step {
            Step::Access(text, place) => {
                address(&mut code, *place);
                word(&mut code, text);
            }
            Step::Rarely(text, place, bits) => {
                code.li(T0, (1 << bits) - 1).add(29, TURN, A1);
                word(&mut code, "and x29, x29, x5");
                code.bne(29, ZERO, skip);
                address(&mut code, *place);
                word(&mut code, text);
                code.label(skip);
            }
            Step::Compute(text) => word(&mut code, text),
        }
    }
    code.addi(TURN, TURN, -1);
    code.beq(TURN, ZERO, "end").j("again").label("end");
    code.slli(AT, A1, 6).li(T0, RESULTS).add(AT, AT, T0).add(AT, AT, A0);
    for text in ["sd x22, 0(x28)", "sd x23, 8(x28)", "sd x24, 16(x28)", "fsw f9, 24(x28)"] {
        word(&mut code, text);
    }
    for text in ["fsw.ps f10, 32(x28)", "csrrs x6, 0x1, x0", "sw x6, 28(x28)"] {
        word(&mut code, text);
    }
    code.exit(0, 0);
    code
}

/// What a kernel leaves: memory, instructions and cycles.
fn run(code: &Asm, execution: Execution, shires: u64) -> (Vec<u8>, u64, u64) {
    let config = MachineConfig {
        timing: Timing::Deterministic,
        memory: MemoryModel::Private,
        execution,
        host_threads: NonZeroUsize::MIN,
        ..MachineConfig::default()
    };
    let board = Board::with(config);
    for at in (0..SHARED).step_by(8) {
        let value = at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        board.dram.write(DATA + at, &value.to_le_bytes()).unwrap();
    }
    let report = board.run(code, shires);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    let mut memory = vec![0; (SHARED + HARTS * RESULT_BYTES) as usize];
    let (shared, results) = memory.split_at_mut(SHARED as usize);
    board.dram.read(DATA, shared).unwrap();
    board.dram.read(DATA + RESULTS, results).unwrap();
    (memory, report.instructions, report.cycles)
}

/// How many kernels are tried.
fn cases() -> u32 {
    std::env::var("ET_KERNELS").ok().and_then(|text| text.parse().ok()).unwrap_or(120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn what_harts_read_ahead_is_what_they_would_read_in_their_turns(
        steps in prop::collection::vec(step(), 1..8),
        turns in 50..400_u64,
        shires in prop::sample::select(&[1_u64, 0b11][..]),
    ) {
        let code = kernel(&steps, turns);
        let (expected, instructions, cycles) = run(&code, Execution::Interpreted, shires);
        let (found, same_instructions, same_cycles) = run(&code, Execution::Translated, shires);
        let difference = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        prop_assert_eq!(difference, None);
        prop_assert_eq!((same_instructions, same_cycles), (instructions, cycles));
    }
}

/// What harts load on and on, and rarely change: in the cache, whose pages are watched, and on
/// stacks, which are not cached.
#[test]
fn what_others_change_is_read_when_its_turn_comes() {
    // The words of one page, 64 pages, and words of stacks.
    for (bits, shift, from) in [(3, 3, 0), (6, 12, SHARED), (3, 3, STACKS)] {
        let place = |by_turn| Place { by_turn, by_hart: 1, bits, shift, from };
        let steps = [
            Step::Access("ld x6, 0(x28)", place(u64::from(shift == 3))),
            Step::Compute("add x22, x22, x6"),
            Step::Rarely("sd x22, 0(x28)", place(3), 5),
        ];
        let code = kernel(&steps, 2000);
        for shires in [1, 0b11] {
            let expected = run(&code, Execution::Interpreted, shires);
            assert_eq!(run(&code, Execution::Translated, shires), expected, "from {from:#x}");
        }
    }
}
