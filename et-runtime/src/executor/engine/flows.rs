//! Tasks that wait for tasks of earlier runs: when they have to, and what becomes of them.

use super::Engine;
use super::behind::{Behind, Waiting};
use crate::executor::ids::TaskRef;
use crate::executor::outcome::Cut;
use crate::executor::place::Place;

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
        !self.flows.is_empty() && self.tell_those_who_wait()
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
