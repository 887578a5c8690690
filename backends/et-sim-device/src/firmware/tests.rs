//! Kernels, with cores that a test moves by hand.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_devapi::abi::{self, ExceptionType};
use et_devapi::msg::mgmt::{Message, Power, calls, encode_command};
use et_devapi::msg::ops::{
    AbortStatus, Body, Completion, EchoStatus, FwErrorType, KernelAbortStatus, LaunchError,
    LaunchStatus, StackConfig, TraceConfig,
};
use et_devapi::msg::{Tag, completion_bytes};
use et_devapi::pci::Vector;
use et_devapi::ring::{Consumer, Producer};
use et_hal::{BarOffset, BusAddr, DeviceAccess, DeviceAddr, Endpoint, Mmio, Pop, Push, Width};
use et_sim_cores::{Dram, HartExit, HartFailure, HartState, LaunchReport, Scratchpads};

use self::common::{
    HOST_BASE, HostBuffer, LaunchParams, Rig, abort, cm_reset, dma_write, echo, echo_with_barrier,
    kernel_abort, launch, null_config, params, ring, until, write_node,
};
use crate::compute::{Compute, Report, Reports, Start, Started};
use crate::{Board, BoardConfig, CreditAbort, MemoryAfterReset};

/// Cores that run a kernel until the test ends it.
#[derive(Clone, Debug)]
struct Hands {
    state: Arc<Mutex<State>>,
    scratchpads: Arc<Scratchpads>,
}

#[derive(Debug, Default)]
struct State {
    started: Vec<Start>,
    running: Option<(u64, Arc<Reports>)>,
    aborts: u32,
    sleeping: u64,
    resets: u32,
    changes: u32,
    cycles: u64,
}

impl Compute for Hands {
    fn start(&mut self, start: &Start, number: u64, reports: &Arc<Reports>) -> Started {
        let mut state = self.state.lock().unwrap();
        state.started.push(*start);
        state.running = Some((number, Arc::clone(reports)));
        Started::Running
    }

    fn abort(&mut self) {
        self.state.lock().unwrap().aborts += 1;
    }

    fn sleeping_shires(&self) -> u64 {
        self.state.lock().unwrap().sleeping
    }

    fn reset(&mut self) {
        self.state.lock().unwrap().resets += 1;
    }

    fn cycles(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.cycles += 1;
        state.cycles
    }

    fn memory_changed(&mut self) {
        self.state.lock().unwrap().changes += 1;
    }

    fn scratchpads(&self) -> Option<&Scratchpads> {
        Some(&self.scratchpads)
    }
}

impl Hands {
    fn rig() -> (Self, Rig) {
        Self::rig_with(null_config())
    }

    fn rig_with(config: BoardConfig) -> (Self, Rig) {
        let scratchpads = Arc::new(Scratchpads::new().unwrap());
        let hands = Self { state: Arc::default(), scratchpads };
        let dram = Arc::new(Dram::new(config.dram_bytes).unwrap());
        let board = Board::with_compute(config, dram, Box::new(hands.clone()), None).unwrap();
        (hands, Rig::attach(board))
    }

    /// Waits for the `n`-th start.
    fn wait_for(&self, n: usize) -> Start {
        until("the start of a kernel", || self.state.lock().unwrap().started.len() >= n);
        self.state.lock().unwrap().started[n - 1]
    }

    fn started(&self) -> usize {
        self.state.lock().unwrap().started.len()
    }

    /// Ends the running kernel.
    fn finish(&self, failures: Vec<HartFailure>) {
        let (number, reports) = self.state.lock().unwrap().running.take().unwrap();
        reports.deliver(
            number,
            Report::Own(LaunchReport {
                failures,
                instructions: 0,
                histogram: None,
                harts: 64,
                cycles: 0,
                wall: Duration::ZERO,
                trace: 0,
            }),
        );
    }
}

fn failure(hart_id: u32, exit: HartExit) -> HartFailure {
    let mut x = [0; 32];
    for (number, register) in (0..).zip(&mut x) {
        *register = 0x100 * number;
    }
    let state = HartState { pc: 0x1234, x, sstatus: 0x77, tensor_error: 0 };
    HartFailure { hart_id, exit, state }
}

fn launched(completion: Completion) -> (u16, LaunchStatus, Option<LaunchError>) {
    match completion {
        Completion { tag, body: Body::Launch { status, error, .. } } => {
            (tag.as_u16(), status, error)
        }
        other => panic!("{other:?}"),
    }
}

