//! The management endpoint: commands, events, updates, resets.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::sync::Arc;

use et_devapi::msg::mgmt::calls::{self, COMMANDS};
use et_devapi::msg::mgmt::{
    ByteArg, CacheSizes, Call, ErrorCounts, Event, EventClass, EventId, FirmwareVersions,
    HartControl, HartStatus, ImagePath, MemRead, MemWrite, Message, Module, Pll, Quad,
    RegisterRead, RegisterWrite, Response, SetFrequency, SetVoltage, StatsRun, Text, WordArg,
    encode_command,
};
use et_devapi::msg::{CommandFlags, Header, Tag, completion_bytes};
use et_devapi::pci::Vector;
use et_devapi::ring::{Consumer, Producer};
use et_hal::{BarOffset, Endpoint, Pop, Push, Width};
use et_sim_device::{Board, BoardConfig, ErrorSource, Fault, FirmwareImage, ImageError};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use self::common::{Rig, discover, echo, null_config, ring, until};

/// The host's end of the management queues.
struct Host {
    board: Arc<Board>,
    sq: Producer,
    cq: Consumer,
    tag: u16,
    events: Vec<Event>,
}

/// Id, status and payload of a response.
type Answer = (u16, i32, Vec<u8>);

impl Host {
    fn new(config: BoardConfig) -> Self {
        Self::attach(&Board::power_on(config).unwrap())
    }

    fn attach(board: &Arc<Board>) -> Self {
        let layout = discover(board);
        let mailbox = &layout.mgmt_mailbox;
        Self {
            sq: Producer::attach(ring(&mailbox.submission, 0), board.page()).unwrap(),
            cq: Consumer::attach(ring(&mailbox.completion, 0), board.page()).unwrap(),
            board: Arc::clone(board),
            tag: 0,
            events: Vec::new(),
        }
    }

    fn send(&mut self, message: &[u8]) {
        assert_eq!(self.sq.push(self.board.page(), message).unwrap(), Push::Accepted);
        self.board.ring(BarOffset::new(0), Width::W32, 1);
    }

    fn command(&mut self, id: u16, payload: &[u8]) {
        let mut bytes = [0; 512];
        self.tag += 1;
        let len = encode_command(id, Tag::new(self.tag), payload, &mut bytes).unwrap();
        self.send(&bytes[..len]);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 512];
        let frame = |header: &_| completion_bytes(Endpoint::Management, header);
        match self.cq.pop_message(self.board.page(), frame, &mut buffer).unwrap() {
            Pop::Message(len) => Some(buffer[..len].to_vec()),
            Pop::Empty => None,
        }
    }

    /// Waits for the next response; events on the way are kept.
    fn answer(&mut self) -> Answer {
        let mut answer = None;
        until("an answer", || {
            let Some(bytes) = self.take() else { return false };
            match Message::parse(&bytes).unwrap() {
                Message::Response(Response { tag, id, status, payload, .. }) => {
                    assert_eq!(tag.as_u16(), self.tag);
                    answer = Some((id, status, payload.to_vec()));
                }
                Message::Event(event) => self.events.push(event),
                other => panic!("{other:?}"),
            }
            answer.is_some()
        });
        answer.unwrap()
    }

    fn event(&mut self) -> Event {
        let mut found = None;
        until("an event", || {
            let Some(bytes) = self.take() else { return false };
            let Ok(Message::Event(event)) = Message::parse(&bytes) else { panic!("{bytes:?}") };
            found = Some(event);
            true
        });
        found.unwrap()
    }

    /// Returns status and payload of the response.
    fn try_call<Q, R>(&mut self, call: Call<Q, R>, payload: &Q) -> (i32, R)
    where
        Q: IntoBytes + Immutable,
        R: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        self.command(call.id, payload.as_bytes());
        let (_, status, payload) = self.answer();
        (status, R::read_from_prefix(&payload).unwrap().0)
    }

    fn call<Q, R>(&mut self, call: Call<Q, R>, payload: &Q) -> R
    where
        Q: IntoBytes + Immutable,
        R: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (status, answer) = self.try_call(call, payload);
        assert_eq!(status, 0, "command {}", call.id);
        answer
    }

    fn get<R>(&mut self, call: Call<Quad, R>) -> R
    where
        R: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        self.call(call, &Quad::new_zeroed())
    }

    fn text(&mut self, call: Call<Quad, Text>) -> String {
        let text = self.get(call).asset;
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(text[..end].to_vec()).unwrap()
    }
}

