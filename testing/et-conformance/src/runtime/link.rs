//! What is accepted ends, whoever lets go of what, and aborts reach what they name and nothing
//! else.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "test data is cut to size"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use et_devapi::msg::ops::FirmwareType;
use et_hal::Hal;
use et_runtime::{DeviceBuffer, Error, Launch, Stream, StreamError};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::link":
    a_stream_that_is_dropped_finishes_what_it_has [Need::Compute, Need::Abort],
    an_event_that_has_ended_aborts_nothing [Need::Compute, Need::Abort],
    a_copy_larger_than_the_pool_waits_for_an_event [Need::Compute, Need::Abort],
    more_launches_than_contexts_wait_for_an_event [Need::Compute, Need::Abort],
    a_callback_that_panics_stops_nothing,
    failures_that_are_not_asked_for_are_kept_by_their_stream [Need::Compute],
    a_callback_may_submit_and_wait_for_nothing,
    a_call_that_is_refused_keeps_the_order [Need::Compute, Need::Abort],
    an_endless_kernel_can_be_aborted_while_others_wait [Need::Compute, Need::Abort],
    a_launch_that_waits_can_be_aborted [Need::Compute, Need::Abort],
    kernels_can_be_loaded_while_one_runs [Need::Compute, Need::Abort],
    an_abort_leaves_copies_of_the_same_queue_alone [Need::Compute, Need::Abort],
    a_barrier_waits_for_what_an_abort_has_sent_again [Need::Compute, Need::Abort],
    a_question_that_an_abort_catches_is_asked_again [Need::Compute, Need::Abort],
    the_report_of_an_aborted_kernel_waits_for_no_other [Need::Compute, Need::Abort],
}

const MOMENT: Duration = Duration::from_millis(50);

impl<H: Hal> Bench<H> {
    /// A kernel that does not end by itself.
    fn hang(&self) -> Result<Launch, Failure> {
        Ok(Launch::new(&self.load("hang")?).shires(self.one_shire()))
    }

    /// The same, which has started.
    fn endless(&self, stream: &et_runtime::Stream<H>) -> Result<et_runtime::Event, Failure> {
        let event = stream.launch(&self.hang()?)?;
        check_matches!(event.wait(MOMENT), Err(Error::Timeout { .. }), "an endless kernel");
        Ok(event)
    }
}

fn a_stream_that_is_dropped_finishes_what_it_has<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let kernel = bench.endless(bench.stream())?;
    let stream = bench.device.stream();
    stream.wait_for(&kernel);
    let copy = stream.copy_to_device(&[7u8; 4096], &buffer)?;
    drop(stream);
    check!(!copy.is_done(), "a copy went before the event it waits for");
    bench.device.abort(&kernel, bench.patience)?;
    bench.done(&copy)?;
    same("the copy of a stream without handle", &bench.download::<u8>(&buffer)?, &[7; 4096])
}

/// Wire tags come back; operations do not.
fn an_event_that_has_ended_aborts_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().in_flight(4))?;
    let kernel = bench.load("task_nop")?;
    let old = bench.stream().launch(&Launch::new(&kernel).shires(bench.one_shire()))?;
    bench.done(&old)?;
    for _ in 0..12 {
        let victim = bench.endless(bench.stream())?;
        let outcome = bench.device.abort(&old, bench.patience);
        check_matches!(outcome, Err(Error::HasEnded { .. }), "aborting what has ended");
        check_matches!(victim.wait(MOMENT), Err(Error::Timeout { .. }), "another kernel");
        bench.device.abort(&victim, bench.patience)?;
    }
    bench.works()
}

/// The call returns when all of it is staged, and the rest of the pool stays usable meanwhile.
fn a_copy_larger_than_the_pool_waits_for_an_event<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().staging_bytes(1 << 20))?;
    let len = rig.times(4 << 20, 2 << 20);
    let buffer = bench.zeroed(len as u64)?;
    let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let kernel = bench.endless(bench.stream())?;
    let (behind, free) = (bench.device.stream(), bench.device.stream());
    behind.wait_for(&kernel);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let copy = scope.spawn(|| behind.copy_to_device(&data, &buffer));
        let other = bench.device.alloc(512 << 10)?;
        for byte in 0..8u8 {
            bench.done(&free.copy_to_device(&vec![byte; 512 << 10], &other)?)?;
        }
        bench.device.abort(&kernel, bench.patience)?;
        let copy = copy.join().map_err(|_| Failure::new("the copying thread panicked"))??;
        bench.done(&copy)
    })?;
    same("a copy larger than the pool", &bench.download::<u8>(&buffer)?, &data)
}

