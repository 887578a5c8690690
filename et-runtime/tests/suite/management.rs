//! The management endpoint against what a simulated card can be told to do wrong, and against
//! mocks.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::mgmt::{Response, parse_command};
use et_devapi::pci::Vector;
use et_hal::ErrorKind;
use et_hal_mock::{MockHal, presets};
use et_hal_sim::SimHal;
use et_runtime::management::{
    ErrorCounts, ErrorSource, EventId, ManagementEventKind, Module, PowerState, StatsKind, Unit,
};
use et_runtime::{Config, Device, Error, Management};
use et_sim_device::{ErrorSource as Injected, Fault, FirmwareImage, ImageError};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

fn device(options: &str) -> Device<SimHal> {
    let text = format!("shires=1,dram=256MiB,threads=1,{options}");
    Device::open(SimHal::open(text.parse().unwrap()).unwrap()).unwrap()
}

/// The operations endpoint still does its work.
fn works(device: &Device<SimHal>) {
    let buffer = device.alloc(64).unwrap();
    device.default_stream().fill(&buffer, 7).unwrap().wait(LONG).unwrap();
    let mut bytes = [0u8; 64];
    device.default_stream().read(&buffer, &mut bytes, LONG).unwrap();
    assert_eq!(bytes, [7; 64]);
}

#[test]
fn every_value_is_that_of_the_card() {
    let device = device("serial=B-12,part=0x44,temperature=47,power=7300,tdp=31,mhz=650");
    let management = device.management().unwrap();
    assert_eq!(management.serial_number().unwrap(), "B-12");
    assert_eq!(management.part_number().unwrap(), "0x44");
    let temperatures = management.temperatures().unwrap();
    assert_eq!((temperatures.minion_average_c, temperatures.power_controller_c), (47, 47));
    assert_eq!(management.highest_temperature_c().unwrap(), 47);
    assert_eq!(management.power_mw().unwrap(), 7300);
    assert_eq!(management.power_state().unwrap(), PowerState::LowPower);
    assert_eq!(management.tdp_watts().unwrap(), 31);
    assert_eq!(management.frequencies().unwrap().minion_mhz, 650);
    let versions = management.firmware_versions().unwrap();
    assert_eq!(versions.release.to_string(), "1.5.0");
    // This one is answered under another id. Erratum 3 (§21).
    assert_eq!(management.asic_voltages().unwrap().minion_mv, 650);
    let voltages = management.module_voltages().unwrap();
    assert_eq!(voltages.millivolts(Module::Minion), Some(650.0));
    assert_eq!(voltages.millivolts(Module::Pcie), Some(900.0));
    assert_eq!(voltages.millivolts(Module::Vddq), None);
    assert!(management.uptime().unwrap() < LONG);
    management.check_boot().unwrap();
    let power = &management.statistics(StatsKind::Sp).unwrap()[0];
    assert_eq!((power.name, power.unit, power.greatest), ("system_power", Unit::Milliwatts, 7300));
    assert_eq!(management.statistics(StatsKind::Mm).unwrap().len(), 10);
    assert_eq!(management.counters().stray_responses, 0);
}

#[test]
fn errors_are_counted_and_events_come_in_order() {
    let device = device("");
    let management = device.management().unwrap();
    assert_eq!(management.event(Duration::ZERO).unwrap(), None);
    let listener = {
        let management = management.clone();
        std::thread::spawn(move || management.event(LONG).unwrap().unwrap())
    };
    device.hal().board().inject(Fault::Ecc {
        source: Injected::Dram,
        corrected: 9,
        uncorrectable: 0,
    });
    let ManagementEventKind::Card(event) = listener.join().unwrap().kind else { panic!() };
    assert_eq!((event.id, event.count), (EventId::DramCorrected, 9));
    let ErrorCounts { corrected, uncorrectable, .. } =
        management.error_counts(ErrorSource::Dram).unwrap();
    assert_eq!((corrected, uncorrectable), (9, 0));
    // An event that comes before an answer is kept.
    device.hal().board().inject(Fault::Ecc {
        source: Injected::Sram,
        corrected: 0,
        uncorrectable: 1,
    });
    let counted = |source| management.error_counts(source).unwrap().uncorrectable;
    while counted(ErrorSource::Sram) == 0 {}
    let event = management.event(LONG).unwrap().unwrap();
    let ManagementEventKind::Card(event) = event.kind else { panic!() };
    assert_eq!(event.id, EventId::SramUncorrected);
}

