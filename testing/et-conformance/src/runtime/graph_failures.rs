//! Graphs that do not go well.

use std::sync::mpsc;
use std::time::Duration;

use et_hal::Hal;
use et_runtime::executor::{Place, RunError, RunOptions, TaskFailure, TaskState};
use et_runtime::graph::{Graph, GraphBuilder, Task, TaskId};

use super::bench::Bench;
use super::graphs::{executor, places, works};
use crate::check::{check, check_eq, check_matches};
use crate::{Failure, Need, Rig};

use TaskState::{Cancelled, Complete, DependencyFailed, Failed};

crate::case::group! { Runtime, "runtime::graphs":
    a_kernel_that_traps_fails_its_dependents_only [Need::Compute, Need::Abort],
    a_kernel_that_returns_an_error_fails_its_dependents_only [Need::Compute],
    a_part_that_fails_is_named_and_fails_its_task [Need::Compute, Need::Abort],
    a_kernel_that_never_ends_is_given_up_at_the_deadline [Need::Compute, Need::Abort],
    a_wait_that_runs_out_says_what_it_waits_for [Need::Compute, Need::Abort],
    cancelling_a_graph_ends_it [Need::Compute],
    an_executor_that_goes_ends_its_runs [Need::Compute],
}

/// A task that misbehaves between two that do not, and some beside it.
struct Bad {
    graph: Graph,
    /// Before it, itself, behind it, the last one beside it.
    tasks: [TaskId; 4],
}

impl Bad {
    fn new<H: Hal>(
        rig: &Rig<H>,
        bench: &Bench<H>,
        name: &str,
        task: impl FnOnce(Task) -> Task,
    ) -> Result<Self, Failure> {
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&bench.load("task_nop")?);
        let bad = builder.kernel(&bench.load(name)?);
        let first = builder.add(Task::new(nop))?;
        let bad = builder.add(task(Task::new(bad).name("bad")).after(first))?;
        let behind = builder.add(Task::new(nop).after(bad))?;
        let mut beside = builder.add(Task::new(nop).after(first))?;
        for _ in 0..rig.times(100, 5) {
            beside = builder.add(Task::new(nop).after(beside))?;
        }
        Ok(Self { graph: builder.build()?, tasks: [first, bad, behind, beside] })
    }
}

/// What a run ended with says on which device that was.
fn names_its_device(outcome: Result<(), RunError>) -> Result<(), Failure> {
    let Err(error) = outcome else { return Err(Failure::new("the run succeeded")) };
    let text = error.to_string();
    let is_named = error.device().is_some_and(|name| !name.is_empty() && text.contains(name));
    check!(is_named, "no device in \"{text}\"");
    Ok(())
}

fn a_kernel_that_traps_fails_its_dependents_only<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let bad = Bad::new(rig, &bench, "task_trap", |task| task.u64(1))?;
        let outcome = executor.launch(&bad.graph)?.wait(bench.patience)?;
        let states = bad.tasks.map(|task| outcome.state(task));
        check_eq!(states, [Complete, Failed, DependencyFailed, Complete], "the states in {place}");
        check_eq!(outcome.root_cause(bad.tasks[2]), Some(bad.tasks[1]), "the root cause");
        let [(task, failure)] = outcome.failures() else {
            return Err(Failure::new(format!("{place}: {:?}", outcome.failures())));
        };
        check_eq!(*task, bad.tasks[1], "the task that failed");
        names_its_device(outcome.check())?;
        let text = failure.to_string();
        check!(text.contains("hart ") && text.contains("task_trap.c:"), "{place}: {text}");
        if place != Place::Streams {
            check_matches!(failure, TaskFailure::Trapped { .. }, "the failure in {place}");
        }
        works(&bench, &executor)?;
    }
    Ok(())
}

fn a_kernel_that_returns_an_error_fails_its_dependents_only<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let value = (-7_i64).cast_unsigned();
        let bad = Bad::new(rig, &bench, "task_fail", |task| task.u64(value))?;
        let outcome = executor.launch(&bad.graph)?.wait(bench.patience)?;
        let states = bad.tasks.map(|task| outcome.state(task));
        check_eq!(states, [Complete, Failed, DependencyFailed, Complete], "the states in {place}");
        let [(task, failure)] = outcome.failures() else {
            return Err(Failure::new(format!("{place}: {:?}", outcome.failures())));
        };
        check_eq!(*task, bad.tasks[1], "the task that failed");
        if place != Place::Streams {
            check_matches!(failure, TaskFailure::Returned { value: -7, .. }, "in {place}");
        }
        let error = outcome.check().err().map(|error| error.to_string()).unwrap_or_default();
        check!(error.contains("\"bad\" failed"), "{place}: {error}");
        works(&bench, &executor)?;
    }
    Ok(())
}

/// The task fails, by whatever way its part did, and nothing that depends on it runs.
fn a_part_that_fails_is_named_and_fails_its_task<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)?.into_iter().filter(|place| *place != Place::Streams) {
        let executor = executor(&bench, place)?;
        let out = bench.zeroed(64 * 12)?;
        let bad = Bad::new(rig, &bench, "task_part", |task| {
            task.in_out(&out).u64(5).i64(-9).u64(20).parts(12)
        })?;
        let outcome = executor.launch(&bad.graph)?.wait(bench.patience)?;
        let states = bad.tasks.map(|task| outcome.state(task));
        check_eq!(states, [Complete, Failed, DependencyFailed, Complete], "the states in {place}");
        let [(_, TaskFailure::Part { part: 5, parts: 12, failure })] = outcome.failures() else {
            return Err(Failure::new(format!("{place}: {:?}", outcome.failures())));
        };
        check_matches!(**failure, TaskFailure::Returned { value: -9, .. }, "in {place}");
        let bad = Bad::new(rig, &bench, "task_trap", |task| task.u64(1).parts(2))?;
        let outcome = executor.launch(&bad.graph)?.wait(bench.patience)?;
        let states = bad.tasks.map(|task| outcome.state(task));
        check_eq!(states, [Complete, Failed, DependencyFailed, Complete], "the states in {place}");
        let [(_, failure @ TaskFailure::Part { parts: 2, .. })] = outcome.failures() else {
            return Err(Failure::new(format!("{place}: {:?}", outcome.failures())));
        };
        check_matches!(failure.cause(), TaskFailure::Trapped { .. }, "in {place}");
        works(&bench, &executor)?;
    }
    Ok(())
}