fn more_launches_than_contexts_wait_for_an_event<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const LAUNCHES: usize = 100;
    let bench = Bench::open(rig)?;
    let add = bench.load("add_scalar")?;
    let buffer = bench.zeroed(64)?;
    let kernel = bench.endless(bench.stream())?;
    let stream = bench.device.stream();
    stream.wait_for(&kernel);
    let launch = Launch::new(&add).buffer(&buffer).buffer(&buffer).f32(1.0).u64(16);
    let events: Vec<_> = (0..LAUNCHES).map(|_| stream.launch(&launch)).collect::<Result<_, _>>()?;
    check!(!events.iter().any(et_runtime::Event::is_done), "a launch went before its event");
    bench.device.abort(&kernel, bench.patience)?;
    for event in &events {
        bench.done(event)?;
    }
    same("what all launches left", &bench.download::<f32>(&buffer)?, &[LAUNCHES as f32; 16])
}

/// Registers a callback that panics, on work in flight or on work that has ended.
fn panic_in_callback<H: Hal>(
    bench: &Bench<H>,
    buffer: &DeviceBuffer,
    late: bool,
) -> Result<(), Failure> {
    let before = bench.device.counters().callback_panics;
    let bad = bench.stream().fill(buffer, 1)?;
    if late {
        bench.done(&bad)?;
    }
    bad.on_done(|_| panic!("a mistake of the user"));
    bench.done(&bad)?;
    let panics = || bench.device.counters().callback_panics - before;
    let until = std::time::Instant::now() + bench.patience;
    while panics() == 0 && std::time::Instant::now() < until {
        bench.device.poll();
    }
    check_eq!(panics(), 1, "panics counted");
    let listed = bench.stream().take_errors();
    check_matches!(listed.errors[..], [StreamError::Panicked { operation, message, .. }]
        if *operation == bad.id() && message == "a mistake of the user", "the stream's errors");
    Ok(())
}

fn a_callback_that_panics_stops_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.device.alloc(4096)?;
    let calls = Arc::new(AtomicU32::new(0));
    // Its text would only be in the way.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let outcomes = [false, true].map(|late| panic_in_callback(&bench, &buffer, late));
    std::panic::set_hook(before);
    outcomes.into_iter().collect::<Result<(), _>>()?;
    let until = std::time::Instant::now() + bench.patience;
    for _ in 0..4 {
        let event = bench.stream().fill(&buffer, 2)?;
        let its = Arc::clone(&calls);
        event.on_done(move |_| {
            its.fetch_add(1, Ordering::Relaxed);
        });
    }
    bench.stream().synchronize(bench.patience)?;
    while calls.load(Ordering::Relaxed) < 4 && std::time::Instant::now() < until {
        bench.device.poll();
    }
    check_eq!(calls.load(Ordering::Relaxed), 4, "callbacks after one that panicked");
    Ok(())
}

/// Waits until as many errors are listed; the last handle of an operation may be the runtime's.
fn listed<H: Hal>(
    bench: &Bench<H>,
    stream: &Stream<H>,
    count: usize,
) -> Result<Vec<StreamError>, Failure> {
    let mut errors = Vec::new();
    let until = std::time::Instant::now() + bench.patience;
    while errors.len() < count && std::time::Instant::now() < until {
        bench.device.poll();
        errors.extend(stream.take_errors().errors);
    }
    check_eq!(errors.len(), count, "errors of a stream");
    Ok(errors)
}

fn failures_that_are_not_asked_for_are_kept_by_their_stream<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let trap = Launch::new(&bench.load("trap_load")?).u64(1).shires(bench.one_shire());
    let (stream, other) = (bench.device.stream(), bench.device.stream());
    let forgotten = stream.launch(&trap)?.id();
    let (waited, held) = (stream.launch(&trap)?, stream.launch(&trap)?);
    check!(waited.wait(bench.patience).is_err(), "a kernel that traps succeeds");
    other.launch(&trap)?.on_done(|_| ());
    bench.done(&other.barrier()?)?;
    drop(waited);
    check_matches!(listed(&bench, &stream, 1)?[..],
        [StreamError::Failed { operation, error: Error::Launch(_), .. }]
        if *operation == forgotten, "the failure that was not asked for");
    stream.synchronize(bench.patience)?;
    check!(stream.take_errors().is_empty(), "an event that is held is listed");
    drop(held);
    listed(&bench, &stream, 1)?;
    check!(other.take_errors().is_empty(), "a failure that a callback was told of is listed");
    Ok(())
}

