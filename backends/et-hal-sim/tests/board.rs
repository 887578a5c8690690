//! What only a simulated board can show: its memory from behind, and its faults. The rules of the
//! traits are checked by the conformance kit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;
use std::time::{Duration, Instant};

use et_devapi::dir::BarSizes;
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{Body, Command, Completion, DmaStatus, DmaWriteNode};
use et_devapi::msg::{CommandFlags, Tag};
use et_hal::{
    Bar, BarOffset, BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer, Error, ErrorKind, Hal,
    Mailbox, Mmio, Pop, Push, QueueId, Wake, Width,
};
use et_hal_sim::{BoardConfig, Fault, SimError, SimHal, SimMailbox};

const DEADLINE: Duration = Duration::from_secs(20);
const BAR2: Bar = Bar::new(2).unwrap();
const BAR0: Bar = Bar::new(0).unwrap();
const HOST_BASE: u64 = 0x80_0580_1000;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < DEADLINE, "{what} did not happen");
        thread::yield_now();
    }
}

fn open(text: &str) -> SimHal {
    let text = format!("dram=256MiB,compute=null,{text}");
    SimHal::open(text.parse::<BoardConfig>().unwrap()).unwrap()
}

fn discover(hal: &SimHal) -> Layout {
    let window = hal.window(BAR2).unwrap();
    until("boot", || {
        i16::from(discovery::mgmt_status(&window).unwrap()) == 12
            && i16::from(discovery::ops_status(&window).unwrap()) == 8
    });
    let bars = BarSizes { bar0: hal.window(BAR0).unwrap().len_bytes(), bar2: window.len_bytes() };
    let mgmt = discovery::read_mgmt(&window, &bars).unwrap();
    let ops = discovery::read_ops(&window, &bars).unwrap();
    assert_eq!(mgmt.warnings().iter().count() + ops.warnings().iter().count(), 0);
    Layout::new(mgmt, ops).unwrap()
}

fn ready(text: &str) -> (SimHal, Layout, SimMailbox) {
    let hal = open(text);
    let layout = discover(&hal);
    let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
    (hal, layout, mailbox)
}