fn completed(rig: &mut Rig, tag: u16) {
    assert_eq!(launched(rig.next()), (tag, LaunchStatus::KernelCompleted, None));
}

fn aborted(rig: &mut Rig, tag: u16) {
    let (found, status, error) = launched(rig.next());
    assert_eq!((found, status), (tag, LaunchStatus::HostAborted));
    assert!(error.is_some());
}

#[test]
fn the_tail_moves_before_anything_is_executed() {
    let (hands, mut rig) = Hands::rig();
    for message in [launch(1, &params()), launch(2, &params()), echo(3)] {
        rig.push(0, &message);
    }
    rig.kick();
    hands.wait_for(1);
    let board = Arc::clone(&rig.board);
    let max = rig.sq[0].ring().max_message();
    assert_eq!(rig.sq[0].free(board.page()).unwrap(), max);
    assert_eq!(board.interrupts().raised(Vector::OpsSubmission), 1);
    assert_eq!(rig.try_bytes(), None);
    // A second batch is not picked up while the first waits.
    rig.send(0, &echo(4));
    rig.send(1, &echo(5));
    assert_eq!(rig.next().tag, Tag::new(5));
    assert!(rig.sq[0].free(board.page()).unwrap() < max);

    hands.finish(vec![]);
    completed(&mut rig, 1);
    hands.wait_for(2);
    hands.finish(vec![]);
    let mut rest = [2, 3, 4].map(|_| rig.next().tag.as_u16());
    rest.sort_unstable();
    assert_eq!(rest, [2, 3, 4]);
}

#[test]
fn one_kernel_at_a_time_from_either_queue() {
    let (hands, mut rig) = Hands::rig();
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    rig.send(1, &launch(2, &params()));
    rig.send(0, &echo(3));
    assert_eq!(rig.next().tag, Tag::new(3));
    assert_eq!(hands.started(), 1);
    hands.finish(vec![]);
    completed(&mut rig, 1);
    hands.wait_for(2);
    hands.finish(vec![]);
    completed(&mut rig, 2);
}

#[test]
fn a_barrier_waits_for_the_kernel_of_its_own_queue() {
    let (hands, mut rig) = Hands::rig();
    rig.push(0, &launch(1, &params()));
    rig.push(0, &echo_with_barrier(2));
    rig.kick();
    hands.wait_for(1);
    rig.send(1, &echo_with_barrier(3));
    assert_eq!(rig.next().tag, Tag::new(3));
    assert_eq!(rig.try_bytes(), None);
    hands.finish(vec![]);
    completed(&mut rig, 1);
    assert_eq!(rig.next().tag, Tag::new(2));
}

#[test]
fn arguments_are_copied_while_another_kernel_runs() {
    let (hands, mut rig) = Hands::rig();
    let args = HOST_BASE + 0x4000;
    let with = |embedded_args| LaunchParams {
        args: Some(DeviceAddr::new(args)),
        embedded_args,
        ..params()
    };
    rig.send(0, &launch(1, &with(&[1; 8])));
    hands.wait_for(1);
    rig.push(1, &launch(2, &with(&[2; 8])));
    rig.send(1, &echo(3));
    let dram = Arc::clone(rig.board.dram());
    until("the copy", || {
        let mut bytes = [0; 8];
        dram.read(args, &mut bytes).unwrap();
        bytes == [2; 8]
    });
    assert_eq!(hands.started(), 1);
}

#[test]
fn cores_get_what_the_launch_says() {
    let (hands, mut rig) = Hands::rig();
    let mut wanted = params();
    wanted.entry = DeviceAddr::new(HOST_BASE + 64);
    wanted.args = Some(DeviceAddr::new(HOST_BASE + 128));
    wanted.shire_mask = 0b101;
    rig.send(0, &launch(1, &wanted));
    let start = hands.wait_for(1);
    assert_eq!((start.entry, start.args), (HOST_BASE + 64, HOST_BASE + 128));
    assert_eq!(start.shire_mask, 0b101);
    assert_eq!((start.stack_top, start.stack_bytes_per_hart), (0x80_0580_0000, 4160));
    let mut environment = [0; 24];
    hands.scratchpads.read(start.environment, &mut environment).unwrap();
    assert_eq!(environment[..6], [0, 0, 1, 0, 0, 0]);
    assert_eq!(environment[8..16], 0b101_u64.to_le_bytes());
    assert_eq!(environment[16..20], 600_u32.to_le_bytes());
    hands.finish(vec![]);
    completed(&mut rig, 1);

    wanted.stack = Some(StackConfig { stack_base_offset: 16.into(), stack_size: 256.into() });
    rig.send(0, &launch(2, &wanted));
    let start = hands.wait_for(2);
    assert_eq!(start.stack_top, HOST_BASE + 272 * 4096);
    assert_eq!(start.stack_bytes_per_hart, 8192);
}

