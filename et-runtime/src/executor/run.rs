//! What the scheduler, the workers and the handle of a run share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::LaunchStatus;

use super::ids::{self, RunId, WorkerId};
use super::progress::Tasks;
use super::stall::{Stall, StallCause};
use super::{Outcome, TaskFailure, TaskState};
use crate::clock::Deadline;
use crate::error::panic_message;
use crate::graph::{Graph, TaskContext, TaskId, Work};
use crate::kernel::{HartContext, LaunchFailure};
use crate::link::OneShot;
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Mutex, Ordering, lock};

/// Options of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RunOptions {
    pub(super) deadline: Option<Duration>,
    pub(super) trace: bool,
}

impl RunOptions {
    /// No deadline, nothing recorded.
    pub const fn new() -> Self {
        Self { deadline: None, trace: false }
    }

    /// Ends the run this long after the launch: what runs then has failed, what does not is
    /// cancelled.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Records when each task runs, and where.
    pub const fn traced(mut self) -> Self {
        self.trace = true;
        self
    }
}

/// Where the tasks of a graph go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Place of its kernels and of its copies, in the order of the scheduler's places. Host
    /// functions go to the first.
    pub(super) kernels: u8,
    pub(super) copies: u8,
    name: &'static str,
    /// The place of the kernels looks at conditions and parts by itself.
    is_whole: bool,
    /// Kernels run in the parts of their tasks, not in those of a launch.
    has_parts: bool,
}

impl Route {
    /// For graphs of host functions.
    pub(super) const HOST: Self = Self::new(0, 0, "cpu");

    pub(super) const fn new(kernels: u8, copies: u8, name: &'static str) -> Self {
        Self { kernels, copies, name, is_whole: false, has_parts: true }
    }

    /// To a place that takes a graph as a whole.
    pub(super) const fn whole(place: u8, name: &'static str) -> Self {
        Self { is_whole: true, ..Self::new(place, place, name) }
    }

    /// To a place where a kernel has as many parts as the launch that it is has harts.
    pub(super) const fn launches(self) -> Self {
        Self { has_parts: false, ..self }
    }

    /// Returns `true` if the place takes the graph as a whole.
    pub(super) const fn is_whole(self) -> bool {
        self.is_whole
    }

    /// Whether the scheduler looks at the conditions of tasks.
    #[inline]
    pub(super) fn looks_at_conditions(self) -> bool {
        !self.is_whole
    }

    /// Returns `true` if a task is offered, and comes back, in parts.
    pub(super) fn splits(self, graph: &Graph, task: u32) -> bool {
        let is_split = self.has_parts || matches!(graph.view().work(task), Work::Host(_));
        is_split && graph.view().parts(task) > 1
    }

    /// Returns `true` if the scheduler offers parts one by one.
    pub(super) const fn offers_parts(self) -> bool {
        !self.is_whole
    }

    /// The place for a task.
    #[inline]
    pub(super) fn place(self, graph: &Graph, task: u32) -> usize {
        match graph.view().work(task) {
            Work::Host(_) => 0,
            Work::Kernel(_) => self.kernels.into(),
            Work::CopyIn { .. } | Work::CopyOut { .. } => self.copies.into(),
        }
    }

    /// What the place of a graph is called.
    pub(super) fn name(self, graph: &Graph) -> &'static str {
        if graph.view().has_kernels() { self.name } else { "cpu" }
    }
}

/// The runs that have started, by slot, for workers.
#[derive(Default)]
pub(super) struct Runs(Mutex<Vec<Option<Arc<RunShared>>>>);

impl Runs {
    /// The run in a slot, if it is still this one.
    pub(super) fn get(&self, slot: u32, number: RunId) -> Option<Arc<RunShared>> {
        lock(&self.0).get(slot as usize)?.clone().filter(|run| run.number == number)
    }

    pub(super) fn set(&self, slot: u32, run: Option<Arc<RunShared>>) {
        let slot = slot as usize;
        let mut runs = lock(&self.0);
        if runs.len() <= slot {
            runs.resize(slot + 1, None);
        }
        runs[slot] = run;
    }
}

/// Tasks of the runs of a flow that have become final, as long as tasks of later runs wait for
/// some.
#[derive(Default)]
pub(super) struct Board {
    /// Relaxed: only who schedules looks at it, and writes.
    pub(super) is_read: AtomicBool,
    ended: Mutex<Vec<(RunId, u32)>>,
}

impl Board {
    fn post(&self, run: RunId, task: u32) {
        if self.is_read.load(Ordering::Relaxed) {
            lock(&self.ended).push((run, task));
        }
    }

    pub(super) fn take(&self) -> Vec<(RunId, u32)> {
        std::mem::take(&mut lock(&self.ended))
    }
}

/// What the scheduler, the workers and the handle of a run share.
pub(super) struct RunShared {
    pub(super) number: RunId,
    /// If it is one of a flow.
    pub(super) flow: Option<Arc<Board>>,
    pub(super) route: Route,
    /// The name of the device, if the executor has one.
    pub(super) device: Option<Arc<str>>,
    pub(super) graph: Graph,
    pub(super) options: RunOptions,
    pub(super) launched: Duration,
    pub(super) deadline: Option<Deadline>,
    /// A [`TaskState`] for each task, then for each part, written by the scheduler. Relaxed: who
    /// needs what a task wrote waits for the result.
    pub(super) states: Box<[AtomicU8]>,
    pub(super) finished: AtomicUsize,
    pub(super) is_cancelled: AtomicBool,
    /// What workers say of units that failed, before they say that these are complete.
    pub(super) reports: Mutex<Vec<(u32, TaskFailure)>>,
    pub(super) result: OneShot<Arc<Outcome>>,
}

