//! Message ids and result codes.

use crate::msg::codes::codes;

codes! {
    /// Result of a compatibility check. Spec: §7.2.
    CompatibilityStatus {
        0 => Success "success",
        1 => UnexpectedError "unexpected error",
        2 => HostAborted "aborted by the host",
    }
    /// Result of a firmware version query. Spec: §7.3.
    FirmwareVersionStatus {
        0 => Success "success",
        1 => UnexpectedError "unexpected error",
        2 => BadFirmwareType "bad firmware type",
        3 => NotAvailable "not available",
        4 => HostAborted "aborted by the host",
    }
    /// Result of an echo. Spec: §7.4.
    EchoStatus {
        0 => Success "success",
        1 => HostAborted "aborted by the host",
    }
    /// Result of an abort. Spec: §7.5.
    AbortStatus {
        0 => Success "success",
        1 => Error "error",
        2 => InvalidTagId "invalid tag",
    }
    /// Result of a launch. Spec: §7.6, §9.4.
    LaunchStatus {
        0 => KernelCompleted "kernel completed",
        1 => Error "kernel returned an error",
        2 => Exception "kernel trapped",
        3 => ShiresNotReady "shires not ready",
        4 => HostAborted "aborted by the host",
        5 => InvalidAddress "address outside device memory",
        6 => TimeoutHang "timed out",
        7 => InvalidArgsPayloadSize "invalid payload size",
        8 => CmMulticastFailed "compute minions cannot be reached",
        9 => CmUnicastFailed "messages of compute minions cannot be read",
        10 => SpResetFailed "reset by the service processor failed",
        11 => CwMinionsBootFailed "compute minions did not boot",
        12 => InvalidShireMask "invalid shire mask",
        13 => UserError "user error",
        14 => InvalidStackConfig "invalid stack configuration",
    }
    /// Result of a kernel abort. Spec: §7.7.
    KernelAbortStatus {
        0 => Success "success",
        1 => Error "error",
        2 => InvalidTagId "no such launch",
        3 => TimeoutHang "timed out",
        4 => HostAborted "aborted by the host",
    }
    /// Result of a DMA list. Spec: §7.8.
    DmaStatus {
        0 => Complete "complete",
        1 => UnexpectedError "unexpected error",
        2 => IdleChannelUnavailable "no DMA channel became free",
        3 => HostAborted "aborted by the host",
        4 => ErrorAborted "DMA engine error",
        5 => TimeoutHang "timed out",
        6 => InvalidAddress "address outside device memory",
        7 => InvalidSize "invalid size or number of nodes",
        8 => CmMulticastFailed "compute minions cannot be reached",
        9 => DataConfigFailed "DMA data configuration failed",
        10 => LinkConfigFailed "DMA list configuration failed",
        11 => ChannelStartFailed "DMA channel did not start",
        12 => AbortFailed "DMA abort failed",
    }
    /// Result of a trace configuration. Spec: §7.10.
    TraceConfigStatus {
        0 => Success "success",
        1 => UnexpectedError "unexpected error",
        2 => BadShireMask "bad shire mask",
        3 => BadThreadMask "bad thread mask",
        4 => BadEventMask "bad event mask",
        5 => BadFilterMask "bad filter mask",
        6 => RtConfigError "configuration error",
        7 => HostAborted "aborted by the host",
        8 => CmConfigFailed "compute minions could not be configured",
        9 => MmConfigFailed "master minions could not be configured",
        10 => InvalidTraceConfigInfo "invalid trace configuration",
    }
    /// Result of a trace control. Spec: §7.11.
    TraceControlStatus {
        0 => Success "success",
        1 => UnexpectedError "unexpected error",
        2 => BadRtType "bad runtime type",
        3 => BadControlMask "bad control mask",
        4 => CmError "compute minion error",
        5 => MmError "master minion error",
        6 => HostAborted "aborted by the host",
        7 => CmMulticastFailed "compute minions cannot be reached",
    }
    /// Result of a compute reset. Spec: §7.12.
    CmResetStatus {
        0 => Success "success",
        1 => UnexpectedError "unexpected error",
        2 => InvalidShireMask "invalid shire mask",
        3 => CmResetFailed "reset failed",
    }
    /// Type of a firmware error event. Spec: §7.13, §10.4.
    FwErrorType {
        0 => UnsupportedCommand "unsupported command",
        1 => CmSmodeException "supervisor exception on a compute minion",
        2 => CmSmodeHang "compute minions hang",
    }
    /// A firmware of the operations side. Spec: §7.3.
    FirmwareType {
        0 => MasterMinion "master minion",
        1 => MachineMinion "machine minion",
        2 => WorkerMinion "worker minion",
    }
}

macro_rules! ids {
    ($($value:literal => $variant:ident $text:literal,)*) => {
        /// Ids of the operations messages. Spec: §7.1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum MsgId {
            $(#[doc = concat!($text, ".")] $variant = $value,)*
        }

        impl MsgId {
            /// Returns the message of that id, if there is one.
            #[must_use]
            pub const fn from_u16(id: u16) -> Option<Self> {
                match id {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the id.
            #[must_use]
            pub const fn as_u16(self) -> u16 {
                self as u16
            }
        }
    };
}

ids! {
    513 => CheckCompatibilityCmd "Compatibility check",
    514 => CompatibilityRsp "Answer to a compatibility check",
    515 => FirmwareVersionCmd "Firmware version query",
    516 => FirmwareVersionRsp "Answer to a firmware version query",
    517 => EchoCmd "Echo",
    518 => EchoRsp "Answer to an echo",
    519 => AbortCmd "Abort",
    520 => AbortRsp "Answer to an abort",
    521 => KernelLaunchCmd "Kernel launch",
    522 => KernelLaunchRsp "Result of a kernel launch",
    523 => KernelAbortCmd "Kernel abort",
    524 => KernelAbortRsp "Answer to a kernel abort",
    525 => DmaReadListCmd "DMA read list",
    526 => DmaReadListRsp "Result of a DMA read list",
    527 => DmaWriteListCmd "DMA write list",
    528 => DmaWriteListRsp "Result of a DMA write list",
    529 => TraceRtConfigCmd "Trace configuration",
    530 => TraceRtConfigRsp "Answer to a trace configuration",
    531 => TraceRtControlCmd "Trace control",
    532 => TraceRtControlRsp "Answer to a trace control",
    533 => CmResetCmd "Compute reset",
    534 => CmResetRsp "Answer to a compute reset",
    535 => FwError "Firmware error event",
    536 => TraceBufferFull "Trace buffer event",
    537 => P2pDmaReadListCmd "Peer-to-peer read list",
    538 => P2pDmaReadListRsp "Result of a peer-to-peer read list",
    539 => P2pDmaWriteListCmd "Peer-to-peer write list",
    540 => P2pDmaWriteListRsp "Result of a peer-to-peer write list",
}
