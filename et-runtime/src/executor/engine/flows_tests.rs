//! Flows on places that do what a test says, in virtual time.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{Rig, failure};
use super::*;
use crate::executor::flow::State;
use crate::executor::ids::TaskRef;
use crate::executor::place::Ended;
use crate::executor::run::{Board, Route};
use crate::executor::{RunOptions, TaskFailure, TaskState};
use crate::graph::{Access, Graph, GraphBuilder, Resource, Task, TaskId};

use TaskState::{Cancelled, Complete, Delegated, DependencyFailed, Failed, Running, Waiting};

/// What a task uses of a resource.
type Use = (std::ops::Range<u64>, Access);

fn graph_of<'a>(resource: &Resource, tasks: impl IntoIterator<Item = &'a [Use]>) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    for uses in tasks {
        let task = uses.iter().fold(Task::new(function), |task, (range, access)| {
            let region = resource.range(range.clone());
            match access {
                Access::Read => task.reads(region),
                Access::Write => task.writes(region),
                Access::Update => task.updates(region),
            }
        });
        builder.add(task).unwrap();
    }
    builder.build().unwrap()
}

/// Where the tasks are; that the place has one behind another does not matter here.
fn states(run: &RunShared) -> Vec<TaskState> {
    let states = super::tests::states(run).into_iter();
    states.map(|state| if state == TaskState::Staged { Running } else { state }).collect()
}

/// A flow on an engine.
struct Stream {
    rig: Rig,
    board: Arc<Board>,
    state: State,
}

impl Stream {
    fn new(room: usize) -> Self {
        Self { rig: Rig::new(room), board: Arc::default(), state: State::default() }
    }

    fn launch(&mut self, graph: &Graph, route: Route) -> Arc<RunShared> {
        let options = (RunOptions::new(), Some(Arc::clone(&self.board)));
        let run = self.rig.prepare(graph, route, options);
        let (behind, _) = self.state.append(&run).unwrap();
        self.rig.turn([Request::Launch(Launch::new(&run, behind))]);
        run
    }

    fn end(&mut self, run: &RunShared, unit: u32, how: Ended) {
        let held = self.rig.first.holds();
        let task = held.iter().find(|held| held.run == run.number && held.unit == unit).unwrap();
        self.rig.first.end_of(*task, how);
        self.rig.turn([]);
    }
}

fn write(range: std::ops::Range<u64>) -> Vec<Use> {
    vec![(range, Access::Write)]
}

fn read(range: std::ops::Range<u64>) -> Vec<Use> {
    vec![(range, Access::Read)]
}

#[test]
fn tasks_begin_as_soon_as_those_before_them_have_ended() {
    let mut flow = Stream::new(9);
    let resource = Resource::new(10);
    let halves = [write(0..5), write(5..10)];
    let first = graph_of(&resource, halves.iter().map(Vec::as_slice));
    let a = flow.launch(&first, Route::HOST);
    let b = flow.launch(&first, Route::HOST);
    assert_eq!((states(&a), states(&b)), (vec![Running; 2], vec![Waiting; 2]));
    let stall = b.stall(false);
    assert_eq!(stall.cause, crate::executor::StallCause::OtherRun);
    flow.end(&a, 1, Ended::Complete);
    assert_eq!((states(&a), states(&b)), (vec![Running, Complete], vec![Waiting, Running]));
    // Another launch waits for all of both.
    let other = flow.rig.launch(&first, Route::HOST, RunOptions::new());
    flow.end(&a, 0, Ended::Complete);
    assert_eq!((states(&b), states(&other)), (vec![Running; 2], vec![Waiting; 2]));
    // And what comes later in the flow waits for all of that, as it uses the same.
    let c = flow.launch(&graph_of(&resource, [read(0..1).as_slice()]), Route::HOST);
    flow.end(&b, 0, Ended::Complete);
    flow.end(&b, 1, Ended::Complete);
    assert_eq!((states(&other), states(&c)), (vec![Running; 2], vec![Waiting]));
    flow.end(&other, 0, Ended::Complete);
    assert_eq!(states(&c), [Waiting]);
    flow.end(&other, 1, Ended::Complete);
    flow.end(&c, 0, Ended::Complete);
    assert!([&a, &b, &other, &c].iter().all(|run| run.result.get().unwrap().is_success()));
}

