//! Graphs that are built while earlier ones run.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::driver::Pool;
use super::engine::{Behind, Launch, Request};
use super::ids::RunId;
use super::run::{Board, RunShared};
use super::{Outcome, Run, RunError, RunOptions};
use crate::clock::Deadline;
use crate::graph::{Graph, GraphBuilder, History, Region, Task};
use crate::sync::{Mutex, lock};

/// Fewest tasks of which those that are over are looked for.
const FORGET_FROM: usize = 1024;

/// A graph without an end: graphs that are launched one after the other, and whose tasks follow one
/// another as if they were tasks of one graph.
///
/// A task begins as soon as those before it have ended that it has to follow, in whatever graph of
/// the flow they are; other launches wait for the whole of an earlier one whose regions conflict
/// with theirs. So a program can go on describing work while the first part of it runs, and decide
/// what comes next by [what has been computed](Self::wait_for).
///
/// A task that depends on one of an earlier graph that did not complete fails with
/// [`TaskFailure::Earlier`](super::TaskFailure::Earlier), until [`finish`](Self::finish) has said
/// what went wrong. At [`Place::Resident`](super::Place::Resident), which takes graphs as a whole,
/// each waits for the earlier ones that it conflicts with, and is cancelled if it depends on a
/// failed task. Launches outside of the flow follow its graphs, and these follow them, as always:
/// as a whole, where regions conflict.
///
/// What it keeps for itself is proportional to the tasks that have not ended or have failed;
/// buffers that its graphs used may live until the next launch, or as long as the flow. It is made
/// by [`CpuPool::flow`](super::CpuPool::flow) and
/// [`DeviceExecutor::flow`](super::DeviceExecutor::flow).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
/// use et_runtime::executor::CpuPool;
/// use et_runtime::graph::{GraphBuilder, Resource, Task};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (value, place) = (Arc::new(AtomicU32::new(1000)), Resource::new(1));
/// let pool = CpuPool::new(2)?;
/// let flow = pool.flow();
/// // How many steps it takes is not known before.
/// let mut steps = 0;
/// while value.load(Ordering::Relaxed) > 1 {
///     let mut builder = GraphBuilder::new();
///     let its = Arc::clone(&value);
///     let halve = builder.function(move |_| {
///         its.store(its.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
///         Ok(())
///     });
///     builder.add(Task::new(halve).reads(&place).writes(&place))?;
///     flow.launch(&builder.build()?)?;
///     flow.wait_for(&place, Duration::from_secs(5))?;
///     steps += 1;
/// }
/// assert_eq!(steps, 9);
/// flow.finish(Duration::from_secs(5))?;
/// # Ok(())
/// # }
/// ```
pub struct Flow {
    pool: Arc<Pool>,
    board: Arc<Board>,
    state: Mutex<State>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("runs", &lock(&self.state).runs.len()).finish_non_exhaustive()
    }
}

/// What is known of the graphs of a flow.
#[derive(Default)]
pub(super) struct State {
    history: History,
    /// In order, each with the number of its first task in the history.
    runs: Vec<(u32, Arc<RunShared>)>,
    /// With as many tasks in the history it is worth to look which are over.
    forget_at: usize,
}

