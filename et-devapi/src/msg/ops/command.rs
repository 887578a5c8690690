//! Commands: written by the host, read by the device.

use et_hal::DeviceAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    API_VERSION, AbortCmd, Body, CmResetCmd, CompatibilityCmd, CompatibilityStatus, DmaReadNode,
    DmaStatus, DmaWriteNode, EchoCmd, EchoStatus, EncodeError, FirmwareType, FirmwareVersionCmd,
    FirmwareVersionStatus, KernelAbortCmd, KernelAbortStatus, KernelLaunchCmd, Launch, LaunchError,
    LaunchStatus, MessageError, MsgId, P2pReadNode, P2pWriteNode, Times, TraceConfigStatus,
    TraceControl, TraceControlStatus, TraceRtConfig, TraceRtConfigCmd, TraceRtControlCmd,
    TraceRuntimes, write,
};
use crate::msg::{CommandFlags, HEADER_BYTES, Header, Tag};

/// Most nodes a list can have by the width of the DIR's field. Spec: §3.5.
pub const MAX_LIST_NODES: usize = 15;
/// Length of the largest command in bytes: a list with [`MAX_LIST_NODES`] nodes.
pub const MAX_COMMAND_BYTES: usize = HEADER_BYTES + 32 * MAX_LIST_NODES;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Compatibility check. Spec: §7.2.
    CheckCompatibility,
    /// Firmware version query. Spec: §7.3.
    FirmwareVersion {
        /// Which firmware.
        firmware: FirmwareType,
    },
    /// Echo. Spec: §7.4.
    Echo,
    /// Abort, for a high-priority queue. Spec: §7.5, §10.1.
    Abort,
    /// Kernel launch. Spec: §7.6.
    KernelLaunch(Launch<'a>),
    /// Kernel abort. Spec: §7.7, §10.2.
    ///
    /// It must not carry a barrier, which would wait for the kernel to be aborted.
    KernelAbort {
        /// Tag of the launch.
        launch: Tag,
    },
    /// DMA read list: device to host. Spec: §7.8, §8.
    DmaReadList {
        /// One to [`MAX_LIST_NODES`] nodes; what was read may have any number.
        nodes: &'a [DmaReadNode],
    },
    /// DMA write list: host to device. Spec: §7.8, §8.
    DmaWriteList {
        /// As above.
        nodes: &'a [DmaWriteNode],
    },
    /// Peer-to-peer read list: this device's memory to the peer's. Spec: §7.9.
    P2pDmaReadList {
        /// As above.
        nodes: &'a [P2pReadNode],
    },
    /// Peer-to-peer write list: the peer's memory to this device's. Spec: §7.9.
    P2pDmaWriteList {
        /// As above.
        nodes: &'a [P2pWriteNode],
    },
    /// Trace configuration. Spec: §7.10.
    TraceRtConfig(TraceRtConfig),
    /// Trace control. Spec: §7.11.
    TraceRtControl {
        /// Whose trace.
        runtimes: TraceRuntimes,
        /// How it is switched.
        control: TraceControl,
    },
    /// Compute reset, for a high-priority queue. Spec: §7.12, §10.3.
    CmReset {
        /// Ignored by firmware.
        shire_mask: u64,
    },
    /// A command of fewer bytes than its kind has. It cannot be written.
    Short {
        /// Its kind.
        id: MsgId,
    },
    /// Anything else; written with eight zero bytes.
    Unknown {
        /// Its id.
        msg_id: u16,
    },
}

impl<'a> Command<'a> {
    /// Reads a command of exactly the bytes its header claims.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are fewer than a header, or differ from the header's claim.
    pub fn parse(message: &'a [u8]) -> Result<(Header, Self), MessageError> {
        let (header, body) = Header::read_from_prefix(message)
            .map_err(|_| MessageError::NoHeader { len: message.len() })?;
        let msg_id = header.msg_id.get();
        let claimed = usize::from(header.size.get());
        if claimed != message.len() {
            return Err(MessageError::Size { msg_id, claimed, len: message.len() });
        }
        let command = match MsgId::from_u16(msg_id) {
            Some(id) => Self::read(id, message, body).unwrap_or(Self::Short { id }),
            None => Self::Unknown { msg_id },
        };
        Ok((header, command))
    }

