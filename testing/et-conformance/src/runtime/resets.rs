//! Resets while there is work.

use std::time::Duration;

use et_hal::{Hal, ResetScope};
use et_runtime::executor::{ExecutorConfig, Place, RunError};
use et_runtime::graph::{GraphBuilder, Task};
use et_runtime::{Error, Launch, RecoveryPolicy, Remains, Remedy};

use super::bench::{Bench, pattern};
use crate::check::{check, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::resets":
    compute_can_be_reset_under_an_endless_kernel [Need::Compute, Need::Abort],
    handles_of_before_are_stale [Need::FunctionReset],
    a_reset_in_the_middle_of_work_fails_it_and_all_works_again
        [Need::FunctionReset, Need::Compute],
    an_endless_kernel_ends_with_a_reset [Need::FunctionReset, Need::Compute],
    a_graph_ends_with_a_reset [Need::FunctionReset, Need::Compute],
    resets_may_follow_each_other [Need::FunctionReset],
    a_device_can_be_opened_after_a_reset_through_the_backend [Need::FunctionReset],
    recovery_leaves_a_working_device_alone,
    recovery_ends_an_endless_kernel_and_nothing_else [Need::Compute, Need::Abort],
}

fn compute_can_be_reset_under_an_endless_kernel<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let data = pattern(4096);
    let buffer = bench.upload(&data)?;
    let kernel = bench.load("hang")?;
    let event = bench.stream().launch(&Launch::new(&kernel))?;
    bench.device.reset_compute(bench.patience)?;
    check!(event.wait(bench.patience).is_err(), "an endless kernel succeeded");
    same("device memory", &bench.download(&buffer)?, &data)?;
    bench.works()
}

fn handles_of_before_are_stale<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let stream = bench.device.stream();
    let buffer = bench.zeroed(64)?;
    let kernel = bench.load("memset")?;
    let mut graph = GraphBuilder::new();
    let fill = graph.kernel(&kernel);
    graph.add(Task::new(fill).output(&buffer))?;
    let graph = graph.build()?;
    bench.device.reset(bench.patience)?;
    let stale = |what: &str, outcome: Result<(), Error>| {
        let site = match &outcome {
            Err(Error::Stale { site }) => site,
            _ => return Err(Failure::new(format!("{what} on a stream of before: {outcome:?}"))),
        };
        let is_named = site.operation().is_some() && site.device().is_some();
        check!(is_named, "{what} on a stream of before fails as {site}");
        Ok::<(), Failure>(())
    };
    let new = bench.zeroed(64)?;
    for target in [&buffer, &new] {
        stale("a fill", stream.fill(target, 1).map(drop))?;
        stale("a copy", stream.copy_to_device(&[1u8; 64], target).map(drop))?;
        stale("a read", stream.read(target, &mut [0u8; 64], bench.patience))?;
    }
    stale("a barrier", stream.barrier().map(drop))?;
    stale("a launch", stream.launch(&Launch::new(&kernel)).map(drop))?;
    let outcome = bench.stream().fill(&buffer, 1);
    check_matches!(outcome, Err(Error::Stale { .. }), "a fill of a buffer of before");
    let outcome = bench.stream().launch(&Launch::new(&kernel));
    check_matches!(outcome, Err(Error::Stale { .. }), "a launch of a kernel of before");
    let executor = bench.device.executor(&ExecutorConfig::new().place(Place::Streams))?;
    let outcome = executor.launch(&graph).map(drop);
    check_matches!(outcome, Err(RunError::Device(Error::Stale { .. })), "a graph of before");
    drop(executor);
    same("the new buffer", &bench.download::<u8>(&new)?, &[0; 64])?;
    drop((stream, buffer, kernel));
    bench.works()
}

/// Commands of every kind are on their way: staged and direct copies, launches, barriers, in
/// several streams.
fn a_reset_in_the_middle_of_work_fails_it_and_all_works_again<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let hang = bench.load("hang")?;
    let mut events = Vec::new();
    let mut transfers = Vec::new();
    for number in 0..4u8 {
        let stream = bench.device.stream();
        let buffer = bench.device.alloc(100_000)?;
        // Nothing behind the endless kernel can complete, in any queue.
        events.push(stream.launch(&Launch::new(&hang).shires(bench.one_shire()))?);
        events.push(stream.copy_to_device(&vec![number; 100_000], &buffer)?);
        let host = bench.device.host_buffer(100_000)?;
        transfers.push(stream.download(buffer.slice(0..65_536)?, host)?);
        events.push(stream.barrier()?);
    }
    bench.device.reset(bench.patience)?;
    for event in events {
        check!(event.is_done(), "{event:?} is not done after the reset");
        check_matches!(event.wait(bench.patience), Err(Error::Stale { .. }), "{event:?}");
    }
    for transfer in transfers {
        let outcome = transfer.wait(bench.patience);
        let Err(late) = outcome else {
            return Err(Failure::new("a transfer behind an endless kernel succeeded"));
        };
        check_matches!(late.error, Error::Stale { .. }, "a transfer");
        check_matches!(late.remains, Remains::Nothing | Remains::Buffer(_), "its buffer");
    }
    let data = pattern(200_000);
    same("new memory", &bench.download(&bench.upload(&data)?)?, &data)?;
    bench.works()
}

