//! Every call of [`Management`] against the simulated service processor: what is set is what is
//! asked for then, in its units, and what makes no sense is refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fmt::Debug;
use std::time::{Duration, Instant};

use et_hal_sim::SimHal;
use et_runtime::management::{
    ActivePowerManagement, Asset, CacheConfig, ErrorSource, EventDetail, EventId, HartStatus,
    LaneWidth, LinkSpeed, ManagementEventKind, Module, Pll, PowerState, StatsControl, StatsKind,
    StepClock, ThrottleState, TraceControl,
};
use et_runtime::{Config, Device, Error, Kernel, Launch, Management, Refusal, Result};
use et_sim_device::{ErrorSource as Injected, Fault};

const LONG: Duration = Duration::from_secs(20);

fn device(options: &str) -> Device<SimHal> {
    let text = format!("shires=1,dram=256MiB,threads=1,{options}");
    let hal = SimHal::open(text.parse().unwrap()).unwrap();
    Device::open_with(hal, Config::new()).unwrap()
}

fn kernel(device: &Device<SimHal>, name: &str) -> Kernel {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/kernels/elf");
    let elf = std::fs::read(format!("{folder}/{name}.elf")).unwrap();
    device.load_kernel(name, &elf).unwrap()
}

/// What a question returns, as text.
type Answer = Box<dyn Fn(&Management<SimHal>) -> String>;
/// An order.
type Order = Box<dyn Fn(&Management<SimHal>) -> Result<()>>;

fn ask<T: Debug>(of: impl Fn(&Management<SimHal>) -> Result<T> + 'static) -> Answer {
    Box::new(move |management| format!("{:?}", of(management).unwrap()))
}

fn order(of: impl Fn(&Management<SimHal>) -> Result<()> + 'static) -> Order {
    Box::new(of)
}

