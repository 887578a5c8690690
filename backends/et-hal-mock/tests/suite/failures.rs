//! What the runtime does with devices that no simulator gives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use et_devapi::msg::Tag;
use et_devapi::msg::ops::{Body, Command, Completion, FirmwareType, FwErrorType, Version};
use et_hal::{ErrorKind, Push};
use et_hal_mock::{MockHal, MockMailbox, MockMmio, VecDma, presets};
use et_runtime::memory::Access;
use et_runtime::{Config, Device, Drain, Error, OpenError, Refusal, StreamError};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config::new()
        .drain(Drain::Caller)
        .boot_timeout(SHORT)
        .command_timeout(SHORT)
        .shutdown_timeout(SHORT)
        .spin(Duration::ZERO)
}

fn open(mmio: MockMmio, mailbox: MockMailbox) -> Result<Device<MockHal>, OpenError> {
    Device::open_with(MockHal::new(mmio, mailbox), config())
}

fn healthy() -> MockMailbox {
    presets::answering_mailbox(presets::success)
}

#[test]
fn a_device_that_never_boots_is_a_boot_error_with_its_status() {
    let error = open(presets::never_boots(), healthy()).unwrap_err();
    assert!(matches!(error, OpenError::Boot { endpoint: "mgmt", status: 0, .. }), "{error}");
}

#[test]
fn a_link_that_is_down_is_a_boot_error_and_not_a_crash() {
    let error = open(presets::link_down(), healthy()).unwrap_err();
    assert!(matches!(error, OpenError::Boot { status: -1, .. }), "{error}");
}

#[test]
fn a_wrong_crc_is_refused() {
    let error = open(presets::corrupt_registers(), healthy()).unwrap_err();
    assert!(matches!(error, OpenError::Registers(_)), "{error}");
}

#[test]
fn another_major_version_is_refused() {
    let version = Version { major: 3, minor: 0, patch: 0 };
    let mailbox = presets::answering_mailbox(move |header, command| {
        let mut answers = presets::success(header, command);
        if let Some(Completion { body: Body::Compatibility { version: v, .. }, .. }) =
            answers.first_mut()
        {
            *v = version;
        }
        answers
    });
    let error = open(presets::booted_registers(), mailbox).unwrap_err();
    assert!(
        matches!(error, OpenError::Version { found, required: 2 } if found == version),
        "{error}"
    );
}

#[test]
fn a_silent_device_is_a_timeout() {
    let error = open(presets::booted_registers(), presets::silent_mailbox()).unwrap_err();
    assert!(matches!(Error::from(error), Error::Timeout { .. }));
}

#[test]
fn a_queue_that_stays_full_is_a_timeout() {
    let error = open(presets::booted_registers(), presets::full_mailbox()).unwrap_err();
    assert!(matches!(Error::from(error), Error::Timeout { .. }));
}

