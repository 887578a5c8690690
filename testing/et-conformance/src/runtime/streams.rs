//! Order within streams and between them.

use et_hal::Hal;
use et_runtime::{Error, EventState, KernelArgs, Launch, Priority, Remains, StreamOptions};
use zerocopy::IntoBytes;

use super::bench::{Bench, floats, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::streams":
    operations_of_a_stream_are_in_order,
    streams_that_wait_for_each_other_are_in_order [Need::Compute],
    kernels_and_copies_of_a_stream_are_in_order [Need::Compute],
    launches_given_together_are_in_order [Need::Compute],
    launches_given_together_are_sent_together [Need::Compute, Need::Abort],
    two_streams_work_at_the_same_time,
    streams_of_all_priorities_do_their_work,
    a_launch_with_its_copies_is_one_operation [Need::Compute],
    a_staged_launch_that_fails_gives_the_buffer_back [Need::Compute],
    arguments_of_all_sizes_arrive_while_launches_are_in_flight [Need::Compute],
    many_threads_may_use_one_stream_and_one_event,
    thousands_of_streams_come_and_go,
    memory_is_freed_when_the_last_command_is_done_and_not_before [Need::Compute, Need::Abort],
}

/// Each operation would be seen by the next one if it came late.
fn operations_of_a_stream_are_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let len = 10_000usize;
    let (a, b) = (bench.zeroed(len as u64)?, bench.zeroed(len as u64)?);
    let mut seen = vec![0; len];
    for round in 1..=rig.times(40, 8) {
        let byte = u8::try_from(round)?;
        let first = stream.copy_to_device(&vec![byte; len], &a)?;
        let second = stream.copy_on_device(&a, &b)?;
        let third = stream.fill(&a, 0xff)?;
        // Nothing was waited for: the read is behind all of them.
        stream.read(&b, &mut seen, bench.patience)?;
        same("the second buffer", &seen, &vec![byte; len])?;
        stream.read(&a, &mut seen, bench.patience)?;
        same("the first buffer", &seen, &vec![0xff; len])?;
        for event in [first, second, third] {
            check!(event.is_done(), "{event:?} is not done, what came later is");
            bench.done(&event)?;
        }
    }
    check!(stream.is_idle(), "a stream with nothing to do");
    Ok(())
}

/// Every step adds 1 to what the step before has left, each on the next stream.
fn streams_that_wait_for_each_other_are_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("add_scalar")?;
    let streams: Vec<_> = (0..3).map(|_| bench.device.stream()).collect();
    let buffer = bench.zeroed(4096)?;
    let steps = rig.times(60, 9);
    let mut last = streams[0].barrier()?;
    for stream in streams.iter().cycle().take(steps) {
        stream.wait_for(&last);
        let launch = Launch::new(&kernel).buffer(&buffer).buffer(&buffer).f32(1.0).u64(1024);
        last = stream.launch(&launch)?;
    }
    bench.done(&last)?;
    let expected = f32::from(u16::try_from(steps)?);
    same("the sum", &bench.download::<f32>(&buffer)?, &[expected; 1024])
}

fn kernels_and_copies_of_a_stream_are_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let memset = bench.load("memset")?;
    let buffer = bench.zeroed(8192)?;
    let mut seen = vec![0u8; 8192];
    for round in 0..u8::try_from(rig.times(30, 5))? {
        let launch = Launch::new(&memset).buffer(&buffer).u64(u64::from(round)).u64(8192);
        let kernel = stream.launch(&launch)?;
        let part = buffer.slice(1024..2048)?;
        let copy = stream.copy_to_device(&[round ^ 0x80; 1024], &part)?;
        stream.read(&buffer, &mut seen, bench.patience)?;
        same("what the kernel wrote", &seen[..1024], &[round; 1024])?;
        same("what was copied over it", &seen[1024..2048], &[round ^ 0x80; 1024])?;
        same("what the kernel wrote", &seen[2048..], &[round; 8192 - 2048])?;
        bench.done(&kernel)?;
        bench.done(&copy)?;
    }
    Ok(())
}

