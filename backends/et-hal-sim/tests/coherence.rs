//! A board on a bus that is not coherent: data moves when it is synchronised, and not before.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use et_devapi::dir::BarSizes;
use et_devapi::discovery;
use et_devapi::msg::ops::{Body, Command, Completion, DmaReadNode, DmaStatus, DmaWriteNode};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer, Hal, Mailbox, Pop, Push, QueueId, Wake,
};
use et_hal_sim::{BoardConfig, SimBuffer, SimHal, SimMailbox};

const DEADLINE: Duration = Duration::from_secs(20);
const DEVICE: DeviceAddr = DeviceAddr::new(0x80_0580_1000);
const LEN: u32 = 256;

struct Card {
    hal: SimHal,
    mailbox: SimMailbox,
}

impl Card {
    fn new(text: &str) -> Self {
        let text = format!("dram=256MiB,compute=null,{text}");
        let hal = SimHal::open(text.parse::<BoardConfig>().unwrap()).unwrap();
        let window = hal.window(MAILBOX_BAR).unwrap();
        let started = Instant::now();
        while i16::from(discovery::ops_status(&window).unwrap()) != 8 {
            assert!(started.elapsed() < DEADLINE, "no boot");
            std::thread::yield_now();
        }
        let ops = discovery::read_ops(&window, &BarSizes::ET_SOC_1).unwrap();
        let mgmt = discovery::read_mgmt(&window, &BarSizes::ET_SOC_1).unwrap();
        let layout = discovery::Layout::new(mgmt, ops).unwrap();
        let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
        Self { hal, mailbox }
    }

    fn buffer(&self, access: DeviceAccess) -> SimBuffer {
        self.hal.dma().alloc(LEN as usize, access).unwrap()
    }

    fn status(&self, message: &[u8]) -> DmaStatus {
        assert_eq!(self.mailbox.push(QueueId::Submission(0), message).unwrap(), Push::Accepted);
        self.mailbox.kick().unwrap();
        let mut answer = [0; 512];
        loop {
            let ticket = self.mailbox.ticket();
            if let Pop::Message(len) = self.mailbox.pop(&mut answer).unwrap() {
                return match Completion::parse(&answer[..len]).unwrap() {
                    Completion { body: Body::DmaWrite { status, .. }, .. }
                    | Completion { body: Body::DmaRead { status, .. }, .. } => status,
                    other => panic!("{other:?}"),
                };
            }
            let (Wake::Notified | Wake::TimedOut) = self.mailbox.wait(ticket, DEADLINE).unwrap();
        }
    }

    fn to_device(&self, from: BusAddr) -> DmaStatus {
        let mut out = [0; 128];
        let node = DmaWriteNode::new(from, DEVICE, LEN);
        let len = Command::DmaWriteList { nodes: &[node] }.encode(
            Tag::new(1),
            CommandFlags::EMPTY,
            &mut out,
        );
        self.status(&out[..len.unwrap()])
    }

    fn to_host(&self, to: BusAddr) -> DmaStatus {
        let mut out = [0; 128];
        let node = DmaReadNode::new(to, DEVICE, LEN);
        let len = Command::DmaReadList { nodes: &[node] }.encode(
            Tag::new(1),
            CommandFlags::EMPTY,
            &mut out,
        );
        self.status(&out[..len.unwrap()])
    }

    fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN as usize];
        self.hal.board().dram().read(DEVICE.as_u64(), &mut bytes).unwrap();
        bytes
    }
}

fn contents(buffer: &SimBuffer) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    buffer.copy_out(0, &mut bytes).unwrap();
    bytes
}

fn halves(first: u8, second: u8) -> Vec<u8> {
    let half = LEN as usize / 2;
    [vec![first; half], vec![second; half]].concat()
}

