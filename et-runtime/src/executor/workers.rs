//! Host threads that run tasks.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use et_devapi::handshake::{Assignment, Scheduler, Worker, WorkerState};

use super::driver::Pool;
use super::run::RunShared;
use crate::handshake::{HostCell, Patience, sure};

/// What the scheduler knows of one host thread.
pub(super) struct WorkerSlot {
    cell: Arc<HostCell>,
    half: Scheduler,
    /// Slot and task of the runs' tables, by the parity of the sequence number.
    tasks: [(u32, u32); 2],
    thread: Option<JoinHandle<()>>,
}

/// A task a worker has completed.
pub(super) struct Taken {
    pub(super) slot: u32,
    pub(super) task: u32,
    pub(super) is_success: bool,
    /// Parity of its number.
    pub(super) parity: usize,
}

impl WorkerSlot {
    /// Starts a thread. It announces itself when it runs.
    pub(super) fn start(
        pool: &Weak<Pool>,
        name: &str,
        index: u32,
        spins: u32,
    ) -> std::io::Result<Self> {
        let cell = Arc::new(HostCell::new());
        let (pool, its) = (Weak::clone(pool), Arc::clone(&cell));
        let thread = std::thread::Builder::new()
            .name(format!("{name}-{index}"))
            .spawn(move || work(&pool, &its, index, spins))?;
        Ok(Self { cell, half: Scheduler::new(), tasks: [(0, 0); 2], thread: Some(thread) })
    }

    /// Opens the cell if the worker has come.
    pub(super) fn open(&mut self) -> bool {
        // The cell is of this process: it is not corrupt.
        matches!(self.half.open(&*self.cell), Ok(Some(_)))
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.half.outstanding()
    }

    /// Hands a task out; returns the parity of its number, `None` if there is no room.
    #[inline]
    pub(super) fn dispatch(&mut self, slot: u32, task: u32, run: u64) -> Option<usize> {
        let word = u64::from(slot) << 32 | u64::from(task);
        let sequence = self.half.dispatch(&*self.cell, Assignment { task: word, arg: run }).ok()?;
        let parity = (sequence & 1) as usize;
        self.tasks[parity] = (slot, task);
        Some(parity)
    }

    /// Wakes the worker if it sleeps; after one or more dispatches.
    #[inline]
    pub(super) fn wake(&self) {
        if self.half.must_wake(&*self.cell).unwrap_or(true) {
            self.cell.wake();
        }
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Option<Taken> {
        let finished = self.half.poll(&*self.cell).ok()??;
        let parity = (finished.sequence & 1) as usize;
        let (slot, task) = self.tasks[parity];
        Some(Taken { slot, task, is_success: finished.outcome == 0, parity })
    }

    /// The first task it has that was not polled as complete.
    #[inline]
    pub(super) fn first(&self) -> (u32, u32) {
        self.tasks[(self.half.next_to_complete() & 1) as usize]
    }

    /// The tasks it has, the running one first.
    pub(super) fn holds(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let status = self.half.status(&*self.cell);
        let first = status.map_or(0, |status| status.completed.wrapping_add(1));
        (0..self.outstanding()).map(move |n| self.tasks[(first.wrapping_add(n) & 1) as usize])
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
fn work(pool: &Weak<Pool>, cell: &HostCell, index: u32, spins: u32) {
    let mut worker = Worker::new();
    sure(worker.announce(cell, u64::from(index)));
    if let Some(pool) = pool.upgrade() {
        pool.notify();
    }
    // Runs it has tasks of, by slot; forgotten before it sleeps, so that it keeps nothing alive.
    let mut runs: Vec<Option<Arc<RunShared>>> = Vec::new();
    let mut strong: Option<Arc<Pool>> = None;
    let mut patience = Patience::new(spins);
    while let Some(Assignment { task: word, arg: number }) = {
        cell.wait(&worker, &mut patience, || {
            runs.clear();
            strong = None;
        })
    } {
        let (slot, task) = ((word >> 32) as usize, (word & 0xffff_ffff) as u32);
        if strong.is_none() {
            strong = pool.upgrade();
        }
        // A pool ends its workers before it goes.
        let Some(pool) = &strong else { break };
        let known = runs.get(slot).and_then(Option::as_ref).is_some_and(|run| run.number == number);
        if !known {
            if runs.len() <= slot {
                runs.resize(slot + 1, None);
            }
            runs[slot] = pool.run(slot, number);
        }
        pool.picked_up();
        let outcome = runs[slot].as_ref().map_or(1, |run| run.execute(task));
        sure(worker.complete(cell, outcome));
        pool.notify();
    }
    sure(worker.exit(cell));
    if let Some(pool) = pool.upgrade() {
        pool.notify();
    }
}
