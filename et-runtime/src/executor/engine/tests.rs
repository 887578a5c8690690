//! The scheduler on places that do what a script says, in virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::executor::RunOptions;
use crate::executor::TaskFailure;
use crate::executor::ids::{TaskRef, WorkerId};
use crate::executor::place::{Ended, Ending, Offer, Unit};
use crate::executor::run::Route;
use crate::graph::{Graph, GraphBuilder, Task, TaskId};

#[derive(Debug, Default)]
struct ManualClock(Mutex<Duration>);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// What a fake place does, and what was done to it.
#[derive(Debug, Default)]
struct Script {
    room: usize,
    takes_whole: bool,
    /// What it has.
    has: Vec<TaskRef>,
    /// What it will say in the next turn.
    says: VecDeque<(TaskRef, Ended)>,
    aborts: Vec<(RunId, Cut)>,
    refused: u32,
}

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<Script>>);

impl Fake {
    fn with_room(room: usize) -> Self {
        let fake = Self::default();
        fake.0.lock().unwrap().room = room;
        fake
    }

    fn has(&self) -> Vec<u32> {
        self.0.lock().unwrap().has.iter().map(|task| task.index).collect()
    }

    /// Ends the first task with this index.
    fn end(&self, index: u32, how: Ended) {
        let mut script = self.0.lock().unwrap();
        let at = script.has.iter().position(|task| task.index == index).unwrap();
        let task = script.has.remove(at);
        script.says.push_back((task, how));
    }
}

impl Place for Fake {
    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        let mut script = self.0.lock().unwrap();
        if script.has.len() >= script.room {
            script.refused += 1;
            return Offer::Full;
        }
        if script.takes_whole {
            let tasks = 0..count(unit.run.graph.len());
            script.has.extend(tasks.map(|index| TaskRef { index, ..unit.task }));
            return Offer::Whole;
        }
        script.has.push(unit.task);
        Offer::Taken { worker: WorkerId(0), is_staged: script.has.len() > 1 }
    }

    fn poll(&mut self, done: &mut Done) -> bool {
        let mut script = self.0.lock().unwrap();
        let said = script.says.drain(..).map(|(task, how)| Ending::new(task, how));
        done.ended.extend(said);
        !done.ended.is_empty()
    }

    fn abort(&mut self, run: RunId, why: Cut) {
        self.0.lock().unwrap().aborts.push((run, why));
    }

    fn next_look(&self) -> Option<Duration> {
        None
    }

    fn describe(&self, parts: &mut Vec<String>) {
        parts.extend(self.has().iter().map(|task| format!("fake has {task}")));
    }

    fn is_busy(&self) -> bool {
        !self.0.lock().unwrap().has.is_empty()
    }
}

struct Rig {
    engine: Engine<Fake>,
    clock: Arc<ManualClock>,
    first: Fake,
    next: u64,
}

impl Rig {
    fn new(room: usize) -> Self {
        let first = Fake::with_room(room);
        let clock = Arc::new(ManualClock::default());
        let its: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let patience = Patience::new(1);
        let engine = Engine::new(first.clone(), Vec::new(), Arc::default(), its, patience);
        Self { engine, clock, first, next: 1 }
    }

    fn launch(&mut self, graph: &Graph, route: Route, options: RunOptions) -> Arc<RunShared> {
        let number = RunId(self.next);
        self.next += 1;
        let run = RunShared::new(number, route, graph.clone(), options, self.clock.now());
        self.turn([Request::Launch(Arc::clone(&run))]);
        run
    }

    fn turn(&mut self, requests: impl IntoIterator<Item = Request>) {
        self.engine.ask(requests.into_iter().collect());
        while self.engine.turn() {}
    }

    fn advance(&mut self, by: Duration) {
        *self.clock.0.lock().unwrap() += by;
        if self.engine.next_deadline().is_some_and(|due| due.is_zero()) {
            self.engine.expire();
        }
        self.turn([]);
    }
}

use TaskState::{
    Cancelled, Complete, Delegated, DependencyFailed, Failed, Ready, Running, Waiting,
};

/// 0 before 1 and 2, both before 3.
fn diamond() -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let ids: Vec<_> = (0..4).map(|_| builder.add(Task::new(function)).unwrap()).collect();
    for (before, after) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        builder.edge(ids[before], ids[after]).unwrap();
    }
    builder.build().unwrap()
}

fn states(run: &RunShared) -> Vec<TaskState> {
    (0..count(run.graph.len())).map(|task| run.state(task)).collect()
}

fn failure() -> Ended {
    Ended::failed(TaskFailure::Panicked("so it was written".into()))
}

#[test]
fn tasks_go_to_their_place_when_they_are_ready_and_it_has_room() {
    let mut rig = Rig::new(1);
    let run = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    assert_eq!(rig.first.has(), [0]);
    assert_eq!(states(&run), [Running, Waiting, Waiting, Waiting]);
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert_eq!((rig.first.has(), states(&run)), (vec![1], vec![Complete, Running, Ready, Waiting]));
    for task in [1, 2, 3] {
        rig.first.end(task, Ended::Complete);
        rig.turn([]);
    }
    assert!(run.result.get().unwrap().is_success());
}

