//! Weak memory: what may be reordered is for some seed, and what must not be is for none.

#![allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: constants of their making, counts for the reader, and a panic is a failure"
)]

mod common;

use std::collections::HashSet;

use common::{
    A0, A1, A2, A3, A4, A5, Asm, Board, CODE, CREDITS, DATA, FCC, FLB, HARTID, RA, T0, T1, T2, ZERO,
};
use et_sim_cores::{ALL_SHIRES, HartExit, LaunchReport, MachineConfig, MemoryModel};

const TENSOR_WAIT: u32 = 0x830;
const EVICT_VA: u32 = 0x89F;
const FLUSH_VA: u32 = 0x8BF;
/// Wait for evictions and flushes.
const CACHE_OPERATIONS: u32 = 6;
/// Destination levels of evictions.
const L2: u64 = 1;
const MEMORY: u64 = 3;
/// Seeds within which what may go wrong must have gone wrong.
const SEEDS: u64 = 50;

/// A second hart of the same minion, one of another minion, and one of another shire.
const SIBLING: u64 = 1;
const NEIGHBOUR: u64 = 2;
const ABROAD: u64 = 64;

/// Data and flag of a message, in different lines, from [`DATA`] in A0.
const FLAG: i32 = 64;
/// Where the consumer leaves what it found, and what it found in the end.
const FOUND: u64 = DATA + 1024;

fn board(seed: u64) -> Board {
    let memory = MemoryModel::Weak { seed };
    Board::with(MachineConfig { shires: 0b11, memory, ..MachineConfig::default() })
}

fn run(seed: u64, code: &Asm, shires: u64) -> (Board, LaunchReport) {
    let board = board(seed);
    let report = board.run(code, shires);
    assert!(report.failures.is_empty(), "{seed}: {:?}", report.failures[0]);
    (board, report)
}

/// Additions to the assembler. The vendor's atomics are opcode 0x3B; bit 0 of f7 is the scope.
trait Vendor {
    fn amoadd_l(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self;
    fn amoadd_g(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self;
    fn amoswap_g(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self;
    /// Loads past all caches.
    fn load_g(&mut self, rd: u32, rs1: u32) -> &mut Self;
    /// Loads past the L1.
    fn load_l(&mut self, rd: u32, rs1: u32) -> &mut Self;
    /// Evicts or flushes the line that A0 points to, and waits.
    fn write_back(&mut self, register: u32, level: u64) -> &mut Self;
    /// Ends all harts but two, of which the second goes on at `label`.
    fn only(&mut self, first: u64, second: u64, label: &'static str) -> &mut Self;
    /// Spends some time.
    fn dawdle(&mut self, rounds: u64, label: &'static str) -> &mut Self;
}

impl Vendor for Asm {
    fn amoadd_l(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 0x00, 3, rd, rs1, rs2)
    }

    fn amoadd_g(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 0x01, 3, rd, rs1, rs2)
    }

    fn amoswap_g(&mut self, rd: u32, rs2: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 0x05, 3, rd, rs1, rs2)
    }

    fn load_g(&mut self, rd: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 0x21, 3, rd, rs1, ZERO)
    }

    fn load_l(&mut self, rd: u32, rs1: u32) -> &mut Self {
        self.r(0x3B, 0x20, 3, rd, rs1, ZERO)
    }

    fn write_back(&mut self, register: u32, level: u64) -> &mut Self {
        self.li(T0, level << 58).add(T0, T0, A0).csrrw(ZERO, register, T0);
        self.csrwi(TENSOR_WAIT, CACHE_OPERATIONS)
    }

    fn only(&mut self, first: u64, second: u64, label: &'static str) -> &mut Self {
        self.csrr(A2, HARTID).li(T0, second).beq(A2, T0, label).li(T0, first);
        self.beq(A2, T0, "first").exit(0, 0).label("first")
    }

    fn dawdle(&mut self, rounds: u64, label: &'static str) -> &mut Self {
        self.li(T0, rounds).label(label).addi(T0, T0, -1).bne(T0, ZERO, label)
    }
}

/// A producer that makes a message by `produce` (data in A3, the flag's address in A1), and a
/// consumer that waits for the flag and then loads the data into A4 after `before`.
fn message(consumer: u64, produce: impl Fn(&mut Asm), before: impl Fn(&mut Asm)) -> Asm {
    let mut code = Asm::new();
    code.addi(A1, A0, FLAG).li(A3, 77).only(0, consumer, "consume");
    // Gives the consumer time to have the old data in its caches.
    code.dawdle(200, "later");
    produce(&mut code);
    code.exit(0, 0);
    code.label("consume").ld(A5, A0, 0);
    code.label("poll").load_g(T1, A1).beq(T1, ZERO, "poll");
    before(&mut code);
    code.ld(A4, A0, 0).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0).exit(0, 0);
    code
}

