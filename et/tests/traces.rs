//! What kernels and firmware trace, and how it gets to the host.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::{LONG, Lines, load, open};
use et::status::TraceConfigStatus;
use et::trace::layout::Body;
use et::trace::{FirmwareTraceConfig, KernelTraceConfig, Losses, Text, Trace};
use et::{AnyHal, Config, Device, Error, Launch, Refusal};
use et_devapi::msg::ops::{TraceControl, TraceRuntimes};

const DEVICE: &str = "shires=2,dram=1GiB";

fn texts(trace: &Trace) -> Vec<String> {
    trace.entries().map(|(source, e)| format!("{source} {} {}", e.hart_id, Text(&e))).collect()
}

fn trap(device: &Device<AnyHal>, rank: u64) -> et::LaunchFailure {
    let launch = Launch::new(&load(device, "trap_load")).u64(rank);
    let outcome = device.default_stream().launch(&launch).unwrap().wait(LONG);
    outcome.unwrap_err().launch_failure().unwrap().clone()
}

#[test]
fn a_failure_is_in_the_firmwares_trace_once() {
    let device = open(DEVICE);
    let mut reader = device.firmware_trace();
    assert_eq!(texts(&reader.read(LONG).unwrap()), [""; 0]);
    let failure = trap(&device, 70);
    let pc = failure.contexts[0].pc.unwrap();
    let trace = reader.read(LONG).unwrap();
    let found = texts(&trace);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].starts_with("mm 2048 launch ") && found[0].ends_with("failed: kernel trapped")
    );
    assert_eq!(found[1], format!("cm 70 U-mode exception: cause 5, pc {pc:#x}"));
    assert_eq!(found[2], format!("cm 70 exception: cause 5, pc {pc:#x}, value 0x0"));
    let state = trace.entries().find_map(|(_, entry)| match entry.body {
        Body::Exception(state) => Some(state.gpr.map(u64::from)),
        _ => None,
    });
    assert_eq!(state.as_ref(), failure.contexts[0].gpr.as_deref());
    assert_eq!(trace.losses(), Losses::default());
    assert_eq!(texts(&reader.read(LONG).unwrap()), [""; 0]);
    // Another reader has its own place.
    assert_eq!(texts(&device.firmware_trace().read(LONG).unwrap()), found);
}

#[test]
fn commands_are_traced_when_that_is_asked_for_and_until_it_is_switched_off() {
    let device = open(DEVICE);
    let mut reader = device.firmware_trace();
    let buffer = device.alloc(4096).unwrap();
    let copy = || {
        let event = device.default_stream().copy_to_device(&[1u8; 4096], &buffer).unwrap();
        event.wait(LONG).unwrap();
    };
    copy();
    assert_eq!(texts(&reader.read(LONG).unwrap()), [""; 0]);
    device.configure_trace(&FirmwareTraceConfig::new(0b11)).unwrap();
    copy();
    let is_about_write = |text: &String| text.contains(" of kind 527: ");
    let mut found = texts(&reader.read(LONG).unwrap());
    found.retain(is_about_write);
    let ends: Vec<_> = found.iter().map(|text| text.rsplit(' ').next().unwrap()).collect();
    assert_eq!(ends, ["Received", "Succeeded"]);
    // Off.
    device.reset_trace(TraceRuntimes::MM, TraceControl::from_bits(0)).unwrap();
    copy();
    assert_eq!(texts(&reader.read(LONG).unwrap()).iter().filter(|t| is_about_write(t)).count(), 0);
    trap(&device, 3);
    let found = texts(&reader.read(LONG).unwrap());
    assert!(found.iter().all(|text| text.starts_with("cm 3 ")) && found.len() == 2, "{found:?}");
}

