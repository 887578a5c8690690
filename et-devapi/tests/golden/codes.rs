//! Enumerations: every constant of the vendor has the value of its Rust counterpart.

use std::collections::{BTreeMap, BTreeSet};

use et_devapi::msg::CommandFlags;
use et_devapi::msg::ops::{
    AbortStatus, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus, FirmwareType,
    FirmwareVersionStatus, FwErrorType, KernelAbortStatus, LaunchStatus, MsgId, TraceConfigStatus,
    TraceControl, TraceControlStatus, TraceRuntimes,
};
use et_devapi::trace::{
    BufferType, CM_EVENT_START, CmdProgress, CounterId, EVENT_RANGE, EntryType, HeaderKind,
    MM_EVENT_START, MmEvent, SP_EVENT_START, SpEvent,
};
use et_testkit::golden::{File, enums};

type Table = BTreeMap<&'static str, BTreeMap<String, i64>>;

/// Checks that each code survives the way there and back and is a known one, then adds it.
macro_rules! codes {
    ($table:ident, $($enumeration:literal: $type:ident { $($constant:literal => $variant:ident,)* })*) => {$(
        let mut list = BTreeMap::new();
        $(
            let code = u32::from($type::$variant);
            assert_eq!($type::from(code), $type::$variant);
            assert!(!format!("{}", $type::$variant).is_empty());
            list.insert(format!("{}_{}", $enumeration, $constant), i64::from(code));
        )*
        assert_eq!(u32::from($type::from(u32::MAX)), u32::MAX);
        assert_eq!($type::from(u32::MAX), $type::Unknown(u32::MAX));
        $table.insert($enumeration, list);
    )*};
}

/// The same for closed lists; `$end` is the first number that means nothing.
macro_rules! numbers {
    ($table:ident, $enumeration:literal, $start:literal: $type:ident { $($constant:literal => $variant:ident,)* }) => {
        let mut list = BTreeMap::new();
        $(
            let number = $type::$variant as u16;
            assert_eq!($type::from_number(number), Some($type::$variant));
            list.insert(concat!($start, $constant).to_owned(), i64::from(number));
        )*
        $table.insert($enumeration, list);
    };
}

