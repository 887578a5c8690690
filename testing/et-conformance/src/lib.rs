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

/// The examples of the book's chapters that are programs.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/src/errors.md")]
    struct Errors;
    #[doc = include_str!("../../../docs/src/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/src/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../../../docs/src/isa.md")]
    struct Isa;
    #[doc = include_str!("../../../docs/src/management.md")]
    struct Management;
    #[doc = include_str!("../../../docs/src/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/src/simulated-card.md")]
    struct SimulatedCard;
    #[doc = include_str!("../../../docs/src/traces.md")]
    struct Traces;
}
