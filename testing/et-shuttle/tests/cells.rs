//! One who schedules, workers, hundreds of tasks: dispatch, take back, sleep, quit and abort at
//! random moments.
#![cfg(shuttle)]

use et_devapi::handshake::{Assignment, Scheduler, Worker, WorkerState};
use et_runtime::handshake::{Combiner, HostCell, OneShot, Parker, Patience};
use et_shuttle::{chance, check};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

const TASKS: u64 = 200;
const WORKERS: usize = 2;
/// The number before the first: it wraps around in the middle.
const BEFORE: u32 = u32::MAX - 40;

struct Pool {
    cells: [HostCell; WORKERS],
    combiner: Combiner<Books>,
    runs: Vec<AtomicU32>,
    result: OneShot<u64>,
}

/// What whoever schedules knows.
struct Books {
    halves: [Scheduler; WORKERS],
    is_open: [bool; WORKERS],
    /// Tasks of each worker, oldest first; none where one was taken back.
    has: [Vec<Option<u64>>; WORKERS],
    todo: Vec<u64>,
    completed: Vec<bool>,
}

impl Pool {
    fn new() -> Arc<Self> {
        let books = Books {
            halves: std::array::from_fn(|_| Scheduler::after(BEFORE)),
            is_open: [false; WORKERS],
            has: Default::default(),
            todo: (0..TASKS).collect(),
            completed: vec![false; TASKS as usize],
        };
        let pool = Self {
            cells: std::array::from_fn(|_| HostCell::after(BEFORE)),
            combiner: Combiner::new(books),
            runs: (0..TASKS).map(|_| AtomicU32::new(0)).collect(),
            result: OneShot::new(),
        };
        Arc::new(pool)
    }

    fn notify(&self) {
        self.combiner.notify(|books| {
            self.turn(books);
        });
    }

    /// The life of a worker.
    fn work(&self, index: usize) {
        let cell = &self.cells[index];
        let mut worker = Worker::after(BEFORE);
        let mut patience = Patience::new(u32::from(chance(2)));
        worker.announce(cell, index as u64).unwrap();
        self.notify();
        while let Some(Assignment { task, arg }) = cell.wait(&worker, &mut patience, || ()) {
            assert_eq!(arg, !task, "both words of a slot");
            let is_its = cell.claim(worker.next_to_complete());
            if is_its {
                let runs = self.runs[task as usize].fetch_add(1, Ordering::Relaxed);
                assert_eq!(runs, 0, "task {task} once");
            }
            worker.complete(cell, if is_its { task + 1 } else { 0 }).unwrap();
            self.notify();
        }
        worker.exit(cell).unwrap();
        self.notify();
    }

    /// Does all there is to do; returns `true` if there was anything.
    fn turn(&self, books: &mut Books) -> bool {
        let mut progress = false;
        for index in 0..WORKERS {
            progress |= self.collect(books, index);
        }
        for index in 0..WORKERS {
            progress |= self.hand_out(books, index);
        }
        if books.completed.iter().all(|is| *is) && !self.result.is_done() {
            assert!(self.result.set(TASKS, |parker| parker.unpark()).is_some());
            for index in 0..WORKERS {
                self.tell(books, index, chance(2));
            }
        }
        progress
    }

    fn collect(&self, books: &mut Books, index: usize) -> bool {
        let cell = &self.cells[index];
        let half = &mut books.halves[index];
        let mut progress = false;
        // First the state: what it completed before it left is seen by the look after that.
        let has_left = half.status(cell).unwrap().state == WorkerState::Exited;
        while let Some(finished) = half.poll(cell).unwrap() {
            let task = books.has[index].remove(0);
            let outcome = task.map_or(0, |task| task + 1);
            assert_eq!(finished.outcome, outcome, "the outcome of this task");
            if let Some(task) = task {
                assert!(!std::mem::replace(&mut books.completed[task as usize], true));
            }
            progress = true;
        }
        if has_left && !books.has[index].is_empty() {
            // It was told to leave at once: others do what it has not begun.
            assert_eq!(half.outstanding() as usize, books.has[index].len());
            books.todo.extend(books.has[index].drain(..).flatten());
            progress = true;
        } else if !has_left
            && chance(10)
            && let Some(number) = cell.first_waiting(half)
            && cell.claim(number)
        {
            let at = number.wrapping_sub(half.next_to_complete()) as usize;
            books.todo.extend(books.has[index][at].take());
            progress = true;
        }
        progress
    }

    fn hand_out(&self, books: &mut Books, index: usize) -> bool {
        let cell = &self.cells[index];
        if !books.is_open[index] {
            if books.halves[index].is_leaving() {
                return false;
            }
            match books.halves[index].open(cell).unwrap() {
                None => return false,
                Some(identity) => assert_eq!(identity, index as u64, "who it is"),
            }
            books.is_open[index] = true;
        }
        let mut progress = false;
        while books.halves[index].has_room() && !books.todo.is_empty() {
            // An idle worker gets one in any case, or no one might come back.
            if !books.has[index].is_empty() && chance(3) {
                break;
            }
            let at = if chance(2) { books.todo.len() - 1 } else { 0 };
            let task = books.todo.swap_remove(at);
            let assignment = Assignment { task, arg: !task };
            books.halves[index].dispatch(cell, assignment).unwrap();
            books.has[index].push(Some(task));
            progress = true;
        }
        if progress && books.halves[index].must_wake(cell).unwrap() {
            cell.wake();
        }
        // One stays.
        let stays = |other: &Scheduler| !other.is_leaving();
        if chance(100) && books.halves.iter().filter(|half| stays(half)).count() > 1 {
            self.tell(books, index, chance(2));
        }
        progress
    }

    fn tell(&self, books: &mut Books, index: usize, abort: bool) {
        let (cell, half) = (&self.cells[index], &mut books.halves[index]);
        if abort { half.abort(cell) } else { half.quit(cell) }.unwrap();
        if half.must_wake(cell).unwrap() {
            cell.wake();
        }
    }

    /// Waits: sometimes schedules, sometimes leaves that to those who come with something.
    fn wait(&self) {
        while !self.result.is_done() {
            if chance(2)
                && let Some(mut books) = self.combiner.hold()
            {
                while !chance(20) && !self.result.is_done() {
                    if !self.turn(&mut books) {
                        self.combiner.sleep(&mut books, None, |books| {
                            self.turn(books) || self.result.is_done()
                        });
                    }
                }
                self.combiner.leave(books, |books| {
                    self.turn(books);
                });
            } else if chance(4) {
                let parker = std::sync::Arc::new(Parker::new());
                if self.result.subscribe(&parker) {
                    parker.park();
                }
            } else {
                thread::yield_now();
            }
        }
        assert_eq!(self.result.get(), Some(TASKS));
    }
}

#[test]
fn each_task_is_run_once_whoever_schedules_and_whoever_leaves() {
    check("cells", 12_000, || {
        let pool = Pool::new();
        let threads: Vec<_> = (0..WORKERS)
            .map(|index| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(index))
            })
            .collect();
        pool.wait();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(pool.runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        let books = pool.combiner.hold().expect("free");
        assert!(books.todo.is_empty() && books.has.iter().all(Vec::is_empty));
    });
}