fn evict(code: &mut Asm) {
    code.write_back(EVICT_VA, MEMORY);
}

fn set_flag(code: &mut Asm) {
    code.li(T1, 1).amoswap_g(ZERO, T1, A1);
}

/// Counts the seeds for which the consumer gets the data.
fn received(code: &Asm, shires: u64, seeds: u64) -> u64 {
    let right = |&seed: &u64| {
        let found = run(seed, code, shires).0.u64(FOUND);
        assert!(matches!(found, 0 | 77), "{seed}: {found}");
        found == 77
    };
    (0..seeds).filter(right).count() as u64
}

#[test]
fn plain_stores_do_not_pass_a_message() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0).li(T1, 1).sd(T1, A1, 0);
    };
    for consumer in [NEIGHBOUR, ABROAD] {
        // Not even if the consumer does its part.
        let code = message(consumer, produce, evict);
        let received = received(&code, 0b11, SEEDS);
        println!("{consumer}: {received} of {SEEDS} messages arrive");
        assert!((1..SEEDS).contains(&received));
    }
}

#[test]
fn evictions_on_both_sides_and_a_global_flag_pass_a_message() {
    for (consumer, shires) in [(NEIGHBOUR, 0b1), (ABROAD, 0b11)] {
        let code = message(
            consumer,
            |code| {
                code.sd(A3, A0, 0);
                evict(code);
                set_flag(code);
            },
            evict,
        );
        assert_eq!(received(&code, shires, 300), 300);
    }
}

#[test]
fn a_flush_passes_a_message_as_well() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0).write_back(FLUSH_VA, MEMORY);
        set_flag(code);
    };
    assert_eq!(received(&message(ABROAD, produce, evict), 0b11, 100), 100);
}

#[test]
fn eviction_to_the_l2_is_enough_within_a_shire_only() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0).write_back(EVICT_VA, L2);
        set_flag(code);
    };
    let to_l2 = |code: &mut Asm| {
        code.write_back(EVICT_VA, L2);
    };
    assert_eq!(received(&message(NEIGHBOUR, produce, to_l2), 0b1, 100), 100);
    assert!(received(&message(ABROAD, produce, evict), 0b11, SEEDS) < SEEDS);
}

#[test]
fn an_eviction_without_a_wait_is_late() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0).li(T0, MEMORY << 58).add(T0, T0, A0).csrrw(ZERO, EVICT_VA, T0);
        set_flag(code);
    };
    let without = received(&message(ABROAD, produce, evict), 0b11, SEEDS);
    assert!((1..SEEDS).contains(&without), "{without}");
    // A fence is no substitute.
    let fenced = |code: &mut Asm| {
        code.sd(A3, A0, 0).li(T0, MEMORY << 58).add(T0, T0, A0).csrrw(ZERO, EVICT_VA, T0).fence();
        set_flag(code);
    };
    assert!(received(&message(ABROAD, fenced, evict), 0b11, SEEDS) < SEEDS);
}

#[test]
fn a_fence_does_not_publish_lines() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0).fence();
        set_flag(code);
    };
    assert!(received(&message(NEIGHBOUR, produce, evict), 0b1, SEEDS) < SEEDS);
}

#[test]
fn a_line_in_the_consumers_cache_is_stale_unless_evicted() {
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0);
        evict(code);
        set_flag(code);
    };
    for consumer in [NEIGHBOUR, ABROAD] {
        let received = received(&message(consumer, produce, |_| {}), 0b11, SEEDS);
        println!("{consumer}: {received} of {SEEDS} messages arrive");
        assert!((1..SEEDS).contains(&received));
    }
}

