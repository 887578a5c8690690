//! Kernels on many harts: start state, ends, scheduling, abort.

#![allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: constants of their making, counts for the reader, and a panic is a failure"
)]

mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::{
    A0, A1, A2, A3, A4, A5, Asm, Board, CODE, CREDITS, DATA, FCC, FLB, HARTID, LONG, RA, SP, STALL,
    T0, T1, T2, ZERO,
};
use et_sim_cores::{
    CoresError, CreditAbort, HartExit, HartFailure, Launch, Machine, MachineConfig, MemoryModel,
    Stack, Timing,
};

fn single() -> MachineConfig {
    MachineConfig { host_threads: std::num::NonZeroUsize::MIN, ..MachineConfig::default() }
}

#[test]
fn machine_can_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Machine>();
    check::<et_sim_cores::Dram>();
}

#[test]
fn all_harts_start_as_the_interface_says() {
    let board = Board::new(2);
    // Each hart stores sp, a0, a1, a2, the saved frame pointer and return address at its place.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).slli(T0, T0, 6).add(T0, T0, A0);
    code.sd(SP, T0, 0).sd(A0, T0, 8).sd(A1, T0, 16).sd(A2, T0, 24);
    code.ld(T1, SP, 16).sd(T1, T0, 32).ld(T1, SP, 24).addi(T1, T1, 1).sd(T1, T0, 40);
    code.sd(RA, T0, 48).exit(7, 0);
    let report = board.run(&code, (1 << 33) - 1);
    assert!(report.failures.is_empty());
    assert_eq!(report.harts, 2080);
    for (index, hart) in (0..2048).chain(2080..2112_u64).enumerate() {
        let at = DATA + hart * 64;
        let top = 0x80_0580_0000 - 4160 * index as u64;
        let stored: Vec<u64> = (0..7).map(|word| board.u64(at + 8 * word)).collect();
        assert_eq!(stored, [top - 32, DATA, DATA - 64, 0, top, 1, 0], "hart {hart}");
    }
    assert_eq!(board.u64(DATA + 2048 * 64), 0, "a firmware hart ran the kernel");
}

#[test]
fn failures_are_reported_in_order_and_others_finish() {
    let board = Board::new(2);
    let mut code = Asm::new();
    code.csrr(T0, HARTID).andi(T1, T0, 63);
    code.li(T2, 3).beq(T1, T2, "negative").li(T2, 5).beq(T1, T2, "abort");
    code.li(T2, 7).beq(T1, T2, "fault").li(T2, 9).beq(T1, T2, "bus");
    code.li(T2, 11).beq(T1, T2, "tensor");
    code.li(T2, 1).amoadd_d(ZERO, T2, A0).exit(0, 0);
    code.label("negative").exit((-5_i64) as u64, 0);
    code.label("abort").exit(9, 1);
    code.label("fault").li(A5, 0x1234).sd(ZERO, A5, 0);
    code.label("bus").li(A5, 0x1_0034_0300).ld(A4, A5, 0);
    code.label("tensor").csrwi(0x808, 4).exit(0, 0);
    let report = board.run(&code, 0b101);
    let exits: Vec<_> = report.failures.iter().map(|f| (f.hart_id, f.exit)).collect();
    let fault = HartExit::Exception { cause: 7, tval: 0x1234 };
    let expected = [
        (3, HartExit::NegativeReturn(-5)),
        (5, HartExit::SelfAbort(9)),
        (7, fault),
        (9, HartExit::BusError),
    ];
    let both: Vec<_> =
        [0, 128].iter().flat_map(|base| expected.map(|(hart, exit)| (base + hart, exit))).collect();
    assert_eq!(exits, both);
    assert_eq!(board.u64(DATA), 2 * 59);
    let state = &report.failures[2].state;
    assert_eq!((state.x[0], state.x[15]), (0, 0x1234));
    assert_eq!(board.u64(state.pc) as u32, 0x0007_B023, "pc is at the store");
    assert_ne!(state.sstatus & 3 << 13, 0);
    // A hart that gives up stands behind its call; one with tensor errors has not failed.
    let behind = report.failures[1].state.pc;
    assert_eq!(board.u64(behind - 4) as u32, 0x73);
}

