//! How a scheduler hands tasks to workers: one cell of two cache lines for each worker.
//!
//! The *dispatch line* is written by the scheduler only, the *status line* by the worker only.
//! Tasks of a worker carry sequence numbers, counted from 1, which wrap around; the one with number
//! `n` is in slot `n & 1`. Two may be outstanding: one runs, the other is staged, so a worker need
//! not wait for the next.
//!
//! <!-- `cargo xtask generate` writes this: cell -->
//!
//! | Byte | Word | Writer | Content |
//! |---|---|---|---|
//! | 0 | `DISPATCH` | scheduler | low half: number of the newest task; high half: control |
//! | 16, 32 | slots 0, 1 | scheduler | task word, argument word |
//! | 64 | `STATUS` | worker | low half: number of the last completed task; high half: state |
//! | 72 | `IDENTITY` | worker | who it is; the hart number on a device |
//! | 80, 88 | outcomes 0, 1 | worker | result of the slot's last task; users define success |
//! | 96, 112 | times 0, 1 | worker | start and end, in cycles, where there is a counter |
//!
//! <!-- end of cell -->
//!
//! The words `DISPATCH` and `STATUS` publish what was written before them: they are stored with
//! release order and loaded with acquire order, and nothing else in the protocol needs more, but
//! for one place. Before a worker sleeps it stores [`WorkerState::Parked`] and looks at `DISPATCH`
//! once more; the scheduler stores `DISPATCH` and then looks whether the worker is parked. A full
//! fence between the store and the load on either side means that at least one of them sees the
//! other.
//!
//! [`Scheduler`] and [`Worker`] are the two halves, as state machines without threads: they never
//! wait. They are generic over [`Words`], so that host threads, device memory behind a BAR and the
//! models run the same source.

mod scheduler;
mod worker;

use et_hal::{BarOffset, Mmio, Width};

pub use scheduler::{Finished, HandshakeError, Scheduler, Status};
pub use worker::{Next, Worker};

/// Bytes of a cell; cells are aligned to [`LINE_BYTES`].
pub const CELL_BYTES: u64 = 128;
/// Bytes of each of the two lines.
pub const LINE_BYTES: u64 = 64;
/// Words of 8 bytes in a cell.
pub const CELL_WORDS: usize = 16;
/// Tasks a worker can have at a time.
pub const DEPTH: u32 = 2;

/// Word that publishes tasks and [`Control`].
pub const DISPATCH: usize = 0;
/// Word that publishes completions and [`WorkerState`].
pub const STATUS: usize = 8;
/// Word that says who the worker is.
pub const IDENTITY: usize = 9;

/// First of the two words of the slot of task number `sequence`.
#[must_use]
pub const fn slot(sequence: u32) -> usize {
    if sequence & 1 == 0 { 2 } else { 4 }
}

/// Word with the outcome of task number `sequence`.
#[must_use]
pub const fn outcome(sequence: u32) -> usize {
    if sequence & 1 == 0 { 10 } else { 11 }
}

/// First of the two words with the times of task number `sequence`.
#[must_use]
pub const fn times(sequence: u32) -> usize {
    if sequence & 1 == 0 { 12 } else { 14 }
}

/// What the scheduler tells a worker besides tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Control {
    /// Not opened yet: the worker has announced itself and waits.
    Closed = 0,
    /// Take tasks.
    Run = 1,
    /// Complete what is dispatched, then leave.
    Quit = 2,
    /// Leave; do not start what is staged.
    Abort = 3,
}

impl Control {
    /// Returns the control in a dispatch word; `None` for a value that has no meaning.
    #[must_use]
    pub const fn of(dispatch: u64) -> Option<Self> {
        match dispatch >> 32 {
            0 => Some(Self::Closed),
            1 => Some(Self::Run),
            2 => Some(Self::Quit),
            3 => Some(Self::Abort),
            _ => None,
        }
    }
}

/// What a worker tells besides completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WorkerState {
    /// It has not announced itself.
    Absent = 0,
    /// It takes tasks without being woken.
    Awake = 1,
    /// It sleeps, or is about to: it must be woken.
    Parked = 2,
    /// It has left and will touch nothing any more.
    Exited = 3,
}

