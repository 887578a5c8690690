//! The concurrent protocols of the runtime, as state machines without threads.
//!
//! | Piece | What it guarantees |
//! |---|---|
//! | [`Table`] | a wire tag is not given out again until its response came; a response is delivered once |
//! | [`Gate`] | the drain thread never sleeps while a command is in flight |
//! | [`Cell`] | a result is set once and every waiter sees it |
//! | [`Leader`] | while somebody waits, somebody drains |
//!
//! They are public for the models in `testing/et-loom` and for people who read them; the interface is
//! not stable.

mod cell;
mod gate;
mod leader;
mod parker;
mod table;

pub use cell::{Callbacks, Cell};
pub use gate::{Gate, Work};
pub use leader::{Leader, LeaderGuard};
pub use parker::Parker;
pub use table::{Claim, Table};