#[test]
fn memory_that_is_not_for_kernels_traps_with_the_address_used() {
    let closed = [
        (0x80_0000_0000, 0x80_0000_0000),
        (0x80_0080_0000, 0x80_0080_0000),
        (0x80_0100_0000, 0x80_0100_0000),
        (0x80_03FF_FFF8, 0x80_03FF_FFF8),
        (0x40_0000_0000, 0x40_0000_0000),
        (0x7F_FFFF_FFF8, 0x7F_FFFF_FFF8),
        // Not canonical.
        (0x4141_4141_4141_4140, 0xFFFF_4141_4141_4140),
        (0x0001_0080_0600_0000, 0xFFFF_0080_0600_0000),
    ];
    let board = Board::with(single());
    for (address, tval) in closed {
        let cause = |code: &mut Asm| {
            let report = board.run(code.exit(0, 0), 1);
            assert_eq!(report.failures.len(), 64, "{address:#x}");
            let HartFailure { exit, state, .. } = &report.failures[0];
            let HartExit::Exception { cause, tval: seen } = exit else { panic!("{exit:?}") };
            assert_eq!(*seen, tval, "{address:#x}");
            (*cause, state.pc)
        };
        assert_eq!(cause(Asm::new().li(A5, address).ld(A4, A5, 0)).0, 5, "{address:#x}");
        assert_eq!(cause(Asm::new().li(A5, address).sd(A4, A5, 0)).0, 7, "{address:#x}");
        assert_eq!(cause(Asm::new().li(A5, address).amoadd_d(A4, A4, A5)).0, 7, "{address:#x}");
        assert_eq!(cause(Asm::new().li(A5, address).jr(A5)), (1, tval), "{address:#x}");
    }
}

#[test]
fn a_stack_overflow_traps_at_the_guard_and_not_before() {
    let memory = MemoryModel::Weak { seed: 1 };
    for config in [single(), MachineConfig { memory, ..single() }] {
        let board = Board::with(config);
        // Every hart fills its stack downwards, words at a time, and ends after A4 words.
        let fill = |words: u64| {
            let mut code = Asm::new();
            code.addi(SP, SP, 32).li(A4, words).label("next").beq(A4, ZERO, "done");
            code.addi(A4, A4, -1).addi(SP, SP, -8).sd(A4, SP, 0).j("next");
            code.label("done").exit(0, 0);
            code
        };
        let run = |words, guard_bytes| {
            board.load(&fill(words));
            let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes };
            board.launch_with(0b10, stack).wait()
        };
        assert!(run(512, 64).failures.is_empty(), "4 KiB are there");
        let report = run(513, 64);
        assert_eq!(report.failures.len(), 64);
        for failure in &report.failures {
            let tval = 0x80_0580_0000 - 4160 * u64::from(failure.hart_id) - 4104;
            assert_eq!(failure.exit, HartExit::Exception { cause: 7, tval });
        }
        // The card finds nothing wrong with that.
        assert!(run(513, 0).failures.is_empty());
    }
}

type Access = fn(&mut Asm) -> &mut Asm;

#[test]
fn guards_hold_against_every_kind_of_access() {
    let board = Board::with(single());
    let guard = 0x80_0580_0000 - 4160;
    let causes: [(Access, u64); 6] = [
        (|code| code.ld(A4, A5, 0), 5),
        // Half in the guard.
        (|code| code.addi(A5, A5, 60).ld(A4, A5, 0), 5),
        (|code| code.sw(A4, A5, 60), 7),
        (|code| code.amoadd_d(A4, A4, A5), 7),
        // flq2 f1, 32(a5); fsq2 f1, 32(a5)
        (|code| code.raw(32 << 20 | A5 << 15 | 5 << 12 | 1 << 7 | 0x07), 5),
        (|code| code.raw(1 << 25 | 1 << 20 | A5 << 15 | 5 << 12 | 0x27), 7),
    ];
    for (number, (access, expected)) in causes.into_iter().enumerate() {
        let mut code = Asm::new();
        access(code.li(A5, guard));
        board.load(code.exit(0, 0));
        let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes: 64 };
        let report = board.launch_with(1, stack).wait();
        let HartExit::Exception { cause, .. } = report.failures[0].exit else {
            panic!("{number}: {:?}", report.failures[0])
        };
        assert_eq!((cause, report.failures.len()), (expected, 64), "{number}");
    }
}

