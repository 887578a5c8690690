//! Graphs, in every place the device offers.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use et_hal::Hal;
use et_runtime::executor::{
    DeviceExecutor, ExecutorConfig, Place, RunError, RunOptions, TaskSpan, TaskState,
};
use et_runtime::graph::{Comparison, CoreSet, Graph, GraphBuilder, HostData, Task, TaskId, Word};
use et_runtime::{DeviceBuffer, Error, Launch};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::graphs":
    a_formula_has_the_same_result_in_every_place [Need::Compute],
    long_chains_and_wide_graphs_complete [Need::Compute],
    streams_are_for_kernels_that_need_many_harts [Need::Compute],
    host_functions_and_kernels_mix [Need::Compute],
    conditions_decide_what_runs_in_every_place [Need::Compute],
    a_condition_may_be_on_data_of_either_side [Need::Compute],
    a_flow_is_steered_by_what_it_has_computed [Need::Compute],
    parts_of_a_task_know_their_numbers_and_run_at_the_same_time [Need::Compute],
    what_follows_a_task_waits_for_all_its_parts [Need::Compute],
    parts_that_start_together_have_a_hart_each [Need::Compute, Need::CpuAccess],
    graphs_run_beside_one_another_on_cores [Need::Compute, Need::CpuAccess],
    kernels_stay_on_their_cores [Need::Compute, Need::CpuAccess],
    streams_of_the_device_work_beside_executors [Need::Compute],
    what_cannot_run_is_refused_before_anything_is_launched [Need::Compute],
}

const N: u64 = 4096;

/// The places this device has.
pub(super) fn places<H: Hal>(rig: &Rig<H>) -> Result<Vec<Place>, Failure> {
    let mut places = vec![Place::Streams, Place::Resident];
    if rig.missing(&[Need::CpuAccess])?.is_none() {
        places.push(Place::Cores);
    }
    Ok(places)
}

pub(super) fn executor<H: Hal>(
    bench: &Bench<H>,
    place: Place,
) -> Result<DeviceExecutor<H>, Failure> {
    Ok(bench.device.executor(&ExecutorConfig::new().place(place).cores(8))?)
}

/// f = (a + b + 1)(a + b + 2), as four tasks with copies at both ends.
pub(super) struct Formula {
    graph: Graph,
    result: HostData,
    output: DeviceBuffer,
    tasks: [TaskId; 4],
    _others: Vec<DeviceBuffer>,
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn expected() -> Vec<f32> {
    (0..N).map(|n| (n as f32 + 0.5 + 1.0) * (n as f32 + 0.5 + 2.0)).collect()
}

impl Formula {
    pub(super) fn new<H: Hal>(bench: &Bench<H>) -> Result<Self, Failure> {
        let mut buffers = Vec::new();
        for _ in 0..6 {
            buffers.push(bench.zeroed(4 * N)?);
        }
        let [a, b, s, p, q, f] = [0, 1, 2, 3, 4, 5].map(|index: usize| buffers[index].whole());
        let a_values: Vec<f32> = (0..N).map(|n| n as f32).collect();
        let result = HostData::zeroed(4 * N as usize);
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&bench.load("add")?);
        let add_scalar = builder.kernel(&bench.load("add_scalar")?);
        let mul = builder.kernel(&bench.load("mul")?);
        let sum = Task::new(add)
            .stage_in(&HostData::new(bytes(&a_values)), a.clone())
            .stage_in(&HostData::new(bytes(&vec![0.5; N as usize])), b.clone())
            .name("sum")
            .input(a)
            .input(b)
            .output(s.clone())
            .u64(N);
        let sum = builder.add(sum)?;
        let plus = |to: &et_runtime::DeviceSlice, by: f32| {
            Task::new(add_scalar).input(s.clone()).output(to.clone()).f32(by).u64(N)
        };
        let plus_1 = builder.add(plus(&p, 1.0))?;
        let plus_2 = builder.add(plus(&q, 2.0))?;
        let product =
            Task::new(mul).input(p).input(q).output(f.clone()).u64(N).stage_out(f, &result);
        let product = builder.add(product)?;
        let graph = builder.build()?;
        let output = buffers.remove(5);
        let tasks = [sum, plus_1, plus_2, product];
        Ok(Self { graph, result, output, tasks, _others: buffers })
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        let result = self.result.to_vec();
        same(&format!("the result of {place}"), &result, &bytes(&expected()))
    }
}

