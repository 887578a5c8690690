//! The whole stack on a simulated card behind a socket.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod import;
mod rig;
mod work;

use std::time::Duration;

use crate::common::{LONG, load};
use et::executor::{ExecutorConfig, Place, RunError};
use et::hal::{AccessPath, Bar, BarOffset, ErrorKind, Hal, LossReason, Mmio, Resource, Width};
use et::{AnyHal, AnyWindow, Config, Device, Error, Launch, OpenError, Remains};
use et_sim_device::{BoardConfig, CpuAccess};
use et_sim_server::CardOptions;
use rig::{Rig, Twist, chain, refused, small, without_cores};

const DRAM_BAR: Bar = et_devapi::pci::DRAM_BAR;
const MAILBOX_BAR: Bar = et_devapi::pci::MAILBOX_BAR;

fn trapped(config: BoardConfig) -> Rig {
    Rig::with(config, CardOptions::new().trap(true), Twist::default())
}

fn window(device: &Device<AnyHal>, bar: Bar) -> AnyWindow {
    device.hal().window(bar).unwrap()
}

#[test]
fn a_card_of_another_process_does_all_that_a_card_does() {
    let rig = Rig::new(small());
    let device = rig.open();
    let mailbox = window(&device, MAILBOX_BAR);
    let path = |at, len| mailbox.path(BarOffset::new(at), len);
    assert_eq!(path(0, 0x2000), AccessPath::Direct, "the rings are mapped");
    assert_eq!(path(0x2000, 4), AccessPath::Trapped, "the doorbells are not");
    assert_eq!(device.hal().as_vfio().unwrap().facts().unwrap().vectors, 4);
    work::everything(&device);
    let did = rig.board.counters();
    assert!(did.commands > 0 && did.ops_doorbells > 0 && did.instructions > 0, "{did:?}");
    drop(mailbox);
    device.close();
    rig.check_left();
    work::everything(&rig.open());
    rig.check_left();
}

#[test]
fn a_card_whose_bars_cannot_be_mapped_does_the_same() {
    let rig = trapped(small());
    let device = rig.open();
    let memory = window(&device, DRAM_BAR);
    assert_eq!(memory.path(BarOffset::new(0), 8), AccessPath::Trapped);
    drop(memory);
    work::everything(&device);
    drop(device);
    rig.check_left();
}

/// The host schedules them through BAR0.
#[test]
fn graphs_run_on_cores_if_device_memory_is_granted_and_mapped() {
    let mut granted = small();
    granted.cpu_access = CpuAccess::Granted;
    let rig = Rig::new(granted.clone());
    let device = rig.open();
    work::graphs(&device, &[Place::Cores]);
    drop(device);
    rig.check_left();

    let refusal = |rig: &Rig| {
        let config = ExecutorConfig::new().place(Place::Cores);
        rig.open().executor(&config).unwrap_err()
    };
    let error = refusal(&trapped(granted));
    assert!(matches!(error, RunError::Unsupported { place: "cores", .. }), "{error}");
    let error = refusal(&Rig::new(small()));
    assert!(matches!(error, RunError::NoCpuAccess), "{error}");
}

/// What the client before has left in the registers is not taken for a device that has booted.
#[test]
fn the_next_client_waits_for_the_reset_that_the_last_one_causes() {
    let rig = Rig::new(small());
    for _ in 0..20 {
        let device = rig.open();
        // A kernel that has to be stopped makes the reset take longer.
        let event = device.default_stream().launch(&Launch::new(&load(&device, "hang"))).unwrap();
        assert!(rig.card.request_removal());
        assert!(event.wait(LONG).is_err());
        drop((device, event));
        assert!(rig.card.wait_until_free(LONG));
    }
    work::saxpy(&rig.open());
}

