//! The operations interface.

use et_devapi::msg::ops::{
    AbortCmd, AbortStatus, Body, CmResetCmd, Command, CompatibilityCmd, CompatibilityRsp,
    Completion, DmaReadNode, DmaStatus, DmaWriteNode, EchoCmd, EchoRsp, FirmwareVersionCmd,
    FirmwareVersionRsp, FwErrorEvent, KernelAbortCmd, KernelErrorBlock, KernelLaunchCmd, Launch,
    LaunchError, LaunchPayload, MAX_COMMAND_BYTES, MAX_LAUNCH_PAYLOAD, MAX_LIST_NODES, MsgId,
    P2pReadNode, P2pWriteNode, StackConfig, StatusRsp, TimedRsp, Times, TraceBufferFullEvent,
    TraceConfig, TraceControl, TraceRtConfig, TraceRtConfigCmd, TraceRtControlCmd, TraceRuntimes,
    Version,
};
use et_devapi::msg::{CommandFlags, Header, Tag, command_bytes, completion_bytes};
use et_hal::{DeviceAddr, Endpoint};
use et_testkit::golden::{Example, File, Value, Vector, int, json, text, vectors};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::layout::{Field, Layout, check, layouts};

/// A message: the four fields of the header, then its own.
macro_rules! messages {
    ($($vector:literal => $type:ty { $($fields:tt)* })*) => {
        layouts! {$(
            $vector => $type {
                header.size, header.tag_id, header.msg_id, header.flags, $($fields)*
            }
        )*}
    };
}

fn all_layouts() -> Vec<Layout> {
    let mut all = layouts! {
        "cmn_header_t" => Header { size, tag_id, msg_id, flags }
        "dma_read_node" => DmaReadNode {
            dst_host_virt_addr, dst_host_phy_addr, src_device_phy_addr, size, pad
        }
        "dma_write_node" => DmaWriteNode {
            src_host_virt_addr, src_host_phy_addr, dst_device_phy_addr, size, pad
        }
        "p2pdma_read_node" => P2pReadNode {
            dst_device_phy_addr, dst_device_bus_addr, src_device_phy_addr, size, peer_devnum, pad
        }
        "p2pdma_write_node" => P2pWriteNode {
            src_device_phy_addr, src_device_bus_addr, dst_device_phy_addr, size, peer_devnum, pad
        }
        "kernel_rsp_error_ptr_t" => KernelErrorBlock {
            umode_exception_buffer_ptr, umode_trace_buffer_ptr, cm_shire_mask
        }
        "kernel_user_stack_cfg_t" => StackConfig { stack_base_offset, stack_size }
        "device_ops_dma_readlist_cmd_t" => Header {
            size = "header.size", tag_id = "header.tag_id",
            msg_id = "header.msg_id", flags = "header.flags"
        }
        "device_ops_dma_writelist_cmd_t" => Header {
            size = "header.size", tag_id = "header.tag_id",
            msg_id = "header.msg_id", flags = "header.flags"
        }
        "device_ops_p2pdma_readlist_cmd_t" => Header {
            size = "header.size", tag_id = "header.tag_id",
            msg_id = "header.msg_id", flags = "header.flags"
        }
        "device_ops_p2pdma_writelist_cmd_t" => Header {
            size = "header.size", tag_id = "header.tag_id",
            msg_id = "header.msg_id", flags = "header.flags"
        }
    };
    all.extend(messages! {
        "check_device_ops_api_compatibility_cmd_t" => CompatibilityCmd { dummy }
        "device_ops_api_compatibility_rsp_t" => CompatibilityRsp {
            status, major, minor, patch, pad
        }
        "device_ops_device_fw_version_cmd_t" => FirmwareVersionCmd { firmware_type, pad }
        "device_ops_fw_version_rsp_t" => FirmwareVersionRsp {
            status, major, minor, patch, r#type, pad
        }
        "device_ops_echo_cmd_t" => EchoCmd { dummy }
        "device_ops_echo_rsp_t" => EchoRsp { device_cmd_start_ts, status, pad }
        "device_ops_abort_cmd_t" => AbortCmd { tag_id, pad }
        "device_ops_abort_rsp_t" => StatusRsp { status, pad }
        "device_ops_kernel_launch_cmd_t" => KernelLaunchCmd {
            code_start_address, pointer_to_args, exception_buffer, shire_mask
        }
        "device_ops_kernel_launch_rsp_t" => TimedRsp {
            device_cmd_start_ts, device_cmd_execute_dur, device_cmd_wait_dur, status, pad
        }
        "device_ops_kernel_abort_cmd_t" => KernelAbortCmd { kernel_launch_tag_id, pad }
        "device_ops_kernel_abort_rsp_t" => StatusRsp { status, pad }
        "device_ops_dma_readlist_rsp_t" => TimedRsp {
            device_cmd_start_ts, device_cmd_execute_dur, device_cmd_wait_dur, status, pad
        }
        "device_ops_dma_writelist_rsp_t" => TimedRsp {
            device_cmd_start_ts, device_cmd_execute_dur, device_cmd_wait_dur, status, pad
        }
        "device_ops_p2pdma_readlist_rsp_t" => TimedRsp {
            device_cmd_start_ts, device_cmd_execute_dur, device_cmd_wait_dur, status, pad
        }
        "device_ops_p2pdma_writelist_rsp_t" => TimedRsp {
            device_cmd_start_ts, device_cmd_execute_dur, device_cmd_wait_dur, status, pad
        }
        "device_ops_trace_rt_config_cmd_t" => TraceRtConfigCmd {
            shire_mask, thread_mask, event_mask, filter_mask, threshold, pad
        }
        "device_ops_trace_rt_config_rsp_t" => StatusRsp { status, pad }
        "device_ops_trace_rt_control_cmd_t" => TraceRtControlCmd { rt_type, control }
        "device_ops_trace_rt_control_rsp_t" => StatusRsp { status, pad }
        "device_ops_cm_reset_cmd_t" => CmResetCmd { cm_shire_mask }
        "device_ops_cm_reset_rsp_t" => StatusRsp { status, pad }
        "device_ops_device_fw_error_t" => FwErrorEvent { payload, error_type, pad }
        "device_ops_trace_buffer_full_event_t" => TraceBufferFullEvent {
            data_size, buffer_type, pad
        }
    });
    all
}

