//! What a command says of itself, of its answers, and to whom its end is told.

use std::path::Path;
use std::sync::Weak;

use et_devapi::msg::ops::{
    AbortStatus, Body, CmResetStatus, DmaStatus, DmaWriteNode, EchoStatus, LaunchError,
    LaunchPayload, LaunchStatus, Times,
};
use et_hal::{BusAddr, DeviceAccess, DeviceAddr};
use et_hal_mock::{MockHal, MockMailbox, MockMmio};

use super::core::{Load as _, Verdict};
use super::{Devices, Keep, LaunchWire, Launched, Nodes, OneShot, Then, Wire, take_arrival};
use crate::core_dump::StackArea;
use crate::kernel::{BUILTIN_FILE, KernelImage, KernelInner, LaunchContext};
use crate::memory::{Chunk, DeviceMemory, DeviceSlice, Staging};
use crate::sync::Arc;
use crate::{Error, Result};

type Load = Box<super::Load<MockHal>>;

const TIMES: Times = Times { start: 1, wait: 2, execute: 3 };
/// The device gave it up before it began.
const NOT_BEGUN: Times = Times { start: 0, wait: 2, execute: 0 };
const ENTRY: DeviceAddr = DeviceAddr::new(0x1000);
const SHIRES: u64 = 0b101;

struct Bench {
    hal: MockHal,
    memory: Arc<DeviceMemory>,
    kernel: Arc<KernelInner>,
    staging: Arc<Staging<MockHal>>,
}

impl Bench {
    fn new() -> Self {
        let base = DeviceAddr::new(0x80_0000_0000);
        let memory = DeviceMemory::new(base, 64 << 20, None).expect("it is a good range");
        let image = KernelImage::parse(BUILTIN_FILE).expect("it is a kernel");
        let code = memory.alloc(1 << 16, 4096).expect("there is room").whole();
        let kernel = KernelInner::new("kernel".into(), &image, 0, code, BUILTIN_FILE.into());
        let hal = MockHal::new(MockMmio::new(), MockMailbox::new());
        let staging = Staging::new(64 << 20, Weak::new());
        Self { hal, memory, kernel: Arc::new(kernel), staging }
    }

    fn slice(&self) -> DeviceSlice {
        self.memory.alloc(64, 64).expect("there is room").whole()
    }

    fn context(&self) -> LaunchContext {
        LaunchContext::new(&self.memory).expect("there is room")
    }

    fn chunk(&self) -> Chunk<MockHal> {
        let chunk = self.staging.take_spare(&self.hal, 64, DeviceAccess::Write);
        chunk.expect("memory can be mapped").expect("all of it is spare")
    }

    fn launched(&self) -> Launched {
        Launched {
            context: None,
            is_fresh: false,
            kernel: Arc::clone(&self.kernel),
            uses: vec![self.slice()],
            stack: Some(StackArea { memory: self.slice(), bytes_per_hart: 64 }),
            is_dumpable: false,
            core_path: None,
        }
    }

    fn launch(&self, args: Option<DeviceAddr>, arguments: &[u8]) -> Load {
        super::Load::new(wire(args, arguments), Then::Launch(self.launched()))
    }

    /// A read, and where its reader finds it.
    fn read(&self) -> (Load, Place) {
        let place = Place::default();
        let keep = Keep::Reader {
            chunk: self.chunk(),
            place: Arc::clone(&place),
            _device: Devices::from(&self.slice()),
        };
        (super::Load::copy(Wire::DmaRead(Nodes::Many(Vec::new())), keep), place)
    }
}

type Place = Arc<OneShot<super::Arrival<MockHal>>>;

fn wire(args: Option<DeviceAddr>, arguments: &[u8]) -> Wire {
    let launch = et_devapi::msg::ops::Launch {
        entry: ENTRY,
        args,
        exception_buffer: None,
        shire_mask: SHIRES,
        payload: &[],
    };
    let payload = LaunchPayload::new(None, None, arguments).expect("they fit");
    Wire::Launch(LaunchWire { launch, payload })
}

