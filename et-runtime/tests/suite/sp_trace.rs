//! What the service processor traces, and its statistics, as the host reads them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use et_devapi::msg::mgmt::{StatsControl, TraceControl, TraceEvents};
use et_hal_mock::{MockHal, MockMmio, presets};
use et_hal_sim::SimHal;
use et_runtime::management::{
    Answer, CacheConfig, EventDetail, EventId, ManagementCounters, ManagementEventKind,
    ManagementTrace, Relay, Statistic, StatsKind,
};
use et_runtime::trace::layout::Body;
use et_runtime::trace::{Losses, Source, Text, Trace};
use et_runtime::{Activity, Config, Device, Error, Launch, Management};
use et_sim_device::{ErrorSource, Fault, FirmwareImage};

const LONG: Duration = Duration::from_secs(20);
/// Where the buffers are. Spec: §12.1
const SP_TRACE: u64 = 0x80_0440_1000;
const SP_STATS: u64 = 0x80_04d2_3000;

fn device(options: &str) -> Device<SimHal> {
    let text = format!("shires=1,dram=256MiB,threads=1,{options}");
    Device::open(SimHal::open(text.parse().unwrap()).unwrap()).unwrap()
}

fn texts(trace: &Trace) -> Vec<String> {
    let text = |(source, entry): (Source, _)| format!("{source}: {}", Text(&entry));
    trace.entries().map(text).collect()
}

/// Level and text of what is new.
fn said(reader: &mut ManagementTrace<SimHal>) -> Vec<(Option<u8>, String)> {
    let trace = reader.read().unwrap();
    assert_eq!(trace.losses(), Losses::default());
    trace.entries().map(|(_, entry)| (entry.level, Text(&entry).to_string())).collect()
}

fn refuse(management: &Management<SimHal>) {
    let much = CacheConfig::new(u16::MAX, u16::MAX, u16::MAX);
    assert!(matches!(management.set_cache_config(much), Err(Error::Refused { .. })));
}

#[test]
fn what_happens_to_the_card_is_logged_once_with_level_and_time() {
    let device = device("mhz=500");
    let management = device.management().unwrap();
    let mut reader = management.firmware_trace().unwrap();
    let trace = reader.read().unwrap();
    assert_eq!(texts(&trace), ["sp: boot of release 1.5.0"]);
    let (_, boot) = trace.entries().next().unwrap();
    assert_eq!((boot.level, boot.hart_id), (Some(3), 0));
    let first = trace.time(&boot).unwrap();
    assert!(first < LONG, "{first:?}");
    assert_eq!(said(&mut reader), []);

    refuse(&management);
    let board = device.hal().board();
    board.inject(Fault::Ecc { source: ErrorSource::Dram, corrected: 9, uncorrectable: 1 });
    while management.event(LONG).unwrap().is_some_and(|event| {
        !matches!(event.kind, ManagementEventKind::Card(e) if e.id == EventId::DramUncorrected)
    }) {}
    management.set_temperature_threshold_c(30).unwrap();
    management.set_temperature_threshold_c(80).unwrap();
    assert!(management.update_firmware(b"nonsense", "x").is_err());
    let image = FirmwareImage { arch_rev: 0, versions: [0x0201_0300; 7], body: vec![7; 100] };
    management.update_firmware(&image.encode(), "x").unwrap();
    let trace = reader.read().unwrap();
    let found: Vec<_> = trace.entries().map(|(_, e)| (e.level, Text(&e).to_string())).collect();
    let expected = [
        (Some(2), "SET_SHIRE_CACHE_CONFIG refused: -1"),
        (Some(2), "9 errors: DRAM, corrected"),
        (Some(1), "1 errors: DRAM, uncorrectable"),
        (Some(2), "40 C, the threshold is 30 C: half the clock"),
    ];
    for ((level, text), expected) in found.iter().zip(expected) {
        assert_eq!((*level, text.as_str()), expected);
    }
    assert!(found[4].1.starts_with("half the clock for "), "{found:?}");
    assert!(found[5].1.starts_with("firmware image refused: ") && found[5].0 == Some(1));
    assert_eq!(found[6].1, "SET_FIRMWARE_UPDATE refused: -2");
    assert_eq!(found[7..], [(Some(3), "release 2.1.3 installed".to_owned())]);
    let times: Vec<_> = trace.entries().map(|(_, entry)| trace.time(&entry).unwrap()).collect();
    assert!(first < times[0] && times.is_sorted(), "{times:?}");
    assert_eq!(said(&mut reader), [], "each is read once");
    // Another reader has its own place.
    assert_eq!(said(&mut management.firmware_trace().unwrap()).len(), 9);
}

