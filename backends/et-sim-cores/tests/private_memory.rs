//! Private caches: what a shire sees of others, and when others see what it wrote.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "tests: constants of their making, and a panic is a failure"
)]

mod common;

use std::num::NonZeroUsize;

use common::{
    A0, A1, A2, A3, A4, A5, Asm, Board, CREDITS, DATA, FCC, FLB, HARTID, SP, T0, T1, T2, ZERO,
};
use et_sim_cores::{ALL_SHIRES, Execution, HartExit, MachineConfig, MemoryModel, Stack, Timing};

const TENSOR_STORE: u32 = 0x87F;
const TENSOR_WAIT: u32 = 0x830;
const EVICT_VA: u32 = 0x89F;
const FLUSH_VA: u32 = 0x8BF;
const L2: u64 = 1;
const MEMORY: u64 = 3;
const X31: u32 = 31;
const HPMCOUNTER3: u32 = 0xC03;

/// The flag of a message is this far behind its data.
const FLAG: i32 = 64;
/// Where the consumer leaves what it found.
const FOUND: u64 = DATA + 1024;

fn board(memory: MemoryModel, threads: usize) -> Board {
    let host_threads = NonZeroUsize::new(threads).unwrap();
    Board::with(MachineConfig { memory, host_threads, ..MachineConfig::default() })
}

/// Joins all 64 harts of a shire; each use needs a label of its own.
fn barrier(code: &mut Asm, skip: &'static str) {
    code.li(T0, 63 << 5).csrrw(T1, FLB, T0).beq(T1, ZERO, skip);
    code.li(T0, CREDITS).li(T1, 0xFFFF_FFFF).sd(T1, T0, 0).sd(T1, T0, 16);
    code.label(skip).csrwi(FCC, 0);
}

/// Every hart adds to its word, in place, the sum of what all 64 words were: each shire does so.
fn sums_in_place() -> Asm {
    let mut code = Asm::new();
    code.csrr(A1, HARTID).andi(A1, A1, 63).slli(A1, A1, 3).add(A1, A1, A0);
    // A3: the sum; A4: where; A5: how many are left.
    code.li(A3, 0).addi(A4, A0, 0).li(A5, 64);
    code.label("sum").ld(T0, A4, 0).add(A3, A3, T0).addi(A4, A4, 8).addi(A5, A5, -1);
    code.bne(A5, ZERO, "sum");
    barrier(&mut code, "joined");
    code.ld(T0, A1, 0).add(T0, T0, A3).sd(T0, A1, 0).exit(0, 0);
    code
}

fn words_after(memory: MemoryModel, threads: usize) -> Vec<u64> {
    let board = board(memory, threads);
    for word in 0..64 {
        board.dram.write(DATA + 8 * word, &word.to_le_bytes()).unwrap();
    }
    let report = board.run(&sums_in_place(), u64::MAX >> 32);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    (0..64).map(|word| board.u64(DATA + 8 * word)).collect()
}

/// Spec: ISA §7, known difference 1
#[test]
fn shires_that_compute_the_same_rows_in_place_agree() {
    let sum: u64 = (0..64).sum();
    let right: Vec<u64> = (0..64).map(|word| word + sum).collect();
    for threads in [1, 2, 4] {
        assert_eq!(words_after(MemoryModel::Private, threads), right, "{threads} threads");
    }
    assert_ne!(words_after(MemoryModel::Flat, 1), right, "flat memory has no place for this");
}

/// Hart 0 makes a message by `produce` (data in A3, the data's address in A0 and A4), sets a flag
/// by a global atomic, and ends; the first hart of shire 1 has looked at the data before, waits for
/// the flag, and looks again after `before`. Returns what it found first and then.
fn message(produce: impl Fn(&mut Asm), before: impl Fn(&mut Asm)) -> (u64, u64) {
    let mut code = Asm::new();
    code.addi(A1, A0, FLAG).li(A3, 77).addi(A4, A0, 0).csrr(A2, HARTID);
    code.li(T0, 64).beq(A2, T0, "consume").beq(A2, ZERO, "produce").exit(0, 0);
    // The consumer says with a second flag that it has looked.
    code.label("produce").addi(A5, A0, 2 * FLAG);
    code.label("looked").r(0x3B, 0x21, 3, T1, A5, ZERO).beq(T1, ZERO, "looked");
    produce(&mut code);
    code.li(T0, 1).r(0x3B, 0x05, 3, ZERO, A1, T0).exit(0, 0);
    code.label("consume").ld(A5, A0, 0).li(T0, 1).addi(T2, A0, 2 * FLAG);
    code.r(0x3B, 0x05, 3, ZERO, T2, T0);
    code.label("poll").r(0x3B, 0x21, 3, T1, A1, ZERO).beq(T1, ZERO, "poll");
    before(&mut code);
    code.ld(A4, A0, 0).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A5, T0, 0).sd(A4, T0, 8);
    code.exit(0, 0);
    let board = board(MemoryModel::Private, 2);
    board.dram.write(DATA, &5_u64.to_le_bytes()).unwrap();
    let report = board.run(&code, 0b11);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    (board.u64(FOUND), board.u64(FOUND + 8))
}