/// Addresses of the arguments and of the exception buffer that a launch has.
fn addresses(load: &Load) -> (Option<DeviceAddr>, Option<DeviceAddr>) {
    let Wire::Launch(wire) = &load.wire else { panic!("it is a launch") };
    (wire.launch.args, wire.launch.exception_buffer)
}

fn copy() -> Load {
    super::Load::copy(Wire::DmaWrite(Nodes::Many(Vec::new())), Keep::Nothing)
}

fn told() -> Error {
    Error::Aborted { op: "test" }
}

fn is_told<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Aborted { op: "test" }))
}

fn arrived(place: &Place) -> Option<Result<Chunk<MockHal>>> {
    place.get().map(|arrival| take_arrival(&arrival))
}

#[test]
fn only_a_list_of_several_copies_has_a_length_of_its_own() {
    let node = DmaWriteNode::new(BusAddr::new(0x1000), DeviceAddr::new(0x2000), 64);
    assert!(Wire::DmaWrite(Nodes::Many(vec![node; 2])).is_list());
    assert!(!Wire::DmaWrite(Nodes::One(node)).is_list());
    assert!(!Wire::ECHO.is_list());
    assert!(!wire(None, &[1; 8]).is_list());
}

#[test]
fn only_a_launch_holds_the_device_up_and_needs_a_context() {
    let bench = Bench::new();
    let launch = bench.launch(None, &[]);
    assert!(launch.is_launch() && launch.wants_context() && launch.exceptions().is_none());
    for mut load in [copy(), Load::abort(), Load::ping(), bench.read().0] {
        assert!(!load.is_launch() && !load.wants_context() && !load.has_clean_context());
        assert!(load.exceptions().is_none() && load.take_context().is_none());
    }
}

#[test]
fn a_context_lends_its_addresses_and_takes_them_back() {
    let bench = Bench::new();
    let own = DeviceAddr::new(0x5000);
    for (args, arguments) in [(None, &[1; 8][..]), (None, &[]), (Some(own), &[])] {
        let mut load = bench.launch(args, arguments);
        for _ in 0..2 {
            let context = bench.context();
            let (its_args, its_exceptions) = (context.args(), context.exceptions());
            load.give_context(context);
            let lent = if arguments.is_empty() { args } else { Some(its_args) };
            assert_eq!(addresses(&load), (lent, Some(its_exceptions)));
            assert_eq!(load.exceptions().map(|slice| slice.addr()), Some(its_exceptions));
            assert!(!load.wants_context());
            let context = load.take_context().expect("it was given one");
            assert_eq!((context.args(), context.exceptions()), (its_args, its_exceptions));
            assert_eq!(addresses(&load).0, args, "the next context has another address");
            assert!(load.wants_context() && load.take_context().is_none());
        }
    }
}

#[test]
fn a_context_is_clean_unless_its_pattern_is_still_to_come() {
    let bench = Bench::new();
    let [mut clean, mut fresh] = [(); 2].map(|()| bench.launch(None, &[]));
    clean.give_context(bench.context());
    fresh.give_fresh_context(bench.context());
    assert!(clean.has_clean_context() && !fresh.has_clean_context());
    assert!(!clean.wants_context() && !fresh.wants_context());
}