#[test]
fn falling_off_the_end_traps_at_address_zero() {
    let board = Board::with(single());
    let mut code = Asm::new();
    code.jr(RA);
    let report = board.run(&code, 1);
    assert_eq!(report.failures.len(), 64);
    assert_eq!(report.failures[0].exit, HartExit::Exception { cause: 1, tval: 0 });
    assert_eq!(report.failures[0].state.pc, 0);
}

#[test]
fn environment_calls_return_to_the_kernel() {
    let board = Board::with(single());
    let mut code = Asm::new();
    code.add(A5, A0, ZERO);
    // The last two are the bank operation with an operation it knows and one it does not.
    let calls = [(1, 0), (6, 0), (11, 0), (301, 0), (999, 0), (7, 3), (7, 4)];
    for (slot, (call, operation)) in calls.into_iter().enumerate() {
        code.li(A3, operation).li(A0, call).raw(0x73).sd(A0, A5, 8 * slot as i32);
    }
    // csrr a0, mhartid is emulated.
    code.raw(0xF140_2573).sd(A0, A5, 56).exit(0, 0);
    assert!(board.run(&code, 1).failures.is_empty());
    let results: Vec<u64> = (0..7).map(|slot| board.u64(DATA + 8 * slot)).collect();
    assert_eq!(results, [0, 0, 0, 0, u64::MAX, 0, u64::MAX]);
    assert!(board.u64(DATA + 56) < 64);
}

/// The barrier of the device libraries, over all harts of a shire: see the ISA notes, section 3.3.
fn shire_barrier(code: &mut Asm, limit: u64, skip: &'static str) {
    code.li(T0, limit << 5).csrrw(T1, FLB, T0).beq(T1, ZERO, skip);
    // The last to join gives a credit of counter 0 to both threads of all minions.
    code.li(T0, CREDITS).li(T1, 0xFFFF_FFFF).sd(T1, T0, 0).sd(T1, T0, 16);
    code.label(skip).csrwi(FCC, 0);
}

#[test]
fn barriers_hold_all_harts_of_several_shires() {
    for threads in [1, 2, 3] {
        let board = Board::new(threads);
        // Between two barriers every hart must find the sum of its shire complete.
        let mut code = Asm::new();
        code.csrr(A2, HARTID).srli(A3, A2, 6).slli(A3, A3, 6).add(A3, A3, A0);
        code.li(A4, 0);
        for (round, skip) in [(1, "first"), (2, "second"), (3, "third")] {
            code.li(T2, 1).amoadd_d(ZERO, T2, A3);
            shire_barrier(&mut code, 63, skip);
            code.ld(T2, A3, 0).li(T1, round * 64).xor(T2, T2, T1).add(A4, A4, T2);
            let again: &'static str = match round {
                1 => "again1",
                2 => "again2",
                _ => "again3",
            };
            shire_barrier(&mut code, 63, again);
        }
        code.slli(A5, A2, 3).add(A5, A5, A0).li(T0, 0x1_0000).add(A5, A5, T0).sd(A4, A5, 0);
        code.exit(0, 0);
        let report = board.run(&code, 0b1001_0110);
        assert!(report.failures.is_empty(), "{threads}: {:?}", report.failures[0]);
        for hart in 0..8 * 64 {
            assert_eq!(board.u64(DATA + 0x1_0000 + 8 * hart), 0, "{threads}: hart {hart}");
        }
    }
}

