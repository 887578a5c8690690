//! Memory of the caller, which has no descriptor: the card asks for it by message.

#![expect(unsafe_code, reason = "memory that the device changes is no Rust value")]

use std::alloc::{Layout as Shape, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use et::hal::{
    BusAddr, DeviceAccess, DeviceAddr, Dma, Error, ErrorKind, Hal, Mailbox, Pop, Push, QueueId,
};
use et::vfio::{VfioError, VfioHal, VfioMailbox, VfioOptions};
use et_devapi::dir::BarSizes;
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{
    Body, Command, Completion, DmaReadNode, DmaStatus, DmaWriteNode, MAX_COMMAND_BYTES,
};
use et_devapi::msg::{CommandFlags, Tag};
use et_sim_server::CardOptions;

use super::rig::{Rig, Twist, chain, without_cores};
use super::{MAILBOX_BAR, work};
use crate::common::LONG;

const PAGE: usize = 4096;

/// Whole pages without references to them.
struct Pages {
    base: NonNull<u8>,
    shape: Shape,
}

impl Pages {
    fn new(pages: usize) -> Self {
        let shape = Shape::from_size_align(pages * PAGE, PAGE).unwrap();
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(shape) };
        Self { base: NonNull::new(base).unwrap(), shape }
    }

    fn len(&self) -> usize {
        self.shape.size()
    }

    fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len());
        // SAFETY: checked; the device has no command that concerns the memory.
        unsafe { self.base.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        // SAFETY: as above.
        unsafe { self.base.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this shape.
        unsafe { dealloc(self.base.as_ptr(), self.shape) };
    }
}

/// The card without a runtime.
struct Driver {
    mailbox: VfioMailbox,
    layout: Layout,
    hal: VfioHal,
}

impl Driver {
    fn new(rig: &Rig) -> Self {
        let hal = VfioHal::connect(rig.path(), &VfioOptions::new()).unwrap();
        let bar2 = hal.window(MAILBOX_BAR).unwrap();
        let deadline = Instant::now() + LONG;
        while i16::from(discovery::mgmt_status(&bar2).unwrap()) != 12
            || i16::from(discovery::ops_status(&bar2).unwrap()) != 8
        {
            assert!(Instant::now() < deadline, "no boot");
            std::thread::yield_now();
        }
        let bars = BarSizes::ET_SOC_1;
        let (mgmt, ops) = (discovery::read_mgmt(&bar2, &bars), discovery::read_ops(&bar2, &bars));
        let layout = Layout::new(mgmt.unwrap(), ops.unwrap()).unwrap();
        let mailbox = hal.open_mailbox(&layout.ops_mailbox).unwrap();
        Self { mailbox, layout, hal }
    }

    /// An odd place in device memory.
    fn place(&self) -> DeviceAddr {
        self.layout.host_managed.base.checked_add(0x1_0003).unwrap()
    }

    fn import(&self, pages: &Pages, access: DeviceAccess) -> Result<et::vfio::Imported, VfioError> {
        // SAFETY: every test keeps the pages until it has dropped the import, and nothing refers to
        // them.
        unsafe { self.hal.dma().import(pages.base, pages.len(), access) }
    }

