#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "sim", feature = "vfio"))]
mod any;
#[cfg(any(feature = "sim", feature = "vfio"))]
mod handles;
mod locator;
#[cfg(feature = "log")]
pub mod log;
#[cfg(any(feature = "sim", feature = "vfio"))]
mod open;
#[cfg(feature = "share")]
pub mod share;

#[cfg(any(feature = "sim", feature = "vfio"))]
pub use any::{AnyBuffer, AnyDma, AnyError, AnyHal, AnyMailbox, AnyReset, AnyWindow};
pub use et_runtime::{
    Activity, AddressRange, ArchRevision, ArraySlice, Backend, CacheKind, CacheLevel, Call, Clock,
    ClockFit, Config, CopyPath, CopyPaths, Counters, DeviceArray, DeviceBuffer, DeviceError,
    DeviceErrors, DeviceSlice, DeviceSpan, Drain, Error, Event, EventFuture, EventState,
    FirmwareType, FormFactor, Kernel, KernelArgs, Launch, LaunchFailure, ListedCopy, LoadError,
    MapPath, MemoryStats, Module, NoPeer, PeerPath, Priority, Profile, ProfileFormat,
    ProfileWriter, Profiler, Properties, Record, Recovery, RecoveryError, RecoveryPolicy,
    RecoveryStep, Refusal, Remains, Remedy, Report, Result, StreamError, StreamErrors,
    StreamOptions, SystemClock, Timeline, Times, Version, core_dump, executor, graph, kernel,
    management, memory, status, trace,
};
#[cfg(any(feature = "sim", feature = "vfio"))]
pub use handles::{
    Device, HostBuffer, Management, Mapping, Stream, Transfer, TransferError, TransferFuture,
    UnmapError,
};
pub use locator::{Locator, LocatorError};
#[cfg(any(feature = "sim", feature = "vfio"))]
pub use open::{
    DeviceInfo, Holder, OpenError, list, open, open_management, open_with, open_within,
};

#[cfg(not(any(feature = "sim", feature = "vfio")))]
pub use et_runtime::{
    Device, HostBuffer, Management, Mapping, Stream, Transfer, TransferError, TransferFuture,
    UnmapError,
};

/// The HAL traits.
pub use et_hal as hal;
/// Mocks of the HAL traits.
#[cfg(feature = "mock")]
pub use et_hal_mock as mock;
/// The simulator.
#[cfg(feature = "sim")]
pub use et_hal_sim as sim;
/// The VFIO backend.
#[cfg(feature = "vfio")]
pub use et_hal_vfio as vfio;
/// What this machine says about its cards, and what VFIO needs of it.
#[cfg(feature = "vfio")]
pub use et_vfio_host as host;