/// Stores data and then the flag, both by posted global swaps; `between` orders them or not. The
/// consumer loads both past all caches.
fn posted(between: impl Fn(&mut Asm)) -> Asm {
    let mut code = Asm::new();
    code.addi(A1, A0, FLAG).li(A3, 77).li(T1, 1).only(0, NEIGHBOUR, "consume");
    code.amoswap_g(ZERO, A3, A0);
    between(&mut code);
    code.amoswap_g(ZERO, T1, A1).exit(0, 0);
    code.label("consume").label("poll").load_g(T1, A1).beq(T1, ZERO, "poll");
    code.load_g(A4, A0).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0).exit(0, 0);
    code
}

#[test]
fn posted_swaps_change_places_unless_fenced() {
    let without = received(&posted(|_| {}), 0b1, SEEDS);
    println!("{without} of {SEEDS} messages arrive without a fence");
    assert!((1..SEEDS).contains(&without));
    let fence = |code: &mut Asm| {
        code.fence();
    };
    assert_eq!(received(&posted(fence), 0b1, 300), 300);
    // Waiting for cache operations is no fence.
    let wait = |code: &mut Asm| {
        code.csrwi(TENSOR_WAIT, CACHE_OPERATIONS);
    };
    assert!(received(&posted(wait), 0b1, SEEDS) < SEEDS);
}

#[test]
fn posted_operations_on_one_line_keep_their_order() {
    let mut code = Asm::new();
    code.only(0, NEIGHBOUR, "consume").li(A3, 1).li(A4, 40);
    // Two words of one line, the second never ahead of the first.
    code.addi(A1, A0, 8);
    code.label("again").amoswap_g(ZERO, A3, A0).amoswap_g(ZERO, A3, A1);
    code.addi(A3, A3, 1).bne(A3, A4, "again").exit(0, 0);
    code.label("consume").addi(A1, A0, 8).li(A4, 39);
    code.label("poll").load_g(T1, A1).load_g(T0, A0).blt(T0, T1, "wrong");
    code.bne(T1, A4, "poll").exit(0, 0);
    code.label("wrong").exit(1, 1);
    for seed in 0..SEEDS {
        run(seed, &code, 0b1);
    }
}

#[test]
fn local_atomics_are_atomic_in_their_shire_and_unseen_abroad() {
    // All harts of shire 0 count; hart 0 waits for all and then tells shire 1 past all caches.
    let mut code = Asm::new();
    code.addi(A1, A0, FLAG).li(T1, 1).csrr(A2, HARTID).li(T0, 64);
    code.beq(A2, T0, "abroad").blt(A2, T0, "count").exit(0, 0);
    code.label("count").li(A3, 20);
    code.label("again").amoadd_l(ZERO, T1, A0).addi(A3, A3, -1).bne(A3, ZERO, "again");
    code.beq(A2, ZERO, "wait").exit(0, 0);
    code.label("wait").li(A4, 64 * 20);
    code.label("poll").load_l(A5, A0).bne(A5, A4, "poll").amoadd_g(ZERO, T1, A1).exit(0, 0);
    code.label("abroad").label("flag").load_g(T0, A1).beq(T0, ZERO, "flag");
    code.load_g(A4, A0).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0).exit(0, 0);
    let mut seen = HashSet::new();
    for seed in 0..SEEDS {
        let (board, _) = run(seed, &code, 0b11);
        assert_eq!(board.u64(DATA), 64 * 20, "{seed}");
        seen.insert(board.u64(FOUND));
    }
    assert!(seen.iter().any(|&count| count != 64 * 20), "never late: {seen:?}");
}

#[test]
fn harts_of_a_minion_see_one_another() {
    let mut code = Asm::new();
    code.addi(A1, A0, FLAG).li(A3, 77).only(0, SIBLING, "consume");
    code.sd(A3, A0, 0).li(T1, 1).sd(T1, A1, 0).exit(0, 0);
    code.label("consume").label("poll").ld(T1, A1, 0).beq(T1, ZERO, "poll");
    code.ld(A4, A0, 0).li(T0, FOUND - DATA).add(T0, T0, A0).sd(A4, T0, 0).exit(0, 0);
    assert_eq!(received(&code, 0b1, 200), 200);
}