fn a_callback_may_submit_and_wait_for_nothing<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let (stream, target) = (bench.stream().clone(), buffer.whole());
    let (sender, receiver) = std::sync::mpsc::channel();
    let event = bench.stream().fill(&buffer, 1)?;
    event.on_done(move |_| drop(sender.send(stream.fill(target, 2))));
    let second = receiver.recv_timeout(bench.patience)??;
    bench.done(&second)?;
    same("what the callback asked for", &bench.download::<u8>(&buffer)?, &[2; 4096])
}

fn a_call_that_is_refused_keeps_the_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(64)?;
    let kernel = bench.endless(bench.stream())?;
    let queues = usize::from(bench.device.properties().queues);
    // One of them shares the queue of the kernel.
    for stream in (0..queues).map(|_| bench.device.stream()) {
        stream.wait_for(&kernel);
        let refused = stream.copy_to_device(&[1u8; 8], &buffer);
        check_matches!(refused, Err(Error::LengthMismatch { .. }), "a copy of another length");
        let nothing = stream.copy_to_device::<u8>(&[], buffer.slice(..0)?)?;
        let copy = stream.copy_to_device(&[1u8; 64], &buffer)?;
        check_matches!(copy.wait(MOMENT), Err(Error::Timeout { .. }), "a copy behind a kernel");
        check!(!nothing.is_done(), "a copy of nothing went before the kernel it waits for");
    }
    bench.device.abort(&kernel, bench.patience)?;
    bench.works()
}

fn an_endless_kernel_can_be_aborted_while_others_wait<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let queues = usize::from(bench.device.properties().queues);
    let streams: Vec<_> = (0..2 * queues).map(|_| bench.device.stream()).collect();
    let kernel = bench.endless(&streams[0])?;
    let add = bench.load("add_scalar")?;
    let buffer = bench.zeroed(64)?;
    let launch = Launch::new(&add).buffer(&buffer).buffer(&buffer).f32(1.0).u64(16);
    // They wait for the cores, in every queue.
    let behind: Vec<_> =
        streams.iter().map(|stream| stream.launch(&launch)).collect::<Result<_, _>>()?;
    bench.device.abort(&kernel, bench.patience)?;
    check_matches!(kernel.outcome(), Some(Err(Error::Launch(_))), "the aborted kernel");
    for event in &behind {
        bench.done(event)?;
    }
    let seen = bench.download::<f32>(&buffer)?;
    // Several kernels may have run at the same time on the same words; none was lost as a whole.
    check!(seen[0] >= 1.0 && seen[0] <= behind.len() as f32, "{} additions", seen[0]);
    bench.works()
}

/// Whether it waits on the host, in another queue, or behind the running kernel itself, which goes
/// with it then, and says so.
fn a_launch_that_waits_can_be_aborted<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let memset = bench.load("memset")?;
    let buffer = bench.zeroed(4096)?;
    let kernel = bench.endless(bench.stream())?;
    let launch = Launch::new(&memset).buffer(&buffer).u64(9).u64(4096);
    let queues = u32::from(bench.device.properties().queues);
    let shares_queue =
        |stream: &et_runtime::Stream<H>| stream.id() % queues == bench.stream().id() % queues;
    let stream = |shares: bool| loop {
        let stream = bench.device.stream();
        if shares_queue(&stream) == shares {
            break stream;
        }
    };
    let mut waiting = Vec::new();
    if queues > 1 {
        // What waits for an event of another queue waits on the host.
        let held_back = stream(false);
        held_back.wait_for(&kernel);
        waiting.push(("on the host", held_back.launch(&launch)?));
        waiting.push(("in another queue", stream(false).launch(&launch)?));
    }
    for (where_, event) in &waiting {
        bench.device.abort(event, bench.patience)?;
        let outcome = event.outcome();
        check_matches!(
            outcome,
            Some(Err(Error::Aborted { op: "launch" })),
            "a launch that waits {where_}"
        );
        check_matches!(kernel.wait(MOMENT), Err(Error::Timeout { .. }), "the kernel before it");
    }
    let behind = stream(true).launch(&launch)?;
    bench.device.abort(&behind, bench.patience)?;
    check_matches!(
        behind.outcome(),
        Some(Err(Error::Aborted { op: "launch" })),
        "a launch behind the kernel"
    );
    let outcome = kernel.wait(bench.patience);
    let Err(Error::AbortedWith { op: "launch", operation }) = outcome else {
        return Err(Failure::new(format!("the kernel in the same queue gave {outcome:?}")));
    };
    check_eq!(operation, behind.id(), "the operation that was to be aborted");
    same("memory of kernels that never ran", &bench.download::<u8>(&buffer)?, &[0; 4096])?;
    bench.works()
}

