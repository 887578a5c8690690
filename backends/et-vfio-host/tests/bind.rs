//! Binding and unbinding, on made-up hosts.

mod tree;

use std::time::Duration;

use et_vfio_host::{BindOptions, Error, FileKernel, Kernel, Mode};
use tree::{BRIDGE, CARD, DEVICE, FakeKernel, Tree, card};

const STATE: &str = "run/et/bind/0000:01:00.0";

fn options() -> BindOptions {
    BindOptions::default().settle(Duration::from_millis(30))
}

fn writes(kernel: &FakeKernel) -> Vec<String> {
    kernel.writes.borrow().iter().map(|(file, text)| format!("{text:?} > {file}")).collect()
}

#[test]
fn a_card_goes_to_vfio_and_back() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    let change = host.bind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(
        writes(&kernel),
        [
            "\"vfio-pci\" > sys/bus/pci/devices/0000:01:00.0/driver_override",
            "\"0000:01:00.0\" > sys/bus/pci/drivers/et-soc1/unbind",
            "\"0000:01:00.0\" > sys/bus/pci/drivers_probe",
        ]
    );
    assert_eq!(change.driver.as_deref(), Some("vfio-pci"));
    assert!(matches!(change.mode, Some(Mode::Cdev { .. })), "{:?}", change.mode);
    assert_eq!(tree.read(STATE), "driver=et-soc1\noverride=\n");

    let change = host.unbind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(change.driver.as_deref(), Some("et-soc1"));
    assert_eq!(change.mode, None);
    assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "(null)\n");
    assert!(!tree.at(STATE).exists());
}

#[test]
fn a_second_time_changes_nothing() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    let change = host.unbind_with(card(), &options(), &kernel).unwrap();
    assert!(change.plan.steps.is_empty() && writes(&kernel).is_empty());
    let _ = host.bind_with(card(), &options(), &kernel).unwrap();
    let before = writes(&kernel).len();
    let change = host.bind_with(card(), &options(), &kernel).unwrap();
    assert!(change.plan.steps.is_empty());
    assert_eq!(writes(&kernel).len(), before);
    assert_eq!(tree.read(STATE), "driver=et-soc1\noverride=\n");
}

#[test]
fn a_card_without_driver_is_left_without_one() {
    let tree = Tree::unbound();
    tree.driver(CARD, None);
    tree.write(&format!("{DEVICE}/driver_override"), "none\n");
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    let _ = host.bind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(tree.read(STATE), "driver=\noverride=none\n");
    let change = host.unbind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(change.driver, None);
    assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "none\n");
}

/// The first write, the second or the third fails: everything is as before.
#[test]
fn every_failing_step_is_undone() {
    for at in 0..3 {
        let tree = Tree::unbound();
        let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
        kernel.fail_at.set(Some(at));
        let error = host.bind_with(card(), &options(), &kernel).unwrap_err();
        let Error::Write { file, text, source } = &error else { panic!("{error}") };
        assert_eq!(error.to_string(), format!("cannot write {text:?} to {}", file.display()));
        assert_eq!(source.raw_os_error(), Some(5));
        assert!(writes(&kernel)[at].ends_with(file.strip_prefix("/").unwrap().to_str().unwrap()));
        assert_eq!(tree.driver_of(CARD).as_deref(), Some("et-soc1"), "step {at}");
        assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "(null)\n");
        assert!(!tree.at(STATE).exists());
    }
}

#[test]
fn a_driver_that_refuses_the_card_is_undone() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    kernel.broken.set(Some("vfio-pci"));
    let error = host.bind_with(card(), &options(), &kernel).unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error}");
    assert_eq!(tree.driver_of(CARD).as_deref(), Some("et-soc1"));
}

#[test]
fn an_undo_that_fails_keeps_what_is_needed_for_another_try() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    kernel.fail_at.set(Some(2));
    kernel.broken.set(Some("et-soc1"));
    let error = host.bind_with(card(), &options(), &kernel).unwrap_err();
    assert!(matches!(error, Error::NotUndone { .. }), "{error}");
    assert_eq!(tree.driver_of(CARD), None);
    kernel.fail_at.set(None);
    kernel.broken.set(None);
    let change = host.unbind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(change.driver.as_deref(), Some("et-soc1"));
}

#[test]
fn a_bind_that_was_cut_short_is_continued() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    tree.write(STATE, "driver=et-soc1\noverride=\n");
    tree.write(&format!("{DEVICE}/driver_override"), "vfio-pci\n");
    tree.driver(CARD, None);
    let _ = host.bind_with(card(), &options(), &kernel).unwrap();
    let change = host.unbind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(change.driver.as_deref(), Some("et-soc1"));
}

