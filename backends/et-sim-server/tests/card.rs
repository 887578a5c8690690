//! The card, seen by a client.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use et_devapi::pci::{DEVICE_ID, VENDOR_ID};
use et_sim_device::{Board, BoardConfig, ComputeKind};
use et_sim_server::{Card, CardOptions};
use et_vfio_user::{
    Access, Client, Device, Errno, HostMemory, IrqAction, IrqSet, NoHostMemory, Server, StopHandle,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const SOON: Duration = Duration::from_secs(30);
const CONFIG: u32 = 7;
const MSI: u32 = 1;
const ERROR: u32 = 3;
const REQUEST: u32 = 4;

/// A server in this process.
struct Rig {
    card: Arc<Card>,
    board: Arc<Board>,
    path: PathBuf,
    stop: StopHandle,
    server: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new(options: CardOptions) -> Self {
        let mut config = BoardConfig::default();
        config.dram_bytes = 256 << 20;
        config.compute = ComputeKind::Null;
        config.waits_for_host = true;
        let board = Board::power_on(config).unwrap();
        let card = Arc::new(Card::new(Arc::clone(&board), options));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card");
        let server = Server::bind(&path).unwrap();
        let stop = server.stop_handle();
        let device: Arc<dyn Device> = Arc::clone(&card) as _;
        let server = std::thread::spawn(move || server.run(&device).unwrap());
        Self { card, board, path, stop, server: Some(server), _folder: folder }
    }

    fn connect(&self, memory: impl HostMemory) -> Client {
        Client::connect(&self.path, Arc::new(memory), SOON).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.stop();
        self.server.take().unwrap().join().unwrap();
    }
}

fn read<const N: usize>(client: &Client, region: u32, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    client.read(region, at, &mut bytes).unwrap();
    bytes
}

fn management_status(client: &Client) -> u16 {
    u16::from_le_bytes(read(client, 2, 0x1000 + 44))
}

fn lines() -> Vec<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..4).map(|_| eventfd(0, flags).unwrap()).collect()
}

fn enable_msi(client: &Client) -> Vec<OwnedFd> {
    let lines = lines();
    let fds: Vec<_> = lines.iter().map(|line| Some(line.as_fd())).collect();
    client.set_irqs(MSI, 0, IrqAction::Trigger, IrqSet::Eventfds(&fds)).unwrap();
    lines
}