/// More than there are launch contexts. One of them needs a copy of its arguments before it, and
/// would spoil the sum at any other place.
fn launches_given_together_are_in_order<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let (add, memset) = (bench.load("add_scalar")?, bench.load("memset")?);
    let buffer = bench.zeroed(4096)?;
    let one = || Launch::new(&add).shires(1).buffer(&buffer).buffer(&buffer).f32(1.0).u64(64);
    let long = KernelArgs::new().addr(buffer.addr()).u64(0).u64(256).bytes(&[0xee; 5000], 1);
    let count = rig.times(150, 70);
    let mut launches: Vec<_> = (0..count).map(|_| one()).collect();
    launches[count / 2] = Launch::new(&memset).args(long).keep(&buffer);
    let sum = f32::from(u16::try_from(count - count / 2 - 1)?);
    for _ in 0..2 {
        let before = stream.barrier()?;
        let events = stream.launch_all(&launches)?;
        let after = stream.barrier()?;
        let ids: Vec<_> = events.iter().map(et_runtime::Event::id).collect();
        check_eq!(ids, (before.id() + 1..after.id()).collect::<Vec<_>>(), "the operations");
        check_eq!(ids.len(), count, "operations");
        for event in &events {
            bench.done(event)?;
        }
        same("the sum", &bench.download::<f32>(&buffer)?[..64], &[sum; 64])?;
    }
    launches[count - 1] = one().shires(0);
    let first = stream.barrier()?;
    let refused = stream.launch_all(&launches);
    check_matches!(refused, Err(Error::ShireMask { .. }), "launches of which one is refused");
    check_eq!(stream.barrier()?.id(), first.id() + 1, "operations since the refusal");
    check_matches!(stream.launch_all(&[]).map(|events| events.len()), Ok(0), "no launches");
    same("the sum", &bench.download::<f32>(&buffer)?[..64], &[sum; 64])?;
    bench.works()
}

fn a_launch_with_its_copies_is_one_operation<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let kernel = bench.load("add")?;
    // The second needs more than one piece for each input.
    for count in [16u32, rig.times(150_000, 5000).try_into()?] {
        let bytes = u64::from(count) * 4;
        let [a, b, c] = [(); 3].map(|()| bench.device.alloc(bytes));
        let (a, b, c) = (a?, b?, c?);
        let launch = Launch::new(&kernel).buffer(&a).buffer(&b).buffer(&c).u64(count.into());
        for round in 0..3 {
            let (x, y) = (floats(round, count), floats(round + 7, count));
            let sum: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            let mut into = bench.device.host_buffer(64 + x.len() * 4)?;
            into.fill(0, 64, 0x5c)?;
            let inputs = [(x.as_bytes(), a.whole()), (y.as_bytes(), b.whole())];
            let before = stream.barrier()?;
            let staged = stream.launch_staged(&inputs, &launch, &[(64, c.whole())], into)?;
            // Nothing of it is waited for, and what is behind it waits for all of it.
            let spoilt = stream.fill(&c, 0xff)?;
            let (first, own) = (before.id(), staged.event().id());
            check_eq!((own, spoilt.id()), (first + 1, first + 2), "the operations");
            let into = staged.wait(bench.patience)?;
            let mut seen = vec![0f32; x.len()];
            into.copy_out(64, &mut seen)?;
            same("the sum", &seen, &sum)?;
            let mut around = [0u8; 64];
            into.copy_out(0, &mut around)?;
            same("the rest of the buffer", &around, &[0x5c; 64])?;
        }
        let short = bench.device.host_buffer(8)?;
        let outcome = stream.launch_staged(&[], &launch, &[(0, c.whole())], short);
        check_matches!(outcome, Err(Error::LengthMismatch { .. }), "a buffer that is too short");
        let inputs = [(&[0u8; 8][..], a.whole())];
        let into = bench.device.host_buffer(0)?;
        let outcome = stream.launch_staged(&inputs, &launch, &[], into);
        check_matches!(outcome, Err(Error::LengthMismatch { .. }), "an input that is too short");
    }
    Ok(())
}

