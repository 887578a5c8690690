//! Long random schedules of the concurrent protocols, on the source that ships.
//!
//! They go where the models of `et-loom`, which explore every schedule, cannot: hundreds of tasks,
//! many sleeps, a whole device. In return every atomic access is sequentially consistent here, so
//! nothing about memory order is shown. Built only with `--cfg shuttle`, in release mode and in a
//! target directory of their own; `cargo xtask loom` does that last.

#[cfg(shuttle)]
mod card;
#[cfg(shuttle)]
mod check;

#[cfg(shuttle)]
pub use card::{Card, Desk, DeskMailbox};
#[cfg(shuttle)]
pub use check::{below, chance, check};