fn ops() -> Table {
    let mut table = Table::new();
    codes! { table,
        "DEV_OPS_API_ABORT_RESPONSE": AbortStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => Error,
            "ERROR" => Error,
            "INVALID_TAG_ID" => InvalidTagId,
        }
        "DEV_OPS_API_CM_RESET_RESPONSE": CmResetStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "INVALID_SHIRE_MASK" => InvalidShireMask,
            "CM_RESET_FAILED" => CmResetFailed,
        }
        "DEV_OPS_API_KERNEL_LAUNCH_RESPONSE": LaunchStatus {
            "KERNEL_COMPLETED" => KernelCompleted,
            "ERROR" => Error,
            "UNEXPECTED_ERROR" => Error,
            "EXCEPTION" => Exception,
            "SHIRES_NOT_READY" => ShiresNotReady,
            "HOST_ABORTED" => HostAborted,
            "INVALID_ADDRESS" => InvalidAddress,
            "TIMEOUT_HANG" => TimeoutHang,
            "INVALID_ARGS_PAYLOAD_SIZE" => InvalidArgsPayloadSize,
            "CM_IFACE_MULTICAST_FAILED" => CmMulticastFailed,
            "CM_IFACE_UNICAST_FAILED" => CmUnicastFailed,
            "SP_IFACE_RESET_FAILED" => SpResetFailed,
            "CW_MINIONS_BOOT_FAILED" => CwMinionsBootFailed,
            "INVALID_ARGS_INVALID_SHIRE_MASK" => InvalidShireMask,
            "USER_ERROR" => UserError,
            "INVALID_ARGS_INVALID_STACK_CFG" => InvalidStackConfig,
        }
        "DEV_OPS_API_KERNEL_ABORT_RESPONSE": KernelAbortStatus {
            "SUCCESS" => Success,
            "ERROR" => Error,
            "INVALID_TAG_ID" => InvalidTagId,
            "TIMEOUT_HANG" => TimeoutHang,
            "HOST_ABORTED" => HostAborted,
        }
        "DEV_OPS_API_DMA_RESPONSE": DmaStatus {
            "COMPLETE" => Complete,
            "UNKNOWN_ERROR" => UnexpectedError,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "TIMEOUT_IDLE_CHANNEL_UNAVAILABLE" => IdleChannelUnavailable,
            "HOST_ABORTED" => HostAborted,
            "ERROR_ABORTED" => ErrorAborted,
            "TIMEOUT_HANG" => TimeoutHang,
            "INVALID_ADDRESS" => InvalidAddress,
            "INVALID_SIZE" => InvalidSize,
            "CM_IFACE_MULTICAST_FAILED" => CmMulticastFailed,
            "DRIVER_DATA_CONFIG_FAILED" => DataConfigFailed,
            "DRIVER_LINK_CONFIG_FAILED" => LinkConfigFailed,
            "DRIVER_CHAN_START_FAILED" => ChannelStartFailed,
            "DRIVER_ABORT_FAILED" => AbortFailed,
        }
        "DEV_OPS_API_ECHO_RESPONSE": EchoStatus {
            "SUCCESS" => Success,
            "HOST_ABORTED" => HostAborted,
        }
        "DEV_OPS_API_FW_VERSION_RESPONSE": FirmwareVersionStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "BAD_FW_TYPE" => BadFirmwareType,
            "NOT_AVAILABLE" => NotAvailable,
            "HOST_ABORTED" => HostAborted,
        }
        "DEV_OPS_API_COMPATIBILITY_RESPONSE": CompatibilityStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "HOST_ABORTED" => HostAborted,
        }
        "DEV_OPS_API_ERROR_TYPE": FwErrorType {
            "UNSUPPORTED_COMMAND" => UnsupportedCommand,
            "CM_SMODE_RT_EXCEPTION" => CmSmodeException,
            "CM_SMODE_RT_HANG" => CmSmodeHang,
        }
        "DEV_OPS_FW_TYPE": FirmwareType {
            "MASTER_MINION_FW" => MasterMinion,
            "MACHINE_MINION_FW" => MachineMinion,
            "WORKER_MINION_FW" => WorkerMinion,
        }
        "DEV_OPS_TRACE_RT_CONFIG_RESPONSE": TraceConfigStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "BAD_SHIRE_MASK" => BadShireMask,
            "BAD_THREAD_MASK" => BadThreadMask,
            "BAD_EVENT_MASK" => BadEventMask,
            "BAD_FILTER_MASK" => BadFilterMask,
            "RT_CONFIG_ERROR" => RtConfigError,
            "HOST_ABORTED" => HostAborted,
            "CM_TRACE_CONFIG_FAILED" => CmConfigFailed,
            "MM_TRACE_CONFIG_FAILED" => MmConfigFailed,
            "INVALID_TRACE_CONFIG_INFO" => InvalidTraceConfigInfo,
        }
        "DEV_OPS_TRACE_RT_CONTROL_RESPONSE": TraceControlStatus {
            "SUCCESS" => Success,
            "UNEXPECTED_ERROR" => UnexpectedError,
            "BAD_RT_TYPE" => BadRtType,
            "BAD_CONTROL_MASK" => BadControlMask,
            "CM_RT_CTRL_ERROR" => CmError,
            "MM_RT_CTRL_ERROR" => MmError,
            "HOST_ABORTED" => HostAborted,
            "CM_IFACE_MULTICAST_FAILED" => CmMulticastFailed,
        }
    }
    let runtimes = [("MM", TraceRuntimes::MM), ("CM", TraceRuntimes::CM)];
    let runtimes = runtimes.map(|(name, of)| (format!("TRACE_RT_TYPE_{name}"), of.bits().into()));
    table.insert("TRACE_RT_TYPE", runtimes.into());
    let controls = [
        ("DISABLE_TRACE", TraceControl::OFF),
        ("ENABLE_TRACE", TraceControl::ENABLE),
        ("LOG_TO_UART", TraceControl::TO_UART),
        ("LOG_TO_TRACE", TraceControl::OFF),
        ("RESET_TRACEBUF", TraceControl::RESET),
    ];
    let controls =
        controls.map(|(name, of)| (format!("TRACE_RT_CONTROL_{name}"), of.bits().into()));
    table.insert("TRACE_RT_CONTROL", controls.into());
    table.insert("CMD_FLAGS", flags());
    table.insert("device_ops_api_msg_e", ids());
    table
}

