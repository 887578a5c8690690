//! Kernels that fail, devices that fail: a clear error, and the next launch works.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::time::Duration;

use common::{LONG, elf, load, open};
use et::hal::ErrorKind;
use et::kernel::{Cause, ElfError, ExceptionKind, HartContext, LaunchFailure};
use et::{AnyHal, Config, Device, Error, Launch};

const SHORT: Duration = Duration::from_millis(50);

/// The device still computes.
fn works(device: &Device<AnyHal>) {
    let kernel = load(device, "add");
    let buffer = device.alloc(64).unwrap();
    let stream = device.default_stream();
    let _ = stream.copy_to_device(&[1.5f32; 16], &buffer).unwrap();
    let launch = Launch::new(&kernel).buffer(&buffer).buffer(&buffer).buffer(&buffer).u64(16);
    stream.launch(&launch).unwrap().wait(LONG).unwrap();
    let mut result = [0.0f32; 16];
    stream.read(&buffer, &mut result, LONG).unwrap();
    assert_eq!(result, [3.0; 16]);
}

fn fails(device: &Device<AnyHal>, launch: &Launch) -> LaunchFailure {
    let outcome = device.default_stream().launch(launch).unwrap().wait(LONG);
    match outcome {
        Err(Error::Launch(failure)) => (*failure).clone(),
        other => panic!("{other:?}"),
    }
}

fn only(failure: &LaunchFailure) -> &HartContext {
    assert_eq!(failure.contexts.len(), 1, "{failure:#}");
    &failure.contexts[0]
}

#[test]
fn a_trap_is_reported_with_hart_cause_address_function_and_line() {
    let device = open("shires=2,dram=1GiB");
    let kernel = load(&device, "trap_load");
    let failure = fails(&device, &Launch::new(&kernel).u64(70));
    let hart = only(&failure);
    assert_eq!(hart.hart_id, 70);
    assert!(
        matches!(hart.kind, ExceptionKind::Trap { cause: Cause::LoadAccessFault, tval: 0 }),
        "{hart}"
    );
    assert_eq!(failure.shire_mask, 0b10);
    let location = failure.location(hart).unwrap();
    assert_eq!(location.symbol.unwrap().0, "load_from_null");
    assert!(location.source.unwrap().0.ends_with("trap_load.c"));
    works(&device);
}

#[test]
fn an_illegal_instruction_is_reported() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "trap_illegal");
    let failure = fails(&device, &Launch::new(&kernel).u64(5));
    let hart = only(&failure);
    let ExceptionKind::Trap { cause: Cause::IllegalInstruction, .. } = hart.kind else {
        panic!("{hart}")
    };
    assert_eq!(hart.hart_id, 5);
    works(&device);
}

#[test]
fn all_harts_may_fail_at_once() {
    let device = open("shires=2,dram=1GiB");
    let kernel = load(&device, "trap_load");
    let failure = fails(&device, &Launch::new(&kernel).u64(u64::MAX));
    assert_eq!(failure.contexts.len(), 128);
    works(&device);
}

#[test]
fn a_negative_return_value_reaches_the_caller() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "negative_return");
    let failure = fails(&device, &Launch::new(&kernel).u64(9));
    let hart = only(&failure);
    assert_eq!((hart.hart_id, hart.kind), (9, ExceptionKind::KernelError(-7)));
    works(&device);
}

#[test]
fn a_kernel_that_gives_up_is_reported() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "self_abort");
    let failure = fails(&device, &Launch::new(&kernel).u64(0));
    assert_eq!(only(&failure).kind, ExceptionKind::SelfAbort);
    works(&device);
}

#[test]
fn the_report_of_an_earlier_failure_does_not_show_in_a_later_one() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "trap_load");
    for hart in [3u64, 4, 5] {
        let failure = fails(&device, &Launch::new(&kernel).u64(hart));
        assert_eq!(u64::from(only(&failure).hart_id), hart);
    }
}

#[test]
fn a_kernel_that_never_ends_is_aborted_and_says_where_it_was() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "hang");
    let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
    assert!(matches!(event.wait(SHORT), Err(Error::Timeout { .. })));
    device.abort_launch(&event, LONG).unwrap();
    let Err(Error::Launch(failure)) = event.wait(LONG) else { panic!("{event:?}") };
    assert_eq!(failure.contexts.len(), 64);
    assert!(failure.contexts.iter().all(|hart| hart.kind == ExceptionKind::SystemAbort));
    works(&device);
}