#[test]
fn credits_cross_shires_and_pass_memory_on() {
    for threads in [1, 2] {
        let board = Board::new(threads);
        // Hart 0 of shire 0 and hart 0 of shire 1 play ping-pong over one word.
        let mut code = Asm::new();
        code.csrr(A2, HARTID).li(A3, 500).li(A4, 1).li(T0, 1);
        code.li(T1, CREDITS - (0xFF << 22)).li(T2, CREDITS - (0xFE << 22));
        code.beq(A2, ZERO, "serve").li(A5, 64).beq(A2, A5, "return").exit(0, 0);
        code.label("serve").ld(A5, A0, 0).addi(A5, A5, 1).sd(A5, A0, 0).sd(T0, T2, 0);
        code.csrwi(FCC, 0).addi(A3, A3, -1).bne(A3, ZERO, "serve").exit(0, 0);
        code.label("return").csrwi(FCC, 0);
        code.ld(A5, A0, 0).addi(A5, A5, 1).sd(A5, A0, 0).sd(T0, T1, 0);
        code.addi(A3, A3, -1).bne(A3, ZERO, "return").exit(0, 0);
        let report = board.run(&code, 0b11);
        assert!(report.failures.is_empty());
        assert_eq!(board.u64(DATA), 1000);
    }
}

#[test]
fn a_spinning_hart_does_not_starve_the_one_it_waits_for() {
    let board = Board::with(single());
    // All harts wait until the last one, which is scheduled last, has stored.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).li(T1, 63).beq(T0, T1, "store");
    code.label("spin").ld(T2, A0, 0).beq(T2, ZERO, "spin").exit(0, 0);
    code.label("store").li(T2, 1).sd(T2, A0, 0).exit(0, 0);
    assert!(board.run(&code, 1).failures.is_empty());
}

#[test]
fn harts_take_turns_in_a_lock_built_from_atomics() {
    for threads in [1, 2] {
        let board = Board::new(threads);
        // 64 harts increment a plain counter 200 times each under a ticket lock.
        let mut code = Asm::new();
        code.li(A3, 200).li(T0, 1);
        code.label("again").amoadd_d(A4, T0, A0).addi(A5, A0, 64);
        code.label("spin").ld(T1, A5, 0).bne(T1, A4, "spin").fence();
        code.ld(T2, A0, 128).addi(T2, T2, 1).sd(T2, A0, 128).fence();
        code.amoadd_d(ZERO, T0, A5).addi(A3, A3, -1).bne(A3, ZERO, "again").exit(0, 0);
        assert!(board.run(&code, 1).failures.is_empty());
        assert_eq!(board.u64(DATA + 128), 64 * 200);
    }
}

#[test]
fn abort_ends_an_endless_loop_at_once_and_the_machine_goes_on() {
    let board = Board::new(2);
    let mut endless = Asm::new();
    endless.li(A5, 77).label("here").j("here");
    board.load(&endless).launch(0b11);
    assert!(board.machine.is_running());
    assert!(matches!(relaunch(&board), Err(CoresError::Busy)));
    board.machine.abort();
    let report = board.wait();
    assert_eq!(report.failures.len(), 128);
    let entered = |f: &&et_sim_cores::HartFailure| f.state.pc == CODE + 4;
    for failure in report.failures.iter().filter(entered) {
        assert_eq!((failure.exit, failure.state.x[15]), (HartExit::Aborted, 77));
    }
    assert!(!board.machine.is_running());
    board.machine.abort();
    let mut quick = Asm::new();
    quick.exit(0, 0);
    assert!(board.run(&quick, 1).failures.is_empty(), "an abort of nothing has no effect");
}

fn relaunch(board: &Board) -> Result<(), CoresError> {
    let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    let launch = Launch { entry: CODE, args: 0, env: 0, shire_mask: 1, stack };
    board.machine.launch(launch, Box::new(|_| {}))
}

