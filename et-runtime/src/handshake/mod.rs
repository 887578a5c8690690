//! The concurrent protocols of the runtime, as state machines without threads.
//!
//! | Piece | What it guarantees |
//! |---|---|
//! | [`Waiters`] | while a thread waits, a thread drains |
//! | [`OneShot`] | a result is set once, and whoever waits for it hears of it |
//! | [`Parker`] | a token is not lost |
//! | [`HostCell`] | a task is run once, its outcome arrives whole, no worker sleeps on work |
//! | [`Combiner`] | each completion is seen, whether any thread schedules or not |
//!
//! They are public for the models in `testing/et-loom`, with the feature `unstable-handshake`.

mod combiner;
mod host_cell;
mod patience;

pub use combiner::{Combiner, Held};
pub use host_cell::HostCell;
pub(crate) use host_cell::sure;
pub use patience::Patience;

pub use crate::link::{Continuations, Parker};
#[cfg(feature = "unstable-handshake")]
pub use crate::link::{Lead, OneShot, Source, Terms, Waiters, WakerKey, Whereabouts};