#[test]
fn what_finds_no_room_is_offered_again() {
    let mut rig = Rig::new(2);
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    for _ in 0..3 {
        builder.add(Task::new(function)).unwrap();
    }
    let graph = builder.build().unwrap();
    let blocked = rig.launch(&graph, Route::HOST, RunOptions::new());
    assert_eq!(rig.first.has(), [0, 1]);
    rig.first.end(1, Ended::Complete);
    rig.turn([]);
    assert_eq!(rig.first.has(), [0, 2]);
    assert!(blocked.result.get().is_none());
    assert!(rig.first.0.lock().unwrap().refused >= 1);
    assert!(rig.engine.describe().contains("fake has 0"));
}

#[test]
fn a_failure_poisons_what_is_behind_it_and_each_end_counts_once() {
    let mut rig = Rig::new(9);
    let run = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    rig.first.end(1, failure());
    rig.turn([]);
    assert!(run.result.get().is_none(), "the place has one of its tasks");
    rig.first.end(2, Ended::Complete);
    rig.turn([]);
    let outcome = run.result.get().unwrap();
    assert_eq!(states(&run), [Complete, Failed, Complete, DependencyFailed]);
    assert_eq!(outcome.failures().len(), 1);
    assert_eq!(outcome.root_cause(TaskId::from_index(3)), Some(TaskId::from_index(1)));
}

#[test]
fn a_run_that_is_cut_waits_for_what_places_have() {
    let mut rig = Rig::new(9);
    let run = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    rig.turn([Request::Cancel(run.number)]);
    assert_eq!(states(&run), [Running, Cancelled, Cancelled, Cancelled]);
    assert_eq!(rig.first.0.lock().unwrap().aborts, [(run.number, Cut::Cancelled)]);
    assert!(run.result.get().is_none());
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert_eq!(states(&run), [Complete, Cancelled, Cancelled, Cancelled]);
    assert!(run.result.get().is_some());
}

#[test]
fn a_deadline_is_told_to_places_and_later_runs_are_not_touched() {
    let mut rig = Rig::new(9);
    let after = Duration::from_millis(5);
    let late = rig.launch(&diamond(), Route::HOST, RunOptions::new().deadline(after));
    let other = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    rig.advance(Duration::from_millis(4));
    assert!(rig.first.0.lock().unwrap().aborts.is_empty());
    rig.advance(Duration::from_millis(1));
    assert_eq!(rig.first.0.lock().unwrap().aborts, [(late.number, Cut::Deadline(after))]);
    rig.first.end(0, failure());
    rig.turn([]);
    assert!(late.result.get().unwrap().check().is_err());
    // The slot is the next run's; what a place says of the one before it means nothing.
    let third = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    let stale = TaskRef { run: late.number, slot: 0, index: 0 };
    rig.first.0.lock().unwrap().says.push_back((stale, Ended::Complete));
    rig.turn([]);
    assert!(!other.state(0).is_final() && !third.state(0).is_final());
}

#[test]
fn a_place_may_take_a_whole_run_and_orders_its_tasks_itself() {
    let mut rig = Rig::new(9);
    rig.first.0.lock().unwrap().takes_whole = true;
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let first = builder.add(Task::new(function)).unwrap();
    builder.add(Task::new(function).after(first)).unwrap();
    let graph = builder.build().unwrap();
    let run = rig.launch(&graph, Route::HOST, RunOptions::new());
    assert_eq!((rig.first.has(), states(&run)), (vec![0, 1], vec![Delegated, Delegated]));
    rig.turn([Request::CancelTask(run.number, 1)]);
    assert_eq!(run.state(1), Delegated, "too late");
    rig.first.end(0, Ended::Complete);
    rig.first.end(1, Ended::NotRun);
    rig.turn([]);
    assert_eq!(states(&run), [Complete, Cancelled]);
    assert!(run.result.get().is_some());
}

#[test]
fn runs_that_conflict_follow_one_another_and_may_be_cancelled_meanwhile() {
    let mut rig = Rig::new(9);
    let resource = crate::graph::Resource::new(1);
    let graph = || {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        builder.add(Task::new(function).writes(resource.range(0..1))).unwrap();
        builder.build().unwrap()
    };
    let [a, b, c] = [0; 3].map(|_| rig.launch(&graph(), Route::HOST, RunOptions::new()));
    assert_eq!(rig.first.has(), [0], "the others wait");
    rig.turn([Request::Cancel(b.number)]);
    assert!(b.result.get().is_some());
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert!(a.result.get().unwrap().is_success());
    assert_eq!((rig.first.has(), c.state(0)), (vec![0], Running));
    rig.turn([Request::CancelAll]);
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert!(c.result.get().is_some());
}