/// Writes the line that A0 points to back.
fn write_back(code: &mut Asm, register: u32, level: u64) {
    code.li(T0, level << 58).add(T0, T0, A0).csrrw(ZERO, register, T0).csrwi(TENSOR_WAIT, 6);
}

/// What a shire keeps on its stacks is in memory at once: nothing is copied there and back.
#[test]
fn stacks_are_not_cached() {
    let mut code = Asm::new();
    code.csrr(A2, HARTID).li(T0, 64).addi(A1, A0, FLAG);
    code.beq(A2, T0, "look").beq(A2, ZERO, "write").exit(0, 0);
    // Hart 0 tells where its stack is by the flag, and stays until it was looked at.
    code.label("write").li(A3, 77).sd(A3, SP, -64).r(0x3B, 0x05, 3, ZERO, A1, SP);
    code.addi(A5, A0, 2 * FLAG);
    code.label("looked").r(0x3B, 0x21, 3, T1, A5, ZERO).beq(T1, ZERO, "looked").exit(0, 0);
    code.label("look").r(0x3B, 0x21, 3, T1, A1, ZERO).beq(T1, ZERO, "look");
    code.ld(A4, T1, -64).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0);
    code.li(T0, 1).addi(A5, A0, 2 * FLAG).r(0x3B, 0x05, 3, ZERO, A5, T0).exit(0, 0);
    let board = board(MemoryModel::Private, 2);
    let report = board.run(&code, 0b11);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    assert_eq!(board.u64(FOUND), 77);
}

/// A line may have the end of a stack, which is not cached, and other words, which are.
#[test]
fn stacks_may_end_within_a_line() {
    const ROUNDS: u64 = 8000;
    let mut code = Asm::new();
    code.csrr(T0, HARTID).beq(T0, ZERO, "first").exit(0, 0).label("first");
    code.li(A2, ROUNDS).li(A4, 0).ld(T0, A0, 40).addi(A1, A0, 0);
    code.label("round").sd(A2, SP, 0).ld(T0, A1, 0).add(A4, A4, T0).ld(T0, A1, 40);
    code.add(A4, A4, T0).addi(A2, A2, -1).bne(A2, ZERO, "round").sd(A4, A0, 48).exit(0, 0);
    let board = board(MemoryModel::Private, 1);
    board.dram.write(DATA + 40, &1_u64.to_le_bytes()).unwrap();
    let stack = Stack { top: DATA + 32, bytes_per_hart: 4160, guard_bytes: 64 };
    let report = board.load(&code).launch_with(1, stack).wait();
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    assert_eq!(board.u64(DATA + 48), ROUNDS * (ROUNDS + 1) / 2 + ROUNDS);
}

