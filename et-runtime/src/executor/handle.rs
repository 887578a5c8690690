//! What a user holds of a launched graph.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::driver::Pool;
use super::engine::Request;
use super::run::RunShared;
use super::{Outcome, RunError, TaskState};
use crate::graph::TaskId;
use crate::link::WakerKey;
use crate::sync::Ordering;

/// A launched graph. Dropping it leaves the run alone.
#[derive(Clone)]
pub struct Run {
    pub(super) shared: Arc<RunShared>,
    pub(super) pool: Arc<Pool>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (finished, tasks) = self.progress();
        f.debug_struct("Run")
            .field("number", &self.shared.number.0)
            .field("finished", &finished)
            .field("tasks", &tasks)
            .finish()
    }
}

impl Run {
    pub(super) fn new(shared: Arc<RunShared>, pool: Arc<Pool>) -> Self {
        Self { shared, pool }
    }

    /// Waits until the run has ended, and schedules meanwhile. Says nothing about whether it went
    /// well: that is [`Outcome::check`].
    ///
    /// # Errors
    /// [`RunError::Timeout`], which says what is being worked on; the run goes on then.
    pub fn wait(&self, timeout: Duration) -> Result<Arc<Outcome>, RunError> {
        self.pool.wait(&self.shared, timeout)
    }

    /// Waits, and turns failures into errors.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`Outcome::check`].
    pub fn finish(&self, timeout: Duration) -> Result<Arc<Outcome>, RunError> {
        let outcome = self.wait(timeout)?;
        outcome.check()?;
        Ok(outcome)
    }

    /// Returns the outcome, if the run has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        self.shared.result.get()
    }

    /// Returns `true` if the run has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.result.is_done()
    }

    /// Returns how many tasks have ended, in any way, and how many there are.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.shared.finished.load(Ordering::Relaxed), self.shared.graph.len())
    }

    /// Returns where a task is; it may be further already. A place that orders the tasks itself
    /// says [`Delegated`](TaskState::Delegated) of what it does not report. What has run is
    /// [`Executed`](TaskState::Executed) up to the end of the run: what it wrote is there for
    /// whoever has waited for that.
    ///
    /// # Panics
    /// If the graph has no such task.
    #[must_use]
    pub fn state(&self, task: TaskId) -> TaskState {
        let states = &self.shared.states[..self.shared.graph.len()];
        match TaskState::from_u8(states[task.index()].load(Ordering::Relaxed)) {
            TaskState::Complete if !self.shared.result.is_done() => TaskState::Executed,
            state => state,
        }
    }

    /// Cancels what has not started. What runs is waited for, unless it is a host function that
    /// heeds [`TaskContext::is_cancelled`](crate::graph::TaskContext::is_cancelled).
    pub fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Relaxed);
        self.pool.request(Request::Cancel(self.shared.number));
    }

    /// Cancels one task, if it has not started, and so those that depend on it.
    pub fn cancel_task(&self, task: TaskId) {
        if let Ok(task) = u32::try_from(task.index()) {
            self.pool.request(Request::CancelTask(self.shared.number, task));
        }
    }

    /// Has `callback` called when the run has ended, by the thread that sees it end, or now.
    pub fn on_done(&self, callback: impl FnOnce(&Arc<Outcome>) + Send + 'static) {
        if let Some(now) = self.shared.result.call(callback) {
            self.pool.call(now);
        }
    }
}

/// The future of a [`Run`]. Dropping it forgets its waker, and leaves the run alone.
#[derive(Debug)]
pub struct RunFuture {
    run: Run,
    waker: Option<WakerKey>,
}

impl Future for RunFuture {
    type Output = Arc<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Arc<Outcome>> {
        // No thread waits here, so the background thread schedules when something comes.
        let Self { run, waker } = &mut *self;
        run.shared.result.poll(context.waker(), waker).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for RunFuture {
    fn drop(&mut self) {
        if let Some(waker) = self.waker {
            self.run.shared.result.forget(waker);
        }
    }
}

impl IntoFuture for Run {
    type Output = Arc<Outcome>;
    type IntoFuture = RunFuture;

    fn into_future(self) -> RunFuture {
        RunFuture { run: self, waker: None }
    }
}