fn byte(value: u8) -> ByteArg {
    ByteArg { value, pad: [0; 7] }
}

#[test]
fn every_command_is_answered_as_its_firmware_does() {
    let mut host = Host::new(null_config());
    for command in COMMANDS {
        // Resets, and what puts the queue out of step, have tests of their own.
        if [52, 64, 65, 139].contains(&command.id) {
            continue;
        }
        let payload = vec![0; command.command_bytes - 8];
        host.command(command.id, &payload);
        let Some(bytes) = command.response_bytes else { continue };
        let (id, _, payload) = host.answer();
        // Erratum 3 (§21).
        let expected = if command.id == 32 { 31 } else { command.id };
        assert_eq!((id, payload.len() + 24), (expected, bytes), "{}", command.name);
    }
}

#[test]
fn unknown_and_oversized_commands_are_dropped() {
    let mut host = Host::new(null_config());
    host.command(74, &[0; 8]);
    let mut large = [0; 520];
    large[..8].copy_from_slice(Header::new(520, Tag::new(9), 30, CommandFlags::EMPTY).as_bytes());
    host.send(&large);
    let taken = || host.board.interrupts().raised(Vector::MgmtSubmission);
    until("the first command", || taken() == 1);
    assert_eq!(host.take(), None, "no response, no event");
}

#[test]
fn the_card_is_as_configured() {
    let mut config = null_config();
    config.serial = "A-7".into();
    config.part_number = 0x12;
    config.temperature_c = 51;
    config.power_mw = 9100;
    config.tdp_watts = 33;
    config.frequency_mhz = 700;
    let mut host = Host::new(config);
    assert_eq!(host.text(calls::GET_MODULE_SERIAL_NUMBER), "A-7");
    assert_eq!(host.text(calls::GET_MODULE_PART_NUMBER), "0x12");
    assert_eq!(host.text(calls::GET_MODULE_MEMORY_SIZE_MB), "256");
    // Without a body. Spec: §17.2
    assert_eq!(host.text(calls::GET_MODULE_DRIVER_REVISION), "");
    assert_eq!(host.text(calls::GET_MODULE_PCIE_ADDR), "");
    let temperatures = host.get(calls::GET_MODULE_CURRENT_TEMPERATURE);
    assert_eq!((temperatures.minshire_avg.get(), temperatures.pmic_sys), (51, 51));
    assert_eq!(host.get(calls::GET_MODULE_POWER).power.get(), 9100);
    assert_eq!(host.get(calls::GET_MODULE_STATIC_TDP_LEVEL).value, 33);
    assert_eq!(discover(&host.board).mgmt.header.device_tdp, 33);
    assert_eq!(host.get(calls::GET_ASIC_FREQUENCIES).minion_shire_mhz.get(), 700);
    assert_eq!(host.get(calls::GET_SP_STATS).system_power.max.get(), 9100);
    let caches = host.get(calls::GET_SHIRE_CACHE_CONFIG);
    let sizes = [caches.scp_size, caches.l2_size, caches.l3_size].map(|size| size.get());
    assert_eq!(sizes, [2560, 512, 1024], "a 32nd of what the registers say, in KiB");
}

