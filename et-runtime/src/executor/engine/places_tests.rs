//! Several places and device memory under one scheduler, and what it says of itself to its driver.

use std::time::Duration;

use super::tests::{Rig, device_memory, failure, guarded, on_device, states};
use super::*;
use crate::executor::place::Ended;
use crate::executor::run::Route;
use crate::executor::{RunOptions, TaskFailure, TaskState};
use crate::graph::{Graph, GraphBuilder, HostData, Resource, Task};
use crate::sync::lock;

use TaskState::{Cancelled, Complete, Failed, Ready, Running, Staged, Waiting};

/// Host functions go to the first place, copies to the second.
const SPLIT: Route = Route::new(1, 1, "cpu");

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A copy to the device, a host function, and a copy back, one behind the other.
fn there_and_back() -> Graph {
    let (memory, mut builder) = (device_memory(), GraphBuilder::new());
    let buffer = memory.alloc(64, 64).unwrap();
    let data = HostData::zeroed(64);
    let function = builder.function(|_| Ok(()));
    let there = builder.copy_in(&data, &buffer).unwrap();
    let task = builder.add(Task::new(function).after(there)).unwrap();
    let back = builder.copy_out(&buffer, &data).unwrap();
    builder.edge(task, back).unwrap();
    builder.build().unwrap()
}

/// One task that writes the resource.
fn writer(resource: &Resource) -> Graph {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    builder.add(Task::new(function).writes(resource)).unwrap();
    builder.build().unwrap()
}

fn launched(rig: &mut Rig, graph: &Graph, options: RunOptions) -> Arc<RunShared> {
    let run = rig.prepare(graph, SPLIT, (options, None));
    rig.engine.ask(vec![Request::Launch(Launch::new(&run, Vec::new()))]);
    run
}

#[test]
fn a_turn_is_true_if_it_changed_anything_in_any_place() {
    let mut rig = Rig::new(1);
    assert!(!rig.engine.turn());
    let run = launched(&mut rig, &there_and_back(), RunOptions::new());
    assert!(rig.engine.turn(), "offered to the second place");
    assert_eq!((rig.first.has(), rig.second.has()), (vec![], vec![0]));
    assert!(!rig.engine.turn());
    rig.second.end(0, Ended::Complete);
    assert!(rig.engine.turn());
    assert_eq!((rig.first.has(), rig.second.has()), (vec![1], vec![]));
    rig.first.end(1, Ended::Complete);
    assert!(rig.engine.turn());
    assert_eq!((rig.first.has(), rig.second.has()), (vec![], vec![2]));
    rig.second.end(2, Ended::Complete);
    assert!(rig.engine.turn(), "the end of the last is news, although nothing follows");
    assert!(!rig.engine.turn());
    assert_eq!(states(&run), [Complete; 3]);

    launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new());
    assert!(rig.engine.turn(), "offered to the first place");
    assert!(!rig.engine.turn());

    launched(&mut rig, &guarded(&[0]), RunOptions::new());
    assert!(rig.engine.turn(), "skipped");
    assert!(!rig.engine.turn());
}

#[test]
fn tasks_wait_for_the_place_that_is_theirs() {
    let mut rig = Rig::new(0);
    let copies = launched(&mut rig, &there_and_back(), RunOptions::new());
    let first = launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new());
    rig.turn([]);
    let told = rig.engine.describe();
    assert_eq!(told, "nothing is running, 1 tasks wait for a worker, 1 tasks wait for the device");
    assert!(rig.engine.has_backlog());
    rig.first.0.lock().unwrap().room = 2;
    launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new());
    rig.turn([]);
    assert!(!rig.engine.has_backlog(), "none that a worker of the first place could take");
    let told = rig.engine.describe();
    assert_eq!(told, "fake has 0, fake has 0, 1 tasks wait for the device");
    rig.turn([Request::Cancel(copies.number)]);
    assert_eq!(rig.engine.describe(), "fake has 0, fake has 0");
    for place in [&rig.first, &rig.second] {
        assert_eq!(place.0.lock().unwrap().aborts, [(copies.number, Cut::Cancelled)]);
    }
    assert_eq!((states(&copies), states(&first)), (vec![Cancelled; 3], vec![Running]));
}

