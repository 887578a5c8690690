#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod boot;
mod clock;
mod command;
mod config;
mod copy;
mod device;
mod drain;
mod error;
mod event;
pub mod executor;
pub mod graph;
pub mod handshake;
pub mod kernel;
pub mod memory;
mod operation;
mod profile;
mod properties;
mod shared;
mod stream;
mod submit;
mod sync;

pub use clock::{Clock, SystemClock};
pub use config::{Config, Drain};
pub use device::Device;
pub use error::{Error, Result};
pub use event::{Event, EventFuture, Remains, Timeline, Transfer, TransferError};
pub use kernel::{Kernel, KernelArgs, Launch, LaunchFailure};
pub use memory::{DeviceBuffer, DeviceSlice, HostBuffer, MemoryStats};
pub use profile::{Profile, Profiler, Record};
pub use properties::{ArchRevision, CacheLevel, FormFactor, Properties};
pub use shared::Counters;
pub use stream::{Copy, Order, Stream};

pub use et_devapi::msg::ops::{FirmwareType, Times, Version};