#[test]
fn a_deadlock_sleeps_until_abort() {
    let board = Board::new(2);
    // Thread 0 waits for a credit that never comes, thread 1 stalls.
    let mut code = Asm::new();
    code.csrr(T0, HARTID).andi(T0, T0, 1).bne(T0, ZERO, "stall");
    code.csrwi(FCC, 1);
    code.label("stall").csrrw(ZERO, STALL, ZERO).exit(0, 0);
    board.load(&code).launch(1 << 32 | 1);
    // When all harts have got there, which takes as long as the machine lets it, the threads of
    // the cores sleep: some stretch of 200 ms costs no host time.
    let (_keep, never) = mpsc::channel::<()>();
    let idle = (0..150).any(|_| {
        let before = cpu_time();
        assert!(never.recv_timeout(Duration::from_millis(200)).is_err());
        // Threads of other tests that end in between take their time away with them.
        let spent = |(before, after): (u64, u64)| after.checked_sub(before);
        before.zip(cpu_time()).is_none_or(|times| spent(times).is_some_and(|spent| spent < 10))
    });
    assert!(idle, "a deadlock takes host time for ever");
    board.machine.abort();
    let report = board.wait();
    assert_eq!(report.failures.len(), 96);
    assert!(report.failures.iter().all(|failure| failure.exit == HartExit::Aborted));
    assert!(report.failures.iter().all(|failure| failure.state.pc > CODE));
}

#[test]
fn a_hart_that_waits_for_a_credit_may_outlast_an_abort() {
    let config = MachineConfig { credit_abort: CreditAbort::Waits, ..single() };
    for memory in [MemoryModel::Flat, MemoryModel::Weak { seed: 3 }] {
        let board = Board::with(MachineConfig { memory, ..config });
        // Thread 0 waits for a credit, thread 1 stalls; shire 1 ends at once.
        let mut code = Asm::new();
        code.csrr(T0, HARTID).andi(T1, T0, 64).bne(T1, ZERO, "end");
        code.andi(T0, T0, 1).bne(T0, ZERO, "stall").csrwi(FCC, 1);
        code.label("stall").csrrw(ZERO, STALL, ZERO).label("end").exit(0, 0);
        board.load(&code).launch(0b11);
        let sleep = || board.until("sleep", || board.machine.sleeping_shires() == 1);
        for _ in 0..2 {
            sleep();
            board.machine.abort();
        }
        sleep();
        assert!(board.machine.is_running());
        assert!(matches!(relaunch(&board), Err(CoresError::Busy)));
        board.machine.reset();
        let report = board.wait();
        let stopped: Vec<_> = report.failures.iter().map(|f| (f.hart_id, f.exit)).collect();
        let expected: Vec<_> = (0..64).map(|hart| (hart, HartExit::Aborted)).collect();
        assert_eq!(stopped, expected);
        assert_eq!(board.machine.sleeping_shires(), 0);
        let mut quick = Asm::new();
        quick.exit(0, 0);
        assert!(board.run(&quick, 0b11).failures.is_empty());
    }
}

/// Host time of the core threads in clock ticks, if the host tells.
fn cpu_time() -> Option<u64> {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        if head.contains("et-core") {
            let fields: Vec<&str> = tail.split_whitespace().collect();
            total += fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
        }
    }
    Some(total)
}

#[test]
fn reset_forgets_the_kernel_and_the_scratchpads() {
    let board = Board::new(2);
    let mut code = Asm::new();
    code.li(T0, 0x8000_0000).li(T1, 99).sd(T1, T0, 0).label("here").j("here");
    board.load(&code).launch(1);
    let mut word = [0; 8];
    while word[0] != 99 {
        board.machine.scratchpads().read(0x8000_0000, &mut word).unwrap();
        std::thread::yield_now();
    }
    board.machine.reset();
    assert!(!board.machine.is_running());
    board.machine.scratchpads().read(0x8000_0000, &mut word).unwrap();
    assert_eq!(word, [0; 8]);
    assert!(board.wait().failures.iter().all(|failure| failure.exit == HartExit::Aborted));
}

