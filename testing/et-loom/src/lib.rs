//! Models of the concurrent protocols, on the source that ships.
//!
//! They are built only with `--cfg loom`, in release mode and in a target directory of their own;
//! `cargo xtask loom` does that, prints the number of executions of each model, and shows that each
//! seeded mutant of `mutants.json` is caught by its model.

#[cfg(loom)]
mod model;
#[cfg(loom)]
mod window;

#[cfg(loom)]
pub use model::check;
#[cfg(loom)]
pub use window::LoomWindow;
