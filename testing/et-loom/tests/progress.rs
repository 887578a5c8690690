//! The tasks of a run: whatever several threads report at once, each task ends once, and what
//! follows from it happens once.
#![cfg(loom)]

use et_loom::check;
use et_runtime::executor::TaskState;
use et_runtime::executor::progress::{Progress, Tasks};
use et_runtime::handshake::{Combiner, OneShot, Parker};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const STATES: [TaskState; 11] = [
    TaskState::Waiting,
    TaskState::Ready,
    TaskState::Delegated,
    TaskState::Staged,
    TaskState::Running,
    TaskState::Executed,
    TaskState::Complete,
    TaskState::Failed,
    TaskState::Cancelled,
    TaskState::DependencyFailed,
    TaskState::Skipped,
];

type States = [TaskState; 4];

/// What a third thread asks for.
#[derive(Clone, Copy)]
enum Request {
    Nothing,
    Cut,
    Cancel(u32),
}

/// 1 and 2 are behind 0, which is complete, and before 3.
struct Run {
    combiner: Combiner<Books>,
    request: Request,
    is_requested: AtomicU32,
    fails: [bool; 4],
    /// What tasks write: relaxed, so that only the scheduling orders it.
    data: [AtomicU32; 4],
    /// 1 once the task has run. Stands for the cell of its worker.
    done: [AtomicU32; 4],
    /// The task handed out last, counted from 1, until someone takes it.
    next: AtomicU32,
    result: OneShot<States>,
    tasks: Diamond,
}

/// As in the runtime: relaxed, and written by whoever schedules.
struct Diamond([AtomicU32; 4]);

impl Tasks for Diamond {
    fn successors(&self, task: u32) -> &[u32] {
        [&[1, 2][..], &[3], &[3], &[]][task as usize]
    }

    fn state(&self, task: u32) -> TaskState {
        STATES[self.0[task as usize].load(Ordering::Relaxed) as usize]
    }

    fn set_state(&self, task: u32, state: TaskState) {
        let before = self.state(task);
        assert!(!before.is_final(), "task {task} ends once, but {before:?} became {state:?}");
        assert!(before < state, "task {task} only goes forward, but {before:?} became {state:?}");
        self.0[task as usize].store(state as u32, Ordering::Relaxed);
    }

    fn set_ended(&self, _: usize) {}
}

/// What whoever schedules knows.
struct Books {
    progress: Progress,
    running: Vec<u32>,
    released: Vec<u32>,
    is_request_done: bool,
}

impl Run {
    fn new(fails: &[usize], request: Request) -> Arc<Self> {
        let new = || std::array::from_fn(|_| AtomicU32::new(0));
        let tasks = Diamond(new());
        let mut progress = Progress::new([0, 1, 1, 2].into_iter());
        progress.start(&tasks, &[0], |_| ());
        progress.hand_over(&tasks, 0, false);
        progress.take_back();
        let mut running = Vec::new();
        progress.succeed(&tasks, 0, |task| running.push(task));
        for &task in &running {
            progress.hand_over(&tasks, task, false);
        }
        let books = Books { progress, running, released: vec![], is_request_done: false };
        Arc::new(Self {
            combiner: Combiner::new(books),
            request,
            is_requested: AtomicU32::new(0),
            fails: std::array::from_fn(|task| fails.contains(&task)),
            data: new(),
            done: new(),
            next: AtomicU32::new(0),
            result: OneShot::new(),
            tasks,
        })
    }

    /// Does all there is to do, as the engine does.
    fn turn(&self, books: &mut Books) {
        let Books { progress, running, released, is_request_done } = books;
        if !*is_request_done && self.is_requested.load(Ordering::Acquire) == 1 {
            *is_request_done = true;
            match self.request {
                Request::Nothing => {}
                Request::Cut => progress.cut(&self.tasks),
                Request::Cancel(task) => {
                    progress.cancel_task(&self.tasks, task, |_| ());
                }
            }
        }
        let before = released.len();
        running.retain(|&task| {
            if self.done[task as usize].load(Ordering::Acquire) == 0 {
                return true;
            }
            progress.take_back();
            if self.fails[task as usize] {
                progress.fail(&self.tasks, task, |_| ());
            } else {
                progress.succeed(&self.tasks, task, |next| released.push(next));
            }
            false
        });
        for &task in &released[before..] {
            progress.hand_over(&self.tasks, task, false);
            running.push(task);
            assert_eq!(self.next.swap(task + 1, Ordering::AcqRel), 0, "there is one at a time");
        }
        if progress.is_over() && !self.result.is_done() {
            let states = std::array::from_fn(|task| self.tasks.state(task as u32));
            let callbacks =
                self.result.set(states, |parker| parker.unpark()).expect("it ends once");
            assert!(callbacks.is_empty());
        }
    }