#[test]
fn doorbells_that_are_no_eventfds_are_rung_by_message() {
    let twist = Twist { has_lines: false, ..Twist::default() };
    let rig = Rig::with(small(), CardOptions::new(), twist);
    work::everything(&rig.open());
    assert!(rig.board.counters().ops_doorbells > 0);
    rig.check_left();
}

/// Device memory through BAR0, against what the DMA engine sees.
fn bar0_is_device_memory(rig: &Rig) {
    let device = rig.open();
    let bar0 = window(&device, DRAM_BAR);
    let stream = device.default_stream();
    let buffer = device.alloc(10_000).unwrap();
    let base = buffer.addr().as_u64() - et_devapi::pci::BAR0_DEVICE_ADDR.as_u64();
    let data = work::pattern(10_000);
    let _ = stream.copy_to_device(&data, &buffer).unwrap();
    stream.synchronize(LONG).unwrap();
    for (start, len) in [(0, 10_000), (1, 1), (3, 4094), (4095, 2), (9_999, 1)] {
        let mut part = vec![0; len];
        bar0.read_bytes(BarOffset::new(base + start as u64), &mut part).unwrap();
        assert!(part == data[start..start + len], "{len} bytes from {start}");
    }
    bar0.write_bytes(BarOffset::new(base + 77), &[0xa5; 4099]).unwrap();
    bar0.write(BarOffset::new(base + 8192), Width::W32, 0x1234_5678).unwrap();
    bar0.flush().unwrap();
    let mut expected = data;
    expected[77..77 + 4099].fill(0xa5);
    expected[8192..8196].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]);
    let mut back = vec![0; 10_000];
    stream.read(&buffer, &mut back, LONG).unwrap();
    assert!(back == expected);
}

#[test]
fn bar0_shows_device_memory_mapped_or_not() {
    let rig = Rig::new(without_cores());
    bar0_is_device_memory(&rig);
    rig.check_left();
    let rig = trapped(without_cores());
    bar0_is_device_memory(&rig);
    rig.check_left();
}

#[test]
fn a_reset_makes_old_handles_stale_and_the_card_new() {
    for options in [CardOptions::new(), CardOptions::new().trap(true)] {
        let rig = Rig::with(small(), options, Twist::default());
        let mut device = rig.open();
        let (stream, buffer) = (device.stream(), device.alloc(64).unwrap());
        let bar2 = window(&device, MAILBOX_BAR);
        let hang = load(&device, "hang");
        let event = stream.launch(&Launch::new(&hang)).unwrap();
        let before = rig.board.generation();
        device.reset(LONG).unwrap();
        assert!(rig.board.generation() > before, "the board was reset");
        assert!(matches!(event.wait(LONG), Err(Error::Stale { .. })));
        assert!(matches!(stream.copy_to_device(&[0_u8; 64], &buffer), Err(Error::Stale { .. })));
        let stale = bar2.read(BarOffset::new(0), Width::W32).unwrap_err();
        assert_eq!(et::hal::Error::kind(&stale), ErrorKind::Stale);
        let old = device.default_stream().copy_to_device(&[0_u8; 64], &buffer);
        assert!(matches!(old, Err(Error::Stale { .. })));
        work::copies(&device);
        work::saxpy(&device);
        drop((device, stream, event, bar2, buffer, hang));
        rig.check_left();
    }
}

/// Ends the device while a kernel runs; what is in flight and what comes later fail alike.
fn loses(rig: &Rig, how: impl FnOnce(), reason: LossReason, remedy: &str) {
    let device = rig.open();
    let hang = load(&device, "hang");
    let target = device.alloc(4096).unwrap();
    let event = device.default_stream().launch(&Launch::new(&hang)).unwrap();
    how();
    let error = event.wait(LONG).unwrap_err();
    let text = chain(&error);
    assert_eq!(error.kind(), ErrorKind::Lost(reason), "{text}");
    assert!(text.contains(remedy), "{text}");
    let later = device.default_stream().copy_to_device(&[1_u8; 4096], &target);
    let later = later.and_then(|event| event.wait(LONG)).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Lost(reason), "{}", chain(&later));
    drop((device, event, target, hang));
}