#[test]
fn structures_have_the_vendors_layout() {
    let vectors = vectors(File::Ops);
    assert_eq!(vectors.len(), 35);
    let checked = check(&vectors, &all_layouts());
    assert_eq!(checked, vectors.iter().map(|vector| vector.examples.len()).sum::<usize>());
}

#[test]
fn constants_are_the_vendors() {
    let json = json(File::Ops);
    let version = et_devapi::msg::ops::API_VERSION;
    assert_eq!(version.to_string(), text(&json, "api_version"));
    assert_eq!(version.major, et_devapi::msg::ops::API_MAJOR);
    let constants = et_testkit::golden::object(&json["constants"]);
    for name in constants.keys() {
        let value = int(&json["constants"], name);
        match name.as_str() {
            "KERNEL_LAUNCH_ARGS_PAYLOAD_MAX" => assert_eq!(MAX_LAUNCH_PAYLOAD as u64, value),
            // Erratum 16 (§21): the registers are right, they allow more.
            "DMA_LIST_NODES_MAX_API" => assert!(MAX_LIST_NODES as u64 >= value),
            other => panic!("{other} has no Rust constant"),
        }
    }
}

#[test]
fn messages_mean_what_the_vendor_means() {
    let mut handled = 0;
    for vector in vectors(File::Ops) {
        let Some(id) = vector.id else { continue };
        let id = MsgId::from_u16(id).unwrap_or_else(|| panic!("{} is unknown", vector.name));
        handled += 1;
        for example in &vector.examples {
            let what = format!("{}: {}", vector.name, example.label);
            match vector.direction.as_deref() {
                Some("host_to_device") => check_command(id, example, &what),
                Some("device_to_host") => check_completion(&vector, id, example, &what),
                other => panic!("{what}: direction {other:?}"),
            }
        }
    }
    assert_eq!(handled, 28);
}

fn check_completion(vector: &Vector, id: MsgId, example: &Example, what: &str) {
    let header = Header::read_from_prefix(&example.bytes).unwrap().0;
    assert_eq!(completion_bytes(Endpoint::Operations, &header), Ok(example.bytes.len()), "{what}");
    let expected = completion(vector, id, example);
    assert_eq!(Completion::parse(&example.bytes), Ok(expected), "{what}");
    let tag = example.int("header.tag_id");
    let is_answer = !matches!(id, MsgId::FwError | MsgId::TraceBufferFull);
    assert_eq!((expected.is_answer(), expected.tag), (is_answer, Tag::new(tag)), "{what}");
    let mut out = [0xff; MAX_COMMAND_BYTES];
    assert_eq!(expected.encode(&mut out), Ok(example.bytes.len()), "{what}");
    assert_eq!(out[..example.bytes.len()], example.bytes, "{what}");
}