#[test]
fn it_is_looked_at_again_as_soon_as_the_first_that_does_not_notify_asks_for_it() {
    let rig = Rig::new(1);
    assert_eq!(rig.engine.next_look(), None);
    rig.words.0.lock().unwrap().look = Some(ms(3));
    assert_eq!(rig.engine.next_look(), Some(ms(3)));
    rig.second.0.lock().unwrap().look = Some(ms(2));
    assert_eq!(rig.engine.next_look(), Some(ms(2)));
    rig.words.0.lock().unwrap().look = Some(ms(1));
    assert_eq!(rig.engine.next_look(), Some(ms(1)));
}

#[test]
fn it_is_busy_while_a_place_beside_the_first_has_tasks_or_words_are_asked_for() {
    let mut rig = Rig::new(9);
    rig.words.0.lock().unwrap().room = 9;
    let host = launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new());
    rig.turn([]);
    assert!(host.state(0) == Running && !rig.engine.is_busy());
    launched(&mut rig, &there_and_back(), RunOptions::new());
    rig.turn([]);
    assert!(rig.engine.is_busy(), "a copy");
    rig.second.end(0, failure());
    rig.turn([]);
    assert!(!rig.engine.is_busy());
    launched(&mut rig, &on_device(), RunOptions::new());
    rig.turn([]);
    assert!(rig.engine.is_busy(), "words");
}

#[test]
fn the_next_deadline_is_the_first_of_the_runs_that_are_not_cut() {
    let (mut rig, resource) = (Rig::new(9), Resource::new(1));
    let within = |limit| RunOptions::new().deadline(ms(limit));
    assert_eq!(rig.engine.next_deadline(), None);
    let first = launched(&mut rig, &writer(&resource), RunOptions::new());
    assert_eq!(rig.engine.next_deadline(), None);
    let queued = launched(&mut rig, &writer(&resource), within(7));
    let other = launched(&mut rig, &there_and_back(), within(5));
    rig.turn([]);
    assert!(rig.engine.is_queued(queued.number) && !rig.engine.is_queued(first.number));
    assert_eq!(rig.engine.next_deadline(), Some(ms(5)));
    rig.advance(ms(4));
    assert_eq!(rig.engine.next_deadline(), Some(ms(1)));
    assert!(!other.state(2).is_final());
    rig.advance(ms(1));
    assert_eq!(other.state(2), Cancelled);
    assert_eq!(rig.engine.next_deadline(), Some(ms(2)), "that of the one which waits");
    rig.advance(ms(2));
    assert_eq!(states(&queued), [Cancelled]);
    let outcome = queued.result.get().expect("nothing of it runs");
    assert!(outcome.check().is_err());
    assert_eq!((rig.engine.next_deadline(), states(&first)), (None, vec![Running]));
    // The place that has something of it is not told a second time.
    assert_eq!(rig.second.0.lock().unwrap().aborts.len(), 2);
    rig.engine.expire();
    assert_eq!(rig.second.0.lock().unwrap().aborts.len(), 2);
    rig.second.end(0, failure());
    rig.turn([Request::CancelAll]);
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert_eq!((rig.engine.deadlines, states(&first)), (0, vec![Complete]));
}

#[test]
fn all_are_cut_those_that_wait_too() {
    let (mut rig, resource) = (Rig::new(9), Resource::new(1));
    let pair = [(); 2].map(|()| launched(&mut rig, &writer(&resource), RunOptions::new()));
    let other = launched(&mut rig, &there_and_back(), RunOptions::new());
    rig.turn([]);
    rig.turn([Request::CancelAll]);
    assert_eq!((states(&pair[1]), other.state(2)), (vec![Cancelled], Cancelled));
    assert!(pair[1].result.get().is_some() && rig.engine.queue.is_empty());
    for run in [&pair[0], &other] {
        assert!(rig.first.0.lock().unwrap().aborts.contains(&(run.number, Cut::Cancelled)));
    }
}