/// The executor still computes.
pub(super) fn works<H: Hal>(bench: &Bench<H>, executor: &DeviceExecutor<H>) -> Result<(), Failure> {
    let formula = Formula::new(bench)?;
    executor.launch(&formula.graph)?.finish(bench.patience)?;
    formula.check(executor.place())
}

fn a_formula_has_the_same_result_in_every_place<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)?.into_iter().chain([Place::Auto]) {
        let executor = executor(&bench, place)?;
        let formula = Formula::new(&bench)?;
        for _ in 0..3 {
            formula.result.with_mut(|result| result.fill(0));
            let run = executor.launch_with(&formula.graph, RunOptions::new().traced())?;
            let outcome = run.finish(bench.patience)?;
            formula.check(place)?;
            if place != Place::Auto {
                check_eq!(outcome.place(), place.name(), "where it ran");
            }
            for task in formula.tasks {
                check_eq!(outcome.state(task), TaskState::Complete, "task {task:?} in {place}");
            }
            let trace = outcome.trace().ok_or_else(|| Failure::new("no trace"))?;
            check!(!trace.spans().is_empty(), "an empty trace of {place}");
        }
        let output = bench.download::<f32>(&formula.output)?;
        same("device memory", &output, &expected())?;
    }
    bench.device.close();
    Ok(())
}

/// Each task of a chain adds 1 to what the one before has left; those of a row work on lines of
/// their own.
fn long_chains_and_wide_graphs_complete<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let add_scalar = bench.load("add_scalar")?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let count = rig.times(if place == Place::Streams { 200 } else { 1000 }, 20);
        let chain = bench.zeroed(64)?;
        let row = bench.zeroed(64 * count as u64)?;
        let mut builder = GraphBuilder::new();
        let function = builder.kernel(&add_scalar);
        for number in 0..count as u64 {
            let line = || chain.whole();
            builder.add(Task::new(function).input(line()).output(line()).f32(1.0).u64(16))?;
            let line = row.slice(64 * number..64 * number + 64)?;
            let task = Task::new(function).input(line.clone()).output(line);
            builder.add(task.f32(number as f32).u64(16))?;
        }
        let outcome = executor.launch(&builder.build()?)?.finish(bench.patience)?;
        check_eq!(outcome.count(TaskState::Complete), 2 * count, "the tasks done in {place}");
        let sum = bench.download::<f32>(&chain)?;
        same(&format!("the chain in {place}"), &sum, &[count as f32; 16])?;
        let expected: Vec<f32> = (0..count).flat_map(|number| [number as f32; 16]).collect();
        same(&format!("the row in {place}"), &bench.download::<f32>(&row)?, &expected)?;
    }
    Ok(())
}

fn streams_are_for_kernels_that_need_many_harts<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let executor = executor(&bench, Place::Auto)?;
    let values: Vec<u64> = (1..=N / 2).collect();
    let x = bench.upload(&values)?;
    let out = bench.zeroed(32)?;
    let mut builder = GraphBuilder::new();
    let reduce = builder.kernel(&bench.load("reduce")?);
    builder.add(Task::new(reduce).input(x.whole()).u64(N / 2).output(out.whole()))?;
    let graph = builder.build()?;
    let outcome = executor.launch(&graph)?.finish(bench.patience)?;
    check_eq!(outcome.place(), "streams", "where it ran");
    let sum = bench.download::<u64>(&out)?[0];
    check_eq!(sum, values.iter().sum::<u64>(), "the sum");
    let forced = bench.device.executor(&ExecutorConfig::new().place(Place::Resident))?;
    let refused = forced.launch(&graph).map(drop);
    let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
    check!(text.contains("\"reduce\" has no function et_task"), "a forced place says \"{text}\"");
    Ok(())
}

