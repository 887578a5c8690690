//! Why a device refused a command.

use std::fmt;
use std::sync::Arc;

use et_devapi::msg::ops::{
    AbortStatus, Body, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus,
    FirmwareVersionStatus, TraceConfigStatus, TraceControlStatus,
};

/// What a device said when it refused a command; copies and launches have errors of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Of a compatibility check. Spec: §7.2.
    Compatibility(CompatibilityStatus),
    /// Of a question for the version of a firmware. Spec: §7.3.
    FirmwareVersion(FirmwareVersionStatus),
    /// Of an echo, which is what a barrier is. Spec: §7.4.
    Echo(EchoStatus),
    /// Of the abort of a queue. Spec: §7.5.
    Abort(AbortStatus),
    /// Of a copy that the runtime made for itself. Spec: §7.8.
    Copy(DmaStatus),
    /// Of the configuration of a trace. Spec: §7.10.
    TraceConfig(TraceConfigStatus),
    /// Of the control of a trace. Spec: §7.11.
    TraceControl(TraceControlStatus),
    /// Of a compute reset. Spec: §7.12.
    ComputeReset(CmResetStatus),
    /// Operations firmware does not know the command, or not in its state. Spec: §10.4.
    Unsupported,
    /// The service processor's number. Spec: §17.2.
    Management(i32),
    /// The process that has the card did, in its words.
    Owner(Arc<str>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compatibility(status) => status.fmt(f),
            Self::FirmwareVersion(status) => status.fmt(f),
            Self::Echo(status) => status.fmt(f),
            Self::Abort(status) => status.fmt(f),
            Self::Copy(status) => status.fmt(f),
            Self::TraceConfig(status) => status.fmt(f),
            Self::TraceControl(status) => status.fmt(f),
            Self::ComputeReset(status) => status.fmt(f),
            Self::Unsupported => f.write_str("unsupported by the firmware"),
            Self::Management(number) => write!(f, "firmware error {number}"),
            Self::Owner(why) => f.write_str(why),
        }
    }
}

/// Returns `true` if an abort has caught the command before it was started, so that it may be sent
/// again. Copies and launches may have done something.
pub(crate) fn was_caught(answer: &Body) -> bool {
    matches!(
        answer,
        Body::Compatibility { status: CompatibilityStatus::HostAborted, .. }
            | Body::FirmwareVersion { status: FirmwareVersionStatus::HostAborted, .. }
            | Body::Echo { status: EchoStatus::HostAborted, .. }
            | Body::TraceConfig { status: TraceConfigStatus::HostAborted }
            | Body::TraceControl { status: TraceControlStatus::HostAborted }
    )
}