#[test]
fn a_trace_is_finished_with_its_launch_and_not_after_a_reset() {
    const BUFFER: u64 = HOST_BASE + 0x10_0000;
    let trace = TraceConfig {
        buffer: BUFFER.into(),
        buffer_size: (64 * 64).into(),
        threshold: 0.into(),
        shire_mask: 1.into(),
        thread_mask: u64::MAX.into(),
        event_mask: 0.into(),
        filter_mask: 0.into(),
    };
    let wanted = LaunchParams { trace: Some(trace), ..params() };
    let (hands, mut rig) = Hands::rig();
    let dram = Arc::clone(rig.board.dram());
    let used = || {
        let mut bytes = [0; 4];
        dram.read(BUFFER + 64, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    };
    // What the second hart has used.
    let block = abi::TRACE_CONTROL_BASE.as_u64() + 64;
    dram.write(block + 36, &20_u32.to_le_bytes()).unwrap();
    rig.send(0, &launch(1, &wanted));
    hands.wait_for(1);
    assert_eq!(used(), 0);
    hands.finish(vec![]);
    completed(&mut rig, 1);
    assert_eq!(used(), 20);

    dram.write(block + 36, &30_u32.to_le_bytes()).unwrap();
    rig.send(0, &launch(2, &wanted));
    hands.wait_for(2);
    rig.send_high(1, &cm_reset(3));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    hands.finish(vec![]);
    rig.assert_quiet_on(1);
    assert_eq!(used(), 20, "of a launch that the reset has killed");
}

#[test]
fn harts_that_sleep_through_an_abort_cost_the_cores_until_a_reset() {
    let config = BoardConfig {
        credit_abort: CreditAbort::Waits,
        ack_timeout: Duration::ZERO,
        ..null_config()
    };
    let (hands, mut rig) = Hands::rig_with(config);
    let wanted = LaunchParams { shire_mask: 0b110, ..params() };
    rig.send(0, &launch(1, &wanted));
    hands.wait_for(1);
    rig.send_high(0, &abort(2));
    until("the abort", || hands.state.lock().unwrap().aborts == 1);
    // Harts that still run are only slow.
    rig.assert_quiet_on(1);
    hands.state.lock().unwrap().sleeping = 0b100;
    let error = FwErrorType::CmSmodeHang;
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 0b100 }));
    let (tag, status, error) = launched(rig.next());
    assert_eq!((tag, status), (1, LaunchStatus::CmMulticastFailed));
    assert_eq!(error.unwrap().shire_mask, 0);
    let status = AbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(2), Body::Abort { status }));

    // Nothing reaches the cores now.
    rig.send(1, &launch(3, &params()));
    assert_eq!(launched(rig.next()).1, LaunchStatus::CmMulticastFailed);
    assert_eq!(hands.started(), 1);
    rig.send_high(1, &cm_reset(4));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    assert_eq!(hands.state.lock().unwrap().resets, 1);
    // The report of the lost launch comes with the reset, and is not expected any more.
    hands.finish(vec![]);
    rig.send(0, &launch(5, &params()));
    hands.wait_for(2);
    hands.finish(vec![]);
    completed(&mut rig, 5);
}

#[test]
fn firmware_waits_as_long_as_it_was_told_for_harts_that_sleep() {
    let ack_timeout = Duration::from_secs(3600);
    let credit_abort = CreditAbort::Waits;
    let (hands, mut rig) =
        Hands::rig_with(BoardConfig { credit_abort, ack_timeout, ..null_config() });
    hands.state.lock().unwrap().sleeping = 1;
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    rig.send_high(0, &abort(2));
    until("the abort", || hands.state.lock().unwrap().aborts == 1);
    rig.assert_quiet_on(1);
    // A credit has come after all.
    hands.finish(vec![failure(0, HartExit::Aborted)]);
    aborted(&mut rig, 1);
    assert!(matches!(rig.next().body, Body::Abort { .. }));
}

