//! A worker's cell between host threads, and how the worker waits at it.

use std::convert::Infallible;

use et_devapi::handshake::{Assignment, CELL_WORDS, Next, STATUS, Scheduler, Words, Worker};

use super::{Parker, Patience};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, give_way, relax};

/// Words of one line.
const LINE_WORDS: usize = CELL_WORDS / 2;

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_WORDS]);

impl Line {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The cell of a worker that is a host thread, with its place to sleep.
///
/// Aligned to two lines, because some processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct HostCell {
    dispatch: Line,
    status: Line,
    /// Number of the last task that was begun by the worker, or taken back by the scheduler. Beside
    /// the protocol of the cell, which has no word that both write.
    begun: AtomicU32,
    parker: Parker,
}

impl Default for HostCell {
    fn default() -> Self {
        Self::new()
    }
}

impl HostCell {
    /// Makes a cell that is all zeros.
    #[must_use]
    pub fn new() -> Self {
        Self::after(0)
    }

    /// Makes the cell of a worker whose last task had number `sequence`.
    #[must_use]
    pub fn after(sequence: u32) -> Self {
        let (dispatch, status) = (Line::new(), Line::new());
        for line in [&dispatch, &status] {
            line.0[0].store(sequence.into(), Ordering::Relaxed);
        }
        Self { dispatch, status, begun: AtomicU32::new(sequence), parker: Parker::new() }
    }

    /// Returns, to the scheduler, the number of the first task that the worker has not begun, and
    /// that was not taken back.
    #[inline]
    pub fn first_waiting(&self, scheduler: &Scheduler) -> Option<u32> {
        let begun = self.begun.load(Ordering::Relaxed);
        let next = begun.wrapping_add(1);
        (next != scheduler.next_to_dispatch()).then_some(next)
    }

    /// Begins with the next task, as the worker, or takes [the first that
    /// waits](Self::first_waiting) back, as the scheduler; `false` if the other was first. A worker
    /// completes what was taken back, too, without having run it.
    #[inline]
    pub fn claim(&self, number: u32) -> bool {
        // Relaxed: one of the two gets it, and what belongs to the task comes and goes by the words
        // of the cell.
        let before = number.wrapping_sub(1);
        self.begun.compare_exchange(before, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Waits, as the worker, for a task; `None` if the worker shall leave. `before_sleep` is called
    /// each time it is about to sleep.
    pub fn wait(
        &self,
        worker: &Worker,
        patience: &mut Patience,
        mut before_sleep: impl FnMut(),
    ) -> Option<Assignment> {
        loop {
            for look in 0..=patience.looks() {
                match sure(worker.next(self)) {
                    Next::Task(assignment) => return Some(assignment),
                    Next::Leave => return None,
                    Next::Nothing if look < patience.looks() => relax(),
                    // Gives the processor away once, which helps where there are fewer than threads
                    // that look.
                    Next::Nothing => give_way(),
                }
            }
            before_sleep();
            if sure(worker.park(self)) {
                patience.asleep(|| self.parker.park());
            }
            sure(worker.unpark(self));
        }
    }

    /// Wakes the worker.
    pub fn wake(&self) {
        self.parker.unpark();
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        let line = if word < STATUS { &self.dispatch } else { &self.status };
        &line.0[word % LINE_WORDS]
    }
}

/// Host memory does not fail.
pub(crate) fn sure<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

impl Words for HostCell {
    type Error = Infallible;

    fn load(&self, word: usize) -> Result<u64, Infallible> {
        Ok(self.word(word).load(Ordering::Relaxed))
    }

    fn load_acquire(&self, word: usize) -> Result<u64, Infallible> {
        Ok(self.word(word).load(Ordering::Acquire))
    }

    fn store(&self, word: usize, value: u64) -> Result<(), Infallible> {
        self.word(word).store(value, Ordering::Relaxed);
        Ok(())
    }

    fn store_release(&self, word: usize, value: u64) -> Result<(), Infallible> {
        self.word(word).store(value, Ordering::Release);
        Ok(())
    }

    fn fence(&self) -> Result<(), Infallible> {
        fence(Ordering::SeqCst);
        Ok(())
    }
}
