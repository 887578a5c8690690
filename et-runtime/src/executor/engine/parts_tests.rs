//! Tasks of several parts on a place that does what a script says, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::tests::{Rig, failure, states};
use super::*;
use crate::executor::ids::count;
use crate::executor::place::Ended;
use crate::executor::run::Route;
use crate::executor::{RunOptions, TaskFailure, TaskState};
use crate::graph::{CoreSet, Graph, GraphBuilder, Task, TaskId};

use TaskState::{
    Cancelled, Complete, Delegated, DependencyFailed, Failed, Ready, Running, Waiting,
};

/// One task after the other, with so many parts.
fn chain(parts: &[u32]) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let mut last: Option<TaskId> = None;
    for &parts in parts {
        let task = Task::new(function).parts(parts);
        last = Some(builder.add(last.into_iter().fold(task, Task::after)).unwrap());
    }
    builder.build().unwrap()
}

/// The run of a chain of 1, 3 and 1 parts, of which the first task has ended. The parts of the
/// second are units 3 to 5.
fn begun(rig: &mut Rig, options: RunOptions) -> Arc<RunShared> {
    let run = rig.launch(&chain(&[1, 3, 1]), Route::HOST, options);
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    run
}

fn end(rig: &mut Rig, unit: u32, how: Ended) {
    rig.first.end(unit, how);
    rig.turn([]);
}

#[test]
fn a_task_is_complete_when_its_last_part_is() {
    let mut rig = Rig::new(2);
    let run = begun(&mut rig, RunOptions::new().traced());
    assert_eq!(rig.first.has(), [3, 4], "as far as there is room");
    assert_eq!(states(&run), [Complete, Running, Waiting]);
    end(&mut rig, 4, Ended::Complete);
    assert_eq!(rig.first.has(), [3, 5]);
    end(&mut rig, 3, Ended::Complete);
    assert_eq!((rig.first.has(), states(&run)), (vec![5], vec![Complete, Running, Waiting]));
    end(&mut rig, 5, Ended::Complete);
    assert_eq!((rig.first.has(), states(&run)), (vec![2], vec![Complete, Complete, Running]));
    end(&mut rig, 2, Ended::Complete);
    let outcome = run.result.get().unwrap();
    assert!(outcome.is_success());
    let spans = outcome.trace().unwrap().spans();
    let parts: Vec<_> = spans.iter().map(|span| (span.task.index(), span.part)).collect();
    assert_eq!(parts, [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]);
}

#[test]
fn a_part_that_fails_fails_its_task_once_the_others_have_ended() {
    let mut rig = Rig::new(2);
    let run = begun(&mut rig, RunOptions::new());
    end(&mut rig, 4, failure());
    assert_eq!(rig.first.has(), [3], "the last one need not begin");
    assert_eq!(states(&run), [Complete, Running, Waiting]);
    end(&mut rig, 3, failure());
    assert_eq!(states(&run), [Complete, Failed, DependencyFailed]);
    let outcome = run.result.get().unwrap();
    let [(task, TaskFailure::Part { part: 1, parts: 3, failure })] = outcome.failures() else {
        panic!("{:?}", outcome.failures());
    };
    assert_eq!(task.index(), 1);
    assert!(matches!(**failure, TaskFailure::Panicked(_)));
    assert!(outcome.failures()[0].1.to_string().starts_with("part 1 of 3: "));
}

#[test]
fn of_a_cancelled_run_no_part_begins() {
    let mut rig = Rig::new(2);
    let run = begun(&mut rig, RunOptions::new());
    rig.turn([Request::Cancel(run.number)]);
    assert_eq!(states(&run), [Complete, Running, Cancelled]);
    for unit in 3..5 {
        end(&mut rig, unit, Ended::Complete);
    }
    assert_eq!(states(&run), [Complete, Cancelled, Cancelled]);
    let outcome = run.result.get().unwrap();
    assert!(outcome.failures().is_empty() && !outcome.is_success());

    let mut rig = Rig::new(3);
    let run = begun(&mut rig, RunOptions::new());
    rig.turn([Request::Cancel(run.number)]);
    for unit in 3..6 {
        end(&mut rig, unit, Ended::Complete);
    }
    assert_eq!(states(&run), [Complete, Complete, Cancelled], "all had begun");

    let mut rig = Rig::new(0);
    let run = rig.launch(&chain(&[3, 2]), Route::HOST, RunOptions::new());
    assert_eq!(states(&run), [Ready, Waiting]);
    rig.turn([Request::CancelTask(run.number, 0)]);
    assert_eq!(states(&run), [Cancelled, DependencyFailed]);
    assert!(run.result.get().is_some());
    assert!(!rig.engine.has_backlog(), "nothing is left in the queues");
}

#[test]
fn parts_that_have_not_begun_at_the_deadline_are_given_up() {
    let mut rig = Rig::new(1);
    let after = Duration::from_secs(1);
    let run = begun(&mut rig, RunOptions::new().deadline(after));
    rig.advance(after);
    assert_eq!(states(&run), [Complete, Running, Cancelled]);
    end(&mut rig, 3, Ended::Complete);
    assert_eq!(states(&run), [Complete, Failed, Cancelled]);
    let outcome = run.result.get().unwrap();
    let cause = outcome.failures()[0].1.cause();
    assert!(matches!(cause, TaskFailure::Deadline { worker: None, .. }));
    assert_eq!(cause.to_string(), "not complete after 1s");
    assert_eq!(rig.first.has(), [0_u32; 0]);
}