#[test]
fn a_word_that_two_minions_share_by_bytes_keeps_both() {
    // Each hart of the shire stores its own word of the same lines: no line may overwrite others.
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A3, A2, 2).add(A3, A3, A0).addi(A2, A2, 1).sw(A2, A3, 0).exit(0, 0);
    for seed in 0..SEEDS {
        let (board, _) = run(seed, &code, 0b11);
        for hart in 0..64 {
            let want = (2 * hart + 2) << 32 | (2 * hart + 1);
            assert_eq!(board.u64(DATA + 8 * hart), want, "{seed}");
        }
    }
}

#[test]
fn a_seed_decides_everything() {
    // Harts race for tickets, by atomics that are posted and that are not, and read the clock.
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A2, A2, 4).add(A2, A2, A0).li(T1, 1).li(A3, 30);
    code.label("again").amoadd_g(A4, T1, A0).amoadd_l(ZERO, T1, A2).addi(A3, A3, -1);
    code.bne(A3, ZERO, "again").csrr(A5, 0xC03).li(T0, 8192).add(A2, A2, T0);
    code.sd(A4, A2, 0).sd(A5, A2, 8).exit(0, 0);
    let outcome = |seed| {
        let (board, report) = run(seed, &code, 0b11);
        let seen: Vec<u64> = (0..2048).map(|word| board.u64(DATA + 8 * word)).collect();
        let second = board.launch(0b11).wait();
        assert_ne!(report.trace, second.trace, "the second launch differs");
        (seen, report.instructions, report.trace, second.trace)
    };
    let traces: HashSet<u64> = (0..20)
        .map(|seed| {
            let first = outcome(seed);
            assert_eq!(first, outcome(seed), "{seed}");
            assert_ne!(first.2, 0);
            first.2
        })
        .collect();
    assert_eq!(traces.len(), 20);
    assert_eq!(Board::new(1).run(&code, 0b11).trace, 0, "flat memory has no trace");
}

#[test]
fn everything_is_in_memory_after_the_end() {
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A3, A2, 7).add(A3, A3, A0).li(T0, 0x8000_0000).add(T1, A2, ZERO);
    code.slli(T1, T1, 6).add(T0, T0, T1).addi(A2, A2, 1);
    code.sd(A2, A3, 0).addi(A3, A3, 64).amoadd_l(ZERO, A2, A3).addi(A3, A3, 8);
    code.amoadd_g(ZERO, A2, A3).sd(A2, T0, 0).exit(0, 0);
    for seed in 0..20 {
        let (board, _) = run(seed, &code, 0b1);
        check_all_in_memory(&board);
    }
}

#[test]
fn everything_is_in_memory_after_an_abort() {
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A3, A2, 7).add(A3, A3, A0).li(T0, 0x8000_0000).add(T1, A2, ZERO);
    code.slli(T1, T1, 6).add(T0, T0, T1).addi(A2, A2, 1);
    code.sd(A2, A3, 0).addi(A3, A3, 64).amoadd_l(ZERO, A2, A3).addi(A3, A3, 8);
    code.amoadd_g(ZERO, A2, A3).sd(A2, T0, 0);
    // Past all caches: the host sees how far the harts are.
    code.li(T0, FOUND - DATA).slli(T0, T0, 5).add(T0, T0, A0).li(T1, 1).amoadd_g(A4, T1, T0);
    code.label("here").j("here");
    for seed in 0..20 {
        let board = board(seed);
        board.load(&code).launch(0b1);
        while board.u64(DATA + (FOUND - DATA) * 32) != 64 {
            std::thread::yield_now();
        }
        board.machine.abort();
        let report = board.wait();
        assert_eq!(report.failures.len(), 64);
        assert!(report.failures.iter().all(|failure| failure.exit == HartExit::Aborted));
        check_all_in_memory(&board);
    }
}

