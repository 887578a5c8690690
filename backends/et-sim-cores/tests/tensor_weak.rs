//! Tensor operations that are not waited for, on weak memory: their lateness must show for some
//! seed, and must not once they are waited for. Spec: ISA §3.8, §3.9

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

mod common;

use std::sync::Arc;

use common::{A0, Asm, Board, DATA, HARTID, T0, T1, ZERO};
use et_sim_cores::{Dram, FloatProfile, HartExit, MemoryModel, SingleHart, Step};

const CODE: u64 = 0x80_0600_0000;
const SEEDS: u64 = 200;

const TENSOR_REDUCE: u32 = 0x800;
const TENSOR_FMA: u32 = 0x801;
const TENSOR_LOAD: u32 = 0x83F;
const TENSOR_STORE: u32 = 0x87F;
const TENSOR_WAIT: u32 = 0x830;

/// What a program does, one step after the other.
#[derive(Clone, Copy)]
enum Do {
    /// Writes a register, with a stride of 64 and a number in x31.
    Write(u32, u64, u64),
    /// Waits for an event, if the test is one of a program that does.
    Wait(u64),
    /// Loads a word from this address, plainly.
    Load(u64),
    /// An instruction on floating-point registers: adds f30 to f31.
    Float,
}

/// Runs a program on a seed, with or without waiting; returns the words loaded, and f0.
fn run(program: &[Do], waits: bool, seed: u64) -> (Vec<u64>, u32) {
    let dram = Arc::new(Dram::new(128 << 20).unwrap());
    for word in 0..1024_u64 {
        let value = if word < 512 { 0x3F80_0000 } else { 0x4000_0000_u32 };
        dram.write(DATA + 4 * word, &value.to_le_bytes()).unwrap();
    }
    let memory = MemoryModel::Weak { seed };
    let mut hart =
        SingleHart::with_memory(FloatProfile::Hardware, memory, Arc::clone(&dram)).unwrap();
    let mut loaded = Vec::new();
    let mut pc = CODE;
    for &step in program {
        let word = match step {
            Do::Write(register, value, number) => {
                hart.set_x(10, value);
                hart.set_x(31, 64 | number);
                register << 20 | 10 << 15 | 1 << 12 | 0x73
            }
            Do::Wait(event) if waits => {
                hart.set_x(10, event);
                TENSOR_WAIT << 20 | 10 << 15 | 1 << 12 | 0x73
            }
            Do::Wait(_) => 0x13,
            Do::Load(address) => {
                hart.set_x(10, address);
                10 << 15 | 3 << 12 | 11 << 7 | 0x03
            }
            Do::Float => 31 << 20 | 30 << 15 | 31 << 7 | 0x53,
        };
        dram.write(pc, &word.to_le_bytes()).unwrap();
        hart.set_pc(pc);
        assert_eq!(hart.step(), Step::Retired);
        pc += 4;
        if let Do::Load(_) = step {
            loaded.push(hart.x(11));
        }
    }
    let first = hart.f(0)[0];
    (loaded, first)
}

/// Checks a program: right for every seed if it waits, and wrong for some if it does not.
fn check(what: &str, program: &[Do], expected: &(Vec<u64>, u32)) {
    let wrong = |waits| (0..SEEDS).filter(|&seed| run(program, waits, seed) != *expected).count();
    assert_eq!(wrong(true), 0, "{what}");
    assert!(wrong(false) > 0, "{what}: nothing shows without waiting");
}

/// Multiplies one row: A from line 0, B from line 1, one column of A, four of B.
const FMA: Do = Do::Write(TENSOR_FMA, 1 << 12 | 1, 0);
const LOAD_ONES: Do = Do::Write(TENSOR_LOAD, DATA | 1, 0);
const LOAD_TWOS: Do = Do::Write(TENSOR_LOAD, (DATA + 2048) | 1, 1);

#[test]
fn a_product_of_lines_that_are_still_loading() {
    let program = [LOAD_ONES, Do::Wait(0), FMA, Do::Wait(7), Do::Float];
    check("load", &program, &(vec![], 0x3F80_0000));
}

#[test]
fn lines_that_are_replaced_under_a_product() {
    let program = [
        Do::Write(TENSOR_LOAD, DATA | 1, 0),
        Do::Wait(0),
        FMA,
        Do::Wait(7),
        LOAD_TWOS,
        // Waited for in any case.
        Do::Write(TENSOR_WAIT, 1, 0),
        Do::Float,
    ];
    check("fma", &program, &(vec![], 0x3F80_0000));
}

#[test]
fn memory_behind_a_store_that_is_on_its_way() {
    // f0 and f1 are 0.
    let program = [Do::Write(TENSOR_STORE, 3 << 55 | DATA, 0), Do::Wait(8), Do::Load(DATA)];
    check("store", &program, &(vec![0], 0));
}

#[test]
fn instructions_on_registers_wait_by_themselves() {
    let program = [LOAD_ONES, Do::Write(TENSOR_WAIT, 0, 0), FMA, Do::Float];
    for seed in 0..SEEDS {
        assert_eq!(run(&program, true, seed).1, 0x3F80_0000, "{seed}");
    }
}

/// Harts 0 and 2 of a shire; all others end at once.
fn two_minions() -> Asm {
    let mut code = Asm::new();
    code.csrr(T0, HARTID).beq(T0, ZERO, "first").li(T1, 2).beq(T0, T1, "second").exit(0, 0);
    code
}

#[test]
fn a_sender_and_its_receiver_meet_in_any_order() {
    const COUNT_ONE: u64 = 8 << 24 | 1 << 16;
    let mut code = two_minions();
    // fmv.w.x f0, t0; send f0 to minion 0; wait; fmv.x.w.
    code.label("second").li(T0, 77).raw(0xF002_8053).li(A0, COUNT_ONE);
    code.csrrw(ZERO, TENSOR_REDUCE, A0).csrwi(TENSOR_WAIT, 9).exit(0, 0);
    code.label("first").li(A0, COUNT_ONE | 1 << 3 | 1).csrrw(ZERO, TENSOR_REDUCE, A0);
    code.raw(0xE000_02D3).li(T1, DATA).sd(T0, T1, 0).exit(0, 0);
    for threads in [1, 2] {
        let board = Board::new(threads);
        let report = board.run(&code, 1);
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(board.u64(DATA), 77);
    }
}

#[test]
fn who_waits_for_a_partner_is_ended_by_an_abort() {
    let mut code = two_minions();
    // Both receive, neither sends.
    code.label("second").li(A0, 1 << 16 | 1).csrrw(ZERO, TENSOR_REDUCE, A0).exit(0, 0);
    code.label("first").li(A0, 1 << 16 | 1 << 3 | 1).csrrw(ZERO, TENSOR_REDUCE, A0).exit(0, 0);
    let board = Board::new(2);
    board.load(&code).launch(1);
    board.until("sleep", || board.machine.sleeping_shires() == 1);
    board.machine.abort();
    let report = board.wait();
    let failed: Vec<_> = report.failures.iter().map(|hart| (hart.hart_id, hart.exit)).collect();
    assert_eq!(failed, [(0, HartExit::Aborted), (2, HartExit::Aborted)]);
}
