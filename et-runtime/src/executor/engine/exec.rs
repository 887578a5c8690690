//! A run that has started: how far it is, and what has gone wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::records;
use crate::executor::ids::{RunId, count};
use crate::executor::outcome::Cut;
use crate::executor::place::{Ended, Ending};
use crate::executor::progress::Progress;
use crate::executor::run::RunShared;
use crate::executor::trace::Recorder;
use crate::executor::{Outcome, TaskFailure, TaskSpan};
use crate::graph::TaskId;
use crate::sync::{Ordering, lock};

pub(super) struct Exec {
    pub(super) run: Arc<RunShared>,
    pub(super) progress: Progress,
    pub(super) cut: Option<Cut>,
    /// Some tasks, perhaps ready ones.
    pub(super) was_cancelled: bool,
    failures: Vec<(TaskId, TaskFailure)>,
    /// Why tasks were not run: the failed or cancelled one before them.
    roots: HashMap<u32, u32>,
    /// If the launch asked for it.
    pub(super) recorder: Option<Recorder>,
}

impl Exec {
    pub(super) fn new(run: Arc<RunShared>) -> Self {
        let view = run.graph.view();
        Self {
            progress: Progress::new((0..count(view.len())).map(|task| view.fan_in(task))),
            cut: None,
            was_cancelled: false,
            failures: Vec::new(),
            roots: HashMap::new(),
            recorder: run.options.trace.then(|| Recorder::new(view.len(), run.launched)),
            run,
        }
    }

    pub(super) fn is(&self, number: RunId) -> bool {
        self.run.number == number
    }

    /// Names the tasks that wait for nothing.
    pub(super) fn start(&mut self, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        let roots = run.graph.view().roots();
        progress.start(&**run, roots, |task| is_ready(run, task));
    }

    /// A task has succeeded, of which there is nothing else to say; names those that it releases.
    #[inline]
    pub(super) fn complete(&mut self, task: u32, is_ready: impl FnMut(&RunShared, u32)) {
        if let Some(recorder) = &mut self.recorder {
            recorder.end(task);
        }
        self.progress.take_back();
        self.succeed(task, is_ready);
    }

    #[inline]
    fn succeed(&mut self, task: u32, mut is_ready: impl FnMut(&RunShared, u32)) {
        let Self { run, progress, .. } = self;
        progress.succeed(&**run, task, |next| is_ready(run, next));
    }

    /// A task has ended one way or another; names those that it releases.
    pub(super) fn end(&mut self, ending: Ending, is_ready: impl FnMut(&RunShared, u32)) {
        let Ending { task, how, span } = ending;
        let index = task.index;
        if self.progress.is_whole() {
            if self.run.state(index).is_final() {
                // It depends on one that failed.
                return;
            }
        } else {
            self.progress.take_back();
            if let Some(recorder) = &mut self.recorder {
                recorder.end(index);
            }
        }
        if let (Some(recorder), Some(span)) = (&mut self.recorder, span) {
            let (task, worker) = (TaskId::from_index(index), span.worker.0);
            recorder.span(TaskSpan { task, worker, start: span.start, end: span.end });
        }
        match how {
            Ended::Complete => self.succeed(index, is_ready),
            Ended::Failed(failure) => self.fail(index, *failure),
            Ended::Reported => {
                let failure = self.report(index);
                self.fail(index, failure);
            }
            Ended::NotRun => self.progress.leave_out(&*self.run, index),
            Ended::Skipped => self.skip(index, is_ready),
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

    /// Takes what a worker has said of a task that failed.
    fn report(&self, task: u32) -> TaskFailure {
        let mut reports = lock(&self.run.reports);
        let report = reports.iter().position(|(other, _)| *other == task);
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
        true
    }

    pub(super) fn into_outcome(self, now: Duration) -> Outcome {
        let Self { run, cut, failures, roots, recorder, .. } = self;
        Outcome {
            graph: run.graph.clone(),
            states: (0..count(run.states.len())).map(|task| run.state(task)).collect(),
            failures,
            roots,
            cut,
            elapsed: now.saturating_sub(run.launched),
            place: run.route.name(&run.graph),
            trace: recorder.map(Recorder::finish),
            records: records::of(&run),
        }
    }
}