fn host_functions_and_kernels_mix<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let without_functions = Place::Resident;
    let places = places(rig)?.into_iter().filter(|place| *place != without_functions);
    for place in places.chain([Place::Auto]) {
        let executor = executor(&bench, place)?;
        let buffer = bench.device.alloc(4 * N)?;
        let data = HostData::new(bytes(&vec![1.0; N as usize]));
        let mut builder = GraphBuilder::new();
        let add_scalar = builder.kernel(&bench.load("add_scalar")?);
        builder.copy_in(&data, buffer.whole())?;
        let task = Task::new(add_scalar).input(buffer.whole()).output(buffer.whole()).f32(2.0);
        builder.add(task.u64(N))?;
        let result = HostData::zeroed(4 * N as usize);
        let copy = builder.copy_out(buffer.whole(), &result)?;
        let sum = Arc::new(AtomicU64::new(0));
        let (its, from) = (Arc::clone(&sum), result.clone());
        let function = builder.function(move |_| {
            let total: f32 = from.with(|bytes| {
                let (words, _) = bytes.as_chunks::<4>();
                words.iter().map(|word| f32::from_le_bytes(*word)).sum()
            });
            its.store(total as u64, Ordering::Relaxed);
            Ok(())
        });
        builder.add(Task::new(function).reads(&result).after(copy))?;
        executor.launch(&builder.build()?)?.finish(bench.patience)?;
        check_eq!(sum.load(Ordering::Relaxed), 3 * N, "the sum in {place}");
    }
    Ok(())
}

/// A countdown: each step runs while the counter is not 0, and leaves it one less. Beside it what
/// is to run once it has ended, and what is not.
fn conditions_decide_what_runs_in_every_place<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let add_scalar = bench.load("add_scalar")?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let steps = rig.times(40, 12);
        let start = steps / 3;
        // Floats that are whole and positive are in the order of their bits.
        let counter = bench.upload(&[start as f32; 16])?;
        let ends = bench.zeroed(128)?;
        let word = Word::<u32>::on_device(&counter, 60)?;
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&add_scalar);
        for _ in 0..steps {
            let task = Task::new(add).input(&counter).output(&counter).f32(-1.0).u64(16);
            builder.add(task.only_if(&word, Comparison::GreaterOrEqual, 1.0_f32.to_bits()))?;
        }
        for (line, comparison) in [(0, Comparison::Equal), (64, Comparison::NotEqual)] {
            let end = ends.slice(line..line + 64)?;
            let task = Task::new(add).input(&counter).output(end).f32(7.0).u64(16);
            builder.add(task.only_if(&word, comparison, 0))?;
        }
        let graph = builder.build()?;
        for round in 0..2 {
            let run = executor.launch_with(&graph, RunOptions::new().traced())?;
            let outcome = run.finish(bench.patience)?;
            check!(outcome.is_success(), "round {round} in {place}");
            let expected = if round == 0 { start } else { 0 };
            let ran = outcome.count(TaskState::Complete);
            check_eq!(ran, expected + 1, "the tasks that ran in round {round} in {place}");
            let skipped = outcome.count(TaskState::Skipped);
            check_eq!(ran + skipped, steps + 2, "the tasks of round {round} in {place}");
            let spans = outcome.trace().map_or(0, |trace| trace.spans().len());
            check_eq!(spans, ran, "the spans of round {round} in {place}");
            check_eq!(
                outcome.state(TaskId::from_index(steps as u32)),
                TaskState::Complete,
                "behind"
            );
        }
        same(&format!("the counter in {place}"), &bench.download::<f32>(&counter)?, &[0.0; 16])?;
        let left: Vec<f32> = [[7.0; 16], [0.0; 16]].concat();
        same(&format!("the ends in {place}"), &bench.download::<f32>(&ends)?, &left)?;
    }
    Ok(())
}

