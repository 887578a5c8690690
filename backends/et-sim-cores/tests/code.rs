//! Code that changes: by DMA between launches, by stores of a kernel, and at the edges of pages.

#![allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: constants of their making, counts for the reader, and a panic is a failure"
)]

mod common;

use common::{A0, A3, A5, Asm, Board, CODE, DATA, RA, T0, T1, T2, ZERO};
use et_sim_cores::{HartExit, MachineConfig};

fn board() -> Board {
    Board::with(MachineConfig {
        host_threads: std::num::NonZeroUsize::MIN,
        ..MachineConfig::default()
    })
}

fn returns(value: u64) -> Asm {
    let mut code = Asm::new();
    code.exit(value, 0);
    code
}

/// The negative value that hart 0 returned.
fn returned(board: &Board, code: &Asm) -> HartExit {
    board.run(code, 1).failures[0].exit
}

#[test]
fn code_replaced_between_launches_is_noticed() {
    let board = board();
    for value in [-1, -2, -1] {
        let exit = returned(&board, &returns(value as u64));
        assert_eq!(exit, HartExit::NegativeReturn(value));
    }
}

#[test]
fn a_hart_executes_what_it_has_stored() {
    let board = board();
    // Executes a subroutine, replaces its instruction by another, executes it again.
    let mut code = Asm::new();
    let subroutine = CODE + 0x100;
    let add_2 = 0x0025_8593; // addi a1, a1, 2
    code.li(A5, subroutine).li(11, 0).add(A3, ZERO, ZERO);
    code.raw(0x0007_80E7); // jalr a5
    code.li(T0, add_2).sw(T0, A5, 0);
    code.raw(0x0007_80E7);
    code.addi(11, 11, -100).li(A0, 8).li(12, 0).raw(0x73);
    let mut routine = Asm::new();
    routine.addi(11, 11, 1).jr(RA);
    let mut bytes = code.bytes();
    assert!(bytes.len() <= 0x100);
    bytes.resize(0x100, 0);
    bytes.extend(routine.bytes());
    // One hart at a time: each must undo the change for the next.
    board.dram.write(CODE, &bytes).unwrap();
    let report = board.launch(1).wait();
    let first = report.failures.iter().find(|failure| failure.hart_id == 0).unwrap();
    assert_eq!(first.exit, HartExit::NegativeReturn(-97), "1 + 2 - 100");
    let second = report.failures.iter().find(|failure| failure.hart_id == 1).unwrap();
    assert_eq!(second.exit, HartExit::NegativeReturn(-96), "2 + 2 - 100: already replaced");
}

#[test]
fn data_next_to_code_can_be_stored_to() {
    let board = board();
    let mut code = Asm::new();
    code.li(A5, CODE + 0x200).li(T1, 1000).li(T2, 1);
    code.label("again").amoadd_d(ZERO, T2, A5).sd(T1, A5, 8).addi(T1, T1, -1);
    code.bne(T1, ZERO, "again").exit(0, 0);
    assert!(board.run(&code, 1).failures.is_empty());
    assert_eq!((board.u64(CODE + 0x200), board.u64(CODE + 0x208)), (64_000, 1));
}

#[test]
fn instructions_may_lie_on_two_pages() {
    let board = board();
    // c.nop; then 32-bit instructions at odd halfwords across the end of the page.
    let start = CODE + 0x1000 - 10;
    let mut code = Asm::new();
    code.li(A3, 0);
    for _ in 0..4 {
        code.addi(A3, A3, 1);
    }
    code.sd(A3, A0, 0).exit(0, 0);
    let mut entry = Asm::new();
    entry.li(A5, start).jr(A5);
    board.dram.write(start, &code.bytes()).unwrap();
    assert!(board.run(&entry, 1).failures.is_empty());
    assert_eq!(board.u64(DATA), 4);
}

#[test]
fn execution_runs_from_page_to_page_and_faults_at_the_end_of_memory() {
    let board = board();
    let end = 0x80_0000_0000 + board.dram.size();
    let start = end - 3 * 4096;
    let nops: Vec<u8> = 0x13_u32.to_le_bytes().repeat(3 * 1024);
    board.dram.write(start, &nops).unwrap();
    let mut code = Asm::new();
    code.li(A5, start).jr(A5);
    let report = board.run(&code, 1);
    assert_eq!(report.failures[63].exit, HartExit::Exception { cause: 1, tval: end });
    assert_eq!(report.failures[63].state.pc, end);
    // The last halfword as the first half of an instruction.
    board.dram.write(end - 4, &[0x01, 0, 0x13, 0]).unwrap();
    let report = board.run(&code, 1);
    assert_eq!(report.failures[0].exit, HartExit::Exception { cause: 1, tval: end });
    assert_eq!(report.failures[0].state.pc, end - 2);
}

#[test]
fn misaligned_accesses_work_across_lines_and_pages() {
    let board = board();
    let mut code = Asm::new();
    code.li(A5, DATA + 4096 - 3).li(T0, 0x1122_3344_5566_7788).sd(T0, A5, 0).ld(T1, A5, 0);
    code.sd(T1, A0, 0).exit(0, 0);
    assert!(board.run(&code, 1).failures.is_empty());
    assert_eq!(board.u64(DATA), 0x1122_3344_5566_7788);
    assert_eq!(board.u64(DATA + 4096 - 3), 0x1122_3344_5566_7788);
}