fn completion(vector: &Vector, id: MsgId, e: &Example) -> Completion {
    let code = || e.int::<u32>("status");
    let times = || Times {
        start: e.number("device_cmd_start_ts"),
        wait: e.number("device_cmd_wait_dur"),
        execute: e.number("device_cmd_execute_dur"),
    };
    let version =
        || Version { major: e.int("major"), minor: e.int("minor"), patch: e.int("patch") };
    let dma = || DmaStatus::from(code());
    let body = match id {
        MsgId::CompatibilityRsp => {
            Body::Compatibility { status: code().into(), version: version() }
        }
        MsgId::FirmwareVersionRsp => Body::FirmwareVersion {
            status: code().into(),
            version: version(),
            firmware: e.int::<u32>("type").into(),
        },
        MsgId::EchoRsp => Body::Echo { start: times_start(e), status: code().into() },
        MsgId::AbortRsp => Body::Abort { status: AbortStatus::from(code()) },
        MsgId::KernelLaunchRsp => {
            let block = e.array("kernel_rsp_error_ptr");
            let (words, _) = block.as_chunks::<8>();
            let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let error = match words[..] {
                [] => None,
                [exception_buffer, trace_buffer, shire_mask] => {
                    Some(LaunchError { exception_buffer, trace_buffer, shire_mask })
                }
                _ => panic!("{}: error block of {} bytes", vector.name, block.len()),
            };
            Body::Launch { times: times(), status: code().into(), error }
        }
        MsgId::KernelAbortRsp => Body::KernelAbort { status: code().into() },
        MsgId::DmaReadListRsp => Body::DmaRead { times: times(), status: dma() },
        MsgId::DmaWriteListRsp => Body::DmaWrite { times: times(), status: dma() },
        MsgId::P2pDmaReadListRsp => Body::P2pRead { times: times(), status: dma() },
        MsgId::P2pDmaWriteListRsp => Body::P2pWrite { times: times(), status: dma() },
        MsgId::TraceRtConfigRsp => Body::TraceConfig { status: code().into() },
        MsgId::TraceRtControlRsp => Body::TraceControl { status: code().into() },
        MsgId::CmResetRsp => Body::CmReset { status: code().into() },
        MsgId::FwError => {
            Body::FwError { error: e.int::<u32>("error_type").into(), payload: e.number("payload") }
        }
        MsgId::TraceBufferFull => Body::TraceBufferFull {
            data_size: e.int("data_size"),
            buffer_type: e.int("buffer_type"),
        },
        other => panic!("{}: {other:?} is no completion", vector.name),
    };
    Completion::new(Tag::new(e.int("header.tag_id")), body)
}

fn times_start(e: &Example) -> u64 {
    e.number("device_cmd_start_ts")
}

/// The nodes of a list, made of the values by the layout's own fields.
fn nodes<T: FromZeros + IntoBytes + FromBytes + zerocopy::Immutable>(
    layout: &str,
    e: &Example,
) -> Vec<T> {
    let layouts = all_layouts();
    let layout = layouts.iter().find(|l| l.vector == layout).unwrap();
    let node = |index: usize| -> Option<T> {
        let values: Option<Vec<Value>> = layout
            .fields
            .iter()
            .map(|(name, ..)| e.values.get(&format!("list[{index}].{name}")).cloned())
            .collect();
        values.map(|values| T::read_from_bytes(&(layout.encode)(&values)).unwrap())
    };
    (0..).map_while(node).collect()
}

