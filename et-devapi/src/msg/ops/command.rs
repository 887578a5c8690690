//! Reading commands, on the device's side.

use zerocopy::FromBytes;

use super::{
    CmResetCmd, DmaReadNode, DmaWriteNode, FirmwareVersionCmd, KernelAbortCmd, KernelLaunchCmd,
    MessageError, MsgId, P2pReadNode, P2pWriteNode, TraceRtConfigCmd, TraceRtControlCmd,
};
use crate::msg::{HEADER_BYTES, Header, Tag};

/// A command as the device reads it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Compatibility check. Spec: §7.2.
    CheckCompatibility,
    /// Firmware version query. Spec: §7.3.
    FirmwareVersion {
        /// Which firmware; not checked.
        firmware_type: u8,
    },
    /// Echo. Spec: §7.4.
    Echo,
    /// Abort. Spec: §7.5.
    Abort,
    /// Kernel launch. Spec: §7.6.
    KernelLaunch(LaunchPayload<'a>),
    /// Kernel abort. Spec: §7.7.
    KernelAbort {
        /// Tag of the launch.
        launch: Tag,
    },
    /// DMA read list. Spec: §7.8.
    DmaReadList {
        /// Whole nodes; their number is not checked.
        nodes: &'a [DmaReadNode],
    },
    /// DMA write list. Spec: §7.8.
    DmaWriteList {
        /// Whole nodes; their number is not checked.
        nodes: &'a [DmaWriteNode],
    },
    /// Peer-to-peer read list. Spec: §7.9.
    P2pDmaReadList {
        /// Whole nodes; their number is not checked.
        nodes: &'a [P2pReadNode],
    },
    /// Peer-to-peer write list. Spec: §7.9.
    P2pDmaWriteList {
        /// Whole nodes; their number is not checked.
        nodes: &'a [P2pWriteNode],
    },
    /// Trace configuration. Spec: §7.10.
    TraceRtConfig(&'a TraceRtConfigCmd),
    /// Trace control. Spec: §7.11.
    TraceRtControl(&'a TraceRtControlCmd),
    /// Compute reset. Spec: §7.12.
    CmReset {
        /// Ignored by firmware.
        shire_mask: u64,
    },
    /// Anything else.
    Unknown {
        /// Its id.
        msg_id: u16,
    },
}

/// A launch with its payload.
#[derive(Clone, Copy, Debug)]
pub enum LaunchPayload<'a> {
    /// The fixed part and what follows it.
    Whole {
        /// The fixed part.
        cmd: &'a KernelLaunchCmd,
        /// The payload; its length is not checked.
        payload: &'a [u8],
    },
    /// Shorter than the fixed part: firmware computes a payload length below zero. Spec: §9.1.
    Short,
}

impl<'a> Command<'a> {
    /// Reads a command of exactly the bytes its header claims.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are fewer than a header, differ from the header's claim, or
    /// are fewer than the kind has.
    pub fn parse(message: &'a [u8]) -> Result<(Header, Self), MessageError> {
        let (header, body) = Header::read_from_prefix(message)
            .map_err(|_| MessageError::NoHeader { len: message.len() })?;
        let msg_id = header.msg_id.get();
        let claimed = usize::from(header.size.get());
        if claimed != message.len() {
            return Err(MessageError::Size { msg_id, claimed, len: message.len() });
        }
        let short = MessageError::Length { msg_id, len: message.len() };
        let command = match MsgId::from_u16(msg_id) {
            Some(MsgId::CheckCompatibilityCmd) => Self::CheckCompatibility,
            Some(MsgId::FirmwareVersionCmd) => {
                let (cmd, _) = FirmwareVersionCmd::ref_from_prefix(message).map_err(|_| short)?;
                Self::FirmwareVersion { firmware_type: cmd.firmware_type }
            }
            Some(MsgId::EchoCmd) => Self::Echo,
            Some(MsgId::AbortCmd) => Self::Abort,
            Some(MsgId::KernelLaunchCmd) => {
                Self::KernelLaunch(match KernelLaunchCmd::ref_from_prefix(message) {
                    Ok((cmd, payload)) => LaunchPayload::Whole { cmd, payload },
                    Err(_) => LaunchPayload::Short,
                })
            }
            Some(MsgId::KernelAbortCmd) => {
                let (cmd, _) = KernelAbortCmd::ref_from_prefix(message).map_err(|_| short)?;
                Self::KernelAbort { launch: Tag::new(cmd.kernel_launch_tag_id.get()) }
            }
            Some(MsgId::DmaReadListCmd) => Self::DmaReadList { nodes: nodes(body) },
            Some(MsgId::DmaWriteListCmd) => Self::DmaWriteList { nodes: nodes(body) },
            Some(MsgId::P2pDmaReadListCmd) => Self::P2pDmaReadList { nodes: nodes(body) },
            Some(MsgId::P2pDmaWriteListCmd) => Self::P2pDmaWriteList { nodes: nodes(body) },
            Some(MsgId::TraceRtConfigCmd) => {
                let (cmd, _) = TraceRtConfigCmd::ref_from_prefix(message).map_err(|_| short)?;
                Self::TraceRtConfig(cmd)
            }
            Some(MsgId::TraceRtControlCmd) => {
                let (cmd, _) = TraceRtControlCmd::ref_from_prefix(message).map_err(|_| short)?;
                Self::TraceRtControl(cmd)
            }
            Some(MsgId::CmResetCmd) => {
                let (cmd, _) = CmResetCmd::ref_from_prefix(message).map_err(|_| short)?;
                Self::CmReset { shire_mask: cmd.cm_shire_mask.get() }
            }
            _ => Self::Unknown { msg_id },
        };
        Ok((header, command))
    }

    /// Reads the bytes after the header of a list: whole nodes, a remainder is ignored. Spec: §8.
    #[must_use]
    pub fn body(message: &'a [u8]) -> &'a [u8] {
        message.get(HEADER_BYTES..).unwrap_or_default()
    }
}

fn nodes<T: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout + zerocopy::Unaligned>(
    body: &[u8],
) -> &[T] {
    // Nodes are not empty; `checked_div` only satisfies the compiler.
    // Firmware keeps the number in eight bits (Spec: §8).
    let count = body.len().checked_div(size_of::<T>()).unwrap_or(0) & 0xff;
    <[T]>::ref_from_prefix_with_elems(body, count).map(|(nodes, _)| nodes).unwrap_or_default()
}