#[test]
fn a_removal_request_ends_all_work_and_lets_the_card_go() {
    let rig = Rig::new(small());
    let ask = || assert!(rig.card.request_removal(), "the client listens");
    loses(&rig, ask, LossReason::Removed, "drop all handles so that it can go on");
    rig.check_left();
    work::saxpy(&rig.open());
}

#[test]
fn a_bus_error_ends_all_work() {
    let rig = Rig::new(small());
    let report = || assert!(rig.card.report_bus_error(), "the client listens");
    loses(&rig, report, LossReason::LinkDown, "reset the device or the slot");
    rig.check_left();
    work::saxpy(&rig.open());
}

#[test]
fn a_reset_brings_the_card_back_after_a_bus_error() {
    let rig = Rig::new(small());
    let mut device = rig.open();
    let event = device.default_stream().launch(&Launch::new(&load(&device, "hang"))).unwrap();
    assert!(rig.card.report_bus_error());
    assert!(event.wait(LONG).is_err());
    device.reset(LONG).unwrap();
    work::saxpy(&device);
}

/// Until the reset the card may still write to it, whoever has it then.
#[test]
fn a_buffer_in_flight_is_not_given_back_when_the_card_is_lost() {
    let rig = Rig::new(small());
    let mut device = rig.open();
    let target = device.alloc(4096).unwrap();
    let stream = device.stream();
    let event = stream.launch(&Launch::new(&load(&device, "hang"))).unwrap();
    let host = device.host_buffer(4096).unwrap();
    let transfer = stream.download(&target, host).unwrap();
    assert!(rig.card.report_bus_error());
    let failed = transfer.wait(LONG).unwrap_err();
    assert!(matches!(failed.error.kind(), ErrorKind::Lost(_)), "{}", chain(&failed.error));
    assert!(matches!(failed.remains, Remains::Nothing), "{:?}", failed.remains);
    drop((event, stream, target));
    device.reset(LONG).unwrap();
    work::saxpy(&device);
}

#[test]
fn a_server_that_ends_is_named_with_what_to_do() {
    let mut rig = Rig::new(small());
    let device = rig.open();
    let hang = load(&device, "hang");
    let event = device.default_stream().launch(&Launch::new(&hang)).unwrap();
    rig.stop();
    let error = event.wait(LONG).unwrap_err();
    let text = chain(&error);
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{text}");
    assert!(text.contains("start it and open the device again"), "{text}");
    drop((event, hang, device));
    rig.check_left();
    let (kind, text) = refused(rig.try_open(Config::new()));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("is the device process running?"), "{text}");
}

#[test]
fn a_second_client_is_told_that_the_card_is_in_use() {
    let rig = Rig::new(without_cores());
    let first = rig.open();
    assert_eq!(first.properties().sharing, et::hal::Sharing::Exclusive);
    let (kind, text) = refused(rig.try_open(Config::new()));
    assert_eq!(kind, ErrorKind::Busy);
    assert!(text.contains("serving another client"), "{text}");
    // It may look at it through the first.
    #[cfg(feature = "share")]
    {
        let look = et::open_management(rig.locator().parse().unwrap(), Config::new()).unwrap();
        let own = first.management().unwrap();
        assert!(look.is_relayed() && !own.is_relayed());
        assert_eq!(look.serial_number().unwrap(), own.serial_number().unwrap());
    }
    // The first has not noticed.
    work::copies(&first);
    drop(first);
    rig.check_left();
    work::copies(&rig.open());
}