    fn call(&self, message: &[u8]) -> DmaStatus {
        assert_eq!(self.mailbox.push(QueueId::Submission(0), message).unwrap(), Push::Accepted);
        self.mailbox.kick().unwrap();
        let mut bytes = [0; 512];
        let deadline = Instant::now() + LONG;
        loop {
            let ticket = self.mailbox.ticket();
            if let Pop::Message(len) = self.mailbox.pop(&mut bytes).unwrap() {
                match Completion::parse(&bytes[..len]).unwrap() {
                    Completion { body: Body::DmaRead { status, .. }, .. }
                    | Completion { body: Body::DmaWrite { status, .. }, .. } => {
                        return status;
                    }
                    other => panic!("{other:?}"),
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no answer");
            let _ = self.mailbox.wait(ticket, left).unwrap();
        }
    }

    fn to_device(&self, from: u64, to: DeviceAddr, len: usize) -> DmaStatus {
        let node = DmaWriteNode::new(BusAddr::new(from), to, u32::try_from(len).unwrap());
        let mut out = [0; MAX_COMMAND_BYTES];
        let len = Command::DmaWriteList { nodes: &[node] }
            .encode(Tag::new(1), CommandFlags::EMPTY, &mut out)
            .unwrap();
        self.call(&out[..len])
    }

    fn to_host(&self, from: DeviceAddr, to: u64, len: usize) -> DmaStatus {
        let node = DmaReadNode::new(BusAddr::new(to), from, u32::try_from(len).unwrap());
        let mut out = [0; MAX_COMMAND_BYTES];
        let len = Command::DmaReadList { nodes: &[node] }
            .encode(Tag::new(2), CommandFlags::EMPTY, &mut out)
            .unwrap();
        self.call(&out[..len])
    }
}

#[test]
fn imported_memory_is_copied_byte_by_byte_and_no_byte_more() {
    for options in [CardOptions::new(), CardOptions::new().trap(true)] {
        let rig = Rig::with(without_cores(), options, Twist::default());
        let driver = Driver::new(&rig);
        // More than one message takes, too.
        for (pages, start, len) in
            [(1, 0, 1), (1, 4095, 1), (2, 4090, 13), (3, 1, 12_286), (1025, 7, (4 << 20) + 3)]
        {
            let source = Pages::new(pages);
            let data = work::pattern(source.len());
            source.write(&data);
            let target = Pages::new(pages);
            target.write(&vec![0xee; target.len()]);
            let before = rig.twist.by_message.load(Ordering::Relaxed);
            let from = driver.import(&source, DeviceAccess::Read).unwrap();
            let to = driver.import(&target, DeviceAccess::Write).unwrap();
            assert_eq!(rig.twist.by_message.load(Ordering::Relaxed), before + 2);
            let at = from.bus_addr().as_u64() + start as u64;
            assert_eq!(driver.to_device(at, driver.place(), len), DmaStatus::Complete);
            let at = to.bus_addr().as_u64() + start as u64;
            assert_eq!(driver.to_host(driver.place(), at, len), DmaStatus::Complete);
            let mapped = rig.board.host_memory().mappings();
            drop((from, to));
            assert_eq!(rig.board.host_memory().mappings(), mapped - 2);
            let mut expected = vec![0xee; target.len()];
            expected[start..start + len].copy_from_slice(&data[start..start + len]);
            assert!(target.read() == expected, "{len} bytes from {start}");
            assert!(source.read() == data, "the source");
        }
        drop(driver);
        rig.check_left();
    }
}

#[test]
fn imported_memory_is_out_of_reach_beyond_its_ends_its_access_and_its_time() {
    let rig = Rig::new(without_cores());
    let driver = Driver::new(&rig);
    let pages = Pages::new(2);
    let data = work::pattern(pages.len());
    pages.write(&data);
    let place = driver.place();
    let is_refused = |status: DmaStatus| status != DmaStatus::Complete;

    let import = driver.import(&pages, DeviceAccess::Read).unwrap();
    let bus = import.bus_addr().as_u64();
    assert_eq!(import.len_bytes(), pages.len() as u64);
    assert!(is_refused(driver.to_host(place, bus, 64)), "written, though it is for reading");
    assert!(is_refused(driver.to_device(bus + 8190, place, 3)), "read beyond the end");
    assert_eq!(driver.to_device(bus + 8190, place, 2), DmaStatus::Complete);
    drop(import);
    assert!(is_refused(driver.to_device(bus, place, 1)), "read after the end");

    let import = driver.import(&pages, DeviceAccess::Write).unwrap();
    let bus = import.bus_addr().as_u64();
    assert!(is_refused(driver.to_device(bus, place, 64)), "read, though it is for writing");
    drop(import);
    assert!(is_refused(driver.to_host(place, bus, 64)), "written after the end");
    assert!(pages.read() == data);
    drop(driver);
    rig.check_left();
}

/// The card reaches such memory through a pointer of this process, as long as there is a window.
#[test]
fn an_import_dropped_during_close_is_out_of_reach_when_the_drop_returns() {
    let rig = Rig::twisted(Twist::default());
    let hal = VfioHal::connect(rig.path(), &VfioOptions::new()).unwrap();
    // It has the lower address, so the close begins with it.
    let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Read).unwrap();
    let pages = Pages::new(1);
    // SAFETY: the pages outlive the import, and nothing refers to them.
    let import = unsafe { hal.dma().import(pages.base, PAGE, DeviceAccess::Write) }.unwrap();
    let at = import.bus_addr().as_u64();
    let bus = rig.twist.bus.lock().unwrap().clone().unwrap();
    bus.write(at, &[1; 16], LONG).unwrap();
    assert_eq!(pages.read()[..17], [[1; 16].as_slice(), &[0]].concat());

    let ((begun, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    *rig.twist.hold.lock().unwrap() = Some((begun, may_go_on));
    let closing = std::thread::spawn(move || hal.close());
    has_begun.recv_timeout(LONG).unwrap();
    let dropping = std::thread::spawn(move || drop(import));
    let deadline = Instant::now() + LONG;
    while bus.write(at, &[2; 16], LONG).is_ok() {
        assert!(Instant::now() < deadline, "the window stays although its import is dropped");
    }
    go_on.send(()).unwrap();
    dropping.join().unwrap();
    // Now the memory is its owner's alone.
    pages.write(&[0; PAGE]);
    bus.write(at, &[3; 16], LONG).unwrap_err();
    assert_eq!(pages.read(), [0; PAGE]);
    closing.join().unwrap().unwrap_err();
    drop(buffer);
}

#[test]
fn what_is_not_whole_pages_is_not_imported() {
    let rig = Rig::new(without_cores());
    let driver = Driver::new(&rig);
    let pages = Pages::new(2);
    let mapped = rig.board.host_memory().mappings();
    let import = |offset: usize, len| {
        // SAFETY: inside the pages.
        let address = unsafe { pages.base.add(offset) };
        // SAFETY: as in `Driver::import`; nothing is mapped.
        unsafe { driver.hal.dma().import(address, len, DeviceAccess::Read) }.map(drop).unwrap_err()
    };
    for (offset, len) in [(1, PAGE), (0, PAGE - 1), (8, 8)] {
        let error = import(offset, len);
        assert_eq!(error.kind(), ErrorKind::Misaligned);
        assert!(chain(&error).contains("copy it into a buffer instead"), "{error}");
    }
    assert_eq!(import(0, 0).kind(), ErrorKind::TooLarge);
    assert_eq!(rig.board.host_memory().mappings(), mapped);
    // A client that forgets an import leaves nothing on the card.
    std::mem::forget(driver.import(&pages, DeviceAccess::Read).unwrap());
    drop(driver);
    // The import still holds the connection, but the device has let go of the memory.
    assert_eq!(rig.board.host_memory().mappings(), 0);
}
