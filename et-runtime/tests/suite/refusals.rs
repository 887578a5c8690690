//! Each status that a device may answer with reaches the user as itself. Spec: §7

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::NonZeroU32;
use std::time::Duration;

use et_devapi::msg::ops::{TraceControl, TraceRuntimes};
use et_hal_sim::{Answered, Fault, SimHal};
use et_runtime::status::{
    AbortStatus, CmResetStatus, CompatibilityStatus, DmaStatus, EchoStatus, FirmwareVersionStatus,
    LaunchStatus, TraceConfigStatus, TraceControlStatus,
};
use et_runtime::trace::FirmwareTraceConfig;
use et_runtime::{Config, Device, DeviceError, Error, FirmwareType, Launch, OpenError, Refusal};

const LONG: Duration = Duration::from_secs(20);

/// All statuses of an enumeration but success, and one that it does not have.
fn refusals<S: From<u32> + std::fmt::Debug>() -> Vec<(u32, S)> {
    let is_known = |code: &u32| !format!("{:?}", S::from(*code)).starts_with("Unknown");
    let unknown = (0..).find(|code| !is_known(code)).unwrap();
    assert!(unknown > 1, "there is nothing but success");
    (1..=unknown).chain([u32::MAX]).map(|code| (code, S::from(code))).collect()
}

fn hal(locator: &str) -> SimHal {
    SimHal::open(format!("shires=1,dram=256MiB,threads=1{locator}").parse().unwrap()).unwrap()
}

fn device() -> Device<SimHal> {
    Device::open_with(hal(""), Config::new().watchdog(LONG)).unwrap()
}

/// Has the next answer to such a command refuse it.
fn refuse(device: &Device<SimHal>, to: Answered, status: u32) {
    device.hal().board().inject(Fault::Answer { to, nth: NonZeroU32::MIN, status });
}

fn expect_refusal(outcome: Result<impl std::fmt::Debug, Error>, op: &str, refusal: &Refusal) {
    match outcome {
        Err(Error::Refused { op: its, status }) => assert_eq!((its, &status), (op, refusal)),
        other => panic!("{refusal:?} became {other:?}"),
    }
}

#[test]
fn those_of_opening() {
    let open = |fault: String| {
        let OpenError::Step(error) = Device::open(hal(&fault)).unwrap_err() else {
            panic!("{fault} opens");
        };
        Err::<(), _>(*error)
    };
    for (code, status) in refusals::<CompatibilityStatus>() {
        let outcome = open(format!(",fault=answer:compatibility:1:{code}"));
        expect_refusal(outcome, "compatibility check", &Refusal::Compatibility(status));
    }
    for (code, status) in refusals::<AbortStatus>() {
        let outcome = open(format!(",fault=answer:abort:2:{code}"));
        expect_refusal(outcome, "abort of earlier work", &Refusal::Abort(status));
    }
}

#[test]
fn those_of_questions_and_settings() {
    let device = device();
    for (code, status) in refusals::<FirmwareVersionStatus>() {
        refuse(&device, Answered::FirmwareVersion, code);
        let outcome = device.firmware_version(FirmwareType::MasterMinion);
        expect_refusal(outcome, "firmware version query", &Refusal::FirmwareVersion(status));
    }
    for (code, status) in refusals::<EchoStatus>() {
        refuse(&device, Answered::Echo, code);
        expect_refusal(device.correlate_clocks(1), "echo", &Refusal::Echo(status));
        refuse(&device, Answered::Echo, code);
        let outcome = device.default_stream().barrier().unwrap().wait(LONG);
        match status {
            // By another than this process, which would send it again.
            EchoStatus::HostAborted => {
                assert!(matches!(outcome, Err(Error::Aborted { op: "barrier" })), "{outcome:?}");
            }
            status => expect_refusal(outcome, "barrier", &Refusal::Echo(status)),
        }
    }
    for (code, status) in refusals::<TraceConfigStatus>() {
        refuse(&device, Answered::TraceConfig, code);
        let outcome = device.configure_trace(&FirmwareTraceConfig::new(1));
        expect_refusal(outcome, "trace configuration", &Refusal::TraceConfig(status));
    }
    for (code, status) in refusals::<TraceControlStatus>() {
        refuse(&device, Answered::TraceControl, code);
        let outcome = device.reset_trace(TraceRuntimes::MM, TraceControl::ENABLE);
        expect_refusal(outcome, "trace control", &Refusal::TraceControl(status));
    }
    for (code, status) in refusals::<CmResetStatus>() {
        refuse(&device, Answered::ComputeReset, code);
        expect_refusal(device.reset_compute(LONG), "compute reset", &Refusal::ComputeReset(status));
    }
    // It was not hurt by all that.
    device.reset_compute(LONG).unwrap();
    device.default_stream().barrier().unwrap().wait(LONG).unwrap();
}