    /// Returns `None` if the message is too short.
    fn read(id: MsgId, message: &'a [u8], body: &'a [u8]) -> Option<Self> {
        Some(match id {
            MsgId::CheckCompatibilityCmd => Self::CheckCompatibility,
            MsgId::FirmwareVersionCmd => Self::FirmwareVersion {
                firmware: u32::from(prefix::<FirmwareVersionCmd>(message)?.firmware_type).into(),
            },
            MsgId::EchoCmd => Self::Echo,
            MsgId::AbortCmd => Self::Abort,
            MsgId::KernelLaunchCmd => {
                let (cmd, payload) = KernelLaunchCmd::ref_from_prefix(message).ok()?;
                let address = |value: u64| Some(DeviceAddr::new(value)).filter(|_| value != 0);
                Self::KernelLaunch(Launch {
                    entry: DeviceAddr::new(cmd.code_start_address.get()),
                    args: address(cmd.pointer_to_args.get()),
                    exception_buffer: address(cmd.exception_buffer.get()),
                    shire_mask: cmd.shire_mask.get(),
                    payload,
                })
            }
            MsgId::KernelAbortCmd => Self::KernelAbort {
                launch: Tag::new(prefix::<KernelAbortCmd>(message)?.kernel_launch_tag_id.get()),
            },
            MsgId::DmaReadListCmd => Self::DmaReadList { nodes: nodes(body) },
            MsgId::DmaWriteListCmd => Self::DmaWriteList { nodes: nodes(body) },
            MsgId::P2pDmaReadListCmd => Self::P2pDmaReadList { nodes: nodes(body) },
            MsgId::P2pDmaWriteListCmd => Self::P2pDmaWriteList { nodes: nodes(body) },
            MsgId::TraceRtConfigCmd => {
                let cmd: &TraceRtConfigCmd = prefix(message)?;
                Self::TraceRtConfig(TraceRtConfig {
                    shire_mask: cmd.shire_mask.get(),
                    thread_mask: cmd.thread_mask.get(),
                    event_mask: cmd.event_mask.get(),
                    filter_mask: cmd.filter_mask.get(),
                    threshold: cmd.threshold.get(),
                })
            }
            MsgId::TraceRtControlCmd => {
                let cmd: &TraceRtControlCmd = prefix(message)?;
                Self::TraceRtControl {
                    runtimes: TraceRuntimes::from_bits(cmd.rt_type.get()),
                    control: TraceControl::from_bits(cmd.control.get()),
                }
            }
            MsgId::CmResetCmd => {
                Self::CmReset { shire_mask: prefix::<CmResetCmd>(message)?.cm_shire_mask.get() }
            }
            id => Self::Unknown { msg_id: id.as_u16() },
        })
    }

