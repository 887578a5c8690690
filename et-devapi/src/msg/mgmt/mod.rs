//! The management interface: what the service processor is asked, and what it says.
//!
//! A command is the header and a payload; its answer the header, an [extension](ResponseExt) with a
//! status and a time, and a payload. [`calls`] ties each command to the types of its payloads.
//! Besides answers there are [events](Event), which nothing has asked for.
//!
//! Spec: §17

pub mod calls;
mod codes;
mod event;
mod frame;
mod stats;
mod wire;

pub use calls::{Call, CommandInfo, command_info};
pub use codes::{
    ActivePowerManagement, BreakpointEvent, DmStatus, EventClass, EventId, FirmwareStatus,
    HartFlag, HartStatus, LaneWidth, LinkSpeed, MemAccess, Module, PcieReset, Pll, PowerState,
    Privilege, StatsControl, StatsKind, StepClock, ThrottleState, TraceControl, TraceEvents,
    TraceFilter,
};
pub use event::{Event, EventDetail};
pub use frame::{FrameError, MAX_COMMAND_BYTES, Message, Response, encode_command, parse_command};
pub use stats::{Extremes, MmStats, SpStats, WideExtremes};
pub use wire::{
    AsicVoltages, Breakpoint, ByteArg, CacheSizes, CertificateHash, DefaultRsp, ErrorCounts,
    EventMessage, FirmwareVersions, Frequencies, GprDump, HartControl, HartSelection, ImagePath,
    MemRead, MemWrite, MinionErrors, ModuleVoltages, Power, PublicKeys, Quad, ReadWrite,
    RegisterRead, RegisterWrite, Residency, ResponseExt, SetFrequency, SetVoltage, SingleStep,
    StatsRun, StatusWord, Temperatures, Text, TraceMasks, Uptime, WordArg,
};