fn kernels_can_be_loaded_while_one_runs<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let config = rig.config().command_timeout(rig.short(Duration::from_secs(2)));
    let bench = Bench::open_with(rig, config)?;
    let kernel = bench.endless(bench.stream())?;
    bench.load("add")?;
    bench.device.abort(&kernel, bench.patience)?;
    bench.works()
}

/// Copies of other streams in the queue of a kernel that is aborted, while they are under way.
fn an_abort_leaves_copies_of_the_same_queue_alone<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let queues = usize::from(bench.device.properties().queues);
    let buffer = bench.zeroed(256 << 10)?;
    for round in 1..=rig.times(60, 12) {
        let byte = u8::try_from(round)?;
        let streams: Vec<_> = (0..=queues).map(|_| bench.device.stream()).collect();
        let kernel = bench.load("hang")?;
        let bad = streams[0].launch(&Launch::new(&kernel).shires(bench.one_shire()))?;
        let copies: Vec<_> = (0..8)
            .map(|part| {
                let slice = buffer.slice(part * (32 << 10)..(part + 1) * (32 << 10))?;
                streams[queues].copy_to_device(&vec![byte; 32 << 10], slice)
            })
            .collect::<Result<_, _>>()?;
        bench.device.abort(&bad, bench.patience)?;
        for copy in &copies {
            bench.done(copy)?;
        }
        let seen = bench.download::<u8>(&buffer)?;
        same("copies beside an abort", &seen, &vec![byte; 256 << 10])?;
    }
    bench.works()
}

/// The device answers a barrier that an abort has caught, although what is before it has yet to be
/// executed.
fn a_barrier_waits_for_what_an_abort_has_sent_again<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let queues = usize::from(bench.device.properties().queues);
    let streams: Vec<_> = (0..=queues).map(|_| bench.device.stream()).collect();
    let launch = bench.hang()?;
    let bad = streams[0].launch(&launch)?;
    let innocent = streams[queues].launch(&launch)?;
    let barrier = streams[queues].barrier()?;
    bench.device.abort(&bad, bench.patience)?;
    check_matches!(barrier.wait(MOMENT), Err(Error::Timeout { .. }), "a barrier behind a kernel");
    check_matches!(innocent.wait(MOMENT), Err(Error::Timeout { .. }), "the kernel before it");
    bench.device.abort(&innocent, bench.patience)?;
    bench.done(&barrier)?;
    bench.works()
}

fn a_question_that_an_abort_catches_is_asked_again<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let queues = usize::from(bench.device.properties().queues);
    let streams: Vec<_> = (0..=queues).map(|_| bench.device.stream()).collect();
    let launch = bench.hang()?;
    let bad = streams[0].launch(&launch)?;
    let mut behind = vec![streams[queues].launch(&launch)?];
    // It goes to the queue with the fewest commands, behind a launch that waits for the cores.
    for stream in streams[1..queues].iter().cycle().take(3 * (queues - 1)) {
        behind.push(stream.launch(&launch)?);
    }
    let in_flight = behind.len() as u64 + 2;
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| bench.device.firmware_version(FirmwareType::MasterMinion));
        let give_up = Instant::now() + bench.patience;
        while bench.device.activity().in_flight < in_flight {
            check!(Instant::now() < give_up, "the question was not sent");
            std::thread::yield_now();
        }
        bench.device.abort(&bad, bench.patience)?;
        for event in &behind {
            bench.device.abort(event, bench.patience)?;
        }
        let version = asked.join().map_err(|_| Failure::new("the question panicked"))?;
        check_matches!(version, Ok(_), "the answer to a question that shared a queue");
        Ok::<_, Failure>(())
    })?;
    bench.works()
}

/// Others go on instead of it: one of them takes the cores, and in every queue another waits.
fn the_report_of_an_aborted_kernel_waits_for_no_other<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let queues = usize::from(bench.device.properties().queues);
    let streams: Vec<_> = (0..=2 * queues).map(|_| bench.device.stream()).collect();
    let bad = bench.endless(&streams[0])?;
    let launch = bench.hang()?;
    let behind: Vec<_> =
        streams[1..].iter().map(|stream| stream.launch(&launch)).collect::<Result<_, _>>()?;
    bench.device.abort(&bad, bench.patience)?;
    let Some(Err(Error::Launch(failure))) = bad.outcome() else {
        return Err(Failure::new(format!("the aborted kernel gave {:?}", bad.outcome())));
    };
    check!(!failure.contexts.is_empty(), "no report: {:?}", failure.contexts_error);
    check!(behind.iter().all(|event| event.outcome().is_none()), "an endless kernel has ended");
    for stream in &streams {
        stream.abort(bench.patience)?;
    }
    bench.works()
}
