//! The scheduler's half of a cell.

use super::{
    Assignment, Control, DEPTH, DISPATCH, IDENTITY, STATUS, Words, WorkerState, outcome, sequence,
    slot, times, word,
};

/// What is wrong with a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError<E> {
    /// The memory of the cell failed.
    #[error("cell access failed")]
    Access(#[source] E),
    /// Two tasks are outstanding already.
    #[error("worker has two tasks already, numbers {first} and {second}")]
    Full {
        /// Number of the running one.
        first: u32,
        /// Number of the staged one.
        second: u32,
    },
    /// The scheduler has told the worker to leave.
    #[error("worker was told to leave")]
    Leaving,
    /// The worker claims completions of tasks it never got, or a state that does not exist.
    #[error("worker status {status:#x} makes no sense: {done} of {sent} tasks were complete")]
    Corrupt {
        /// The status word.
        status: u64,
        /// Number of the last task known to be complete.
        done: u32,
        /// Number of the last task dispatched.
        sent: u32,
    },
}

/// What a worker says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it does.
    pub state: WorkerState,
    /// Number of the last task it completed.
    pub completed: u32,
}

/// A completed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number.
    pub sequence: u32,
    /// What the worker says of it; 0 is success.
    pub outcome: u64,
}

/// The scheduler's view of one worker.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Number of the last task dispatched.
    sent: u32,
    /// Number of the last task whose completion was taken.
    done: u32,
    /// Number of the last task seen to be complete; not before `done`.
    seen: u32,
    control: Control,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler {
    /// The view of a cell that is all zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self::after(0)
    }

    /// The view of a cell whose last task had number `sequence`.
    #[must_use]
    pub const fn after(sequence: u32) -> Self {
        Self { sent: sequence, done: sequence, seen: sequence, control: Control::Closed }
    }

    /// Tells how many tasks are dispatched and not taken back as complete.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.sent.wrapping_sub(self.done)
    }

    /// Returns the number that the next task will have.
    #[must_use]
    pub const fn next_to_dispatch(&self) -> u32 {
        self.sent.wrapping_add(1)
    }

    /// Returns the number of the first task that is not taken back as complete, if there is one.
    #[must_use]
    pub const fn next_to_complete(&self) -> u32 {
        self.done.wrapping_add(1)
    }

    /// Returns `true` if a task can be dispatched.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.outstanding() < DEPTH && matches!(self.control, Control::Run)
    }

    /// Returns `true` if the worker was told to leave.
    #[must_use]
    pub const fn is_leaving(&self) -> bool {
        matches!(self.control, Control::Quit | Control::Abort)
    }

    /// Reads what the worker says of itself.
    ///
    /// # Errors
    /// [`HandshakeError::Access`], [`HandshakeError::Corrupt`].
    pub fn status<W: Words>(&self, cell: &W) -> Result<Status, HandshakeError<W::Error>> {
        // Acquire: pairs with the worker's release stores of this word.
        let status = cell.load_acquire(STATUS).map_err(HandshakeError::Access)?;
        let completed = sequence(status);
        match WorkerState::of(status) {
            Some(state) if completed.wrapping_sub(self.done) <= self.outstanding() => {
                Ok(Status { state, completed })
            }
            _ => Err(HandshakeError::Corrupt { status, done: self.done, sent: self.sent }),
        }
    }

    /// Opens the cell to a worker that has announced itself; returns who it is, `None` if it has
    /// not come yet.
    ///
    /// This is the whole start-up: the worker's announcement and this answer.
    ///
    /// # Errors
    /// [`HandshakeError::Access`], [`HandshakeError::Corrupt`].
    pub fn open<W: Words>(&mut self, cell: &W) -> Result<Option<u64>, HandshakeError<W::Error>> {
        if self.status(cell)?.state == WorkerState::Absent {
            return Ok(None);
        }
        let identity = cell.load(IDENTITY).map_err(HandshakeError::Access)?;
        self.tell(cell, Control::Run)?;
        Ok(Some(identity))
    }

    /// Hands a task to the worker; returns its number. If [`must_wake`](Self::must_wake) says so
    /// afterwards, the worker has to be woken.
    ///
    /// # Errors
    /// [`HandshakeError::Full`], [`HandshakeError::Leaving`], [`HandshakeError::Access`].
    pub fn dispatch<W: Words>(
        &mut self,
        cell: &W,
        assignment: Assignment,
    ) -> Result<u32, HandshakeError<W::Error>> {
        if self.control != Control::Run {
            return Err(HandshakeError::Leaving);
        }
        if self.outstanding() >= DEPTH {
            return Err(HandshakeError::Full {
                first: self.done.wrapping_add(1),
                second: self.sent,
            });
        }
        let next = self.sent.wrapping_add(1);
        let at = slot(next);
        let put = |word: usize, value| cell.store(word, value).map_err(HandshakeError::Access);
        put(at, assignment.task)?;
        put(at.wrapping_add(1), assignment.arg)?;
        // Release: the slot, and all the scheduler knows of the task, is visible to who sees the
        // number.
        cell.store_release(DISPATCH, word(Control::Run as u32, next))
            .map_err(HandshakeError::Access)?;
        self.sent = next;
        Ok(next)
    }

    /// Tells, after a dispatch or a change of control, whether the worker sleeps and must be woken.
    ///
    /// # Errors
    /// [`HandshakeError::Access`], [`HandshakeError::Corrupt`].
    pub fn must_wake<W: Words>(&self, cell: &W) -> Result<bool, HandshakeError<W::Error>> {
        // Between the store of `DISPATCH` and the load of `STATUS`; pairs with the fence in
        // `Worker::park`.
        cell.fence().map_err(HandshakeError::Access)?;
        Ok(self.status(cell)?.state == WorkerState::Parked)
    }

    /// Takes the next completed task, in the order of dispatch.
    ///
    /// # Errors
    /// [`HandshakeError::Access`], [`HandshakeError::Corrupt`].
    pub fn poll<W: Words>(
        &mut self,
        cell: &W,
    ) -> Result<Option<Finished>, HandshakeError<W::Error>> {
        if self.seen == self.done {
            if self.sent == self.done {
                return Ok(None);
            }
            self.seen = self.status(cell)?.completed;
            if self.seen == self.done {
                return Ok(None);
            }
        }
        let next = self.done.wrapping_add(1);
        let outcome = cell.load(outcome(next)).map_err(HandshakeError::Access)?;
        self.done = next;
        Ok(Some(Finished { sequence: next, outcome }))
    }

    /// Reads when the worker started and ended a task just taken with [`poll`](Self::poll), in
    /// cycles of its counter.
    ///
    /// # Errors
    /// [`HandshakeError::Access`].
    pub fn times<W: Words>(
        &self,
        cell: &W,
        sequence: u32,
    ) -> Result<(u64, u64), HandshakeError<W::Error>> {
        let at = times(sequence);
        let get = |word: usize| cell.load(word).map_err(HandshakeError::Access);
        Ok((get(at)?, get(at.wrapping_add(1))?))
    }

    /// Tells the worker to complete what it has and leave. Also for a worker that has not come yet.
    ///
    /// # Errors
    /// [`HandshakeError::Access`].
    pub fn quit<W: Words>(&mut self, cell: &W) -> Result<(), HandshakeError<W::Error>> {
        match self.control {
            // An abort is not taken back.
            Control::Abort => Ok(()),
            _ => self.tell(cell, Control::Quit),
        }
    }

    /// Tells the worker to leave without starting what is staged. Also for a worker that has not
    /// come yet.
    ///
    /// # Errors
    /// [`HandshakeError::Access`].
    pub fn abort<W: Words>(&mut self, cell: &W) -> Result<(), HandshakeError<W::Error>> {
        self.tell(cell, Control::Abort)
    }

    fn tell<W: Words>(
        &mut self,
        cell: &W,
        control: Control,
    ) -> Result<(), HandshakeError<W::Error>> {
        cell.store_release(DISPATCH, word(control as u32, self.sent))
            .map_err(HandshakeError::Access)?;
        self.control = control;
        Ok(())
    }
}