#[test]
fn a_kernel_that_overwrites_the_header_of_its_trace_loses_no_entries_unseen() {
    let device = open(DEVICE);
    let kernel = load(&device, "trace_header");
    let traced = device.kernel_trace(KernelTraceConfig::new(0b11)).unwrap();
    let read = |shires: u64, first: u64, words: u64| {
        let launch = Launch::new(&kernel).shires(shires).u64(first).u64(words);
        let launch = launch.trace(traced.option());
        device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
        let trace = traced.read(LONG).unwrap();
        (trace.entries().count(), trace.losses())
    };
    let mut broken = Losses::default();
    broken.headers = 1;
    assert_eq!(read(0b11, 0, 0), (128, Losses::default()));
    // All of it, the magic word, the version, bytes and number of parts.
    for (first, words) in [(0, 16), (0, 1), (1, 1), (4, 1), (5, 1)] {
        assert_eq!(read(0b11, first, words), (128, broken), "{words} words from {first}");
    }
    // How much of the first part is used: firmware writes that once more at the end.
    assert_eq!(read(0b11, 3, 1), (128, Losses::default()));
    // The part with the header belongs to a shire that does not run.
    assert_eq!(read(0b10, 0, 0), (64, Losses::default()));
    assert_eq!(traced.read(LONG).unwrap().losses(), Losses::default(), "nothing has run");
}

#[test]
fn what_firmware_refuses_is_said() {
    let device = open(DEVICE);
    for (config, why) in [
        (FirmwareTraceConfig::new(0b100), TraceConfigStatus::BadShireMask),
        (
            {
                let mut config = FirmwareTraceConfig::new(0b11);
                config.thread_mask = 0;
                config
            },
            TraceConfigStatus::BadThreadMask,
        ),
        (
            {
                let mut config = FirmwareTraceConfig::new(0b11);
                config.threshold = 4097;
                config
            },
            TraceConfigStatus::InvalidTraceConfigInfo,
        ),
    ] {
        let Err(Error::Refused { op, status }) = device.configure_trace(&config) else {
            panic!("{config:?}")
        };
        assert_eq!(op, "trace configuration");
        assert_eq!(status, Refusal::TraceConfig(why));
    }
    let none = TraceRuntimes::from_bits(0);
    let refused = device.reset_trace(none, TraceControl::ENABLE);
    assert!(matches!(refused, Err(Error::Refused { op: "trace control", .. })), "{refused:?}");
}

#[test]
fn a_full_part_sends_an_event_and_its_losses_are_counted() {
    let device = open(DEVICE);
    let mut config = FirmwareTraceConfig::new(0b11);
    config.threshold = 1000;
    device.configure_trace(&config).unwrap();
    let mut reader = device.firmware_trace();
    reader.read(LONG).unwrap();
    // Each leaves 360 bytes in the part of hart 5, which has 4096.
    trap(&device, 5);
    assert_eq!(reader.read(LONG).unwrap().losses(), Losses::default());
    for _ in 0..30 {
        trap(&device, 5);
    }
    // One of the part of hart 5, and one of the master minion's buffer.
    assert_eq!(device.counters().trace_buffer_events, 2);
    let trace = reader.read(LONG).unwrap();
    let losses = trace.losses();
    assert_eq!((losses.harts, losses.entries, losses.bytes), (1, 0, 0));
    let found = texts(&trace).iter().filter(|text| text.starts_with("cm 5 ")).count();
    assert!((2..24).contains(&found), "{found}");
}

#[test]
fn kernels_trace_on_the_harts_that_are_asked_for() {
    const VALUES: u64 = 3;
    let device = open(DEVICE);
    let kernel = load(&device, "trace");
    let mut config = KernelTraceConfig::new(0b10);
    config.thread_mask = 0b101;
    let traced = device.kernel_trace(config).unwrap();
    assert_eq!(traced.read(LONG).unwrap().entries().count(), 0);
    let launch = Launch::new(&kernel).u64(VALUES).u64(3).trace(traced.option());
    for _ in 0..2 {
        device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
        let trace = traced.read(LONG).unwrap();
        let mut expected = Vec::new();
        for hart in [64u64, 66] {
            let value = |tag| format!("kernel {hart} value {tag} = {:#x}", (hart << 32) + tag);
            expected.extend((0..VALUES).map(value));
            expected.push(format!("kernel {hart} hart {hart:04} of shire 01"));
        }
        assert_eq!(texts(&trace), expected);
        assert_eq!(trace.losses(), Losses::default());
        let times: Vec<_> = trace.entries().map(|(_, entry)| trace.time(&entry)).collect();
        assert!(times.iter().all(Option::is_some), "{times:?}");
        // Read once.
        assert_eq!(traced.read(LONG).unwrap().entries().count(), 0);
    }

    // One hart has room for few, and a level that is not wanted.
    (config.thread_mask, config.bytes_per_hart, config.level) = (1, 192, Some(2));
    config.event_mask = 1;
    let small = device.kernel_trace(config).unwrap();
    let launch = Launch::new(&kernel).u64(9).u64(3).trace(small.option());
    device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    let trace = small.read(LONG).unwrap();
    assert_eq!(texts(&trace), ["kernel 64 value 8 = 0x4000000008"]);
    assert_eq!(trace.losses().harts, 1);
}