#[test]
fn times_tell_waiting_from_running() {
    let (hands, mut rig) = Hands::rig();
    rig.push(0, &launch(1, &params()));
    rig.push(0, &launch(2, &params()));
    rig.kick();
    let mut times = Vec::new();
    for n in 1..=2 {
        hands.wait_for(n);
        hands.state.lock().unwrap().cycles += 1000;
        hands.finish(vec![]);
        let Body::Launch { times: found, .. } = rig.next().body else { panic!("no launch") };
        times.push(found);
    }
    assert_eq!(times[0].start, times[1].start);
    assert!(times[0].wait < 1000 && times[1].wait >= 1000, "{times:?}");
    assert!(times[0].execute >= 1000 && times[1].execute >= 1000, "{times:?}");
}

#[test]
fn an_abort_answers_everything_of_its_queue_and_itself_last() {
    let (hands, mut rig) = Hands::rig();
    rig.push(0, &launch(1, &params()));
    rig.push(0, &launch(2, &params()));
    rig.push(0, &echo(3));
    rig.kick();
    hands.wait_for(1);
    rig.send(1, &launch(0x101, &params()));
    rig.push(0, &kernel_abort(4, 1));
    rig.send_high(0, &abort(5));
    aborted(&mut rig, 2);
    let status = EchoStatus::HostAborted;
    let Body::Echo { status: found, .. } = rig.next().body else { panic!("no echo") };
    assert_eq!(found, status);
    let status = KernelAbortStatus::HostAborted;
    assert_eq!(rig.next(), Completion::new(Tag::new(4), Body::KernelAbort { status }));
    until("the abort of the kernel", || hands.state.lock().unwrap().aborts == 1);
    assert_eq!(rig.try_bytes(), None);
    hands.finish(vec![failure(5, HartExit::Aborted), failure(64, HartExit::Aborted)]);
    let (tag, status, error) = launched(rig.next());
    assert_eq!((tag, status), (1, LaunchStatus::HostAborted));
    assert_eq!(error.unwrap().shire_mask, 0b11);
    let status = AbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(5), Body::Abort { status }));
    // The other queue is untouched: its kernel starts now.
    hands.wait_for(2);
    hands.finish(vec![]);
    completed(&mut rig, 0x101);
}

#[test]
fn an_abort_of_an_idle_queue_touches_nothing() {
    let (hands, mut rig) = Hands::rig();
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    rig.send_high(1, &abort(2));
    let status = AbortStatus::Success;
    assert_eq!(rig.next(), Completion::new(Tag::new(2), Body::Abort { status }));
    assert_eq!(hands.state.lock().unwrap().aborts, 0);
    hands.finish(vec![]);
    completed(&mut rig, 1);
}

#[test]
fn a_kernel_abort_names_the_running_launch() {
    let (hands, mut rig) = Hands::rig();
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    rig.send(1, &launch(2, &params()));
    let answer = |rig: &mut Rig, tag, of| {
        rig.send(0, &kernel_abort(tag, of));
        let Body::KernelAbort { status, .. } = rig.next().body else { panic!("no answer") };
        status
    };
    assert_eq!(answer(&mut rig, 10, 99), KernelAbortStatus::InvalidTagId);
    // A launch that waits is not running.
    assert_eq!(answer(&mut rig, 11, 2), KernelAbortStatus::InvalidTagId);
    assert_eq!(answer(&mut rig, 12, 1), KernelAbortStatus::Success);
    assert_eq!(hands.state.lock().unwrap().aborts, 1);
    hands.finish(vec![failure(0, HartExit::Aborted)]);
    aborted(&mut rig, 1);
    hands.wait_for(2);
    hands.finish(vec![]);
    completed(&mut rig, 2);
    assert_eq!(answer(&mut rig, 13, 2), KernelAbortStatus::InvalidTagId);
}

#[test]
fn a_compute_reset_kills_silently() {
    let (hands, mut rig) = Hands::rig();
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    rig.send_high(0, &cm_reset(2));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    assert_eq!(hands.state.lock().unwrap().resets, 1);
    // A report that still comes belongs to no launch.
    hands.finish(vec![]);
    rig.send(1, &launch(3, &params()));
    rig.send(0, &echo(4));
    assert_eq!(rig.next().tag, Tag::new(4));
    assert_eq!(hands.started(), 1);
    // The slot is free again when the dead kernel is aborted.
    rig.send_high(0, &abort(5));
    let (tag, status, _) = launched(rig.next());
    assert_eq!((tag, status), (1, LaunchStatus::CmMulticastFailed));
    assert!(matches!(rig.next().body, Body::Abort { .. }));
    hands.wait_for(2);
    hands.finish(vec![]);
    completed(&mut rig, 3);
}

