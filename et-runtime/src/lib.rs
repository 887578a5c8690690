#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "unstable-handshake"),
    allow(unreachable_pub, reason = "public for the models only")
)]
//!
//! # How this crate works
//!
//! 1. `device::open` waits for the boot, checks the registers and makes a `Link`.
//! 2. A call of a `Stream` checks everything the device would refuse, stages the data (`memory`)
//!    and submits an *operation* of one or more *commands*.
//! 3. `link::core`, a state machine without threads and clock, owns the operation from there to its
//!    end: it orders, sends, aborts, repeats and ends. Dropping handles changes nothing.
//! 4. `link::driver` carries messages between that state machine and the mailbox. The thread that
//!    waits does it, else the one in the background. `link::wait` is the only place that sleeps.
//! 5. The end of an operation is a result, set once, in its `Event`; callbacks and wakers run after
//!    the lock is released.
//! 6. `graph` derives from declared accesses which tasks wait for which. `executor::engine` knows
//!    runs and ready tasks only and offers them to *places*, which never wait: host threads, harts
//!    scheduled by the host, harts scheduled by a hart, launches.
//!
//! # Words
//!
//! | Word | Meaning |
//! |---|---|
//! | operation | what a caller asked for; has a number that is never used again |
//! | command | one message to the device; named by a wire tag while it is in flight |
//! | load | a command with the memory that belongs to it until it is answered |
//! | lane | a stream, as the state machine sees it |
//! | link | everything between an accepted operation and its end |
//! | task, run | a node of a graph; one execution of a graph |
//! | place | what runs tasks |
//! | cell, handshake | the memory, and the protocol, by which a scheduler hands tasks to a worker |
//! | hart, shire | a hardware thread; 32 cores of two harts each, which share a cache |

mod clock;
mod config;
pub mod core_dump;
mod device;
mod error;
mod event;
pub mod executor;
pub mod graph;
#[cfg(feature = "unstable-handshake")]
pub mod handshake;
#[cfg(not(feature = "unstable-handshake"))]
mod handshake;
pub mod kernel;
mod link;
pub mod management;
pub mod memory;
mod profile;
mod properties;
mod refusal;
#[cfg(doctest)]
mod refused;
mod report;
mod site;
mod stream;
mod sync;
mod timeline;
pub mod trace;

pub use clock::{Clock, SystemClock};
pub use config::{Config, Drain};
pub use device::{
    Device, NoPeer, PeerPath, Recovery, RecoveryError, RecoveryPolicy, RecoveryStep, Remedy,
};
pub use error::{Error, LoadError, OpenError, Result};
pub use event::{Event, EventFuture, Remains, Transfer, TransferError, TransferFuture};
pub use kernel::{Kernel, KernelArgs, Launch, LaunchFailure, Module};
pub use link::{
    Activity, Counters, DeviceError, DeviceErrors, EventState, Priority, StreamError, StreamErrors,
};
pub use management::Management;
pub use memory::{ArraySlice, DeviceArray, DeviceBuffer, DeviceSlice, HostBuffer, MemoryStats};
pub use profile::{
    Call, ClockFit, DeviceSpan, Profile, ProfileFormat, ProfileWriter, Profiler, Record,
};
pub use properties::{
    AddressRange, ArchRevision, Backend, CacheKind, CacheLevel, CopyPath, CopyPaths, FormFactor,
    Properties,
};
pub use refusal::Refusal;
pub use report::Report;
pub use site::Site;
pub use stream::{
    Forwarded, ForwardedLaunch, LaunchAnswer, ListedCopy, MapPath, Mapping, Stream, StreamOptions,
    UnmapError,
};
pub use timeline::Timeline;

pub use et_devapi::msg::ops::{FirmwareType, Times, Version};

/// What a device answers, as [`Error`], [`Refusal`] and [`LaunchFailure`] have it. Spec: §7
pub mod status {
    pub use et_devapi::msg::ops::{
        AbortStatus, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus,
        FirmwareVersionStatus, LaunchStatus, TraceConfigStatus, TraceControlStatus,
    };
}