fn a_staged_launch_that_fails_gives_the_buffer_back<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let kernel = bench.load("trap_load")?;
    let buffer = bench.zeroed(4096)?;
    let into = bench.device.host_buffer(4096)?;
    let launch = Launch::new(&kernel).u64(0);
    let data = [1u8; 4096];
    let inputs = [(&data[..], buffer.whole())];
    let staged = stream.launch_staged(&inputs, &launch, &[(0, buffer.whole())], into)?;
    let failed = match staged.wait(bench.patience) {
        Err(failed) => failed,
        Ok(_) => return Err(Failure::new("a kernel that traps succeeded")),
    };
    check_matches!(failed.error, Error::Launch(_), "a staged launch of a kernel that traps");
    check_matches!(failed.remains, Remains::Buffer(_), "what is left of it");
    same("the input", &bench.download::<u8>(&buffer)?, &data)?;
    bench.works()
}

/// With hardly any room, so that all but one of them wait.
fn streams_of_all_priorities_do_their_work<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().in_flight(2))?;
    let priorities = [Priority::Normal, Priority::High, Priority::Low];
    let streams: Vec<_> = priorities
        .iter()
        .cycle()
        .take(9)
        .map(|its| bench.device.stream_with(&StreamOptions::new().priority(*its)))
        .collect();
    let buffers = streams.iter().map(|_| bench.zeroed(8192)).collect::<Result<Vec<_>, _>>()?;
    for round in 0..rig.times(40, 8) {
        for (number, (stream, buffer)) in streams.iter().zip(&buffers).enumerate() {
            let byte = u8::try_from(number * 20 + round % 20)?;
            // Each would spoil the result if it came late.
            let _ = stream.fill(buffer, 0xff)?;
            let _ = stream.fill(buffer.slice(0..4096)?, byte)?;
            let _ = stream.copy_on_device(buffer.slice(0..4096)?, buffer.slice(4096..8192)?)?;
        }
    }
    let last = rig.times(40, 8) - 1;
    for (number, (stream, buffer)) in streams.iter().zip(&buffers).enumerate() {
        stream.synchronize(bench.patience)?;
        let byte = u8::try_from(number * 20 + last % 20)?;
        same("a buffer", &bench.download::<u8>(buffer)?, &[byte; 8192])?;
    }
    Ok(())
}

/// Also if the launches before needed few contexts: the device is not to wait for the host between
/// two of them.
fn launches_given_together_are_sent_together<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let launch = |name| Ok::<_, Failure>(Launch::new(&bench.load(name)?).shires(bench.one_shire()));
    bench.run(&launch("task_nop")?)?;
    let events = stream.launch_all(&vec![launch("hang")?; 4])?;
    let (sender, receiver) = std::sync::mpsc::channel();
    for event in &events {
        let sender = sender.clone();
        event.on_state(EventState::Ready, move |state| {
            let _ = sender.send(state);
        });
    }
    for _ in &events {
        check_eq!(receiver.recv_timeout(bench.patience)?, EventState::Ready, "a launch");
    }
    stream.abort(bench.patience)?;
    bench.works()
}

/// Copies of two streams, one thread each, both checked all the time.
fn two_streams_work_at_the_same_time<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let rounds = rig.times(40, 6);
    let work = |seed: usize| -> Result<(), Failure> {
        let stream = bench.device.stream();
        for round in 0..rounds {
            let len = 1 + (round * 7919 + seed * 104_729) % 200_000;
            let data: Vec<u8> = pattern(len + seed).split_off(seed);
            let buffer = bench.device.alloc(len as u64)?;
            let event = stream.copy_to_device(&data, &buffer)?;
            let mut back = vec![0; len];
            stream.read(&buffer, &mut back, bench.patience)?;
            same("what came back", &back, &data)?;
            bench.done(&event)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        let own = work(2);
        own.and(other.join().map_err(|_| Failure::new("a thread panicked"))?)
    })
}