/// Doubles until a number is reached that the program only finds in the memory of the device, while
/// something that takes longer goes on beside it.
fn a_flow_is_steered_by_what_it_has_computed<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let add = bench.load("add")?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let flow = executor.flow();
        let line = bench.upload(&[1.0f32; 16])?;
        let (beside, sum) = (bench.upload(&[1.0f32; 1024])?, bench.zeroed(4096)?);
        let step = |work: &[(&DeviceBuffer, &DeviceBuffer, u64)]| -> Result<Graph, Failure> {
            let mut builder = GraphBuilder::new();
            let add = builder.kernel(&add);
            for (from, to, len) in work {
                let task = Task::new(add).input(*from).input(*from).output(*to);
                builder.add(task.u64(*len))?;
            }
            Ok(builder.build()?)
        };
        let both = [(&line, &line, 16), (&beside, &sum, 1024)];
        let mut runs = vec![flow.launch(&step(&both)?)?];
        let mut value = 0.0;
        while value < 100.0 {
            runs.push(flow.launch(&step(&both[..1])?)?);
            flow.wait_for(&line, bench.patience)?;
            let values = bench.download::<f32>(&line)?;
            check!(values.iter().all(|other| *other == values[0]), "{values:?} in {place}");
            value = values[0];
        }
        flow.finish(bench.patience)?;
        check_eq!((runs.len(), value), (7, 128.0), "steps in {place}");
        same(&format!("beside, in {place}"), &bench.download::<f32>(&sum)?, &[2.0; 1024])?;
        for run in runs {
            check!(run.outcome().is_some_and(|outcome| outcome.is_success()), "in {place}");
        }
    }
    Ok(())
}

/// Kernels that look at host data, and host functions that look at device memory.
fn a_condition_may_be_on_data_of_either_side<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let add_scalar = bench.load("add_scalar")?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let flag = HostData::new(9_u64.to_le_bytes().to_vec());
        let line = bench.zeroed(64)?;
        let mut builder = GraphBuilder::new();
        let add = builder.kernel(&add_scalar);
        let at = Word::<u64>::on_host(&flag, 0)?;
        for (by, comparison) in [(1.0, Comparison::Equal), (2.0, Comparison::NotEqual)] {
            let task = Task::new(add).input(&line).output(&line).f32(by).u64(16);
            builder.add(task.only_if(&at, comparison, 9))?;
        }
        let calls = Arc::new(AtomicU64::new(0));
        let mut expected = vec![TaskState::Complete, TaskState::Skipped];
        if place != Place::Resident {
            let on_device = Word::<u32>::on_device(&line, 0)?;
            for (value, state) in [(1.0_f32, TaskState::Complete), (2.0, TaskState::Skipped)] {
                let its = Arc::clone(&calls);
                let call = builder.function(move |_| {
                    its.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                let bits = value.to_bits();
                builder.add(Task::new(call).only_if(&on_device, Comparison::Equal, bits))?;
                expected.push(state);
            }
        }
        let graph = builder.build()?;
        let outcome = executor.launch(&graph)?.finish(bench.patience)?;
        let states: Vec<_> = graph.tasks().map(|task| outcome.state(task)).collect();
        check_eq!(states, expected, "the states in {place}");
        check_eq!(calls.load(Ordering::Relaxed), expected.len() as u64 / 4, "the calls in {place}");
        same(&format!("the line in {place}"), &bench.download::<f32>(&line)?, &[1.0; 16])?;
    }
    Ok(())
}

/// Each part leaves its number, the number of parts and its hart; a launch has its own number.
fn parts_of_a_task_know_their_numbers_and_run_at_the_same_time<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    const PARTS: u32 = 13;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("task_part")?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        // As many as one shire has harts.
        let out = bench.zeroed(64 * 64)?;
        let mut builder = GraphBuilder::new();
        let part = builder.kernel(&kernel);
        let shire = bench.shires().first().map_or(1, |shire| 1 << shire);
        // Much longer than a turn of a simulated hart, or none would begin before another's end.
        let rounds = rig.times(100_000, 40_000) as u64;
        let task = Task::new(part).in_out(&out).u64(u64::MAX).i64(0).u64(rounds);
        let task = builder.add(task.parts(PARTS).shires(shire))?;
        let graph = builder.build()?;
        let run = executor.launch_with(&graph, RunOptions::new().traced())?;
        let outcome = run.finish(bench.patience)?;
        check_eq!(outcome.state(task), TaskState::Complete, "the task in {place}");
        let lines = bench.download::<u64>(&out)?;
        let parts = if place == Place::Streams { 64 } else { PARTS as usize };
        let mut harts = Vec::new();
        for (n, line) in lines.chunks_exact(8).enumerate() {
            let ran = if n < parts { [n as u64, parts as u64, line[2], 1] } else { [0; 4] };
            check_eq!(line[..4], ran, "part {n} in {place}");
            harts.extend((n < parts).then_some(line[2]));
        }
        harts.sort_unstable();
        harts.dedup();
        check!(harts.len() > 1, "{place}: all parts ran on hart {harts:?}");
        if place != Place::Streams {
            let spans = outcome.trace().map(|trace| trace.spans().to_vec()).unwrap_or_default();
            let mut seen: Vec<u32> = spans.iter().map(|span| span.part).collect();
            seen.sort_unstable();
            check_eq!(seen, (0..PARTS).collect::<Vec<_>>(), "the spans in {place}");
            let overlap = |a: &TaskSpan, b: &TaskSpan| a.start < b.end && b.start < a.end;
            let pairs = spans.iter().enumerate().flat_map(|(n, a)| {
                spans[n + 1..].iter().filter(move |b| a.worker != b.worker && overlap(a, b))
            });
            check!(pairs.count() != 0, "{place}: the parts ran one after the other");
        }
    }
    Ok(())
}

