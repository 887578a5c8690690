//! Waiting for operations, in each way.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use et_hal::Hal;
use et_runtime::{Drain, Error, EventState, Launch};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::events":
    an_event_is_polled_and_keeps_its_outcome,
    a_deadline_says_what_was_waited_for [Need::Compute, Need::Abort],
    an_event_knows_how_far_its_operation_is [Need::Compute, Need::Abort],
    callbacks_come_without_anybody_waiting,
    a_callback_may_close_the_device_that_calls_it,
    callbacks_follow_the_states_of_an_operation [Need::Compute, Need::Abort],
    events_are_futures,
    transfers_are_futures_that_give_the_buffer,
    a_device_can_be_used_without_a_thread_of_its_own,
    times_of_host_and_device_are_in_order [Need::Compute],
    profiles_have_every_operation,
}

fn an_event_is_polled_and_keeps_its_outcome<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.device.alloc(100_000)?;
    let event = bench.stream().fill(&buffer, 0x42)?;
    crate::check::until("the fill", bench.patience, || Ok(event.is_done()))?;
    let first = event.wait(Duration::ZERO)?;
    check_eq!(event.outcome().transpose()?, Some(first), "the outcome");
    check_eq!(event.clone().wait(Duration::ZERO)?, first, "the outcome of a clone");
    let other = bench.stream().barrier()?;
    check!(other.id() != event.id(), "two operations have the number {}", event.id());
    bench.done(&other)?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &[0x42; 100_000])
}

/// Nothing says that a kernel runs, and nothing claims to.
fn an_event_knows_how_far_its_operation_is<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let buffer = bench.zeroed(4096)?;
    let (stream, other) = (bench.device.stream(), bench.device.stream());
    let kernel = stream.launch(&Launch::new(&hang).shires(bench.one_shire()))?;
    let behind = stream.barrier()?;
    other.wait_for(&kernel);
    let waits = other.fill(&buffer, 1)?;
    let states = || [&kernel, &behind, &waits].map(et_runtime::Event::state);
    for _ in 0..1000 {
        let [kernel, behind, waits] = states();
        check_eq!(kernel, EventState::Ready, "the state of an endless kernel");
        check_eq!(behind, EventState::Ready, "the state of what the device has behind it");
        check_eq!(waits, EventState::Queued, "the state of what waits for its event");
    }
    check!(
        !bench.device.properties().reports_running,
        "running is reported, and there is no state"
    );
    bench.device.request_abort(&kernel)?;
    let mut before = states();
    crate::check::until("the end", bench.patience, || {
        let now = states();
        check!(before.iter().zip(&now).all(|(before, now)| before <= now), "{before:?}, {now:?}");
        before = now;
        Ok(now.iter().all(|&state| state >= EventState::Complete))
    })?;
    check_eq!(before[0], EventState::Failed, "the state of an aborted kernel");
    check_eq!(before[1..], [EventState::Complete; 2], "the states of the others");
    Ok(())
}

fn a_deadline_says_what_was_waited_for<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let short = Duration::from_millis(20);
    let bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let buffer = bench.zeroed(4096)?;
    let stream = bench.device.stream();
    let event = stream.launch(&Launch::new(&hang).shires(bench.one_shire()))?;
    let behind = stream.barrier()?;
    let after = |outcome: Result<(), Error>, what: &str| -> Result<(), Failure> {
        let Err(error @ Error::Timeout { site, after }) = &outcome else {
            return Err(Failure::new(format!("{what}: {outcome:?} behind an endless kernel")));
        };
        check_eq!(*after, short, "the limit of {what}");
        check!(
            site.operation().is_some_and(|operation| operation.contains(what)),
            "a wait for {what} says it was for {site}"
        );
        let device = site.device().ok_or_else(|| Failure::new(format!("{site} on no device")))?;
        let text = error.to_string();
        check!(text.contains(what) && text.contains("20ms") && text.contains(device), "{text}");
        Ok(())
    };
    let started = Instant::now();
    after(event.wait(short).map(drop), "launch")?;
    after(behind.wait(short).map(drop), "barrier")?;
    after(stream.synchronize(short), "synchronize")?;
    after(stream.read(&buffer, &mut [0u8; 4096], short), "read")?;
    let took = started.elapsed();
    check!(took >= short * 4 && took < bench.patience, "four waits of {short:?} took {took:?}");
    bench.device.abort(&event, bench.patience)?;
    bench.done(&behind)?;
    check!(event.wait(bench.patience).is_err(), "an aborted kernel succeeded");
    bench.works()
}