fn is_signalled(line: &OwnedFd, within: Duration) -> bool {
    let limit = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(line, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

/// Sets command register and MSIs as a driver does, and waits for the firmware.
fn boot(client: &Client) -> Vec<OwnedFd> {
    client.write(CONFIG, 4, &[0x06, 0x00]).unwrap();
    let lines = enable_msi(client);
    wait_for_boot(client);
    lines
}

fn wait_for_boot(client: &Client) {
    let deadline = std::time::Instant::now() + SOON;
    while management_status(client) != 12 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn it_is_the_card() {
    let rig = Rig::new(CardOptions::new());
    let client = rig.connect(NoHostMemory);
    let info = client.device_info().unwrap();
    assert!(info.pci && info.resettable);
    assert_eq!((info.regions, info.irqs), (9, 5));
    assert_eq!(u16::from_le_bytes(read(&client, CONFIG, 0)), VENDOR_ID);
    assert_eq!(u16::from_le_bytes(read(&client, CONFIG, 2)), DEVICE_ID);
    assert_eq!(client.irq_info(MSI).unwrap().count, 4);
    assert_eq!(client.irq_info(0).unwrap().count, 0, "no INTx");
    let bar0 = client.region_info(0).unwrap();
    assert_eq!(bar0.size, 32 << 30);
    assert_eq!(bar0.areas[0].len, (256 << 20) - 0x0400_1000);
    let bar2 = client.region_info(2).unwrap();
    assert_eq!((bar2.size, bar2.areas[0].len), (0x4000, 0x2000), "doorbells are not mapped");
    assert_eq!(client.region_info(1).unwrap().size, 0);
}

#[test]
fn bars_open_when_memory_space_and_msis_are_enabled() {
    let rig = Rig::new(CardOptions::new().trap(true));
    let client = rig.connect(NoHostMemory);
    assert!(client.region_info(2).unwrap().areas.is_empty());
    let closed = || management_status(&client) == 0xffff;
    assert!(closed());
    client.write(CONFIG, 4, &[0x06, 0x00]).unwrap();
    assert!(closed(), "no MSIs");
    let _lines = boot(&client);
    client.write(0, 0x10_0000, &[1, 2, 3]).unwrap();
    assert_eq!(read::<4>(&client, 0, 0x10_0000), [1, 2, 3, 0]);
    assert_eq!(read::<4>(&client, 0, (256 << 20) - 0x0400_1000), [0xff; 4], "not translated");
    assert_eq!(read::<4>(&client, 2, 0x2000), [0xff; 4], "doorbells cannot be read");
    client.write(CONFIG, 4, &[0x00, 0x00]).unwrap();
    assert!(closed(), "memory space disabled");
}

#[test]
fn a_function_level_reset_boots_again_and_needs_the_host_again() {
    let rig = Rig::new(CardOptions::new().trap(true));
    let client = rig.connect(NoHostMemory);
    let _lines = boot(&client);
    let before = rig.board.generation();
    // Bit 15 of device control, in the PCI Express capability at 0x70.
    client.write(CONFIG, 0x78, &[0x10, 0x80]).unwrap();
    assert!(rig.board.generation() > before);
    assert_eq!(read::<2>(&client, CONFIG, 4), [0, 0], "as after power-on");
    assert_eq!(management_status(&client), 0xffff);
    let _lines = boot(&client);
    // By message: configuration space stays as it is, as with a kernel in between.
    let before = rig.board.generation();
    client.reset(SOON).unwrap();
    assert!(rig.board.generation() > before);
    assert_eq!(read::<2>(&client, CONFIG, 4), [6, 0]);
    let _lines = boot(&client);
}

#[test]
fn the_wiring_can_be_tested_without_the_firmware() {
    let rig = Rig::new(CardOptions::new());
    let client = rig.connect(NoHostMemory);
    let lines = enable_msi(&client);
    client.set_irqs(MSI, 2, IrqAction::Trigger, IrqSet::All(1)).unwrap();
    assert!(is_signalled(&lines[2], SOON));
    for other in [0, 1, 3] {
        assert!(!is_signalled(&lines[other], Duration::ZERO));
    }
    let line = lines.into_iter().next().unwrap();
    assert!(!rig.card.request_removal(), "no client has asked");
    client.set_irqs(4, 0, IrqAction::Trigger, IrqSet::Eventfds(&[Some(line.as_fd())])).unwrap();
    assert!(rig.card.request_removal());
    assert!(is_signalled(&line, SOON));
}

/// One page at bus address 0x5000.
struct Page(Arc<Mutex<Vec<u8>>>);

impl HostMemory for Page {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let page = self.0.lock().unwrap();
        let at = usize::try_from(address.checked_sub(0x5000).ok_or(Errno::FAULT)?).unwrap();
        into.copy_from_slice(page.get(at..at + into.len()).ok_or(Errno::FAULT)?);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let mut page = self.0.lock().unwrap();
        let at = usize::try_from(address.checked_sub(0x5000).ok_or(Errno::FAULT)?).unwrap();
        page.get_mut(at..at + from.len()).ok_or(Errno::FAULT)?.copy_from_slice(from);
        Ok(())
    }
}

#[test]
fn windows_are_mapped_and_gone_with_the_client() {
    let rig = Rig::new(CardOptions::new());
    let page = Arc::new(Mutex::new(vec![0; 4096]));
    let client = rig.connect(Page(Arc::clone(&page)));
    client.dma_map(0x5000, 0x1000, Access::READ_WRITE, None).unwrap();
    let file = rustix::fs::memfd_create("window", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 0x4000).unwrap();
    client.dma_map(0x10_0000, 0x2000, Access::READ, Some((file.as_fd(), 0x1000))).unwrap();
    assert_eq!(rig.board.host_memory().mappings(), 2);
    client.dma_unmap(0x10_0000, 0x2000).unwrap();
    assert_eq!(rig.board.host_memory().mappings(), 1);
    drop(client);
    assert!(rig.card.wait_until_free(SOON));
    assert_eq!(rig.board.host_memory().mappings(), 0);
    // The next one finds a card as after power-on.
    let client = rig.connect(NoHostMemory);
    assert_eq!(read::<2>(&client, CONFIG, 4), [0, 0]);
    let _lines = boot(&client);
}

/// An event as a hostile client connects it: writers block, since it is full.
fn full_line() -> OwnedFd {
    let line = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&line, &(u64::MAX - 1).to_le_bytes()).unwrap();
    line
}

#[test]
fn events_that_are_full_and_block_stop_neither_firmware_nor_server() {
    let rig = Rig::new(CardOptions::new());
    let client = rig.connect(NoHostMemory);
    let lines: Vec<_> = (0..4).map(|_| full_line()).collect();
    let fds: Vec<_> = lines.iter().map(|line| Some(line.as_fd())).collect();
    for (kind, count) in [(MSI, 4), (ERROR, 1), (REQUEST, 1)] {
        let set = IrqSet::Eventfds(&fds[..count]);
        client.set_irqs(kind, 0, IrqAction::Trigger, set).unwrap();
        let all = u32::try_from(count).unwrap();
        client.set_irqs(kind, 0, IrqAction::Trigger, IrqSet::All(all)).unwrap();
        client.set_irqs(kind, 0, IrqAction::Trigger, IrqSet::Bool(&vec![true; count])).unwrap();
    }
    assert!(rig.card.report_bus_error() && rig.card.request_removal());
    // The firmware raises vectors while it boots and after.
    client.write(CONFIG, 4, &[0x06, 0x00]).unwrap();
    wait_for_boot(&client);
    drop(client);
    // The events are still full, and still there.
    let next = rig.connect(NoHostMemory);
    boot(&next);
    drop(lines);
}

#[test]
fn doorbells_that_block_readers_do_not_stop_the_firmware() {
    let rig = Rig::new(CardOptions::new());
    let client = rig.connect(NoHostMemory);
    let bells = client.io_fds(2).unwrap();
    assert_eq!(bells.len(), 2);
    for bell in &bells {
        // The flag belongs to the open file, and so to the firmware as well.
        rustix::fs::fcntl_setfl(&bell.fd, rustix::fs::OFlags::empty()).unwrap();
    }
    boot(&client);
    drop(client);
    boot(&rig.connect(NoHostMemory));
}
