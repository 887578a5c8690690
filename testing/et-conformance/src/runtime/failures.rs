//! Kernels that fail: a report that says where and why, and the next launch works.

use std::io::Cursor;
use std::time::Duration;

use et_hal::{Dma, Hal};
use et_runtime::core_dump::CoreFile;
use et_runtime::kernel::{Cause, ExceptionKind, HartContext, LaunchFailure};
use et_runtime::{Error, Launch};

use super::bench::{Bench, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::failures":
    a_trap_is_reported_with_hart_cause_address_function_and_line
        [Need::Compute, Need::Shires(2)],
    a_core_has_registers_and_memory_as_the_kernel_left_them [Need::Compute],
    an_illegal_instruction_is_reported [Need::Compute],
    a_launch_without_arguments_sees_none_of_before [Need::Compute],
    all_harts_may_fail_at_once [Need::Compute],
    a_negative_return_value_reaches_the_caller [Need::Compute],
    a_kernel_that_gives_up_is_reported [Need::Compute],
    a_failure_does_not_show_in_a_later_report [Need::Compute],
    a_failed_kernel_does_not_stop_its_stream [Need::Compute],
    a_kernel_that_never_ends_is_aborted_and_says_where_it_was [Need::Compute, Need::Abort],
    what_does_not_run_cannot_be_aborted [Need::Abort],
    aborting_a_stream_leaves_the_others_alone [Need::Compute, Need::Abort],
    aborting_a_stream_leaves_a_long_copy_of_another_alone
        [Need::Compute, Need::Abort, Need::Memory(64 << 20)],
    closing_with_an_endless_kernel_ends [Need::Compute, Need::Abort],
}

const SHORT: Duration = Duration::from_millis(50);

fn only(failure: &LaunchFailure) -> Result<&HartContext, Failure> {
    match &failure.contexts[..] {
        [hart] => Ok(hart),
        harts => Err(Failure::new(format!("{} harts failed: {failure:#}", harts.len()))),
    }
}

fn a_trap_is_reported_with_hart_cause_address_function_and_line<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trap_load")?;
    for rank in [70, 0, 127] {
        let failure = bench.fails(&Launch::new(&kernel).u64(rank))?;
        let hart = only(&failure)?;
        let id = bench.hart_of_rank(rank)?;
        check_eq!(hart.hart_id, id, "the hart");
        let expected = ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval: 0 };
        check_eq!(hart.kind, expected, "the exception");
        check_eq!(failure.shire_mask, 1 << (id / 64), "the shires with an exception");
        let pc = hart.pc.ok_or_else(|| Failure::new("no pc"))?;
        let start = kernel.load_address().as_u64();
        check!((start..start + kernel.len_bytes()).contains(&pc), "pc {pc:#x}");
        let location = failure.location(hart).ok_or_else(|| Failure::new("no location"))?;
        let symbol = location.symbol.ok_or_else(|| Failure::new("no symbol"))?;
        check_eq!(symbol.0, "load_from_null", "the function");
        let source = location.source.ok_or_else(|| Failure::new("no line"))?;
        check!(source.0.ends_with("trap_load.c"), "the file is {}", source.0);
        let text = format!("{failure:#}");
        check!(text.contains("load_from_null") && text.contains("trap_load.c"), "{text}");
    }
    bench.works()
}

fn a_core_has_registers_and_memory_as_the_kernel_left_them<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trap_load")?;
    let content = pattern(1_000_000);
    let named = bench.upload(&content)?;
    let launch = Launch::new(&kernel).u64(5).stack_bytes(4096).dumpable();
    let failure = bench.fails(&launch)?;
    let mut file = Cursor::new(Vec::new());
    let dump = bench.device.core_dump(&failure).region("named", &named);
    let summary = dump.write(&mut file).map_err(|error| Failure::new(error.to_string()))?;
    check_eq!(summary.harts, 1, "harts with registers");
    for region in &summary.regions {
        check!(region.error.is_none(), "{region:?}");
    }
    let names: Vec<_> = summary.regions.iter().map(|region| region.name.as_str()).collect();
    let stack = format!("stack of hart {}", only(&failure)?.hart_id);
    for name in ["kernel", "arguments", "named", &stack] {
        check!(names.contains(&name), "no {name} in {names:?}");
    }
    let is_there = file.get_ref().windows(content.len()).any(|bytes| bytes == content);
    check!(is_there, "the content of the named region is not in the file");
    let read = CoreFile::read(file).map_err(|error| Failure::new(error.to_string()))?;
    check_eq!(read.failure.contexts, failure.contexts, "the registers");
    check_eq!(read.failure.to_string(), failure.to_string(), "the report");
    bench.works()
}