#[test]
fn a_function_reset_forgets_the_kernel() {
    let (hands, mut rig) = Hands::rig();
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    let board = Arc::clone(&rig.board);
    board.begin_reset(MemoryAfterReset::Kept).unwrap();
    until("the reset", || !board.resetting());
    assert!(hands.state.lock().unwrap().resets >= 1);
    let mut rig = Rig::attach(board);
    hands.finish(vec![failure(0, HartExit::BusError)]);
    rig.send(0, &launch(2, &params()));
    hands.wait_for(2);
    rig.assert_quiet_on(1);
    hands.finish(vec![]);
    completed(&mut rig, 2);
}

#[test]
fn failures_are_judged_as_by_firmware() {
    let (hands, mut rig) = Hands::rig();
    let trap = HartExit::Exception { cause: 2, tval: 0 };
    for (failures, expected, shires) in [
        (vec![failure(3, HartExit::NegativeReturn(-5))], LaunchStatus::Error, 0),
        (vec![failure(3, HartExit::SelfAbort(1))], LaunchStatus::Error, 0),
        (vec![failure(3, HartExit::BusError)], LaunchStatus::Error, 0),
        (vec![failure(70, trap)], LaunchStatus::Exception, 0b10),
        (vec![failure(2080, trap)], LaunchStatus::Exception, 1 << 32),
        (
            vec![failure(1, HartExit::NegativeReturn(-1)), failure(64, trap), failure(65, trap)],
            LaunchStatus::Exception,
            0b10,
        ),
    ] {
        let n = hands.started() + 1;
        rig.send(0, &launch(7, &params()));
        hands.wait_for(n);
        hands.finish(failures);
        let (_, status, error) = launched(rig.next());
        let expected_error =
            LaunchError { exception_buffer: 0, trace_buffer: 0, shire_mask: shires };
        assert_eq!((status, error), (expected, Some(expected_error)));
    }
}

/// One entry of the exception buffer as 40 numbers.
fn entry(dram: &Dram, buffer: u64, index: u64) -> Vec<u64> {
    let mut bytes = [0; 320];
    dram.read(buffer + index * 320, &mut bytes).unwrap();
    bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect()
}

#[test]
fn exception_entries_have_the_listed_fields_and_no_others() {
    const OLD: u64 = 0xcdcd_cdcd_cdcd_cdcd;
    let (hands, mut rig) = Hands::rig();
    let buffer = HOST_BASE + 0x10_0000;
    let dram = Arc::clone(rig.board.dram());
    dram.fill(buffer, abi::EXCEPTION_BUFFER_BYTES as u64, abi::EXCEPTION_FILL).unwrap();
    let wanted = LaunchParams { exception_buffer: Some(DeviceAddr::new(buffer)), ..params() };
    rig.send(0, &launch(1, &wanted));
    hands.wait_for(1);
    hands.finish(vec![
        failure(0, HartExit::Exception { cause: 5, tval: 0xbad }),
        failure(1, HartExit::Aborted),
        failure(2, HartExit::SelfAbort(9)),
        failure(3, HartExit::NegativeReturn(-7)),
        failure(4, HartExit::BusError),
        failure(2111, HartExit::Exception { cause: 2, tval: 0 }),
    ]);
    let (_, status, error) = launched(rig.next());
    assert_eq!(status, LaunchStatus::Exception);
    let error = error.unwrap();
    assert_eq!((error.exception_buffer, error.shire_mask), (buffer, 1 << 32 | 1));

    let trap = entry(&dram, buffer, 0);
    assert_eq!((trap[0], trap[2]), (ExceptionType::UmodeException as u64, 0));
    assert!(trap[1] > 0 && trap[1] < 1_000_000, "cycles");
    // sepc, sstatus, stval, scause.
    assert_eq!(trap[3..7], [0x1234, 0x77, 0xbad, 5]);
    assert_eq!(trap[7], OLD, "no user error");
    let registers: Vec<u64> = (1..32).map(|number| 0x100 * number).collect();
    assert_eq!(trap[8..39], registers);
    assert_eq!(trap[39], OLD);

    let stopped = entry(&dram, buffer, 1);
    assert_eq!((stopped[0], stopped[2]), (ExceptionType::SystemAbort as u64, 1));
    assert_eq!((stopped[3], &stopped[8..39]), (0x1234, &registers[..]));
    let gave_up = entry(&dram, buffer, 2);
    assert_eq!((gave_up[0], gave_up[2]), (ExceptionType::SelfAbort as u64, 2));

    for (index, kind, value) in [
        (3, ExceptionType::UserKernelError, (-7_i64).cast_unsigned()),
        (4, ExceptionType::BusError, 0),
    ] {
        let failed = entry(&dram, buffer, index);
        assert_eq!((failed[0], failed[2], failed[7]), (kind as u64, index, value));
        assert!(failed[3..7].iter().chain(&failed[8..]).all(|number| *number == OLD));
    }
    assert_eq!(entry(&dram, buffer, 2079)[2], 2111);
    for index in [5, 6, 63, 2047, 2048, 2078] {
        assert!(entry(&dram, buffer, index).iter().all(|number| *number == OLD), "{index}");
    }
}

