//! Conditions of ready tasks, where the scheduler looks at them.

use super::exec::Exec;
use super::started::Started;
use super::{Engine, Place};
use crate::executor::TaskState;
use crate::executor::ids::TaskRef;
use crate::executor::words::{Answer, Verdict};
use crate::graph::WordPlace;

impl<F: Place> Engine<F> {
    /// Looks at the conditions of tasks that are ready. Returns `true` if anything changed.
    pub(super) fn look_at_conditions(&mut self) -> bool {
        let mut progress = self.take_answers();
        // What is skipped may release others with conditions.
        while let Some(task) = self.ready.open().pop_front() {
            match self.verdict(task) {
                Some(Verdict::Full) => {
                    self.ready.open().push_front(task);
                    break;
                }
                Some(Verdict::Known(holds)) => self.decide((task, Ok(holds))),
                Some(Verdict::Failed(failure)) => self.decide((task, Err(*failure))),
                Some(Verdict::Asked) | None => {}
            }
            progress = true;
        }
        progress
    }

    fn take_answers(&mut self) -> bool {
        let mut answers = Vec::new();
        if let Some(words) = &mut self.words {
            words.poll(&mut answers);
        }
        let progress = !answers.is_empty();
        answers.into_iter().for_each(|answer| self.decide(answer));
        progress
    }

    /// What is known of a condition; `None` if its task is not to run any more.
    fn verdict(&mut self, task: TaskRef) -> Option<Verdict> {
        let Self { started, words, .. } = self;
        let exec = ready(started, task)?;
        let (test, place) = exec.run.graph.view().condition(task.unit)?;
        Some(match (place, words) {
            (WordPlace::Host(data, at), _) => {
                Verdict::Known(data.with(|bytes| test.passes(&bytes[*at..])))
            }
            (WordPlace::Device(_), Some(words)) => words.ask(&exec.run, task),
            (WordPlace::Device(_), None) => {
                unreachable!("graphs with device memory are launched where there is a device")
            }
        })
    }

    fn decide(&mut self, (task, holds): Answer) {
        let Self { started, ready: queues, .. } = self;
        let Some(exec) = ready(started, task) else { return };
        let slot = task.slot;
        match holds {
            Ok(true) => queues.push_to_place(&exec.run, slot, task.unit),
            Ok(false) => exec.skip(task.unit, |run, next| queues.push(run, slot, next)),
            Err(failure) => exec.fail(task.unit, failure),
        }
        self.conclude_if_done(slot);
    }
}

/// The run of a task, if the task is still ready there.
fn ready(started: &mut Started, task: TaskRef) -> Option<&mut Exec> {
    let exec = started.get_run(task.slot, task.run)?;
    (exec.run.state(task.unit) == TaskState::Ready).then_some(exec)
}
