//! The scheduler on places that do what a script says, in virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::executor::ids::count;
use crate::executor::ids::{TaskRef, WorkerId};
use crate::executor::place::{Ended, Ending, Offer, Room, Unit};
use crate::executor::run::{Board, Route};
use crate::executor::words::{Answer, Verdict, Words};
use crate::executor::{RunOptions, TaskFailure, TaskState};
use crate::graph::{Comparison, CoreSet, Graph, GraphBuilder, HostData, Task, TaskId, Word};
use crate::memory::DeviceMemory;

#[derive(Debug, Default)]
struct ManualClock(Mutex<Duration>);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// What a fake place does, and what was done to it.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) room: usize,
    takes_whole: bool,
    /// What it has.
    has: Vec<TaskRef>,
    /// What it will say in the next turn.
    says: VecDeque<(TaskRef, Ended)>,
    moved: Vec<(TaskRef, WorkerId)>,
    pub(super) aborts: Vec<(RunId, Cut)>,
    refused: u32,
    /// Nothing can run here.
    pub(super) is_unfit: bool,
    pub(super) look: Option<Duration>,
    pub(super) is_brisk: bool,
    pub(super) is_closed: bool,
    /// How often it was told that no run is left.
    pub(super) rests: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fake(pub(super) Arc<Mutex<Script>>);

impl Fake {
    pub(super) fn with_room(room: usize) -> Self {
        let fake = Self::default();
        fake.0.lock().unwrap().room = room;
        fake
    }

    pub(super) fn has(&self) -> Vec<u32> {
        self.0.lock().unwrap().has.iter().map(|task| task.unit).collect()
    }

    pub(super) fn holds(&self) -> Vec<TaskRef> {
        self.0.lock().unwrap().has.clone()
    }

    pub(super) fn end_of(&self, task: TaskRef, how: Ended) {
        let mut script = self.0.lock().unwrap();
        script.has.retain(|other| *other != task);
        script.says.push_back((task, how));
    }

    /// Ends the first task with this index.
    pub(super) fn end(&self, index: u32, how: Ended) {
        let mut script = self.0.lock().unwrap();
        let at = script.has.iter().position(|task| task.unit == index).unwrap();
        let task = script.has.remove(at);
        script.says.push_back((task, how));
    }
}

impl Place for Fake {
    fn offer(&mut self, unit: Unit<'_>) -> Offer {
        let mut script = self.0.lock().unwrap();
        if script.is_unfit {
            return Offer::Failed(Box::new(TaskFailure::Panicked("it cannot".into())));
        }
        if script.has.len() >= script.room {
            script.refused += 1;
            return Offer::Full;
        }
        if script.takes_whole || unit.run.route.is_whole() {
            let tasks = 0..count(unit.run.graph.len());
            script.has.extend(tasks.map(|index| TaskRef { unit: index, ..unit.task }));
            return Offer::Whole;
        }
        script.has.push(unit.task);
        Offer::Taken { worker: WorkerId(0), is_staged: script.has.len() > 1 }
    }

    fn room_for(&mut self, _: Unit<'_>, parts: u32) -> Room {
        let script = self.0.lock().unwrap();
        let is_room = script.room.saturating_sub(script.has.len()) >= parts as usize;
        if is_room { Room::Now } else { Room::Later }
    }

    fn poll(&mut self, done: &mut Done) -> bool {
        let mut script = self.0.lock().unwrap();
        let said = script.says.drain(..).map(|(task, how)| Ending::new(task, how));
        done.ended.extend(said);
        done.moved.append(&mut script.moved);
        !done.is_empty()
    }

    fn abort(&mut self, run: RunId, why: Cut) {
        self.0.lock().unwrap().aborts.push((run, why));
    }

    fn next_look(&self) -> Option<Duration> {
        self.0.lock().unwrap().look
    }

    fn close(&mut self) {
        self.0.lock().unwrap().is_closed = true;
    }

    fn is_brisk(&self) -> bool {
        self.0.lock().unwrap().is_brisk
    }

    fn rest(&mut self) {
        self.0.lock().unwrap().rests += 1;
    }

    fn describe(&self, parts: &mut Vec<String>) {
        parts.extend(self.has().iter().map(|task| format!("fake has {task}")));
    }

    fn is_busy(&self) -> bool {
        !self.0.lock().unwrap().has.is_empty()
    }
}

/// What was asked of device memory, and what is to be told.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) room: usize,
    is_broken: bool,
    asked: Vec<TaskRef>,
    tells: Vec<Answer>,
    pub(super) look: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeWords(pub(super) Arc<Mutex<Memory>>);