#[test]
fn the_trace_is_configured_switched_and_emptied() {
    let device = device("");
    let management = device.management().unwrap();
    let mut reader = management.firmware_trace().unwrap();
    reader.read().unwrap();
    let mut after = |what: &dyn Fn(&Management<SimHal>)| {
        what(&management);
        said(&mut reader)
    };
    let ask = |management: &Management<SimHal>| assert_eq!(management.power_mw().unwrap(), 8000);
    assert_eq!(after(&ask), [], "nobody has asked for commands");
    let all = after(&|management| {
        management.set_trace_level(Some(4)).unwrap();
        ask(management);
    });
    let names: Vec<_> = all.iter().map(|(_, text)| text.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["SET_DM_TRACE_CONFIG", "GET_MODULE_POWER"]);
    assert_eq!(all[1].0, Some(4));
    // Refusals are warnings.
    for (level, count) in [(2, 1), (1, 0)] {
        let few = after(&|management| {
            management.set_trace_level(Some(level)).unwrap();
            ask(management);
            refuse(management);
        });
        assert_eq!(few.len(), count, "{level}: {few:?}");
    }
    for bad in [5, 255] {
        let refused = management.configure_trace(TraceEvents::STRING, bad);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
    let refused = management.control_trace(8);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    for (control, count) in [(0, 0), (TraceControl::ENABLE | TraceControl::UART, 0), (1, 1)] {
        let few = after(&|management| {
            management.control_trace(TraceControl::ENABLE).unwrap();
            management.set_trace_level(Some(2)).unwrap();
            management.control_trace(control).unwrap();
            refuse(management);
        });
        assert_eq!(few.len(), count, "{control}: {few:?}");
    }
    refuse(&management);
    management.control_trace(TraceControl::ENABLE | TraceControl::RESET).unwrap();
    assert_eq!(said(&mut reader), [], "emptied, which is no loss");
    assert_eq!(said(&mut management.firmware_trace().unwrap()), []);
}

#[test]
fn a_trap_is_in_the_other_half() {
    let device = device("");
    let management = device.management().unwrap();
    let mut reader = management.firmware_trace().unwrap();
    reader.read().unwrap();
    management.send_test_events().unwrap();
    let trace = reader.read().unwrap();
    let found = texts(&trace);
    let expected = ["sp: exception: cause 3, pc 0x0", "sp: exception: cause 3, pc 0x0, value 0x0"];
    assert_eq!(found, expected);
    assert!(matches!(trace.entries().last().unwrap().1.body, Body::Exception(_)));
    assert_eq!(texts(&reader.read().unwrap()), [""; 0]);
    // A buffer of its own behind the log, which the specification would allow too.
    let dram = device.hal().board().dram();
    let mut header = [0; 64];
    dram.read(SP_TRACE, &mut header).unwrap();
    header[20] = 1;
    dram.write(SP_TRACE, &header).unwrap();
    let mut entry = [0; 296];
    dram.read(SP_TRACE + 0x1004, &mut entry).unwrap();
    header[12..16].copy_from_slice(&(64 + 296_u32).to_le_bytes());
    dram.write(SP_TRACE + 0x1000, &header).unwrap();
    dram.write(SP_TRACE + 0x1040, &entry).unwrap();
    let found = texts(&management.firmware_trace().unwrap().read().unwrap());
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[2], expected[1]);
}