/// Without arguments the kernel gets a null pointer, and takes rank 0.
fn a_launch_without_arguments_sees_none_of_before<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trap_load")?;
    // No hart has this rank, so none traps.
    bench.run(&Launch::new(&kernel).u64(1 << 20))?;
    let failure = bench.fails(&Launch::new(&kernel))?;
    check_eq!(only(&failure)?.hart_id, bench.hart_of_rank(0)?, "the hart");
    bench.works()
}

fn an_illegal_instruction_is_reported<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trap_illegal")?;
    let failure = bench.fails(&Launch::new(&kernel).u64(5))?;
    let hart = only(&failure)?;
    let illegal = ExceptionKind::Trap { cause: Cause::IllegalInstruction, tval: 0 };
    check_matches!(
        hart.kind,
        ExceptionKind::Trap { cause: Cause::IllegalInstruction, .. },
        "the exception, which should be like {illegal:?},"
    );
    check_eq!(hart.hart_id, bench.hart_of_rank(5)?, "the hart");
    bench.works()
}

fn all_harts_may_fail_at_once<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trap_load")?;
    let failure = bench.fails(&Launch::new(&kernel).u64(u64::MAX))?;
    let shires = bench.shires();
    let expected: Vec<u32> =
        shires.iter().flat_map(|shire| (0..64).map(move |hart| 64 * shire + hart)).collect();
    let mut harts: Vec<u32> = failure.contexts.iter().map(|hart| hart.hart_id).collect();
    harts.sort_unstable();
    same("the harts that failed", &harts, &expected)?;
    for hart in &failure.contexts {
        check_matches!(
            hart.kind,
            ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval: 0 },
            "hart {}",
            hart.hart_id
        );
    }
    bench.works()
}

fn a_negative_return_value_reaches_the_caller<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("negative_return")?;
    let failure = bench.fails(&Launch::new(&kernel).u64(9))?;
    let hart = only(&failure)?;
    let expected = (bench.hart_of_rank(9)?, ExceptionKind::KernelError(-7));
    check_eq!((hart.hart_id, hart.kind), expected, "hart and reason");
    bench.works()
}

fn a_kernel_that_gives_up_is_reported<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("self_abort")?;
    let failure = bench.fails(&Launch::new(&kernel).u64(0))?;
    let hart = only(&failure)?;
    let expected = (bench.hart_of_rank(0)?, ExceptionKind::SelfAbort);
    check_eq!((hart.hart_id, hart.kind), expected, "hart and reason");
    bench.works()
}

fn a_failure_does_not_show_in_a_later_report<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (load, illegal) = (bench.load("trap_load")?, bench.load("trap_illegal")?);
    for (kernel, rank) in [(&load, 3), (&illegal, 4), (&load, 5), (&illegal, 3)] {
        let failure = bench.fails(&Launch::new(kernel).u64(rank))?;
        let hart = only(&failure)?;
        check_eq!(hart.hart_id, bench.hart_of_rank(rank)?, "the hart");
        check_eq!(failure.kernel(), kernel.name(), "the kernel");
    }
    Ok(())
}

/// Order says nothing about success; what comes later runs.
fn a_failed_kernel_does_not_stop_its_stream<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let (trap, memset) = (bench.load("trap_load")?, bench.load("memset")?);
    let buffer = bench.zeroed(4096)?;
    let stream = bench.device.stream();
    let before = stream.launch(&Launch::new(&memset).buffer(&buffer).u64(1).u64(4096))?;
    let bad = stream.launch(&Launch::new(&trap).u64(1))?;
    let after = stream.launch(&Launch::new(&memset).buffer(&buffer).u64(2).u64(2048))?;
    bench.done(&before)?;
    bench.done(&after)?;
    check_matches!(bad.wait(bench.patience), Err(Error::Launch(_)), "the bad kernel");
    let bytes = bench.download::<u8>(&buffer)?;
    same("what the last kernel wrote", &bytes[..2048], &[2; 2048])?;
    same("what the first kernel wrote", &bytes[2048..], &[1; 2048])
}

fn a_kernel_that_never_ends_is_aborted_and_says_where_it_was<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("hang")?;
    let mask = bench.one_shire();
    let event = bench.stream().launch(&Launch::new(&kernel).shires(mask))?;
    check_matches!(event.wait(SHORT), Err(Error::Timeout { .. }), "an endless kernel");
    bench.device.abort(&event, bench.patience)?;
    let outcome = event.wait(bench.patience);
    let Err(Error::Launch(failure)) = &outcome else {
        return Err(Failure::new(format!("an aborted kernel gave {outcome:?}")));
    };
    check_eq!(failure.contexts.len(), 64, "the number of harts");
    let range = kernel.load_address().as_u64()..;
    for hart in &failure.contexts {
        check_eq!(hart.kind, ExceptionKind::SystemAbort, "hart {}", hart.hart_id);
        check!(hart.pc.is_none_or(|pc| range.contains(&pc)), "pc {:x?}", hart.pc);
        check_eq!(1 << (hart.hart_id / 64), mask, "the shire of hart {}", hart.hart_id);
    }
    bench.works()
}