impl WorkerState {
    /// Returns the state in a status word; `None` for a value that has no meaning.
    #[must_use]
    pub const fn of(status: u64) -> Option<Self> {
        match status >> 32 {
            0 => Some(Self::Absent),
            1 => Some(Self::Awake),
            2 => Some(Self::Parked),
            3 => Some(Self::Exited),
            _ => None,
        }
    }
}

/// What is handed to a worker; the meaning of the words is a matter between those who use the
/// handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Assignment {
    /// Which task.
    pub task: u64,
    /// What goes with it.
    pub arg: u64,
}

/// The low half of a word: the sequence number.
const fn sequence(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

const fn word(high: u32, sequence: u32) -> u64 {
    (high as u64) << 32 | sequence as u64
}

/// The memory of one cell.
pub trait Words {
    /// What can go wrong with an access.
    type Error;

    /// Loads a word, without order.
    ///
    /// # Errors
    /// As the memory says.
    fn load(&self, word: usize) -> Result<u64, Self::Error>;

    /// Loads a word; what the other side stored before publishing it is visible then.
    ///
    /// # Errors
    /// As the memory says.
    fn load_acquire(&self, word: usize) -> Result<u64, Self::Error>;

    /// Stores a word, without order.
    ///
    /// # Errors
    /// As the memory says.
    fn store(&self, word: usize, value: u64) -> Result<(), Self::Error>;

    /// Stores a word after everything stored before.
    ///
    /// # Errors
    /// As the memory says.
    fn store_release(&self, word: usize, value: u64) -> Result<(), Self::Error>;

    /// Orders all stores before it against all loads after it, also for the other side.
    ///
    /// # Errors
    /// As the memory says.
    fn fence(&self) -> Result<(), Self::Error>;
}

impl<W: Words + ?Sized> Words for &W {
    type Error = W::Error;
    fn load(&self, word: usize) -> Result<u64, Self::Error> {
        W::load(self, word)
    }
    fn load_acquire(&self, word: usize) -> Result<u64, Self::Error> {
        W::load_acquire(self, word)
    }
    fn store(&self, word: usize, value: u64) -> Result<(), Self::Error> {
        W::store(self, word, value)
    }
    fn store_release(&self, word: usize, value: u64) -> Result<(), Self::Error> {
        W::store_release(self, word, value)
    }
    fn fence(&self) -> Result<(), Self::Error> {
        W::fence(self)
    }
}

/// A cell in mapped device memory.
#[derive(Clone, Copy, Debug)]
pub struct MappedCell<'a, M> {
    mmio: &'a M,
    at: BarOffset,
}

impl<'a, M: Mmio> MappedCell<'a, M> {
    /// A cell at `at`, which is aligned to [`LINE_BYTES`]; accesses outside the window are errors
    /// of the window.
    #[must_use]
    pub const fn new(mmio: &'a M, at: BarOffset) -> Self {
        Self { mmio, at }
    }

    fn offset(&self, word: usize) -> BarOffset {
        // A cell has 16 words; what does not fit into the address space is out of every window.
        BarOffset::new(self.at.as_u64().saturating_add((word as u64).saturating_mul(8)))
    }
}

impl<M: Mmio> Words for MappedCell<'_, M> {
    type Error = M::Error;

    fn load(&self, word: usize) -> Result<u64, M::Error> {
        self.mmio.read(self.offset(word), Width::W64)
    }

    fn load_acquire(&self, word: usize) -> Result<u64, M::Error> {
        self.mmio.load_acquire_u64(self.offset(word))
    }

    fn store(&self, word: usize, value: u64) -> Result<(), M::Error> {
        self.mmio.write(self.offset(word), Width::W64, value)
    }

    fn store_release(&self, word: usize, value: u64) -> Result<(), M::Error> {
        self.mmio.store_release_u64(self.offset(word), value)
    }

    fn fence(&self) -> Result<(), M::Error> {
        crate::sync::fence(crate::sync::Ordering::SeqCst);
        // Posted writes reach the device before a read that follows them.
        self.mmio.flush()
    }
}

#[cfg(test)]
mod tests;
