//! Memory.

use std::ptr::NonNull;

use embedded_dma::ReadBuffer;
use et_hal::{DeviceAccess, Dma, DmaBuffer, ErrorKind, Hal, Resource};

use super::{kernel, kind, open, open_with, options};
use crate::sys::fake::BDF;
use crate::sys::{Linux, MapRequest, Pages, Sys};
use crate::{VfioAddress, VfioError, VfioHal};

#[test]
fn the_device_may_do_only_what_it_is_to_do() {
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        let cases = [
            (DeviceAccess::Read, true, false),
            (DeviceAccess::Write, false, true),
            (DeviceAccess::ReadWrite, true, true),
        ];
        for len in [64, 3 << 20] {
            for (access, read, write) in cases {
                let buffer = hal.dma().alloc(len, access).unwrap();
                let bus = buffer.bus_addr().as_u64();
                let (at, pin) = fake.with(|state| {
                    let (&at, &pin) = state.iommu.pins.range(..=bus).next_back().unwrap();
                    (at, pin)
                });
                assert!(bus + len as u64 <= at + pin.len);
                assert_eq!((pin.read, pin.write), (read, write));
                let (host, _) = host_address(&buffer);
                assert_eq!(host as u64 - pin.address, bus - at, "bus and host address agree");
            }
        }
    }
}

#[expect(unsafe_code, reason = "the trait's method is unsafe; the pointer is only looked at")]
fn host_address(buffer: &crate::VfioBuffer) -> (usize, usize) {
    // SAFETY: the buffer is alive and nothing is accessed through the pointer.
    let (start, len) = unsafe { buffer.read_buffer() };
    (start.addr(), len)
}

#[test]
fn small_buffers_share_a_mapping_but_no_page() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let buffers: Vec<_> =
        (0..100).map(|_| hal.dma().alloc(100, DeviceAccess::Read).unwrap()).collect();
    assert_eq!(fake.with(|state| state.iommu.pins.len()), 1);
    let mut pages: Vec<_> = buffers.iter().map(|b| b.bus_addr().as_u64() / 4096).collect();
    pages.dedup();
    assert_eq!(pages.len(), 100);
    // Other access, other mapping.
    let _other = hal.dma().alloc(100, DeviceAccess::Write).unwrap();
    assert_eq!(fake.with(|state| state.iommu.pins.len()), 2);
}

#[test]
fn buffers_come_zeroed_and_hold_what_is_put_in() {
    for mode in super::MODES {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        for _ in 0..600 {
            let mut buffer = hal.dma().alloc(5000, DeviceAccess::ReadWrite).unwrap();
            let mut bytes = [1; 5000];
            buffer.copy_out(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "{mode}");
            buffer.fill(0, 5000, 0xee).unwrap();
            buffer.copy_in(4998, &[7, 8]).unwrap();
            buffer.copy_out(4996, &mut bytes[..4]).unwrap();
            assert_eq!(bytes[..4], [0xee, 0xee, 7, 8]);
            assert!(buffer.copy_in(4999, &[1, 2]).is_err());
            assert!(buffer.copy_out(5001, &mut []).is_err());
            assert!(buffer.fill(usize::MAX, 2, 0).is_err());
            let dma = hal.dma();
            dma.sync_for_device(&buffer, 0..5000).unwrap();
            assert!(dma.sync_for_cpu(&buffer, 1..5001).is_err());
            #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
            let reversed = dma.sync_for_cpu(&buffer, 4..2);
            assert_eq!(kind(&reversed.unwrap_err()), ErrorKind::OutOfBounds);
        }
    }
}

#[test]
fn bus_addresses_rest_before_they_are_used_again() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    for len in [4096, 3 << 20] {
        let first = hal.dma().alloc(len, DeviceAccess::Read).unwrap().bus_addr();
        let second = hal.dma().alloc(len, DeviceAccess::Read).unwrap().bus_addr();
        assert_ne!(first, second);
    }
}

#[test]
fn empty_slabs_are_given_back_but_one() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let all: Vec<_> =
        (0..20).map(|_| hal.dma().alloc(1 << 19, DeviceAccess::Read).unwrap()).collect();
    assert_eq!(fake.with(|state| state.iommu.pins.len()), 5);
    drop(all);
    assert_eq!(fake.with(|state| state.iommu.pins.len()), 1);
}

#[test]
fn sizes_are_checked() {
    for (mode, max) in [("group", 64 << 30), ("noiommu", 2 << 20)] {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        assert_eq!(hal.dma().limits().max_buffer_bytes, max);
        for len in [0, max + 1, usize::MAX] {
            let error = hal.dma().alloc(len, DeviceAccess::Read).unwrap_err();
            assert_eq!(kind(&error), ErrorKind::TooLarge);
        }
    }
}