fn callbacks_come_without_anybody_waiting<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (sender, receiver) = mpsc::channel();
    let count = rig.times(100, 20);
    for number in 0..count {
        let sender = sender.clone();
        bench.stream().barrier()?.on_done(move |outcome| {
            // Without a receiver the case has failed already.
            let _ = sender.send((number, outcome.is_ok()));
        });
    }
    let mut seen = vec![false; count];
    for _ in 0..count {
        let (number, is_ok) = receiver.recv_timeout(bench.patience)?;
        check!(is_ok, "barrier {number} failed");
        check!(!std::mem::replace(&mut seen[number], true), "callback {number} came twice");
    }
    // At once, if it is over.
    let event = bench.stream().barrier()?;
    bench.done(&event)?;
    event.on_done(move |outcome| {
        let _ = sender.send((usize::MAX, outcome.is_ok()));
    });
    check_eq!(receiver.recv_timeout(bench.patience)?, (usize::MAX, true), "the late callback");
    Ok(())
}

/// It runs in a thread of the device, which cannot wait for its own end.
fn a_callback_may_close_the_device_that_calls_it<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let Bench { device, patience } = Bench::open(rig)?;
    let stream = device.stream();
    // Long enough for the callback to be there before the end.
    let buffer = device.alloc(16 << 20)?;
    let device = Arc::new(Mutex::new(Some(device)));
    let its = Arc::clone(&device);
    let (sender, receiver) = mpsc::channel();
    stream.fill(&buffer, 1)?.on_done(move |outcome| {
        let device = its.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_ok = outcome.is_ok() && device.is_some();
        drop(device);
        let _ = sender.send(is_ok);
    });
    check!(receiver.recv_timeout(patience)?, "the fill, or the device in its callback");
    check!(stream.barrier().is_err(), "a stream of a closed device takes work");
    drop((stream, buffer));
    // The thread that called back ends behind the callback, and has the card until then.
    crate::check::until("the card to be free", patience, || Ok(Bench::open(rig).is_ok()))
}

fn callbacks_follow_the_states_of_an_operation<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let buffer = bench.zeroed(4096)?;
    let (stream, other) = (bench.device.stream(), bench.device.stream());
    let kernel = stream.launch(&Launch::new(&hang).shires(bench.one_shire()))?;
    other.wait_for(&kernel);
    let waits = other.fill(&buffer, 1)?;
    let (sender, receiver) = mpsc::channel();
    let listen = |name: &'static str, event: &et_runtime::Event, state: EventState| {
        let sender = sender.clone();
        event.on_state(state, move |is| {
            let _ = sender.send((name, state, is));
        });
    };
    let next = || receiver.recv_timeout(bench.patience);
    listen("waits", &waits, EventState::Queued);
    check_eq!(next()?, ("waits", EventState::Queued, EventState::Queued), "told at once");
    listen("waits", &waits, EventState::Ready);
    listen("waits", &waits, EventState::Complete);
    // The kernel is there already, and nothing tells of the other before the kernel has ended.
    listen("kernel", &kernel, EventState::Ready);
    check_eq!(next()?, ("kernel", EventState::Ready, EventState::Ready), "told of the kernel");
    listen("kernel", &kernel, EventState::Executed);
    listen("kernel", &kernel, EventState::Failed);
    bench.device.request_abort(&kernel)?;
    let (name, state, is) = next()?;
    check_eq!((name, state), ("kernel", EventState::Executed), "of its execution");
    check!(matches!(is, EventState::Executed | EventState::Failed), "executed, and {is:?}");
    check_eq!(next()?, ("kernel", EventState::Failed, EventState::Failed), "of its end");
    let (name, state, is) = next()?;
    check_eq!((name, state), ("waits", EventState::Ready), "of what waited");
    check!(matches!(is, EventState::Ready | EventState::Complete), "sent, and {is:?}");
    check_eq!(next()?, ("waits", EventState::Complete, EventState::Complete), "of its end");
    // Too late for all of them, so at once.
    for state in [EventState::Queued, EventState::Ready, EventState::Executed, EventState::Complete]
    {
        listen("waits", &waits, state);
        check_eq!(next()?, ("waits", state, EventState::Complete), "told after the end");
    }
    // A state is not a reason, so the failure is kept for whoever asks.
    drop(kernel);
    crate::check::until("the failure", bench.patience, || Ok(!stream.take_errors().is_empty()))?;
    bench.works()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future to its end, on this thread.
