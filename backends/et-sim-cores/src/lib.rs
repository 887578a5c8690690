#![doc = include_str!("../README.md")]

mod config;
mod decode;
mod error;
mod exec;
mod float;
mod histogram;
mod machine;
mod memory;
mod near;

pub use config::{ALL_SHIRES, CreditAbort, FloatProfile, MachineConfig, MemoryModel, Timing};
pub use error::CoresError;
pub use histogram::{Counted, Histogram};
pub use machine::Machine;
pub use machine::launch::{HartExit, HartFailure, HartState, Launch, LaunchReport, Stack};
pub use machine::single::{SingleHart, Step};
pub use memory::check::{Buffers, NearBuffer};
pub use memory::{Dram, Scratchpads};