#[test]
fn the_limit_of_locked_memory_is_named() {
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        fake.with(|state| state.iommu.lock_limit = Some(4 << 20));
        let hal = open(&fake, mode).unwrap();
        let first = hal.dma().alloc(3 << 20, DeviceAccess::Read).unwrap();
        let held = fake.with(|state| state.iommu.pins.values().map(|pin| pin.len).sum::<u64>());
        let error = hal.dma().alloc(2 << 20, DeviceAccess::Read).unwrap_err();
        let expected = held + (2 << 20);
        assert!(
            matches!(error, VfioError::LockedMemory { need, limit: Some(4_194_304) } if need == expected),
            "{error}"
        );
        assert_eq!(kind(&error), ErrorKind::Exhausted(Resource::HostMemory));
        assert!(error.to_string().contains("ulimit -l"));
        // The refusal has no consequences.
        drop(first);
        drop(hal.dma().alloc(2 << 20, DeviceAccess::Read).unwrap());
        hal.close().unwrap();
        fake.assert_clean(mode);
    }
}

#[test]
fn mapping_entries_are_counted() {
    let fake = kernel("group");
    fake.with(|state| state.iommu.entries = 2);
    let hal = open(&fake, "group").unwrap();
    let alloc = || hal.dma().alloc(1 << 20, DeviceAccess::Read);
    let (first, _second) = (alloc().unwrap(), alloc().unwrap());
    let calls = fake.calls();
    let error = alloc().unwrap_err();
    assert!(matches!(error, VfioError::MappingEntries { in_use: 2 }), "{error}");
    assert_eq!(kind(&error), ErrorKind::Exhausted(Resource::BusAddresses));
    let mapped = fake.with(|state| state.log[calls..].iter().any(|call| call.contains("MapDma")));
    assert!(!mapped, "the kernel was not even asked");
    drop(first);
    alloc().unwrap();
}

#[test]
fn a_short_unmap_is_never_forgotten() {
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
        let bus = buffer.bus_addr().as_u64();
        fake.with(|state| state.iommu.short_unmaps = vec![4096]);
        drop(buffer);
        // The memory is still there, as the device may still write to it; its address is not used
        // again.
        fake.with(|state| {
            let pin = state.iommu.pins[&bus];
            let kept = state.mappings.iter();
            let kept = kept.filter(|&(&at, &len)| at as u64 == pin.address && len == 1 << 20);
            assert_eq!(kept.count(), 1);
        });
        for _ in 0..50 {
            let other = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
            assert_ne!(other.bus_addr().as_u64(), bus);
        }
        // At the end the kernel is asked once more.
        hal.close().unwrap();
        fake.assert_clean(mode);
    }
}

#[test]
fn an_unmap_that_stays_short_is_reported_at_close() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    drop(hal.dma().alloc(64, DeviceAccess::Write).unwrap());
    fake.with(|state| state.iommu.short_unmaps = vec![1]);
    let error = hal.close().unwrap_err();
    assert!(matches!(error, VfioError::ShortUnmap { len: 0x20_0000, .. }), "{error}");
    // Closing the connection does what the call did not.
    fake.assert_clean("after close");
    fake.with(|state| assert_eq!(state.iommu.left_at_close, 1));
}

#[test]
fn huge_pages_are_used_while_there_are_some() {
    let fake = kernel("group");
    fake.with(|state| state.huge_pages_free = 2);
    let hal = open(&fake, "group").unwrap();
    let aligned = |bus: u64| bus.is_multiple_of(2 << 20);
    let first = hal.dma().alloc(3 << 20, DeviceAccess::Read).unwrap();
    assert!(aligned(first.bus_addr().as_u64()));
    let _second = hal.dma().alloc(3 << 20, DeviceAccess::Read).unwrap();
    fake.with(|state| {
        assert_eq!(state.huge_pages_free, 0);
        let lens: Vec<_> = state.iommu.pins.values().map(|pin| pin.len).collect();
        assert_eq!(lens, [4 << 20, 3 << 20], "whole huge pages, then exact small ones");
    });

    let fake = kernel("group");
    let address: VfioAddress = format!("{BDF},mode=group,hugepages=never").parse().unwrap();
    let hal = VfioHal::open_with(std::sync::Arc::clone(&fake) as _, &address, &options()).unwrap();
    let _buffer = hal.dma().alloc(3 << 20, DeviceAccess::Read).unwrap();
    assert!(!fake.with(|state| state.log.iter().any(|call| call.contains("Huge"))));
}

