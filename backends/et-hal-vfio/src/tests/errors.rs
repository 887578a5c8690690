//! Each row of the kernel's error numbers: kind, and what the message advises.

use std::error::Error as _;

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{
    BarOffset, DeviceAccess, Dma, ErrorKind, Hal, LossReason, Mmio, ResetScope, Resource, Width,
};
use rustix::io::Errno;

use super::{kernel, kind, open};
use crate::sys::Request;
use crate::sys::fake::GROUP;
use crate::{Bdf, VfioAddress, VfioError, VfioHal};

const UNSUPPORTED: ErrorKind = ErrorKind::Unsupported;
const PERMISSION: ErrorKind = ErrorKind::Permission;
const BUSY: ErrorKind = ErrorKind::Busy;

fn assert_error(error: &VfioError, expected: ErrorKind, advice: &str, what: &str) {
    assert_eq!(kind(error), expected, "{what}: {error}");
    assert!(error.to_string().contains(advice), "{what}: {error}");
}

#[test]
fn nodes_that_cannot_be_opened() {
    let group = format!("/dev/vfio/{GROUP}");
    let bare = format!("/dev/vfio/noiommu-{GROUP}");
    let device = "/dev/vfio/devices/vfio3";
    let container = "/dev/vfio/vfio";
    let iommu = "/dev/iommu";
    let rows = [
        ("group", container, Errno::NOENT, UNSUPPORTED, "load vfio-pci"),
        ("group", container, Errno::NODEV, UNSUPPORTED, "IOMMU"),
        ("cdev", device, Errno::NOENT, UNSUPPORTED, "load vfio-pci"),
        ("cdev", iommu, Errno::NODEV, UNSUPPORTED, "IOMMU"),
        ("group", &group, Errno::NOENT, UNSUPPORTED, "bind the device to vfio-pci"),
        ("group", &group, Errno::PERM, PERMISSION, "udev"),
        ("group", &group, Errno::ACCESS, PERMISSION, "udev"),
        ("cdev", device, Errno::ACCESS, PERMISSION, "udev"),
        ("cdev", iommu, Errno::ACCESS, PERMISSION, "udev"),
        ("noiommu", &bare, Errno::PERM, PERMISSION, "CAP_SYS_RAWIO"),
        ("noiommu", &bare, Errno::NOENT, UNSUPPORTED, "enable_unsafe_noiommu_mode"),
        ("group", &group, Errno::BUSY, BUSY, "in use"),
        ("cdev", device, Errno::BUSY, BUSY, "in use"),
        ("group", container, Errno::MFILE, ErrorKind::Exhausted(Resource::Handles), "ulimit -n"),
    ];
    for (mode, path, errno, expected, advice) in rows {
        let fake = kernel(mode);
        fake.with(|state| state.refuse_open.insert(path.into(), errno));
        let error = open(&fake, mode).unwrap_err();
        assert_error(&error, expected, advice, &format!("{path} {errno}"));
        if !matches!(error, VfioError::Busy { .. }) {
            assert!(error.to_string().contains(path), "{error}");
            assert_eq!(error.source().unwrap().to_string(), errno.to_string());
        }
        fake.assert_clean(path);
    }
}

#[test]
fn requests_of_opening_that_fail() {
    let rows = [
        ("cdev", Request::BindIommufd, Errno::BUSY, BUSY, "in use"),
        ("cdev", Request::BindIommufd, Errno::INVAL, UNSUPPORTED, "mode=group"),
        ("cdev", Request::AttachPageTable, Errno::NODEV, UNSUPPORTED, "mode=group"),
        ("group", Request::SetContainer, Errno::INVAL, BUSY, "in use"),
        ("group", Request::SetContainer, Errno::BUSY, BUSY, "in use"),
        ("group", Request::SetIommu, Errno::NODEV, UNSUPPORTED, "vfio_iommu_type1"),
        ("group", Request::SetIommu, Errno::PERM, PERMISSION, "interrupt remapping"),
        ("group", Request::DeviceFd, Errno::NODEV, UNSUPPORTED, "check the address"),
        ("group", Request::DeviceFd, Errno::ACCESS, PERMISSION, "token"),
        ("group", Request::DeviceFd, Errno::INVAL, PERMISSION, "token"),
        ("group", Request::SetIrqs, Errno::INVAL, UNSUPPORTED, "another interrupt type"),
        ("cdev", Request::SetIrqs, Errno::NOTTY, UNSUPPORTED, "another interrupt type"),
        (
            "group",
            Request::RegionInfo,
            Errno::NODEV,
            ErrorKind::Lost(LossReason::Removed),
            "removed",
        ),
    ];
    for (mode, request, errno, expected, advice) in rows {
        let fake = kernel(mode);
        fake.with(|state| state.refuse.insert(request, [errno].into()));
        let error = open(&fake, mode).unwrap_err();
        assert_error(&error, expected, advice, &format!("{request:?} {errno}"));
        fake.assert_clean(&format!("{request:?}"));
    }
}

