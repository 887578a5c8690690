#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod locator;
#[cfg(feature = "sim")]
mod open;

pub use et_runtime::{
    ArchRevision, CacheLevel, Clock, Config, Copy, Counters, Device, DeviceBuffer, DeviceSlice,
    Drain, Error, Event, EventFuture, FirmwareType, FormFactor, HostBuffer, Kernel, KernelArgs,
    Launch, LaunchFailure, MemoryStats, Order, Profile, Profiler, Properties, Record, Remains,
    Result, Stream, SystemClock, Timeline, Times, Transfer, TransferError, Version, executor,
    graph, kernel, memory,
};
pub use locator::{Locator, LocatorError};
#[cfg(feature = "sim")]
pub use open::{AnyHal, DeviceInfo, OpenError, list, open, open_with};

/// The HAL traits.
pub use et_hal as hal;
/// Mocks of the HAL traits.
#[cfg(feature = "mock")]
pub use et_hal_mock as mock;
/// The simulator.
#[cfg(feature = "sim")]
pub use et_hal_sim as sim;