#[test]
fn what_depends_on_a_failed_or_cancelled_task_fails_until_it_is_forgotten() {
    let mut flow = Stream::new(9);
    let resource = Resource::new(10);
    let two = [write(0..5), write(5..10)];
    let two = graph_of(&resource, two.iter().map(Vec::as_slice));
    let chain = [write(0..5), read(0..5), read(5..10)];
    let chain = graph_of(&resource, chain.iter().map(Vec::as_slice));
    let a = flow.launch(&two, Route::HOST);
    let b = flow.launch(&chain, Route::HOST);
    flow.end(&a, 0, failure());
    assert_eq!(states(&b), [Failed, DependencyFailed, Waiting]);
    flow.end(&a, 1, Ended::Complete);
    flow.end(&b, 2, Ended::Complete);
    let outcome = b.result.get().unwrap();
    let (task, why) = &outcome.failures()[0];
    assert_eq!(task.index(), 0);
    let TaskFailure::Earlier { task, state: Failed, .. } = why else { panic!("{why}") };
    assert_eq!((*task, outcome.failures().len()), (TaskId::from_index(0), 1));
    assert_eq!(
        why.to_string(),
        "task 0 of an earlier graph of the flow, which it depends on, is failed"
    );
    // Of the run that ended before, too.
    let c = flow.launch(&chain, Route::HOST);
    assert_eq!(states(&c), [Failed, DependencyFailed, Running]);
    flow.rig.turn([Request::Cancel(c.number)]);
    flow.end(&c, 2, Ended::Complete);
    drop(flow.state.forget_completed());
    let d = flow.launch(&chain, Route::HOST);
    assert_eq!(states(&d), [Failed, DependencyFailed, Running], "nothing of that is complete");
    flow.rig.turn([Request::Cancel(d.number)]);
    flow.end(&d, 2, Ended::Complete);
    let mut fresh = Stream { state: State::default(), ..flow };
    let e = fresh.launch(&chain, Route::HOST);
    assert_eq!(states(&e), [Running, Waiting, Running]);
    let f = fresh.launch(&chain, Route::HOST);
    fresh.rig.turn([Request::Cancel(e.number)]);
    assert_eq!((states(&e)[1], states(&f)[0]), (Cancelled, Failed));
}

#[test]
fn a_run_that_waits_for_others_can_be_cancelled() {
    let mut flow = Stream::new(9);
    let resource = Resource::new(10);
    let graph = graph_of(&resource, [write(0..5).as_slice()]);
    let runs = [0; 3].map(|_| flow.launch(&graph, Route::HOST));
    flow.rig.turn([Request::Cancel(runs[1].number)]);
    assert!(runs[1].result.get().is_some());
    assert_eq!(runs.each_ref().map(|run| run.state(0)), [Running, Cancelled, Failed]);
    flow.end(&runs[0], 0, Ended::Complete);
    assert!(runs[0].result.get().unwrap().is_success());
    assert!(flow.rig.first.holds().is_empty());
}

#[test]
fn a_place_that_takes_graphs_as_a_whole_waits_for_all_of_those_in_the_way() {
    let mut flow = Stream::new(9);
    let resource = Resource::new(10);
    let two = [write(0..5), write(5..10)];
    let two = graph_of(&resource, two.iter().map(Vec::as_slice));
    let whole = Route::whole(0, "fake");
    let a = flow.launch(&two, whole);
    let b = flow.launch(&two, whole);
    let c = flow.launch(&graph_of(&resource, [read(0..1).as_slice()]), Route::HOST);
    assert_eq!((states(&a), states(&b)), (vec![Delegated; 2], vec![Waiting; 2]));
    assert_eq!(states(&c), [Waiting]);
    flow.end(&a, 0, failure());
    assert_eq!(states(&b), [Waiting; 2]);
    flow.end(&a, 1, Ended::Complete);
    // The second half of it could run, and the place cannot leave out the first.
    assert_eq!((states(&b), c.state(0)), (vec![Failed, Cancelled], Failed));
    assert!(b.result.get().is_some() && c.result.get().is_some());
    assert!(flow.rig.first.holds().is_empty());
}