/// Rounds of tasks of many parts, each of which uses what all parts of the one before it left.
fn what_follows_a_task_waits_for_all_its_parts<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const ROUNDS: u32 = 6;
    let bench = Bench::open(rig)?;
    let [add_scalar, add] = [bench.load("add_scalar")?, bench.load("add")?];
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let [x, y] = [bench.zeroed(4 * N)?, bench.zeroed(4 * N)?];
        let gate = bench.upload(&[1_u64; 8])?;
        let mut builder = GraphBuilder::new();
        let [plus, sum] = [builder.kernel(&add_scalar), builder.kernel(&add)];
        let is_open = Word::<u64>::on_device(&gate, 0)?;
        for round in 0..ROUNDS {
            // Parts of other lengths than those of the next, so that these need several of them.
            let task = Task::new(plus).input(&x).output(&y).f32(1.0).u64(N).parts(3 + 5 * round);
            builder.add(task.only_if(&is_open, Comparison::Equal, 1))?;
            builder.add(Task::new(sum).input(&y).input(&y).output(&x).u64(N).parts(9))?;
            let task = Task::new(plus).input(&y).output(&x).f32(1.0).u64(N).parts(4);
            builder.add(task.only_if(&is_open, Comparison::NotEqual, 1))?;
        }
        let graph = builder.build()?;
        let outcome = executor.launch(&graph)?.finish(bench.patience)?;
        let skipped = outcome.count(TaskState::Skipped);
        check_eq!(skipped, ROUNDS as usize, "the tasks that were skipped in {place}");
        let expected = (0..ROUNDS).fold(0.0, |x, _| 2.0 * (x + 1.0));
        let found = bench.download::<f32>(&x)?;
        same(&format!("the sums in {place}"), &found, &vec![expected; N as usize])?;
    }
    Ok(())
}

/// Behind tasks that keep harts busy. Where that cannot be it is refused, and places that can are
/// found.
fn parts_that_start_together_have_a_hart_each<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const PARTS: u32 = 8;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("task_part")?;
    let out = bench.zeroed(64 * 64)?;
    let shire = bench.shires().first().map_or(1, |shire| 1 << shire);
    let graph = |parts: u32| -> Result<(Graph, TaskId), Failure> {
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&bench.load("task_nop")?);
        for _ in 0..20 {
            builder.add(Task::new(nop))?;
        }
        let part = builder.kernel(&kernel);
        let task = Task::new(part).in_out(&out).u64(u64::MAX).i64(0).u64(10);
        let task = builder.add(task.shires(shire).parts_together(parts))?;
        Ok((builder.build()?, task))
    };
    let (eight, task) = graph(PARTS)?;
    let on_cores = executor(&bench, Place::Cores)?;
    let outcome = on_cores.launch(&eight)?.finish(bench.patience)?;
    check_eq!(outcome.state(task), TaskState::Complete, "the task");
    let lines = bench.download::<u64>(&out)?;
    let lines = lines.chunks_exact(8).take(PARTS as usize);
    let mut harts: Vec<u64> = lines.map(|line| line[2]).collect();
    harts.sort_unstable();
    harts.dedup();
    check_eq!(harts.len(), PARTS as usize, "the harts of the parts");
    let (nine, task) = graph(PARTS + 1)?;
    match on_cores.launch(&nine).map(drop) {
        Err(RunError::TooManyParts { task: it, parts: 9, workers: 8 }) => {
            check_eq!(it, task, "the task that was refused");
        }
        other => return Err(Failure::new(format!("nine parts on eight harts: {other:?}"))),
    }
    let refused = executor(&bench, Place::Resident)?.launch(&eight).map(drop);
    check_matches!(refused, Err(RunError::Unsupported { .. }), "on a resident graph");
    let anywhere = executor(&bench, Place::Auto)?;
    for (graph, place) in [(&eight, "cores"), (&nine, "streams")] {
        let outcome = anywhere.launch(graph)?.finish(bench.patience)?;
        check_eq!(outcome.place(), place, "where it can run");
    }
    Ok(())
}

