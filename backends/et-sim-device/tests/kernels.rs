//! Kernels on the simulated cores, from a few instructions each.

mod common;

use std::time::Duration;

use common::{
    HOST_BASE, HostBuffer, LaunchParams, Rig, abort, cm_reset, cores_config, dma_read, dma_write,
    echo, kernel_abort, launch, params, read_node, write_node,
};
use et_devapi::abi::{self, ExceptionEntry, ExceptionType};
use et_devapi::msg::Tag;
use et_devapi::msg::ops::{
    AbortStatus, Body, Completion, DmaStatus, KernelAbortStatus, LaunchStatus, StackConfig,
    TraceConfig,
};
use et_hal::{DeviceAccess, DeviceAddr};
use et_sim_device::{CreditAbort, MemoryKind, StackGuards};
use zerocopy::FromBytes;

/// `li a0, 8; li a1, VALUE; li a2, TYPE; ecall`
fn end_with(value: i32, kind: u32) -> Vec<u32> {
    let li = |register: u32, value: u32| (value & 0xfff) << 20 | register << 7 | 0x13;
    vec![li(10, 8), li(11, value.cast_unsigned()), li(12, kind), 0x0000_0073]
}

/// `j .`
const FOREVER: u32 = 0x0000_006f;
/// An instruction of zeros, which is illegal.
const ILLEGAL: u32 = 0;

fn rig() -> Rig {
    let mut config = cores_config();
    config.shires = 1 << 32 | 0b11;
    Rig::new(config)
}

/// Puts code at the entry that [`params`] names.
fn load(rig: &Rig, code: &[u32]) {
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(rig.board.dram().write(HOST_BASE, &bytes).is_ok());
    rig.board.bar0_written();
}

