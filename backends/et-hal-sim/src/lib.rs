#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod coherence;
mod dma;
mod error;
mod hal;
mod reset;
mod signal;
mod watch;
mod window;

pub use dma::{SimBuffer, SimDma};
pub use error::SimError;
pub use et_sim_device::{
    Answered, Board, BoardConfig, Check, ComputeKind, ConfigError, Count, Counted, Counters,
    CreditAbort, DmaCoherence, ErrorSource, Executed, FAULT_FORMS, Fault, FirmwareImage,
    FloatProfile, Histogram, ImageError, MemoryKind, ParseFaultError, StackGuards, StuckUntil,
    Timing,
};
pub use hal::{SimHal, SimMailbox};
pub use reset::SimReset;
pub use signal::SimSignal;
pub use window::SimWindow;