/// Nothing else would stop what runs of it.
#[test]
fn a_run_that_was_cancelled_is_late_none_the_less() {
    let mut rig = Rig::new(9);
    let late = launched(&mut rig, &there_and_back(), RunOptions::new().deadline(ms(1)));
    rig.turn([]);
    rig.turn([Request::Cancel(late.number), Request::CancelAll]);
    assert_eq!(rig.engine.next_deadline(), Some(ms(1)));
    rig.advance(ms(1));
    let told = [Cut::Cancelled, Cut::Deadline(ms(1))].map(|why| (late.number, why));
    assert_eq!(rig.second.0.lock().unwrap().aborts, told);
    assert_eq!(rig.engine.next_deadline(), None);
}

#[test]
fn callbacks_are_kept_until_they_are_taken() {
    let mut rig = Rig::new(9);
    let runs = [(); 2].map(|()| launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new()));
    rig.turn([]);
    let (None | Some(_)) = runs[1].result.call(|_| ());
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert!(!rig.engine.has_callbacks(), "none was registered with this one");
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert!(rig.engine.has_callbacks());
    assert_eq!(rig.engine.take_callbacks().len(), 1);
    assert!(!rig.engine.has_callbacks());
}

#[test]
fn what_was_staged_runs_once_its_place_says_so() {
    let mut rig = Rig::new(9);
    let graph = {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        builder.add(Task::new(function)).unwrap();
        builder.add(Task::new(function)).unwrap();
        builder.add(Task::new(function).parts(2)).unwrap();
        builder.build().unwrap()
    };
    let run = rig.launch(&graph, Route::HOST, RunOptions::new());
    assert_eq!(states(&run), [Running, Staged, Staged]);
    let begin = |rig: &mut Rig, unit: u32| {
        let task = *rig.first.holds().iter().find(|held| held.unit == unit).unwrap();
        rig.engine.bury(Done { started: vec![task], ..Done::default() });
    };
    begin(&mut rig, 1);
    assert_eq!(states(&run), [Running, Running, Staged]);
    begin(&mut rig, 4);
    assert_eq!(states(&run), [Running; 3]);
    assert_eq!((run.state(3), run.state(4)), (Staged, Running));
}

#[test]
fn what_its_worker_says_of_a_task_that_failed_is_its_failure() {
    let mut rig = Rig::new(9);
    let runs = [(); 2].map(|()| launched(&mut rig, &writer(&Resource::new(1)), RunOptions::new()));
    rig.turn([]);
    for (unit, why) in [(7, "another"), (0, "its own")] {
        lock(&runs[0].reports).push((unit, TaskFailure::Panicked(why.into())));
    }
    for _ in &runs {
        rig.first.end(0, Ended::Reported);
        rig.turn([]);
    }
    let failure = |run: &RunShared| run.result.get().unwrap().failures()[0].1.to_string();
    assert!(failure(&runs[0]).contains("its own"), "{}", failure(&runs[0]));
    assert!(failure(&runs[1]).contains("unknown"), "{}", failure(&runs[1]));
}

#[test]
fn a_task_of_a_run_that_waits_is_cancelled_when_that_starts() {
    let (mut rig, resource) = (Rig::new(9), Resource::new(2));
    let pair = || {
        let mut builder = GraphBuilder::new();
        let function = builder.function(|_| Ok(()));
        for range in [0..1, 1..2] {
            builder.add(Task::new(function).writes(resource.range(range))).unwrap();
        }
        builder.build().unwrap()
    };
    let graph = pair();
    let runs = [(); 3].map(|()| rig.launch(&graph, Route::HOST, RunOptions::new()));
    rig.turn([Request::CancelTask(runs[1].number, 1), Request::CancelTask(runs[2].number, 0)]);
    assert_eq!((states(&runs[1]), states(&runs[2])), (vec![Waiting; 2], vec![Waiting; 2]));
    let end = |rig: &mut Rig, task| {
        rig.first.end(task, Ended::Complete);
        rig.turn([]);
    };
    end(&mut rig, 0);
    end(&mut rig, 1);
    assert_eq!(states(&runs[1]), [Running, Cancelled]);
    end(&mut rig, 0);
    assert_eq!(states(&runs[2]), [Cancelled, Running]);
    end(&mut rig, 1);
    assert!(runs[2].result.get().is_some());
}