#[test]
fn what_is_set_is_reported() {
    let mut host = Host::new(null_config());
    host.call(calls::SET_MODULE_PART_NUMBER, &WordArg { value: 0xbeef.into(), pad: 0.into() });
    assert_eq!(host.text(calls::GET_MODULE_PART_NUMBER), "0xbeef");
    for (set, get) in [(calls::SET_FRU, calls::GET_FRU), (calls::SET_VMIN_LUT, calls::GET_VMIN_LUT)]
    {
        let data = Text { asset: std::array::from_fn(|i| u8::try_from(i).unwrap() ^ 0x5a) };
        host.call(set, &data);
        assert_eq!(host.get(get), data);
    }
    host.call(calls::SET_MODULE_TEMPERATURE_THRESHOLDS, &byte(66));
    assert_eq!(host.get(calls::GET_MODULE_TEMPERATURE_THRESHOLDS).value, 66);
    host.call(calls::SET_MODULE_STATIC_TDP_LEVEL, &byte(17));
    assert_eq!(host.get(calls::GET_MODULE_STATIC_TDP_LEVEL).value, 17);
    assert_eq!(host.try_call(calls::SET_MODULE_ACTIVE_POWER_MANAGEMENT, &byte(2)).0, -1);

    let frequency = |mhz: u16, pll: Pll| SetFrequency {
        pll_freq: mhz.into(),
        pll_id: u8::try_from(u32::from(pll)).unwrap(),
        use_step_clock: 0,
        pad: [0; 4],
    };
    host.call(calls::SET_FREQUENCY, &frequency(450, Pll::Minion));
    host.call(calls::SET_FREQUENCY, &frequency(350, Pll::Noc));
    assert_eq!(host.try_call(calls::SET_FREQUENCY, &frequency(1, Pll::Unknown(2))).0, -1);
    let frequencies = host.get(calls::GET_ASIC_FREQUENCIES);
    assert_eq!((frequencies.minion_shire_mhz.get(), frequencies.noc_mhz.get()), (450, 350));

    let voltage = |module: Module| SetVoltage {
        r#type: u8::try_from(u32::from(module)).unwrap(),
        value: 99,
        pad: [0; 6],
    };
    host.call(calls::SET_MODULE_VOLTAGE, &voltage(Module::Noc));
    assert_eq!(host.try_call(calls::SET_MODULE_VOLTAGE, &voltage(Module::Invalid)).0, -1);
    assert_eq!(host.get(calls::GET_MODULE_VOLTAGE).noc, 99);
    assert_eq!(host.get(calls::GET_ASIC_VOLTAGE).noc.get(), 250 + 5 * 99);

    let sizes =
        |scp: u16| CacheSizes { scp_size: scp.into(), l2_size: 1024.into(), l3_size: 1024.into() };
    host.call(calls::SET_SHIRE_CACHE_CONFIG, &sizes(2048));
    assert_eq!(host.try_call(calls::SET_SHIRE_CACHE_CONFIG, &sizes(2049)).0, -1);
    assert_eq!(host.get(calls::GET_SHIRE_CACHE_CONFIG), sizes(2048));
}

#[test]
fn errors_are_counted_and_announced() {
    let mut config = null_config();
    config.faults = vec!["ecc:sram:3:1".parse().unwrap()];
    let mut host = Host::new(config);
    let counts = |ecc: u32, uecc: u32| ErrorCounts { ecc: ecc.into(), uecc: uecc.into() };
    assert_eq!(host.get(calls::GET_MODULE_SRAM_ECC_UECC), counts(3, 1));
    assert_eq!(host.events.iter().map(|event| event.count).collect::<Vec<_>>(), [3, 1]);
    host.board.inject(Fault::Ecc { source: ErrorSource::Dram, corrected: 7, uncorrectable: 0 });
    let event = host.event();
    assert_eq!((event.id, event.class), (EventId::DramCorrected, EventClass::Warning));
    assert_eq!(event.count, 7);
    host.board.inject(Fault::Ecc { source: ErrorSource::Pcie, corrected: 0, uncorrectable: 2 });
    assert_eq!(host.event().id, EventId::PcieUncorrected);
    assert_eq!(host.get(calls::GET_MODULE_DDR_ECC_UECC), counts(7, 0));
    assert_eq!(host.get(calls::GET_MODULE_PCIE_ECC_UECC), counts(0, 2));
    assert_eq!(host.get(calls::GET_MAX_MEMORY_ERROR).value.get(), 7);
}

