//! The operations interface: commands, responses, events.
//!
//! Spec: §7

mod command;
mod completion;
mod encode;
mod error;
mod status;
mod wire;

pub use command::{Command, LaunchPayload};
pub use completion::{Completion, LaunchError, Times, Version};
pub use encode::{
    LaunchParams, MAX_COMMAND_BYTES, MAX_LAUNCH_PAYLOAD, MAX_LIST_NODES, TraceControl,
    TraceRtConfig, TraceRuntimes, encode_abort, encode_cm_reset, encode_compatibility,
    encode_dma_read, encode_dma_write, encode_echo, encode_firmware_version, encode_kernel_abort,
    encode_launch, encode_p2p_read, encode_p2p_write, encode_trace_config, encode_trace_control,
};
pub use error::{EncodeError, MessageError};
pub use status::{
    AbortStatus, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus, FirmwareType,
    FirmwareVersionStatus, FwErrorType, KernelAbortStatus, LaunchStatus, MsgId, TraceConfigStatus,
    TraceControlStatus,
};
pub use wire::{
    AbortCmd, AbortRsp, CmResetCmd, CmResetRsp, CompatibilityCmd, CompatibilityRsp, DmaReadNode,
    DmaRsp, DmaWriteNode, EchoCmd, EchoRsp, FirmwareVersionCmd, FirmwareVersionRsp, FwErrorEvent,
    KernelAbortCmd, KernelAbortRsp, KernelErrorBlock, KernelLaunchCmd, KernelLaunchRsp,
    P2pReadNode, P2pWriteNode, StackConfig, TraceBufferFullEvent, TraceConfig, TraceRtConfigCmd,
    TraceRtConfigRsp, TraceRtControlCmd, TraceRtControlRsp,
};

/// Major version of the operations interface that this crate speaks. Spec: §19.
pub const API_MAJOR: u16 = 2;
/// The version this crate was written from. Spec: §19.
pub const API_VERSION: Version = Version { major: 2, minor: 6, patch: 0 };
