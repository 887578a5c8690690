//! How often each instruction was executed: kernels whose counts are known.

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

mod common;

use std::collections::BTreeMap;

use common::{A0, A5, Asm, Board, CODE, CREDITS, DATA, FCC, HARTID, RA, SP, T0, T1, T2, ZERO};
use et_sim_cores::{LaunchReport, MachineConfig, MemoryModel};

const MODELS: [MemoryModel; 3] =
    [MemoryModel::Flat, MemoryModel::Private, MemoryModel::Weak { seed: 3 }];

fn counting(memory: MemoryModel) -> Board {
    let counts_instructions = true;
    Board::with(MachineConfig { counts_instructions, memory, ..MachineConfig::default() })
}

/// The counts, after a look at their sum.
fn counts(report: &LaunchReport) -> BTreeMap<String, u64> {
    let histogram = report.histogram.as_ref().unwrap();
    assert_eq!(histogram.total(), report.instructions);
    let counts = histogram.by_count();
    assert!(counts.is_sorted_by_key(|&(_, count)| std::cmp::Reverse(count)));
    counts.into_iter().map(|(what, count)| (what.to_string(), count)).collect()
}

fn expected<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(what, count)| (what.to_owned(), count)).into()
}

#[test]
fn a_loop_counts_as_often_as_it_runs_on_all_harts() {
    let mut code = Asm::new();
    code.li(T0, 100);
    // Short and long ones, a jump out of the chain, packed ones, a store.
    code.label("again").raw(0x0001_0001); // c.nop, twice
    for line in ["fadd.s f4, f1, f2", "fmul.ps f4, f1, f2", "fmadd.ps f4, f1, f2, f4"] {
        code.raw(et_isa::assemble(line).unwrap());
    }
    code.sd(T0, SP, -64).addi(T0, T0, -1).bne(T0, ZERO, "again").exit(0, 0);
    for memory in MODELS {
        let report = counting(memory).run(&code, 0b11);
        assert!(report.failures.is_empty(), "{memory:?} {:?}", report.failures);
        let loops = 128 * 100;
        let all = [
            ("addi", 3 * loops + 4 * 128),
            ("fadd.s", loops),
            ("fmul.ps", loops),
            ("fmadd.ps", loops),
            ("sd", loops),
            ("bne", loops),
        ];
        assert_eq!(counts(&report), expected(all), "{memory:?}");
    }
}

#[test]
fn what_traps_or_waits_is_not_counted_and_calls_are() {
    let mut code = Asm::new();
    // Call 11 returns; reading mhartid is emulated.
    code.li(A0, 11).raw(0x0000_0073).csrr(T1, 0xF14).csrr(T0, HARTID);
    code.bne(T0, ZERO, "wait");
    // The first hart gives all others a credit when they wait for long, and traps.
    code.li(T1, 2000).label("spin").addi(T1, T1, -1).bne(T1, ZERO, "spin");
    code.li(T2, CREDITS).li(T1, u64::MAX).sd(T1, T2, 0).sd(T1, T2, 16).ld(T1, ZERO, 0);
    code.label("wait").csrwi(FCC, 0).exit(0, 0);
    for memory in MODELS {
        let report = counting(memory).run(&code, 1);
        let failed: Vec<_> = report.failures.iter().map(|failure| failure.hart_id).collect();
        assert_eq!(failed, [0], "{memory:?}");
        let counts = counts(&report);
        let of = |what: &str| counts.get(what).copied().unwrap_or(0);
        assert_eq!((of("ecall"), of("csrrs mhartid"), of("csrrs hartid")), (64, 64, 64));
        assert_eq!((of("csrrwi fcc"), of("ld"), of("sd")), (63, 0, 2), "{memory:?}");
        assert_eq!(of("bne"), 64 + 2000);
    }
}

#[test]
fn instructions_on_two_pages_and_replaced_ones_are_counted() {
    let start = CODE + 0x1000 - 6;
    // The second instruction is on both pages; the one before the end is replaced by the loop.
    let mut code = Asm::new();
    code.addi(T2, T2, 1).addi(T2, T2, 1).xor(T2, T2, T2).jr(RA);
    let replaced = start + 8;
    let add = 0x0073_83B3; // add t2, t2, t2
    let mut entry = Asm::new();
    entry.li(A5, start).li(T0, add).li(T1, replaced).raw(0x0007_80E7);
    entry.sw(T0, T1, 0).fence().raw(0x0007_80E7).exit(0, 0);
    let board = counting(MemoryModel::Flat);
    board.dram.write(start, &code.bytes()).unwrap();
    // A hart alone: the second one of the shire would find the instruction replaced.
    let first = board.run(&entry, 1);
    let counts = counts(&first);
    let of = |what: &str| counts.get(what).copied().unwrap_or(0);
    assert_eq!(of("xor") + of("add"), 128);
    assert!(of("add") >= 64 && of("xor") >= 1, "{counts:?}");
    assert_eq!((of("jalr"), of("sw")), (256, 64));
    let straddling = 4 * 64;
    let immediates = entry
        .bytes()
        .chunks(4)
        .filter(|word| word[0] & 0x7F == 0x13 && word[1] & 0x70 == 0)
        .count();
    assert_eq!(of("addi"), 64 * immediates as u64 + straddling);
    assert_eq!(board.u64(DATA), 0);
}

#[test]
fn launches_count_by_themselves_and_only_if_asked_to() {
    let mut code = Asm::new();
    code.exit(0, 0);
    let board = counting(MemoryModel::Private);
    for shires in [1, 0b111] {
        let report = board.run(&code, shires);
        assert_eq!(counts(&report), expected([("addi", 3 * 64 * u64::from(shires.count_ones()))]));
    }
    let report = Board::new(1).run(&code, 1);
    assert_eq!(report.histogram, None);
}