#[test]
fn an_exception_buffer_that_is_too_short_does_no_harm() {
    let (hands, mut rig) = Hands::rig();
    let end = HOST_BASE + rig.layout.host_managed.len;
    let wanted = LaunchParams { exception_buffer: Some(DeviceAddr::new(end - 8)), ..params() };
    rig.send(0, &launch(1, &wanted));
    hands.wait_for(1);
    let trap = HartExit::Exception { cause: 2, tval: 0 };
    // Hart 2048 is no compute hart, 4000 no hart at all.
    hands.finish([0, 2047, 2048, 2111, 4000, u32::MAX].map(|hart| failure(hart, trap)).to_vec());
    assert_eq!(launched(rig.next()).1, LaunchStatus::Exception);
}

#[test]
fn cores_learn_that_memory_has_changed() {
    let (hands, mut rig) = Hands::rig();
    let changes = || hands.state.lock().unwrap().changes;
    let host = HostBuffer::map(&rig.board, 0x1000, 4096, DeviceAccess::Read);
    rig.send(0, &dma_write(1, &[write_node(host.bus, HOST_BASE, 64)]));
    rig.next();
    let after_copy = changes();
    assert!(after_copy >= 1);
    rig.board.dram().write(HOST_BASE, &[0; 4]).unwrap();
    rig.board.bar0_written();
    rig.send(0, &launch(2, &params()));
    hands.wait_for(1);
    assert!(changes() > after_copy);
    rig.board.host_memory().unmap(BusAddr::new(0x1000)).unwrap();
    assert_eq!(rig.page().len_bytes(), 0x4000);
}

#[test]
fn management_answers_while_a_kernel_hangs_and_sees_its_load() {
    let mut config = null_config();
    (config.power_mw, config.tdp_watts, config.heat) = (5000, 25, Duration::ZERO);
    let (hands, mut rig) = Hands::rig_with(config);
    let mailbox = rig.layout.mgmt_mailbox;
    let page = rig.board.page();
    let mut sq = Producer::attach(ring(&mailbox.submission, 0), page).unwrap();
    let mut cq = Consumer::attach(ring(&mailbox.completion, 0), page).unwrap();
    let board = Arc::clone(&rig.board);
    let mut milliwatts = || {
        let mut bytes = [0; 512];
        let id = calls::GET_MODULE_POWER.id;
        let len = encode_command(id, Tag::new(1), &[0; 8], &mut bytes).unwrap();
        assert_eq!(sq.push(board.page(), &bytes[..len]).unwrap(), Push::Accepted);
        board.ring(BarOffset::new(0), Width::W32, 1);
        let frame = |header: &_| completion_bytes(Endpoint::Management, header);
        let mut popped = Pop::Empty;
        until("an answer", || {
            popped = cq.pop_message(board.page(), frame, &mut bytes).unwrap();
            popped != Pop::Empty
        });
        let Ok(Message::Response(response)) = Message::parse(&bytes) else { panic!() };
        response.read::<Power>().unwrap().power.get()
    };
    assert_eq!(milliwatts(), 5000);
    rig.send(0, &launch(1, &params()));
    hands.wait_for(1);
    assert_eq!(milliwatts(), 25_000);
    hands.finish(Vec::new());
    completed(&mut rig, 1);
    assert_eq!(milliwatts(), 5000);
}