fn check_all_in_memory(board: &Board) {
    for hart in 0..64 {
        let at = DATA + 128 * hart;
        let mut word = [0; 8];
        board.machine.scratchpads().read(0x8000_0000 + 64 * hart, &mut word).unwrap();
        let stored =
            [board.u64(at), board.u64(at + 64), board.u64(at + 72), u64::from_le_bytes(word)];
        assert_eq!(stored, [hart + 1; 4], "hart {hart}");
    }
}

#[test]
fn a_kernel_in_which_all_wait_has_everything_in_memory() {
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A3, A2, 3).add(A3, A3, A0).li(T1, 5).sd(T1, A3, 0).csrwi(FCC, 0);
    let board = board(4);
    board.load(&code).launch(0b1);
    while (0..64).any(|hart| board.u64(DATA + 8 * hart) != 5) {
        std::thread::yield_now();
    }
    board.machine.abort();
    assert_eq!(board.wait().failures.len(), 64);
}

#[test]
fn barriers_hold_all_harts_but_publish_nothing() {
    // Between two barriers every hart looks at a counter of local atomics, past its L1, and at a
    // word that hart 0 has stored plainly.
    let mut code = Asm::new();
    code.li(A4, 0).li(A5, 0).addi(A1, A0, FLAG).csrr(A2, HARTID).ld(T2, A1, 0);
    for (round, skip, again, store) in
        [(1, "skip1", "again1", "store1"), (2, "skip2", "again2", "store2")]
    {
        code.li(T2, 1).amoadd_l(RA, T2, A0).bne(A2, ZERO, store);
        code.li(T2, round).sd(T2, A1, 0).label(store);
        barrier(&mut code, skip);
        code.load_l(T2, A0).li(T1, round * 64).xor(T2, T2, T1).add(A4, A4, T2);
        code.ld(T2, A1, 0).li(T1, round).xor(T2, T2, T1).add(A5, A5, T2);
        barrier(&mut code, again);
    }
    code.slli(A3, A2, 6).add(A3, A3, A0).li(T0, FOUND - DATA).add(A3, A3, T0);
    code.sd(A4, A3, 0).sd(A5, A3, 8).exit(0, 0);
    let mut stale = 0;
    for seed in 0..SEEDS {
        let (board, _) = run(seed, &code, 0b1);
        for hart in 0..64 {
            assert_eq!(board.u64(FOUND + 64 * hart), 0, "{seed}: hart {hart}");
            stale += u64::from(board.u64(FOUND + 64 * hart + 8) != 0);
        }
    }
    println!("{stale} of {} harts found old data after a barrier", 64 * SEEDS);
    assert!(stale > 0);
}

/// The barrier of the device libraries over all harts of a shire. Spec: ISA §3.3
fn barrier(code: &mut Asm, skip: &'static str) {
    code.li(T0, 63 << 5).csrrw(T1, FLB, T0).beq(T1, ZERO, skip);
    code.li(T0, CREDITS).li(T1, 0xFFFF_FFFF).sd(T1, T0, 0).sd(T1, T0, 16);
    code.label(skip).csrwi(FCC, 0);
}

#[test]
fn environment_calls_empty_caches() {
    // Call 11 means everything. Call 6 names the level in a2 and is about lines in the L1 only, so
    // that it is of use within a shire.
    for (number, level, consumer) in [(6, L2, NEIGHBOUR), (11, 0, ABROAD)] {
        let call = |code: &mut Asm| {
            code.add(A5, A0, ZERO).li(A0, number).li(A1, 0).li(A2, level).raw(0x73);
            code.add(A0, A5, ZERO).addi(A1, A0, FLAG);
        };
        let produce = |code: &mut Asm| {
            code.sd(A3, A0, 0);
            call(code);
            set_flag(code);
        };
        let code = message(consumer, produce, call);
        assert_eq!(received(&code, 0b11, 100), 100, "call {number}");
    }
    // Call 1 names set and way: all ways of the data's set, one after the other.
    let ways = |code: &mut Asm| {
        code.add(A5, A0, ZERO);
        for way in 0..4 {
            let set = DATA >> 6 & 15;
            code.li(A1, L2 << 58 | set << 14 | way << 6).li(A0, 1).raw(0x73);
        }
        code.add(A0, A5, ZERO).addi(A1, A0, FLAG);
    };
    let produce = |code: &mut Asm| {
        code.sd(A3, A0, 0);
        ways(code);
        set_flag(code);
    };
    assert_eq!(received(&message(NEIGHBOUR, produce, ways), 0b1, 100), 100);
}