fn check_command(id: MsgId, e: &Example, what: &str) {
    let (bytes, tag) = (&e.bytes[..], Tag::new(e.int("header.tag_id")));
    let flags = CommandFlags::from_bits(e.int("header.flags"));
    let header = Header::read_from_prefix(bytes).unwrap().0;
    assert_eq!(command_bytes(&header), Ok(bytes.len()), "{what}");
    let (parsed_header, command) = Command::parse(bytes).unwrap();
    assert_eq!(parsed_header, header, "{what}");
    assert_eq!((header.tag(), header.flags(), header.msg_id.get()), (tag, flags, id.as_u16()));

    let mut expected = bytes.to_vec();
    match (id, command) {
        (MsgId::CheckCompatibilityCmd, Command::CheckCompatibility) => {}
        (MsgId::FirmwareVersionCmd, Command::FirmwareVersion { firmware }) => {
            assert_eq!(u32::from(firmware), e.int::<u32>("firmware_type"), "{what}");
        }
        // The payload is not returned (§7.4); the encoder sends 0.
        (MsgId::EchoCmd, Command::Echo) => expected[8..].fill(0),
        // Firmware ignores the tag to abort (§10.1); the encoder sends 0.
        (MsgId::AbortCmd, Command::Abort) => expected[8..10].fill(0),
        (MsgId::KernelLaunchCmd, Command::KernelLaunch(launch)) => {
            check_launch(e, flags, launch, what);
        }
        (MsgId::KernelAbortCmd, Command::KernelAbort { launch }) => {
            assert_eq!(launch.as_u16(), e.int::<u16>("kernel_launch_tag_id"), "{what}");
            assert_eq!(flags, CommandFlags::EMPTY, "{what}");
        }
        (MsgId::DmaReadListCmd, Command::DmaReadList { nodes: parsed }) => {
            assert_eq!(parsed, nodes::<DmaReadNode>("dma_read_node", e), "{what}");
        }
        (MsgId::DmaWriteListCmd, Command::DmaWriteList { nodes: parsed }) => {
            assert_eq!(parsed, nodes::<DmaWriteNode>("dma_write_node", e), "{what}");
        }
        (MsgId::P2pDmaReadListCmd, Command::P2pDmaReadList { nodes: parsed }) => {
            assert_eq!(parsed, nodes::<P2pReadNode>("p2pdma_read_node", e), "{what}");
        }
        (MsgId::P2pDmaWriteListCmd, Command::P2pDmaWriteList { nodes: parsed }) => {
            assert_eq!(parsed, nodes::<P2pWriteNode>("p2pdma_write_node", e), "{what}");
        }
        (MsgId::TraceRtConfigCmd, Command::TraceRtConfig(config)) => {
            let meant = TraceRtConfig {
                shire_mask: e.number("shire_mask"),
                thread_mask: e.number("thread_mask"),
                event_mask: e.int("event_mask"),
                filter_mask: e.int("filter_mask"),
                threshold: e.int("threshold"),
            };
            assert_eq!(config, meant, "{what}");
        }
        (MsgId::TraceRtControlCmd, Command::TraceRtControl { runtimes, control }) => {
            assert_eq!(runtimes, TraceRuntimes::from_bits(e.int("rt_type")), "{what}");
            assert_eq!(control, TraceControl::from_bits(e.int("control")), "{what}");
        }
        (MsgId::CmResetCmd, Command::CmReset { shire_mask }) => {
            assert_eq!(shire_mask, e.number("cm_shire_mask"), "{what}");
        }
        (id, command) => panic!("{what}: {id:?} was read as {command:?}"),
    }
    let mut out = [0xff; MAX_COMMAND_BYTES];
    assert_eq!(command.encode(tag, flags, &mut out), Ok(bytes.len()), "{what}");
    assert_eq!(out[..bytes.len()], expected, "{what}");
}

/// Puts the payload together again from the parts that the flags say it has. Spec: §9.1
fn check_launch(e: &Example, flags: CommandFlags, launch: Launch<'_>, what: &str) {
    let payload = e.array("argument_payload");
    let (mut trace, mut stack, mut rest) = (None, None, payload);
    if flags.contains(CommandFlags::KERNEL_TRACE) {
        let (part, after) = TraceConfig::read_from_prefix(rest).unwrap();
        (trace, rest) = (Some(part), after);
    }
    if flags.contains(CommandFlags::USER_STACK) {
        let (part, after) = StackConfig::read_from_prefix(rest).unwrap();
        (stack, rest) = (Some(part), after);
    }
    let again = LaunchPayload::new(trace.as_ref(), stack.as_ref(), rest).unwrap();
    assert_eq!(again.as_bytes(), payload, "{what}");
    let others = CommandFlags::BARRIER.with(CommandFlags::FLUSH_L3).bits() & flags.bits();
    assert_eq!(again.flags().with(CommandFlags::from_bits(others)), flags, "{what}");
    let address = |field| Some(DeviceAddr::new(e.number(field))).filter(|a| a.as_u64() != 0);
    let meant = Launch {
        entry: DeviceAddr::new(e.number("code_start_address")),
        args: address("pointer_to_args"),
        exception_buffer: address("exception_buffer"),
        shire_mask: e.number("shire_mask"),
        payload,
    };
    assert_eq!(launch, meant, "{what}");
}