impl RunShared {
    pub(super) fn new(
        number: RunId,
        (route, device): (Route, Option<Arc<str>>),
        graph: Graph,
        (options, flow): (RunOptions, Option<Arc<Board>>),
        launched: Duration,
    ) -> Arc<Self> {
        let units = graph.view().units_len();
        let states = (0..units).map(|_| AtomicU8::new(TaskState::Waiting as u8)).collect();
        Arc::new(Self {
            number,
            flow,
            route,
            device,
            graph,
            options,
            launched,
            deadline: options.deadline.map(|after| Deadline::from(launched, after)),
            states,
            finished: AtomicUsize::new(0),
            is_cancelled: AtomicBool::new(false),
            reports: Mutex::default(),
            result: OneShot::new(),
        })
    }

    /// Says why it is not done; `is_behind` if it stands behind another one.
    pub(super) fn stall(&self, is_behind: bool) -> Stall {
        let read = |state: &AtomicU8| TaskState::from_u8(state.load(Ordering::Relaxed));
        let states: Vec<_> = self.states[..self.graph.len()].iter().map(read).collect();
        let count = |wanted| states.iter().filter(|state| **state == wanted).count();
        let causes = [
            (TaskState::Running, StallCause::Running),
            (TaskState::Delegated, StallCause::Delegated),
            (TaskState::Staged, StallCause::NotBegun),
            (TaskState::Ready, StallCause::NoWorker),
        ];
        let first = |wanted| {
            let at = states.iter().position(|state| *state == wanted)?;
            Some(TaskId::from_index(ids::count(at)))
        };
        let mut found = causes.into_iter().filter_map(|(state, why)| Some((first(state)?, why)));
        let (task, cause) = match found.next() {
            _ if is_behind => (None, StallCause::OtherRun),
            Some((task, cause)) => (Some(task), cause),
            // All that are left wait for tasks of earlier graphs, themselves or through others.
            None if self.flow.is_some() => (first(TaskState::Waiting), StallCause::OtherRun),
            None => (None, StallCause::Scheduler),
        };
        Stall {
            cause,
            running: count(TaskState::Running),
            staged: count(TaskState::Staged),
            delegated: count(TaskState::Delegated),
            ready: count(TaskState::Ready),
            waiting: count(TaskState::Waiting),
            task,
        }
    }

    /// Returns `true` if its tasks follow those of another run of its flow one by one. A place that
    /// takes graphs as a whole cannot wait for single tasks.
    pub(super) fn follows_by_task(&self, other: &Self) -> bool {
        let (Some(mine), Some(its)) = (&self.flow, &other.flow) else { return false };
        Arc::ptr_eq(mine, its) && !self.route.is_whole()
    }

    /// Where a task or a part is.
    pub(super) fn state(&self, task: u32) -> TaskState {
        TaskState::from_u8(self.states[task as usize].load(Ordering::Relaxed))
    }

    pub(super) fn set_state(&self, task: u32, state: TaskState) {
        self.states[task as usize].store(state as u8, Ordering::Relaxed);
    }

    /// What a unit is called in messages.
    pub(super) fn describe(&self, unit: u32) -> String {
        let of = self.graph.view().unit(unit);
        let task = TaskId::from_index(of.task);
        let name = match self.graph.name(task) {
            Some(name) => format!("{task} \"{name}\""),
            None => task.to_string(),
        };
        match of.is_part() {
            true => format!("part {} of {name}", of.part),
            false => name,
        }
    }

    /// The failure of a unit that ran on a hart which trapped.
    pub(super) fn trapped(
        &self,
        unit: u32,
        worker: WorkerId,
        context: &HartContext,
    ) -> TaskFailure {
        let worker = worker.0;
        let view = self.graph.view();
        match view.work(view.unit(unit).task) {
            Work::Kernel(kernel) => {
                let mut failure =
                    LaunchFailure::new(&kernel.inner.program, LaunchStatus::Exception, None);
                failure.contexts = vec![context.clone()];
                TaskFailure::Trapped { worker, failure: Arc::new(failure) }
            }
            _ => TaskFailure::WorkerLost { worker, why: context.to_string() },
        }
    }

    /// Runs a host function, as a worker; returns the outcome word of the handshake.
    pub(super) fn execute(&self, unit: u32) -> u64 {
        let view = self.graph.view();
        let of = view.unit(unit);
        let Work::Host(function) = view.work(of.task) else {
            let failure = TaskFailure::Panicked("a worker got a task that is not its own".into());
            lock(&self.reports).push((unit, failure));
            return 1;
        };
        let is_cancelled = || self.is_cancelled.load(Ordering::Relaxed);
        let context = TaskContext::new(of, view.args(of.task), &is_cancelled);
        // The function may leave its own data half done; that is for those who use it after a
        // failure to know.
        let failure = match catch_unwind(AssertUnwindSafe(|| function(&context))) {
            Ok(Ok(())) => return 0,
            Ok(Err(error)) => TaskFailure::Function(error),
            Err(payload) => TaskFailure::Panicked(panic_message(&*payload)),
        };
        lock(&self.reports).push((unit, failure));
        1
    }
}

impl Tasks for RunShared {
    #[inline]
    fn successors(&self, task: u32) -> &[u32] {
        self.graph.view().successors(task)
    }

    #[inline]
    fn state(&self, task: u32) -> TaskState {
        self.state(task)
    }

    #[inline]
    fn set_state(&self, task: u32, state: TaskState) {
        self.set_state(task, state);
        if let (Some(flow), true) = (&self.flow, state.is_final()) {
            flow.post(self.number, task);
        }
    }

    #[inline]
    fn set_ended(&self, ended: usize) {
        self.finished.store(ended, Ordering::Relaxed);
    }
}