#[test]
fn events_that_the_device_had_no_room_for_do_not_go_unnoticed() {
    let device = device("");
    let management = device.management().unwrap();
    assert_eq!(management.counters().full_queues, 0);
    let board = device.hal().board();
    let raised = || board.interrupts().raised(Vector::MgmtCompletion);
    // Events of 32 bytes each; the queue takes 54 of them.
    for count in 1..=54 {
        board.inject(Fault::Ecc { source: Injected::Pcie, corrected: 1, uncorrectable: 0 });
        while raised() < count {
            std::thread::yield_now();
        }
    }
    board.inject(Fault::Ecc { source: Injected::Pcie, corrected: 1, uncorrectable: 0 });
    while management.error_counts(ErrorSource::Pcie).map_or(0, |counts| counts.corrected) < 55 {}
    let counters = management.counters();
    assert_eq!(counters.events, 54, "one event is lost on the device");
    assert!(counters.full_queues > 0, "{counters:?}");
    works(&device);
}

#[test]
fn garbage_is_counted_and_harmless() {
    let device = device("fault=sp-garbage:1:24");
    let management = device.management().unwrap();
    let outcome = management.clone().with_timeout(SHORT).power_mw();
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    assert_eq!(management.counters().stray_responses, 1);
    assert_eq!(management.power_mw().unwrap(), 8000, "the next one is answered");
    works(&device);
}

#[test]
fn a_message_that_cannot_be_framed_ends_the_endpoint_and_nothing_else() {
    for size in [0, 5000] {
        let device = device(&format!("fault=sp-garbage:2:{size}"));
        let management = device.management().unwrap();
        management.power_mw().unwrap();
        let outcome = management.power_mw();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol, "{size}");
        let again = management.uptime();
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Protocol, "the reason stays");
        let event = management.event(LONG);
        assert_eq!(event.unwrap_err().kind(), ErrorKind::Protocol);
        works(&device);
    }
}

#[test]
fn a_silent_service_processor_costs_the_deadline() {
    let mut device = device("fault=sp-silent:1");
    let management = device.management().unwrap();
    management.power_mw().unwrap();
    for _ in 0..3 {
        let outcome = management.clone().with_timeout(SHORT).power_mw();
        let Err(Error::Timeout { site, after }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((site.operation(), after), (Some("power query"), SHORT));
        assert_eq!(site.device(), Some("et-hal-sim"));
    }
    works(&device);
    device.reset(LONG).unwrap();
    assert!(matches!(management.power_mw(), Err(Error::Stale { .. })), "the old handle");
    device.management().unwrap().power_mw().unwrap();
}

#[test]
fn a_link_lost_at_any_step_is_a_typed_error() {
    let mut opened = 0;
    for after in (0..400).step_by(7) {
        let text = format!("shires=1,dram=256MiB,fault=link-loss:{after}");
        let hal = SimHal::open(text.parse().unwrap()).unwrap();
        let config = Config::new().boot_timeout(SHORT).spin(Duration::ZERO);
        let Ok(management) = Management::open(hal, config) else { continue };
        opened += 1;
        let error = loop {
            if let Err(error) = management.power_mw() {
                break error;
            }
        };
        let is_loss = matches!(error, Error::Lost { .. } | Error::Hal { .. });
        assert!(is_loss, "{after}: {error}, {:?}", error.kind());
        assert!(management.event(LONG).is_err());
    }
    assert!(opened > 10, "{opened}");
}

#[test]
fn handles_of_a_closed_device_say_so() {
    let device = device("");
    let management = device.management().unwrap();
    let waiting = {
        let management = management.clone();
        std::thread::spawn(move || management.event(LONG))
    };
    device.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed { .. })));
    assert!(matches!(management.power_mw(), Err(Error::Closed { .. })));
}

fn image() -> FirmwareImage {
    FirmwareImage { arch_rev: 0, versions: [0x0302_0100; 7], body: vec![0x5a; 200_000] }
}

#[test]
fn firmware_is_updated_and_bad_images_leave_the_device_untouched() {
    let mut device = device("");
    let before = device.management().unwrap().firmware_versions().unwrap();
    let good = image().encode();
    let refused = |image: &[u8]| {
        let management = device.management().unwrap();
        let outcome = management.update_firmware(image, "test");
        assert_eq!(management.firmware_versions().unwrap(), before);
        let Err(Error::Refused { status, .. }) = outcome else { panic!("{outcome:?}") };
        status.to_string()
    };
    let number = |error: ImageError| format!("firmware error {}", error as i32);
    let mut corrupt = good.clone();
    corrupt[100_000] ^= 1;
    assert_eq!(refused(&corrupt), number(ImageError::Corrupt));
    let other = FirmwareImage { arch_rev: 1, ..image() }.encode();
    assert_eq!(refused(&other), number(ImageError::OtherDevice));
    assert_eq!(refused(&[0; 100]), number(ImageError::NoImage));
    // What was in the region before is not the rest of an image that is cut off.
    let cut = &good[..good.len() / 2];
    assert_eq!(refused(cut), number(ImageError::Corrupt));
    let management = device.management().unwrap();
    for len in [0, (4 << 20) + 1] {
        let outcome = management.update_firmware(&vec![0; len], "test");
        assert!(matches!(outcome, Err(Error::LengthMismatch { .. })), "{len}: {outcome:?}");
    }

    management.update_firmware(&good, "test").unwrap();
    assert_eq!(management.firmware_versions().unwrap(), before, "the old one still runs");
    works(&device);
    device.reset_chip(LONG).unwrap();
    let versions = device.management().unwrap().firmware_versions().unwrap();
    assert_eq!(versions.release.to_string(), "3.2.1");
    works(&device);
}

