//! How far the tasks of a run are, and what follows for others from the end of one.
//!
//! Counters and steps only, without threads, queues and workers: they belong to whoever holds the
//! scheduler's state. Public for the models in `testing/et-loom` and for people who read it; the
//! interface is not stable.

use super::TaskState;

/// The tasks of a run: their edges, and where the state of each is kept.
pub trait Tasks {
    /// Returns the tasks that wait for `task`.
    fn successors(&self, task: u32) -> &[u32];

    /// Returns where a task is.
    fn state(&self, task: u32) -> TaskState;

    /// Says where a task is. Called with later states only, and never after a final one.
    fn set_state(&self, task: u32, state: TaskState);

    /// Says how many tasks are final.
    fn set_ended(&self, ended: usize);
}

/// Which tasks wait for how many others, and how many are not final.
#[derive(Debug)]
pub struct Progress {
    /// Tasks each task still waits for.
    pending: Vec<u32>,
    /// Tasks that are not final.
    remaining: usize,
    /// Tasks that workers or the device have.
    outstanding: usize,
    /// The device has the run as a whole, and counts for itself.
    is_whole: bool,
    /// Kept for its memory.
    open: Vec<u32>,
}

impl Progress {
    /// Starts with the number of edges to each task.
    pub fn new(fan_in: impl Iterator<Item = u32>) -> Self {
        let pending: Vec<u32> = fan_in.collect();
        let remaining = pending.len();
        Self { pending, remaining, outstanding: 0, is_whole: false, open: Vec::new() }
    }

    /// Returns `true` if the device has the run as a whole.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns `true` if all tasks are final and no worker has one any more.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.remaining == 0 && self.outstanding == 0
    }

    /// Lets a task wait for one more, of another run. To be called before the
    /// [`start`](Self::start).
    pub fn hold(&mut self, task: u32) {
        self.pending[task as usize] += 1;
    }

    /// Makes tasks ready that wait for none.
    pub fn start(&self, tasks: &impl Tasks, roots: &[u32], mut release: impl FnMut(u32)) {
        for &root in roots {
            if self.pending[root as usize] == 0 {
                tasks.set_state(root, TaskState::Ready);
                release(root);
            }
        }
    }

    /// Leaves the order of the tasks to the device.
    pub fn take_whole(&mut self, tasks: &impl Tasks) {
        self.is_whole = true;
        // There are fewer than 2³² tasks.
        for task in (0u32..).take(self.pending.len()) {
            if !tasks.state(task).is_final() {
                tasks.set_state(task, TaskState::Delegated);
            }
        }
    }

    /// A worker has got a ready task, to run it at once or behind another one.
    #[inline]
    pub fn hand_over(&mut self, tasks: &impl Tasks, task: u32, is_staged: bool) {
        self.outstanding += 1;
        tasks.set_state(task, if is_staged { TaskState::Staged } else { TaskState::Running });
    }

    /// A worker has got a part of a ready task, or of one of which others have got parts.
    pub fn hand_over_part(&mut self, tasks: &impl Tasks, task: u32, is_staged: bool) {
        self.outstanding += 1;
        let state = if is_staged { TaskState::Staged } else { TaskState::Running };
        if tasks.state(task) < state {
            tasks.set_state(task, state);
        }
    }

    /// A worker has given a task back, run or not; what became of it is said next.
    #[inline]
    pub fn take_back(&mut self) {
        self.outstanding -= 1;
    }

    /// A task has run: calls `release` with those that waited for it last.
    #[inline]
    pub fn succeed(&mut self, tasks: &impl Tasks, task: u32, mut release: impl FnMut(u32)) {
        self.release(tasks, task, &mut release);
        self.end(tasks, task, TaskState::Complete);
    }

    /// The condition of a task is false: it ends without having run. Otherwise as
    /// [`succeed`](Self::succeed).
    pub fn skip(&mut self, tasks: &impl Tasks, task: u32, mut release: impl FnMut(u32)) {
        self.release(tasks, task, &mut release);
        self.end(tasks, task, TaskState::Skipped);
    }

    #[inline]
    fn release(&mut self, tasks: &impl Tasks, task: u32, release: &mut impl FnMut(u32)) {
        if self.is_whole {
            return;
        }
        for &next in tasks.successors(task) {
            self.let_go(tasks, next, &mut *release);
        }
    }

    /// One of those that a task waits for is there: calls `release` if it was the last.
    #[inline]
    pub fn let_go(&mut self, tasks: &impl Tasks, task: u32, mut release: impl FnMut(u32)) {
        let pending = &mut self.pending[task as usize];
        *pending -= 1;
        // A task that is final already was cancelled, or one before it failed.
        if *pending == 0 && tasks.state(task) == TaskState::Waiting {
            tasks.set_state(task, TaskState::Ready);
            release(task);
        }
    }

    /// A task has failed, and calls `poisoned` with each that depends on it and is not final.
    pub fn fail(&mut self, tasks: &impl Tasks, task: u32, poisoned: impl FnMut(u32)) {
        self.end(tasks, task, TaskState::Failed);
        self.poison(tasks, task, poisoned);
    }

    /// The device has not run a task of a run that it had as a whole.
    pub fn leave_out(&mut self, tasks: &impl Tasks, task: u32) {
        self.end(tasks, task, TaskState::Cancelled);
    }

    /// Cancels a task that no worker has; `false` if it is too late, or there is no such task.
    /// Otherwise as [`fail`](Self::fail).
    pub fn cancel_task(
        &mut self,
        tasks: &impl Tasks,
        task: u32,
        poisoned: impl FnMut(u32),
    ) -> bool {
        let exists = (task as usize) < self.pending.len();
        if !exists || self.is_whole || !is_open(tasks.state(task)) {
            return false;
        }
        self.end(tasks, task, TaskState::Cancelled);
        self.poison(tasks, task, poisoned);
        true
    }

    /// Cancels all tasks that no worker has.
    pub fn cut(&mut self, tasks: &impl Tasks) {
        if self.is_whole {
            return;
        }
        for task in (0u32..).take(self.pending.len()) {
            if is_open(tasks.state(task)) {
                tasks.set_state(task, TaskState::Cancelled);
                self.remaining -= 1;
            }
        }
        tasks.set_ended(self.pending.len() - self.remaining);
    }

    /// Fails everything that depends on a task that will not complete.
    fn poison(&mut self, tasks: &impl Tasks, root: u32, mut poisoned: impl FnMut(u32)) {
        self.open.push(root);
        while let Some(task) = self.open.pop() {
            for &next in tasks.successors(task) {
                // A task behind an incomplete one has not started, so it is waiting or final.
                if !tasks.state(next).is_final() {
                    tasks.set_state(next, TaskState::DependencyFailed);
                    self.remaining -= 1;
                    self.open.push(next);
                    poisoned(next);
                }
            }
        }
        tasks.set_ended(self.pending.len() - self.remaining);
    }

    #[inline]
    fn end(&mut self, tasks: &impl Tasks, task: u32, state: TaskState) {
        tasks.set_state(task, state);
        self.remaining -= 1;
        tasks.set_ended(self.pending.len() - self.remaining);
    }
}

