//! Round trips of every message, and parsers that see nonsense.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use et_devapi::dir::{BarSizes, MgmtDir, OpsDir};
use et_devapi::msg::ops::{
    Command, Completion, DmaReadNode, DmaWriteNode, EncodeError, FirmwareType, LaunchError,
    LaunchParams, LaunchPayload, MAX_COMMAND_BYTES, MAX_LAUNCH_PAYLOAD, MAX_LIST_NODES,
    MessageError, StackConfig, Times, TraceConfig, TraceControl, TraceRtConfig, TraceRuntimes,
    Version, encode_abort, encode_cm_reset, encode_compatibility, encode_dma_read,
    encode_dma_write, encode_echo, encode_firmware_version, encode_kernel_abort, encode_launch,
    encode_trace_config, encode_trace_control,
};
use et_devapi::msg::{CommandFlags, Header, Tag, command_bytes, completion_bytes};
use et_hal::{BusAddr, DeviceAddr, Endpoint};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

fn tag() -> impl Strategy<Value = Tag> {
    any::<u16>().prop_map(Tag::new)
}

fn times() -> impl Strategy<Value = Times> {
    any::<(u64, u64, u64)>().prop_map(|(start, wait, execute)| Times { start, wait, execute })
}

fn version() -> impl Strategy<Value = Version> {
    any::<(u16, u16, u16)>().prop_map(|(major, minor, patch)| Version { major, minor, patch })
}

/// Codes that exist, and others.
fn code() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..20, any::<u32>()]
}

fn completion() -> impl Strategy<Value = Completion> {
    let error = prop::option::of(any::<(u64, u64, u64)>().prop_map(|(a, b, c)| LaunchError {
        exception_buffer: a,
        trace_buffer: b,
        shire_mask: c,
    }));
    let unknown = prop_oneof![0_u16..513, 541_u16..=u16::MAX];
    prop_oneof![
        (tag(), code(), version()).prop_map(|(tag, status, version)| {
            Completion::Compatibility { tag, status: status.into(), version }
        }),
        (tag(), code(), version(), any::<u8>()).prop_map(|(tag, status, version, firmware)| {
            let firmware = u32::from(firmware).into();
            Completion::FirmwareVersion { tag, status: status.into(), version, firmware }
        }),
        (tag(), code(), any::<u64>()).prop_map(|(tag, status, start)| {
            Completion::Echo { tag, start, status: status.into() }
        }),
        (tag(), code()).prop_map(|(tag, status)| Completion::Abort { tag, status: status.into() }),
        (tag(), code(), times(), error).prop_map(|(tag, status, times, error)| {
            Completion::Launch { tag, times, status: status.into(), error }
        }),
        (tag(), code())
            .prop_map(|(tag, status)| Completion::KernelAbort { tag, status: status.into() }),
        (tag(), code(), times()).prop_map(|(tag, status, times)| {
            Completion::DmaRead { tag, times, status: status.into() }
        }),
        (tag(), code(), times()).prop_map(|(tag, status, times)| {
            Completion::DmaWrite { tag, times, status: status.into() }
        }),
        (tag(), code(), times()).prop_map(|(tag, status, times)| {
            Completion::P2pRead { tag, times, status: status.into() }
        }),
        (tag(), code(), times()).prop_map(|(tag, status, times)| {
            Completion::P2pWrite { tag, times, status: status.into() }
        }),
        (tag(), code())
            .prop_map(|(tag, status)| Completion::TraceConfig { tag, status: status.into() }),
        (tag(), code())
            .prop_map(|(tag, status)| Completion::TraceControl { tag, status: status.into() }),
        (tag(), code())
            .prop_map(|(tag, status)| Completion::CmReset { tag, status: status.into() }),
        (code(), any::<u64>())
            .prop_map(|(error, payload)| { Completion::FwError { error: error.into(), payload } }),
        any::<(u32, u8)>().prop_map(|(data_size, buffer_type)| {
            Completion::TraceBufferFull { data_size, buffer_type }
        }),
        (tag(), unknown).prop_map(|(tag, msg_id)| Completion::Unknown { tag, msg_id }),
    ]
}

fn parsed(bytes: &[u8]) -> (Header, Command<'_>) {
    let (header, command) = Command::parse(bytes).unwrap();
    assert_eq!(command_bytes(&header), Ok(bytes.len()));
    (header, command)
}