    /// Has everything seen, and runs what was handed out.
    fn notify(&self) {
        self.combiner.notify(|books| self.turn(books));
        let next = self.next.swap(0, Ordering::AcqRel);
        if next != 0 {
            self.execute(next - 1);
        }
    }

    fn execute(&self, task: u32) {
        if task == 3 {
            for before in [1, 2] {
                let data = self.data[before].load(Ordering::Relaxed);
                assert_eq!(data, 1, "what task {before} wrote");
            }
        }
        let runs = self.data[task as usize].fetch_add(1, Ordering::Relaxed);
        assert_eq!(runs, 0, "each task once");
        self.done[task as usize].store(1, Ordering::Release);
        self.notify();
    }

    fn wait(&self) -> States {
        let parker = std::sync::Arc::new(Parker::new());
        if self.result.subscribe(&parker) {
            parker.park();
        }
        self.result.get().expect("the wait is over")
    }
}

/// Explores a diamond whose two middle tasks run; `is_right` judges the end of 1, 2 and 3.
fn explore(
    name: &str,
    fails: &'static [usize],
    request: Request,
    is_right: fn([TaskState; 3]) -> bool,
) {
    check(name, Some(2), move || {
        let run = Run::new(fails, request);
        let workers: Vec<_> = [1, 2]
            .into_iter()
            .map(|task| {
                let run = Arc::clone(&run);
                thread::spawn(move || {
                    run.execute(task);
                    // One of them waits, too.
                    if task == 2 {
                        run.wait();
                    }
                })
            })
            .collect();
        if !matches!(request, Request::Nothing) {
            run.is_requested.store(1, Ordering::Release);
            run.notify();
        }
        let [first, states @ ..] = run.wait();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(first, TaskState::Complete);
        assert!(is_right(states), "{states:?}");
        let has_run = matches!(states[2], TaskState::Complete | TaskState::Failed);
        assert_eq!(run.data[3].load(Ordering::Relaxed), u32::from(has_run), "{states:?}");
        let books = run.combiner.hold().expect("free");
        assert_eq!(books.released.len(), usize::from(has_run));
        assert!(books.progress.is_over() && books.running.is_empty());
    });
}

use TaskState::{Cancelled, Complete, DependencyFailed, Failed};

#[test]
fn the_last_of_two_releases_the_task_behind_them() {
    explore("graph-complete", &[], Request::Nothing, |states| states == [Complete; 3]);
}

#[test]
fn a_task_behind_two_failed_ones_fails_once() {
    explore("graph-failures", &[1, 2], Request::Nothing, |states| {
        states == [Failed, Failed, DependencyFailed]
    });
}

#[test]
fn a_cancelled_graph_completes_what_runs() {
    explore("graph-cut", &[], Request::Cut, |[first, second, last]| {
        [first, second] == [Complete; 2] && matches!(last, Complete | Cancelled)
    });
}

#[test]
fn a_cancelled_task_ends_as_cancelled_or_as_if_it_were_not() {
    explore("graph-cancel-task", &[], Request::Cancel(3), |[first, second, last]| {
        [first, second] == [Complete; 2] && matches!(last, Complete | Cancelled)
    });
}

#[test]
fn a_running_task_is_not_cancelled() {
    explore("graph-cancel-running", &[], Request::Cancel(1), |states| states == [Complete; 3]);
}

#[test]
fn failure_and_cancelling_of_a_graph_race() {
    explore("graph-fail-cut", &[1], Request::Cut, |[first, second, last]| {
        [first, second] == [Failed, Complete] && matches!(last, DependencyFailed | Cancelled)
    });
}

#[test]
fn failure_and_cancelling_of_a_task_race() {
    explore("graph-fail-cancel", &[1], Request::Cancel(3), |[first, second, last]| {
        [first, second] == [Failed, Complete] && matches!(last, DependencyFailed | Cancelled)
    });
}