fn run(rig: &mut Rig, code: &[u32], params: &LaunchParams<'_>) -> (LaunchStatus, u64) {
    load(rig, code);
    rig.send(0, &launch(1, params));
    match rig.next() {
        Completion { body: Body::Launch { status, error, .. }, .. } => {
            (status, error.map_or(0, |e| e.shire_mask))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_that_returns_completes() {
    let mut rig = rig();
    for shire_mask in [1, 0b10, 0b11, 1 << 32, 1 << 32 | 0b11] {
        let wanted = LaunchParams { shire_mask, ..params() };
        let result = run(&mut rig, &end_with(0, 0), &wanted);
        assert_eq!(result, (LaunchStatus::KernelCompleted, 0));
    }
    // A positive value is a success too.
    assert_eq!(run(&mut rig, &end_with(5, 0), &params()), (LaunchStatus::KernelCompleted, 0));
}

#[test]
fn failures_have_their_statuses() {
    let mut rig = rig();
    assert_eq!(run(&mut rig, &end_with(-5, 0), &params()), (LaunchStatus::Error, 0));
    assert_eq!(run(&mut rig, &end_with(1, 1), &params()), (LaunchStatus::Error, 0));
    assert_eq!(run(&mut rig, &[ILLEGAL], &params()), (LaunchStatus::Exception, 1));
    let both = LaunchParams { shire_mask: 0b11, ..params() };
    assert_eq!(run(&mut rig, &[ILLEGAL], &both), (LaunchStatus::Exception, 0b11));
}

#[test]
fn a_trap_is_dumped_for_every_hart() {
    let mut rig = rig();
    let buffer = HOST_BASE + 0x10_0000;
    let dram = std::sync::Arc::clone(rig.board.dram());
    dram.fill(buffer, abi::EXCEPTION_BUFFER_BYTES as u64, abi::EXCEPTION_FILL).unwrap();
    let wanted = LaunchParams {
        args: Some(DeviceAddr::new(HOST_BASE + 0x8000)),
        exception_buffer: Some(DeviceAddr::new(buffer)),
        shire_mask: 0b10,
        ..params()
    };
    // nop; illegal
    let result = run(&mut rig, &[0x0000_0013, ILLEGAL], &wanted);
    assert_eq!(result, (LaunchStatus::Exception, 0b10));
    let word = |index: u64, field: u64| {
        let mut bytes = [0; 8];
        dram.read(buffer + index * 320 + 8 * field, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    for hart in 64..128 {
        assert_eq!(word(hart, 0), ExceptionType::UmodeException as u64);
        assert_eq!(word(hart, 2), hart);
        assert_eq!(word(hart, 3), HOST_BASE + 4, "sepc");
        assert_eq!(word(hart, 6), 2, "scause");
        // Field 8 is x1: x2 is the stack pointer, x10 the arguments.
        assert_eq!(word(hart, 9), 0x80_0580_0000 - hart * 4160 - 32);
        assert_eq!(word(hart, 17), HOST_BASE + 0x8000);
    }
    assert_eq!(word(63, 2), 0xcdcd_cdcd_cdcd_cdcd);
    assert_eq!(word(128, 2), 0xcdcd_cdcd_cdcd_cdcd);
}

#[test]
fn a_kernel_that_gives_up_is_dumped_behind_its_call() {
    let mut rig = rig();
    let buffer = HOST_BASE + 0x10_0000;
    let exception_buffer = Some(DeviceAddr::new(buffer));
    let wanted = LaunchParams { exception_buffer, ..params() };
    let code = end_with(1, 1);
    let behind = HOST_BASE + 4 * code.len() as u64;
    assert_eq!(run(&mut rig, &code, &wanted), (LaunchStatus::Error, 0));
    let mut entry = [0; size_of::<ExceptionEntry>()];
    rig.board.dram().read(buffer + 63 * entry.len() as u64, &mut entry).unwrap();
    let entry = ExceptionEntry::read_from_bytes(&entry).unwrap();
    assert_eq!((entry.r#type.get(), entry.hart_id.get()), (ExceptionType::SelfAbort as u64, 63));
    assert_eq!((entry.scause.get(), entry.sepc.get(), entry.stval.get()), (8, behind, 0));
}

#[test]
fn a_default_stack_ends_at_its_guard_and_a_custom_one_where_it_was_asked_to() {
    // lui t0, 1; sub t0, sp, t0; sd zero, 24(t0): 8 bytes below the 4 KiB of a default stack
    let mut code = vec![0x0000_12b7, 0x4051_02b3, 0x0002_bc23];
    code.extend(end_with(0, 0));
    let mut rig = rig();
    assert_eq!(run(&mut rig, &code, &params()), (LaunchStatus::Exception, 1));
    let stack = StackConfig { stack_base_offset: 16.into(), stack_size: 128.into() };
    let custom = LaunchParams { stack: Some(stack), ..params() };
    assert_eq!(run(&mut rig, &code, &custom), (LaunchStatus::KernelCompleted, 0));

    let mut config = cores_config();
    config.stack_guards = StackGuards::None;
    let mut rig = Rig::new(config);
    assert_eq!(run(&mut rig, &code, &params()), (LaunchStatus::KernelCompleted, 0));
}

#[test]
fn traces_outside_device_memory_go_nowhere() {
    let mut rig = rig();
    for buffer in [0, 0x40, 0x9000_0000, !63] {
        let trace = TraceConfig {
            buffer: buffer.into(),
            buffer_size: 4096.into(),
            threshold: 0.into(),
            shire_mask: 1.into(),
            thread_mask: u64::MAX.into(),
            event_mask: u32::MAX.into(),
            filter_mask: 0.into(),
        };
        let wanted = LaunchParams { trace: Some(trace), ..params() };
        let result = run(&mut rig, &end_with(0, 0), &wanted);
        assert_eq!(result, (LaunchStatus::KernelCompleted, 0), "{buffer:#x}");
    }
}

#[test]
fn kernels_read_their_environment_and_arguments() {
    let mut rig = rig();
    let args = HOST_BASE + 0x8000;
    // ld t0, 8(a1); sd t0, 0(a0); lw t1, 16(a1); sw t1, 8(a0); sd a1, 16(a0)
    let mut code = vec![0x0085_b283, 0x0055_3023, 0x0105_a303, 0x0065_2423, 0x00b5_3823];
    code.extend(end_with(0, 0));
    let wanted = LaunchParams { args: Some(DeviceAddr::new(args)), shire_mask: 0b11, ..params() };
    assert_eq!(run(&mut rig, &code, &wanted).0, LaunchStatus::KernelCompleted);
    let mut bytes = [0; 24];
    rig.board.dram().read(args, &mut bytes).unwrap();
    assert_eq!(bytes[..12], [3, 0, 0, 0, 0, 0, 0, 0, 0x58, 2, 0, 0]);
    assert_eq!(bytes[16..], 0x9000_7740_u64.to_le_bytes(), "where firmware has it");
}

#[test]
fn results_in_caches_are_in_memory_when_the_launch_is_reported() {
    for seed in 0..10 {
        let mut config = cores_config();
        config.memory = if seed == 0 { MemoryKind::Private } else { MemoryKind::Weak };
        config.seed = seed;
        let mut rig = Rig::new(config);
        let args = HOST_BASE + 0x8000;
        // csrr t0, hartid; slli t1, t0, 3; add t1, t1, a0; addi t0, t0, 1; sd t0, 0(t1)
        let mut code = vec![0xcd00_22f3, 0x0032_9313, 0x00a3_0333, 0x0012_8293, 0x0053_3023];
        code.extend(end_with(0, 0));
        let wanted = LaunchParams { args: Some(DeviceAddr::new(args)), ..params() };
        for _ in 0..2 {
            rig.board.dram().fill(args, 512, 0).unwrap();
            assert_eq!(run(&mut rig, &code, &wanted).0, LaunchStatus::KernelCompleted);
            for hart in 0..64 {
                let mut word = [0; 8];
                rig.board.dram().read(args + 8 * hart, &mut word).unwrap();
                assert_eq!(u64::from_le_bytes(word), hart + 1, "seed {seed}");
            }
        }
        // The last launch can still be stopped.
        load(&rig, &[FOREVER]);
        rig.send(0, &launch(4, &params()));
        rig.send_high(0, &abort(5));
        let Body::Launch { status, .. } = rig.next().body else { panic!("no launch") };
        assert_eq!(status, LaunchStatus::HostAborted);
    }
}

#[test]
fn new_code_at_the_same_place_is_executed() {
    let mut rig = rig();
    for round in 0..20 {
        let (code, expected) = if round % 2 == 0 {
            (end_with(0, 0), LaunchStatus::KernelCompleted)
        } else {
            (end_with(-1, 0), LaunchStatus::Error)
        };
        assert_eq!(run(&mut rig, &code, &params()).0, expected, "{round}");
    }
}

#[test]
fn copies_reach_the_scratchpads() {
    let mut rig = rig();
    let host = HostBuffer::map(&rig.board, 0x1000, 0x4000, DeviceAccess::ReadWrite);
    let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
    host.write(0, &data);
    let shire_1 = 0x8080_0000 + 36;
    let status = |rig: &mut Rig, message: &[u8]| {
        rig.send(0, message);
        match rig.next() {
            Completion { body: Body::DmaRead { status, .. }, .. }
            | Completion { body: Body::DmaWrite { status, .. }, .. } => status,
            other => panic!("{other:?}"),
        }
    };
    let there = dma_write(1, &[write_node(0x1000, shire_1, 5000)]);
    assert_eq!(status(&mut rig, &there), DmaStatus::Complete);
    let back = dma_read(2, &[read_node(0x3000, shire_1, 5000)]);
    assert_eq!(status(&mut rig, &back), DmaStatus::Complete);
    assert_eq!(host.read(0x2000, 5000), data);
    // Behind the 2.5 MiB of a shire there is nothing.
    let hole = dma_write(3, &[write_node(0x1000, 0x8080_0000 + 0x28_0000 - 4, 8)]);
    assert_eq!(status(&mut rig, &hole), DmaStatus::ErrorAborted);
}

#[test]
fn endless_kernels_are_aborted_either_way() {
    let mut rig = rig();
    load(&rig, &[FOREVER]);
    rig.send(0, &launch(1, &params()));
    rig.send(1, &echo(2));
    assert_eq!(rig.next().tag, Tag::new(2));
    rig.send(1, &kernel_abort(3, 1));
    let status = KernelAbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(3), Body::KernelAbort { status }));
    let Body::Launch { status, error, .. } = rig.next().body else { panic!("no launch") };
    assert_eq!(status, LaunchStatus::HostAborted);
    assert_eq!(error.unwrap().shire_mask, 1);

    rig.send(0, &launch(4, &params()));
    rig.send_high(0, &abort(5));
    let Body::Launch { status, .. } = rig.next().body else { panic!("no launch") };
    assert_eq!(status, LaunchStatus::HostAborted);
    let status = AbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(5), Body::Abort { status }));
    assert_eq!(run(&mut rig, &end_with(0, 0), &params()).0, LaunchStatus::KernelCompleted);
}

#[test]
fn cores_work_after_a_compute_reset() {
    let mut rig = rig();
    load(&rig, &[FOREVER]);
    rig.send(0, &launch(1, &params()));
    rig.send(1, &echo(2));
    assert_eq!(rig.next().tag, Tag::new(2));
    rig.send_high(0, &cm_reset(3));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    rig.send_high(0, &abort(4));
    let Body::Launch { status, .. } = rig.next().body else { panic!("no launch") };
    assert_eq!(status, LaunchStatus::CmMulticastFailed);
    assert!(matches!(rig.next().body, Body::Abort { .. }));
    assert_eq!(run(&mut rig, &end_with(0, 0), &params()).0, LaunchStatus::KernelCompleted);
}

#[test]
fn an_abort_that_reaches_no_hart_ends_with_a_compute_reset() {
    let mut config = cores_config();
    config.credit_abort = CreditAbort::Waits;
    config.ack_timeout = Duration::ZERO;
    let mut rig = Rig::new(config);
    // csrwi fcc, 0: the credit never comes. Harts that the abort finds before they sleep leave.
    load(&rig, &[0x8210_5073]);
    common::until("harts that sleep through an abort", || {
        rig.send(0, &launch(1, &params()));
        rig.send(1, &echo(2));
        assert_eq!(rig.next().tag, Tag::new(2));
        rig.send_high(0, &abort(3));
        let mut next = rig.next();
        let hang = matches!(next, Completion { body: Body::FwError { payload: 1, .. }, .. });
        if hang {
            next = rig.next();
        }
        let Completion { body: Body::Launch { status, .. }, .. } = next else { panic!("{next:?}") };
        assert!(matches!(rig.next().body, Body::Abort { .. }));
        let expected =
            if hang { LaunchStatus::CmMulticastFailed } else { LaunchStatus::HostAborted };
        assert_eq!(status, expected);
        hang
    });
    assert_eq!(run(&mut rig, &end_with(0, 0), &params()).0, LaunchStatus::CmMulticastFailed);
    rig.send_high(0, &cm_reset(4));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    assert_eq!(run(&mut rig, &end_with(0, 0), &params()).0, LaunchStatus::KernelCompleted);
}

#[test]
fn a_board_with_an_endless_kernel_can_be_reset_and_powered_off() {
    let mut rig = rig();
    load(&rig, &[FOREVER]);
    rig.send(0, &launch(1, &params()));
    let board = std::sync::Arc::clone(&rig.board);
    board.begin_reset(et_sim_device::MemoryAfterReset::Cleared).unwrap();
    common::until("the reset", || !board.resetting());
    let mut rig = Rig::attach(board);
    assert_eq!(run(&mut rig, &end_with(0, 0), &params()).0, LaunchStatus::KernelCompleted);
    load(&rig, &[FOREVER]);
    rig.send(0, &launch(2, &params()));
    rig.send(1, &echo(3));
    rig.next();
    drop(rig);
}