#[test]
fn without_iommu_addresses_are_physical_and_pages_huge() {
    let fake = kernel("noiommu");
    let hal = open(&fake, "noiommu").unwrap();
    let one = hal.dma().alloc(1 << 20, DeviceAccess::Read).unwrap();
    let two = hal.dma().alloc(1 << 20, DeviceAccess::Read).unwrap();
    // The fake's frames begin at 4 GiB; both are in one huge page.
    assert!(one.bus_addr().as_u64() >= 1 << 32);
    assert_eq!(two.bus_addr().as_u64(), one.bus_addr().as_u64() + (1 << 20));
    // Freed memory stays with the process as long as the device could write to it.
    let files = |fake: &crate::sys::fake::Fake| fake.with(|state| state.fds.len());
    let before = files(&fake);
    drop((one, two));
    assert_eq!(files(&fake), before);
    hal.close().unwrap();
    fake.assert_clean("after close");

    let fake = kernel("noiommu");
    let hal = open(&fake, "noiommu").unwrap();
    fake.with(|state| state.may_see_frames = false);
    let error = hal.dma().alloc(64, DeviceAccess::Read).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Permission);
    assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");

    fake.with(|state| state.huge_pages_free = 0);
    let error = hal.dma().alloc(64, DeviceAccess::Read).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Exhausted(Resource::HostMemory));
    assert!(error.to_string().contains("nr_hugepages"), "{error}");
}

#[test]
fn a_device_that_is_not_silenced_keeps_its_physical_memory() {
    let fake = kernel("noiommu");
    let hal = open(&fake, "noiommu").unwrap();
    drop(hal.dma().alloc(64, DeviceAccess::Write).unwrap());
    fake.with(|state| state.card.stuck_command = 4);
    assert!(matches!(hal.close(), Err(VfioError::CommandRegister { .. })));
    fake.with(|state| {
        assert_eq!(state.mappings.len(), 1, "the page is not returned to the system");
        assert!(state.owner_text.starts_with("open "), "the next opener resets");
    });
}

#[test]
fn kernels_that_tell_no_ranges_get_careful_addresses() {
    let fake = kernel("group");
    fake.with(|state| state.iommu.tells_nothing = true);
    let hal = open(&fake, "group").unwrap();
    let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Read).unwrap();
    let bus = buffer.bus_addr().as_u64();
    assert!((1 << 20..0xfee0_0000).contains(&bus));
}

#[test]
fn many_ranges_are_asked_for_again() {
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        let ranges: Vec<_> = (0..40).map(|n| (n << 24, (n << 24) + 0xff_ffff)).collect();
        fake.with(|state| state.iommu.ranges = ranges);
        let hal = open(&fake, mode).unwrap();
        // Each range takes fewer than two of these, so all ranges are needed.
        let all: Vec<_> =
            (0..5).map(|_| hal.dma().alloc(9 << 20, DeviceAccess::Read).unwrap()).collect();
        assert!(all.iter().any(|buffer| buffer.bus_addr().as_u64() >= 4 << 24), "{mode}");
    }
}

/// Two pages of ordinary shared memory.
fn pages() -> (i32, NonNull<u8>) {
    let fd = Linux.memory_file(8192, Pages::Small).unwrap();
    let request = MapRequest { len: 8192, file: Some((fd, 0)), over: None, populate: true };
    (fd, Linux.map(request).unwrap())
}

#[test]
#[expect(unsafe_code, reason = "imports memory")]
fn memory_of_the_caller_is_mapped_as_long_as_the_guard_lives() {
    let (fd, at) = pages();
    for mode in ["group", "cdev"] {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        // SAFETY: the pages stay mapped to the end of the test, and nothing refers to them.
        let imported = unsafe { hal.dma().import(at, 8192, DeviceAccess::Write) }.unwrap();
        let bus = imported.bus_addr().as_u64();
        fake.with(|state| {
            let pin = state.iommu.pins[&bus];
            assert_eq!((pin.len, pin.address), (8192, at.addr().get() as u64));
        });
        drop(imported);
        assert!(fake.with(|state| state.iommu.pins.is_empty()));
        for (offset, len, expected) in [
            (1, 4096, ErrorKind::Misaligned),
            (0, 4095, ErrorKind::Misaligned),
            (0, 0, ErrorKind::TooLarge),
        ] {
            // SAFETY: the offset is inside the pages.
            let start = unsafe { at.add(offset) };
            // SAFETY: as above.
            let error = unsafe { hal.dma().import(start, len, DeviceAccess::Read) }.unwrap_err();
            assert_eq!(kind(&error), expected, "{error}");
        }
        // A device that cannot be kept from the caller's memory is stopped.
        // SAFETY: as above.
        let imported = unsafe { hal.dma().import(at, 4096, DeviceAccess::Write) }.unwrap();
        fake.with(|state| state.iommu.short_unmaps = vec![4096]);
        drop(imported);
        assert!(!fake.with(|state| state.card.is_bus_master()));
        let error = hal.dma().alloc(64, DeviceAccess::Read).unwrap_err();
        assert!(matches!(kind(&error), ErrorKind::Lost(_)), "{error}");
    }
    let fake = kernel("noiommu");
    let hal = open_with(&fake, "noiommu", &options()).unwrap();
    // SAFETY: as above.
    let error = unsafe { hal.dma().import(at, 4096, DeviceAccess::Read) }.unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    Linux.unmap(at, 8192);
    Linux.close(fd);
}