fn block_on<T>(future: impl IntoFuture<Output = T>, patience: Duration) -> Result<T, Failure> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future.into_future());
    let give_up = Instant::now() + patience;
    while Instant::now() < give_up {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return Ok(outcome),
            Poll::Pending => std::thread::park_timeout(patience),
        }
    }
    Err(Failure::new("the future did not come to an end"))
}

fn events_are_futures<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for _ in 0..rig.times(50, 10) {
        let timeline = block_on(bench.stream().barrier()?, bench.patience)??;
        check!(timeline.sent <= timeline.completed, "{timeline:?}");
    }
    Ok(())
}

fn transfers_are_futures_that_give_the_buffer<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (stream, there) = (bench.stream(), bench.device.alloc(9000)?);
    let (sent, mut seen) = ([0x5au8; 9000], [0u8; 9000]);
    let mut buffer = bench.device.host_buffer(9000)?;
    buffer.copy_in(0, &sent)?;
    let mut buffer = block_on(stream.upload(buffer, &there)?, bench.patience)??;
    buffer.copy_in(0, &seen)?;
    let buffer = block_on(stream.download(&there, buffer)?, bench.patience)??;
    buffer.copy_out(0, &mut seen)?;
    same("what came back", &seen, &sent)?;
    // One that is not waited for goes on, and takes its buffer along.
    drop(stream.upload(buffer, &there)?.into_future());
    bench.done(&stream.barrier()?)?;
    bench.works()
}

fn a_device_can_be_used_without_a_thread_of_its_own<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().drain(Drain::Caller))?;
    let buffer = bench.device.alloc(4096)?;
    let event = bench.stream().fill(&buffer, 0x17)?;
    crate::check::until("the fill", bench.patience, || {
        bench.device.poll();
        Ok(event.outcome().is_some())
    })?;
    bench.done(&event)?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &[0x17; 4096])?;
    bench.device.close();
    Ok(())
}

fn times_of_host_and_device_are_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("spin_int")?;
    let harts = 64;
    let out = bench.zeroed(8 * harts)?;
    let mut cycles = Vec::new();
    for iterations in [100, 1000] {
        let launch = Launch::new(&kernel).u64(iterations).buffer(&out).shires(bench.one_shire());
        let timeline = bench.stream().launch(&launch)?.wait(bench.patience)?;
        check!(
            timeline.queued <= timeline.sent && timeline.sent <= timeline.completed,
            "{timeline:?}"
        );
        let device = timeline.device.ok_or_else(|| Failure::new("no times of the device"))?;
        cycles.push(device.execute);
        same("iterations", &bench.download::<u64>(&out)?, &vec![iterations; 64])?;
    }
    check_matches!(cycles[..], [few, many] if *few > 0 && *many > 0, "execution times");
    Ok(())
}

fn profiles_have_every_operation<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    bench.done(&stream.barrier()?)?;
    bench.device.profiler().start();
    let mut ids = Vec::new();
    for _ in 0..10 {
        let event = stream.barrier()?;
        ids.push(event.id());
        bench.done(&event)?;
    }
    let profile = bench.device.profiler().stop();
    bench.done(&stream.barrier()?)?;
    let mut recorded: Vec<_> = profile.records.iter().map(|record| record.id).collect();
    recorded.sort_unstable();
    check_eq!(recorded, ids, "the recorded operations");
    for record in &profile.records {
        check_eq!((record.name, record.stream), ("barrier", stream.id()), "a record");
    }
    let mut json = Vec::new();
    profile.write_chrome_json(&mut json, Some(600))?;
    let value: serde_json::Value = serde_json::from_slice(&json)?;
    let text = value.to_string();
    check!(text.contains("traceEvents") && text.contains("barrier"), "{text}");
    Ok(())
}