/// A word that is written whole is not fetched; its neighbours are when they are looked at, and
/// none of them is written back.
#[test]
fn words_written_whole_leave_the_rest_of_their_line_alone() {
    let mut code = Asm::new();
    code.csrr(A2, HARTID).beq(A2, ZERO, "write").exit(0, 0);
    code.label("write").li(A3, 77).sd(A3, A0, 8).ld(A4, A0, 16).ld(A5, A0, 8).add(A4, A4, A5);
    code.li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0).exit(0, 0);
    let board = board(MemoryModel::Private, 1);
    for word in 0..8 {
        board.dram.write(DATA + 8 * word, &(5 + word).to_le_bytes()).unwrap();
    }
    let report = board.run(&code, 1);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    assert_eq!(board.u64(FOUND), 7 + 77);
    let words: Vec<u64> = (0..8).map(|word| board.u64(DATA + 8 * word)).collect();
    assert_eq!(words, [5, 77, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn what_is_written_back_is_seen_by_who_looks_afresh() {
    let evict = |code: &mut Asm| write_back(code, EVICT_VA, MEMORY);
    for register in [EVICT_VA, FLUSH_VA] {
        let produce = |code: &mut Asm| {
            code.sd(A3, A0, 0);
            write_back(code, register, MEMORY);
        };
        assert_eq!(message(produce, evict), (5, 77), "{register:#x}");
        assert_eq!(message(produce, |_| ()), (5, 5), "{register:#x}, without a fresh look");
    }
}

#[test]
fn what_stays_in_the_cache_is_not_seen() {
    let evict = |code: &mut Asm| write_back(code, EVICT_VA, MEMORY);
    let plain = |code: &mut Asm| {
        code.sd(A3, A0, 0);
    };
    assert_eq!(message(plain, evict), (5, 5));
    let to_l2 = |code: &mut Asm| {
        code.sd(A3, A0, 0);
        write_back(code, EVICT_VA, L2);
    };
    assert_eq!(message(to_l2, evict), (5, 5));
    // A local atomic acts in the shire's cache.
    let local = |code: &mut Asm| {
        code.r(0x3B, 0x04, 3, ZERO, A0, A3);
    };
    assert_eq!(message(local, evict), (5, 5));
}

#[test]
fn global_stores_and_those_of_the_tensor_unit_are_public_at_once() {
    let evict = |code: &mut Asm| write_back(code, EVICT_VA, MEMORY);
    let global = |code: &mut Asm| {
        // Looks first: what the shire has of the line must not be written back later.
        code.ld(T0, A0, 0).r(0x3B, 0x05, 3, ZERO, A0, A3);
    };
    assert_eq!(message(global, evict), (5, 77));
    // fmv.w.x f0, A3: one chunk of 16 bytes from f0.
    let tensor = |code: &mut Asm| {
        code.ld(T0, A0, 0).raw(0xF006_8053).li(X31, 64).csrrw(ZERO, TENSOR_STORE, A0);
        code.csrwi(TENSOR_WAIT, 8);
    };
    assert_eq!(message(tensor, evict), (5, 77));
}

/// What became public is written back no more: others may have changed it since.
#[test]
fn what_is_public_is_not_written_back() {
    for width in [8, 32, 64] {
        let mut code = Asm::new();
        code.csrr(A2, HARTID).addi(A1, A0, FLAG).addi(A5, A0, 2 * FLAG).li(T0, 64).li(A3, 77);
        code.beq(A2, T0, "change").beq(A2, ZERO, "publish").exit(0, 0);
        // Hart 0 writes all words of the line, and then one or some of them publicly.
        code.label("publish");
        for at in (0..64).step_by(8) {
            code.sd(A2, A0, at);
        }
        match width {
            8 => code.r(0x3B, 0x05, 3, ZERO, A0, A3),
            32 => code.raw(et_isa::assemble("fswg.ps f0, (x10)").unwrap()),
            _ => {
                code.li(T0, 3 << 55).add(T0, T0, A0).li(X31, 64).csrrw(ZERO, TENSOR_STORE, T0);
                code.csrwi(TENSOR_WAIT, 8)
            }
        };
        code.li(T0, 1).r(0x3B, 0x05, 3, ZERO, A1, T0);
        code.label("stay").r(0x3B, 0x21, 3, T1, A5, ZERO).beq(T1, ZERO, "stay").exit(0, 0);
        // The other shire changes the last of them.
        code.label("change").r(0x3B, 0x21, 3, T1, A1, ZERO).beq(T1, ZERO, "change");
        code.li(T0, 99).addi(A4, A0, width - 8).r(0x3B, 0x05, 3, ZERO, A4, T0);
        code.li(T0, 1).r(0x3B, 0x05, 3, ZERO, A5, T0).exit(0, 0);
        let board = board(MemoryModel::Private, 2);
        let report = board.run(&code, 0b11);
        assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
        assert_eq!(board.u64(DATA + u64::try_from(width).unwrap() - 8), 99, "{width} bytes");
    }
}

#[test]
fn a_shire_sees_its_own_writes_whatever_their_way() {
    let mut code = Asm::new();
    code.csrr(T0, HARTID).beq(T0, ZERO, "first").exit(0, 0).label("first");
    // Plain, then a global addition, then a local one; and past the end of a line.
    code.li(T0, 5).sd(T0, A0, 0);
    write_back(&mut code, FLUSH_VA, MEMORY);
    code.li(T0, 10).r(0x3B, 0x01, 3, T1, A0, T0).ld(T2, A0, 0).sd(T2, A0, 8);
    code.li(T0, 100).r(0x3B, 0x00, 3, T1, A0, T0).ld(T2, A0, 0).sd(T2, A0, 16);
    code.li(T0, 0x1122_3344_5566_7788).sd(T0, A0, 60).ld(T1, A0, 60).sd(T1, A0, 24).exit(0, 0);
    let board = board(MemoryModel::Private, 1);
    let report = board.run(&code, 1);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    let words = [0, 8, 16, 24].map(|at| board.u64(DATA + at));
    assert_eq!(words, [115, 15, 115, 0x1122_3344_5566_7788]);
    assert_eq!(board.u64(DATA + 60), 0x1122_3344_5566_7788);
}

/// One hart writes words whole, so that the rest of their lines is not there, and loads across
/// their ends, often enough for the code to be translated.
#[test]
fn what_is_not_there_of_a_load_comes_from_memory() {
    const ROUNDS: u64 = 6000;
    const LINES: u64 = 6;
    let isa = |text: &str| et_isa::assemble(text).unwrap();
    let mut code = Asm::new();
    code.csrr(T0, HARTID).beq(T0, ZERO, "first").exit(0, 0).label("first");
    code.raw(isa("mov.m.x m0, x0, 255")).addi(A1, A0, 0).li(A2, ROUNDS).li(A3, 77).li(A4, 0);
    code.li(A5, LINES * 64 * ROUNDS).add(A5, A5, A0);
    code.label("round").addi(A3, A3, 1);
    // The first word before a register, its first three, and its last three.
    for (line, written, load) in [(0, [0, 0, 0], 0), (1, [0, 8, 16], 0), (2, [16, 24, 32], 8)] {
        for at in written {
            code.sd(A3, A1, 64 * line + at);
        }
        code.raw(isa(&format!("flw.ps f1, {}(x11)", 64 * line + load)));
        code.raw(isa("fsw.ps f1, 0(x15)"));
        for word in [0, 8, 16, 24] {
            code.ld(T0, A5, word).slli(A4, A4, 1).add(A4, A4, T0);
        }
    }
    for (line, load) in [(3, "ld x5, 204(x11)"), (4, "lw x5, 262(x11)"), (5, "lhu x5, 327(x11)")] {
        code.sd(A3, A1, 64 * line + 8 * i32::from(line == 3));
        code.raw(isa(load)).slli(A4, A4, 1).add(A4, A4, T0);
    }
    code.addi(A1, A1, 64 * LINES as i32).addi(A2, A2, -1).bne(A2, ZERO, "round");
    code.sd(A4, A5, 64).exit(0, 0);
    let sum = |memory, execution| {
        let config = MachineConfig { memory, execution, ..MachineConfig::default() };
        let board = Board::with(config);
        let words: Vec<u8> = (0..LINES * 8 * ROUNDS).flat_map(|n| (n * n).to_le_bytes()).collect();
        board.dram.write(DATA, &words).unwrap();
        let report = board.run(&code, 1);
        assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
        board.u64(DATA + LINES * 64 * ROUNDS + 64)
    };
    let right = sum(MemoryModel::Flat, Execution::Interpreted);
    for execution in [Execution::Interpreted, Execution::Translated] {
        assert_eq!(sum(MemoryModel::Private, execution), right, "{execution:?}");
    }
}

#[test]
fn more_than_the_cache_holds_is_kept_all_the_same() {
    // Hart 0 writes a word to each of 3000 pages, then adds them up.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).beq(T0, ZERO, "first").exit(0, 0).label("first");
    code.li(A1, 4096).addi(A2, A0, 0).li(A3, 3000);
    code.label("write").sd(A3, A2, 0).add(A2, A2, A1).addi(A3, A3, -1).bne(A3, ZERO, "write");
    code.addi(A2, A0, 0).li(A3, 3000).li(A4, 0).label("read").ld(T0, A2, 0).add(A4, A4, T0);
    code.add(A2, A2, A1).addi(A3, A3, -1).bne(A3, ZERO, "read").sd(A4, A0, 8).exit(0, 0);
    let board = board(MemoryModel::Private, 1);
    let report = board.run(&code, 1);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    assert_eq!(board.u64(DATA + 8), 3000 * 3001 / 2);
    assert!((0..3000).all(|page| board.u64(DATA + 4096 * page) == 3000 - page));
}

#[test]
fn harts_of_a_shire_take_short_turns() {
    // Hart 0 spins on a plain load until its neighbour, which starts later, has stored.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).li(T1, 1).beq(T0, T1, "second").beq(T0, ZERO, "spin").exit(0, 0);
    code.label("spin").ld(T0, A0, 0).beq(T0, ZERO, "spin").exit(0, 0);
    code.label("second").sd(T1, A0, 0).exit(0, 0);
    let board = board(MemoryModel::Private, 2);
    let report = board.run(&code, 1);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    // One turn of 50 instructions, and what is left of the next.
    assert!(report.instructions < 64 * 10 + 100, "{}", report.instructions);
}

/// Every hart of a shire computes by itself for a while, over and over, and takes the next place of
/// a log in between, without an atomic operation. There it leaves its number, what it saw of the
/// log before, and the time.
fn log_of_turns() -> Asm {
    let [left, own_left, moved] = [18, 19, 20];
    let mut code = Asm::new();
    code.csrr(A1, HARTID).srli(A2, A1, 6).slli(A2, A2, 20).add(A0, A0, A2).li(left, 40);
    // From a few instructions to some hundred turns, and never the same for two harts.
    let second = ["again 2", "own 2", "look 2", "met 2"];
    for [again, own, look, skip] in [["again", "own", "look", "met"], second] {
        code.label(again)
            .add(own_left, A1, left)
            .andi(own_left, own_left, 7)
            .slli(own_left, own_left, 8);
        code.slli(moved, A1, 2).add(own_left, own_left, moved).addi(own_left, own_left, 1);
        code.label(own)
            .addi(own_left, own_left, -1)
            .xor(A3, A3, own_left)
            .add(A4, A4, A3)
            .bne(own_left, ZERO, own);
        // A look that leads to no store at once.
        code.ld(A5, A0, 0).beq(A5, ZERO, look).label(look).slli(A5, A5, 16).add(A5, A5, A1);
        code.ld(T0, A0, 0).addi(T1, T0, 16).sd(T1, A0, 0).add(T0, T0, A0).sd(A5, T0, 64);
        code.csrr(T1, HPMCOUNTER3).sd(T1, T0, 72).addi(left, left, -1).bne(left, ZERO, again);
        barrier(&mut code, skip);
        code.li(left, 40);
    }
    code.exit(0, 0);
    code
}

#[test]
fn harts_that_are_ahead_of_their_turns_do_nothing_before_them() {
    let run = |execution, shires| {
        let config = MachineConfig { timing: Timing::Deterministic, ..MachineConfig::default() };
        let memory = MemoryModel::Private;
        let host_threads = NonZeroUsize::MIN;
        let board = Board::with(MachineConfig { memory, execution, host_threads, ..config });
        let report = board.run(&log_of_turns(), shires);
        assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
        let places = (0..2).flat_map(|shire| (0..1 << 14).map(move |at| (shire << 20) + 8 * at));
        let log: Vec<u64> = places.map(|at| board.u64(DATA + at)).collect();
        (log, report.instructions, report.cycles)
    };
    for shires in [1, 0b11] {
        let expected = run(Execution::Interpreted, shires);
        assert!(expected.0[0] > 1000 * 16, "{} places were taken", expected.0[0] / 16);
        let (log, instructions, cycles) = run(Execution::Translated, shires);
        assert_eq!((instructions, cycles), (expected.1, expected.2));
        let difference = log.iter().zip(&expected.0).position(|(a, b)| a != b);
        assert_eq!(difference, None);
    }
}

#[test]
fn all_harts_meet_at_barriers_and_an_abort_ends_all() {
    let mut code = Asm::new();
    barrier(&mut code, "joined");
    code.csrr(A1, HARTID).slli(A1, A1, 3).add(A1, A1, A0).sd(A1, A1, 0).exit(0, 0);
    let board = board(MemoryModel::Private, 4);
    let report = board.run(&code, u64::MAX >> 32);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    assert!((0..2048).all(|hart| board.u64(DATA + 8 * hart) == DATA + 8 * hart));
    // One half loops, the other waits for a credit.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).andi(T0, T0, 1).beq(T0, ZERO, "loop").csrwi(FCC, 0);
    code.label("loop").j("loop");
    board.load(&code).launch(ALL_SHIRES);
    board.machine.abort();
    let report = board.wait();
    assert_eq!(report.failures.len(), 2080);
    assert!(report.failures.iter().all(|failure| failure.exit == HartExit::Aborted));
}

#[test]
fn deterministic_machines_with_private_caches_agree() {
    let run = || {
        let config = MachineConfig { timing: Timing::Deterministic, ..MachineConfig::default() };
        let board = Board::with(MachineConfig { memory: MemoryModel::Private, ..config });
        // Takes numbers from a counter that all shires share.
        let mut code = Asm::new();
        code.li(T1, 1).r(0x3B, 0x01, 3, T2, A0, T1).csrr(A1, HARTID).slli(A1, A1, 3);
        code.add(A1, A1, A0).sd(T2, A1, 64).exit(0, 0);
        let report = board.run(&code, ALL_SHIRES);
        let taken: Vec<u64> = (0..2112).map(|hart| board.u64(DATA + 64 + 8 * hart)).collect();
        (taken, report.instructions, report.cycles)
    };
    assert_eq!(run(), run());
}
