//! Tasks that wait for tasks of earlier runs.

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use crate::executor::ids::{RunId, TaskRef};
use crate::executor::outcome::Cut;
use crate::executor::place::Place;
use crate::executor::run::{Board, RunShared};
use crate::sync::Ordering;

/// A task of a run, and one of an earlier run that it must wait for.
pub(in crate::executor) struct Behind {
    pub(in crate::executor) task: u32,
    pub(in crate::executor) run: Arc<RunShared>,
    pub(in crate::executor) earlier: u32,
}

/// Those who wait for one task.
struct Waiting {
    run: Arc<RunShared>,
    tasks: Vec<TaskRef>,
}

/// Tasks of runs that have started, by the earlier ones that they wait for.
#[derive(Default)]
pub(super) struct Flows {
    waiting: HashMap<(RunId, u32), Waiting>,
    /// The flows that these belong to.
    boards: Vec<Arc<Board>>,
}

impl Flows {
    fn add(&mut self, Behind { run, earlier, .. }: Behind, task: TaskRef) {
        if let Some(flow) = &run.flow
            && !flow.is_read.swap(true, Ordering::Relaxed)
        {
            self.boards.push(Arc::clone(flow));
        }
        let none = || Waiting { run: Arc::clone(&run), tasks: Vec::new() };
        self.waiting.entry((run.number, earlier)).or_insert_with(none).tasks.push(task);
    }

    /// Takes those whose wait is over, with what they waited for.
    fn take_over(&mut self) -> Vec<(u32, Waiting)> {
        let ended = self.boards.iter().flat_map(|board| board.take());
        let over = ended.filter_map(|(run, task)| Some((task, self.waiting.remove(&(run, task))?)));
        let over = over.collect();
        if self.waiting.is_empty() {
            for board in self.boards.drain(..) {
                board.is_read.store(false, Ordering::Relaxed);
            }
        }
        over
    }
}

impl<F: Place> Engine<F> {
    /// Lets the tasks of a run that is about to start wait for those of earlier ones. Returns
    /// `false` if some of these did not complete, and the place could not leave out what depends on
    /// them: then the run has been cut.
    pub(super) fn hold_back(&mut self, slot: u32, behind: Vec<Behind>) -> bool {
        let mut is_sound = true;
        let Self { started, flows, .. } = self;
        let Some(exec) = started.get_mut(slot) else { return true };
        let mut failed = Vec::new();
        for behind in behind {
            let state = behind.run.state(behind.earlier);
            if state.is_success() {
                continue;
            }
            exec.progress.hold(behind.task);
            if state.is_final() {
                failed.push(behind);
            } else {
                let task = TaskRef { run: exec.run.number, slot, unit: behind.task };
                flows.add(behind, task);
            }
        }
        for Behind { task, run, earlier } in failed {
            exec.fail_behind(task, &run, earlier);
            is_sound = !exec.run.route.is_whole();
        }
        if !is_sound {
            self.cut(slot, Cut::Cancelled);
        }
        is_sound
    }

    /// Tells tasks of later runs of what they wait for. Returns `true` if any was told.
    #[inline]
    pub(super) fn tell_later_runs(&mut self) -> bool {
        !self.flows.waiting.is_empty() && self.tell_those_who_wait()
    }

    fn tell_those_who_wait(&mut self) -> bool {
        let over = self.flows.take_over();
        if over.is_empty() {
            return false;
        }
        let Self { started, ready, .. } = self;
        let mut failed = Vec::new();
        for (earlier, Waiting { run, tasks }) in over {
            let is_success = run.state(earlier).is_success();
            for TaskRef { run: number, slot, unit } in tasks {
                let Some(exec) = started.get_run(slot, number) else { continue };
                if is_success {
                    exec.let_go(unit, |run, next| ready.push(run, slot, next));
                } else {
                    exec.fail_behind(unit, &run, earlier);
                    failed.push(slot);
                }
            }
        }
        self.conclude(&failed);
        true
    }
}