/// 256 bytes that begin so.
fn padded(start: &[u8]) -> Vec<u8> {
    let mut bytes = start.to_vec();
    bytes.resize(256, 0);
    bytes
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn what_is_set_is_what_is_asked_for_then() {
    let device = device("part=0x44,mhz=650");
    let management = device.management().unwrap();
    // What is set, what it is before, and after.
    let table: Vec<(Order, Answer, String, String)> = vec![
        (
            order(|m| m.set_part_number(0x55)),
            ask(Management::part_number),
            r#""0x44""#.into(),
            r#""0x55""#.into(),
        ),
        (
            order(|m| m.set_replaceable_unit(b"unit 7")),
            ask(Management::replaceable_unit),
            format!("{:?}", padded(b"")),
            format!("{:?}", padded(b"unit 7")),
        ),
        (
            order(|m| m.set_voltage_table(&[9; 256])),
            ask(Management::voltage_table),
            format!("{:?}", padded(b"")),
            format!("{:?}", [9_u8; 256]),
        ),
        (
            order(|m| m.set_temperature_threshold_c(91)),
            ask(Management::temperature_threshold_c),
            "80".into(),
            "91".into(),
        ),
        (order(|m| m.set_tdp_watts(17)), ask(Management::tdp_watts), "25".into(), "17".into()),
        (
            order(|m| m.set_frequency_mhz(Pll::Minion, 300, StepClock::Off)),
            ask(|m| m.frequencies().map(|of| (of.minion_mhz, of.noc_mhz))),
            "(650, 500)".into(),
            "(300, 500)".into(),
        ),
        (
            order(|m| m.set_frequency_mhz(Pll::Noc, 400, StepClock::On)),
            ask(|m| m.frequencies().map(|of| (of.minion_mhz, of.noc_mhz))),
            "(300, 500)".into(),
            "(300, 400)".into(),
        ),
        // 5 mV for each step above 250 mV, as regulator and chip say.
        (
            order(|m| m.set_voltage_code(Module::Minion, 90)),
            ask(|m| {
                let (set, measured) = (m.module_voltages()?, m.asic_voltages()?);
                Ok((set.minion_code, set.millivolts(Module::Minion), measured.minion_mv))
            }),
            "(80, Some(650.0), 650)".into(),
            "(90, Some(700.0), 700)".into(),
        ),
        // 6.25 mV above 600 mV.
        (
            order(|m| m.set_voltage_code(Module::PcieLogic, 32)),
            ask(|m| {
                let (set, measured) = (m.module_voltages()?, m.asic_voltages()?);
                Ok((set.millivolts(Module::PcieLogic), measured.pcie_shire_mv))
            }),
            "(Some(750.0), 750)".into(),
            "(Some(800.0), 800)".into(),
        ),
        (
            order(|m| m.set_link_speed(LinkSpeed::Gen4)),
            ask(|m| m.asset(Asset::PciePorts)),
            r#""1 port, 8 GT/s""#.into(),
            r#""1 port, 16 GT/s""#.into(),
        ),
        (
            order(|m| m.set_cache_config(CacheConfig::new(1024, 512, 1024))),
            ask(|m| m.cache_config().map(|of| [of.scratchpad_kib, of.l2_kib, of.l3_kib])),
            "[2560, 512, 1024]".into(),
            "[1024, 512, 1024]".into(),
        ),
    ];
    for (number, (set, get, before, after)) in table.iter().enumerate() {
        assert_eq!(&get(&management), before, "before {number}");
        set(&management).unwrap();
        assert_eq!(&get(&management), after, "after {number}");
    }
    // Each of the others where it belongs.
    for (code, module) in (100..).zip([
        Module::Ddr,
        Module::L2Cache,
        Module::Maxion,
        Module::Minion,
        Module::Pcie,
        Module::Noc,
        Module::PcieLogic,
        Module::Vddqlp,
        Module::Vddq,
    ]) {
        management.set_voltage_code(module, code).unwrap();
    }
    let set = management.module_voltages().unwrap();
    let codes = [
        set.ddr_code,
        set.l2_cache_code,
        set.maxion_code,
        set.minion_code,
        set.pcie_code,
        set.noc_code,
        set.pcie_logic_code,
        set.vddqlp_code,
        set.vddq_code,
    ];
    assert_eq!(codes, [100, 101, 102, 103, 104, 105, 106, 107, 108]);
    assert_eq!(management.counters().stray_responses, 0);
}

#[test]
fn bad_arguments_are_refused_and_change_nothing() {
    let device = device("");
    let management = device.management().unwrap();
    let look = || {
        let (clocks, voltages) = (management.frequencies(), management.module_voltages());
        let ports = management.asset(Asset::PciePorts);
        let state = management.power_state();
        format!("{clocks:?} {voltages:?} {ports:?} {state:?} {:?}", management.cache_config())
    };
    let before = look();
    let much = CacheConfig::new(u16::MAX, u16::MAX, u16::MAX);
    let refused = [
        management.set_power_management(ActivePowerManagement::Invalid),
        management.set_power_management(ActivePowerManagement::from(256)),
        management.set_voltage_code(Module::Invalid, 1),
        management.set_voltage_code(Module::from(256), 1),
        management.set_frequency_mhz(Pll::from(2), 500, StepClock::Off),
        management.set_frequency_mhz(Pll::from(257), 500, StepClock::Off),
        management.set_frequency_mhz(Pll::Minion, 500, StepClock::from(2)),
        management.set_frequency_mhz(Pll::Minion, 0, StepClock::Off),
        management.set_link_speed(LinkSpeed::from(2)),
        management.set_lane_width(LaneWidth::from(2)),
        management.set_cache_config(much),
        management.control_statistics(StatsKind::from(3), StatsControl::ENABLE),
        management.control_trace(u32::MAX),
        management.configure_trace(1, 5),
        management.throttle_residency(ThrottleState::Undefined).map(drop),
        management.power_residency(PowerState::Invalid).map(drop),
        management.power_residency(PowerState::from(256)).map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        let Err(Error::Refused { status: Refusal::Management(-1), op }) = refused else {
            panic!("{number}: {refused:?}")
        };
        assert!(!op.is_empty());
    }
    for outcome in
        [management.set_replaceable_unit(&[1; 257]), management.set_voltage_table(&[1; 257])]
    {
        assert!(matches!(outcome, Err(Error::LengthMismatch { from: 257, to: 256 })));
    }
    assert!(management.set_trace_level(Some(5)).is_err());
    assert_eq!(look(), before);
}

#[test]
fn the_other_calls_answer_with_what_the_card_is() {
    let device = device("fault=ecc:dram:3:1,fault=ecc:sram:0:7,fault=ecc:pcie:50:0");
    let management = device.management().unwrap();
    // The link is no memory.
    assert_eq!(management.most_memory_errors().unwrap(), 7);
    let [dram, sram, pcie] = [ErrorSource::Dram, ErrorSource::Sram, ErrorSource::Pcie]
        .map(|source| management.error_counts(source).unwrap());
    assert_eq!((dram.corrected, dram.uncorrectable), (3, 1));
    assert_eq!((sram.uncorrectable, pcie.corrected), (7, 50));
    // Firmware takes thresholds and ignores them. Spec: §17.2
    for source in [ErrorSource::Dram, ErrorSource::Sram, ErrorSource::Pcie] {
        management.set_error_threshold(source, 100).unwrap();
    }
    device.hal().board().inject(Fault::Ecc {
        source: Injected::Dram,
        corrected: 90,
        uncorrectable: 0,
    });
    let start = Instant::now();
    while management.most_memory_errors().unwrap() != 93 && start.elapsed() < LONG {}
    assert_eq!(management.most_memory_errors().unwrap(), 93);

    assert_eq!(management.public_keys().unwrap().len(), 32);
    assert_eq!(management.hart_status(0).unwrap(), HartStatus::Running);
    assert_eq!(management.hart_status(34 * 64).unwrap(), HartStatus::Error);
    for width in [LaneWidth::X4, LaneWidth::X8] {
        management.set_lane_width(width).unwrap();
    }
    management.retrain_link().unwrap();
    assert_eq!(management.memory_used_percent().unwrap(), 0);
    assert!(management.throttle_residency(ThrottleState::Down).unwrap().total.is_zero());
    assert!(!management.power_residency(PowerState::LowPower).unwrap().total.is_zero());
    management.send_test_events().unwrap();
    management.control_trace(TraceControl::ENABLE).unwrap();
    management.set_trace_level(Some(2)).unwrap();
    management.control_statistics(StatsKind::Mm, StatsControl::ENABLE).unwrap();
    assert_eq!(management.reset_operations().unwrap().hangs, 0);
}

#[test]
fn power_management_is_seen_while_the_card_works() {
    let device = device("");
    let management = device.management().unwrap();
    management.set_power_management(ActivePowerManagement::On).unwrap();
    assert_eq!(management.power_state().unwrap(), PowerState::LowPower, "it does nothing");
    let event = device.default_stream().launch(&Launch::new(&kernel(&device, "hang"))).unwrap();
    let becomes = |expected: PowerState| {
        let start = Instant::now();
        while management.power_state().unwrap() != expected {
            assert!(start.elapsed() < LONG, "never {expected}");
        }
    };
    becomes(PowerState::ManagedPower);
    management.set_power_management(ActivePowerManagement::Off).unwrap();
    becomes(PowerState::MaxPower);
    device.abort(&event, LONG).unwrap();
    becomes(PowerState::LowPower);
    assert!(!management.power_residency(PowerState::ManagedPower).unwrap().total.is_zero());
}

#[test]
fn rates_of_the_memory_follow_copies() {
    let device = device("");
    let management = device.management().unwrap();
    let rates = |of: et_runtime::management::MemoryRate| (of.reads_per_s, of.writes_per_s);
    assert_eq!(rates(management.memory_rate().unwrap()), (0, 0));
    assert_eq!(rates(management.highest_memory_rate().unwrap()), (0, 0));
    let buffer = device.alloc(4 << 20).unwrap();
    let (stream, start) = (device.default_stream(), Instant::now());
    let bytes = vec![7_u8; 4 << 20];
    // A rate is taken over some time.
    while rates(management.highest_memory_rate().unwrap()).1 == 0 {
        assert!(start.elapsed() < LONG, "no writes");
        stream.copy_to_device(&bytes, &buffer).unwrap().wait(LONG).unwrap();
    }
    assert_eq!(rates(management.highest_memory_rate().unwrap()).0, 0, "nothing was read");
    let mut back = vec![0_u8; 4 << 20];
    while rates(management.highest_memory_rate().unwrap()).0 == 0 {
        assert!(start.elapsed() < LONG, "no reads");
        stream.read(&buffer, &mut back, LONG).unwrap();
    }
    let statistics = management.statistics(StatsKind::Mm).unwrap();
    let greatest = |name| statistics.iter().find(|of| of.name == name).unwrap().greatest;
    assert!(greatest("ddr_read_bw") > 0 && greatest("ddr_write_bw") > 0);
    // The present rate ends with the copies, the highest stays.
    while rates(management.memory_rate().unwrap()) != (0, 0) {
        assert!(start.elapsed() < LONG, "it never ends");
    }
    let (reads, writes) = rates(management.highest_memory_rate().unwrap());
    assert!(reads > 0 && writes > 0);
}

/// Spec: §10.4, §17.4
#[test]
fn failed_commands_are_counted_and_announced() {
    let device = device("");
    let management = device.management().unwrap();
    let kernel = kernel(&device, "trap_load");
    let failure = device.default_stream().launch(&Launch::new(&kernel).u64(3)).unwrap().wait(LONG);
    assert!(matches!(failure, Err(Error::Launch(_))), "{failure:?}");
    let event = management.event(LONG).unwrap().unwrap();
    let ManagementEventKind::Card(event) = event.kind else { panic!("{event:?}") };
    assert_eq!((event.id, event.count), (EventId::MinionExceptions, 1));
    // A launch, that trapped.
    assert_eq!(event.detail(), EventDetail::Minion { source: 9, code: 2 });
    assert_eq!(management.minion_errors().unwrap().exceptions, 1);
    // What the host aborts has not failed.
    let hang = self::kernel(&device, "hang");
    let event = device.stream().launch(&Launch::new(&hang)).unwrap();
    device.abort(&event, LONG).unwrap();
    assert_eq!(management.minion_errors().unwrap().exceptions, 1);
    assert_eq!(management.event(Duration::ZERO).unwrap(), None);
}

#[test]
fn no_call_is_left_out() {
    let tests = concat!(
        include_str!("management_calls.rs"),
        include_str!("management.rs"),
        include_str!("sp_trace.rs"),
    );
    let calls = [
        include_str!("../../src/management/query.rs"),
        include_str!("../../src/management/control.rs"),
    ];
    let calls = calls.iter().flat_map(|source| source.lines());
    let calls: Vec<_> = calls.filter_map(|line| line.trim().strip_prefix("pub fn ")).collect();
    assert!(calls.len() > 40, "{calls:?}");
    for call in calls {
        let name = call.split(['(', '<']).next().unwrap();
        let is_made = [format!(".{name}("), format!("Management::{name})")];
        assert!(is_made.iter().any(|made| tests.contains(made)), "{name} is never called");
    }
}