#[test]
fn aborting_a_stream_leaves_the_others_alone() {
    let device = open("shires=1,dram=1GiB");
    let hang = load(&device, "hang");
    // Streams 1 and 3 share a queue; 3 has a copy behind the endless kernel of 1.
    let (bad, good) = (device.stream(), device.stream());
    let event = bad.launch(&Launch::new(&hang)).unwrap();
    let later = bad.launch(&Launch::new(&hang)).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let copy = good.copy_to_device(&[7u8; 4096], &buffer).unwrap();
    bad.abort(LONG).unwrap();
    assert!(event.wait(LONG).is_err() && later.wait(LONG).is_err());
    copy.wait(LONG).unwrap();
    assert!(bad.is_idle());
    works(&device);
}

#[test]
fn closing_with_an_endless_kernel_ends() {
    let config = Config::new().shutdown_timeout(SHORT);
    let device = et::open_with("sim:shires=1,dram=1GiB".parse().unwrap(), config).unwrap();
    let kernel = load(&device, "hang");
    let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
    device.close();
    assert!(event.wait(LONG).is_err());
}

#[test]
fn handles_of_before_a_reset_are_stale() {
    let mut device = open("shires=1,dram=1GiB");
    let stream = device.stream();
    let buffer = device.alloc(64).unwrap();
    let kernel = load(&device, "hang");
    let event = stream.launch(&Launch::new(&kernel)).unwrap();
    device.reset(LONG).unwrap();
    assert!(matches!(event.wait(LONG), Err(Error::Stale)));
    let stale = stream.copy_to_device(&[0u8; 64], &buffer);
    assert!(matches!(stale, Err(Error::Stale)));
    let foreign = device.default_stream().copy_to_device(&[0u8; 64], &buffer);
    assert!(matches!(foreign, Err(Error::ForeignBuffer)));
    works(&device);
}

#[test]
fn compute_can_be_reset() {
    let device = open("shires=1,dram=1GiB");
    let kernel = load(&device, "hang");
    let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
    device.reset_compute(LONG).unwrap();
    assert!(event.wait(LONG).is_err());
    works(&device);
}

#[test]
fn the_callers_mistakes_are_refused_before_anything_is_sent() {
    let device = open("shires=2,dram=1GiB");
    let commands = || device.hal().as_sim().unwrap().board().counters().commands;
    let kernel = load(&device, "add");
    let stream = device.default_stream();
    let buffer = device.alloc(1024).unwrap();
    let before = commands();

    let mask = stream.launch(&Launch::new(&kernel).shires(0b100));
    assert!(matches!(mask, Err(Error::ShireMask { asked: 0b100, available: 0b11 })));
    assert!(matches!(stream.launch(&Launch::new(&kernel).shires(0)), Err(Error::ShireMask { .. })));
    let args = et::KernelArgs::new().bytes(&vec![0; (1 << 20) + 1], 1);
    assert!(matches!(
        stream.launch(&Launch::new(&kernel).args(args)),
        Err(Error::ArgumentsTooLarge { .. })
    ));
    let huge = stream.launch(&Launch::new(&kernel).stack_bytes(1 << 40));
    assert!(matches!(huge, Err(Error::LaunchOption { option: "stack", .. })));

    assert!(matches!(buffer.slice(1000..1025), Err(Error::OutOfRange { .. })));
    let misaligned = stream.copy_to_device(&[0u8; 8], buffer.slice(4..12).unwrap());
    assert!(matches!(misaligned, Err(Error::Misaligned { .. })));
    let inside = stream.copy_to_device(&[0u8; 5], buffer.slice(0..5).unwrap());
    assert!(matches!(inside, Err(Error::Misaligned { .. })));
    let mismatch = stream.copy_to_device(&[0u8; 8], &buffer);
    assert!(matches!(mismatch, Err(Error::LengthMismatch { from: 8, to: 1024 })));
    let (low, high) = (buffer.slice(0..512).unwrap(), buffer.slice(256..768).unwrap());
    assert!(matches!(stream.copy_on_device(low, high), Err(Error::Overlap { .. })));
    let other = open("shires=1,dram=1GiB").alloc(1024).unwrap();
    assert!(matches!(stream.fill(&other, 0), Err(Error::ForeignBuffer)));

    let memory = device.alloc(1 << 40).unwrap_err();
    let text = memory.to_string();
    assert!(text.contains("1099511627776") && text.contains("largest"), "{text}");
    assert_eq!(commands(), before);
    works(&device);
}