    /// Writes the command into `out`; returns its length in bytes. The inverse of
    /// [`parse`](Self::parse).
    ///
    /// The flags of a launch's payload are the caller's to give:
    /// [`LaunchPayload::flags`](super::LaunchPayload::flags).
    ///
    /// # Errors
    /// [`EncodeError`]: the buffer is too small, a list has no or too many nodes, the payload of a
    /// launch is too long, or the command is [`Short`](Self::Short).
    #[inline]
    pub fn encode(
        &self,
        tag: Tag,
        flags: CommandFlags,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let header = Header::new(0, tag, self.msg_id(), flags);
        match *self {
            Self::CheckCompatibility => put(out, &CompatibilityCmd { header, dummy: 0.into() }),
            Self::FirmwareVersion { firmware } => {
                let firmware_type = u8::try_from(u32::from(firmware)).unwrap_or(u8::MAX);
                put(out, &FirmwareVersionCmd { header, firmware_type, pad: [0; 7] })
            }
            Self::Echo => put(out, &EchoCmd { header, dummy: 0.into() }),
            Self::Abort => put(out, &AbortCmd { header, tag_id: 0.into(), pad: [0; 6] }),
            Self::KernelLaunch(launch) => {
                let (len, max) = (launch.payload.len(), super::MAX_LAUNCH_PAYLOAD);
                if len > max {
                    return Err(EncodeError::PayloadTooLarge { len, max });
                }
                let fixed = KernelLaunchCmd {
                    header,
                    code_start_address: launch.entry.as_u64().into(),
                    pointer_to_args: launch.args.map_or(0, DeviceAddr::as_u64).into(),
                    exception_buffer: launch.exception_buffer.map_or(0, DeviceAddr::as_u64).into(),
                    shire_mask: launch.shire_mask.into(),
                };
                write(out, &fixed, launch.payload, 0)
            }
            Self::KernelAbort { launch } => {
                let kernel_launch_tag_id = launch.as_u16().into();
                put(out, &KernelAbortCmd { header, kernel_launch_tag_id, pad: [0; 6] })
            }
            Self::DmaReadList { nodes } => list(out, &header, nodes),
            Self::DmaWriteList { nodes } => list(out, &header, nodes),
            Self::P2pDmaReadList { nodes } => list(out, &header, nodes),
            Self::P2pDmaWriteList { nodes } => list(out, &header, nodes),
            Self::TraceRtConfig(config) => put(
                out,
                &TraceRtConfigCmd {
                    header,
                    shire_mask: config.shire_mask.into(),
                    thread_mask: config.thread_mask.into(),
                    event_mask: config.event_mask.into(),
                    filter_mask: config.filter_mask.into(),
                    threshold: config.threshold.into(),
                    pad: 0.into(),
                },
            ),
            Self::TraceRtControl { runtimes, control } => {
                let (rt_type, control) = (runtimes.bits().into(), control.bits().into());
                put(out, &TraceRtControlCmd { header, rt_type, control })
            }
            Self::CmReset { shire_mask } => {
                put(out, &CmResetCmd { header, cm_shire_mask: shire_mask.into() })
            }
            Self::Short { id } => Err(EncodeError::Short { msg_id: id.as_u16() }),
            Self::Unknown { .. } => write(out, &header, &[0; 8], 0),
        }
    }

    /// Returns the id on the wire.
    #[must_use]
    pub fn msg_id(&self) -> u16 {
        let id = match *self {
            Self::CheckCompatibility => MsgId::CheckCompatibilityCmd,
            Self::FirmwareVersion { .. } => MsgId::FirmwareVersionCmd,
            Self::Echo => MsgId::EchoCmd,
            Self::Abort => MsgId::AbortCmd,
            Self::KernelLaunch(_) => MsgId::KernelLaunchCmd,
            Self::KernelAbort { .. } => MsgId::KernelAbortCmd,
            Self::DmaReadList { .. } => MsgId::DmaReadListCmd,
            Self::DmaWriteList { .. } => MsgId::DmaWriteListCmd,
            Self::P2pDmaReadList { .. } => MsgId::P2pDmaReadListCmd,
            Self::P2pDmaWriteList { .. } => MsgId::P2pDmaWriteListCmd,
            Self::TraceRtConfig(_) => MsgId::TraceRtConfigCmd,
            Self::TraceRtControl { .. } => MsgId::TraceRtControlCmd,
            Self::CmReset { .. } => MsgId::CmResetCmd,
            Self::Short { id } => id,
            Self::Unknown { msg_id } => return msg_id,
        };
        id.as_u16()
    }

