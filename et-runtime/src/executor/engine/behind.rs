//! Which tasks wait for which of earlier runs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::executor::ids::{RunId, TaskRef};
use crate::executor::run::{Board, RunShared};
use crate::sync::Ordering;

/// A task of a run, and one of an earlier run that it must wait for.
pub(in crate::executor) struct Behind {
    pub(in crate::executor) task: u32,
    pub(in crate::executor) run: Arc<RunShared>,
    pub(in crate::executor) earlier: u32,
}

/// Those who wait for one task.
pub(super) struct Waiting {
    pub(super) run: Arc<RunShared>,
    pub(super) tasks: Vec<TaskRef>,
}

/// Tasks of runs that have started, by the earlier ones that they wait for.
#[derive(Default)]
pub(super) struct Flows {
    waiting: HashMap<(RunId, u32), Waiting>,
    /// The flows that these belong to.
    boards: Vec<Arc<Board>>,
}

impl Flows {
    /// Returns `true` if no task waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, Behind { run, earlier, .. }: Behind, task: TaskRef) {
        if let Some(flow) = &run.flow
            && !flow.is_read.swap(true, Ordering::Relaxed)
        {
            self.boards.push(Arc::clone(flow));
        }
        let none = || Waiting { run: Arc::clone(&run), tasks: Vec::new() };
        self.waiting.entry((run.number, earlier)).or_insert_with(none).tasks.push(task);
    }

    /// Takes those whose wait is over, with what they waited for.
    pub(super) fn take_over(&mut self) -> Vec<(u32, Waiting)> {
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