#[test]
fn zero_length_copies_succeed() {
    let device = open("shires=1,dram=1GiB,compute=null");
    let buffer = device.alloc(64).unwrap();
    let nothing = buffer.slice(64..64).unwrap();
    let stream = device.default_stream();
    stream.copy_to_device::<u8>(&[], &nothing).unwrap().wait(LONG).unwrap();
    stream.read::<u8>(&nothing, &mut [], LONG).unwrap();
    stream.fill(&nothing, 1).unwrap().wait(LONG).unwrap();
    stream.copy_on_device(&nothing, &nothing).unwrap().wait(LONG).unwrap();
}

#[test]
fn bad_kernels_are_refused() {
    let device = open("shires=1,dram=1GiB");
    let good = elf("add");
    let load = |bytes: &[u8]| device.load_kernel("bad", bytes);
    let error = |outcome: et::Result<et::Kernel>| match outcome {
        Err(Error::Elf(error)) => (*error).clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(error(load(&[])), ElfError::NotElf));
    error(load(&good[..good.len() / 2]));
    let mut narrow = good.clone();
    narrow[4] = 1;
    assert!(matches!(error(load(&narrow)), ElfError::NotSixtyFourBit { .. }));
    let mut foreign = good.clone();
    foreign[18] = 62;
    assert!(matches!(error(load(&foreign)), ElfError::WrongMachine { machine: 62 }));
    let unknown = device.load_kernel_entry("add", &good, Some("no_such_function"));
    assert!(matches!(error(unknown), ElfError::UnknownSymbol { .. }));
    works(&device);
}

#[test]
fn hostile_devices_give_errors_and_no_hangs() {
    let quick = || {
        Config::new()
            .boot_timeout(Duration::from_secs(1))
            .command_timeout(Duration::from_secs(2))
            .shutdown_timeout(SHORT)
    };
    let open = |fault: &str| {
        let locator = format!("sim:compute=null,dram=1GiB,fault={fault}");
        et::open_with(locator.parse().unwrap(), quick())
    };
    let device_error = |fault: &str| match open(fault) {
        Err(et::OpenError::Device(error)) => error,
        other => panic!("{fault}: {other:?}"),
    };
    assert_eq!(device_error("never-boots").kind(), ErrorKind::Timeout);
    assert_eq!(device_error("boot-error:mgmt").kind(), ErrorKind::Timeout);
    assert_eq!(device_error("boot-stops:ops:4").kind(), ErrorKind::Timeout);
    assert!(matches!(device_error("bad-crc:ops"), Error::Registers(_)));
    assert!(matches!(device_error("bad-crc:mgmt"), Error::Registers(_)));
    assert!(matches!(device_error("bad-size:ops:600"), Error::Registers(_)));

    // These devices misbehave later; what they do must end in success or in an error.
    for fault in [
        "noise",
        "spurious-interrupts:2",
        "lost-interrupts:1",
        "unknown-tag:6:4660",
        "bad-index:8:5000",
        "garbage:8",
        "drop-response:8",
    ] {
        let device = match open(fault) {
            Ok(device) => device,
            Err(error) => panic!("{fault}: {error:?}"),
        };
        let buffer = device.alloc(4096).unwrap();
        let stream = device.default_stream();
        let mut failed = false;
        for _ in 0..20 {
            let outcome = stream
                .copy_to_device(&[1u8; 4096], &buffer)
                .and_then(|event| event.wait(Duration::from_secs(2)));
            failed |= outcome.is_err();
        }
        let is_harmless =
            ["noise", "spurious-interrupts:2", "lost-interrupts:1", "unknown-tag:6:4660"]
                .contains(&fault);
        assert_eq!(failed, !is_harmless, "{fault}");
    }
}

#[test]
fn a_lost_device_comes_back_by_a_reset() {
    let config = Config::new().command_timeout(Duration::from_secs(2)).shutdown_timeout(SHORT);
    let locator = "sim:shires=1,dram=1GiB,fault=bad-index:8:5000".parse().unwrap();
    let mut device = et::open_with(locator, config).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let outcome = (0..20).try_for_each(|_| {
        device.default_stream().copy_to_device(&[1u8; 4096], &buffer)?.wait(LONG).map(drop)
    });
    assert!(outcome.is_err());
    device.reset(LONG).unwrap();
    let buffer = device.alloc(4096).unwrap();
    // The fault is counted from power-on, so it does not come again.
    device.default_stream().copy_to_device(&[1u8; 4096], &buffer).unwrap().wait(LONG).unwrap();
}