    /// Returns what firmware answers if an abort catches the command before it was started: each
    /// kind has its own code for that. `None` for what a submission queue does not take, which
    /// gets an event instead.
    ///
    /// Spec: §5.5, §10.1
    #[must_use]
    pub fn rejected(&self, times: Times) -> Option<Body> {
        let status = DmaStatus::HostAborted;
        Some(match MsgId::from_u16(self.msg_id())? {
            MsgId::CheckCompatibilityCmd => Body::Compatibility {
                status: CompatibilityStatus::HostAborted,
                version: API_VERSION,
            },
            MsgId::FirmwareVersionCmd => Body::FirmwareVersion {
                status: FirmwareVersionStatus::HostAborted,
                version: API_VERSION,
                firmware: match *self {
                    Self::FirmwareVersion { firmware } => firmware,
                    _ => 0.into(),
                },
            },
            MsgId::EchoCmd => Body::Echo { start: times.start, status: EchoStatus::HostAborted },
            MsgId::KernelLaunchCmd => {
                let error = Some(LaunchError::default());
                Body::Launch { times, status: LaunchStatus::HostAborted, error }
            }
            MsgId::KernelAbortCmd => Body::KernelAbort { status: KernelAbortStatus::HostAborted },
            MsgId::DmaReadListCmd => Body::DmaRead { times, status },
            MsgId::DmaWriteListCmd => Body::DmaWrite { times, status },
            MsgId::P2pDmaReadListCmd => Body::P2pRead { times, status },
            MsgId::P2pDmaWriteListCmd => Body::P2pWrite { times, status },
            MsgId::TraceRtConfigCmd => Body::TraceConfig { status: TraceConfigStatus::HostAborted },
            MsgId::TraceRtControlCmd => {
                Body::TraceControl { status: TraceControlStatus::HostAborted }
            }
            _ => return None,
        })
    }
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], message: &T) -> Result<usize, EncodeError> {
    write(out, message, &[], 0)
}

fn list<T: IntoBytes + Immutable>(
    out: &mut [u8],
    header: &Header,
    nodes: &[T],
) -> Result<usize, EncodeError> {
    if !(1..=MAX_LIST_NODES).contains(&nodes.len()) {
        return Err(EncodeError::NodeCount { count: nodes.len(), max: MAX_LIST_NODES });
    }
    write(out, header, nodes.as_bytes(), 0)
}

fn prefix<T: FromBytes + Immutable + KnownLayout + Unaligned>(message: &[u8]) -> Option<&T> {
    T::ref_from_prefix(message).ok().map(|(cmd, _)| cmd)
}

/// Reads whole nodes; a remainder is ignored. Spec: §8.
fn nodes<T: FromBytes + Immutable + KnownLayout + Unaligned>(body: &[u8]) -> &[T] {
    // Nodes are not empty; `checked_div` only satisfies the compiler.
    // Firmware keeps the number in eight bits (Spec: §8).
    let count = body.len().checked_div(size_of::<T>()).unwrap_or(0) & 0xff;
    <[T]>::ref_from_prefix_with_elems(body, count).map(|(nodes, _)| nodes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_one_to_fifteen_nodes() {
        let nodes = [DmaWriteNode::new(1.into(), 2.into(), 3); 16];
        let mut out = [0; MAX_COMMAND_BYTES];
        let mut encode = |n| {
            let list = Command::DmaWriteList { nodes: &nodes[..n] };
            list.encode(Tag::new(0), CommandFlags::EMPTY, &mut out)
        };
        assert_eq!(encode(0), Err(EncodeError::NodeCount { count: 0, max: 15 }));
        assert_eq!(encode(15), Ok(488));
        assert_eq!(encode(16), Err(EncodeError::NodeCount { count: 16, max: 15 }));
    }

    #[test]
    fn a_small_buffer_is_refused() {
        assert_eq!(
            Command::Echo.encode(Tag::new(0), CommandFlags::EMPTY, &mut [0; 15]),
            Err(EncodeError::BufferTooSmall { needed: 16, available: 15 })
        );
    }
}