#[test]
fn a_threshold_below_the_temperature_is_announced() {
    let mut host = Host::new(null_config());
    host.call(calls::SET_MODULE_TEMPERATURE_THRESHOLDS, &byte(30));
    assert_eq!(host.event().id, EventId::ThermalLow);
    assert_eq!(host.get(calls::GET_ASIC_FREQUENCIES).minion_shire_mhz.get(), 300);
    let time = host.call(calls::GET_MODULE_RESIDENCY_THROTTLE_STATES, &byte(2));
    assert!(time.cumulative.get() < 60_000_000);
    host.call(calls::SET_MODULE_TEMPERATURE_THRESHOLDS, &byte(80));
    assert_eq!(host.event().id, EventId::ThrottleTime);
    assert_eq!(host.get(calls::GET_ASIC_FREQUENCIES).minion_shire_mhz.get(), 600);
    let bad = host.try_call(calls::GET_MODULE_RESIDENCY_THROTTLE_STATES, &byte(4)).0;
    assert_eq!(bad, -1);
}

#[test]
fn a_test_build_sends_every_event() {
    let mut host = Host::new(null_config());
    host.get(calls::GET_DEVICE_ERROR_EVENTS);
    let ids: Vec<_> = host.events.iter().map(|event| u32::from(event.id)).collect();
    assert_eq!(ids, (256..=272).collect::<Vec<_>>());
}