fn node_fields() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    prop::collection::vec(any::<(u64, u64, u32)>(), 1..=MAX_LIST_NODES)
}

proptest! {
    #[test]
    fn completions_survive_the_wire(completion in completion()) {
        let mut out = [0xff; 128];
        let len = completion.encode(&mut out).unwrap();
        prop_assert_eq!(Completion::parse(&out[..len]), Ok(completion));
        let header = Header::read_from_prefix(&out).unwrap().0;
        prop_assert_eq!(completion_bytes(Endpoint::Operations, &header), Ok(len));
        prop_assert_eq!(completion.tag(), match completion {
            Completion::FwError { .. } | Completion::TraceBufferFull { .. } => {
                prop_assert_eq!(header.tag(), Tag::EVENT);
                None
            }
            _ => Some(header.tag()),
        });
        for short in 0..len {
            let needs = completion.encode(&mut vec![0; short]);
            prop_assert!(matches!(needs, Err(EncodeError::BufferTooSmall { .. })), "{:?}", needs);
            prop_assert!(Completion::parse(&out[..short]).is_err());
        }
    }

    #[test]
    fn simple_commands_survive_the_wire(
        tag in tag(), bits in any::<u16>(), mask in any::<u64>(), other in any::<u64>(),
        a in any::<u32>(), b in any::<u32>(), c in any::<u32>(), kind in any::<u8>(),
    ) {
        let flags = CommandFlags::from_bits(bits);
        let mut out = [0xff; MAX_COMMAND_BYTES];
        let config = TraceRtConfig {
            shire_mask: mask, thread_mask: other, event_mask: a, filter_mask: b, threshold: c,
        };
        macro_rules! check {
            ($encoded:expr, $flags:expr, $pattern:pat $(if $guard:expr)?) => {{
                let len = $encoded.unwrap();
                let (header, command) = parsed(&out[..len]);
                prop_assert_eq!((header.tag(), header.flags()), (tag, $flags));
                prop_assert!(matches!(command, $pattern $(if $guard)?), "{:?}", command);
            }};
        }
        check!(encode_compatibility(tag, flags, &mut out), flags, Command::CheckCompatibility);
        check!(encode_echo(tag, flags, &mut out), flags, Command::Echo);
        check!(encode_abort(tag, flags, &mut out), flags, Command::Abort);
        check!(
            encode_firmware_version(tag, flags, FirmwareType::from(u32::from(kind)), &mut out),
            flags,
            Command::FirmwareVersion { firmware_type } if firmware_type == kind
        );
        let launch = Tag::new(bits);
        check!(
            encode_kernel_abort(tag, launch, &mut out),
            CommandFlags::EMPTY,
            Command::KernelAbort { launch: found } if found == launch
        );
        check!(
            encode_cm_reset(tag, flags, mask, &mut out),
            flags,
            Command::CmReset { shire_mask } if shire_mask == mask
        );
        check!(
            encode_trace_config(tag, flags, &config, &mut out),
            flags,
            Command::TraceRtConfig(cmd)
                if (cmd.shire_mask.get(), cmd.thread_mask.get()) == (mask, other)
                    && (cmd.event_mask.get(), cmd.filter_mask.get()) == (a, b)
                    && cmd.threshold.get() == c
        );
        check!(
            encode_trace_control(
                tag,
                flags,
                TraceRuntimes::from_bits(a),
                TraceControl::from_bits(b),
                &mut out,
            ),
            flags,
            Command::TraceRtControl(cmd) if (cmd.rt_type.get(), cmd.control.get()) == (a, b)
        );
    }

    #[test]
    fn lists_survive_the_wire(tag in tag(), fields in node_fields()) {
        let mut out = [0xff; MAX_COMMAND_BYTES];
        let flags = CommandFlags::BARRIER;
        let node = |&(host, device, size): &(u64, u64, u32)| {
            DmaWriteNode::new(BusAddr::new(host), DeviceAddr::new(device), size)
        };
        let writes: Vec<_> = fields.iter().map(node).collect();
        let len = encode_dma_write(tag, flags, &writes, &mut out).unwrap();
        prop_assert_eq!(len, 8 + 32 * fields.len());
        let (_, command) = parsed(&out[..len]);
        prop_assert!(matches!(command, Command::DmaWriteList { nodes } if nodes == writes), "{:?}", command);
        let node = |&(host, device, size): &(u64, u64, u32)| {
            DmaReadNode::new(BusAddr::new(host), DeviceAddr::new(device), size)
        };
        let reads: Vec<_> = fields.iter().map(node).collect();
        let len = encode_dma_read(tag, flags, &reads, &mut out).unwrap();
        let (_, command) = parsed(&out[..len]);
        prop_assert!(matches!(command, Command::DmaReadList { nodes } if nodes == reads), "{:?}", command);
    }

    #[test]
    fn launches_survive_the_wire(
        tag in tag(),
        addresses in any::<(u64, u64, u64, u64)>(),
        trace in prop::option::of(any::<[u8; 40]>()),
        stack in prop::option::of(any::<[u8; 8]>()),
        args in prop::collection::vec(any::<u8>(), 0..140),
    ) {
        let (entry, pointer, exceptions, shire_mask) = addresses;
        let params = LaunchParams {
            entry: DeviceAddr::new(entry),
            args: Some(DeviceAddr::new(pointer)),
            exception_buffer: Some(DeviceAddr::new(exceptions)),
            shire_mask,
            trace: trace.map(|bytes| TraceConfig::read_from_bytes(&bytes).unwrap()),
            stack: stack.map(|bytes| StackConfig::read_from_bytes(&bytes).unwrap()),
            embedded_args: &args,
        };
        let mut expected: Vec<u8> = trace.iter().flatten().chain(stack.iter().flatten()).copied().collect();
        expected.extend(&args);
        expected.resize(expected.len().next_multiple_of(8), 0);
        let mut out = [0xff; MAX_COMMAND_BYTES];
        let encoded = encode_launch(tag, CommandFlags::FLUSH_L3, &params, &mut out);
        if expected.len() > MAX_LAUNCH_PAYLOAD {
            let error = EncodeError::PayloadTooLarge { len: expected.len(), max: MAX_LAUNCH_PAYLOAD };
            prop_assert_eq!(encoded, Err(error));
            return Ok(());
        }
        let len = encoded.unwrap();
        prop_assert_eq!(len, 40 + expected.len());
        let (header, command) = parsed(&out[..len]);
        let has = |flag| header.flags().contains(flag);
        prop_assert!(has(CommandFlags::FLUSH_L3) && !has(CommandFlags::BARRIER));
        prop_assert_eq!(has(CommandFlags::KERNEL_TRACE), trace.is_some());
        prop_assert_eq!(has(CommandFlags::USER_STACK), stack.is_some());
        prop_assert_eq!(has(CommandFlags::ARGS_EMBEDDED), !args.is_empty());
        let Command::KernelLaunch(LaunchPayload::Whole { cmd, payload }) = command else {
            return Err(TestCaseError::fail("no launch"));
        };
        prop_assert_eq!(payload, &expected[..]);
        let found = (cmd.code_start_address.get(), cmd.pointer_to_args.get());
        prop_assert_eq!(found, (entry, pointer));
        let found = (cmd.exception_buffer.get(), cmd.shire_mask.get());
        prop_assert_eq!(found, (exceptions, shire_mask));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = Completion::parse(&bytes);
        let _ = Command::parse(&bytes);
        let _ = OpsDir::parse(&bytes, &BarSizes::ET_SOC_1);
        let _ = MgmtDir::parse(&bytes, &BarSizes::ET_SOC_1);
    }

    /// Random bytes rarely get past the header; these always do.
    #[test]
    fn framed_random_bytes_never_panic(
        id in prop_oneof![510_u16..545, any::<u16>()],
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let message = |size: usize| {
            let size = u16::try_from(size).unwrap();
            let mut bytes =
                Header::new(size, Tag::new(1), id, CommandFlags::EMPTY).as_bytes().to_vec();
            bytes.extend(&body);
            bytes
        };
        let command = message(8 + body.len());
        if let Err(error) = Command::parse(&command) {
            let short = matches!(error, MessageError::Length { .. });
            prop_assert!(short, "{}", error);
        }
        let completion = message(body.len());
        match Completion::parse(&completion) {
            Ok(completion) => {
                let mut out = [0; 128];
                prop_assert!(completion.encode(&mut out).is_ok());
            }
            Err(error) => prop_assert!(matches!(error, MessageError::Length { .. }), "{}", error),
        }
    }
}
