//! Opening and closing.

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{DeviceAccess, Dma, ErrorKind, Hal, Sharing};

use super::{MODES, address, kernel, kind, open, open_with, options};
use crate::sys::fake::{BDF, GROUP};
use crate::{Holder, Mode, ResetAtOpen, VfioError, VfioHal, VfioOptions};

fn position(log: &[String], text: &str) -> usize {
    let found = log.iter().position(|call| call.contains(text));
    found.unwrap_or_else(|| panic!("no {text} in {log:#?}"))
}

fn assert_order(log: &[String], calls: &[&str]) {
    let places: Vec<_> = calls.iter().map(|call| position(log, call)).collect();
    assert!(places.is_sorted(), "{calls:?} came at {places:?} in {log:#?}");
}

#[test]
fn each_mode_opens_in_the_order_the_kernel_demands() {
    let group = format!("open /dev/vfio/{GROUP}");
    let bare = format!("open /dev/vfio/noiommu-{GROUP}");
    let by_group = |group| {
        [
            "open /dev/vfio/vfio",
            "ApiVersion",
            "CheckExtension",
            group,
            "GroupStatus",
            "SetContainer",
        ]
        .into_iter()
        .chain(["SetIommu", "DeviceFd", "DeviceInfo", "SetIrqs"])
        .collect::<Vec<_>>()
    };
    let cdev = vec![
        "open /dev/vfio/devices/vfio3",
        "open /dev/iommu",
        "BindIommufd",
        "IoasAlloc",
        "AttachPageTable",
        "DeviceInfo",
        "IoasRanges",
    ];
    for (mode, calls) in [("group", by_group(&group)), ("noiommu", by_group(&bare)), ("cdev", cdev)]
    {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        fake.with(|state| {
            assert_order(&state.log, &calls);
            // Bus mastering was on when we came; it goes off before anything is armed, and on last.
            assert_order(&state.log, &["command 0x2", "SetIrqs", "command 0x6"]);
            let last_command = state.log.iter().rposition(|call| call.starts_with("command"));
            let last_other = state.log.iter().rposition(|call| !call.starts_with("read"));
            assert_eq!(last_command, last_other, "bus mastering is the last thing that is set");
            assert!(state.card.is_bus_master());
            assert_eq!(state.card.irqs.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
            assert_eq!(state.card.irqs[&1].len(), 4);
        });
        let facts = hal.facts().unwrap();
        assert_eq!((facts.mode.to_string().as_str(), facts.vectors), (mode, 4));
        assert!(facts.function_level_reset);
        hal.close().unwrap();
        fake.assert_clean(mode);
    }
}

#[test]
fn the_identity_is_that_of_configuration_space_and_kernel() {
    let interfaces =
        ["VFIO API 0, IOMMU type 1 version 2", "VFIO by iommufd", "VFIO API 0 without IOMMU"];
    for (mode, interface) in MODES.into_iter().zip(interfaces) {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        let identity = hal.identity();
        assert_eq!(identity.backend, "et-hal-vfio");
        assert_eq!(identity.backend_version, env!("CARGO_PKG_VERSION"));
        assert_eq!(identity.interface, Some(interface));
        assert_eq!(identity.driver, Some("vfio-pci, Linux 6.1.0-test"));
        assert_eq!(identity.pci_address, Some(BDF));
        let ids = identity.pci.unwrap().to_string();
        assert_eq!(ids, "1e0a:eb01 (subsystem 1e0a:0007, revision 02)");
    }
}

#[test]
fn closing_silences_first_and_leaves_nothing() {
    for mode in MODES {
        let fake = kernel(mode);
        let hal = open(&fake, mode).unwrap();
        let buffer = hal.dma().alloc(4096, DeviceAccess::Read).unwrap();
        let start = fake.calls();
        drop(buffer);
        hal.close().unwrap();
        fake.with(|state| {
            let log = &state.log[start..];
            let mut order = vec!["command 0x2", "SetIrqs"];
            match mode {
                "group" => order.push("UnmapDma"),
                "cdev" => order.push("IoasUnmap"),
                _ => {}
            }
            order.push("write owner");
            assert_order(log, &order);
            assert_eq!(state.iommu.left_at_close, 0, "all was unmapped, not only closed");
            assert!(state.owner_text.starts_with("clean "));
        });
        fake.assert_clean(mode);
    }
}

#[test]
fn automatic_mode_prefers_the_devices_own_node() {
    for (has_cdev, expected) in [(true, Mode::Cdev), (false, Mode::Group)] {
        let fake = kernel("group");
        fake.with(|state| state.has_cdev = has_cdev);
        let hal = open(&fake, "auto").unwrap();
        assert_eq!(hal.facts().unwrap().mode, expected);
    }
    // One half of the interface only.
    let fake = kernel("cdev");
    fake.with(|state| state.refuse_open.insert("/dev/iommu".into(), rustix::io::Errno::NOENT));
    assert_eq!(open(&fake, "auto").unwrap().facts().unwrap().mode, Mode::Group);
}

#[test]
fn a_device_without_iommu_needs_two_permissions() {
    let fake = kernel("noiommu");
    let error = open_with(&fake, "noiommu", &VfioOptions::new()).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Permission);
    assert!(error.to_string().contains("allow_unsafe_no_iommu"));
    // It is never chosen by itself.
    let error = open(&fake, "auto").unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    fake.assert_clean("after refusals");
}

