#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod config;
mod device;
mod error;
mod event;
pub mod executor;
pub mod graph;
pub mod handshake;
pub mod kernel;
mod link;
pub mod memory;
mod profile;
mod properties;
mod stream;
mod sync;
mod timeline;

pub use clock::{Clock, SystemClock};
pub use config::{Config, Drain};
pub use device::Device;
pub use error::{Error, LoadError, OpenError, Result};
pub use event::{Event, EventFuture, Remains, Transfer, TransferError};
pub use kernel::{Kernel, KernelArgs, Launch, LaunchFailure};
pub use link::Counters;
pub use memory::{DeviceBuffer, DeviceSlice, HostBuffer, MemoryStats};
pub use profile::{Profile, Profiler, Record};
pub use properties::{ArchRevision, CacheLevel, FormFactor, Properties};
pub use stream::{ListedCopy, Stream};
pub use timeline::Timeline;

pub use et_devapi::msg::ops::{FirmwareType, Times, Version};