#[test]
fn traces_reach_tracing_with_hart_and_device_time() {
    let device = open(DEVICE);
    let mut reader = device.firmware_trace();
    let traced = device.kernel_trace(KernelTraceConfig::new(0b1)).unwrap();
    let launch = Launch::new(&load(&device, "trace")).u64(0).u64(3).trace(traced.option());
    device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
    trap(&device, 9);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        traced.read(LONG).unwrap().log();
        reader.read(LONG).unwrap().log();
    });
    let text = lines.text();
    let find = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default();
    let kernel = find("hart 0033 of shire 00");
    for part in ["INFO", "et::kernel", "hart=33", "cycle=", "micros="] {
        assert!(kernel.contains(part), "{part} in {kernel}");
    }
    let trap = find("exception: cause 5");
    assert!(trap.contains("WARN") && trap.contains("hart=9"), "{trap}");
    // Texts of firmware are for debugging.
    assert!(!text.contains("U-mode exception"), "{text}");
    assert_eq!(text.matches("et::kernel").count(), 64, "{text}");
}

#[test]
fn a_failure_holds_what_the_firmware_said_about_it_and_nothing_older() {
    let device = open(DEVICE);
    let first = trap(&device, 3);
    let failure = trap(&device, 70);
    let (pc, said) = (failure.contexts[0].pc.unwrap(), texts(failure.firmware()));
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!(said[0], format!("cm 70 U-mode exception: cause 5, pc {pc:#x}"));
    assert_eq!(said[1], format!("cm 70 exception: cause 5, pc {pc:#x}, value 0x0"));
    assert!(said[2].starts_with("mm 2048 launch ") && said[2].ends_with("failed: kernel trapped"));
    assert_eq!(failure.firmware_error(), None);
    let report = format!("{failure:#}");
    assert!(report.contains("\nmessages of the firmware:\n  cm hart 70: U-mode"), "{report}");
    assert!(texts(first.firmware()).iter().all(|text| !text.starts_with("cm 70")));
    // Reading them took nothing from who reads the whole trace.
    assert_eq!(texts(&device.firmware_trace().read(LONG).unwrap()).len(), 6);

    // Of many the first and the last; firmware that traces nothing has said nothing.
    let launch = Launch::new(&load(&device, "trap_load")).u64(u64::MAX);
    let outcome = device.default_stream().launch(&launch).unwrap().wait(LONG);
    let all = outcome.unwrap_err().launch_failure().unwrap().clone();
    assert_eq!(all.contexts.len(), 128);
    let of_harts = texts(all.firmware()).iter().filter(|text| text.starts_with("cm ")).count();
    assert_eq!(of_harts, 128);
    let both = TraceRuntimes::MM.with(TraceRuntimes::CM);
    device.reset_trace(both, TraceControl::from_bits(0)).unwrap();
    assert_eq!(texts(trap(&device, 5).firmware()), [""; 0]);
    drop(device);

    let config = Config::new().failure_messages(false);
    let device = et::open_with(format!("sim:{DEVICE}").parse().unwrap(), config).unwrap();
    assert_eq!(texts(trap(&device, 70).firmware()), [""; 0]);
}

#[test]
fn of_many_failures_at_a_time_each_has_messages_or_says_why_not() {
    let device = open(DEVICE);
    let streams: Vec<_> = (0..8).map(|_| device.stream()).collect();
    let kernel = load(&device, "trap_load");
    let events: Vec<_> =
        streams.iter().map(|stream| stream.launch(&Launch::new(&kernel).u64(7)).unwrap()).collect();
    for event in events {
        let error = event.wait(LONG).unwrap_err();
        let failure = error.launch_failure().unwrap();
        let is_told = texts(failure.firmware()).iter().any(|text| text.starts_with("cm 7 "));
        assert_ne!(is_told, failure.firmware_error().is_some(), "{failure:#}");
    }
}

