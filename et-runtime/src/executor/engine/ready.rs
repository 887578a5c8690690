//! Tasks that can run, and the places that they are offered to.

use std::collections::VecDeque;

use super::exec::Exec;
use crate::executor::TaskState;
use crate::executor::ids::{RunId, TaskRef};
use crate::executor::place::{Offer, Place, Room, Unit};
use crate::executor::run::RunShared;

/// The ready tasks of a place.
#[derive(Default)]
pub(super) struct Ready {
    /// For any worker, in the order in which they became ready; and parts that start together,
    /// which would wait forever if what comes after them took the workers.
    any: VecDeque<TaskRef>,
    /// For some workers only: that one finds no room says nothing of the next.
    choosy: Vec<TaskRef>,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.any.len() + self.choosy.len()
    }

    #[inline]
    fn push(&mut self, task: TaskRef, is_choosy: bool) {
        if is_choosy {
            self.choosy.push(task);
        } else {
            self.any.push_back(task);
        }
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
            match offer(place, execs, task, false, &mut failed) {
                Offered::Gone => {}
                Offered::Waits => break,
                // It has the workers as they become idle.
                Offered::Gathers => return (self.any.len(), failed),
            }
            self.any.pop_front();
            *progress = true;
        }
        let mut next = 0;
        while let Some(&task) = self.choosy.get(next) {
            if offer(place, execs, task, true, &mut failed) != Offered::Gone {
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
    let unit = task.unit;
    if exec.run.number != task.run || exec.run.state(unit) != TaskState::Ready {
        return Offered::Gone;
    }
    if exec.is_part_of_cancelled(unit) {
        return Offered::Gone;
    }
    let cores = if is_choosy || exec.is_part(unit) { exec.core_set(unit) } else { None };
    let offered = Unit { run: &exec.run, task, cores };
    if let Some(parts) = exec.gathers(unit) {
        match place.room_for(offered, parts) {
            Room::Now => {}
            Room::Later => return Offered::Gathers,
            Room::Never(failure) => {
                exec.refuse(unit, failure);
                failed.push(task.slot);
                return Offered::Gone;
            }
        }
    }
    match place.offer(offered) {
        Offer::Full => return Offered::Waits,
        Offer::Taken { worker, is_staged } => exec.hand_over(unit, worker, is_staged),
        Offer::Whole => exec.progress.take_whole(&*exec.run),
        Offer::Failed(failure) => {
            exec.refuse(unit, failure);
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
            self.open.push_back(TaskRef { run: run.number, slot, unit: index });
        } else {
            self.push_to_place(run, slot, index);
        }
    }

    /// A task that has no condition, or whose condition holds.
    #[inline]
    pub(super) fn push_to_place(&mut self, run: &RunShared, slot: u32, index: u32) {
        let task = TaskRef { run: run.number, slot, unit: index };
        let view = run.graph.view();
        let ready = &mut self.places[run.route.place(&run.graph, index)];
        if view.has_parts() && run.route.offers_parts() && run.route.splits(&run.graph, index) {
            let is_choosy = view.core_set(index).is_some() && !view.starts_together(index);
            for unit in view.units(index) {
                run.set_state(unit, TaskState::Ready);
                ready.push(TaskRef { unit, ..task }, is_choosy);
            }
        } else {
            ready.push(task, view.core_set(index).is_some());
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
    /// It waits until there are workers for all parts of its task.
    Gathers,
}