#[test]
fn a_full_log_sends_an_event_and_its_losses_are_counted() {
    let device = device("");
    let management = device.management().unwrap();
    let mut reader = management.firmware_trace().unwrap();
    let mut slow = management.firmware_trace().unwrap();
    slow.read().unwrap();
    management.set_trace_level(Some(4)).unwrap();
    let mut read = 0;
    for _ in 0..300 {
        management.power_mw().unwrap();
        let trace = reader.read().unwrap();
        assert_eq!(trace.losses(), Losses::default());
        read += texts(&trace).iter().filter(|text| text.contains("GET_MODULE_POWER")).count();
    }
    assert_eq!(read, 300, "who reads in time loses nothing and gets nothing twice");
    let trace = slow.read().unwrap();
    assert_eq!((trace.losses().harts, trace.losses().entries), (1, 0));
    assert!((10..100).contains(&trace.entries().count()));
    let mut full = Vec::new();
    while let Some(event) = management.event(Duration::ZERO).unwrap() {
        if let ManagementEventKind::Card(event) = event.kind {
            full.push((event.id, event.detail()));
        }
    }
    let expected = EventDetail::TraceBuffer { buffer: 2, threshold: 4096 };
    assert_eq!(full, [(EventId::TraceBufferFull, expected)], "it is said once");
}

#[test]
fn nonsense_is_refused_or_skipped_and_counted() {
    let device = device("");
    let management = device.management().unwrap();
    let board = device.hal().board();
    let dram = board.dram();
    let mut before = vec![0; 0x2000];
    dram.read(SP_TRACE, &mut before).unwrap();
    let outcome = |bytes: &[u8]| {
        dram.write(SP_TRACE, bytes).unwrap();
        let outcome = management.firmware_trace().unwrap().read();
        dram.write(SP_TRACE, &before).unwrap();
        outcome
    };
    let Err(Error::Malformed { op, why }) = outcome(&[0x5a; 64]) else { panic!() };
    assert!(op.contains("trace") && why.contains("0x5a5a5a5a"), "{op} {why}");
    assert!(matches!(outcome(&[0xff; 0x2000]), Err(Error::Lost { .. })));
    assert_eq!(outcome(&[0; 0x2000]).unwrap().entries().count(), 0, "never set up");
    // One that was set up, and whose first word is gone.
    let mut bytes = before.clone();
    bytes[..4].fill(0);
    assert!(matches!(outcome(&bytes), Err(Error::Malformed { .. })));
    // A buffer of its own for the exceptions, behind the log, whose header makes no sense.
    let mut bytes = before.clone();
    bytes[20] = 1;
    bytes.copy_within(..64, 0x1000);
    bytes[0x1004] = 9;
    let trace = outcome(&bytes).unwrap();
    assert_eq!(texts(&trace), ["sp: boot of release 1.5.0"]);
    assert_eq!(trace.losses().headers, 1);
    // An entry of no kind, and one that does not end; what is before them is read.
    let mut bytes = before.clone();
    let used = usize::try_from(u32::from_le_bytes(bytes[12..16].try_into().unwrap())).unwrap();
    bytes[used + 14..used + 16].copy_from_slice(&99_u16.to_le_bytes());
    bytes[used + 16 + 8..used + 16 + 12].copy_from_slice(&5000_u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::try_from(used + 48).unwrap().to_le_bytes());
    let trace = outcome(&bytes).unwrap();
    assert_eq!(texts(&trace), ["sp: boot of release 1.5.0"]);
    assert_eq!((trace.losses().entries, trace.losses().bytes), (1, 32));
    management.power_mw().unwrap();
}

/// A card whose traces are what a function makes of them, which gets where in BAR 0.
fn card(traces: impl Fn(u64, &mut [u8]) + Send + 'static) -> Management<MockHal> {
    let registers = presets::registers();
    let mut mmio = MockMmio::new();
    mmio.expect_len_bytes().return_const(registers.len() as u64);
    mmio.expect_read().returning({
        let registers = registers.clone();
        move |at, width| {
            let start = usize::try_from(at.as_u64()).unwrap();
            let bytes = &registers[start..start + usize::try_from(width.bytes()).unwrap()];
            Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        }
    });
    mmio.expect_read_bytes().returning(move |at, into| {
        if at.as_u64() >= LOG {
            traces(at.as_u64(), into);
        } else {
            let start = usize::try_from(at.as_u64()).unwrap();
            into.copy_from_slice(&registers[start..start + into.len()]);
        }
        Ok(())
    });
    let hal = MockHal::new(mmio, presets::raw_mailbox(|_| Vec::new()));
    Management::open(hal, Config::new()).unwrap()
}

