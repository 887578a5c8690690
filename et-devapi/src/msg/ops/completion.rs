//! Responses and events: read by the host, written by the device.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    AbortStatus, CmResetStatus, CompatibilityRsp, CompatibilityStatus, DmaStatus, EchoRsp,
    EchoStatus, EncodeError, FirmwareType, FirmwareVersionRsp, FirmwareVersionStatus, FwErrorEvent,
    FwErrorType, KernelAbortStatus, KernelErrorBlock, LaunchStatus, MessageError, MsgId, StatusRsp,
    TimedRsp, TraceBufferFullEvent, TraceConfigStatus, TraceControlStatus, write,
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
pub struct Completion {
    /// Tag of the command that is answered; [`Tag::EVENT`] in events.
    pub tag: Tag,
    /// What it says.
    pub body: Body,
}

/// What a message of the operations completion queue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Answer to a compatibility check. Spec: §7.2.
    Compatibility {
        /// Result.
        status: CompatibilityStatus,
        /// The device's version; undefined unless the status is success.
        version: Version,
    },
    /// Answer to a firmware version query. Spec: §7.3.
    FirmwareVersion {
        /// Result.
        status: FirmwareVersionStatus,
        /// The version.
        version: Version,
        /// Which firmware.
        firmware: FirmwareType,
    },
    /// Answer to an echo. Spec: §7.4.
    Echo {
        /// Cycle counter of the device.
        start: u64,
        /// Result.
        status: EchoStatus,
    },
    /// Answer to an abort. Spec: §7.5.
    Abort {
        /// Result.
        status: AbortStatus,
    },
    /// Result of a launch. Spec: §7.6, §9.4.
    Launch {
        /// Times.
        times: Times,
        /// Result.
        status: LaunchStatus,
        /// The error block, if the response has the long form.
        error: Option<LaunchError>,
    },
    /// Answer to a kernel abort. Spec: §7.7.
    KernelAbort {
        /// Result.
        status: KernelAbortStatus,
    },
    /// Result of a read list. Spec: §7.8.
    DmaRead {
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a write list. Spec: §7.8.
    DmaWrite {
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a peer-to-peer read list. Spec: §7.9.
    P2pRead {
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Result of a peer-to-peer write list. Spec: §7.9.
    P2pWrite {
        /// Times.
        times: Times,
        /// Result.
        status: DmaStatus,
    },
    /// Answer to a trace configuration. Spec: §7.10.
    TraceConfig {
        /// Result.
        status: TraceConfigStatus,
    },
    /// Answer to a trace control. Spec: §7.11.
    TraceControl {
        /// Result.
        status: TraceControlStatus,
    },
    /// Answer to a compute reset. Spec: §7.12.
    CmReset {
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
        /// Its id.
        msg_id: u16,
    },
}

impl Completion {
    /// Creates the answer to the command with a tag.
    #[must_use]
    pub const fn new(tag: Tag, body: Body) -> Self {
        Self { tag, body }
    }

    /// Creates an event.
    #[must_use]
    pub const fn event(body: Body) -> Self {
        Self { tag: Tag::EVENT, body }
    }

    /// Returns `true` if it answers a command; others are events, or of a kind that is not known.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        let body = &self.body;
        !matches!(body, Body::FwError { .. } | Body::TraceBufferFull { .. } | Body::Unknown { .. })
    }

    /// Reads a message of exactly the bytes its header claims.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are fewer than a header, differ from the header's claim, or do
    /// not fit the kind.
    pub fn parse(message: &[u8]) -> Result<Self, MessageError> {
        let len = message.len();
        let (header, _) =
            Header::read_from_prefix(message).map_err(|_| MessageError::NoHeader { len })?;
        let msg_id = header.msg_id.get();
        let claimed = usize::from(header.size.get()).saturating_add(HEADER_BYTES);
        if claimed != len {
            return Err(MessageError::Size { msg_id, claimed, len });
        }
        let body = match MsgId::from_u16(msg_id) {
            Some(id) => Body::read(id, message).ok_or(MessageError::Length { msg_id, len })?,
            None => Body::Unknown { msg_id },
        };
        Ok(Self { tag: header.tag(), body })
    }

    /// Writes the message into `out`; returns its length in bytes. The inverse of
    /// [`parse`](Self::parse).
    ///
    /// A message of unknown kind is written as a header with eight zero bytes.
    ///
    /// # Errors
    /// [`EncodeError::BufferTooSmall`].
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let with = |id: MsgId| Header::new(0, self.tag, id.as_u16(), CommandFlags::EMPTY);
        match self.body {
            Body::Compatibility { status, version } => put(
                out,
                &CompatibilityRsp {
                    header: with(MsgId::CompatibilityRsp),
                    status: u32::from(status).into(),
                    major: version.major.into(),
                    minor: version.minor.into(),
                    patch: version.patch.into(),
                    pad: [0; 6],
                },
            ),
            Body::FirmwareVersion { status, version, firmware } => put(
                out,
                &FirmwareVersionRsp {
                    header: with(MsgId::FirmwareVersionRsp),
                    status: u32::from(status).into(),
                    major: version.major.into(),
                    minor: version.minor.into(),
                    patch: version.patch.into(),
                    r#type: u8::try_from(u32::from(firmware)).unwrap_or(u8::MAX),
                    pad: [0; 5],
                },
            ),
            Body::Echo { start, status } => put(
                out,
                &EchoRsp {
                    header: with(MsgId::EchoRsp),
                    device_cmd_start_ts: start.into(),
                    status: u32::from(status).into(),
                    pad: [0; 4],
                },
            ),
            Body::Launch { times, status, error } => {
                let fixed = timed(with(MsgId::KernelLaunchRsp), times, status.into());
                let block = error.map(|error| KernelErrorBlock {
                    umode_exception_buffer_ptr: error.exception_buffer.into(),
                    umode_trace_buffer_ptr: error.trace_buffer.into(),
                    cm_shire_mask: error.shire_mask.into(),
                });
                let block = block.as_ref().map(IntoBytes::as_bytes).unwrap_or_default();
                write(out, &fixed, block, HEADER_BYTES)
            }
            Body::DmaRead { times, status } => {
                put(out, &timed(with(MsgId::DmaReadListRsp), times, status.into()))
            }
            Body::DmaWrite { times, status } => {
                put(out, &timed(with(MsgId::DmaWriteListRsp), times, status.into()))
            }
            Body::P2pRead { times, status } => {
                put(out, &timed(with(MsgId::P2pDmaReadListRsp), times, status.into()))
            }
            Body::P2pWrite { times, status } => {
                put(out, &timed(with(MsgId::P2pDmaWriteListRsp), times, status.into()))
            }
            Body::Abort { status } => put(out, &only(with(MsgId::AbortRsp), status.into())),
            Body::KernelAbort { status } => {
                put(out, &only(with(MsgId::KernelAbortRsp), status.into()))
            }
            Body::TraceConfig { status } => {
                put(out, &only(with(MsgId::TraceRtConfigRsp), status.into()))
            }
            Body::TraceControl { status } => {
                put(out, &only(with(MsgId::TraceRtControlRsp), status.into()))
            }
            Body::CmReset { status } => put(out, &only(with(MsgId::CmResetRsp), status.into())),
            Body::FwError { error, payload } => put(
                out,
                &FwErrorEvent {
                    header: with(MsgId::FwError),
                    payload: payload.into(),
                    error_type: u32::from(error).into(),
                    pad: [0; 4],
                },
            ),
            Body::TraceBufferFull { data_size, buffer_type } => put(
                out,
                &TraceBufferFullEvent {
                    header: with(MsgId::TraceBufferFull),
                    data_size: data_size.into(),
                    buffer_type,
                    pad: [0; 3],
                },
            ),
            Body::Unknown { msg_id } => {
                let header = Header::new(0, self.tag, msg_id, CommandFlags::EMPTY);
                write(out, &header, &[0; 8], HEADER_BYTES)
            }
        }
    }
}

