#![doc = include_str!("../README.md")]

mod case;
mod check;
mod error;
mod facts;
mod hal;
mod kernels;
mod opened;
mod rig;
pub mod runner;
mod runtime;

pub use case::{Case, Level, cases};
pub use error::{Failure, OptionError};
pub use facts::{Facts, Lack, Need, UnknownLack};
pub use opened::Opened;
pub use rig::Rig;
pub use runner::harness;