/// Where the log and the statistics are in BAR 0. Spec: §3.6, §12.1
const LOG: u64 = 0x40_0000;
const STATISTICS: u64 = LOG + SP_STATS - SP_TRACE;

/// A card whose log is overwritten at each look at it, the first so many times. Counts the looks at
/// the whole of it.
fn restless(times: u64) -> (Management<MockHal>, Arc<AtomicU64>) {
    let (looks, whole) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&whole);
    let management = card(move |at, into| {
        let start = at - LOG;
        counted.fetch_add(u64::from(into.len() == 0x2000), Ordering::Relaxed);
        let cycle = looks.fetch_add(u64::from(start == 0), Ordering::Relaxed).min(times);
        let mut log = vec![0; 0x2000];
        log[..4].copy_from_slice(&0x7654_3210_u32.to_le_bytes());
        // Version 0.6 of the layout, type 2, 104 bytes used, two parts of 4 KiB.
        for (at, value) in [(6, 6), (10, 2), (12, 104), (17, 0x10), (20, 2)] {
            log[at] = value;
        }
        log[64..72].copy_from_slice(&cycle.to_le_bytes());
        log[72] = 24;
        log[80..87].copy_from_slice(b"a text.");
        into.copy_from_slice(&log[usize::try_from(start).unwrap()..][..into.len()]);
    });
    (management, whole)
}

/// A megabyte of a BAR takes a processor long; statistics grow by some hundred bytes.
#[test]
fn of_statistics_only_what_is_new_is_read() {
    const BYTES: usize = 0x10_0000;
    let memory = Arc::new(Mutex::new(vec![0; BYTES]));
    let count = Arc::new(AtomicU64::new(0));
    let (shown, counted) = (Arc::clone(&memory), Arc::clone(&count));
    let management = card(move |at, into| {
        let start = usize::try_from(at - STATISTICS).unwrap();
        counted.fetch_add(into.len() as u64, Ordering::Relaxed);
        into.copy_from_slice(&shown.lock().unwrap()[start..][..into.len()]);
    });
    // Writes a text of 8 bytes at a place, and says that so many bytes are used then.
    let write = |at: usize, cycle: u64, text: &[u8; 8]| {
        let mut memory = memory.lock().unwrap();
        memory[..4].copy_from_slice(&0x7654_3210_u32.to_le_bytes());
        for (at, value) in [(6, 6), (10, 5), (18, 0x10), (20, 1)] {
            memory[at] = value;
        }
        let used = u32::try_from(at + 24).unwrap();
        memory[12..16].copy_from_slice(&used.to_le_bytes());
        memory[at..at + 8].copy_from_slice(&cycle.to_le_bytes());
        memory[at + 8..at + 16].copy_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0]);
        memory[at + 16..at + 24].copy_from_slice(text);
    };
    let mut reader = management.statistics_trace(StatsKind::Sp).unwrap();
    let mut look = || {
        count.store(0, Ordering::Relaxed);
        let trace = reader.read().unwrap();
        let texts: Vec<_> = trace.entries().map(|(_, entry)| Text(&entry).to_string()).collect();
        (texts, count.load(Ordering::Relaxed) >= BYTES as u64, trace.losses().harts)
    };
    write(64, 100, b"first\0\0\0");
    write(88, 101, b"second\0\0");
    assert_eq!(look(), (vec!["first".into(), "second".into()], true, 0));
    assert_eq!(look(), (vec![], false, 0));
    write(112, 102, b"third\0\0\0");
    assert_eq!(look(), (vec!["third".into()], false, 0));
    // From the start again, further than before: the first entry is another one.
    write(64, 200, b"fourth\0\0");
    write(88, 201, b"fifth\0\0\0");
    write(112, 202, b"sixth\0\0\0");
    write(136, 203, b"seventh\0");
    let (texts, is_whole, _) = look();
    assert_eq!((texts.len(), is_whole), (4, true), "{texts:?}");
    // Emptied, and begun.
    write(64, 300, b"eighth\0\0");
    assert_eq!(look(), (vec!["eighth".into()], true, 0));
}