impl FakeWords {
    fn tell(&self, task: u32, holds: Result<bool, TaskFailure>) {
        let mut memory = self.0.lock().unwrap();
        let at = memory.asked.iter().position(|asked| asked.unit == task).unwrap();
        let task = memory.asked.remove(at);
        memory.tells.push((task, holds));
    }

    fn asked(&self) -> Vec<u32> {
        self.0.lock().unwrap().asked.iter().map(|task| task.unit).collect()
    }
}

impl Words for FakeWords {
    fn ask(&mut self, _: &Arc<RunShared>, task: TaskRef) -> Verdict {
        let mut memory = self.0.lock().unwrap();
        if memory.is_broken {
            return Verdict::Failed(Box::new(TaskFailure::Panicked("no memory".into())));
        }
        if memory.asked.len() >= memory.room {
            return Verdict::Full;
        }
        memory.asked.push(task);
        Verdict::Asked
    }

    fn poll(&mut self, answers: &mut Vec<Answer>) {
        answers.append(&mut self.0.lock().unwrap().tells);
    }

    fn next_look(&self) -> Option<Duration> {
        self.0.lock().unwrap().look
    }

    fn is_busy(&self) -> bool {
        let memory = self.0.lock().unwrap();
        !memory.asked.is_empty() || !memory.tells.is_empty()
    }
}

pub(super) struct Rig {
    pub(super) engine: Engine<Fake>,
    pub(super) words: FakeWords,
    clock: Arc<ManualClock>,
    pub(super) first: Fake,
    /// The place of copies, on some routes.
    pub(super) second: Fake,
    next: u64,
}

impl Rig {
    pub(super) fn new(room: usize) -> Self {
        let first = Fake::with_room(room);
        let clock = Arc::new(ManualClock::default());
        let its: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let patience = Patience::new(1);
        let words = FakeWords::default();
        let second = Fake::with_room(room);
        let others =
            Beside { places: vec![Box::new(second.clone())], words: Some(Box::new(words.clone())) };
        let engine = Engine::new(first.clone(), others, Arc::default(), its, patience);
        Self { engine, words, clock, first, second, next: 1 }
    }

    pub(super) fn launch(
        &mut self,
        graph: &Graph,
        route: Route,
        options: RunOptions,
    ) -> Arc<RunShared> {
        let run = self.prepare(graph, route, (options, None));
        self.turn([Request::Launch(Launch::new(&run, Vec::new()))]);
        run
    }

    pub(super) fn prepare(
        &mut self,
        graph: &Graph,
        route: Route,
        options: (RunOptions, Option<Arc<Board>>),
    ) -> Arc<RunShared> {
        let number = RunId(self.next);
        self.next += 1;
        RunShared::new(number, (route, None), graph.clone(), options, self.clock.now())
    }

    pub(super) fn turn(&mut self, requests: impl IntoIterator<Item = Request>) {
        self.engine.ask(requests.into_iter().collect());
        while self.engine.turn() {}
    }

    pub(super) fn advance(&mut self, by: Duration) {
        *self.clock.0.lock().unwrap() += by;
        if self.engine.next_deadline().is_some_and(|due| due.is_zero()) {
            self.engine.expire();
        }
        self.turn([]);
    }
}