#[test]
fn conditions_and_parts_follow_too() {
    let mut flow = Stream::new(9);
    let resource = Resource::new(1);
    let graph = |flag: u8| {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        let data = crate::graph::HostData::new(vec![flag, 0, 0, 0]);
        let word = crate::graph::Word::<u32>::on_host(&data, 0).unwrap();
        let task = Task::new(function).writes(&resource).parts(2);
        let task = task.only_if(&word, crate::graph::Comparison::Equal, 1);
        builder.add(task).unwrap();
        builder.build().unwrap()
    };
    let runs = [1, 0, 1].map(|flag| flow.launch(&graph(flag), Route::HOST));
    assert_eq!(runs.each_ref().map(|run| run.state(0)), [Running, Waiting, Waiting]);
    for unit in [1, 2] {
        flow.end(&runs[0], unit, Ended::Complete);
    }
    let now = runs.each_ref().map(|run| run.state(0));
    assert_eq!(now, [Complete, TaskState::Skipped, Running]);
    for unit in [2, 1] {
        flow.end(&runs[2], unit, Ended::Complete);
    }
    assert!(runs.iter().all(|run| run.result.get().unwrap().is_success()));
}

fn uses() -> impl Strategy<Value = Vec<Use>> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Update)];
    // A task says of no byte twice that it writes it; it may read what it writes.
    vec((0..5u64, 0..5u64, access, any::<bool>()), 0..4).prop_map(|parts| {
        let (mut at, mut uses) = (0, Vec::new());
        for (gap, len, how, is_read) in parts {
            let start = at + gap;
            at = start + len;
            uses.push((start..at, how));
            if is_read {
                uses.push((start..at, Access::Read));
            }
        }
        uses
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A graph that is launched in pieces, at any time, ends as it does in one piece: the same
    /// tasks run, each after those that it has to wait for.
    #[test]
    fn a_graph_in_pieces_is_that_graph(
        tasks in vec((uses(), prop::bool::weighted(0.1)), 1..24),
        cuts in vec(any::<bool>(), 24),
        choices in vec(any::<u8>(), 200),
    ) {
        let resource = Resource::new(30);
        let whole = graph_of(&resource, tasks.iter().map(|(uses, _)| uses.as_slice()));
        let mut pieces: Vec<std::ops::Range<usize>> = Vec::new();
        for (task, is_cut) in (0..tasks.len()).zip(cuts) {
            match pieces.last_mut() {
                Some(last) if !is_cut => last.end = task + 1,
                _ => pieces.push(task..task + 1),
            }
        }
        let mut flow = Stream::new(5);
        let mut runs: Vec<Arc<RunShared>> = Vec::new();
        let mut ended = vec![None; tasks.len()];
        let mut choices = choices.into_iter().cycle();
        let mut started: Vec<TaskRef> = Vec::new();
        loop {
            let held = flow.rig.first.holds();
            let global = |held: &TaskRef| {
                let piece = runs.iter().position(|run| run.number == held.run).unwrap();
                pieces[piece].start + held.unit as usize
            };
            for new in held.iter().filter(|held| !started.contains(held)) {
                let task = TaskId::from_index(u32::try_from(global(new)).unwrap());
                for before in whole.predecessors(task) {
                    prop_assert_eq!(ended[before.index()], Some(true), "{} began too soon", task);
                }
            }
            started.extend(held.iter().copied());
            let choice = usize::from(choices.next().unwrap());
            if runs.len() < pieces.len() && (choice % 3 == 0 || held.is_empty()) {
                let piece = &tasks[pieces[runs.len()].clone()];
                let graph = graph_of(&resource, piece.iter().map(|(uses, _)| uses.as_slice()));
                runs.push(flow.launch(&graph, Route::HOST));
            } else if choice % 7 == 1 {
                drop(flow.state.forget_completed());
            } else if !held.is_empty() {
                let task = held[choice % held.len()];
                let at = global(&task);
                let how = if tasks[at].1 { failure() } else { Ended::Complete };
                ended[at] = Some(!tasks[at].1);
                flow.rig.first.end_of(task, how);
                flow.rig.turn([]);
            } else if runs.len() == pieces.len() {
                break;
            }
        }
        // What ought to have become of each.
        let mut succeeds = Vec::new();
        for (at, (_, fails)) in tasks.iter().enumerate() {
            let task = TaskId::from_index(u32::try_from(at).unwrap());
            let is_reached = whole.predecessors(task).iter().all(|before| succeeds[before.index()]);
            prop_assert_eq!(ended[at].is_some(), is_reached, "task {}", at);
            succeeds.push(is_reached && !fails);
        }
        for (run, piece) in runs.iter().zip(&pieces) {
            prop_assert!(run.result.get().is_some(), "a run has not ended");
            for (unit, at) in (0..).zip(piece.clone()) {
                prop_assert_eq!(run.state(unit).is_success(), succeeds[at], "task {}", at);
            }
        }
    }

    /// Whatever else is launched and cancelled: everything ends, and no task begins before those of
    /// earlier launches that it has to follow have ended.
    #[test]
    fn whatever_is_launched_ends_and_in_order(
        launches in vec((any::<bool>(), any::<bool>(), vec(uses(), 1..4)), 1..10),
        choices in vec(any::<u8>(), 200),
    ) {
        let resource = Resource::new(30);
        let mut flow = Stream::new(20);
        let mut runs: Vec<Arc<RunShared>> = Vec::new();
        let mut choices = choices.into_iter().cycle();
        let mut started: Vec<TaskRef> = Vec::new();
        let conflict = |a: &[Use], b: &[Use]| {
            let mut pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
            pairs.any(|((a, how), (b, its))| {
                (how.writes() || its.writes()) && a.start.max(b.start) < a.end.min(b.end)
            })
        };
        loop {
            let held = flow.rig.first.holds();
            for new in held.iter().filter(|held| !started.contains(held)) {
                let at = runs.iter().position(|run| run.number == new.run).unwrap();
                let its = &launches[at].2[new.unit as usize];
                for (earlier, (_, _, tasks)) in runs[..at].iter().zip(&launches) {
                    for (task, uses) in (0..).zip(tasks) {
                        let is_over = earlier.state(task).is_final();
                        prop_assert!(is_over || !conflict(uses, its), "{:?} began too soon", new);
                    }
                }
            }
            started.extend(held.iter().copied());
            let choice = usize::from(choices.next().unwrap());
            if runs.len() < launches.len() && (choice % 3 == 0 || held.is_empty()) {
                let (is_in_flow, is_whole, tasks) = &launches[runs.len()];
                let graph = graph_of(&resource, tasks.iter().map(Vec::as_slice));
                let route = if *is_whole { Route::whole(0, "fake") } else { Route::HOST };
                runs.push(if *is_in_flow {
                    flow.launch(&graph, route)
                } else {
                    flow.rig.launch(&graph, route, RunOptions::new())
                });
            } else if choice % 11 == 1 && !runs.is_empty() {
                let number = runs[choice % runs.len()].number;
                flow.rig.turn([Request::Cancel(number)]);
            } else if !held.is_empty() {
                let how = if choice % 13 == 2 { failure() } else { Ended::Complete };
                let any = held[choice % held.len()];
                let run = runs.iter().position(|run| run.number == any.run).unwrap();
                // A place that orders the tasks itself does so by what they use.
                let mut of_run = held.iter().filter(|held| held.run == any.run);
                let first = of_run.next().unwrap();
                flow.rig.first.end_of(if launches[run].1 { *first } else { any }, how);
                flow.rig.turn([]);
            } else if runs.len() == launches.len() {
                break;
            }
        }
        for (at, run) in runs.iter().enumerate() {
            prop_assert!(run.result.get().is_some(), "launch {} has not ended", at);
        }
    }
}