#[test]
fn those_of_copies() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    let stream = device.default_stream();
    for (code, wanted) in refusals::<DmaStatus>() {
        let write = || stream.copy_to_device(&[7u8; 64], &buffer).unwrap().wait(LONG).map(drop);
        let read = || stream.read(&buffer, &mut [0u8; 64], LONG);
        let copies: [(Answered, &str, &dyn Fn() -> _); 2] = [
            (Answered::DmaWrite, "copy to the device", &write),
            (Answered::DmaRead, "copy from the device", &read),
        ];
        for (to, name, copy) in copies {
            refuse(&device, to, code);
            match copy() {
                Err(Error::Copy { op, status }) => assert_eq!((op, status), (name, wanted)),
                Err(Error::Aborted { .. }) => assert_eq!(wanted, DmaStatus::HostAborted),
                other => panic!("{wanted:?} became {other:?}"),
            }
            copy().unwrap();
        }
    }
}

fn kernel(device: &Device<SimHal>, name: &str) -> Launch {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf");
    let file = std::fs::read(format!("{folder}/{name}.elf")).unwrap();
    Launch::new(&device.load_kernel(name, &file).unwrap())
}

#[test]
fn those_of_launches() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    let launch = kernel(&device, "memset").buffer(&buffer).u64(7).u64(64);
    for (code, wanted) in refusals::<LaunchStatus>() {
        refuse(&device, Answered::KernelLaunch, code);
        match device.default_stream().launch(&launch).unwrap().wait(LONG) {
            Err(Error::Launch(failure)) => assert_eq!(failure.status, wanted),
            Err(Error::Aborted { .. }) => assert_eq!(wanted, LaunchStatus::HostAborted),
            other => panic!("{wanted:?} became {other:?}"),
        }
        device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    }
}

/// The report of a failed launch says why it has no contexts, and launches go on whatever becomes
/// of the memory that the next ones need.
#[test]
fn those_of_copies_behind_a_failed_launch() {
    let device = device();
    let launch = kernel(&device, "trap_load");
    let fail = || match device.default_stream().launch(&launch).unwrap().wait(LONG) {
        Err(Error::Launch(failure)) => failure,
        other => panic!("{other:?}"),
    };
    assert!(!fail().contexts.is_empty());
    for (code, wanted) in refusals::<DmaStatus>() {
        refuse(&device, Answered::DmaRead, code);
        let failure = fail();
        assert!(failure.contexts.is_empty() && failure.status == LaunchStatus::Exception);
        let why = failure.contexts_error.as_ref().unwrap();
        assert!(why.contains(&wanted.to_string()), "{why}");
    }
    // More often than there are contexts.
    for code in [u32::from(DmaStatus::HostAborted), u32::from(DmaStatus::InvalidAddress)] {
        for _ in 0..70 {
            refuse(&device, Answered::DmaWrite, code);
            // What a launch with a new context writes is a part of it.
            let event = device.default_stream().launch(&launch);
            assert!(event.and_then(|event| event.wait(LONG)).is_err());
        }
    }
    // The last of them may not have met a copy yet.
    let buffer = device.alloc(64).unwrap();
    while device.default_stream().fill(&buffer, 0).unwrap().wait(LONG).is_err() {}
    assert!(!fail().contexts.is_empty());
}

/// What was to be aborted goes on; it is said, and whoever waits has a deadline.
#[test]
fn those_of_aborts_are_listed() {
    let device = device();
    for (code, wanted) in refusals::<AbortStatus>() {
        let kernel = device.default_stream().launch(&kernel(&device, "hang")).unwrap();
        refuse(&device, Answered::Abort, code);
        device.abort(&kernel, LONG).unwrap();
        let listed = device.take_errors().errors;
        let refused = listed.iter().find_map(|error| match error {
            DeviceError::Device(Error::Refused { op: "abort", status }) => Some(status),
            _ => None,
        });
        assert_eq!(refused, Some(&Refusal::Abort(wanted)), "{listed:?}");
    }
}