/// A kernel logs a text of each level, on one hart.
fn log_all_levels(device: &Device<AnyHal>, traced: &et::trace::KernelTrace<AnyHal>) {
    let kernel = load(device, "trace");
    for level in 0..=4 {
        let launch = Launch::new(&kernel).u64(0).u64(level).shires(1).trace(traced.option());
        device.default_stream().launch(&launch).unwrap().wait(LONG).unwrap();
        traced.log(LONG).unwrap();
    }
}

fn while_listening(filter: &str, run: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    lines.text()
}

/// The threshold of the log decides what kernels and firmware write, and what is then seen of it.
#[test]
fn one_threshold_decides_what_kernels_and_firmware_write() {
    let device = open(DEVICE);
    let mut config = KernelTraceConfig::new(0b1);
    config.thread_mask = 1;
    let traced = device.kernel_trace(config).unwrap();
    let levels = ["ERROR", "ERROR", "WARN", "INFO", "DEBUG"];
    for (filter, highest) in [
        ("error", 1),
        ("warn", 2),
        ("info", 3),
        ("debug", 4),
        ("trace", 4),
        ("error,et::kernel=info", 3),
    ] {
        let mut written = 0;
        let text = while_listening(filter, || {
            log_all_levels(&device, &traced);
            written = traced.option().filter_mask & 0xff;
        });
        assert_eq!(written, highest, "{filter}");
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.contains("et::kernel"))
            .map(|line| {
                assert!(line.contains("hart 0000 of shire 00"), "{line}");
                line.split_whitespace().nth(1).unwrap().to_owned()
            })
            .collect();
        assert_eq!(said, levels[..=highest as usize], "{filter}: {text}");
    }
    // What is not wanted is not written either, and what is said explicitly is not changed.
    config.level = Some(1);
    assert_eq!(device.kernel_trace(config).unwrap().option().filter_mask & 0xff, 1);
    while_listening("off", || assert_eq!(traced.option().filter_mask & 0xff, 0));
    // Without a log who reads the entries decides.
    assert_eq!(traced.option().filter_mask & 0xff, 4);

    // Firmware does not say the level of its texts: they have the one that was asked for.
    let mut reader = device.firmware_trace();
    for (filter, level) in [("warn", Some("WARN")), ("debug", Some("DEBUG")), ("off", None)] {
        let text = while_listening(filter, || {
            device.configure_trace(&FirmwareTraceConfig::new(0b11)).unwrap();
            trap(&device, 5);
            reader.read(LONG).unwrap().log();
        });
        let trapped = text.lines().find(|line| line.contains("U-mode exception"));
        assert_eq!(trapped.map(|line| line.split_whitespace().nth(1).unwrap()), level, "{text}");
    }
    // The service processor of the simulator says it, and follows the same threshold.
    let management = device.management().unwrap();
    let mut reader = management.firmware_trace().unwrap();
    let refused = || {
        let much = et::management::CacheConfig::new(u16::MAX, u16::MAX, u16::MAX);
        management.set_cache_config(much).unwrap_err();
    };
    refused();
    let text = while_listening("debug", || assert_eq!(reader.log().unwrap(), 2));
    for (level, said) in [("INFO", "boot of release"), ("WARN", "CONFIG refused: -1")] {
        let line = text.lines().find(|line| line.contains(said)).unwrap_or_default();
        for part in [level, "et::firmware", "cycle=", "micros="] {
            assert!(line.contains(part), "{part} in {text}");
        }
    }
    for (filter, count) in [("warn", 1), ("error", 0), ("off", 0), ("et::firmware=debug", 2)] {
        let text = while_listening(filter, || {
            management.set_trace_level(None).unwrap();
            refused();
            assert_eq!(reader.log().unwrap(), count, "{filter}");
        });
        assert_eq!(text.lines().count(), count, "{filter}: {text}");
    }
    let mut reader = device.firmware_trace();
    reader.read(LONG).unwrap();

    let written = while_listening("off", || {
        device.configure_trace(&FirmwareTraceConfig::new(0b11)).unwrap();
        trap(&device, 5);
    });
    assert_eq!(written, "");
    let found = texts(&reader.read(LONG).unwrap());
    assert!(!found.iter().any(|text| text.contains("U-mode exception")), "{found:?}");
}