#[test]
fn stored_code_is_fetched_once_it_is_evicted() {
    let mut code = Asm::new();
    code.only(0, 0, "first").li(T1, u64::from(0x0070_0593_u32)).li(A1, CODE);
    // Overwrites `patched` by `li a1, 7`.
    code.add(A5, A0, ZERO).li(A0, CODE + 4096);
    code.sw(T1, A0, 0).write_back(EVICT_VA, MEMORY).jr(A0);
    let (_, report) = {
        let board = board(1);
        let tail = [0x0000_0593_u32, 0x0080_0513, 0x0000_0613, 0x0000_0073];
        let bytes: Vec<u8> = tail.iter().flat_map(|word| word.to_le_bytes()).collect();
        board.dram.write(CODE + 4096, &bytes).unwrap();
        let report = board.run(&code, 0b1);
        (board, report)
    };
    assert!(report.failures.is_empty());
}

#[test]
fn plain_and_posted_sums_of_all_harts_are_complete() {
    // A plain sum per hart in a line of its own, and one sum of all by posted atomics.
    let mut code = Asm::new();
    code.csrr(A2, HARTID).addi(A2, A2, 1).slli(A3, A2, 6).add(A3, A3, A0).li(A4, 500).li(T1, 1);
    code.label("again").ld(T0, A3, 0).addi(T0, T0, 1).sd(T0, A3, 0).amoadd_g(ZERO, T1, A0);
    code.addi(A4, A4, -1).bne(A4, ZERO, "again").exit(0, 0);
    for shires in [0b1, ALL_SHIRES] {
        let memory = MemoryModel::Weak { seed: 3 };
        let board = Board::with(MachineConfig { memory, ..MachineConfig::default() });
        let report = board.run(&code, shires);
        assert!(report.failures.is_empty());
        assert_eq!(board.u64(DATA), 500 * u64::from(report.harts));
        for hart in 0..64 {
            assert_eq!(board.u64(DATA + 64 * (hart + 1)), 500);
        }
        let rate = u128::from(report.instructions) / report.wall.as_micros().max(1);
        println!("{} harts: {rate} million instructions per second", report.harts);
    }
}

#[test]
fn where_races_are_looked_for_a_posted_store_is_not_waited_for_forever() {
    // The producer posts the flag without a fence, and waits for the answer: asleep, awake,
    // or doing something else with stores meanwhile.
    for wait in ["asleep", "awake", "busy"] {
        let mut code = Asm::new();
        code.addi(A1, A0, FLAG).addi(A3, A1, FLAG).addi(A4, A3, FLAG).only(0, NEIGHBOUR, "consume");
        set_flag(&mut code);
        if wait == "asleep" {
            code.csrwi(FCC, 0).exit(0, 0);
        } else {
            code.label("answer");
            if wait == "busy" {
                code.amoswap_g(ZERO, T1, A4).load_g(T2, A4);
            }
            code.load_g(T1, A3).beq(T1, ZERO, "answer").exit(0, 0);
        }
        code.label("consume").load_g(T1, A1).beq(T1, ZERO, "consume");
        code.li(T1, 1).amoswap_g(T0, T1, A3).li(T0, CREDITS).sd(T1, T0, 0).exit(0, 0);
        for seed in 0..10 {
            let memory = MemoryModel::Weak { seed };
            let config = MachineConfig { memory, finds_races: true, ..MachineConfig::default() };
            let report = Board::with(config).run(&code, 0b1);
            assert!(report.failures.is_empty(), "{seed}: {:?}", report.failures[0]);
            // Two harts, 64 rounds of turns of 25 instructions on average, and what they do else.
            assert!(report.instructions < 8000, "{seed}, {wait}: {}", report.instructions);
        }
    }
}