#[test]
fn a_second_opener_hears_who_has_the_device() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let error = open(&fake, "group").unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Busy);
    let own = format!("process {} (test program)", std::process::id());
    assert!(error.to_string().contains(&own), "{error}");
    drop(hal);
    fake.assert_clean("after drop");

    // Another process: the kernel says so, the owner file only who.
    let holder = fake.with(|state| {
        state.refuse_open.insert(format!("/dev/vfio/{GROUP}"), rustix::io::Errno::BUSY);
        state.owner_locked_by_other = true;
        state.owner_text = "open 77 5 1001\nother --program\n".into();
        "process 77 (other --program) of user 1001"
    });
    let error = open(&fake, "group").unwrap_err();
    assert!(matches!(&error, VfioError::Busy { holder: Some(holder), .. } if holder.pid == 77));
    assert!(error.to_string().contains(holder) && error.to_string().contains(BDF), "{error}");
    // A locked file alone is no reason to refuse.
    fake.with(|state| state.refuse_open.clear());
    open(&fake, "group").unwrap().close().unwrap();
    fake.assert_clean("after all");
}

#[test]
fn the_holder_is_told_without_opening() {
    let fake = kernel("group");
    let look = || Holder::of_with(&*fake, BDF.parse().unwrap(), &options());
    assert_eq!(look(), None);
    let hal = open(&fake, "group").unwrap();
    let holder = look().unwrap();
    assert_eq!((holder.pid, holder.user), (std::process::id(), Some(1000)));
    assert_eq!(holder.command, "test program");
    assert_eq!(hal.identity().sharing, Sharing::Exclusive);
    hal.close().unwrap();
    assert_eq!(look(), None, "it was closed");
    // The start time of all processes of this kernel is 1: one that ended, and a later one.
    for (text, held) in [("open 77 1 5\nx\n", true), ("open 77 2 5\nx\n", false), ("", false)] {
        fake.with(|state| state.owner_text = text.into());
        assert_eq!(look().is_some(), held, "{text:?}");
    }
}

