//! A run that has started: how far it is, and what has gone wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::joins::{Joined, Joins};
use super::records;
use crate::executor::ids::{WorkerId, count};
use crate::executor::outcome::Cut;
use crate::executor::place::{Ended, Ending};
use crate::executor::progress::Progress;
use crate::executor::run::RunShared;
use crate::executor::trace::Recorder;
use crate::executor::{Outcome, TaskFailure, TaskSpan, TaskState};
use crate::graph::{CoreSet, TaskId};
use crate::sync::{Ordering, lock};

pub(super) struct Exec {
    pub(super) run: Arc<RunShared>,
    /// Its place among all launches.
    pub(super) order: u64,
    /// Its place among the runs of its flow, or those of none.
    pub(super) in_group: usize,
    pub(super) progress: Progress,
    cut: Option<Cut>,
    /// Some tasks, perhaps ready ones.
    pub(super) was_cancelled: bool,
    failures: Vec<(TaskId, TaskFailure)>,
    /// Why tasks were not run: the failed or cancelled one before them.
    roots: HashMap<u32, u32>,
    /// Units from this number on are parts of tasks.
    tasks: u32,
    joins: Joins,
    /// If the launch asked for it.
    pub(super) recorder: Option<Recorder>,
}

impl Exec {
    pub(super) fn new(run: Arc<RunShared>, order: u64) -> Self {
        let view = run.graph.view();
        Self {
            progress: Progress::new((0..count(view.len())).map(|task| view.fan_in(task))),
            cut: None,
            was_cancelled: false,
            failures: Vec::new(),
            roots: HashMap::new(),
            tasks: count(view.len()),
            joins: Joins::new(view.all_parts().map(|(_, parts)| parts)),
            recorder: run.options.trace.then(|| Recorder::new(view.units_len(), run.launched)),
            run,
            order,
            in_group: 0,
        }
    }

    /// Names the tasks that wait for nothing.
    pub(super) fn start(&mut self, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        let roots = run.graph.view().roots();
        progress.start(&**run, roots, |task| is_ready(run, task));
    }

    /// Something that a task waited for in an earlier run is there.
    pub(super) fn let_go(&mut self, task: u32, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        progress.let_go(&**run, task, |task| is_ready(run, task));
    }

    /// A task that one of these waits for in an earlier run did not complete.
    pub(super) fn fail_behind(&mut self, task: u32, earlier: &RunShared, its: u32) {
        if self.run.state(task).is_final() {
            return;
        }
        let of = TaskId::from_index(its);
        let name = earlier.graph.name(of).map(|name| format!(" \"{name}\"").into());
        let (name, state) = (name.unwrap_or_default(), earlier.state(its));
        self.fail(task, TaskFailure::Earlier { task: of, name, state });
    }

    /// Returns `true` if a unit is less than a task.
    #[inline]
    pub(super) fn is_part(&self, unit: u32) -> bool {
        unit >= self.tasks
    }

    /// A worker has got a unit, to run it at once or behind another one.
    #[inline]
    pub(super) fn hand_over(&mut self, unit: u32, worker: WorkerId, is_staged: bool) {
        if self.is_part(unit) {
            let task = self.run.graph.view().unit(unit).task;
            self.progress.hand_over_part(&*self.run, task, is_staged);
            self.run
                .set_state(unit, if is_staged { TaskState::Staged } else { TaskState::Running });
        } else {
            self.progress.hand_over(&*self.run, unit, is_staged);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.start(unit, worker.0);
        }
    }

    /// A unit that a worker has runs now.
    pub(super) fn begin(&self, unit: u32) {
        let run = |of: u32| {
            if self.run.state(of) < TaskState::Running {
                self.run.set_state(of, TaskState::Running);
            }
        };
        run(unit);
        if self.is_part(unit) {
            run(self.run.graph.view().unit(unit).task);
        }
    }

    /// A unit runs on another worker than the one that had it.
    pub(super) fn move_to(&mut self, unit: u32, worker: WorkerId) {
        self.begin(unit);
        if let Some(recorder) = &mut self.recorder {
            recorder.start(unit, worker.0);
        }
    }

    /// A unit has succeeded, of which there is nothing else to say; names those that it releases.
    #[inline]
    pub(super) fn complete(&mut self, unit: u32, is_ready: impl FnMut(&RunShared, u32)) {
        if let Some(recorder) = &mut self.recorder {
            recorder.end(unit);
        }
        self.progress.take_back();
        if self.is_part(unit) {
            self.end_part(unit, Ended::Complete, is_ready);
        } else {
            self.succeed(unit, is_ready);
        }
    }

    #[inline]
    fn succeed(&mut self, task: u32, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        progress.succeed(&**run, task, |next| is_ready(run, next));
    }

    /// A task has ended one way or another; names those that it releases.
    pub(super) fn end(&mut self, ending: Ending, is_ready: impl FnMut(&RunShared, u32)) {
        let Ending { task, how, span } = ending;
        let of = self.run.graph.view().unit(task.unit);
        let (unit, index) = (task.unit, of.task);
        if self.progress.is_whole() {
            if self.run.state(index).is_final() {
                // It depends on one that failed.
                return;
            }
        } else {
            self.progress.take_back();
            if let Some(recorder) = &mut self.recorder {
                recorder.end(unit);
            }
        }
        if let (Some(recorder), Some(span)) = (&mut self.recorder, span) {
            let (task, part, worker) = (TaskId::from_index(index), of.part, span.worker.0);
            recorder.span(TaskSpan { task, part, worker, start: span.start, end: span.end });
        }
        let how = match how {
            Ended::Reported => Ended::failed(self.report(unit)),
            how => how,
        };
        if self.is_part(unit) {
            self.end_part(unit, how, is_ready);
            return;
        }
        match how {
            Ended::Complete => self.succeed(index, is_ready),
            Ended::Failed(failure) => self.fail(index, *failure),
            Ended::Reported | Ended::NotRun => self.progress.leave_out(&*self.run, index),
            Ended::Skipped => self.skip(index, is_ready),
        }
    }