#[test]
fn a_hung_firmware_is_reset_alone() {
    let mut device = device("");
    device.hal().board().inject(Fault::Hang { after: 0 });
    let management = device.management().unwrap();
    let buffer = device.alloc(64).unwrap();
    let stream = device.stream();
    let events: Vec<_> = (0..8).filter_map(|byte| stream.fill(&buffer, byte).ok()).collect();
    assert!(matches!(events[7].wait(SHORT), Err(Error::Timeout { .. })), "it hangs");
    management.power_mw().unwrap();
    device.reset_operations(LONG).unwrap();
    assert!(matches!(events[7].wait(LONG), Err(Error::Stale { .. })));
    assert_eq!(management.minion_errors().unwrap().hangs, 1, "the endpoint stays open");
    let event = management.event(LONG).unwrap().unwrap();
    let ManagementEventKind::Card(event) = event.kind else { panic!() };
    assert_eq!(event.id, EventId::MinionHangs);
    assert!(matches!(stream.fill(&buffer, 1), Err(Error::Stale { .. } | Error::ForeignBuffer)));
    works(&device);
}

#[test]
fn a_card_without_operations_firmware_can_be_managed() {
    let text = "shires=1,dram=256MiB,fault=boot-error:ops,serial=dead";
    let hal = Arc::new(SimHal::open(text.parse().unwrap()).unwrap());
    let config = Config::new().boot_timeout(SHORT);
    assert!(Device::open_with(Arc::clone(&hal), config.clone()).is_err());
    let management = Management::open(hal, config).unwrap();
    assert_eq!(management.serial_number().unwrap(), "dead");
    management.update_firmware(&image().encode(), "rescue").unwrap();
    let refused = management.reset_operations();
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

/// A card behind whose management mailbox `answer` makes up what comes.
fn mocked(mut answer: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Management<MockHal> {
    let mailbox = presets::raw_mailbox(move |message| answer(message));
    let hal = MockHal::new(presets::booted_registers(), mailbox);
    Management::open(hal, Config::new().command_timeout(SHORT)).unwrap()
}

fn response(message: &[u8], status: i32, payload: &[u8]) -> Vec<u8> {
    let (header, _) = parse_command(message).unwrap();
    let (tag, id) = (header.tag(), header.msg_id.get());
    let mut bytes = vec![0; 512];
    let response = Response { tag, id, latency_us: 1, status, payload };
    let len = response.encode(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn an_answer_that_is_too_short_is_malformed() {
    let management = mocked(|message| vec![response(message, 0, &[1; 8])]);
    assert_eq!(management.power_mw().unwrap(), 0x0101, "long enough for this one");
    let outcome = management.temperatures();
    let Err(Error::Malformed { op, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(op, "temperature query");
}

#[test]
fn a_refusal_has_the_firmwares_number() {
    let management = mocked(|message| vec![response(message, -77, &[0; 8])]);
    let outcome = management.set_tdp_watts(10).unwrap_err();
    assert!(outcome.to_string().contains("-77"), "{outcome}");
}

#[test]
fn nonsense_before_an_answer_is_skipped_and_counted() {
    let management = mocked(|message| {
        let mut stray = response(message, 0, &[0; 8]);
        stray[2] ^= 0x40;
        let cut = vec![8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        vec![stray, cut, response(message, 0, &[5, 0, 0, 0, 0, 0, 0, 0])]
    });
    assert_eq!(management.power_mw().unwrap(), 5);
    let counters = management.counters();
    assert_eq!((counters.stray_responses, counters.malformed_messages), (1, 1));
}

#[test]
fn a_full_queue_is_waited_for_until_the_deadline() {
    let hal = MockHal::new(presets::booted_registers(), presets::full_mailbox());
    let management = Management::open(hal, Config::new().command_timeout(SHORT)).unwrap();
    assert!(matches!(management.power_mw(), Err(Error::Timeout { .. })));
}
