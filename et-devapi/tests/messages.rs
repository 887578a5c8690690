//! Round trips of every message, and parsers that see nonsense.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use et_devapi::dir::{BarSizes, MgmtDir, OpsDir};
use et_devapi::msg::ops::{
    Body, Command, Completion, DmaReadNode, DmaWriteNode, EncodeError, FirmwareType, Launch,
    LaunchError, LaunchPayload, MAX_COMMAND_BYTES, MAX_LAUNCH_PAYLOAD, MAX_LIST_NODES,
    MessageError, P2pReadNode, P2pWriteNode, StackConfig, Times, TraceConfig, TraceControl,
    TraceRtConfig, TraceRuntimes, Version,
};
use et_devapi::msg::{CommandFlags, Header, Tag, command_bytes, completion_bytes};
use et_hal::{DeviceAddr, Endpoint};
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

fn body() -> impl Strategy<Value = Body> {
    let error = prop::option::of(any::<(u64, u64, u64)>().prop_map(|(a, b, c)| LaunchError {
        exception_buffer: a,
        trace_buffer: b,
        shire_mask: c,
    }));
    let unknown = prop_oneof![0_u16..513, 541_u16..=u16::MAX];
    prop_oneof![
        (code(), version()).prop_map(|(status, version)| {
            Body::Compatibility { status: status.into(), version }
        }),
        (code(), version(), any::<u8>()).prop_map(|(status, version, firmware)| {
            let firmware = u32::from(firmware).into();
            Body::FirmwareVersion { status: status.into(), version, firmware }
        }),
        (code(), any::<u64>())
            .prop_map(|(status, start)| Body::Echo { start, status: status.into() }),
        (code(), times(), error).prop_map(|(status, times, error)| {
            Body::Launch { times, status: status.into(), error }
        }),
        (code(), times())
            .prop_map(|(status, times)| Body::DmaRead { times, status: status.into() }),
        (code(), times())
            .prop_map(|(status, times)| Body::DmaWrite { times, status: status.into() }),
        (code(), times())
            .prop_map(|(status, times)| Body::P2pRead { times, status: status.into() }),
        (code(), times())
            .prop_map(|(status, times)| Body::P2pWrite { times, status: status.into() }),
        code().prop_map(|status| Body::Abort { status: status.into() }),
        code().prop_map(|status| Body::KernelAbort { status: status.into() }),
        code().prop_map(|status| Body::TraceConfig { status: status.into() }),
        code().prop_map(|status| Body::TraceControl { status: status.into() }),
        code().prop_map(|status| Body::CmReset { status: status.into() }),
        (code(), any::<u64>())
            .prop_map(|(error, payload)| { Body::FwError { error: error.into(), payload } }),
        any::<(u32, u8)>().prop_map(|(data_size, buffer_type)| {
            Body::TraceBufferFull { data_size, buffer_type }
        }),
        unknown.prop_map(|msg_id| Body::Unknown { msg_id }),
    ]
}

/// All but lists and launches, which borrow.
fn command() -> impl Strategy<Value = Command<'static>> {
    let config = any::<(u64, u64, u32, u32, u32)>();
    prop_oneof![
        Just(Command::CheckCompatibility),
        Just(Command::Echo),
        Just(Command::Abort),
        any::<u8>().prop_map(|kind| {
            Command::FirmwareVersion { firmware: FirmwareType::from(u32::from(kind)) }
        }),
        tag().prop_map(|launch| Command::KernelAbort { launch }),
        any::<u64>().prop_map(|shire_mask| Command::CmReset { shire_mask }),
        config.prop_map(|(shire_mask, thread_mask, event_mask, filter_mask, threshold)| {
            Command::TraceRtConfig(TraceRtConfig {
                shire_mask,
                thread_mask,
                event_mask,
                filter_mask,
                threshold,
            })
        }),
        any::<(u32, u32)>().prop_map(|(a, b)| Command::TraceRtControl {
            runtimes: TraceRuntimes::from_bits(a),
            control: TraceControl::from_bits(b),
        }),
        (0_u16..513).prop_map(|msg_id| Command::Unknown { msg_id }),
    ]
}

fn parsed(bytes: &[u8]) -> (Header, Command<'_>) {
    let (header, command) = Command::parse(bytes).unwrap();
    assert_eq!(command_bytes(&header), Ok(bytes.len()));
    (header, command)
}

fn node_fields() -> impl Strategy<Value = Vec<[u8; 32]>> {
    prop::collection::vec(any::<[u8; 32]>(), 1..=MAX_LIST_NODES)
}