#[test]
fn who_waits_for_a_card_in_use_gets_it_when_its_holder_ends() {
    let rig = Rig::new(without_cores());
    let first = rig.open();
    let locator: et::Locator = rig.locator().parse().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| et::open_within(&locator, &Config::new(), LONG).unwrap());
        // Another who does not wait is refused as soon as the first attempt of that one is.
        let refused = et::open_within(&locator, &Config::new(), Duration::ZERO);
        assert!(refused.unwrap_err().is_busy() && !waits.is_finished());
        drop(first);
        work::copies(&waits.join().unwrap());
    });
    rig.check_left();
    // What is not busy is not waited for.
    let nothing = "vfio-user:/nothing/there".parse().unwrap();
    assert!(!et::open_within(&nothing, &Config::new(), LONG).unwrap_err().is_busy());
}

#[test]
fn the_properties_say_what_connects_the_card() {
    let rig = Rig::new(without_cores());
    let device = rig.open();
    let properties = device.properties();
    assert_eq!(properties.backend.name, "et-hal-vfio");
    assert_eq!(properties.backend.interface.as_deref(), Some("vfio-user 0.1"));
    // No driver of the kernel has it, and it is on no bus.
    assert_eq!((properties.backend.driver, properties.pci_address), (None, None));
    assert_eq!(properties.pci, Some(et_devapi::pci::SIMULATED_IDS));
}

#[test]
fn functions_that_are_no_card_are_refused_by_name() {
    let rig = Rig::twisted(Twist { ids: [0x86, 0x80, 0x34, 0x12], ..Twist::default() });
    let (kind, text) = refused(rig.try_open(Config::new()));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("8086:1234, not an ET-SoC-1"), "{text}");
    let name = rig.path().display().to_string();
    assert!(text.contains(&name), "{text}");
    rig.check_left();
    let rig = Rig::twisted(Twist { ids: [0xff; 4], ..Twist::default() });
    let (kind, text) = refused(rig.try_open(Config::new()));
    assert_eq!(kind, ErrorKind::Lost(LossReason::LinkDown), "{text}");
    rig.check_left();
}

#[test]
fn bars_that_are_too_small_are_refused() {
    // None; before the registers; in the middle of them; without the doorbells.
    for mailbox_bytes in [0, 0x100, 0x1000, 0x1010, 0x2000] {
        let rig = Rig::twisted(Twist { mailbox_bytes, ..Twist::default() });
        let error = rig.try_open(Config::new()).map(drop).unwrap_err();
        let text = chain(&error);
        let kind = match &error {
            OpenError::Device(error) => error.kind(),
            OpenError::Vfio { source, .. } => et::hal::Error::kind(source),
            _ => panic!("{text}"),
        };
        let is_right = match mailbox_bytes {
            0 => kind == ErrorKind::Unsupported,
            0x2000 => kind == ErrorKind::Protocol,
            _ => kind == ErrorKind::OutOfBounds,
        };
        assert!(is_right, "{mailbox_bytes:#x}: {kind:?}, {text}");
        rig.check_left();
    }
}

/// What opening a board with this fault gives.
fn device_error(fault: &str, trap: bool, boot_timeout: Duration) -> et_runtime::OpenError {
    let mut config = without_cores();
    config.faults = vec![fault.parse().unwrap()];
    let rig = if trap { trapped(config) } else { Rig::new(config) };
    let outcome = rig.try_open(Config::new().boot_timeout(boot_timeout));
    rig.check_left();
    match outcome {
        Err(OpenError::Device(error)) => error,
        Err(error) => panic!("{fault}: {}", chain(&error)),
        Ok(_) => panic!("{fault}: the card was opened"),
    }
}

#[test]
fn registers_that_make_no_sense_are_refused() {
    for fault in ["bad-crc:ops", "bad-crc:mgmt", "bad-size:ops:600", "bad-size:mgmt:3"] {
        for trap in [false, true] {
            let error = device_error(fault, trap, LONG);
            assert!(
                matches!(error, et_runtime::OpenError::Registers(_)),
                "{fault}: {}",
                chain(&error)
            );
        }
    }
}

