//! Launches on watched memory: every way to access it is checked, on every model of it.

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

mod common;

use std::sync::Arc;

use common::{A0, A1, Asm, Board, CODE, HARTID, T0, ZERO};
use et_isa::Access::{Atomic, Line, Load, Store};
use et_isa::{Access, MemoryFault, Violation};
use et_sim_cores::{Buffers, HartExit, LaunchReport, MachineConfig, MemoryModel};

const MODELS: [MemoryModel; 3] =
    [MemoryModel::Flat, MemoryModel::Private, MemoryModel::Weak { seed: 7 }];

const MANAGED: std::ops::Range<u64> = 0x80_0700_0000..0x80_0800_0000;
/// What is outside of the managed memory and open: the code is neither read nor written.
const OPEN: std::ops::Range<u64> = 0x80_04F2_3000..0x80_0580_0000;
/// The buffer of each test, and its first byte behind.
const START: u64 = 0x80_0700_1000;
const END: u64 = START + 128;

const TENSOR_LOAD: u32 = 0x83F;
const TENSOR_STORE: u32 = 0x87F;
const X31: u32 = 31;

/// An instruction on the address in a0.
#[derive(Clone, Copy)]
enum Does {
    Text(&'static str),
    /// Writes the address and these bits to a register.
    Tensor(u32, u64),
}
use Does::{Tensor, Text};

/// What instructions do, bytes at a time, and how far from the end they may start.
const CASES: [(Does, Access, u8, u64); 34] = [
    (Text("lb a1, 0(a0)"), Load, 1, 1),
    (Text("lhu a1, 0(a0)"), Load, 2, 2),
    (Text("lw a1, 0(a0)"), Load, 4, 4),
    (Text("ld a1, 0(a0)"), Load, 8, 8),
    (Text("flw f2, 0(a0)"), Load, 4, 4),
    (Text("flw.ps f2, 0(a0)"), Load, 4, 32),
    (Text("flq2 f2, 0(a0)"), Load, 4, 32),
    (Text("fbc.ps f2, 0(a0)"), Load, 4, 4),
    (Text("flwl.ps f2, (a0)"), Load, 4, 32),
    (Text("flwg.ps f2, (a0)"), Load, 4, 32),
    (Text("fgw.ps f2, f1(a0)"), Load, 4, 4),
    (Text("fgb.ps f2, f1(a0)"), Load, 1, 1),
    (Text("fghg.ps f2, f1(a0)"), Load, 2, 2),
    (Text("fg32b.ps f2, a1(a0)"), Load, 1, 32),
    (Text("fg32w.ps f2, a1(a0)"), Load, 4, 32),
    (Text("sb a1, 0(a0)"), Store, 1, 1),
    (Text("sh a1, 0(a0)"), Store, 2, 2),
    (Text("sw a1, 0(a0)"), Store, 4, 4),
    (Text("sd a1, 0(a0)"), Store, 8, 8),
    (Text("fsw f2, 0(a0)"), Store, 4, 4),
    (Text("fsw.ps f2, 0(a0)"), Store, 4, 32),
    (Text("fsq2 f2, 0(a0)"), Store, 4, 32),
    (Text("fswl.ps f2, (a0)"), Store, 4, 32),
    (Text("fswg.ps f2, (a0)"), Store, 4, 32),
    (Text("fscw.ps f2, f1(a0)"), Store, 4, 4),
    (Text("fscbg.ps f2, f1(a0)"), Store, 1, 1),
    (Text("fsc32h.ps f2, a1(a0)"), Store, 2, 32),
    (Text("sbg a1, (a0)"), Store, 1, 1),
    (Text("amoaddl.w a2, a1, (a0)"), Atomic, 4, 4),
    (Text("amoaddg.d a2, a1, (a0)"), Atomic, 8, 8),
    (Text("famoaddl.pi f2, f1(a0)"), Atomic, 4, 4),
    (Text("famomaxg.ps f2, f1(a0)"), Atomic, 4, 4),
    (Tensor(TENSOR_LOAD, 0), Line, 64, 64),
    (Tensor(TENSOR_STORE, 3 << 55), Store, 64, 64),
];

fn board(memory: MemoryModel) -> (Board, Arc<Buffers>) {
    let board = Board::with(MachineConfig { memory, shires: 1, ..MachineConfig::default() });
    let buffers = board.dram.watch(MANAGED, OPEN);
    buffers.allocated(START, END - START);
    (board, buffers)
}

/// Executes an instruction on an address, on hart 0; returns the report, and where it is.
fn run(board: &Board, does: Does, address: u64) -> (LaunchReport, u64) {
    let mut code = Asm::new();
    code.csrr(T0, HARTID).bne(T0, ZERO, "end").li(A0, address).li(A1, 0).li(X31, 64);
    let at = CODE + code.bytes_so_far();
    match does {
        Text(text) => code.raw(et_isa::assemble(text).unwrap_or_else(|e| panic!("{text}: {e}"))),
        Tensor(register, bits) => {
            code.li(A0, address | bits);
            return finish(board, code.csrrw(ZERO, register, A0), None);
        }
    };
    finish(board, &mut code, Some(at))
}

fn finish(board: &Board, code: &mut Asm, at: Option<u64>) -> (LaunchReport, u64) {
    let at = at.unwrap_or_else(|| CODE + code.bytes_so_far() - 4);
    let report = board.run(code.label("end").exit(0, 0), 1);
    (report, at)
}

/// Returns what was found, and the address; none if nothing was.
fn found((report, at): (LaunchReport, u64)) -> Option<(MemoryFault, u64)> {
    let failure = report.failures.first()?;
    assert_eq!((report.failures.len(), failure.hart_id, failure.state.pc), (1, 0, at));
    match failure.exit {
        HartExit::Exception { cause, tval } => {
            Some((MemoryFault::from_cause(cause).expect("a fault of the checker"), tval))
        }
        exit => panic!("{exit:?}"),
    }
}

fn name(does: Does) -> String {
    match does {
        Text(text) => text.to_owned(),
        Tensor(register, _) => format!("write of {register:#x}"),
    }
}

/// The cache has the whole line by then.
#[test]
fn a_line_that_begins_outside_is_not_loaded_from_the_cache_either() {
    for memory in MODELS {
        let board = Board::with(MachineConfig { memory, shires: 1, ..MachineConfig::default() });
        board.dram.watch(MANAGED, OPEN).allocated(START + 32, 96);
        board.dram.fill(START + 32, 96, 1).unwrap();
        let mut code = Asm::new();
        code.csrr(T0, HARTID).bne(T0, ZERO, "end").li(A0, START).li(X31, 64);
        code.ld(A1, A0, 32).csrrw(ZERO, TENSOR_LOAD, A0);
        let fault = MemoryFault { violation: Violation::Outside, access: Line, bytes: 64 };
        let found = found(finish(&board, &mut code, None));
        assert_eq!(found.map(|(found, _)| found), Some(fault), "{memory:?}");
    }
}

#[test]
fn every_access_over_the_end_is_found_and_none_within() {
    for memory in MODELS {
        let (board, _) = board(memory);
        board.dram.fill(START, END - START, 1).unwrap();
        for (does, access, bytes, room) in CASES {
            let name = format!("{} on {memory:?}", name(does));
            assert_eq!(found(run(&board, does, END - room)), None, "{name}");
            let fault = MemoryFault { violation: Violation::Outside, access, bytes };
            assert_eq!(found(run(&board, does, END)), Some((fault, END)), "{name}");
        }
        // Some accesses reach over the end.
        for (does, access, bytes, start) in [
            (Text("ld a1, 0(a0)"), Load, 8, 4),
            (Text("sw a1, 0(a0)"), Store, 4, 1),
            (Text("flw.ps f2, 0(a0)"), Load, 4, 28),
            (Text("fsw.ps f2, 0(a0)"), Store, 4, 28),
        ] {
            let fault = MemoryFault { violation: Violation::Outside, access, bytes };
            let (fault, at) = (fault, if start == 28 { END } else { END - start });
            assert_eq!(found(run(&board, does, END - start)), Some((fault, at)), "{memory:?}");
        }
    }
}

#[test]
fn what_nothing_has_written_is_not_read() {
    for memory in MODELS {
        for (does, access, bytes, room) in CASES {
            let name = format!("{} on {memory:?}", name(does));
            let (board, _) = board(memory);
            let fault = MemoryFault { violation: Violation::Unwritten, access, bytes };
            let expected = (access != Store).then_some((fault, END - room));
            assert_eq!(found(run(&board, does, END - room)), expected, "{name}");
            // The first line was not written by those that store.
            let (load, fault) = (Text("lb a1, 0(a0)"), MemoryFault { access: Load, ..fault });
            let expected = Some((MemoryFault { bytes: 1, ..fault }, START));
            assert_eq!(found(run(&board, load, START)), expected, "{name}");
            board.dram.write(START, &[1]).unwrap();
            assert_eq!(found(run(&board, load, START)), None, "{name}");
            if access == Store && room == u64::from(bytes) {
                assert_eq!(found(run(&board, load, END - room)), None, "{name}");
            }
        }
    }
}

#[test]
fn code_is_not_written_and_freed_memory_not_used() {
    for memory in MODELS {
        let (board, buffers) = board(memory);
        board.dram.fill(START, END - START, 1).unwrap();
        buffers.read_only(START, 64);
        let fault = |violation, access| MemoryFault { violation, access, bytes: 4 };
        let load = |at| found(run(&board, Text("lw a1, 0(a0)"), at));
        let store = |at| found(run(&board, Text("sw a1, 0(a0)"), at));
        let atomic = |at| found(run(&board, Text("amoaddg.w zero, a1, (a0)"), at));
        let read_only = |access| Some((fault(Violation::ReadOnly, access), START + 60));
        assert_eq!((load(START + 60), store(START + 64)), (None, None));
        assert_eq!((store(START + 60), atomic(START + 60)), (read_only(Store), read_only(Atomic)));
        buffers.freed(START);
        let freed = |access| Some((fault(Violation::Freed, access), START + 64));
        assert_eq!((load(START + 64), store(START + 64)), (freed(Load), freed(Store)));
        let outside = Some((fault(Violation::Outside, Load), END));
        assert_eq!(load(END), outside, "{memory:?}");
        // Stacks are open, and memory that no one manages is not.
        assert_eq!(store(OPEN.end - 4160), None);
        assert!(store(OPEN.end).is_some() && store(MANAGED.end).is_some());
    }
}

#[test]
fn memory_that_is_not_watched_is_not_checked() {
    let board = Board::with(MachineConfig { shires: 1, ..MachineConfig::default() });
    assert_eq!(found(run(&board, Text("lw a1, 0(a0)"), END)), None);
}
