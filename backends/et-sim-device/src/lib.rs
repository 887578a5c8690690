#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Lets the unit tests use the same rig as the tests outside.
#[cfg(test)]
extern crate self as et_sim_device;

mod bar;
mod board;
mod compute;
mod config;
mod cores;
mod error;
mod event;
mod faults;
mod firmware;
mod host_memory;
mod interrupt;
mod page;
mod parent;

pub use bar::{BarWindow, StaleHandle};
pub use board::{Board, Counters, Executed, Link, MemoryAfterReset};
pub use config::{
    BoardConfig, Check, ComputeKind, ConfigError, Count, CpuAccess, DmaCoherence, MemoryKind,
    StackGuards,
};
pub use error::{BoardError, MapError, ResetBusy};
pub use et_sim_cores::{
    Buffers, Counted, CreditAbort, Dram, Execution, FloatProfile, Histogram, NearBuffer, Timing,
};
pub use event::{Event, Waited};
pub use faults::{Answered, ErrorSource, FAULT_FORMS, Fault, ParseFaultError, StuckUntil};
pub use firmware::{FirmwareImage, ImageError};
pub use host_memory::{HostMemory, RemoteMemory};
pub use interrupt::{DoorbellLines, InterruptLine, Interrupts};
pub use page::RegisterPage;
pub use parent::{
    CopyDirection, CopyPart, ForwardedCopy, ForwardedEnd, ForwardedLaunch, MAX_PARTS, PIECE_BYTES,
    Parent, Wake,
};