fn flags() -> BTreeMap<String, i64> {
    let flags = [
        ("BARRIER_DISABLE", CommandFlags::EMPTY),
        ("BARRIER_ENABLE", CommandFlags::BARRIER),
        ("COMPUTE_KERNEL_TRACE_DISABLE", CommandFlags::EMPTY),
        ("COMPUTE_KERNEL_TRACE_ENABLE", CommandFlags::KERNEL_TRACE),
        ("HOST_MANAGED_UBUF", CommandFlags::EMPTY),
        ("MMFW_TRACEBUF", CommandFlags::MMFW_TRACEBUF),
        ("CMFW_TRACEBUF", CommandFlags::CMFW_TRACEBUF),
        ("KERNEL_LAUNCH_FLUSH_L3", CommandFlags::FLUSH_L3),
        ("KERNEL_LAUNCH_ARGS_EMBEDDED", CommandFlags::ARGS_EMBEDDED),
        ("KERNEL_LAUNCH_USER_STACK_CFG", CommandFlags::USER_STACK),
    ];
    flags.map(|(name, flag)| (format!("CMD_FLAGS_{name}"), i64::from(flag.bits()))).into()
}

fn ids() -> BTreeMap<String, i64> {
    let ids = [
        ("CHECK_DEVICE_OPS_API_COMPATIBILITY_CMD", MsgId::CheckCompatibilityCmd),
        ("DEVICE_OPS_API_COMPATIBILITY_RSP", MsgId::CompatibilityRsp),
        ("DEVICE_OPS_DEVICE_FW_VERSION_CMD", MsgId::FirmwareVersionCmd),
        ("DEVICE_OPS_FW_VERSION_RSP", MsgId::FirmwareVersionRsp),
        ("DEVICE_OPS_ECHO_CMD", MsgId::EchoCmd),
        ("DEVICE_OPS_ECHO_RSP", MsgId::EchoRsp),
        ("DEVICE_OPS_ABORT_CMD", MsgId::AbortCmd),
        ("DEVICE_OPS_ABORT_RSP", MsgId::AbortRsp),
        ("DEVICE_OPS_KERNEL_LAUNCH_CMD", MsgId::KernelLaunchCmd),
        ("DEVICE_OPS_KERNEL_LAUNCH_RSP", MsgId::KernelLaunchRsp),
        ("DEVICE_OPS_KERNEL_ABORT_CMD", MsgId::KernelAbortCmd),
        ("DEVICE_OPS_KERNEL_ABORT_RSP", MsgId::KernelAbortRsp),
        ("DEVICE_OPS_DMA_READLIST_CMD", MsgId::DmaReadListCmd),
        ("DEVICE_OPS_DMA_READLIST_RSP", MsgId::DmaReadListRsp),
        ("DEVICE_OPS_DMA_WRITELIST_CMD", MsgId::DmaWriteListCmd),
        ("DEVICE_OPS_DMA_WRITELIST_RSP", MsgId::DmaWriteListRsp),
        ("DEVICE_OPS_TRACE_RT_CONFIG_CMD", MsgId::TraceRtConfigCmd),
        ("DEVICE_OPS_TRACE_RT_CONFIG_RSP", MsgId::TraceRtConfigRsp),
        ("DEVICE_OPS_TRACE_RT_CONTROL_CMD", MsgId::TraceRtControlCmd),
        ("DEVICE_OPS_TRACE_RT_CONTROL_RSP", MsgId::TraceRtControlRsp),
        ("DEVICE_OPS_CM_RESET_CMD", MsgId::CmResetCmd),
        ("DEVICE_OPS_CM_RESET_RSP", MsgId::CmResetRsp),
        ("DEVICE_OPS_DEVICE_FW_ERROR", MsgId::FwError),
        ("DEVICE_OPS_TRACE_BUFFER_FULL_EVENT", MsgId::TraceBufferFull),
        ("DEVICE_OPS_P2PDMA_READLIST_CMD", MsgId::P2pDmaReadListCmd),
        ("DEVICE_OPS_P2PDMA_READLIST_RSP", MsgId::P2pDmaReadListRsp),
        ("DEVICE_OPS_P2PDMA_WRITELIST_CMD", MsgId::P2pDmaWriteListCmd),
        ("DEVICE_OPS_P2PDMA_WRITELIST_RSP", MsgId::P2pDmaWriteListRsp),
    ];
    for (_, id) in ids {
        assert_eq!(MsgId::from_u16(id.as_u16()), Some(id));
    }
    // The ends of the range are no messages. Spec: §7.1
    for end in [512, 1023] {
        assert_eq!(MsgId::from_u16(end), None);
    }
    let mut list: BTreeMap<_, _> =
        ids.map(|(name, id)| (format!("DEV_OPS_API_MID_{name}"), i64::from(id.as_u16()))).into();
    list.insert("DEV_OPS_API_MID_NONE".into(), 512);
    list.insert("DEV_OPS_API_MID_LAST".into(), 1023);
    list
}

