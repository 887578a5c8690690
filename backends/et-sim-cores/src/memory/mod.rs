//! What harts load from and store to: device memory, registers, and the caches in between.

pub(crate) mod bus;
pub(crate) mod check;
mod dram;
pub(crate) mod esr;
pub(crate) mod guards;
pub(crate) mod map;
pub(crate) mod private;
pub(crate) mod weak;

pub(crate) use dram::Region;
pub use dram::{Dram, Scratchpads};