/// Two graphs whose tasks do not end before the host says so, and a third that does.
fn graphs_run_beside_one_another_on_cores<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let executor = executor(&bench, Place::Cores)?;
    let word = bench.zeroed(64)?;
    let mut builder = GraphBuilder::new();
    let hang = builder.kernel(&bench.load("task_hang")?);
    // They declare no use of the word, so that they do not follow one another.
    let task = builder.add(Task::new(hang).u64(1).u64(word.addr().as_u64()))?;
    let graph = builder.build()?;
    let runs = [executor.launch(&graph)?, executor.launch(&graph)?];
    works(&bench, &executor)?;
    for run in &runs {
        check!(!run.is_done(), "a run that waits for the host is over");
        // Workers have begun both, or the third would not have gone before them.
        check_eq!(run.state(task), TaskState::Running, "a task that waits for the host");
    }
    bench.stream().copy_to_device(&[1u64; 8], &word)?.wait(bench.patience)?;
    for run in runs {
        run.finish(bench.patience)?;
    }
    Ok(())
}

fn kernels_stay_on_their_cores<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let executor = executor(&bench, Place::Cores)?;
    let nop = bench.load("task_nop")?;
    let on = |core: u32, count: usize| -> Result<Graph, Failure> {
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&nop);
        for _ in 0..count {
            builder.add(Task::new(nop).cores(CoreSet::of([core])))?;
        }
        Ok(builder.build()?)
    };
    let run = executor.launch_with(&on(5, 50)?, RunOptions::new().traced())?;
    let outcome = run.finish(bench.patience)?;
    check_eq!(outcome.count(TaskState::Complete), 50, "the tasks done");
    // There are eight, from 0 on.
    let outcome = executor.launch(&on(8, 1)?)?.wait(bench.patience)?;
    check_eq!(outcome.count(TaskState::Failed), 1, "the tasks of a core that is not there");
    works(&bench, &executor)
}

fn streams_of_the_device_work_beside_executors<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        works(&bench, &executor)?;
        // The harts are let go after a while, so that an ordinary launch finds them free.
        bench.works()?;
        works(&bench, &executor)?;
    }
    Ok(())
}

fn what_cannot_run_is_refused_before_anything_is_launched<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let first = Bench::open(rig)?;
    let foreign = Formula::new(&first)?;
    first.device.close();
    let bench = Bench::open(rig)?;
    let executor = executor(&bench, Place::Auto)?;
    let outcome = executor.launch(&foreign.graph).map(drop);
    check_matches!(outcome, Err(RunError::OtherDevice), "a graph of another device");
    let mask = bench.device.properties().shire_mask;
    let missing = 1u64 << 40;
    let mut builder = GraphBuilder::new();
    let nop = builder.kernel(&bench.load("task_nop")?);
    builder.add(Task::new(nop).shires(missing))?;
    let outcome = executor.launch(&builder.build()?).map(drop);
    let Err(RunError::Device(Error::ShireMask { asked, available })) = outcome else {
        return Err(Failure::new(format!("shires that are not there gave {outcome:?}")));
    };
    check_eq!((asked, available), (missing, mask), "the masks in the error");
    for config in [ExecutorConfig::new().cores(64), ExecutorConfig::new().shires(missing)] {
        let outcome = bench.device.executor(&config).map(drop);
        check!(outcome.is_err(), "an executor with {config:?}");
    }
    works(&bench, &executor)?;
    let launch = Launch::new(&bench.load("task_nop")?);
    bench.run(&launch)
}