#[test]
fn unbinding_says_when_the_old_driver_does_not_come() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    let _ = host.bind_with(card(), &options(), &kernel).unwrap();
    // It became another one meanwhile: the fake kernel knows one driver for the card.
    tree.write(STATE, "driver=other\noverride=\n");
    let error = host.unbind_with(card(), &options(), &kernel).unwrap_err();
    let Error::WrongDriver { found, wanted, .. } = error else { panic!("{error}") };
    assert_eq!((found.as_deref(), wanted.as_deref()), (Some("et-soc1"), Some("other")));
    assert!(tree.at(STATE).exists());
}

/// The process dies after each step: unbinding leads back, and so does binding again and then
/// unbinding.
#[test]
fn a_bind_cut_short_at_any_step_can_be_unbound() {
    for again in [false, true] {
        for done in 0..=4 {
            let tree = Tree::unbound();
            let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
            let plan = host.plan_bind(card(), &options()).unwrap();
            assert_eq!(plan.steps.len(), 4);
            for step in &plan.steps[..done] {
                let file = step.file.strip_prefix("/").unwrap().to_str().unwrap();
                match file {
                    STATE => tree.write(STATE, &step.write),
                    _ => kernel.write(&tree.at(file), &step.write).unwrap(),
                }
            }
            if again {
                let change = host.bind_with(card(), &options(), &kernel).unwrap();
                assert_eq!(change.driver.as_deref(), Some("vfio-pci"));
            }
            let change = host.unbind_with(card(), &options(), &kernel).unwrap();
            assert_eq!(change.driver.as_deref(), Some("et-soc1"), "{done} steps");
            assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "(null)\n");
        }
    }
}

#[test]
fn what_an_older_bind_remembered_is_replaced() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    tree.write(STATE, "driver=other\noverride=other\n");
    let _ = host.bind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(tree.read(STATE), "driver=et-soc1\noverride=\n");
}

#[test]
fn unbinding_that_failed_can_be_tried_again() {
    for at in 3..6 {
        let tree = Tree::unbound();
        let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
        let _ = host.bind_with(card(), &options(), &kernel).unwrap();
        kernel.fail_at.set(Some(at));
        let error = host.unbind_with(card(), &options(), &kernel).unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error}");
        let change = host.unbind_with(card(), &options(), &kernel).unwrap();
        assert_eq!(change.driver.as_deref(), Some("et-soc1"), "step {at}");
        assert!(!tree.at(STATE).exists());
    }
}

#[test]
fn a_card_bound_by_other_means_is_unbound_without_memory() {
    let tree = Tree::bound();
    let kernel = FakeKernel::new(&tree);
    let plan = tree.host().plan_unbind(card()).unwrap();
    assert!(!plan.is_known);
    let change = tree.host().unbind_with(card(), &options(), &kernel).unwrap();
    assert_eq!(change.driver.as_deref(), Some("et-soc1"));
}

#[test]
fn errors_can_cross_threads() {
    fn check<T: Send + Sync + std::error::Error>() {}
    check::<Error>();
}

#[test]
fn nodes_are_given_to_the_owner() {
    let tree = Tree::unbound();
    let (host, kernel) = (tree.host(), FakeKernel::new(&tree));
    let owner = host.owner("ann:et").unwrap();
    assert_eq!((owner.uid, owner.gid), (54321, Some(77)));
    let change = host.bind_with(card(), &options().owner(owner), &kernel).unwrap();
    assert_eq!(change.given.len(), 2);
    let files: Vec<_> = kernel.owners.borrow().iter().map(|(file, _)| file.clone()).collect();
    assert_eq!(files, ["dev/vfio/devices/vfio0", "dev/vfio/12"]);
    assert!(matches!(host.owner("eve"), Err(Error::UnknownName { kind: "user", .. })));
    assert!(matches!(host.owner("ann:eve"), Err(Error::UnknownName { kind: "group", .. })));
    assert!(matches!(host.owner(""), Err(Error::UnknownName { .. })));
    assert_eq!(host.owner("5:6").unwrap().gid, Some(6));
}

