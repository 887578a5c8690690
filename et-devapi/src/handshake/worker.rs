//! The worker's half of a cell.

use super::{
    Assignment, Control, DISPATCH, IDENTITY, STATUS, Words, WorkerState, outcome, sequence, slot,
    times, word,
};

/// What a worker finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do now.
    Nothing,
    /// A task, to be completed before the next look.
    Task(Assignment),
    /// It shall leave; everything it has to complete is complete.
    Leave,
}

/// A worker's view of its cell.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Number of the last completed task.
    done: u32,
}

impl Worker {
    /// The view of a cell that is all zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self::after(0)
    }

    /// The view of a cell whose last task had number `sequence`.
    #[must_use]
    pub const fn after(sequence: u32) -> Self {
        Self { done: sequence }
    }

    /// Returns the number of the task that [`next`](Self::next) gives, or gave if it is not
    /// complete yet.
    #[must_use]
    pub const fn next_to_complete(&self) -> u32 {
        self.done.wrapping_add(1)
    }

    /// Says that the worker is there, and who it is.
    ///
    /// # Errors
    /// As the memory says.
    pub fn announce<W: Words>(&self, cell: &W, identity: u64) -> Result<(), W::Error> {
        cell.store(IDENTITY, identity)?;
        // Release: who sees the state sees the identity.
        cell.store_release(STATUS, word(WorkerState::Awake as u32, self.done))
    }

    /// Looks for something to do.
    ///
    /// # Errors
    /// As the memory says.
    pub fn next<W: Words>(&self, cell: &W) -> Result<Next, W::Error> {
        // Acquire: pairs with the scheduler's release stores of this word.
        let dispatch = cell.load_acquire(DISPATCH)?;
        let has_task = sequence(dispatch) != self.done;
        match Control::of(dispatch) {
            Some(Control::Run | Control::Quit) if has_task => {
                let at = slot(self.next_to_complete());
                let (task, arg) = (cell.load(at)?, cell.load(at.wrapping_add(1))?);
                Ok(Next::Task(Assignment { task, arg }))
            }
            Some(Control::Closed | Control::Run) => Ok(Next::Nothing),
            // A control that does not exist cannot be obeyed; leaving is safe.
            Some(Control::Quit | Control::Abort) | None => Ok(Next::Leave),
        }
    }

    /// Says that the task last given by [`next`](Self::next) is complete.
    ///
    /// # Errors
    /// As the memory says.
    pub fn complete<W: Words>(&mut self, cell: &W, result: u64) -> Result<(), W::Error> {
        let number = self.next_to_complete();
        cell.store(outcome(number), result)?;
        // Release: the outcome, and all the task has written, is visible to who sees the number.
        cell.store_release(STATUS, word(WorkerState::Awake as u32, number))?;
        self.done = number;
        Ok(())
    }

    /// Says when the running task started and ended; to be called before
    /// [`complete`](Self::complete).
    ///
    /// # Errors
    /// As the memory says.
    pub fn set_times<W: Words>(&self, cell: &W, start: u64, end: u64) -> Result<(), W::Error> {
        let at = times(self.next_to_complete());
        cell.store(at, start)?;
        cell.store(at.wrapping_add(1), end)
    }

    /// Says that the worker is going to sleep; returns `false` if it may not, because something
    /// came meanwhile.
    ///
    /// After `true` it sleeps until it is woken; in both cases it calls [`unpark`](Self::unpark)
    /// then.
    ///
    /// # Errors
    /// As the memory says.
    pub fn park<W: Words>(&self, cell: &W) -> Result<bool, W::Error> {
        cell.store_release(STATUS, word(WorkerState::Parked as u32, self.done))?;
        // Between the store of `STATUS` and the load of `DISPATCH`; pairs with the fence in
        // `Scheduler::must_wake`.
        cell.fence()?;
        Ok(self.next(cell)? == Next::Nothing)
    }

    /// Says that the worker is awake.
    ///
    /// # Errors
    /// As the memory says.
    pub fn unpark<W: Words>(&self, cell: &W) -> Result<(), W::Error> {
        cell.store_release(STATUS, word(WorkerState::Awake as u32, self.done))
    }

    /// Says that the worker has left. It must not touch the cell afterwards.
    ///
    /// # Errors
    /// As the memory says.
    pub fn exit<W: Words>(&self, cell: &W) -> Result<(), W::Error> {
        cell.store_release(STATUS, word(WorkerState::Exited as u32, self.done))
    }
}