/// Short ones travel in the message, long ones are copied first; both must be kept until the kernel
/// has read them.
fn arguments_of_all_sizes_arrive_while_launches_are_in_flight<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("memset")?;
    let out = bench.zeroed(64 * 9)?;
    let stream = bench.device.stream();
    let mut events = Vec::new();
    // The first three words are what the kernel reads; the rest only makes the block longer.
    for (slot, extra) in (0u64..).zip([0usize, 96, 104, 112, 1000, 4072, 4080, 5000, 100_000]) {
        let part = out.slice(slot * 64..slot * 64 + 64)?;
        let args =
            KernelArgs::new().addr(part.addr()).u64(slot + 1).u64(64).bytes(&vec![0xee; extra], 1);
        events.push(stream.launch(&Launch::new(&kernel).args(args).keep(part))?);
    }
    for event in &events {
        bench.done(event)?;
    }
    for (slot, part) in (1u8..).zip(bench.download::<u8>(&out)?.chunks(64)) {
        same(&format!("the part of launch {slot}"), part, &[slot; 64])?;
    }
    Ok(())
}

fn many_threads_may_use_one_stream_and_one_event<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const THREADS: usize = 8;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("task_nop")?;
    let stream = bench.device.stream();
    let launch = Launch::new(&kernel).shires(bench.one_shire());
    let in_threads = |work: &(dyn Fn() -> Result<(), Failure> + Sync)| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| Failure::new("a thread panicked"))?
            })
        })
    };
    let rounds = rig.times(200, 5);
    in_threads(&|| (0..rounds).try_for_each(|_| bench.done(&stream.launch(&launch)?)))?;
    let event = stream.launch(&launch)?;
    in_threads(&|| bench.done(&event))?;
    check_eq!(bench.device.counters().stray_responses, 0, "stray responses");
    check_eq!(bench.device.counters().unknown_messages, 0, "unknown messages");
    Ok(())
}

fn thousands_of_streams_come_and_go<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let mut last = bench.device.stream().barrier()?;
    for _ in 0..rig.times(10_000, 500) {
        let stream = bench.device.stream();
        last = stream.barrier()?;
    }
    bench.done(&last)?;
    Ok(bench.stream().synchronize(bench.patience)?)
}

fn memory_is_freed_when_the_last_command_is_done_and_not_before<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    const BYTES: u64 = 1 << 20;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("hang")?;
    let used = || bench.device.memory_stats().used_bytes;
    let before = used();
    let buffer = bench.device.alloc(BYTES)?;
    let launch = Launch::new(&kernel).buffer(&buffer).shires(bench.one_shire());
    let event = bench.stream().launch(&launch)?;
    drop((buffer, launch));
    check!(used() >= before + BYTES, "memory is free while a kernel has its address");
    let (kernel, error) = match kernel.unload() {
        Err(refused) => refused,
        Ok(()) => return Err(Failure::new("a running kernel was unloaded")),
    };
    crate::check::check_matches!(error, et_runtime::Error::KernelInUse { .. }, "unloading");
    // It has started by then, so that the device has a report of it.
    let outcome = event.wait(std::time::Duration::from_millis(50));
    crate::check::check_matches!(outcome, Err(et_runtime::Error::Timeout { .. }), "endless");
    // Whoever hears of the end finds the memory free and the kernel unused.
    let (sender, receiver) = std::sync::mpsc::channel();
    event.on_done(move |_| drop(sender.send(kernel.unload().map_err(|(_, error)| error))));
    bench.device.abort(&event, bench.patience)?;
    check!(event.wait(bench.patience).is_err(), "an aborted kernel succeeded");
    // What reports of failures need may stay.
    check!(used() - before < BYTES, "{} bytes are still used", used() - before);
    let until = std::time::Instant::now() + bench.patience;
    loop {
        match receiver.try_recv() {
            Ok(unloaded) => break unloaded?,
            Err(_) => check!(std::time::Instant::now() < until, "the callback was not called"),
        }
        bench.device.poll();
    }
    Ok(())
}