#[test]
fn statistics_begin_anew() {
    let mut host = Host::new(null_config());
    host.call(calls::SET_MODULE_TEMPERATURE_THRESHOLDS, &byte(30));
    host.call(calls::SET_MODULE_TEMPERATURE_THRESHOLDS, &byte(80));
    assert_eq!(host.get(calls::GET_SP_STATS).minion_freq.min.get(), 300);
    host.call(calls::SET_STATS_RUN_CONTROL, &StatsRun { r#type: 1.into(), control: 2.into() });
    assert_eq!(host.get(calls::GET_SP_STATS).minion_freq.min.get(), 600);
}

#[test]
fn the_debugger_remembers() {
    let mut host = Host::new(null_config());
    let hart = |hart: u64| HartControl { hart_id: hart.into(), flags: 0.into() };
    let status = |host: &mut Host, id: u64| {
        HartStatus::from(host.call(calls::MDI_GET_HART_STATUS, &hart(id)).status.get())
    };
    host.call(calls::MDI_HALT_HART, &hart(5));
    assert_eq!(status(&mut host, 5), HartStatus::Halted);
    assert_eq!(status(&mut host, 6), HartStatus::Running);
    assert_eq!(status(&mut host, 9999), HartStatus::Error);
    host.call(calls::MDI_RESUME_HART, &hart(5));
    assert_eq!(status(&mut host, 5), HartStatus::Running);

    let write =
        RegisterWrite { hart_id: 5.into(), data: 0xabcd.into(), register: 10.into(), pad: [0; 4] };
    host.call(calls::MDI_WRITE_GPR, &write);
    let read = RegisterRead { hart_id: 5.into(), register: 10.into(), pad: [0; 4] };
    assert_eq!(host.call(calls::MDI_READ_GPR, &read).value.get(), 0xabcd);
    assert_eq!(host.call(calls::MDI_READ_CSR, &read).value.get(), 0);

    let address = common::HOST_BASE;
    let write =
        MemWrite { address: address.into(), data: 0x1122_3344.into(), size: 4.into(), pad: [0; 4] };
    host.call(calls::MDI_WRITE_MEM, &write);
    let mut bytes = [0; 4];
    host.board.dram().read(address, &mut bytes).unwrap();
    assert_eq!(bytes, [0x44, 0x33, 0x22, 0x11]);
    let read = |address: u64, size: u32| MemRead {
        address: address.into(),
        hart_id: 0.into(),
        size: size.into(),
        access_type: 2,
        pad: [0; 3],
    };
    assert_eq!(host.call(calls::MDI_READ_MEM, &read(address, 2)).value.get(), 0x3344);
    assert_eq!(host.try_call(calls::MDI_READ_MEM, &read(0, 8)).0, -1);
    assert_eq!(host.try_call(calls::MDI_READ_MEM, &read(address, 9)).0, -1);
}

#[test]
fn a_register_dump_announces_more_than_it_sends() {
    let mut host = Host::new(null_config());
    host.command(calls::MDI_DUMP_GPR.id, &[0; 8]);
    let board = Arc::clone(&host.board);
    until("the response", || host.cq.used(board.page()).unwrap() >= 32);
    let mut header = [0; 8];
    host.cq.peek(board.page(), 0, &mut header).unwrap();
    let header = Header::read_from_bytes(&header).unwrap();
    // Erratum 2 (§21).
    assert_eq!((header.size.get(), host.cq.used(board.page()).unwrap()), (272, 32));
    assert_eq!(host.take(), None, "the rest never comes");
}

#[test]
fn a_service_processor_may_answer_garbage_or_not_at_all() {
    let mut config = null_config();
    let fault = |text: &str| text.parse::<Fault>().unwrap();
    config.faults = vec![fault("sp-garbage:2:24"), fault("sp-silent:3")];
    let mut host = Host::new(config);
    host.get(calls::GET_MODULE_UPTIME);
    host.command(calls::GET_MODULE_UPTIME.id, &[0; 8]);
    let mut garbage = None;
    until("garbage", || {
        garbage = host.take();
        garbage.is_some()
    });
    let Ok(Message::Response(Response { id, .. })) = Message::parse(garbage.as_ref().unwrap())
    else {
        panic!()
    };
    assert_eq!(id, 0x7fff);
    host.get(calls::GET_MODULE_UPTIME);
    host.command(calls::GET_MODULE_UPTIME.id, &[0; 8]);
    until("the command is taken", || host.board.interrupts().raised(Vector::MgmtSubmission) == 4);
    assert_eq!(host.take(), None);
}

fn image() -> FirmwareImage {
    FirmwareImage { arch_rev: 0, versions: [0x0201_0000; 7], body: vec![0xe7; 5000] }
}

/// Writes an image where updates are taken from.
fn stage(host: &Host, bytes: &[u8]) {
    let scratch = et_devapi::pci::BAR0_DEVICE_ADDR.as_u64();
    host.board.dram().write(scratch, &vec![0; 0x40_0000]).unwrap();
    host.board.dram().write(scratch, bytes).unwrap();
}

fn update(host: &mut Host) -> i32 {
    host.try_call(calls::SET_FIRMWARE_UPDATE, &ImagePath::new_zeroed()).0
}

fn release(host: &mut Host) -> u32 {
    host.get(calls::GET_MODULE_FIRMWARE_REVISIONS).fw_release_rev.get()
}

/// Resets the chip and waits until it has booted again.
fn reset_chip(host: &mut Host) -> Host {
    host.command(calls::RESET_ETSOC.id, &[0; 8]);
    // The old rings go when the boot begins.
    let board = Arc::clone(&host.board);
    until("the new boot", || {
        Consumer::attach(*host.cq.ring(), board.page()).is_ok_and(|cq| cq.indices() == (0, 0))
    });
    Host::attach(&board)
}

#[test]
fn an_image_is_installed_and_runs_after_a_reset_of_the_chip() {
    let mut host = Host::new(null_config());
    let before = release(&mut host);
    stage(&host, &image().encode());
    assert_eq!(update(&mut host), 0);
    assert_eq!(release(&mut host), before, "what runs is still the old one");
    host.call(calls::SET_MODULE_PART_NUMBER, &WordArg { value: 77.into(), pad: 0.into() });
    host.board.dram().write(common::HOST_BASE, &[1]).unwrap();

    let mut host = reset_chip(&mut host);
    let versions: FirmwareVersions = host.get(calls::GET_MODULE_FIRMWARE_REVISIONS);
    assert_eq!(versions.fw_release_rev.get(), 0x0201_0000);
    assert_eq!(versions.bl1_v.get(), 0x0201_0000);
    assert_eq!(host.text(calls::GET_MODULE_PART_NUMBER), "0x4d", "flash memory stays");
    let mut byte = [1];
    host.board.dram().read(common::HOST_BASE, &mut byte).unwrap();
    assert_eq!(byte, [0], "device memory does not");
    let mut rig = Rig::attach(Arc::clone(&host.board));
    rig.send(0, &echo(3));
    rig.next();
}

#[test]
fn bad_images_leave_the_device_untouched() {
    let good = image().encode();
    let mut host = Host::new(null_config());
    let before = host.get(calls::GET_MODULE_FIRMWARE_REVISIONS);
    let refused = |host: &mut Host, bytes: &[u8]| {
        stage(host, bytes);
        update(host)
    };
    assert_eq!(refused(&mut host, &[]), ImageError::NoImage as i32);
    let other = FirmwareImage { arch_rev: 1, ..image() }.encode();
    assert_eq!(refused(&mut host, &other), ImageError::OtherDevice as i32);
    assert_eq!(refused(&mut host, &good[..good.len() - 1]), ImageError::Corrupt as i32);
    for at in [20, 30, good.len() - 1] {
        let mut corrupt = good.clone();
        corrupt[at] ^= 1;
        assert_eq!(refused(&mut host, &corrupt), ImageError::Corrupt as i32, "byte {at}");
    }
    let mut long = good.clone();
    long[12..16].copy_from_slice(&0x40_0000_u32.to_le_bytes());
    assert_eq!(refused(&mut host, &long), ImageError::Truncated as i32);
    let mut host = reset_chip(&mut host);
    assert_eq!(host.get(calls::GET_MODULE_FIRMWARE_REVISIONS), before);
    stage(&host, &good);
    assert_eq!(update(&mut host), 0, "and a good one still is one");
}

#[test]
fn the_operations_endpoint_is_reset_alone() {
    let mut config = null_config();
    config.faults = vec![Fault::Hang { after: 1 }];
    let board = Board::power_on(config).unwrap();
    let mut rig = Rig::attach(Arc::clone(&board));
    let mut host = Host::attach(&board);
    board.dram().write(common::HOST_BASE, &[0x42]).unwrap();
    rig.send(0, &echo(1));
    rig.next();
    rig.send(0, &echo(2));
    let errors = host.get(calls::MM_RESET);
    assert_eq!(errors.hang_count.get(), 1, "it was counted as a hang");
    assert_eq!(host.events[0].id, EventId::MinionHangs);
    assert_eq!(host.get(calls::GET_MM_ERROR_COUNT), errors);

    let mut rig = Rig::attach(Arc::clone(&board));
    assert_eq!(rig.sq[0].indices(), (0, 0), "the rings begin anew");
    assert!(rig.try_bytes().is_none(), "the command in flight is never answered");
    rig.send(0, &echo(3));
    assert_eq!(rig.next().tag, Tag::new(3));
    let mut byte = [0];
    board.dram().read(common::HOST_BASE, &mut byte).unwrap();
    assert_eq!(byte, [0x42], "the memory stays");
}