fn kind<T: std::fmt::Debug>(result: Result<T, SimError>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn echo(tag: u16) -> Vec<u8> {
    let mut out = [0; 16];
    Command::Echo.encode(Tag::new(tag), CommandFlags::EMPTY, &mut out).unwrap();
    out.to_vec()
}

fn send(mailbox: &SimMailbox, message: &[u8]) {
    assert_eq!(mailbox.push(QueueId::Submission(0), message).unwrap(), Push::Accepted);
    mailbox.kick().unwrap();
}

/// Receives as a driver does: ticket, look, wait.
fn receive(mailbox: &SimMailbox) -> Completion {
    let started = Instant::now();
    let mut buffer = [0; 512];
    loop {
        let ticket = mailbox.ticket();
        if let Pop::Message(len) = mailbox.pop(&mut buffer).unwrap() {
            return Completion::parse(&buffer[..len]).unwrap();
        }
        assert!(started.elapsed() < DEADLINE, "no message");
        let (Wake::Notified | Wake::TimedOut) = mailbox.wait(ticket, DEADLINE).unwrap();
    }
}

#[test]
fn memory_behind_bar0_is_device_memory() {
    let hal = open("");
    discover(&hal);
    let window = hal.window(BAR0).unwrap();
    window.write_bytes(BarOffset::new(0x180_0000), &[0x42; 100]).unwrap();
    let mut bytes = [0; 100];
    hal.board().dram().read(HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [0x42; 100]);
    // Beyond the installed memory nothing answers.
    let beyond = BarOffset::new(0x7_0000_0000);
    assert_eq!(window.read(beyond, Width::W32).unwrap(), 0xffff_ffff);
    window.write(beyond, Width::W32, 0).unwrap();
    assert_eq!(window.read(beyond, Width::W32).unwrap(), 0xffff_ffff);
}

#[test]
fn an_unreachable_device_reads_as_ones() {
    let hal = open("fault=never-boots");
    let window = hal.window(BAR2).unwrap();
    assert_eq!(window.read(BarOffset::new(8), Width::W16).unwrap(), 0xffff);
    assert_eq!(window.load_acquire_u64(BarOffset::new(0x100)).unwrap(), u64::MAX);
    let mut bytes = [0; 32];
    window.read_bytes(BarOffset::new(0), &mut bytes).unwrap();
    assert_eq!(bytes, [0xff; 32]);
    window.write(BarOffset::new(0), Width::W32, 0).unwrap();
    assert_eq!(i16::from(discovery::mgmt_status(&window).unwrap()), -1);
}

#[test]
fn the_device_reaches_a_buffer_until_it_is_dropped() {
    let (hal, _, mailbox) = ready("");
    let mut buffer = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
    let bus = buffer.bus_addr();
    buffer.copy_in(0, &[0x99; 64]).unwrap();
    let copy = |bus: BusAddr, size| {
        let node = DmaWriteNode::new(bus, DeviceAddr::new(HOST_BASE), size);
        let mut out = [0; 64];
        let len = Command::DmaWriteList { nodes: &[node] }.encode(
            Tag::new(1),
            CommandFlags::EMPTY,
            &mut out,
        );
        send(&mailbox, &out[..len.unwrap()]);
        let Body::DmaWrite { status, .. } = receive(&mailbox).body else { panic!("no copy") };
        status
    };
    assert_eq!(copy(bus, 64), DmaStatus::Complete);
    assert_eq!(copy(bus, 4097), DmaStatus::ErrorAborted);
    let mut bytes = [0; 64];
    hal.board().dram().read(HOST_BASE, &mut bytes).unwrap();
    assert_eq!(bytes, [0x99; 64]);
    assert_eq!(hal.board().host_memory().mappings(), 1);
    drop(buffer);
    assert_eq!(hal.board().host_memory().mappings(), 0);
    assert_eq!(copy(bus, 64), DmaStatus::ErrorAborted);
    // The address is not given out again.
    let next = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
    assert_ne!(next.bus_addr(), bus);
}

fn kind_of_pop(mailbox: &SimMailbox, buffer: &mut [u8]) -> Option<ErrorKind> {
    mailbox.pop(buffer).err().map(|error| error.kind())
}

#[test]
fn lost_interrupts_do_not_become_a_hang() {
    let (hal, _, mailbox) = ready("fault=lost-interrupts:1");
    for tag in 0..20 {
        send(&mailbox, &echo(tag));
        assert_eq!(receive(&mailbox).tag, Tag::new(tag));
    }
    let lost = et_devapi::pci::Vector::OpsCompletion;
    assert_eq!(hal.board().interrupts().raised(lost), 0);
    // Without any message, a waiter for room gets its chance to look.
    let ticket = mailbox.ticket();
    assert_eq!(mailbox.wait(ticket, Duration::from_secs(3600)).unwrap(), Wake::Notified);
}

#[test]
fn a_corrupt_queue_is_a_protocol_error_for_good() {
    let (_hal, _, mailbox) = ready("fault=bad-index:1:9999");
    send(&mailbox, &echo(1));
    let mut buffer = [0; 512];
    until("the corruption", || kind_of_pop(&mailbox, &mut buffer) == Some(ErrorKind::Protocol));
    assert_eq!(kind(mailbox.pop(&mut buffer)), ErrorKind::Protocol);
}

#[test]
fn a_lost_link_is_seen_as_corruption_not_as_silence() {
    let (hal, _, mailbox) = ready("");
    let mut buffer = [0; 512];
    assert_eq!(mailbox.pop(&mut buffer).unwrap(), Pop::Empty);
    hal.board().inject(Fault::LinkLoss { after: 100 });
    until("the loss", || kind_of_pop(&mailbox, &mut buffer) == Some(ErrorKind::Protocol));
}