#[test]
fn a_log_that_is_overwritten_while_it_is_read_is_read_again_and_not_for_ever() {
    for (times, looks, losses) in [(0, 1, 0), (2, 2, 0), (u64::MAX, 4, 1)] {
        let (management, whole) = restless(times);
        let trace = management.firmware_trace().unwrap().read().unwrap();
        assert_eq!(texts(&trace), ["sp: a text."], "{times}");
        assert_eq!(whole.load(Ordering::Relaxed), looks, "{times}");
        assert_eq!(trace.losses().harts, losses, "{times}");
    }
}

fn number(of: &[Statistic], name: &str) -> Statistic {
    *of.iter().find(|statistic| statistic.name == name).unwrap()
}

/// Reads until there is a sample for which this holds.
fn sample(
    reader: &mut ManagementTrace<SimHal>,
    holds: impl Fn(&[Statistic]) -> bool,
) -> Vec<Statistic> {
    let start = Instant::now();
    loop {
        let trace = reader.read().unwrap();
        assert_eq!(trace.losses(), Losses::default());
        let found = trace.entries().map(|(_, entry)| Statistic::of_entry(&entry));
        if let Some(found) = found.filter(|of| !of.is_empty()).find(|of| holds(of)) {
            return found;
        }
        assert!(start.elapsed() < LONG, "no such sample");
        std::thread::yield_now();
    }
}

