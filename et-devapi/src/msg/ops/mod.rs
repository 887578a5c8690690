//! The operations interface: commands, responses, events.
//!
//! Spec: §7

mod command;
mod completion;
mod error;
mod launch;
mod status;
mod trace;
mod wire;

use zerocopy::{Immutable, IntoBytes};

pub use command::{Command, MAX_COMMAND_BYTES, MAX_LIST_NODES};
pub use completion::{Body, Completion, LaunchError, Times, Version};
pub use error::{EncodeError, MessageError};
pub use launch::{Launch, LaunchPayload, MAX_LAUNCH_PAYLOAD};
pub use status::{
    AbortStatus, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus, FirmwareType,
    FirmwareVersionStatus, FwErrorType, KernelAbortStatus, LaunchStatus, MsgId, TraceConfigStatus,
    TraceControlStatus,
};
pub use trace::{TraceControl, TraceRtConfig, TraceRuntimes};
pub use wire::{
    AbortCmd, CmResetCmd, CompatibilityCmd, CompatibilityRsp, DmaReadNode, DmaWriteNode, EchoCmd,
    EchoRsp, FirmwareVersionCmd, FirmwareVersionRsp, FwErrorEvent, KernelAbortCmd,
    KernelErrorBlock, KernelLaunchCmd, P2pReadNode, P2pWriteNode, StackConfig, StatusRsp, TimedRsp,
    TraceBufferFullEvent, TraceConfig, TraceRtConfigCmd, TraceRtControlCmd,
};

/// Major version of the operations interface that this crate speaks. Spec: §19.
pub const API_MAJOR: u16 = 2;
/// The version this crate was written from. Spec: §19.
pub const API_VERSION: Version = Version { major: 2, minor: 6, patch: 0 };

/// Writes a message that begins with a header, and its size into the header: all but `uncounted`
/// bytes. Returns its length in bytes.
#[inline]
fn write<T: IntoBytes + Immutable>(
    out: &mut [u8],
    fixed: &T,
    rest: &[u8],
    uncounted: usize,
) -> Result<usize, EncodeError> {
    let fixed = fixed.as_bytes();
    let needed = fixed.len().saturating_add(rest.len());
    let available = out.len();
    let message = out.get_mut(..needed).ok_or(EncodeError::BufferTooSmall { needed, available })?;
    let (head, tail) = message.split_at_mut(fixed.len());
    head.copy_from_slice(fixed);
    tail.copy_from_slice(rest);
    if let Some(size) = head.first_chunk_mut() {
        let counted = needed.saturating_sub(uncounted);
        *size = u16::try_from(counted).unwrap_or(u16::MAX).to_le_bytes();
    }
    Ok(needed)
}