impl Body {
    /// Returns `None` if the message has not the length of its kind.
    fn read(id: MsgId, message: &[u8]) -> Option<Self> {
        Some(match id {
            MsgId::CompatibilityRsp => {
                let m = CompatibilityRsp::ref_from_bytes(message).ok()?;
                let (major, minor, patch) = (m.major.get(), m.minor.get(), m.patch.get());
                let version = Version { major, minor, patch };
                Self::Compatibility { status: m.status.get().into(), version }
            }
            MsgId::FirmwareVersionRsp => {
                let m = FirmwareVersionRsp::ref_from_bytes(message).ok()?;
                let (major, minor, patch) = (m.major.get(), m.minor.get(), m.patch.get());
                let version = Version { major, minor, patch };
                let firmware = u32::from(m.r#type).into();
                Self::FirmwareVersion { status: m.status.get().into(), version, firmware }
            }
            MsgId::EchoRsp => {
                let m = EchoRsp::ref_from_bytes(message).ok()?;
                Self::Echo { start: m.device_cmd_start_ts.get(), status: m.status.get().into() }
            }
            MsgId::KernelLaunchRsp => {
                // The form is told by the length, not by the status (Spec: §9.4).
                let (fixed, rest) = message.split_at_checked(size_of::<TimedRsp>())?;
                let (times, status) = read_timed(fixed)?;
                let error = match rest {
                    [] => None,
                    rest => {
                        let block = KernelErrorBlock::ref_from_bytes(rest).ok()?;
                        Some(LaunchError {
                            exception_buffer: block.umode_exception_buffer_ptr.get(),
                            trace_buffer: block.umode_trace_buffer_ptr.get(),
                            shire_mask: block.cm_shire_mask.get(),
                        })
                    }
                };
                Self::Launch { times, status: status.into(), error }
            }
            MsgId::DmaReadListRsp => {
                let (times, status) = read_timed(message)?;
                Self::DmaRead { times, status: status.into() }
            }
            MsgId::DmaWriteListRsp => {
                let (times, status) = read_timed(message)?;
                Self::DmaWrite { times, status: status.into() }
            }
            MsgId::P2pDmaReadListRsp => {
                let (times, status) = read_timed(message)?;
                Self::P2pRead { times, status: status.into() }
            }
            MsgId::P2pDmaWriteListRsp => {
                let (times, status) = read_timed(message)?;
                Self::P2pWrite { times, status: status.into() }
            }
            MsgId::AbortRsp => Self::Abort { status: read_status(message)?.into() },
            MsgId::KernelAbortRsp => Self::KernelAbort { status: read_status(message)?.into() },
            MsgId::TraceRtConfigRsp => Self::TraceConfig { status: read_status(message)?.into() },
            MsgId::TraceRtControlRsp => Self::TraceControl { status: read_status(message)?.into() },
            MsgId::CmResetRsp => Self::CmReset { status: read_status(message)?.into() },
            MsgId::FwError => {
                let m = FwErrorEvent::ref_from_bytes(message).ok()?;
                Self::FwError { error: m.error_type.get().into(), payload: m.payload.get() }
            }
            MsgId::TraceBufferFull => {
                let m = TraceBufferFullEvent::ref_from_bytes(message).ok()?;
                Self::TraceBufferFull { data_size: m.data_size.get(), buffer_type: m.buffer_type }
            }
            id => Self::Unknown { msg_id: id.as_u16() },
        })
    }
}

fn read_status(message: &[u8]) -> Option<u32> {
    StatusRsp::ref_from_bytes(message).ok().map(|m| m.status.get())
}

fn read_timed(message: &[u8]) -> Option<(Times, u32)> {
    let m = TimedRsp::ref_from_bytes(message).ok()?;
    let times = Times {
        start: m.device_cmd_start_ts.get(),
        wait: m.device_cmd_wait_dur.get(),
        execute: m.device_cmd_execute_dur.get(),
    };
    Some((times, m.status.get()))
}

fn only(header: Header, status: u32) -> StatusRsp {
    StatusRsp { header, status: status.into(), pad: [0; 4] }
}

fn timed(header: Header, times: Times, status: u32) -> TimedRsp {
    TimedRsp {
        header,
        device_cmd_start_ts: times.start.into(),
        device_cmd_execute_dur: times.execute.into(),
        device_cmd_wait_dur: times.wait.into(),
        status: status.into(),
        pad: 0.into(),
    }
}

fn put<T: IntoBytes + Immutable>(out: &mut [u8], message: &T) -> Result<usize, EncodeError> {
    // The size of a response does not count its header (Spec: §6).
    write(out, message, &[], HEADER_BYTES)
}