fn an_endless_kernel_ends_with_a_reset<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let kernel = bench.load("hang")?;
    let event = bench.stream().launch(&Launch::new(&kernel))?;
    check_matches!(
        event.wait(Duration::from_millis(20)),
        Err(Error::Timeout { .. }),
        "an endless kernel"
    );
    bench.device.reset(bench.patience)?;
    check_matches!(
        event.wait(bench.patience),
        Err(Error::Stale { .. }),
        "the kernel after the reset"
    );
    bench.works()
}

fn a_graph_ends_with_a_reset<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    for place in [Place::Streams, Place::Resident] {
        let executor = bench.device.executor(&ExecutorConfig::new().place(place).cores(4))?;
        let word = bench.zeroed(64)?;
        let mut builder = GraphBuilder::new();
        let hang = builder.kernel(&bench.load("task_hang")?);
        let endless = builder.add(Task::new(hang).u64(1).in_out(word.whole()))?;
        builder.add(Task::new(hang).u64(0).in_out(word.whole()).after(endless))?;
        let run = executor.launch(&builder.build()?)?;
        bench.device.reset(bench.patience)?;
        let outcome = run.wait(bench.patience)?;
        check!(outcome.check().is_err(), "an endless graph in {place} succeeded");
        check!(outcome.state(endless).is_final(), "{place}: {:?}", outcome.state(endless));
        drop(executor);
        bench.works()?;
    }
    Ok(())
}

fn resets_may_follow_each_other<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    for round in 0..4u8 {
        bench.device.reset(bench.patience)?;
        if round % 2 == 1 {
            bench.works()?;
        }
    }
    Ok(())
}

/// Another user resets the device under the runtime: errors, no hangs, and the next one finds it
/// in order.
fn a_device_can_be_opened_after_a_reset_through_the_backend<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    use et_hal::{Reset, ResetState};
    let mut bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let mut control = bench.device.hal().reset()?;
    control.begin(ResetScope::Function)?;
    let outcome = bench.stream().fill(&buffer, 1).and_then(|event| event.wait(bench.patience));
    check!(outcome.is_err(), "a fill during a reset succeeded");
    crate::check::until("the reset", bench.patience, || {
        Ok(matches!(control.poll()?, ResetState::Done(_)))
    })?;
    drop(control);
    let outcome = bench.stream().barrier().and_then(|event| event.wait(bench.patience));
    check!(outcome.is_err(), "a mailbox of before the reset works");
    // The device itself can be brought back,
    bench.device.reset(bench.patience)?;
    bench.works()?;
    drop(bench);
    // and so can the card.
    Bench::open(rig)?.works()
}

fn recovery_leaves_a_working_device_alone<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let data = pattern(4096);
    let buffer = bench.upload(&data)?;
    let recovery = bench.device.recover(&policy(&bench))?;
    check!(recovery.ill.is_none() && recovery.steps.is_empty(), "{recovery:?}");
    same("device memory", &bench.download(&buffer)?, &data)?;
    bench.works()
}

fn recovery_ends_an_endless_kernel_and_nothing_else<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let mut bench = Bench::open(rig)?;
    let data = pattern(4096);
    let buffer = bench.upload(&data)?;
    let kernel = bench.load("hang")?;
    let event = bench.stream().launch(&Launch::new(&kernel))?;
    let recovery = bench.device.recover(&policy(&bench))?;
    check_matches!(recovery.ill, Some(Error::Timeout { .. }), "what was wrong");
    let remedies: Vec<_> = recovery.steps.iter().map(|step| step.remedy).collect();
    same("remedies", &remedies, &[Remedy::Abort])?;
    check!(event.is_done() && event.wait(bench.patience).is_err(), "the kernel: {event:?}");
    same("device memory", &bench.download(&buffer)?, &data)?;
    bench.works()
}

fn policy<H: Hal>(bench: &Bench<H>) -> RecoveryPolicy {
    RecoveryPolicy::new().widest(ResetScope::Function).timeout(bench.patience)
}
