//! Responses and events: read by the host, written by the device.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    AbortRsp, AbortStatus, CmResetRsp, CmResetStatus, CompatibilityRsp, CompatibilityStatus,
    DmaRsp, DmaStatus, EchoRsp, EchoStatus, EncodeError, FirmwareType, FirmwareVersionRsp,
    FirmwareVersionStatus, FwErrorEvent, FwErrorType, KernelAbortRsp, KernelAbortStatus,
    KernelErrorBlock, KernelLaunchRsp, LaunchStatus, MessageError, MsgId, TraceBufferFullEvent,
    TraceConfigStatus, TraceControlStatus, TraceRtConfigRsp, TraceRtControlRsp,
};
use crate::msg::{CommandFlags, HEADER_BYTES, Header, Tag};

/// Times of a command in cycles of the minion clock. Spec: §11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Cycle counter when the batch of the command was picked up.
    pub start: u64,
    /// From then until the command was dispatched.
    pub wait: u64,
    /// From dispatch until completion; 0 if the command was rejected.
    pub execute: u64,
}

/// A version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Incompatible changes.
    pub major: u16,
    /// Additions.
    pub minor: u16,
    /// Corrections.
    pub patch: u16,
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The error block of a failed launch. Spec: §9.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchError {
    /// Exception buffer of the launch, or 0.
    pub exception_buffer: u64,
    /// Trace buffer of the launch, or 0.
    pub trace_buffer: u64,
    /// Shires with an exception or a system abort.
    pub shire_mask: u64,
}