#[test]
fn the_device_sees_what_was_synchronised_for_it() {
    let card = Card::new("coherent=no");
    let mut buffer = card.buffer(DeviceAccess::Read);
    buffer.fill(0, LEN as usize, 7).unwrap();
    assert_eq!(card.to_device(buffer.bus_addr()), DmaStatus::Complete);
    assert_eq!(card.memory(), halves(0, 0), "nothing was synchronised");
    card.hal.dma().sync_for_device(&buffer, 128..256).unwrap();
    card.to_device(buffer.bus_addr());
    assert_eq!(card.memory(), halves(0, 7), "the second half was");
    card.hal.dma().sync_for_device(&buffer, 0..256).unwrap();
    card.to_device(buffer.bus_addr());
    assert_eq!(card.memory(), halves(7, 7));
}

#[test]
fn the_host_sees_what_was_synchronised_for_it() {
    let card = Card::new("coherent=no");
    card.hal.board().dram().fill(DEVICE.as_u64(), LEN.into(), 9).unwrap();
    let buffer = card.buffer(DeviceAccess::Write);
    assert_eq!(card.to_host(buffer.bus_addr()), DmaStatus::Complete);
    assert_eq!(contents(&buffer), halves(0, 0), "nothing was synchronised");
    card.hal.dma().sync_for_cpu(&buffer, 0..128).unwrap();
    assert_eq!(contents(&buffer), halves(9, 0), "the first half was");
    card.hal.dma().sync_for_cpu(&buffer, 0..256).unwrap();
    assert_eq!(contents(&buffer), halves(9, 9));
}

#[test]
fn what_the_host_left_dirty_destroys_what_the_device_wrote() {
    let card = Card::new("coherent=no");
    card.hal.board().dram().fill(DEVICE.as_u64(), LEN.into(), 9).unwrap();
    let mut buffer = card.buffer(DeviceAccess::ReadWrite);
    buffer.fill(0, 128, 1).unwrap();
    assert_eq!(card.to_host(buffer.bus_addr()), DmaStatus::Complete);
    card.hal.dma().sync_for_cpu(&buffer, 0..256).unwrap();
    assert_eq!(contents(&buffer), halves(1, 9), "the first half was written back late");
    // In the right order.
    buffer.fill(0, 128, 1).unwrap();
    card.hal.dma().sync_for_device(&buffer, 0..256).unwrap();
    card.to_host(buffer.bus_addr());
    card.hal.dma().sync_for_cpu(&buffer, 0..256).unwrap();
    assert_eq!(contents(&buffer), halves(9, 9));
}

#[test]
fn on_a_coherent_bus_no_synchronisation_is_needed() {
    let card = Card::new("");
    let mut buffer = card.buffer(DeviceAccess::ReadWrite);
    buffer.fill(0, LEN as usize, 7).unwrap();
    card.to_device(buffer.bus_addr());
    assert_eq!(card.memory(), halves(7, 7));
    card.hal.board().dram().fill(DEVICE.as_u64(), LEN.into(), 9).unwrap();
    card.to_host(buffer.bus_addr());
    assert_eq!(contents(&buffer), halves(9, 9));
}

#[test]
fn a_buffer_is_reached_only_for_what_it_was_allocated_for() {
    for text in ["", "coherent=no"] {
        let card = Card::new(text);
        card.hal.board().dram().fill(DEVICE.as_u64(), LEN.into(), 9).unwrap();
        let source = card.buffer(DeviceAccess::Read);
        assert_eq!(card.to_host(source.bus_addr()), DmaStatus::ErrorAborted);
        card.hal.dma().sync_for_cpu(&source, 0..256).unwrap();
        assert_eq!(contents(&source), halves(0, 0), "written although it is for reading");
        let target = card.buffer(DeviceAccess::Write);
        assert_eq!(card.to_device(target.bus_addr()), DmaStatus::ErrorAborted);
        assert_eq!(card.memory(), halves(9, 9), "read although it is for writing");
        assert_eq!(card.to_device(source.bus_addr()), DmaStatus::Complete);
    }
}