fn abi() -> Table {
    let mut table = Table::new();
    numbers! { table, "trace_buffer_type", "TRACE_": BufferType {
        "MM_BUFFER" => Mm,
        "CM_BUFFER" => Cm,
        "SP_BUFFER" => Sp,
        "CM_UMODE_BUFFER" => CmUmode,
        "SP_STATS_BUFFER" => SpStats,
        "MM_STATS_BUFFER" => MmStats,
    }}
    numbers! { table, "trace_type", "TRACE_TYPE_": EntryType {
        "START" => String,
        "STRING" => String,
        "PMC_COUNTER" => PmcCounter,
        "PMC_COUNTERS_COMPUTE" => PmcCountersCompute,
        "PMC_COUNTERS_MEMORY" => PmcCountersMemory,
        "PMC_COUNTERS_SC" => PmcCountersSc,
        "PMC_COUNTERS_MS" => PmcCountersMs,
        "VALUE_U64" => ValueU64,
        "VALUE_U32" => ValueU32,
        "VALUE_U16" => ValueU16,
        "VALUE_U8" => ValueU8,
        "VALUE_FLOAT" => ValueFloat,
        "MEMORY" => Memory,
        "EXCEPTION" => Exception,
        "CMD_STATUS" => CmdStatus,
        "POWER_STATUS" => PowerStatus,
        "CUSTOM_EVENT" => CustomEvent,
        "USER_PROFILE_EVENT" => UserProfileEvent,
    }}
    numbers! { table, "trace_cmd_status", "CMD_STATUS_": CmdProgress {
        "WAIT_BARRIER" => WaitBarrier,
        "RECEIVED" => Received,
        "EXECUTING" => Executing,
        "FAILED" => Failed,
        "ABORTED" => Aborted,
        "SUCCEEDED" => Succeeded,
    }}
    numbers! { table, "trace_header_type", "TRACE_": HeaderKind {
        "STD_HEADER" => Standard,
        "SIZE_HEADER" => Size,
    }}
    numbers! { table, "pmc_counter", "PMC_COUNTER_": CounterId {
        "HPMCOUNTER3" => Hpmcounter3,
        "HPMCOUNTER4" => Hpmcounter4,
        "HPMCOUNTER5" => Hpmcounter5,
        "HPMCOUNTER6" => Hpmcounter6,
        "HPMCOUNTER7" => Hpmcounter7,
        "HPMCOUNTER8" => Hpmcounter8,
        "SHIRE_CACHE_CYCLE" => ShireCacheCycle,
        "SHIRE_CACHE_1" => ShireCache1,
        "SHIRE_CACHE_2" => ShireCache2,
        "MEMSHIRE_CYCLE" => MemshireCycle,
        "MEMSHIRE_1" => Memshire1,
        "MEMSHIRE_2" => Memshire2,
        "MEMSHIRE0_CYCLE" => Memshire0Cycle,
        "MEMSHIRE1_CYCLE" => Memshire1Cycle,
        "MEMSHIRE2_CYCLE" => Memshire2Cycle,
        "MEMSHIRE3_CYCLE" => Memshire3Cycle,
        "MEMSHIRE4_CYCLE" => Memshire4Cycle,
        "MEMSHIRE5_CYCLE" => Memshire5Cycle,
        "MEMSHIRE6_CYCLE" => Memshire6Cycle,
        "MEMSHIRE7_CYCLE" => Memshire7Cycle,
        "MEMSHIRE0_1" => Memshire01,
        "MEMSHIRE1_1" => Memshire11,
        "MEMSHIRE2_1" => Memshire21,
        "MEMSHIRE3_1" => Memshire31,
        "MEMSHIRE4_1" => Memshire41,
        "MEMSHIRE5_1" => Memshire51,
        "MEMSHIRE6_1" => Memshire61,
        "MEMSHIRE7_1" => Memshire71,
        "MEMSHIRE0_2" => Memshire02,
        "MEMSHIRE1_2" => Memshire12,
        "MEMSHIRE2_2" => Memshire22,
        "MEMSHIRE3_2" => Memshire32,
        "MEMSHIRE4_2" => Memshire42,
        "MEMSHIRE5_2" => Memshire52,
        "MEMSHIRE6_2" => Memshire62,
        "MEMSHIRE7_2" => Memshire72,
    }}
    numbers! { table, "trace_custom_type_sp", "TRACE_CUSTOM_TYPE_SP_": SpEvent {
        "PERF_GLOBALS" => PerfGlobals,
        "POWER_GLOBALS" => PowerGlobals,
        "POWER_STATES_GLOBALS" => PowerStatesGlobals,
        "OP_STATS" => OpStats,
    }}
    numbers! { table, "trace_custom_type_mm", "TRACE_CUSTOM_TYPE_MM_": MmEvent {
        "COMPUTE_RESOURCES" => ComputeResources,
    }}
    // Each writer's range has a start, an end, and a number after its last event.
    for (name, start, last) in [
        ("sp", SP_EVENT_START, SpEvent::OpStats as u16),
        ("mm", MM_EVENT_START, MmEvent::ComputeResources as u16),
        ("cm", CM_EVENT_START, CM_EVENT_START),
    ] {
        let list = table.entry(custom(name)).or_default();
        for (end, value) in [("START", start), ("COUNT", last + 1), ("END", start + EVENT_RANGE)] {
            let constant = format!("TRACE_CUSTOM_TYPE_{}_{end}", name.to_uppercase());
            list.insert(constant, value.into());
        }
    }
    // The end of the range is no entry.
    let end = (0..).find(|number| EntryType::from_number(*number).is_none()).unwrap();
    let types = table.get_mut("trace_type").unwrap();
    types.insert("TRACE_TYPE_END".into(), end.into());
    table
}

fn custom(writer: &str) -> &'static str {
    match writer {
        "sp" => "trace_custom_type_sp",
        "mm" => "trace_custom_type_mm",
        _ => "trace_custom_type_cm",
    }
}

#[test]
fn every_constant_has_the_vendors_value() {
    let mut known = BTreeMap::new();
    for (file, table, constants) in [(File::Ops, ops(), 125), (File::Abi, abi(), 83)] {
        let vendor = enums(file);
        let names: BTreeSet<_> = vendor.keys().map(String::as_str).collect();
        assert_eq!(names, table.keys().copied().collect(), "enumerations of {file:?}");
        for (name, list) in &vendor {
            assert_eq!(list, &table[name.as_str()], "{name}");
        }
        let count: usize = vendor.values().map(BTreeMap::len).sum();
        assert_eq!(count, constants, "constants of {file:?}");
        known.extend(vendor);
    }
    assert_eq!(known.len(), 24);
}