/// A message of the operations completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// Answer to a compatibility check. Spec: §7.2.
    Compatibility {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: CompatibilityStatus,
        /// The device's version; undefined unless the status is success.
        version: Version,
    },
    /// Answer to a firmware version query. Spec: §7.3.
    FirmwareVersion {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: FirmwareVersionStatus,
        /// The version.
        version: Version,
        /// Which firmware.
        firmware: FirmwareType,
    },
    /// Answer to an echo. Spec: §7.4.
    Echo {
        /// Tag of the command.
        tag: Tag,
        /// Cycle counter of the device.
        start: u64,
        /// Result.
        status: EchoStatus,
    },
    /// Answer to an abort. Spec: §7.5.
    Abort {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: AbortStatus,
    },
    /// Result of a launch. Spec: §7.6, §9.4.
    Launch {
        /// Tag of the command.
        tag: Tag,
        /// Times.
        times: Times,
        /// Result.
        status: LaunchStatus,
        /// The error block, if the response has the long form.
        error: Option<LaunchError>,
    },
    /// Answer to a kernel abort. Spec: §7.7.
    KernelAbort {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: KernelAbortStatus,
    },
    /// Result of a read list. Spec: §7.8.
    DmaRead {
        /// Tag of the command.
        tag: Tag,
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a write list. Spec: §7.8.
    DmaWrite {
        /// Tag of the command.
        tag: Tag,
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a peer-to-peer read list. Spec: §7.9.
    P2pRead {
        /// Tag of the command.
        tag: Tag,
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a peer-to-peer write list. Spec: §7.9.
    P2pWrite {
        /// Tag of the command.
        tag: Tag,
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Answer to a trace configuration. Spec: §7.10.
    TraceConfig {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: TraceConfigStatus,
    },
    /// Answer to a trace control. Spec: §7.11.
    TraceControl {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: TraceControlStatus,
    },
    /// Answer to a compute reset. Spec: §7.12.
    CmReset {
        /// Tag of the command.
        tag: Tag,
        /// Result.
        status: CmResetStatus,
    },
    /// Firmware error event. Spec: §10.4.
    FwError {
        /// Type.
        error: FwErrorType,
        /// Depends on the type.
        payload: u64,
    },
    /// A firmware trace buffer reached its threshold. Spec: §10.4.
    TraceBufferFull {
        /// The threshold in bytes.
        data_size: u32,
        /// Spec: §16.1.
        buffer_type: u8,
    },
    /// A message of a kind this version does not know.
    Unknown {
        /// Its tag field.
        tag: Tag,
        /// Its id.
        msg_id: u16,
    },
}

/// Reads a structure that fills the message exactly.
fn exact<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    msg_id: u16,
    message: &[u8],
) -> Result<&T, MessageError> {
    T::ref_from_bytes(message).map_err(|_| MessageError::Length { msg_id, len: message.len() })
}

impl Completion {
    /// Reads a message of exactly the bytes its header claims.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are fewer than a header, differ from the header's claim, or do
    /// not fit the kind.
    pub fn parse(message: &[u8]) -> Result<Self, MessageError> {
        let len = message.len();
        let (header, _) =
            Header::read_from_prefix(message).map_err(|_| MessageError::NoHeader { len })?;
        let (msg_id, tag) = (header.msg_id.get(), header.tag());
        let claimed = usize::from(header.size.get()).saturating_add(HEADER_BYTES);
        if claimed != len {
            return Err(MessageError::Size { msg_id, claimed, len });
        }
        let Some(id) = MsgId::from_u16(msg_id) else {
            return Ok(Self::Unknown { tag, msg_id });
        };
        let status = |code: zerocopy::little_endian::U32| code.get();
        Ok(match id {
            MsgId::CompatibilityRsp => {
                let m: &CompatibilityRsp = exact(msg_id, message)?;
                let (major, minor, patch) = (m.major.get(), m.minor.get(), m.patch.get());
                let version = Version { major, minor, patch };
                Self::Compatibility { tag, status: status(m.status).into(), version }
            }
            MsgId::FirmwareVersionRsp => {
                let m: &FirmwareVersionRsp = exact(msg_id, message)?;
                let (major, minor, patch) = (m.major.get(), m.minor.get(), m.patch.get());
                let version = Version { major, minor, patch };
                let firmware = u32::from(m.r#type).into();
                Self::FirmwareVersion { tag, status: status(m.status).into(), version, firmware }
            }
            MsgId::EchoRsp => {
                let m: &EchoRsp = exact(msg_id, message)?;
                let start = m.device_cmd_start_ts.get();
                Self::Echo { tag, start, status: status(m.status).into() }
            }
            MsgId::AbortRsp => {
                let m: &AbortRsp = exact(msg_id, message)?;
                Self::Abort { tag, status: status(m.status).into() }
            }
            MsgId::KernelLaunchRsp => Self::parse_launch(tag, message)?,
            MsgId::KernelAbortRsp => {
                let m: &KernelAbortRsp = exact(msg_id, message)?;
                Self::KernelAbort { tag, status: status(m.status).into() }
            }
            MsgId::DmaReadListRsp
            | MsgId::DmaWriteListRsp
            | MsgId::P2pDmaReadListRsp
            | MsgId::P2pDmaWriteListRsp => {
                let m: &DmaRsp = exact(msg_id, message)?;
                let times = Times {
                    start: m.device_cmd_start_ts.get(),
                    wait: m.device_cmd_wait_dur.get(),
                    execute: m.device_cmd_execute_dur.get(),
                };
                let status = status(m.status).into();
                match id {
                    MsgId::DmaReadListRsp => Self::DmaRead { tag, times, status },
                    MsgId::DmaWriteListRsp => Self::DmaWrite { tag, times, status },
                    MsgId::P2pDmaReadListRsp => Self::P2pRead { tag, times, status },
                    _ => Self::P2pWrite { tag, times, status },
                }
            }
            MsgId::TraceRtConfigRsp => {
                let m: &TraceRtConfigRsp = exact(msg_id, message)?;
                Self::TraceConfig { tag, status: status(m.status).into() }
            }
            MsgId::TraceRtControlRsp => {
                let m: &TraceRtControlRsp = exact(msg_id, message)?;
                Self::TraceControl { tag, status: status(m.status).into() }
            }
            MsgId::CmResetRsp => {
                let m: &CmResetRsp = exact(msg_id, message)?;
                Self::CmReset { tag, status: status(m.status).into() }
            }
            MsgId::FwError => {
                let m: &FwErrorEvent = exact(msg_id, message)?;
                Self::FwError { error: status(m.error_type).into(), payload: m.payload.get() }
            }
            MsgId::TraceBufferFull => {
                let m: &TraceBufferFullEvent = exact(msg_id, message)?;
                Self::TraceBufferFull { data_size: m.data_size.get(), buffer_type: m.buffer_type }
            }
            _ => Self::Unknown { tag, msg_id },
        })
    }

    /// The form is told by the length, not by the status. Spec: §9.4.
    fn parse_launch(tag: Tag, message: &[u8]) -> Result<Self, MessageError> {
        let bad =
            MessageError::Length { msg_id: MsgId::KernelLaunchRsp.as_u16(), len: message.len() };
        let (m, rest) = KernelLaunchRsp::ref_from_prefix(message).map_err(|_| bad)?;
        let error = if rest.is_empty() {
            None
        } else {
            let block = KernelErrorBlock::ref_from_bytes(rest).map_err(|_| bad)?;
            Some(LaunchError {
                exception_buffer: block.umode_exception_buffer_ptr.get(),
                trace_buffer: block.umode_trace_buffer_ptr.get(),
                shire_mask: block.cm_shire_mask.get(),
            })
        };
        let times = Times {
            start: m.device_cmd_start_ts.get(),
            wait: m.device_cmd_wait_dur.get(),
            execute: m.device_cmd_execute_dur.get(),
        };
        Ok(Self::Launch { tag, times, status: m.status.get().into(), error })
    }

    /// Returns the tag of the command that is answered; `None` for events.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        match *self {
            Self::Compatibility { tag, .. }
            | Self::FirmwareVersion { tag, .. }
            | Self::Echo { tag, .. }
            | Self::Abort { tag, .. }
            | Self::Launch { tag, .. }
            | Self::KernelAbort { tag, .. }
            | Self::DmaRead { tag, .. }
            | Self::DmaWrite { tag, .. }
            | Self::P2pRead { tag, .. }
            | Self::P2pWrite { tag, .. }
            | Self::TraceConfig { tag, .. }
            | Self::TraceControl { tag, .. }
            | Self::CmReset { tag, .. }
            | Self::Unknown { tag, .. } => Some(tag),
            Self::FwError { .. } | Self::TraceBufferFull { .. } => None,
        }
    }

    /// Writes the message into `out`; returns its length in bytes. The inverse of
    /// [`parse`](Self::parse).
    ///
    /// A message of unknown kind is written as a header with eight zero bytes.
    ///
    /// # Errors
    /// [`EncodeError::BufferTooSmall`].
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let pad = 0.into();
        match *self {
            Self::Compatibility { tag, status, version } => put(
                out,
                &CompatibilityRsp {
                    header: rsp::<CompatibilityRsp>(MsgId::CompatibilityRsp, tag),
                    status: u32::from(status).into(),
                    major: version.major.into(),
                    minor: version.minor.into(),
                    patch: version.patch.into(),
                    pad: [0; 6],
                },
            ),
            Self::FirmwareVersion { tag, status, version, firmware } => put(
                out,
                &FirmwareVersionRsp {
                    header: rsp::<FirmwareVersionRsp>(MsgId::FirmwareVersionRsp, tag),
                    status: u32::from(status).into(),
                    major: version.major.into(),
                    minor: version.minor.into(),
                    patch: version.patch.into(),
                    r#type: u8::try_from(u32::from(firmware)).unwrap_or(u8::MAX),
                    pad: [0; 5],
                },
            ),
            Self::Echo { tag, start, status } => put(
                out,
                &EchoRsp {
                    header: rsp::<EchoRsp>(MsgId::EchoRsp, tag),
                    device_cmd_start_ts: start.into(),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::Abort { tag, status } => put(
                out,
                &AbortRsp {
                    header: rsp::<AbortRsp>(MsgId::AbortRsp, tag),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::Launch { tag, times, status, error } => {
                let mut header = rsp::<KernelLaunchRsp>(MsgId::KernelLaunchRsp, tag);
                if error.is_some() {
                    let long = size_of::<KernelLaunchRsp>()
                        .saturating_add(size_of::<KernelErrorBlock>())
                        .saturating_sub(HEADER_BYTES);
                    header.size = u16::try_from(long).unwrap_or(u16::MAX).into();
                }
                let fixed = KernelLaunchRsp {
                    header,
                    device_cmd_start_ts: times.start.into(),
                    device_cmd_execute_dur: times.execute.into(),
                    device_cmd_wait_dur: times.wait.into(),
                    status: u32::from(status).into(),
                    pad,
                };
                let len = put(out, &fixed)?;
                let Some(error) = error else { return Ok(len) };
                let block = KernelErrorBlock {
                    umode_exception_buffer_ptr: error.exception_buffer.into(),
                    umode_trace_buffer_ptr: error.trace_buffer.into(),
                    cm_shire_mask: error.shire_mask.into(),
                };
                let rest = out.get_mut(len..).unwrap_or_default();
                Ok(len.saturating_add(put(rest, &block)?))
            }
            Self::KernelAbort { tag, status } => put(
                out,
                &KernelAbortRsp {
                    header: rsp::<KernelAbortRsp>(MsgId::KernelAbortRsp, tag),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::DmaRead { tag, times, status } => {
                put(out, &dma(MsgId::DmaReadListRsp, tag, times, status))
            }
            Self::DmaWrite { tag, times, status } => {
                put(out, &dma(MsgId::DmaWriteListRsp, tag, times, status))
            }
            Self::P2pRead { tag, times, status } => {
                put(out, &dma(MsgId::P2pDmaReadListRsp, tag, times, status))
            }
            Self::P2pWrite { tag, times, status } => {
                put(out, &dma(MsgId::P2pDmaWriteListRsp, tag, times, status))
            }
            Self::TraceConfig { tag, status } => put(
                out,
                &TraceRtConfigRsp {
                    header: rsp::<TraceRtConfigRsp>(MsgId::TraceRtConfigRsp, tag),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::TraceControl { tag, status } => put(
                out,
                &TraceRtControlRsp {
                    header: rsp::<TraceRtControlRsp>(MsgId::TraceRtControlRsp, tag),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::CmReset { tag, status } => put(
                out,
                &CmResetRsp {
                    header: rsp::<CmResetRsp>(MsgId::CmResetRsp, tag),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Self::FwError { error, payload } => put(
                out,
                &FwErrorEvent {
                    header: rsp::<FwErrorEvent>(MsgId::FwError, Tag::EVENT),
                    payload: payload.into(),
                    error_type: u32::from(error).into(),
                    pad: [0; 4],
                },
            ),
            Self::TraceBufferFull { data_size, buffer_type } => put(
                out,
                &TraceBufferFullEvent {
                    header: rsp::<TraceBufferFullEvent>(MsgId::TraceBufferFull, Tag::EVENT),
                    data_size: data_size.into(),
                    buffer_type,
                    pad: [0; 3],
                },
            ),
            Self::Unknown { tag, msg_id } => {
                let len = put(out, &Header::new(8, tag, msg_id, CommandFlags::EMPTY))?;
                Ok(len.saturating_add(put(out.get_mut(len..).unwrap_or_default(), &[0u8; 8])?))
            }
        }
    }
}

/// The header of a response, whose size does not count it. Spec: §6.
fn rsp<T>(id: MsgId, tag: Tag) -> Header {
    let size = size_of::<T>().saturating_sub(HEADER_BYTES);
    Header::new(u16::try_from(size).unwrap_or(u16::MAX), tag, id.as_u16(), CommandFlags::EMPTY)
}

fn dma(id: MsgId, tag: Tag, times: Times, status: DmaStatus) -> DmaRsp {
    DmaRsp {
        header: rsp::<DmaRsp>(id, tag),
        device_cmd_start_ts: times.start.into(),
        device_cmd_execute_dur: times.execute.into(),
        device_cmd_wait_dur: times.wait.into(),
        status: u32::from(status).into(),
        pad: 0.into(),
    }
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], message: &T) -> Result<usize, EncodeError> {
    let bytes = message.as_bytes();
    let available = out.len();
    out.get_mut(..bytes.len())
        .ok_or(EncodeError::BufferTooSmall { needed: bytes.len(), available })?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}
