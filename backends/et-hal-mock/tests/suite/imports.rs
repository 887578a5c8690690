//! What becomes of memory that is lent, where the simulator cannot be made to fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use et_devapi::msg::ops::Command;
use et_hal::{DeviceAccess, ErrorKind, LossReason, Resource};
use et_hal_mock::{MockHal, MockMailbox, VecDma, presets};
use et_runtime::memory::{Bounce, Pages};
use et_runtime::{Config, Device, Error, Remains};

const LONG: Duration = Duration::from_secs(20);
const PAGE: usize = 4096;

fn open(dma: &VecDma, mailbox: MockMailbox) -> Device<MockHal> {
    let hal = MockHal::new(presets::booted_registers(), mailbox).with_dma(dma.clone());
    Device::open_with(hal, Config::new().shutdown_timeout(Duration::ZERO)).unwrap()
}

fn healthy() -> MockMailbox {
    presets::answering_mailbox(presets::success)
}

#[test]
fn memory_is_lent_without_a_buffer_where_that_is_possible() {
    let dma = VecDma::limited(0).importing(Ok(()));
    let device = open(&dma, healthy());
    let mut pages = Pages::zeroed(PAGE + 1, PAGE).unwrap();
    assert_eq!(pages.len(), 2 * PAGE, "whole pages");
    pages.fill(7);
    let address = pages.as_ptr();
    let mut lent = device.import_mut(pages, DeviceAccess::ReadWrite).unwrap();
    assert!(lent.is_zero_copy());
    assert_eq!((lent.len_bytes(), lent.bounce()), (2 * PAGE, None));
    assert!(lent.memory().is_none(), "its owner decides how long it lives");
    lent.copy_in(5, &[1u8, 2]).unwrap();
    let mut seen = [0u8; 4];
    lent.copy_out(4, &mut seen).unwrap();
    assert_eq!(seen, [7, 1, 2, 7]);
    let lent = lent.into_owner::<Vec<u8>>().unwrap_err();
    let pages: Pages = lent.into_owner().unwrap();
    assert_eq!(pages.as_ptr(), address);
    assert_eq!(&pages[4..8], [7, 1, 2, 7]);
    assert_eq!(dma.live_buffers(), 0);
}

#[test]
fn memory_that_is_refused_is_copied_and_says_why() {
    let locked = ErrorKind::Exhausted(Resource::HostMemory);
    for (dma, why) in [
        (VecDma::default(), Bounce::Unsupported),
        (VecDma::default().importing(Err(locked)), Bounce::Refused(locked)),
        (
            VecDma::default().importing(Err(ErrorKind::Permission)),
            Bounce::Refused(ErrorKind::Permission),
        ),
    ] {
        let device = open(&dma, healthy());
        let mut pages = Pages::zeroed(PAGE, PAGE).unwrap();
        pages.fill(9);
        let mut lent = device.import_mut(pages, DeviceAccess::Write).unwrap();
        assert_eq!(lent.bounce(), Some(why));
        assert!(!lent.is_zero_copy());
        assert_eq!(dma.live_buffers(), 1, "{why}");
        lent.fill(3, 2, 1).unwrap();
        let pages: Pages = lent.into_owner().unwrap();
        assert_eq!(&pages[..6], [9, 9, 9, 1, 1, 9], "what was not written is as it was");
        assert_eq!(dma.live_buffers(), 0, "{why}");
    }
}

/// A device that cannot be used gets nothing, not even by a copy.
#[test]
fn the_owner_comes_back_with_the_error() {
    let lost = ErrorKind::Lost(LossReason::Removed);
    for kind in [lost, ErrorKind::Stale, ErrorKind::Other] {
        let dma = VecDma::default().importing(Err(kind));
        let device = open(&dma, healthy());
        let pages = Pages::zeroed(PAGE, PAGE).unwrap();
        let failed = device.import_mut(pages, DeviceAccess::Read).unwrap_err();
        assert_eq!(failed.error.kind(), kind, "{}", failed.error);
        assert_eq!(failed.owner.len(), PAGE);
        assert_eq!(dma.live_buffers(), 0);
    }
    let dma = VecDma::limited(0);
    let device = open(&dma, healthy());
    let failed = device.import(vec![1u16; 3]).unwrap_err();
    assert!(matches!(failed.error.kind(), ErrorKind::Exhausted(_)), "{}", failed.error);
    assert_eq!(failed.owner, [1; 3]);
}

#[test]
fn what_others_may_read_is_never_written() {
    for dma in [VecDma::default(), VecDma::default().importing(Ok(()))] {
        let device = open(&dma, healthy());
        let buffer = device.alloc(8).unwrap();
        let shared: Arc<[u16]> = Arc::new([1, 2, 3, 4]);
        let mut lent = device.import(Arc::clone(&shared)).unwrap();
        assert_eq!(lent.len_bytes(), 8);
        let outcome = lent.fill(0, 8, 0);
        assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outcome:?}");
        let outcome = device.default_stream().download(&buffer, lent);
        assert!(matches!(outcome, Err(Error::Access { .. })), "{outcome:?}");
        assert_eq!(*shared, [1, 2, 3, 4]);
        assert_eq!(Arc::strong_count(&shared), 1, "it went with the refused call");
    }
}

/// A device that does not answer may still read the memory.
#[test]
fn the_owner_stays_while_the_device_may_use_its_memory() {
    let mailbox = presets::answering_mailbox(|header, command| match command {
        Command::DmaWriteList { .. } => Vec::new(),
        _ => presets::success(header, command),
    });
    let dma = VecDma::default();
    let device = open(&dma, mailbox);
    let buffer = device.alloc(64).unwrap();
    let shared: Arc<[u8]> = Arc::new([5; 64]);
    let lent = device.import(Arc::clone(&shared)).unwrap();
    let transfer = device.default_stream().upload(lent, &buffer).unwrap();
    let late = transfer.wait(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(late.error, Error::Timeout { .. }), "{}", late.error);
    let Remains::Transfer(transfer) = late.remains else { panic!("{:?}", late.remains) };
    drop(transfer);
    assert_eq!(Arc::strong_count(&shared), 2, "the command has it");
    let event = device.default_stream().barrier().unwrap();
    drop(device);
    assert!(event.wait(LONG).is_err());
    // Until all that could use the device is gone.
    drop((event, buffer));
    assert_eq!(Arc::strong_count(&shared), 1);
}
