//! The concurrent protocols of the runtime, as state machines without threads.
//!
//! | Piece | What it guarantees |
//! |---|---|
//! | [`Table`] | a wire tag is not given out again until its response came; a response is delivered once |
//! | [`Gate`] | the drain thread never sleeps while a command is in flight |
//! | [`Cell`] | a result is set once and every waiter sees it |
//! | [`Leader`] | while somebody waits, somebody drains |
//! | [`HostCell`] | a task handed to a worker is run once, and its outcome arrives whole; nobody sleeps on work |
//! | [`Combiner`] | somebody sees each completion, whether anybody schedules or not |
//!
//! They are public for the models in `testing/et-loom` and for people who read them; the interface is
//! not stable.

mod combiner;
mod host_cell;
mod patience;

pub use combiner::{Combiner, Held};
pub use host_cell::HostCell;
pub(crate) use host_cell::sure;
pub use patience::Patience;

pub use crate::link::{
    Continuations, Lead, OneShot, Parker, Source, Terms, Waiters, WakerKey, Whereabouts,
};
