//! Tasks that can run, and the places that they are offered to.

use std::collections::VecDeque;

use super::exec::Exec;
use crate::executor::TaskState;
use crate::executor::ids::{RunId, TaskRef};
use crate::executor::place::{Offer, Place, Unit};
use crate::executor::run::RunShared;

/// The ready tasks of a place.
#[derive(Default)]
pub(super) struct Ready {
    /// For any worker, in the order in which they became ready.
    any: VecDeque<TaskRef>,
    /// For some workers only: that one finds no room says nothing of the next.
    choosy: Vec<TaskRef>,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.any.len() + self.choosy.len()
    }

    /// Offers what is ready; returns how many tasks find no room, and the slots of runs with tasks
    /// that could not run.
    #[inline]
    pub(super) fn offer_to<P: Place + ?Sized>(
        &mut self,
        place: &mut P,
        execs: &mut [Option<Exec>],
        progress: &mut bool,
    ) -> (usize, Vec<u32>) {
        let mut failed = Vec::new();
        while let Some(&task) = self.any.front() {
            if offer(place, execs, task, false, &mut failed) == Offered::Waits {
                break;
            }
            self.any.pop_front();
            *progress = true;
        }
        let mut next = 0;
        while let Some(&task) = self.choosy.get(next) {
            if offer(place, execs, task, true, &mut failed) == Offered::Waits {
                next += 1;
            } else {
                self.choosy.remove(next);
                *progress = true;
            }
        }
        (self.any.len(), failed)
    }
}

/// Offers one task.
#[inline]
fn offer<P: Place + ?Sized>(
    place: &mut P,
    execs: &mut [Option<Exec>],
    task: TaskRef,
    is_choosy: bool,
    failed: &mut Vec<u32>,
) -> Offered {
    let Some(exec) = &mut execs[task.slot as usize] else { return Offered::Gone };
    let index = task.index;
    if exec.run.number != task.run || exec.run.state(index) != TaskState::Ready {
        return Offered::Gone;
    }
    let cores = if is_choosy { exec.run.graph.view().core_set(index) } else { None };
    match place.offer(Unit { run: &exec.run, task, cores }) {
        Offer::Full => return Offered::Waits,
        Offer::Taken { worker, is_staged } => {
            exec.progress.hand_over(&*exec.run, index, is_staged);
            if let Some(recorder) = &mut exec.recorder {
                recorder.start(index, worker.0);
            }
        }
        Offer::Whole => exec.progress.take_whole(&*exec.run),
        Offer::Failed(failure) => {
            exec.fail(index, *failure);
            failed.push(task.slot);
        }
    }
    Offered::Gone
}

/// Ready tasks, by place.
pub(super) struct Queues {
    places: Vec<Ready>,
    /// Those whose conditions the scheduler has yet to look at.
    open: VecDeque<TaskRef>,
}

impl Queues {
    pub(super) fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| Ready::default()).collect(), open: VecDeque::new() }
    }

    /// Those of a place.
    #[inline]
    pub(super) fn of(&mut self, place: usize) -> &mut Ready {
        &mut self.places[place]
    }

    /// Returns `true` if any worker of the first place could take one.
    pub(super) fn has_backlog(&self) -> bool {
        self.places.first().is_some_and(|ready| !ready.any.is_empty())
    }

    /// Returns how many tasks wait for the first place, and how many for the others.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let first = self.places.first().map_or(0, Ready::len);
        (first, self.places.iter().map(Ready::len).sum::<usize>() - first)
    }

    #[inline]
    pub(super) fn push(&mut self, run: &RunShared, slot: u32, index: u32) {
        if run.route.looks_at_conditions() && run.graph.view().condition(index).is_some() {
            self.open.push_back(TaskRef { run: run.number, slot, index });
        } else {
            self.push_to_place(run, slot, index);
        }
    }

    /// A task that has no condition, or whose condition holds.
    #[inline]
    pub(super) fn push_to_place(&mut self, run: &RunShared, slot: u32, index: u32) {
        let task = TaskRef { run: run.number, slot, index };
        let ready = &mut self.places[run.route.place(&run.graph, index)];
        if run.graph.view().core_set(index).is_some() {
            ready.choosy.push(task);
        } else {
            ready.any.push_back(task);
        }
    }

    /// The tasks whose conditions are to be looked at.
    #[inline]
    pub(super) fn open(&mut self) -> &mut VecDeque<TaskRef> {
        &mut self.open
    }

    /// Returns how many these are.
    pub(super) fn opened(&self) -> usize {
        self.open.len()
    }

    /// Drops the tasks of a run, which were cancelled when they were ready.
    pub(super) fn forget(&mut self, run: RunId) {
        self.open.retain(|task| task.run != run);
        for ready in &mut self.places {
            ready.any.retain(|task| task.run != run);
            ready.choosy.retain(|task| task.run != run);
        }
    }
}

/// What became of a ready task.
#[derive(PartialEq)]
enum Offered {
    Gone,
    Waits,
}