#[test]
fn a_corrupt_queue_fails_everything_in_flight_and_later_calls() {
    // Two aborts and the version check are answered, the copy is not.
    let device = open(presets::booted_registers(), presets::corrupt_after(3)).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    let error = event.wait(LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let error = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

#[test]
fn a_queue_that_refuses_a_command_fails_it_and_the_device() {
    let mailbox = presets::pushes_after(3, || Err(ErrorKind::Permission));
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    let stream = device.default_stream();
    let error = stream
        .copy_to_device(&[1u8; 64], &buffer)
        .and_then(|event| event.wait(LONG).map(drop))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    let error = stream.copy_to_device(&[1u8; 64], &buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    stream.synchronize(LONG).unwrap();
}

#[test]
fn a_command_that_finds_no_room_in_time_leaves_its_stream_idle() {
    let mailbox = presets::pushes_after(3, || Ok(Push::Full));
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    let stream = device.default_stream();
    let error = stream.copy_to_device(&[1u8; 64], &buffer).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    stream.synchronize(LONG).unwrap();
}

#[test]
fn a_callback_may_use_the_stream_of_its_event() {
    let device = Arc::new(open(presets::booted_registers(), healthy()).unwrap());
    let buffer = device.alloc(64).unwrap();
    let stream = device.stream();
    let second = Arc::new(Mutex::new(None));
    let (again, into, to) = (stream.clone(), Arc::clone(&second), buffer.whole());
    let first = stream.copy_to_device(&[1u8; 64], &buffer).unwrap();
    first.on_done(move |_| *into.lock().unwrap() = Some(again.copy_to_device(&[2u8; 64], to)));
    first.wait(LONG).unwrap();
    let event = second.lock().unwrap().take().expect("the callback ran before the wait ended");
    event.unwrap().wait(LONG).unwrap();
}

#[test]
fn responses_to_nothing_are_counted_and_ignored() {
    let mailbox = presets::answering_mailbox(|header, command| {
        let mut answers = presets::success(header, command);
        if let Command::DmaWriteList { .. } = command {
            // The answer, once more, and one to a tag no one has.
            answers.push(answers[0]);
            answers.push(Completion::new(
                Tag::new(0x1234),
                Body::Echo { start: 0, status: et_devapi::msg::ops::EchoStatus::Success },
            ));
        }
        answers
    });
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap().wait(LONG).unwrap();
    device.poll();
    assert_eq!(device.counters().stray_responses, 2);
}

#[test]
fn events_are_counted_by_their_kind() {
    let mailbox = presets::answering_mailbox(|header, command| {
        let mut answers = presets::success(header, command);
        if let Command::DmaWriteList { .. } = command {
            let full = Body::TraceBufferFull { data_size: 4096, buffer_type: 0 };
            // A command of a tag that no one has is refused.
            let error = FwErrorType::UnsupportedCommand;
            let refused = Body::FwError { error, payload: 0x1234 };
            let unknown = Body::Unknown { msg_id: 999 };
            answers.extend([full, full, full, refused, refused, unknown].map(Completion::event));
            // What is not known is no answer, whatever its tag.
            answers.insert(0, Completion::new(header.tag(), unknown));
        }
        answers
    });
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap().wait(LONG).unwrap();
    device.poll();
    let counters = device.counters();
    assert_eq!((counters.trace_buffer_events, counters.stray_responses), (3, 2));
    assert_eq!(counters.unknown_messages, 2);
}

#[test]
fn garbage_in_the_completion_queue_loses_the_device_without_a_panic() {
    let mut commands = 0;
    let mailbox = presets::raw_mailbox(move |message| {
        commands += 1;
        if commands > 3 {
            return vec![vec![0xee; 40]];
        }
        let (header, command) = Command::parse(message).unwrap();
        let mut bytes = vec![0; 64];
        let len = presets::success(header, &command)[0].encode(&mut bytes).unwrap();
        bytes.truncate(len);
        vec![bytes]
    });
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    let error = event.wait(LONG).unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[test]
fn an_unsupported_command_fails_by_the_event_that_names_its_tag() {
    let mailbox = presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } | Command::FirmwareVersion { .. } => {
            let error = FwErrorType::UnsupportedCommand;
            vec![Completion::event(Body::FwError { error, payload: header.tag().as_u16().into() })]
        }
        _ => presets::success(header, command),
    });
    let device = open(presets::booted_registers(), mailbox).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    let version = device.firmware_version(FirmwareType::MasterMinion);
    for (error, name) in [
        (event.wait(LONG).unwrap_err(), "copy to device"),
        (version.unwrap_err(), "firmware version query"),
    ] {
        let Error::Refused { op, status } = error else { panic!("{error}") };
        assert_eq!((op, status), (name, Refusal::Unsupported));
    }
    assert_eq!(device.counters().stray_responses, 0);
}

#[test]
fn no_host_memory_is_an_error_of_the_call_and_leaks_nothing() {
    let dma = VecDma::limited(0);
    let hal = MockHal::new(presets::booted_registers(), healthy()).with_dma(dma.clone());
    let device = Device::open_with(hal, config()).unwrap();
    let buffer = device.alloc(64).unwrap();
    let error = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exhausted(_)), "{error}");
    assert_eq!(dma.live_buffers(), 0);
    assert!(device.default_stream().is_idle());
}

#[test]
fn a_wait_that_times_out_keeps_the_buffer_from_being_freed() {
    let mailbox = presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } => Vec::new(),
        _ => presets::success(header, command),
    });
    let dma = VecDma::default();
    let hal = MockHal::new(presets::booted_registers(), mailbox).with_dma(dma.clone());
    let device = Device::open_with(hal, config()).unwrap();
    let buffer = device.alloc(64).unwrap();
    let event = device.default_stream().copy_to_device(&[1u8; 64], &buffer).unwrap();
    assert!(matches!(event.wait(SHORT), Err(Error::Timeout { .. })));
    drop((event, buffer));
    // The device may still read staging and write device memory: both stay.
    assert_eq!(dma.live_buffers(), 1);
    assert_eq!(device.memory_stats().live_blocks, 1);
}

/// Copies to the device are never answered.
fn deaf_to_copies() -> MockMailbox {
    presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } => Vec::new(),
        _ => presets::success(header, command),
    })
}

#[test]
fn a_read_that_is_late_says_whose_limit_it_was() {
    let soon = Duration::from_millis(20);
    for (mine, of_commands) in [(LONG, soon), (soon, LONG)] {
        let hal = MockHal::new(presets::booted_registers(), deaf_to_copies());
        // Room for one piece, which the copy keeps.
        let config = config().staging_bytes(1).command_timeout(of_commands);
        let device = Device::open_with(hal, config).unwrap();
        let buffer = device.alloc(1 << 20).unwrap();
        let stream = device.default_stream();
        let first = buffer.slice(..256 << 10).unwrap();
        let _copy = stream.copy_to_device(&vec![1_u8; 256 << 10], first).unwrap();
        let error = stream.read(&buffer, &mut vec![0_u8; 1 << 20], mine).unwrap_err();
        let Error::Timeout { after, .. } = &error else { panic!("{error}") };
        assert_eq!(*after, soon);
        let text = error.to_string();
        assert_eq!(text.contains("earlier work of the stream"), mine == LONG, "{text}");
    }
}

#[test]
fn a_mapping_that_outlives_its_device_lists_what_is_lost() {
    let device = open(presets::booted_registers(), healthy()).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let stream = device.stream();
    let [mut changed, unchanged] = [0..2048, 2048..4096]
        .map(|range| stream.map(buffer.slice(range).unwrap(), Access::Write, LONG).unwrap());
    changed.write(0, &[7_u8]).unwrap();
    device.close();
    drop((changed, unchanged));
    let listed = stream.take_errors();
    let [StreamError::NotWrittenBack { addr, error, .. }] = &listed.errors[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(*addr, buffer.addr());
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}
