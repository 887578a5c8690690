//! Host threads that run tasks.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use et_devapi::handshake::{Assignment, Scheduler, Worker, WorkerState};

use super::super::ids::{RunId, TaskRef, WorkerId, high, low};
use super::super::own;
use super::super::run::{RunShared, Runs};
use super::Desk;
use crate::handshake::{HostCell, Patience, sure};

/// A task that a worker has got and had not begun when it was looked at.
pub(super) struct Waiting {
    number: u32,
    pub(super) task: TaskRef,
}

/// What the scheduler knows of one host thread.
pub(super) struct WorkerSlot {
    cell: Arc<HostCell>,
    half: Scheduler,
    /// By the parity of the sequence number; none where it was taken back.
    tasks: [Option<TaskRef>; 2],
    thread: Option<JoinHandle<()>>,
}

impl WorkerSlot {
    /// Starts a thread. It announces itself when it runs.
    pub(super) fn start(
        desk: &Weak<impl Desk>,
        runs: &Arc<Runs>,
        name: &str,
        worker: WorkerId,
        spins: u32,
    ) -> std::io::Result<Self> {
        let cell = Arc::new(HostCell::new());
        let (desk, runs, its) = (Weak::clone(desk), Arc::clone(runs), Arc::clone(&cell));
        let thread = std::thread::Builder::new()
            .name(format!("{name}-{worker}"))
            .spawn(move || work(&desk, &runs, &its, worker, spins))?;
        Ok(Self { cell, half: Scheduler::new(), tasks: [None; 2], thread: Some(thread) })
    }

    /// Opens the cell if the worker has come.
    pub(super) fn open(&mut self) -> bool {
        // The cell is of this process: it is not corrupt.
        matches!(self.half.open(&*self.cell), Ok(Some(_)))
    }

    /// How many tasks it has not given back, among them those that were taken back.
    pub(super) fn outstanding(&self) -> u32 {
        self.half.outstanding()
    }

    /// The task that it will begin with next, unless it does at this moment.
    #[inline]
    pub(super) fn first_waiting(&self) -> Option<Waiting> {
        let number = self.cell.first_waiting(&self.half)?;
        let task = self.tasks[(number & 1) as usize]?;
        Some(Waiting { number, task })
    }

    /// Takes a task back; `None` if it has begun with it meanwhile.
    pub(super) fn take_back(&mut self, waiting: Waiting) -> Option<TaskRef> {
        let number = waiting.number;
        self.cell.claim(number).then(|| self.tasks[(number & 1) as usize].take())?
    }

    /// Hands a task out; `false` if there is no room.
    #[inline]
    pub(super) fn dispatch(&mut self, task: TaskRef) -> bool {
        let word = u64::from(task.slot) << 32 | u64::from(task.unit);
        let assignment = Assignment { task: word, arg: task.run.0 };
        let Ok(sequence) = self.half.dispatch(&*self.cell, assignment) else { return false };
        self.tasks[(sequence & 1) as usize] = Some(task);
        true
    }

    /// Wakes the worker if it sleeps; after one or more dispatches.
    #[inline]
    pub(super) fn wake(&self) {
        if self.half.must_wake(&*self.cell).unwrap_or(true) {
            self.cell.wake();
        }
    }

    /// Takes a completed task, and whether it succeeded.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<(TaskRef, bool)> {
        loop {
            let finished = self.half.poll(&*self.cell).ok()??;
            if let Some(task) = self.tasks[(finished.sequence & 1) as usize].take() {
                return Some((task, finished.outcome == 0));
            }
        }
    }

    /// The tasks it has that were not polled as complete, the running one first.
    #[inline]
    pub(super) fn holds(&self) -> impl Iterator<Item = TaskRef> + '_ {
        let first = self.half.next_to_complete();
        (0..self.outstanding())
            .filter_map(move |n| self.tasks[(first.wrapping_add(n) & 1) as usize])
    }

    /// Tells the worker to leave, at once or when it has completed what it has.
    pub(super) fn leave(&mut self, at_once: bool) {
        if at_once {
            sure_told(self.half.abort(&*self.cell));
        } else {
            sure_told(self.half.quit(&*self.cell));
        }
        self.wake();
    }

    /// One whose thread never comes.
    #[cfg(test)]
    pub(super) fn absent() -> Self {
        let cell = Arc::new(HostCell::new());
        Self { cell, half: Scheduler::new(), tasks: [None; 2], thread: None }
    }

    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.half.status(&*self.cell).is_ok_and(|status| status.state == WorkerState::Parked)
    }

    pub(super) fn has_left(&self) -> bool {
        self.half.status(&*self.cell).is_ok_and(|status| status.state == WorkerState::Exited)
    }

    /// Waits for a thread that has left.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It catches what tasks throw; there is nothing else that could panic.
            drop(thread.join());
        }
    }
}

fn sure_told<E>(told: Result<(), E>) {
    debug_assert!(told.is_ok(), "host memory does not fail");
}

/// The life of a worker.
fn work<D: Desk>(desk: &Weak<D>, table: &Runs, cell: &HostCell, index: WorkerId, spins: u32) {
    own::belong_to(desk.as_ptr());
    let mut worker = Worker::new();
    sure(worker.announce(cell, u64::from(index.0)));
    if let Some(desk) = desk.upgrade() {
        desk.notify();
    }
    // Runs it has tasks of, by slot; forgotten before it sleeps, so that it keeps nothing alive.
    let mut runs: Vec<Option<Arc<RunShared>>> = Vec::new();
    let mut strong: Option<Arc<D>> = None;
    let mut patience = Patience::new(spins);
    while let Some(Assignment { task: word, arg: number }) = {
        cell.wait(&worker, &mut patience, || {
            runs.clear();
            strong = None;
        })
    } {
        let is_mine = cell.claim(worker.next_to_complete());
        if strong.is_none() {
            strong = desk.upgrade();
        }
        // An executor ends its workers before it goes.
        let Some(desk) = &strong else { break };
        if !is_mine {
            sure(worker.complete(cell, 0));
            desk.notify();
            continue;
        }
        let (slot, unit) = (high(word), low(word));
        let (at, number) = (slot as usize, RunId(number));
        let known = runs.get(at).and_then(Option::as_ref).is_some_and(|run| run.number == number);
        if !known {
            if runs.len() <= at {
                runs.resize(at + 1, None);
            }
            runs[at] = table.get(slot, number);
        }
        desk.picked_up();
        let outcome = runs[at].as_ref().map_or(1, |run| run.execute(unit));
        sure(worker.complete(cell, outcome));
        desk.notify();
    }
    sure(worker.exit(cell));
    if let Some(desk) = desk.upgrade() {
        desk.notify();
    }
}
