//! Packed loads and stores do the same wherever they go, at once or lane by lane.

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

mod common;

use common::{A1, A2, A3, A5, Asm, Board, CODE, DATA, HARTID, T0, T1, ZERO};
use et_sim_cores::{MachineConfig, MemoryModel};

const MODELS: [MemoryModel; 3] =
    [MemoryModel::Flat, MemoryModel::Private, MemoryModel::Weak { seed: 3 }];
/// Cached memory, the scratchpad of the own shire, and that of shire 0 as the second line of all.
const PLACES: [u64; 3] = [DATA + 0x2000, 0x8000_0000 | 0x7F << 23 | 0x100, 0xC000_0000];
/// Where the program leaves what it found.
const FOUND: u64 = DATA + 0x1000;
/// Bytes of a place that are looked at.
const BYTES: u64 = 128;
const REGISTER: u64 = 32;

fn text(code: &mut Asm, text: &str) {
    code.raw(et_isa::assemble(text).unwrap_or_else(|error| panic!("{text}: {error}")));
}

fn mask(code: &mut Asm, lanes: u8) {
    text(code, &format!("mov.m.x m0, x0, {lanes:#x}"));
}

/// Fills a place with words, stores a register over a part of it, for each mask by itself, and
/// looks at all of it and at that part. Returns what it saw, and what memory has in the end.
fn seen(
    memory: MemoryModel,
    place: u64,
    offset: u64,
    (store, load): (&str, &str),
    masks: &[u8],
) -> [Vec<u8>; 3] {
    let mut code = Asm::new();
    code.csrr(T0, HARTID).bne(T0, ZERO, "end").li(A1, place).li(A2, FOUND);
    for at in (0..i32::try_from(BYTES).unwrap()).step_by(8) {
        code.li(T0, 0x1111_1111_1111_1111 + u64::try_from(at).unwrap()).sd(T0, A1, at);
    }
    mask(&mut code, 0xFF);
    text(&mut code, "flw.ps f1, 0(x10)");
    code.li(T1, place + offset);
    for &lanes in masks {
        mask(&mut code, lanes);
        text(&mut code, store);
    }
    code.fence();
    mask(&mut code, 0xFF);
    text(&mut code, "flw.ps f2, 32(x10)");
    for &lanes in masks {
        mask(&mut code, lanes);
        text(&mut code, load);
    }
    mask(&mut code, 0xFF);
    for at in (0..i32::try_from(BYTES).unwrap()).step_by(8) {
        code.ld(T0, A1, at).sd(T0, A2, at);
    }
    text(&mut code, "fsw.ps f2, 128(x12)");
    code.label("end").exit(0, 0);
    let board = Board::with(MachineConfig { memory, ..MachineConfig::default() });
    let table: Vec<u8> = (0x80..0x80 + 64).collect();
    board.dram.write(DATA, &table).unwrap();
    let report = board.run(&code, 1);
    assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
    let read = |from: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        if from >= DATA {
            board.dram.read(from, &mut bytes).unwrap();
        } else {
            board.machine.scratchpads().read(from, &mut bytes).unwrap();
        }
        bytes
    };
    let end = BYTES + FOUND;
    [read(FOUND, BYTES), read(end, REGISTER), read(place, BYTES)]
}

/// The same by hand.
fn expected(offset: u64, masks: &[u8]) -> [Vec<u8>; 3] {
    let words = (0..BYTES).step_by(8).map(|at| 0x1111_1111_1111_1111 + at);
    let mut place: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let mut register: Vec<u8> = (0x80 + 32..0x80 + 64).collect();
    let lanes = masks.iter().fold(0, |all, mask| all | mask);
    let offset = usize::try_from(offset).unwrap();
    for byte in (0..32).filter(|byte| lanes >> (byte / 4) & 1 != 0) {
        place[offset + byte] = 0x80 + u8::try_from(byte).unwrap();
        register[byte] = place[offset + byte];
    }
    [place.clone(), register, place]
}

#[test]
fn plain_ones_do_so_at_any_offset_and_under_any_mask() {
    for memory in MODELS {
        for place in PLACES {
            for offset in [0, 4, 8, 32, 36, 40, 56, 60, 64] {
                for masks in [&[0xFF][..], &[0x0F, 0xF0], &[0x5A], &[]] {
                    let plain = ("fsw.ps f1, 0(x6)", "flw.ps f2, 0(x6)");
                    let name = format!("{memory:?} {place:#x}+{offset} {masks:x?}");
                    let seen = seen(memory, place, offset, plain, masks);
                    assert_eq!(seen, expected(offset, masks), "{name}");
                }
            }
        }
    }
}

/// What the shire had written before, and around it, stays. On weak memory it would not be seen by
/// plain loads.
#[test]
fn coherent_ones_do_so() {
    for memory in [MemoryModel::Flat, MemoryModel::Private] {
        for place in PLACES {
            for offset in [0, 32, 64] {
                let global = ("fswg.ps f1, (x6)", "flwg.ps f2, (x6)");
                let local = ("fswl.ps f1, (x6)", "flwl.ps f2, (x6)");
                for way in [global, local] {
                    let name = format!("{memory:?} {place:#x}+{offset} {way:?}");
                    let seen = seen(memory, place, offset, way, &[0xFF]);
                    assert_eq!(seen, expected(offset, &[0xFF]), "{name}");
                }
            }
        }
    }
}

/// A block of code is executed, stored over, and executed again.
#[test]
fn code_is_that_which_was_stored_last() {
    const BLOCK: u64 = CODE + 4096;
    let block = |step: u32| {
        // addi x13, x13, step; jalr x0, 0(x15)
        let words = [step << 20 | 13 << 15 | 13 << 7 | 0x13, 15 << 15 | 0x67];
        words.into_iter().chain([0x13; 6]).flat_map(u32::to_le_bytes).collect::<Vec<_>>()
    };
    // Where the calls return to is known once it is written.
    let program = |returns: [u64; 2], store: &str| {
        let mut code = Asm::new();
        code.csrr(T0, HARTID).bne(T0, ZERO, "end").li(A3, 0).li(A1, BLOCK);
        code.li(A5, returns[0]).jr(A1);
        let first = CODE + code.bytes_so_far();
        mask(&mut code, 0xFF);
        text(&mut code, "flw.ps f1, 0(x10)");
        text(code.li(T1, BLOCK), store);
        code.li(A5, returns[1]).jr(A1);
        let second = CODE + code.bytes_so_far();
        code.li(A2, FOUND).sd(A3, A2, 0).label("end").exit(0, 0);
        (code, [first, second])
    };
    for (memory, store) in [
        (MemoryModel::Flat, "fsw.ps f1, 0(x6)"),
        (MemoryModel::Flat, "fswg.ps f1, (x6)"),
        (MemoryModel::Private, "fswg.ps f1, (x6)"),
    ] {
        let mut returns = [CODE; 2];
        let code = loop {
            match program(returns, store) {
                (code, found) if found == returns => break code,
                (_, found) => returns = found,
            }
        };
        let board = Board::with(MachineConfig { memory, ..MachineConfig::default() });
        board.dram.write(BLOCK, &block(1)).unwrap();
        board.dram.write(DATA, &block(10)).unwrap();
        let report = board.run(&code, 1);
        assert!(report.failures.is_empty(), "{:?}", report.failures[0]);
        assert_eq!(board.u64(FOUND), 11, "{memory:?}, {store}");
    }
}