impl Flow {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool), board: Arc::default(), state: Mutex::default() }
    }

    /// Launches a graph behind those before it, task by task.
    ///
    /// # Errors
    /// As `launch` of the executor; [`RunError::Closed`] if that has gone;
    /// [`RunError::Unsupported`] if there are some 10⁹ tasks in the flow that have not ended.
    pub fn launch(&self, graph: &Graph) -> Result<Run, RunError> {
        self.launch_with(graph, RunOptions::new())
    }

    /// Launches a graph with options.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_with(&self, graph: &Graph, options: RunOptions) -> Result<Run, RunError> {
        let run = self.pool.prepare(graph, options, Some(Arc::clone(&self.board)))?;
        let forgotten = {
            // The scheduler gets them in the order of the history.
            let mut state = lock(&self.state);
            let (behind, forgotten) = state.append(&run)?;
            self.pool.enqueue(Request::Launch(Launch::new(&run, behind)));
            forgotten
        };
        // What is dropped with them, and callbacks, may use the flow.
        drop(forgotten);
        self.pool.notify();
        Ok(Run::new(run, Arc::clone(&self.pool)))
    }

    /// Launches a graph that does nothing but to read a region: it ends when what the flow writes
    /// there by now is written, and fails if that did not complete.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn settled(&self, region: impl Into<Region>) -> Result<Run, RunError> {
        let mut builder = GraphBuilder::new();
        let nothing = builder.function(|_| Ok(()));
        let task = Task::new(nothing).name("settled").reads(region);
        let graph = builder
            .add(task)
            .and_then(|_| builder.build())
            .map_err(|error| RunError::Unsupported { place: "flow", why: error.to_string() })?;
        self.launch(&graph)
    }

    /// Waits until what the flow writes to a region by now is [there](Self::settled).
    ///
    /// # Errors
    /// [`RunError::TaskFailed`] if a task that writes to it did not complete;
    /// [`RunError::Cancelled`] if the executor goes meanwhile; [`RunError::Timeout`]; those of
    /// [`launch`](Self::launch).
    pub fn wait_for(&self, region: impl Into<Region>, timeout: Duration) -> Result<(), RunError> {
        self.settled(region)?.finish(timeout).map(drop)
    }

    /// Waits until all that was launched by now has ended, and lets go of it: later tasks depend on
    /// none of it, whatever became of it.
    ///
    /// # Errors
    /// That of the first graph, in the order of the launches, which did not end well;
    /// [`RunError::Timeout`], and nothing is let go of then.
    pub fn finish(&self, timeout: Duration) -> Result<(), RunError> {
        let runs: Vec<_> = lock(&self.state).runs.iter().map(|(_, run)| Arc::clone(run)).collect();
        let deadline = Deadline::after(&*self.pool.clock, timeout);
        // The last ones end last, so that there is hardly anything to wait for behind these.
        let is_late = |run: &Arc<RunShared>| {
            let left = deadline.left(&*self.pool.clock);
            self.pool.wait(run, left).is_err()
        };
        let _ = runs.iter().rev().any(is_late);
        let outcome = |run: &Arc<RunShared>| match self.pool.wait(run, Duration::ZERO) {
            // It names the limit that the caller knows.
            Err(RunError::Timeout { device, finished, tasks, stall, busy, .. }) => {
                let after = timeout;
                Err(RunError::Timeout { device, after, finished, tasks, stall, busy })
            }
            outcome => outcome,
        };
        let outcomes = runs.iter().map(outcome).collect::<Result<Vec<Arc<Outcome>>, _>>()?;
        let over: HashSet<RunId> = runs.iter().map(|run| run.number).collect();
        let forgotten = lock(&self.state).forget(|run| over.contains(&run.number));
        drop(forgotten);
        outcomes.iter().try_for_each(|outcome| outcome.check())
    }
}

impl State {
    /// Adds a run; returns what its tasks wait for, and what has been forgotten for that.
    pub(super) fn append(
        &mut self,
        run: &Arc<RunShared>,
    ) -> Result<(Vec<Behind>, Option<Forgotten>), RunError> {
        let mut forgotten = None;
        if self.history.len() >= self.forget_at.max(FORGET_FROM) {
            forgotten = Some(self.forget_completed());
            self.forget_at = 2 * self.history.len();
        }
        if !self.history.has_room(&run.graph) {
            let why = format!("the flow has {} tasks that have not ended", self.history.len());
            return Err(RunError::Unsupported { place: "flow", why });
        }
        Ok((self.add(run), forgotten))
    }

    fn add(&mut self, run: &Arc<RunShared>) -> Vec<Behind> {
        let Ok(first) = u32::try_from(self.history.len()) else {
            unreachable!("there is room for them")
        };
        let behind = self.history.append(&run.graph);
        let behind = behind.into_iter().map(|(task, earlier)| {
            let at = self.runs.partition_point(|(first, _)| *first <= earlier);
            let (first, run) = &self.runs[at - 1];
            Behind { task, run: Arc::clone(run), earlier: earlier - first }
        });
        let behind = behind.collect();
        self.runs.push((first, Arc::clone(run)));
        behind
    }

    /// Forgets runs that no task has to wait for any more.
    pub(super) fn forget_completed(&mut self) -> Forgotten {
        self.forget(|run| run.result.get().is_some_and(|outcome| outcome.is_success()))
    }

    /// Forgets some runs, as if they had never been.
    fn forget(&mut self, is_over: impl Fn(&Arc<RunShared>) -> bool) -> Forgotten {
        let runs = std::mem::take(&mut self.runs);
        let history = std::mem::take(&mut self.history);
        for (_, run) in &runs {
            if !is_over(run) {
                self.add(run);
            }
        }
        Forgotten { _runs: runs, _history: history }
    }
}

/// What a flow kept alive and keeps no longer. Functions and memory of its user are among it, which
/// must not be dropped under the lock.
#[must_use = "it is to be dropped without the lock"]
pub(super) struct Forgotten {
    _runs: Vec<(u32, Arc<RunShared>)>,
    _history: History,
}