#[test]
fn a_recording_has_the_time_of_the_turn_in_which_something_happened() {
    let mut rig = Rig::new(1);
    rig.advance(ms(100));
    let run = rig.launch(&there_and_back(), SPLIT, RunOptions::new().traced());
    rig.advance(ms(10));
    rig.second.end(0, Ended::Complete);
    rig.turn([]);
    rig.advance(ms(20));
    rig.first.end(1, Ended::Complete);
    rig.turn([]);
    // Tasks that come back fast do not wait for a look at the clock.
    rig.second.0.lock().unwrap().is_brisk = true;
    rig.first.0.lock().unwrap().is_brisk = true;
    rig.advance(ms(30));
    rig.second.end(2, Ended::Complete);
    rig.turn([]);
    let outcome = run.result.get().unwrap();
    assert_eq!(outcome.elapsed(), ms(60));
    let spans = outcome.trace().unwrap().spans();
    let times: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
    assert_eq!(rig.engine.recorded, 0);
    assert_eq!(times, [(ms(0), ms(10)), (ms(10), ms(30)), (ms(30), ms(60))]);
}

#[test]
fn the_first_place_rests_when_no_run_is_left_and_the_others_are_closed_at_the_end() {
    let mut rig = Rig::new(9);
    let rests = |rig: &Rig| rig.first.0.lock().unwrap().rests;
    for _ in 0..2 {
        rig.launch(&writer(&Resource::new(1)), Route::HOST, RunOptions::new());
    }
    rig.first.end(0, Ended::Complete);
    rig.turn([]);
    assert_eq!(rests(&rig), 0, "one is left");
    rig.first.end(0, failure());
    rig.turn([]);
    assert_eq!(rests(&rig), 1);
    assert!(!rig.second.0.lock().unwrap().is_closed);
    rig.engine.close();
    assert!(rig.second.0.lock().unwrap().is_closed && !rig.first.0.lock().unwrap().is_closed);
}

#[test]
fn what_the_first_place_has_done_at_its_end_counts() {
    let mut rig = Rig::new(2);
    let run = rig.launch(&there_and_back(), Route::HOST, RunOptions::new());
    let [task] = rig.first.holds()[..] else { panic!("one behind the other") };
    rig.engine.bury(Done { complete: vec![task], ..Done::default() });
    assert_eq!(states(&run), [Complete, Ready, Waiting]);
    rig.turn([]);
    rig.first.end(1, failure());
    rig.turn([]);
    assert_eq!(states(&run)[1], Failed);
    assert!(run.result.get().is_some());
}

#[test]
fn what_cannot_run_where_it_is_offered_fails() {
    let mut rig = Rig::new(9);
    rig.first.0.lock().unwrap().is_unfit = true;
    let run = rig.launch(&writer(&Resource::new(1)), Route::HOST, RunOptions::new());
    assert_eq!((states(&run), run.result.get().unwrap().failures().len()), (vec![Failed], 1));
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    builder.add(Task::new(function).parts(2)).unwrap();
    let run = rig.launch(&builder.build().unwrap(), Route::HOST, RunOptions::new());
    let outcome = run.result.get().unwrap();
    let why = &outcome.failures()[0].1;
    assert!(matches!(why, TaskFailure::Part { part: 0, parts: 2, .. }), "{why}");
    assert_eq!((states(&run), outcome.failures().len()), (vec![Failed], 1));
}

#[test]
fn no_part_of_a_task_that_was_cancelled_is_offered_while_its_run_goes_on() {
    let mut rig = Rig::new(0);
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    builder.add(Task::new(function).parts(3)).unwrap();
    builder.add(Task::new(function)).unwrap();
    let run = rig.launch(&builder.build().unwrap(), Route::HOST, RunOptions::new());
    rig.turn([Request::CancelTask(run.number, 0)]);
    rig.first.0.lock().unwrap().room = 9;
    rig.launch(&writer(&Resource::new(1)), Route::HOST, RunOptions::new());
    assert_eq!((rig.first.has(), states(&run)), (vec![1, 0], vec![Cancelled, Running]));
}