proptest! {
    #[test]
    fn completions_survive_the_wire(tag in tag(), body in body()) {
        let completion = Completion::new(tag, body);
        let mut out = [0xff; 128];
        let len = completion.encode(&mut out).unwrap();
        prop_assert_eq!(Completion::parse(&out[..len]), Ok(completion));
        let header = Header::read_from_prefix(&out).unwrap().0;
        prop_assert_eq!(completion_bytes(Endpoint::Operations, &header), Ok(len));
        prop_assert_eq!(header.tag(), tag);
        for short in 0..len {
            let needs = completion.encode(&mut vec![0; short]);
            prop_assert!(matches!(needs, Err(EncodeError::BufferTooSmall { .. })), "{:?}", needs);
            prop_assert!(Completion::parse(&out[..short]).is_err());
        }
    }

    #[test]
    fn commands_survive_the_wire(tag in tag(), bits in any::<u16>(), command in command()) {
        let flags = CommandFlags::from_bits(bits);
        let mut out = [0xff; MAX_COMMAND_BYTES];
        let len = command.encode(tag, flags, &mut out).unwrap();
        let (header, read) = parsed(&out[..len]);
        prop_assert_eq!((header.tag(), header.flags(), read), (tag, flags, command));
        // Firmware answers what it rejects under the id after that of the command.
        if let Some(body) = command.rejected(Times::default()) {
            let len = Completion::new(tag, body).encode(&mut out).unwrap();
            let answer = Header::read_from_prefix(&out[..len]).unwrap().0;
            prop_assert_eq!(answer.msg_id.get(), command.msg_id() + 1);
        }
    }

    #[test]
    fn lists_survive_the_wire(tag in tag(), fields in node_fields()) {
        let bytes: Vec<u8> = fields.iter().flatten().copied().collect();
        fn nodes<T: FromBytes>(fields: &[[u8; 32]]) -> Vec<T> {
            fields.iter().map(|node| T::read_from_bytes(node).unwrap()).collect()
        }
        let writes: Vec<DmaWriteNode> = nodes(&fields);
        let reads: Vec<DmaReadNode> = nodes(&fields);
        let p2p_writes: Vec<P2pWriteNode> = nodes(&fields);
        let p2p_reads: Vec<P2pReadNode> = nodes(&fields);
        for command in [
            Command::DmaWriteList { nodes: &writes },
            Command::DmaReadList { nodes: &reads },
            Command::P2pDmaWriteList { nodes: &p2p_writes },
            Command::P2pDmaReadList { nodes: &p2p_reads },
        ] {
            let mut out = [0xff; MAX_COMMAND_BYTES];
            let len = command.encode(tag, CommandFlags::BARRIER, &mut out).unwrap();
            prop_assert_eq!(&out[8..len], &bytes[..]);
            prop_assert_eq!(parsed(&out[..len]).1, command);
        }
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
        let trace_part = trace.map(|bytes| TraceConfig::read_from_bytes(&bytes).unwrap());
        let stack_part = stack.map(|bytes| StackConfig::read_from_bytes(&bytes).unwrap());
        let payload = LaunchPayload::new(trace_part.as_ref(), stack_part.as_ref(), &args);
        let mut expected: Vec<u8> = trace.iter().flatten().chain(stack.iter().flatten()).copied().collect();
        expected.extend(&args);
        expected.resize(expected.len().next_multiple_of(8), 0);
        if expected.len() > MAX_LAUNCH_PAYLOAD {
            let error = EncodeError::PayloadTooLarge { len: expected.len(), max: MAX_LAUNCH_PAYLOAD };
            prop_assert_eq!(payload, Err(error));
            return Ok(());
        }
        let payload = payload.unwrap();
        prop_assert_eq!(payload.as_bytes(), &expected[..]);
        let has = |flag| payload.flags().contains(flag);
        prop_assert_eq!(has(CommandFlags::KERNEL_TRACE), trace.is_some());
        prop_assert_eq!(has(CommandFlags::USER_STACK), stack.is_some());
        prop_assert_eq!(has(CommandFlags::ARGS_EMBEDDED), !args.is_empty());
        let address = |value| Some(DeviceAddr::new(value)).filter(|_| value != 0);
        let command = Command::KernelLaunch(Launch {
            entry: DeviceAddr::new(entry),
            args: address(pointer),
            exception_buffer: address(exceptions),
            shire_mask,
            payload: payload.as_bytes(),
        });
        let mut out = [0xff; MAX_COMMAND_BYTES];
        let len = command.encode(tag, payload.flags(), &mut out).unwrap();
        prop_assert_eq!(len, 40 + expected.len());
        let (header, read) = parsed(&out[..len]);
        prop_assert_eq!((header.flags(), read), (payload.flags(), command));
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
        prop_assert!(Command::parse(&command).is_ok());
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