#[test]
fn the_next_launch_can_come_from_the_report() {
    let board = Board::new(2);
    let mut code = Asm::new();
    code.li(T0, 1).amoadd_d(ZERO, T0, A0).exit(0, 0);
    board.load(&code);
    let (sender, receiver) = mpsc::channel();
    let machine = std::sync::Arc::clone(&board.machine);
    let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    let launch = Launch { entry: CODE, args: DATA, env: 0, shire_mask: 1, stack };
    let again = Box::new(move |_| {
        machine.launch(launch, Box::new(move |report| drop(sender.send(report)))).unwrap();
    });
    board.machine.launch(launch, again).unwrap();
    assert!(receiver.recv_timeout(LONG).unwrap().failures.is_empty());
    assert_eq!(board.u64(DATA), 128);
}

#[test]
fn dropping_a_busy_machine_reports_and_ends() {
    let board = Board::new(2);
    let mut endless = Asm::new();
    endless.label("here").j("here");
    board.load(&endless);
    let machine = Machine::new(single(), std::sync::Arc::clone(&board.dram)).unwrap();
    let (sender, receiver) = mpsc::channel();
    let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    let launch = Launch { entry: CODE, args: DATA, env: 0, shire_mask: 1, stack };
    machine.launch(launch, Box::new(move |report| drop(sender.send(report)))).unwrap();
    drop(machine);
    assert_eq!(receiver.recv_timeout(LONG).unwrap().failures.len(), 64);
}

#[test]
fn bad_requests_are_refused() {
    let config = MachineConfig { shires: 0b11, ..single() };
    let board = Board::with(config);
    let stack = Stack { top: 0x80_0580_0000, bytes_per_hart: 4160, guard_bytes: 0 };
    for shire_mask in [0, 0b100, 1 << 40] {
        let launch = Launch { entry: CODE, args: 0, env: 0, shire_mask, stack };
        let refused = board.machine.launch(launch, Box::new(|_| {}));
        assert!(matches!(refused, Err(CoresError::ShireMask { .. })));
    }
    for config in [
        MachineConfig { shires: 0, ..single() },
        MachineConfig { shires: 1 << 33, ..single() },
        MachineConfig { fuel: 0, ..single() },
        MachineConfig { frequency_mhz: 0, ..single() },
    ] {
        let refused = Machine::new(config, std::sync::Arc::clone(&board.dram));
        assert!(matches!(refused, Err(CoresError::Config { .. })));
    }
}

#[test]
fn deterministic_machines_agree() {
    // Harts race for tickets and read the cycle counter.
    let mut code = Asm::new();
    code.csrr(A2, HARTID).slli(A2, A2, 4).add(A2, A2, A0).li(T0, 1).li(A3, 300);
    code.label("again").amoadd_d(A4, T0, A0).addi(A3, A3, -1).bne(A3, ZERO, "again");
    code.csrr(A5, 0xC03).sd(A4, A2, 64).sd(A5, A2, 72).exit(0, 0);
    let run = || {
        let timing = Timing::Deterministic;
        let board = Board::with(MachineConfig { fuel: 50, timing, ..MachineConfig::default() });
        let report = board.run(&code, 0b11);
        assert!(report.failures.is_empty());
        let seen: Vec<u64> = (0..256).map(|word| board.u64(DATA + 64 + 8 * word)).collect();
        (seen, report.instructions, report.cycles)
    };
    assert_eq!(run(), run());
}

#[test]
fn instructions_of_all_harts_are_counted() {
    let board = Board::new(2);
    let mut code = Asm::new();
    code.li(A3, 1000).label("again").addi(A3, A3, -1).bne(A3, ZERO, "again").exit(0, 0);
    let report = board.run(&code, 0b11);
    // li, 1000 times two, three for the call; the call itself ends the hart.
    assert_eq!(report.instructions, 128 * (1 + 2000 + 3));
    assert_eq!(report.harts, 128);
    assert!(report.wall > Duration::ZERO && board.machine.cycles() >= report.cycles);
}