    /// Returns the workers that a unit may run on; `None` for all.
    pub(super) fn core_set(&self, unit: u32) -> Option<&CoreSet> {
        let view = self.run.graph.view();
        view.core_set(view.unit(unit).task)
    }

    /// A part has ended; if it was the last, so has its task, which may release others.
    fn end_part(&mut self, unit: u32, how: Ended, is_ready: impl FnMut(&RunShared, u32)) {
        let view = self.run.graph.view();
        let of = view.unit(unit);
        let Some(at) = view.parts_rank(of.task) else { return };
        self.run.set_state(unit, TaskState::Executed);
        let is_first_failure = matches!(how, Ended::Failed(_)) && !self.joins.has_failed(at);
        let mut joined = self.joins.end(at, of, how);
        if is_first_failure {
            // Those that no worker has got need not begin.
            for open in view.units(of.task).filter(|&open| self.run.state(open) == TaskState::Ready)
            {
                self.was_cancelled = true;
                self.run.set_state(open, TaskState::Cancelled);
                joined = self.joins.end(at, view.unit(open), Ended::NotRun);
            }
        }
        match joined {
            None => {}
            Some(Joined::Complete) => self.succeed(of.task, is_ready),
            Some(Joined::Failed(failure)) => self.fail(of.task, failure),
            Some(Joined::NotRun) => self.progress.leave_out(&*self.run, of.task),
            Some(Joined::Skipped) => self.skip(of.task, is_ready),
        }
    }

    /// No worker gets the other parts of tasks that have begun.
    fn give_up_parts(&mut self, cut: Cut) {
        let run = Arc::clone(&self.run);
        let view = run.graph.view();
        for unit in view.all_parts().flat_map(|(task, _)| view.units(task)) {
            let is_open = run.state(unit) == TaskState::Ready;
            if is_open && !run.state(view.unit(unit).task).is_final() {
                let how = match cut {
                    Cut::Deadline(after) => {
                        Ended::failed(TaskFailure::Deadline { after, worker: None })
                    }
                    Cut::Cancelled => Ended::NotRun,
                };
                self.end_part(unit, how, |_, _| {});
            }
        }
    }

    /// Returns how many parts start together with a ready unit that is the first of them.
    #[inline]
    pub(super) fn gathers(&self, unit: u32) -> Option<u32> {
        if !self.is_part(unit) {
            return None;
        }
        let view = self.run.graph.view();
        let of = view.unit(unit);
        (of.part == 0 && view.starts_together(of.task)).then_some(of.parts)
    }

    /// Returns `true` if a ready unit is a part of a task that was cancelled before it began.
    pub(super) fn is_part_of_cancelled(&self, unit: u32) -> bool {
        self.is_part(unit) && {
            let task = self.run.graph.view().unit(unit).task;
            self.run.state(task).is_final()
        }
    }

    /// A unit cannot run where it was offered.
    pub(super) fn refuse(&mut self, unit: u32, failure: Box<TaskFailure>) {
        if self.is_part(unit) {
            self.end_part(unit, Ended::Failed(failure), |_, _| {});
        } else {
            self.fail(unit, *failure);
        }
    }

    /// The condition of a task is false; names those that it releases.
    pub(super) fn skip(&mut self, task: u32, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        progress.skip(&**run, task, |next| is_ready(run, next));
    }

    pub(super) fn fail(&mut self, task: u32, failure: TaskFailure) {
        self.failures.push((TaskId::from_index(task), failure));
        let roots = &mut self.roots;
        self.progress.fail(&*self.run, task, |next| {
            roots.insert(next, task);
        });
    }

    /// Takes what a worker has said of a unit that failed.
    fn report(&self, unit: u32) -> TaskFailure {
        let mut reports = lock(&self.run.reports);
        let report = reports.iter().position(|(other, _)| *other == unit);
        let failure = report.map(|at| reports.swap_remove(at).1);
        failure.unwrap_or_else(|| TaskFailure::Panicked("unknown".into()))
    }

    pub(super) fn cancel_task(&mut self, task: u32) {
        self.was_cancelled = true;
        let roots = &mut self.roots;
        self.progress.cancel_task(&*self.run, task, |next| {
            roots.insert(next, task);
        });
    }

    /// Cancels what has not started; `false` if that was done, and there is no news in it.
    pub(super) fn cut(&mut self, cut: Cut) -> bool {
        if self.cut.is_some() && !matches!(cut, Cut::Deadline(_)) {
            return false;
        }
        self.cut = Some(cut);
        self.was_cancelled = true;
        self.run.is_cancelled.store(true, Ordering::Relaxed);
        self.progress.cut(&*self.run);
        self.give_up_parts(cut);
        true
    }

    /// Returns `true` if it was cut because of its deadline.
    pub(super) const fn is_late(&self) -> bool {
        matches!(self.cut, Some(Cut::Deadline(_)))
    }

    pub(super) fn into_outcome(self, now: Duration) -> Outcome {
        let Self { run, cut, failures, roots, recorder, .. } = self;
        Outcome {
            graph: run.graph.clone(),
            device: run.device.clone(),
            states: (0..count(run.graph.len())).map(|task| run.state(task)).collect(),
            failures,
            roots,
            cut,
            elapsed: now.saturating_sub(run.launched),
            place: run.route.name(&run.graph),
            trace: recorder.map(|recorder| recorder.finish(&run.graph)),
            records: records::of(&run),
        }
    }
}