#[test]
fn a_launch_is_repeated_only_if_it_cannot_have_run() {
    let bench = Bench::new();
    let launch = bench.launch(None, &[]);
    let block = |shire_mask| LaunchError { exception_buffer: 0, trace_buffer: 0, shire_mask };
    let verdict = |status, times, error| launch.verdict(&Body::Launch { times, status, error });
    for (times, error, may_have_run) in [
        (NOT_BEGUN, None, false),
        (NOT_BEGUN, Some(block(0)), false),
        (NOT_BEGUN, Some(block(4)), true),
        (TIMES, None, true),
        (TIMES, Some(block(0)), true),
    ] {
        let aborted = verdict(LaunchStatus::HostAborted, times, error);
        let Verdict::Aborted { is_repeatable, has_begun } = aborted else { panic!("{aborted:?}") };
        assert_eq!((is_repeatable, has_begun), (!may_have_run, may_have_run));
        let failed = verdict(LaunchStatus::Exception, times, error);
        match failed {
            Verdict::Hold(Some(held)) => assert!(may_have_run && held == times),
            Verdict::Failed(Error::Launch(failure), Some(of)) => {
                assert!(!may_have_run && of == times);
                assert_eq!(failure.status, LaunchStatus::Exception);
            }
            other => panic!("{other:?}"),
        }
        let done = verdict(LaunchStatus::KernelCompleted, times, error);
        assert!(matches!(done, Verdict::Done(Some(of)) if of == times), "{done:?}");
    }
}

#[test]
fn a_copy_fails_by_its_direction() {
    let bench = Bench::new();
    for (load, answer, name) in [
        (
            bench.read().0,
            (|status| Body::DmaRead { times: TIMES, status }) as fn(_) -> _,
            "copy from the device",
        ),
        (copy(), |status| Body::DmaWrite { times: TIMES, status }, "copy to the device"),
    ] {
        assert!(matches!(load.verdict(&answer(DmaStatus::Complete)), Verdict::Done(Some(TIMES))));
        let aborted = load.verdict(&answer(DmaStatus::HostAborted));
        assert!(matches!(aborted, Verdict::Aborted { is_repeatable: true, has_begun: true }));
        let failed = load.verdict(&answer(DmaStatus::TimeoutHang));
        let Verdict::Failed(Error::Copy { op, status }, Some(TIMES)) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!((op, status), (name, DmaStatus::TimeoutHang));
    }
}

#[test]
fn an_answer_of_another_kind_is_nonsense() {
    let bench = Bench::new();
    let reply = super::Load::<MockHal>::new(Wire::ECHO, Then::Reply(Arc::default()));
    let echo = Body::Echo { start: 1, status: EchoStatus::Success };
    let abort = Body::Abort { status: AbortStatus::Success };
    let write = Body::DmaWrite { times: TIMES, status: DmaStatus::Complete };
    assert!(matches!(bench.launch(None, &[]).verdict(&echo), Verdict::Nonsense));
    assert!(matches!(bench.launch(None, &[]).verdict(&write), Verdict::Nonsense));
    assert!(matches!(bench.read().0.verdict(&write), Verdict::Nonsense));
    assert!(matches!(copy().verdict(&write), Verdict::Done(Some(TIMES))));
    for answer in [&echo, &abort] {
        assert!(matches!(copy().verdict(answer), Verdict::Nonsense));
    }
    assert!(matches!(Load::ping().verdict(&echo), Verdict::Done(None)));
    assert!(matches!(Load::ping().verdict(&abort), Verdict::Nonsense));
    assert!(matches!(Load::abort().verdict(&abort), Verdict::Done(None)));
    assert!(matches!(Load::abort().verdict(&echo), Verdict::Nonsense));
    let status = LaunchStatus::KernelCompleted;
    let launched = Body::Launch { times: TIMES, status, error: None };
    assert!(matches!(copy().verdict(&launched), Verdict::Nonsense));
    // Who asked judges it.
    assert!(matches!(reply.verdict(&launched), Verdict::Hold(None)));
    // The state machine goes by the answer to a reset.
    let reset = super::Load::<MockHal>::new(Wire::CM_RESET, Then::Reply(Arc::default()));
    let status = CmResetStatus::Success;
    assert!(matches!(reset.verdict(&Body::CmReset { status }), Verdict::Hold(None)));
    assert!(matches!(reset.verdict(&echo), Verdict::Nonsense));
}