/// What must be refused: how the tree is changed, and a word of the error.
#[test]
fn devices_that_must_stay_are_refused() {
    type Case = (&'static str, fn(&Tree));
    let cases: [Case; 11] = [
        ("no PCI function", |t| t.remove(DEVICE)),
        ("not an ET-SoC-1", |t| t.function(CARD, "0x020000", "0x8086", "0x10d3")),
        ("vfio-pci is not loaded", |t| t.remove("sys/bus/pci/drivers/vfio-pci")),
        ("has no IOMMU group", |t| t.remove(&format!("{DEVICE}/iommu_group"))),
        ("0000:01:00.1 has snd", |t| {
            t.function("0000:01:00.1", "0x040300", "0x8086", "0x0001");
            t.driver("0000:01:00.1", Some("snd"));
            t.write("sys/kernel/iommu_groups/12/devices/0000:01:00.1", "");
        }),
        ("4 virtual functions", |t| t.write(&format!("{DEVICE}/sriov_numvfs"), "4\n")),
        ("shows the console", |t| t.write(&format!("{DEVICE}/boot_vga"), "1\n")),
        ("interface eth7 is up", |t| t.write(&format!("{DEVICE}/net/eth7/flags"), "0x1003\n")),
        ("/dev/sda1 is mounted", |t| {
            t.write(&format!("{DEVICE}/ata1/block/sda/sda1/uevent"), "MAJOR=8\nDEVNAME=sda1\n");
        }),
        ("dm-0 lies on sdb", |t| t.write(&format!("{DEVICE}/ata1/block/sdb/holders/dm-0"), "")),
        ("in use by process 9999999 (et-run --all)", |t| {
            t.write(&format!("{DEVICE}/misc/et0_ops/uevent"), "DEVNAME=et0_ops\n");
            t.holder(9_999_999, "et-run --all", "/dev/et0_ops");
        }),
    ];
    for (word, change) in cases {
        let tree = Tree::unbound();
        change(&tree);
        let kernel = FakeKernel::new(&tree);
        let error = tree.host().bind_with(card(), &options(), &kernel).unwrap_err();
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert!(!error.remedy().is_empty(), "{error}");
        assert!(writes(&kernel).is_empty(), "{word}");
    }
}

#[test]
fn harmless_neighbours_are_no_reason_to_refuse() {
    let tree = Tree::unbound();
    for (name, driver) in [("0000:01:00.1", Some("pci-stub")), ("0000:01:00.2", None)] {
        tree.function(name, "0x040300", "0x8086", "0x0001");
        tree.driver(name, driver);
        tree.write(&format!("sys/kernel/iommu_groups/12/devices/{name}"), "");
    }
    tree.write(&format!("{DEVICE}/net/eth7/flags"), "0x1002\n");
    tree.write(&format!("{DEVICE}/ata1/block/sdb/uevent"), "DEVNAME=sdb\n");
    assert_eq!(tree.driver_of(BRIDGE).as_deref(), Some("pcieport"));
    assert_eq!(tree.host().plan_bind(card(), &options()).unwrap().steps.len(), 4);
}

#[test]
fn other_devices_can_be_asked_for() {
    let tree = Tree::unbound();
    tree.function(CARD, "0x00ff00", "0x1234", "0x11e8");
    let plan = tree.host().plan_bind(card(), &options().any_device()).unwrap();
    assert_eq!(plan.steps.len(), 4);
}

#[test]
fn a_card_in_use_is_not_unbound() {
    let tree = Tree::bound();
    tree.holder(9_999_999, "worker", "/dev/vfio/12");
    let kernel = FakeKernel::new(&tree);
    let error = tree.host().unbind_with(card(), &options(), &kernel).unwrap_err();
    assert_eq!(error.remedy(), ["kill 9999999"]);
    assert!(writes(&kernel).is_empty());
}

/// Without a kernel behind the files the driver stays: the writes arrive, the check fails, and all
/// is undone.
#[test]
fn real_writes_arrive_and_the_result_is_checked() {
    let tree = Tree::unbound();
    let kernel = FileKernel::default();
    let error = tree.host().bind_with(card(), &options(), &kernel).unwrap_err();
    let Error::WrongDriver { found, wanted, .. } = &error else { panic!("{error}") };
    assert_eq!((found.as_deref(), wanted.as_deref()), (Some("et-soc1"), Some("vfio-pci")));
    assert_eq!(tree.read("sys/bus/pci/drivers/et-soc1/unbind"), CARD);
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), CARD);
    assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "\n");
    assert!(!tree.at(STATE).exists());
}

#[test]
fn real_writes_bind_when_something_answers_them() {
    let tree = Tree::unbound();
    tree.answer(&["sys/bus/pci/drivers/et-soc1/unbind", "sys/bus/pci/drivers_probe"]);
    let long = BindOptions::default().settle(Duration::from_secs(8));
    let change = tree.host().bind_with(card(), &long, &FileKernel::default()).unwrap();
    assert_eq!(change.driver.as_deref(), Some("vfio-pci"));
    assert_eq!(tree.read(STATE), "driver=et-soc1\noverride=\n");
}