fn what_does_not_run_cannot_be_aborted<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("task_nop")?;
    let launch = bench.stream().launch(&Launch::new(&kernel).shires(bench.one_shire()))?;
    let copy = bench.stream().fill(&bench.device.alloc(64)?, 1)?;
    bench.done(&launch)?;
    bench.done(&copy)?;
    for (what, event) in [("a launch that has ended", launch), ("a copy that has ended", copy)] {
        let outcome = bench.device.abort(&event, bench.patience);
        check_matches!(outcome, Err(Error::HasEnded { .. }), "aborting {what}");
        bench.done(&event)?;
    }
    bench.works()
}

fn aborting_a_stream_leaves_the_others_alone<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let endless = Launch::new(&hang).shires(bench.one_shire());
    let buffer = bench.zeroed(4096)?;
    // Of several streams one shares the queue of the bad one, where its copy is behind the endless
    // kernel.
    let bad = bench.device.stream();
    let good: Vec<_> = (0..4).map(|_| bench.device.stream()).collect();
    let event = bad.launch(&endless)?;
    let later = bad.launch(&endless)?;
    let mut copies = Vec::new();
    for (byte, stream) in (1u8..).zip(&good) {
        let part = buffer.slice(1024 * u64::from(byte - 1)..1024 * u64::from(byte))?;
        copies.push(stream.copy_to_device(&[byte; 1024], part)?);
    }
    bad.abort(bench.patience)?;
    for event in [event, later] {
        check!(event.wait(bench.patience).is_err(), "a launch of an aborted stream succeeded");
    }
    check!(bad.is_idle(), "the aborted stream has work");
    for copy in &copies {
        bench.done(copy)?;
    }
    for (byte, part) in (1u8..).zip(bench.download::<u8>(&buffer)?.chunks(1024)) {
        same("a copy of another stream", part, &[byte; 1024])?;
    }
    // The stream itself can be used again.
    bench.done(&bad.fill(&buffer, 9)?)?;
    same("a fill of the aborted stream", &bench.download::<u8>(&buffer)?, &[9; 4096])?;
    bench.works()
}

/// The copy is alone in the queue, and still running, when the launches before it have been aborted
/// and their reports are fetched.
fn aborting_a_stream_leaves_a_long_copy_of_another_alone<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let endless = Launch::new(&hang).shires(bench.one_shire());
    let max = bench.device.hal().dma().limits().max_buffer_bytes;
    let len = rig.times(16 << 20, 1 << 20).next_multiple_of(4096).min(max);
    let target = bench.device.alloc(len as u64)?;
    let queues = usize::from(bench.device.properties().queues);
    for round in 0..rig.times(24, 8) {
        let byte = u8::try_from(1 + round)?;
        // Streams take queues in turn, so the first and the last share one.
        let streams: Vec<_> = (0..=queues).map(|_| bench.device.stream()).collect();
        let (bad, good) = (&streams[0], &streams[queues]);
        let launches = [bad.launch(&endless)?, bad.launch(&endless)?];
        let mut host = bench.device.host_buffer(len)?;
        host.fill(0, len, byte)?;
        let copy = good.upload(host, &target)?;
        bad.abort(bench.patience)?;
        copy.wait(bench.patience)?;
        for launch in launches {
            check!(launch.wait(bench.patience).is_err(), "an aborted kernel succeeded");
        }
        let part = target.slice(len as u64 - 4096..)?;
        let mut seen = [0; 4096];
        bench.stream().read(part, &mut seen, bench.patience)?;
        same("the end of the copy", &seen, &[byte; 4096])?;
    }
    bench.works()
}

fn closing_with_an_endless_kernel_ends<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open_with(rig, rig.config().shutdown_timeout(rig.short(SHORT)))?;
    let kernel = bench.load("hang")?;
    let event = bench.stream().launch(&Launch::new(&kernel).shires(bench.one_shire()))?;
    let patience = bench.patience;
    bench.device.close();
    check!(event.wait(patience).is_err(), "an endless kernel succeeded");
    // An event keeps its device from others.
    drop(event);
    // Whoever opens the device next gets rid of what is left.
    Bench::open(rig)?.works()
}