use TaskState::{
    Cancelled, Complete, Delegated, DependencyFailed, Failed, Ready, Running, Skipped, Staged,
    Waiting,
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

pub(super) fn states(run: &RunShared) -> Vec<TaskState> {
    (0..count(run.graph.len())).map(|task| run.state(task)).collect()
}

pub(super) fn failure() -> Ended {
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
fn what_is_launched_around_the_end_is_cancelled() {
    let mut rig = Rig::new(1);
    let runs = rig.launch(&diamond(), Route::HOST, RunOptions::new());
    rig.engine.close();
    let options = RunOptions::new().deadline(Duration::from_secs(1));
    let late = rig.launch(&diamond(), Route::HOST, options);
    assert_eq!(rig.first.has(), [0], "what runs may end");
    assert_eq!(states(&runs), [Running, Cancelled, Cancelled, Cancelled]);
    assert_eq!(states(&late), [Cancelled; 4]);
    assert!(late.result.is_done() && !runs.result.is_done());
    assert_eq!(rig.engine.next_deadline(), None);
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert!(runs.result.is_done());
}

#[test]
fn a_task_that_moves_runs_where_it_went() {
    let mut rig = Rig::new(2);
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    for _ in 0..2 {
        builder.add(Task::new(function)).unwrap();
    }
    let graph = builder.build().unwrap();
    let run = rig.launch(&graph, Route::HOST, RunOptions::new().traced());
    assert_eq!(states(&run), [Running, Staged]);
    rig.advance(Duration::from_millis(1));
    let staged = rig.first.holds()[1];
    rig.first.0.lock().unwrap().moved.push((staged, WorkerId(3)));
    rig.turn([]);
    assert_eq!(states(&run), [Running, Running]);
    for task in [0, 1] {
        rig.first.end(task, Ended::Complete);
        rig.turn([]);
    }
    let outcome = run.result.get().unwrap();
    let spans = outcome.trace().unwrap().spans();
    let spans: Vec<_> = spans.iter().map(|span| (span.worker, span.start.as_millis())).collect();
    assert_eq!(spans, [(0, 0), (3, 1)]);
}

/// When the tasks of a chain of 40 ended, in microseconds, each in a turn of its own: 64 passed
/// before the first of these, and 8 before the turn after the 32nd. An idle turn comes after so
/// many.
fn ends_of_chain(is_brisk: bool, idle_after: usize) -> Vec<u128> {
    const LEN: usize = 40;
    let mut rig = Rig::new(1);
    rig.first.0.lock().unwrap().is_brisk = is_brisk;
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let ids: Vec<_> = (0..LEN).map(|_| builder.add(Task::new(function)).unwrap()).collect();
    for pair in ids.windows(2) {
        builder.edge(pair[0], pair[1]).unwrap();
    }
    let graph = builder.build().unwrap();
    let run = rig.launch(&graph, Route::HOST, RunOptions::new().traced());
    for task in 0..LEN {
        let passed = [(0, 64), (32, 8)].into_iter().find(|(at, _)| *at == task);
        *rig.clock.0.lock().unwrap() += Duration::from_micros(passed.map_or(0, |(_, us)| us));
        rig.first.end(count(task), Ended::Complete);
        assert!(rig.engine.turn());
        if task + 1 == idle_after {
            assert!(!rig.engine.turn());
        }
    }
    let outcome = run.result.get().unwrap();
    outcome.trace().unwrap().spans().iter().map(|span| span.end.as_micros()).collect()
}

#[test]
fn short_tasks_share_a_look_at_the_clock() {
    let ends = ends_of_chain(false, 0);
    assert_eq!((ends[0], ends[31], ends[32], ends[39]), (64, 64, 72, 72), "each has its own");
    let ends = ends_of_chain(true, 0);
    assert_eq!((ends[0], ends[15], ends[31]), (1, 31, 63), "32 tasks share one");
    assert_eq!((ends[32], ends[39]), (64, 72), "so do the others");
    let ends = ends_of_chain(true, 4);
    assert_eq!((ends[0], ends[3], ends[4]), (8, 56, 64), "who is idle looks at once");
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
    let stale = TaskRef { run: late.number, slot: 0, unit: 0 };
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

/// Tasks one behind the other that all run only if their word of host data is not 0.
pub(super) fn guarded(flags: &[u8]) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let mut before = None;
    for &flag in flags {
        let data = HostData::new(vec![flag, 0, 0, 0]);
        let word = Word::<u32>::on_host(&data, 0).unwrap();
        let task = Task::new(function).only_if(&word, Comparison::NotEqual, 0);
        let task = before.into_iter().fold(task, Task::after);
        before = Some(builder.add(task).unwrap());
    }
    builder.build().unwrap()
}

#[test]
fn a_task_whose_condition_is_false_is_skipped_and_its_dependents_go_on() {
    let mut rig = Rig::new(9);
    let run = rig.launch(&guarded(&[0, 0, 1, 0]), Route::HOST, RunOptions::new());
    assert_eq!(states(&run), [Skipped, Skipped, Running, Waiting]);
    assert_eq!(rig.first.has(), [2]);
    rig.first.end(2, Ended::Complete);
    rig.turn([]);
    let outcome = run.result.get().unwrap();
    assert_eq!(states(&run), [Skipped, Skipped, Complete, Skipped]);
    assert!(outcome.is_success() && outcome.check().is_ok());
    // Without any work for a place.
    let run = rig.launch(&guarded(&[0, 0]), Route::HOST, RunOptions::new());
    assert!(run.result.get().unwrap().is_success());
}

pub(super) fn device_memory() -> Arc<DeviceMemory> {
    let base = et_hal::DeviceAddr::new(0x0080_0580_1000);
    DeviceMemory::new(base, 1 << 20, None).unwrap()
}

/// Three tasks beside one another with conditions on device memory.
pub(super) fn on_device() -> Graph {
    let memory = device_memory();
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    let flag = memory.alloc(64, 64).unwrap();
    for _ in 0..3 {
        let word = Word::<u64>::on_device(&flag, 8).unwrap();
        let task = Task::new(function).only_if(&word, Comparison::Equal, 1);
        builder.add(task).unwrap();
    }
    builder.build().unwrap()
}

#[test]
fn words_of_device_memory_are_asked_for_as_there_is_room() {
    let mut rig = Rig::new(9);
    rig.words.0.lock().unwrap().room = 2;
    let run = rig.launch(&on_device(), Route::HOST, RunOptions::new());
    assert_eq!((rig.words.asked(), states(&run)), (vec![0, 1], vec![Ready; 3]));
    assert!(rig.engine.describe().contains("1 tasks wait until their conditions"));
    rig.words.tell(1, Ok(true));
    rig.turn([]);
    assert_eq!((rig.words.asked(), rig.first.has()), (vec![0, 2], vec![1]));
    rig.words.tell(0, Ok(false));
    rig.words.tell(2, Err(TaskFailure::Panicked("the word is gone".into())));
    rig.turn([]);
    assert_eq!(states(&run), [Skipped, Running, Failed]);
    rig.first.end(1, Ended::Complete);
    rig.turn([]);
    assert_eq!(run.result.get().unwrap().failures().len(), 1);
}

#[test]
fn an_answer_for_a_task_that_was_cancelled_means_nothing() {
    let mut rig = Rig::new(9);
    rig.words.0.lock().unwrap().room = 2;
    let run = rig.launch(&on_device(), Route::HOST, RunOptions::new());
    rig.turn([Request::CancelTask(run.number, 0)]);
    assert_eq!(states(&run), [Cancelled, Ready, Ready]);
    rig.words.tell(0, Ok(true));
    rig.turn([]);
    assert_eq!((rig.first.has(), run.state(0)), (vec![], Cancelled));
    // All three are over, two of them asked for and one not.
    rig.turn([Request::Cancel(run.number)]);
    assert!(run.result.get().is_some() && rig.words.asked() == [1, 2]);
    // The next run has the slot, tasks of the same numbers, and none of the room as yet.
    let next = rig.launch(&on_device(), Route::HOST, RunOptions::new());
    rig.words.tell(1, Ok(false));
    rig.words.tell(2, Ok(true));
    rig.turn([]);
    assert_eq!((rig.first.has(), states(&next)), (vec![], vec![Ready; 3]));
    assert_eq!(rig.words.asked(), [0, 1]);
}

#[test]
fn a_run_that_is_cancelled_takes_only_its_own_tasks_along() {
    let mut rig = Rig::new(1);
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    for task in [Task::new(function), Task::new(function).cores(CoreSet::range(0..8))] {
        builder.add(task).unwrap();
    }
    let graph = builder.build().unwrap();
    let mut launch = || rig.launch(&graph, Route::HOST, RunOptions::new());
    let [holds_the_worker, cancelled, other] = [(); 3].map(|()| launch());
    rig.turn([Request::Cancel(cancelled.number)]);
    assert!(cancelled.result.get().is_some());
    assert_eq!(rig.engine.ready.waiting(), (3, 0));
    let mut ran = Vec::new();
    while let [task] = rig.first.holds()[..] {
        ran.push(task.run);
        rig.first.end(task.unit, Ended::Complete);
        rig.turn([]);
    }
    ran.sort_unstable();
    assert_eq!(ran, [holds_the_worker.number, holds_the_worker.number, other.number, other.number]);
    // The same with tasks whose conditions no one has looked at.
    let [cancelled, other] =
        [(); 2].map(|()| rig.launch(&on_device(), Route::HOST, RunOptions::new()));
    rig.turn([Request::Cancel(cancelled.number)]);
    let left: Vec<_> = rig.engine.ready.open().iter().map(|task| task.run).collect();
    assert_eq!(left, [other.number; 3]);
}

#[test]
fn a_word_that_cannot_even_be_asked_for_fails_its_task() {
    let mut rig = Rig::new(9);
    rig.words.0.lock().unwrap().is_broken = true;
    let run = rig.launch(&on_device(), Route::HOST, RunOptions::new());
    assert_eq!((rig.first.has(), states(&run)), (vec![], vec![Failed; 3]));
    assert_eq!(run.result.get().unwrap().failures().len(), 3);
}

#[test]
fn a_place_that_takes_a_whole_run_looks_at_conditions_itself() {
    let mut rig = Rig::new(9);
    rig.first.0.lock().unwrap().takes_whole = true;
    let run = rig.launch(&guarded(&[0, 1]), Route::whole(0, "fake"), RunOptions::new());
    assert_eq!(states(&run), [Delegated; 2]);
    rig.first.end(0, Ended::Skipped);
    rig.first.end(1, Ended::Complete);
    rig.turn([]);
    assert_eq!(states(&run), [Skipped, Complete]);
    assert!(run.result.get().unwrap().is_success());
}