fn a_kernel_that_never_ends_is_given_up_at_the_deadline<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let word = bench.zeroed(64)?;
        let bad = Bad::new(rig, &bench, "task_hang", |task| task.u64(1).in_out(word.whole()))?;
        let mut limit = rig.short(Duration::from_millis(300));
        let outcome = loop {
            let options = RunOptions::new().deadline(limit);
            let outcome = executor.launch_with(&bad.graph, options)?.wait(bench.patience)?;
            // On a busy machine the time may be up before the endless task has begun.
            let has_begun = outcome.state(bad.tasks[1]) == Failed;
            if has_begun || 4 * limit > bench.patience {
                break outcome;
            }
            limit *= 4;
        };
        check_eq!(outcome.state(bad.tasks[0]), Complete, "the task before it in {place}");
        check_eq!(outcome.state(bad.tasks[1]), Failed, "the endless task in {place}");
        check!(outcome.state(bad.tasks[2]).is_final(), "the task behind it in {place} is open");
        check_matches!(outcome.check(), Err(RunError::Deadline { .. }), "the run in {place}");
        names_its_device(outcome.check())?;
        works(&bench, &executor)?;
    }
    Ok(())
}

fn a_wait_that_runs_out_says_what_it_waits_for<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let word = bench.zeroed(64)?;
        let bad = Bad::new(rig, &bench, "task_hang", |task| task.u64(1).in_out(word.whole()))?;
        let options = RunOptions::new().deadline(rig.short(Duration::from_millis(400)));
        let run = executor.launch_with(&bad.graph, options)?;
        let short = rig.short(Duration::from_millis(100));
        let outcome = run.wait(short);
        let Err(RunError::Timeout { after, finished, tasks, .. }) = &outcome else {
            return Err(Failure::new(format!("a wait for an endless task gave {outcome:?}")));
        };
        check_eq!((*after, *tasks), (short, bad.graph.len()), "what the error says in {place}");
        check!(finished < tasks, "{finished} of {tasks} tasks are done");
        let text = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        names_its_device(outcome.map(drop))?;
        // Where the device schedules, the host knows only how many tasks it has, on a slow machine
        // other ones too, or that it has not got them yet; and whoever finds another thread at work
        // says that.
        let expected: &[&str] = match place {
            Place::Resident => &["harts have", "the device gets", "another thread schedules"],
            _ => &["bad", "another thread schedules"],
        };
        let is_named = expected.iter().any(|words| text.contains(words));
        check!(is_named, "{place}: no word of the endless task in \"{text}\"");
        check!(run.wait(bench.patience)?.check().is_err(), "an endless run in {place} succeeded");
        works(&bench, &executor)?;
    }
    Ok(())
}

fn cancelling_a_graph_ends_it<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let executor = executor(&bench, place)?;
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&bench.load("task_nop")?);
        let mut last = builder.add(Task::new(nop))?;
        let count = rig.times(20_000, 5000);
        for _ in 0..count {
            last = builder.add(Task::new(nop).after(last))?;
        }
        let run = executor.launch(&builder.build()?)?;
        run.cancel();
        let outcome = run.wait(bench.patience)?;
        let (complete, cancelled) = (outcome.count(Complete), outcome.count(Cancelled));
        check_eq!(complete + cancelled, count + 1, "the tasks that ended in {place}");
        check!(cancelled > 0 && outcome.state(last) != Complete, "{place}: nothing was cancelled");
        check_matches!(outcome.check(), Err(RunError::Cancelled { .. }), "the run in {place}");
        names_its_device(outcome.check())?;
        works(&bench, &executor)?;
    }
    Ok(())
}

fn an_executor_that_goes_ends_its_runs<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for place in places(rig)? {
        let going = executor(&bench, place)?;
        let mut builder = GraphBuilder::new();
        let nop = builder.kernel(&bench.load("task_nop")?);
        let mut last = builder.add(Task::new(nop))?;
        let count = rig.times(5000, 1000);
        for _ in 0..count {
            last = builder.add(Task::new(nop).after(last))?;
        }
        let run = going.launch(&builder.build()?)?;
        let (sender, receiver) = mpsc::channel();
        run.on_done(move |outcome| {
            // Without a receiver the case has failed already.
            let _ = sender.send([Complete, Cancelled, Failed].map(|state| outcome.count(state)));
        });
        drop(going);
        let [complete, cancelled, failed] = receiver.recv_timeout(bench.patience)?;
        // Some tasks may have been complete by then, or all of them. A launch that takes longer
        // than the patience of an executor that goes, on a slow machine, is aborted.
        check_eq!(complete + cancelled + failed, count + 1, "the tasks that ended in {place}");
        check!(failed <= 1, "{failed} tasks failed in {place}");
        works(&bench, &executor(&bench, place)?)?;
    }
    Ok(())
}