#[test]
fn a_reader_gets_its_chunk_or_the_reason() {
    let bench = Bench::new();
    let (load, place) = bench.read();
    load.finish(None, &mut |_| ());
    assert!(matches!(arrived(&place), Some(Ok(_))));
    assert!(matches!(arrived(&place), Some(Err(_))), "it is taken once");
    let (load, place) = bench.read();
    load.finish(Some(told()), &mut |_| ());
    assert!(arrived(&place).is_some_and(|arrival| is_told(&arrival)));
}

#[test]
fn a_question_that_ends_without_an_answer_has_an_error() {
    for error in [Some(told()), None] {
        let reply = Arc::<OneShot<_>>::default();
        let load = super::Load::<MockHal>::new(Wire::ECHO, Then::Reply(Arc::clone(&reply)));
        let is_own = error.is_some();
        load.finish(error, &mut |_| ());
        let answer = reply.get().expect("whoever waits goes on");
        assert!(answer.is_err());
        assert_eq!(is_told(&answer), is_own);
    }
}

#[test]
fn who_listens_is_split_off_and_the_memory_stays() {
    let bench = Bench::new();
    let (mut load, place) = bench.read();
    let listener = load.take_listener().expect("there is a reader");
    assert!(matches!(load.then, Then::Check(Keep::Chunk { .. })));
    assert!(load.take_listener().is_none() && arrived(&place).is_none());
    listener.finish(Some(told()), &mut |_| ());
    assert!(arrived(&place).is_some_and(|arrival| is_told(&arrival)));
    load.finish(None, &mut |_| ());

    let reply = Arc::<OneShot<_>>::default();
    let mut load = super::Load::<MockHal>::new(Wire::ECHO, Then::Reply(Arc::clone(&reply)));
    let listener = load.take_listener().expect("there is one who asked");
    load.finish(None, &mut |_| ());
    assert!(!reply.is_done());
    listener.finish(Some(told()), &mut |_| ());
    assert!(reply.get().is_some_and(|answer| is_told(&answer)));

    let mut launch = bench.launch(None, &[]);
    launch.give_context(bench.context());
    assert!(launch.take_listener().is_none() && copy().take_listener().is_none());
    assert!(launch.is_launch() && launch.exceptions().is_some(), "it keeps what it has");
}

#[test]
fn a_listener_who_is_not_told_why_hears_that_all_is_closed() {
    let bench = Bench::new();
    let (mut load, place) = bench.read();
    load.take_listener().expect("there is a reader").finish(None, &mut |_| ());
    let error = arrived(&place).expect("whoever waits goes on").err();
    assert_eq!(error.map(|error| error.to_string()), Some(Error::all_closed().to_string()));
}

#[test]
fn the_report_of_a_failed_launch_knows_what_was_launched() {
    let bench = Bench::new();
    let path: Arc<Path> = Path::new("core").into();
    let args = DeviceAddr::new(0x5000);
    for (is_dumpable, core_path) in
        [(false, None), (true, None), (false, Some(&path)), (true, Some(&path))]
    {
        let launched = Launched { is_dumpable, core_path: core_path.cloned(), ..bench.launched() };
        let wire = wire(Some(args), &[7; 8]);
        let scene = launched.failure(&wire, LaunchStatus::Exception, None).scene;
        assert_eq!((scene.shires, scene.entry), (SHIRES, ENTRY.as_u64()));
        assert_eq!((scene.args, &scene.args_bytes[..]), (args.as_u64(), &[7; 8][..]));
        assert_eq!((scene.is_dumpable, scene.core_path.as_ref()), (is_dumpable, core_path));
        let Some(kept) = &scene.kept else {
            assert!(!is_dumpable && core_path.is_none(), "it is wanted");
            continue;
        };
        assert!(is_dumpable || core_path.is_some(), "memory is kept only if that is wanted");
        assert_eq!(kept.code.addr(), bench.kernel.code.addr());
        assert_eq!(kept.uses[0].addr(), launched.uses[0].addr());
        let stacks = [&kept.stack, &launched.stack]
            .map(|stack| stack.as_ref().map(|area| (area.memory.addr(), area.bytes_per_hart)));
        assert_eq!(stacks[0], stacks[1]);
    }
}