/// Returns `true` if no worker has got the task.
const fn is_open(state: TaskState) -> bool {
    matches!(state, TaskState::Waiting | TaskState::Ready)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Graph {
        successors: Vec<Vec<u32>>,
        states: Vec<Cell<TaskState>>,
        ended: Cell<usize>,
    }

    impl Tasks for Graph {
        fn successors(&self, task: u32) -> &[u32] {
            &self.successors[task as usize]
        }
        fn state(&self, task: u32) -> TaskState {
            self.states[task as usize].get()
        }
        fn set_state(&self, task: u32, state: TaskState) {
            let before = self.states[task as usize].replace(state);
            assert!(state > before && !before.is_final(), "{task}: {before:?} to {state:?}");
        }
        fn set_ended(&self, ended: usize) {
            assert!(ended >= self.ended.replace(ended));
        }
    }

    /// Two ways from 0 to 3, and 4 behind it.
    fn diamond() -> (Graph, Progress) {
        let successors = vec![vec![1, 2], vec![3], vec![3], vec![4], vec![]];
        let states = vec![Cell::new(TaskState::Waiting); successors.len()];
        let mut progress = Progress::new([0, 1, 1, 2, 1].into_iter());
        let graph = Graph { successors, states, ended: Cell::new(0) };
        progress.start(&graph, &[0], |_| ());
        run(&mut progress, &graph, 0);
        (graph, progress)
    }

    fn hand_over(progress: &mut Progress, graph: &Graph, task: u32) {
        progress.hand_over(graph, task, false);
        assert_eq!(graph.state(task), TaskState::Running);
    }

    fn succeed(progress: &mut Progress, graph: &Graph, task: u32) -> Vec<u32> {
        let mut released = Vec::new();
        progress.take_back();
        progress.succeed(graph, task, |task| released.push(task));
        released
    }

    fn run(progress: &mut Progress, graph: &Graph, task: u32) -> Vec<u32> {
        hand_over(progress, graph, task);
        succeed(progress, graph, task)
    }

    fn final_states(graph: &Graph, progress: &Progress) -> Vec<TaskState> {
        assert!(progress.is_over());
        assert_eq!(graph.ended.get(), graph.states.len());
        graph.states.iter().map(Cell::get).collect()
    }

    use TaskState::{Cancelled, Complete, DependencyFailed, Failed, Skipped};

    #[test]
    fn the_last_of_those_before_it_releases_a_task() {
        let (graph, mut progress) = diamond();
        assert_eq!(run(&mut progress, &graph, 2), [0_u32; 0]);
        assert_eq!(run(&mut progress, &graph, 1), [3]);
        assert_eq!(run(&mut progress, &graph, 3), [4]);
        assert!(!progress.is_over());
        assert_eq!(run(&mut progress, &graph, 4), [0_u32; 0]);
        assert_eq!(final_states(&graph, &progress), [Complete; 5]);
    }

    #[test]
    fn two_failures_poison_what_is_behind_both_once() {
        let (graph, mut progress) = diamond();
        let mut poisoned = Vec::new();
        for task in [1, 2] {
            hand_over(&mut progress, &graph, task);
        }
        for task in [1, 2] {
            progress.take_back();
            progress.fail(&graph, task, |of| poisoned.push((of, task)));
        }
        assert_eq!(poisoned, [(3, 1), (4, 1)]);
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Failed, Failed, DependencyFailed, DependencyFailed]);
    }

    #[test]
    fn a_skipped_task_releases_as_one_that_has_run() {
        let (graph, mut progress) = diamond();
        let mut released = Vec::new();
        progress.skip(&graph, 1, |task| released.push(task));
        assert_eq!(released, [0_u32; 0], "the other way is open");
        progress.skip(&graph, 2, |task| released.push(task));
        assert_eq!(released, [3]);
        assert_eq!(run(&mut progress, &graph, 3), [4]);
        assert!(!progress.is_over());
        progress.skip(&graph, 4, |_| unreachable!());
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Skipped, Skipped, Complete, Skipped]);
    }

    #[test]
    fn what_is_behind_a_skipped_task_is_poisoned_by_others() {
        let (graph, mut progress) = diamond();
        progress.skip(&graph, 1, |_| unreachable!());
        hand_over(&mut progress, &graph, 2);
        progress.take_back();
        progress.fail(&graph, 2, |_| ());
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Skipped, Failed, DependencyFailed, DependencyFailed]);
    }

    #[test]
    fn a_cancelled_task_is_not_released_by_what_was_before_it() {
        let (graph, mut progress) = diamond();
        assert!(progress.cancel_task(&graph, 3, |task| assert_eq!(task, 4)));
        assert!(!progress.cancel_task(&graph, 3, |_| unreachable!()), "final");
        assert!(!progress.cancel_task(&graph, 9, |_| unreachable!()), "not there");
        for task in [1, 2] {
            assert_eq!(run(&mut progress, &graph, task), [0_u32; 0]);
        }
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Complete, Complete, Cancelled, DependencyFailed]);
    }

    #[test]
    fn a_cut_leaves_what_workers_have() {
        let (graph, mut progress) = diamond();
        hand_over(&mut progress, &graph, 1);
        progress.hand_over(&graph, 2, true);
        assert!(!progress.cancel_task(&graph, 1, |_| unreachable!()), "runs");
        progress.cut(&graph);
        assert_eq!(succeed(&mut progress, &graph, 1), [0_u32; 0]);
        assert!(!progress.is_over(), "a worker has one");
        assert_eq!(succeed(&mut progress, &graph, 2), [0_u32; 0]);
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Complete, Complete, Cancelled, Cancelled]);
    }

    #[test]
    fn of_a_run_taken_as_a_whole_only_ends_count() {
        let (graph, _) = diamond();
        let graph =
            Graph { states: vec![Cell::new(TaskState::Waiting); 5], ended: Cell::new(0), ..graph };
        let mut progress = Progress::new([0, 1, 1, 2, 1].into_iter());
        progress.take_whole(&graph);
        assert!(progress.is_whole() && !progress.is_over());
        assert!(!progress.cancel_task(&graph, 4, |_| unreachable!()));
        progress.cut(&graph);
        progress.succeed(&graph, 0, |_| unreachable!());
        progress.leave_out(&graph, 2);
        progress.fail(&graph, 1, |_| ());
        let states = final_states(&graph, &progress);
        assert_eq!(states, [Complete, Failed, Cancelled, DependencyFailed, DependencyFailed]);
    }
}