#[test]
fn an_unclean_end_leads_to_a_reset() {
    let resets = |text: &str, when, has_reset| {
        let fake = kernel("group");
        fake.with(|state| {
            state.owner_text = text.into();
            state.card.has_reset = has_reset;
        });
        let hal = open_with(&fake, "group", &options().reset_at_open(when)).unwrap();
        hal.close().unwrap();
        fake.assert_clean("after close");
        fake.with(|state| state.card.resets)
    };
    assert_eq!(resets("open 3 4\nx\n", ResetAtOpen::IfUnclean, true), 1);
    assert_eq!(resets("open 3 4\nx\n", ResetAtOpen::Never, true), 0);
    assert_eq!(resets("open 3 4\nx\n", ResetAtOpen::IfUnclean, false), 0);
    assert_eq!(resets("clean 3 4\nx\n", ResetAtOpen::IfUnclean, true), 0);
    assert_eq!(resets("clean 3 4\nx\n", ResetAtOpen::Always, true), 1);
    assert_eq!(resets("", ResetAtOpen::IfUnclean, true), 0);
}

#[test]
fn other_devices_and_dead_ones_are_refused() {
    let fake = kernel("group");
    fake.with(|state| state.card.config[2..4].copy_from_slice(&[0x34, 0x12]));
    let error = open(&fake, "group").unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    assert!(error.to_string().contains("1e0a:1234"), "{error}");

    let fake = kernel("group");
    fake.with(|state| state.card.config.fill(0xff));
    assert!(matches!(kind(&open(&fake, "group").unwrap_err()), ErrorKind::Lost(_)));
}

#[test]
fn a_device_that_keeps_bus_mastering_is_refused() {
    let fake = kernel("group");
    fake.with(|state| state.card.stuck_command = 4);
    let error = open(&fake, "group").unwrap_err();
    assert!(matches!(error, VfioError::CommandRegister { written: 2, found: 6 }), "{error}");
}

#[test]
fn capability_lists_that_go_in_a_circle_end() {
    let flr = |change: &dyn Fn(&mut Vec<u8>)| {
        let fake = kernel("group");
        fake.with(|state| change(&mut state.card.config));
        let hal = open(&fake, "group").unwrap();
        hal.facts().unwrap().function_level_reset
    };
    assert!(flr(&|_| {}));
    assert!(!flr(&|config| config[0x77] = 0), "the bit");
    assert!(!flr(&|config| config[6] = 0), "no list");
    assert!(!flr(&|config| config[0x34] = 0), "an empty list");
    assert!(!flr(&|config| config[0x51] = 0x50), "a circle");
    assert!(!flr(&|config| config[0x51] = 0x10), "back into the header");
}

#[test]
fn handles_that_remain_are_counted_and_harmless() {
    let fake = kernel("group");
    let hal = open(&fake, "group").unwrap();
    let window = hal.window(MAILBOX_BAR).unwrap();
    let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Write).unwrap();
    let error = hal.close().unwrap_err();
    assert!(matches!(error, VfioError::HandlesRemain { handles: 2 }), "{error}");
    fake.with(|state| {
        assert!(!state.card.is_bus_master() && state.iommu.pins.is_empty());
    });
    // The address is free in this process, but the kernel still has the device open.
    assert_eq!(kind(&open(&fake, "group").unwrap_err()), ErrorKind::Busy);
    drop(window);
    drop(buffer);
    fake.assert_clean("after the last handle");
    open(&fake, "group").unwrap().close().unwrap();
}

#[test]
fn without_owner_files_everything_works() {
    let fake = kernel("group");
    let hal = open_with(&fake, "group", &options().owner_dir(None)).unwrap();
    hal.close().unwrap();
    assert!(!fake.with(|state| state.log.iter().any(|call| call.contains("owner"))));
}

#[test]
fn a_real_machine_without_the_device_explains() {
    // No function has this address.
    let mut address = address("group");
    address.bdf = crate::Bdf::new(0xffff_fff0, 0xff, 31, 7).unwrap();
    let options = VfioOptions::new().owner_dir(None);
    let error = VfioHal::open(&address, &options).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Unsupported);
    assert!(error.to_string().contains("vfio-pci"), "{error}");
}