#[test]
fn groups_and_machines_that_do_not_suit() {
    let fake = kernel("group");
    fake.with(|state| state.viable = false);
    let error = open(&fake, "group").unwrap_err();
    assert_error(&error, UNSUPPORTED, &format!("iommu_groups/{GROUP}/devices"), "not viable");

    // Each kind of machine lacks the other's kind of container.
    let fake = kernel("group");
    fake.with(|state| state.iommu.absent = true);
    let error = open(&fake, "group").unwrap_err();
    assert_error(&error, UNSUPPORTED, "vfio_iommu_type1", "no IOMMU");
    let fake = kernel("group");
    let error = open(&fake, "noiommu").unwrap_err();
    assert_error(&error, UNSUPPORTED, "enable_unsafe_noiommu_mode=1", "no unsafe mode");

    let fake = kernel("group");
    let error = open(&fake, "cdev").unwrap_err();
    assert_error(&error, UNSUPPORTED, "vfio-pci", "no node");

    let fake = kernel("group");
    let other = VfioAddress::new(Bdf::new(0, 9, 9, 0).unwrap());
    let error = VfioHal::open_with(fake, &other, &super::options()).unwrap_err();
    assert_error(&error, UNSUPPORTED, "bind the device", "no such device");
}

#[test]
fn mappings_that_fail() {
    let host_memory = ErrorKind::Exhausted(Resource::HostMemory);
    let bus_addresses = ErrorKind::Exhausted(Resource::BusAddresses);
    let rows = [
        (Errno::NOMEM, host_memory, "LimitMEMLOCK="),
        (Errno::NOSPC, bus_addresses, "fewer, larger buffers"),
        (Errno::EXIST, ErrorKind::Other, "defect of this crate"),
        (Errno::INVAL, ErrorKind::OutOfBounds, "iova-bits="),
        (Errno::FAULT, ErrorKind::OutOfBounds, "cannot be pinned"),
        (Errno::OPNOTSUPP, ErrorKind::OutOfBounds, "cannot be pinned"),
    ];
    for (mode, request) in [("group", Request::MapDma), ("cdev", Request::IoasMap)] {
        for (errno, expected, advice) in rows {
            let fake = kernel(mode);
            let hal = open(&fake, mode).unwrap();
            fake.with(|state| state.refuse.insert(request, [errno].into()));
            let error = hal.dma().alloc(64, DeviceAccess::Read).unwrap_err();
            assert_error(&error, expected, advice, &format!("{request:?} {errno}"));
            // The next one works.
            hal.dma().alloc(64, DeviceAccess::Read).unwrap();
            hal.close().unwrap();
            fake.assert_clean(mode);
        }
    }
}

#[test]
fn bus_addresses_can_run_out() {
    let fake = kernel("group");
    fake.with(|state| state.iommu.ranges = vec![(0, 0x2f_ffff)]);
    let hal = open(&fake, "group").unwrap();
    let error = hal.dma().alloc(4 << 20, DeviceAccess::Read).unwrap_err();
    assert_error(&error, ErrorKind::Exhausted(Resource::BusAddresses), "free buffers", "ranges");
}

#[test]
fn regions_that_do_not_answer() {
    let fake = kernel("group");
    fake.with(|state| state.card.trapped.push(2));
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let read = || window.read(BarOffset::new(0x10), Width::W32);
    let next = fake.calls();
    fake.with(|state| state.fail = Some((next, Errno::IO)));
    let needed = ErrorKind::NeedsReset(ResetScope::Function);
    assert_error(&read().unwrap_err(), needed, "memory decode is off", "one failure");
    // One failure is not believed: configuration space still answers.
    read().unwrap();
    fake.with(|state| state.card.unplugged = true);
    let removed = ErrorKind::Lost(LossReason::Removed);
    assert_error(&read().unwrap_err(), removed, "drop all handles", "unplugged");
    assert_eq!(kind(&window.flush().unwrap_err()), removed);
}

#[test]
fn messages_do_not_repeat_their_cause() {
    let fake = kernel("group");
    fake.with(|state| state.refuse_open.insert("/dev/vfio/vfio".into(), Errno::NOENT));
    let error = open(&fake, "group").unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(!error.to_string().contains(&cause));
}