#[test]
fn samples_follow_the_load_while_they_are_on() {
    let device = device("power=7000,tdp=30,temperature=45,heat=50");
    let management = device.management().unwrap();
    let mut of_sp = management.statistics_trace(StatsKind::Sp).unwrap();
    let mut of_mm = management.statistics_trace(StatsKind::Mm).unwrap();
    assert_eq!(of_sp.read().unwrap().entries().count(), 0, "they are off");
    let on = StatsControl::ENABLE | StatsControl::RESET_COUNTER;
    management.control_statistics(StatsKind::Sp, on).unwrap();
    management.control_statistics(StatsKind::Mm, on).unwrap();
    let idle = sample(&mut of_sp, |_| true);
    let power = number(&idle, "system_power");
    assert_eq!((power.least, power.greatest), (7000, 7000));
    assert_eq!(number(&idle, "minion_freq").average, 600);
    assert_eq!(sample(&mut of_mm, |_| true)[0].greatest, 0);

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf/hang.elf");
    let kernel = device.load_kernel("hang", &std::fs::read(folder).unwrap()).unwrap();
    let event = device.default_stream().launch(&Launch::new(&kernel)).unwrap();
    let busy = |of: &[Statistic]| number(of, "system_power").greatest == 30_000;
    let hot = |of: &[Statistic]| number(of, "system_temperature").greatest > 60;
    let last = sample(&mut of_sp, |of| busy(of) && hot(of));
    assert_eq!(number(&last, "system_power").least, 7000);
    let used = sample(&mut of_mm, |of| number(of, "cm_utilization").greatest == 100);
    assert!(number(&used, "cm_utilization").average > 0);
    device.abort(&event, LONG).unwrap();

    // Each sample has the power of its moment, too; all of them are the processors' own.
    let trace = management.statistics_trace(StatsKind::Sp).unwrap().read().unwrap();
    let samples = trace.entries().filter_map(|(source, entry)| match entry.body {
        Body::PowerStatus(power) => Some((source, power.current_power.get(), power.current_temp)),
        _ => None,
    });
    let samples: Vec<_> = samples.collect();
    assert_eq!(samples[0], (Source::ServiceProcessor, 7000, 45));
    assert!(samples.iter().any(|(_, power, celsius)| *power == 30_000 && *celsius > 60));
    let mm = management.statistics_trace(StatsKind::Mm).unwrap().read().unwrap();
    assert!(mm.entries().all(|(source, _)| source == Source::MasterMinion));
    assert!(texts(&mm)[0].starts_with("mm: statistics: minions busy 0 %"), "{:?}", texts(&mm)[0]);

    management.control_statistics(StatsKind::Sp, 0).unwrap();
    management.control_statistics(StatsKind::Mm, StatsControl::RESET_BUFFER).unwrap();
    of_sp.read().unwrap();
    let start = Instant::now();
    // Longer than any time between two samples.
    while start.elapsed() < Duration::from_millis(250) {
        management.power_mw().unwrap();
    }
    assert_eq!(of_sp.read().unwrap().entries().count(), 0, "they are off again");
    assert_eq!(of_mm.read().unwrap().entries().count(), 0, "emptied");
    for (kind, control) in [(StatsKind::from(3), 1), (StatsKind::Sp, 8)] {
        let refused = management.control_statistics(kind, control);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
    let none = management.statistics_trace(StatsKind::from(3)).unwrap_err();
    assert!(matches!(none, Error::Unsupported { .. }), "{none:?}");
}

#[test]
fn counters_of_each_processor_begin_anew_alone() {
    let device = device("");
    let management = device.management().unwrap();
    management.set_temperature_threshold_c(30).unwrap();
    management.set_temperature_threshold_c(80).unwrap();
    let least = || {
        let of = management.statistics(StatsKind::Sp).unwrap();
        number(&of, "minion_freq").least
    };
    assert_eq!(least(), 300);
    management.control_statistics(StatsKind::Mm, StatsControl::RESET_COUNTER).unwrap();
    assert_eq!(least(), 300, "those are of the master minion");
    management.control_statistics(StatsKind::Sp, StatsControl::RESET_COUNTER).unwrap();
    assert_eq!(least(), 600);
    let mut header = [0; 16];
    device.hal().board().dram().read(SP_STATS, &mut header).unwrap();
    assert_eq!(header[10], 4, "the buffer has its type");
}

#[test]
fn what_commands_answer_is_read_by_their_names() {
    let device = device("serial=Q-3,power=7000");
    let management = device.management().unwrap();
    let first = |name: &str, argument| {
        let fields = management.query(name, argument).unwrap();
        (fields[0].name.clone(), fields[0].value.to_string())
    };
    assert_eq!(first("GET_MODULE_SERIAL_NUMBER", 0), ("text".into(), "Q-3".into()));
    assert_eq!(first("module-power", 0), ("power".into(), "7000".into()));
    assert_eq!(first("get_sp_stats", 0), ("system_power_average".into(), "7000".into()));
    // The time without throttling is long, that with it is none.
    let name = "module-residency-throttle-states";
    assert_eq!(first(name, 2), ("cumulative".into(), "0".into()));
    assert_ne!(first(name, 0).1, "0");
    let refused = management.query(name, 9);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    for command in Management::<SimHal>::queries() {
        assert!(!management.query(command.name, 0).unwrap().is_empty(), "{}", command.name);
    }
    for name in ["SET_MODULE_PART_NUMBER", "GET_DEVICE_ERROR_EVENTS", "MM_RESET", "nothing"] {
        let refused = management.query(name, 0);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{name}: {refused:?}");
    }
}

#[derive(Debug)]
struct Elsewhere;

impl Relay for Elsewhere {
    fn call(&self, _: u16, _: &[u8], op: &'static str, _: Duration) -> et_runtime::Result<Answer> {
        Err(Error::closed(op))
    }

    fn counters(&self) -> ManagementCounters {
        ManagementCounters::default()
    }

    fn activity(&self, _: Duration) -> et_runtime::Result<Activity> {
        Err(Error::closed("activity"))
    }
}

#[test]
fn readers_end_with_their_device_and_are_not_for_others() {
    let mut device = device("");
    let management = device.management().unwrap();
    let mut old = management.firmware_trace().unwrap();
    refuse(&management);
    old.read().unwrap();
    device.reset(LONG).unwrap();
    assert!(matches!(old.read(), Err(Error::Stale { .. })));
    let mut new = device.management().unwrap().firmware_trace().unwrap();
    assert_eq!(said(&mut new), [(Some(3), "boot of release 1.5.0".to_owned())]);
    // The operations endpoint alone: the reader stays.
    device.reset_operations(LONG).unwrap();
    assert_eq!(said(&mut new), [(Some(3), "operations reset".to_owned())]);
    device.close();
    assert!(matches!(new.read(), Err(Error::Closed { .. })));

    let config = Config::new();
    let relayed = Management::<SimHal>::through(Arc::new(Elsewhere), &config);
    assert!(matches!(relayed.firmware_trace(), Err(Error::Refused { .. })));
}
