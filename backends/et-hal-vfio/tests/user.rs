//! Servers of simulated cards that mean no good.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    AccessPath, BarOffset, Error, ErrorKind, Hal, Mmio, Reset, ResetScope, ResetState, Width,
};
use et_hal_vfio::{UserAddress, VfioHal, VfioOptions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use support::{BELL, Bare, MAPPED, Rig, range};

const LONG: Duration = Duration::from_secs(20);

fn file(len: u64, seals: SealFlags) -> Arc<OwnedFd> {
    let fd = memfd_create("bar2", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    Arc::new(fd)
}

/// A file that becomes shorter takes the process that has it mapped down.
#[test]
fn bars_are_mapped_only_if_their_file_keeps_its_length() {
    let cases = [
        (file(MAPPED.len, SealFlags::SHRINK), AccessPath::Direct),
        (file(MAPPED.len, SealFlags::SHRINK | SealFlags::GROW), AccessPath::Direct),
        (file(MAPPED.len, SealFlags::empty()), AccessPath::Trapped),
        (file(MAPPED.len, SealFlags::GROW), AccessPath::Trapped),
        // Nothing can be cut off what is not there.
        (file(MAPPED.len - 1, SealFlags::SHRINK), AccessPath::Trapped),
        // Cannot be mapped for writing.
        (file(MAPPED.len, SealFlags::SHRINK | SealFlags::WRITE), AccessPath::Trapped),
        (Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()), AccessPath::Trapped),
    ];
    for (index, (file, path)) in cases.into_iter().enumerate() {
        let rig = Rig::new(Bare { file: Some(Arc::clone(&file)), ..Bare::new() });
        let hal = rig.connect();
        let window = hal.window(MAILBOX_BAR).unwrap();
        assert_eq!(window.path(BarOffset::new(0), MAPPED.len), path, "case {index}");
        window.write(BarOffset::new(0x100), Width::W32, 7).unwrap();
        assert_eq!(window.read(BarOffset::new(0x100), Width::W32).unwrap(), 7);
        // Whatever the server tries.
        let cut = ftruncate(&file, 0);
        assert_eq!(cut.is_ok(), path == AccessPath::Trapped && (2..4).contains(&index));
        assert_eq!(window.read(BarOffset::new(0x100), Width::W32).unwrap(), 7);
        let by_message = rig.device.mailbox.lock().unwrap()[0x100] == 7;
        assert_eq!(by_message, path == AccessPath::Trapped, "case {index}");
    }
}

#[test]
fn a_doorbell_that_is_full_and_blocks_does_not_stop_who_rings() {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    rustix::io::write(&bell, &(u64::MAX - 1).to_le_bytes()).unwrap();
    let rig = Rig::new(Bare { bell: Some(Arc::clone(&bell)), ..Bare::new() });
    let hal = rig.connect();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let (rung, has_rung) = mpsc::channel();
    std::thread::spawn(move || {
        rung.send(window.write(BarOffset::new(BELL), Width::W32, 1).is_ok()).unwrap();
    });
    assert_eq!(has_rung.recv_timeout(LONG), Ok(true));
}

#[test]
fn what_is_no_eventfd_is_no_doorbell() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let rig = Rig::new(Bare { bell: Some(Arc::new(writer.into())), ..Bare::new() });
    let hal = rig.connect();
    let window = hal.window(MAILBOX_BAR).unwrap();
    window.write(BarOffset::new(BELL), Width::W32, 1).unwrap();
    // A read comes after the write that was not waited for.
    let _ = window.read(BarOffset::new(0), Width::W32).unwrap();
    assert_eq!(
        rig.device.mailbox.lock().unwrap()[range(BELL, 4)],
        [1, 0, 0, 0],
        "it went by message"
    );
}

/// A server that accepts and says nothing.
#[test]
fn answers_are_waited_for_as_long_as_the_caller_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (begin, short) = (Instant::now(), Duration::from_millis(30));
    let error = VfioHal::connect(&path, &VfioOptions::new().answer_timeout(short)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    // What the address says counts more.
    let mut address = UserAddress::new(&path);
    address.answer_timeout = Some(short);
    let error = VfioHal::connect(address, &VfioOptions::new().answer_timeout(LONG)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(begin.elapsed() < LONG);
}

#[test]
fn resets_are_waited_for_as_long_as_the_caller_says() {
    let (end, ended) = mpsc::channel();
    let device = Bare::new();
    *device.reset.lock().unwrap() = Some(ended);
    let rig = Rig::new(device);
    let mut address = UserAddress::from(&rig.path);
    address.reset_timeout = Some(Duration::from_millis(30));
    let hal = VfioHal::connect(address, &VfioOptions::new()).unwrap();
    let begin = Instant::now();
    let mut reset = hal.reset().unwrap();
    reset.begin(ResetScope::Function).unwrap();
    let error = loop {
        match reset.poll() {
            Ok(ResetState::InProgress) => std::thread::yield_now(),
            Ok(state) => panic!("{state:?}"),
            Err(error) => break error,
        }
    };
    assert!(begin.elapsed() < LONG, "{error}");
    end.send(()).unwrap();
}
