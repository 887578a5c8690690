//! A device that the program has opened by other means.

use std::sync::Arc;

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{DeviceAccess, Dma, DmaBuffer, ErrorKind, Hal, Reset, ResetScope, Resource};

use super::{address, finish, kernel, kind, open, options, reset};
use crate::sys::fake::{Fake, Node};
use crate::sys::{Fd, Sys};
use crate::transport::{DmaRequest, Transport, open as open_transport};
use crate::{VfioError, VfioHal};

/// Where this backend maps; the program maps below.
const OURS: (u64, u64) = (0x4000_0000, 0x7fff_ffff);
const THEIRS: u64 = 0x10_0000;

/// The program's own connection.
fn program(fake: &Arc<Fake>) -> Arc<dyn Transport> {
    let sys: Arc<dyn Sys> = Arc::clone(fake) as _;
    let program = open_transport(&sys, &address("group"), &options()).unwrap();
    let access = DeviceAccess::ReadWrite;
    let request = DmaRequest { iova: THEIRS, len: 0x1000, access, address: 0x1000, file: None };
    program.map_dma(&request).unwrap();
    program
}

fn fd_of(fake: &Fake, wanted: Node) -> Fd {
    fake.with(|state| {
        let found = state.fds.iter().find(|(_, node)| **node == wanted);
        *found.unwrap().0
    })
}

fn take_over(fake: &Arc<Fake>, keep: &Arc<()>, window: (u64, u64)) -> Result<VfioHal, VfioError> {
    let fds = (fd_of(fake, Node::Device), fd_of(fake, Node::Container));
    let (sys, bdf) = (Arc::clone(fake) as _, address("group").bdf);
    VfioHal::lent(sys, bdf, fds, window, Box::new(Arc::clone(keep)), &options())
}

#[test]
fn a_program_and_the_backend_share_device_and_domain() {
    let fake = kernel("group");
    let program = program(&fake);
    let before = fake.with(|state| state.fds.clone());
    let keep = Arc::new(());
    let hal = take_over(&fake, &keep, OURS).unwrap();
    assert_eq!(Arc::strong_count(&keep), 2);
    let window = hal.window(MAILBOX_BAR).unwrap();
    for len in [100, 3 << 20] {
        let buffer = hal.dma().alloc(len, DeviceAccess::Read).unwrap();
        let bus = buffer.bus_addr().as_u64();
        assert!((OURS.0..OURS.1).contains(&bus), "{bus:#x}");
    }
    reset(&hal, ResetScope::Function).unwrap();
    drop(window);
    hal.close().unwrap();
    // All is as the program had it, bus mastering excepted.
    assert_eq!(Arc::strong_count(&keep), 1);
    assert_eq!(fake.with(|state| state.fds.clone()), before);
    let pins: Vec<u64> = fake.with(|state| state.iommu.pins.keys().copied().collect());
    assert_eq!(pins, [THEIRS]);
    program.unmap_dma(THEIRS, 0x1000).unwrap();
    drop(program);
    fake.assert_clean("after the program");
}

#[test]
fn the_backend_keeps_to_its_addresses() {
    let fake = kernel("group");
    let _program = program(&fake);
    let hal = take_over(&fake, &Arc::new(()), (OURS.0, OURS.0 + 0x3f_ffff)).unwrap();
    let error = hal.dma().alloc(8 << 20, DeviceAccess::Read).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Exhausted(Resource::BusAddresses));
}

#[test]
fn one_backend_at_a_time_and_no_reset_of_others() {
    let fake = kernel("group");
    let _program = program(&fake);
    let keep = Arc::new(());
    let hal = take_over(&fake, &keep, OURS).unwrap();
    assert_eq!(kind(&take_over(&fake, &keep, OURS).unwrap_err()), ErrorKind::Busy);
    assert_eq!(kind(&open(&fake, "group").unwrap_err()), ErrorKind::Busy);
    fake.with(|state| state.card.slot_owned = false);
    let mut reset = hal.reset().unwrap();
    reset.begin(ResetScope::Slot).unwrap();
    assert_eq!(kind(&finish(&mut reset).unwrap_err()), ErrorKind::Permission);
}

#[test]
fn a_failing_take_over_leaves_the_program_as_it_was() {
    let fake = kernel("group");
    let _program = program(&fake);
    let keep = Arc::new(());
    let before = fake.with(|state| state.fds.clone());
    let start = fake.calls();
    for index in 0..6 {
        fake.with(|state| state.fail = Some((state.log.len() + index, rustix::io::Errno::NOMEM)));
        assert!(take_over(&fake, &keep, OURS).is_err());
        assert_eq!(Arc::strong_count(&keep), 1);
        fake.with(|state| assert_eq!(state.fds, before));
    }
    assert!(fake.calls() > start);
    fake.with(|state| state.fail = None);
    take_over(&fake, &keep, OURS).unwrap().close().unwrap();
}