#[test]
fn a_boot_that_stops_meets_the_deadline() {
    // The last one needs some time to get where it stops.
    for (fault, stuck, millis) in [
        ("never-boots", "mgmt", 50),
        ("boot-error:mgmt", "mgmt", 50),
        ("boot-stops:mgmt:3", "mgmt", 50),
        ("boot-stops:ops:4", "ops", 2000),
    ] {
        for trap in [false, true] {
            let error = device_error(fault, trap, Duration::from_millis(millis));
            let text = chain(&error);
            let is_boot =
                matches!(error, et_runtime::OpenError::Boot { endpoint, .. } if endpoint == stuck);
            assert!(is_boot, "{fault}: {text}");
        }
    }
}

#[test]
fn hostile_firmware_gives_errors_and_a_reset_helps() {
    for fault in ["bad-index:8:5000", "garbage:8"] {
        let rig = Rig::faulty(fault);
        let quick = Config::new().shutdown_timeout(Duration::from_millis(50));
        let mut device = rig.try_open(quick).unwrap();
        let buffer = device.alloc(4096).unwrap();
        let copy = |device: &Device<AnyHal>, to| -> et::Result<()> {
            device.default_stream().copy_to_device(&[1_u8; 4096], to)?.wait(LONG).map(drop)
        };
        let outcome = (0..20).try_for_each(|_| copy(&device, &buffer));
        assert!(matches!(outcome, Err(Error::Lost { .. } | Error::Hal { .. })), "{outcome:?}");
        device.reset(LONG).unwrap();
        // The fault comes again with the eighth response since.
        copy(&device, &device.alloc(4096).unwrap()).unwrap();
        drop((device, buffer));
        rig.check_left();
    }
}

#[test]
fn lost_interrupts_cost_time_only() {
    let rig = Rig::faulty("lost-interrupts:1");
    let device = rig.open();
    let buffer = device.alloc(4096).unwrap();
    for _ in 0..20 {
        let copy = device.default_stream().copy_to_device(&[1_u8; 4096], &buffer);
        copy.unwrap().wait(LONG).unwrap();
    }
}

/// A server whose table of windows is full refuses the next one, whichever that is.
#[test]
fn a_full_table_of_windows_is_reported_and_leaks_nothing() {
    use std::sync::atomic::Ordering;
    let full = ErrorKind::Exhausted(Resource::BusAddresses);
    let rig = Rig::twisted(Twist::default());
    for windows in 0..6 {
        rig.twist.windows.store(windows, Ordering::Relaxed);
        let device = match rig.try_open(Config::new()) {
            Ok(device) => device,
            Err(OpenError::Device(error)) => {
                assert_eq!(error.kind(), full, "{}", chain(&error));
                rig.check_left();
                continue;
            }
            Err(error) => panic!("{}", chain(&error)),
        };
        // Each has a window of its own.
        let mut buffers = Vec::new();
        let error = loop {
            match device.host_buffer(1 << 20) {
                Ok(buffer) => buffers.push(buffer),
                Err(error) => break error,
            }
            assert!(buffers.len() <= windows, "more than the server takes");
        };
        assert_eq!(error.kind(), full, "{}", chain(&error));
        assert!(chain(&error).contains("allocate fewer, larger buffers"), "{}", chain(&error));
        let in_use = rig.board.host_memory().mappings();
        for _ in 0..100 {
            assert_eq!(device.host_buffer(1 << 20).map(drop).unwrap_err().kind(), full);
        }
        assert_eq!(rig.board.host_memory().mappings(), in_use);
        // What is given back can be had again.
        if buffers.pop().is_some() {
            buffers.push(device.host_buffer(1 << 20).unwrap());
        }
        drop((buffers, device));
        rig.check_left();
        assert_eq!(rig.twist.windows.load(Ordering::Relaxed), windows);
    }
    rig.twist.windows.store(usize::MAX, Ordering::Relaxed);
    work::copies(&rig.open());
}
