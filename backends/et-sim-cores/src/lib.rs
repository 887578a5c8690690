#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "some is for translated code and the vector registers of x86 only")
)]

mod config;
mod decode;
mod error;
mod exec;
mod float;
mod histogram;
mod machine;
mod memory;
#[cfg_attr(not(target_arch = "x86_64"), path = "native_none.rs")]
mod native;
mod near;

pub use config::{
    ALL_SHIRES, CreditAbort, Execution, FloatProfile, MachineConfig, MemoryModel, Timing,
};
pub use error::CoresError;
pub use histogram::{Counted, Histogram};
pub use machine::Machine;
pub use machine::launch::{HartExit, HartFailure, HartState, Launch, LaunchReport, Stack};
pub use machine::single::{SingleHart, Step};
pub use memory::check::{Buffers, NearBuffer};
pub use memory::{Dram, Scratchpads};