#[test]
fn parts_that_start_together_wait_for_room_and_what_comes_later_behind_them() {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let first = builder.add(Task::new(function)).unwrap();
    builder.add(Task::new(function).parts_together(3)).unwrap();
    builder.add(Task::new(function)).unwrap();
    let cores = CoreSet::range(0..8);
    builder.add(Task::new(function).cores(cores)).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(graph.view().units(1), 4..7);
    let mut rig = Rig::new(3);
    let run = rig.launch(&graph, Route::HOST, RunOptions::new());
    assert_eq!(rig.first.has(), [0]);
    assert_eq!(run.state(1), Ready);
    end(&mut rig, 0, Ended::Complete);
    assert_eq!((rig.first.has(), run.state(1)), (vec![4, 5, 6], Running));
    end(&mut rig, 5, Ended::Complete);
    assert_eq!(rig.first.has(), [4, 6, 2]);
    for unit in [4, 6, 2, 3] {
        end(&mut rig, unit, Ended::Complete);
    }
    let outcome = run.result.get().unwrap();
    assert!(outcome.is_success() && outcome.state(first) == Complete);
}

#[test]
fn launches_have_parts_of_their_own() {
    let mut rig = Rig::new(8);
    let graph = chain(&[4]);
    let run = rig.launch(&graph, Route::new(0, 0, "fake").launches(), RunOptions::new());
    assert_eq!(rig.first.has(), [1, 2, 3, 4], "a host function is no launch");
    for unit in 1..5 {
        end(&mut rig, unit, Ended::Complete);
    }
    assert!(run.result.get().unwrap().is_success());
}

#[test]
fn a_place_that_takes_a_whole_run_is_offered_no_parts() {
    let mut rig = Rig::new(8);
    let run = rig.launch(&chain(&[3]), Route::whole(0, "fake"), RunOptions::new());
    assert_eq!((rig.first.has(), states(&run)), (vec![0], vec![Delegated]));
}

#[test]
fn parts_are_for_any_worker_unless_they_name_cores_and_start_one_by_one() {
    let cores = || CoreSet::range(0..8);
    for (task, any) in
        [(Task::parts as fn(_, u32) -> Task, [true, false]), (Task::parts_together, [true, true])]
    {
        for (has_cores, any) in [false, true].into_iter().zip(any) {
            let mut builder = GraphBuilder::new();
            let function = builder.function(|_| Ok(()));
            let task = task(Task::new(function), 2);
            builder.add(if has_cores { task.cores(cores()) } else { task }).unwrap();
            let mut rig = Rig::new(0);
            rig.launch(&builder.build().unwrap(), Route::HOST, RunOptions::new());
            assert_eq!(rig.engine.ready.waiting(), (2, 0));
            assert_eq!(rig.engine.has_backlog(), any, "named: {has_cores}");
        }
    }
}

/// A task: its parts, how many tasks before it it waits for, and which of its parts fails.
type Plan = (u32, usize, Option<u32>);

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (1_u32..6, 0_usize..4, proptest::option::weighted(0.1, 0_u32..6));
    proptest::collection::vec(plan, 1..14)
}

proptest! {
    #[test]
    fn parts_run_once_and_nothing_begins_before_all_parts_of_what_it_waits_for_have_ended(
        plans in plans(),
        room in 1_usize..6,
        mut order in any::<u64>(),
    ) {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        for (at, (parts, before, _)) in plans.iter().enumerate() {
            let task = Task::new(function).parts(*parts);
            let before = (at.saturating_sub(*before)..at).map(|at| TaskId::from_index(count(at)));
            builder.add(before.fold(task, Task::after)).unwrap();
        }
        let graph = builder.build().unwrap();
        let mut rig = Rig::new(room);
        let run = rig.launch(&graph, Route::HOST, RunOptions::new());
        let mut ended: HashMap<usize, u32> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let has = rig.first.has();
            for unit in &has {
                let task = graph.view().unit(*unit).task as usize;
                let first = task.saturating_sub(plans[task].1);
                for (before, plan) in plans.iter().enumerate().take(task).skip(first) {
                    prop_assert_eq!(ended.get(&before), Some(&plan.0));
                }
            }
            if has.is_empty() {
                break;
            }
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = has[usize::try_from(order >> 33).unwrap() % has.len()];
            prop_assert!(seen.insert(unit), "unit {} twice", unit);
            let of = graph.view().unit(unit);
            *ended.entry(of.task as usize).or_default() += 1;
            let fails = plans[of.task as usize].2 == Some(of.part);
            end(&mut rig, unit, if fails { failure() } else { Ended::Complete });
        }
        prop_assert!(run.result.get().is_some(), "{}", rig.engine.describe());
        let mut expected: Vec<TaskState> = Vec::new();
        for (at, (parts, before, bad)) in plans.iter().enumerate() {
            let is_poisoned = (at.saturating_sub(*before)..at).any(|at| expected[at] != Complete);
            expected.push(match bad {
                _ if is_poisoned => DependencyFailed,
                Some(bad) if bad < parts => Failed,
                _ => Complete,
            });
        }
        prop_assert_eq!(states(&run), expected);
        prop_assert!(!rig.engine.has_backlog());
    }
}
